"""`workbench diagnose`: what is wrong with a run, with evidence and a way out."""

from __future__ import annotations

import argparse


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register it."""
    parser = commands.add_parser("diagnose", help="what is wrong with a run: rules with evidence and a way out")
    parser.add_argument("run", nargs="?", help="run id (default: the newest of the store)")
    parser.add_argument("--store", default="store", help="folder where runs are kept (default: ./%(default)s)")
    parser.set_defaults(command=_diagnose)


def _diagnose(args: argparse.Namespace) -> int:
    from workbench.analysis.diagnose import RULES, diagnose
    from workbench.store import Store

    with Store.open(args.store) as store:
        findings = diagnose(store, args.run)
    for finding in findings:
        print(finding)
    if not findings:
        print(f"nothing found by {len(RULES)} rules: {', '.join(RULES)}")
    return 0
