"""The pieces for a notebook cell, without a front end."""

import http.client
import threading
from types import SimpleNamespace
from urllib.parse import urlsplit

import holoviews as hv
import numpy as np
import pytest

from tests.timing import patience, until
from workbench import Budget, Experiment, Session
from workbench.runs.steering.requests import Request
from workbench.store import Store
from workbench.views import notebook


class FakeSession:
    """A session that only remembers what it was told."""

    def __init__(self, **facts):
        self.status, self.n_steps, self.target_steps = "new", 0, 10
        self.last, self.error, self.run_id, self.store_url = None, None, "", "store"
        self.last_request, self.answers, self.working = None, {}, ""
        self.said, self.watchers = [], []
        self.__dict__.update(facts)

    def on_change(self, callback):
        self.watchers.append(callback)

    def say(self, **facts):
        self.__dict__.update(facts)
        for callback in self.watchers:
            callback(self)

    def answer(self, request):
        return self.answers.get(request.id)

    def working_status(self, request):
        return self.working

    def start(self):
        self.said.append("start")
        self.say(status="running")

    def pause(self):
        self.said.append("pause")
        self.say(status="paused")

    def step(self):
        self.said.append("step")

    def stop(self, timeout=60):
        assert timeout == 0, "a click must not block the kernel"
        self.said.append("stop")

    def __getattr__(self, word):
        if word not in ("set", "add", "remove", "pin", "drop", "boost", "free", "checkpoint", "undo"):
            raise AttributeError(word)

        def ask(*given, **settings):
            self.said.append((word, *given, *settings.items()))
            names = {"add": "method", "remove": "method", "undo": "id"}
            payload = settings | dict(zip((names.get(word, "prompt"), "factor"), given, strict=False))
            self.last_request = Request.of(word, payload, "ada")

        return ask

    def swap(self, pipeline):
        if pipeline == "nonsense":
            raise ValueError("no method 'nonsense'; there are grpo")
        self.said.append(pipeline)
        self.last_request = Request.of("swap", {"pipeline": pipeline}, "ada")


def test_buttons_steer_the_session():
    session = FakeSession()
    panel = notebook.controls(session)
    b = panel.buttons
    assert [n for n in b if b[n].disabled] == ["pause", "stop"]
    b["start"].click()
    assert [n for n in b if b[n].disabled] == ["start", "step"]
    b["pause"].click()
    assert b["start"].description == "Go on"
    b["step"].click()
    b["stop"].click()
    assert session.said == ["start", "pause", "step", "stop"]


def test_progress_and_status_follow_the_session():
    session = FakeSession()
    panel = notebook.controls(session)
    session.say(status="running", n_steps=3, run_id="r<1>", last=None)
    assert panel.progress.value == 3
    assert panel.status.value == "<b>running</b> · step 3 of 10 · run <code>r&lt;1&gt;</code>"

    class Two:
        reward, correct = np.array([0.25, 0.75]), np.array([0.0, 1.0])

        def __len__(self):
            return 2

    session.say(last=SimpleNamespace(rollouts=Two()))
    assert "training reward 0.500 · pass rate 50 %" in panel.status.value
    session.say(status="failed", error="Traceback ...\nValueError: <b>bad</b>")
    assert "ValueError: &lt;b&gt;bad&lt;/b&gt;" in panel.status.value
    assert all(b.disabled for b in panel.buttons.values())


def test_a_pipeline_is_checked_before_it_is_swapped():
    session = FakeSession(status="running")
    panel = notebook.controls(session)
    panel.swap.click()
    assert "write a pipeline first" in panel.message.value
    panel.pipeline.value = "nonsense"
    panel.swap.click()
    assert "no method &#x27;nonsense&#x27;; there are grpo" in panel.message.value
    panel.pipeline.value = "grpo + vade"
    panel.swap.click()
    assert session.said == ["grpo + vade"]
    assert panel.message.value == ""
    assert "pipeline grpo + vade" in panel.became.value


def test_settings_methods_and_prompts_are_words_to_the_session():
    session = FakeSession(status="running")
    panel = notebook.controls(session)
    panel.apply.click()
    assert "write a figure first" in panel.message.value
    panel.settings["group_size"].value = "2.5"
    panel.apply.click()
    assert "Rollouts of each: &#x27;2.5&#x27; is no whole number" in panel.message.value
    panel.settings["group_size"].value, panel.settings["lr"].value = "8", "3e-5"
    panel.apply.click()
    assert "learning rate 3e-05</b> <span style='color:#8b949e'>asked, waits" in panel.became.value
    panel.others["pin"].click()
    assert "write the id of a prompt first" in panel.message.value
    panel.method.value, panel.prompt.value, panel.factor.value = " vade ", "p7", 3.0
    for word in ("add", "remove", "pin", "drop", "boost", "free", "checkpoint", "undo"):
        panel.others[word].click()
    assert session.said == [
        ("set", ("group_size", 8), ("lr", 3e-5)), ("add", "vade"), ("remove", "vade"), ("pin", "p7"), ("drop", "p7"),
        ("boost", "p7", 3.0), ("free", "p7"), ("checkpoint",), ("undo",),
    ]  # fmt: skip


