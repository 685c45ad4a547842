"""The reference: a page for everything, every link leads somewhere, nothing fetched from elsewhere."""

from __future__ import annotations

import re
from dataclasses import fields
from html import unescape
from pathlib import Path

import pytest

from workbench.cli.main import build_parser
from workbench.pipeline import catalog
from workbench.reference import methods, site, tables
from workbench.reference.site import build
from workbench.stages import VERBS
from workbench.store.questions import load
from workbench.store.schema import comments


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder, build_parser())
    return folder


def test_every_method_has_a_page_with_its_settings_and_deviations(built):
    for slug, cls in catalog.methods().items():
        page = unescape((built / "methods" / f"{slug}.html").read_text())
        assert cls.card.title in page
        for name in (f.name for f in fields(cls)):
            assert f"<code>{name}</code>" in page, (slug, name)
        assert page.count("<li>") >= len(cls.card.deviations)


def test_every_table_column_and_question_is_told_of(built):
    page = unescape((built / "schema.html").read_text())
    for table, columns in comments().items():
        assert f'<h2 id="{table}">' in page
        for column in columns:
            assert not column or f"<code>{column}</code>" in page, (table, column)
    for name in load():
        assert f"<code>{name}</code>" in page, name


def test_every_command_and_option_is_told_of(built):
    page = unescape((built / "cli.html").read_text())
    names = [name for name, _, _ in tables.commands(build_parser())]
    assert {"demo", "store info", "docs"} <= set(names)
    for name, parser, _ in tables.commands(build_parser()):
        assert f"workbench {name}</h2>" in page
        for action in parser._actions:
            for option in action.option_strings:
                assert option in page or option in ("-h", "--help"), (name, option)


def test_every_link_leads_somewhere(built):
    for path in built.rglob("*.html"):
        text = path.read_text()
        for target in re.findall(r'(?:href|src)="([^"]+)"', text):
            if re.match(r"https?:", target):
                continue
            file, _, place = unescape(target).partition("#")
            there = path if not file else (path.parent / file).resolve()
            assert there.exists(), f"{path.relative_to(built)}: {target}"
            if place:
                assert f'id="{place}"' in there.read_text(), f"{path.relative_to(built)}: {target}"


def test_an_installed_wheel_has_the_pages_made_from_code(monkeypatch, tmp_path):
    monkeypatch.setattr(site, "ROOT", tmp_path / "nowhere")
    made = {p.relative_to(tmp_path / "out").as_posix() for p in build(tmp_path / "out", build_parser())}
    assert {"index.html", "methods.html", "methods/mopps.html", "schema.html", "cli.html", "glossary.html"} <= made
    assert "which.html" not in made
    test_every_link_leads_somewhere(tmp_path / "out")


def test_it_opens_without_network(built):
    for path in built.rglob("*.html"):
        text = path.read_text()
        assert "<script" not in text
        assert not re.search(r'(?:src|@import|url\()\s*=?\s*["\']?https?:', text), path


def test_html_in_a_page_is_text():
    html, images = site.render("# A <b>word</b>\n\n<script>alert(1)</script>", "a.md", "", {})
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert images == []


def test_a_link_between_files_of_the_tree_becomes_one_between_pages():
    place = {"docs/results/signs.md": "results/signs.md"}
    html, _ = site.render("[a](results/signs.md#how) [b](../setup.py)", "which.md", "docs/which-method.md", place)
    assert '<a href="results/signs.html#how">a</a>' in html
    assert "<span>b</span>" in html


def test_every_verb_and_grade_is_explained():
    assert tuple(methods.DOES) == VERBS
    assert {cls.card.source for cls in catalog.methods().values()} <= set(methods.GRADES)


def test_a_full_folder_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(FileExistsError, match="choose a new folder"):
        build(tmp_path, build_parser())


def test_the_page_of_choices_names_methods_and_pages_that_exist():
    text = (site.ROOT / "docs" / "which-method.md").read_text()
    for words in re.findall(r"`((?:\w+(?:\([^)]*\))? \+ )+\w+)`", text):
        for word in re.findall(r"\w+(?=\(| |$)", re.sub(r"\([^)]*\)", "", words)):
            assert word in catalog.methods(), word
