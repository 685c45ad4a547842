"""Sampling inside vLLM with our draws and statistics, as one of its logits processors.

vLLM's own sampler keeps a generator per request, so that a request taken up again would draw other tokens, and it reports
log-probabilities of a few tokens through a Python object each. Here the token is chosen where all engines choose it, from
the draw of (stream, position); its log-probability and the entropy over the whole vocabulary stay on the device until the
end. The logits are then left with one token possible, which vLLM takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from workbench.worlds.engines.draws import uniform
from workbench.worlds.engines.sampling import choose

FIELD = "workbench"
"""Name in SamplingParams.extra_args under which a request says which row it is."""


class Row(NamedTuple):
    """A request in the batch: its number among the requests, its stream, the token forced at its start (or -1), and
    vLLM's list of what it has made, which grows."""

    number: int
    key: int
    position: int
    forced: int
    made: list[int]


class Tape:
    """What the rows drew, step by step, in tensors on the device. Rows may draw at the same place twice (a prompt that
    is computed in pieces, a request that was put back): the last counts, and is the same."""

    def __init__(self) -> None:
        self.begin()

    def begin(self, temperature: float = 1.0, top: int = 0) -> None:
        """Forget; from now on draw at this temperature and note the `top` likeliest tokens."""
        self.temperature, self.top = temperature, top
        self._steps: list[tuple[np.ndarray, np.ndarray, torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._tops: list[tuple[np.ndarray, torch.Tensor, torch.Tensor]] = []

    def add(self, number: np.ndarray, at: np.ndarray, token, logp, entropy) -> None:
        """Row number[i] (B,) drew token[i] as its at[i]-th."""
        self._steps.append((number, at, token, logp, entropy))

    def add_top(self, number: np.ndarray, ids: torch.Tensor, logp: torch.Tensor) -> None:
        """The likeliest next tokens (B, m) of rows."""
        self._tops.append((number, ids, logp))

    def last(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and entropies (B,) of the rows that drew last; waits for the device."""
        if not self._steps:
            return np.empty(0, np.int64), np.empty(0)
        number, _, _, _, entropy = self._steps[-1]
        return number, entropy.cpu().numpy()

    def columns(self, limit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(R, L) tokens int32, logp, entropy float32 and bool whether drawn, L the largest of limit (R,)."""
        shape = (len(limit), int(np.max(limit, initial=0)))
        tokens, drawn = np.zeros(shape, np.int32), np.zeros(shape, bool)
        logp, entropy = np.zeros((2, *shape), np.float32)
        if self._steps:
            number, at = (np.concatenate([step[k] for step in self._steps]) for k in (0, 1))
            inside = at < limit[number]  # scheduling ahead of the device may draw one too many
            place = number[inside], at[inside]
            for k, column in ((2, tokens), (3, logp), (4, entropy)):
                column[place] = torch.cat([step[k] for step in self._steps]).cpu().numpy()[inside]  # type: ignore[arg-type]
            drawn[place] = True
        return tokens, logp, entropy, drawn

    def tops(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """(ids, logp), each (m,), by number of the row."""
        found = {}
        for number, ids, logp in self._tops:
            pairs = zip(number.tolist(), ids.int().cpu().numpy(), logp.cpu().numpy(), strict=True)
            found |= {row: (i, p) for row, i, p in pairs}
        return found


@torch.no_grad()
def draw(tape: Tape, logits: torch.Tensor, places: Sequence[int], rows: Sequence[Row]) -> torch.Tensor:
    """Choose a token for the rows, which stand at places of the batch, note it, and leave nothing else possible.

    logits (B, V) float32, changed in place and returned.
    """
    at = np.array([len(r.made) for r in rows], np.int64)
    number = np.array([r.number for r in rows], np.int64)
    keys = np.array([r.key for r in rows], np.uint64)
    here = torch.as_tensor(np.asarray(places, np.int64), device=logits.device)
    whole = len(places) == len(logits) and list(places) == list(range(len(logits)))
    mine = logits if whole else logits[here]
    draws = uniform(keys, at + np.array([r.position for r in rows], np.int64))
    token, logp, entropy = choose(mine, torch.as_tensor(draws, device=logits.device), tape.temperature)
    for i in np.flatnonzero((at == 0) & np.array([r.forced >= 0 for r in rows])).tolist():
        token[i] = rows[i].forced
        logp[i] = torch.log_softmax(mine[i].float() / (tape.temperature or 1.0), -1)[rows[i].forced]
    tape.add(number, at, token, logp, entropy)
    if tape.top:
        best, ids = torch.log_softmax(mine.float(), -1).topk(min(tape.top, mine.shape[1]), -1)
        tape.add_top(number, ids, best)
    logits[here] = -torch.inf
    logits[here, token] = 0.0
    return logits


def processor(tape: Tape) -> type:
    """The class that vLLM is given: it follows the batch and draws for the rows that carry `FIELD`."""
    from vllm.v1.sample.logits_processor import LogitsProcessor  # type: ignore[import-not-found]
    from vllm.v1.sample.logits_processor.builtin import process_dict_updates  # type: ignore[import-not-found]

    def row_of(params, prompt, made: list[int]) -> Row | None:
        fields = (params.extra_args or {}).get(FIELD)
        return None if fields is None else Row(*fields, made)  # type: ignore[call-arg]

    class KeyedDraws(LogitsProcessor):
        """See the module."""

        def __init__(self, vllm_config, device, is_pin_memory) -> None:
            self.rows: dict[int, Row] = {}

        def is_argmax_invariant(self) -> bool:
            return False

        def update_state(self, batch_update) -> None:
            process_dict_updates(self.rows, batch_update, row_of)

        def apply(self, logits: torch.Tensor) -> torch.Tensor:
            if not self.rows:
                return logits
            places = sorted(self.rows)
            return draw(tape, logits, places, [self.rows[p] for p in places])

    return KeyedDraws
