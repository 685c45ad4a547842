"""Tasks: pools of prompts with their verifiers.

>>> from workbench import tasks
>>> tasks.names()
('default', 'five')
>>> task = tasks.load("five", size=200)
>>> task = tasks.load(["add 2d+2d", "rg gcd"])               # doctest: +SKIP
>>> task = tasks.load("questions.jsonl", verifier="numeric")  # doctest: +SKIP
"""

from __future__ import annotations

from workbench.tasks.loading import load, names
from workbench.tasks.mixes import families, teaching
from workbench.tasks.task import Task

__all__ = ["Task", "families", "load", "names", "teaching"]
