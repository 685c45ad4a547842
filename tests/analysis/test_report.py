"""Reports: what they say comes from the store, what is untrusted stays text, and every file stands for itself."""

from __future__ import annotations

import csv
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from workbench.analysis import evaluation
from workbench.cli.main import main
from workbench.report import browser, document, html, markdown, words, write
from workbench.report.document import Code, Column, Document, Figure, Prose, Section, Table, query
from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.runs.sweep import Sweep
from workbench.store import Store, Writer
from workbench.testing.scripted import pool_of
from workbench.types import Advantage, Budget, Plan, Rollouts, Step

EVIL = "<script>alert(1)</script>\"'&|`</style><img src=x onerror=alert(2)>\u202ea=b"
CHROMIUM = pytest.mark.skipif(not any(map(shutil.which, browser.NAMES)), reason="no Chromium on the path")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = str(tmp_path_factory.mktemp("report") / "store")
    experiment = Experiment(
        model="sim", steps=12, eval_every=6, eval_samples=4, checkpoint_every=0, budget=Budget(4, 32), store=folder,
        world={"n_prompts": 40},
    )  # fmt: skip
    Sweep(experiment, ("grpo", "grpo + mopps"), (0, 1)).run()
    return Store.open(folder)


@pytest.fixture(scope="module")
def single(store: Store) -> Document:
    """The report of the grpo + mopps run of seed 0."""
    return document(store, [runs_of(store)[1]], date="2026-01-02")


def runs_of(store: Store) -> list[str]:
    return [r["run"] for r in sorted(store.runs().to_pylist(), key=lambda r: r["started"])]


def evil_store(folder: Path) -> Path:
    """Two steps whose prompts, answers, completions and reward parts are all hostile text."""
    pool = pool_of(6)
    bad = np.array([f"{EVIL}{i}" for i in range(6)], dtype=object)
    pool = replace(pool, text=bad, answer=bad, stratum=np.full(6, EVIL, dtype=object))
    writer = Writer(folder, {"name": EVIL, "pipeline": [{"method": "grpo"}], "model": EVIL, "seed": 0}, pool, pool)
    for number in (1, 2):
        rows = Rollouts.of_plan(Plan(np.arange(6), np.full(6, 4), step=number), pool, number)
        correct = np.tile([1.0, 0.0, 0.0, 0.0], 6)
        said = np.full(len(rows), EVIL, dtype=object)
        rows = rows.with_(
            text=said, answer=said, reward=correct, correct=correct, length=np.full(len(rows), 3), group=rows.prompt,
            rewards={EVIL: correct},
        )  # fmt: skip
        a = Advantage.start(rows)
        value = correct - 0.25
        fate = np.full(len(rows), "trained", dtype=object)
        writer.append(
            Step(number, np.arange(6), Plan(np.arange(6), np.full(6, 4), step=number), rows,
                 Advantage(value, a.keep, a.weight, a.baseline, a.reason), fate, np.full(len(rows), "", dtype=object))
        )  # fmt: skip
        many = np.full(6, 2)
        plan = Plan(np.arange(6), many, purpose=np.full(6, "eval", dtype=object), step=number)
        asked_ = Rollouts.of_plan(plan, pool, number)
        writer.evaluation(number, asked_.with_(correct=np.tile([1.0, 0.0], 6), reward=np.tile([1.0, 0.0], 6), answer=np.full(12, EVIL, dtype=object),
                                               group=asked_.prompt, length=np.ones(12, np.int64)))  # fmt: skip
    writer.close("finished")
    return folder


def test_a_report_of_one_run_has_every_chapter_and_asks_nothing_of_the_network(store: Store, single: Document) -> None:
    page = html.page(single)
    titles = re.findall(r"<h2>([^<]+)</h2>", page)
    assert titles == ["Summary", "Settings", "Pipeline", "Learning", "Ledger", "Difficulty", "Signs of advantages", "Groups as trees",
                      "Diagnosis", "Environment", "Queries"]  # fmt: skip
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="(?!#|data:image/png|https://arxiv\.org/abs/)[^"]*"', page)
    assert "url(" not in page
    assert "2026-01-02" in page
    assert str(store.url) not in page
    assert "MoPPS" in page and "candidates are a fresh random subset" in page


def test_every_cited_question_is_printed_with_its_sql(store: Store, single: Document) -> None:
    made = single
    page = html.page(made)
    cited = set(re.findall(r'href="#sql-(\w+)"', page))
    assert cited == set(re.findall(r'id="sql-(\w+)"', page)) == set(made.questions())
    assert {"eval_tries", "wasted", "ledger_by_step", "sign_excess", "page_tree"} <= cited
    for ways in made.questions().values():  # and every one can be asked again as it is printed
        store.sql(ways[0].sql)


