"""Sessions in slots do what sessions of transformers do, whatever is asked of them; on a GPU with kernels and graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.stages import Branch, Checkpoint, Prune
from workbench.types import Cut, Fork, Plan
from workbench.worlds.engines import Request, Session, Until
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.graph_engine import GraphEngine
from workbench.worlds.engines.transformers_engine import TransformersEngine
from workbench.worlds.live.world import LiveWorld

from .conftest import toy_model, toy_tokenizer

PREFIXES = [[5, 6, 7], [3, 4, 5, 6, 7, 8, 9, 10], [12, 13]]
OWNER = np.array([0, 0, 1, 1, 1, 2])
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25}
"""Nats between a decoded and a prefilled path: a bfloat16 has 8 bits."""


class Twins:
    """One script of calls on two sessions; every answer must be the same."""

    def __init__(self, one: Session, other: Session, tolerance: float = 1e-4) -> None:
        self.sessions, self.tolerance = (one, other), tolerance
        self.names = [f"r{i}" for i in range(len(OWNER))]
        self.paths: list[list[int]] = [[] for _ in OWNER]  # of the rows that can go on, what they made

    def advance(self, limit: np.ndarray, until: Until) -> None:
        a, b = (s.advance(limit, until) for s in self.sessions)
        assert a.tokens.offsets.tolist() == b.tokens.offsets.tolist()
        assert a.tokens.values.tolist() == b.tokens.values.tolist()
        assert a.finish.tolist() == b.finish.tolist()
        assert a.logp.values == pytest.approx(b.logp.values, abs=self.tolerance)
        assert a.entropy.values == pytest.approx(b.entropy.values, abs=self.tolerance)
        on = np.flatnonzero(a.finish == "")
        self.paths = [self.paths[i] + a.tokens.row(i).tolist() for i in on]
        self.names = [self.names[i] for i in on]
        self.agree()

    def keep(self, rows: list[int]) -> None:
        seen: dict[int, int] = {}
        names = []
        for r in rows:
            seen[r] = seen.get(r, 0) + 1
            names.append(self.names[r] + (f"/{len(self.paths[r])}.{seen[r]}" if seen[r] > 1 else ""))
        self.names, self.paths = names, [list(self.paths[r]) for r in rows]
        for s in self.sessions:
            s.keep(np.array(rows, np.int64), streams(0, names))
        self.agree()

    def rewind(self, row: int, back: int) -> None:
        back = min(back, len(self.paths[row]))
        self.paths[row] = self.paths[row][: len(self.paths[row]) - back]
        for s in self.sessions:
            s.rewind(row, back, self.paths[row][-1] if self.paths[row] else None)
        self.agree()

    def force(self, row: int, token: int) -> None:
        for s in self.sessions:
            s.force(row, token)

    def agree(self) -> None:
        one, other = self.sessions
        assert len(one) == len(other) == len(self.paths)
        if not len(one):
            return
        assert one.hidden() == pytest.approx(other.hidden(), abs=10 * self.tolerance)
        assert one.top(3)[1] == pytest.approx(other.top(3)[1], abs=10 * self.tolerance)
        # now that both were asked what comes after the last tokens, both have fed them
        assert one.decoded == other.decoded


def scripted(twins: Twins, data, most: int = 10, vocabulary: int = 32) -> None:
    """Random calls, most of the kinds that trees make."""
    for _ in range(data.draw(st.integers(2, 6))):
        rows = len(twins.paths)
        if not rows:
            return
        kind = data.draw(st.sampled_from(["advance", "keep", "rewind", "force"]))
        if kind == "keep":
            twins.keep(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=9)))
        elif kind == "rewind":
            twins.rewind(data.draw(st.integers(0, rows - 1)), data.draw(st.integers(1, 6)))
        else:
            forced = data.draw(st.integers(0, rows - 1)) if kind == "force" else None
            if forced is not None:
                twins.force(forced, data.draw(st.integers(3, vocabulary - 1)))
            until = data.draw(st.sampled_from([Until(), Until(frozenset({5, 9, 20})), Until(entropy=2.2)]))
            limit = data.draw(st.lists(st.integers(0, most), min_size=rows, max_size=rows))  # 0 waits
            if forced is not None:
                limit[forced] = max(limit[forced], 1)
            twins.advance(np.array(limit), until)


def both(make, **options) -> tuple[Session, Session]:
    keys = streams(0, [f"r{i}" for i in range(len(OWNER))])
    return tuple(e.open(Request(PREFIXES, OWNER, keys, **options)) for e in make)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_whatever_is_asked_the_two_sessions_answer_alike(data):
    model = toy_model()
    engines = (GraphEngine(model), TransformersEngine(model))
    temperature = data.draw(st.sampled_from([1.0, 0.7]))
    twins = Twins(*both(engines, temperature=temperature, stop=[0, 1]))
    assert twins.sessions[0].prefilled == twins.sessions[1].prefilled == 3 + 8 + 2
    scripted(twins, data, most=data.draw(st.sampled_from([4, 40])))  # 40: over several looks of the host


def test_more_rows_and_longer_ones_than_there_was_room_for(monkeypatch):
    from workbench.worlds.engines import graph_session

    monkeypatch.setattr(graph_session, "AHEAD", 8)
    model = toy_model()
    engine = GraphEngine(model)
    twins = Twins(*both((engine, TransformersEngine(model))))
    assert (engine.slots.n, engine.slots.capacity) == (8, 64)
    twins.advance(np.full(6, 12), Until())
    twins.keep([0, 1, 2, 3, 4, 5] * 3)
    assert engine.slots.n == 24
    twins.advance(np.full(18, 70), Until())
    assert engine.slots.capacity == 128
    twins.rewind(3, 40)
    twins.advance(np.arange(1, 19), Until())


def test_rows_that_do_not_fit_together_are_named():
    engine = GraphEngine(toy_model(), max_rows=4)
    with pytest.raises(ValueError, match=r"8 rows of \d+ tokens do not fit at once \(at most 4 rows"):
        engine.open(Request(PREFIXES, OWNER, streams(0, map(str, OWNER))))


def test_slots_given_to_another_generation_end_a_session():
    engine = GraphEngine(toy_model())
    session = engine.open(Request(PREFIXES, OWNER, streams(0, map(str, OWNER))))
    engine.generate(Request.of_groups([[5]], np.ones(1, np.int64), np.ones(1, np.int64), streams(0, ["a"])))
    with pytest.raises(RuntimeError, match="given to another generation"):
        session.advance(np.ones(6, np.int64))


def forks(frontier) -> Fork:
    """Every root in two at its first checkpoint, one token back."""
    b = len(frontier)
    return Fork(np.where((frontier.n_tokens == 3) & (frontier.parent < 0), 2, 1), frontier.n_tokens - 1, np.full(b, -1))


def cuts(frontier) -> Cut:
    """Every third branch at six tokens."""
    b = len(frontier)
    out = (frontier.n_tokens >= 6) & (frontier.branch % 3 == 2)
    return Cut((~out).astype(np.int64), np.where(out, "third", ""), np.ones(b))


def trees(task, model, tokenizer, engine: str):
    world = LiveWorld(task, (model, tokenizer), seed=3, max_tokens=12, engine=engine, sampling="float32")
    plan = Plan(np.array([0, 3, 11]), np.array([4, 2, 3]), step=1)
    rows = world.sample(plan, Branch(forks, Checkpoint(3)), Prune(cuts, Checkpoint(3)))
    return rows, dict(world._spent)


def same_trees(a, b) -> None:
    for name in ("id", "parent", "fork_at", "finish", "text"):
        assert getattr(a[0], name).tolist() == getattr(b[0], name).tolist(), name
    assert a[0].tokens.values.tolist() == b[0].tokens.values.tolist()
    assert a[0].logp.values == pytest.approx(b[0].logp.values, abs=1e-4)
    assert a[1]["prefilled_tokens"] == b[1]["prefilled_tokens"]
    unfed = (a[0].finish != "stop").sum()  # a slot feeds what it draws; the other waits until it is needed
    assert a[1]["decoded_tokens"] == b[1]["decoded_tokens"] + unfed


def test_a_world_grows_the_same_trees_on_both_engines(task):
    a, b = (trees(task, toy_model(), toy_tokenizer(), engine) for engine in ("graph", "transformers"))
    assert (a[0].parent != "").sum() >= 5
    assert (a[0].finish == "pruned").any()
    same_trees(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(4))
def test_on_the_gpu_sessions_with_graphs_answer_as_transformers_do(seed):
    from workbench import models

    torch.backends.cuda.matmul.allow_tf32 = False
    model = models.load("tiny")[0].cuda()
    twins = Twins(*both((GraphEngine(model, torch.float32), TransformersEngine(model))), tolerance=1e-3)
    draw = np.random.default_rng(seed)
    for call in range(12):
        rows = len(twins.paths)
        if not rows:
            break
        if call % 3 == 1:
            twins.keep(draw.integers(0, rows, draw.integers(rows, 3 * rows + 1)).tolist())
        elif call % 3 == 2:
            twins.rewind(int(draw.integers(rows)), int(draw.integers(1, 8)))
            twins.force(int(draw.integers(rows)), int(draw.integers(3, 40)))
        else:
            until = (Until(), Until(frozenset(range(0, 40, 7))), Until(entropy=1.5))[call // 3 % 3]
            twins.advance(draw.integers(1, 40, rows), until)


@pytest.mark.gpu
def test_on_the_gpu_a_world_grows_trees_in_slots_and_computes_prompts_once():
    from workbench import models, tasks

    torch.backends.cuda.matmul.allow_tf32 = False
    task = tasks.load(["add 2d+2d"], size=40, evaluation=8)
    a, b = (trees(task, *models.load("tiny"), engine) for engine in ("graph", "transformers"))
    same_trees(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_the_gpu_a_fork_has_the_log_probabilities_it_would_have_had_alone(dtype):
    from workbench import models

    torch.backends.cuda.matmul.allow_tf32 = False
    model = models.load("tiny")[0].cuda()
    engine = GraphEngine(model, dtype)
    keys = streams(0, ["root"])
    session = engine.open(Request([[5, 6, 7, 8]], np.zeros(1, np.int64), keys))
    first = session.advance(np.array([20]))
    names = ["root", "root/20.1", "root/20.2"]
    session.keep(np.zeros(3, np.int64), streams(0, names))
    rest = session.advance(np.full(3, 20))
    prefix = [5, 6, 7, 8, *first.tokens.row(0).tolist()]
    alone = engine.generate(
        Request.of_groups([prefix], np.array([3]), np.array([20]), streams(0, names), position=np.full(3, 20))
    )
    for i in range(3):
        mine, other = rest.tokens.row(i), alone.tokens.row(i)
        same = int(np.argmin(np.append(mine == other, False)))  # a draw near a border may fall either way in bfloat16
        assert same == len(mine) if dtype == torch.float32 else same > 0
        assert rest.logp.row(i)[:same] == pytest.approx(alone.logp.row(i)[:same], abs=TOLERANCE[dtype])
