"""Rewards, statistics and advantages: vectors of estimators, by the verbs and functions that estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from tests.vectors.calls import Fields, calls, no_draws
from workbench.methods.brorl import batch_normalised
from workbench.methods.dapo_dynamic_sampling import mixed_groups
from workbench.methods.dars import Dars
from workbench.methods.dots_rr import attend
from workbench.methods.dps import PRIORS, Chains, filtered, score, soft_count
from workbench.methods.duet.pricing import spreads
from workbench.methods.ettrl import Ettrl
from workbench.methods.fapo import fapo_rewards
from workbench.methods.gdro import ema_update as gdro_ema
from workbench.methods.gdro import exponential, mean_losses
from workbench.methods.grpo import Grpo
from workbench.methods.insight import wmi
from workbench.methods.mc_grpo import median_centred
from workbench.methods.mssr import Mssr, folded, tracker_value
from workbench.methods.sapo import Sapo
from workbench.methods.scope import Scope
from workbench.methods.xrpo import exploration, intervals, sharpen
from workbench.numerics.beliefs import Belief, posterior_update
from workbench.numerics.estimators import group_advantages
from workbench.numerics.groups import GroupStats, describe
from workbench.numerics.picks import largest
from workbench.numerics.predictors import context_prior, kernel_belief
from workbench.testing.scripted import draft_of, pool_of, rollouts_of
from workbench.types import Advantage, Ragged, Rollouts


def stats_of(groups: Sequence[ArrayLike]) -> GroupStats:
    """Statistics of lists of rewards, None or NaN = null."""
    rows = Ragged.of([np.asarray(g, float) for g in groups], float)
    return describe(rows.values, np.repeat(np.arange(rows.n_rows), rows.lengths), rows.n_rows)


def estimated(method, rollouts: Rollouts, state: object = (), start: Advantage | None = None) -> Advantage:
    """What a method makes of rollouts behind an estimator, or of the start."""
    start = Advantage.start(rollouts) if start is None else start
    return method.estimate(state, start, draft_of(rollouts), no_draws())


@calls("brorl", "advantages")
def brorl_advantages(groups: Sequence[ArrayLike], eps: float = 1e-6) -> Fields:
    """The flat columns, group by group."""
    rows = Ragged.of([np.asarray(g, float) for g in groups], float)
    group = np.repeat(np.arange(rows.n_rows), rows.lengths)
    value, kept = batch_normalised(rows.values, group, eps)
    mixed = np.bincount(group, kept, minlength=rows.n_rows) > 0
    return Fields(kept=mixed, advantage=list(Ragged(value, rows.offsets).take(mixed).rows()))


@calls("cures", "success_posterior_mean")
def success_posterior_mean(successes, n, alpha0=1.0, beta0=1.0) -> np.ndarray:
    """The mean of the Beta posterior."""
    return posterior_update(alpha0, beta0, successes, n, 1.0, alpha0, beta0).mean


@calls("dapo-dynamic-sampling", "keep_group")
def keep_group(groups: Sequence[ArrayLike], keep_singletons: bool = False) -> np.ndarray:
    """Groups of lists."""
    return mixed_groups(stats_of(groups), keep_singletons)


@calls("dapo-dynamic-sampling", "dynamic_sampling_keep")
@calls("baselines", "dynamic_sampling_keep")
def dynamic_sampling_keep(rewards, groups) -> dict:
    """Group -> its rewards differ."""
    names, group = np.unique(np.asarray(groups), return_inverse=True)
    keep = mixed_groups(describe(np.asarray(rewards, float), group, len(names)))
    return dict(zip(names.tolist(), keep.tolist(), strict=True))


@calls("dars", "pooled_advantages")
def pooled_advantages(stage1, stage2, use_std=False, upper=1.0, eps=1e-6) -> Fields:
    """Both stages as one group of the method."""
    first, second = np.asarray(stage1, float), np.asarray(stage2, float)
    reward = np.concatenate([first, second])
    rescued = bool(not (first > 0).any() and (second > 0).any())
    if not len(reward):
        return Fields(accuracy=0.0, kept=False, advantage=None, rescued=rescued)
    rows = rollouts_of([reward.tolist()]).with_(correct=reward)
    made = estimated(Dars(use_std=use_std, upper=upper, eps=eps), rows)
    kept = bool(made.keep.all())
    return Fields(accuracy=float(reward.mean()), kept=kept, advantage=made.value if kept else None, rescued=rescued)


@calls("dots-rr", "attention_predict")
def attention_predict(query_proj, ref_proj, ref_values, tau=1.0, top_k=None) -> Fields:
    """Attention on scaled products, where the method takes likeness."""
    q, k, values = (np.asarray(v, float) for v in (query_proj, ref_proj, ref_values))
    return Fields(attend(q @ k.T / (np.sqrt(q.shape[-1]) * tau), values, top_k)._asdict())


@calls("dps", "transition_update")
def transition_update(alpha, mu_prev_post, mu_post, prior_alpha, decay, observed=True) -> Fields:
    """The step of one chain whose observed state is given."""
    a, before, now = (np.asarray(v, float)[..., None] for v in (alpha, mu_prev_post, mu_post))
    xi = soft_count(a, before, now) if observed else np.zeros_like(a)
    if observed and sorted(np.ravel(mu_post).tolist()) == [0, 0, 1]:
        rate = np.array([[0.0, 0.5, 1.0][int(np.argmax(now))]])
        chain = filtered(Chains(a, now, before, np.zeros(1, int)), np.array([0]), rate, np.asarray(prior_alpha), decay)
    else:
        none = np.empty(0, int)
        chain = filtered(Chains(a, now, before, np.zeros(1, int)), none, none, np.asarray(prior_alpha), decay)
        chain = chain._replace(alpha=chain.alpha + xi)
    return Fields(xi=xi[..., 0], alpha=chain.alpha[..., 0])


@calls("dps", "trajectory")
def trajectory(observations, prior_alpha=PRIORS["uniform"], prior_pi=(1 / 3, 1 / 3, 1 / 3), decay=1.0) -> list[Fields]:
    """One prompt, step by step."""
    prior, pi = np.asarray(prior_alpha, float), np.asarray(prior_pi, float)[:, None]
    chain, states = Chains(prior[..., None], pi, pi, np.zeros(1, int)), []
    for rate in observations:
        seen = rate is not None and bool(np.isfinite(rate))
        chain = filtered(chain, np.arange(int(seen)), np.array([rate] if seen else [], float), prior, decay)
        states.append(Fields({n: getattr(chain, n)[..., 0] for n in ("alpha", "mu_prior", "mu_post")}))
    return states


@calls("dps", "select")
def dps_select(mu_prior, batch_size, entropy_weight=0.0) -> Fields:
    """The scores, and their order."""
    mu = np.asarray(mu_prior, float).reshape(-1, 3).T
    scores = score(mu, entropy_weight)
    return Fields(scores=scores, selected=largest(scores, batch_size))


@calls("duet", "sigma_obs")
def sigma_obs(advantage, sum_logprob, kept) -> float | None:
    """The spread of one group; None below two rollouts, or where it is not finite."""
    rows = np.asarray(kept, bool)
    g = (np.asarray(advantage, float) * np.asarray(sum_logprob, float))[rows]
    sigma = spreads(g, np.zeros(len(g), np.int64), 1)[0]
    return float(sigma) if len(g) > 1 and np.isfinite(sigma) else None


@calls("ettrl", "advantage_reshape")
def advantage_reshape(rewards, response_entropy) -> Fields:
    """GRPO with eps 1e-6 under the reshaping by the entropy of answers of one token."""
    rows = rollouts_of([list(rewards)])
    rows = rows.with_(entropy=Ragged.of([[h] for h in response_entropy], float), length=np.ones(len(rows), int))
    every = np.ones(len(rows), bool)
    grpo = replace(estimated(Grpo(eps=1e-6), rows), keep=every)
    ones = grpo.revalued(every, np.ones(len(rows)), grpo.baseline)
    scale, value = (estimated(Ettrl(), rows, start=a).value for a in (ones, grpo))
    return Fields(scale=scale, advantages=value)


@calls("ettrl", "advantage_clip")
def advantage_clip(rewards, beta=2.0) -> np.ndarray:
    """GRPO with eps 1e-6 under the clip."""
    rows = rollouts_of([list(rewards)])
    return estimated(Ettrl(reshape="clip", beta=beta), rows, start=estimated(Grpo(eps=1e-6), rows)).value


@calls("fapo", "fapo_advantages")
def fapo_advantages(correct, flawed, lam=1.0) -> np.ndarray:
    """GRPO on the method's rewards."""
    reward = fapo_rewards(correct, flawed, lam).rewards
    return group_advantages(reward, np.zeros(len(reward), np.int64), "grpo", 1e-6).advantages


