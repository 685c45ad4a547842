"""Tasks: pools of prompts with their verifiers.

>>> from workbench import tasks
>>> tasks.names()
('default', 'five')
>>> task = tasks.load("five", size=200)
>>> task.pool.text[0], task.pool.prefix[0], task.pool.answer[0]
('What is 18 - 6?', '18 - 6 =', '12')

A mix of one's own, from any of `families()`:

>>> tasks.load(["add 2d+2d", "rg gcd"], size=100, evaluation=20)
Task('add 2d+2d, rg gcd': 100 prompts, 20 for evaluation, 8 tokens at most; add 2d+2d 50, rg gcd 50)

A table of one's own and a verifier of one's own, which runs in a process with a time limit:

>>> rows = [{"question": f"Write {n} words.", "answer": str(n)} for n in range(1, 41)]
>>> def as_many(completion, answer):
...     return len(completion.split()) == int(answer)
>>> tasks.load(rows, prompt="question", verifier=as_many, timeout=2.0)
Task('rows': 36 prompts, 4 for evaluation, 256 tokens at most; all 36)
"""

from __future__ import annotations

from workbench.tasks.loading import load, names
from workbench.tasks.mixes import families, teaching
from workbench.tasks.sets import with_sets
from workbench.tasks.task import Task

__all__ = ["Task", "families", "load", "names", "teaching", "with_sets"]
