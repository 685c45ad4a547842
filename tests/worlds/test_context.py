"""Prompts and answers within the model's context, and what else a live world takes from a model folder."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from workbench import Experiment, tasks
from workbench.cli.main import main
from workbench.models import TINY
from workbench.types import Budget, Plan, Text
from workbench.worlds.live.world import LiveWorld

from .conftest import ToyTask, pool_of, toy_model, toy_tokenizer


def toy_world(context: int, too_long: str = "error", **more) -> LiveWorld:
    """The toy task, with answers of 6 tokens, and a model of a context."""
    model = toy_model()
    model.config.max_position_embeddings = context
    task = ToyTask(pool_of(range(2, 14)), pool_of(range(3, 6)))
    return LiveWorld(task, (model, toy_tokenizer()), seed=3, too_long=too_long, **more)


def folder_of(path, kind: str = "llama", dtype=torch.float32, **more):
    """A small random model of a family with the tokenizer of the small model."""
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = AutoConfig.for_model(kind, **{"vocab_size": 512, "num_key_value_heads": 2, **size, **more})
    AutoModelForCausalLM.from_config(config).to(dtype).save_pretrained(path)
    AutoTokenizer.from_pretrained(TINY).save_pretrained(path)
    return path


def lengths(world: LiveWorld) -> list[int]:
    """Tokens of the prompts to train on."""
    return [len(world.prefix(world.pool, row)) for row in range(len(world.pool))]


def starts(text: str) -> np.ndarray:
    """The start of one ask."""
    start = np.empty(1, object)
    start[0] = Text(text)
    return start


def test_prompts_that_fill_the_context_to_the_last_token_are_taken() -> None:
    world = toy_world(max(lengths(toy_world(64))) + 6)
    assert world.describe()["context"] == max(lengths(world)) + 6
    assert (world.describe()["prompts_dropped"], world.describe()["prompts_truncated"]) == (0, 0)
    assert world.sample(Plan(np.array([11]), np.array([4]), step=1)).length.max() <= 6


def test_prompts_beyond_the_context_are_named_before_the_first_step() -> None:
    longest = max(lengths(toy_world(64)))
    n = sum(one == longest for one in lengths(toy_world(64)))
    with pytest.raises(
        ValueError, match=rf"{n} of 12 training prompts \(first: q10, q11, q12; the longest has {longest}"
    ):
        toy_world(longest + 5)
    with pytest.raises(ValueError, match='set max_tokens to at most 5, or too_long to "drop" or "truncate_left"'):
        toy_world(longest + 5)
    assert len(toy_world(longest + 5, max_tokens=5).pool) == 12
    with pytest.raises(ValueError, match=r"and 3 of 3 evaluation prompts .* fit into the model's context of 10"):
        toy_world(10)
    with pytest.raises(ValueError, match="too_long must be one of error, drop, truncate_left, got 'cut'"):
        toy_world(64, "cut")


def test_prompts_beyond_the_context_can_be_dropped() -> None:
    context = max(lengths(toy_world(64))) + 5
    with pytest.warns(RuntimeWarning, match="4 of 12 training prompts were left out"):
        world = toy_world(context, "drop")
    assert world.pool.ids.tolist() == [f"q{a}" for a in range(2, 10)]
    assert world.describe()["prompts_dropped"] == 4
    assert world.tokenizer.decode(world.prefix(world.evaluation, 1)) == "4+5?\n4+5="
    assert len(world.evaluate(0)) == 12
    with pytest.raises(ValueError, match="none is left to train on"):
        toy_world(10, "drop")


def test_prompts_beyond_the_context_can_lose_their_beginning() -> None:
    with pytest.warns(RuntimeWarning, match="15 prompts were cut to the last 4 tokens"):
        world = toy_world(10, "truncate_left")
    assert world.tokenizer.decode(world.prefix(world.pool, 0)) == "2+3="
    assert world.tokenizer.decode(world.prefix(world.pool, 0, Text("5"))) == "2+3=5"
    assert world.describe()["prompts_truncated"] == 15
    with pytest.raises(ValueError, match="answers of 10 tokens leave nothing of the model's context of 10"):
        toy_world(10, "truncate_left", max_tokens=10)


def test_answers_end_with_the_context() -> None:
    longest = max(lengths(toy_world(64)))
    world = toy_world(longest + 6)
    rows = world.sample(Plan(np.array([11]), np.array([4]), step=1, max_tokens=np.array([50])))
    assert rows.length.max() <= 6
    hinted = Plan(np.array([11]), np.array([4]), step=1, start=starts("1234"))
    assert world.sample(hinted).length.max() <= 2
    hinted = Plan(np.array([11]), np.array([4]), step=1, start=starts("1234567"))
    with pytest.raises(ValueError, match=f"a prompt with its hint has {longest + 7} tokens, the context {longest + 6}"):
        world.sample(hinted)


def test_an_experiment_and_its_file_say_what_becomes_of_long_prompts(tmp_path, capsys) -> None:
    folder = folder_of(tmp_path / "model", max_position_embeddings=60)
    data = tmp_path / "rows.jsonl"
    rows = [
        {"id": f"r{n}", "prompt": f"{n}+1? " + "x" * (90 if n == 7 else 0), "answer": str(n + 1)} for n in range(40)
    ]
    data.write_text("\n".join(map(json.dumps, rows)))
    experiment = Experiment(
        model=str(folder), tasks=str(data), pipeline="grpo", budget=Budget(2, 8), steps=1, eval_every=0,
        store=str(tmp_path / "store"), task_options={"verifier": "numeric", "max_tokens": 4},
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"1 of 36 training prompts \(first: r7;"):
        experiment.build_world()
    file = tmp_path / "experiment.toml"
    file.write_text(experiment.to_toml())
    assert main(["run", str(file)]) == 2
    assert "1 of 36 training prompts (first: r7;" in capsys.readouterr().err
    file.write_text(experiment.with_(too_long="drop").to_toml())
    with pytest.warns(RuntimeWarning, match="1 of 36 training prompts were left out"):
        assert len(Experiment.from_toml(file).build_world().pool) == 35
    with pytest.warns(RuntimeWarning, match="1 prompt was cut to the last 56 tokens"):
        assert len(list(experiment.with_(world={"too_long": "truncate_left"}).run())) == 1


def test_a_template_that_refuses_a_prompt_is_told_before_the_first_step(tmp_path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate!') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    turn = {"role": "user", "content": "a"}
    rows = [
        {"id": f"r{n}", "prompt": [{**turn, "content": str(n)}] + [turn] * (n == 5), "answer": "1"} for n in range(9)
    ]
    with pytest.raises(
        ValueError, match=r"^prompt r5 \('5\\na'\): .*refuses its turns \(user, user\): roles must alternate$"
    ):
        LiveWorld(tasks.load(rows, evaluation=1), folder)


def test_end_tokens_of_the_folder_end_answers_and_are_no_text(tmp_path) -> None:
    folder = folder_of(tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [*range(100, 400), 99_999]}))
    world = LiveWorld(tasks.load("five", size=20, evaluation=8), folder, max_tokens=40)
    assert world.stop_ids >= set(range(100, 400))
    assert max(world.stop_ids) < 512
    rows = world.sample(Plan(np.arange(8), np.full(8, 4), step=1))
    assert set(rows.finish) == {"stop"}
    ended = [i for i, tokens in enumerate(rows.tokens.rows()) if 100 <= tokens[-1] < 400]
    assert len(ended) > 8
    for i in ended:
        assert rows.text[i] == world.tokenizer.decode(rows.tokens.row(i)[:-1], skip_special_tokens=True).split("\n")[0]


@pytest.mark.parametrize("template", [True, False])
def test_a_tokenizer_needs_neither_an_end_nor_a_pad_token(tmp_path, template) -> None:
    folder = folder_of(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.eos_token = tokenizer.pad_token = None
    if not template:
        tokenizer.chat_template = None
    for file in folder.glob("chat_template*"):
        file.unlink()
    tokenizer.save_pretrained(folder)
    experiment = Experiment(
        model=str(folder), tasks="five", pipeline="grpo", budget=Budget(2, 8), steps=1, eval_every=1,
        store=str(tmp_path / "store"), task_options={"size": 20, "evaluation": 8},
    )  # fmt: skip
    assert AutoTokenizer.from_pretrained(folder).eos_token_id is None
    assert len(list(experiment.run())) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_train_in_float32_and_a_tied_head_stays_tied(tmp_path, dtype) -> None:
    folder = folder_of(tmp_path / "model", dtype=dtype, tie_word_embeddings=True)
    assert json.loads((folder / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    world = LiveWorld(tasks.load("five", size=20, evaluation=8), folder)
    world.save(tmp_path / "saved")
    world.load(tmp_path / "saved")
    model = world.policy.model
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    again = LiveWorld(world.task, tmp_path / "saved").policy.model
    assert again.get_output_embeddings().weight is again.get_input_embeddings().weight
