"""Tokens as bytes: nothing is lost where a vocabulary cuts inside a character."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.store.token_bytes import joined, pieces_of, texts


class Words:
    """A vocabulary as SentencePiece writes one."""

    all_special_ids = (1,)
    names = ("\u2581the", "</s>", "<0xE2>", "<0x82>", "<0xAC>", "é")

    def __len__(self):
        return len(self.names)

    def convert_ids_to_tokens(self, ids):
        return [self.names[i] for i in ids]

    def batch_decode(self, sequences):
        return [{0: "the", 5: "é"}.get(s[0], self.names[s[0]]) for s in sequences]


def test_a_vocabulary_of_characters_keeps_spaces_and_bytes():
    made = pieces_of(Words())
    assert made["piece"].tolist() == [" the", "</s>", "\xe2", "\x82", "\xac", "\xc3\xa9"]
    assert made["special"].tolist() == [1]
    assert texts(made["piece"][[0, 2, 3, 4, 5]]) == [" the", "", "", "€", "é"]


def test_bytes_that_end_nowhere_are_replaced_not_dropped():
    assert texts(["a", "\xe2", "b"]) == ["a", "", "\ufffdb"]
    assert texts(["a", "\xe2"]) == ["a", "\ufffd"]
    assert texts([]) == []


@given(st.text(max_size=40), st.lists(st.integers(1, 3), max_size=60))
def test_any_cut_of_the_bytes_gives_the_text_back(text, lengths):
    raw, at, pieces = text.encode("utf-8"), 0, []
    for n in [*lengths, len(raw) + 1]:
        pieces.append(raw[at : at + n].decode("latin-1"))
        at += n
    assert joined(pieces) == text


def test_a_byte_level_vocabulary_gives_every_text_back():
    transformers = pytest.importorskip("transformers")
    from workbench.models import TINY

    tokenizer = transformers.AutoTokenizer.from_pretrained(TINY)
    made = pieces_of(tokenizer)
    assert len(made["piece"]) == 512
    assert made["piece"][made["special"]].tolist() == ["<|endoftext|>", "<|pad|>"]
    for text in (
        "How many apples?\n 12 + 30 = 42",
        "naïve café: 5 €, \u05e9\u05dc\u05d5\u05dd, \u4f60\u597d \U0001f600",
    ):
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert joined(made["piece"][np.array(ids)]) == text
