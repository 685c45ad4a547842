"""The peers' bench writes the same rows everywhere and gives its figures; sizes are cut, nothing is said about speed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pandas as pd
import pytest

from tests.benchmarks import peers
from workbench.store import Store


@pytest.fixture
def small(monkeypatch):
    for name, value in {"GROUPS": 3, "GROUP": 2, "REPEATS": 1, "CASES": {"text": (0, 2), "tokens": (8, 2)}}.items():
        monkeypatch.setattr(peers, name, value)


def only(monkeypatch, *packages):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: found(n) if n in packages else None)


def test_every_peer_that_is_there_has_a_figure_and_the_others_are_named(small, monkeypatch, capsys):
    only(monkeypatch, "pandas")
    figures = list(peers.bench("tokens"))
    assert [(f.metric, f.peer.split()[0] if f.peer else "") for f in figures] == [
        ("cost_per_row", "pandas"),
        ("bytes_per_rollout", ""),
    ]
    assert figures[0].ratio > 0 and "2 steps of 6 rollouts" in figures[0].note
    told = capsys.readouterr().out
    assert "tokens: trackio is not installed" in told and "tokens: mlflow is not installed" in told
    with pytest.raises(ValueError, match="no case 'x'; there are text, tokens"):
        list(peers.bench("x"))


def test_all_write_the_same_rows(small, tmp_path):
    pool, made = peers.written(8, 2)
    folders = {name: tmp_path / name for name in ("ours", "pandas")}
    for folder in folders.values():
        folder.mkdir()
    peers._ours(folders["ours"], pool, made)
    peers._pandas(folders["pandas"], pool, made)
    theirs = pd.concat(pd.read_parquet(p) for p in sorted(folders["pandas"].glob("*.parquet")))
    with Store.open(folders["ours"]) as store:
        ours = store.sql(
            "SELECT step, p.text AS prompt, c.text AS completion, reward, a.value AS advantage, tokens_ AS tokens, logp"
            " FROM rollouts r JOIN (SELECT * RENAME (tokens AS tokens_) FROM completions) c USING (run, rank, step, row)"
            " JOIN advantages a USING (run, rank, step, row) JOIN prompts p ON p.prompt_id = r.prompt_id"
            " ORDER BY step, row"
        ).to_pandas()
    assert len(ours) == len(theirs) == 12
    for name in ("step", "prompt", "completion", "reward", "advantage"):
        assert ours[name].tolist() == theirs[name].tolist(), name
    for name in ("tokens", "logp"):
        np.testing.assert_array_equal(np.stack(ours[name]), np.stack(theirs[name]))
    assert set(ours["completion"].str.len()) <= {300, 299}


def test_trl_writes_its_completions_log(small, tmp_path):
    pytest.importorskip("trl")
    pool, made = peers.written(0, 2)
    assert peers._trl(tmp_path, pool, made) > 0
    logged = pd.read_parquet(tmp_path / "completions/completions_00002.parquet")
    assert logged["completion"].tolist() == made[1].rollouts.text.tolist()
    assert logged["advantage"].tolist() == made[1].advantage.value.tolist()
    assert {"step", "prompt", "format", "exactness", "reward"} <= set(logged.columns)
