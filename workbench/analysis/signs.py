"""Where does an estimator push a rollout the wrong way? Advantage signs against a better reference, on recorded rollouts.

    signs.compare(store, run, [Grpo(), DrGrpo(), Rloo(), McGrpo()], sizes=(2, 4, 8, 16))

The reference of a prompt is b* = E[reward] under the version and context that made the group (`numerics.flips` defines
the labels). Its kind, best first: pool, 64 or more rollouts of one version, from which groups of every smaller size are
drawn; posterior, a belief held before the group, which gives chances instead of labels; union, the mean over the last
versions, stale; exact, a reward law that is known (`simulate`). Tables of two kinds are never joined.

Every estimator gets the same draws (a method that asks for one rollout more gets that one beside them), and holds the
state that it would have had: it observed the run up to the step. Only rollouts that reach the loss are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from workbench.numerics import beta as beta_law
from workbench.numerics.flips import TAU, sign_flips
from workbench.pipeline import States, generator
from workbench.stages import Method
from workbench.types import Advantage, Budget, Draft, Plan, Pool, Rollouts, Step

if TYPE_CHECKING:
    from workbench.store import Store

Kind: TypeAlias = Literal["pool", "posterior", "union", "exact"]
Rate: TypeAlias = Literal["hard", "vanish", "spurious", "reward_mass", "gradient_mass", "ambiguous", "n_effective"]
RATES: tuple[Rate, ...] = get_args(Rate)

N_REF = 64
"""Rollouts of one version that make a pool."""

_TOP = ("hard", "vanish", "spurious", "hard_away", "hard_pull", "ambiguous", "acting")
_BOTTOM = ("signed", "signed", "zero", "away", "pull", "all", "draws")
_TALLY = ("hard", "vanish", "spurious", "signed", "zero", "hard_away", "away", "hard_pull", "pull", "ambiguous", "all",
          "acting", "draws")  # fmt: skip


class Reference(NamedTuple):
    """What C clusters are held against: value, se (C,); alpha, beta (C,) and low, high where the kind is posterior."""

    kind: Kind
    value: np.ndarray
    se: np.ndarray
    alpha: np.ndarray | None = None
    beta: np.ndarray | None = None
    low: float = 0.0
    high: float = 1.0


class Labels(NamedTuple):
    """One row per rollout (R,): signs int8, the reference with its kind and error, the label, the chance of a flip.

    Under a posterior the label is the one against its mean, and flip_probability is P(b* on the other side of r); under
    the other kinds it is 1 for hard, 0 else, NaN where ambiguous. Rollouts outside the loss have label "out"."""

    id: np.ndarray
    step: np.ndarray
    adv_sign: np.ndarray
    ref_sign: np.ndarray
    reference_kind: np.ndarray
    reference_value: np.ndarray
    reference_se: np.ndarray
    flip_label: np.ndarray
    flip_probability: np.ndarray


def _sign(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) > TAU, np.sign(np.nan_to_num(x)), 0).astype(np.int8)


def label(
    rollouts: Rollouts, advantage: Advantage, cluster: np.ndarray, reference: Reference, z: float = 2.0
) -> Labels:
    """Labels of R rollouts; cluster (R,) int64 names the row of the reference that each is held against, -1 none."""
    at = np.maximum(cluster, 0)
    known = cluster >= 0
    value, se = np.where(known, reference.value[at], np.nan), np.where(known, reference.se[at], np.nan)
    margin = 0.0 if reference.kind in ("posterior", "exact") else z
    found = sign_flips(rollouts.reward, advantage.value, value, TAU, se, margin).labels.astype(object)
    if reference.alpha is not None and reference.beta is not None:
        spread = reference.high - reference.low
        r = np.clip((np.nan_to_num(rollouts.reward) - reference.low) / spread, 0, 1)
        below = beta_law.cdf(r, reference.alpha[at], reference.beta[at])
        seen = _sign(advantage.value)
        chance = np.where(seen > 0, 1 - below, np.where(seen < 0, below, 0.0))
    else:
        chance = np.where(found == "hard", 1.0, 0.0)
    scored = known & np.isfinite(rollouts.reward) & (found != "ambiguous")
    found = np.where(advantage.keep, found, "out")
    return Labels(
        rollouts.id,
        rollouts.step,
        _sign(advantage.value),
        _sign(rollouts.reward - value),
        np.where(known, reference.kind, ""),
        value,
        se,
        found,
        np.where(scored & advantage.keep, chance, np.nan),
    )


def tally(found: Labels, advantage: Advantage, reward: np.ndarray, cluster: np.ndarray, n_clusters: int) -> np.ndarray:
    """(n_clusters, 13) sums from which every rate is a ratio; see _TALLY. A posterior counts chances as parts."""
    counted = (found.flip_label != "out") & (cluster >= 0)
    clear = counted & (found.flip_label != "ambiguous")
    kind = found.flip_label
    away = np.where(clear, np.abs(np.nan_to_num(reward - found.reference_value)), 0.0)
    pull = np.where(clear, np.abs(advantage.value), 0.0)
    if (found.reference_kind == "posterior").any():  # a continuous belief: the true sign is never 0
        signed, zero = clear, np.zeros(len(clear), bool)
        hard = np.where(clear, np.nan_to_num(found.flip_probability), 0.0)
        vanish = clear & (found.adv_sign == 0)
    else:
        signed, zero = clear & np.isin(kind, ("ok", "hard", "vanish")), clear & np.isin(kind, ("spurious", "both_zero"))
        hard = (clear & (kind == "hard")).astype(float)
        vanish = clear & (kind == "vanish")
    columns = {
        "hard": hard,
        "vanish": vanish,
        "spurious": zero & (kind == "spurious"),
        "signed": signed,
        "zero": zero,
        "hard_away": hard * away,
        "away": signed * away,
        "hard_pull": hard * pull,
        "pull": pull,
        "ambiguous": counted & (kind == "ambiguous"),
        "all": counted,
        "acting": counted & (found.adv_sign != 0),
    }
    at = np.where(counted, cluster, 0)
    sums = [np.bincount(at, np.where(counted, columns[n], 0), minlength=n_clusters) for n in _TALLY[:-1]]
    drawn = np.bincount(cluster[cluster >= 0], minlength=n_clusters) > 0
    return np.column_stack([*sums, drawn.astype(float)])


def rates(sums: np.ndarray) -> np.ndarray:
    """(..., 7) the rates in the order of RATES from (..., 13) sums; 0 where nothing is in the denominator."""
    top = sums[..., [_TALLY.index(n) for n in _TOP]]
    bottom = sums[..., [_TALLY.index(n) for n in _BOTTOM]]
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), 0.0)


class Interval(NamedTuple):
    """A rate, or a difference of two, with the bounds of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Signs:
    """Rates of every estimator at every group size against one kind of reference.

    sums (estimator, size) -> (C, 13), summed over draws within C clusters (prompts). Intervals resample the clusters, the
    same ones for all estimators and sizes, so that differences are paired.
    """

    kind: Kind
    sums: Mapping[tuple[str, int], np.ndarray] = field(repr=False)
    note: str = ""
    levels: int = 0
    """Distinct rewards seen; with two, no baseline between them can flip a sign hard."""

    @property
    def estimators(self) -> list[str]:
        """Names, in the order given."""
        return list(dict.fromkeys(e for e, _ in self.sums))

    @property
    def sizes(self) -> list[int]:
        """Group sizes, ascending."""
        return sorted({g for _, g in self.sums})

    def _resampled(self, estimator: str, size: int, resamples: int = 2000) -> np.ndarray:
        """(resamples, 7) rates of resampled clusters; the first row of weights is the same for every estimator."""
        if (estimator, size) not in self.sums:
            raise ValueError(
                f"no {estimator!r} at {size}; there are {', '.join(self.estimators)} at {', '.join(map(str, self.sizes))}"
            )
        sums = self.sums[estimator, size]
        weight = np.random.default_rng(0).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), resamples)
        return rates(weight @ sums)

    def rate(self, estimator: str, size: int, rate: Rate = "hard", level: float = 0.95) -> Interval:
        """A rate with its bootstrap interval over clusters."""
        k = RATES.index(rate)
        low, high = np.quantile(self._resampled(estimator, size)[:, k], [(1 - level) / 2, (1 + level) / 2])
        return Interval(float(rates(self.sums[estimator, size].sum(0))[k]), float(low), float(high))

    def difference(
        self, ours: tuple[str, int], theirs: tuple[str, int], rate: Rate = "hard", level: float = 0.95
    ) -> Interval:
        """Rate of ours minus that of theirs, each (estimator, size), paired by cluster."""
        k = RATES.index(rate)
        spread = self._resampled(*ours)[:, k] - self._resampled(*theirs)[:, k]
        low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2])
        value = rates(self.sums[ours].sum(0))[k] - rates(self.sums[theirs].sum(0))[k]
        return Interval(float(value), float(low), float(high))

    def rows(self, level: float = 0.95) -> list[dict[str, object]]:
        """One row per estimator and size: kind, clusters, every rate, intervals of hard and vanish."""
        out: list[dict[str, object]] = []
        for (estimator, size), sums in self.sums.items():
            row: dict[str, object] = {"estimator": estimator, "size": size, "kind": self.kind, "clusters": len(sums)}
            for name, value in zip(RATES, rates(sums.sum(0)), strict=True):
                row[name] = float(value)
                if name in ("hard", "vanish"):
                    made = self.rate(estimator, size, name, level)
                    row |= {f"{name}_low": made.low, f"{name}_high": made.high}
            out.append(row)
        return out

    def join(self, other: Signs) -> Signs:
        """Both tables, of one kind over the same clusters; ValueError where the kinds differ."""
        if self.kind != other.kind:
            raise ValueError(f"rates against a {self.kind} and against a {other.kind} reference do not belong together")
        if {len(s) for s in self.sums.values()} != {len(s) for s in other.sums.values()}:
            raise ValueError("the tables were made over different prompts and cannot be paired")
        return replace(self, sums={**self.sums, **other.sums}, levels=max(self.levels, other.levels))

    @staticmethod
    def pool(tables: Sequence[Signs]) -> Signs:
        """One table over the prompts of several runs; ValueError where the kinds or the rows differ."""
        first = tables[0]
        for other in tables[1:]:
            if other.kind != first.kind or list(other.sums) != list(first.sums):
                raise ValueError(f"a {first.kind} and a {other.kind} table of other rows cannot be pooled")
        sums = {key: np.concatenate([t.sums[key] for t in tables]) for key in first.sums}
        return Signs(first.kind, sums, "; ".join(t.note for t in tables), max(t.levels for t in tables))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(n)}</th>" for n in ("estimator", "size", *RATES))
        body = ""
        for row in self.rows():
            cells = "".join(f"<td>{row[n]:.3f}</td>" for n in RATES)
            body += f"<tr><td>{escape(str(row['estimator']))}</td><td>{row['size']}</td>{cells}</tr>"
        said = f"reference: {self.kind}. {self.note}."
        if self.levels == 2:
            said += " Two reward levels: signs can only vanish, a hard flip needs a baseline outside them."
        return f"<table><caption>{escape(said)}</caption><tr>{head}</tr>{body}</table>"


