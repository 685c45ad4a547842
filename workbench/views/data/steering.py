"""Commands to a run and what became of each: for the steering bar, the live page and the marks on the time axis.

A request is "asked" while it lies in the inbox, "taken" once the training process has recorded it for a step, "applied"
once that step is recorded too, or "refused" with a reason. Plain records out, no widgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from workbench.runs.steering.inbox import Inbox
from workbench.runs.steering.requests import CONTROLS, Request, undone
from workbench.views.data.records import parsed
from workbench.views.data.run import RunData, pipeline_line
from workbench.views.data.text import one_line

UNDOABLE = ("set", "pin", "drop", "boost", "free", "swap")


class Command(NamedTuple):
    """One request or command. step: from which it acts (0 = not taken yet); state: asked, taken, applied, refused; why:
    the reason of a refusal, or what takes long about one that waits."""

    id: str
    step: int
    kind: str
    who: str
    what: str
    state: str
    why: str = ""
    undoable: bool = False

    @property
    def line(self) -> str:
        """What became of it, in words."""
        if self.kind in CONTROLS and self.state in ("applied", "taken"):
            return f"{'from' if self.kind == 'step' else 'after'} step {self.step:,}"
        if self.state == "applied":
            return f"applied at step {self.step:,}"
        if self.state == "taken":
            return f"acts at step {self.step:,}, not made yet"
        if self.state == "refused":
            return f"refused: {self.why}"
        return f"asked; {self.why} …" if self.why else "asked, waits for the step in hand"


class Now(NamedTuple):
    """What is in force for the next step; None where the world has no such setting."""

    prompts: int = 0
    rollouts: int = 0
    temperature: float | None = None
    lr: float | None = None
    pipeline: str = ""
    pinned: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    boosted: Mapping[str, float] = {}

    @property
    def group_size(self) -> float:
        """Rollouts a prompt."""
        return self.rollouts / max(self.prompts, 1)


class Steering:
    """The commands of one run, read again when the record moved; the inbox is looked at each time."""

    def __init__(self) -> None:
        self._version = -1
        self._inbox: Inbox | None = None
        self._recorded: list[Command] = []
        self.now = Now()
        self.commands: list[Command] = []

    def refresh(self, data: RunData) -> list[Command]:
        """All that was asked, the newest first."""
        with data.source.lock:
            if self._inbox is None:
                self._inbox = Inbox(data.source.url, data.run)
            if self._version != data.source.version:
                rows = data.ask("commands").to_pylist()
                self._recorded = record(rows, data.step)
                self.now = _in_force(data, rows)
                self._version = data.source.version
            known = {t.id: t.what for t in self._recorded}
            waiting = [r for r in self._inbox.waiting() if r.id not in known]
            words = known | {r.id: sentence(r.kind, r.payload) for r in waiting}
            id, working = self._inbox.working_status() if waiting else ("", "")
            asked = [waits(r, words, working if r.id == id else "") for r in reversed(waiting)]
            self.commands = [*asked, *self._recorded]
            return self.commands


def steering(data: RunData) -> Steering:
    """The commands of a run, shared by its viewers and up to date."""
    with data.source.lock:
        found = data.kept.setdefault(Steering, Steering())
    found.refresh(data)
    return found


def waits(request: Request, words: Mapping[str, str] = {}, working: str = "") -> Command:
    """A request of the inbox. words: what is known by its id, for what an undo takes back; working: what is being done."""
    what = sentence(request.kind, request.payload, words)
    return Command(request.id, 0, request.kind, request.who, what, "asked", working)


def record(rows: Sequence[Mapping[str, Any]], step: int) -> list[Command]:
    """The recorded commands (rows of the question `commands`, the oldest first), the newest first, as they stand when
    `step` is the last one recorded. Those that were undone, and those that undo, cannot be undone."""
    commands: list[Command] = []
    words: dict[str, str] = {}
    undoes: dict[str, str] = {}
    for row in rows:
        commands.append(new := recorded(row, step, words))
        words[new.id], undoes[new.id] = new.what, str(parsed(row["payload"]).get("undoes") or "")
    settled = undone(undoes) | {id for id, other in undoes.items() if other}
    return [t._replace(undoable=t.undoable and t.id not in settled) for t in reversed(commands)]


def recorded(row: Mapping[str, Any], step: int, words: Mapping[str, str] = {}) -> Command:
    """A row of the commands, its payload as JSON or read, as it stands when `step` is the last one recorded."""
    payload = parsed(row["payload"])
    kind, why = row["kind"], ""
    if kind == "refused":
        kind, why = str(payload.get("kind")), str(payload.get("why"))
        what, state = sentence(kind, payload.get("payload") or {}, words), "refused"
    else:
        what, state = sentence(kind, payload), "applied" if row["step"] <= step or kind == "stop" else "taken"
    undoable = not why and kind in UNDOABLE and bool(payload.get("id"))
    return Command(str(payload.get("id") or ""), row["step"], kind, row.get("who") or "", what, state, why, undoable)


def sentence(kind: str, payload: Mapping[str, Any], words: Mapping[str, str] = {}) -> str:
    """What a request or a command is about, in one line; what came from outside is as long as it is. A command that
    undoes another one says what is in force again; words: what an undo that was only asked for would take back, by its id.

    A payload unlike those of its kind, as only a refused request has one, is shown as it came, cut short."""
    try:
        return f"undone: {_sentence(kind, payload)}" if payload.get("undoes") else _sentence(kind, payload, words)
    except Exception:
        return one_line(f"{kind} {payload}", 200)


def _sentence(kind: str, payload: Mapping[str, Any], words: Mapping[str, str] = {}) -> str:
    to, before = payload.get("to"), payload.get("before")
    if kind == "set":
        values = to if isinstance(to, Mapping) else payload
        old = before if isinstance(before, Mapping) else {}
        parts = [
            f"{_name(k)} {_figure(old[k])} → {_figure(v)}" if k in old else f"{_name(k)} {_figure(v)}"
            for k, v in values.items()
            if k not in old or old[k] != v
        ]
        return ", ".join(parts) or "no change"
    if kind in ("pin", "drop", "boost", "free"):
        state = to if isinstance(to, Mapping) else {}
        if payload.get("undoes"):
            return f"prompt {payload['prompt']}: {_wished(state)}"
        factor = state.get("factor", payload.get("factor"))
        lasting = {"pin": "in every step", "drop": "out of the pool", "free": "as any other"}
        how = lasting.get(kind) or f"{_figure(factor)} × its rollouts"
        return f"prompt {payload.get('prompt')}: {how}"
    if kind == "swap":
        return (
            f"{pipeline_line(payload['from'])} → {pipeline_line(to)}"
            if to and "from" in payload
            else f"pipeline {pipeline_line(payload.get('pipeline'))}"
        )
    if kind in ("add", "remove"):
        return f"{kind} {payload.get('method')}"
    if kind == "step":
        return f"{payload.get('n', 1)} single step{'s' if payload.get('n', 1) != 1 else ''}"
    if kind == "undo":
        wanted = str(payload.get("id") or "")
        return f"undo {words.get(wanted, wanted)}" if wanted else "undo the last command that lasts"
    if kind == "resume" and payload.get("changed"):
        return f"resumed with another {', another '.join(payload['changed'])}"
    return {"resume": "go on", "checkpoint": "save the weights"}.get(kind, kind)


def _wished(state: Mapping[str, Any]) -> str:
    """A prompt's state in words: in every step, out of the pool, 2.5 × its rollouts, or as any other."""
    words = [
        word for word, on in (("in every step", state["pinned"]), ("out of the pool", not state["available"])) if on
    ]
    words += [f"{_figure(state['factor'])} × its rollouts"] if state["factor"] != 1 else []
    return ", ".join(words) or "as any other"


