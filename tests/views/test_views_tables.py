"""BinnedBeliefs, bins, intervals, texts: the pure parts of the views, in literal numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.views.data.binning import BinnedBeliefs, per_row
from workbench.views.data.records import History, RunFacts, Stack, binned, smooth, wilson
from workbench.views.data.text import CUT, count, duration, html, one_line, percent, shown, signed
from workbench.views.parts.plots import stairs

nan = np.nan


def heat_of(rows, last_step, n=3, **options):
    heat = BinnedBeliefs(n, **options)
    row, step, value = (np.array(c) for c in zip(*rows, strict=True))
    heat.extend(row, step, value, last_step)
    return heat


def test_a_prompt_keeps_its_value_until_the_next():
    heat = heat_of([(0, 1, 0.5), (1, 1, 0.25), (0, 3, 0.75)], 4)
    assert heat.n_columns == 4
    np.testing.assert_allclose(heat.values[:, :4], [[0.5, 0.5, 0.75, 0.75], [0.25] * 4, [nan] * 4])


def test_later_steps_extend_the_same_map():
    heat = heat_of([(0, 1, 0.5)], 2)
    changed = heat.extend(np.array([2, 0]), np.array([3, 4]), np.array([1.0, 0.0]), 4)
    assert changed == 2
    np.testing.assert_allclose(heat.values[:, :4], [[0.5, 0.5, 0.5, 0.0], [nan] * 4, [nan, nan, 1.0, 1.0]])


def test_a_full_map_halves_its_columns():
    heat = heat_of([(0, s, s / 10) for s in range(1, 9)], 8, columns=4)
    assert (heat.width, heat.n_columns) == (2, 4)
    np.testing.assert_allclose(heat.values[0, :4], [0.2, 0.4, 0.6, 0.8])
    heat.extend(np.array([0]), np.array([9]), np.array([0.9]), 9)
    assert (heat.width, heat.n_columns) == (4, 3)
    np.testing.assert_allclose(heat.values[0, :3], [0.4, 0.8, 0.9])


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40), st.floats(0, 1, width=32)), min_size=1, max_size=60),
    st.integers(1, 40),
)
def test_reading_in_two_parts_gives_the_map_of_one(rows, cut):
    rows = sorted({(p, s): (p, s, v) for p, s, v in rows}.values(), key=lambda r: r[1])
    last = max(s for _, s, _ in rows)
    whole, parts = BinnedBeliefs(5, columns=8), BinnedBeliefs(5, columns=8)
    row, step, value = (np.array(c) for c in zip(*rows, strict=True))
    whole.extend(row, step, value, last)
    first = step <= cut
    if cut < last:
        parts.extend(row[first], step[first], value[first], cut)
        parts.extend(row[~first], step[~first], value[~first], last)
        assert parts.width == whole.width
        np.testing.assert_array_equal(parts.latest, whole.latest)
    expected = {p: v for p, s, v in rows}
    assert all(whole.latest[p] == np.float32(v) for p, v in expected.items())


def test_orders():
    heat = heat_of([(0, 1, 0.2), (1, 1, 0.9), (2, 1, 0.5), (2, 2, 0.1), (3, 2, 0.6)], 2, n=5)
    stratum = np.array(["b", "a", "b", "a", "a"], object)
    assert heat.order("difficulty", stratum).tolist() == [4, 2, 0, 3, 1]
    assert heat.order("change", stratum).tolist() == [4, 2, 0, 1, 3]
    assert heat.order("stratum", stratum).tolist() == [2, 0, 4, 3, 1]
    assert heat.order("pool order", stratum).tolist() == [0, 1, 2, 3, 4]


def test_more_prompts_than_pixels_are_averaged_over_those_known():
    heat = heat_of([(0, 1, 0.2), (1, 1, 0.4), (2, 1, 1.0)], 1, n=5)
    picture = heat.pixels(np.arange(5), rows=3)
    np.testing.assert_allclose(picture[:, 0], [0.3, 1.0, nan], rtol=1e-6)
    assert [per_row(400), per_row(401), per_row(100_000)] == [1, 2, 250]


def test_bars_of_a_long_run_are_means_per_step():
    stack = Stack(np.arange(1.0, 6.0), {"trained": np.array([1.0, 2, 3, 4, 5])})
    bars = binned(stack, 3)
    assert bars.width == 2
    assert bars.step.tolist() == [2, 4, 5]
    assert bars.amount["trained"].tolist() == [1.5, 3.5, 5]


def test_figures_have_room_for_what_was_made_and_a_little_of_what_comes():
    def room(status, step, target):
        return RunFacts("r", status, step, target, "", "", {}, 1).room

    assert [room("running", 3, 60), room("running", 3, 8), room("paused", 40, None)] == [15, 8, 40]
    assert [room("finished", 10, 10), room("interrupted", 4, 60), room("failed", 0, 60)] == [10, 4, 1]


def test_signs_of_numbers():
    assert [signed(x) for x in (0.5, -0.5, 0.0, -0.001)] == ["+0.50", "−0.50", "0.00", "0.00"]
    assert signed(-1.6, 3) == "−1.600"


def test_interval_of_a_share():
    low, high = wilson(np.array([0.0, 5.0, 0.0]), np.array([10.0, 10.0, 0.0]))
    np.testing.assert_allclose(low, [0.0, 0.2366, 0.0], atol=1e-4)
    np.testing.assert_allclose(high, [0.2775, 0.7634, 1.0], atol=1e-4)


def test_smoothing_skips_what_is_not_known():
    np.testing.assert_allclose(smooth(np.array([1.0, nan, 3.0, 5.0]), 2), [1, 1, 3, 4])
    assert np.isnan(smooth(np.array([nan]), 3)).all()


def test_stairs_hold_a_belief_until_the_next():
    h = History(step=np.array([1, 3]), mean=np.array([0.5, 0.75]), low=np.array([0.0, 0.5]), high=np.array([1.0, 1.0]))
    corners = stairs(h, 5)
    assert corners["step"].tolist() == [1, 3, 3, 5]
    assert corners["mean"].tolist() == [0.5, 0.5, 0.75, 0.75]
    assert stairs(History(), 5)["step"].tolist() == []


def test_markup_is_escaped():
    assert html("<b a='\"'>&") == "&lt;b a=&#x27;&quot;&#x27;&gt;&amp;"
    assert html("x" * 300) == "x" * CUT + "…"


def test_control_and_direction_characters_are_visible():
    assert shown("a\x00\x1b[31m\x7f\n") == "a␀␛[31m␡\n"
    assert shown("\u202egnp.exe\u202c") == "·gnp.exe·"
    assert shown("ok \ud800 ok") == "ok \ufffd ok"
    assert shown("\x9bK") == "\\x9bK"
    assert one_line("a\n\n b" + "c" * 100, 10) == "a bccccccc…"


@given(st.text())
def test_no_text_becomes_markup(text):
    out = html(text)
    assert "<" not in out
    assert ">" not in out
    assert not any(ord(c) < 32 and c not in "\n\t" for c in out)


@pytest.mark.parametrize(("value", "said"), [(950, "950"), (12_400, "12.4k"), (3_100_000, "3.1M"), (9_999, "9,999")])
def test_counts(value, said):
    assert count(value) == said


def test_units():
    assert [percent(0.416), percent(nan), percent(None)] == ["42 %", "–", "–"]
    assert [duration(s) for s in (0.0353, 0.42, 8.1, 600, 7200, nan)] == [
        "35.3 ms",
        "0.42 s",
        "8.1 s",
        "10 min",
        "2 h",
        "–",
    ]