def test_the_summary_says_what_the_store_says(store: Store, single: Document) -> None:
    run = runs_of(store)[1]
    said = " ".join(b.text for b in single.sections[0].blocks if isinstance(b, Prose))
    scores = evaluation.pass_at_k(store, run)
    assert words.points(scores.gain(1).mean) in said
    assert "12 steps, finished; 384 training rollouts" in said
    useful = next(r["share"] for r in store.ask("wasted", run=run).to_pylist() if r["what"] == "useful")
    assert f"{words.share(useful)} of the training tokens had an advantage" in said


def test_several_runs_are_compared_and_each_pipeline_has_a_chapter(store: Store, tmp_path: Path) -> None:
    runs = runs_of(store)
    made = document(store, runs)
    titles = [s.title for s in made.sections if s.level == 1]
    assert titles == ["Summary", "Comparison", "Runs", "Methods", "grpo, seed 0", "grpo + mopps, seed 0"]
    said = " ".join(b.text for b in made.sections[0].blocks if isinstance(b, Prose))
    assert "4 runs of 2 pipelines" in said
    names = [f.name for f in made.figures()] + [t.name for t in made.tables()]
    assert len(names) == len(set(names))
    table = next(t for t in made.tables() if t.name == "comparison-table")
    assert [r["difference"] is None for r in table.rows] == [True, False]
    short = document(store, runs, details=[], measure="pass@4")
    assert [s.title for s in short.sections if s.level == 1] == titles[:4]
    assert "evaluation pass@4" in short.sections[0].blocks[0].text


def test_hostile_text_stays_text_in_every_form(tmp_path: Path) -> None:
    with Store.open(evil_store(tmp_path / "store")) as store:
        made = document(store)
        page = html.page(made)
        assert page.count("<script>") == 1
        assert "<img" not in page
        assert "onerror" in page  # it is shown, escaped
        assert "\u202e" not in page
        for figure in made.figures():
            assert "<script" not in figure.svg
        files = markdown.write(made, tmp_path / "paper.md", pictures=False)
    text = files[0].read_text()
    assert not [
        line for line in text.splitlines() if re.search(r"(?<!\\)<script", line) and not line.startswith("    ")
    ]
    for path in files:
        if path.suffix == ".csv":
            for row in csv.reader(path.open()):
                assert not any(cell.startswith(("=", "+", "@")) for cell in row)
        if path.suffix == ".tex":  # what stands between cells is ours
            columns = re.search(r"begin\{tabular\}\{(\w+)\}", path.read_text())
            assert columns is not None
            for line in path.read_text().splitlines():
                if line.endswith(r"\\"):
                    assert len(re.findall(r"(?<!\\)&", line)) == len(columns[1]) - 1


def test_formulas_in_cells_are_text_and_numbers_stay_numbers() -> None:
    table = Table(
        "t",
        (Column("a", "a"), Column("b", "b_1", "f3")),
        [{"a": "=1+1", "b": -0.5}, {"a": "50 % & more_ <x>", "b": None}],
        "A & b",
    )
    assert markdown.as_csv(table).splitlines() == ["a,b", "'=1+1,-0.5", "50 % & more_ <x>,"]
    latex = markdown.as_latex(table)
    assert r"50 \% \& more\_ \textless{}x\textgreater{} & -- \\" in latex
    assert r"=1+1 & $-$0.500 \\" in latex
    starred = markdown.as_latex(Table("t", (Column("a", "a"),), [{"a": "[x] *"}], "A"))
    assert r"{[}x{]} {*} \\" in starred  # after a line's end they would be its arguments
    assert r"\caption{A \& b}" in latex
    assert r"\begin{tabular}{lr}" in latex


def test_markdown_stands_with_its_figures_and_tables(single: Document, tmp_path: Path) -> None:
    files = markdown.write(single, tmp_path / "paper.md", pictures=False)
    text = files[0].read_text()
    for name in re.findall(r"\]\((paper_files/[^)]+)\)", text):
        assert (tmp_path / name).is_file(), name
    svg = (tmp_path / "paper_files" / "learning.svg").read_text()
    assert svg.startswith("<?xml")
    assert "var(" not in svg and "data-panels" not in svg
    assert "SELECT" in (tmp_path / "paper_files" / "queries.sql").read_text()


