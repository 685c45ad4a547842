"""Asynchronous training: steps generated ahead of the one that trains, with a bounded staleness."""
