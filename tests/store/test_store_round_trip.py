"""What goes in comes out: by value, dtype and order; folding stored steps is what the live run held."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from made_steps import made_pool, made_step
from same import same

from workbench.pipeline import catalog
from workbench.store import Store, StoreError, Writer, compact
from workbench.store.rows.tables import array_of, array_rows
from workbench.types import Event, Node, Ragged, Resume, Text


def test_steps_come_back_exactly(recorded, store):
    back = list(store.steps(recorded.run))
    assert [s.step for s in back] == [1, 2, 3, 4, 5]
    for live, stored in zip(recorded.steps, back, strict=True):
        same(live, stored)


def test_steps_come_back_exactly_after_compaction(tmp_path):
    pool, rng = made_pool(8), np.random.default_rng(1)
    live = [made_step(s, pool, rng) for s in range(1, 41)]
    with Writer(tmp_path, {}, pool) as writer:
        for step in live[:20]:
            writer.append(step)
        writer.flush()
        assert compact(tmp_path) == 21
        for step in live[20:]:
            writer.append(step)
        writer.flush()
        assert compact(tmp_path) == 20
    with Store.open(tmp_path) as store:
        for one, two in zip(live, store.steps(), strict=True):
            same(one, two)


def test_extra_columns_come_back_also_ragged_ones(tmp_path):
    pool, rng = made_pool(8), np.random.default_rng(3)
    step = made_step(1, pool, rng)
    teacher = Ragged(-rng.random(int(step.rollouts.length.sum())).astype(np.float32), step.rollouts.tokens.offsets)
    extra = {"teacher_logp": teacher, "hidden": rng.random((len(step.rollouts), 3)).astype(np.float32)}
    step = replace(step, rollouts=step.rollouts.with_(extra=extra), events=())
    with Writer(tmp_path, {}, pool) as writer:
        writer.append(step)
    with Store.open(tmp_path) as store:
        same(step, next(iter(store.steps())))


def test_log_probabilities_of_the_trainer_come_back_where_it_computed_them(tmp_path):
    step = made_step(1, made_pool(8), np.random.default_rng(3))
    tokens = step.rollouts.tokens
    computed = np.arange(tokens.n_rows) % 3 > 0
    values = np.where(np.repeat(computed, tokens.lengths), np.float32(-0.5), np.float32(np.nan))
    step = replace(step, rollouts=step.rollouts.with_(proximal=Ragged(values, tokens.offsets)), events=())
    with Writer(tmp_path, {}, made_pool(8)) as writer:
        writer.append(step)
    with Store.open(tmp_path) as store:
        same(step, next(iter(store.steps())))
        known = store.sql("SELECT proximal IS NOT NULL AS known FROM completions ORDER BY row")["known"].to_pylist()
        assert known == (computed | (tokens.lengths == 0)).tolist()


def test_pools_come_back_exactly(recorded, store):
    train, evaluation = store.pool(recorded.run)
    same(recorded.pool, train)
    same(recorded.evaluation, evaluation)


def test_special_starts_rounds_and_token_advantages_come_back(tmp_path):
    pool, rng = made_pool(8), np.random.default_rng(2)
    step = made_step(1, pool, rng)
    start = np.array([None, Node("t/0.1"), Text("Hint: <b>", "user"), Resume("0:p0001:3")], dtype=object)
    tokens = Ragged(rng.random(int(step.rollouts.length.sum())), step.rollouts.tokens.offsets)
    plan = replace(step.plan, start=start, max_tokens=np.array([0, 8, 0, 16]), ordinal=np.array([0, 4, 0, 0]))
    step = replace(step, plan=plan, advantage=replace(step.advantage, tokens=tokens), events=())
    with Writer(tmp_path, {}, pool) as writer:
        writer.append(step)
    with Store.open(tmp_path) as store:
        same(step, next(store.steps()))


def test_leaves_and_what_was_put_off_come_back_and_are_figures_of_the_asks(tmp_path):
    pool, step = made_pool(8), made_step(1, made_pool(8), np.random.default_rng(2))
    plan = step.plan.with_n(step.plan.n, step.plan.n + 2).defer("trace", np.array([1]), np.array([3]))
    step = replace(step, plan=replace(plan, n=step.plan.n), events=())
    with Writer(tmp_path, {}, pool) as writer:
        writer.append(step)
    with Store.open(tmp_path) as store:
        same(step, next(store.steps()))
        rows = store.sql(
            "SELECT why['leaves'] AS leaves, why['trace.later'] AS later FROM asks ORDER BY ask"
        ).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(6, 0), (3, 3), (6, 0), (6, 0)]


def test_notes_that_an_old_store_has_among_the_figures_alone_are_notes(tmp_path):
    pool, step = made_pool(8), made_step(1, made_pool(8), np.random.default_rng(2))
    arms = {"gdro_arm": np.array([4.0, np.nan, 2.0, 2.0]), "gdro_bin": np.zeros(4), "gdro_n_bar": np.full(4, 3.0)}
    with Writer(tmp_path, {}, pool) as writer:
        writer.append(replace(step, plan=replace(step.plan, why=arms)))
    with Store.open(tmp_path) as store:
        plan = next(store.steps()).plan
    same(arms, {name: plan.notes[name] for name in arms})
    same(dict(step.plan.notes), {name: plan.notes[name] for name in step.plan.notes})


def test_steps_without_tokens_notes_or_reasons_come_back(tmp_path):
    pool, rng = made_pool(8), np.random.default_rng(3)
    step = made_step(1, pool, rng, tokens=False)
    step = replace(
        step, plan=replace(step.plan, why={}, notes={}), rollouts=step.rollouts.with_(rewards={}, extra={}),
        update={}, seconds={}, events=(),
    )  # fmt: skip
    with Writer(tmp_path, {}, pool) as writer:
        writer.append(step)
    with Store.open(tmp_path) as store:
        same(step, next(store.steps()))
        assert next(store.steps()).rollouts.tokens is None


def test_text_no_encoding_can_write_is_shown_with_replacement_characters(tmp_path):
    pool, rng = made_pool(8), np.random.default_rng(4)
    step = made_step(1, pool, rng)
    text = step.rollouts.text.copy()
    text[0], text[1] = "lone \ud800 surrogate", "zero \x00 byte"
    with Writer(tmp_path, {}, pool) as writer:
        writer.append(replace(step, rollouts=step.rollouts.with_(text=text)))
    with Store.open(tmp_path) as store:
        assert next(store.steps()).rollouts.text[:2].tolist() == ["lone ? surrogate", "zero \x00 byte"]


def test_another_pool_is_named_as_the_reason(recorded, store):
    with pytest.raises(StoreError, match="is not in the pool given"):
        list(store.steps(recorded.run, made_pool(20, "q")))


def test_folding_stored_steps_gives_the_state_of_the_live_run(recorded, store):
    kept = list(store.steps(recorded.run, recorded.pool))
    for slug in catalog.methods():
        method = catalog.make(slug)
        live = stored = method.init(recorded.pool)
        for made, found in zip(recorded.steps, kept, strict=True):
            live, stored = method.observe(live, made), method.observe(stored, found)
        same({slug: live}, {slug: stored})


@given(
    hnp.arrays(
        st.one_of(hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.floating_dtypes(sizes=(16, 32, 64)),
                  hnp.boolean_dtypes(), hnp.unicode_string_dtypes()),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_named_arrays_are_exact(array):
    (row,) = array_rows("notes", {"x": array})
    back = array_of(row)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_arrays_that_cannot_be_exact_are_refused():
    with pytest.raises(StoreError, match="notes 'x' of dtype complex128 cannot be kept exactly"):
        array_rows("notes", {"x": np.ones(2, complex)})


def test_commands_and_events_are_kept(recorded, store):
    command = store.ask("commands").to_pylist()[0]
    assert (command["step"], command["kind"], command["payload"], command["who"]) == (
        5,
        "pin",
        '{"prompt": "p0003"}',
        "test",
    )
    events = store.sql("SELECT source, message FROM events WHERE subject = 'test'").to_pylist()
    assert events == [{"source": "session", "message": "<b>bold</b>"}]
    assert recorded.steps[0].events[1] == Event("note", "budget", "spent")
