"""The command line: `workbench COMMAND`, one file of this folder a command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from workbench.cli import (
    compare,
    dashboard,
    demo,
    diagnose,
    docs,
    doctor,
    make_tiny,
    methods,
    replay,
    report,
    run,
    show,
    store,
    sweep,
)
from workbench.parallel import processes

COMMANDS = (
    demo,
    run,
    dashboard,
    show,
    store,
    replay,
    compare,
    sweep,
    report,
    diagnose,
    doctor,
    methods,
    make_tiny,
    docs,
)
"""A file of this folder each, in the order in which `workbench --help` lists them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Errors that a user can mend are one line, without a
    traceback: 2, and 3 where the verifier of a run said nothing."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if not hasattr(args, "command"):
        parser.print_help()
        return 0
    try:
        return args.command(args) or 0
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    except BrokenPipeError:  # who read the output has gone, `... | head`; what is still held back goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        mendable = isinstance(error, (ValueError, OSError)) or type(error).__module__.startswith("workbench.")
        if args.traceback or not mendable:
            raise
        process = f" (process {here})" if (here := processes.launched_rank()) else ""
        print(f"workbench{process}: {' '.join([str(error), *getattr(error, '__notes__', [])])}", file=sys.stderr)
        return getattr(error, "exit_code", 2)


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="workbench",
        description="Where should the next rollout go? Run, watch and compare rollout budgets of RLVR.",
    )
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", metavar="")

    parser.set_defaults(parser=parser)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def _version() -> str:
    from workbench.version import __version__

    return f"rollout-workbench {__version__}"


if __name__ == "__main__":
    raise SystemExit(main())
