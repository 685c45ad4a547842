"""Several processes judge: none holds up another, none loses a verdict, and generation goes on meanwhile."""

import time

import numpy as np
import pytest

from workbench import tasks
from workbench.tasks.isolated import Isolated
from workbench.types import Plan, Rollouts

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

ROWS = [{"prompt": f"{i} and {i}?", "answer": str(2 * i)} for i in range(20)]


def greedy(completion, answer):
    """Hangs, eats memory, or returns the length of the completion."""
    if completion == "hang":
        time.sleep(60)
    if completion == "eat":
        return len(bytearray(6 << 30)) > 0
    return len(completion) / 10


def verifier(**options):
    return Isolated(greedy, **({"timeout": 5.0, "workers": 3, "memory": 2 << 30} | options))


@pytest.fixture(scope="module")
def pool():
    return tasks.load(ROWS, verifier="numeric").pool


def test_verdicts_keep_the_order_of_the_completions(pool):
    v = verifier()
    text = ["x" * (i % 7) for i in range(40)]
    verdicts = v(text, pool, np.zeros(40, int))
    v.close()
    assert verdicts.reward.tolist() == [(i % 7) / 10 for i in range(40)]


def test_one_that_hangs_and_one_that_eats_memory_cost_their_own_reward(pool):
    v = verifier(timeout=1.0)
    text = ["abc"] * 30
    text[3], text[11] = "hang", "eat"
    verdicts = v(text, pool, np.zeros(30, int))
    v.close()
    assert np.flatnonzero(np.isnan(verdicts.reward)).tolist() == [3, 11]
    assert verdicts.failure[[3, 11]].tolist() == ["verifier_timeout", "verifier_memory"]
    assert np.delete(verdicts.reward, [3, 11]).tolist() == [0.3] * 28


def test_a_verdict_is_worked_out_while_the_caller_goes_on(pool):
    v = verifier(timeout=1.0)
    waiting = v.submit(["hang", "ab"], pool, np.zeros(2, int))
    second = v.submit(["abcd"], pool, np.zeros(1, int))
    assert not waiting.done()
    assert waiting.result().failure.tolist() == ["verifier_timeout", ""]
    assert second.result().reward.tolist() == [0.4]
    v.close()


def test_batches_are_judged_while_the_next_are_made(pool):
    task = tasks.load(ROWS, verifier=greedy, timeout=1.0)
    started = []
    submit = task.verifier.submit
    task.verifier.submit = lambda *a: started.append("judged") or submit(*a)

    def parts():
        for step, words in enumerate((["a", "hang"], ["bb", "ccc"], ["dddd"])):
            started.append("made")
            rows = Rollouts.of_plan(Plan(np.arange(len(words)), np.ones(len(words), int), step=step), task.pool)
            yield rows.with_(text=np.array(words, dtype=object))

    done = task.score_each(parts(), task.pool)
    assert started == ["made", "judged"] * 3
    assert [p.reward.tolist()[0] for p in done] == [0.1, 0.2, 0.4]
    assert done[0].failure.tolist() == ["", "verifier_timeout"]
    assert [len(p) for p in done] == [2, 2, 1]
    whole = task.score(done[1].with_(reward=np.full(2, np.nan)), task.pool)
    assert whole.reward.tolist() == done[1].reward.tolist()
    task.verifier.close()


def test_built_in_verifiers_judge_parts_the_same():
    task = tasks.load(ROWS, verifier="numeric")
    rows = Rollouts.of_plan(Plan(np.arange(2), np.ones(2, int)), task.pool)
    rows = rows.with_(text=np.array([task.pool.answer[0], "no"], dtype=object))
    (part,) = task.score_each([rows], task.pool)
    assert part.reward.tolist() == task.score(rows, task.pool).reward.tolist() == [1.0, 0.0]


def test_no_process_is_an_error():
    with pytest.raises(ValueError, match="workers=0; a verifier needs at least one process"):
        verifier(workers=0)
