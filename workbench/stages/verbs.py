"""The verbs of a training step, in the order in which a step comes to them."""

from __future__ import annotations

DECIDES = ("select", "allocate", "loss")
"""Verbs at which the last method of the list that has them decides."""


REFINES = ("amend", "more", "branch", "prune", "reward", "admit", "replay", "estimate", "penalty")
"""Verbs at which every method that has them acts, in list order."""


VERBS = (
    "select",
    "allocate",
    "amend",
    "more",
    "branch",
    "prune",
    "reward",
    "admit",
    "replay",
    "estimate",
    "loss",
    "penalty",
)
"""All verbs, in the order in which a step comes to them.

select(state, draft, rng) -> Picked        which prompts, at most draft.wanted of draft.candidates(), and by what figures
allocate(state, draft, rng) -> Plan        how many rollouts for draft.fresh (or, in a later round, for any prompt)
amend(state, plan, draft, rng) -> Plan     hints, one rollout more, caps
more(state, draft) -> int                  prompts still wanted in this step; the pipeline's own selector picks them
branch(state, frontier, rng) -> Fork       where a rollout forks, at pauses of the method's own checkpoint, as for prune
prune(state, frontier, rng) -> Cut         where it stops; widths multiply, a stop wins
reward(state, rollouts) -> Rollouts        shaped or judged rewards
admit(state, rollouts, draft) -> (R,) mask what may enter the batch on arrival
replay(state, rollouts, draft, rng) -> Rollouts   rollouts of earlier steps or other nodes, added
estimate(state, advantage, draft, rng) -> Advantage
loss(state, batch) -> Loss                 the objective, in torch
penalty(state, batch) -> Loss              a term beside it
"""
