"""What requests do to a run: taken between steps, checked, applied, recorded; and rebuilt from the record on resuming.

A request is refused with a sentence, and nothing changes then; a change of the plan is rehearsed first (`pipeline.
rehearse`), so that a method that cannot serve it says so now and not in the middle of a step.

A pinned, boosted or dropped prompt could have been a method put in by a swap. But at select one method decides: it would
have replaced the very selector that it steers, and amending the plan afterwards leaves the displaced prompts counted as
chosen. So the wishes go to the loop (`pipeline.Wishes`): pinned prompts stand in the draft before anybody selects, boosts
weigh what was allocated, dropped prompts are no candidates, and no method needs to know.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.pipeline import Pipeline, Wishes, rehearse
from workbench.steering import KINDS, Inbox, Request
from workbench.store.errors import StoreError
from workbench.types import Budget

if TYPE_CHECKING:
    from workbench.experiment import Run
    from workbench.store import Store

BUDGET = ("prompts", "rollouts")
DIALS = {"temperature": (0.01, 10.0), "lr": (0.0, 1.0)}
"""Settings of a world, and between what they must lie."""

PROMPTS = ("pin", "drop", "boost", "free")
LASTING = ("set", *PROMPTS, "swap")
"""Kinds, as recorded, whose effect outlasts the step: a resumed run has them again."""


class Change(NamedTuple):
    """What a valid request will do: how it is recorded, from which step it acts, and the act itself."""

    kind: str
    payload: dict[str, Any]
    step: int
    act: Callable[[], None]


class Helm:
    """The requests to one run: those of this process, and those of its inbox. Ask from any thread.

    paused, stopping: what `ready` obeys; refused: why the last request was not, "" when it was. It is made before the run, so that one can ask while the model loads."""

    def __init__(self) -> None:
        self.paused = self.stopping = False
        self.singles = 0
        self.refused = ""
        self.known: dict[str, tuple[str, dict[str, Any]]] = {}
        self._asked: deque[Request] = deque()
        self._later: list[tuple[int, str, dict[str, Any]]] = []
        self._inbox: Inbox | None = None

    def ask(self, request: Request) -> None:
        """Hand over a request of this process."""
        self._asked.append(request)

    def open(self, store_url: str, run: str) -> None:
        """Look into the inbox of a run from now on."""
        self._inbox = Inbox(store_url, run)

    def ready(
        self, run: Run, stop: Callable[[], bool] = lambda: False, told: Callable[[], None] = lambda: None
    ) -> bool:
        """Take what was asked, and wait while the run is paused (told is called then, again and again); False where it
        shall end."""
        while True:
            self.take(run)
            if self.stopping or stop():
                return False
            if not self.paused:
                return True
            if self.singles:
                self.singles -= 1
                return True
            told()
            time.sleep(0.05)

    def take(self, run: Run) -> None:
        """Apply or refuse, in order: what the record says of the coming step (after a resume), then what is asked."""
        while self._later and self._later[0][0] <= run.n_steps + 1:
            _, kind, payload = self._later.pop(0)
            restore(run, kind, payload)
        while self._asked:
            self._obey(run, self._asked.popleft())
        files = self._inbox.files() if self._inbox else []
        for path in files:
            self._obey_file(run, path)
        if files:
            run.writer.flush()  # before the file goes: a request is in the inbox, or in the record, or in both
            for path in files:
                path.unlink(missing_ok=True)

    def _obey_file(self, run: Run, path: Path) -> None:
        try:
            request = Inbox.read(path)
        except FileNotFoundError:
            return
        except (ValueError, OSError) as error:
            request = Request(path.stem.rpartition("-")[2], "unreadable", {"error": str(error)[:300]})
        if request.id not in self.known:
            self._obey(run, request)

    def _obey(self, run: Run, request: Request) -> None:
        head = {"id": request.id, "asked": request.asked}
        try:
            change = self._checked(run, request)
            change.act()
        except (ValueError, StoreError) as error:  # of the store: a method asks for columns that were not kept
            why = {"kind": request.kind, "payload": request.payload, "why": str(error)}
            run.writer.command("refused", head | why, run.n_steps, request.who)
            self.known[request.id] = ("refused", why)
            self.refused = str(error)
            return
        self.refused = ""
        self.known[request.id] = (change.kind, change.payload)
        run.writer.command(change.kind, head | change.payload, change.step, request.who)

    def _checked(self, run: Run, request: Request) -> Change:
        """The change, or ValueError: what others write into the inbox must never end a run."""
        try:
            return self.change(run, request)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"{request.kind} could not be read: {type(error).__name__}: {error}") from error

    def end(self, run: Run) -> None:
        """The run ends: what still waits is refused, so that who asked knows."""
        left = [*self._asked]
        self._asked.clear()
        files = self._inbox.files() if self._inbox else []
        for path in files:
            with suppress(ValueError, OSError):
                left.append(Inbox.read(path))
        for request in left:
            if request.id not in self.known:
                why = {"kind": request.kind, "payload": request.payload, "why": "the run has ended"}
                run.writer.command(
                    "refused", {"id": request.id, "asked": request.asked} | why, run.n_steps, request.who
                )
        if files:
            run.writer.flush()
        for path in files:
            path.unlink(missing_ok=True)
        if self._inbox:
            with suppress(OSError):  # never made, or somebody asks at this moment
                self._inbox.folder.rmdir()

    def change(self, run: Run, request: Request, rehearsed: bool = True) -> Change:
        """What a request would do. Raises ValueError, which says what to do, where it cannot be done.

        rehearsed=False checks the request alone, as from another thread than the one that trains."""
        kind, payload = request.kind, request.payload
        if kind not in KINDS:
            raise ValueError(f"a run cannot be asked to {kind!r}; it can be asked to {', '.join(KINDS)}")
        if kind in ("resume", "pause", "step", "stop"):
            return self._control(run, kind, payload)
        if kind == "undo":
            return self._undo(run, payload, rehearsed)
        if kind == "set":
            return _setting(run, payload, rehearsed)
        if kind in PROMPTS:
            return _prompt(run, kind, payload, rehearsed)
        if kind == "checkpoint":
            return _checkpoint(run)
        return _swap(run, kind, payload)

    def _control(self, run: Run, kind: str, payload: Mapping[str, Any]) -> Change:
        n = _whole(payload, "n", 1) if kind == "step" else 0

        def act() -> None:
            self.stopping |= kind == "stop"
            self.paused = kind in ("pause", "step")
            self.singles = self.singles + n if kind == "step" else 0

        at = run.n_steps + 1 + self.singles if kind == "step" else run.n_steps
        return Change(kind, {"n": n} if n else {}, at, act)

    def _undo(self, run: Run, payload: Mapping[str, Any], rehearsed: bool) -> Change:
        wanted = str(payload.get("id") or self._last_lasting())
        kind, done = self.known.get(wanted, ("", {}))
        if kind not in LASTING:
            what = f"{kind} leaves nothing to take back" if kind else f"no command {wanted!r} was applied in this run"
            what = what if wanted else "nothing was commanded that still lasts"
            raise ValueError(f"cannot undo: {what}; {', '.join(LASTING)} can be undone")
        if kind == "set":
            change = _setting(run, done["before"], rehearsed)
        elif kind == "swap":
            change = _swap(run, "swap", {"pipeline": done["from"]})
        else:
            change = _wished(run, kind, done["prompt"], done["before"], rehearsed)
        return change._replace(payload=change.payload | {"undoes": wanted})

    def _last_lasting(self) -> str:
        """The newest command that can be taken back, was not, and takes nothing back itself; "" for none."""
        undone = {p.get("undoes") for _, p in self.known.values()}
        lasting = [
            i for i, (kind, p) in self.known.items() if kind in LASTING and "undoes" not in p and i not in undone
        ]
        return lasting[-1] if lasting else ""

    def rebuild(self, run: Run, store: Store, name: str, at: int) -> None:
        """Read what was commanded of a run that is resumed after step `at`: applied now up to there, later when its
        step comes. What the experiment given now says otherwise than the one recorded is a newer wish, and wins."""
        rows = store.sql(
            "SELECT step, kind, payload FROM commands WHERE run = ? ORDER BY step, seq", [name]
        ).to_pylist()
        found = store.sql("SELECT experiment FROM runs WHERE run = ?", [name])["experiment"][0].as_py()
        began, given = json.loads(found), run.experiment.to_dict()
        for row in rows:
            kind, payload = row["kind"], json.loads(row["payload"] or "{}")
            self.known[payload.get("id", "")] = (kind, payload)
        swaps = [json.loads(r["payload"])["to"] for r in rows if r["kind"] == "swap"]
        plans = [Pipeline.parse(spec).spec for spec in (began["pipeline"], *swaps[-1:])]
        newer = {name for name in DIALS if given["world"].get(name) != began.get("world", {}).get(name)}
        newer |= set(BUDGET) if Budget(**given["budget"]) != Budget(**began["budget"]) else set()
        if swaps and given["pipeline"] in plans:
            run.pipeline = Pipeline.parse(began["pipeline"])
            run.pipeline.check(run.world)
        for row in rows:
            kind, payload = row["kind"], json.loads(row["payload"] or "{}")
            if kind not in LASTING or (kind == "swap" and given["pipeline"] not in plans):
                continue
            if kind == "set":
                payload["to"] = {k: v for k, v in payload["to"].items() if k not in newer}
            if row["step"] <= at:
                restore(run, kind, payload, folded=False)
            else:
                self._later.append((row["step"], kind, payload))


def restore(run: Run, kind: str, payload: Mapping[str, Any], folded: bool = True) -> None:
    """Do again what a recorded command did. folded=False: the states of methods are folded afterwards."""
    if kind == "swap":
        if folded:
            run.take_over(Pipeline.parse(payload["to"]))
        else:
            run.pipeline = Pipeline.parse(payload["to"])
            run.pipeline.check(run.world)
    elif kind == "set":
        to = payload["to"]
        run.budget = replace(run.budget, **{k: to[k] for k in BUDGET if k in to})
        for name in DIALS:
            if name in to:
                _turn(run.world, name, to[name])
    elif (row := _row(run, payload["prompt"])) is not None:
        run.available[row] = payload["to"]["available"]
        run.wishes = _wishes(run, row, payload["to"])


# one function per kind: everything is checked before anything is done


def _setting(run: Run, payload: Mapping[str, Any], rehearsed: bool) -> Change:
    unknown = sorted(set(payload) - {*BUDGET, *DIALS, "group_size"})
    if unknown or not payload:
        raise ValueError(
            f"{', '.join(unknown) or 'nothing'} cannot be set; prompts, rollouts, group_size, temperature and lr can"
        )
    if {"rollouts", "group_size"} <= set(payload):
        raise ValueError(
            "rollouts and group_size say the same twice (rollouts = prompts x group_size); give one of them"
        )
    budget = run.budget
    to: dict[str, Any] = {}
    if payload.keys() & {*BUDGET, "group_size"}:
        prompts = _whole(payload, "prompts", 1) if "prompts" in payload else budget.prompts
        rollouts = _whole(payload, "rollouts", 1) if "rollouts" in payload else budget.rollouts
        if "group_size" in payload:
            rollouts = prompts * _whole(payload, "group_size", 1)
        if prompts > (left := int(run.available.sum())):
            raise ValueError(f"{prompts} prompts a step are more than the {left} there are")
        if prompts < (pinned := len(run.wishes.pinned)):
            raise ValueError(f"{pinned} prompts are pinned, more than {prompts} a step; free some first")
        budget = replace(budget, prompts=prompts, rollouts=rollouts)
        to = {"prompts": prompts, "rollouts": rollouts}
        if rehearsed:
            _rehearse(run, budget=budget)
    for name, (low, high) in DIALS.items():
        if name in payload:
            if _dials(run.world, name) == []:
                raise ValueError(f"{type(run.world).__name__} has no {name} to set; a live model has one")
            to[name] = _number(payload, name, low, high)
    before = {k: v for k, v in asdict(run.budget).items() if k in to} | {
        name: getattr(*_dials(run.world, name)[0]) for name in DIALS if name in to
    }

    def act() -> None:
        run.budget = budget
        for name in DIALS:
            if name in to:
                _turn(run.world, name, to[name])

    return Change("set", {"to": to, "before": before}, run.n_steps + 1, act)


def _prompt(run: Run, kind: str, payload: Mapping[str, Any], rehearsed: bool) -> Change:
    row = _row(run, payload.get("prompt"))
    if row is None:
        raise ValueError(
            f"this run has no prompt {payload.get('prompt')!r}; its {len(run.world.pool)} ids are in the table prompts"
        )
    now = _wish(run, row)
    to = {
        "pin": now | {"pinned": True, "available": True},
        "drop": now | {"pinned": False, "available": False},
        "boost": now
        | {"available": True, "factor": _number(payload, "factor", 0.1, 100.0) if kind == "boost" else 1.0},
        "free": {"pinned": False, "available": True, "factor": 1.0},
    }[kind]
    return _wished(run, kind, str(run.world.pool.ids[row]), to, rehearsed)


def _wished(run: Run, kind: str, prompt: str, to: Mapping[str, Any], rehearsed: bool) -> Change:
    row = _row(run, prompt)
    assert row is not None
    wishes, available = _wishes(run, row, to), run.available.copy()
    available[row] = to["available"]
    if len(wishes.pinned) > run.budget.prompts:
        raise ValueError(
            f"{len(run.wishes.pinned)} prompts are pinned and a step has {run.budget.prompts}; free one, or set more prompts"
        )
    if available.sum() < run.budget.prompts:
        raise ValueError(
            f"{int(available.sum())} prompts would be left for steps of {run.budget.prompts}; set fewer prompts first"
        )
    if rehearsed:
        _rehearse(run, wishes=wishes, available=available)
    before = _wish(run, row)

    def act() -> None:
        run.wishes, run.available = wishes, available

    return Change(kind, {"prompt": prompt, "to": dict(to), "before": before}, run.n_steps + 1, act)


def _swap(run: Run, kind: str, payload: Mapping[str, Any]) -> Change:
    word = payload.get("pipeline" if kind == "swap" else "method")
    if not word or not isinstance(word, (str, list, Pipeline)):
        raise ValueError(f"to {kind} needs {'a pipeline' if kind == 'swap' else 'a method'}, for example grpo + mopps")
    try:
        new = Pipeline.parse(word) if kind == "swap" else _edited(run.pipeline, kind, str(word))
    except (TypeError, AttributeError) as error:
        raise ValueError(f"cannot read the pipeline {word!r}: {error}") from error
    new.check(run.world)
    recorded = {"from": run.pipeline.spec, "to": new.spec, "who": new.who()}
    return Change("swap", recorded, run.n_steps + 1, lambda: run.take_over(new))


def _edited(pipeline: Pipeline, kind: str, word: str) -> Pipeline:
    """The pipeline with a method added or taken out."""
    from workbench import catalog

    if kind == "add":
        method = catalog.read(catalog.parts(word)[0])
        names = [m.name for m in pipeline.chosen]
        if method.name in names:
            return Pipeline(*(method if m.name == method.name else m for m in pipeline.chosen))
        return Pipeline(*pipeline.chosen, method)
    slug = word.strip().lower().replace("-", "_")
    left = [m for m in pipeline.chosen if m.name != slug]
    if len(left) == len(pipeline.chosen):
        raise ValueError(f"{slug} is not in the pipeline; {', '.join(m.name for m in pipeline.chosen)} are")
    return Pipeline(*left)


def _checkpoint(run: Run) -> Change:
    if not run.n_steps:
        raise ValueError("there is nothing to save before the first step")

    def act() -> None:
        run.checkpoint()
        if not (run.checkpoints() / f"step-{run.n_steps:06d}").exists():
            raise ValueError(f"no checkpoint could be written to {run.checkpoints()}; see the notes for the reason")

    return Change("checkpoint", {}, run.n_steps, act)


def _rehearse(run: Run, budget: Budget | None = None, **other: Any) -> None:
    """Let the pipeline plan the coming step as it would be; whatever it objects to is the reason of a refusal."""
    given = {"available": run.available, "wishes": run.wishes} | other
    try:
        rehearse(
            run.pipeline, run.states, budget or run.budget, step=run.n_steps + 1, seed=run.experiment.seed, **given
        )
    except Exception as error:
        raise ValueError(f"the pipeline {run.pipeline.text} cannot plan such a step: {error}") from error


def _wish(run: Run, row: int) -> dict[str, Any]:
    """What is wished of a prompt now."""
    boost = run.wishes.boost
    factor = 1.0 if boost is None else float(boost[row])
    return {"pinned": row in run.wishes.pinned, "available": bool(run.available[row]), "factor": factor}


def _wishes(run: Run, row: int, to: Mapping[str, Any]) -> Wishes:
    """The wishes with those of one prompt replaced; pinned prompts stay in the order in which they were pinned."""
    pinned = [r for r in run.wishes.pinned.tolist() if r != row or to["pinned"]]
    pinned += [row] if to["pinned"] and row not in pinned else []
    boost = np.ones(len(run.world.pool)) if run.wishes.boost is None else run.wishes.boost.copy()
    boost[row] = to["factor"]
    return Wishes(np.array(pinned, np.int64), boost if (boost != 1).any() else None)


def _row(run: Run, prompt: object) -> int | None:
    found = np.flatnonzero(run.world.pool.ids == prompt)
    return int(found[0]) if len(found) else None


def _dials(world: Any, name: str) -> list[tuple[Any, str]]:
    """Where a world keeps a setting: what samples and what trains must agree on the temperature."""
    policy = getattr(world, "policy", None)
    homes = [world, policy] if name == "temperature" else [policy]
    return [(home, name) for home in homes if isinstance(getattr(home, name, None), (int, float))]


def _turn(world: Any, name: str, value: float) -> None:
    for home, attribute in _dials(world, name):
        setattr(home, attribute, value)


def _whole(payload: Mapping[str, Any], name: str, low: int) -> int:
    value = payload.get(name, low)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value % 1 != 0 or not low <= value <= 10**9:
        raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}")
    return int(value)


def _number(payload: Mapping[str, Any], name: str, low: float, high: float) -> float:
    value = payload.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")
    return float(value)
