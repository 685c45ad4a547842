"""What was asked and what became of it, as the page reads it from the store."""

import json

import pytest

from workbench import Budget, Experiment
from workbench.runs.run import Run
from workbench.runs.steering.inbox import Inbox
from workbench.runs.steering.requests import Request, undone
from workbench.views.data.run import Source
from workbench.views.data.selection import Selection
from workbench.views.data.steering import Command, record, sentence, steering

SMALL = Experiment(
    model="sim", steps=50, eval_every=0, checkpoint_every=0, budget=Budget(4, 32), world={"n_prompts": 40}
)


def look(run):
    run.record.writer.flush()
    source = Source.of(run.experiment.store)
    source.refresh(0)
    data = source.run(run.run_id)
    data.refresh()
    return steering(data)


def test_asked_then_taken_then_applied_or_refused(tmp_path):
    with Run(SMALL.with_(store=str(tmp_path))) as run:
        run.ready()
        run.step()
        inbox = Inbox(str(tmp_path), run.run_id)
        one = inbox.put(Request.of("set", {"rollouts": 64}, "ada"))
        two = inbox.put(Request.of("set", {"rollouts": -1}, "<b>eve"))
        found = look(run)
        assert [(t.id, t.state, t.what, t.who) for t in found.commands] == [
            (two.id, "asked", "rollouts -1", "<b>eve"), (one.id, "asked", "rollouts 64", "ada")
        ]  # fmt: skip
        assert found.now.rollouts == 32
        assert run.ready()
        states = {t.id: (t.state, t.step, t.undoable) for t in look(run).commands}
        assert states == {one.id: ("taken", 2, True), two.id: ("refused", 1, False)}
        run.step()
        found = look(run)
        assert {t.id: t.state for t in found.commands} == {one.id: "applied", two.id: "refused"}
        assert found.commands[0].line == "refused: rollouts must be a whole number of at least 1, got -1"
        assert found.commands[1].line == "applied at step 2"
        assert (found.now.rollouts, found.now.group_size) == (64, 16)


def test_an_undo_says_what_is_in_force_again_and_cannot_be_undone(tmp_path):
    with Run(SMALL.with_(store=str(tmp_path))) as run:
        prompt = str(run.world.pool.ids[0])
        asked = [
            Request.of(kind, payload, "ada")
            for kind, payload in (
                ("pin", {"prompt": prompt}), ("boost", {"prompt": prompt, "factor": 3}), ("drop", {"prompt": prompt}),
                ("set", {"rollouts": 64}), ("swap", {"pipeline": "grpo + vade"}),
            )
        ]  # fmt: skip
        for request in asked:
            run.queue.put(request)
        run.ready()
        run.step()
        assert [t.undoable for t in look(run).commands] == [True] * 5
        inbox = Inbox(str(tmp_path), run.run_id)
        undos = [inbox.put(Request.of("undo", {"id": r.id}, "ada")) for r in reversed(asked)]
        waiting = look(run).commands[:5]
        assert [t.what for t in waiting] == [
            f"undo prompt {prompt}: in every step", f"undo prompt {prompt}: 3 × its rollouts",
            f"undo prompt {prompt}: out of the pool", "undo rollouts 32 → 64", "undo grpo + mopps → grpo + vade",
        ]  # fmt: skip
        again = inbox.put(Request.of("undo", {"id": "nobody"}, "ada"))
        run.ready()
        run.step()
        found = look(run)
    assert {t.id: t.what for t in found.commands if t.id in [u.id for u in undos]} == dict(
        zip(
            [u.id for u in undos],
            (
                "undone: grpo + vade → grpo + mopps", "undone: rollouts 64 → 32",
                f"undone: prompt {prompt}: in every step, 3 × its rollouts", f"undone: prompt {prompt}: in every step",
                f"undone: prompt {prompt}: as any other",
            ),
            strict=True,
        )
    )  # fmt: skip
    assert [t.what for t in found.commands if t.id == again.id] == ["undo nobody"]
    assert not any(t.undoable for t in found.commands)


def test_a_command_whose_undo_was_undone_holds_again():
    def row(id, **payload):
        to = {"pinned": True, "available": True, "factor": 1.0}
        return {"kind": "pin", "step": 1, "who": "ada", "payload": {"id": id, "prompt": "p", "to": to} | payload}

    told = record([row("a"), row("b", undoes="a"), row("c", undoes="b"), row("d")], 1)
    assert [(t.id, t.undoable) for t in told] == [("d", True), ("c", False), ("b", False), ("a", True)]
    assert undone({"a": "", "b": "a", "c": ""}) == {"a"}


