"""The chapters of a report about one run, each made from named questions to the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.analysis import evaluation
from workbench.analysis.diagnose import RULES, Finding, diagnose
from workbench.analysis.evaluation import Scores
from workbench.pipeline import Pipeline
from workbench.report import curves, tree, words
from workbench.report.document import Block, Card, Code, Column, Figure, Prose, Section, Table, asked
from workbench.stages import Method
from workbench.store import Store
from workbench.views.data.groups import GroupFacts, groups_of
from workbench.views.data.run import RunData
from workbench.views.data.selection import OBSERVED
from workbench.views.data.tree import tree as grown

PRIVATE = ("store", "host", "process", "platform")
"""Keys that say where something was run and not what: a report is given to others."""


@dataclass(frozen=True)
class Chapter:
    """One run as a report reads it. name ends the names of its figures and tables: "" where there is one run only."""

    store: Store
    data: RunData
    name: str = ""
    level: int = 1
    groups: Sequence[tuple[int, int]] = ()
    """(step, group) of the trees to draw; empty chooses."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", self.data.run)

    run: str = ""

    def ask(self, question: str, **params: object) -> list[dict[str, Any]]:
        """The rows of a named question about this run."""
        return self.store.ask(question, run=self.run, **params).to_pylist()

    def experiment(self) -> dict[str, Any]:
        """The experiment as it was started, without where it was kept."""
        return json.loads(self.ask("page_run")[0]["experiment"] or "{}")

    def scores(self) -> Scores | None:
        """pass@k of the first evaluation set; None without an evaluation."""
        try:
            return evaluation.pass_at_k(self.store, self.run)
        except ValueError:
            return None


def summary(c: Chapter, scores: Scores | None, found: Sequence[Finding]) -> list[Block]:
    """The run in sentences."""
    out: list[Block | None] = [words.made(c.data), *words.learned(c.data, scores), words.spent(c.data, c.ask("wasted"))]
    out += [words.difficulty(c.data, c.ask("prompts_by_difficulty")), words.signs(c.run, c.ask("sign_excess"))]
    out += [words.batch(c.data), words.findings(found, len(RULES))]
    return [b for b in out if b is not None]


def settings(c: Chapter) -> list[Block]:
    """The experiment, key by key, and who decides at which verb."""
    e = c.experiment()
    plain = {k: v for k, v in e.items() if k not in (*PRIVATE, "pipeline") and v not in ({}, "")}
    rows = [{"key": k, "value": v if isinstance(v, str) else json.dumps(v)} for k, v in plain.items()]
    rows.append({"key": "pipeline", "value": c.data.facts.pipeline})
    out: list[Block] = [
        Table(
            f"settings{c.name}",
            (Column("key", "setting"), Column("value", "value", "code")),
            rows,
            "The experiment.",
            [asked("page_run", run=c.run)],
        )
    ]
    who = [{"verb": verb, "methods": ", ".join(names)} for verb, names in c.data.facts.who.items()]
    if who:
        columns = (Column("verb", "at"), Column("methods", "acts"))
        out.append(
            Table(f"verbs{c.name}", columns, who, "Who acts at each stage of a step.", [asked("page_run", run=c.run)])
        )
    return out


def pipeline_of(experiment: Mapping[str, Any]) -> Pipeline | None:
    """The pipeline of a recorded experiment; None where a method is no longer known or was a plugin."""
    try:
        return Pipeline.parse(experiment["pipeline"])
    except (KeyError, ValueError, TypeError):
        return None


def cards(methods: Sequence[Method]) -> list[Block]:
    """Every method of a pipeline with its source and its deviations."""
    sources = {"C*": "checked against the authors' functions", "code": "the authors' code was read", "paper": "from the paper",
               "notes": "from notes on the paper", "ours": "ours"}  # fmt: skip
    out: list[Block] = []
    for m in methods:
        card = m.card
        own = ", ".join(f"{k} = {v!r}" for k, v in m.settings.items()) or "defaults"
        facts = [
            ("acts at", ", ".join(m.verbs)),
            ("settings", own),
            ("formulas", sources.get(card.source, card.source)),
        ]
        facts += [("code", card.code)] if card.code else []
        facts += [("watch", card.watch)] if card.watch else []
        facts += [("may leave unspent", card.unspent)] if card.unspent else []
        link = f"https://arxiv.org/abs/{card.arxiv}" if card.arxiv else ""
        out.append(Card(m.name, card.title, link, facts, card.deviations))
    return out