Estimator: TypeAlias = "Method | Sequence[Method]"
"""A method with `estimate`, or several that act one after the other, as in a pipeline."""


class _Named(NamedTuple):
    """An estimator under the name of its table rows."""

    name: str
    methods: tuple[Method, ...]


def _named(estimators: Mapping[str, Estimator] | Iterable[Estimator]) -> list[_Named]:
    """Estimators by name; without one given, the catalog's name, with the settings that differ from the paper's."""
    named = cast("Mapping[str, Estimator]", estimators).items() if isinstance(estimators, Mapping) else None
    pairs = list(named) if named is not None else [("", e) for e in cast("Iterable[Estimator]", estimators)]
    made = []
    for name, e in pairs:
        methods = (e,) if isinstance(e, Method) else tuple(e)
        if not any("estimate" in m.verbs for m in methods):
            raise ValueError(f"{e!r} does not act at estimate, so it gives no advantage to look at")
        own = [
            m.name + (f"({', '.join(f'{k}={v}' for k, v in m.settings.items())})" if m.settings else "")
            for m in methods
        ]
        made.append(_Named(name or " + ".join(own), methods))
    twice = {m.name for m in made if sum(o.name == m.name for o in made) > 1}
    if twice or not made:
        raise ValueError(f"estimators need names of their own, got {sorted(twice) or 'none'}")
    return made


