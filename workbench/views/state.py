"""What the reader of a dashboard has chosen: parameters only, no widgets and no data."""

from __future__ import annotations

from typing import ClassVar

import param

OBSERVED = "observed pass rate"
"""The belief shown where no method keeps one: the share solved when a prompt was last asked."""

ORDERS = ("difficulty", "stratum", "change", "times asked", "pool order")
"""How the rows of the heat map may be sorted."""


class Selection(param.Parameterized):
    """One selection shared by every view of a page; the address bar keeps it, so that a view can be sent on."""

    run = param.String(default="", doc="Id of the run shown; empty while there is none.")
    belief = param.String(default="", doc="Method whose beliefs are drawn, or OBSERVED.")
    order = param.Selector(default="difficulty", objects=list(ORDERS), doc="Order of the prompts in the heat map.")
    prompt = param.String(default="", doc="Id of the prompt looked at.")
    group = param.Selector(
        default="latest step", objects=["latest step", "chosen prompt"], doc="Whose completions are shown."
    )
    place = param.Integer(default=0, bounds=(0, None), doc="Which group of the step, counted from 0.")

    URL: ClassVar[dict[str, str]] = {"belief": "belief", "order": "order", "prompt": "prompt", "group": "group"}
    """What the address bar keeps, beside the run once one was picked: parameter -> name in the address."""
