"""The steering bar without a browser: what it says, for how long, what it reads from its fields, and who asks."""

import pytest

from workbench import Budget, Experiment
from workbench.runs.run import Run
from workbench.runs.steering.inbox import Inbox
from workbench.runs.steering.requests import Request, current_user
from workbench.views.data.run import Source
from workbench.views.data.selection import Selection
from workbench.views.data.settings import figure
from workbench.views.parts import steering_bar
from workbench.views.parts.browser import Browser
from workbench.views.parts.steering_bar import SteeringBar

SMALL = Experiment(
    model="sim", steps=50, eval_every=0, checkpoint_every=0, budget=Budget(4, 32), world={"n_prompts": 40}
)


class Clock:
    """Seconds that pass when they are told to."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(steering_bar, "time", clock)
    return clock


@pytest.fixture
def steered(tmp_path, clock):
    """A run that goes on, its bar, and a look of the page at it."""
    with Run(SMALL.with_(store=str(tmp_path))) as run:
        assert run.ready()
        run.step()
        bar = SteeringBar(Selection(), may=True, browser=Browser(who="ada"))

        def look():
            run.record.writer.flush()
            source = Source.of(str(tmp_path))
            source.refresh(0)
            data = source.run(run.run_id)
            data.refresh()
            bar.update(data)
            return bar.message.object

        look()
        yield run, bar, look


def test_an_answer_stays_until_the_next_click_or_command(steered, clock):
    run, bar, look = steered
    bar._prompt("pin")
    for seconds in (0, 5, 60):
        clock.now += seconds
        assert "Choose a prompt first" in look()
    bar._apply()
    assert "Nothing was changed" in look()
    run.queue.put(Request.of("set", {"rollouts": 64}, "eve"))
    run.ready()
    clock.now += steering_bar.READ - 1
    assert "Nothing was changed" in look(), "somebody else's command came too soon to have read it"
    clock.now += 2
    assert "rollouts 32 → 64" in look()
    bar._prompt("pin")
    bar._ask("pause")
    assert "<b>pause</b>" in look()


def test_a_store_that_cannot_be_written_is_said_and_stays_said(steered, monkeypatch):
    _, bar, look = steered

    def refuse(self, request):
        raise PermissionError("inbox cannot be written: who steers a run needs to write to its store")

    monkeypatch.setattr(Inbox, "put", refuse)
    bar._ask("pause")
    assert "cannot be written" in look()


def test_figures_are_shown_and_read_as_written(steered):
    run, bar, look = steered
    assert bar.settings["prompts"].value == "4"
    bar.settings["lr"].value = "fast"
    bar._apply()
    assert "Learning rate: &#x27;fast&#x27; is no number" in look()
    assert bar.settings["lr"].value == "fast"
    bar.settings["lr"].value = " 5e-7 "
    bar.settings["prompts"].value = "5"
    bar._apply()
    (request,) = Inbox(run.experiment.store, run.run_id).waiting()
    assert (request.payload, request.who) == ({"prompts": 5, "lr": 5e-7}, "ada, page")
    bar._fill(bar._shown._replace(lr=5e-7))
    assert bar.settings["lr"].value == "5e-07"
    assert figure("lr", bar.settings["lr"].value) == 5e-7


def test_what_was_refused_gives_way_to_what_is_in_force(steered):
    run, bar, look = steered
    bar.settings["prompts"].value = "99"
    bar.pipeline.value_input = "grpo + nonsense"
    bar._apply()
    assert bar.settings["prompts"].value == "99", "while it is asked"
    run.ready()
    assert "refused: 99 prompts a step are more than the 40" in look()
    assert bar.settings["prompts"].value == "4"
    assert bar.pipeline.value_input == "grpo + nonsense", "what is being written stays"


def test_undone_commands_are_not_offered_to_be_undone(steered):
    run, bar, look = steered
    bar.open.value = True
    done = Request.of("set", {"rollouts": 64}, "ada")
    for request in (done, Request.of("drop", {"prompt": str(run.world.pool.ids[0])}, "ada")):
        run.queue.put(request)
    run.ready()
    look()
    assert len(bar.undoing.options) == 2
    run.queue.put(Request.of("undo", {"id": done.id}, "ada"))
    run.ready()
    assert "undone: rollouts 64 → 32" in look()
    assert [label.partition(": ")[2] for label in bar.undoing.options] == [
        f"prompt {run.world.pool.ids[0]}: out of the pool"
    ]


def test_what_takes_long_stands_in_the_bar(steered):
    run, _, look = steered
    request = Inbox(run.experiment.store, run.run_id).put(Request.of("add", {"method": "vade"}, "ada"))
    assert "asked, waits for the step in hand" in look()
    Inbox(run.experiment.store, run.run_id).set_working_status(request.id, "reading 556 steps for vade")
    assert "asked; reading 556 steps for vade …" in look()


def test_who_asks_is_what_the_browser_keeps_else_the_user_of_the_server():
    bar = SteeringBar(Selection())
    assert bar.who == f"{current_user()}, page"
    bar.browser.who = "grace"
    assert (bar.who, bar.name.value) == ("grace, page", "grace")
    bar.name.value = " ada "
    assert (bar.who, bar.browser.who) == ("ada, page", "ada")


def test_what_is_being_typed_stays_when_somebody_else_commands(steered):
    run, bar, look = steered
    bar.settings["prompts"].value_input = "1"
    bar.settings["group_size"].param.update(value="7", value_input="7")  # as a browser reports both
    bar.pipeline.value_input = "grpo + v"
    run.queue.put(Request.of("set", {"prompts": 8}, "eve"))
    run.ready()
    look()
    assert bar.settings["prompts"].value_input == "1"
    assert bar.pipeline.value_input == "grpo + v"
    assert bar.settings["group_size"].value == "7"


def test_undo_is_offered_once_there_is_something_to_undo(steered):
    run, bar, look = steered
    bar.open.value = True
    assert not bar.undoing.visible and not bar.undo.visible
    run.queue.put(Request.of("set", {"rollouts": 64}, "eve"))
    run.ready()
    run.step()
    look()
    assert bar.undoing.visible and bar.undo.visible
