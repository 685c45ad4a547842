"""Training: the update of the policy, gradient accumulation, and the ways to fit and to divide it."""
