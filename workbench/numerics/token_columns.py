"""Columns with a number per token, under the names by which methods ask for them."""

from __future__ import annotations

from collections.abc import Collection

TRACKS = {
    "tokens": "tokens",
    "behaviour": "logp",
    "token_entropy": "entropy",
    "proximal": "proximal",
    "current": "current",
}
"""What a method names in `needs`, and the column of the rollouts that holds it."""


def needed_columns(needs: Collection[str]) -> frozenset[str]:
    """The columns that hold what needs name, by either name; other needs are left as they are.

    >>> sorted(needed_columns({"behaviour", "hidden"}))
    ['hidden', 'logp']
    """
    return frozenset(TRACKS.get(name, name) for name in needs)
