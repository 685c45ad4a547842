"""Tree and pruning methods against flat GRPO at equal generated tokens: `python -m tests.benchmarks trees`, told in docs/results/trees.md.

Every run trains the bundled tiny model until it has generated as many tokens as the others: a prefix that rollouts share
counts once, what was cut or probed counts, and evaluations are nobody's expense. All count is taken from the store that
each run writes, never from a method. What was run before is not run again.
"""

from __future__ import annotations

import datetime
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.benchmarks.figure import Figure, card, machine, versions
from workbench.analysis.intervals import paired
from workbench.analysis.summary import by_prompt
from workbench.numerics.forks import LOST_FATES, nodes_of
from workbench.numerics.trees import Segment, token_account
from workbench.pipeline import Pipeline, advance
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.types import Budget, Resume, Rollouts, Step

RESULTS = Path("docs/results")
SEEDS = (0, 1, 2)
COUNTED = ("generated", "kept", "pruned", "flat_equivalent", "n_kept")
LOOKS = 3
"""Evaluations of a run, at equal shares of its tokens, beside the one before it."""


class Case(NamedTuple):
    """A model, what a step may spend, the tokens of a run, the pipelines, and the budgets of those that have their own."""

    model: str
    budget: Budget
    tokens: int
    world: dict[str, object]
    pipelines: dict[str, str]
    budgets: dict[str, Budget]


TINY = {
    "flat": "grpo",
    "flat-half": "grpo",
    "flat-quarter": "grpo",
    "latr": "grpo, latr(windows=(2,))",
    "latr-wide": "grpo, latr(windows=(2,), tau_abs=0.05, tau_rel=0.9, eta=((0, 1.0),))",
    "echo": "grpo, echo(labels='verifier', min_depth=1, entropy_high=0.7, entropy_low=0.3, entropy_delta_threshold=0.0, "
    "branch_threshold=0.199, prune_threshold=0.15)",
    "ettrl": "grpo, ettrl(labels='verifier', forks=1, branches=3)",
    "aepo": "grpo, aepo",
    "branchgrpo": "grpo, branchgrpo(every=1)",
    "arrol": "grpo, arrol(l_detect=2, warmup=10)",
    "arrol-hidden": "grpo, arrol(l_detect=2, warmup=10, features='hidden')",
    "duet": "grpo, duet(length=4.0)",
    "duet-stop": "grpo, duet(length=4.0, markers=('0', '1', '2', '3', '4', '5', '6', '7', '8', '9'), every=1, hysteresis=1, "
    "grace=0, min_tokens=2, min_k1=2, min_gap=1)",
    "trace-inside": "grpo, trace(continuations=2, every=1, boundaries=(), k_max=2)",
    "april": "grpo, april(every=1)",
}
"""Settings fit answers of four tokens: a look at every token, windows of two, a digit for the mark of an answer. Rewards are
the verifier's everywhere. Methods that ask for fewer rollouts a step make more steps of the same tokens: flat-half and
flat-quarter do only that."""

SMOLLM2 = {
    "flat": "grpo",
    "flat-half": "grpo",
    **{label: TINY[label] for label in ("echo", "ettrl", "latr", "latr-wide")},
}
"""The four that stood best on tiny, and their controls."""

CASES = {
    "tiny": Case(
        "tiny",
        Budget(prompts=8, rollouts=64),
        24_000,
        {"samples": 8, "threads": 1},
        TINY,
        {"flat-half": Budget(8, 32), "flat-quarter": Budget(8, 16), "april": Budget(16, 128)},
    ),
    "smollm2": Case(
        "smollm2", Budget(prompts=16, rollouts=128), 24_000, {"samples": 4}, SMOLLM2, {"flat-half": Budget(16, 64)}
    ),
}


class Grown(NamedTuple):
    """One run. start, score, mean: pass rate on the evaluation prompts before it, at its last token, and on average over
    its tokens; tokens of the store: generated, kept, pruned, flat_equivalent, spared (an estimate); rollouts not given up; distinct
    answers of a group, chance that two of a group differ, mixed share of groups; steps and seconds without evaluations."""

    start: float
    score: float
    mean: float
    generated: float
    kept: float
    pruned: float
    flat_equivalent: float
    spared: float
    rollouts: float
    distinct: float
    differ: float
    mixed: float
    steps: float
    seconds: float


