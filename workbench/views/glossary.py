"""Glossary: the words of the pages and what they mean here, read from `glossary.toml`. Text alone, no drawing."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple


class Term(NamedTuple):
    """A word, what it means, and where it is shown."""

    word: str
    meaning: str
    page: str = ""


GLOSSARY: dict[str, tuple[Term, ...]] = {
    heading: tuple(Term(word, *text) for word, text in terms.items())
    for heading, terms in tomllib.loads((Path(__file__).parent / "glossary.toml").read_text(encoding="utf-8")).items()
}
"""Heading -> its terms."""


def words() -> set[str]:
    """All words that are explained."""
    return {term.word for terms in GLOSSARY.values() for term in terms}


def found(text: str) -> dict[str, tuple[Term, ...]]:
    """The terms whose word or meaning holds a text, whatever its case."""
    wanted = text.strip().lower()
    hits = {
        heading: tuple(t for t in terms if wanted in t.word.lower() or wanted in t.meaning.lower())
        for heading, terms in GLOSSARY.items()
    }
    return {heading: terms for heading, terms in hits.items() if terms}
