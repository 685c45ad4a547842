"""Bytes of each token id of a vocabulary, kept once per run, so that tokens can be shown without their tokenizer.

Tokens of byte-level vocabularies are parts of characters as often as of words. So a piece is its bytes in UTF-8, written
as text with one character per byte (Latin-1): plain English reads as itself, and whatever was cut inside a character comes
together again in `texts`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def _bytes_by_character() -> dict[str, str]:
    """The alphabet in which byte-level vocabularies write bytes, as GPT-2 chose it -> the byte in Latin-1."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in printable]
    return {chr(b): chr(b) for b in printable} | {chr(256 + i): chr(b) for i, b in enumerate(hidden)}


_OF_BYTE = str.maketrans(_bytes_by_character())
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def pieces_of(tokenizer: PreTrainedTokenizerBase) -> dict[str, np.ndarray]:
    """piece (V,) str of every id, and special (S,) int64: the ids that end, pad or mark and are no part of a text."""
    n = len(tokenizer)
    names = tokenizer.convert_ids_to_tokens(list(range(n)))
    decoder = repr(getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None))
    if "ByteLevel" in decoder:
        made = [name.translate(_OF_BYTE) if _latin(name.translate(_OF_BYTE)) else _packed(name) for name in names]
    else:
        alone = tokenizer.batch_decode([[i] for i in range(n)])
        made = [_plain(name, text) for name, text in zip(names, alone, strict=True)]
    return {"piece": np.array(made, dtype=object), "special": np.array(sorted(tokenizer.all_special_ids), np.int64)}


def texts(pieces: Iterable[str]) -> list[str]:
    """The text that each of a sequence of pieces adds; a character cut in several stands with the one that ends it.

    Bytes that are no UTF-8 become the replacement character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    made = [decoder.decode(piece.encode("latin-1", "replace")) for piece in pieces]
    if made:
        made[-1] += decoder.decode(b"", final=True)
    return made


def unknown(token: int) -> str:
    """The piece shown for an id that the vocabulary lacks."""
    return _packed(f"\u27e8{token}\u27e9")


def joined(pieces: Sequence[str]) -> str:
    """The text of a sequence of pieces."""
    return "".join(texts(pieces))


def _latin(text: str) -> bool:
    return not text or max(text) < "\u0100"


def _packed(text: str) -> str:
    return text.encode("utf-8", "replace").decode("latin-1")


def _plain(name: str, text: str) -> str:
    """The piece of a vocabulary of characters: SentencePiece writes bytes as <0xE2> and a space as a low line."""
    if found := _BYTE.fullmatch(name):
        return chr(int(found[1], 16))
    return _packed(name.replace("\u2581", " ") if "\u2581" in name else text)
