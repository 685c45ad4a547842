"""What `demo` and `run` have in common on the command line; `--set update.epochs=2` replaces a setting of an experiment."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING

from workbench import validate

if TYPE_CHECKING:
    from workbench.runs.experiment import Experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--set`, `--lr`, `--alert` and `--allow`."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a field of the experiment, or a setting in one: eval_every=5, update.epochs=2, budget.rollouts=64",
    )
    parser.add_argument("--lr", type=float, help="learning rate, the same as --set world.lr=LR")
    parser.add_argument(
        "--alert",
        default="",
        metavar="COMMAND",
        help="run this once for each finding of the diagnosis, which it gets as input",
    )
    parser.add_argument(
        "--allow",
        type=words,
        default=(),
        metavar="NAMES",
        help="what a resumed run may have otherwise than recorded: answers,stop,...",
    )


def words(text: str) -> list[str]:
    """Names written with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def named(pairs: Sequence[str]) -> dict[str, object]:
    """Options written as name=value; a value is a number, a truth value or a list where JSON reads it so, else a text."""
    found: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise ValueError(f"{pair!r} is not written as name=value")
        try:
            found[name.strip()] = json.loads(text)
        except json.JSONDecodeError:
            found[name.strip()] = text
    return found


def overridden(experiment: Experiment, args: argparse.Namespace) -> Experiment:
    """The experiment with what `--set` and `--lr` say. ValueError for what is no field, or no setting in one."""
    given = named(args.set) | ({} if args.lr is None else {"world.lr": args.lr})
    for name, value in given.items():
        field, *path = name.split(".")
        validate.known([field], [f.name for f in fields(experiment)], "--set")
        experiment = experiment.with_(**{field: _within(getattr(experiment, field), path, value, name)})
    return experiment


def _within(old: object, path: Sequence[str], value: object, name: str) -> object:
    """What a setting is replaced by: the value itself, or the mapping that holds it, with it in its place."""
    if not path:
        return value
    held = asdict(old) if is_dataclass(old) and not isinstance(old, type) else old  # a budget
    if not isinstance(held, Mapping):
        raise ValueError(f"--set {name}: {name.rpartition('.')[0]} is no table of settings, but {held!r}")
    return {**held, path[0]: _within(held.get(path[0], {}), path[1:], value, name)}
