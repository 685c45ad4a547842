"""Hint masking: tokens of hints are shown to those methods alone that need them."""

from __future__ import annotations

import numpy as np

from workbench.numerics.roles import HINTS, all_tokens, bare, own_tokens, without_hints
from workbench.stages import Method, State
from workbench.types import Advantage, Draft, Step


def observed(method: Method, state: State, step: Step) -> State:
    """The state of a method after a finished step; one that does not ask for the tokens of hints sees rows without."""
    return method.observe(state, step if HINTS in method.needs else bare(step))


def masked(method: Method, draft: Draft) -> Draft:
    """The draft as a method sees it: with the tokens of hints in its rows only where it asks for them."""
    if HINTS in method.needs or draft.rollouts is None:
        return draft
    return draft.with_(rollouts=without_hints(draft.rollouts))


def estimated(method: Method, state: State, advantage: Advantage, draft: Draft, rng: np.random.Generator) -> Advantage:
    """What a method makes of the advantages before it. Where it does not ask for the tokens of hints it sees neither them nor
    their advantages, which they keep. Raises ValueError for advantages that are not finite, or are not those of the tokens."""
    rollouts, seen = draft.rollouts, masked(method, draft)
    act = method.estimate  # type: ignore[attr-defined]
    if seen.rollouts is rollouts:
        made = act(state, advantage, draft, rng)
    else:
        made = all_tokens(act(state, own_tokens(advantage, rollouts), seen, rng), advantage, rollouts)
    bad = int((~np.isfinite(made.value[made.keep])).sum())
    if bad:
        raise ValueError(
            f"{type(method).__name__}.estimate gave {bad} advantages that are not finite at step {draft.step}"
        )
    if made.tokens is not None and rollouts.tokens is not None:
        wrong = int((made.tokens.lengths != rollouts.tokens.lengths).sum())
        if wrong:
            raise ValueError(
                f"{type(method).__name__}.estimate gave {wrong} of {len(rollouts)} rollouts more or fewer advantages than "
                f"they have tokens at step {draft.step}"
            )
    return made
