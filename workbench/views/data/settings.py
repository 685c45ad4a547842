"""Fields for the settings of a step, on the page and in a notebook."""

from __future__ import annotations

SETTINGS: dict[str, tuple[str, type]] = {
    "prompts": ("Prompts a step", int),
    "group_size": ("Rollouts of each", int),
    "temperature": ("Temperature", float),
    "lr": ("Learning rate", float),
}
"""Name, as `Commands.set` takes it -> label, and the kind of number."""


def figure(name: str, text: str) -> float:
    """What was written for a setting, as a number. Raises ValueError, which names the field, where it is none."""
    label, kind = SETTINGS[name]
    try:
        return kind(text.strip())
    except ValueError:
        raise ValueError(f"{label}: {text.strip()!r} is no {'whole ' * (kind is int)}number") from None
