"""Vectors without code that runs: what the papers also say, and no method here does."""

from __future__ import annotations

TURNS = "needs turns with tools or an environment, and rollouts here have one turn"
TEACHER = "no world samples rollouts from a teacher"
MONITOR = "a figure of the paper's analysis, which no page or method takes"

WITHOUT_CODE: dict[tuple[str, str], str] = {
    ("aepo", "segment_entropy"): TURNS,
    ("aepo", "initial_rollouts"): TURNS,
    ("aepo", "branch_probability"): TURNS,
    ("aepo", "consecutive_update"): TURNS,
    ("async-staleness", "capacity"): "a world works whole steps ahead, not rollout by rollout",
    ("async-staleness", "staleness"): MONITOR,
    ("async-staleness", "version_window"): "one version samples at a time",
    ("async-staleness", "triplet_objective"): "LongCat's objective, whose constants are not published",
    ("brts", "overlap_ratio"): TEACHER,
    ("brts", "select_teacher"): TEACHER,
    ("brts", "choose_context"): TEACHER,
    ("dart", "max_steps"): TURNS,
    ("dart", "entropy_mask"): TURNS,
    ("epo", "history_mean"): TURNS,
    ("epo", "history_mean_by_step"): TURNS,
    ("missing-old-logits", "ewma_update"): "no world keeps an averaged policy",
    ("missing-old-logits", "version_plan"): "no world keeps snapshots of earlier policies",
    ("nudgerl", "expected_sizes"): MONITOR,
    ("otr", "otr_rewards"): "the loop takes the limit of many draws at temperature 1",
    ("otr", "otr_loss"): "the loop takes the limit of many draws at temperature 1",
    ("otr", "otr_expected"): "the loop needs the log-probability of the shown token alone",
    ("otr", "expected_hits"): MONITOR,
}
"""(file, function) -> why nothing that runs computes it."""
