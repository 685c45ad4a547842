"""Conservation: generated + carried_in = trained + dropped + pruned + discarded + carried_out + failed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_steps import made_pool, made_step

from workbench.store import LedgerError, Store, Writer
from workbench.store.rows.ledger import check, origins
from workbench.types import FATES, Advantage, Plan, Resume, Rollouts, Step


def step_of(number, rows, plan, fate, reason=None):
    reason = np.full(len(rows), "", object) if reason is None else reason
    return Step(number, np.unique(plan.prompt), plan, rows, Advantage.start(rows), np.array(fate, object), reason)


def asked(number, pool, prompts, n, length):
    plan = Plan(np.array(prompts), np.array(n), step=number)
    rows = Rollouts.of_plan(plan, pool)
    return plan, rows.with_(length=np.full(len(rows), length), reward=np.zeros(len(rows)), correct=np.zeros(len(rows)))


@pytest.fixture
def writer(tmp_path):
    with Writer(tmp_path, {}, made_pool(4)) as opened:
        yield opened


def test_every_prompt_of_a_real_step_balances(recorded, store):
    rows = store.sql("SELECT * FROM ledger").to_pylist()
    assert rows and all(r["balanced"] for r in rows)
    spent = store.sql("SELECT sum(generated_tokens) FROM ledger WHERE purpose = 'train'")[0][0].as_py()
    assert spent == sum(int(s.rollouts.length.sum()) for s in recorded.steps)


def test_a_rollout_without_a_fate_is_an_error_and_not_recorded(writer):
    plan, rows = asked(1, writer.pool, [0, 2], [2, 3], 5)
    with pytest.raises(LedgerError, match=r"step 1, prompt p0002: rollouts do not add up: generated 3 \+ carried in 0 != "
                                          r"trained 2 \+ .* = 2; rollout 1:p0002:1 has the fate 'lost'"):  # fmt: skip
        writer.append(step_of(1, rows, plan, ["trained", "trained", "trained", "lost", "trained"]))
    writer.append(step_of(1, rows, plan, ["trained"] * 5))
    writer.flush()
    with Store.open(writer.url) as store:
        assert store.sql("SELECT count(*) FROM rollouts")[0][0].as_py() == 5


def test_a_rollout_that_did_not_come_back_is_an_error(writer):
    plan, rows = asked(1, writer.pool, [0, 2], [2, 3], 5)
    with pytest.raises(LedgerError, match=r"prompt p0002: 3 rollouts were asked for but 2 came back"):
        writer.append(step_of(1, rows.take(np.arange(4)), plan, ["trained"] * 4))


def test_a_rollout_that_stands_there_twice_is_an_error(writer):
    plan, rows = asked(1, writer.pool, [0], [2], 5)
    with pytest.raises(LedgerError, match="rollout 1:p0000:0 stands there 2 times"):
        writer.append(step_of(1, rows.take(np.array([0, 1, 0])), plan, ["trained"] * 3))


def test_a_replayed_rollout_does_not_stand_in_for_one_that_was_asked_for(writer):
    plan, rows = asked(1, writer.pool, [0], [2], 5)
    writer.append(step_of(1, rows, plan, ["trained"] * 2))
    plan2, fresh = asked(2, writer.pool, [0], [2], 5)
    both = Rollouts.concat([fresh.take(np.array([0])), rows.take(np.array([1]))])
    with pytest.raises(LedgerError, match="step 2, prompt p0000: 2 rollouts were asked for but 1 came back"):
        writer.append(step_of(2, both, plan2, ["trained"] * 2))


def test_token_ids_and_length_must_agree(writer):
    step = made_step(1, writer.pool, np.random.default_rng(0))
    wrong = step.rollouts.length.copy()
    wrong[3] += 1
    with pytest.raises(LedgerError, match=r"says length \d+ but has \d+ token ids"):
        writer.append(replace(step, rollouts=step.rollouts.with_(length=wrong)))


def test_an_unknown_prompt_row_is_an_error(writer):
    plan, rows = asked(1, writer.pool, [0], [1], 5)
    with pytest.raises(LedgerError, match="prompt row 9, but the pool has 4 prompts"):
        writer.append(step_of(1, rows.with_(prompt=np.array([9])), plan, ["trained"]))


def test_carried_rollouts_come_in_once_and_their_tokens_count_once(writer):
    plan, rows = asked(1, writer.pool, [0, 1], [2, 1], 5)
    writer.append(step_of(1, rows, plan, ["carried", "trained", "trained"]))
    plan2, fresh = asked(2, writer.pool, [1], [2], 4)
    resumed = rows.take(np.array([0])).with_(length=np.array([12]), ask=np.array([-1]))
    writer.append(step_of(2, Rollouts.concat([fresh, resumed]), plan2, ["trained", "failed", "trained"]))
    plan3, replayed = asked(3, writer.pool, [1], [1], 4)
    again = rows.take(np.array([0])).with_(length=np.array([12]), ask=np.array([-1]))
    writer.append(step_of(3, Rollouts.concat([replayed, again]), plan3, ["trained", "trained"]))
    writer.flush()
    with Store.open(writer.url) as store:
        first, second, third = store.sql(
            "SELECT generated, carried_in, trained, carried_out, replayed, generated_tokens, carried_in_tokens,"
            " trained_tokens, carried_out_tokens, balanced FROM ledger WHERE prompt_id = 'p0000' ORDER BY step"
        ).to_pylist()
        assert list(first.values()) == [2, 0, 1, 1, 0, 10, 0, 5, 5, True]
        assert list(second.values()) == [0, 1, 1, 0, 0, 7, 5, 12, 0, True]
        assert list(third.values())[:6] == [0, 0, 0, 0, 1, 0] and third["balanced"]
        assert store.sql("SELECT sum(n_tokens) FROM steps")[0][0].as_py() == 15 + (8 + 7) + 4
        assert sum(store.ask("wasted")["tokens"].to_pylist()) == 15 + (8 + 7) + 4  # the carried one once, whole
        tried = {r["prompt_id"]: r["tried"] for r in store.ask("prompts_by_difficulty").to_pylist()}
        assert (tried["p0000"], tried["p0001"]) == (2 + 1, 1 + 2 + 1)  # used again is not tried again


def test_a_resumed_ask_takes_the_carried_rollout_in(writer):
    plan, rows = asked(1, writer.pool, [0], [1], 5)
    writer.append(step_of(1, rows, plan, ["carried"]))
    start = np.full(1, None, object)
    start[0] = Resume("1:p0000:0")
    plan2 = Plan(np.array([0]), np.array([2]), start=start, step=2)
    more = Rollouts.of_plan(plan2, writer.pool).with_(length=np.array([8, 9]))
    writer.append(step_of(2, more, plan2, ["trained", "trained"]))
    writer.flush()
    with Store.open(writer.url) as store:
        row = store.sql("SELECT * FROM ledger WHERE step = 2").to_pylist()[0]
        assert (row["generated"], row["carried_in"], row["trained"], row["balanced"]) == (1, 1, 2, True)
        assert (row["generated_tokens"], row["carried_in_tokens"], row["trained_tokens"]) == (3 + 4, 5, 8 + 4)


def test_carried_rollouts_are_remembered_over_a_restart(tmp_path):
    pool = made_pool(4)
    plan, rows = asked(1, pool, [0], [1], 5)
    with Writer(tmp_path, {}, pool, run="a") as writer:
        writer.append(step_of(1, rows, plan, ["carried"]))
    with Writer(tmp_path, {}, pool, run="a") as writer:
        assert (writer.attempt, writer.step) == (1, 1)
        plan2, _ = asked(2, pool, [0], [0], 5)
        writer.append(step_of(2, rows.with_(length=np.array([9]), ask=np.array([-1])), plan2, ["trained"]))
    with Store.open(tmp_path) as store:
        assert store.sql("SELECT origin, inherited FROM rollouts ORDER BY step").to_pylist() == [
            {"origin": "generated", "inherited": 0},
            {"origin": "carried", "inherited": 5},
        ]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(FATES), st.integers(0, 9)), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_one_known_fate_each_always_balances(rows):
    pool = made_pool(4)
    prompt, fate, length = (np.array(c, dtype=object) for c in zip(*rows, strict=True))
    order = np.argsort(prompt.astype(int), kind="stable")
    counts = np.bincount(prompt.astype(int), minlength=4)
    plan = Plan(np.arange(4), counts, step=1)
    made = Rollouts.of_plan(plan, pool).with_(length=length[order].astype(np.int64))
    step = step_of(1, made, plan, fate[order])
    check(step, origins(1, made, plan, {}), pool)
