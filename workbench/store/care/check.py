"""Check a store: is everything there and readable, and does it add up? Files first, then questions to an open store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from workbench.store.errors import StoreError
from workbench.store.open import check_files
from workbench.store.reader import Store
from workbench.store.records import Finding, Progress, Reader, silent
from workbench.store.urls import redacted

LOST = """
SELECT r.run, min(r.step) AS first, max(r.step) AS last, count(*) AS n
FROM rollouts r ANTI JOIN completions c USING (run, rank, seq, step, "row") GROUP BY ALL ORDER BY ALL
"""
"""Rollouts without their text, by run."""


def check(url: str | Path, progress: Progress = silent) -> list[Finding]:
    """All that is wrong with a store; an empty list for nothing. Changes nothing."""
    found = list(check_files(url, progress))
    if not any(f.kind == "error" for f in found):
        try:
            with Store.open(url) as store:
                found += [Finding("error", name, text) for name, text in store.damaged.items()]
                found += sums(store)
        except (StoreError, duckdb.Error) as error:
            found.append(Finding("error", redacted(str(url)), str(error)))
    return found


def sums(store: Reader) -> Iterator[Finding]:
    """What does not add up in an open store."""
    for row in store.sql(
        "SELECT run, step, prompt_id, purpose FROM ledger WHERE NOT balanced ORDER BY ALL LIMIT 20"
    ).to_pylist():
        text = f"the {row['purpose']} rollouts or tokens of prompt {row['prompt_id']} do not add up"
        yield Finding("error", f"{row['run']} step {row['step']}", text)
    for row in store.sql(
        "SELECT s.run, s.rank, s.step, s.n_rollouts AS recorded, count(r.row) AS n FROM steps s LEFT JOIN rollouts r"
        " ON r.run = s.run AND r.rank = s.rank AND r.step = s.step AND r.row >= 0 GROUP BY ALL HAVING recorded <> n LIMIT 20"
    ).to_pylist():
        text = f"rank {row['rank']} recorded {row['recorded']} rollouts and {row['n']} are there"
        yield Finding("error", f"{row['run']} step {row['step']}", text)
    for row in store.sql(LOST).to_pylist():
        text = f"the texts of {row['n']} rollouts are not there: given up by a repair"
        yield Finding("note", f"{row['run']} steps {row['first']} to {row['last']}", text)
    for row in store.sql(
        f"SELECT c.run, c.rank, count(*) AS n, min(c.step) AS first FROM {store.source('commits')} c"
        " JOIN superseded USING (run, rank, seq) WHERE c.kind = 'step' GROUP BY ALL ORDER BY ALL"
    ).to_pylist():
        text = f"{row['n']} steps of rank {row['rank']} are not shown: made again later, or not recorded by all ranks"
        yield Finding("note", f"{row['run']} from step {row['first']}", text)
