"""A run of a shared catalog is steered through the folder of its data."""

from workbench import Budget, Experiment
from workbench.runs.run import Run
from workbench.runs.steering.remote import Remote


def test_a_request_is_taken_recorded_and_answered(url) -> None:
    experiment = Experiment(
        model="sim", steps=5, eval_every=0, checkpoint_every=0, budget=Budget(4, 32), world={"n_prompts": 20}, store=url
    )
    with Run(experiment) as run:
        run.ready()
        run.step()
        run.record.writer.flush()
        remote = Remote(url, run.run_id, who="ada")
        asked = remote.set(group_size=4).last_request
        assert remote.inbox.waiting() == [asked]
        run.ready()
        assert len(run.step().rollouts) == 16
        run.record.writer.flush()
        done = remote.wait(asked)
    assert (done["kind"], done["step"], done["who"]) == ("set", 2, "ada")
