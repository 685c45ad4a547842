"""Pieces for a notebook cell: the controls of a session, the pages in a frame, static plots of a run.

The controls are ipywidgets, whose values may be set from the training thread; the page is served from a thread of
this kernel and shown in a frame, so that it goes on while a cell runs and fetches nothing from elsewhere. Clicks on
the controls wait while a cell runs: do not block a cell on training.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from workbench.views import theme
from workbench.views.data import RunData, Source
from workbench.views.state import OBSERVED
from workbench.views.tables import smooth
from workbench.views.text import one_line, percent

if TYPE_CHECKING:
    import holoviews as hv
    from IPython.display import IFrame

    from workbench.store import Store

_served: dict[tuple[str, str | None], tuple[Any, str]] = {}


class Steered(Protocol):
    """What the controls need of a session."""

    status: str
    n_steps: int
    target_steps: int
    error: str | None
    run: str
    store_url: str

    def start(self) -> Any: ...  # noqa: D102
    def pause(self) -> Any: ...  # noqa: D102
    def step(self) -> Any: ...  # noqa: D102
    def stop(self, timeout: float | None = 60) -> Any: ...  # noqa: D102
    def swap(self, pipeline: str) -> Any: ...  # noqa: D102
    def on_change(self, callback: Any) -> None: ...  # noqa: D102


class Controls:
    """Buttons and a status line for one session; shows itself in a cell. `controls` makes one."""

    def __init__(self, session: Steered) -> None:
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
        self.swap = w.Button(description="Swap at the next step", layout=w.Layout(width="auto"))
        self.swap.on_click(lambda _: self._swap())
        self.progress = w.IntProgress(0, 0, max(session.target_steps, 1), layout=w.Layout(width="340px"))
        self.status = w.HTML()
        self.said = w.HTML()
        self.panel = w.VBox(
            [
                w.HBox([*self.buttons.values(), self.progress], layout=w.Layout(flex_flow="row wrap")),
                w.HBox([self.pipeline, self.swap], layout=w.Layout(flex_flow="row wrap")),
                self.status,
                self.said,
            ]
        )
        session.on_change(lambda *_: self.refresh())
        self.refresh()

    def _do(self, name: str) -> None:
        try:
            self.session.stop(timeout=0) if name == "stop" else getattr(self.session, name)()
            self.said.value = ""
        except Exception as problem:
            self._say(str(problem))
        self.refresh()

    def _swap(self) -> None:
        wanted = self.pipeline.value.strip()
        if not wanted:
            self._say("write a pipeline first, for example: grpo + mopps")
            return
        try:
            self.session.swap(wanted)
        except Exception as problem:
            self._say(f"not swapped: {problem}")
            return
        self.said.value = f"<span style='color:{theme.PASS}'>{escape(wanted)} acts from the next step on</span>"

    def _say(self, message: str) -> None:
        self.said.value = f"<b style='color:{theme.BUDGET['failed']}'>{escape(message)}</b>"

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
        self.swap.disabled = ended
        self.progress.max = max(s.target_steps, 1)
        self.progress.value = s.n_steps
        self.progress.bar_style = {"failed": "danger", "finished": "success"}.get(s.status, "")
        self.status.value = self._line()

    def _line(self) -> str:
        s, last = self.session, getattr(self.session, "last", None)
        parts = [f"<b>{escape(s.status)}</b>", f"step {s.n_steps:,} of {s.target_steps:,}"]
        if last is not None and len(last.rollouts):
            reward, correct = last.rollouts.reward, last.rollouts.correct
            if np.isfinite(reward).any():
                parts.append(f"training reward {np.nanmean(reward):.3f}")
            if np.isfinite(correct).any():
                parts.append(f"pass rate {percent(float(np.nanmean(correct)))}")
        if s.run:
            parts.append(f"run <code>{escape(s.run)}</code>")
        line = " · ".join(parts)
        if s.error:
            last_line = one_line(s.error.strip().splitlines()[-1], 300)
            line += f"<br><b style='color:{theme.BUDGET['failed']}'>{escape(last_line)}</b>"
        return line

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.panel)


def controls(session: Steered) -> Controls:
    """A panel of buttons that steers a session: start, pause, one step, stop, swap the pipeline."""
    return Controls(session)


def live(where: str | Steered, *, run: str | None = None, height: int = 900) -> IFrame:
    """The whole dashboard of a store or of a session, in a frame of the cell; see `page` for one page of it."""
    return page(where, "", run=run, height=height)


def page(
    where: str | Store | Steered, name: str, *, run: str | None = None, height: int = 900, **chosen: Any
) -> IFrame:
    """A page of the dashboard in a frame of the cell: `page(store, "difficulty", prompt="...")`; "" = all of them.

    chosen: parameters of `state.Selection`. One server per store and run is kept; `close` ends them. The frame loads from a loopback port of the machine the kernel runs on: with a kernel elsewhere, open the port
    with your hub's proxy or an SSH tunnel."""
    import panel as pn
    from IPython.display import IFrame

    from workbench.views.pages import PAGES
    from workbench.views.server import serve
    from workbench.views.state import Selection, address

    if name and name not in PAGES:
        raise ValueError(f"there is no page {name!r}; there are {', '.join(PAGES)}")
    pn.config.inline = True  # or plots in later cells would fetch the page's widgets from a CDN
    store_url = where if isinstance(where, str) else str(getattr(where, "store_url", None) or where.url)
    if run is None:
        run = getattr(where, "run", None) or None
    query = address(Selection(**chosen)).removeprefix("?")
    key = (store_url, run)
    if key not in _served:
        _served[key] = serve(store_url, run, port=0, open=False, threaded=True)
    return IFrame(f"{_served[key][1]}{name}{f'?{query}' if query else ''}", width="100%", height=height)


