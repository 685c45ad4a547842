"""`workbench compare`: which pipeline learned more at equal cost, over seeds."""

from __future__ import annotations

import argparse


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register it."""
    parser = commands.add_parser("compare", help="which pipeline learned more at equal cost, over seeds")
    parser.add_argument("runs", nargs="*", help="run ids (default: all of the store)")
    parser.add_argument("--store", default="store", help="folder where runs are kept (default: ./%(default)s)")
    parser.add_argument(
        "--at", dest="axis", default="tokens", choices=("rollouts", "tokens", "trained_tokens", "seconds", "step")
    )
    parser.add_argument("--baseline", help="pipeline that the others are compared with (default: grpo)")
    parser.add_argument(
        "--measure", default="pass@1", help="pass@k or majority@k of the evaluation (default: %(default)s)"
    )
    parser.add_argument("--set", default="", help="a further evaluation set by its name (default: the first)")
    parser.add_argument("--target", type=float, help="also the cost to this pass rate")
    parser.set_defaults(command=_compare)


def _compare(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from workbench.analysis.compare import amount, compare
    from workbench.store import Store

    with Store.open(args.store) as store:
        made = compare(
            store, args.runs or None, axis=args.axis, baseline=args.baseline, measure=args.measure, set=args.set
        )
    table = Table(title=f"{made.what} after {amount(made.x[-1], args.axis)}")
    for name in ("pipeline", "seeds", "final", f"to {made.baseline} (95 %)", "on the way", "to the baseline (95 %)"):
        table.add_column(name)
    for r in made.rows():
        table.add_row(
            str(r["pipeline"]),
            str(r["seeds"]),
            f"{r['final']:.3f}",
            _difference(r, "difference", "low", "high", made.baseline),
            f"{r['on_the_way']:.3f}",
            _difference(r, "area_difference", "area_low", "area_high", made.baseline),
        )
    console = Console()
    console.print(table)
    if args.target is not None:
        for r in made.to_target(args.target):
            console.print(
                f"{r['pipeline']}: {r['reached']} of {r['seeds']} seeds reached {args.target:g}"
                + (f", after {amount(r[args.axis], args.axis)} on average" if r["reached"] else ""),
                markup=False,
            )
    for warning in made.warnings:
        console.print(f"unfair: {warning}", markup=False)
    return 0


def _difference(row: dict, mean: str, low: str, high: str, baseline: str) -> str:
    if row["pipeline"] == baseline:
        return "-"
    if row["pairs"] < 2:
        return f"{row[mean]:+.3f} ({row['pairs']} pair)"
    return f"{row[mean]:+.3f} ({row[low]:+.3f} .. {row[high]:+.3f})"
