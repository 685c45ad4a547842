"""The functions of the GRPO family under one name: estimators, losses, DAPO's shaping and filter."""

from workbench.methods.dapo_dynamic_sampling import dynamic_sampling_keep, overlong_penalty
from workbench.numerics.estimators import group_advantages, reinforce_pp
from workbench.numerics.surrogate import kl_k3, policy_loss

__all__ = [
    "dynamic_sampling_keep",
    "group_advantages",
    "kl_k3",
    "overlong_penalty",
    "policy_loss",
    "reinforce_pp",
]
