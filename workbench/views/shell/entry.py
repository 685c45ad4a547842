"""Entry to a served dashboard: a one-time token in the address that is printed, exchanged for a cookie of the browser.

Bokeh asks `Entry` before it serves a page, a socket or the data of a session, and sends who has no cookie to `/enter`, which
says how to get in. A token works once. One that was not used yet always lies in a file that only the server's user can
read, which leads a browser on: no token stands in the arguments of a process or in a log.
"""

from __future__ import annotations

import hmac
import secrets
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from bokeh.server.auth_provider import AuthProvider
from tornado.web import RequestHandler

_CLOSED = """<!DOCTYPE html><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Rollout Workbench</title><meta name="color-scheme" content="light dark">
<body><h1>This dashboard opens with a token</h1>
<p>{why} Open the address that was printed where the dashboard was started; it works once, and this browser then stays in.</p>
<p>For another browser, open the file that was named there, or the address in it. Who starts the dashboard with
<code>--no-token</code> needs neither.</p>
"""

_ON = """<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={url}">
<title>Rollout Workbench</title><a href="{url}">{url}</a>
"""


class Entry(AuthProvider):
    """Who may see a dashboard: those with a cookie that was given for a token. base: the address of all pages."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._cookie = f"workbench-{urlsplit(base).port}"  # a host's cookies are those of all its ports
        self._inside: set[str] = set()
        self._folder = tempfile.TemporaryDirectory(prefix="workbench-dashboard-", ignore_cleanup_errors=True)
        self.file = Path(self._folder.name) / "open.html"
        self._printed, self._filed = secrets.token_urlsafe(18), ""
        self.url = self._address(self._printed)
        self._renew()
        super().__init__()

    def _address(self, token: str) -> str:
        return f"{self._base}enter?token={token}"

    def _renew(self) -> None:
        """A fresh token into the file."""
        self._filed = secrets.token_urlsafe(18)
        self.file.touch(mode=0o600)
        self.file.write_text(_ON.format(url=self._address(self._filed)), encoding="utf-8")

    @property
    def get_user(self):  # noqa: D102 (Bokeh's)
        return self.user

    @property
    def login_url(self):  # noqa: D102
        return "/enter"

    @property
    def login_handler(self):  # noqa: D102
        return Enter

    def user(self, handler: RequestHandler) -> str | None:
        """Whoever has a cookie of this server; None for others."""
        given = handler.get_cookie(self._cookie) or ""
        return "reader" if any(hmac.compare_digest(given, known) for known in self._inside) else None

    def admit(self, handler: RequestHandler, token: str) -> bool:
        """Take a token for a cookie; False where it is not one, or was used."""
        if hmac.compare_digest(token.encode(), self._printed.encode()) and self._printed:
            self._printed = ""
        elif hmac.compare_digest(token.encode(), self._filed.encode()):
            self._renew()
        else:
            return False
        cookie = secrets.token_urlsafe(24)
        self._inside.add(cookie)
        # lax: who follows a link to the dashboard is in; frames and requests of other sites go without it
        handler.set_cookie(self._cookie, cookie, httponly=True, samesite="Lax")
        return True

    @property
    def cookie(self) -> str:
        """The cookie's name."""
        return self._cookie


class Enter(RequestHandler):
    """`/enter`: on to the dashboard with a token or a cookie, or how to get in."""

    def get(self) -> None:
        """A token that is used already does no harm in the browser that used it."""
        entry, token = self.application.auth_provider, self.get_query_argument("token", "")  # type: ignore[attr-defined]
        if entry.user(self) is not None or entry.admit(self, token):
            on = self.get_query_argument("next", "/")
            self.redirect(on if on.startswith("/") and on[1:2] not in ("/", "\\") else "/")
            return
        self.set_status(403)
        self.set_header("Cache-Control", "no-store")
        self.write(_CLOSED.format(why="The token of this address was used, or is of another server." if token else ""))
