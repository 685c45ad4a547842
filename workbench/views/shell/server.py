"""Server of the dashboard on a port of this machine, in this process (notebook) or in one of its own."""

from __future__ import annotations

import secrets
import socket
import time
import webbrowser
from typing import Any

import panel as pn
from tornado.log import access_log
from tornado.web import RequestHandler

from workbench.views.pages import PAGES
from workbench.views.shell.closed_tabs import keep_quiet
from workbench.views.shell.entry import Entry
from workbench.views.shell.frame import app
from workbench.views.shell.headers import FramedHeaders, Headers
from workbench.views.shell.ports import HOST, free_port, is_loopback, names_of


def _wait_for(host: str, port: int, seconds: float = 20) -> None:
    """Until the server's thread listens: an address handed out must answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as s:
            if s.connect_ex((host, port)) == 0:
                return
        time.sleep(0.02)
    raise OSError(f"the dashboard's server did not listen on {host}:{port} within {seconds} s")


def _log(handler: RequestHandler) -> None:
    """A request that failed, without what its address says behind the path: it may be a token."""
    if handler.get_status() >= 500:
        access_log.error("%d %s %s", handler.get_status(), handler.request.method, handler.request.path)


def serve(
    store_url: str,
    run: str | None = None,
    port: int = 0,
    open: bool = True,
    threaded: bool = True,
    *,
    host: str = HOST,
    token: bool = True,
    framed: bool = False,
) -> tuple[Any, str]:
    """Serve the dashboard; returns (server, address), with `server.entry` an `Entry` where there is a token.

    The address holds a one-time token, which becomes a cookie of the browser that opens it first: who has that sees the
    pages and may steer, and nobody else gets in. Each page stands alone under its name, `/difficulty`.

    token=False: whoever reaches the pages sees them, and steers where the host is a loopback one. framed=True: for a frame
    of a notebook, where a browser may keep no cookie: the secret is the first part of every address instead.

    threaded=True runs at once in a thread of its own: end it with `server.stop()`. threaded=False returns a server
    that waits for `server.io_loop.start()`. A busy port gives the next free one. Nothing is fetched from elsewhere:
    scripts, styles and fonts come from the installed packages."""
    keep_quiet()
    port = free_port(port, host=host)
    may_steer = token or framed or is_loopback(host)

    def page(*names: str) -> Any:
        return app(store_url, run, names or None, may_steer=may_steer)

    shown = host if host not in ("0.0.0.0", "::") else socket.gethostname()
    prefix = f"/{secrets.token_urlsafe(18)}" if framed else ""
    url = f"http://{shown}:{port}{prefix}/"
    entry = Entry(url) if token and not framed else None
    pages: dict[str, Any] = {"/": lambda: page()} | {f"/{n}": lambda n=n: page(n) for n in PAGES}
    server: Any = pn.serve(
        pages,
        port=port,
        address=host,
        websocket_origin=[f"{name}:{port}" for name in names_of(host)],
        prefix=prefix,
        transforms=[FramedHeaders if framed else Headers],
        log_function=_log,
        exclude_headers=["Cookie"],  # or it would stand in the page, in the token of its session
        show=False,
        start=threaded,
        threaded=threaded,
        title="Rollout Workbench",
        verbose=False,
        admin=False,
        **({"auth_provider": entry, "exclude_cookies": [entry.cookie]} if entry else {}),
    )
    if threaded:
        _wait_for("127.0.0.1" if host in ("0.0.0.0", "::") else host, port)
    else:
        server.start()
    server.entry = entry
    if open:
        # a file and not the address, which would stand among the arguments of the browser
        opened = entry.file.as_uri() if entry else url
        if threaded:
            webbrowser.open(opened)
        else:
            server.io_loop.add_callback(webbrowser.open, opened)
    return server, entry.url if entry else url
