"""Repair: bring a damaged store back to what is whole, and say what is given up. Nothing is deleted.

Damaged files are moved into `damaged/<time>/`, under the paths they had. Compacted files come back from the newest
generation whose files are whole, with the commits after it, which stay for one generation; a run whose commit is damaged
ends before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from workbench.store.care.check import LOST
from workbench.store.errors import RunBusyError, StoreError
from workbench.store.folder import files
from workbench.store.folder.damage import gaps, of_commit, of_file, of_pointer, quarantine, read_base
from workbench.store.reader import Store
from workbench.store.records import Finding, Progress, silent
from workbench.store.rows.tables import now
from workbench.store.urls import only_folder


class _Way(NamedTuple):
    """A generation to go back to: what is damaged of its parts, and how far each writer's commits reach from it."""

    current: files.Current
    bad: dict[str, str]
    reach: dict[str, int]

    @property
    def worth(self) -> tuple[int, int, int]:
        return sum(seq + 1 for seq in self.reach.values()), -len(self.bad), self.current.generation


def repair(url: str | Path, progress: Progress = silent) -> list[Finding]:
    """Put back what can be; what was done and what is given up, as findings of the kinds "repaired" and "lost".

    Raises RunBusyError while the store is compacted, StoreError where what is damaged is being written."""
    folder = only_folder(url, "repair")
    if not (folder / "commits").is_dir() and not files.compacted(folder):
        raise StoreError(f"{folder} is no store: there is no folder commits in it")
    lock = files.lock(folder / "compact.lock")
    if lock is None:
        raise RunBusyError(f"{folder} is being compacted; try again in a moment")
    with lock:
        aside = folder / "damaged" / f"{now():%Y%m%dT%H%M%S%f}"
        found = [*_marker(folder, aside), *_current(folder, aside), *_commits(folder, aside, progress)]
    with Store.open(folder) as store:
        for row in store.sql(LOST).to_pylist():
            steps = f"step {row['first']}" if row["first"] == row["last"] else f"steps {row['first']} to {row['last']}"
            found.append(Finding("lost", row["run"], f"the texts of {row['n']} rollouts of {steps}"))
    return found


def _aside(folder: Path, path: Path, aside: Path) -> str:
    """Move a file or folder out of the way; where it is now."""
    to = aside / path.relative_to(folder)
    to.parent.mkdir(parents=True, exist_ok=True)
    path.rename(to)
    return str(to.relative_to(folder))


def _marker(folder: Path, aside: Path) -> Iterator[Finding]:
    if files.check_version(folder) is None:
        if (folder / "STORE").exists():
            _aside(folder, folder / "STORE", aside)
        files.write_durably(folder / "STORE", files.MARKER)
        yield Finding("repaired", "STORE", "written anew")


def _current(folder: Path, aside: Path) -> Iterator[Finding]:
    """Publish the best of the generations that can be gone back to, where the newest is damaged."""
    path = folder / "CURRENT"
    before = files.parse_current(path.read_bytes()) if path.exists() and not of_pointer(path) else None
    if before is None and not path.exists() and not files.compacted(folder):
        return
    for generation in [p for p in files.generations(folder).values() if of_pointer(p)]:
        yield Finding("repaired", generation.name, f"damaged, and moved to {_aside(folder, generation, aside)}")
    ways = _ways(folder, before)
    known = {name: total for way in ways for name, total in way.current.sums.items()}
    bad = _bad(folder, before) if before else {}
    if before and not bad:
        for name in sorted({*known} - {*before.files}):  # kept of the generation before
            if (folder / name).exists() and (why := of_file(folder / name, known[name])):
                yield Finding("repaired", name, f"damaged ({why}), and moved to {_aside(folder, folder / name, aside)}")
        return
    best = max(ways, key=lambda way: way.worth)
    for name, why in {**bad, **best.bad}.items():
        if (folder / name).exists():
            yield Finding("repaired", name, f"damaged ({why}), and moved to {_aside(folder, folder / name, aside)}")
    if path.exists() and before is None:
        _aside(folder, path, aside)
    newest = 1 + max(best.current.generation, before.generation if before else 0, *files.generations(folder), 0)
    parts = tuple(part for part in best.current.parts if part not in best.bad)
    back = files.Current(newest, best.current.base, parts, best.current.mark)
    files.write_current(folder, back, known)
    yield Finding("repaired", "CURRENT", f"names generation {best.current.generation} and the commits after it")
    for name, last in sorted({n: s for current in _said(folder, before) for n, s in current.mark.items()}.items()):
        if (reached := best.reach.get(name, -1)) < last:
            yield Finding("lost", name, f"commits {reached + 1} to {last}, which were folded into a damaged base")