@calls("fapo", "flawed_advantage_sign")
def flawed_advantage_sign(n_sound, n_flawed, n_wrong, lam=1.0) -> Fields:
    """The sign of a flawed rollout's advantage; one more of its kind changes the mean, and not the sign."""
    correct = [1] * (n_sound + n_flawed) + [0] * n_wrong
    reward = fapo_rewards(correct, [0] * n_sound + [1] * n_flawed + [0] * n_wrong, lam).rewards
    more = fapo_advantages([1, *correct], [1, *[0] * n_sound, *[1] * n_flawed, *[0] * n_wrong], lam)
    return Fields(mean=float(reward.mean()) if len(reward) else 0.0, sign=int(np.sign(np.round(more[0], 12))))


@calls("gdpo", "grpo_sum_advantages")
def grpo_sum_advantages(rewards, groups, weights, eps=1e-4) -> np.ndarray:
    """GRPO of the weighted sum."""
    weight = np.asarray(weights, float)
    reward = np.asarray([np.asarray(r, float) for r in rewards], float).reshape(len(rewards), len(weight))
    return group_advantages(reward @ weight, groups, "grpo", eps).advantages


@calls("gdro", "ema_update")
def ema_update(scores, bin_losses, beta=0.12, share_normalise=True) -> dict:
    """Bins by name: those without a score are new."""
    names = list(dict.fromkeys([*map(str, scores), *map(str, bin_losses)]))
    old = {str(b): s for b, s in scores.items()}
    rows = {str(b): np.ravel(np.asarray(x, float)) for b, x in bin_losses.items()}
    loss = np.concatenate([np.empty(0), *(rows.get(b, np.empty(0)) for b in names)])
    bin_ = np.repeat(np.arange(len(names)), [len(rows.get(b, ())) for b in names])
    score_ = np.array([old.get(b, np.nan) for b in names])
    new = gdro_ema(score_, *mean_losses(loss, bin_, len(names)), beta, share_normalise)
    return {b: s for b, s in zip(names, new.tolist(), strict=True) if np.isfinite(s)}


