"""The optimiser step: the same gradient however it is cut, equal to plain forward passes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workbench.types import Advantage, Loss, Ragged
from workbench.worlds.engines.attention import NAME, use_grouped
from workbench.worlds.engines.forward import token_statistics
from workbench.worlds.training.policy import Lines, Policy, pack

from .conftest import toy_model

PREFIXES = [[5, 6, 7], [3, 4, 5, 6, 7, 8, 9, 10], [12, 13]]
OWNER = np.array([0, 2, 1, 0, 1, 1, 2, 0])
ANSWERS = [[4, 5, 1], [9], [8, 8, 8, 2, 1], [6, 1], [7, 3, 9, 9], [2, 1], [11, 0], [3, 4, 5, 6, 7, 8]]
VALUE = np.array([1.0, -0.5, 0.25, 0.0, -1.0, 2.0, 0.0, 0.75])
KEEP = np.array([True, True, True, True, True, False, True, True])
WEIGHT = np.array([1.0, 2.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0])


def lines() -> Lines:
    """Eight answers to three prompts."""
    return Lines(PREFIXES, OWNER, Ragged.of(ANSWERS, np.int32))


def advantage(value=VALUE) -> Advantage:
    """Row 5 is out of the loss; rows 3 and 6 have advantage zero."""
    none = np.full(8, "", dtype=object)
    return Advantage(np.asarray(value, float), KEEP, WEIGHT, np.zeros(8), none)


def surrogate(reduction="token_mean", **options):
    """The policy gradient at ratio one."""
    return lambda batch: Loss(-batch.advantage * (batch.logp - batch.proximal).exp(), reduction=reduction, **options)


def gradient(loss, penalties=(), *, value=VALUE, **options) -> tuple[torch.Tensor, dict]:
    """Flat gradient that reaches the optimiser, unclipped, and what update reports."""
    policy = Policy(toy_model(), clip=1e9, **options)
    seen = []
    policy.optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.cat([p.grad.flatten() for p in policy.parameters]))
    )
    done = policy.update(lines(), advantage(value), loss, penalties, constant=10)
    return seen[0], done


def plain(reduction: str, entropy: float = 0.0) -> torch.Tensor:
    """The same objective written down row by row with full forward passes."""
    model = toy_model()
    kept = np.flatnonzero(KEEP)
    total = 0.0
    for i in kept:
        prefix, answer = PREFIXES[OWNER[i]], torch.tensor(ANSWERS[i])
        logp = model(input_ids=torch.tensor([[*prefix, *ANSWERS[i]]])).logits[0, len(prefix) - 1 : -1].log_softmax(-1)
        term = -VALUE[i] * logp.gather(1, answer[:, None])[:, 0] + entropy * (logp.exp() * logp).sum(-1)
        share = {
            "token_mean": 1 / sum(len(ANSWERS[k]) for k in kept),
            "seq_mean": 1 / (len(kept) * len(answer)),
            "const_len": 1 / (len(kept) * 10),
        }
        total = total + WEIGHT[i] * term.sum() * share[reduction]
    total.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("reduction", ["token_mean", "seq_mean", "const_len"])
@pytest.mark.parametrize("budget", [1, 30, 10_000])
def test_gradient_equals_plain_passes_for_any_micro_batches(reduction, budget):
    got, _ = gradient(surrogate(reduction), budget=budget)
    expected = plain(reduction)
    assert float((got - expected).norm() / expected.norm()) < 2e-6


def test_a_penalty_acts_on_rows_of_advantage_zero():
    def bonus(batch):
        return Loss(-0.1 * batch.entropy)

    got, done = gradient(surrogate("token_mean"), [bonus], budget=30)
    expected = plain("token_mean", entropy=0.1)
    assert float((got - expected).norm() / expected.norm()) < 2e-6
    assert done["rows"] == 7


def test_rows_of_advantage_zero_are_not_computed_but_counted():
    _, done = gradient(surrogate("token_mean"))
    assert done["rows"] == 5
    # 23 tokens are kept, 19 of them computed: the mean is over 23
    expected = sum(-VALUE[i] * WEIGHT[i] * len(ANSWERS[i]) for i in (0, 1, 2, 4, 7)) / 23
    assert sum(len(ANSWERS[i]) for i in np.flatnonzero(KEEP)) == 23
    assert done["tokens"] == 19
    assert done["loss"] == pytest.approx(expected, rel=1e-6)
    assert done["loss_per_rollout"].tolist()[:5] == pytest.approx([-1.0, 1.0, -0.25, 0.0, 0.5])
    assert np.isnan(done["loss_per_rollout"][5])


def test_per_token_advantages_replace_the_rows():
    tokens = Ragged.of([[v] * len(a) for v, a in zip(VALUE, ANSWERS, strict=True)], float)
    row, _ = gradient(surrogate())
    policy = Policy(toy_model(), clip=1e9)
    seen = []
    policy.optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.cat([p.grad.flatten() for p in policy.parameters]))
    )
    a = advantage(np.zeros(8))
    policy.update(lines(), Advantage(a.value, a.keep, a.weight, a.baseline, a.reason, tokens), surrogate())
    assert torch.allclose(seen[0], row, atol=1e-6)


@pytest.mark.parametrize("budget", [12, 1024])
def test_extra_columns_reach_the_loss_in_the_order_of_the_rows(budget):
    policy = Policy(toy_model(), budget=budget)
    rows = lines()
    per_token = Ragged(rows.tokens.values.astype(np.float32) * 10, rows.tokens.offsets)
    rows = rows._replace(extra={"teacher_logp": per_token, "score": np.arange(8.0)})
    seen = {}

    def loss(batch):
        for i, row in enumerate(batch.row.tolist()):
            n = int(batch.mask[i].sum())
            seen[row] = (batch.extra["teacher_logp"][i, :n].tolist(), batch.extra["score"][i].item())
        return surrogate()(batch)

    policy.update(rows, advantage(), loss)
    assert seen == {r: ([10.0 * t for t in ANSWERS[r]], float(r)) for r in (0, 1, 2, 4, 7)}


def test_grouped_attention_changes_nothing():
    model = toy_model()
    before = model(input_ids=torch.tensor([PREFIXES[1]])).logits
    assert use_grouped(model)
    assert model.config._attn_implementation == NAME
    assert torch.allclose(model(input_ids=torch.tensor([PREFIXES[1]])).logits, before, atol=1e-5)


def test_logp_agrees_with_the_update_and_keeps_the_order_of_rows():
    policy = Policy(toy_model(), budget=30)
    all_at_once, piecewise = Policy(toy_model()).logp(lines()), policy.logp(lines())
    assert piecewise.values == pytest.approx(all_at_once.values, abs=1e-5)
    with torch.no_grad():
        logits = toy_model()(input_ids=torch.tensor([[12, 13, 9]])).logits[0, 1]
    assert piecewise.row(1) == pytest.approx([float(logits.log_softmax(-1)[9])], abs=1e-5)


def test_packing_keeps_rows_once_and_within_the_budget():
    batches = pack(lines(), np.arange(8), 30, widest=12)
    assert sorted(np.concatenate([r for b in batches for r in b]).tolist()) == list(range(8))
    for batch in batches:
        assert all(len(set(OWNER[rows])) == 1 for rows in batch)
        width = max(len(PREFIXES[OWNER[rows[0]]]) + sum(len(ANSWERS[i]) - 1 for i in rows) for rows in batch)
        assert width * len(batch) <= 30


def test_token_statistics_have_the_gradient_of_autograd():
    torch.manual_seed(0)
    logits = torch.randn(4, 9, requires_grad=True)
    index, target = torch.tensor([0, 0, 2, 3, 3]), torch.tensor([1, 5, 2, 0, 0])
    a, b = torch.randn(5), torch.randn(5)
    for temperature in (1.0, 0.7):
        logp, entropy = token_statistics(logits, index, target, temperature)
        (got,) = torch.autograd.grad((a * logp + b * entropy).sum(), logits)
        full = (logits / temperature).log_softmax(-1)
        plain_entropy = -(full.exp() * full).sum(-1)[index]
        (expected,) = torch.autograd.grad((a * full[index, target] + b * plain_entropy).sum(), logits)
        assert torch.allclose(got, expected, atol=1e-6)
        assert torch.allclose(logp, full[index, target], atol=1e-6)
        assert torch.allclose(entropy, plain_entropy, atol=1e-6)


def test_statistics_are_averaged_over_tokens_and_the_rate_is_scaled():
    def loss(batch):
        return Loss(-batch.advantage * batch.logp, stats={"adv": batch.advantage}, lr_scale=0.5)

    policy = Policy(toy_model(), lr=1e-3, budget=30)
    done = policy.update(lines(), advantage(), loss)
    rows = (0, 1, 2, 4, 7)
    assert done["adv"] == pytest.approx(sum(VALUE[i] * len(ANSWERS[i]) for i in rows) / 19, rel=1e-5)
    assert done["lr"] == 5e-4
    assert policy.optimizer.param_groups[0]["lr"] == 5e-4
    assert policy.version == 1


@pytest.mark.parametrize(("poison", "why"), [("loss", "non-finite loss"), ("gradient", "non-finite gradient")])
def test_a_step_that_is_not_finite_is_skipped_and_says_so(poison, why):
    def loss(batch):
        if poison == "loss":
            return Loss(batch.logp * torch.nan)
        return Loss((batch.logp - batch.proximal).abs().sqrt())  # 0 with an infinite slope

    policy = Policy(toy_model())
    policy.update(lines(), advantage(), surrogate())
    weights = [p.detach().clone() for p in policy.parameters]
    done = policy.update(lines(), advantage(), loss)
    assert done["skipped"] == why
    assert policy.version == 1
    assert all(torch.equal(a, b) for a, b in zip(weights, policy.parameters, strict=True))
    assert "skipped" not in policy.update(lines(), advantage(), surrogate())


def test_nothing_to_learn_is_no_update():
    policy = Policy(toy_model())
    done = policy.update(lines(), advantage(np.zeros(8)), surrogate())
    assert (policy.version, done["grad_norm"], done["tokens"]) == (0, 0.0, 0.0)
    assert "skipped" not in done


def test_an_update_tells_the_log_probabilities_that_it_computed_before_its_step():
    policy = Policy(toy_model())
    wanted = policy.logp(lines())
    told = Ragged(policy.update(lines(), advantage(), surrogate())["logp_per_token"], wanted.offsets)
    for row, (had, found) in enumerate(zip(wanted.rows(), told.rows(), strict=True)):
        if row in (3, 5, 6):  # no advantage, or out of the loss: not computed
            assert np.isnan(found).all()
        else:
            np.testing.assert_allclose(found, had, atol=1e-5)


def test_gap_and_divergence_compare_sampler_and_trainer():
    exact = Policy(toy_model()).logp(lines())
    behind = Lines(PREFIXES, OWNER, lines().tokens, Ragged(exact.values - 0.1, exact.offsets))
    done = Policy(toy_model()).update(behind, advantage(), surrogate())
    assert done["logp_gap"] == pytest.approx(0.1, abs=1e-4)
    assert done["kl"] == pytest.approx(np.exp(0.1) - 1.1, abs=1e-4)


def test_a_saved_policy_goes_on_as_if_it_had_not_stopped(tmp_path):
    first = Policy(toy_model(), lr=1e-2)
    first.update(lines(), advantage(), surrogate())
    first.save(tmp_path)
    second = Policy(toy_model(seed=1), lr=1e-2)
    second.load(tmp_path)
    assert second.version == 1
    for policy in (first, second):
        policy.update(lines(), advantage(), surrogate())
    assert all(torch.equal(a, b) for a, b in zip(first.parameters, second.parameters, strict=True))


def test_extra_columns_reach_the_loss_padded_and_in_the_order_of_its_rows():
    teacher = Ragged(-np.arange(len(lines().tokens.values), dtype=np.float32), lines().tokens.offsets)
    top = Ragged(np.stack([teacher.values, teacher.values / 2], 1), teacher.offsets)
    weight = np.arange(8) / 10
    seen = {}

    def loss(batch):
        for i, row in enumerate(batch.row.tolist()):
            n = int(batch.mask[i].sum())
            assert batch.extra["teacher_logp"][i, n:].tolist() == [0.0] * (batch.mask.shape[1] - n)
            assert batch.extra["teacher_topk_logp"].shape == (*batch.mask.shape, 2)
            seen[row] = (
                batch.extra["teacher_logp"][i, :n].tolist(),
                batch.extra["teacher_topk_logp"][i, :n, 1].tolist(),
                float(batch.extra["weight"][i]),
            )
        return Loss(-batch.advantage * batch.logp)

    extra = {"teacher_logp": teacher, "teacher_topk_logp": top, "weight": weight}
    Policy(toy_model(), budget=30).update(lines()._replace(extra=extra), advantage(), loss)
    assert sorted(seen) == [0, 1, 2, 4, 7]
    for row, (logp, second, w) in seen.items():
        assert logp == teacher.row(row).tolist()
        assert second == (teacher.row(row) / 2).tolist()
        assert w == pytest.approx(row / 10)
