"""Token columns are kept for all, a sample of groups, or none; what a pipeline needs always is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc
import pytest
from made_steps import made_evaluation, made_pool, made_step

from workbench.numerics.roles import hint_lengths, with_hints, without_hints
from workbench.store import Store, StoreError, Writer, compact
from workbench.store.rows.retention import TOKEN_COLUMNS, Retention
from workbench.types import Ragged


def record(folder, kind, steps=20, **options):
    pool, evaluation, rng = made_pool(20), made_pool(3, "e"), np.random.default_rng(0)
    live = []
    with Writer(folder, {}, pool, evaluation, run="a", retention=kind, **options) as writer:
        for s in range(1, steps + 1):
            step = made_step(s, pool, rng)
            r = step.rollouts
            tracks = {"role": Ragged(np.zeros(len(r.tokens.values), np.int8), r.tokens.offsets), "proximal": r.logp}
            tokens = Ragged(np.zeros(len(r.tokens.values)), r.tokens.offsets)
            step = replace(step, rollouts=r.with_(**tracks), advantage=replace(step.advantage, tokens=tokens))
            live.append(step)
            writer.append(step, evaluation=made_evaluation(s, evaluation, rng) if s == 2 else None)
    return live


def test_all_keeps_all_and_none_keeps_text(tmp_path):
    for kind, kept in (("all", 326), ("none", 0)):
        record(tmp_path / kind, kind)
        with Store.open(tmp_path / kind) as store:
            wide = store.sql("SELECT * FROM completions")
            assert [len(wide) - wide[c].null_count for c in ("tokens", "logp", "entropy")] == [kept] * 3
            assert wide["text"].null_count == 0 and len(wide) == 326
            assert store.sql("SELECT count(tokens) AS n FROM advantages")["n"].to_pylist() == [min(kept, 320)]
            assert store.sql("SELECT retention, share, kept FROM attempts").to_pylist() == [
                {"retention": kind, "share": float(kind == "all"), "kept": []}
            ]


def test_a_sample_keeps_whole_groups_the_same_in_every_run(tmp_path):
    kept = []
    for name in "ab":
        live = record(tmp_path / name, "sample", share=0.25)
        with Store.open(tmp_path / name) as store:
            rows = store.sql(
                "SELECT r.step, r.group_id, count(*) AS n, count(c.tokens) AS kept FROM rollouts r JOIN completions c"
                " USING (run, rank, step, row) WHERE row >= 0 GROUP BY ALL ORDER BY ALL"
            ).to_pylist()
            page = store.sql("SELECT row, tokens, logp FROM completions WHERE step = 5 ORDER BY row").to_pylist()
        assert all(r["kept"] in (0, r["n"]) for r in rows)
        assert 10 <= sum(r["kept"] > 0 for r in rows) <= 30  # of 80 groups
        kept.append([r["kept"] for r in rows])
        for row in page:
            if row["tokens"] is not None:
                assert row["tokens"] == live[4].rollouts.tokens.row(row["row"]).tolist()
                assert row["logp"] == live[4].rollouts.logp.row(row["row"]).tolist()
    assert kept[0] == kept[1]


def test_what_the_pipeline_needs_is_kept_for_all_and_changes_with_a_swap(tmp_path):
    pool, rng = made_pool(20), np.random.default_rng(0)
    with Writer(tmp_path, {}, pool, run="a", retention="none", needs=frozenset({"logp", "embedding"})) as writer:
        writer.append(made_step(1, pool, rng))
        writer.acting({}, needs=frozenset({"tokens"}))
        writer.append(made_step(2, pool, rng))
    with Store.open(tmp_path) as store:
        counts = store.sql(
            "SELECT step, count(tokens) AS t, count(logp) AS l FROM completions GROUP BY ALL ORDER BY ALL"
        )
        assert counts.to_pylist() == [{"step": 1, "t": 0, "l": 16}, {"step": 2, "t": 16, "l": 0}]
        assert store.sql("SELECT kept FROM attempts")["kept"].to_pylist() == [["logp", "role"]]


def test_steps_whose_columns_were_not_kept_say_so_to_methods_that_need_them(tmp_path):
    live = record(tmp_path, "sample", steps=4, needs=frozenset({"proximal"}))
    with Store.open(tmp_path) as store:
        back = list(store.steps("a", needs={"proximal", "embedding"}))
        assert all(s.rollouts.tokens is None and s.advantage.tokens is None for s in back)
        for one, two in zip(live, back, strict=True):
            np.testing.assert_array_equal(one.rollouts.proximal.values, two.rollouts.proximal.values)
            np.testing.assert_array_equal(one.rollouts.reward, two.rollouts.reward)
        with pytest.raises(
            StoreError, match=r"step 1 of a has the column logp for \d+ of 16 rollouts, but the methods"
        ):
            list(store.steps("a", needs={"logp"}))
        assert compact(tmp_path) > 0
        assert pc.sum(store.sql("SELECT len(proximal) AS n FROM completions")["n"]).as_py() == sum(
            int(s.rollouts.length.sum()) for s in live
        )


def test_zero_advantages_are_counted_the_same_without_their_tokens(tmp_path):
    pool, rng = made_pool(20), np.random.default_rng(1)
    step = made_step(1, pool, rng)
    r = step.rollouts
    tokens = Ragged(np.where(np.repeat(r.group, r.length) == 1, 1.0, 0.0), r.tokens.offsets)
    step = replace(step, advantage=replace(step.advantage, value=np.zeros(len(r)), tokens=tokens))
    shares = []
    for kind in ("all", "none"):
        with Writer(tmp_path / kind, {}, pool, retention=kind) as writer:
            writer.append(step)
        with Store.open(tmp_path / kind) as store:
            shares.append(store.ask("zero_advantage_by_step")["zero_advantage"].to_pylist())
    assert shares[0] == shares[1] and 0.7 < shares[0][0] < 1


@pytest.mark.parametrize(("kind", "share"), [("some", 0.5), ("sample", 0.0), ("sample", 2)])
def test_retention_must_be_one_of_three(tmp_path, kind, share):
    with pytest.raises(StoreError, match="retention"):
        Writer(tmp_path, {}, made_pool(4), retention=kind, share=share)


def test_the_sample_is_about_as_large_as_its_share():
    ids = np.array([f"p{i}" for i in range(4000)], object)
    assert 0.11 < Retention("sample", 0.125).kept(3, ids).mean() < 0.14
    assert TOKEN_COLUMNS == ("tokens", "logp", "entropy", "role", "proximal", "current")


def test_columns_are_kept_under_the_names_by_which_methods_ask_for_them(tmp_path):
    needs = frozenset({"behaviour", "token_entropy", "reference"})
    record(tmp_path / "some", "none", steps=2, needs=needs)
    with Store.open(tmp_path / "some") as store:
        wide = store.sql("SELECT * FROM completions WHERE row >= 0")
        assert {c for c in TOKEN_COLUMNS if not wide[c].null_count} == {"logp", "entropy", "role"}
        assert store.sql("SELECT kept FROM attempts")["kept"].to_pylist() == [["logp", "entropy", "role"]]
        assert len(list(store.steps("a", needs=needs))) == 2
    record(tmp_path / "none", "none", steps=2)
    with Store.open(tmp_path / "none") as store, pytest.raises(StoreError, match="has the column logp for 0 of"):
        list(store.steps("a", needs=needs))


def test_whose_a_token_is_is_kept_with_the_columns_that_are_needed(tmp_path):
    """Tokens of a hint may stand in front: without the roles, what was needed would be read one by one too far."""
    pool = made_pool(20)
    r = made_step(1, pool, np.random.default_rng(0)).rollouts
    one = Ragged.of([[7]] * len(r), np.int32)
    shown = with_hints(r, {"tokens": one, "logp": one, "entropy": one}, version=0)
    step = replace(made_step(1, pool, np.random.default_rng(0)), rollouts=shown)
    with Writer(tmp_path, {}, pool, run="a", retention="none", needs=frozenset({"token_entropy"})) as writer:
        writer.append(step)
    with Store.open(tmp_path) as store:
        [back] = store.steps("a", pool, needs={"token_entropy"})
        assert store.sql("SELECT kept FROM attempts")["kept"].to_pylist() == [["entropy", "role"]]
    assert back.rollouts.tokens is None
    assert hint_lengths(back.rollouts).tolist() == [1] * len(r)
    assert without_hints(back.rollouts).entropy.values.tolist() == r.entropy.values.tolist()
