"""Drawing: state (what is chosen), data (what the store answers), views (figures and cards), page (the shell), frame (what is served).

    from workbench.views import serve
    server, url = serve("store")

`app` is the page as an object, `serve` puts it on a loopback port, `notebook` has the pieces for a cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.views.shell.frame import app
    from workbench.views.shell.server import serve

__all__ = ["app", "serve"]


def __getattr__(name: str) -> object:
    if name == "app":
        from workbench.views.shell.frame import app

        return app
    if name == "serve":
        from workbench.views.shell.server import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
