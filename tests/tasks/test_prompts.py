"""Prompts as token ids, ids that stop, and what a notebook shows of a task."""

import json
from dataclasses import replace

import numpy as np
import pytest

from workbench import tasks

SMOL = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\n' + message['content']"
    " + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{{ '[' + m['role'] + ']' + m['content'] + '[/]' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]' }}{% endif %}"
)


def tokenizer_of(template=None, special=()):
    """A byte-level tokenizer with a token for each byte, one for "a newline b", and the special ones."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    names = ["<s>", "<|im_start|>", "<|im_end|>", *special]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {t: i for i, t in enumerate([*names, *alphabet, "aĊ", "aĊb"])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "Ċ"), ("aĊ", "b")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="<|im_end|>")
    made.add_special_tokens({"additional_special_tokens": list(names[1:2]) + list(special)})
    made.chat_template = template
    return made


@pytest.fixture(scope="module")
def task():
    return tasks.load("mul 1dx1d", size=30, evaluation=10)


def shown(task, tokenizer, row=0):
    return tokenizer.decode(task.render(task.pool, row, tokenizer))


def test_smollm_gets_a_chat_turn_without_its_default_system_line(task):
    row = int(np.flatnonzero(task.pool.prefix == "2 * 2 =")[0])
    assert shown(task, tokenizer_of(SMOL), row) == (
        "<|im_start|>user\nWhat is 2 * 2?<|im_end|>\n<|im_start|>assistant\n2 * 2 ="
    )


def test_templates_without_system_role_or_with_a_first_token_are_left_alone(task):
    row = int(np.flatnonzero(task.pool.prefix == "2 * 2 =")[0])
    assert shown(task, tokenizer_of(GEMMA), row) == (
        "<s><start_of_turn>user\nWhat is 2 * 2?<end_of_turn>\n<start_of_turn>model\n2 * 2 ="
    )
    assert shown(task, tokenizer_of(LLAMA), row) == "<s>[user]What is 2 * 2?[/][assistant]2 * 2 ="


def test_a_tokenizer_without_chat_template_gets_the_plain_form(task):
    row = int(np.flatnonzero(task.pool.prefix == "2 * 2 =")[0])
    assert shown(task, tokenizer_of(), row) == "What is 2 * 2?\n2 * 2 ="


ROWS = [{"prompt": "What?", "answer": "1"}, {"prompt": "Who?", "answer": "1"}]
DEFAULT = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
ASKED = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("options", "head"),
    [({}, DEFAULT), ({"system": ""}, ""), ({"system": "Be brief."}, "<|im_start|>system\nBe brief.<|im_end|>\n")],
)
def test_a_table_keeps_the_default_system_line_of_the_model_or_sets_its_own(options, head):
    task = tasks.load(ROWS, **options)
    assert shown(task, tokenizer_of(SMOL)) == head + ASKED.format(task.pool.text[0])


def test_a_system_option_leaves_system_messages_of_rows_alone_and_serves_families_as_well():
    own = [{"role": "system", "content": "Sing."}, {"role": "user", "content": "Why?"}]
    task = tasks.load([{"prompt": own, "answer": "x"}, {"prompt": "b", "answer": "x"}], system="Be brief.")
    shows = {shown(replace(task, pool=p), tokenizer_of(SMOL)) for p in (task.pool, task.evaluation)}
    assert shows == {
        "<|im_start|>system\nSing.<|im_end|>\n" + ASKED.format("Why?"),
        "<|im_start|>system\nBe brief.<|im_end|>\n" + ASKED.format("b"),
    }
    task = tasks.load("mul 1dx1d", size=3, evaluation=1, system="Add.")
    assert shown(task, tokenizer_of(SMOL)).startswith("<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\n")


def test_template_kwargs_reach_the_chat_template():
    template = SMOL + "{% if enable_thinking is false %}<think></think>{% endif %}"
    task = tasks.load(ROWS, template_kwargs={"enable_thinking": False})
    assert shown(task, tokenizer_of(template)).endswith("assistant\n<think></think>")
    assert shown(tasks.load(ROWS), tokenizer_of(template)).endswith("assistant\n")
    bare = tasks.load("mul 1dx1d", size=3, evaluation=1, template_kwargs={"enable_thinking": False})
    assert "<think></think>" + bare.pool.prefix[0] in shown(bare, tokenizer_of(template))
    with pytest.raises(ValueError, match="template_kwargs cannot set tokenize"):
        tasks.load(ROWS, template_kwargs={"tokenize": True})
    with pytest.raises(ValueError, match="template_kwargs must be names with values"):
        tasks.load(ROWS, template_kwargs="enable_thinking")
    with pytest.raises(ValueError, match="system must be a text, got 3"):
        tasks.load(ROWS, system=3)


def test_a_template_that_refuses_says_why():
    with pytest.raises(ValueError, match=r"refuses its turns \(system, user\): System role not supported$"):
        shown(tasks.load(ROWS, system="Be brief."), tokenizer_of(GEMMA))
    broken = "{{ messages[0].content + 1 }}"
    with pytest.raises(ValueError, match=r"refuses its turns \(user\): can only concatenate str"):
        shown(tasks.load(ROWS), tokenizer_of(broken))


def test_messages_keep_their_system_line_and_a_started_answer():
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "Because"},
    ]
    task = tasks.load([{"prompt": turns, "answer": "x"}, {"prompt": "b", "answer": "x"}])
    pool = task.pool if task.pool.extra["messages"][0] else task.evaluation
    assert json.loads(pool.extra["messages"][0]) == turns
    tokenizer = tokenizer_of(SMOL)
    assert tokenizer.decode(task.render(pool, 0, tokenizer)) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\nBecause"
    )
    assert tokenizer_of().decode(task.render(pool, 0, tokenizer_of())) == "Be brief.\nWhy?\nBecause"


def test_render_gives_ids(task):
    ids = task.render(task.pool, 0, tokenizer_of(SMOL))
    assert isinstance(ids, list)
    assert all(type(i) is int for i in ids)


def test_every_token_with_a_newline_stops_and_so_does_the_end_of_a_turn(task):
    tokenizer = tokenizer_of(SMOL)
    stops = [tokenizer.convert_ids_to_tokens(i) for i in task.stop_ids(tokenizer)]
    assert sorted(stops) == sorted(["<|im_end|>", "Ċ", "aĊ", "aĊb"])
    assert task.stop_ids(tokenizer) is task.stop_ids(tokenizer)
    free = tasks.load([{"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": "1"}])
    assert free.stop_ids(tokenizer) == [tokenizer.eos_token_id]


def test_repr_says_how_many_prompts_of_what(task):
    assert repr(task) == "Task('mul 1dx1d': 30 prompts, 10 for evaluation, 8 tokens at most; mul 1dx1d 30)"


def test_html_in_prompts_is_shown_as_text():
    bad = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    rows = [{"prompt": f"{bad} {i}", "answer": bad, "prefix": bad, "stratum": bad} for i in range(4)]
    html = tasks.load(rows)._repr_html_()
    assert "<script" not in html
    assert "<img" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 7  # stratum once, two examples of three cells


def test_a_long_prompt_is_shown_short():
    rows = [{"prompt": f"{i}" + "x" * 10_000, "answer": "1"} for i in range(3)]
    assert len(tasks.load(rows)._repr_html_()) < 2000


def test_names_and_families_are_there_to_complete():
    assert tasks.names() == ("default", "five")
    assert len(tasks.families()) == 29
    assert {"Task", "families", "load", "names", "teaching"} <= set(dir(tasks))


def test_importing_tasks_brings_in_neither_torch_nor_data_libraries():
    import subprocess
    import sys

    code = (
        "import sys, workbench.tasks; print({'torch', 'transformers', 'datasets', 'reasoning_gym'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize(
    "module", ["workbench.tasks", "workbench.tasks.generators.reasoning_gym", "workbench.tasks.verifiers"]
)
def test_the_examples_of_the_docstrings(module):
    import doctest
    import importlib

    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0