def advantages(estimator: Estimator, states: States, rollouts: Rollouts, pool: Pool, step: int = 1) -> Advantage:
    """What an estimator says of a table of rollouts, as in a training step; states by method name."""
    methods = (estimator,) if isinstance(estimator, Method) else estimator
    made = Advantage.start(rollouts)
    prompts = np.unique(rollouts.prompt)
    groups, first, n = np.unique(rollouts.group, return_index=True, return_counts=True)
    plan = Plan(rollouts.prompt[first], n, step=step)
    budget = Budget(max(len(groups), 1), max(len(rollouts), len(groups), 1))
    draft = Draft(step, budget, np.ones(len(pool), bool), prompts, plan=plan, rollouts=rollouts)
    for m in methods:
        if "estimate" in m.verbs:
            made = m.estimate(states[m.name], made, draft, generator(0, step, 0, "estimate", m.name))  # type: ignore[attr-defined]
    return made


def _asked(estimator: _Named, size: int, states: States, pool: Pool) -> int:
    """Rollouts that a group of a size needs: MC-GRPO amends one more."""
    plan = Plan(np.zeros(1, np.int64), np.array([size]))
    draft = Draft(1, Budget(1, size), np.ones(len(pool), bool), np.zeros(1, np.int64))
    for m in estimator.methods:
        if "amend" in m.verbs:
            plan = m.amend(states[m.name], plan, draft, generator(0, 1, 0, "amend", m.name))  # type: ignore[attr-defined]
    return plan.n_rollouts


