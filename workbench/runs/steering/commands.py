"""Commands that steer a run while it goes: from a page, a notebook or a program, in this process or another.

`Session` hands each to its own run, `Remote` leaves each as a request in the run's inbox. Nothing here imports what draws
or trains.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from workbench.runs.steering.requests import Request

if TYPE_CHECKING:
    from typing import Self

    from workbench.pipeline import Pipeline


class Commands:
    """The commands by which a run is steered; a subclass says what becomes of a request in `request`, `answer` and
    `working_status`. Each returns the object itself, and `last_request` is what it asked for."""

    last_request: Request | None = None

    def request(self, kind: str, **payload: object) -> Self:
        """Ask for something: kind is a key of `requests.KINDS`."""
        raise NotImplementedError

    def answer(self, request: Request) -> dict[str, Any] | None:
        """The command (kind, step, payload, who) that a request became, None before that. kind "refused" holds the
        reason under payload["why"]; step: from which it acts."""
        raise NotImplementedError

    def working_status(self, request: Request) -> str:
        """What is being done for a request that waits, where that takes long; "" for nothing."""
        raise NotImplementedError

    def resume(self) -> Self:
        """Go on after a pause."""
        return self.request("resume")

    def pause(self) -> Self:
        """Wait after the step in hand."""
        return self.request("pause")

    def step(self, n: int = 1) -> Self:
        """Make n single steps, then wait."""
        return self.request("step", n=n)

    def set(self, **settings: float) -> Self:
        """Other settings from the next step on: prompts, rollouts or group_size, temperature, lr."""
        return self.request("set", **settings)

    def pin(self, prompt: str) -> Self:
        """Have this prompt in every step; whoever selects fills the rest."""
        return self.request("pin", prompt=prompt)

    def drop(self, prompt: str) -> Self:
        """Take this prompt out of the pool."""
        return self.request("drop", prompt=prompt)

    def boost(self, prompt: str, factor: float = 2.0) -> Self:
        """Give this prompt factor times its rollouts whenever it is asked, at the cost of the others of the step."""
        return self.request("boost", prompt=prompt, factor=factor)

    def free(self, prompt: str) -> Self:
        """Take back what was set for this prompt."""
        return self.request("free", prompt=prompt)

    def swap(self, pipeline: Pipeline | str) -> Self:
        """Another pipeline from the next step on."""
        return self.request("swap", pipeline=pipeline)

    def add(self, method: str) -> Self:
        """One more method, as in `add("vade(lambda_sample=0.8)")`; one that is there gets the settings given."""
        return self.request("add", method=method)

    def remove(self, method: str) -> Self:
        """One method less."""
        return self.request("remove", method=method)

    def checkpoint(self) -> Self:
        """Save the weights now."""
        return self.request("checkpoint")

    def undo(self, id: str = "") -> Self:
        """Back to what was before a command, by the id under which it was recorded; "" = the last one that can be."""
        return self.request("undo", id=id)


class Progress(Protocol):
    """How far a run is."""

    @property
    def n_steps(self) -> int:
        """Steps made."""
        ...

    @property
    def target_steps(self) -> int:
        """Steps after which the run is finished."""
        ...


def progress_html(run: Progress, *more: str) -> str:
    """A run for a notebook's cell: how far it is, itself in words, and more of it, text that is escaped."""
    bar = f'<progress value="{run.n_steps}" max="{max(run.target_steps, 1)}"></progress>'
    hint = "<code>workbench.views.notebook.controls(...)</code> steers it"
    return f"{bar} <code>{escape(repr(run))}</code><br>{'; '.join([*map(escape, more), hint])}"