def learning(c: Chapter, scores: Scores | None) -> list[Block]:
    """Curves, pass@k, majority@k, families and further sets."""
    out: list[Block] = [curves.learning(c.data, c.name)]
    if scores is None:
        return out
    if scores.ks[-1] > 1:
        out.append(curves.samples(scores, evaluation.majority_at_k(c.store, c.run, ks=scores.ks[-1:]), c.name))
    columns = (Column("step", "step", "n"), Column("k", "k", "n"), Column("pass", "pass@k", "f3"), Column("low", "low", "f3"),
               Column("high", "high", "f3"), Column("prompts", "prompts", "n"))  # fmt: skip
    ends = {scores.steps[0], scores.steps[-1]}
    rows = [r for r in scores.table() if r["step"] in ends]
    out.append(Table(f"pass-at-k-table{c.name}", columns, rows, "pass@k at the first and the last evaluation, with 95 % intervals over prompts.",
                     [asked("eval_tries", run=c.run)]))  # fmt: skip
    if len(scores.names("stratum")) > 1:
        out += [curves.families(scores, c.name), family_table(scores, c.name)]
    return out + _sets(c)


def family_table(scores: Scores, name: str) -> Table:
    """Where each family began and ended."""
    rows = []
    for n in scores.names("stratum"):
        gain = scores.gain(1, "stratum", n)
        first, last = (scores.at(s, 1, "stratum", n).mean for s in (scores.steps[0], scores.steps[-1]))
        rows.append(
            {
                "family": n,
                "prompts": gain.n,
                "first": first,
                "last": last,
                "gain": gain.mean,
                "low": gain.low,
                "high": gain.high,
            }
        )
    columns = (Column("family", "family"), Column("prompts", "prompts", "n"), Column("first", "first", "f3"), Column("last", "last", "f3"),
               Column("gain", "gain", "signed"), Column("low", "low", "signed"), Column("high", "high", "signed"))  # fmt: skip
    rows.sort(key=lambda r: -r["gain"] if r["gain"] == r["gain"] else 9)
    return Table(f"families-table{name}", columns, rows, "Evaluation by family: pass@1 at the first and the last evaluation, gains paired by prompt.",
                 [asked("eval_tries", run=scores.run)])  # fmt: skip


def _sets(c: Chapter) -> list[Block]:
    """The further evaluation sets, where there are some."""
    sets = [r for r in c.ask("eval_sets") if r["set"]]
    rows = []
    for r in sets:
        scores = evaluation.pass_at_k(c.store, c.run, ks=[1], set=r["set"])
        gain, last = scores.gain(1), scores.at(scores.steps[-1], 1)
        rows.append({"set": r["set"], "prompts": r["prompts"], "first": scores.at(scores.steps[0], 1).mean, "last": last.mean,
                     "gain": gain.mean, "low": gain.low, "high": gain.high})  # fmt: skip
    if not rows:
        return []
    columns = (Column("set", "set"), Column("prompts", "prompts", "n"), Column("first", "first", "f3"), Column("last", "last", "f3"),
               Column("gain", "gain", "signed"), Column("low", "low", "signed"), Column("high", "high", "signed"))  # fmt: skip
    return [
        Table(
            f"sets{c.name}",
            columns,
            rows,
            "Further evaluation sets: pass@1, gains paired by prompt.",
            [asked("eval_sets", run=c.run)],
        )
    ]


def ledger(c: Chapter) -> list[Block]:
    """Where rollouts, tokens and seconds went, and whether it adds up."""
    rows = c.ask("ledger_by_step")
    wrong = sorted({r["step"] for r in rows if not r["balanced"]})
    said = f"All {len({r['step'] for r in rows}):,} steps add up: generated + carried in = trained + dropped + pruned + discarded + carried out + failed, in rollouts and in tokens."
    if wrong:
        said = f"{len(wrong)} steps do not add up, the first is step {wrong[0]}."
    total = {}
    for r in rows:
        mine = total.setdefault(r["purpose"], {"purpose": r["purpose"]})
        for key, value in r.items():
            if key not in ("step", "purpose", "balanced"):
                mine[key] = mine.get(key, 0) + value
    keys = (
        "generated",
        "carried_in",
        "trained",
        "dropped",
        "pruned",
        "discarded",
        "carried_out",
        "failed",
        "generated_tokens",
        "trained_tokens",
    )
    columns = (
        Column("purpose", "purpose"),
        *(Column(k, k.replace("_", " "), "n") for k in keys if any(t[k] for t in total.values())),
    )
    wasted = (
        Column("what", "what"),
        Column("rollouts", "rollouts", "n"),
        Column("tokens", "tokens", "n"),
        Column("share", "share", "%"),
    )
    most = (Column("prompt_id", "prompt", "code"), Column("text", "text"), Column("stratum", "family"), Column("wasted_tokens", "tokens that taught nothing", "n"),
            Column("share", "of its tokens", "%"), Column("rollouts", "rollouts", "n"))  # fmt: skip
    out: list[Block] = [
        curves.budget(c.data, c.name), Prose(said, [asked("ledger_by_step", run=c.run)]),
        Table(f"ledger{c.name}", columns, list(total.values()), "The ledger of the whole run.", [asked("ledger_by_step", run=c.run)]),
        Table(f"wasted{c.name}", wasted, c.ask("wasted"), "What the training tokens taught.", [asked("wasted", run=c.run)]),
        Table(f"most-wasted{c.name}", most, c.ask("most_wasted", limit=10), "The prompts on which the most was spent that taught nothing.",
              [asked("most_wasted", run=c.run, limit=10)]),
    ]  # fmt: skip
    return out + _savings(c) + [curves.seconds(c.data, c.name)]


