"""`workbench replay`: what other pipelines would have asked on a recorded run, and how mixed those groups were."""

from __future__ import annotations

import argparse


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register `replay`."""
    replay = commands.add_parser("replay", help="let other pipelines decide over the rounds of a recorded run")
    replay.add_argument("run", nargs="?", help="run id (default: the newest of the store)")
    replay.add_argument("--store", default="store", help="folder where runs are kept (default: ./%(default)s)")
    replay.add_argument(
        "--pipeline", action="append", default=[], help="methods, 'grpo + vade'; several times to compare; the run's own is always there"
    )  # fmt: skip
    replay.add_argument(
        "--methods", action="append", default=[], metavar="FILE", help="a Python file, or a module, with methods of your own"
    )  # fmt: skip
    replay.add_argument(
        "--serve",
        choices=("recorded", "resample", "fitted"),
        default="recorded",
        help="answer with recorded rollouts, with draws from them, or with outcomes at fitted success rates",
    )
    replay.add_argument("--window", type=int, default=0, help="steps away from which a recorded rollout may be taken")
    replay.set_defaults(command=_replay)


def _replay(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from workbench.analysis import whatif
    from workbench.pipeline import Pipeline, catalog
    from workbench.runs.experiment import Experiment
    from workbench.store import Store

    console = Console()
    for source in args.methods:
        catalog.add(source)
    with Store.open(args.store) as store:
        run = args.run or store.latest()
        if run is None:
            raise ValueError(f"the store {store.where} has no run yet; `workbench demo` records one")
        experiment = Experiment.recorded(args.store, run)
        own = Pipeline.parse(experiment.pipeline)
        if own.unknown and not args.pipeline:
            own.unknown[0].refuse()
        for method in own.unknown:
            console.print(f"without the run's own pipeline: {method.reason}", style="dim", markup=False)
        several = [*([] if own.unknown else [own]), *map(Pipeline.parse, args.pipeline)]
        pipelines = list({p.text: p for p in several}.values())
        needs = frozenset().union(*(p.needs for p in pipelines))
        console.print(f"reading {run}", style="dim")
        run, recording = whatif.record(store, run, needs)
    skill = whatif.fitted(recording)
    results = []
    for pipeline in pipelines:
        console.print(f"replaying {pipeline.text}", style="dim", markup=False)
        results.append(
            whatif.replay(
                recording,
                pipeline,
                experiment.budget,
                run=run,
                seed=experiment.seed,
                serve=args.serve,
                window=args.window,
                skill=skill,
            )
        )
    table = Table(title=f"{run}, {len(recording.steps)} steps, served {args.serve}")
    for name in ("pipeline", "asked", "recorded", "mixed groups", "mixed, fitted (95 %)", "tokens a step", "agreement"):
        table.add_column(name)
    for r in whatif.rank(results).results:
        mixed, low, high = r.interval("mixed_expected")
        trusted = r.serve == "fitted" or r.coverage >= whatif.THIN
        served = f"{r.interval('mixed')[0]:.3f}" if trusted else "too thin"
        table.add_row(
            r.pipeline,
            str(int(r.asked.sum())),
            f"{r.coverage:.0%}",
            served,
            f"{mixed:.3f} ({low:.3f} .. {high:.3f})",
            f"{r.tokens.mean():.0f}",
            f"{r.interval('agreement')[0]:.0%}",
        )
    console.print(table)
    h = results[0].calibration
    console.print(
        f"fitted success rates on held-out steps: Brier {h.brier:.3f} (mean rate alone {h.base_brier:.3f}), "
        f"{h.covered:.0%} of outcomes in the central 90 %"
    )
    for r in results:
        if r.shortfall.any():
            missing = ", ".join(f"{p} ({n})" for p, n in r.most_missing(3))
            console.print(
                f"{r.pipeline}: {int(r.shortfall.sum())} rollouts of {int((r.shortfall > 0).sum())} prompts were "
                f"asked and never recorded, most of {missing}",
                markup=False,
            )
    console.print("This says how mixed groups would have been, not how well the model would have learned.", style="dim")
    return 0
