"""Requests to a run: what may be asked of it, by whom, and what of it can be undone."""

from __future__ import annotations

import getpass
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from workbench.pipeline import Pipeline

KINDS = {
    "resume": "go on after a pause",
    "pause": "wait after the step in hand",
    "step": "make some single steps (n), then wait",
    "stop": "end after the step in hand, with everything recorded",
    "set": "another prompts, rollouts, group_size, temperature or lr",
    "pin": "this prompt in every step",
    "drop": "this prompt no more",
    "boost": "factor times the rollouts for this prompt whenever it is asked",
    "free": "take back pin, drop and boost of this prompt",
    "swap": "another pipeline",
    "add": "one method more, or its other settings",
    "remove": "one method less",
    "checkpoint": "save the weights now",
    "undo": "back to what was before the command of this id",
}
"""What may be asked, and what it means; all of it acts from the next step on."""

CONTROLS = ("resume", "pause", "step", "stop")
"""Kinds that change no setting, but when the run goes on."""

PROMPTS = ("pin", "drop", "boost", "free")
"""Kinds that are about one prompt."""

LASTING = ("set", *PROMPTS, "swap")
"""Kinds, as recorded, whose effect outlasts the step: they can be undone, and a resumed run has them again."""

DEEPEST = 32
TOO_DEEP = f"a request is nested at most {DEEPEST} deep"


class Request(NamedTuple):
    """What somebody asked of a run: kind is a key of KINDS, payload its figures as JSON has them, sent the time in UTC."""

    id: str
    kind: str
    payload: dict[str, Any]
    who: str = ""
    sent: str = ""

    @classmethod
    def of(cls, kind: str, payload: Mapping[str, object], who: str = "") -> Request:
        """A new request, with an id of its own; a pipeline in its payload becomes rows. Raises ValueError for a kind that
        does not exist, and for what the record cannot hold."""
        if kind not in KINDS:
            raise ValueError(unknown(kind))
        who = (who or current_user())[:80]
        plain = {name: v.spec if isinstance(v, Pipeline) else v for name, v in payload.items()}
        check_writable([plain, who])
        now = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
        return cls(secrets.token_hex(5), kind, plain, who, now)


def unknown(kind: str) -> str:
    """What to say of a kind that does not exist."""
    return f"a run cannot be asked to {kind!r}; it can be asked to {', '.join(KINDS)}"


def current_user() -> str:
    """Who sends requests from this process, where nothing else is said."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "researcher"


def undone(undoes: Mapping[str, str]) -> set[str]:
    """Ids of commands that no longer hold: undone by another that does. undoes: id -> the id that it undoes ("" = none),
    the oldest first."""
    gone: set[str] = set()
    for id, other in reversed(list(undoes.items())):
        if other and id not in gone:
            gone.add(other)
    return gone


def check_writable(found: object) -> None:
    """Raise ValueError where the record could not hold it: nested too deep, or with text that UTF-8 cannot hold."""
    level = [found]
    for _ in range(DEEPEST):
        deeper: list[object] = []
        for part in level:
            if isinstance(part, Mapping):
                deeper += [*part.keys(), *part.values()]
            elif isinstance(part, (list, tuple)):
                deeper += part
            elif isinstance(part, str):
                try:
                    part.encode()
                except UnicodeEncodeError:
                    raise ValueError(f"a request is text, and {part[:80]!a} holds half a surrogate pair") from None
        level = deeper
    if level:
        raise ValueError(TOO_DEEP)