def _savings(c: Chapter) -> list[Block]:
    """What shared prefixes and cutting saved, where there was any."""
    rows = c.ask("savings_by_step")
    made, flat, kept = (sum(r[k] for r in rows) for k in ("generated", "flat_equivalent", "kept"))
    if not rows or (flat <= kept and not sum(r["n_lost"] for r in rows)):
        return []
    return [Prose(
        f"Rollouts shared {flat / max(kept, 1):.2f} times their tokens: {made:,} were generated where {flat:,} would have made the kept ones one by "
        f"one; {sum(r['pruned'] + r['discarded'] for r in rows):,} tokens were cut or discarded.", [asked("savings_by_step", run=c.run)],
    )]  # fmt: skip


def difficulty(c: Chapter) -> list[Block]:
    """How hard the prompts were, what was believed, and how far that was right."""
    rows = c.ask("prompts_by_difficulty")
    method = c.data.believed
    seen = dict.fromkeys((method, OBSERVED))
    out: list[Block | None] = [curves.difficulty(c.data, belief, c.name) for belief in seen]
    out.append(curves.histogram(rows, c.run, c.name))
    if method in c.data.methods:
        out.append(curves.calibration(c.ask("calibration", method=method), c.run, method, c.name))
    columns = (Column("prompt_id", "prompt", "code"), Column("text", "text"), Column("stratum", "family"), Column("answer", "answer"), Column("tried", "tried", "n"),
               Column("best_reward", "best reward", "f3"))  # fmt: skip
    stuck = c.ask("stuck", limit=10)
    if stuck:
        out.append(
            Table(f"stuck{c.name}", columns, stuck, "Tried most, never solved.", [asked("stuck", run=c.run, limit=10)])
        )
    varied = (Column("prompt_id", "prompt", "code"), Column("text", "text"), Column("stratum", "family"), Column("reward_variance", "reward variance", "f3"),
              Column("pass_rate", "pass rate", "%"), Column("rollouts", "rollouts", "n"))  # fmt: skip
    out.append(Table(f"varied{c.name}", varied, c.ask("most_varied", limit=10), "Where rewards within a group differ most.",
                     [asked("most_varied", run=c.run, limit=10)]))  # fmt: skip
    return [b for b in out if b is not None]


def signs(c: Chapter) -> list[Block]:
    """Which way advantages point, by two references that are never mixed."""
    near = c.ask("sign_excess")
    out: list[Block] = []
    said = words.signs(c.run, near)
    out += [said, curves.signs(near, c.run, c.name)] if said is not None else []
    pools = [r for r in c.ask("sign_flips") if r["reference_kind"] == "pool"]
    by: dict[str, dict[str, Any]] = {}
    for r in pools:
        mine = by.setdefault(
            r["estimator"],
            {
                "estimator": r["estimator"],
                **dict.fromkeys(("rollouts", "ok", "hard", "vanish", "spurious", "ambiguous"), 0),
            },
        )
        for k in ("rollouts", "ok", "hard", "vanish", "spurious", "ambiguous"):
            mine[k] += r[k]
    if by:
        columns = (
            Column("estimator", "estimator"),
            *(Column(k, k, "n") for k in ("rollouts", "ok", "hard", "vanish", "spurious", "ambiguous")),
        )
        out.append(Table(f"signs-pool{c.name}", columns, list(by.values()), "Signs against pools of 64 rollouts and more of the same prompt and policy version.",
                         [asked("sign_flips", run=c.run)]))  # fmt: skip
    else:
        out.append(Prose("No prompt had a pool of 64 rollouts of one policy version, so there are no exact labels; a probe_set in the pipeline records some.",
                         [asked("sign_flips", run=c.run)], note=True))  # fmt: skip
    return out


