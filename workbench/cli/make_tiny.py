"""`workbench make-tiny`: train the bundled tiny model again, from a seed."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register it."""
    parser = commands.add_parser("make-tiny", help="train the bundled tiny model again, from a seed")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(command=_make_tiny)


def _make_tiny(args: argparse.Namespace) -> int:
    from workbench.models.make_tiny import make

    make(args.folder, seed=args.seed)
    return 0