class _Field(NamedTuple):
    """Rollouts of one step to draw groups from: cluster (R,) of each, prompt (C,) of every cluster, and its reference."""

    step: int
    rollouts: Rollouts
    cluster: np.ndarray
    prompt: np.ndarray
    reference: Reference


def _drawn(cluster: np.ndarray, n_clusters: int, size: int, keys: np.ndarray) -> np.ndarray:
    """Rows of `size` rollouts of every cluster that has so many, those with the smallest keys; grouped by cluster."""
    order = np.lexsort((keys, cluster))
    n = np.bincount(cluster, minlength=n_clusters)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(n) - n, n)
    return order[(rank < size) & (n >= size)[cluster[order]]]


def _measure(
    named: _Named, states: States, place: _Field, pool: Pool, size: int, draws: int, z: float, seed: int
) -> np.ndarray:
    """(C, 13) sums over `draws` random groups of every cluster of a step."""
    n_clusters, asked = len(place.prompt), _asked(named, size, states, pool)
    total = np.zeros((n_clusters, len(_TALLY)))
    rng = np.random.default_rng([seed, place.step, size])
    for _ in range(draws):
        rows = _drawn(place.cluster, n_clusters, asked, rng.random(len(place.cluster)))
        if not len(rows):
            return total
        cluster = place.cluster[rows]
        some = place.rollouts.take(rows)
        group = np.unique(cluster, return_inverse=True)[1]
        some = some.with_(group=group, ask=group, purpose=np.full(len(rows), "train", dtype=object))
        made = advantages(named.methods, states, some, pool, place.step)
        found = label(some, made, cluster, place.reference, z)
        total += tally(found, made, some.reward, cluster, n_clusters)
    return total


def _clusters(rollouts: Rollouts) -> tuple[np.ndarray, np.ndarray]:
    """(R,) cluster of each rollout by prompt, context and version; (C,) prompt of each cluster."""
    keys = [f"{p}|{c}|{v}" for p, c, v in zip(rollouts.prompt, rollouts.context, rollouts.version, strict=True)]
    _, first, cluster = np.unique(np.array(keys, str), return_index=True, return_inverse=True)
    return cluster, rollouts.prompt[first]


