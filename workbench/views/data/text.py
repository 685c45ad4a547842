"""Escaping of untrusted text: completions, prompts, names and messages come from outside.

Two ways in which text reaches the page: as HTML, through `html` (escaped), and as a value that the browser puts
into a text node, through `shown`. Both make control and direction characters visible, so that a completion can
neither hide nor reorder what stands beside it.
"""

from __future__ import annotations

import math
import re
from html import escape

CUT = 280
"""Characters of a completion shown before "show all"."""

ALL = 1_000_000
"""Characters sent by "show all"; what is longer is cut there, and says so."""

_CONTROL = {c: chr(0x2400 + c) for c in range(32) if chr(c) not in "\n\t"} | {127: "\u2421"}
_CONTROL |= {c: f"\\x{c:02x}" for c in range(128, 160)}
_DIRECTION = dict.fromkeys(
    (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF), "\N{MIDDLE DOT}"
)
_VISIBLE = _CONTROL | _DIRECTION
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def shown(value: object, limit: int = CUT) -> str:
    """Text cut at limit characters, control characters drawn (\\0 as its symbol), direction marks as a dot.

    Lone surrogates, which no browser can be sent, become the replacement character."""
    text = "" if value is None else value if isinstance(value, str) else str(value)
    return _SURROGATE.sub("\ufffd", text[:limit]).translate(_VISIBLE)


def html(value: object, limit: int = CUT) -> str:
    """`shown`, escaped for HTML text and attributes, with an ellipsis where it was cut."""
    text = "" if value is None else str(value)
    return escape(shown(text, limit)) + ("…" if len(text) > limit else "")


def one_line(value: object, limit: int = 80) -> str:
    """`shown` on a single line, for labels of widgets and axes."""
    text = " ".join(str("" if value is None else value)[: 4 * limit].split())
    return shown(text, limit) + ("…" if len(text) > limit else "")


def known(x: float | None, digits: int | None = None) -> float | None:
    """A number for the browser: rounded, and null where it is not known."""
    return None if x is None or not math.isfinite(x) else float(x) if digits is None else round(float(x), digits)


def fixed(x: float | None, digits: int = 3) -> str:
    """A number with so many decimals; a dash where there is none."""
    return "–" if x is None or x != x else f"{x:.{digits}f}"


def count(n: float) -> str:
    """A count for people: 950, 12.4k, 3.1M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(n) >= size:
            return f"{n / (1e3 if unit == 'k' else size):,.1f}{unit}"
    return f"{n:,.0f}"


def signed(x: float, digits: int = 2) -> str:
    """A number with its sign, a true minus; zero has none."""
    text = f"{x:+.{digits}f}".replace("-", "−")
    return text[1:] if not float(f"{x:.{digits}f}") else text


def percent(share: float | None) -> str:
    """A share as a percentage; a dash where there is none."""
    return "–" if share is None or share != share else f"{100 * share:.0f} %"


def duration(seconds: float | None) -> str:
    """Seconds for people: 35 ms, 0.42 s, 8.1 s, 12 min, 3.4 h."""
    if seconds is None or seconds != seconds:
        return "–"
    for size, unit in ((3600, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds / (60 if unit == 'min' else size):.3g} {unit}"
    if seconds < 0.1:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
