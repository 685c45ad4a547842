"""Sign flips on recorded rollouts: they agree with the exact law, and no two kinds of reference meet in a table."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from workbench.analysis import sign_labels, sign_references, signs
from workbench.analysis.signs import Settings
from workbench.methods.grpo import CARD, Grpo
from workbench.methods.mc_grpo import McGrpo, median_centred
from workbench.methods.mopps import Mopps
from workbench.methods.mssr import Mssr
from workbench.methods.v05 import V05
from workbench.numerics.flips import flip_prob_exact, flip_prob_from_pool, posterior_flip
from workbench.runs.experiment import Experiment
from workbench.stages import Method
from workbench.store import Store
from workbench.types import Advantage, Budget, Plan, Pool, Rollouts, Step

SUPPORT, PROBS = [0.0, 0.1, 0.3, 1.0], [0.4, 0.2, 0.3, 0.1]


@dataclass(frozen=True)
class Median(Method):
    """Reward minus the lower median, nothing dropped: what `flip_prob_exact` calls median."""

    card = CARD

    def estimate(self, state, advantage, draft, rng) -> Advantage:
        r = draft.rollouts
        median = median_centred(r.reward, r.group, int(r.group.max()) + 1).median
        return replace(advantage, value=r.reward - median[r.group])


def pool_of(n: int) -> Pool:
    blank = np.full(n, "", dtype=object)
    return Pool(np.array([f"p{i}" for i in range(n)], dtype=object), blank, blank, blank, blank)


def step_of(rewards: list[list[float]], number: int = 1, purpose: str = "train") -> Step:
    plan = Plan(np.arange(len(rewards)), [len(r) for r in rewards], step=number)
    r = Rollouts.of_plan(plan, pool_of(len(rewards)), version=number - 1)
    flat = np.concatenate([np.asarray(x, float) for x in rewards])
    r = r.with_(reward=flat, correct=flat, group=r.prompt, purpose=np.full(len(r), purpose, dtype=object))
    fate = np.full(len(r), "trained", dtype=object)
    return Step(number, np.arange(len(rewards)), plan, r, Advantage.start(r), fate, np.full(len(r), "", dtype=object))


@pytest.mark.parametrize(("name", "method"), [("mean", Grpo()), ("median", Median())])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_simulation_reproduces_the_exact_chance_within_its_interval(name: str, method: Method, size: int) -> None:
    exact = flip_prob_exact(SUPPORT, PROBS, size, name).overall
    made = signs.simulate(SUPPORT, PROBS, [method], (size,), groups=4000)
    for label in ("hard", "vanish"):  # the mean, 0.21, is no value of the law: no true sign is 0
        got = made.rate("grpo", size, label, level=0.999)
        assert got.low <= exact[label] <= got.high
        assert got.high - got.low < 0.06


def test_groups_drawn_from_a_pool_reproduce_the_rates_over_all_subsets() -> None:
    pool = np.repeat([0.0, 0.1, 0.3, 1.0], [30, 12, 16, 6])
    made = signs.measure([step_of([pool.tolist()])], pool_of(1), [Grpo()], (2, 4, 8), Settings(draws=1000, z=0))
    for size in (2, 4, 8):
        want = flip_prob_from_pool(pool, size)
        assert made.rate("grpo", size, "hard").value == pytest.approx(want.hard_rate, abs=0.02)
        assert made.rate("grpo", size, "vanish").value == pytest.approx(want.vanish_rate, abs=0.02)


def test_binary_rewards_never_flip_hard_and_the_table_says_so() -> None:
    made = signs.simulate([0.0, 1.0], [0.75, 0.25], [Grpo(), McGrpo()], (4,), groups=2000)
    assert made.rate("grpo", 4, "hard").value == made.rate("mc_grpo", 4, "hard").value == 0
    assert made.rate("grpo", 4, "vanish").value == pytest.approx(0.25**4 + 0.75**4, abs=0.03)
    assert "signs can only vanish" in made._repr_html_()


def test_mc_grpo_gets_one_rollout_more_and_its_pivot_is_not_counted() -> None:
    made = signs.simulate(SUPPORT, PROBS, [Grpo(), McGrpo()], (4,), groups=50)
    counted = [made.sums[name, 4][:, sign_labels.TALLY.index("all")] for name in ("grpo", "mc_grpo")]
    assert (counted[0] == 4).all()
    assert (counted[1] == 4).all()


def test_posterior_rates_are_the_chances_under_the_belief_before_the_group() -> None:
    first, second = [0.0, 0.5, 1.0, 0.5], [0.2, 0.9, 0.4, 0.1]
    steps = [step_of([first]), step_of([second], 2)]
    made = signs.measure(steps, pool_of(1), [Grpo()], (4,), Settings("posterior", draws=1, keep=1.0, since=1))
    want = posterior_flip(second, np.array(second) - np.mean(second), 1 + 2, 1 + 2)
    assert made.rate("grpo", 4, "hard").value == pytest.approx(want.expected_flips / 4)
    assert made.kind == "posterior"


def test_a_union_is_the_mean_over_the_last_versions() -> None:
    steps = [step_of([[0.0, 1.0]]), step_of([[1.0, 1.0]], 2), step_of([[0.0, 0.3, 1.0]], 3)]
    place = None
    memory = sign_references.Memory(0, 1, 0.9, versions=2)
    for step in steps:
        place = memory.field("union", step, 2)
    assert place is not None
    assert place.reference.value.tolist() == [pytest.approx((1 + 1 + 0 + 0.3 + 1) / 5)]


def used_again(step: Step, old: Step) -> Step:
    """A step whose rows are followed by all rollouts of an earlier one."""
    gone = old.rollouts.with_(ask=np.full(len(old.rollouts), -1))
    both = Rollouts.concat([step.rollouts, gone])
    fate = np.full(len(both), "trained", dtype=object)
    reason = np.full(len(both), "", object)
    return replace(step, rollouts=both, advantage=Advantage.start(both), fate=fate, fate_reason=reason)


@pytest.mark.parametrize("kind", ["posterior", "union"])
def test_rollouts_used_again_teach_a_reference_once_and_are_counted_once(kind: sign_labels.Kind) -> None:
    first, second = step_of([[0.0, 1.0, 1.0]]), step_of([[0.0, 0.3]], 2)
    plain, again = (sign_references.Memory(0, 1, 0.9, versions=4) for _ in range(2))
    for memory, steps in ((plain, (first, second)), (again, (first, used_again(second, first)))):
        for step in steps:
            place = memory.field(kind, step, 1)
            assert place is not None
            memory.observe(step)
        assert len(place.rollouts) == 2
        assert (place.rollouts.step == 2).all()
    assert plain.belief == again.belief
    assert plain.recent == again.recent


def test_a_pool_takes_no_rollout_twice() -> None:
    first, second = step_of([[0.0, 1.0] * 4]), step_of([[0.0, 1.0] * 4], 2)
    place = sign_references.pooled(used_again(second, first), 8)
    assert place is not None
    assert place.rollouts.step.tolist() == [2] * 8


def test_two_kinds_of_reference_are_never_joined() -> None:
    exact = signs.simulate(SUPPORT, PROBS, [Grpo()], (4,), groups=1)
    pool = signs.measure([step_of([[0.0, 1.0] * 32])], pool_of(1), [McGrpo()], (4,))
    with pytest.raises(ValueError, match="do not belong together"):
        exact.join(pool)


def test_probes_of_one_prompt_leave_the_pools_of_others() -> None:
    step = step_of([[0.0, 1.0] * 4, [0.0, 1.0] * 4])
    purpose = np.where(step.rollouts.prompt == 0, "probe", "train").astype(object)
    place = sign_references.pooled(replace(step, rollouts=step.rollouts.with_(purpose=purpose)), 8)
    assert place is not None and place.prompt.tolist() == [0, 1]


def test_what_no_reference_can_be_made_of_is_said() -> None:
    with pytest.raises(ValueError, match="at most 8 of one prompt"):
        signs.measure([step_of([[0.0, 1.0] * 4])], pool_of(1), [Grpo()])
    with pytest.raises(ValueError, match="does not act at estimate"):
        signs.simulate(SUPPORT, PROBS, [Mopps()])
    with pytest.raises(ValueError, match="names of their own"):
        signs.simulate(SUPPORT, PROBS, [Grpo(), Grpo()])


def test_differences_are_paired_and_two_settings_of_a_method_are_two_rows() -> None:
    made = signs.simulate(SUPPORT, PROBS, [Grpo(), Grpo(estimator="rloo"), McGrpo()], (2, 8), groups=500)
    same = made.difference(("grpo", 8), ("grpo(estimator=rloo)", 8))
    assert same == (0, 0, 0)  # leave-one-out and full means agree in sign
    assert len(made.rows()) == 6
    assert made.difference(("grpo", 2), ("grpo", 8), "vanish").value > 0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("signs")
    experiment = Experiment(
        model="sim", pipeline="grpo + mopps", steps=6, seed=1, store=str(folder), eval_every=0, checkpoint_every=0,
        budget=Budget(prompts=4, rollouts=256), world={"n_prompts": 12},
    )  # fmt: skip
    for _ in experiment.run():
        pass
    with Store.open(folder) as opened:
        yield opened


@pytest.mark.parametrize("reference", ["pool", "posterior", "union"])
def test_any_estimators_over_any_recorded_run(store: Store, reference: str) -> None:
    made = signs.compare(store, None, [Grpo(), McGrpo(), V05(), Mssr()], (2, 8), reference=reference, draws=4)
    assert made.estimators == ["grpo", "mc_grpo", "v05", "mssr"]
    assert len(made.rows()) == 8
    for row in made.rows():
        assert all(0 <= row[name] <= 1 for name in signs.RATES[:-1])
        assert 0 <= row["n_effective"] <= row["size"]
        assert row["kind"] == reference
        assert row["hard_low"] <= row["hard"] <= row["hard_high"]


def test_labels_of_the_rollouts_as_they_were_trained(store: Store) -> None:
    rows = list(signs.labels(store))
    assert len(rows) == 6
    assert sum(len(r.id) for r in rows) == 6 * 256
    names, counts = np.unique(np.concatenate([r.flip_label for r in rows]).astype(str), return_counts=True)
    found = dict(zip(names.tolist(), counts.tolist(), strict=True))
    assert found["ok"] > 0
    assert not found.get("hard")  # a pool is its own group here: same mean, same sign
    assert rows[0].adv_sign.dtype == np.int8


def test_what_no_group_was_large_enough_for_is_no_row() -> None:
    made = signs.measure([step_of([[0.0, 1.0, 0.3, 0.2]])], pool_of(1), [Grpo(), McGrpo()], (4,), Settings("posterior"))
    assert list(made.sums) == [("grpo", 4)]
    assert "large enough for mc_grpo at 4" in made.note


def test_runs_are_pooled_prompt_by_prompt() -> None:
    made = [signs.simulate(SUPPORT, PROBS, [Grpo()], (4,), groups=50, seed=seed) for seed in (0, 1)]
    both = signs.Signs.pool(made)
    assert len(both.sums["grpo", 4]) == 100
    mean = np.mean([m.rate("grpo", 4).value for m in made])
    assert both.rate("grpo", 4).value == pytest.approx(mean)
    with pytest.raises(ValueError, match="cannot be pooled"):
        signs.Signs.pool([made[0], signs.simulate(SUPPORT, PROBS, [McGrpo()], (4,), groups=50)])