def test_groups_to_draw_may_be_chosen(store: Store) -> None:
    run = runs_of(store)[0]
    made = document(store, [run], groups=[(3, 1), (6, 1)])
    _, drawn = [f for f in made.figures() if f.name in ("tree-3-1", "tree-6-1")]
    # an evaluation of the same step counts its groups from 0 as well
    assert 'aria-label="tree of 8 rollouts' in drawn.svg
    assert len(store.ask("tree_of_group", run=run, step=6, group=1)) == 9
    with pytest.raises(ValueError, match="steps 1 to 12, not 99"):
        document(store, [run], groups=[(99, 0)])
    with pytest.raises(ValueError, match="has no group 77"):
        document(store, [run], groups=[(3, 77)])


def test_sets_and_swapped_pipelines_are_told(tmp_path: Path) -> None:
    experiment = Experiment(
        model="tiny", tasks=("add 1d+1d",), pipeline="grpo", steps=2, eval_every=1, eval_samples=2, eval_sets={"hard": ["mul 1dx1d"]},
        store=str(tmp_path), checkpoint_every=0, budget=Budget(2, 8), task_options={"size": 20, "evaluation": 4},
    )  # fmt: skip
    with Run(experiment) as run:
        run.step()
        run.swap("grpo + mopps")
        run.step()
    with Store.open(tmp_path) as store:
        made = document(store)
    table = next(t for t in made.tables() if t.name == "sets")
    assert [r["set"] for r in table.rows] == ["hard"]
    assert "mopps" in made.title


def test_errors_say_what_to_do(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(ValueError, match=r"ends in \.html, \.pdf, \.md, not 'x\.doc'"):
        write(store, None, tmp_path / "x.doc")
    with pytest.raises(ValueError, match="no run nope in the store"):
        write(store, ["nope"], tmp_path / "x.html")
    monkeypatch.setattr(browser.shutil, "which", lambda name: None)
    assert main(["report", "--store", store.url, "-o", str(tmp_path / "x.pdf")]) == 2
    assert "printed by Chromium" in capsys.readouterr().err
    assert not (tmp_path / "x.pdf").exists()
    assert main(["report", "--store", store.url, "-o", str(tmp_path / "x.md"), "--no-pictures"]) == 0
    assert main(["report", "--store", store.url, "--group", "last", "-o", str(tmp_path / "x.html")]) == 2


def test_a_page_of_our_blocks_is_small_and_whole() -> None:
    made = Document(
        "T <b>",
        "s",
        "2026-01-01",
        [Section("One", [Prose("p", [query("runs")]), Code("a\nb"), Figure("f", "<svg/>", "c")])],
    )
    page = html.page(made)
    assert "T &lt;b&gt;" in page
    assert page.count("<section") == page.count("</section>") == 2
    assert "store.ask(&quot;runs&quot;)" in page


@pytest.mark.slow
@CHROMIUM
@pytest.mark.browser
def test_the_page_works_offline_and_prints(single: Document, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    page, pdf = tmp_path / "report.html", tmp_path / "report.pdf"
    page.write_text(html.page(single), encoding="utf-8")
    browser.print_pdf(html.page(single), pdf)
    assert pdf.read_bytes().startswith(b"%PDF")
    assert 50_000 < pdf.stat().st_size < 5_000_000
    browser.figure_png(single.figures()[0].svg, tmp_path / "f.png")
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    with playwright.sync_playwright() as p:
        b = p.chromium.launch(executable_path=browser.find(), args=["--no-sandbox"])
        context = b.new_context(offline=True)
        view = context.new_page()
        asked_for, said = [], []
        view.on("request", lambda r: asked_for.append(r.url))
        view.on("console", lambda m: said.append(m.text))
        view.on("pageerror", lambda e: said.append(str(e)))
        view.goto(page.as_uri())
        view.wait_for_selector("html[data-ready]")
        assert [u for u in asked_for if not u.startswith("data:")] == [page.as_uri()]
        figure = view.locator("#fig-learning")
        figure.scroll_into_view_if_needed()
        box = figure.bounding_box()
        assert box is not None
        view.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.4 * box["height"])
        assert "training pass rate" in figure.locator(".reading").inner_text()
        before = figure.locator(".x-ticks").text_content()
        view.mouse.down()
        view.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.4 * box["height"])
        view.mouse.up()
        assert figure.locator(".x-ticks").text_content() != before
        figure.locator(".key").first.click()
        assert figure.locator(".off-series").count() == 1
        b.close()
    assert said == []
