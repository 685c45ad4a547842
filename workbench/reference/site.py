"""Static site of the reference: Markdown of the tree and of the code, rendered to HTML that opens from the disk.

markdown-it renders CommonMark with tables; raw HTML in a page is escaped, for results pages may quote completions. Links
between pages of the tree become links between pages of the site; a link to a file that is no page is plain text.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from argparse import ArgumentParser
from collections.abc import Collection
from html import escape
from itertools import pairwise
from pathlib import Path, PurePosixPath

from markdown_it import MarkdownIt

from workbench.reference import methods, tables

ROOT = Path(__file__).parent.parent.parent
"""The source tree; the hand-written pages are there alone, an installed wheel has the generated ones."""

STYLE = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")

WRITTEN = {
    "which.md": "docs/which-method.md",
    "store.md": "store/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
"""Page of the site -> file of the tree; the other pages of docs/ and the notebooks come besides."""

MENU = {
    "which.md": "Which method",
    "methods.md": "Methods",
    "schema.md": "Store",
    "cli.md": "Commands",
    "glossary.md": "Glossary",
}
"""Pages that every page leads to, where they are there."""

IMAGES = (".png", ".svg", ".jpg")
"""Endings of the files that a page may show; they are copied."""


def pages(parser: ArgumentParser) -> dict[str, tuple[str, str]]:
    """Page of the site -> (Markdown, the file of the tree it was written in, "" where it was generated)."""
    from workbench.pipeline import catalog

    found = {
        "methods.md": (methods.table(), ""),
        "schema.md": (tables.store(), ""),
        "cli.md": (tables.cli(parser), ""),
        "glossary.md": (tables.glossary(), ""),
    }
    found |= {f"methods/{slug}.md": (methods.page(slug), "") for slug in catalog.methods()}
    there = {page: file for page, file in WRITTEN.items() if (ROOT / file).exists()}
    there |= {
        f"results/{p.name}": f"docs/results/{p.name}"
        for p in sorted((ROOT / "docs" / "results").glob("*.md")) if not p.name.endswith("-findings.md")
    }  # fmt: skip
    there |= {
        p.name: f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")) if f"docs/{p.name}" not in there.values()
    }
    found |= {page: ((ROOT / file).read_text(encoding="utf-8"), file) for page, file in there.items()}
    for p in sorted((ROOT / "notebooks").glob("*.ipynb")):
        found[f"notebooks/{p.stem}.md"] = (notebook(p), f"notebooks/{p.name}")
    found["index.md"] = (index(found), "README.md")
    return found


def title(markdown: str) -> str:
    """The text of the first heading, without marks."""
    heading = re.search(r"^#+ (.+)$", markdown, re.M)
    return re.sub(r"[`*]", "", heading[1]) if heading else ""


def notebook(path: Path) -> str:
    """A notebook as Markdown: its prose, its code, and the outputs it is checked against."""
    lines = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            lines += [source, ""]
            continue
        lines += [f"```python\n{source}\n```", ""]
        printed = "".join("".join(o.get("text", "")) for o in cell["outputs"])
        lines += [f"```text\n{printed.rstrip()}\n```", ""] if printed else []
    return "\n".join(lines)


def index(found: dict[str, tuple[str, str]]) -> str:
    """The first page: where what is."""

    def links(prefix: str) -> list[str]:
        return [f"- [{title(text)}]({page})" for page, (text, _) in found.items() if page.startswith(prefix)]

    lines = [
        "# Rollout Workbench",
        "",
        "**Where should the next rollout go?** Reference of the methods, the store and the commands.",
        "",
    ]
    lines += ["## Look up", ""]
    reference = {
        "which.md": "Which method for which problem",
        "methods.md": "All methods",
        "schema.md": "The store: tables and questions",
        "cli.md": "Command line",
        "glossary.md": "Glossary",
    }
    lines += [f"- [{text}]({page})" for page, text in reference.items() if page in found]
    lines += ["", "## Learn", "", *links("notebooks/"), "", "## What was measured", "", *links("results/")]
    besides = [p for p in found if found[p][1].startswith("docs/") and "/" not in p and p != "which.md"]
    lines += [f"- [{title(found[p][0])}]({p})" for p in besides]
    others = ("store.md", "contributing.md", "changelog.md")
    lines += ["", "## Take part", "", *(f"- [{title(found[p][0])}]({p})" for p in others if p in found)]
    return "\n".join(lines)


def build(out: str | Path, parser: ArgumentParser) -> list[Path]:
    """Write the site into a folder, new or made by an earlier call; returns its pages. Open index.html.

    parser: the command line that the page of commands is made from."""
    out, found = Path(out), pages(parser)
    if out.exists() and any(out.iterdir()) and not (out / "index.html").exists():
        raise FileExistsError(f"{out} is not empty and holds no site; choose a new folder")
    place = {file: page for page, (_, file) in found.items() if file}
    written = []
    for page, (text, file) in found.items():
        path = out / page.replace(".md", ".html")
        path.parent.mkdir(parents=True, exist_ok=True)
        html, images = render(text, page, file, place, found)
        for image in images:
            (out / "images").mkdir(exist_ok=True)
            shutil.copyfile(image, out / "images" / image.name)
        path.write_text(_whole(title(text), html, page, found), encoding="utf-8")
        written.append(path)
    return written


def render(
    text: str, page: str, file: str, place: dict[str, str], found: Collection[str] = ()
) -> tuple[str, list[Path]]:
    """HTML of a page, and the images of the tree that it shows. file: where it was written, for its relative links;
    place: the page of each file; found: all pages."""
    md = MarkdownIt("commonmark", {"html": False}).enable("table")
    text = re.sub(r"^<!--.*?-->\n?", "", text, flags=re.M)
    images: list[Path] = []
    tokens = md.parse(text)
    for inside in (t.children or [] for t in tokens):
        dead = False
        for token in inside:
            if token.type == "image":
                source = _inside(file, str(token.attrs["src"]))
                if (ROOT / source).suffix in IMAGES and (ROOT / source).exists():
                    images.append(ROOT / source)
                    token.attrs["src"] = _relative(f"images/{PurePosixPath(source).name}", page)
            elif token.type == "link_open":
                href = _link(str(token.attrs["href"]), page, file, place, found)
                dead = href is None
                token.tag, token.attrs = ("span", {}) if href is None else ("a", {"href": href})
            elif token.type == "link_close" and dead:
                token.tag = "span"
    for opened, inside in pairwise(tokens):
        if opened.type == "heading_open":
            opened.attrs["id"] = anchor(inside.content)
    return md.renderer.render(tokens, md.options, {}), images


def anchor(heading: str) -> str:
    """The name by which a heading is linked to, as on GitHub."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()))


