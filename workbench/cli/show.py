"""`workbench show`: what a store holds, in the terminal: runs and steps, the groups of a step, the rollouts of a prompt.

Texts are a model's: what is no printable character is shown as its code, so that none can steer the terminal."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from workbench.store.urls import redacted

if TYPE_CHECKING:
    from workbench.store import Store

Row = Mapping[str, Any]

RUNS = {"run": "run", "status": "status", "last_step": "steps", "started": "started", "pipeline": "methods"}
STEPS = {
    "step": "step", "reward": "reward", "pass_rate": "pass rate", "zero_advantage": "zero advantage", "rollouts": "rollouts",
    "tokens": "tokens", "length": "length", "seconds": "seconds",
}  # fmt: skip
GROUPS = {
    "prompt_id": "prompt", "rollouts": "n", "solved": "solved", "reward": "reward", "spread": "spread", "length": "length",
    "context": "context", "prompt": "text",
}  # fmt: skip
HISTORY = {"step": "step", "asked": "n", "solved": "solved", "tried": "of", "reward": "reward", "why": "asked because"}
ELASTIC = ("pipeline", "context", "prompt", "why")
"""Columns that give way where the terminal is narrow."""


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register `show`."""
    about = "look into a store from the terminal: steps, the groups of a step, the rollouts of a prompt"
    show = commands.add_parser("show", help=about, description=about)
    show.add_argument("store", nargs="?", default="store", help="folder or URL of the store (default: ./%(default)s)")
    show.add_argument("--run", help="run id (default: the newest of the store)")
    show.add_argument("--step", type=_step, help="the groups of this step; `last` for the last one")
    show.add_argument(
        "--prompt", help="what was asked of this prompt, and its rollouts in the step, or when last asked"
    )
    show.add_argument(
        "--last", type=int, default=15, metavar="N", help="so many rows at most (default: %(default)s; 0: all)"
    )
    show.add_argument(
        "--chars", type=int, default=400, metavar="N", help="so much of a rollout's text (default: %(default)s; 0: all)"
    )
    show.add_argument("--json", action="store_true", help="one JSON object a line, whole: all rows, all of the text")
    show.set_defaults(command=_show)


def _step(text: str) -> int:
    """A step's number; -1 for the last one."""
    if text != "last" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither the number of a step nor `last`")
    return -1 if text == "last" else int(text)


