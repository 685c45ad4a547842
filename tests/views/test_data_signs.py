"""Rates of sign flips as the page counts them, one group against its references, and what is said in words."""

import dataclasses

import numpy as np
import pytest
from grown import pool, record
from grown import read as opened

from workbench.analysis import signs as service
from workbench.pipeline.fates import fates
from workbench.store import Store, Writer
from workbench.types import Advantage, Plan, Rollouts, Step
from workbench.views.data.groups import groups_of
from workbench.views.data.pair import compared, estimators
from workbench.views.data.signs import COUNTS, NONE, Rates, Span, against, rate, rates, references
from workbench.views.data.tokens import Sibling, siblings
from workbench.views.parts.plots import steps_range
from workbench.views.parts.signs import PairPlot, RatesPlot, StripPlot
from workbench.views.parts.signs_text import against_table, bins_table, explain, rollouts_table, strip_head


def sibling(reward, advantage, baseline=0.5, fate="trained", version=0):
    return Sibling(0, f"1:p:{reward}", reward, 1.0, advantage, baseline, "grpo", 4, "stop", version, "", -1, fate, "")


def past(step, n, mean, std=0.0, version=0, trained=None):
    trained = n if trained is None else trained
    return {
        "step": step,
        "version": version,
        "n": n,
        "mean": mean,
        "std": std,
        "trained": trained,
        "earned": trained * mean,
    }


def write(writer, number, reward, value, keep, again=0):
    """Record a step that asked p0 only, with these rewards, advantages and places in the loss; the last `again` rows
    are the first ones of step 1, used once more."""
    plan = Plan(np.array([0]), np.array([len(reward) - again]), step=number)
    r = Rollouts.of_plan(plan, pool(), version=number - 1)
    if again:
        old = Rollouts.of_plan(Plan(np.array([0]), np.array([again]), step=1), pool())
        r = Rollouts.concat([r, old.with_(ask=np.full(again, -1))])
    r = r.with_(
        reward=np.array(reward, float), length=np.ones(len(r), np.int64), finish=np.full(len(r), "stop", object)
    )
    start = Advantage.start(r)
    made = dataclasses.replace(start, value=np.array(value, float)).drop(~np.array(keep), "all_solved")
    writer.append(Step(number, np.array([0]), plan, r, made, *fates(r, made), seconds={"generate": 1.0}))
    writer.flush()


@pytest.fixture
def writer(tmp_path):
    experiment = {"name": "grown", "steps": 3, "model": "scripted", "pipeline": [{"method": "grpo"}]}
    with Writer(tmp_path, experiment, pool(), run="grown", who={"estimate": ["grpo"]}) as made:
        yield made


@pytest.fixture
def run(recording):
    return recording(prompts=12).go(7)


def test_small_pools_are_counted_as_the_question_counts_them(run):
    data = opened(run.writer.url, run.run)
    found, span = rates(data)
    asked = data.ask("sign_flips").to_pylist()
    mine = found.take(found.kind == "small pool")
    assert mine.by("step")[0] == [(k,) for k in range(1, 8)]
    for name, column in (("hard", "hard"), ("vanish", "vanish"), ("unclear", "ambiguous"), ("spurious", "spurious")):
        assert mine.counts[:, COUNTS.index(name)].sum() == sum(r[column] for r in asked)
    assert span.levels > 2


def test_chances_are_those_of_the_service_where_a_prompt_was_asked_before(run):
    data = opened(run.writer.url, run.run)
    mine = rates(data)[0]
    mine = mine.take(mine.kind == "posterior")
    hard = known = 0.0
    with Store.open(run.writer.url) as store:
        seen: set[str] = set()
        for found in service.labels(store, run.run, reference="posterior"):
            prompts = [i.split(":")[1] for i in found.id]
            old = np.array([p in seen for p in prompts]) & (found.flip_label != "out")
            hard += float(np.nansum(found.flip_probability[old]))
            known += old.sum()
            seen |= set(prompts)
    assert known > 50
    total = mine.counts.sum(0)
    assert total[COUNTS.index("signed")] == known
    assert total[COUNTS.index("hard")] == pytest.approx(hard)


def test_rates_grow_with_the_run_and_equal_those_read_at_once(run):
    growing = opened(run.writer.url, run.run)
    rates(growing)
    run.go(1)
    growing.source.refresh(0)
    growing.refresh()
    grown, fresh = rates(growing)[0], rates(opened(run.writer.url, run.run))[0]
    for kind in ("small pool", "posterior"):
        a, b = (r.take(r.kind == kind).by("step", "size", "bin") for r in (grown, fresh))
        assert a[0] == b[0]
        np.testing.assert_allclose(a[1], b[1])


