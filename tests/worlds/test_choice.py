"""The engine that is picked, and what is said where the faster one cannot run."""

from __future__ import annotations

import pytest
from transformers import LlamaConfig

from workbench.worlds import engines
from workbench.worlds.engines import choice, graph_engine, vllm_engine

from .conftest import toy_model


def test_a_shape_without_kernels_falls_back_and_says_why(monkeypatch):
    def refuse(trained, dtype, names, cached):
        raise ValueError("the kernels are made for heads of 64 numbers, not 8")

    monkeypatch.setattr(graph_engine, "supported", lambda model: "")
    monkeypatch.setattr(choice, "_fastest", refuse)
    monkeypatch.setattr(choice, "make", lambda name, trained, dtype, **settings: {"transformers": "plain"}[name])
    assert choice.pick(OnGpu(), "float32") == (
        "plain",
        "transformers: the kernels are made for heads of 64 numbers, not 8",
    )


def test_without_a_gpu_the_plain_engine_is_taken_and_unknown_names_are_refused():
    engine, why = choice.pick(toy_model(), "float32")
    assert type(engine).__name__ == "TransformersEngine"
    assert why == "transformers: there is no GPU"
    with pytest.raises(
        ValueError, match="no engine 'sglang'; there are auto, graph, transformers, vllm, and the address"
    ):
        choice.pick(toy_model(), "float32", "sglang")


def test_vllm_where_it_cannot_run_says_why(monkeypatch):
    monkeypatch.setattr(vllm_engine, "obstacle", lambda: "vllm is not installed")
    with pytest.raises(ValueError, match="cannot run: vllm is not installed; use engine='transformers'"):
        choice.pick(toy_model(), "float32", "vllm")


def test_a_named_engine_takes_settings_and_auto_takes_none():
    engine, why = choice.pick(toy_model(), "float32", {"name": "transformers", "max_rows": 7})
    assert (engine.max_rows, why) == (7, "transformers: asked for")
    with pytest.raises(ValueError, match="settings max_rows are for a named engine, not for auto"):
        choice.pick(toy_model(), "float32", {"max_rows": 7})


@pytest.mark.parametrize("name", ["transformers", "graph", "http://127.0.0.1:9"])
def test_a_setting_that_an_engine_does_not_take_is_named(name):
    with pytest.raises(ValueError, match=f"the engine {name} has no 'max_row'"):
        choice.pick(toy_model(), "float32", {"name": name, "max_row": 7})


class OnGpu:
    """A model that says it is on a GPU."""

    device = type("Device", (), {"type": "cuda"})
    config = LlamaConfig(vocab_size=512)

    def __init__(self, parameters=0):
        self.num_parameters = lambda: parameters


@pytest.mark.parametrize(
    ("unlike_llama", "parameters", "missing", "names", "why"),
    [
        ("", 0, "", ["transformers", "graph"], ""),
        ("", choice.SLOW_FROM, "", ["transformers", "graph", "vllm"], ""),
        ("", choice.SLOW_FROM, "vllm is not installed", ["transformers", "graph"], "vllm is not installed"),
        ("it is a gpt2", 0, "", ["transformers", "vllm"], "it is a gpt2"),
        ("it is a gpt2", 0, "vllm is not installed", ["transformers"], "it is a gpt2; vllm is not installed"),
    ],
)
def test_auto_measures_what_can_run(monkeypatch, unlike_llama, parameters, missing, names, why):
    monkeypatch.setattr(graph_engine, "supported", lambda model: unlike_llama)
    monkeypatch.setattr(vllm_engine, "obstacle", lambda: missing)
    assert choice._candidates(OnGpu(parameters)) == (names, why)


def test_the_faster_one_is_taken_and_its_figure_told(monkeypatch):
    class Engine:
        """An engine that remembers whether it was closed."""

        closed = False

        def close(self):
            self.closed = True

    made = {"transformers": Engine(), "vllm": Engine()}
    rates = {id(made["transformers"]): 100.0, id(made["vllm"]): 2500.0}
    monkeypatch.setattr(choice, "make", lambda name, trained, dtype, **settings: made[name])
    monkeypatch.setattr(choice, "tokens_per_second", lambda engine, vocabulary: rates[id(engine)])
    engine, told = choice._fastest(OnGpu(), "bfloat16", list(made), True)
    assert engine is made["vllm"]
    assert told == "vllm: measured tokens/s at 64 rows: transformers 100, vllm 2,500"
    assert (made["transformers"].closed, made["vllm"].closed) == (True, False)


def test_an_engine_is_one_file_that_is_found_by_its_name(monkeypatch, tmp_path):
    source = (
        "from workbench.worlds.engines import Engine\n"
        "class EchoEngine(Engine):\n"
        "    def __init__(self, *, loud=False):\n"
        "        self.loud = loud\n"
        "    @classmethod\n"
        "    def of(cls, name, trained, dtype, **settings):\n"
        "        return cls(**settings)\n"
    )
    (tmp_path / "echo_engine.py").write_text(source)
    monkeypatch.setattr(engines, "__path__", [*engines.__path__, str(tmp_path)])
    assert choice.names() == ["echo", "graph", "transformers", "vllm"]
    engine, why = choice.pick(toy_model(), "float32", {"name": "echo", "loud": True})
    assert (type(engine).__name__, engine.loud, why) == ("EchoEngine", True, "echo: asked for")
    with pytest.raises(ValueError, match="the engine echo has no 'quiet'"):
        choice.pick(toy_model(), "float32", {"name": "echo", "quiet": True})
