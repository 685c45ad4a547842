"""`workbench store ...`: sizes, checks, compaction, export and import, pruning."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from made_steps import made_beliefs, made_evaluation, made_pool, made_step
from same import same

from workbench.cli import store
from workbench.pipeline.fates import fates
from workbench.store import RunBusyError, Store, StoreError, Writer, compact, schema
from workbench.store.care.check import check
from workbench.store.care.export import export, import_
from workbench.store.care.prune import old_runs, prune
from workbench.store.folder import bundle
from workbench.store.open import sizes
from workbench.types import Ragged


def cli(*words) -> int:
    parser = argparse.ArgumentParser()
    store.add_parser(parser.add_subparsers())
    args = parser.parse_args(["store", *map(str, words)])
    return args.command(args) or 0


def record(folder, run, n=4, **options):
    pool, evaluation, rng = made_pool(8), made_pool(3, "e"), np.random.default_rng(n)
    with Writer(folder, {"name": run}, pool, evaluation, run=run, compacting=False, **options) as writer:
        for s in range(writer.step + 1, writer.step + n + 1):
            writer.append(made_step(s, pool, rng), made_beliefs(pool, rng), made_evaluation(s, evaluation, rng))


def everything(store, run=None) -> dict:
    where = "" if run is None else f"WHERE run = '{run}'"
    return {
        t: sorted(map(str, store.sql(f"SELECT * FROM {store.source(t)} {where}").to_pylist())) for t in schema.tables()
    }


@pytest.fixture
def folder(tmp_path):
    """Two runs; one went back, so that some steps are hidden, and is compacted in part."""
    where = tmp_path / "store"
    record(where, "a", 4)
    compact(where)
    record(where, "a", 2, start=3)
    record(where, "b", 3)
    return where


def test_info_says_what_is_there_and_what_waits(folder, capsys):
    assert cli("info", folder) == 0
    text = capsys.readouterr().out
    assert "2 runs" in text and "generation 1; 9 commits wait for compaction" in text
    assert "finished" in text and "step 4" in text and "4 waiting" in text
    assert sizes(folder).waiting == {"a/r0": 4, "b/r0": 5}
    assert cli("compact", folder) == 0
    assert capsys.readouterr().out == "folded 9 commits\n"
    assert sum(sizes(folder).waiting.values()) == 0


def test_a_store_that_is_not_there_is_named(tmp_path):
    for words in (("info",), ("check",), ("compact",), ("prune", "--run", "a")):
        with pytest.raises((StoreError, FileNotFoundError), match="there is no store"):
            cli(words[0], tmp_path / "nowhere", *words[1:])


def test_export_and_import_are_exact(folder, tmp_path, capsys):
    out, back = tmp_path / "out", tmp_path / "back"
    assert cli("export", folder, out) == 0
    assert {p.stem for p in out.glob("*.parquet")} == set(schema.tables())
    assert cli("import", back, out) == 0
    assert "took in" in capsys.readouterr().out
    with Store.open(folder) as one, Store.open(back) as two:
        assert everything(one) == everything(two)
        for run in "ab":
            same(list(one.steps(run)), list(two.steps(run)))
        assert len(two.sql("SELECT DISTINCT step FROM steps WHERE run = 'a'")) == 4
        assert one.ask("runs") == two.ask("runs")
    assert check(back)[0].kind == "note"
    with pytest.raises(StoreError, match=r"is in .* already"):
        import_(out, back)
    record(back, "a", 1)  # and goes on


def test_one_run_is_exported_alone_and_damage_is_seen(folder, tmp_path):
    with Store.open(folder) as store:
        rows = export(store, tmp_path / "out", ["b"])
        assert rows["steps"] == 3 and pq.read_table(tmp_path / "out/steps.parquet")["run"].to_pylist() == ["b"] * 3
        with pytest.raises(StoreError, match=r"no run 'z' in .*; there are"):
            export(store, tmp_path / "other", ["z"])
        with pytest.raises(StoreError, match="is not empty"):
            export(store, tmp_path / "out")
    (tmp_path / "out/export.json").unlink()
    with pytest.raises(StoreError, match="is not a whole export"):
        import_(tmp_path / "out", tmp_path / "new")


def test_prune_says_first_then_deletes_a_run_for_good(folder, capsys):
    (folder / "checkpoints/a/step-000001").mkdir(parents=True)
    with Store.open(folder) as store:
        kept = everything(store, "b")
        assert cli("prune", folder, "--run", "a") == 0
        assert capsys.readouterr().out == "would delete a; add --yes to do it\n"
        assert len(store.runs()) == 2
        assert cli("prune", folder, "--run", "a", "--yes") == 0
        assert "deleted a:" in capsys.readouterr().out
        assert store.runs()["run"].to_pylist() == ["b"]
        assert everything(store) == kept
    assert not (folder / "commits/a").exists() and not (folder / "checkpoints/a").exists()
    assert not list(folder.glob("pruned-*")) and check(folder) == []
    record(folder, "a", 2)
    with Store.open(folder) as store:
        assert len(store.runs()) == 2


def test_prune_of_tokens_keeps_text_and_numbers(folder):
    with Store.open(folder) as store:
        before = store.sql("SELECT run, step, row, text FROM completions ORDER BY ALL")
        assert prune(folder, {"a"}, tokens_only=True) > 0
        assert store.sql("SELECT run, step, row, text FROM completions ORDER BY ALL") == before
        kept = store.sql("SELECT run, count(tokens) + count(logp) AS n FROM completions GROUP BY run ORDER BY run")
        assert [r["n"] > 0 for r in kept.to_pylist()] == [False, True]
        with pytest.raises(StoreError, match="has the column tokens for 0 of 16 rollouts"):
            list(store.steps("a", needs={"tokens"}))
        assert len(list(store.steps("a"))) == 4
    assert [f.kind for f in check(folder)] == ["note"]


def test_prune_of_tokens_takes_the_token_advantages(tmp_path):
    """Whether an advantage acts is still known after them, also in rows that said it only by their tokens."""
    pool, rng = made_pool(8), np.random.default_rng(0)
    for run in "ab":
        with Writer(tmp_path, {}, pool, run=run, compacting=False) as writer:
            for s in (1, 2):
                step = made_step(s, pool, rng)
                value = np.where(np.arange(16) < 8, 0.0, step.advantage.value)
                tokens = Ragged(
                    np.repeat((np.arange(16) % 2) * 0.5, step.rollouts.length), step.rollouts.tokens.offsets
                )
                advantage = replace(step.advantage, value=value, tokens=tokens)
                fate, reason = fates(step.rollouts, advantage)
                writer.append(replace(step, advantage=advantage, fate=fate, fate_reason=reason))
    compact(tmp_path)
    [base] = tmp_path.glob("base/*")
    with duckdb.connect(base) as con:  # as schema version 1 left them
        con.execute("UPDATE advantages SET zero = NULL WHERE step = 1")
    share = "zero_advantage_by_step"
    with Store.open(tmp_path) as store:
        before = [store.ask(share, run=run) for run in "ab"]
        assert all(0 < z < 1 for answer in before for z in answer["zero_advantage"].to_pylist())
        assert prune(tmp_path, {"a"}, tokens_only=True) > 0
        kept = store.sql(
            "SELECT run, count(*) AS n, count(tokens) AS with_tokens FROM advantages GROUP BY run ORDER BY run"
        )
        assert [tuple(r.values()) for r in kept.to_pylist()] == [("a", 32, 0), ("b", 32, 32)]
        assert [store.ask(share, run=run) for run in "ab"] == before
        assert [step.advantage.tokens for step in store.steps("a")] == [None, None]
        generation = sizes(tmp_path).generation
        base_before = sorted(tmp_path.glob("base/*"))
        prune(tmp_path, {"a"}, tokens_only=True)  # again: nothing to take, and the base is not written anew
        assert sorted(tmp_path.glob("base/*")) == base_before and sizes(tmp_path).generation > generation
    assert all(f.kind == "note" for f in check(tmp_path))


def test_a_run_that_is_being_written_is_not_pruned(folder):
    with Writer(folder, {}, made_pool(8), run="c"):
        with pytest.raises(RunBusyError, match="c/r0 is being written"):
            prune(folder, {"c"})
        with Store.open(folder) as store:
            assert old_runs(store, 0) == ["a", "b"] and old_runs(store, 1) == []
        prune(folder, {"b"})
    with pytest.raises(StoreError, match="no run 'z'"):
        prune(folder, {"z"})
    with pytest.raises(ValueError, match="nothing to prune"):
        cli("prune", folder, "--older-than", "1")


def test_check_finds_nothing_wrong_where_nothing_is(folder, capsys):
    assert cli("check", folder) == 0
    assert "0 errors, 1 notes" in capsys.readouterr().out  # the steps that were made again


def without(path, table):
    held = bundle.read(path)
    held.pop(table)
    bundle.write(path, held)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: (f / "commits/b/r0/000000002/tables.bundle").write_bytes(b"PAR1"), r"tables\.bundle: damaged"),
        (lambda f: shutil.rmtree(f / "commits/b/r0/000000002"), "commit 2 before it are missing"),
        (lambda f: without(f / "commits/b/r0/000000002/tables.bundle", "commits"), "tables.bundle: damaged: the table commits is missing"),
        (lambda f: shutil.copytree(f / "commits/b/r0/000000002", f / "commits/b/r0/000000005"), "its rows say they belong"),
        (lambda f: next(f.glob("payload/*")).unlink(), "CURRENT names this file, and it is missing"),
        (lambda f: next(f.glob("base/*")).write_bytes(b"x" * 9000), "damaged"),
        (lambda f: (f / "CURRENT").write_text('{"generat'), r"CURRENT: CURRENT of the store .* is damaged.*says what it gives up\n1 errors"),
        (lambda f: without(f / "commits/b/r0/000000002/tables.bundle", "rollouts"), "recorded 16 rollouts and 0 are there"),
    ],
)  # fmt: skip
def test_check_names_what_is_wrong(folder, capsys, harm, message):
    import re

    harm(folder)
    assert cli("check", folder) == 1
    assert re.search(message, capsys.readouterr().out)


def test_a_leftover_of_a_dead_writer_is_a_note(folder, capsys):
    (folder / "commits/b/r0/000000009.tmp").mkdir()
    assert cli("check", folder) == 0
    assert "left by a writer that died" in capsys.readouterr().out


@pytest.mark.parametrize(("n", "text"), [(12, "12 B"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (3e12, "3.0 TB")])
def test_bytes_for_people(n, text):
    assert store.human(n) == text
