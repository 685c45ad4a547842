"""Reference answers as MATH's answer column writes them, with completions that give them and completions that give a part."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple


class Gold(NamedTuple):
    """answer: without dollar signs or box. equal: other spellings of its value. parts: what a truncated reading takes."""

    kind: str
    answer: str
    equal: tuple[str, ...]
    parts: tuple[str, ...]

    @property
    def right(self) -> tuple[str, ...]:
        """Completions that give it, as it is and in the forms that prompts ask for."""
        a = self.answer
        forms = (
            a,
            f"So it is $\\boxed{{{a}}}$.",
            f"We find 7 of 9.\nThe answer is ${a}$.",
            f"Thus:\n#### {a}",
            f"The answer is {a}.",
        )
        return forms + tuple(f"\\boxed{{{e}}}" for e in self.equal)

    @property
    def truncated(self) -> tuple[str, ...]:
        """Completions that give a part of it."""
        return tuple(f"\\boxed{{{p}}}" for p in self.parts) + tuple(f"The answer is {p}." for p in self.parts)


def _roots(r: random.Random) -> Gold:
    a, b, c = r.randint(2, 30), r.choice((2, 3, 5, 6, 7, 10, 11, 13)), r.choice((7, 11, 13, 17))
    return r.choice((
        Gold("root", f"{a}\\sqrt{{{b}}}", (f"\\sqrt{{{a * a * b}}}", f"{a}\\sqrt {b}"), (str(a), str(b), f"\\sqrt{{{b}}}")),
        Gold("root", f"\\frac{{{a}\\sqrt{{{b}}}}}{{{c * 31}}}", (f"\\dfrac{{{a}\\sqrt{{{b}}}}}{{{c * 31}}}",), (str(a), str(c * 31))),
        Gold("root", f"{a}+{c}\\sqrt{{{b}}}", (f"{c}\\sqrt{{{b}}} + {a}",), (str(a), str(b), f"{c}\\sqrt{{{b}}}")),
        Gold("root", f"\\sqrt[3]{{{a * a + 1}}}", (f"({a * a + 1})^{{1/3}}",) if round((a * a + 1) ** (1 / 3)) ** 3 != a * a + 1 else (), ("3", str(a * a + 1))),
    ))  # fmt: skip


def _intervals(r: random.Random) -> Gold:
    a = r.randint(-20, 20)
    b, c, d = a + r.randint(1, 9), a + r.randint(12, 15), a + r.randint(17, 30)
    left, right = r.choice("(["), r.choice(")]")
    return r.choice((
        Gold("interval", f"{left}{a},{b}{right}", (f"\\left{left}{a}, {b}\\right{right}",), (str(a), str(b))),
        Gold("interval", f"(-\\infty, {b}{right}", (f"(-\\infty,{b}{right}",), (str(b), f"(-\\infty, {b + 1}{right}")),
        Gold("interval", f"{left}{a}, \\infty)", (), (str(a), "\\infty")),
        Gold("interval", f"{left}{a},{b})\\cup({c},{d}{right}", (f"({c},{d}{right} \\cup {left}{a},{b})",), (f"{left}{a},{b})", str(d))),
        Gold("interval", f"\\left[\\frac{{{a}}}{{41}}, {b}\\right)", (f"[\\frac{{{a}}}{{41}},{b})",), (str(b), f"\\frac{{{a}}}{{41}}")),
    ))  # fmt: skip


def _matrices(r: random.Random) -> Gold:
    a, b, c, d = (r.randint(-50, 50) for _ in range(4))
    return r.choice((
        Gold("matrix", f"\\begin{{pmatrix}} {a} \\\\ {b} \\\\ {c} \\end{{pmatrix}}", (f"\\begin{{pmatrix}}{a}\\\\{b}\\\\{c}\\end{{pmatrix}}",), (str(c), str(a), f"\\begin{{pmatrix}} {a} \\\\ {b} \\end{{pmatrix}}")),
        Gold("matrix", f"\\begin{{pmatrix}} {a} & {b} \\\\ {c} & {d} \\end{{pmatrix}}", (f"\\begin{{bmatrix}} {a} & {b} \\\\ {c} & {d} \\end{{bmatrix}}",), (str(d), f"{a} & {b}")),
        Gold("matrix", f"\\begin{{pmatrix}} \\frac{{{2 * a + 1}}}{{2}} \\\\ {b} \\end{{pmatrix}}", (), (str(b), f"\\frac{{{2 * a + 1}}}{{2}}")),
        Gold("point", f"({a}, {b})", (f"\\left({a},{b}\\right)",), (str(a), str(b))),
        Gold("point", f"({a}, {b}, {c})", (f"({a},{b},{c})",), (str(c), f"({a}, {b})")),
    ))  # fmt: skip


def _units(r: random.Random) -> Gold:
    a, b = r.randint(101, 999), r.randint(0, 9)
    first = str(a)[:2]
    return r.choice((
        Gold("unit", f"{a}\\text{{ cm}}^2", (f"{a}", f"{a} \\text{{ cm}}^{{2}}"), (first, "2")),
        Gold("unit", f"{a}.{b}5\\mbox{{ inches}}^3", (f"{a}.{b}5",), ("3", str(a))),
        Gold("unit", f"{a}^\\circ", (f"{a}^{{\\circ}}", f"{a}"), (first,)),
        Gold("unit", f"\\${a}.{b}5", (f"{a}.{b}5", f"\\$ {a}.{b}5"), (str(a), f"{b}5")),
        Gold("unit", f"{a}.{b}5\\%", (f"{a}.{b}5%",), (str(a), f"{b}5")),
        Gold("unit", f"{a}\\sqrt{{3}}\\text{{ meters}}", (f"{a}\\sqrt{{3}}",), (str(a), "3")),
    ))  # fmt: skip


def _mixed(r: random.Random) -> Gold:
    a, n, d = r.randint(2, 30), r.randint(1, 6), r.choice((7, 11, 13))
    value = (f"\\frac{{{a * d + n}}}{{{d}}}", f"{a} {n}/{d}", f"{a * d + n}/{d}")
    return Gold("mixed", f"{a}\\frac{{{n}}}{{{d}}}", value, (str(a), f"\\frac{{{n}}}{{{d}}}", str(d * 100)))


def _sets(r: random.Random) -> Gold:
    a, b, c = sorted(r.sample(range(-30, 30), 3))
    return r.choice((
        Gold("set", f"{a},{b},{c}", (f"{a}, {b}, {c}", f"\\{{{a},{b},{c}\\}}", f"{c},{a},{b}"), (str(c), f"{a},{b}", f"{a}.{abs(b)}")),
        Gold("set", f"\\{{{a}, {c}\\}}", (f"{c}, {a}",), (str(a), str(c))),
        Gold("set", f"{abs(a) + 41} \\pm \\sqrt{{{41}}}", (f"{abs(a) + 41}+\\sqrt{{41}}, {abs(a) + 41}-\\sqrt{{41}}",), (str(abs(a) + 41), "41")),
        Gold("set", f"{a} \\text{{ and }} {c}", (f"{a}, {c}",), (str(a), str(c))),
    ))  # fmt: skip


def _expressions(r: random.Random) -> Gold:
    a, b, c = r.randint(2, 30), r.randint(31, 60), r.randint(2, 30)
    return r.choice((
        Gold("expression", f"{a}+{b}i", (f"{b}i + {a}",), (str(a), str(b), f"{b}i")),
        Gold("expression", f"{a} - x", (f"-x + {a}",), (str(a), "x")),
        Gold("expression", f"x^2+{a}x+{b}", (f"{b} + {a}x + x^2",), (str(b), "x^2", f"x^2+{a}x")),
        Gold("expression", f"{a}\\pi", (f"\\pi \\cdot {a}",), (str(a), "\\pi")),
        Gold("expression", f"y = {a}x - {b}", (f"y={a}x-{b}",), (str(b), f"y = {a}x")),
        Gold("number", f"{a},\\!{b}0", (f"{a}{b}0", f"{a},{b}0", f"{a}{{,}}{b}0", f"{a}\\,{b}0"), (str(a), f"{b}0")),
        Gold("number", f"{a}.5 \\times 10^{{{c}}}", (f"{a}.5e{c}", f"{a}5 \\cdot 10^{{{c - 1}}}"), (str(a), f"{a}.5", str(c))),
        Gold("number", f"-\\frac{{{a}}}{{{b * 31}}}", (f"-{a}/{b * 31}", f"\\frac{{-{a}}}{{{b * 31}}}"), (str(-a), f"\\frac{{{a}}}{{{b * 31}}}")),
        Gold("words", "\\text{Evelyn}", ("Evelyn",), ("Eve",)),
    ))  # fmt: skip


_KINDS: tuple[Callable[[random.Random], Gold], ...] = (
    _roots,
    _intervals,
    _matrices,
    _units,
    _mixed,
    _sets,
    _expressions,
)


def generated(n: int, seed: int = 0) -> list[Gold]:
    """n reference answers, the kinds in turn; the same for a seed."""
    r = random.Random(seed)
    return [_KINDS[i % len(_KINDS)](r) for i in range(n)]
