"""Numbers as people and models write them, read as exact values: 3/4, 1,234, 1{,}234, 50%, 2\\sqrt{3}, 10^2, 1.5e-3.

A reference answer is read whole or not at all (`whole`); from a completion the number that answers is taken (`answer`).
Nothing is calculated for the writer: 8 * 4 and 4 + 3 are no numbers, so a question cannot be answered by repeating it;
with a root or pi in it a product or a sum is one number. Every text is read from left to right, and nothing evaluated.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

MOST_DIGITS = 4000
"""Longer numbers are not read."""


class Number(NamedTuple):
    """A value: a Fraction where it is rational, else a float. percent: it was written with a percent sign, 50% = 1/2."""

    value: Fraction | float
    percent: bool = False


_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u2212\u2013\u2012\u2010\u2011\ufe63\uff0d", "-"), **dict.fromkeys("\u00d7\u00b7\u22c5", "*"),
        "\u00f7": "/", "\u2044": "/", "\u03c0": "\\pi ", "\u221a": "\\sqrt ", "\u00b2": "^2", "\u00b3": "^3", "\u00bc": " 1/4",
        "\u00bd": " 1/2", "\u00be": " 3/4", "\u00b0": "", **dict.fromkeys("$\u20ac\u00a3\u00a5", ""),
    }
)  # fmt: skip
_REWRITE = (
    (re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[!()\[\]]|\^\s*\{?\s*\\circ\s*\}?|\\degrees?\b"), ""),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"(?<=[0-9])(?:\\[,;: ]|[\u00a0\u2009\u202f])(?=[0-9]{3}(?![0-9]))"), "\x1f"),
    (re.compile(r"\\[,;: ]|\\q?quad(?![A-Za-z])|~"), " "),
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\(?:cdot|times|ast)(?![A-Za-z])"), "*"),
    (re.compile(r"\\div(?![A-Za-z])"), "/"),
    (re.compile(r"\\%|(?<=[0-9])\s*(?:\\text\s*\{\s*percent\s*\}|percent\b)"), "%"),
)
_NUM = (
    r"(?:[0-9]{1,3}(?:(?:,[0-9]{3})+|(?:\x1f[0-9]{3})+)(?![0-9]|,[0-9])|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,4}(?![0-9A-Za-z]))?"
    r"|(?<![0-9.])\.[0-9]+"
)
_TOKEN = re.compile(rf"\s*({_NUM}|\\(?:frac|sqrt|pi)(?![A-Za-z])|[-+*/^(){{}}\[\]%])")
_RUN = re.compile(rf"(?:{_NUM}|\\(?:frac|sqrt|pi)(?![A-Za-z])|[-+*/^=(){{}}\[\]%\s])+")
_UNIT = re.compile(
    r"\s*(?:\\(?:text|textrm|textbf|textit|mathrm|mbox)\s*\{(?P<word>[A-Za-z .,/-]*(?:\^\{?[0-9]\}?)?)\}|"
    r"(?P<bare>\b(?:(?:square|cubic|sq\.?|per|[cmk]?m|in(?:ch(?:es)?)?|ft|feet|foot|yards?|miles?|k?g|mg|lbs?|oz|pounds?|ounces?|"
    r"m?s|sec(?:ond)?s?|min(?:ute)?s?|h(?:ou)?rs?|h|days?|weeks?|months?|years?|dollars?|cents?|euros?|USD|EUR|degrees?|"
    r"units?|m?[lL]|lit(?:er|re)s?|mph|km/h|m/s)[ /]*)+))(?:\^\{?[0-9]\}?)?\s*$"
)
_SCALES = re.compile(r"\b(?:hundred|thousand|million|billion|trillion|dozen|half|or|and|to)s?\b", re.IGNORECASE)
_NAMED = re.compile(r"^\s*[A-Za-z]\s*=")
_WORDED = re.compile(r"\s*\$?\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}\$?\s*")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")


def _clean(text: str) -> str:
    text = text.replace("\\$", "").translate(_ALIKE)
    if "\\" in text or "{" in text or not text.isascii() or "percent" in text:
        for pattern, by in _REWRITE:
            text = pattern.sub(by, text)
    return text


class _NoNumber(Exception):
    """What is read is no number."""


class _Reader:
    """Reads tokens as one number, from left to right."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at, self.depth, self.percent = tokens, 0, 0, False

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, token: str) -> bool:
        self.at += (found := self.next == token)
        return found

    def sum(self) -> Fraction | float:
        """Terms; of two or more one must be irrational."""
        total, n = self.product(), 1
        while self.next in ("+", "-"):
            sign = -1 if self.tokens[self.at] == "-" else 1
            self.at += 1
            total, n = total + sign * self.product(), n + 1
        if n > 1 and isinstance(total, Fraction):
            raise _NoNumber
        return total

    def product(self) -> Fraction | float:
        sign = -1 if self.take("-") else 1
        if sign == 1:
            self.take("+")
        plain = self.next[:1].isdigit()
        value = self.power()
        if plain and isinstance(value, Fraction) and value.denominator == 1 and self._fraction_follows():
            value += self.base() / (self.base() if self.take("/") else 1)  # a mixed number: 2 1/2, 2\frac{1}{2}
            if self.take("%"):
                self.percent, value = True, value / 100
        divided = False
        while self.next in ("*", "/", "\\sqrt", "\\pi", "("):
            if self.take("/"):
                by = -self.power() if self.take("-") else self.power()
                if by == 0 or divided:
                    raise _NoNumber
                value, divided = value / by, True
                continue
            ten = self.take("*") and self.tokens[self.at : self.at + 2] == ["10", "^"]
            by = self.power()
            if isinstance(value, Fraction) and isinstance(by, Fraction) and not ten:
                raise _NoNumber
            value = value * by
        return sign * value

    def _fraction_follows(self) -> bool:
        ahead = self.tokens[self.at : self.at + 3]
        return ahead[:1] == ["\\frac"] or (
            len(ahead) == 3 and ahead[0].isdigit() and ahead[1] == "/" and ahead[2].isdigit()
        )

    def power(self) -> Fraction | float:
        base = self.base()
        if self.take("^"):
            exponent = self.base() if not self.take("-") else -self.base()
            base = _power(base, exponent)
        if self.take("%"):
            self.percent = True
            base = base / 100
        return base

    def base(self) -> Fraction | float:
        self.depth += 1
        if self.depth > 60:
            raise _NoNumber
        token = self.next
        self.at += 1
        if token[:1].isdigit() or token[:1] == ".":
            return _exact(token)
        if token == "\\pi":
            return math.pi
        if token == "\\frac":
            over, under = self.argument(), self.argument()
            if under == 0:
                raise _NoNumber
            return over / under
        if token == "\\sqrt":
            degree: Fraction | float = Fraction(2)
            if self.take("["):
                degree = self.sum()
                if not self.take("]") or degree == 0:
                    raise _NoNumber
            return _power(self.base(), 1 / degree)
        if token in ("(", "{"):
            value = self.sum()
            if not self.take(")" if token == "(" else "}"):
                raise _NoNumber
            return value
        raise _NoNumber

    def argument(self) -> Fraction | float:
        """What follows a command: a group, or as in TeX the next digit: \\frac12."""
        token = self.next
        if len(token) > 1 and token.isdigit():
            self.tokens[self.at : self.at + 1] = [token[0], token[1:]]
        return self.base()


