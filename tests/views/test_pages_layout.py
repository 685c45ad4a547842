"""Boxes of the pages say what they are: Panel has nothing to overrule, and figures grow where they are told to."""

import logging

import pytest
from bokeh.plotting import figure

from workbench.views.parts.layout import card, grid, pane, plot
from workbench.views.shell.dashboard import Dashboard


def test_a_box_grows_where_a_part_of_it_does():
    still, tall = plot(figure(height=200)), plot(figure(height=200), grows=True)
    assert (still.sizing_mode, tall.sizing_mode, tall.min_height) == ("stretch_width", "stretch_both", 200)
    assert card(4, pane(), still).sizing_mode == "stretch_width"
    assert card(4, pane(), tall).sizing_mode == "stretch_both"
    assert grid(card(4, still), card(8, tall)).sizing_mode == "stretch_both"


@pytest.mark.parametrize("name", ["live", "difficulty", "budget", "compare", "sql"])
def test_panel_has_no_box_to_overrule(recording, caplog, name):
    recording().go(1)
    shown = Dashboard(recording.store)
    shown.chosen.page = name
    shown.tick()
    with caplog.at_level(logging.WARNING, "param"):
        shown.shell.get_root()
    assert [m for m in caplog.messages if "overridden" in m] == []
