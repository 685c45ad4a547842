"""`workbench sweep`: several pipelines and seeds from one file; killed, it goes on where it was."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register it."""
    parser = commands.add_parser(
        "sweep", help="run several pipelines and seeds from one TOML file; goes on when killed"
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--store", help="instead of the file's")
    parser.set_defaults(command=_sweep)


def _sweep(args: argparse.Namespace) -> int:
    from workbench.parallel import processes
    from workbench.runs.sweep import Sweep

    sweep = Sweep.from_toml(args.file)
    runs = sweep.run(lambda text: print(text, flush=True), store=args.store)
    where = args.store or sweep.experiment.store
    if not processes.launched_rank():
        print(f"{len(runs)} runs in {where}; compare them: workbench compare --store {where}")
    return 0
