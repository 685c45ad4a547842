"""Server of the dashboard on a port of this machine, in this process (notebook) or in one of its own."""

from __future__ import annotations

import hmac
import secrets
import socket
import time
import webbrowser
from typing import Any

import panel as pn
from tornado.web import RequestHandler

from workbench.views.pages import PAGES
from workbench.views.shell.closed_tabs import keep_quiet
from workbench.views.shell.frame import app
from workbench.views.shell.ports import HOST, free_port, is_loopback, names_of


class Enter(RequestHandler):
    """Where the address with the token leads: it becomes a cookie of this browser, and the address bar may be sent on."""

    def initialize(self, token: str, cookie: str) -> None:
        """Tornado hands over what the pattern of the address holds."""
        self.token, self.cookie = token, cookie

    def get(self) -> None:
        """On to the dashboard, with the cookie where the token is right."""
        if hmac.compare_digest(self.get_query_argument("token", "").encode(), self.token.encode()):
            self.set_cookie(self.cookie, self.token, httponly=True, samesite="Strict")
        self.redirect("/")


def _wait_for(host: str, port: int, seconds: float = 20) -> None:
    """Until the server's thread listens: an address handed out must answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as s:
            if s.connect_ex((host, port)) == 0:
                return
        time.sleep(0.02)
    raise OSError(f"the dashboard's server did not listen on {host}:{port} within {seconds} s")


def serve(
    store_url: str,
    run: str | None = None,
    port: int = 0,
    open: bool = True,
    threaded: bool = True,
    *,
    host: str = HOST,
    token: str | None = None,
) -> tuple[Any, str]:
    """Serve the dashboard; returns (server, address).

    The address holds all pages; each stands alone under its name, as in address + "difficulty".

    On a loopback host, the default, who reaches it may steer runs as well. Any other host has a token, made where none
    is given: the address that is returned holds it and lets its visitors steer; those of the plain address may look.

    threaded=True runs at once in a thread of its own: end it with `server.stop()`. threaded=False returns a server
    that waits for `server.io_loop.start()`. A busy port gives the next free one. Nothing is fetched from elsewhere:
    scripts, styles and fonts come from the installed packages."""
    keep_quiet()
    port = free_port(port, host=host)
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(18)
    cookie = f"workbench-{port}"

    def may_steer() -> bool:
        given = pn.state.cookies.get(cookie, "")
        return token is None or hmac.compare_digest(given.encode(), token.encode())

    def page(*names: str) -> Any:
        return app(store_url, run, names or None, may_steer=may_steer())

    shown = host if host not in ("0.0.0.0", "::") else socket.gethostname()
    url = f"http://{shown}:{port}/{f'enter?token={token}' if token else ''}"
    pages: dict[str, Any] = {"/": lambda: page()} | {f"/{n}": lambda n=n: page(n) for n in PAGES}
    server: Any = pn.serve(
        pages,
        port=port,
        address=host,
        websocket_origin=[f"{name}:{port}" for name in names_of(host)],
        extra_patterns=[("/enter", Enter, {"token": token, "cookie": cookie})] if token else [],
        show=False,
        start=threaded,
        threaded=threaded,
        title="Rollout Workbench",
        verbose=False,
        admin=False,
    )
    if threaded:
        _wait_for("127.0.0.1" if host in ("0.0.0.0", "::") else host, port)
    else:
        server.start()
    if open:
        if threaded:
            webbrowser.open(url)
        else:
            server.io_loop.add_callback(webbrowser.open, url)
    return server, url
