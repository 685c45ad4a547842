"""`workbench run`: an experiment from a TOML file, also under torchrun."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.cli import overrides


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register it."""
    parser = commands.add_parser("run", help="run an experiment from a TOML file, also under torchrun")
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--steps", type=int, help="training steps in all, instead of the file's")
    parser.add_argument("--seed", type=int, help="instead of the file's")
    parser.add_argument("--store", help="instead of the file's")
    parser.add_argument("--seconds", type=float, help="stop after this time, whatever the step")
    parser.add_argument("--dashboard", action="store_true", help="open the live dashboard as well")
    parser.add_argument("--port", type=int, default=5006)
    parser.add_argument("--no-browser", action="store_true")
    parser.add_argument(
        "--resume", metavar="RUN", help="go on from the newest checkpoint of this run, to the same last step"
    )
    overrides.add_arguments(parser)
    parser.set_defaults(command=_run)


def _run(args: argparse.Namespace) -> int:
    from workbench.cli import terminal
    from workbench.runs.experiment import Experiment

    changes = {k: getattr(args, k) for k in ("steps", "seed", "store") if getattr(args, k) is not None}
    experiment = overrides.overridden(Experiment.from_toml(args.experiment).with_(**changes), args)
    port = args.port if args.dashboard else None
    return terminal.watch(
        experiment,
        resume=args.resume,
        allow=args.allow,
        command=args.alert,
        seconds=args.seconds,
        port=port,
        browser=not args.no_browser,
    )
