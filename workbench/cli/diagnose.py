"""`workbench diagnose`: what is wrong with a run, with evidence and a way out."""

from __future__ import annotations

import argparse

from workbench.cli import overrides

FAILED = 4
"""The exit code of a diagnosis that found what it was told to fail on."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register it."""
    parser = commands.add_parser("diagnose", help="what is wrong with a run: rules with evidence and a way out")
    parser.add_argument("run", nargs="?", help="run id (default: the newest of the store)")
    parser.add_argument("--store", default="store", help="folder where runs are kept (default: ./%(default)s)")
    parser.add_argument(
        "--fail-on",
        type=overrides.words,
        default=(),
        metavar="RULES",
        help=f"exit with {FAILED} where one of these rules found something: names with commas, or any",
    )
    parser.set_defaults(command=_diagnose)


def _diagnose(args: argparse.Namespace) -> int:
    from workbench import validate
    from workbench.analysis.diagnose import RULES, examine
    from workbench.store import Store

    validate.known(args.fail_on, ["any", *RULES], "--fail-on")
    with Store.open(args.store) as store:
        found = examine(store, args.run)
    if not found.findings:
        print(f"nothing found by {len(RULES)} rules")
    print(found)
    spoke = {finding.rule for finding in found.findings}
    return FAILED if spoke and spoke.union(["any"]) & set(args.fail_on) else 0