def test_a_belief_learns_from_groups_that_left_the_loss_too(writer, tmp_path):
    write(writer, 1, [1, 1, 1, 1], [0, 0, 0, 0], [False] * 4)
    data = opened(tmp_path)
    assert len(rates(data)[0].step) == 0
    write(writer, 2, [1, 1, 0.5, 1, 0], [0.5, 0.5, -1, np.nan, -1], [True, True, True, True, False])
    data.source.refresh(0)
    data.refresh()
    made = rates(data)[0]
    made = made.take(made.kind == "posterior")
    assert (made.step.tolist(), made.size.tolist(), made.bin.tolist()) == ([2], [3], [4])  # the mean is 5 / 6
    n, hard, vanish, signed, _, _, unclear = made.counts[0]
    assert (n, vanish, signed, unclear) == (3, 0, 3, 0)
    assert hard == pytest.approx(0.03125)  # Beta(5, 1) lies below 0.5
    write(writer, 3, [0.5], [-1], [True])
    data.source.refresh(0)
    data.refresh()
    made = rates(data)[0]
    last = made.take((made.kind == "posterior") & (made.step == 3))
    assert last.bin.tolist() == [3]  # Beta(1 + 0.9 * 4 + 3.5, 1 + 1.5): the mean is 0.76
    assert last.counts[0, COUNTS.index("hard")] == pytest.approx(0.03247, abs=1e-5)


def test_rollouts_that_are_used_again_are_not_counted_again(writer, tmp_path):
    write(writer, 1, [1, 0.5, 0, 0.5], [0.5, 0, -0.5, 0], [True] * 4)
    write(writer, 2, [1, 0, 1, 0.5], [0.5, -0.5, 0.5, 0], [True] * 4, again=2)
    data = opened(tmp_path)
    made = rates(data)[0]
    second = made.take(made.step == 2)
    n = {kind: second.counts[second.kind == kind, 0].sum() for kind in ("small pool", "posterior")}
    assert n == {"small pool": 2, "posterior": 2}
    assert set(second.size.tolist()) == {4}  # the advantage came from all four
    asked = data.ask("sign_flips").to_pylist()
    assert [r["rollouts"] for r in asked] == [4, 2]
    outcome = data.ask("outcomes_of_prompt", prompt="p0").to_pylist()
    assert [(r["asked"], r["rollouts"], r["tried"]) for r in outcome][1] == (2, 2, 0)
    assert outcome[1]["reward"] == 0.5


def test_a_group_is_held_against_the_range_of_rewards_as_it_is_now(writer, tmp_path):
    write(writer, 1, [1, 1, 1, 1], [0, 0, 0, 0], [True] * 4)
    write(writer, 2, [1, 0], [1, -1], [True, True])
    data = opened(tmp_path)
    group = groups_of(data, 2)[0]
    rows = siblings(data, group)
    assert against(data, group, rows)[0].value == pytest.approx(5 / 6)
    write(writer, 3, [2, 0], [1, -1], [True, True])
    data.source.refresh(0)
    data.refresh()
    assert against(data, group, rows)[0].value == pytest.approx(1.0)  # 2 * Beta(3, 3)


def test_a_pool_labels_and_leaves_the_close_ones_out():
    rows = [
        sibling(0.9, 1.0),
        sibling(0.55, -0.2),
        sibling(0.2, -1.0),
        sibling(0.5, 0.1),
        sibling(0.6, 0.0),
        sibling(0.1, 0.0, fate="dropped"),
    ]
    found = references([past(3, 100, 0.5, std=0.2)], 3, rows, Span(5, 0.0, 1.0, 3))
    assert [a.kind for a in found] == ["pool"]
    assert found[0].labels == ("ok", "hard", "ok", "ambiguous", "vanish", "out of the loss")
    assert (found[0].value, found[0].n) == (0.5, 100)
    assert (found[0].low, found[0].high) == pytest.approx((0.46, 0.54))
    assert found[0].chance[:3] == (0.0, 1.0, 0.0)
    assert np.isnan(found[0].chance[3])


def test_a_belief_comes_from_earlier_steps_only_and_fades():
    rows = [sibling(0.4, -0.5, baseline=0.6), sibling(0.9, 1.0, baseline=0.6)]
    found = references([past(1, 8, 0.25, version=0), past(2, 8, 0.5, version=1), past(3, 2, 0.65, version=2)], 3,
                       [s._replace(version=2) for s in rows], Span(5, 0.0, 1.0, 3))  # fmt: skip
    assert [a.kind for a in found] == ["posterior", "small pool"]
    a, b = 1 + 0.9 * 2 + 4, 1 + 0.9 * 6 + 4
    assert found[0].value == pytest.approx(a / (a + b))
    assert found[0].n == 16
    assert found[0].low < found[0].value < found[0].high
    assert found[0].labels == ("hard", "ok")  # 0.4 lies above 0.395 and is pushed down
    assert 0.4 < found[0].chance[0] < 0.6
    assert found[0].chance[1] < 0.01
    assert references([past(3, 2, 0.65)], 3, rows, Span(2, 0, 1, 3))[0].kind == "small pool"


