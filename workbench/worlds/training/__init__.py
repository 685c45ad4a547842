"""The update: the policy, its micro-batches, and the ways to fit and to divide it."""
