"""The dashboard on a loopback port, in this process (notebook) or in one of its own (`workbench dashboard`)."""

from __future__ import annotations

import logging
import socket
import time
import webbrowser
from typing import Any

import panel as pn
from tornado.websocket import WebSocketClosedError

from workbench.views.page import app
from workbench.views.pages import PAGES
from workbench.views.ports import HOST, free_port


class _ClosedTabs(logging.Filter):
    """A tab that is closed while something is sent to it is no news; asyncio logs a traceback for each."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], WebSocketClosedError))


_closed_tabs = _ClosedTabs()


def _wait_for(port: int, seconds: float = 20) -> None:
    """Until the server's thread listens: an address handed out must answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as s:
            if s.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.02)
    raise OSError(f"the dashboard's server did not listen on {HOST}:{port} within {seconds} s")


def serve(
    store_url: str, run: str | None = None, port: int = 0, open: bool = True, threaded: bool = True
) -> tuple[Any, str]:
    """Serve the dashboard on this machine only; returns (server, address).

    The address holds all pages; each stands alone under its name, as in address + "difficulty".

    threaded=True runs at once in a thread of its own: end it with `server.stop()`. threaded=False returns a server
    that waits for `server.io_loop.start()`. A busy port gives the next free one. Nothing is fetched from elsewhere:
    scripts, styles and fonts come from the installed packages."""
    logging.getLogger("asyncio").addFilter(_closed_tabs)
    port = free_port(port)
    url = f"http://{HOST}:{port}/"
    server = pn.serve(
        {"/": lambda: app(store_url, run)} | {f"/{n}": lambda n=n: app(store_url, run, (n,)) for n in PAGES},
        port=port,
        address=HOST,
        websocket_origin=[f"{HOST}:{port}", f"localhost:{port}"],
        show=False,
        start=threaded,
        threaded=threaded,
        title="Rollout Workbench",
        verbose=False,
        admin=False,
    )
    if threaded:
        _wait_for(port)
    else:
        server.start()
    if open:
        if threaded:
            webbrowser.open(url)
        else:
            server.io_loop.add_callback(webbrowser.open, url)
    return server, url
