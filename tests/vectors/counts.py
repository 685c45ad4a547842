"""How many rollouts of what: plans and selections that methods make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests.vectors.calls import Fields, calls, no_draws
from tests.vectors.estimates import stats_of
from workbench.methods import d3s, dart, dots_rr, dump, gdro, latr, nudgerl, sgpo, v05
from workbench.methods.dapo_dynamic_sampling import DapoDynamicSampling
from workbench.methods.grpo_roc import resampled
from workbench.methods.sage_hint import SageHint
from workbench.methods.sapo import Sapo
from workbench.methods.sgpo import Sgpo
from workbench.methods.xrpo import grant
from workbench.numerics.beliefs import check_counts
from workbench.numerics.estimators import group_advantages
from workbench.numerics.picks import largest, smallest
from workbench.numerics.profiling import Profile
from workbench.testing.scripted import draft_of, pool_of, rollouts_of
from workbench.types import Advantage, Budget, Draft, Frontier, Plan, Ragged, Rollouts


class _Drawn:
    """A generator whose uniform draws are given."""

    def __init__(self, draws: Sequence[float]) -> None:
        self.draws = np.asarray(draws, float)

    def random(self, n: int) -> np.ndarray:
        """The first n of them."""
        return self.draws[:n]


@calls("nudgerl", "split_rollouts")
def split_rollouts(dropped: Sequence[int], K: int) -> dict:
    """A plan of M K plain rollouts over M hints, of which the first `dropped` of each lose theirs."""
    m = len(dropped)
    for d in dropped:
        if not 0 <= d <= K:
            raise ValueError(f"{d} of {K} rollouts of a hint cannot lose it")
    hint, turn = np.arange(m * K) % m, np.arange(m * K) // m
    draws = np.where(turn < np.asarray(dropped)[hint], 0.0, 1.0)
    state = nudgerl.Strategies([tuple(f"hint {i}" for i in range(m))], np.zeros(1), np.zeros(1))
    method = nudgerl.Nudgerl(hints=m, p_drop=0.5)
    plan = method.amend(state, Plan(np.zeros(1, np.int64), np.array([m * K])), None, _Drawn(draws))  # type: ignore[arg-type]
    names = [c.replace("strategy:", "hint") or "dropout" for c in plan.context]
    return {"sizes": {name: n for name, n in zip(names, plan.n.tolist(), strict=True) if n}, "total": plan.n_rollouts}


@calls("d3s", "cross_group_select")
def cross_group_select(rewards, groups, n, eps=1e-4) -> Fields:
    """GRPO's advantages over whole groups, then the selection over those that were scored."""
    reward = np.asarray(rewards, float)
    value = group_advantages(reward, groups, "grpo", eps).advantages
    scored = np.flatnonzero(np.isfinite(reward))
    made = d3s.select_max_variance(value[scored], n)
    return Fields(advantages=value, indices=scored[made.indices], variance=made.variance, n_top=made.n_top)


@calls("d3s", "token_topk")
def token_topk(advantages, entropy, mask, keep_fraction) -> Fields:
    """The kept tokens of rows as a mask."""
    valid = np.asarray(mask, float) > 0
    where = np.flatnonzero(valid)
    value = np.broadcast_to(np.asarray(advantages, float)[:, None], valid.shape).ravel()[where]
    h = np.asarray(entropy, float).ravel()[where]
    best = d3s.token_topk(value, h, keep_fraction)
    out = np.zeros(valid.size, np.int64)
    out[where[best]] = 1
    key = np.abs(value[best]) * h[best]
    return Fields(
        token_mask=out.reshape(valid.shape), kept=len(best), threshold=float(key.min()) if len(best) else float("nan")
    )


@calls("dapo-dynamic-sampling", "accumulate")
def accumulate(gen_batches, train_prompts, max_gen_batches=10, keep_singletons=False) -> Fields:
    """Rounds for as long as the method asks for more; then what it trains on, and what is too much."""
    method = DapoDynamicSampling(metric="reward", max_rounds=max_gen_batches, keep_singletons=keep_singletons)
    seen: list = []
    used, draft = 0, None
    for used, batch in enumerate(gen_batches, 1):
        seen += batch
        rows = rollouts_of([list(rewards) for _, rewards in seen])
        free = np.ones(len(seen) + 1, bool)
        draft = Draft(
            1, Budget(train_prompts, train_prompts), free, np.arange(len(seen)), round=used - 1, rollouts=rows
        )
        if not method.more((), draft):
            break
    if draft is None:
        return Fields(status="short", gen_batches=0, train=[], surplus=[], rollouts_generated=0)
    made = method.estimate((), Advantage.start(draft.rollouts), draft, no_draws())
    names = np.array([str(name) for name, _ in seen], dtype=object)
    train = names[np.unique(draft.rollouts.group[made.keep])].tolist()
    surplus = names[np.unique(draft.rollouts.group[made.reason == "surplus"])].tolist()
    status = "full" if len(train) >= train_prompts else "short"
    n = len(draft.rollouts)
    return Fields(status=status, gen_batches=used, train=train, surplus=surplus, rollouts_generated=n)


