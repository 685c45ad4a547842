"""Run a bench, print its figures and append them as JSON lines: `python -m tests.benchmarks NAME [--case CASE]`."""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
from pathlib import Path

from tests.benchmarks.figure import card, machine, versions

HERE = Path(__file__).parent


def names() -> list[str]:
    """Files of this folder with a function `bench`."""
    return sorted(p.stem for p in HERE.glob("*.py") if "\ndef bench(" in p.read_text(encoding="utf-8"))


def run(name: str, *, case: str | None, out: Path) -> int:
    """Run one bench, or all; print each figure and append it to <out>/<bench>.jsonl."""
    if name != "all" and name not in names():
        raise ValueError(f"no bench {name!r}; there are {', '.join(names())} and all")
    out.mkdir(parents=True, exist_ok=True)
    for bench in names() if name == "all" else [name]:
        for figure in importlib.import_module(f"tests.benchmarks.{bench}").bench(case):
            row = {
                "bench": bench, **figure._asdict(), "machine": machine(), "card": card(),
                "date": datetime.date.today().isoformat(), "versions": versions(),
            }  # fmt: skip
            print(f"{bench} {figure.case} {figure.metric}: {figure.value:.4g} {figure.unit} {figure.note}", flush=True)
            with (out / f"{bench}.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
    return 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure speed and learning.")
    parser.add_argument("name", choices=[*names(), "all"])
    parser.add_argument("--case", help="one of the bench's cases (default: all)")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where JSON lines are appended")
    args = parser.parse_args()
    return run(args.name, case=args.case, out=args.out)


if __name__ == "__main__":
    raise SystemExit(main())
