"""The scheduler of APRIL on known lengths, for tests: the running method trains the same groups (tests/worlds/test_april)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.vectors.calls import calls


class Round(NamedTuple):
    """One step of the scheduler model.

    submitted, train, recycled: prompts, in order of submission, of completion, of submission. ticks until the stop.
    recycled_tokens: generated so far by each recycled group. resumed_tokens: of what was submitted, made in earlier
    rounds. segments: prompt -> per response its (version, tokens) runs, for the trained groups."""

    round: int
    submitted: list[int]
    ticks: int
    train: list[int]
    recycled: list[int]
    recycled_tokens: list[int]
    resumed_tokens: int
    train_tokens: int
    offpolicy_tokens: int
    segments: Mapping[int, list[list[list[int]]]]


@dataclass
class _Group:
    """A prompt's responses on their way: lengths to reach, runs of (version, tokens) so far."""

    prompt: int
    lengths: list[int]
    runs: list[list[list[int]]] = field(default_factory=list)

    def made(self) -> list[int]:
        return [sum(n for _, n in runs) for runs in self.runs]

    def left(self) -> int:
        """Ticks until its last response ends."""
        return max((want - have for want, have in zip(self.lengths, self.made(), strict=True)), default=0)

    def grow(self, version: int, ticks: int) -> None:
        for runs, want, have in zip(self.runs, self.lengths, self.made(), strict=True):
            n = min(ticks, want - have)
            if n > 0:
                runs.append([version, n])


@calls("april", "simulate")
def simulate(
    lengths: Sequence[Sequence[int]], target: int, oversample: int, rounds: int, max_len: int = 1_000_000
) -> list[Round]:
    """The scheduler on known lengths: every running response makes one token a tick, version = round.

    lengths: per prompt, in the order of the stream, the lengths of its G responses. A round takes up to `oversample`
    groups, the buffer's first, and where that is fewer than target goes on sampling in chunks; it stops when target
    groups are complete, or when the stream is exhausted with what there is."""
    if target < 1 or oversample < 1:
        raise ValueError(f"target={target}, oversample={oversample}: both must be at least 1")
    stream = [_Group(i, [min(n, max_len) for n in row], [[] for _ in row]) for i, row in enumerate(lengths)]
    buffer: list[_Group] = []
    done: list[Round] = []
    for r in range(rounds):
        running: list[_Group] = []
        while len(running) < target or not running:
            room = min(oversample, max(target, oversample) - len(running)) or oversample
            taken, buffer = buffer[:room], buffer[room:]
            fresh, stream = stream[: room - len(taken)], stream[room - len(taken) :]
            if not taken and not fresh:
                break
            running += [*taken, *fresh]
        resumed = sum(sum(g.made()) for g in running)
        finish = sorted(range(len(running)), key=lambda i: (running[i].left(), i))
        trained = finish[: min(target, len(running))]
        ticks = max((running[i].left() for i in trained), default=0)
        for g in running:
            g.grow(r, ticks)
        train = [running[i] for i in trained]
        back = [g for i, g in enumerate(running) if i not in set(trained)]
        buffer += back
        runs = [run for g in train for response in g.runs for run in response]
        done.append(
            Round(
                r,
                [g.prompt for g in running],
                ticks,
                [g.prompt for g in train],
                [g.prompt for g in back],
                [sum(g.made()) for g in back],
                resumed,
                sum(n for _, n in runs),
                sum(n for version, n in runs if version < r),
                {g.prompt: [[list(run) for run in response] for response in g.runs] for g in train},
            )
        )
    return done
