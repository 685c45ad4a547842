"""The engine that is picked, and what is said where the faster one cannot run."""

from __future__ import annotations

import pytest

from workbench.worlds.engines import choice

from .conftest import toy_model


def test_a_shape_without_kernels_falls_back_and_says_why(monkeypatch):
    class OnGpu:
        """A model that says it is on a GPU."""

        device = type("Device", (), {"type": "cuda"})

    def refuse(trained, dtype):
        raise ValueError("the kernels are made for heads of 64 numbers, not 8")

    monkeypatch.setattr(choice, "supported", lambda model: "")
    monkeypatch.setattr(choice, "_faster", refuse)
    monkeypatch.setattr(choice, "_plain", lambda trained, dtype: "plain")
    assert choice.pick(OnGpu(), "float32") == (
        "plain",
        "transformers: the kernels are made for heads of 64 numbers, not 8",
    )


def test_without_a_gpu_the_plain_engine_is_taken_and_unknown_names_are_refused():
    engine, why = choice.pick(toy_model(), "float32")
    assert type(engine).__name__ == "TransformersEngine"
    assert why == "transformers: there is no GPU"
    with pytest.raises(ValueError, match="no engine 'vllm'; there are auto, transformers, graph"):
        choice.pick(toy_model(), "float32", "vllm")
