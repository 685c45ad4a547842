"""Maintenance of recorded runs: check, prune, export and import."""
