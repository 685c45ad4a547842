"""What the difficulty page reads: equal to the named questions, and equal however often one looks."""

import numpy as np
import pytest

from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline
from workbench.views.data.binning import BinnedBeliefs
from workbench.views.data.difficulty import (
    Frontier,
    amount,
    difficulty,
    histogram,
    wasted,
)
from workbench.views.data.run import Source
from workbench.views.data.selection import OBSERVED


def read(recording, rec):
    source = Source(recording.store)
    source.refresh(0)
    return source, source.run(rec.run)


def looked_at_every_step(recording, rec, steps):
    source, data = read(recording, rec)
    for _ in range(steps):
        rec.go(1)
        source.refresh(0)
        difficulty(data).calibration(data, "mopps")
        difficulty(data).frontier(data, "mopps")
    return data


def test_growing_with_the_run_gives_what_one_look_at_the_end_gives(recording):
    rec = recording().go(2)
    grown = looked_at_every_step(recording, rec, 6)
    _, data = read(recording, rec)
    once = difficulty(data)
    for name in ("tried", "solved", "best", "now", "best_step", "last_step", "wasted"):
        np.testing.assert_array_equal(getattr(difficulty(grown), name), getattr(once, name))
    for one, other in zip(difficulty(grown).calibration(grown, "mopps"), once.calibration(data, "mopps"), strict=True):
        np.testing.assert_allclose(one, other)
    np.testing.assert_array_equal(
        difficulty(grown).frontier(grown, "mopps").counts, once.frontier(data, "mopps").counts
    )


def test_lists_and_calibration_are_those_of_the_questions(recording):
    rec = recording().go(3)
    data = looked_at_every_step(recording, rec, 9)
    found = difficulty(data)
    asked = data.ask("forgotten").to_pylist()
    mine = found.forgotten()
    assert {data.prompts.id[i]: (found.best[i], found.now[i]) for i in mine} == {
        r["prompt_id"]: (r["best"], r["now"]) for r in asked
    }
    assert [found.best[i] - found.now[i] for i in mine] == pytest.approx([r["lost"] for r in asked])
    assert len(mine) > 0
    asked = data.ask("stuck").to_pylist()
    assert {data.prompts.id[i] for i in found.stuck()} == {r["prompt_id"] for r in asked}
    assert [found.tried[i] for i in found.stuck()] == [r["tried"] for r in asked]
    asked = data.ask("calibration", method="mopps").to_pylist()
    got = found.calibration(data, "mopps")
    np.testing.assert_allclose(got.believed, [r["believed"] for r in asked])
    np.testing.assert_allclose(got.observed, [r["observed"] for r in asked])
    assert got.tries.tolist() == [r["tries"] for r in asked]
    assert found.calibration(data, OBSERVED).error != found.calibration(data, OBSERVED).error


def test_waste_is_that_of_the_question_and_orders_prompts(recording):
    rec = recording().go(4)
    _, data = read(recording, rec)
    found = difficulty(data)
    asked = {r["prompt_id"]: r["wasted_tokens"] for r in data.ask("most_wasted", limit=1000).to_pylist()}
    assert {p: n for p, n in zip(data.prompts.id.tolist(), found.wasted.tolist(), strict=True) if p in asked} == asked
    assert amount(data, "waste") is found.wasted
    assert amount(data, "times asked") is data.asked


def test_what_counts_as_waste():
    assert wasted("train", "trained", True)
    assert wasted("train", "dropped", False)
    assert not wasted("train", "trained", False)
    assert not wasted("probe", "dropped", False)


def test_asks_of_a_prompt_come_with_their_reasons(recording):
    rec = recording().go(5)
    _, data = read(recording, rec)
    found = difficulty(data)
    row = int(data.asked.argmax())
    asks, why = found.asks(data, str(data.prompts.id[row]))
    assert asks.asked.sum() == data.asked[row]
    assert len(why) == len(asks.step)
    assert all(isinstance(v, float) for scores in why for v in scores.values())
    assert len(found.asks(data, "nobody").columns.step) == 0


def test_a_run_without_beliefs_has_lists_and_a_frontier(recording):
    rec = recording(Pipeline(Grpo())).go(3)
    _, data = read(recording, rec)
    frontier = difficulty(data).frontier(data, OBSERVED)
    assert frontier.counts.sum(0).tolist() == [40] * 3
    assert frontier.at(1)[-1] == 32  # eight of forty prompts were asked in the first step
    assert sum(v[-1] for v in frontier.zones.values()) == pytest.approx(1)


def test_a_histogram_counts_every_prompt_once():
    counts = histogram(np.array([0.0, 0.04, 0.05, 0.999, 1.0, np.nan], np.float32))
    assert counts[0] == 2 and counts[1] == 1 and counts[19] == 2 and counts[20] == 1


def test_a_frontier_follows_a_heat_map_that_halves_its_columns():
    rng = np.random.default_rng(0)
    heat, often = BinnedBeliefs(30, columns=4), Frontier(30)
    for step in range(1, 14):
        row = rng.choice(30, 8, replace=False)
        heat.extend(row, np.full(8, step), rng.random(8), step)
        often.update(heat)
        once = Frontier(30)
        once.update(heat)
        np.testing.assert_array_equal(often.counts, once.counts)
    assert often.step.tolist() == [4, 8, 12, 13]
    assert often.at(13).tolist() == histogram(heat.latest).tolist()
