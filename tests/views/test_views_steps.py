"""The range of steps of one page is that of all."""

from workbench.views.data.selection import Selection
from workbench.views.parts.plots import follow, steps_range
from workbench.views.parts.steps import SharedSteps


def tied(**chosen):
    selection = Selection(**chosen)
    one, other = steps_range(), steps_range()
    tie = SharedSteps(one, selection)
    SharedSteps(other, selection)
    for r in (one, other):
        follow(r, 100)
    return selection, one, other, tie


def gesture(tie, start, end):
    tie.steps.update(start=start, end=end)
    tie.settle()


def test_following_a_run_chooses_no_steps():
    chosen, one, other, tie = tied()
    assert chosen.steps == (0, 0)
    follow(one, 200)
    tie.settle()
    assert (chosen.steps, one.end, other.end) == ((0, 0), 200.5, 100.5)


def test_zooming_one_page_narrows_the_others():
    chosen, one, other, tie = tied()
    gesture(tie, 9.7, 20.2)
    assert chosen.steps == (10, 20)
    assert (one.start, one.end) == (9.7, 20.2)  # the view that was zoomed stays as it is
    assert (other.start, other.end) == (9.5, 20.5)
    follow(other, 150)
    assert (other.start, other.end) == (9.5, 20.5)


def test_the_reset_tool_follows_the_run_again():
    chosen, one, other, tie = tied()
    gesture(tie, 9.7, 20.2)
    follow(one, 150)
    gesture(tie, one.reset_start, one.reset_end)
    assert chosen.steps == (0, 0)
    follow(one, 160)
    follow(other, 160)
    assert one.end == other.end == 160.5


def test_an_address_with_steps_is_shown_from_the_start():
    chosen, one, other, _ = tied(steps=(30, 40))
    assert (one.start, one.end, other.end) == (29.5, 40.5, 40.5)
    chosen.steps = (0, 0)
    assert (one.end, other.end) == (100.5, 100.5)
