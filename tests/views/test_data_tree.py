"""A group as a tree: what is read of it, what it cost, and what the browser is given."""

import numpy as np
import pytest
from grown import hand, read, record
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.views.data.groups import groups_of, place_of
from workbench.views.data.selection import Selection
from workbench.views.data.tree import Cost, TreeLayout, rooted, tree
from workbench.views.parts.tree import columns, cost_card


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    store = tmp_path_factory.mktemp("hand")
    record(store, made=hand)
    return read(store)


def test_groups_that_forked_stand_first(by_hand):
    first, second = groups_of(by_hand, 1)
    assert (first.prompt, first.forks, first.rollouts, first.solved, first.cut) == ("p0", 2, 3, 1, 1)
    assert (second.prompt, second.forks, second.rollouts) == ("p1", 0, 1)
    assert groups_of(by_hand, 1) is groups_of(by_hand, 1)


def test_segments_have_their_place_value_and_text(by_hand):
    grown = tree(by_hand, groups_of(by_hand, 1)[0])
    rows = [(b.kind, b.parent, b.start, b.n, b.leaves, b.text) for b in grown.branches]
    assert rows == [
        ("prompt", -1, 0, 0, 3, ""),
        ("model", 0, 0, 2, 3, " the sum"),
        ("model", 1, 2, 2, 1, " is 4"),
        ("model", 1, 2, 1, 2, "2"),
        ("model", 3, 3, 2, 1, ", so"),
        ("model", 3, 3, 2, 1, " we add"),
    ]
    assert [b.y for b in grown.branches] == [0.75, 0.75, 0.0, 1.5, 1.0, 2.0]
    assert (grown.tokens, grown.forks, grown.n_leaves, grown.spelled) == (5, 2, 3, True)
    shared, kept, cut = grown.branches[1], grown.branches[4], grown.branches[5]
    assert (shared.value, kept.value, cut.value) == (0.625, 1.0, None)
    assert (cut.status, cut.reason) == ("pruned", "low_confidence")
    assert [round(b.entropy, 2) for b in grown.branches[1:]] == [0.1, 1.5, 1.5, 0.7, 0.7]
    assert cut.advantage is None
    assert round(kept.advantage, 3) == 1.0
    assert abs(shared.advantage) < 1e-6
    assert (kept.rollout, shared.rollout, shared.opens) == ("1:p0:1", "", "1:p0:0")
    assert [b.training for b in (shared, kept, cut)] == ["trained in 2 rows", "trained in 1 row", "not trained: pruned"]


def test_every_token_of_a_tree_is_counted_once(by_hand):
    forked, flat = (tree(by_hand, g) for g in groups_of(by_hand, 1))
    assert forked.cost == Cost(shared=2, own=5, pruned=2, discarded=0, probe=0, context=0, flat=9)
    assert forked.cost.generated == 9
    assert flat.cost == Cost(0, 3, 0, 0, 0, 0, 3)
    saved = by_hand.ask("savings_by_group").to_pylist()[0]
    assert (saved["generated"], saved["pruned"], saved["flat_equivalent"]) == (9, 2, 9)


def test_a_flat_group_is_one_level(by_hand):
    flat = tree(by_hand, groups_of(by_hand, 1)[1])
    assert [(b.kind, b.parent, b.n, b.text) for b in flat.branches] == [
        ("prompt", -1, 0, ""),
        ("model", 0, 3, " caf\u00e9"),
    ]


@pytest.mark.parametrize("leaves", [4, 256])
def test_large_trees_stay_small_on_the_wire(tmp_path, leaves):
    import json

    record(tmp_path, leaves=leaves)
    data = read(tmp_path)
    grown = tree(data, groups_of(data, 1)[0])
    assert grown.n_leaves >= leaves
    assert grown.cost.generated <= grown.cost.flat + grown.cost.pruned
    assert len(json.dumps(columns(grown, "?"))) < 200_000
    ends = [b for b in grown.branches if b.rollout]
    assert {b.opens for b in ends} == {b.rollout for b in ends}
    assert len(ends) == leaves


def test_the_selection_finds_its_group(by_hand):
    assert place_of(by_hand, Selection()).at == 0
    assert place_of(by_hand, Selection(place=3)).at == 1
    assert place_of(by_hand, Selection(prompt="p1")).group.prompt == "p1"
    found = place_of(by_hand, Selection(rollout="1:p1:0", step=1))
    assert (found.group.prompt, found.rollout) == ("p1", "1:p1:0")
    assert place_of(by_hand, Selection(rollout="no such", prompt="p1")).group.prompt == "p1"
    assert place_of(by_hand, Selection(step=99)).group.step == 1


