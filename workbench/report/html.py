"""A document as one HTML file that asks nothing of any other machine: styles, script, figures and data stand in it.

Everything from outside is escaped. Beside that the page's own policy lets only our script run, known by its hash, and
lets nothing be loaded: a slip in escaping would show as odd text, not as code.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from workbench.report.document import Block, Card, Code, Document, Figure, Prose, Section, Table
from workbench.views.data.text import html

HERE = Path(__file__).parent
LONG = 400
"""Characters of a cell that are shown."""


def page(document: Document) -> str:
    """The file."""
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{known}'"
    body = "".join(map(section, document.sections)) + _queries(document)
    top = "".join(
        f'<a class="l{s.level}" href="#{html(s.anchor)}">{html(s.title, 80)}</a>' for s in document.sections
    )  # fmt: skip
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">'
        f"<title>{html(document.title, 120)}</title><style>{style}</style></head><body>"
        f'<nav><b>{html(document.title, 80)}</b>{top}<a class="l1" href="#queries">Queries</a></nav>'
        f'<main><header><h1>{html(document.title, 200)}</h1><p>{html(document.subtitle, 600)}</p>'
        f'<p class="quiet">Rollout Workbench, {html(document.date)}. Every figure names its question; the SQL stands at the end.</p></header>'
        f"{body}</main><script>{script}</script></body></html>\n"
    )  # fmt: skip


def section(s: Section) -> str:
    """A heading and its blocks."""
    level = min(s.level + 1, 4)
    inner = "".join(block(b) for b in s.blocks)
    return f'<section class="level{s.level}" id="{html(s.anchor)}"><h{level}>{html(s.title, 200)}</h{level}>{inner}</section>'


def block(b: Block) -> str:
    """One block."""
    if isinstance(b, Prose):
        kind = ' class="note"' if b.note else ""
        return f"<p{kind}>{html(b.text, 4000)}{_cited(b.sources)}</p>"
    if isinstance(b, Code):
        return f'<pre dir="auto">{html(b.text, 4000)}</pre>'
    if isinstance(b, Figure):
        return f'<figure id="fig-{html(b.name)}">{b.svg}<figcaption>{html(b.caption, 1000)}{_cited(b.sources)}</figcaption></figure>'
    if isinstance(b, Table):
        return _table(b)
    return _card(b)


def _table(t: Table) -> str:
    head = "".join(f"<th{' class=n' if c.numeric else ''}>{html(c.label, 60)}</th>" for c in t.columns)
    body = []
    for row in t.rows[: t.most]:
        cells = []
        for c in t.columns:
            written = html(c.write(row.get(c.key)), LONG)
            written = (
                f"<code{' class=short' if len(written) < 24 else ''}>{written}</code>" if c.form == "code" else written
            )
            kind = " class=n" if c.numeric else " class=long" if _long(c.write(row.get(c.key))) else ""
            raw = row.get(c.key)  # what the column is sorted by: "1.03 h" is more than "45.0 s"
            by = f' data-v="{float(raw)}"' if c.numeric and isinstance(raw, int | float) else ""
            cells.append(f"<td{kind}{by}>{written}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    more = f'<p class="note">and {len(t.rows) - t.most:,} more rows</p>' if len(t.rows) > t.most else ""
    return (
        f'<figure class="table{" tall" if len(body) > 14 else ""}{" wide" if len(t.columns) > 8 else ""}"><figcaption>{html(t.caption, 1000)}{_cited(t.sources)}</figcaption>'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>{more}</figure>'
    )


def _long(written: str) -> bool:
    """Whether a text has a word that would stretch its column."""
    return any(len(word) > 26 for word in written.split())


def _card(c: Card) -> str:
    title = html(c.title, 300)
    title = f'<a href="{html(c.link)}">{title}</a>' if c.link.startswith("https://") else title
    facts = "".join(f"<dt>{html(k)}</dt><dd>{html(v, 600)}</dd>" for k, v in c.facts)
    less = "".join(f"<li>{html(d, 600)}</li>" for d in c.deviations)
    less = f"<p>Deviations from the paper</p><ul>{less}</ul>" if less else '<p class="note">No deviation is known.</p>'
    return f'<div class="card"><h4>{html(c.name)}</h4><p>{title}</p><dl>{facts}</dl>{less}</div>'


def _cited(sources) -> str:
    names = dict.fromkeys(s.question for s in sources)
    links = ", ".join(f'<a href="#sql-{html(n)}">{html(n)}</a>' for n in names)
    return f' <span class="cite">[{links}]</span>' if links else ""


def _queries(document: Document) -> str:
    """The SQL behind every number, each question once, with the calls that were made."""
    out = []
    for name, ways in document.questions().items():
        calls = "\n".join(w.call for w in ways[:12]) + (f"\n... and {len(ways) - 12} more" if len(ways) > 12 else "")
        out.append(f'<div class="query" id="sql-{html(name)}"><h4>{html(name)}</h4><pre class="call">{html(calls, 9000)}</pre>'
                   f"<pre>{html(ways[0].sql.strip(), 20000)}</pre></div>")  # fmt: skip
    note = "Each can be asked again of the store: as it is called, and as the SQL it stands for (parameters of the first call filled in)."
    return f'<section class="level1" id="queries"><h2>Queries</h2><p>{note}</p>{"".join(out)}</section>'