def test_settings_in_force_follow_the_commands(tmp_path):
    with Run(SMALL.with_(store=str(tmp_path))) as run:
        ids = [str(i) for i in run.world.pool.ids]
        for kind, payload in (
            ("pin", {"prompt": ids[0]}), ("boost", {"prompt": ids[0], "factor": 3}), ("drop", {"prompt": ids[1]}),
            ("pin", {"prompt": ids[2]}), ("free", {"prompt": ids[2]}), ("swap", {"pipeline": "grpo + vade"}),
        ):  # fmt: skip
            run.queue.put(Request.of(kind, payload, "ada"))
        run.ready()
        run.step()
        now = look(run).now
    assert (now.pinned, now.dropped, now.boosted, now.pipeline) == ((ids[0],), (ids[1],), {ids[0]: 3.0}, "grpo + vade")


def test_a_pause_shows_in_the_status_until_it_ends(tmp_path):
    with Run(SMALL.with_(store=str(tmp_path))) as run:
        source = Source.of(str(tmp_path))
        for kinds, status in ((["pause"], "paused"), (["resume"], "running"), (["step"], "running")):
            for kind in kinds:
                run.queue.put(Request.of(kind, {}))
            run.queue.take()
            look(run)
            assert source.run(run.run_id).facts.status == status
        run.step()
        look(run)
        assert source.run(run.run_id).facts.status == "paused"


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("set", {"lr": 10**400}),
        ("swap", {"pipeline": [{"method": "grpo", "settings": [1]}]}),
        ("swap", {"from": 1, "to": [{"method": "grpo", "settings": "x" * 9000}]}),
    ],
)
def test_an_odd_payload_has_a_plain_sentence(tmp_path, kind, payload):
    said = sentence(kind, payload)
    assert said.startswith(f"{kind} {{'")
    assert len(said) < 250
    with Run(SMALL.with_(store=str(tmp_path))) as run:
        Inbox(str(tmp_path), run.run_id).put(Request.of(kind, payload, "eve"))
        assert [t.state for t in look(run).commands] == ["asked"]
        run.ready()
        run.step()
        (told,) = look(run).commands
    assert (told.state, told.what) == ("refused", sentence(kind, json.loads(json.dumps(payload))))


def test_a_run_that_has_ended_is_not_asked(tmp_path):
    from workbench.views.parts.steering_bar import SteeringBar

    with Run(SMALL.with_(store=str(tmp_path))) as run:
        run.ready()
        run.step()
        look(run)
        wheel = SteeringBar(Selection(), may=True)
        wheel.update(Source.of(str(tmp_path)).run(run.run_id))
        wheel._ask("pause")
        assert [r.kind for r in Inbox(str(tmp_path), run.run_id).waiting()] == ["pause"]
    wheel._ask("stop")
    assert "The run is stopped: nobody is there to be asked" in wheel.message.object
    assert Inbox(str(tmp_path), run.run_id).files() == []


def test_sentences():
    pin = {"prompt": "p7", "to": {"pinned": True, "available": True, "factor": 1.0}}
    assert sentence("pin", pin) == "prompt p7: in every step"
    assert sentence("boost", {"prompt": "p7", "factor": 2.5}) == "prompt p7: 2.5 × its rollouts"
    assert sentence("set", {"to": {"prompts": 4, "lr": 1e-5}, "before": {"prompts": 4, "lr": 1e-4}}) == (
        "learning rate 0.0001 → 1e-05"
    )
    swap = {"from": [{"method": "grpo"}], "to": [{"method": "grpo"}, {"method": "vade", "lambda_sample": 0.8}]}
    assert sentence("swap", swap) == "grpo → grpo + vade(lambda_sample=0.8)"
    assert sentence("step", {"n": 3}) == "3 single steps"
    assert sentence("undo", {"id": "a1"}, {"a1": "rollouts 64"}) == "undo rollouts 64"
    assert sentence("undo", {}) == "undo the last command that lasts"
    assert Command("1", 9, "set", "", "", "taken").line == "acts at step 9, not made yet"
