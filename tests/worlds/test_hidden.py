"""What a session shows at a checkpoint is what the model computes for the path alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workbench.stages import Branch, Checkpoint, Prune
from workbench.types import Cut, Fork, Plan
from workbench.types.checkpoint import Pauses
from workbench.worlds.engines import Request
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.graph_engine import GraphEngine
from workbench.worlds.engines.transformers_engine import TransformersEngine

from .conftest import toy_model

PREFIXES = [[3, 4, 5], [6, 7, 8, 9, 10, 11]]

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.15}
"""Hidden states have about unit size; a bfloat16 has 8 bits."""


def alone(model, path: list[int]) -> tuple[np.ndarray, np.ndarray]:
    with torch.inference_mode():
        out = model(input_ids=torch.tensor([path]), output_hidden_states=True)
    return out.hidden_states[-1][0, -1].float().numpy(), torch.log_softmax(out.logits[0, -1].float(), -1).numpy()


@pytest.mark.parametrize("engine", [TransformersEngine, GraphEngine])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_and_likeliest_tokens_after_pauses_forks_and_rewinds(dtype, engine):
    model = toy_model().to(dtype)
    session = engine(model).open(Request(PREFIXES, np.array([0, 1, 1]), streams(0, ["a", "b", "c"])))
    paths = [list(PREFIXES[i]) for i in (0, 1, 1)]

    def agrees() -> None:
        ids, logp = session.top(4)
        for i, path in enumerate(paths):
            state, expected = alone(model, path)
            assert session.hidden()[i] == pytest.approx(state, abs=TOLERANCE[dtype])
            assert logp[i] == pytest.approx(expected[ids[i]], abs=TOLERANCE[dtype])

    agrees()
    for limit in ([2, 3, 1], [1, 1, 4]):
        made = session.advance(np.array(limit))
        paths = [path + row.tolist() for path, row in zip(paths, made.tokens.rows(), strict=True)]
        agrees()
    session.keep(np.array([2, 0, 2]), streams(0, ["c", "a", "c/1"]))
    paths = [paths[2], paths[0], paths[2]]
    agrees()
    session.rewind(2, 2, paths[2][-3])
    paths[2] = paths[2][:-2]
    session.rewind(1, 3, None)
    paths[1] = paths[1][:-3]
    agrees()


def test_a_checkpoint_shows_the_state_of_every_branch_where_a_method_asks_for_it(world):
    seen = []

    def prune(frontier) -> Cut:
        b = len(frontier)
        for i in range(b):
            prefix = world.prefix(world.pool, int(frontier.prompt[i]))
            state, _ = alone(world.policy.model, [*prefix, *frontier.tokens.row(i).tolist()])
            assert frontier.extra["hidden"][i] == pytest.approx(state, abs=1e-4)
        seen.append(b)
        return Cut(np.ones(b, np.int64), np.full(b, "", object), np.ones(b))

    def branch(frontier) -> Fork:
        assert "hidden" in frontier.extra
        b = len(frontier)
        return Fork(np.where(frontier.n_tokens == 2, 2, 1), np.full(b, 1), np.full(b, -1))

    assert "hidden" in world.offers
    rows = world.sample(
        Plan([0, 4], [3, 2], step=1), Branch(branch, Checkpoint(2)), Prune(prune, Checkpoint(2, hidden=True))
    )
    assert len(rows) > 5
    assert len(seen) > 1
    assert Pauses.of([Checkpoint(), Checkpoint(hidden=True)]).hidden
    assert not Pauses.of([Checkpoint(), Checkpoint()]).hidden