def test_tokens_that_were_not_kept_are_not_made_up(tmp_path):
    record(tmp_path, made=hand, retention="none")
    data = read(tmp_path)
    grown = tree(data, groups_of(data, 1)[0])
    assert not grown.spelled
    assert [b.text for b in grown.branches[1:]] == ["", "", "", "", ""]
    assert tree(data, groups_of(data, 1)[1]).branches[1].text == "caf\u00e9"


def test_a_vocabulary_that_was_not_recorded_leaves_ids(tmp_path):
    record(tmp_path, made=hand, pieces=None)
    data = read(tmp_path)
    grown = tree(data, groups_of(data, 1)[0])
    assert grown.branches[1].text == "tokens 0 1"
    assert not grown.spelled


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_drawing_order_puts_parents_first_and_between_their_children(choices):
    names = ["root"]
    rows = [{"node_id": "root", "parent_id": None, "kind": "prompt", "n_tokens": 3, "row": None}]
    for i, k in enumerate(choices):
        rows.append({"node_id": f"n{i}", "parent_id": names[k % len(names)], "kind": "model", "n_tokens": k, "row": i})
        names.append(f"n{i}")
    grown = TreeLayout(rows)
    y, leaves = grown._heights()
    seen = set()
    for i in grown.order:
        assert grown.parent[i] < 0 or grown.parent[i] in seen
        seen.add(i)
        if kids := grown.children[i]:
            assert min(y[k] for k in kids) <= y[i] <= max(y[k] for k in kids)
    ends = [i for i in range(len(rows)) if not grown.children[i]]
    assert sorted(y[i] for i in ends) == list(range(leaves))
    assert len(grown.through[0]) == len(choices)


def test_what_lost_its_root_hangs_from_one_made_here():
    row = {"node_id": "a", "parent_id": "elsewhere", "kind": "model", "n_tokens": 2, "row": 0}
    made = rooted([row, {**row, "node_id": "b"}])
    assert [(r["node_id"], r["parent_id"], r["kind"]) for r in made] == [
        ("", None, "prompt"),
        ("a", "", "model"),
        ("b", "", "model"),
    ]


def test_the_cost_card_compares_with_the_flat_equivalent():
    text = cost_card(Cost(shared=20, own=40, pruned=10, discarded=0, probe=0, context=0, flat=140))
    assert "Sharing 2.33" in text
    assert "70 tokens (50 %) fewer" in text
    assert "width:50.000%" not in text
    assert "width:100.000%" in text
    more = cost_card(Cost(0, 10, 30, 0, 0, 0, 10))
    assert "30 tokens more than" in more
    probed = cost_card(Cost(4, 11, 0, 7, 12, 3, 19))
    assert '<td class="n">34</td>' in probed
    assert "probes" in probed
    assert "of tools and feedback" in probed
    assert "No tokens yet" in cost_card(Cost(0, 0, 0, 0, 0, 0, 0))


def test_columns_of_nothing_and_of_hostile_names(by_hand):
    assert columns(None)["parent"] == []
    grown = tree(by_hand, groups_of(by_hand, 1)[0])
    bad = grown._replace(
        branches=(grown.branches[0]._replace(reason="\x00\u202e<script>", text="\x1b[31m", value=np.nan),)
    )
    made = columns(bad, "\u202ex")
    assert made["reason"] == ["\u2400\u00b7<script>"]
    assert made["text"] == ["\u241b[31m"]
    assert made["value"] == [None]
    assert made["prompt"] == "\u00b7x"


def test_rollouts_of_an_evaluation_are_no_branches(recording):
    rec = recording().go(6)
    data = read(recording.store, rec.run)
    for g in groups_of(data, 6):
        grown = tree(data, g)
        assert grown.n_leaves == g.rollouts == 8
        assert {b.opens.split(":")[0] for b in grown.branches} == {"6"}


def test_tests_stand_at_the_segment_whose_token_they_looked_at(tmp_path):
    tests = {
        "node_id": ["1:p0:0", "1:p0:0", "1:p0:1", "1:p0:2", "1:p0:2", "1:p1:0"],
        "at_token": [1, 2, 3, 4, 5, 2],
        "kind": ["branch", "branch", "branch", "prune", "prune", "prune"],
        "outcome": ["no", "fork:1", "fork:1", "no", "low_confidence", "no"],
        "inputs": [{}, {"forks": 1.0}, {"forks": 1.0}, {"propensity": 1.0}, {"propensity": 0.625}, {}],
    }
    record(tmp_path, made=hand, decisions=lambda step: tests)
    data = read(tmp_path)
    forked, flat = (tree(data, g) for g in groups_of(data, 1))
    assert [b.tests for b in forked.branches] == [
        "",
        "branch tested 2\u00d7: fork:1 at token 2 (forks 1)",
        "",
        "branch tested 1\u00d7: fork:1 at token 3 (forks 1)",
        "",
        "prune tested 2\u00d7: low_confidence at token 5 (propensity 0.625)",
    ]
    assert flat.branches[1].tests == "prune tested 1\u00d7: nothing done"
