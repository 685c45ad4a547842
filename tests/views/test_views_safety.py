"""Who gets in and may steer, what a browser is told to keep out, and what a page says when its store goes, is of a newer version, or comes back."""

import http.client
import json
import logging
import re
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

import psutil
import pytest
from browsing import new_page

from tests.timing import patience, until
from workbench.cli import terminal
from workbench.runs.steering.inbox import Inbox
from workbench.views.shell.dashboard import Dashboard
from workbench.views.shell.ports import is_loopback, names_of
from workbench.views.shell.server import serve


def answer(port, path, cookie="", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(20))
    connection.request("GET", path, headers=headers | ({"Cookie": cookie} if cookie else {}))
    return connection.getresponse()


@pytest.fixture
def served(recording, monkeypatch):
    """Serve the store of a recording; what the pages that were built were told about steering."""
    recording().go(1)
    told, servers = [], []
    monkeypatch.setattr(
        "workbench.views.shell.dashboard.Dashboard.__init__", lambda self, *a: told.append(a[-1]) or 1 / 0
    )

    def serve_(**options):
        server, url = serve(recording.store, **({"open": False} | options))
        servers.append(server)
        return server, urlsplit(url), told

    yield serve_
    for server in servers:
        server.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_token_lets_one_browser_in_and_is_used_up(served, host):
    _, url, told = served(host=host)
    assert (url.path, len(url.query)) == ("/enter", len("token=") + 24)
    closed = answer(url.port, "/")
    assert (closed.status, closed.getheader("Location")) == (302, "./enter?next=%2F")
    assert "This dashboard opens with a token" in answer(url.port, "/enter?next=%2F").read().decode()
    wrong = answer(url.port, "/enter?token=guess")
    assert (wrong.status, wrong.getheader("Set-Cookie")) == (403, None)
    for path in ("/ws", "/sql/ws", "/metadata", "/autoload.js?bokeh-autoload-element=1", "/live", "/sql"):
        assert answer(url.port, path).status in (302, 403), path
    assert told == []
    right = answer(url.port, f"/enter?{url.query}&next=%2Flive%3Frun%3Da")
    assert (right.status, right.getheader("Location")) == (302, "/live?run=a")
    cookie, _, rest = right.getheader("Set-Cookie").partition("; ")
    assert cookie.startswith(f"workbench-{url.port}=")
    assert url.query.removeprefix("token=") not in cookie
    assert rest == "HttpOnly; Path=/; SameSite=Lax"
    page = answer(url.port, "/", cookie)
    assert (page.status, told) == (200, [True])
    assert cookie.partition("=")[2] not in page.read().decode()
    assert answer(url.port, f"/enter?{url.query}").status == 403
    assert answer(url.port, f"/enter?{url.query}", cookie).status == 302  # the history of the browser that is in
    assert answer(url.port, "/", f"workbench-{url.port}=guess").status == 302


def test_a_file_of_its_user_lets_another_browser_in(served):
    server, url, _ = served()
    file = server.entry.file
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    known = set()
    for _ in range(2):
        token = re.search(r"token=([\w-]+)", file.read_text())[1]
        known.add(token)
        assert answer(url.port, f"/enter?token={token}").status == 302
        assert answer(url.port, f"/enter?token={token}").status == 403
    assert len(known | {url.query.removeprefix("token=")}) == 3


@pytest.mark.parametrize("away", ["//evil.example", "https://evil.example", "/\\evil.example", "evil"])
def test_entering_leads_to_pages_of_its_own_only(served, away):
    _, url, _ = served()
    assert answer(url.port, f"/enter?{url.query}&next={quote(away)}").getheader("Location") == "/"


def test_without_a_token_this_machine_steers_and_others_look(served):
    for host, may in (("127.0.0.1", True), ("0.0.0.0", False)):
        server, url, told = served(host=host, token=False)
        assert (url.path, url.query, server.entry) == ("/", "", None)
        assert answer(url.port, "/").status == 200
        assert told[-1] is may


def test_a_notebook_has_its_secret_in_the_address(served):
    _, url, told = served(framed=True)
    assert len(url.path) == 26
    assert answer(url.port, "/").status == answer(url.port, "/sql").status == answer(url.port, "/ws").status == 404
    page = answer(url.port, url.path)
    assert (page.status, told) == (200, [True])
    assert page.getheader("X-Frame-Options") is None
    assert "frame-ancestors" not in page.getheader("Content-Security-Policy")


