"""Chat templates: a prompt as token ids, one turn without a system message, then the start of the answer.

SmolLM2's template adds a system line of 17 tokens when none is given. There is no switch for it, so the prompt is
rendered once with a system message of our own and everything up to its end is cut off. A tokenizer without a chat
template gets the plain form: text, newline, prefix.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

Message = dict[str, str]
Tokenizer = Any
"""A transformers tokenizer."""

_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>")
_stop_ids: WeakKeyDictionary[Tokenizer, dict[tuple[str, ...], list[int]]] = WeakKeyDictionary()


def _chat(messages: Sequence[Message], tokenizer: Tokenizer) -> str:
    """The chat up to where the assistant's answer starts, without a system message that nobody wrote."""
    from jinja2.exceptions import TemplateError

    def template(turns: Sequence[Message], answer: bool) -> str:
        return tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=answer)

    plain = template(messages, True)
    if messages[0]["role"] == "system":
        return plain
    system = {"role": "system", "content": "s"}
    try:
        head, whole = template([system], False), template([system, *messages], True)
    except TemplateError:  # the template knows no system role (Gemma), so it adds none
        return plain
    bare = whole[len(head) :]
    if not whole.startswith(head) or not plain.endswith(bare):
        return plain
    bos = tokenizer.bos_token or ""
    return bos + bare if bos and plain.startswith(bos) and not bare.startswith(bos) and head.startswith(bos) else bare


def encode(text: str, prefix: str, messages: str, tokenizer: Tokenizer) -> list[int]:
    """Token ids of a prompt. messages: "" or a JSON list of {"role", "content"}, which then replaces text;
    an assistant's message at its end is the start of the answer."""
    turns: list[Message] = json.loads(messages) if messages else [{"role": "user", "content": text}]
    if len(turns) > 1 and turns[-1]["role"] == "assistant":
        prefix = turns.pop()["content"] + prefix
    if tokenizer.chat_template:
        return list(tokenizer(_chat(turns, tokenizer) + prefix, add_special_tokens=False).input_ids)
    plain = "\n".join(t["content"] for t in turns) + "\n" + prefix
    ids = list(tokenizer(plain).input_ids)
    return ids[:-1] if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id else ids


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