@calls("dart", "pool_fix")
def pool_fix(group: Sequence[Mapping], pool: Sequence[Mapping]) -> Fields:
    """A group of one prompt in the order of time, and the pool's newest success."""

    def rows_of(trajectories: Sequence[Mapping]) -> Rollouts:
        in_time = sorted(trajectories, key=lambda g: g["t"])
        rows = rollouts_of([[g["reward"] for g in in_time]])
        id_ = np.array([str(g["id"]) for g in in_time], dtype=object)
        return rows.with_(id=id_, correct=(rows.reward > 0).astype(float))

    method, rows, won = dart.Dart(), rows_of(group), rows_of(pool)
    saved = dart.newest(None, won.take(won.correct > 0))
    state = method.init(pool_of(1))._replace(pool=saved)
    more = method.replay(state, rows, draft_of(rows), no_draws())
    kept = more.take(method.admit(state, more, draft_of(more)))
    order = [str(g["id"]) for g in group]
    ids = sorted(kept.id.tolist(), key=lambda i: order.index(i) if i in order else len(order))
    if len(more) > len(rows):
        return Fields(action="replace", ids=ids)
    return Fields(action="keep", ids=ids) if (rows.correct > 0).any() else Fields(action="drop", ids=[])


@calls("dots-rr", "replay_buffer")
def replay_buffer(groups: Sequence[tuple], capacity: int, n_fresh: int) -> Fields:
    """Groups of rollouts, oldest first, of prompts by name."""
    names = {name: k for k, name in enumerate(dict.fromkeys(prompt for prompt, _ in groups))}
    rows = rollouts_of([list(rewards) for _, rewards in groups])
    rows = rows.with_(prompt=np.array([names[groups[g][0]] for g in rows.group], np.int64))
    eligible = dots_rr.replayable(rows)
    return Fields(eligible=eligible, kept_before_append=dots_rr.newest(eligible, capacity - n_fresh))


def bandit_of(n_sources: int, window_size: int) -> dump.Bandit:
    """A bandit that saw nothing."""
    none, count = np.zeros(n_sources), np.zeros(n_sources, np.int64)
    return dump.Bandit(count, np.full((n_sources, window_size), np.nan), count, none, none)


def _fed(state: dump.Bandit, source: int, values) -> dump.Bandit:
    a = np.asarray(values, float)
    return state.fed(np.full(len(a), source), a, np.zeros(len(a)))


@calls("dump", "window_append")
def window_append(window, advantages, window_size=300) -> np.ndarray:
    """The ring of one source, oldest first."""
    state = _fed(_fed(bandit_of(1, window_size), 0, window), 0, advantages)
    ring = np.roll(state.window[0], -int(state.counts[0]) % window_size if state.counts[0] > window_size else 0)
    return ring[np.isfinite(ring)]


@calls("dump", "learnability")
def learnability(window) -> float:
    """Of one source."""
    return float(_fed(bandit_of(1, max(len(window), 1)), 0, window).learnability[0])


@calls("dump", "run")
def dump_run(sources, steps, window_size=300, tau=0.1) -> list[Fields]:
    """The bandit over recorded steps."""
    unknown = sorted({name for step in steps for name in step} - set(sources))
    if unknown:
        raise ValueError(f"advantages of {', '.join(unknown)}, but the sources are {', '.join(sources)}")
    state, states = bandit_of(len(sources), window_size), []
    for step in steps:
        for d, name in enumerate(sources):
            state = _fed(state, d, step.get(name, ()))
        arms = dump.ucb_and_probs(state.learnability, state.counts, tau)
        states.append(Fields(learnability=state.learnability, counts=state.counts, **arms._asdict()))
    return states


@calls("gdro", "windowed_pass")
def windowed_pass(history, H) -> float:
    """The accuracy of one prompt after its marks."""
    state = gdro.Gdro(window=H).init(pool_of(1))
    for mark in history:
        state = state.marked(np.array([0]), np.array([mark > 0]), H, np.array([0.5]), 0.0)
    return float(state.accuracy[0])


@calls("gdro", "assign_bin_walk")
def assign_bin_walk(acc, edges, hysteresis=0.0) -> np.ndarray:
    """Bins of one prompt as its accuracy moves; the first one is taken as it is."""
    at, bins = np.array([-1]), []
    for a in acc:
        at = gdro.move_bin(at, np.array([a], float), np.asarray(edges, float), hysteresis)
        bins.append(int(at[0]))
    return np.array(bins, np.int64)