def test_everything_that_is_served_has_headers(served):
    _, url, _ = served(token=False)
    for path in ("/", "/sql", "/nothing", "/static/js/bokeh.min.js", "/favicon.ico", "/metadata", "/ws"):
        got = answer(url.port, path)
        policy = got.getheader("Content-Security-Policy")
        assert "default-src 'none'" in policy, path
        assert "frame-ancestors 'none'" in policy, path
        script = re.search(r"script-src ([^;]+)", policy)[1]
        assert "unsafe-inline" not in script and "http" not in script, path
        named = [got.getheader(n) for n in ("X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy")]
        assert named == ["DENY", "nosniff", "no-referrer"], path
        nonce = re.search(r"'nonce-([\w-]+)'", script)[1]
        text = got.read()
        if path == "/":
            assert text.count(b"<script nonce=" + nonce.encode()) == text.count(b"<script ") > 5
            assert int(got.getheader("Content-Length")) == len(text)


def test_no_token_stands_in_a_log(served, caplog):
    caplog.set_level(logging.DEBUG)
    _, url, _ = served()
    for query in (url.query, url.query, "token=guess"):
        answer(url.port, f"/enter?{query}").read()
    assert url.query.removeprefix("token=") not in caplog.text
    assert "guess" not in caplog.text


def test_a_browser_is_opened_by_a_file(served, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    server, _, _ = served(open=True)
    assert opened == [server.entry.file.as_uri()]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("framed", [True, False])
def test_a_frame_of_a_notebook_shows_it_and_a_frame_of_another_site_does_not(recording, browser, tmp_path, framed):
    """The notebook is on localhost, the frame on 127.0.0.1: another site, whose frame keeps no cookie."""
    recording().go(1)
    server, url = serve(recording.store, open=False, framed=framed, token=False)
    (tmp_path / "notebook").mkdir()
    (tmp_path / "notebook" / "index.html").write_text(f"<iframe src='{url}' width=1200 height=900></iframe>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "notebook"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        page, refused = new_page(browser), []
        page.on("console", lambda m: refused.append(m.text) if "frame-ancestors" in m.text else None)
        page.goto(f"http://localhost:{site.server_port}/")
        if framed:
            page.frame_locator("iframe").get_by_text("Where the budget went").first.wait_for()
        else:
            until(lambda: page.wait_for_timeout(20) or refused)
        assert bool(refused) is not framed
        page.context.close()
        site.shutdown()
    server.stop()


@pytest.mark.slow
def test_no_secret_stands_in_the_arguments_of_a_dashboard(recording):
    """The demo starts one beside its run: the URL of the store goes through its input, the token comes out of it."""
    recording().go(1)
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal.console, "print", lambda text, **_: said.append(text))
        with terminal.dashboard(recording.store, "", 0, browser=False) as process:
            until(lambda: len(said) == 2)
            arguments = " ".join(psutil.Process(process.pid).cmdline())
    token = re.search(r"enter\?token=([\w-]+)", said[0])[1]
    file = Path(said[1].split()[-1])
    assert token not in arguments
    assert recording.store not in arguments
    until(lambda: not file.exists())


def test_hosts():
    assert [is_loopback(h) for h in ("127.0.0.1", "127.8.8.8", "::1", "localhost")] == [True] * 4
    assert [is_loopback(h) for h in ("0.0.0.0", "::", "10.0.0.3", "localhost.example.com")] == [False] * 4
    assert names_of("10.0.0.3") == ["10.0.0.3"]
    assert "127.0.0.1" in names_of("0.0.0.0")


def test_who_may_not_steer_leaves_no_request_whatever_is_pressed(recording):
    rec = recording().go(1)
    for may, left in ((False, 0), (True, 1)):
        page = Dashboard(recording.store, may_steer=may)
        page.tick()
        assert page.steering_bar.buttons["pause"].disabled is not may
        page.steering_bar._ask("pause")  # as a crafted event would
        assert len(Inbox(recording.store, rec.run).files()) == left


def test_a_store_that_disappears_is_said_and_comes_back(recording):
    rec = recording().go(1)
    page = Dashboard(recording.store, names=["live"])
    page.tick()
    away = Path(recording.store).with_name("away")
    shutil.move(recording.store, away)
    page.source._asked = 0
    page.tick()
    assert page.message.visible
    assert "The store has disappeared" in page.message.object
    assert "<details>" not in page.message.object
    assert page.shown is page.body
    shutil.move(away, recording.store)
    rec.go(1)
    page.source._asked = 0
    page.tick()
    assert not page.message.visible
    assert page.source.run(rec.run).step == 2


def test_a_store_of_a_newer_version_is_a_message(recording):
    recording().go(1)
    mark = Path(recording.store) / "STORE"
    known = mark.read_text()
    mark.write_text(json.dumps({"schema_version": 99}))
    page = Dashboard(recording.store, names=["live"])
    page.tick()
    assert "schema version 99" in page.message.object
    assert "<details>" not in page.message.object
    mark.write_text(known)
    page.tick()
    assert not page.message.visible
