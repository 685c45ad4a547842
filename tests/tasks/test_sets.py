"""More evaluation sets beside a task's own: kept apart by name, judged by their own verifier, out of the training pool."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from workbench import tasks
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.store import Store
from workbench.types import Plan, Rollouts


def test_sets_are_one_pool_whose_prompts_know_their_set() -> None:
    task = tasks.load(["add 1d+1d"], size=30, evaluation=6)
    more = tasks.with_sets(task, {"hard": ["sub 2d-2d"], "same": ["add 1d+1d"]})
    name, n = np.unique(more.evaluation.extra["set"].astype(str), return_counts=True)
    assert dict(zip(name.tolist(), n.tolist(), strict=True))[""] == 6
    assert set(name.tolist()) == {"", "hard", "same"}
    assert more.evaluation.ids[:6].tolist() == task.evaluation.ids.tolist()
    asked = set(more.evaluation.text.tolist())
    assert not asked & set(more.pool.text.tolist())
    assert any("taken out of the pool" in note for note in more.notes)


def test_a_table_is_a_set_as_a_whole_and_keeps_its_verifier(tmp_path: Path) -> None:
    rows = [{"prompt": f"Say {w}.", "answer": w} for w in ("red", "blue", "green")]
    (tmp_path / "words.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = tasks.load(["add 1d+1d"], size=10, evaluation=2, max_tokens=256, stop=())
    more = tasks.with_sets(task, {"words": str(tmp_path / "words.jsonl")})
    assert sorted(more.evaluation.answer[more.evaluation.extra["set"] == "words"].tolist()) == ["blue", "green", "red"]
    n = len(more.evaluation)
    rows_ = Rollouts.of_plan(
        Plan(np.arange(n), np.ones(n, int), purpose=np.full(n, "eval", dtype=object), step=1), more.evaluation
    )
    said = more.score(rows_.with_(text=more.evaluation.answer.copy()), more.evaluation)
    assert said.correct.tolist() == [1.0] * n
    wrong = more.score(rows_.with_(text=np.full(n, "x", dtype=object)), more.evaluation)
    assert np.nansum(wrong.correct) == 0


def test_longer_answers_and_odd_names_are_refused(tmp_path: Path) -> None:
    task = tasks.load(["add 1d+1d"], size=10, evaluation=2)
    (tmp_path / "w.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "c", "answer": "d"}')
    with pytest.raises(ValueError, match="up to 256 tokens"):
        tasks.with_sets(task, {"words": str(tmp_path / "w.jsonl")})
    with pytest.raises(ValueError, match="named by letters"):
        tasks.with_sets(task, {"a b": ["add 1d+1d"]})


def test_a_run_records_sets_apart_and_learning_is_the_first(tmp_path: Path) -> None:
    experiment = Experiment(
        model="tiny", tasks=("add 1d+1d",), steps=1, eval_every=1, eval_samples=3, eval_sets={"hard": ["mul 1dx1d"]},
        store=str(tmp_path), checkpoint_every=0, budget={"prompts": 2, "rollouts": 4},
        task_options={"size": 20, "evaluation": 5},
    )  # fmt: skip
    assert Experiment.from_dict(experiment.to_dict()).to_dict() == experiment.to_dict()
    with Run(experiment) as run:
        run.step()
    with Store.open(tmp_path) as store:
        rows = store.sql("SELECT context, count(*) AS n, count(DISTINCT prompt_id) AS prompts FROM rollouts "
                         "WHERE purpose = 'eval' AND step = 1 GROUP BY context ORDER BY context").to_pylist()  # fmt: skip
        assert rows[0] == {"context": "", "n": 15, "prompts": 5}
        assert rows[1]["context"] == "hard"
        assert rows[1]["n"] == 3 * rows[1]["prompts"]
        assert store.ask("eval_by_step")["rollouts"].to_pylist() == [15, 15]
        assert store.ask("page_evaluation")["tried"].to_pylist() == [15, 15]


def lines(path: Path, rows: list[dict]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


PLUS = [{"prompt": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(30)]


def test_copies_leave_the_pool_and_equal_ids_do_not(tmp_path: Path) -> None:
    task = tasks.load(lines(tmp_path / "t.jsonl", PLUS), verifier="numeric")
    held = [
        {"prompt": "What is 12 +  1?\n", "answer": "13"},
        {"prompt": "What is 20 + 1?", "answer": "21"},
        {"prompt": "7?", "answer": "7"},
    ]
    more = tasks.with_sets(task, {"held": lines(tmp_path / "h.jsonl", held)})
    assert not {"What is 12 + 1?", "What is 20 + 1?"} & set(more.pool.text)
    base = tasks.load(
        lines(tmp_path / "i.jsonl", [{**r, "id": str(i)} for i, r in enumerate(PLUS)]), verifier="numeric"
    )
    other = lines(tmp_path / "o.jsonl", [{"prompt": f"Capital {i}?", "answer": str(i), "id": str(i)} for i in range(8)])
    assert len(tasks.with_sets(base, {"held": other}).pool) == len(base.pool)
    with pytest.raises(ValueError, match="none is left to train on"):
        tasks.with_sets(task, {"all": lines(tmp_path / "a.jsonl", PLUS)})


def judged(task: tasks.Task, name: str, say: str) -> list[float]:
    row = np.flatnonzero(task.evaluation.extra["set"] == name)[:1]
    return task.verifier(
        [say.format(task.evaluation.answer[row[0]].split()[-1])], task.evaluation, row
    ).correct.tolist()


def test_a_table_has_its_own_columns_and_the_verifier_of_the_task_or_its_own(tmp_path: Path) -> None:
    task = tasks.load(lines(tmp_path / "t.jsonl", PLUS), verifier="numeric", max_tokens=300, stop=["END"])
    gsm = lines(tmp_path / "g.jsonl", [{"question": f"{i}?", "answer": f"so\n#### {i}"} for i in range(5)])
    words = lines(tmp_path / "w.jsonl", [{"ask": {"it": f"Say {w}."}, "gold": w} for w in ("red", "blue", "green")])
    more = tasks.with_sets(
        task, {"gsm": gsm, "words": {"source": words, "prompt": "ask.it", "answer": "gold", "verifier": "word"}}
    )
    assert judged(more, "", "It is {}.") == judged(more, "gsm", "It is {}.") == judged(more, "words", "{}!") == [1.0]
    assert "Evaluation set gsm: The prompt is the column 'question', for g has none named prompt." in more.notes
    with pytest.raises(ValueError, match="has no source"):
        tasks.with_sets(task, {"words": {"verifier": "word"}})


def test_a_verifier_of_ones_own_judges_the_sets_too(tmp_path: Path) -> None:
    def near(completion: str, answer: str) -> bool:
        return abs(int(completion) - int(answer)) <= 1

    task = tasks.load(lines(tmp_path / "t.jsonl", PLUS), verifier=near)
    more = tasks.with_sets(
        task, {"times": lines(tmp_path / "s.jsonl", [{"prompt": f"{i} * 3?", "answer": str(3 * i)} for i in range(5)])}
    )
    row = np.flatnonzero(more.evaluation.extra["set"] == "times")[:1]
    assert more.verifier([str(int(more.evaluation.answer[row[0]]) + 1)], more.evaluation, row).correct.tolist() == [1.0]
    task.verifier.close()


def test_beside_families_a_table_of_their_kind_is_compared_as_they_are(tmp_path: Path) -> None:
    task = tasks.load(["add 1d+1d"], size=10, evaluation=2, max_tokens=256, stop=())
    times = lines(tmp_path / "s.jsonl", [{"prompt": f"{i} * 3?", "answer": str(3 * i)} for i in range(5)])
    words = lines(tmp_path / "w.jsonl", [{"prompt": f"Say {w}.", "answer": w} for w in ("red", "blue", "green")])
    more = tasks.with_sets(task, {"times": times, "words": words})
    assert judged(more, "times", "It is {}.") == judged(more, "words", "{}") == [1.0]
    assert (
        "Evaluation set words: its answers are compared as text, for they are not of the task's kind (number)."
        in more.notes
    )
