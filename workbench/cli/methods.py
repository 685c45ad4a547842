"""`workbench methods`: what can be put into a pipeline."""

from __future__ import annotations

import argparse


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register it."""
    parser = commands.add_parser("methods", help="list the methods, or those that act at a verb")
    parser.add_argument("verb", nargs="?")
    parser.set_defaults(command=_methods)


def _methods(args: argparse.Namespace) -> int:
    from workbench.pipeline import catalog
    from workbench.stages import VERBS

    slugs = catalog.find(args.verb) if args.verb else list(catalog.methods())
    verbs = {slug: ", ".join(v for v in VERBS if hasattr(catalog.methods()[slug], v)) for slug in slugs}
    width = max(map(len, verbs.values()))
    for slug in slugs:
        print(f"{slug:<24} {verbs[slug]:<{width}}  {catalog.methods()[slug].card.title}")
    return 0
