"""Selection of the dashboard's reader: parameters only, no widgets and no data.

The address bar keeps it, so that a view can be sent to a colleague: `address` and `chosen_by` turn a selection into
the query of an address and back. Only what differs from the start stands there, and what cannot be read is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import parse_qs, urlencode

import param

OBSERVED = "observed pass rate"
"""The belief shown where no method keeps one: the share solved when a prompt was last asked."""

ORDERS = ("difficulty", "stratum", "change", "waste", "times asked", "pool order")
"""How the rows of the heat map may be sorted."""


class Selection(param.Parameterized):
    """One selection shared by every view of every page. Setting `page` goes there: a click that shall show a rollout's
    tokens sets `page="tokens", rollout=...` in one `param.update`."""

    page = param.String(default="live", doc="Name of the page shown, a key of `workbench.views.pages.PAGES`.")
    run = param.String(default="", doc="Id of the run shown; empty while there is none.")
    steps = param.Tuple(default=(0, 0), length=2, doc="First and last training step looked at; (0, 0) = all of them.")
    step = param.Integer(default=0, bounds=(0, None), doc="Training step looked at; 0 = the newest.")
    prompt = param.String(default="", doc="Id of the prompt looked at; empty for none.")
    rollout = param.String(default="", doc="Id of the rollout looked at; empty for none.")
    group = param.Selector(
        default="latest step", objects=["latest step", "chosen prompt"], doc="Whose completions are shown."
    )
    place = param.Integer(default=0, bounds=(0, None), doc="Which group of the step, counted from 0.")
    belief = param.String(default="", doc="Method whose beliefs are drawn, or OBSERVED; empty = who decides.")
    order = param.Selector(default="difficulty", objects=list(ORDERS), doc="Order of the prompts in the heat map.")
    pair = param.List(default=[], item_type=str, doc="Two estimators to compare; empty = the page's choice.")
    runs = param.List(default=[], item_type=str, doc="Runs to compare; empty = the page's choice.")
    unit = param.Selector(default="rollouts", objects=["rollouts", "tokens"], doc="What the budget is counted in.")
    axis = param.Selector(
        default="rollouts", objects=["rollouts", "tokens", "seconds"], doc="Cost at which runs compare."
    )
    metric = param.String(default="", doc="What runs are compared by; empty = the page's choice.")
    query = param.String(default="", doc="What the SQL page asks: a statement, or the name of a question.")

    OF_RUN: ClassVar[tuple[str, ...]] = ("steps", "step", "prompt", "rollout", "place", "belief", "pair")
    """What means nothing in another run: forgotten when another one is picked."""

    def look_at(self, run: str) -> None:
        """Another run; what was chosen in the one before is forgotten."""
        self.param.update(run=run, **{name: self.param[name].default for name in self.OF_RUN})


def address(chosen: Selection, leave_out: tuple[str, ...] = (), more: Mapping[str, str] = {}) -> str:
    """The selection as the query of an address ("?page=tree&step=12"), "" where nothing was chosen. more: what else it
    shall say, such as the theme."""
    words = {}
    for name, p in chosen.param.objects("existing").items():
        value = getattr(chosen, name)
        if name != "name" and name not in leave_out and value != p.default:
            words[name] = _written(value)
    words |= more
    return f"?{urlencode(words)}" if words else ""


def chosen_by(query: str) -> dict[str, object]:
    """The parameters that a query names, as `Selection.param.update` takes them; unknown and invalid ones are left out."""
    found: dict[str, object] = {}
    trial = Selection()
    for name, values in parse_qs(query.removeprefix("?")).items():
        if name == "name" or name not in trial.param:
            continue
        try:
            value = _read(trial.param[name].default, values[-1])
            trial.param.update(**{name: value})
        except ValueError:
            continue
        found[name] = value
    return found


def unread(query: str) -> list[str]:
    """What a query says of a selection and nobody can read, as it stands there: ["step=1e9"]."""
    known = chosen_by(query)
    words = parse_qs(query.removeprefix("?"), keep_blank_values=True)
    return [
        f"{n}={v[-1]}" for n, v in words.items() if n != "name" and n in Selection.param and n not in known and v[-1]
    ]


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return "-".join(map(str, value))
    return ",".join(value) if isinstance(value, list) else str(value)


def _read(default: object, text: str) -> object:
    if isinstance(default, tuple):
        return tuple(int(x) for x in text.split("-"))
    if isinstance(default, list):
        return [x for x in text.split(",") if x]
    return int(text) if isinstance(default, int) else text