def _name(key: str) -> str:
    return {"lr": "learning rate", "group_size": "rollouts of each", "prompts": "prompts a step"}.get(key, key)


def _figure(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _in_force(data: RunData, rows: list[dict[str, Any]]) -> Now:
    """The settings with which the run began, moved by its commands."""
    began = data.ask("page_run").to_pylist()[0]
    experiment, world = (parsed(began[c]) for c in ("experiment", "world"))
    budget = experiment.get("budget") or {}
    now = Now(
        budget.get("prompts", 16), budget.get("rollouts", 128),
        world.get("temperature"), world.get("lr"), pipeline_line(experiment.get("pipeline") or []),
    )  # fmt: skip
    prompts: dict[str, Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda r: r["step"]):
        payload = parsed(row["payload"])
        to: Any = payload.get("to")
        if row["kind"] == "set":
            now = now._replace(**{k: v for k, v in to.items() if k in Now._fields})
        elif row["kind"] == "swap":
            now = now._replace(pipeline=pipeline_line(to))
        elif row["kind"] in UNDOABLE:
            prompts[payload["prompt"]] = to
    return now._replace(
        pinned=tuple(p for p, to in prompts.items() if to["pinned"]),
        dropped=tuple(p for p, to in prompts.items() if not to["available"]),
        boosted={p: to["factor"] for p, to in prompts.items() if to["factor"] != 1},
    )
