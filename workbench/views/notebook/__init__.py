"""Pieces for a notebook cell: the controls of a session, the pages in a frame, static plots of a run.

The controls are ipywidgets, whose values may be set from the training thread; the page is served from a thread of
this kernel and shown in a frame, so that it goes on while a cell runs and fetches nothing from elsewhere. Clicks on
the controls wait while a cell runs: do not block a cell on training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.views.data.records import smooth
from workbench.views.data.run import RunData, Source
from workbench.views.data.selection import OBSERVED
from workbench.views.notebook.controls import Controls
from workbench.views.parts import theme

if TYPE_CHECKING:
    from IPython.display import IFrame

    from workbench.runs.session import Session
    from workbench.runs.steering.remote import Remote
    from workbench.store import Store

_served: dict[tuple[str, str | None], tuple[Any, str]] = {}


def controls(session: Session | Remote) -> Controls:
    """A panel that steers a `Session` of this kernel, or through its store a run elsewhere: `controls(Remote("store"))`.

    >>> from workbench import Experiment, Session
    >>> panel = controls(Session(Experiment(model="sim")))
    """
    return Controls(session)


def live(where: str | Session | Remote, *, run: str | None = None, height: int = 900) -> IFrame:
    """The whole dashboard of a store or of a session, in a frame of the cell; see `page` for one page of it."""
    return page(where, "", run=run, height=height)


def page(
    where: str | Store | Session | Remote, name: str, *, run: str | None = None, height: int = 900, **chosen: Any
) -> IFrame:
    """A page of the dashboard in a frame of the cell: `page(store, "difficulty", prompt="...")`; "" = all of them.

    chosen: parameters of `selection.Selection`. One server per store and run is kept; `close` ends them. The frame loads from a loopback port of the machine the kernel runs on: with a kernel elsewhere, open the port
    with your hub's proxy or an SSH tunnel. Its address holds a secret of this server, as the notebook's output then does:
    who has both may steer until `close` or the kernel's end."""
    import panel as pn
    from IPython.display import IFrame

    from workbench.views.data.selection import Selection, address
    from workbench.views.pages import PAGES
    from workbench.views.shell.server import serve

    if name and name not in PAGES:
        raise ValueError(f"there is no page {name!r}; there are {', '.join(PAGES)}")
    pn.config.inline = True  # type: ignore[misc]  # or plots in later cells would fetch the page's widgets from a CDN
    store_url = where if isinstance(where, str) else str(getattr(where, "store_url", None) or where.url)  # type: ignore[union-attr]
    if run is None:
        run = getattr(where, "run", None) or None
    query = address(Selection(**chosen)).removeprefix("?")
    key = (store_url, run)
    if key not in _served:
        _served[key] = serve(store_url, run, port=0, open=False, threaded=True, framed=True)
    return IFrame(f"{_served[key][1]}{name}{f'?{query}' if query else ''}", width="100%", height=height)


def close() -> None:
    """End the servers that `live` started."""
    while _served:
        _served.popitem()[1][0].stop()


def plots() -> None:
    """Show HoloViews plots in this notebook, with or without a network: in the place of `hv.extension("bokeh")`.

    >>> plots()
    """
    from workbench.views.notebook.offline import load

    load()


def read(store: str | Store, run: str | None = None) -> RunData:
    """What the views know of a run, read once: curves, evaluation, budget, beliefs. run: default the newest."""
    source = Source(str(store)) if isinstance(store, str) else Source.around(store)
    source.refresh(max_age=0)
    if not source.runs:
        raise ValueError(f"the store {source.where} holds no run yet; `workbench demo` makes one")
    data = source.run(run or source.runs[0]["run"])
    data.refresh()
    return data


def curves(store: str | Store, run: str | None = None) -> Any:
    """Evaluation (learning) with its 95 % interval, and the training curves (mean of 9 steps), as one `hv.Overlay`."""
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
            (c.zero_advantage, "zero advantage", theme.ZERO, "solid"),
        )
    ]
    learning = learning.opts(color=theme.LEARNING, line_width=3)
    return hv.Overlay([band, *lines, learning]).opts(
        width=820, height=380, ylim=(0, 1.05), legend_position="bottom", legend_cols=2, title=f"{data.facts.pipeline}, {data.facts.model}",
        shared_axes=False,
    )  # fmt: skip


def difficulty(store: str | Store, run: str | None = None, *, belief: str = "", order: str = "difficulty") -> Any:
    """The heat map of prompts over steps as an `hv.Image`; belief: a method's name, default the first that has some."""
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