@calls("grpo-roc", "roc_select")
def roc_select(rewards, penalties, groups, n_keep, min_zero=2, min_nonzero=2) -> np.ndarray:
    """Successes by their penalty, failures as they come."""
    reward = np.asarray(rewards, float)
    names, group = np.unique(np.asarray(groups), return_inverse=True)
    key = np.where(reward > 0, np.asarray(penalties, float), 0.0)
    return resampled(reward, key, group, np.full(len(names), n_keep), min_zero, min_nonzero)


@calls("latr", "capacity_assign")
def capacity_assign(keep, completed, capacity) -> Fields:
    """Forks of the live branches of one tree, within the room that all its branches leave."""
    wanted, done = np.asarray(keep, bool), np.asarray(completed, bool)
    if not wanted.size:
        return Fields(state=np.zeros(wanted.shape, np.int64), n_next=0, n_suppressed=0)
    live = np.flatnonzero(~done)
    b, ones = len(live), np.ones(len(live), np.int64)
    none = Ragged.of([[]] * b, float)
    top = np.log(np.where(wanted[live, 1:2], [[0.5, 0.5]], [[0.9, 0.05]]))
    room = np.full(b, max(capacity - len(wanted), 0))
    frontier = Frontier(
        0 * ones, 0 * ones, live, 0 * ones, 9 * ones, none, none, none, np.full(b, ""), capacity,
        {"top_logp": top, "top_tokens": np.ones((b, 2), np.int64)}, {latr.TREE: np.ones(b)}, room=room,
    )  # fmt: skip
    forked = latr.Latr(tau_abs=None).branch(0, frontier, no_draws()).width > 1
    state = np.where(wanted, 0, 1)
    state[:, 0], state[done, 1:] = 0, 1
    state[live[wanted[live, 1] & ~forked], 1] = 2
    return Fields(state=state, n_next=int((state == 0).sum()), n_suppressed=int((state == 2).sum()))


@calls("latr", "prune_subtree")
def prune_subtree(parent, remove) -> Fields:
    """Branches and what grew from them; the first of a tree is never removed."""
    above = np.array([-1 if p is None else p for p in parent], np.int64)
    gone = np.zeros(len(above), bool)
    gone[[r for r in remove if parent[r] is not None]] = True
    gone = latr.with_descendants(np.arange(len(above)), above, gone)
    return Fields(removed=np.flatnonzero(gone).tolist(), kept=np.flatnonzero(~gone).tolist())


@calls("sage-hint", "sage_walk")
def sage_walk(rewards_by_level) -> Fields:
    """Passes for as long as the method asks for one level more; then the group that it trains on."""
    if not len(rewards_by_level):
        raise ValueError("a walk needs the group of level 0 at least")
    top = len(rewards_by_level) - 1
    method, pool = SageHint(levels=max(top, 1)), pool_of(1)
    words = np.array([" ".join(["word"] * 4 * (top + 2))], dtype=object)
    state, nothing = method.init(pool)._replace(reference=words), Plan(np.empty(0, np.int64), np.empty(0, np.int64))
    plan = Plan(np.zeros(1, np.int64), np.array([len(rewards_by_level[0])]))
    made = None
    for level, group in enumerate(rewards_by_level):
        rows = rollouts_of([list(group)])
        rows = rows.with_(
            context=np.full(len(rows), f"sage:{level}" if level else "", dtype=object), group=rows.group + level,
            correct=(rows.reward > 0).astype(float),
        )  # fmt: skip
        made = rows if made is None else Rollouts.concat([made, rows])
        draft = draft_of(made).with_(plan=plan)
        more = method.amend(state, nothing, draft, no_draws())
        if not more.n_rollouts or level == top:
            break
        plan = Plan.concat([plan, more])
    trained = method.estimate(state, Advantage.start(made), draft, no_draws()).keep
    return Fields(
        level=level, rewards=made.reward[trained], rollouts_generated=len(made), rollouts_trained=int(trained.sum())
    )


@calls("sapo", "filter_external")
def filter_external(groups: Sequence[Mapping], node: str, group_size: int) -> list:
    """Groups of other nodes, of which a node with as many groups of its own takes all that it may."""
    theirs = [g for g in groups if g["node"] != node]
    if not theirs:
        return []
    own = rollouts_of([[0.0] * group_size] * len(theirs))
    sent = rollouts_of([list(g["rewards"]) for g in theirs])
    context = np.array([f"swarm:{theirs[g]['node']}" for g in sent.group], dtype=object)
    sent = sent.with_(group=sent.group + len(theirs), ask=np.full(len(sent), -1), context=context)
    rows = Rollouts.concat([own, sent])
    method = Sapo(external=1.0)
    taken = method.replay(method.init(pool_of(1)), rows, draft_of(rows), no_draws())
    return [g["id"] for k, g in enumerate(theirs) if k + len(theirs) in taken.group]