def pooled(step: Step, n_ref: int = N_REF) -> _Field | None:
    """The pools of a step: rollouts of one prompt, context and version, n_ref scored ones or more; None without any.

    Rollouts made to be a reference or a probe come first; where a prompt has too few of them, its training rollouts
    (of the same law) count too."""
    r = step.rollouts
    usable = np.isfinite(r.reward) & np.isin(r.purpose, ("probe", "reference", "train", "profile"))
    return _pools(step.step, r.take(usable & (r.purpose != "train")), n_ref) or _pools(step.step, r.take(usable), n_ref)


def _pools(step: int, rollouts: Rollouts, n_ref: int) -> _Field | None:
    if not len(rollouts):
        return None
    cluster, prompt = _clusters(rollouts)
    large = np.bincount(cluster) >= n_ref
    if not large.any():
        return None
    inside = large[cluster]
    rollouts, cluster = rollouts.take(inside), (np.cumsum(large) - 1)[cluster[inside]]
    n = np.bincount(cluster)
    mean = np.bincount(cluster, rollouts.reward) / n
    square = np.bincount(cluster, (rollouts.reward - mean[cluster]) ** 2)
    se = np.sqrt(square / np.maximum(n - 1, 1) / n)
    return _Field(step, rollouts, cluster, prompt[large], Reference("pool", mean, se))


class _Memory:
    """What earlier steps say of every prompt: a Beta per prompt and context for posterior, recent rewards for union."""

    def __init__(self, low: float, high: float, keep: float, versions: int) -> None:
        self.low, self.high, self.keep, self.versions = low, high, keep, versions
        self.belief: dict[tuple[int, str], tuple[float, float]] = {}
        self.recent: dict[tuple[int, str], list[tuple[int, float]]] = {}

    def field(self, kind: Kind, step: Step, n_min: int) -> _Field | None:
        """The groups of a step against what was known before it (posterior), or around it (union)."""
        r = step.rollouts.take((step.rollouts.purpose == "train") & np.isfinite(step.rollouts.reward))
        if kind == "union":
            self._add_recent(r)
        if not len(r):
            return None
        cluster, prompt = _clusters(r)
        _, first = np.unique(cluster, return_index=True)
        keys = [(int(r.prompt[i]), str(r.context[i])) for i in first]
        if kind == "posterior":
            a, b = np.array([self.belief.get(k, (1.0, 1.0)) for k in keys]).T
            mean = self.low + (self.high - self.low) * a / (a + b)
            return _Field(
                step.step, r, cluster, prompt, Reference(kind, mean, np.zeros(len(a)), a, b, self.low, self.high)
            )
        seen = [np.array([v for _, v in self.recent[k]]) for k in keys]
        n = np.array([len(s) for s in seen])
        se = np.array([s.std(ddof=1) / np.sqrt(len(s)) if len(s) > 1 else np.nan for s in seen])
        enough = n >= n_min
        inside = enough[cluster]
        if not enough.any():
            return None
        value = np.array([s.mean() for s in seen])[enough]
        place = (np.cumsum(enough) - 1)[cluster[inside]]
        return _Field(step.step, r.take(inside), place, prompt[enough], Reference(kind, value, se[enough]))

    def _add_recent(self, r: Rollouts) -> None:
        newest = int(r.version.max(initial=0))
        for p, c, v, reward in zip(r.prompt, r.context, r.version, r.reward, strict=True):
            self.recent.setdefault((int(p), str(c)), []).append((int(v), float(reward)))
        for key in {(int(p), str(c)) for p, c in zip(r.prompt, r.context, strict=True)}:
            self.recent[key] = [(v, x) for v, x in self.recent[key] if v > newest - self.versions]

    def observe(self, step: Step) -> None:
        """Count a finished step's training rewards into the beliefs, older ones by `keep`."""
        r = step.rollouts.take((step.rollouts.purpose == "train") & np.isfinite(step.rollouts.reward))
        share = (r.reward - self.low) / (self.high - self.low)
        for key in sorted({(int(p), str(c)) for p, c in zip(r.prompt, r.context, strict=True)}):
            mine = share[(r.prompt == key[0]) & (r.context == key[1])]
            a, b = self.belief.get(key, (1.0, 1.0))
            fresh = np.array([mine.sum(), (1 - mine).sum()])
            a, b = 1 + self.keep * (np.array([a, b]) - 1) + fresh
            self.belief[key] = (float(a), float(b))


