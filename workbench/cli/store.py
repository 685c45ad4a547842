"""`workbench store info | check | compact | export | import | prune`: look after a folder of runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register `store` and its commands under a parser's subcommands."""
    store = commands.add_parser("store", help="look after recorded runs: sizes, checks, compaction, export, pruning")
    store.set_defaults(command=lambda args: store.print_help())
    verbs = store.add_subparsers(title="commands", metavar="")

    def verb(name: str, help_: str, command) -> argparse.ArgumentParser:
        parser = verbs.add_parser(name, help=help_, description=help_)
        parser.add_argument(
            "store", nargs="?", default="store", help="folder or URL of the store (default: ./%(default)s)"
        )
        parser.set_defaults(command=command)
        return parser

    verb("info", "what is there: runs, sizes, and what waits for compaction", _info)
    check = verb("check", "is everything there and readable, and does it add up?", _check)
    check.add_argument(
        "--repair",
        action="store_true",
        help="put back what can be, also where the store does not open, and say what is given up",
    )
    verb("compact", "fold small commits into large files", _compact)
    export = verb("export", "write runs as one Parquet file a table", _export)
    export.add_argument("out", type=Path, help="a new folder")
    export.add_argument("--run", action="append", help="only this run; may be given several times")
    import_ = verb("import", "take the runs of an export into a store", _import)
    import_.add_argument("source", type=Path, help="the folder of an export")
    prune = verb("prune", "delete runs, or their token columns, for good", _prune)
    prune.add_argument("--run", action="append", default=[], help="this run; may be given several times")
    prune.add_argument("--older-than", type=float, metavar="DAYS", help="runs that recorded nothing for so long")
    prune.add_argument(
        "--tokens", action="store_true", help="only token ids, log-probabilities, entropies, roles and token advantages"
    )
    prune.add_argument("--yes", action="store_true", help="do it; without it, only say what would go")


def _info(args: argparse.Namespace) -> int:
    from workbench.store import Store
    from workbench.store.open import sizes

    with Store.open(args.store) as store:
        runs = store.runs().to_pylist()
        counts = {
            r["run"]: r["n"] for r in store.sql("SELECT run, count(*) AS n FROM rollouts GROUP BY run").to_pylist()
        }
        size = sizes(store.url)
    print(f"{store.where}: {len(runs)} runs, {human(sum(size.bytes.values()))}")
    print("  " + ", ".join(f"{name} {human(n)}" for name, n in size.bytes.items()))
    print(f"  generation {size.generation}; {sum(size.waiting.values())} {size.unit} wait for compaction")
    for text in store.damaged.values():
        print(f"  damaged: {text}")
    for r in runs:
        lag = sum(n for name, n in size.waiting.items() if name.rsplit("/r", 1)[0] == r["run"])
        print(
            f"  {r['run']:<36} {r['status']:<11} step {r['last_step'] or 0:<6} {counts.get(r['run'], 0):>9} rollouts"
            f"  {lag:>5} waiting  {r['started']:%Y-%m-%d %H:%M}"
        )
    return 0


def _check(args: argparse.Namespace) -> int:
    from workbench.store.care.check import check

    if args.repair:
        from workbench.store.care.repair import repair

        for f in repair(there(args.store), progress):
            print(f"{f.kind}: {f.where}: {f.text}")
    found = check(there(args.store), progress)
    for f in found:
        print(f"{f.kind}: {f.where}: {f.text}")
    errors = sum(f.kind == "error" for f in found)
    print(f"{errors} errors, {len(found) - errors} notes" if found else "everything is there and adds up")
    return 1 if errors else 0


def _compact(args: argparse.Namespace) -> int:
    from workbench.store.open import compact, sizes

    store = there(args.store)
    n, size = compact(store, threads=2), sizes(store)
    left = sum(size.waiting.values())
    print(
        f"folded {n} {size.unit}" + (f"; {left} wait, for another process is at it or they came since" if left else "")
    )
    return 0


def _export(args: argparse.Namespace) -> int:
    from workbench.store import Store
    from workbench.store.care.export import export

    with Store.open(args.store, live=False) as store:
        rows = export(store, args.out, args.run, progress)
    print(
        f"{args.out}: {sum(rows.values())} rows in {len(rows)} tables; `workbench store import STORE {args.out}` reads it"
    )
    return 0


def _import(args: argparse.Namespace) -> int:
    from workbench.store import compact
    from workbench.store.care.export import import_

    runs = import_(args.source, args.store, progress)
    compact(args.store, threads=2)
    print(f"{args.store}: took in {', '.join(runs) or 'no run'}")
    return 0


def _prune(args: argparse.Namespace) -> int:
    from workbench.store import Store
    from workbench.store.care.prune import old_runs, prune

    with Store.open(args.store) as store:
        runs = [*args.run, *(old_runs(store, args.older_than) if args.older_than is not None else [])]
        store.known([run for run in runs if not store.damage_of(run)])
    if not runs:
        raise ValueError("nothing to prune: give --run RUN or --older-than DAYS that some run is")
    what = "the token columns of " if args.tokens else ""
    if not args.yes:
        print(f"would delete {what}{', '.join(dict.fromkeys(runs))}; add --yes to do it")
        return 0
    freed = prune(args.store, set(runs), tokens_only=args.tokens, progress=progress)
    left = f"; compacting what stays took {human(-freed)} more than that" if freed < 0 else ""
    print(f"deleted {what}{', '.join(dict.fromkeys(runs))}: {human(max(freed, 0))} freed{left}")
    return 0


def progress(done: int, total: int, what: str) -> None:
    """A line that counts, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r{done}/{total} {what}", end="" if done < total else "\r\x1b[K", file=sys.stderr, flush=True)


def human(n: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n) < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


def there(store: str) -> str:
    """The store, given that there is one; raises FileNotFoundError with the way out where there is none."""
    from workbench.store.urls import is_there

    if not is_there(store):
        raise FileNotFoundError(f"there is no store in {store!r}; `workbench demo` makes one")
    return store