def _exact(token: str) -> Fraction:
    digits, _, exponent = token.replace(",", "").replace("\x1f", "").lower().partition("e")
    if len(digits) + abs(int(exponent or 0)) > MOST_DIGITS:
        raise _NoNumber
    return Fraction(digits) * Fraction(10) ** int(exponent or 0)


def _power(base: Fraction | float, exponent: Fraction | float) -> Fraction | float:
    """base to the exponent, exact where that is rational."""
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if base == 0 and exponent <= 0:
            raise _NoNumber
        root, power = exponent.denominator, exponent.numerator
        size = max(abs(base.numerator), base.denominator).bit_length() * abs(power)
        if root > 64 or size > 3 * MOST_DIGITS or (base < 0 and root % 2 == 0):
            raise _NoNumber
        whole = Fraction(_root(abs(base.numerator), root), _root(base.denominator, root))
        if whole**root == abs(base):
            return (whole if base > 0 else -whole) ** power
        if base < 0:
            return (-(float(-base) ** (1 / root))) ** power
    try:
        found = float(base) ** float(exponent)
    except (OverflowError, ZeroDivisionError):
        raise _NoNumber from None
    if isinstance(found, complex) or not math.isfinite(found):
        raise _NoNumber
    return found


def _root(n: int, k: int) -> int:
    """The largest whole number whose k-th power is not above n."""
    if k == 1 or n < 2:
        return n
    if k == 2:
        return math.isqrt(n)
    low, high = 1, 1 << -(-n.bit_length() // k)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**k <= n else (low, middle - 1)
    return low


def _tokens(text: str) -> list[tuple[str, int]]:
    """(token, its start), up to the first thing that is none."""
    found, at = [], 0
    while match := _TOKEN.match(text, at):
        found.append((match.group(1), match.start(1)))
        at = match.end()
    return found if not text[at:].strip() else []


def _read(tokens: list[str]) -> Number | None:
    reader = _Reader(list(tokens))
    try:
        value = reader.sum()
        if reader.at < len(reader.tokens) or (isinstance(value, float) and not math.isfinite(value)):
            return None
    except (_NoNumber, OverflowError):
        return None
    return Number(value, reader.percent)


def _parse(clean: str) -> Number | None:
    tokens = [token for token, _ in _tokens(clean)]
    return _read(tokens) if tokens else None


def marked(text: str) -> str | None:
    """What the last \\boxed{} of a text holds, or else its last <answer>, or the line after its last ####; None without."""
    for start in reversed([m.end() for m in _BOX.finditer(text)][-20:]):
        depth = 1
        for i in range(start, len(text)):
            depth += (text[i] == "{") - (text[i] == "}")
            if not depth:
                return text[start:i]
    end = text.rfind("</answer>")
    if end >= 0 and (start := text.rfind("<answer>", 0, end)) >= 0:
        return text[start + len("<answer>") : end]
    _, mark, rest = text.rpartition("####")
    return rest.split("\n", 1)[0] if mark else None


@lru_cache(maxsize=1 << 14)  # a reference answer is compared with every completion of its prompt
def whole(text: str) -> Number | None:
    """The number that a text is, with its unit or currency; None where it is anything else or more than one number.

    A worked solution counts as what its last \\boxed{} or #### holds.

    >>> whole("1 1/2").value, whole("58,\\\\!500").value, whole("3 or 4"), whole("50%").value
    (Fraction(3, 2), Fraction(58500, 1), None, Fraction(1, 2))
    """
    held = marked(text)
    if (worded := _WORDED.fullmatch(held or text)) is not None:
        held = worded[1]
    clean = _NAMED.sub("", _clean(text if held is None else held)).strip().removesuffix(".")
    if (number := _parse(clean)) is not None:
        return number
    unit = _UNIT.search(clean)
    if unit is None or (unit["word"] and _SCALES.search(unit["word"])):
        return None
    return _parse(clean[: unit.start()])


def answer(text: str, *, first: bool = False) -> Number | None:
    """The number that a completion gives: first, or that of its last \\boxed{} or ####, or else the last one.

    A box that holds something else than one number gives None, and not a part of it."""
    if first:
        return _within(text, first=True)
    held = marked(text)
    if held is not None:
        if (number := whole(held)) is not None:
            return number
        if re.search(r"[0-9]|\\pi|\u03c0", held):
            return _only(_clean(re.sub(r"\\(?:text|textbf|textit|mathrm|mbox)\s*\{([^{}]*)\}", r" \1 ", held)))
    return _within(text, first=False)


def _only(clean: str) -> Number | None:
    """The number of a text that holds one, and words: 5 apples, not 2x, 5 or 6, 2 + \\alpha."""
    runs = [m for m in _RUN.finditer(clean) if any(c.isdigit() for c in m.group()) or "\\" in m.group()]
    if len(runs) != 1 or re.search(r"[0-9)}][A-Za-z]|[A-Za-z][-+*/^(]|\\(?!pi|frac|sqrt)", clean):
        return None
    return _parse(runs[0].group().split("=")[-1].strip(" ()"))


def _within(text: str, *, first: bool) -> Number | None:
    """The first or the last number of free text."""
    runs = [m.group() for m in _RUN.finditer(_clean(text))]
    for run in runs if first else reversed(runs):
        for piece in re.split(r"[=\n]", run) if first else reversed(re.split(r"[=\n]", run)):
            if (number := (_front if first else _back)(piece)) is not None:
                return number
    return None


def _starts(tokens: list[tuple[str, int]]) -> list[int]:
    """Where a number can start: at no operator, but for a sign that stands before its number and behind none."""
    starts = []
    for i, (token, at) in enumerate(tokens):
        if token == "-":
            glued = i + 1 < len(tokens) and tokens[i + 1][1] == at + 1
            if not glued or (i and (tokens[i - 1][0][-1].isdigit() or tokens[i - 1][0] in (")", "}", "%", "\\pi"))):
                continue
        elif token in ("+", "*", "/", "^", "%", ")", "}", "]", "["):
            continue
        starts.append(i)
    return starts


def _front(piece: str) -> Number | None:
    tokens = _tokens(piece)
    starts = _starts(tokens)
    for start in starts[:4]:
        for end in range(min(len(tokens), start + 40), start, -1):
            if (number := _read([t for t, _ in tokens[start:end]])) is not None:
                return number
    return None


def _back(piece: str) -> Number | None:
    tokens = _tokens(piece)[-40:]
    while tokens and (
        tokens[-1][0] in ("+", "-", "*", "/", "^", "(", "{", "[", "]")
        or (tokens[-1][0] in (")", "}") and not _closed([t for t, _ in tokens]))
    ):
        tokens.pop()
    for start in _starts(tokens):
        rest = [t for t, _ in tokens[start:]]
        if start and tokens[start - 1][0] == "/" and "/" in rest:  # the end of a date is no fraction
            continue
        if (number := _read(rest)) is not None:
            return number
    return None


def _closed(tokens: list[str]) -> bool:
    closer = tokens[-1]
    return tokens.count(closer) <= tokens.count("(" if closer == ")" else "{")


def equal(a: Fraction | float, b: Fraction | float) -> bool:
    """Whole numbers to the last digit, others within 1e-9 of their size."""
    if a == b:
        return True
    if _is_whole(a) and _is_whole(b):
        return False
    return math.isclose(size(a), size(b), rel_tol=1e-9)


def _is_whole(value: Fraction | float) -> bool:
    return isinstance(value, Fraction) and value.denominator == 1


def size(value: Fraction | float) -> float:
    """The value as a float, infinite beyond its range."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def spelled(value: Fraction | float) -> str:
    """The one way in which a value is written here, so that votes count values: all digits of a whole number, else ten.

    >>> spelled(Fraction("8.0")), spelled(Fraction(1, 3)), spelled(2**0.5)
    ('8', '0.3333333333', '1.414213562')
    """
    return str(int(value)) if _is_whole(value) else f"{size(value):.10g}"
