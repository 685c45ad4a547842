"""Rows that open a run or an attempt at it, the ids of runs, and what earlier attempts recorded."""

from __future__ import annotations

import os
import platform
import re
import secrets
import sys
from collections.abc import Mapping
from importlib import metadata

from workbench.store.errors import StoreError
from workbench.store.records import Reader
from workbench.store.rows import tables
from workbench.store.rows.retention import Retention
from workbench.types import Pool
from workbench.version import __version__

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Of the ending of a run id: none that is mistaken for another."""


RUN_ID = "[A-Za-z0-9][A-Za-z0-9._-]{0,100}"
"""What ids of runs look like: names of folders that lead nowhere else."""


def check_id(run: str | None, rank: int) -> None:
    """Refuse run ids that are no names, and a second rank that names no run."""
    if run is None and rank:
        raise StoreError(f"rank {rank} needs the id of the run that it writes with the others: Writer(..., run=...)")
    if run is not None and not re.fullmatch(RUN_ID, run):
        raise StoreError(f"run id {run!r} must be letters, digits, '.', '_' and '-', at most 101 of them")


def proposed(name: str) -> str:
    """A run id such as 2026-11-28-sim-k3f2, most likely a new one."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
    ending = "".join(secrets.choice(LETTERS) for _ in range(4))
    return f"{tables.now().date().isoformat()}-{slug}-{ending}"


def history(store: Reader, run: str, rank: int, pool: Pool, start: int | None) -> tuple[int, int, dict[str, int]]:
    """Number of the attempt to come, last step that stays (default: of all that every rank recorded), and the rollouts
    carried out of it (id -> tokens).

    Ranks go back together: one that opens takes the number of an attempt that another has begun."""
    row = store.sql(
        "SELECT greatest(coalesce(max(attempt) FILTER (rank = $rank) + 1, 0), coalesce(max(attempt), 0)) AS attempt,"
        " (SELECT coalesce(max(step), 0) FROM steps WHERE run = $run) AS last FROM attempts WHERE run = $run",
        {"run": run, "rank": rank},
    ).to_pylist()[0]
    step = row["last"] if start is None else start - 1
    known = store.sql(
        "SELECT prompt_id FROM prompts WHERE run = $run AND pool = 'train' ORDER BY position", {"run": run}
    )["prompt_id"].to_pylist()
    if known and known != pool.ids.tolist():
        raise StoreError(
            f"{run} was recorded with another pool ({len(known)} prompts, not {len(pool)}, or other ids); "
            "start a new run with parent and parent_step"
        )
    carried = store.sql(
        "SELECT rollout_id, arg_max(length, step) FROM rollouts JOIN fates USING (run, rank, step, row, rollout_id)"
        " WHERE run = $run AND rank = $rank AND step <= $step GROUP BY rollout_id HAVING arg_max(fate, step) = 'carried'",
        {"run": run, "rank": rank, "step": step},
    )
    return row["attempt"], step, dict(zip(*(c.to_pylist() for c in carried.columns), strict=True))


def run_tables(
    experiment: Mapping[str, object],
    world: Mapping[str, object],
    pool: Pool,
    evaluation: Pool | None,
    parent: str | None,
    parent_step: int | None,
    pieces: Mapping[str, object],
) -> list[tables.Tables]:
    """The run, its prompts and what its token ids stand for (see `store.token_bytes`), recorded once."""
    seed = experiment.get("seed")
    row = {
        "started": tables.now(),
        "name": str(experiment.get("name") or "run"),
        "experiment": tables.to_json(experiment),
        "world": tables.to_json(world),
        "seed": None if seed is None else int(str(seed)),
        "parent": parent,
        "parent_step": parent_step,
        "n_prompts": [len(pool)],
        "n_evaluation": 0 if evaluation is None else len(evaluation),
    }
    pools = {"train": pool} if evaluation is None else {"train": pool, "eval": evaluation}
    return [{"runs": row}, tables.prompt_tables(pools), tables.array_table(0, {"tokens": pieces})]


def attempt_table(
    attempt: int, start: int, who: Mapping[str, list[str]], ranks: int, retention: Retention, target: int | None
) -> tables.Tables:
    """Who acts, where, with which code, how far, and what is kept: recorded each time a run is opened."""
    row = {
        "attempt": [attempt],
        "from_step": start,
        "started": tables.now(),
        "pipeline": tables.to_json(who),
        "code_version": __version__,
        "machine": tables.to_json(_machine()),
        "ranks": ranks,
        "target": target,
        **retention.describe(),
    }
    return {"attempts": row}


def _machine() -> dict[str, object]:
    packages = ("numpy", "pyarrow", "duckdb", "torch", "transformers")
    return {
        "host": platform.node(),
        "process": os.getpid(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "python": sys.version.split()[0],
        "packages": {p: _version(p) for p in packages},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