def _inside(file: str, target: str) -> str:
    """A relative link of a file, from the root of the tree."""
    return os.path.normpath(PurePosixPath(file).parent / target).replace(os.sep, "/")


def _relative(target: str, page: str) -> str:
    return "../" * (len(PurePosixPath(page).parts) - 1) + target


def _link(href: str, page: str, file: str, place: dict[str, str], found: Collection[str]) -> str | None:
    """Where a link leads in the site; None for a file of the tree that is no page."""
    if re.match(r"[a-z]+:|#", href):
        return href
    target, mark, rest = href.partition("#")
    if file and file != "README.md":
        source = _inside(file, target)
        if source not in place:
            return None
        target = _relative(place[source], page)
    elif not file and target not in found:
        return None
    return target.replace(".md", ".html") + mark + rest


def _whole(name: str, body: str, page: str, found: Collection[str]) -> str:
    top = _relative("index.html", page)
    menu = " ".join(
        f'<a href="{_relative(target.replace(".md", ".html"), page)}">{text}</a>'
        for target, text in MENU.items() if target in found
    )  # fmt: skip
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(name)}</title><style>{STYLE}</style>"
        f'<nav><a class="home" href="{top}">Rollout Workbench</a> {menu}</nav><main>{body}</main></html>\n'
    )
