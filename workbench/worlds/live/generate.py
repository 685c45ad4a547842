"""Generation of rollouts: asks become whole answers, or answers that pause at checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.parallel import processes
from workbench.stages import Branch, Prune
from workbench.types import Ragged, Rollouts
from workbench.worlds.engines import NO_SEGMENTS, Engine, Request, Segments
from workbench.worlds.engines.draws import streams
from workbench.worlds.live.growing_rows import Decision, GrowingRow, rollouts_of
from workbench.worlds.live.growth import Growth
from workbench.worlds.live.starts import Begin, Trail, joined, sampled_by
from workbench.worlds.live.verification import Verification
from workbench.worlds.training import data_parallel

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class Generator:
    """An engine as it is now, and what holds for all that it makes.

    stops: ids of tokens that end an answer; until: strings that its text is cut at. version: of the weights. mixed: rows
    get the column token_version. ends: stops that are no part of the text, also where a tokenizer takes them for words."""

    engine: Engine
    tokenizer: PreTrainedTokenizerBase
    seed: int
    temperature: float
    stops: frozenset[int]
    until: tuple[str, ...]
    version: int
    mixed: bool = False
    ends: frozenset[int] = frozenset()

    def whole(
        self,
        begins: Sequence[Begin],
        rows: Rollouts,
        limit: np.ndarray,
        names: Sequence[str],
        verification: Verification | None = None,
    ) -> tuple[Rollouts, Segments]:
        """Whole answers of at most limit (A,) tokens: rows of the asks that begins are of, each drawing from the stream of
        its name. Processes share the asks, and tell each other what they made."""
        before = [begins[a].trail for a in rows.ask]
        room = limit - [b.trail.n for b in begins]
        going = np.array([not b.ended for b in begins], bool) & (room > 0)
        asks = data_parallel.mine(np.flatnonzero(going))
        on = np.flatnonzero(np.isin(rows.ask, asks))

        def generate() -> tuple[np.ndarray, Segments]:
            if not len(on):
                return on, NO_SEGMENTS
            ask, start = rows.ask[on], [before[i].n for i in on]
            request = self._request(begins, asks, ask, [names[int(i)] for i in on], start)
            on_end = (
                self._groups(rows, before, on, verification)
                if verification is not None and verification.early
                else None
            )
            return on, self.engine.generate(request._replace(limit=room[ask], on_end=on_end))

        parts = processes.gather_results(generate)
        on, made = np.concatenate([p[0] for p in parts]), Segments.concat([p[1] for p in parts])
        place = np.full(len(rows), len(on))  # what has ended already goes on with nothing
        place[on] = np.arange(len(on))
        now = [Ragged.concat([c, Ragged.of([[]], c.values.dtype)]).take(place) for c in made[:3]]
        finish = np.array(["stop" if b.ended else "length" for b in begins], dtype=object)[rows.ask]
        finish[on] = made.finish
        tokens, logp, entropy = joined(before, now)
        begun = [begins[a] for a in rows.ask]
        return self._completed(rows.with_(finish=finish, tokens=tokens, logp=logp, entropy=entropy), begun), made

    def grown(
        self,
        begins: Sequence[Begin],
        rows: Rollouts,
        limit: np.ndarray,
        names: Sequence[str],
        branch: Branch | None,
        prune: Prune | None,
        verification: Verification,
        leaves: np.ndarray | None = None,
    ) -> tuple[Rollouts, Segments, list[Decision]]:
        """Rows that pause at checkpoints, with those that forked from them, and the tests made there.

        leaves (A,): rollouts that each ask may grow into; None = no bound."""
        branches = []
        for row, (a, name) in enumerate(zip(rows.ask, names, strict=True)):
            b = begins[a]
            made = GrowingRow(row, rows.id[row], int(limit[a]), start=b.trail.n, stream=name)
            made.tokens, made.logp, made.entropy = (column.tolist() for column in b.trail[:3])
            made.finish = "stop" if b.ended else "length" if b.trail.n >= limit[a] else ""
            branches.append(made)
        on = [b for b in branches if not b.finish]
        ask = rows.ask[[b.row for b in on]]
        asks = np.unique(ask) if len(on) else np.array([0])  # a session has a prefix, also where nothing goes on
        session = self.engine.open(self._request(begins, asks, ask, [b.stream for b in on], [b.start for b in on]))

        def ended(over: Sequence[GrowingRow]) -> None:
            part = rows.take(np.array([b.row for b in over]))
            names = np.array([b.id for b in over], dtype=object)
            verification.put(part.with_(id=names, text=self._texts(b.tokens for b in over)))

        growth = Growth(
            session, branches, rows, seed=self.seed, branch=branch, prune=prune, decode=self._decode, markers=self._markers,
            leaves=leaves, ended=ended if verification.early else None,
        )  # fmt: skip
        growth.run()
        done = rollouts_of(growth.branches, rows, growth.keeps)
        assert done.tokens is not None and done.logp is not None and done.entropy is not None
        spent = Segments(
            done.tokens, done.logp, done.entropy, done.finish, session.prefilled, session.decoded, growth.seconds
        )
        return self._completed(done, [begins[a] for a in done.ask]), spent, growth.decisions

    def _request(
        self, begins: Sequence[Begin], asks: np.ndarray, ask: np.ndarray, names: Sequence[str], start: Sequence[int]
    ) -> Request:
        """Rows of asks (sorted), ask (B,) of each row, drawing from the stream of its name from its start on."""
        return Request(
            prefixes=[begins[a].prefix + begins[a].trail.tokens.tolist() for a in asks],
            owner=np.searchsorted(asks, ask),
            keys=streams(self.seed, names),
            position=np.array(start, np.int64),
            temperature=self.temperature,
            stop=self.stops,
        )

    def _groups(
        self, rows: Rollouts, before: Sequence[Trail], on: np.ndarray, verification: Verification
    ) -> Callable[[int, np.ndarray], None]:
        """Hands the rows of an ask to the verifier once the last of them has ended; on (B,): rows that are generated."""
        left, made = np.bincount(rows.ask[on]), {}

        def ended(i: int, tokens: np.ndarray) -> None:
            row, a = on[i], rows.ask[on[i]]
            made[row] = [*before[row].tokens, *tokens]
            left[a] -= 1
            if not left[a]:
                mine = on[rows.ask[on] == a]
                verification.put(rows.take(mine).with_(text=self._texts(made[r] for r in mine)))

        return ended

    def _completed(self, rows: Rollouts, begun: Sequence[Begin]) -> Rollouts:
        """Generated rows with their text, length, and the versions and the temperature that sampled them."""
        assert rows.tokens is not None
        before = [b.trail for b in begun]
        idle = (rows.tokens.lengths == [b.n for b in before]) & np.array([b.source != "" for b in begun], bool)
        sampled = sampled_by(before, rows.tokens, self.version)
        some, last = rows.tokens.lengths > 0, np.full(len(rows), self.version)
        last[some] = sampled.values[rows.tokens.offsets[1:][some] - 1]
        return rows.with_(
            text=self._texts(t.tolist() for t in rows.tokens.rows()),
            length=rows.tokens.lengths,
            version=last,
            temperature=np.where(idle, [b.temperature for b in begun], self.temperature),
            extra={**rows.extra, "token_version": sampled} if self.mixed else rows.extra,
        )

    def _texts(self, tokens: Iterable[Sequence[int]]) -> np.ndarray:
        """(R,) str: what token lists say, up to the first string that ends an answer."""
        texts = self._decode([self._said(t) for t in tokens])
        return np.array([_before(text, self.until) for text in texts], dtype=object)

    def _said(self, tokens: Sequence[int]) -> list[int]:
        return list(tokens[:-1] if len(tokens) and tokens[-1] in self.ends else tokens)

    def _decode(self, tokens: list[list[int]]) -> list[str]:
        return self.tokenizer.batch_decode(tokens, skip_special_tokens=True)

    def _markers(self, texts: tuple[str, ...]) -> frozenset[int]:
        """Tokens whose text holds one of the markers."""
        if not texts:
            return frozenset()
        vocabulary = self.tokenizer.batch_decode([[i] for i in range(len(self.tokenizer))])
        return frozenset(i for i, text in enumerate(vocabulary) if any(m in text for m in texts))


def _before(text: str, stop: tuple[str, ...]) -> str:
    """The text before the first stop string."""
    for string in stop:
        text = text.split(string, 1)[0]
    return text
