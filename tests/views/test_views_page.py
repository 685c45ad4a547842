"""The shell: navigation, messages, the address, the SQL behind a page; and the live page in it."""

import runpy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import panel as pn
import param
import pytest
from bokeh.document import Document
from bokeh.models import ImportedStyleSheet
from panel.models.tabulator import DataTabulator

from workbench.store import Store
from workbench.views.data.selection import Selection, address, chosen_by
from workbench.views.data.sql_text import Query, literal
from workbench.views.pages import PAGES
from workbench.views.pages.base import Page
from workbench.views.pages.live import LivePage
from workbench.views.parts import cards
from workbench.views.shell.dashboard import Dashboard
from workbench.views.shell.frame import app, shell


def test_the_address_holds_what_differs_from_the_start():
    chosen = Selection(run="r-1", page="tree", steps=(3, 40), step=12, prompt="a&b=c", pair=["grpo", "rloo"])
    assert address(chosen) == "?page=tree&run=r-1&steps=3-40&step=12&prompt=a%26b%3Dc&pair=grpo%2Crloo"
    assert chosen_by(address(chosen)) == {
        "page": "tree", "run": "r-1", "steps": (3, 40), "step": 12, "prompt": "a&b=c", "pair": ["grpo", "rloo"]
    }  # fmt: skip
    assert address(Selection()) == ""


def test_an_address_that_cannot_be_read_is_left_out():
    bad = "?step=minus&place=-4&steps=1-2-3&order=nonsense&name=x&unknown=1&prompt=007"
    assert chosen_by(bad) == {"prompt": "007"}


def test_another_run_forgets_the_prompt_of_the_one_before():
    chosen = Selection(run="a", page="tokens", prompt="p", rollout="r", step=3, order="change")
    chosen.look_at("b")
    assert (chosen.run, chosen.page, chosen.prompt, chosen.rollout, chosen.step) == ("b", "tokens", "", "", 0)
    assert chosen.order == "change"


def test_a_question_is_shown_as_sql_that_runs(recording):
    rec = recording().go(2)
    asked = Query("Learning", "reward_by_step", {"run": rec.run})
    assert asked.call == f'store.ask("reward_by_step", run={rec.run!r})'
    with Store.open(recording.store) as store:
        assert store.sql(asked.sql).equals(store.ask("reward_by_step", run=rec.run))
        page = Dashboard(recording.store, names=["live"])
        page.tick()
        for a in page.page.queries:
            assert store.sql(a.sql) is not None
    assert Query("own", "SELECT $x AS x", {"x": "it's"}).sql == "SELECT 'it''s' AS x"
    assert literal([1, None, True, "a"]) == "[1, NULL, true, 'a']"


def test_every_page_in_the_navigation_has_its_name():
    assert next(iter(PAGES)) == "live"
    assert [PAGES[name].title for name in PAGES] == [
        "Live",
        "Difficulty",
        "Budget",
        "Tree",
        "Tokens",
        "Signs",
        "Compare",
        "SQL",
        "Glossary",
    ]
    with pytest.raises(KeyError, match="there is no page 'nonsense'; there are live"):
        PAGES["nonsense"]


def test_pages_without_a_run_are_shown_where_there_is_no_store_yet(tmp_path):
    page = Dashboard(str(tmp_path / "none"))
    for name, shown in (("glossary", True), ("tree", False), ("sql", False), ("glossary", True)):
        page.chosen.page = name
        for _ in range(2):
            assert (page.shown is page.body) is shown, name
            assert shown or "No run yet" in page.shown[0].object, name
            page.tick()
    assert not page.message.visible


class Broken(Page):
    """A page with a mistake."""

    name, title = "difficulty", "Difficulty"
    mistake: Exception = ZeroDivisionError("<b>division</b>")

    def __init__(self, source, chosen):
        super().__init__(source, chosen)
        self.body = cards

    def update(self, data, force=False):
        raise self.mistake


def test_a_page_with_a_mistake_says_so_and_the_others_go_on(recording, monkeypatch):
    recording().go(1)
    page = Dashboard(recording.store, names=["live", "difficulty"])
    page._pages["difficulty"] = Broken(page.source, page.chosen)
    page.tick()
    assert page.shown is page.body
    page.tabs.active = 1
    assert "The page Difficulty could not be drawn" in page.shown[0].object
    assert "&lt;b&gt;division" in page.shown[0].object
    page.chosen.page = "live"
    assert page.tabs.active == 0
    assert page.shown is page.body


