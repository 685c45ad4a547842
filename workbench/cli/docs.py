"""`workbench docs`: the reference as static HTML."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register it."""
    parser = commands.add_parser(
        "docs", help="the reference as static HTML: methods, store, commands, glossary, results"
    )
    parser.add_argument("-o", "--out", type=Path, default=Path("site"), help="a folder (default: ./%(default)s)")
    parser.set_defaults(command=_docs)


def _docs(args: argparse.Namespace) -> int:
    from workbench.reference.site import build

    print(f"{len(build(args.out, args.parser))} pages; open {args.out / 'index.html'}")
    return 0
