"""The pieces for a notebook cell, without a front end."""

import http.client
import time
from types import SimpleNamespace

import holoviews as hv
import numpy as np
import pytest

from workbench.store import Store
from workbench.views import notebook


class FakeSession:
    """A session that only remembers what it was told."""

    def __init__(self, **facts):
        self.status, self.n_steps, self.target_steps = "new", 0, 10
        self.last, self.error, self.run, self.store_url = None, None, "", "store"
        self.told, self.watchers = [], []
        self.__dict__.update(facts)

    def on_change(self, callback):
        self.watchers.append(callback)

    def say(self, **facts):
        self.__dict__.update(facts)
        for callback in self.watchers:
            callback(self)

    def start(self):
        self.told.append("start")
        self.say(status="running")

    def pause(self):
        self.told.append("pause")
        self.say(status="paused")

    def step(self):
        self.told.append("step")

    def stop(self, timeout=60):
        assert timeout == 0, "a click must not block the kernel"
        self.told.append("stop")

    def __getattr__(self, word):
        if word not in ("set", "add", "remove", "pin", "drop", "boost", "free", "checkpoint", "undo"):
            raise AttributeError(word)
        return lambda *given, **settings: self.told.append((word, *given, *settings.items()))

    def swap(self, pipeline):
        if pipeline == "nonsense":
            raise ValueError("no method 'nonsense'; there are grpo")
        self.told.append(pipeline)


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
    assert session.told == ["start", "pause", "step", "stop"]


def test_progress_and_status_follow_the_session():
    session = FakeSession()
    panel = notebook.controls(session)
    session.say(status="running", n_steps=3, run="r<1>", last=None)
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
    assert "write a pipeline first" in panel.said.value
    panel.pipeline.value = "nonsense"
    panel.swap.click()
    assert "not swapped: no method &#x27;nonsense&#x27;; there are grpo" in panel.said.value
    panel.pipeline.value = "grpo + vade"
    panel.swap.click()
    assert session.told == ["grpo + vade"]
    assert "acts from the next step on" in panel.said.value


def test_settings_methods_and_prompts_are_words_to_the_session():
    session = FakeSession(status="running")
    panel = notebook.controls(session)
    panel.apply.click()
    assert "write a figure first" in panel.said.value
    panel.settings["group_size"].value = "2.5"
    panel.apply.click()
    assert "Rollouts of each: &#x27;2.5&#x27; is no whole number" in panel.said.value
    panel.settings["group_size"].value, panel.settings["lr"].value = "8", "3e-5"
    panel.apply.click()
    assert "acts from the next step on" in panel.said.value
    panel.others["pin"].click()
    assert "write the id of a prompt first" in panel.said.value
    panel.method.value, panel.prompt.value, panel.factor.value = " vade ", "p7", 3.0
    for word in ("add", "remove", "pin", "drop", "boost", "free", "checkpoint", "undo"):
        panel.others[word].click()
    assert session.told == [
        ("set", ("group_size", 8), ("lr", 3e-5)), ("add", "vade"), ("remove", "vade"), ("pin", "p7"), ("drop", "p7"),
        ("boost", "p7", 3.0), ("free", "p7"), ("checkpoint",), ("undo",),
    ]  # fmt: skip


def test_controls_steer_a_run_of_another_process(elsewhere):
    process, remote = elsewhere
    panel = notebook.controls(remote)
    panel.buttons["pause"].click()
    end = time.monotonic() + 30
    while remote.status != "paused":
        assert time.monotonic() < end
        time.sleep(0.05)
    panel.settings["prompts"].value, panel.settings["group_size"].value = "3", "5"
    panel.apply.click()
    panel.refresh()
    panel.buttons["step"].click()
    while '"to": {"prompts": 3, "rollouts": 15}' not in str(remote._store.ask("commands", run=remote.run)["payload"]):
        assert time.monotonic() < end
        time.sleep(0.05)
    panel.buttons["stop"].click()
    assert process.wait(30) == 0


def test_live_serves_one_page_per_store(tmp_path):
    try:
        frame = notebook.live(str(tmp_path))
        assert frame.src.startswith("http://127.0.0.1:")
        assert notebook.live(str(tmp_path)).src == frame.src
        port = int(frame.src.rsplit(":", 1)[1].strip("/"))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/")
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
        assert frame.src.partition("127.0.0.1:")[2].partition("/")[2] == "tree?step=1&prompt=a+b"
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
