"""A resumed run proves that it goes on with what it began with: answers, verifier, limits, temperature, template, weights."""

from __future__ import annotations

import json
import sys

import pytest

from workbench import Budget, Experiment, Store, tasks
from workbench.runs.run import Run
from workbench.tasks.fingerprint import of_verifier, source_of
from workbench.tasks.verifiers import Graded
from workbench.worlds import LiveWorld

EXPERIMENT = Experiment(
    model="given", pipeline="grpo", budget=Budget(prompts=2, rollouts=8), steps=3, eval_every=0, checkpoint_every=1
)


def rows(**changed: str) -> list[dict]:
    """Sums of two numbers; changed: another answer by question."""
    return [
        {"prompt": f"{a} + {b} =", "answer": changed.get(f"{a}+{b}", str(a + b))} for a in range(5) for b in range(1, 9)
    ]


def world(table=None, *, seed=0, system=None, model="tiny", temperature=1.0, **options) -> LiveWorld:
    """A world of few tokens."""
    task = tasks.load(table or rows(), seed=seed, max_tokens=4, system=system, **options)
    return LiveWorld(task, model, seed=seed, temperature=temperature)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """(experiment, id of a run of it that stopped after a step)."""
    experiment = EXPERIMENT.with_(store=str(tmp_path_factory.mktemp("store")))
    with Run(experiment, world=world()) as run:
        run.step()
    return experiment, run.run_id


@pytest.mark.parametrize(
    ("named", "changed"),
    [
        ("verifier", {"verifier": "numeric"}),
        ("stop", {"stop": (";",)}),
        ("timeout", {"timeout": 9.0}),
        ("template", {"system": "Be brief."}),
        ("temperature", {"temperature": 0.5}),
    ],
)
def test_what_differs_is_refused_by_name(begun, named, changed):
    experiment, run = begun
    with pytest.raises(ValueError, match=rf"run {run} was made with another {named}: .*--allow {named},"):
        Run(experiment, world=world(**changed), resume=run)


def test_other_weights_are_refused(begun):
    experiment, run = begun
    other = world()
    model, tokenizer = other.policy.model, other.tokenizer
    for weight in model.parameters():
        weight.data *= 1.01
    with pytest.raises(ValueError, match=r"another model: model was \w+ and is \w+. Resume it as it was"):
        Run(experiment, world=world(model=(model, tokenizer)), resume=run)


def test_what_is_allowed_by_name_is_recorded_and_is_the_record_from_then_on(begun):
    experiment, run = begun
    with pytest.raises(ValueError, match="there is no answer that could change; there are answers, "):
        Run(experiment, world=world(), resume=run, allow=["answer"])
    with Run(experiment, world=world(temperature=0.5), resume=run, allow=["temperature", "answers"]) as again:
        again.step()
    with Store.open(experiment.store) as store:
        said = store.sql("SELECT payload FROM commands WHERE kind = 'resume'")["payload"].to_pylist()
        events = store.sql("SELECT message FROM events WHERE subject = 'resume'")["message"].to_pylist()
    assert [json.loads(s) for s in said] == [{"changed": {"temperature": [1.0, 0.5]}}]
    assert events == ["resumed with another temperature: 1.0 before, 0.5 now"]
    with pytest.raises(ValueError, match=r"temperature was 0\.5 and is 1\.0"):
        Run(experiment, world=world(), resume=run)
    with Run(experiment, world=world(temperature=0.5), resume=run) as last:
        assert last.n_steps == 2


def test_another_answer_is_refused(tmp_path):
    experiment = EXPERIMENT.with_(store=str(tmp_path))
    with Run(experiment, world=world()) as run:
        run.step()
    with pytest.raises(ValueError, match="another answers: answers was"):
        Run(experiment, world=world(rows(**{"1+1": "3", "2+2": "5", "3+3": "7", "4+4": "9"})), resume=run.run_id)


def test_a_verifier_is_its_source_and_its_settings(tmp_path, monkeypatch):
    pool = tasks.load("five", size=100).pool
    assert of_verifier(type("T", (), {"verifier": Graded(), "pool": pool})) != of_verifier(
        type("T", (), {"verifier": Graded("binary"), "pool": pool})
    )
    (tmp_path / "my_rewards.py").write_text("def right(completion, answer):\n    return completion == answer\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = source_of("my_rewards:right")
    assert source_of(f"{tmp_path}/my_rewards.py:right") == before
    (tmp_path / "my_rewards.py").write_text("def right(completion, answer):\n    return answer in completion\n")
    assert before != source_of("my_rewards:right")
    assert "my_rewards" not in sys.modules  # nothing of it was run
    one = lambda completion, answer: True  # noqa: E731 - a verifier as people write it
    other = lambda completion, answer: False  # noqa: E731
    assert source_of(one) != source_of(other)
