"""A notebook that shows plots and asks nothing of any other machine: its outputs, and its export in a browser."""

import re

import nbclient
import nbformat
import pytest
from browsing import launched, new_page
from nbconvert import HTMLExporter

from tests.timing import patience
from workbench.views.notebook import offline

SHEETS = """() => {
  const within = root => [...root.querySelectorAll("*")].flatMap(e => e.shadowRoot ? [e.shadowRoot, ...within(e.shadowRoot)] : [])
  return within(document).flatMap(r => [...r.querySelectorAll("link[rel=stylesheet]")]).map(l => !!l.sheet)
}"""
"""Whether each style sheet that an output names was read."""

CELLS = (
    "import holoviews as hv\nfrom workbench.views.notebook import curves, difficulty, plots\nplots()",
    "curves({store!r})",
    "difficulty({store!r})",
    "hv.HoloMap({{i: hv.Curve([i, 2, 1]) for i in range(3)}}, 'seed')",
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Such a notebook, run on the sample store."""
    from workbench.store.sample import sample_folder

    cells = [nbformat.v4.new_code_cell(c.format(store=str(sample_folder()))) for c in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=patience(120), kernel_name="python3").execute()
    return book


def test_outputs_of_plots_name_no_other_machine(shown):
    for cell in shown.cells[1:]:
        data = [o["data"] for o in cell.outputs if "data" in o]
        texts = [d["text/html"] for d in data if "text/html" in d]
        assert any("data:text/css;base64," in t for t in texts)
        assert not [a for t in texts for a in re.findall(r"https?://[^\"'\s\\<]+\.(?:css|js)\b", t)]


def test_a_sheet_that_is_not_installed_keeps_its_address():
    there, gone = (f"{offline.CDN_DIST}css/{name}.css" for name in ("listpanel", "nonsense"))
    made = offline.carried(f'"{there}?v=1.9.4" "{there}" "{gone}"').split(" ")
    assert made[0] == made[1]
    assert made[0].startswith('"data:text/css;base64,')
    assert made[2] == f'"{gone}"'


@pytest.mark.slow
@pytest.mark.browser
def test_the_export_is_drawn_without_a_network(shown, tmp_path):
    frame = dict.fromkeys(("mathjax_url", "require_js_url", "jquery_url", "mermaid_js_url"), "")  # of nbconvert's own
    html, _ = HTMLExporter(**frame).from_notebook_node(shown)
    file = tmp_path / "shown.html"
    file.write_text(html, encoding="utf-8")
    asked, complaints = [], []
    with launched() as browser:
        page = new_page(browser, offline=True)
        page.on("request", lambda r: asked.append(r.url) if r.url.startswith(("http", "ws")) else None)
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.goto(file.as_uri())
        page.wait_for_function("window.Bokeh && [...Bokeh.index.roots].length >= 3")
        page.wait_for_function(f"() => {{ const read = ({SHEETS})(); return read.length && read.every(Boolean) }}")
    assert (asked, complaints) == ([], [])
