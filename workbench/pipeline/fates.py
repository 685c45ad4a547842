"""Fates of rollouts: trained, dropped, pruned, discarded, carried or failed, exactly one each."""

from __future__ import annotations

import numpy as np

from workbench.types import Advantage, Rollouts


def fates(rollouts: Rollouts, advantage: Advantage, skipped: str = "") -> tuple[np.ndarray, np.ndarray]:
    """(fate, reason) of every rollout at the end of its step; exactly one fate each.

    skipped: why the optimiser step did not happen, "" when it did. A rollout that entered the loss with
    advantage zero is trained, reason zero_advantage: KL and entropy terms may still act on it.
    """
    zero = advantage.value == 0
    if advantage.tokens is not None:
        zero &= np.array([not row.any() for row in advantage.tokens.rows()], bool)
    fate = np.where(advantage.keep, "dropped" if skipped else "trained", "dropped").astype(object)
    reason = np.where(advantage.keep, skipped or np.where(zero, "zero_advantage", ""), advantage.reason).astype(object)
    for finish, name in (("pruned", "pruned"), ("aborted", "discarded"), ("carried", "carried")):
        rows = rollouts.finish == finish
        fate = np.where(rows & ~advantage.keep, name, fate)
    fate = np.where((advantage.reason == "carried") & ~advantage.keep, "carried", fate)  # finished, its group is not
    failed = rollouts.failure != ""
    return np.where(failed, "failed", fate), np.where(failed, rollouts.failure, reason)
