"""The controls of a run as ipywidgets: buttons, settings, methods, single prompts, undo.

They steer whatever has the commands of `runs.steering.commands.Commands`: a session of this kernel, or a `Remote`. Values may be set from
the training thread; clicks wait while a cell runs, so do not block a cell on training.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.analysis.diagnose import Finding
from workbench.analysis.health import Health
from workbench.runs.steering.requests import Request
from workbench.views.data.settings import SETTINGS, figure
from workbench.views.data.steering import Command, recorded, waits
from workbench.views.data.text import html, one_line, percent
from workbench.views.parts import theme

if TYPE_CHECKING:
    from workbench.runs.session import Session
    from workbench.runs.steering.remote import Remote

SHOWN = 5
"""Requests whose outcome stands under the buttons, the newest first."""


class Sent(NamedTuple):
    """A request of these controls and, once it is known, what became of it."""

    request: Request
    command: Command

    @property
    def settled(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.command.state in ("applied", "refused")


class Controls:
    """Buttons and a status line for one session; shows itself in a cell. `notebook.controls` makes one."""

    def __init__(self, session: Session | Remote) -> None:
        import ipywidgets as w

        self.session = session
        self.buttons = {
            "start": w.Button(description="Start", icon="play", button_style="primary"),
            "pause": w.Button(description="Pause", icon="pause"),
            "step": w.Button(description="One step", icon="step-forward"),
            "stop": w.Button(description="Stop", icon="stop", tooltip="end the run after the step in hand"),
        }
        for name, button in self.buttons.items():
            button.layout.width = "auto"
            button.on_click(lambda _, name=name: self._do(name))
        self.pipeline = w.Text(
            placeholder="grpo + mopps", description="Pipeline", layout=w.Layout(width="340px"), continuous_update=False
        )
        self.swap = self._button("Swap at the next step", self._swap)
        self.progress = w.IntProgress(0, 0, max(session.target_steps, 1), layout=w.Layout(width="340px"))
        self.status = w.HTML()
        self.message = w.HTML()
        self.judged = w.HTML()
        self.became = w.HTML()
        self._health: Health | None = None
        self.sent: list[Sent] = []
        self._lock = threading.RLock()  # clicks come from one thread, refreshes from another
        wrap = w.Layout(flex_flow="row wrap")
        self.more = w.Accordion(children=[w.VBox(self._more())], selected_index=None)
        self.more.set_title(0, "Settings, methods, single prompts")
        self.panel = w.VBox(
            [
                w.HBox([*self.buttons.values(), self.progress], layout=wrap),
                w.HBox([self.pipeline, self.swap], layout=wrap),
                self.more,
                self.status,
                self.judged,
                self.message,
                self.became,
            ]
        )
        session.on_change(lambda *_: self.refresh())
        self.refresh()

    def _button(self, label: str, act: Callable[[], None]) -> Any:
        import ipywidgets as w

        button = w.Button(description=label, layout=w.Layout(width="auto"))
        button.on_click(lambda _: act())
        return button

    def _more(self) -> list[Any]:
        import ipywidgets as w

        wrap, wide = w.Layout(flex_flow="row wrap"), {"description_width": "initial"}
        self.settings = {
            name: w.Text(placeholder="unchanged", description=label, style=wide, layout=w.Layout(width="190px"))
            for name, (label, _) in SETTINGS.items()
        }
        self.apply = self._button("Apply at the next step", self._apply)
        self.method = w.Text(
            placeholder="vade(lambda_sample=0.8)", description="Method", layout=w.Layout(width="340px")
        )
        self.prompt = w.Text(placeholder="id of a prompt", description="Prompt", layout=w.Layout(width="340px"))
        self.factor = w.FloatText(value=2.0, description="Factor", layout=w.Layout(width="150px"))
        self.others = {
            "add": self._button("Add", lambda: self._word("add", self.method.value)),
            "remove": self._button("Remove", lambda: self._word("remove", self.method.value)),
            "pin": self._button("Pin", lambda: self._word("pin", self.prompt.value)),
            "drop": self._button("Drop", lambda: self._word("drop", self.prompt.value)),
            "boost": self._button("Boost", lambda: self._word("boost", self.prompt.value, self.factor.value)),
            "free": self._button("Free", lambda: self._word("free", self.prompt.value)),
            "checkpoint": self._button("Checkpoint", lambda: self._word("checkpoint")),
            "undo": self._button("Undo the last", lambda: self._word("undo")),
        }
        o = self.others
        return [
            w.HBox([*self.settings.values(), self.apply], layout=wrap),
            w.HBox([self.method, o["add"], o["remove"]], layout=wrap),
            w.HBox([self.prompt, o["pin"], o["drop"], self.factor, o["boost"], o["free"]], layout=wrap),
            w.HBox([o["checkpoint"], o["undo"]], layout=wrap),
        ]

    def _do(self, name: str) -> None:
        self._try(lambda: self.session.stop(timeout=0) if name == "stop" else getattr(self.session, name)())

    def _try(self, act: Callable[[], object]) -> bool:
        """Do it, and say what came of it: the reader's mistake in words, never as a traceback."""
        before, self.message.value = self.session.last_request, ""
        try:
            act()
        except Exception as problem:
            self._say(str(problem))
            return False
        finally:
            request = self.session.last_request
            if request is not None and request is not before:
                with self._lock:
                    known = {a.request.id: a.command.what for a in self.sent}
                    self.sent = [Sent(request, waits(request, known)), *self.sent][:SHOWN]
            self.refresh()
        return True

    def _apply(self) -> None:
        def read() -> dict[str, float]:
            found = {name: figure(name, w.value) for name, w in self.settings.items() if w.value.strip()}
            if not found:
                raise ValueError("write a figure first; what is left empty stays as it is")
            return found

        if self._try(lambda: self.session.set(**read())):
            for widget in self.settings.values():
                widget.value = ""

    def _word(self, word: str, *given: Any) -> None:
        if given and not str(given[0]).strip():
            self._say("name a method first" if word in ("add", "remove") else "write the id of a prompt first")
            return
        given = tuple(g.strip() if isinstance(g, str) else g for g in given)
        self._try(lambda: getattr(self.session, word)(*given))

    def _swap(self) -> None:
        wanted = self.pipeline.value.strip()
        if not wanted:
            self._say("write a pipeline first, for example: grpo + mopps")
            return
        self._try(lambda: self.session.swap(wanted))

    def _follow(self) -> None:
        """Ask what became of the requests that are not settled."""
        with self._lock:
            made = self.session.n_steps
            self.sent = [a if a.settled else a._replace(command=self._outcome(a, made)) for a in self.sent]
            lines = "".join(_became(a.command) for a in self.sent)
            if self.became.value != lines:
                self.became.value = lines

    def _outcome(self, sent: Sent, made: int) -> Command:
        request = sent.request
        if (answer := self.session.answer(request)) is None:
            return sent.command._replace(why=self.session.working_status(request))
        command = recorded(answer, made)
        return command._replace(what=sent.command.what) if command.kind == "undo" else command

    def _say(self, message: str) -> None:
        self.message.value = f"<b style='color:{theme.BUDGET['failed']}'>{escape(message)}</b>"

    def refresh(self) -> None:
        """Set buttons, progress and status line; called by the session after each step and change of status."""
        s = self.session
        ended = s.status in ("finished", "stopped", "failed")
        busy = s.status in ("running", "preparing")
        self.buttons["start"].description = "Start" if s.status == "new" else "Go on"
        self.buttons["start"].disabled = ended or busy
        self.buttons["pause"].disabled = ended or not busy
        self.buttons["step"].disabled = ended or busy
        self.buttons["stop"].disabled = ended or s.status == "new"
        for button in (self.swap, self.apply, *self.others.values()):
            button.disabled = ended
        self.progress.max = max(s.target_steps, 1)
        self.progress.value = s.n_steps
        self.progress.bar_style = {"failed": "danger", "finished": "success"}.get(s.status, "")
        self.status.value = self._line()
        self._follow()
        if self._health is None and s.run_id and not ended:
            self._health = Health(s.store_url, s.run_id, self._found).start()
        if self._health is not None:
            self._health.stepped(s.n_steps)
            if ended:
                self._health.stop()

    def _found(self, finding: Finding) -> None:
        """A finding of the diagnosis, in red, with texts to look at."""
        texts = "".join(f"<br><code>{html(text, 200)}</code>" for text in finding.texts)
        self.judged.value += (
            f"<div><b style='color:{theme.BUDGET['failed']}'>{html(finding.what, 400)}</b> "
            f"Try: {html(finding.way_out, 400)}{texts}</div>"
        )

    def _line(self) -> str:
        s, last = self.session, getattr(self.session, "last", None)
        parts = [f"<b>{escape(s.status)}</b>", f"step {s.n_steps:,} of {s.target_steps:,}"]
        if last is not None and len(last.rollouts):
            reward, correct = last.rollouts.reward, last.rollouts.correct
            if np.isfinite(reward).any():
                parts.append(f"training reward {np.nanmean(reward):.3f}")
            if np.isfinite(correct).any():
                parts.append(f"pass rate {percent(float(np.nanmean(correct)))}")
        if s.run_id:
            parts.append(f"run <code>{escape(s.run_id)}</code>")
        line = " · ".join(parts)
        if s.error:
            last_line = one_line(s.error.strip().splitlines()[-1], 300)
            line += f"<br><b style='color:{theme.BUDGET['failed']}'>{escape(last_line)}</b>"
        return line

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.panel)


def _became(command: Command) -> str:
    """A request and what became of it, as a line of HTML."""
    color = {"applied": theme.PASS, "refused": theme.BUDGET["failed"]}.get(command.state, theme.ASKED)
    return f"<div><b>{html(command.what, 120)}</b> <span style='color:{color}'>{html(command.line, 300)}</span></div>"
