"""A document as Markdown for a paper or a repository: figures as SVG, PNG and PDF, tables as CSV and LaTeX beside it."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from workbench.report import browser
from workbench.report.document import Block, Card, Code, Column, Document, Figure, Prose, Table
from workbench.report.svg import alone
from workbench.views.data.text import shown

SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$&])")
LATEX = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
         "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
         "[": "{[}", "]": "{]}", "*": "{*}"}  # fmt: skip
LONG = 300


def write(document: Document, out: Path, *, pictures: bool = True, folder: str = "") -> list[Path]:
    """Write out and, beside it, a folder with figures and tables; returns all files.

    pictures: also PNG and PDF of every figure, by Chromium. folder: default the name of out and "_files"."""
    beside = out.parent / (folder or f"{out.stem}_files")
    beside.mkdir(parents=True, exist_ok=True)
    files = []

    def keep(name: str, content: str) -> None:
        (beside / name).write_text(content, encoding="utf-8", newline="")
        files.append(beside / name)

    for f in document.figures():
        single = alone(f.svg)
        keep(f"{f.name}.svg", single)
        if pictures:
            browser.figure_png(single, beside / f"{f.name}.png")
            browser.figure_pdf(single, beside / f"{f.name}.pdf")
            files += [beside / f"{f.name}.png", beside / f"{f.name}.pdf"]
    for t in document.tables():
        keep(f"{t.name}.csv", as_csv(t))
        keep(f"{t.name}.tex", as_latex(t))
    keep("queries.sql", _queries(document))
    shape = "png" if pictures else "svg"
    out.write_text(text(document, beside.name, shape), encoding="utf-8")
    return [out, *files]


def text(document: Document, folder: str, shape: str = "png") -> str:
    """The Markdown; pictures are looked for in folder, as files of that shape."""
    lines = [f"# {plain(document.title)}", "", plain(document.subtitle), ""]
    lines += [
        f"Rollout Workbench, {document.date}. The question behind every figure is named after it; its SQL is in [queries.sql]({folder}/queries.sql).",
        "",
    ]
    for s in document.sections:
        lines += [f"{'#' * (s.level + 1)} {plain(s.title)}", ""]
        for b in s.blocks:
            lines += [*_block(b, folder, shape), ""]
    return "\n".join(lines)


def plain(words: str, most: int = 4000) -> str:
    """Text that Markdown shows as it is, on one line."""
    return SPECIAL.sub(r"\\\1", " ".join(shown(words, most).split()))


def _cited(sources) -> str:
    names = dict.fromkeys(s.question for s in sources)
    return f" ({', '.join(f'`{n}`' for n in names)})" if names else ""


def _block(b: Block, folder: str, shape: str) -> list[str]:
    if isinstance(b, Prose):
        return [plain(b.text) + _cited(b.sources)]
    if isinstance(b, Code):
        return [f"    {line}" for line in shown(b.text, 4000).splitlines() or [""]]
    if isinstance(b, Figure):
        return [f"![{plain(b.caption)}]({folder}/{b.name}.{shape})", "", plain(b.caption) + _cited(b.sources)]
    if isinstance(b, Table):
        return [
            *_table(b),
            "",
            f"{plain(b.caption)}{_cited(b.sources)} [CSV]({folder}/{b.name}.csv), [LaTeX]({folder}/{b.name}.tex)",
        ]
    return _card(b)


def _table(t: Table) -> list[str]:
    lines = [
        "| " + " | ".join(plain(c.label) for c in t.columns) + " |",
        "|" + "|".join("---:" if c.numeric else "---" for c in t.columns) + "|",
    ]
    for row in t.rows[: t.most]:
        lines.append("| " + " | ".join(plain(_cut(c, row)) for c in t.columns) + " |")
    return lines


def _cut(c: Column, row) -> str:
    written = c.write(row.get(c.key))
    return written if len(written) <= LONG else written[:LONG] + "…"


def _card(c: Card) -> list[str]:
    title = f"[{plain(c.title)}]({c.link})" if c.link.startswith("https://") else plain(c.title)
    lines = [f"**{plain(c.name)}**: {title}", ""]
    lines += [f"- {plain(k)}: {plain(v)}" for k, v in c.facts]
    return lines + [f"- deviation: {plain(d)}" for d in c.deviations]


def as_csv(t: Table) -> str:
    """All rows, numbers as they are. Text that a spreadsheet would take for a formula gets an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([c.key for c in t.columns])
    for row in t.rows:
        writer.writerow([_safe(row.get(c.key)) for c in t.columns])
    return out.getvalue()


def _safe(value: object) -> object:
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        written = shown(value, 100_000)
        return f"'{written}" if written[:1] in ("=", "+", "-", "@", "\t", "\r") else written
    return value


def as_latex(t: Table) -> str:
    """A tabular for booktabs with its caption."""
    form = "".join("r" if c.numeric else "l" for c in t.columns)
    head = " & ".join(_latex(c.label) for c in t.columns)
    rows = [" & ".join(_latex(_cut(c, row)) for c in t.columns) + r" \\" for row in t.rows[: t.most]]
    return "\n".join(
        ["% needs \\usepackage{booktabs}", r"\begin{table}", rf"\caption{{{_latex(t.caption)}}}", rf"\begin{{tabular}}{{{form}}}", r"\toprule",
         head + r" \\", r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    )  # fmt: skip


def _latex(words: str) -> str:
    return "".join(LATEX.get(c, c) for c in " ".join(shown(words, LONG + 1).split()))


def _queries(document: Document) -> str:
    """One statement per question, with the calls that were made as comments."""
    parts = []
    for name, ways in document.questions().items():
        calls = "\n".join(f"-- {w.call}" for w in ways[:12])
        parts.append(f"-- {name}\n{calls}\n{ways[0].sql.strip()};\n")
    return "\n".join(parts)
