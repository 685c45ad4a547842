"""Files that rot and exports that lie: the figures of `python -m tests.benchmarks store`, cases damage and forged.

A store of three runs, compacted twice and written to since, has one bit flipped in one file at a time, at random places of
every kind of file. Counted are the flips that `check` finds; those after which all other runs are what they were and go
on, as the store lies there and after `check --repair`; and those whose rows were served before a check. Each flip is
looked at in a process of its own. Then exports with forged manifests and rows are imported, and what is written outside
of the store is counted.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.figure import Figure
from tests.benchmarks.store import make_beliefs, make_pool, make_step
from workbench.runs import checkpoints
from workbench.store import Store, StoreError, Writer, compact
from workbench.store.care.check import check
from workbench.store.care.export import MANIFEST, export, import_
from workbench.store.care.repair import repair
from workbench.store.folder.files import sealed
from workbench.store.schema import tables

FLIPS = 64
"""Of each kind of file."""

WORKERS = 3
"""Processes that look at flips at a time."""

FORGED = 200
"""Exports that are imported."""

KINDS = {
    "STORE": "STORE",
    "CURRENT": "CURRENT",
    "kept CURRENT": "CURRENT.0*",
    "base": "base/gen-000002.duckdb",
    "base before": "base/gen-000001.duckdb",
    "part of completions": "payload/*.parquet",
    "commit": "commits/*/*/0*/tables.bundle",
    "completions of a commit": "commits/*/*/0*/completions.parquet",
    "checkpoint": "checkpoints/*/*/*",
}
"""Kind of file -> where there are such in the store that is damaged."""

METRICS = ("found_by_check", "other_runs_intact", "other_runs_intact_after_repair", "served_before_check")

STEPS = {"a": 3, "b": 3, "c": 1}
"""Steps of each run."""
NAMES = (
    "../out",
    "/tmp/out",
    "..",
    ".",
    "a/../../out",
    "",
    "a\x00b",
    "commits",
    "a/b",
    "~",
    "x" * 300,
    "%2e%2e",
    "-",
    "a\n",
)
"""Ids that lead out of a store, or are none."""


def damaged() -> Iterator[Figure]:
    """What bit flips do."""
    with tempfile.TemporaryDirectory() as where:
        whole = Path(where) / "whole"
        make_store(whole)
        was = in_child(partial(measured, whole))
        looks = [(whole, was, kind, point) for kind in KINDS for point in range(FLIPS)]
        with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
            seen = pool.starmap(flipped, looks, chunksize=1)
        for i, kind in enumerate(KINDS):
            found = seen[i * FLIPS : (i + 1) * FLIPS]
            note = f"{kind}: {FLIPS} flips of one bit"
            for metric in METRICS:
                yield Figure("damage", metric, 100 * sum(f[metric] for f in found) / FLIPS, "%", note=note)


def forgeries() -> Iterator[Figure]:
    """What forged exports do."""
    with tempfile.TemporaryDirectory() as where:
        whole = Path(where) / "whole"
        record(whole, "c")
        said = in_child(partial(imports, whole, Path(where))) or {}
    note = f"{FORGED} exports with forged manifests, keys and rows; {said['refused']} refused, the others name runs as they may be"
    yield Figure("forged", "writes_outside", said["wrote"], "files", note=note)


class _Weights:
    """What a checkpoint keeps of a world."""

    def save(self, folder: Path) -> None:
        (folder / "weights.bin").write_bytes(np.random.default_rng(0).bytes(20_000))


def make_store(folder: Path) -> None:
    """Three runs: steps in two generations, and steps that wait, whose completions are in files of their own."""
    for made in range(3):
        for run, n in STEPS.items():
            if n > 2 - made:
                record(folder, run)
        if made < 2:
            compact(folder)
    for run in STEPS:
        checkpoints.save(folder / "checkpoints" / run, 1, _Weights(), np.ones(40, bool), lambda part: None)  # type: ignore[arg-type]


def record(folder: Path, run: str) -> int:
    """Add a step to a run; its number."""
    pool, rng = make_pool(40), np.random.default_rng(0)
    with Writer(folder, {"name": run}, pool, run=run, compacting=False) as writer:
        writer.append(make_step(writer.step + 1, pool, rng, 16, 8, 96), make_beliefs(pool, rng))
        writer.flush()
        return writer.committed


def measured(folder: Path) -> dict[str, list[object]]:
    """`digests` of a folder."""
    with Store.open(folder) as store:
        return digests(store)


def digests(store: Store) -> dict[str, list[object]]:
    """Run -> a hash of all its rows in each table, and the rewards of its steps as they are rebuilt."""
    found: dict[str, list[object]] = {}
    for table in tables():
        query = f"SELECT run, count(*) || ' ' || bit_xor(hash(t)) AS h FROM {store.source(table)} t GROUP BY run"
        hashes = {row["run"]: row["h"] for row in store.sql(query).to_pylist()}
        for run in STEPS:
            found.setdefault(run, []).append(hashes.get(run))
    for run in STEPS:
        with suppress(StoreError):
            found[run] += [float(step.rollouts.reward.sum()) for step in store.steps(run)]
    return found


def flipped(whole: Path, was: dict[str, list[object]], kind: str, point: int) -> dict[str, bool]:
    """What one flip in a file of a kind does, on a copy of a store; was: what its runs were."""
    rng, folder = random.Random(f"{kind} {point}"), whole.with_name(f"flipped-{os.getpid()}")
    path = rng.choice(sorted(p for p in whole.glob(KINDS[kind]) if p.is_file()))
    held = bytearray(path.read_bytes())
    held[rng.randrange(len(held))] ^= 1 << rng.randrange(8)
    mine = owners(path, whole)
    one = rng.choice([run for run in was if run not in mine])

    def copy() -> Path:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        (folder / path.relative_to(whole)).write_bytes(held)
        return folder

    copy()
    seen = in_child(partial(as_it_lies, folder, was, mine, one)) or dict.fromkeys(METRICS, False)
    copy()
    return {**seen, METRICS[2]: bool(in_child(partial(repaired, folder, was, mine, one)))}


def owners(path: Path, folder: Path) -> set[str]:
    """The runs whose rows are in a file; none for one that says something of all."""
    where = path.relative_to(folder).parts
    if where[0] in ("commits", "checkpoints"):
        return {where[1]}
    return {*pq.ParquetFile(path).read(columns=["run"])["run"].to_pylist()} if where[0] == "payload" else set()


def as_it_lies(folder: Path, was: dict[str, list[object]], mine: set[str], one: str) -> dict[str, bool]:
    """What a check finds of a damaged store, and what its runs are without a repair."""
    found = {**dict.fromkeys(METRICS, False), METRICS[0]: bool(errors(folder))}
    with suppress(StoreError):
        with Store.open(folder) as store:
            seen = digests(store)
            store.sql("SELECT bit_xor(hash(c)) FROM completions c")
            told = list(store.damaged)
        found[METRICS[3]] = not told and any(seen[run] != was[run] for run in mine)
        found[METRICS[1]] = go_on(folder, was, seen, mine, one)
    return found


def errors(folder: Path) -> list[str]:
    """What `check` finds wrong."""
    return [f"{f.where}: {f.text}" for f in check(folder) if f.kind == "error"]


def repaired(folder: Path, was: dict[str, list[object]], mine: set[str], one: str) -> bool:
    """Whether the other runs are what they were after a repair, and go on."""
    repair(folder)
    with Store.open(folder) as store:
        seen = digests(store)
    return go_on(folder, was, seen, mine, one)


def go_on(folder: Path, was: dict[str, list[object]], seen: dict[str, list[object]], mine: set[str], one: str) -> bool:
    """Whether the other runs are what they were, and one of them takes another step."""
    return all(seen[run] == was[run] for run in was if run not in mine) and record(folder, one) == STEPS[one] + 1


def imports(whole: Path, where: Path) -> dict[str, int]:
    """Forged exports: files written outside, and how many were refused."""
    source = exported(whole, where / "export")
    said = [forged(source, where / "forged", random.Random(point)) for point in range(FORGED)]
    return {"wrote": sum(n for n, _ in said), "refused": sum(bool(why) for _, why in said)}


def exported(whole: Path, out: Path) -> Path:
    """An export of one run."""
    with Store.open(whole) as store:
        export(store, out, ["c"])
    return out


def forged(source: Path, where: Path, rng: random.Random) -> tuple[int, str]:
    """Import an export with something forged; (files outside of the store that are new, changed or gone, why it was refused)."""
    shutil.rmtree(where, ignore_errors=True)
    lies = Path(shutil.copytree(source, where / "lies"))
    store = where / "store"
    for kept in (
        where / "out" / "kept",
        where / "out" / "r0" / "000000000" / "kept",
        store / "commits" / "mine" / "kept",
    ):
        kept.parent.mkdir(parents=True)
        kept.write_text("kept")
    forge(lies, rng)
    before = outside(where)
    why = ""
    try:
        import_(lies, store)
    except StoreError as error:
        why = str(error) or "refused"
    after = outside(where)
    return sum(before.get(name) != after.get(name) for name in {*before, *after}), why


def outside(where: Path) -> dict[str, bytes]:
    """Every file that an import may not touch."""
    store, runs = where / "store", where / "store" / "commits"
    new = {store / "STORE", *(run for run in runs.iterdir() if run.name != "mine")}  # what an import adds
    found = (p for p in where.rglob("*") if p.is_file() and not new & {p, *p.parents})
    return {str(p): p.read_bytes() for p in [*found, *(p for p in [Path("/tmp/out")] if p.is_file())]}


def forge(lies: Path, rng: random.Random) -> None:
    """Put one to three forged values into the manifest or the rows of an export, under a checksum that fits."""
    manifest = json.loads((lies / MANIFEST).read_text(encoding="utf-8"))
    del manifest["crc32"]
    for _ in range(rng.choice((1, 1, 2, 3))):
        name, table = rng.choice(NAMES), rng.choice(list(tables()))
        kind = rng.randrange(8)
        if kind == 0:
            manifest["runs"] = [name]
        elif kind == 1:
            manifest["runs"] = rng.choice(
                ([*manifest["runs"], name], name, {name: 1}, None, [None], [["c"]], ["c", "c"], [7])
            )
        elif kind == 2:
            manifest["rows"] = rng.choice(({name: 1}, {f"../out/{name}": 0}, None, [], {**manifest["rows"], table: -1}))
        elif kind == 3:
            manifest["schema_version"] = rng.choice((99, "x", None, -1, [1]))
        elif kind == 4:
            manifest[rng.choice(("sums", "rows", "runs", "more"))] = rng.choice((name, 7, {}, {table: [1, 2]}))
        elif kind == 5:  # another run in its rows, and in the manifest
            manifest["runs"] = [name]
            for each in tables():
                keyed(lies / f"{each}.parquet", "run", lambda n, name=name: pa.array([name] * n))
        elif kind == 6:
            rank = rng.choice((-1, -32768, 32767, 7))
            keyed(
                lies / f"{rng.choice((table, 'commits'))}.parquet",
                "rank",
                lambda n, rank=rank: pa.array([rank] * n, pa.int16()),
            )
        else:
            seq = rng.choice((-1, 2**31 - 1, 5, None))
            keyed(
                lies / f"{rng.choice((table, 'commits'))}.parquet",
                "seq",
                lambda n, seq=seq: pa.array([seq] * n, pa.int32()),
            )
    if rng.random() < 0.8:
        manifest.pop("sums", None)
    (lies / MANIFEST).write_text(sealed(manifest) if "sums" in manifest else json.dumps(manifest), encoding="utf-8")


def keyed(path: Path, column: str, made: Callable[[int], pa.Array]) -> None:
    """Replace a key in all rows of a table."""
    table = pq.ParquetFile(path).read()
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, column, made(len(table))), path)


def in_child(work: Callable[[], object]):
    """What work gives in a process of its own; None where it raises an error of the store. A crash is an error of ours."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            said = json.dumps(work())
        except StoreError:
            said = "null"
        except BaseException as error:
            said = json.dumps({"raised": f"{type(error).__name__}: {error}"})
        with os.fdopen(writing, "w") as out:
            out.write(said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as text:
        said = text.read()
    _, status = os.waitpid(child, 0)
    found = json.loads(said) if said else {"raised": f"it died with status {status}"}
    if isinstance(found, dict) and "raised" in found:
        print(f"{getattr(work, 'func', work).__name__}: {found['raised']}", file=sys.stderr)
        return None
    return found
