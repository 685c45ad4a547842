"""The glossary page: what the words of the other pages mean, and what each method is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import panel_material_ui as pmui

from workbench.pipeline import catalog
from workbench.views.data.text import html
from workbench.views.glossary import Term, found
from workbench.views.pages.base import Page
from workbench.views.parts import cards
from workbench.views.parts.layout import card, grid, pane, put

if TYPE_CHECKING:
    from workbench.views.data.run import RunData, Source
    from workbench.views.data.selection import Selection


class GlossaryPage(Page):
    """Words by heading, methods, and a field that narrows both."""

    title, order = "Glossary", 90
    needs_run = False

    def __init__(self, source: Source, chosen: Selection) -> None:
        super().__init__(source, chosen)
        self.wanted = pmui.TextInput(label="Find a word", value="", width=300, size="small", margin=(4, 0, 4, 0))
        self.wanted.param.watch(lambda _: self._find(), "value_input")
        self.words, self.methods = pane(), pane()
        self.body = grid(
            card(12, self.wanted),
            card(6, pane(cards.head("Words")), self.words),
            card(6, pane(cards.head("Methods", "<span>what a pipeline may hold</span>")), self.methods),
        )
        self._find()

    def _find(self) -> None:
        text = self.wanted.value_input or ""
        put(self.words, _words(found(text), text))
        put(self.methods, _methods(text))

    def update(self, data: RunData | None, force: bool = False) -> None:
        """Nothing here moves with a run."""


def _words(shown: dict[str, tuple[Term, ...]], text: str) -> str:
    if not shown:
        return cards.empty("No such word", f"No word or explanation holds “{html(text, 60)}”.")
    rows = []
    for heading, terms in shown.items():
        rows.append(f'<tr><td colspan="3"><h3>{html(heading)}</h3></td></tr>')
        rows += [
            f'<tr id="{html(t.word)}"><td><b>{html(t.word)}</b></td><td>{html(t.meaning, 400)}</td>'
            f'<td class="quiet">{html(t.page)}</td></tr>'
            for t in terms
        ]
    return f'<table class="words">{"".join(rows)}</table>'


def _methods(text: str) -> str:
    wanted = text.strip().lower()
    rows = [
        f"<tr><td><code>{html(slug)}</code></td><td>{_title(cls.card)}<br><span class='quiet'>acts at "
        f"{html(', '.join(cls().verbs), 200)}{'. Watch ' + html(cls.card.watch, 300) if cls.card.watch else ''}</span></td></tr>"
        for slug, cls in catalog.methods().items()
        if wanted in slug or wanted in cls.card.title.lower() or wanted in cls.card.watch.lower()
    ]
    return f"<table>{''.join(rows)}</table>" if rows else cards.empty("No such method", "Try a shorter word.")


def _title(about: object) -> str:
    title = html(getattr(about, "title", ""), 200)
    number = getattr(about, "arxiv", "")
    return (
        f'<a href="https://arxiv.org/abs/{html(number)}" target="_blank" rel="noreferrer">{title}</a>'
        if number
        else title
    )
