"""Commands act at the next step, are recorded by it with who asked, are refused with a reason, and outlive a kill."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.timing import patience, until
from workbench import Budget, Experiment, Session, Store
from workbench.pipeline import Pipeline, PromptSettings, rehearse
from workbench.pipeline.rounds import boosted
from workbench.runs.run import Run
from workbench.runs.steering.inbox import Inbox
from workbench.runs.steering.queue import RequestQueue
from workbench.runs.steering.remote import Remote
from workbench.runs.steering.requests import Request
from workbench.store import StoreError
from workbench.types import Plan

SMALL = Experiment(
    model="sim",
    steps=400,
    eval_every=0,
    checkpoint_every=0,
    budget=Budget(prompts=4, rollouts=32),
    world={"n_prompts": 40},
)


@pytest.fixture
def run(tmp_path):
    """A run of four prompts and 32 rollouts a step, two steps old."""
    with Run(SMALL.with_(store=str(tmp_path))) as r:
        for _ in range(2):
            assert r.ready()
            r.step()
        yield r


def tell(run: Run, kind: str, **payload) -> dict:
    """Leave a request as a viewer of another process does, make a step; the command that was recorded."""
    request = Inbox(run.experiment.store, run.run_id).put(Request.of(kind, payload, "ada"))
    if run.ready(stop=lambda: run.queue.paused):
        run.step()
    run.record.writer.flush()
    return commands(run)[request.id]


def commands(run: Run) -> dict[str, dict]:
    with Store.open(run.experiment.store) as store:
        rows = store.ask("commands", run=run.run_id).to_pylist()
    found = [{**r, "payload": json.loads(r["payload"])} for r in rows]
    return {c["payload"]["id"]: c for c in found}


def asked(run: Run) -> dict[str, int]:
    """Rollouts of the last step by prompt id."""
    plan = run.last.plan
    return {str(run.world.pool.ids[p]): int(n) for p, n in zip(plan.prompt, plan.n, strict=True)}


def test_a_budget_is_set_by_the_step_that_spends_it(run) -> None:
    done = tell(run, "set", prompts=6, group_size=3)
    assert (done["kind"], done["step"], done["who"]) == ("set", 3, "ada")
    assert done["payload"]["to"] == {"prompts": 6, "rollouts": 18}
    assert done["payload"]["before"] == {"prompts": 4, "rollouts": 32}
    assert sorted(asked(run).values()) == [3] * 6
    assert Inbox(run.experiment.store, run.run_id).files() == []


def test_what_was_set_is_undone(run) -> None:
    done = tell(run, "set", rollouts=64)
    undone = tell(run, "undo", id=done["payload"]["id"])
    assert undone["payload"]["undoes"] == done["payload"]["id"]
    assert run.state.budget == Budget(4, 32)
    again = tell(run, "undo", id=undone["payload"]["id"])
    assert (again["kind"], run.state.budget.rollouts) == ("set", 64)
    drop = tell(run, "drop", prompt=str(run.world.pool.ids[0]))
    assert tell(run, "undo")["payload"]["undoes"] == drop["payload"]["id"]
    assert tell(run, "undo")["payload"]["undoes"] == done["payload"]["id"], "it holds again: its undo was undone"
    assert run.state.budget.rollouts == 32
    assert "nothing was commanded that still lasts" in tell(run, "undo")["payload"]["why"]


def test_a_pinned_prompt_is_in_every_step_and_a_dropped_one_in_none(run) -> None:
    pin, drop = map(str, run.world.pool.ids[[7, 8]])
    tell(run, "pin", prompt=pin)
    done = tell(run, "drop", prompt=drop)
    for _ in range(12):
        assert run.last.prompts[0] == 7
        assert len(asked(run)) == 4
        assert drop not in asked(run)
        run.step()
    assert done["payload"]["before"] == {"pinned": False, "available": True, "factor": 1.0}
    tell(run, "undo", id=done["payload"]["id"])
    assert run.state.available.all()
    tell(run, "free", prompt=pin)
    assert run.state.prompt_settings.pinned.tolist() == []


def test_a_boost_takes_from_the_others_of_the_step(run) -> None:
    prompt = str(run.world.pool.ids[3])
    tell(run, "pin", prompt=prompt)
    tell(run, "boost", prompt=prompt, factor=5)
    assert asked(run)[prompt] == 20
    assert sorted(asked(run).values()) == [4, 4, 4, 20]


@pytest.mark.parametrize(("rollouts", "left"), [(4, 1), (8, 2)])
def test_a_boost_that_would_change_nothing_is_refused(run, rollouts, left) -> None:
    prompt = str(run.world.pool.ids[3])
    tell(run, "set", rollouts=rollouts)
    why = tell(run, "boost", prompt=prompt, factor=3)["payload"]["why"]
    assert why.startswith(f"a boost of 3 would change nothing: {rollouts} rollouts for 4 prompts give this one {left},")
    assert run.state.prompt_settings.boost is None
    tell(run, "set", rollouts=12)
    assert tell(run, "boost", prompt=prompt, factor=3)["kind"] == "boost"


def test_what_takes_long_is_said_while_it_is_done(run, monkeypatch) -> None:
    inbox, said = Inbox(run.experiment.store, run.run_id), []
    monkeypatch.setattr(
        "workbench.methods.vade.Vade.observe", lambda self, *_: said.append(inbox.working_status()) or _[0]
    )
    request = inbox.put(Request.of("add", {"method": "vade"}, "ada"))
    assert run.ready()
    assert said == [(request.id, "reading 2 steps for vade")] * 2
    assert inbox.working_status() == ("", "")
    assert run.queue.outcomes[request.id].kind == "swap"


def test_boosted_plans_spend_what_was_planned() -> None:
    plan = Plan(np.arange(4), np.array([8, 8, 8, 1]), purpose=np.array(["train"] * 3 + ["probe"], dtype=object))
    assert boosted(plan, np.array([2.0, 1.0, 1.0, 9.0])).n.tolist() == [12, 6, 6, 1]
    assert boosted(plan, np.array([100.0, 1.0, 1.0, 1.0])).n.tolist() == [20, 2, 2, 1]
    assert boosted(plan, np.ones(4)) is plan


def test_pins_that_fill_the_step_leave_nothing_to_select() -> None:
    from workbench.worlds import SimWorld

    world, pipeline = SimWorld(n_prompts=10, seed=0), Pipeline.parse("grpo + mopps")
    plan = rehearse(
        pipeline,
        pipeline.init(world.pool),
        Budget(2, 8),
        step=1,
        available=np.ones(10, bool),
        prompt_settings=PromptSettings(np.array([9, 4])),
    )
    assert plan.prompt.tolist() == [9, 4]
    assert plan.n.tolist() == [4, 4]


def test_methods_are_added_swapped_removed_and_put_back(run) -> None:
    added = tell(run, "add", method="vade(lambda_sample=0.8)")
    assert added["kind"] == "swap"
    assert run.pipeline.text == "grpo + mopps + vade(lambda_sample=0.8)"
    assert run.pipeline.decider("select").name == "vade"
    tell(run, "add", method="vade")
    assert run.pipeline.text == "grpo + mopps + vade"
    tell(run, "remove", method="mopps")
    assert run.pipeline.text == "grpo + vade"
    tell(run, "undo", id=added["payload"]["id"])
    assert run.pipeline.text == "grpo + mopps"
    tell(run, "swap", pipeline="dapo")
    assert run.pipeline.text == "dapo"


def test_a_checkpoint_is_taken_when_it_is_asked_for(run) -> None:
    done = tell(run, "checkpoint")
    assert (done["kind"], done["step"]) == ("checkpoint", 2)
    assert [p.name for p in run.record.checkpoints.iterdir()] == ["step-000002"]


@pytest.mark.parametrize(
    ("kind", "payload", "why"),
    [
        ("set", {"rollouts": -3}, "rollouts must be a whole number of at least 1, got -3"),
        ("set", {"rollouts": 2}, "a step of 4 prompts and 2 rollouts cannot give every prompt one rollout"),
        ("set", {"rollouts": float("inf")}, "rollouts must be a whole number"),
        ("set", {"prompts": 41}, "41 prompts a step are more than the 40 there are"),
        ("set", {"rollouts": 64, "group_size": 8}, "give one of them"),
        ("set", {"speed": 3}, "speed cannot be set; prompts, rollouts, group_size, temperature and lr can"),
        ("set", {"lr": 1e-4}, "SimWorld has no lr to set; a live model has one"),
        ("pin", {"prompt": "<b>nobody"}, "this run has no prompt '<b>nobody'; its 40 ids are in the table prompts"),
        ("boost", {"prompt": "?", "factor": 2}, "this run has no prompt"),
        ("step", {"n": 0}, "n must be a whole number of at least 1, got 0"),
        ("swap", {"pipeline": "grpo + nonsense"}, "no method 'nonsense'; there are"),
        ("swap", {"pipeline": ""}, "to swap needs a pipeline, for example grpo + mopps"),
        ("swap", {"pipeline": [{"method": "grpo", "x": {}}]}, "grpo: "),
        ("swap", {"pipeline": "mopps"}, "acts at estimate; add one that does"),
        ("add", {"method": "latr"}, "LATR"),
        ("remove", {"method": "vade"}, "vade is not in the pipeline; grpo, mopps are"),
        ("remove", {"method": "grpo"}, "acts at estimate; add one that does"),
        ("undo", {"id": "0"}, "no command '0' was applied in this run"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(run, kind, payload, why) -> None:
    before = run.pipeline.text, run.state.budget, run.n_steps
    done = tell(run, kind, **payload)
    assert done["kind"] == "refused"
    assert why.lower() in done["payload"]["why"].lower()
    assert (run.pipeline.text, run.state.budget, run.n_steps) == (before[0], before[1], before[2] + 1)


def test_a_boost_needs_a_factor_and_a_pin_a_place(run) -> None:
    ids = [str(i) for i in run.world.pool.ids]
    assert "factor must be a number from 0.1 to 100" in tell(run, "boost", prompt=ids[0], factor=0)["payload"]["why"]
    for prompt in ids[:4]:
        tell(run, "pin", prompt=prompt)
    assert "4 prompts are pinned and a step has 4; free one" in tell(run, "pin", prompt=ids[4])["payload"]["why"]
    assert "pinned" in tell(run, "set", prompts=3, rollouts=32)["payload"]["why"]


def test_a_file_that_is_no_request_is_refused_and_ends_nothing(run) -> None:
    inbox = Inbox(run.experiment.store, run.run_id)
    inbox.folder.mkdir(parents=True)
    for i, text in enumerate(
        ("{", "[]", "null", '{"payload": {}}', "x" * 70_000, '{"kind": "set", "payload": {"lr": []}}')
    ):
        (inbox.folder / f"{i}-{i}.json").write_text(text)
    assert run.ready()
    run.step()
    run.record.writer.flush()
    with Store.open(run.experiment.store) as store:
        kinds = [c["kind"] for c in store.ask("commands", run=run.run_id).to_pylist()]
    assert kinds == ["refused"] * 6
    assert inbox.files() == []


def test_a_method_that_fails_when_it_is_put_in_is_refused_and_changes_nothing(run) -> None:
    before = run.pipeline.text, run.state.states
    done = tell(run, "swap", pipeline="grpo + vade(lambda_sample='x')")
    assert done["kind"] == "refused"
    assert "swap cannot be done: " in done["payload"]["why"]
    assert (run.pipeline.text, run.n_steps) == (before[0], 3)
    assert run.state.states.keys() == before[1].keys()
    assert tell(run, "swap", pipeline="grpo + vade")["kind"] == "swap"


def test_a_checkpoint_and_a_setting_that_fail_are_refused(run, monkeypatch) -> None:
    kept = {"temperature": 1.0, "lr": 1e-4}

    def set_setting(name: str, value: float) -> None:
        if name == "lr":
            raise RuntimeError("no optimiser")
        kept[name] = value

    monkeypatch.setattr(type(run.world), "settings", property(lambda self: dict(kept)))
    monkeypatch.setattr(run.world, "set_setting", set_setting)
    done = tell(run, "set", rollouts=64, temperature=0.5, lr=1e-3)
    assert done["payload"]["why"] == "set cannot be done: RuntimeError: no optimiser"
    assert (run.state.budget.rollouts, kept) == (32, {"temperature": 1.0, "lr": 1e-4})

    def fail(folder) -> None:
        raise TypeError("cannot pickle")

    monkeypatch.setattr(run.world, "save", fail)
    assert "checkpoint cannot be done: TypeError: cannot pickle" in tell(run, "checkpoint")["payload"]["why"]
    assert list(run.record.checkpoints.iterdir()) == []


def test_a_command_that_cannot_be_done_again_is_a_warning(run) -> None:
    run.queue.to_restore = [
        (3, "swap", {"to": [{"method": "gone"}]}),
        (3, "set", {"to": {"prompts": 6, "rollouts": 36}}),
    ]
    assert run.ready()
    run.step()
    run.record.writer.flush()
    assert (run.pipeline.text, run.state.budget) == ("grpo + mopps", Budget(6, 36))
    with Store.open(run.experiment.store) as store:
        (event,) = [e for e in store.ask("events", run=run.run_id).to_pylist() if e["subject"] == "steering"]
    assert event["kind"] == "warning"
    assert event["message"].startswith("swap, commanded of step 3, could not be done again: ")


HALF = '{"kind": "pin", "payload": {"prompt": "\\ud800"}}'


@pytest.mark.parametrize("depth", [40, 700, 20_000])
def test_what_the_record_cannot_hold_is_refused(run, depth) -> None:
    inbox = Inbox(run.experiment.store, run.run_id)
    inbox.folder.mkdir(parents=True)
    deep = f'{{"kind": "set", "payload": {{"lr": {"[" * depth}{"]" * depth}}}}}'
    who = '{"kind": "stop", "payload": {}, "who": "\\udfff"}'
    for i, text in enumerate((deep, HALF, who)):
        (inbox.folder / f"{i}-{i}.json").write_text(text)
    (inbox.folder / os.fsdecode(b"3-\xff.json")).write_text("{")
    assert inbox.waiting() == []
    assert run.ready()
    run.step()
    run.record.writer.flush()
    found = commands(run)
    assert sorted(found) == ["0", "1", "2", "?"]
    assert {c["kind"] for c in found.values()} == {"refused"}
    assert "at most 32 deep" in found["0"]["payload"]["payload"]["error"]
    assert "half a surrogate pair" in found["1"]["payload"]["payload"]["error"]


def test_what_the_record_cannot_hold_is_not_asked() -> None:
    with pytest.raises(ValueError, match="half a surrogate pair"):
        Request.of("pin", {"prompt": ["\ud800"]})
    with pytest.raises(ValueError, match="half a surrogate pair"):
        Request.of("pause", {}, "eve\udfff")
    deep: list = []
    deep.append(deep)
    with pytest.raises(ValueError, match="at most 32 deep"):
        Request.of("swap", {"pipeline": deep})


def test_a_file_that_cannot_be_taken_away_is_handled_once(tmp_path, monkeypatch) -> None:
    def refuse(path, missing_ok=False) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    with Run(SMALL.with_(store=str(tmp_path))) as run:
        inbox = Inbox(str(tmp_path), run.run_id)
        one = inbox.put(Request.of("set", {"rollouts": 64}, "ada"))
        monkeypatch.setattr(Path, "unlink", refuse)
        assert run.ready()
        read = []
        monkeypatch.setattr(Inbox, "read", lambda path: read.append(path))
        assert run.ready()
        run.step()
        assert (read, run.state.budget.rollouts) == ([], 64)
        monkeypatch.undo()
        monkeypatch.setattr(Path, "unlink", refuse)
        last = inbox.put(Request.of("pause", {}, "ada"))
    monkeypatch.undo()
    assert {i: c["kind"] for i, c in commands(run).items()} == {one.id: "set", last.id: "refused"}


def test_a_control_word_left_from_before_a_resume_is_refused(tmp_path) -> None:
    cut = SMALL.with_(checkpoint_every=1, store=str(tmp_path))
    with Run(cut) as first:
        assert first.ready()
        first.step()
    inbox = Inbox(str(tmp_path), first.run_id)
    words = [inbox.put(Request.of(kind, {}, "ada")) for kind in ("stop", "pause", "step", "resume")]
    kept = inbox.put(Request.of("set", {"rollouts": 64}, "ada"))
    queue = RequestQueue()
    queue.put(Request.of("resume", {}))
    with Run(cut, resume=first.run_id, queue=queue) as run:
        assert run.ready()
        run.step()
        run.record.writer.flush()
        found = commands(run)
        assert {found[w.id]["payload"]["why"] for w in words} == {"asked before the run was resumed; ask again"}
        assert (found[kept.id]["kind"], run.state.budget.rollouts) == ("set", 64)
        assert [c["kind"] for c in found.values()].count("resume") == 1
        inbox.put(Request.of("stop", {}, "ada"))
        assert not run.ready()


def test_a_request_that_was_applied_before_a_crash_is_not_applied_again(run) -> None:
    done = tell(run, "undo", id=tell(run, "set", rollouts=64)["payload"]["id"])
    first = next(c for c in commands(run).values() if c["payload"].get("to") == {"prompts": 4, "rollouts": 64})
    left = Request(first["payload"]["id"], "set", {"rollouts": 64}, "ada", "")
    Inbox(run.experiment.store, run.run_id).put(left)
    assert run.ready()
    assert run.state.budget.rollouts == 32
    assert len(commands(run)) == 2
    assert done["kind"] == "set"


def test_what_waits_when_the_run_ends_is_refused(tmp_path) -> None:
    with Run(SMALL.with_(store=str(tmp_path), steps=1)) as run:
        run.step()
        Inbox(str(tmp_path), run.run_id).put(Request.of("pause", {}, "ada"))
    (found,) = commands(run).values()
    assert (found["kind"], found["payload"]["why"]) == ("refused", "the run has ended")
    assert not (tmp_path / "inbox" / run.run_id).exists()


def test_temperature_and_learning_rate_of_a_live_model(tmp_path) -> None:
    experiment = Experiment(model="tiny", steps=3, store=str(tmp_path), eval_every=1, budget=Budget(2, 4),
                            world={"samples": 1, "max_tokens": 8}, task_options={"size": 8, "evaluation": 2})  # fmt: skip
    seen = []
    with Run(experiment) as run:
        evaluate = run.world.evaluate
        run.world.evaluate = lambda step: seen.append(run.world.temperature) or evaluate(step)
        run.ready()
        run.step()
        done = tell(run, "set", temperature=0.7, lr=3e-5)
    assert done["payload"]["to"] == {"temperature": 0.7, "lr": 3e-5}
    assert done["payload"]["before"] == {"temperature": 1.0, "lr": 1e-4}
    assert (run.world.temperature, run.world.policy.temperature, run.world.policy.lr) == (0.7, 0.7, 3e-5)
    assert set(seen) == {1.0}, "the measure of learning keeps its temperature"


def test_a_resumed_run_makes_the_plans_of_an_uninterrupted_one_with_all_commands(tmp_path) -> None:
    def steer(run: Run, last: int) -> list:
        ids = [str(i) for i in run.world.pool.ids]
        plans = []
        wanted = {
            2: ("set", {"rollouts": 48}),
            3: ("pin", {"prompt": ids[5]}),
            4: ("swap", {"pipeline": "grpo + vade"}),
            6: ("drop", {"prompt": ids[6]}),
            7: ("boost", {"prompt": ids[5], "factor": 3.0}),
            8: ("add", {"method": "mopps"}),
        }
        while run.n_steps < last:
            number = run.n_steps + 1
            if number in wanted and not any(o.kind == wanted[number][0] for o in run.queue.outcomes.values()):
                run.queue.put(Request.of(*wanted[number], "ada"))
            assert run.ready()
            step = run.step()
            plans.append((step.plan.prompt.tolist(), step.plan.n.tolist()))
        return plans

    steady = SMALL.with_(checkpoint_every=5, steps=12)
    with Run(steady.with_(store=str(tmp_path / "whole"))) as run:
        whole = steer(run, 12)
    cut = steady.with_(store=str(tmp_path / "cut"))
    first = Run(cut)
    steer(first, 9)  # the checkpoint is that of step 5: 6 to 9 are made again
    first.record.writer.flush()
    first.record.writer._backend.close()  # as after a kill: no status, no checkpoint
    for at, experiment in ((5, cut), (10, Experiment.recorded(cut.store, first.run_id))):
        again = Run(experiment, resume=first.run_id)
        assert again.n_steps == at
        plans = []
        while not again.done:
            assert again.ready()
            step = again.step()
            plans.append((step.plan.prompt.tolist(), step.plan.n.tolist()))
        assert plans == whole[at:]
        again.record.writer.flush()
        again.record.writer._backend.close()
    assert len(commands(again)) == 6


def test_what_a_resumed_experiment_says_anew_wins_over_older_commands(tmp_path) -> None:
    cut = SMALL.with_(checkpoint_every=1, store=str(tmp_path), steps=9)
    with Run(cut) as run:
        run.step()
        tell(run, "set", rollouts=64)
        tell(run, "swap", pipeline="grpo + vade")
    with Run(cut, resume=run.run_id) as same:
        assert (same.state.budget.rollouts, same.pipeline.text) == (64, "grpo + vade")
    with Run(cut.with_(budget=Budget(4, 16), pipeline="dapo"), resume=run.run_id) as other:
        assert (other.state.budget.rollouts, other.pipeline.text) == (16, "dapo")


def test_a_session_takes_the_same_words(tmp_path) -> None:
    session = Session(SMALL.with_(store=str(tmp_path), steps=8), who="grace")
    session.step().wait(steps=1)
    with pytest.raises(ValueError, match="rollouts must be a whole number"):
        session.set(rollouts=0)
    session.set(group_size=4)
    asked = session.last_request
    assert session.answer(asked) is None
    session.step().wait(steps=2)
    done = session.answer(asked)
    assert (done["kind"], done["step"], done["who"], done["payload"]["to"]) == (
        "set", 2, "grace", {"prompts": 4, "rollouts": 16}
    )  # fmt: skip
    assert len(session.last.rollouts) == 16
    session.add("vade").remove("mopps").step().wait(steps=3)
    assert session.pipeline.text == "grpo + vade"
    session.resume().wait()
    with Store.open(tmp_path) as store:
        rows = store.ask("commands", run=session.run_id).to_pylist()
    assert [(r["kind"], r["who"]) for r in rows if r["kind"] != "step"] == [
        ("set", "grace"), ("swap", "grace"), ("swap", "grace"), ("resume", "grace")
    ]  # fmt: skip


def test_a_session_says_what_takes_long_while_it_is_done(tmp_path) -> None:
    session = Session(SMALL.with_(store=str(tmp_path), steps=8)).step().wait(steps=1)
    said = []
    added = session.add("vade").last_request
    session.on_change(lambda s: said.append(s.working_status(added)))
    session.resume().wait()
    assert "reading 1 step for vade" in said
    assert said[-1] == ""


def test_one_asks_while_the_run_is_prepared(tmp_path) -> None:
    queue = RequestQueue()
    queue.put(Request.of("pause", {}))
    with Run(SMALL.with_(store=str(tmp_path)), queue=queue) as run:
        seen = []
        assert not run.ready(stop=lambda: len(seen) > 1, on_wait=lambda: seen.append(1))
        assert queue.paused


def test_a_remote_goes_on_watching_a_store_that_could_not_be_read_once(tmp_path, monkeypatch) -> None:
    with Run(SMALL.with_(store=str(tmp_path))) as run:
        remote = Remote(str(tmp_path), run.run_id)
        ask, failed, called = remote._store.ask, [], threading.Event()

        def once(question, **params):
            if not failed:
                failed.append(question)
                raise StoreError("compacted at this moment")
            return ask(question, **params)

        monkeypatch.setattr(remote._store, "ask", once)
        remote.on_change(lambda _: called.set(), period=0.01)
        assert called.wait(patience(20))
        assert failed == ["commands"]


@pytest.mark.slow
def test_every_word_reaches_a_run_in_another_process(elsewhere) -> None:
    process, remote = elsewhere
    assert remote.pause().wait()["kind"] == "pause"
    assert remote.status == "paused"
    at = remote.n_steps
    with Store.open(remote.store_url) as store:
        ids = store.sql("SELECT prompt_id FROM prompts WHERE pool = 'train' ORDER BY position")["prompt_id"].to_pylist()
    words = [
        (lambda: remote.set(prompts=5, rollouts=40), "set"),
        (lambda: remote.pin(ids[0]), "pin"),
        (lambda: remote.drop(ids[1]), "drop"),
        (lambda: remote.boost(ids[0], 2.5), "boost"),
        (lambda: remote.free(ids[1]), "free"),
        (lambda: remote.add("vade"), "swap"),
        (lambda: remote.remove("mopps"), "swap"),
        (lambda: remote.swap("dapo"), "swap"),
    ]
    assert remote.n_steps == at  # it has paused
    for say, kind in words:
        request = say().last_request
        remote.step()
        done = remote.wait(request)
        assert (done["kind"], done["who"], done["step"]) == (kind, "viewer", remote.n_steps)
        assert remote.checkpoint().wait()["kind"] == "checkpoint"
    undo = remote.undo(done["payload"]["id"]).last_request
    remote.step()
    assert remote.wait(undo)["payload"]["to"] == [{"method": "grpo"}, {"method": "vade"}]
    with pytest.raises(ValueError, match="no method 'nonsense'"):
        remote.swap("nonsense").wait()
    at = remote.n_steps
    remote.resume().wait()
    until(lambda: remote.n_steps >= at + 3)
    remote.stop()
    assert process.wait(patience(30)) == 0
    assert remote.status == "stopped"
    with pytest.raises(ValueError, match="is stopped: nobody is there to be asked"):
        remote.pause()


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_settings_that_commands_left(elsewhere, tmp_path) -> None:
    process, remote = elsewhere
    remote.set(rollouts=80).wait()
    remote.swap("grpo + vade").wait()
    at = remote.n_steps
    until(lambda: remote.n_steps >= at + 6)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(patience(20))
    again = Experiment.from_toml(tmp_path / "e.toml")
    with Run(again, resume=remote.run_id) as run:
        assert (run.state.budget, run.pipeline.text) == (Budget(4, 80), "grpo + vade")
        run.ready()
        assert run.step().plan.n_rollouts == 80


@pytest.mark.parametrize("kind", ["pipe", "link", "device", "folder", "broken link", "socket"])
def test_what_is_no_regular_file_in_an_inbox_is_refused_and_training_goes_on(run, tmp_path, kind):
    inbox = Inbox(run.experiment.store, run.run_id)
    inbox.folder.mkdir(parents=True, exist_ok=True)
    there = inbox.folder / "1-bad.json"
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps(Request.of("pause", {}, "eve")._asdict()))
    if kind == "pipe":
        os.mkfifo(there)
        os.mkfifo(inbox.folder / ".working.tmp")  # what the trainer itself writes through
        os.mkfifo(inbox.folder / ".working.json")
    elif kind == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as end:
            here = Path.cwd()
            os.chdir(inbox.folder)  # a socket's path is short
            end.bind(there.name)
            os.chdir(here)
    elif kind == "folder":
        there.mkdir()
    else:
        there.symlink_to({"link": secret, "device": "/dev/zero", "broken link": tmp_path / "nothing"}[kind])
    assert run.ready(lambda: run.queue.paused)
    run.step()
    assert inbox.waiting() == [] and inbox.working_status() == ("", "")
    inbox.set_working_status("x", "at work")
    assert inbox.working_status() == ("x", "at work") and not run.queue.paused
    run.record.writer.flush()
    [refused] = [c for c in commands(run).values() if c["kind"] == "refused"]
    assert "regular file" in refused["payload"]["payload"]["error"] or kind == "broken link"
    assert run.n_steps == 3 and secret.exists()


@pytest.mark.parametrize("name", ["..", "../x", "/tmp/x", "", ".x", "a/b", "a\nb"])
def test_an_inbox_is_of_a_run(tmp_path, name):
    with pytest.raises(ValueError, match="must be letters, digits"):
        Inbox(str(tmp_path), name)
