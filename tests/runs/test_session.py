"""A session runs in the background and does what it is told, at the next step."""

from __future__ import annotations

import pytest

from workbench import Budget, Experiment, Session, Store

SMALL = Experiment(
    model="sim",
    steps=8,
    eval_every=0,
    checkpoint_every=0,
    budget=Budget(prompts=4, rollouts=16),
    world={"n_prompts": 40},
)


@pytest.fixture
def session(tmp_path):
    s = Session(SMALL.with_(store=str(tmp_path)))
    yield s
    s.stop()


def test_single_steps_then_the_rest(session) -> None:
    session.step().wait(steps=1)
    session.step(2).wait(steps=3)
    assert session.n_steps == 3
    session.resume().wait()
    assert (session.status, session.n_steps) == ("finished", 8)


def test_swap_acts_at_the_next_step_and_is_recorded(session) -> None:
    session.step().wait(steps=1)
    session.swap("grpo + vade")
    session.step().wait(steps=2)
    assert session.pipeline.decider("select").name == "vade"
    session.stop()
    assert session.status == "stopped"
    with Store.open(session.store_url) as store:
        swaps = [c for c in store.ask("commands", run=session.run_id).to_pylist() if c["kind"] == "swap"]
    assert [c["step"] for c in swaps] == [2]


def test_a_bad_swap_is_refused_and_changes_nothing(session) -> None:
    session.step().wait(steps=1)
    with pytest.raises(ValueError, match="no method 'nonsense'"):
        session.swap("grpo + nonsense")
    assert session.pipeline.decider("select").name == "mopps"


def test_what_waits_before_a_command_counts_for_it(session) -> None:
    """Asked from the training thread, between steps: nothing is taken meanwhile."""
    told: list[object] = []

    def ask(s: Session) -> None:
        if s.n_steps != 1 or told:
            return
        told.append(None)
        with pytest.raises(ValueError, match="nothing was commanded that still lasts"):
            s.undo()
        s.pause()
        with pytest.raises(ValueError, match="nothing was commanded that still lasts"):
            s.undo()
        s.add("vade").remove("vade").set(rollouts=64).undo()
        with pytest.raises(ValueError, match="no command 'ffff' was applied"):
            s.undo("ffff")
        told.append("asked")

    session.on_change(ask)
    session.step().wait(steps=1)
    session.step().wait(steps=2)
    assert told == [None, "asked"], session.message
    session.stop()
    with Store.open(session.store_url) as store:
        rows = store.ask("commands", run=session.run_id).to_pylist()
        asked = store.sql("SELECT sum(n) AS n FROM asks WHERE step = 2 AND purpose = 'train'")["n"][0].as_py()
    assert [r["kind"] for r in rows] == ["step", "pause", "swap", "swap", "set", "set", "step"]
    assert asked == 16


def test_a_failing_view_does_not_end_the_run(session) -> None:
    session.on_change(lambda s: 1 / 0)
    session.start().wait()
    assert session.status == "finished"
    assert "ZeroDivisionError" in session.message


def test_an_error_is_kept_and_raised_to_who_waits(tmp_path) -> None:
    session = Session(SMALL.with_(store=str(tmp_path), world={"n_prompts": 40, "nonsense": 1}))
    with pytest.raises(RuntimeError, match="nonsense"):
        session.start().wait()
    assert session.status == "failed"


def test_an_ended_session_says_so(session) -> None:
    session.start().wait()
    with pytest.raises(RuntimeError, match="this session is finished"):
        session.start()
