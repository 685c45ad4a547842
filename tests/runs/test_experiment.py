"""An experiment is data; a run records every step, survives a swap and goes on after a stop."""

from __future__ import annotations

import json

import numpy as np
import pytest

from workbench import Budget, Experiment, Store, tasks
from workbench.runs.run import Run
from workbench.runs.steering.remote import Remote
from workbench.store import StoreError
from workbench.store.care.check import check
from workbench.store.care.repair import repair
from workbench.store.folder import bundle
from workbench.testing.scripted import ScriptedWorld

SMALL = Experiment(
    model="sim",
    steps=6,
    eval_every=3,
    checkpoint_every=3,
    budget=Budget(prompts=4, rollouts=16),
    world={"n_prompts": 40},
)


def test_toml_round_trip(tmp_path) -> None:
    experiment = SMALL.with_(pipeline="grpo(eps_high=0.28) + mopps(target=0.4)", tasks=("add 1d+1d", "max of 3 2d"))
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    assert Experiment.from_toml(path).to_dict() == experiment.to_dict()


def test_a_verifier_beside_the_toml_file_is_found(tmp_path, monkeypatch) -> None:
    (tmp_path / "mine.py").write_text("def half(completion, answer):\n    return 0.5 * (completion == answer)\n")
    rows = [{"prompt": f"{i}?", "answer": str(i)} for i in range(12)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.chdir("/")
    for name in ("mine:half", "mine.py:half"):
        experiment = SMALL.with_(
            model="tiny", world={}, tasks=str(tmp_path / "rows.jsonl"), task_options={"verifier": name, "max_tokens": 4},
            eval_sets={"more": {"source": str(tmp_path / "rows.jsonl"), "verifier": name, "size": 3}},
        )  # fmt: skip
        (tmp_path / "e.toml").write_text(experiment.to_toml())
        found = Experiment.from_toml(tmp_path / "e.toml")
        assert found.task_options["verifier"] == found.eval_sets["more"]["verifier"] == f"{tmp_path}/mine.py:half"
        assert Experiment.from_dict(found.to_dict()).to_dict() == found.to_dict()
    task = tasks.load(found.tasks, **found.task_options)
    assert task.verifier([task.pool.answer[0]], task.pool, np.array([0])).reward.tolist() == [0.5]
    task.verifier.close()
    with pytest.raises(FileNotFoundError, match=r"there is no file /nowhere\.py for the verifier"):
        tasks.load(rows, verifier="nowhere.py:half")


def test_unknown_key_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no modle; its keys are .*model"):
        Experiment.from_dict({"modle": "tiny"})


def test_every_step_is_recorded_with_its_evaluations(tmp_path) -> None:
    experiment = SMALL.with_(store=str(tmp_path))
    steps = list(experiment.run())
    with Store.open(tmp_path) as store:
        run = store.runs().to_pylist()[0]
        assert run["status"] == "finished"
        pool, _ = store.pool(run["run"])
        recorded = list(store.steps(run["run"], pool))
        evaluated = store.sql("select distinct step from rollouts where purpose = 'eval' order by 1")
    assert [s.step for s in recorded] == [1, 2, 3, 4, 5, 6]
    assert evaluated.column("step").to_pylist() == [0, 3, 6]
    for live, stored in zip(steps, recorded, strict=True):
        assert stored.rollouts.id.tolist() == live.rollouts.id.tolist()
        np.testing.assert_array_equal(stored.rollouts.reward, live.rollouts.reward)
        np.testing.assert_array_equal(stored.fate, live.fate)


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_closes_the_world_it_made_and_none_that_it_was_given(tmp_path, monkeypatch, fails) -> None:
    experiment = SMALL.with_(store=str(tmp_path), steps=2, checkpoint_every=0)
    worlds, closed = [experiment.build_world() for _ in range(2)], []
    for name, world in zip(("made", "given"), worlds, strict=True):
        world.close = lambda name=name: closed.append(name)
    monkeypatch.setattr(Experiment, "build_world", lambda self: worlds[0])
    for given in (None, worlds[1]):
        try:
            with Run(experiment, world=given) as run:
                run.step()
                if fails:
                    raise OSError("the card is gone")
        except OSError:
            assert fails
        run.close()
    assert closed == ["made"]
    with pytest.raises(ValueError, match="no checkpoint"):
        Run(experiment, resume=run.run_id)
    assert closed == ["made", "made"]  # by a run that could not begin


def test_fold_of_the_store_is_the_live_state(tmp_path) -> None:
    with Run(SMALL.with_(store=str(tmp_path), pipeline="grpo + vade")) as run:
        while not run.done:
            run.step()
    with Store.open(tmp_path) as store:
        pool, _ = store.pool(run.run_id)
        folded = run.pipeline.fold(pool, store.steps(run.run_id, pool))
    for name, columns in run.pipeline.reveal(run.state.states).items():
        for column, values in columns.items():
            np.testing.assert_array_equal(run.pipeline.reveal(folded)[name][column], values)


def test_swapped_in_method_knows_what_was_recorded(tmp_path) -> None:
    experiment = SMALL.with_(store=str(tmp_path), pipeline="grpo")
    with Run(experiment) as run:
        for _ in range(3):
            run.step()
        run.swap("grpo + mopps")
        swapped = run.pipeline.reveal(run.state.states)["mopps"]["mean"]
        while not run.done:
            run.step()
    with Store.open(tmp_path) as store:
        pool, _ = store.pool(run.run_id)
        mopps = run.pipeline.decider("select")
        state = mopps.init(pool)
        for step in store.steps(run.run_id, pool):
            if step.step <= 3:
                state = mopps.observe(state, step)
        commands = store.ask("commands", run=run.run_id).to_pylist()
    np.testing.assert_array_equal(mopps.reveal(state)["mean"], swapped)
    assert [c["kind"] for c in commands if c["kind"] == "swap"] == ["swap"]


def test_resumed_run_makes_the_plans_of_an_uninterrupted_one(tmp_path) -> None:
    whole = [s.prompts.tolist() for s in SMALL.with_(store=str(tmp_path / "whole")).run()]
    cut = SMALL.with_(store=str(tmp_path / "cut"))
    with Run(cut) as first:
        for _ in range(3):
            first.step()
    with Run(cut, resume=first.run_id) as second:
        resumed = [second.step().prompts.tolist() for _ in range(3)]
    assert resumed == whole[3:]
    with Store.open(tmp_path / "cut") as store:
        rows = store.runs().to_pylist()
        recorded = store.sql("select step from steps order by step").column("step").to_pylist()
    assert [(r["run"], r["status"]) for r in rows] == [(first.run_id, "finished")]
    assert recorded == [1, 2, 3, 4, 5, 6]


def test_a_step_that_was_broken_off_is_in_no_checkpoint(tmp_path) -> None:
    experiment = SMALL.with_(store=str(tmp_path / "cut"), checkpoint_every=2)
    whole = [s.prompts.tolist() for s in experiment.with_(store=str(tmp_path / "whole")).run()]
    with pytest.raises(KeyboardInterrupt), Run(experiment) as first:
        for _ in range(3):
            first.step()
        update = first.world.update

        def interrupted(*args, **kwargs):
            update(*args, **kwargs)
            raise KeyboardInterrupt

        first.world.update = interrupted
        first.step()
    with Run(experiment, resume=first.run_id) as second:
        assert second.n_steps == 2
        assert [second.step().prompts.tolist() for _ in range(4)] == whole[2:]


def test_a_resumed_run_ends_where_the_experiment_does_and_goes_on_where_more_is_asked(tmp_path) -> None:
    experiment = SMALL.with_(store=str(tmp_path), steps=4)
    with Run(experiment) as first:
        first.step()
    with Run(experiment, resume=first.run_id) as second:
        assert (second.n_steps, second.target) == (1, 4)
        while not second.done:
            second.step()
    with pytest.raises(
        ValueError, match=r"has made 4 steps, and its experiment ends at 4; steps=24 \(--steps 24\) goes on"
    ):
        Run(experiment, resume=first.run_id)
    with Run(experiment.with_(steps=6), resume=first.run_id) as third:
        assert (third.n_steps, third.target) == (4, 6)
    with Store.open(tmp_path) as store:
        assert store.sql("select target from attempts order by attempt")["target"].to_pylist() == [4, 4, 6]
        assert store.ask("page_run", run=first.run_id)["target"].to_pylist() == [6]
    assert Remote(str(tmp_path)).target_steps == 6
    assert Experiment.recorded(str(tmp_path), first.run_id).steps == 6


def test_resuming_without_a_checkpoint_says_so(tmp_path) -> None:
    experiment = SMALL.with_(store=str(tmp_path), checkpoint_every=0)
    with Run(experiment) as run:
        run.step()
    with pytest.raises(ValueError, match="has no checkpoint"):
        Run(experiment, resume=run.run_id)


@pytest.mark.parametrize("made", [0, 3])
def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(tmp_path, made) -> None:
    experiment = SMALL.with_(store=str(tmp_path), steps=5, eval_every=1, checkpoint_every=20)
    whole = Run(experiment.with_(store=str(tmp_path / "whole")))
    with whole:
        prompts = [whole.step().prompts.tolist() for _ in range(5)]
    killed = Run(experiment)
    killed.begin()
    for _ in range(made):
        killed.step()
    killed.record.writer.flush()
    killed.record.writer.give_up()  # as a kill does: without a checkpoint and without a status
    with Run(experiment, resume=killed.run_id) as again:
        assert again.n_steps == 0 and again.run_id == killed.run_id
        assert [again.step().prompts.tolist() for _ in range(5)] == prompts
    with Store.open(tmp_path) as store:
        assert store.runs().select(["status", "last_step"]).to_pylist() == [{"status": "finished", "last_step": 5}]
        assert store.sql("SELECT step FROM steps ORDER BY step")["step"].to_pylist() == [1, 2, 3, 4, 5]
        evaluated = store.sql(
            "SELECT step, count(*) AS n FROM rollouts WHERE purpose = 'eval' GROUP BY step ORDER BY step"
        )
        assert len({*evaluated["n"].to_pylist()}) == 1 and evaluated["step"].to_pylist() == [0, 1, 2, 3, 4, 5]
        assert store.sql("SELECT count(*) AS n FROM beliefs WHERE step = 0")["n"][0].as_py() == 40
    assert all(f.kind == "note" for f in check(tmp_path))


def test_a_checkpoint_that_rots_is_not_trained_on(tmp_path) -> None:
    experiment = SMALL.with_(store=str(tmp_path), steps=4)
    with Run(experiment) as run:
        run.step()
    [position] = tmp_path.glob("checkpoints/*/step-000001/position.npz")
    held = bytearray(position.read_bytes())
    held[len(held) // 2] ^= 1
    position.write_bytes(held)
    assert [f.where.rpartition("/")[2] for f in check(tmp_path) if f.kind == "error"] == ["position.npz"]
    with pytest.raises(ValueError, match=r"position.npz is damaged: it does not have its checksum"):
        Run(experiment, resume=run.run_id)


def test_a_record_that_lost_its_last_steps_is_not_resumed_beyond_them(tmp_path) -> None:
    experiment = SMALL.with_(store=str(tmp_path), steps=6)
    with Run(experiment) as run:
        for _ in range(3):
            run.step()
    third = max(p for p in tmp_path.glob("commits/*/r0/0*") if "steps" in bundle.read(p / bundle.NAME)) / bundle.NAME
    third.write_bytes(third.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"its record ends at step 2: .* commit \d+ is damaged.*--repair"):
        Run(experiment, resume=run.run_id)
    repair(tmp_path)
    with pytest.raises(ValueError, match="has a checkpoint of step 3, and its record ends at step 2"):
        Run(experiment, resume=run.run_id)


def test_a_world_that_breaks_ends_the_run_as_failed_and_loses_no_step(tmp_path) -> None:
    experiment = SMALL.with_(store=str(tmp_path))
    with pytest.raises(RuntimeError, match="boom"), Run(experiment) as run:
        run.step()
        run.step()
        run.world.sample = lambda *args: (_ for _ in ()).throw(RuntimeError("boom"))
        run.step()
    with Store.open(tmp_path) as store:
        assert store.runs().to_pylist()[0]["status"] == "failed"
        assert store.sql("select max(step) as s from steps").to_pylist() == [{"s": 2}]
        assert "boom" in str(store.ask("events", run=run.run_id).to_pylist())


def test_a_run_whose_store_went_away_says_how_to_go_on_and_can(tmp_path) -> None:
    store, away = tmp_path / "store", tmp_path / "away"
    experiment = SMALL.with_(store=str(store))
    run = Run(experiment)
    with pytest.raises(StoreError, match=f"bring the folder back.* go on from .*run FILE --resume {run.run_id}"), run:
        for _ in range(3):
            run.step()
        run.record.checkpoint(run.state)
        store.rename(away)
        run.step()
        run.record.writer.flush()
    away.rename(store)
    with Run(experiment, resume=run.run_id) as again:
        assert again.n_steps == 3
        again.step()
    with Store.open(store) as recorded:
        assert recorded.sql("select step from steps order by step")["step"].to_pylist() == [1, 2, 3, 4]


def test_a_recorded_experiment_is_the_one_that_was_started_with_its_last_pipeline(tmp_path) -> None:
    experiment = SMALL.with_(store=str(tmp_path), seed=5, name="mine")
    with Run(experiment) as run:
        run.step()
        run.swap("grpo + vade(lambda_sample=0.8)")
    assert "mine" in run.run_id
    again = Experiment.recorded(str(tmp_path), run.run_id)
    assert again.to_dict() == experiment.with_(pipeline="grpo + vade(lambda_sample=0.8)").to_dict()
    with pytest.raises(ValueError, match=f"has no run 'other'; it has {run.run_id}"):
        Experiment.recorded(str(tmp_path), "other")


def test_token_columns_are_kept_as_the_experiment_says(tmp_path) -> None:
    for tokens, kept in (("all", True), ("none", False)):
        experiment = SMALL.with_(
            model="tiny",
            world={},
            steps=1,
            eval_every=0,
            checkpoint_every=0,
            store=str(tmp_path / tokens),
            tokens=tokens,
        )
        list(experiment.run())
        with Store.open(tmp_path / tokens) as store:
            ids = store.sql("select count(tokens) as n from completions").to_pylist()[0]["n"]
        assert (ids == 16) is kept


def test_both_log_probabilities_of_a_token_are_recorded_where_sampler_and_trainer_differ(tmp_path) -> None:
    experiment = Experiment(
        model="tiny", pipeline="grpo", budget=Budget(prompts=4, rollouts=32), steps=3, staleness=1, eval_every=0,
        store=str(tmp_path), world={"sampling": "float32", "lr": 1e-2},
    )  # fmt: skip
    made = list(experiment.run())
    with Store.open(tmp_path) as store:
        band = store.ask("ratio_band_by_step").to_pylist()
        back = list(store.steps())
    assert [row["step"] for row in band] == [1, 2, 3]
    assert abs(band[0]["mean_ratio"] - 1) < 1e-4 < abs(band[2]["mean_ratio"] - 1)  # the third was sampled a step before
    for live, stored in zip(made, back, strict=True):
        np.testing.assert_array_equal(live.rollouts.proximal.values, stored.rollouts.proximal.values)


def test_a_world_of_ones_own_runs_with_what_the_base_answers(tmp_path) -> None:
    experiment = Experiment(
        model="own",
        steps=4,
        pipeline="grpo",
        eval_every=2,
        checkpoint_every=2,
        store=str(tmp_path),
        budget=Budget(2, 4),
    )
    with Run(experiment, world=ScriptedWorld()) as run:
        while not run.done:
            run.step()
    with Run(experiment.with_(steps=6, staleness=1), world=ScriptedWorld(), resume=run.run_id) as again:
        assert again.n_steps == 4
        while not again.done:
            again.step()
    with Store.open(tmp_path) as store:
        (row,) = store.runs().to_pylist()
        assert (row["status"], row["last_step"], row["n_evaluation"]) == ("finished", 6, 0)
