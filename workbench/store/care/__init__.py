"""Looking after recorded runs: check, prune, export and import."""