def test_a_missing_key_is_a_mistake_of_a_page_too(recording):
    recording().go(1)
    page = Dashboard(recording.store, names=["difficulty"])
    page._pages["difficulty"] = broken = Broken(page.source, page.chosen)
    broken.mistake = KeyError("lr")
    page.tick()
    assert "KeyError: &#x27;lr&#x27;" in page.shown[0].object
    assert "<details>" in page.shown[0].object


def test_only_the_page_that_is_shown_is_updated(recording, monkeypatch):
    rec = recording().go(1)
    page = Dashboard(recording.store, names=["live", "difficulty"])
    other = Broken(page.source, page.chosen)
    monkeypatch.setattr(LivePage, "update", lambda self, data, force=False: told.append(data.step))
    told: list[int] = []
    page._pages["difficulty"] = other
    page.tick()
    rec.go(1)
    page.source.refresh(0)
    page.tick()
    page.tick()
    assert told == [1, 2]


def test_show_sql_lists_the_questions(recording):
    recording().go(1)
    page = Dashboard(recording.store, names=["live"])
    page.tick()
    assert not page.sql_card.visible
    page.show_sql.value = True
    assert page.sql_card.visible
    assert "store.ask(&quot;reward_by_step&quot;" in page.questions.object


def test_page_says_what_to_do_when_there_is_no_store(tmp_path):
    page = Dashboard(str(tmp_path / "nothing"), names=["live"])
    page.tick()
    assert "workbench demo" in page.shown[0].object
    assert not page.message.visible


def test_page_follows_the_newest_run_until_one_is_picked(recording):
    first = recording().go(1)
    page = Dashboard(recording.store, names=["live"])
    page.tick()
    assert page.chosen.run == first.run
    second = recording().go(1)
    page.source.refresh(0)
    page.tick()
    assert page.chosen.run == second.run
    page.picker.value = first.run
    page.tick()
    assert page.chosen.run == first.run


def test_page_shows_an_error_and_recovers(recording, monkeypatch):
    rec = recording().go(1)
    page = Dashboard(recording.store, names=["live"])
    page.tick()
    monkeypatch.setattr(page.source, "refresh", lambda: 1 / 0)
    page.tick()
    assert page.message.visible
    assert "division by zero" in page.message.object
    monkeypatch.undo()
    rec.go(1)
    page.tick()
    assert not page.message.visible


def test_a_group_stays_while_its_text_is_read(recording):
    rec = recording(hostile=True).go(1)
    page = Dashboard(recording.store, names=["live"])
    page.tick()
    completions = page.page.completions
    rows = completions.rows
    long = next(r["id"] for r in rows if r["more"])
    sent = []
    completions._send_msg = sent.append
    completions._handle_msg({"id": long})
    assert sent == [{"id": long, "text": "A" * 200_000}]
    rec.go(1)
    page.source.refresh(0)
    page.tick()
    assert completions.rows == rows
    page.page._next()
    assert completions.rows[0]["id"].startswith("2:")
    assert [list(m) for m in sent] == [["id", "text"], ["rows"]]
    completions._handle_msg({"id": "not of this group"})
    assert len(sent) == 2


def test_a_page_that_cannot_be_built_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr("workbench.views.shell.frame.Dashboard", lambda *_: 1 / 0)
    assert "division by zero" in app(str(tmp_path)).object


def test_a_run_that_does_not_exist_is_said(recording):
    rec = recording().go(1)
    for page in (Dashboard(recording.store, "no-such-<run>", ["live"]), Dashboard(recording.store, names=["tree"])):
        page.bind(location := SimpleLocation("?run=no-such-<run>"))
        page.tick()
        assert not page.message.visible
        assert "There is no run &#x27;no-such-&lt;run&gt;&#x27;" in page.shown[0].object
        assert f"has <code>{rec.run}</code>." in page.shown[0].object
        page.picker.value = rec.run
        assert page.shown is page.body
        assert rec.run in location.search


class SimpleLocation(param.Parameterized):
    """The address bar."""

    search = param.String()

    def __init__(self, search):
        super().__init__(search=search)


