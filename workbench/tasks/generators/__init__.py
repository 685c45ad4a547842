"""Procedurally generated questions: a file here with `FAMILIES`, a list of `Family`, is found; nothing else is edited."""
