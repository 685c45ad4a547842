"""The chapters of a report about one run, each made from named questions to the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from workbench.analysis import evaluation
from workbench.analysis.diagnose import RULES, Finding, diagnose
from workbench.analysis.evaluation import Scores
from workbench.pipeline import Pipeline
from workbench.report import curves, tree, words
from workbench.report.document import Block, Card, Code, Column, Figure, Prose, Section, Table, columns, query
from workbench.stages import Method
from workbench.store import Store
from workbench.views.data.groups import GroupFacts, groups_of
from workbench.views.data.run import RunData
from workbench.views.data.selection import OBSERVED
from workbench.views.data.sql_text import Query
from workbench.views.data.tree import tree as tree_of

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

    @property
    def run(self) -> str:
        """Its id."""
        return self.data.run

    def ask(self, question: str, **params: Any) -> list[dict[str, Any]]:
        """The rows of a named question about this run."""
        return self.data.ask(question, **params).to_pylist()

    def query(self, question: str, **params: object) -> Query:
        """The same question as the source of a block."""
        return query(question, run=self.run, **params)

    def table(
        self, name: str, heads: Sequence[Column], rows: Sequence[Mapping[str, object]], caption: str, *sources: Query
    ) -> Table:
        """A table of this chapter."""
        return Table(f"{name}{self.name}", heads, rows, caption, sources)

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
    plain = {k: v for k, v in c.experiment().items() if k not in (*PRIVATE, "pipeline") and v not in ({}, "")}
    rows = [{"key": k, "value": v if isinstance(v, str) else json.dumps(v)} for k, v in plain.items()]
    rows.append({"key": "pipeline", "value": c.data.facts.pipeline})
    source = c.query("page_run")
    out: list[Block] = [c.table("settings", columns(key="setting", value=":code"), rows, "The experiment.", source)]
    who = [{"verb": verb, "methods": ", ".join(names)} for verb, names in c.data.facts.who.items()]
    if who:
        caption = "Who acts at each stage of a step."
        out.append(c.table("verbs", columns(verb="at", methods="acts"), who, caption, source))
    return out


def pipeline_of(experiment: Mapping[str, Any]) -> Pipeline | None:
    """The pipeline of a recorded experiment; None where it has none, or where it cannot be read."""
    try:
        return Pipeline.recorded(experiment)
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
    heads = columns(step=":n", k=":n", **{"pass": "pass@k:f3"}, low=":f3", high=":f3", prompts=":n")
    ends = {scores.steps[0], scores.steps[-1]}
    rows = [r for r in scores.table() if r["step"] in ends]
    caption = "pass@k at the first and the last evaluation, with 95 % intervals over prompts."
    out.append(c.table("pass-at-k-table", heads, rows, caption, c.query("eval_tries")))
    if len(scores.names("stratum")) > 1:
        out += [curves.families(scores, c.name), family_table(c, scores)]
    return out + _sets(c)


GAINS = columns(prompts=":n", first=":f3", last=":f3", gain=":signed", low=":signed", high=":signed")


def _gain(scores: Scores, by: Literal["", "stratum"] = "", name: str = "") -> dict[str, Any]:
    """A row of GAINS: pass@1 at the first and the last evaluation, and what was gained, paired by prompt."""
    gain = scores.gain(1, by, name)
    first, last = (scores.at(step, 1, by, name).mean for step in (scores.steps[0], scores.steps[-1]))
    return {"prompts": gain.n, "first": first, "last": last, "gain": gain.mean, "low": gain.low, "high": gain.high}


def family_table(c: Chapter, scores: Scores) -> Table:
    """Where each family began and ended."""
    rows: list[dict[str, Any]] = [{"family": name} | _gain(scores, "stratum", name) for name in scores.names("stratum")]
    rows.sort(key=lambda r: -r["gain"] if r["gain"] == r["gain"] else 9)
    caption = "Evaluation by family: pass@1 at the first and the last evaluation, gains paired by prompt."
    return c.table("families-table", (*columns(family=""), *GAINS), rows, caption, c.query("eval_tries"))


def _sets(c: Chapter) -> list[Block]:
    """The further evaluation sets, where there are some."""
    rows = []
    for r in c.ask("eval_sets"):
        if r["set"]:
            scores = evaluation.pass_at_k(c.store, c.run, ks=[1], set=r["set"])
            rows.append({"set": r["set"]} | _gain(scores) | {"prompts": r["prompts"]})
    caption = "Further evaluation sets: pass@1, gains paired by prompt."
    return [c.table("sets", (*columns(set=""), *GAINS), rows, caption, c.query("eval_sets"))] if rows else []


def ledger(c: Chapter) -> list[Block]:
    """Where rollouts, tokens and seconds went, and whether it adds up."""
    rows, source = c.ask("ledger_by_step"), c.query("ledger_by_step")
    wrong = sorted({r["step"] for r in rows if not r["balanced"]})
    balance = f"All {len({r['step'] for r in rows}):,} steps add up: generated + carried in = trained + dropped + pruned + discarded + carried out + failed, in rollouts and in tokens."
    if wrong:
        balance = f"{len(wrong)} steps do not add up, the first is step {wrong[0]}."
    total: dict[str, dict[str, Any]] = {}
    for r in rows:
        mine = total.setdefault(r["purpose"], {"purpose": r["purpose"]})
        for key, value in r.items():
            if key not in ("step", "purpose", "balanced"):
                mine[key] = mine.get(key, 0) + value
    fates = "generated carried_in trained dropped pruned discarded carried_out failed generated_tokens trained_tokens"
    heads = columns(purpose="", **{k: ":n" for k in fates.split() if any(t[k] for t in total.values())})
    wasted = columns(what="", rollouts=":n", tokens=":n", share=":%")
    most = PROMPT + columns(wasted_tokens="tokens that taught nothing:n", share="of its tokens:%", rollouts=":n")
    worst = "The prompts on which the most was spent that taught nothing."
    return [
        curves.budget(c.data, c.name),
        Prose(balance, [source]),
        c.table("ledger", heads, list(total.values()), "The ledger of the whole run.", source),
        c.table("wasted", wasted, c.ask("wasted"), "What the training tokens taught.", c.query("wasted")),
        c.table("most-wasted", most, c.ask("most_wasted", limit=10), worst, c.query("most_wasted", limit=10)),
        *_savings(c),
        curves.seconds(c.data, c.name),
    ]


PROMPT = columns(prompt_id="prompt:code", text="", stratum="family")


def _savings(c: Chapter) -> list[Block]:
    """What shared prefixes and cutting saved, where there was any."""
    rows = c.ask("savings_by_step")
    made, flat, kept = (sum(r[k] for r in rows) for k in ("generated", "flat_equivalent", "kept"))
    if not rows or (flat <= kept and not sum(r["n_lost"] for r in rows)):
        return []
    return [Prose(
        f"Rollouts shared {flat / max(kept, 1):.2f} times their tokens: {made:,} were generated where {flat:,} would have made the kept ones one by "
        f"one; {sum(r['pruned'] + r['discarded'] for r in rows):,} tokens were cut or discarded.", [c.query("savings_by_step")],
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
    stuck = c.ask("stuck", limit=10)
    if stuck:
        heads = PROMPT + columns(answer="", tried=":n", best_reward=":f3")
        out.append(c.table("stuck", heads, stuck, "Tried most, never solved.", c.query("stuck", limit=10)))
    varied, caption = c.ask("most_varied", limit=10), "Where rewards within a group differ most."
    heads = PROMPT + columns(reward_variance=":f3", pass_rate=":%", rollouts=":n")
    out.append(c.table("varied", heads, varied, caption, c.query("most_varied", limit=10)))
    return [b for b in out if b is not None]


def signs(c: Chapter) -> list[Block]:
    """Which way advantages point, by two references that are never mixed."""
    near, source = c.ask("sign_excess"), c.query("sign_flips")
    summary = words.signs(c.run, near)
    out: list[Block] = [summary, curves.signs(near, c.run, c.name)] if summary is not None else []
    labels = ("rollouts", "ok", "hard", "vanish", "spurious", "ambiguous")
    by: dict[str, dict[str, Any]] = {}
    for r in c.ask("sign_flips"):
        if r["reference_kind"] == "pool":
            mine = by.setdefault(r["estimator"], {"estimator": r["estimator"], **dict.fromkeys(labels, 0)})
            for k in labels:
                mine[k] += r[k]
    if by:
        caption = "Signs against pools of 64 rollouts and more of the same prompt and policy version."
        heads = columns(estimator="", **dict.fromkeys(labels, ":n"))
        out.append(c.table("signs-pool", heads, list(by.values()), caption, source))
    else:
        text = "No prompt had a pool of 64 rollouts of one policy version, so there are no exact labels; a probe_set in the pipeline records some."
        out.append(Prose(text, [source], note=True))
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
        t = tree_of(c.data, g)
        values = [b.value for b in t.branches if b.value is not None and b.value == b.value]
        low, high = min([0.0, *values]), max([1.0, *values])
        sources = [c.query("page_groups", step=g.step), c.query("page_tree", step=g.step, group=g.group, rank=g.rank)]
        saved = f"; {t.cost.generated:,} tokens made, {t.cost.flat:,} if one by one" if t.forks else ""
        caption = f"Step {g.step}, group {g.group} ({g.stratum}): {g.solved} of {g.rollouts} solved{saved}."
        picture = tree.picture(t, low, high)
        out += [Code(g.text), Figure(f"tree-{g.step}-{g.group}{c.name}", picture, caption, sources)]
    return out


def _group(c: Chapter, step: int, group: int) -> GroupFacts:
    if not 1 <= step <= c.data.step:
        raise ValueError(f"{c.run} has steps 1 to {c.data.step}, not {step}")
    for g in groups_of(c.data, step):
        if g.group == group:
            return g
    there = ", ".join(str(g.group) for g in groups_of(c.data, step))
    raise ValueError(f"step {step} of {c.run} has no group {group}; there are {there}")


def diagnosis(found: Sequence[Finding], name: str) -> list[Block]:
    """What the rules found, with evidence and a way out."""
    if not found:
        return [Prose(f"Nothing found by {len(RULES)} rules: {', '.join(r.replace('_', ' ') for r in RULES)}.")]
    rows = [{"rule": f.rule.replace("_", " "), "what": f.what, "out": f.way_out} for f in found]
    heads = columns(rule="", what="found", out="try")
    silent = [r.replace("_", " ") for r in RULES if r not in {f.rule for f in found}]
    return [
        Table(f"diagnosis{name}", heads, rows, "What the rules of `workbench diagnose` found."),
        Prose(f"Silent: {', '.join(silent)}.", note=True),
    ]


def environment(c: Chapter) -> list[Block]:
    """World, machine and versions, without the names of machines and folders."""
    world = json.loads(c.ask("page_run")[0]["world"] or "{}")
    known = {k: v for k, v in world.items() if k not in PRIVATE and v not in (None, "")}
    rows = [{"key": k, "value": v if isinstance(v, str) else json.dumps(v)} for k, v in known.items()]
    for a in c.ask("attempts_of_run"):
        machine = json.loads(a["machine"] or "{}")
        label = f"attempt {a['attempt']}, from step {a['from_step']}"
        parts = [f"workbench {a['code_version']}"]
        parts += [f"{k} {v}" for k, v in machine.items() if k not in (*PRIVATE, "packages")]
        parts += [f"{k} {v}" for k, v in machine.get("packages", {}).items()]
        rows.append({"key": label, "value": ", ".join(parts)})
    sources = (c.query("page_run"), c.query("attempts_of_run"))
    return [c.table("environment", columns(key="what", value=":code"), rows, "World and machine.", *sources)]


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