def trees(c: Chapter, most: int = 3) -> list[Block]:
    """Chosen groups as trees: those asked for, else of the last step the ones that forked or whose rewards differ."""
    if not c.data.step:
        return []
    if c.groups:
        chosen = [_group(c, step, group) for step, group in c.groups]
    else:
        every = groups_of(c.data, c.data.step)
        chosen = [g for g in every if g.forks or g.spread > 1e-9][:most] or list(every[:1])
    out: list[Block] = []
    for g in chosen:
        t = grown(c.data, g)
        values = [b.value for b in t.branches if b.value is not None and b.value == b.value]
        low, high = min([0.0, *values]), max([1.0, *values])
        where = {"step": g.step, "group": g.group, "rank": g.rank}
        saved = f"; {t.cost.generated:,} tokens made, {t.cost.flat:,} if one by one" if t.forks else ""
        caption = f"Step {g.step}, group {g.group} ({g.stratum}): {g.solved} of {g.rollouts} solved{saved}."
        out.append(Code(g.text))
        name = f"tree-{g.step}-{g.group}{c.name}"
        out.append(
            Figure(
                name,
                tree.picture(t, low, high),
                caption,
                [asked("page_groups", run=c.run, step=g.step), asked("page_tree", run=c.run, **where)],
            )
        )
    return out


def _group(c: Chapter, step: int, group: int) -> GroupFacts:
    if not 1 <= step <= c.data.step:
        raise ValueError(f"{c.run} has steps 1 to {c.data.step}, not {step}")
    for g in groups_of(c.data, step):
        if g.group == group:
            return g
    raise ValueError(
        f"step {step} of {c.run} has no group {group}; there are {', '.join(str(g.group) for g in groups_of(c.data, step))}"
    )


def diagnosis(found: Sequence[Finding], name: str) -> list[Block]:
    """What the rules found, with evidence and a way out."""
    if not found:
        return [Prose(f"Nothing found by {len(RULES)} rules: {', '.join(r.replace('_', ' ') for r in RULES)}.")]
    rows = [{"rule": f.rule.replace("_", " "), "what": f.what, "out": f.way_out} for f in found]
    columns = (Column("rule", "rule"), Column("what", "found"), Column("out", "try"))
    silent = [r.replace("_", " ") for r in RULES if r not in {f.rule for f in found}]
    return [
        Table(f"diagnosis{name}", columns, rows, "What the rules of `workbench diagnose` found."),
        Prose(f"Silent: {', '.join(silent)}.", note=True),
    ]


def environment(c: Chapter) -> list[Block]:
    """World, machine and versions, without the names of machines and folders."""
    world = json.loads(c.ask("page_run")[0]["world"] or "{}")
    rows = [
        {"key": k, "value": v if isinstance(v, str) else json.dumps(v)}
        for k, v in world.items()
        if k not in PRIVATE and v not in (None, "")
    ]
    for a in c.ask("attempts_of_run"):
        machine = json.loads(a["machine"] or "{}")
        label = f"attempt {a['attempt']}, from step {a['from_step']}"
        said = [f"workbench {a['code_version']}"] + [
            f"{k} {v}" for k, v in machine.items() if k not in (*PRIVATE, "packages")
        ]
        said += [f"{k} {v}" for k, v in machine.get("packages", {}).items()]
        rows.append({"key": label, "value": ", ".join(said)})
    columns = (Column("key", "what"), Column("value", "value", "code"))
    return [
        Table(
            f"environment{c.name}",
            columns,
            rows,
            "World and machine.",
            [asked("page_run", run=c.run), asked("attempts_of_run", run=c.run)],
        )
    ]


def chapters(c: Chapter, methods: bool = True) -> list[Section]:
    """Everything about one run, in order."""
    scores, found = c.scores(), diagnose(c.store, c.run)
    pipeline = pipeline_of(c.experiment())
    parts: list[tuple[str, str, Callable[[], list[Block]]]] = [
        ("Summary", "summary", lambda: summary(c, scores, found)),
        ("Settings", "settings", lambda: settings(c)),
        ("Pipeline", "pipeline", lambda: cards(pipeline.methods) if pipeline is not None and methods else []),
        ("Learning", "learning", lambda: learning(c, scores)),
        ("Ledger", "ledger", lambda: ledger(c)),
        ("Difficulty", "difficulty", lambda: difficulty(c)),
        ("Signs of advantages", "signs", lambda: signs(c)),
        ("Groups as trees", "trees", lambda: trees(c)),
        ("Diagnosis", "diagnosis", lambda: diagnosis(found, c.name)),
        ("Environment", "environment", lambda: environment(c)),
    ]
    made = [Section(title, make(), c.level, f"{name}{c.name}") for title, name, make in parts]
    return [s for s in made if s.blocks]