@calls("gdro", "bin_weights")
def bin_weights(scores, bins, eta=0.65, gamma=0.01) -> Fields:
    """A bin without a score counts 0."""
    by_name = {str(b): s for b, s in scores.items()}
    return Fields(exponential(np.array([by_name.get(str(b), 0.0) for b in bins], float), eta, gamma)._asdict())


@calls("grpo-roc", "equal_reward_filter")
def equal_reward_filter(rewards, groups) -> np.ndarray:
    """Rollouts of groups that are not settled."""
    names, group = np.unique(np.asarray(groups), return_inverse=True)
    return ~describe(np.asarray(rewards, float), group, len(names)).settled[group]


@calls("grpo-roc", "advantages_after_roc")
def advantages_after_roc(rewards, keep, groups, eps=1e-6) -> np.ndarray:
    """GRPO over the kept rollouts."""
    reward = np.where(np.asarray(keep, bool), np.asarray(rewards, float), np.nan)
    return group_advantages(reward, groups, "grpo", eps).advantages


@calls("insight", "select")
def insight_select(states, K, batch_size, eta=3.0, mu=0.3) -> Fields:
    """The scores, and their order."""
    a, b = np.asarray(states, float).reshape(-1, 2).T
    scores = wmi(a, b, K, eta, mu).score
    return Fields(scores=scores, selected=largest(scores, batch_size))


@calls("mc-grpo", "mc_advantages")
def mc_advantages(rewards, mad_eps=1e-3, rescale_nonzero=False, mad_floor=0.0) -> Fields:
    """The flat columns, group by group; the pivot by its position in the group."""
    rows = Ragged.of([np.asarray(r, float) for r in rewards], float)
    group = np.repeat(np.arange(rows.n_rows), rows.lengths)
    made = median_centred(rows.values, group, rows.n_rows, mad_eps, mad_floor, rescale_nonzero)
    keep = np.isfinite(rows.values)
    keep[made.pivot[made.pivot >= 0]] = False
    value, kept = (list(Ragged(column, rows.offsets).rows()) for column in (made.value, keep))
    pivot = np.where(made.pivot >= 0, made.pivot - rows.offsets[:-1], -1)
    return Fields(advantages=value, median=made.median, mad=made.mad, pivot=pivot, keep=kept)


@calls("mopps", "posterior_sequence")
def posterior_sequence(observations, decay=1.0, alpha0=1.0, beta0=1.0) -> np.ndarray:
    """One prompt's belief after each observation."""
    belief, states = Belief(np.asarray(alpha0, float), np.asarray(beta0, float)), []
    for successes, n in observations:
        belief = posterior_update(*belief, successes, n, decay, alpha0, beta0)
        states.append(belief)
    return np.array(states, float).reshape(-1, 2)


@calls("mssr", "tracker_step")
def tracker_step(alpha, beta, rewards, rho, threshold=0.5) -> Fields:
    """One outcome for each prompt that was scored, prompt by prompt since each may have its own rho."""
    a, b, r = (np.asarray(v, float) for v in (alpha, beta, rewards))
    rate, new = np.broadcast_to(np.asarray(rho, float), r.shape), []
    for row in range(len(r)):
        seen = np.flatnonzero(np.isfinite(r[row : row + 1]))
        y = (r[row : row + 1][seen] > threshold).astype(float)
        new.append(folded(a[row : row + 1], b[row : row + 1], seen, y, float(rate[row])))
    after = [np.concatenate([pair[i] for pair in new]) if new else np.empty(0) for i in (0, 1)]
    return Fields(value_before=tracker_value(a, b), alpha=after[0], beta=after[1], value_after=tracker_value(*after))


