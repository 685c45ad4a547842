"""Memory needs of models: what a named model takes on a CPU, and whether that much is free."""

from __future__ import annotations

NEEDS_GIB = {"smollm2": 6.0, "tiny": 1.5}
"""Memory below which training a model is slow or killed on a CPU: weights, optimiser, sampling copy, activations."""


def free_gib() -> float:
    """GiB of memory that are free now."""
    import psutil

    return psutil.virtual_memory().available / 2**30


def memory_warning(needed_gib: float) -> str | None:
    """One sentence where less memory is free than a model needs, else None."""
    free = free_gib()
    if free >= needed_gib:
        return None
    return (
        f"Only {free:.1f} GiB of memory are free and this model wants about {needed_gib:.0f}; it may be slow or killed. "
        "Close other programs, or try `workbench demo --model tiny`."
    )
