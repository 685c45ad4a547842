"""Who may steer, and what a page says when its store goes, is of a newer version, or comes back."""

import http.client
import json
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.timing import patience
from workbench.runs.steering.inbox import Inbox
from workbench.views.shell.dashboard import Dashboard
from workbench.views.shell.ports import is_loopback, names_of
from workbench.views.shell.server import serve


def answer(port, path, cookie=""):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience(20))
    connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
    return connection.getresponse()


@pytest.fixture
def open_to_all(recording, monkeypatch):
    """A dashboard on all addresses with a token of its own; what its pages were told about steering."""
    recording().go(1)
    told = []
    monkeypatch.setattr(
        "workbench.views.shell.dashboard.Dashboard.__init__", lambda self, *a: told.append(a[-1]) or 1 / 0
    )
    server, url = serve(recording.store, host="0.0.0.0", open=False)
    yield urlsplit(url), told
    server.stop()


def test_beyond_this_machine_only_the_token_steers(open_to_all):
    url, told = open_to_all
    token = url.query.removeprefix("token=")
    assert (url.path, len(token)) == ("/enter", 24)
    answer(url.port, "/").read()
    wrong = answer(url.port, "/enter?token=guess")
    assert (wrong.status, wrong.getheader("Location"), wrong.getheader("Set-Cookie")) == (302, "/", None)
    right = answer(url.port, f"/enter?token={token}").getheader("Set-Cookie")
    assert right == f"workbench-{url.port}={token}; HttpOnly; Path=/; SameSite=Strict"
    answer(url.port, "/", right.partition(";")[0]).read()
    answer(url.port, "/live", f"workbench-{url.port}=guess").read()
    assert told == [False, True, False]


def test_this_machine_needs_no_token_unless_one_is_given(recording, monkeypatch):
    recording().go(1)
    told = []
    monkeypatch.setattr(
        "workbench.views.shell.dashboard.Dashboard.__init__", lambda self, *a: told.append(a[-1]) or 1 / 0
    )
    for token in (None, "mine"):
        server, url = serve(recording.store, open=False, token=token)
        assert ("token=mine" in url) == (token is not None)
        answer(urlsplit(url).port, "/").read()
        server.stop()
    assert told == [True, False]


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
