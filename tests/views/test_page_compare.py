"""The compare page: curves with bands, differences to a baseline, unfairness in words, runs shown and left out."""

import numpy as np
import pytest

from workbench.analysis.compare import Comparison, Curve
from workbench.analysis.intervals import Interval
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline
from workbench.runs.sweep import Sweep
from workbench.views.data.compare import Compared
from workbench.views.pages.compare import _difference, unfair_card
from workbench.views.parts.plots_compare import COLORS, ComparePlot, line_styles, thin
from workbench.views.shell.dashboard import Dashboard

FILE = """
[experiment]
model = "sim"
steps = 4
eval_every = 2
checkpoint_every = 4
budget = { prompts = 4, rollouts = 16 }
world = { n_prompts = 30 }
[sweep]
pipelines = ["grpo", "grpo + vade"]
seeds = [0, 1]
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "sweep.toml").write_text(FILE)
    Sweep.from_toml(folder / "sweep.toml").run(store=str(folder / "store"))
    return str(folder / "store")


def opened(store):
    shown = Dashboard(store, names=("compare",))
    shown.source._asked = 0.0
    shown.tick()
    assert shown.shown is shown.page.body
    return shown


def test_pipelines_stand_side_by_side(swept):
    shown = opened(swept)
    p = shown.page
    assert p.figure.means.data["label"] == ["grpo", "grpo + vade"]
    assert p.figure.means.data["seeds"] == [2, 2]
    assert len(p.figure.bands.data["xs"]) == 2 and len(p.figure.runs.data["xs"]) == 4
    assert p.figure.equal.location == 64
    rows = p.table.state["rows"]
    assert [r["cells"][1] for r in rows] == ["2", "2"]
    assert rows[0]["cells"][3] == "–" and "2 pairs" in rows[1]["cells"][3]["note"]
    assert "fewer than three seeds" in p.text["unfair"].object


def test_metric_axis_and_baseline_are_chosen(swept):
    shown = opened(swept)
    p = shown.page
    shown.chosen.param.update(metric="training reward", axis="tokens")
    assert p.metric.value == "training reward"
    assert p.figure.figure.yaxis[0].axis_label == "training reward"
    assert p.figure.figure.xaxis[0].axis_label == "tokens generated"
    assert "no measure of learning" in p.text["unfair"].object
    p.baseline.value = "grpo + vade"
    assert p.table.state["rows"][0]["cells"][0] == {"text": "grpo + vade", "note": "the baseline"}
    p.metric.value = "zero-advantage share"
    assert shown.chosen.metric == "zero-advantage share"


def test_a_click_leaves_a_run_out_and_takes_it_in_again(swept):
    shown = opened(swept)
    p = shown.page
    run = p.runs.state["rows"][0]["key"]
    p.runs._handle_msg({"pick": run})
    assert len(shown.chosen.runs) == 3 and run not in shown.chosen.runs
    assert p.runs.state["rows"][0]["cells"][0] == "·"
    assert "not run with the same seeds" in p.text["unfair"].object
    p.runs._handle_msg({"pick": run})
    assert set(shown.chosen.runs) == {r["run"] for r in shown.source.runs}
    p.newest.clicks += 1
    assert shown.chosen.runs == []
    for a in p.queries:
        shown.source.store.sql(a.sql)


def test_one_run_says_what_to_do(recording):
    recording(Pipeline(Grpo())).go(7)
    shown = opened(recording.store)
    p = shown.page
    assert p.table.state["empty"][0] == "Nothing to compare yet"
    assert "workbench sweep" in p.table.state["empty"][2]
    assert len(p.figure.runs.data["xs"]) == 1 and p.figure.means.data["xs"] == []
    assert not p.figure.equal.visible and p.shown.visible and not p.baseline.visible
    shown.chosen.runs = ["gone"]
    assert "there is no run" in p.text["unfair"].object
    assert not p.shown.visible and "before learning and some steps on" in p.text["none"].object


def test_names_from_outside_stay_text():
    x = np.array([0.0, 1.0])
    curves = [Curve(f"r{s}", "<script>x</script>", s, x, x, {}, frozenset()) for s in (0, 1)]
    made = Comparison("tokens", curves[0].label, curves, x, ["<img src=x>"])
    html = unfair_card(Compared("evaluation reward", "tokens", tuple(curves), {"<b>": "<i>"}, made))
    assert "<img" not in html and "<b>" not in html and "&lt;img" in html


def test_more_pipelines_than_colours_differ_by_their_dashes():
    look = line_styles([str(i) for i in range(20)])
    assert len(set(look.values())) == 20
    assert look["8"] == (COLORS[0], "dashed")


def test_a_single_seed_has_a_line_and_no_band():
    x = np.array([0.0, 10.0])
    curves = tuple(Curve(k, k, 0, x, np.array([0.1, v]), {}, frozenset()) for k, v in (("a", 0.5), ("b", 0.9)))
    plot = ComparePlot()
    plot.update(
        Compared("evaluation reward", "tokens", curves, {}, Comparison("tokens", "a", curves, x, [])),
        line_styles(["a", "b"]),
    )
    assert plot.bands.data["xs"] == []
    assert [ys.tolist() for ys in plot.means.data["ys"]] == [[0.1, 0.5], [0.1, 0.9]]
    assert (plot.figure.x_range.end, plot.figure.x_range.reset_end) == (10.2, 10.2)
    long = (Curve("c", "b", 1, np.array([0.0, 100.0]), np.array([0.1, 0.2]), {}, frozenset()), *curves)
    plot.update(
        Compared("evaluation reward", "tokens", long, {}, Comparison("tokens", "a", long, x, [])),
        line_styles(["a", "b"]),
    )
    assert (plot.figure.x_range.end, plot.figure.x_range.reset_end) == (13, 102)
    plot.update(Compared("evaluation reward", "tokens"), {})
    assert plot.runs.data["xs"] == []


def test_the_figure_is_as_high_as_what_is_looked_at():
    x = np.linspace(0, 100, 11)
    short, long = (Curve(str(i), str(i), 0, x * k, 0.4 + x * k / 1000, {}, frozenset()) for i, k in enumerate((1, 5)))
    made = Comparison("rollouts", "0", [short, long], np.linspace(0, 100, 5), [])
    plot = ComparePlot()
    plot.update(Compared("evaluation pass rate", "rollouts", (short, long), {}, made), line_styles(["0", "1"]))
    y = plot.figure.y_range
    assert plot.figure.x_range.end == pytest.approx(130)
    assert (y.start, y.end) == pytest.approx((0.4 - 0.06 * 0.13, 0.53 + 0.06 * 0.13))
    assert y.reset_end == pytest.approx(0.9 + 0.06 * 0.5)
    assert set(plot.runs.data["width"]) == {1.2}
    flat = Curve("r", "a", 0, x, np.full(11, 0.5), {}, frozenset())
    plot.update(Compared("evaluation pass rate", "rollouts", (flat,), {}), line_styles(["a"]))
    assert (y.start, y.end) == pytest.approx((0.48, 0.52))
    assert plot.runs.data["width"] == [2.4]


def test_lines_are_thinned_to_their_last_point():
    x, y = thin(np.arange(1000.0), np.arange(1000.0))
    assert len(x) == 250 and x[-1] == y[-1] == 999


def test_differences_in_words():
    assert _difference(Interval(0.013, -0.048, 0.074, 3), True) == {
        "text": "+1.3 points",
        "note": "−4.8 to +7.4, 3 pairs",
    }
    assert _difference(Interval(-0.5, np.nan, np.nan, 1), False) == {"text": "−0.500", "note": "one pair: no interval"}
    assert _difference(Interval(np.nan, np.nan, np.nan, 0), True)["note"] == "no seed in common"


def test_axes_of_two_pages_share_no_model():
    from bokeh.document import Document

    for _ in range(2):
        document = Document()
        document.add_root(ComparePlot().figure)
        assert len(document.roots) == 1
    first, second = ComparePlot(), ComparePlot()
    for plot in (first, second):
        plot.update(Compared("evaluation pass rate", "tokens"), {})
    assert not set(first.figure.references()) & set(second.figure.references())