def _said(folder: Path, before: files.Current | None) -> list[files.Current]:
    """The generations that are known, the newest last."""
    kept = [path for path in files.generations(folder).values() if not of_pointer(path)]
    return [*(files.parse_current(path.read_bytes()) for path in reversed(kept)), *([before] if before else [])]


def _bad(folder: Path, current: files.Current) -> dict[str, str]:
    """The damaged ones of the files that a generation names, and what is wrong with them."""
    return {f: why for f in current.files if (why := of_file(folder / f, current.sums.get(f)))}


def _ways(folder: Path, before: files.Current | None) -> list[_Way]:
    """The generations that can be gone back to: those whose base is whole, and what is recorded without any."""
    said = _said(folder, before)
    known = {current.base for current in said}
    for base in sorted((folder / "base").glob("gen-*.duckdb")):
        name, generation = f"base/{base.name}", int(base.stem.removeprefix("gen-"))
        if name not in known and not of_file(base, None):  # from before it was kept what CURRENT said: the base knows
            parts = [f"payload/{p.name}" for p in sorted((folder / "payload").glob("part-*.parquet"))]
            mine = tuple(
                p for p in parts if files.PART.fullmatch(p) and int(p.split("-")[1].split(".")[0]) <= generation
            )
            said.append(files.Current(generation, name, mine, read_base(base)))
    ways = []
    for current in [*said, files.Current()]:
        bad = _bad(folder, current)
        if current.base not in bad:
            ways.append(_Way(current, bad, files.commits_since(folder, current.mark)[1]))
    return ways


def _commits(folder: Path, aside: Path, progress: Progress) -> Iterator[Finding]:
    """Move what is damaged, and of its writer all that follows, out of the way."""
    mark = files.read_current(folder).mark
    homes = dict(files.writers(folder))
    for name, home in homes.items():
        for path in sorted(home.iterdir()):
            if path.name.isdigit() and int(path.name) <= mark.get(name, -1) and of_commit(path):
                to = _aside(folder, path, aside)
                yield Finding(
                    "repaired", f"commits/{name}/{path.name}", f"damaged, and its rows are in the base; moved to {to}"
                )
    todo, last = files.commits_since(folder, mark)
    progress(0, len(todo), "commits")
    found = quarantine(todo)
    found |= {name: one for name, one in gaps(folder, last).items() if name not in found}
    for name, one in sorted(found.items()):
        held = files.lock(homes[name] / "LOCK")
        if held is None:
            yield Finding("error", name, f"{one.text}, and it is being written; stop it, and repair again")
            continue
        with held:
            gone = [p for p in sorted(homes[name].iterdir()) if p.name.isdigit() and int(p.name) >= one.seq]
            for path in gone:
                to = _aside(folder, path, aside)
            files.fsync(homes[name])
        run, _, rank = name.partition("/r")
        who = run if rank == "0" else f"{run}, rank {rank}"
        whole = f"{len(gone) - 1} whole ones after it" if len(gone) > 1 else "nothing after it"
        yield Finding("lost", who, f"{one.text}; it and {whole} were moved to {Path(to).parent}")