def spent(step: Step, earlier: Mapping[str, int]) -> Counter[str]:
    """Tokens of a step, those that several rollouts share once: the limit of a run, which its store then confirms.

    earlier: rollout id -> tokens, of those that earlier steps carried out."""
    r, made = step.rollouts, Counter[str]()
    resumed = np.array([earlier[s.rollout] if isinstance(s, Resume) else 0 for s in step.plan.start], np.int64)
    own = r.length - resumed[r.ask]
    lost, nodes = np.isin(step.fate, LOST_FATES), nodes_of(r, step.fate)
    flat = np.ones(len(r), bool)
    if nodes is not None:
        flat[[k for k in nodes["row"] if k >= 0]] = False
        columns = (nodes[name] for name in ("node_id", "parent_id", "kind", "n_tokens", "status"))
        segments = [Segment(i, p, kind, n, status=status) for i, p, kind, n, status in zip(*columns, strict=True)]
        for name in dict.fromkeys(nodes["tree_id"]):
            account = token_account(s for s, tree in zip(segments, nodes["tree_id"], strict=True) if tree == name)
            made.update({k: v for k, v in account._asdict().items() if k in COUNTED})
            made["pruned"] += account.discarded
    for kind, which in (("kept", flat & ~lost), ("pruned", flat & lost), ("flat_equivalent", flat & ~lost)):
        made[kind] += int(own[which].sum())
    made["generated"] += int(own[flat].sum())
    made["n_kept"] += int((~lost).sum())
    return made


def variety(step: Step) -> np.ndarray:
    """(5,) groups; their distinct answers; groups of two or more judged; of these the mixed ones, and the sum of the
    chances that two of their answers differ."""
    r = step.rollouts
    judged = (r.ask >= 0) & (r.purpose == "train") & np.isfinite(r.correct)
    sums = np.zeros(5)
    for g in np.unique(r.group[judged]):
        mine = judged & (r.group == g)
        n = np.unique([str(a) for a in r.answer[mine]], return_counts=True)[1]
        sums[:2] += (1, len(n))
        if (total := n.sum()) > 1:
            alike = (n * (n - 1)).sum() / (total * (total - 1))
            sums[2:] += (1, 0 < r.correct[mine].mean() < 1, 1 - alike)
    return sums


def grow(case: Case, label: str, seed: int, store: bool = True) -> tuple[Grown, list[list[float]]]:
    """One run to the case's tokens, and its curve [tokens, seconds, pass rate] at every look.

    store=False leaves the store out, for machines without one, and with it its word on the count, and spared."""
    text, budget = case.pipelines[label], case.budgets.get(label, case.budget)
    account, seconds, sums, steps = Counter[str](), 0.0, np.zeros(5), 0
    earlier: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(
            model=case.model, pipeline=text, budget=budget, steps=100_000, seed=seed, store=folder, world=case.world,
            eval_every=0, checkpoint_every=0, tokens="none",
        )  # fmt: skip
        with Run(experiment) if store else _Unrecorded(experiment) as run:
            curve = [[0.0, 0.0, _score(run)]]
            while account["generated"] < case.tokens:
                done = run.step()
                account.update(spent(done, earlier))
                steps, sums, seconds = steps + 1, sums + variety(done), seconds + sum(done.seconds.values())
                out = done.fate == "carried"
                earlier |= dict(zip(done.rollouts.id[out], done.rollouts.length[out].tolist(), strict=True))
                if account["generated"] >= case.tokens * len(curve) / LOOKS:
                    curve.append([float(account["generated"]), seconds, _score(run)])
        spared = _confirmed(folder, label, account) if store else np.nan
    at, _, score = np.array(curve).T
    groups, distinct, several, mixed, differ = sums
    shares = (distinct / max(groups, 1), differ / max(several, 1), mixed / max(several, 1))
    tokens = [account[n] for n in ("generated", "kept", "pruned", "flat_equivalent")]
    mean = np.trapezoid(score, at) / at[-1]
    made = (score[0], score[-1], mean, *tokens, spared, account["n_kept"], *shares, steps, seconds)
    return Grown(*map(float, made)), curve


