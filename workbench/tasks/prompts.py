"""Chat templates: a prompt as token ids, its turns and then the start of the answer.

A template may add a system line of its own when none is given: SmolLM2's has 17 tokens. There is no switch for it, so
where no system line is wanted (system="") the prompt is rendered once with a system message of our own and everything up
to its end is cut off. A tokenizer without a chat template gets the plain form: text, newline, prefix.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

Message = dict[str, str]
Tokenizer = Any
"""A transformers tokenizer."""

_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>")
_OWN_KWARGS = frozenset(
    {"conversation", "tokenize", "add_generation_prompt", "continue_final_message", "return_dict", "return_tensors", "padding",
     "truncation", "max_length", "return_assistant_tokens_mask", "tokenizer_kwargs", "messages"}
)  # fmt: skip
_stop_ids: WeakKeyDictionary[Tokenizer, dict[tuple[str, ...], list[int]]] = WeakKeyDictionary()


def _chat(messages: Sequence[Message], tokenizer: Tokenizer, bare: bool, more: Mapping[str, object]) -> str:
    """The chat up to where the assistant's answer starts; bare: without a system message that nobody wrote."""
    from jinja2.exceptions import TemplateError

    def template(turns: Sequence[Message], answer: bool) -> str:
        return tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=answer, **more)

    plain = template(messages, True)
    if not bare or messages[0]["role"] == "system":
        return plain
    system = {"role": "system", "content": "s"}
    try:
        head, whole = template([system], False), template([system, *messages], True)
    except TemplateError:  # the template knows no system role (Gemma), so it adds none
        return plain
    rest = whole[len(head) :]
    if not whole.startswith(head) or not plain.endswith(rest):
        return plain
    bos = tokenizer.bos_token or ""
    return bos + rest if bos and plain.startswith(bos) and not rest.startswith(bos) and head.startswith(bos) else rest


def encode(
    text: str,
    prefix: str,
    messages: str,
    tokenizer: Tokenizer,
    system: str | None = None,
    template_kwargs: Mapping[str, object] = MappingProxyType({}),
) -> list[int]:
    """Token ids of a prompt. messages: "" or a JSON list of {"role", "content"}, which then replaces text;
    an assistant's message at its end is the start of the answer.

    system: the system message of prompts that bring none; "" for none at all, None for what the template itself says.
    template_kwargs: for the chat template. ValueError, with the template's reason, where the template refuses a prompt."""
    turns: list[Message] = json.loads(messages) if messages else [{"role": "user", "content": text}]
    if len(turns) > 1 and turns[-1]["role"] == "assistant":
        prefix = turns.pop()["content"] + prefix
    if system and turns[0]["role"] != "system":
        turns.insert(0, {"role": "system", "content": system})
    if tokenizer.chat_template:
        try:
            chat = _chat(turns, tokenizer, system == "", template_kwargs)
        except ImportError:
            raise
        except Exception as error:  # a template is a program: what it raises is up to it
            roles, why = ", ".join(t["role"] for t in turns), str(error).strip().rstrip(".!")
            raise ValueError(
                f"the model's chat template refuses its turns ({roles}): {why or type(error).__name__}"
            ) from error
        return list(tokenizer(chat + prefix, add_special_tokens=False).input_ids)
    plain = "\n".join(t["content"] for t in turns) + "\n" + prefix
    ids = list(tokenizer(plain).input_ids)
    return ids[:-1] if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id else ids


def checked_kwargs(value: object) -> Mapping[str, object]:
    """Arguments of a chat template, by name; those that the rendering itself sets are refused."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"template_kwargs must be names with values, such as enable_thinking = false, got {value!r}")
    if taken := sorted(set(value) & _OWN_KWARGS):
        raise ValueError(
            f"template_kwargs cannot set {', '.join(taken)}: a prompt is rendered up to its answer, as tokens"
        )
    return dict(value)


def stop_ids(tokenizer: Tokenizer, stop: tuple[str, ...]) -> list[int]:
    """Ids that end an answer: end of text or turn, and every token whose text holds one of `stop`; ascending.

    Stop strings longer than a token are the engine's business. Computed once for a tokenizer.
    """
    known = _stop_ids.setdefault(tokenizer, {})
    if stop not in known:
        vocabulary = tokenizer.get_vocab()
        ends = {vocabulary[t] for t in _END_OF_TURN if t in vocabulary}
        if tokenizer.eos_token_id is not None:
            ends.add(tokenizer.eos_token_id)
        if stop:
            ids = sorted(set(vocabulary.values()))
            texts = tokenizer.batch_decode([[i] for i in ids])
            ends |= {i for i, text in zip(ids, texts, strict=True) if any(s in text for s in stop)}
        known[stop] = sorted(ends)
    return known[stop]