@calls("mssr", "mssr_advantages")
def mssr_advantages(rewards, values, entropy, mask, lam=0.4, gamma=2.0) -> Fields:
    """One rollout per prompt, whose tracker has the given value."""
    valid = np.asarray(mask, float) > 0
    v = np.asarray(values, float)
    rows = rollouts_of([[r] for r in rewards])
    rows = rows.with_(
        entropy=Ragged.of([h[m] for h, m in zip(np.asarray(entropy, float), valid, strict=True)], float),
        length=valid.sum(1),
    )
    method = Mssr(lam=lam, gamma=gamma)
    made = estimated(method, rows, method.init(pool_of(len(v)))._replace(alpha=v, beta=1 - v))
    token, psi = np.zeros(valid.shape), np.zeros(valid.shape)
    token[valid] = made.tokens.values
    psi[valid] = made.tokens.values - np.repeat(made.value, valid.sum(1))
    return Fields(sequence_advantages=made.value, psi=psi, advantages=token)


@calls("sapo", "advantages")
def sapo_advantages(rewards, eps=1e-8) -> np.ndarray:
    """One group of the node's own."""
    return estimated(Sapo(eps=eps), rollouts_of([list(rewards)]), Sapo().init(pool_of(1))).value


@calls("scope", "group_after_repair")
def group_after_repair(rewards, replaced, repaired_rewards, eps=1e-6) -> Fields:
    """A group and the repairs of some of its rows."""
    reward = np.asarray([*rewards, *repaired_rewards], float)
    rows = rollouts_of([reward.tolist()])
    context = np.full(len(reward), "", dtype=object)
    context[len(rewards) :] = [f"repair:{rows.id[k]}" for k in replaced]
    group = np.where(context == "", 0, 1)
    rows = rows.with_(context=context, group=group)
    start = estimated(Grpo(eps=eps), rows.with_(reward=np.where(context == "", reward, np.nan)))
    keep = Advantage.start(rows)
    made = estimated(Scope(eps=eps), rows, start=keep.revalued(keep.keep, start.value, start.baseline))
    took = [int(k) for i, k in enumerate(replaced) if made.keep[len(rewards) + i]]
    new, value = np.asarray(rewards, float).copy(), made.value[: len(rewards)].copy()
    for i, k in enumerate(replaced):
        if made.keep[len(rewards) + i]:
            new[k], value[k] = reward[len(rewards) + i], made.value[len(rewards) + i]
    return Fields(rewards=new, replaced=took, advantages=value)


@calls("v0", "v0_lite_predict")
def v0_lite_predict(
    targets, context_embeddings, context_successes, context_trials, context_age, bandwidth=0.1, prior_strength=2.0,
    recency=1.0,
) -> Fields:  # fmt: skip
    """The kernel that predicts, on embeddings of its context."""
    x = np.atleast_2d(np.asarray(targets, float))
    known = np.asarray(context_embeddings, float).reshape(-1, x.shape[1])
    s, n, age = (np.asarray(v, float) for v in (context_successes, context_trials, context_age))
    prior = context_prior(s, n, age, recency)
    belief = kernel_belief(x, known, s, n, age, prior, bandwidth, prior_strength, recency)
    return Fields(p=belief.mean, alpha=belief.alpha, beta=belief.beta, context_prior=prior)


@calls("xrpo", "score")
def xrpo_score(rewards, lambda_=0.5, alpha=0.05) -> Fields:
    """The intervals and the bonus of the priority."""
    stats = stats_of(rewards)
    std = np.where(stats.settled, 0.0, stats.std)
    half_width, delta = intervals(stats.n, std, alpha)
    bonus = exploration(stats.n, int(stats.n.sum()), lambda_)
    return Fields(
        n=stats.n, mean=stats.mean, std=std, half_width=half_width, delta=delta, bonus=bonus, priority=delta + bonus
    )


@calls("xrpo", "advantages")
def xrpo_advantages(rewards, seq_logprob_sum, lengths, lambda_novelty=2.5, kappa_clip=0.5, eps=1e-6) -> Fields:
    """One group; sums of log-probabilities as means over tokens."""
    reward, length = np.asarray(rewards, float), np.asarray(lengths, float)
    total = np.full(len(reward), np.nan) if seq_logprob_sum is None else np.asarray(seq_logprob_sum, float)
    group = np.zeros(len(reward), np.int64)
    likely = total / np.where(length > 0, length, 1)
    return Fields(sharpen(reward, likely, group, 1, lambda_novelty, kappa_clip, eps)._asdict())