def test_rates_are_ratios_of_sums():
    counts = np.array([[10, 1, 2, 8, 0, 2, 0], [10, 3, 0, 4, 1, 2, 4]], float)
    made = Rates(
        np.array([1, 1]),
        np.array(["a", "a"], object),
        np.array(["pool"] * 2, object),
        np.array([4, 8]),
        np.array([0, 1]),
        counts,
    )
    keys, sums = made.by("step")
    assert keys == [(1,)]
    assert rate(sums, "hard")[0] == pytest.approx(4 / 12)
    assert rate(sums, "spurious")[0] == 0.25
    assert np.isnan(rate(np.zeros(7), "hard"))
    text = bins_table(made, "hard", Span(3, 0.0, 1.0, 1))
    assert "12 %" in text
    assert "75 %" in text
    assert "0.00 to 0.20" in text
    assert text.count("<tr><td>a</td>") == 2
    counts[1, COUNTS.index("signed")] = 0
    assert bins_table(made, "hard", Span(3, 0.0, 1.0, 1)).count("<tr><td>a</td>") == 1
    assert "Nothing to count" in bins_table(NONE, "hard", Span(0, 0, 0, 0))


def test_two_reward_levels_are_explained_instead_of_a_flat_zero():
    rows = [sibling(1.0, 1.0), sibling(0.0, -1.0), sibling(0.0, -1.0), sibling(0.0, -1.0)]
    found = references([past(1, 64, 0.25, std=0.43)], 1, rows, Span(2, 0.0, 1.0, 1))
    text = explain(Span(2, 0.0, 1.0, 1), rows, found)
    assert "A hard flip cannot happen under any baseline between the two" in text
    assert "meets 32 % of the rollouts under a mean, and 78 % under a median" in text
    more = explain(
        Span(9, 0.0, 1.0, 1),
        [sibling(0.4, -0.1), *rows[1:]],
        references([past(1, 64, 0.25, std=0.2)], 1, rows, Span(9, 0.0, 1.0, 1)),
    )
    assert "9 values" in more
    assert "1 of 4 rollouts lie between the two lines" in more


def test_one_group_of_a_recorded_run(tmp_path):
    record(tmp_path, leaves=12, flat=8, steps=3)
    data = opened(tmp_path)
    group = groups_of(data, 3)[0]
    rows = siblings(data, group)
    found = against(data, group, rows)
    assert [a.kind for a in found] == ["posterior", "small pool"]
    assert found[0].labels.count("out of the loss") == 2
    plot = StripPlot()
    plot.update(rows, found[0])
    assert sum(plot.source.data["n"]) == 10
    assert plot.reference.location == found[0].value
    plot.update((), None)
    assert list(plot.source.data["n"]) == []
    assert "posterior" in against_table(found, rows)
    assert "out of the loss" in rollouts_table(rows, found)
    assert "baseline of the estimator" in strip_head(found, rows)
    assert "No reference yet" in against_table((), rows)


def test_lines_are_drawn_over_windows_of_steps():
    n = 12
    counts = np.zeros((n, 7))
    counts[:, COUNTS.index("signed")] = 10
    counts[:, COUNTS.index("hard")] = np.arange(n) >= 6
    made = Rates(
        np.arange(1, n + 1),
        np.full(n, "g", object),
        np.full(n, "pool", object),
        np.full(n, 8),
        np.zeros(n, int),
        counts,
    )
    plot = RatesPlot(steps_range())
    plot.update(made)
    assert list(plot.source.data["step"]) == list(range(1, 13))
    assert plot.source.data["hard"][5] == 0
    assert plot.source.data["hard"][11] == pytest.approx(6 / 90)
    assert np.isnan(plot.source.data["spurious"]).all()
    plot.update(NONE)
    assert len(plot.source.data["step"]) == 0


def test_two_estimators_are_compared_on_the_same_rollouts(run):
    data = opened(run.writer.url, run.run)
    made = compared(data, ("grpo", "mc_grpo"))
    assert made.kind == "posterior"
    assert {(r["estimator"], r["size"]) for r in made.rows} == {
        ("grpo", 2),
        ("grpo", 4),
        ("grpo", 8),
        ("mc_grpo", 2),
        ("mc_grpo", 4),
    }
    for r in made.rows:
        assert 0 <= r["hard_low"] <= r["hard"] <= r["hard_high"] <= 1
    plot = PairPlot()
    plot.update(made.rows, made.names, "vanish")
    assert plot.figure.x_range.factors == ["2", "4", "8"]
    assert list(plot.sources[1].data["size"]) == ["2", "4"]
    assert {"grpo", "mc_grpo", "rloo"} <= set(estimators())


def test_names_of_a_run_are_escaped():
    evil = "<img src=x onerror=window.hit=1>"
    rows = [sibling(1.0, 1.0)._replace(id=evil, reason=evil, estimator=evil)]
    found = references([past(1, 64, 0.5)], 1, rows, Span(3, 0, 1, 1))
    made = Rates(
        np.array([1]),
        np.array([evil], object),
        np.array(["pool"], object),
        np.array([4]),
        np.array([0]),
        np.ones((1, 7)),
    )
    for text in (
        rollouts_table(rows, found),
        bins_table(made, "hard", Span(3, 0, 1, 1)),
        strip_head(found, rows),
        explain(Span(3, 0, 1, 1), rows, found),
    ):
        assert "<img" not in text
