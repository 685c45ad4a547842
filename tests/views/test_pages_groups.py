"""The pages of one group without a browser: what they show as the selection moves, and that their SQL runs."""

import numpy as np
import pytest
from grown import hand, pool, read, record, step_of

from workbench.store import Writer
from workbench.views.data.groups import groups_of, place_of
from workbench.views.data.selection import Selection
from workbench.views.data.signs import rates
from workbench.views.pages.signs import SignsPage
from workbench.views.pages.tokens import TokensPage
from workbench.views.pages.tree import TreePage
from workbench.views.parts.picker import name_of

PAGES = (TreePage, TokensPage, SignsPage)


def a_test(step):
    return {"node_id": [f"{step}:p0:0"], "at_token": [1], "kind": ["branch"], "outcome": ["no"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    store = tmp_path_factory.mktemp("pages")
    record(store, made=hand, steps=2, decisions=a_test)
    return read(store)


@pytest.mark.parametrize("page", PAGES)
def test_the_sql_that_is_shown_runs_as_it_stands(data, page):
    chosen = Selection(run=data.run)
    shown = page(data.source, chosen)
    shown.update(data)
    assert len(shown.queries) >= 4
    for asked in shown.queries:
        assert data.source.store.sql(asked.sql).num_rows > 0, asked.view
        assert asked.call.startswith("store.")


def test_a_step_that_one_of_two_ranks_recorded_is_not_kept_as_it_is(tmp_path):
    prompts = pool()
    zero, one = (Writer(tmp_path, {"name": "two"}, prompts, run="two", rank=r, ranks=2) for r in (0, 1))
    with zero, one:
        zero.append(step_of(hand(1, prompts), 1))
        zero.flush()
        data = read(tmp_path, "two")
        assert (data.step, groups_of(data, 1), len(rates(data)[0].step)) == (0, (), 0)
        one.append(step_of(hand(1, prompts), 1))
        one.flush()
        data.source.refresh(0)
        assert [(g.rank, g.rollouts) for g in groups_of(data, 1)] == [(0, 3), (1, 3), (0, 1), (1, 1)]
        assert place_of(data, Selection(run="two", step=1)) is None
        # another viewer has moved the store on; this one's own look follows, and nothing is counted twice
        once = rates(data)[0].counts.sum(0)
        assert once[0] > 0
        data.refresh()
        np.testing.assert_array_equal(rates(data)[0].counts.sum(0), once)
        assert len(groups_of(data, 1)) == 4
        assert place_of(data, Selection(run="two", step=1)).group.rank == 0


@pytest.mark.parametrize("page", PAGES)
def test_a_run_without_steps_is_no_error(recording, page):
    rec = recording()
    empty = read(recording.store, rec.run)
    shown = page(empty.source, Selection(run=rec.run))
    shown.update(empty)
    for asked in shown.queries:
        assert data_of(empty, asked) == 0


def data_of(data, asked):
    return data.source.store.sql(asked.sql).num_rows


def test_the_picker_moves_the_selection_and_follows_it(data):
    chosen = Selection(run=data.run)
    page = TreePage(data.source, chosen)
    page.update(data)
    assert page.picker.step.value == 2
    assert page.picker.group.value == 0
    page.picker.move(1)
    assert (chosen.step, chosen.prompt, chosen.place) == (2, "p1", 1)
    page.update(data)
    assert page.picker.group.value == 1
    page.picker.move(1)
    assert chosen.prompt == "p0"
    page.picker.step.value = 1
    assert (chosen.step, chosen.prompt) == (1, "")
    page.update(data)
    page.picker.group.value = 1
    assert (chosen.step, chosen.prompt) == (1, "p1")


def test_a_place_moves_as_its_rollout_comes_and_comes_again(tmp_path):
    experiment = {"name": "grown", "steps": 3, "model": "scripted", "pipeline": [{"method": "grpo"}]}
    with Writer(tmp_path, experiment, pool(), run="grown", who={"estimate": ["grpo"]}) as writer:

        def go(number):
            rollouts = hand(number, pool())
            if number == 3:
                rollouts = rollouts.with_(id=np.append(rollouts.id[:3], "1:p1:0"))  # it takes part again
            writer.append(step_of(rollouts, number))
            writer.flush()

        def found(rollout, step):
            place = place_of(data, Selection(run="grown", rollout=rollout, step=step))
            return place.group.step, place.group.prompt, place.rollout

        go(1)
        data = read(tmp_path)
        assert found("1:p1:0", 0) == found("1:p1:0", 1) == (1, "p1", "1:p1:0")
        assert found("2:p1:0", 2) == (1, "p0", "")
        assert found("2:p1:0", 0) == (1, "p0", "")
        for number in (2, 3):
            go(number)
            data.source.refresh(0)
            data.refresh()
        assert found("2:p1:0", 2) == found("2:p1:0", 0) == (2, "p1", "2:p1:0")
        assert found("1:p1:0", 0) == (3, "p1", "1:p1:0")
        assert found("1:p1:0", 1) == (1, "p1", "1:p1:0")


def test_a_segment_leads_to_the_tokens_of_its_rollout(data):
    chosen = Selection(run=data.run, page="tree", step=1)
    page = TreePage(data.source, chosen)
    page.update(data)
    page.view._handle_msg({"open": "no such rollout"})
    page.view._handle_msg("nonsense")
    assert chosen.page == "tree"
    page.view._handle_msg({"open": "1:p0:1"})
    assert (chosen.page, chosen.rollout, chosen.step, chosen.prompt) == ("tokens", "1:p0:1", 1, "p0")
    tokens = TokensPage(data.source, chosen)
    tokens.update(data)
    assert tokens.view.rollout["id"] == "1:p0:1"
    assert tokens.view.rollout["words"] == [" the", " sum", "2", ",", " so"]
    tokens.view._handle_msg({"rollout": "1:p0:0"})
    assert chosen.rollout == "1:p0:0"


def test_whole_rollouts_stay_while_they_are_read(data):
    chosen = Selection(run=data.run, rollout="1:p0:0", step=1)
    page = TokensPage(data.source, chosen)
    page.update(data)
    assert page._whole("another") == page.view.rollout
    page._whole("1:p0:0")
    before = page.view.rollout
    page.update(data)
    assert page.view.rollout is before
    chosen.rollout = "1:p0:1"
    page.update(data)
    assert page.view.rollout["id"] == "1:p0:1"


def test_the_pair_is_part_of_the_selection(data):
    chosen = Selection(run=data.run, pair=["rloo", "no such method"])
    page = SignsPage(data.source, chosen)
    page.update(data)
    assert (page.first.value, page.second.value) == ("rloo", "grpo")
    page.second.value = "mc_grpo"
    assert chosen.pair == ["rloo", "mc_grpo"]
    page.first.value = "mc_grpo"
    assert chosen.pair == ["mc_grpo", "rloo"], "the sides are changed: two that differ"
    page.update(data)
    assert (page.first.value, page.second.value) == ("mc_grpo", "rloo")
    chosen.pair = ["rloo", "mc_grpo"]
    page.update(data)
    assert chosen.pair == ["rloo", "mc_grpo"]
    page._compared((data.run, ("rloo", "mc_grpo"), "ValueError: <b>"))
    assert "&lt;b&gt;" in page.text["pair_note"].object


def test_an_address_without_a_run_keeps_what_it_names(data):
    from workbench.views.shell.dashboard import Dashboard

    page = Dashboard(data.source.url)
    page.chosen.param.update(page="tree", step=1)
    page.tick()
    assert (page.chosen.run, page.chosen.step) == ("grown", 1)
    assert page.page.picker.step.value == 1


def test_the_group_shown_is_named_as_it_is_on_its_own_step(data):
    chosen = Selection(run=data.run, step=1)
    page = TreePage(data.source, chosen)
    page.update(data)
    sent = page.picker.group.get_root().data
    group = page.picker.place.group
    assert sent.value == f"1. {name_of(group)}"
    page.picker.update(page.picker.place._replace(groups=(group._replace(solved=77), *page.picker.place.groups[1:])), 2)
    assert "77 of" in sent.value