def _members(method: Sgpo, p_hat: np.ndarray) -> list[np.ndarray]:
    """(M,) bool for each phase: who is in it, by a profile of these rates."""
    one = np.ones(len(p_hat))
    course = sgpo.Course(Profile(one * method.n_profile, one, p_hat), 0, np.zeros(len(p_hat), np.int64))
    return [method._members(course, phase) for phase in range(len(method.buckets))]


@calls("sgpo", "classify")
def classify(p_hat, threshold=0.75) -> np.ndarray:
    """Learnable is what a phase trains, unsolved what no profiled rollout solved."""
    p = np.asarray(p_hat, float)
    learnable = np.any(_members(Sgpo(threshold=threshold, fraction=0.0), p), axis=0)
    return np.select([learnable, p > 0], ["learnable", "trivial"], "unsolved").astype(object)


@calls("sgpo", "plan")
def sgpo_plan(successes, N, threshold=0.75, fraction=0.1, buckets=(2, 4, 8)) -> Fields:
    """The phases of a profile, each with the unsolved ones that are drawn into it."""
    s = np.asarray(successes, float)
    check_counts(s, np.full(len(s), N))
    p = s / N
    method = Sgpo(n_profile=N, threshold=threshold, fraction=fraction, buckets=tuple(buckets))
    sizes: list = [None] * len(s)
    phases = []
    for size, members in zip(buckets, _members(method, p), strict=True):
        rows, mixed = np.flatnonzero(members & (p > 0)).tolist(), int((members & (p <= 0)).sum())
        for row in rows:
            sizes[row] = int(size)
        cost = int(size) * int(members.sum())
        phases.append(Fields(group_size=int(size), prompts=rows, n_unsolved_mixed=mixed, rollouts_per_pass=cost))
    decision = classify(p, threshold)
    return Fields(p_hat=p, decision=decision, group_size=sizes, phases=phases, profile_rollouts=int(N * len(s)))


@calls("v05", "sequential")
def sequential(rewards, V, k_init=4, k_max=16, c=1 / 256, r_min=-1.0, r_max=1.0, mode="difference") -> Fields:
    """One look after the other at a stream of rewards; without a prior the mean of the first ones is the baseline."""
    stream = np.asarray(rewards, float)
    stream = stream[np.isfinite(stream)]
    if k_init < 1 or not len(stream):
        raise ValueError(f"sampling needs at least one rollout, got k_init={k_init} and {len(stream)} scored rewards")
    if (stream < r_min).any() or (stream > r_max).any():
        raise ValueError(f"rewards {stream.min():g}..{stream.max():g} lie outside {r_min:g}..{r_max:g}")
    s = ((r_max - r_min) / 2) ** 2
    k, trace = min(k_init, len(stream)), []
    if V is None or np.isnan(V):
        mean = float(stream[:k].mean())
        look = {"k": k, "mean": mean, "deviation_sq": np.nan, "weight": 1.0, "baseline": mean, "mse": s / k}
        trace = [Fields(look, continue_=False, **{"continue": False})]
        return Fields(trace=trace, k_final=k, baseline=mean, advantages=stream[:k] - mean)
    while True:
        mean = float(stream[:k].mean())
        fused = v05.fuse(mean, V, k, s)
        worth = v05.gain(fused.deviation_sq, k, s, mode)
        more = bool(worth > c and k < k_max and k < len(stream))
        trace.append(Fields({"k": k, "mean": mean, "continue": more}, **fused._asdict()))
        if not more:
            return Fields(
                trace=trace, k_final=k, baseline=float(fused.baseline), advantages=stream[:k] - fused.baseline
            )
        k += 1


@calls("xrpo", "allocation")
def xrpo_allocation(rewards, budget, lambda_=0.5, alpha=0.05, n_cap=None) -> Fields:
    """Units of a round by the spread of lists of rewards."""
    stats = stats_of(rewards)
    extra = grant(stats.n, np.where(stats.settled, 0.0, stats.std), budget, lambda_, alpha, n_cap)
    return Fields(extra=extra, n_after=stats.n + extra, unspent=budget - int(extra.sum()))


@calls("jet-rl-and-sol-rl", "contrast_select")
def contrast_select(scores, n_top, n_bottom) -> Fields:
    """The best, and of the others the worst."""
    score = np.asarray(scores, float)
    top = largest(score, n_top)
    others = np.setdiff1d(np.arange(len(score)), top)
    return Fields(top=top, bottom=others[smallest(score[others], n_bottom)])