def visible(text: str) -> str:
    """The text with the code of each character that is neither printable nor a line's end."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _show(args: argparse.Namespace) -> int:
    from workbench.cli.store import there
    from workbench.store import Store

    with Store.open(there(args.store)) as store:
        runs = store.runs().to_pylist()
        if not runs:
            raise ValueError(f"the store {store.where} holds no run yet")
        if not args.json:
            for text in store.damaged.values():
                print(f"damaged: {visible(text)}")
        run = args.run or runs[0]["run"]
        if run not in (known := [r["run"] for r in runs]):
            raise ValueError(f"there is no run {run!r} in {store.where}; there are {', '.join(known[:5])}")
        if args.prompt is not None:
            return _prompt(store, run, args)
        if args.step is not None:
            return _groups(store, run, args)
        return _steps(store, runs, run, args)


def _steps(store: Store, runs: list[Row], run: str, args: argparse.Namespace) -> int:
    steps = store.ask("reward_by_step", run=run).to_pylist()
    if args.json:
        return _json(steps)
    _table("runs", RUNS, runs[: args.last or None], len(runs))
    _table(f"steps of {run}", STEPS, steps[-args.last :], len(steps))
    print(f"a step's groups: workbench show {redacted(args.store)} --run {run} --step last")
    return 0


def _groups(store: Store, run: str, args: argparse.Namespace) -> int:
    groups = store.ask("groups_of_step", run=run, step=_number(args.step)).to_pylist()
    if not groups:
        last = store.sql("SELECT max(step) AS step FROM steps WHERE run = $run", {"run": run}).to_pylist()[0]["step"]
        raise ValueError(
            f"run {run} has no group at step {args.step}; its last step is {last}"
            if last
            else f"run {run} has no step yet"
        )
    if args.json:
        return _json(groups)
    _table(f"step {groups[0]['step']} of {run}", GROUPS, groups[: args.last or None], len(groups))
    first = groups[0]
    print(
        f"its rollouts: workbench show {redacted(args.store)} --run {run} --step {first['step']} --prompt {first['prompt_id']}"
    )
    return 0


def _prompt(store: Store, run: str, args: argparse.Namespace) -> int:
    history = store.ask("outcomes_of_prompt", run=run, prompt=args.prompt).to_pylist()
    if not history:
        raise ValueError(
            f"run {run} asked nothing of a prompt {args.prompt!r}; `workbench show --step last` lists some"
        )
    step = _number(args.step) if args.step is not None else history[-1]["step"]
    rollouts = store.ask("last_group", run=run, prompt=args.prompt, step=step).to_pylist()
    if args.json:
        return _json(rollouts)
    if rollouts:
        reference = f"   (reference: {visible(rollouts[0]['reference'])})" if rollouts[0]["reference"] else ""
        print(f"{visible(rollouts[0]['prompt'] or '')}{reference}\n")
    _table(f"prompt {args.prompt} in {run}", HISTORY, history[-args.last :], len(history))
    if not rollouts:
        print(f"nothing was asked of it at step {step}")
    for r in rollouts:
        facts = (
            f"reward {_cell('reward', r['reward'])}", f"advantage {_cell('advantage', r['advantage'])}", f"{r['length']} tokens, {r['finish']}",
            f"{r['fate']}{' (' + r['reason'] + ')' if r['reason'] else ''}", r["context"], r["failure"],
        )  # fmt: skip
        print(visible(f"step {r['step']} {r['rollout_id']}: {', '.join(f for f in facts if f)}"))
        text = visible(r["text"] if r["text"] is not None else "(its text was not kept)")
        more = len(text) - args.chars if args.chars else 0
        print("  " + (text[: args.chars] if more > 0 else text).replace("\n", "\n  "))
        print(f"  ... {more} characters more (--chars 0 shows all)\n" if more > 0 else "")
    return 0


def _number(step: int) -> int | None:
    """What the questions take: None for the last step."""
    return None if step < 0 else step


def _json(rows: Iterable[Row]) -> int:
    for row in rows:
        print(json.dumps(row, default=str))
    return 0


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if name == "pipeline":
        return " + ".join(dict.fromkeys(m for methods in json.loads(str(value)).values() for m in methods))
    if name == "why" and isinstance(value, list):
        return ", ".join(f"{of} {number:.3g}" for of, number in value)
    return visible(str(value)).replace("\n", " ")


def _table(title: str, columns: Mapping[str, str], rows: list[Row], of: int) -> None:
    """Print rows as a table; columns: name of a column -> what stands above it, left out where no row has a value. of: how
    many rows there are."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(
        box=SIMPLE_HEAD, title=Text(title), title_justify="left", show_edge=False, collapse_padding=True, pad_edge=False
    )
    if len(rows) < of:
        table.caption, table.caption_justify = f"{len(rows)} of {of}; --last 0 shows all", "left"
    shown = {name: head for name, head in columns.items() if any(row[name] not in (None, "") for row in rows)}
    cells = {name: [_cell(name, row[name]) for row in rows] for name in shown}
    width = {name: max(len(head), *map(len, cells[name])) for name, head in shown.items()}
    elastic = [name for name in shown if name in ELASTIC]
    left = console.width - sum(2 + n for name, n in width.items() if name not in elastic)
    for name, head in shown.items():
        number = all(isinstance(row[name], (int, float, type(None))) for row in rows)
        room = max(12, left // len(elastic) - 2) if name in elastic else width[name]
        table.add_column(head, justify="right" if number else "left", no_wrap=True, width=min(width[name], room))
    for row in zip(*cells.values(), strict=True):
        table.add_row(*map(Text, row))
    console.print(table)
    print()