def compare(
    store: Store,
    run: str | None,
    estimators: Mapping[str, Estimator] | Iterable[Estimator],
    sizes: Sequence[int] = (2, 4, 8, 16),
    *,
    reference: Kind = "pool",
    draws: int = 32,
    n_ref: int = N_REF,
    z: float = 2.0,
    keep: float = 0.9,
    versions: int = 8,
    since: int = 0,
    seed: int = 0,
) -> Signs:
    """Rates of every estimator at every group size, on the rollouts that a run has recorded.

    draws: random groups per cluster and size. n_ref: rollouts of a pool; for union, of the last `versions` versions.
    z: rollouts within z standard errors of a pool or union are ambiguous. keep: weight that a posterior's past keeps
    per group. Raises ValueError where the run holds nothing that this reference could be made of."""
    chosen = run or store.latest()
    pool, _ = store.pool(chosen)
    made = measure(
        store.steps(chosen, pool), pool, estimators, sizes, reference=reference, draws=draws, n_ref=n_ref, z=z, keep=keep,
        versions=versions, since=since, seed=seed, reward_range=_reward_range(store, str(chosen)),
    )  # fmt: skip
    return replace(made, note=f"run {chosen}; {made.note}")


def _reward_range(store: Store, run: str) -> tuple[float, float]:
    found = store.sql("SELECT min(reward) AS low, max(reward) AS high FROM rollouts WHERE run = $run", {"run": run})
    row = found.to_pylist()[0]
    low, high = min(row["low"] or 0.0, 0.0), max(row["high"] or 0.0, 0.0)
    return low, (high if high > low else low + 1.0)


