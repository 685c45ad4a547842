"""No word of the pages that the glossary lacks."""

from workbench.runs.steering.requests import KINDS
from workbench.stages import VERBS
from workbench.types import FATES
from workbench.views.data.run import Source
from workbench.views.data.selection import OBSERVED, Selection
from workbench.views.glossary import GLOSSARY, found, words
from workbench.views.pages.glossary import GlossaryPage
from workbench.views.parts import theme


def test_verbs_fates_phases_and_commands_are_explained():
    known = words()
    assert set(VERBS) - known == set()
    assert set(FATES) - known == set()
    assert set(theme.SECONDS) - known == set()
    assert {"pin", "drop", "boost", "free", "swap", "checkpoint"} <= set(KINDS) & known
    assert OBSERVED in known


def test_a_word_stands_there_once():
    every = [t.word for terms in GLOSSARY.values() for t in terms]
    assert len(every) == len(set(every))


def test_finding_narrows_words_and_methods(tmp_path):
    assert [t.word for t in found("retraction")] == []
    assert [t.word for terms in found("leave-one-out").values() for t in terms] == ["estimator"]
    page = GlossaryPage(Source(str(tmp_path)), Selection())
    page.wanted.value_input = "mopps"
    assert "No such word" in page.words.object
    assert page.methods.object.count("<tr>") == 1
    page.wanted.value_input = "<b>"
    assert "&lt;b&gt;" in page.words.object
