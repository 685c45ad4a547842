"""A verifier in a module of its own: the process that it runs in imports nothing else."""


def digits(completion: str, answer: str) -> float:
    """Share of digits."""
    return sum(c.isdigit() for c in completion) / max(1, len(completion))