def measure(
    steps: Iterable[Step],
    pool: Pool,
    estimators: Mapping[str, Estimator] | Iterable[Estimator],
    sizes: Sequence[int] = (2, 4, 8, 16),
    *,
    reference: Kind = "pool",
    draws: int = 32,
    n_ref: int = N_REF,
    z: float = 2.0,
    keep: float = 0.9,
    versions: int = 8,
    since: int = 0,
    seed: int = 0,
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> Signs:
    """`compare` on finished steps that are at hand; reward_range maps rewards to the posterior's 0..1."""
    if reference not in ("pool", "posterior", "union"):
        raise ValueError(f"recorded rollouts give pool, posterior or union, not {reference!r}; exact is `simulate`")
    named = _named(estimators)
    methods = {m.name: m for n in named for m in n.methods}
    if len(methods) < len({repr(m) for n in named for m in n.methods}):
        return _one_by_one(list(steps), pool, named, sizes, reference=reference, draws=draws, n_ref=n_ref, z=z, keep=keep,
                           versions=versions, since=since, seed=seed, reward_range=reward_range)  # fmt: skip
    states = {name: m.init(pool) for name, m in methods.items()}
    memory = _Memory(*reward_range, keep, versions)
    total = {(n.name, g): np.zeros((len(pool), len(_TALLY))) for n in named for g in sizes}
    largest, levels, counted = 0, set(), 0
    for step in steps:
        place = pooled(step, n_ref) if reference == "pool" else memory.field(reference, step, n_ref)
        largest = max(largest, int(np.bincount(_clusters(step.rollouts)[0]).max(initial=0)))
        if place is not None and step.step > since:
            counted += 1
            levels |= set(np.unique(place.rollouts.reward).round(12).tolist())
            for n in named:
                for g in sizes:
                    sums = _measure(n, states, place, pool, g, draws, z, seed)
                    np.add.at(total[n.name, g], place.prompt, sums)
        states = {name: m.observe(states[name], step) for name, m in methods.items()}
        memory.observe(step)
    if not counted:
        raise ValueError(
            f"no step has {n_ref} rollouts for a {reference} reference (at most {largest} of one prompt and version); "
            "record a probe set, lower n_ref, or take reference='posterior'"
        )
    drawn = _TALLY.index("draws")
    used = np.any([t[:, drawn] > 0 for t in total.values()], axis=0)
    note = f"{int(used.sum())} prompts in {counted} steps, {draws} groups drawn of each"
    empty = [key for key, t in total.items() if not t[:, drawn].any()]
    if empty:
        note += f"; no group was large enough for {', '.join(f'{name} at {g}' for name, g in empty)}"
    total = {key: t for key, t in total.items() if key not in empty}
    return Signs(reference, {key: t[used] for key, t in total.items()}, note, len(levels))


def _one_by_one(steps: list[Step], pool: Pool, named: list[_Named], sizes: Sequence[int], **options) -> Signs:
    """Two settings of one method cannot share a state: one pass each."""
    made = [measure(steps, pool, {n.name: n.methods}, sizes, **options) for n in named]
    table = made[0]
    for other in made[1:]:
        table = table.join(other)
    return table


def simulate(
    support: ArrayLike,
    probs: ArrayLike,
    estimators: Mapping[str, Estimator] | Iterable[Estimator],
    sizes: Sequence[int] = (2, 4, 8, 16),
    *,
    groups: int = 2000,
    seed: int = 0,
) -> Signs:
    """The same table where the reward law is known: independent groups of rewards from support (K,) with probs (K,).

    A cluster is a group, all groups of a size share one batch, and the reference is the exact mean. States are fresh."""
    value, p = np.asarray(support, float), np.asarray(probs, float)
    if len(value) != len(p) or (p < 0).any() or abs(p.sum() - 1) > 1e-6:
        raise ValueError(f"{len(value)} values with probabilities that sum to {p.sum():g} are no law")
    ids = np.array([f"group-{i}" for i in range(groups)], dtype=object)
    blank = np.full(groups, "", dtype=object)
    pool = Pool(ids, blank, blank, blank, blank)
    exact = Reference("exact", np.full(groups, value @ p), np.zeros(groups))
    sums = {}
    for n in _named(estimators):
        states = {m.name: m.init(pool) for m in n.methods}
        for g in sizes:
            asked = _asked(n, g, states, pool)
            r = Rollouts.asked(Plan(np.arange(groups), np.full(groups, asked), step=1), pool)
            reward = np.random.default_rng([seed, g]).choice(value, (asked, groups), p=p).T.ravel()
            r = r.with_(
                reward=reward, correct=(reward > 0).astype(float), group=r.prompt, length=np.ones(len(r), np.int64)
            )
            made = advantages(n.methods, states, r, pool)
            sums[n.name, g] = tally(label(r, made, r.prompt, exact), made, r.reward, r.prompt, groups)
    return Signs("exact", sums, f"{groups} groups of a known law", len(value))


def labels(
    store: Store, run: str | None = None, *, reference: Kind = "pool", n_ref: int = N_REF, z: float = 2.0,
    keep: float = 0.9, versions: int = 8,
) -> Iterator[Labels]:  # fmt: skip
    """Labels of the run's own training rollouts by the advantages it trained on, step by step; no reference, no row."""
    chosen = run or store.latest()
    pool, _ = store.pool(chosen)
    memory = _Memory(*_reward_range(store, str(chosen)), keep, versions)
    for step in store.steps(chosen, pool):
        place = pooled(step, n_ref) if reference == "pool" else memory.field(reference, step, n_ref)
        if place is not None:
            of = {key: int(c) for key, c in zip(_keys(place.rollouts), place.cluster, strict=True)}
            train = np.flatnonzero(step.rollouts.purpose == "train")
            rows = step.rollouts.take(train)
            cluster = np.array([of.get(key, -1) for key in _keys(rows)], np.int64)
            a = step.advantage
            own = Advantage(a.value[train], a.keep[train], a.weight[train], a.baseline[train], a.reason[train])
            found = label(rows, own, cluster, place.reference, z)
            yield Labels(*(column[cluster >= 0] for column in found))
        memory.observe(step)


def _keys(rollouts: Rollouts) -> list[tuple[int, str, int]]:
    columns = (rollouts.prompt.tolist(), rollouts.context.tolist(), rollouts.version.tolist())
    return list(zip(*columns, strict=True))