class _Unrecorded:
    """The steps of an experiment without a record, as `Run` makes them."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment, self.world, self.n = experiment, experiment.build_world(), 0
        self.pipeline = Pipeline.parse(experiment.pipeline)  # type: ignore[arg-type]
        self.states = self.pipeline.init(self.world.pool)

    def __enter__(self) -> _Unrecorded:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def step(self) -> Step:
        self.n += 1
        e = self.experiment
        self.states, done = advance(self.pipeline, self.states, self.world, e.budget, step=self.n, seed=e.seed)
        return done

    def evaluate(self) -> tuple[Rollouts, float]:
        return self.world.evaluate(self.n), 0.0


def _score(run: Run | _Unrecorded) -> float:
    return float(np.nanmean(by_prompt(run.evaluate()[0])))


def _confirmed(folder: str, label: str, account: Counter[str]) -> float:
    """Raise where the store counts otherwise; its estimate of the tokens that cuts spared."""
    from workbench.store import Store

    with Store.open(folder) as store:
        rows = store.ask("savings_by_step").to_pylist()  # type: ignore[union-attr]
    said = {name: sum(row[name] for row in rows) for name in COUNTED}
    said["pruned"] += sum(row["discarded"] for row in rows)  # here both are what was given up
    if said != {name: account[name] for name in COUNTED}:
        raise RuntimeError(f"{label}: counted {dict(account)}, but the store has {said}")
    return float(sum(row["spared"] for row in rows))


def bench(case: str | None) -> Iterator[Figure]:
    """All pipelines and seeds of a case, seed by seed; figures are paired with flat GRPO of the same seed."""
    name = case or "tiny"
    chosen, path = CASES[name], RESULTS / f"trees-{name}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    runs: dict[str, dict] = kept.get("runs", {}) if kept.get("tokens") == chosen.tokens else {}
    for seed in SEEDS:
        for label, text in chosen.pipelines.items():
            mine = runs.setdefault(label, {"pipeline": text, "rows": [], "curves": []})
            if mine["pipeline"] != text:
                mine.update(pipeline=text, rows=[], curves=[])
            if len(mine["rows"]) > seed:
                continue
            made, curve = grow(chosen, label, seed)
            mine["rows"].append([None if np.isnan(v) else round(float(v), 5) for v in made])
            mine["curves"].append([[round(v, 5) for v in look] for look in curve])
            _save(path, chosen, runs)
            print(f"{name} {label} seed {seed}: {made.score - made.start:+.3f} in {made.seconds:.0f} s", flush=True)
    write()
    base = np.array(runs["flat"]["rows"], float)
    for label, run in runs.items():
        for column in ("score", "mean", "distinct", "differ", "mixed", "seconds"):
            i = Grown._fields.index(column)
            difference, low, high, n = paired(np.array(run["rows"], float)[:, i], base[:, i])
            note = f"95 % interval {low:+.4f} to {high:+.4f}, {n} seeds"
            yield Figure(f"{name}/{label}", f"{column}_over_flat", difference, "", "flat", note=note)


def _save(path: Path, case: Case, runs: dict[str, dict]) -> None:
    about = {
        "columns": Grown._fields, "tokens": case.tokens, "model": case.model, "prompts": case.budget.prompts,
        "rollouts": case.budget.rollouts, "machine": machine(), "card": card(), "versions": versions(),
        "date": datetime.date.today().isoformat(),
    }  # fmt: skip
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps({**about, "runs": runs}) + "\n")
    draft.replace(path)


def table(data: dict) -> str:
    """The figures of a case in Markdown: means over seeds, and differences to flat GRPO with their 95 % intervals."""
    column = {name: i for i, name in enumerate(data["columns"])}
    base = np.array(data["runs"]["flat"]["rows"], float)
    lines = [
        "| pipeline | score | over flat | mean over tokens, over flat | distinct | differ | mixed | steps | s | sharing | saved | cut | spared |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for label, run in data["runs"].items():
        rows = np.array(run["rows"], float)
        m = {name: rows[:, i].mean() for name, i in column.items()}

        def over(name: str, rows: np.ndarray = rows) -> str:
            value, low, high, _ = paired(rows[:, column[name]], base[: len(rows), column[name]])
            return f"{value:+.3f} ({low:+.3f} to {high:+.3f})"

        saved = (m["flat_equivalent"] - m["generated"]) / m["generated"]
        differences = ("", "") if label == "flat" else (over("score"), over("mean"))
        cells = (
            f"`{label}`", f"{m['score']:.3f}", *differences, f"{m['distinct']:.2f}", f"{m['differ']:.2f}", f"{m['mixed']:.2f}", f"{m['steps']:.0f}",
            f"{m['seconds']:.0f}", f"{m['flat_equivalent'] / max(m['kept'], 1):.2f}", f"{saved:+.0%}",
            f"{m['pruned'] / m['generated']:.0%}", "" if np.isnan(m["spared"]) else f"{m['spared'] / m['generated']:.0%}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def curves(data: dict) -> str:
    """Score against tokens and seconds in Markdown: at every look, mean over seeds, with the seconds of steps until then."""
    looks = np.array(data["runs"]["flat"]["curves"]).mean(0)[1:, 0]
    lines = [
        f"| pipeline | {' | '.join(f'{t / 1000:.0f}k tokens' for t in looks)} |",
        f"|---|{'---|' * len(looks)}",
    ]
    for label, run in data["runs"].items():
        mean = np.array(run["curves"]).mean(0)[1:]
        lines.append(f"| `{label}` | {' | '.join(f'{score:.3f} ({seconds:.0f} s)' for _, seconds, score in mean)} |")
    return "\n".join(lines)


def write() -> None:
    """Put the tables of all cases that were run between their marks in the page."""
    page = RESULTS / "trees.md"
    text = page.read_text()
    for path in sorted(RESULTS.glob("trees-*.json")):
        data = json.loads(path.read_text())
        for name, shown in (("table", table(data)), ("curves", curves(data))):
            mark, end = f"<!-- {name}: {path.stem} -->", "<!-- end -->"
            if mark in text:
                before, after = text.split(mark)
                text = f"{before}{mark}\n{shown}\n{end}{after.split(end, 1)[1]}"
    page.write_text(text)