def test_controls_say_what_became_of_each_request():
    session = FakeSession(status="running", n_steps=4)
    panel = notebook.controls(session)
    panel.prompt.value = "p7"
    panel.others["pin"].click()
    pin = session.last_request
    panel.method.value = "nope"
    panel.others["add"].click()
    add = session.last_request
    session.say(working="reading 4 steps for nope")
    assert panel.became.value.count("asked; reading 4 steps for nope …") == 2
    to = {"pinned": True, "available": True, "factor": 1.0}
    session.answers[pin.id] = {"kind": "pin", "step": 5, "who": "ada", "payload": {"prompt": "p7", "to": to}}
    why = {"kind": "add", "payload": add.payload, "why": "no method <nope>"}
    session.answers[add.id] = {"kind": "refused", "step": 4, "who": "ada", "payload": why}
    session.say(n_steps=4)
    lines = panel.became.value.split("</div>")
    assert "add nope" in lines[0]
    assert "refused: no method &lt;nope&gt;" in lines[0]
    assert "prompt p7: in every step" in lines[1]
    assert "acts at step 5, not made yet" in lines[1]
    session.say(n_steps=5)
    assert "applied at step 5" in panel.became.value
    panel.prompt.value = "p8"
    for _ in range(6):
        panel.others["drop"].click()
    assert panel.became.value.count("<div>") == 5


def test_a_click_during_a_refresh_is_not_forgotten():
    session = FakeSession(status="running", n_steps=4)
    panel = notebook.controls(session)
    panel.prompt.value = "p7"
    panel.others["pin"].click()
    clicks = []

    def answer(request):
        if not clicks:
            clicks.append(threading.Thread(target=panel.others["drop"].click))
            clicks[0].start()
            clicks[0].join(0.1)

    session.answer = answer
    session.say(n_steps=5)
    clicks[0].join()
    assert [a.request.kind for a in panel.sent] == ["drop", "pin"]


def shows(panel, text):
    """Wait until the list of what became of requests holds a text."""
    until(lambda: text in panel.became.value, or_say=lambda: panel.became.value)


@pytest.mark.slow
def test_controls_hear_of_a_refusal_in_another_process(elsewhere):
    _, remote = elsewhere
    panel = notebook.controls(remote)
    remote.pause().wait()
    panel.settings["lr"].value = "-1"
    panel.apply.click()
    panel.method.value = "nope"
    panel.others["add"].click()
    panel.settings["prompts"].value = "3"
    panel.apply.click()
    shows(panel, "SimWorld has no lr")
    shows(panel, "no method")
    until(lambda: f"acts at step {remote.n_steps + 1}" in panel.became.value, or_say=lambda: panel.became.value)


def test_controls_hear_of_a_paused_session(tmp_path):
    small = Experiment(model="sim", steps=9, budget=Budget(4, 16), world={"n_prompts": 12}, store=str(tmp_path))
    session = Session(small).start(paused=True)
    panel = notebook.controls(session)
    until(lambda: session.status == "paused")
    panel.settings["prompts"].value = "3"
    panel.apply.click()
    shows(panel, "acts at step 1")
    panel.others["undo"].click()
    shows(panel, "undone: prompts a step 3 → 4")
    session.stop()


@pytest.mark.slow
def test_controls_steer_a_run_of_another_process(elsewhere):
    process, remote = elsewhere
    panel = notebook.controls(remote)
    panel.buttons["pause"].click()
    until(lambda: remote.status == "paused")
    panel.settings["prompts"].value, panel.settings["group_size"].value = "3", "5"
    panel.apply.click()
    panel.refresh()
    panel.buttons["step"].click()
    asked = '"to": {"prompts": 3, "rollouts": 15}'
    until(lambda: asked in str(remote._store.ask("commands", run=remote.run_id)["payload"]))
    panel.buttons["stop"].click()
    assert process.wait(patience(30)) == 0


def test_live_serves_one_page_per_store(tmp_path):
    try:
        frame = notebook.live(str(tmp_path))
        assert frame.src.startswith("http://127.0.0.1:")
        assert notebook.live(str(tmp_path)).src == frame.src
        there = urlsplit(frame.src)
        connection = http.client.HTTPConnection("127.0.0.1", there.port, timeout=patience(20))
        connection.request("GET", there.path)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200
        assert "Rollout Workbench" in text
        assert "cdn." not in text
    finally:
        notebook.close()


def test_a_page_of_its_own_with_what_is_chosen(recording):
    rec = recording().go(1)
    try:
        with Store.open(recording.store) as store:
            frame = notebook.page(store, "tree", run=rec.run, step=1, prompt="a b", height=500)
        assert frame.src.rpartition("/")[2] == "tree?step=1&prompt=a+b"
        assert notebook.page(recording.store, "sql", run=rec.run).src.rpartition("/")[2] == "sql"
        with pytest.raises(ValueError, match="there is no page 'trees'; there are live, difficulty"):
            notebook.page(recording.store, "trees")
    finally:
        notebook.close()


def test_static_plots(recording):
    rec = recording().go(7)
    hv.extension("bokeh")
    with Store.open(recording.store) as store:
        plot = notebook.curves(store)
        assert isinstance(plot, hv.Overlay)
        learning = list(plot)[-1]
        assert learning.dimension_values("training_step").tolist() == [0, 6]
        hv.render(plot)
    picture = notebook.difficulty(recording.store, rec.run, order="stratum")
    assert picture.interface.shape(picture, gridded=True)[:2] == (40, 7)
    hv.render(picture)


def test_plots_of_an_empty_store_say_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="workbench demo"):
        notebook.read(str(tmp_path))