@pytest.mark.parametrize(
    ("query", "said", "after"),
    [
        ("?page=tree&step=999999", "step 999,999 is not recorded; step 2 is shown", "?page=tree&run=RUN&step=2"),
        ("?page=tokens&rollout=<b>", "there is no rollout &#x27;&lt;b&gt;&#x27;; another one is shown", "?page=tokens"),
        ("?page=tree&prompt=nobody", "the run has no prompt &#x27;nobody&#x27;; none is chosen", "?page=tree"),
        ("?belief=zzz", "no beliefs of &#x27;zzz&#x27; are recorded; those of &#x27;mopps&#x27; are shown", ""),
        ("?page=budget&steps=70-90", "of steps 70 to 90 none is recorded; all steps are shown", "?page=budget"),
        (
            "?page=tree&step=1e9&order=zzz",
            "&#x27;step=1e9&#x27; cannot be read; &#x27;order=zzz&#x27; cannot",
            "?page=tree",
        ),
        (f"?page=tree&step={10**30}", "000 is not recorded; step 2 is shown", "?page=tree&run=RUN&step=2"),
        (f"?page=tokens&rollout=x&step={10**30}", "there is no rollout &#x27;x&#x27;", "?page=tokens&run=RUN&step=2"),
        (
            "?page=signs&pair=zzz,rloo",
            "there is no estimator &#x27;zzz&#x27; to compare",
            "?page=signs&run=RUN&pair=rloo",
        ),
        (
            "?page=signs&pair=rloo,rloo",
            "of the estimators to compare, rloo are kept",
            "?page=signs&run=RUN&pair=rloo",
        ),
        ("?page=compare&metric=zzz", "runs are not compared by &#x27;zzz&#x27;; evaluation pass rate", "?page=compare"),
        ("?page=compare&runs=gone", "there is no run &#x27;gone&#x27; to compare", "?page=compare"),
    ],
)
def test_an_address_that_names_what_is_not_recorded_is_mended_and_says_so(recording, query, said, after):
    rec = recording().go(2)
    page = Dashboard(recording.store)
    page.bind(location := SimpleLocation(query))
    page.tick()
    assert page.notice.visible
    assert said in page.notice.object
    assert location.search == after.replace("RUN", rec.run)
    page.source.refresh(0)
    page.tick()
    assert page.notice.visible, "until something else is chosen"
    page.chosen.page = "glossary"
    assert not page.notice.visible


def test_an_address_that_is_right_stays_and_keeps_its_theme(recording):
    rec = recording().go(2)
    page = Dashboard(recording.store)
    page.bind(location := SimpleLocation("?theme=dark&page=tree&step=1"))
    page.tick()
    assert not page.notice.visible
    page.chosen.place = 1
    assert location.search == f"?page=tree&run={rec.run}&step=1&place=1&theme=dark"


def test_back_and_forward_lead_to_what_was_looked_at(recording):
    rec = recording().go(2)
    page = Dashboard(recording.store)
    page.bind(location := SimpleLocation("?theme=dark"))
    page.tick()
    seen = [location.search]
    for change in ({"page": "tree"}, {"step": 1, "place": 1}, {"page": "budget", "unit": "tokens"}):
        page.chosen.param.update(**change)
        seen.append(location.search)
    assert seen[2] == f"?page=tree&run={rec.run}&step=1&place=1&theme=dark"
    looked_at = [
        ("live", 0, 0, "rollouts"),
        ("tree", 0, 0, "rollouts"),
        ("tree", 1, 1, "rollouts"),
        ("budget", 1, 1, "tokens"),
    ]
    for i in (2, 1, 0, 1, 3):
        location.search = seen[i]
        c = page.chosen
        assert (c.page, c.step, c.place, c.unit) == looked_at[i]
        assert (location.search, c.run, page.tabs.active) == (seen[i], rec.run, page.names.index(c.page))
    location.search = "?page=tree&step=99"
    assert "step 99 is not recorded; step 2 is shown" in page.notice.object
    assert location.search == f"?page=tree&run={rec.run}&step=2"


def test_pages_of_a_run_have_the_steering_bar(recording):
    recording().go(1)
    for name, has in (("difficulty", True), ("tokens", True), ("glossary", False), ("sql", False)):
        page = Dashboard(recording.store, names=[name], may_steer=True)
        page.tick()
        assert (page.steering_bar is not None) is has, name
        if has:
            assert page.shell[2] is page.steering_bar.bar
            assert page.steering_bar.bar.visible


@pytest.fixture
def colours():
    """Leave Panel's theme, one for all that has no session, as it was."""
    yield
    pn.config.theme = None


def test_the_frame_follows_the_system_where_the_address_says_nothing(tmp_path, colours):
    page = Dashboard(str(tmp_path))
    frame = shell(page)
    assert not frame.dark_theme
    page.browser.dark = True
    assert frame.dark_theme


