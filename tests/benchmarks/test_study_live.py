"""One live run of the study: what it counts, on the bundled tiny model."""

from __future__ import annotations

import pytest

from tests.benchmarks import study_live
from workbench.types import Budget


def test_a_live_run_counts_its_evaluations_and_interpolates_at_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_live, "STEPS", 2)
    monkeypatch.setattr(study_live, "EVERY", 1)
    monkeypatch.setattr(study_live, "BUDGET", Budget(2, 8))
    monkeypatch.setattr(study_live, "WORLD", {"samples": 1})
    whole = study_live.live("grpo, mopps", 0)
    assert 0 < whole.start < 1
    assert whole.tokens >= 3 * 80 + 16  # three evaluations of 80 prompts, a token each at least, and 16 rollouts
    assert whole.gain_tokens == whole.gain
    again = study_live.live("grpo, mopps", 0, limit=0.0)
    assert again._replace(seconds=0, gain_tokens=0) == whole._replace(seconds=0, gain_tokens=0)
    assert again.gain_tokens == 0.0
