"""`workbench report`: one run, or several side by side, as a file to give away."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register `report`."""
    report = commands.add_parser("report", help="runs as one HTML file, a PDF, or Markdown with figures and tables")
    report.add_argument("runs", nargs="*", help="run ids (default: the newest of the store); several are compared")
    report.add_argument("--store", default="store", help="folder where runs are kept (default: ./%(default)s)")
    report.add_argument("--all", action="store_true", help="all runs of the store that were evaluated twice or more")
    report.add_argument(
        "-o", "--out", type=Path, default=Path("report.html"), help="a .html, .pdf or .md file (default: %(default)s)"
    )
    report.add_argument(
        "--at", dest="axis", default="tokens", choices=("rollouts", "tokens", "trained_tokens", "seconds", "step"), help="what a comparison holds equal"
    )  # fmt: skip
    report.add_argument("--baseline", help="pipeline that the others are compared with (default: grpo)")
    report.add_argument(
        "--measure", default="pass@1", help="of a comparison: pass@k or majority@k (default: %(default)s)"
    )
    report.add_argument(
        "--details",
        action="append",
        metavar="RUN",
        help="a run with a chapter of its own (default: one of each pipeline)",
    )
    report.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="STEP:GROUP",
        help="a group to draw as a tree; may be given several times",
    )
    report.add_argument("--no-pictures", action="store_true", help="Markdown with SVG figures alone: needs no Chromium")
    report.set_defaults(command=_report)


def _report(args: argparse.Namespace) -> int:
    from workbench.report import write
    from workbench.store import Store

    groups = [_place(g) for g in args.group]
    with Store.open(args.store) as store:
        runs = args.runs or None
        if args.all:
            rows = store.ask("compare_runs").to_pylist()
            times = {r["run"]: sum(o["run"] == r["run"] for o in rows) for r in rows}
            runs = [run for run, n in times.items() if n > 1]
            if not runs:
                raise ValueError(f"no run of {store.where} was evaluated twice or more; name the runs to report")
        files = write(
            store, runs, args.out, axis=args.axis, baseline=args.baseline,
            measure=args.measure, details=args.details, groups=groups,
            pictures=not args.no_pictures,
        )  # fmt: skip
    size = sum(f.stat().st_size for f in files)
    print(f"{files[0]}{f' and {len(files) - 1} files beside it' if len(files) > 1 else ''}, {size / 1e6:.1f} MB")
    return 0


def _place(text: str) -> tuple[int, int]:
    step, _, group = text.partition(":")
    if not (step.isdigit() and group.isdigit()):
        raise ValueError(f"a group is named STEP:GROUP, as in 40:3, not {text!r}")
    return int(step), int(group)