def test_the_page_to_copy_runs(recording, monkeypatch):
    recording().go(1)
    monkeypatch.setattr("sys.argv", ["live.py", recording.store])
    made = runpy.run_path(str(Path(__file__).parents[2] / "dashboards" / "live.py"))
    assert not made["page"].message.visible
    assert "Mean length" in made["longest"].object


@pytest.mark.parametrize("name", [n for n in PAGES if n != "live"])
def test_every_page_has_a_script_to_serve_it_alone(recording, monkeypatch, name):
    recording().go(1)
    served = []
    monkeypatch.setattr("sys.argv", [f"{name}.py", recording.store])
    monkeypatch.setattr("panel_material_ui.Page.servable", lambda self: served.append(self))
    runpy.run_path(str(Path(__file__).parents[2] / "dashboards" / f"{name}.py"))
    assert len(served) == 1


def test_components_are_known_before_the_first_document_is_made(tmp_path):
    """In a process that has shown nothing yet: a model that came later would be sent without what it consists of."""
    code = f"""
import sys
from workbench.views.shell.dashboard import Dashboard
Dashboard({str(tmp_path)!r})
print(sorted(m for m in sys.modules if m in ("workbench.views.parts.tree", "workbench.views.parts.tokens", "workbench.views.parts.table")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stdout.strip()
        == "['workbench.views.parts.table', 'workbench.views.parts.tokens', 'workbench.views.parts.tree']"
    )


def test_a_table_imports_no_style_sheet_that_came_after_the_first_document(recording):
    """panel-material-ui adds a style sheet to it in the browser, which would tell the server of the others as of new ones."""
    recording().go(1)
    page, doc = Dashboard(recording.store), Document()
    doc.add_root(shell(page).get_root(doc))
    known = {sheet.id for sheet in doc.select({"type": ImportedStyleSheet})}
    page.tick()
    page.chosen.page = "sql"
    (table,) = doc.select({"type": DataTabulator})
    assert {s.id for s in table.stylesheets if isinstance(s, ImportedStyleSheet)} <= known


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("live", "click a row of the heat map"),
        ("difficulty", "click a row of the heat map"),
        ("budget", "click a row of By prompt"),
        ("tree", "choose a group of the step"),
        ("tokens", "choose a group of the step"),
        ("signs", "choose a group of the step"),
        ("compare", "it is chosen on another page"),
    ],
)
def test_the_bar_says_how_a_prompt_is_chosen_on_the_page_that_is_shown(recording, name, how):
    recording().go(1)
    page = Dashboard(recording.store, may_steer=True)
    page.tick()
    page.steering_bar.open.value = True
    page.chosen.page = name
    assert f"none chosen; {how}" in page.steering_bar.prompt.object
    page.steering_bar._prompt("pin")
    assert f"Choose a prompt first: {how}" in page.steering_bar.message.object


def test_the_run_picker_says_how_each_run_stands(recording):
    page = Dashboard(recording.store)
    for status in ("finished", "stopped", "failed"):
        recording().go(1).writer.close(status, "CUDA error" if status == "failed" else "")
    killed, paused, running = (recording().go(1) for _ in range(3))
    killed.writer._backend.close()  # what is left of a process that was killed
    paused.writer.command("pause", {}, step=1)
    paused.writer.flush()
    page.tick()
    said = sorted(label.partition("  ")[2] for label in page.picker.options)
    assert said == ["(failed)", "(finished)", "(interrupted)", "(paused)", "(running)", "(stopped)"]
    paused.writer.command("resume", {}, step=1)
    paused.writer.flush()
    running.writer.close("finished")
    page.picker.value = running.run
    doc = Document()
    sent = page.picker.get_root(doc).data
    assert sent.value == f"{running.run}  (running)"
    page.source.refresh(0)
    page.tick()
    assert sent.value == f"{running.run}  (finished)", "what the browser shows follows, too"
    assert f"{paused.run}  (running)" in page.picker.options
    assert f"{running.run}  (finished)" in page.picker.options


def test_the_timer_leaves_the_server_as_long_as_a_look_took(tmp_path, monkeypatch):
    page = Dashboard(str(tmp_path))
    now, looks = [100.0], []
    monkeypatch.setattr("workbench.views.shell.dashboard.time.perf_counter", lambda: now[0])

    def look() -> None:
        looks.append(now[0])
        now[0] += 0.9
        page.refresh_ms = 900.0

    monkeypatch.setattr(page, "tick", look)
    for _ in range(60):
        page.follow()
        now[0] += 0.1
    assert len(looks) > 3
    assert all(later - earlier > 1.79 for earlier, later in pairwise(looks))