def close() -> None:
    """End the servers that `live` started."""
    while _served:
        _served.popitem()[1][0].stop()


def read(store: str | Store, run: str | None = None) -> RunData:
    """What the views know of a run, read once: curves, evaluation, budget, beliefs. run: default the newest."""
    source = Source(str(store)) if isinstance(store, str) else Source.around(store)
    source.refresh(max_age=0)
    if not source.runs:
        raise ValueError(f"the store {source.where} holds no run yet; `workbench demo` makes one")
    data = source.run(run or source.runs[0]["run"])
    data.refresh()
    return data


def curves(store: str | Store, run: str | None = None) -> hv.Overlay:
    """Evaluation (learning) with its 95 % interval, and the training curves (mean of 9 steps), as one plot."""
    import holoviews as hv

    data = read(store, run)
    e, c = data.evaluation, data.curves
    x, y = hv.Dimension("training_step", label="training step"), hv.Dimension("share", label="share, or mean reward")
    band = hv.Area((e.step, e.low, e.high), x, [y, "upper"]).opts(color=theme.LEARNING, alpha=0.16, line_alpha=0)
    learning = hv.Curve((e.step, e.solved), x, y, label="evaluation solved: learning")
    lines = [
        hv.Curve((c.step, smooth(values, 9)), x, y, label=label).opts(color=color, line_dash=dash)
        for values, label, color, dash in (
            (c.reward, "training reward: moves with selection", theme.MOVES, "dashed"),
            (c.pass_rate, "training pass rate", theme.PASS, "solid"),
            (c.zero, "zero advantage", theme.ZERO, "solid"),
        )
    ]
    learning = learning.opts(color=theme.LEARNING, line_width=3)
    return hv.Overlay([band, *lines, learning]).opts(
        width=820, height=340, ylim=(0, 1.05), legend_position="right", title=f"{data.facts.pipeline}, {data.facts.model}",
        shared_axes=False,
    )  # fmt: skip


def difficulty(store: str | Store, run: str | None = None, *, belief: str = "", order: str = "difficulty") -> hv.Image:
    """The heat map of prompts over steps as a picture; belief: a method's name, default the first that has some."""
    import holoviews as hv

    data = read(store, run)
    belief = belief or data.believed
    heat = data.heat(belief)
    image = heat.pixels(heat.order(order, data.prompts.stratum))
    bounds = (0.5, 0, heat.n_columns * heat.width + 0.5, len(data.prompts))
    step, prompt = (
        hv.Dimension("belief_step", label="training step"),
        hv.Dimension("prompt_rank", label=f"prompts by {order}"),
    )
    value = hv.Dimension("chance", label="share solved" if belief == OBSERVED else "chance of solving", range=(0, 1))
    return hv.Image(image[::-1], bounds=bounds, kdims=[step, prompt], vdims=value).opts(
        cmap="viridis", colorbar=True, width=820, height=360, clipping_colors={"NaN": "lightgray"}, shared_axes=False,
        title=f"according to {belief}",
    )  # fmt: skip
