import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.numerics.trees import (
    Segment,
    derived,
    first_visit_mask,
    flat_as_tree,
    leaf_sequence,
    shared_prefix,
    split_segment,
    subtree_values,
    token_account,
)


@st.composite
def trees(draw: st.DrawFn) -> list[Segment]:
    nodes = [Segment("p", None, "prompt", draw(st.integers(0, 9)))]
    for i in range(draw(st.integers(0, 14))):
        parents = [n.id for n in nodes if n.kind != "probe"]
        kind = draw(st.sampled_from(["model", "model", "model", "tool", "feedback", "probe"]))
        nodes.append(
            Segment(
                f"n{i}",
                draw(st.sampled_from(parents)),
                kind,
                draw(st.integers(0, 9)),
                -1.0 if kind == "model" else None,
                draw(st.sampled_from([None, 0.0, 1.0])),
                draw(st.sampled_from(["live", "live", "live", "pruned", "discarded"])),
            )
        )
    return nodes


@given(trees())
def test_a_child_starts_where_its_parent_ends(nodes: list[Segment]) -> None:
    place = {row.id: row for row in derived(nodes).rows}
    by_id = {n.id: n for n in nodes}
    for n in nodes[1:]:
        assert place[n.id].token_start == place[n.parent].token_start + by_id[n.parent].n_tokens
        assert place[n.id].segment_depth == place[n.parent].segment_depth + 1
        assert 0 <= place[n.id].fork_depth - place[n.parent].fork_depth <= 1


@given(trees())
def test_tokens_are_counted_once(nodes: list[Segment]) -> None:
    got = token_account(nodes)
    assert got.generated == sum(n.n_tokens for n in nodes if n.kind == "model")
    assert got.kept + got.pruned + got.discarded <= got.generated
    assert got.flat_equivalent >= got.kept
    assert got.sharing >= 1
    on_path = {i for leaf in derived(nodes).leaves for i in leaf_sequence(nodes, leaf).path}
    live = [n for n in nodes if n.kind == "model" and n.id not in on_path]
    if not any(status_of(nodes, n) == "live" for n in live):
        assert got.generated == got.kept + got.pruned + got.discarded


def status_of(nodes: list[Segment], node: Segment) -> str:
    by_id = {n.id: n for n in nodes}
    path = [node]
    while path[-1].parent is not None:
        path.append(by_id[path[-1].parent])
    return next((n.status for n in reversed(path) if n.status != "live"), "live")


@given(trees())
def test_no_leaf_lies_under_a_cut(nodes: list[Segment]) -> None:
    by_id = {n.id: n for n in nodes}
    for leaf in derived(nodes).leaves:
        assert status_of(nodes, by_id[leaf]) == "live"
        assert by_id[leaf].kind not in ("prompt", "probe")


@given(trees())
def test_a_value_is_the_mean_of_the_leaves_below(nodes: list[Segment]) -> None:
    values = {row.id: row for row in subtree_values(nodes)}
    by_id = {n.id: n for n in nodes}
    leaves = [i for i in derived(nodes).leaves if by_id[i].reward is not None]
    for n in nodes:
        below = [by_id[i].reward for i in leaves if n.id in leaf_sequence(nodes, i).path]
        assert values[n.id].n_leaves == len(below)
        assert values[n.id].value == (None if not below else pytest.approx(np.mean(below)))


@given(trees())
def test_every_kept_segment_is_trained_once(nodes: list[Segment]) -> None:
    trained = [i for row in first_visit_mask(nodes) for i in row.trained_segments]
    assert len(trained) == len(set(trained))
    by_id = {n.id: n for n in nodes}
    assert sum(by_id[i].n_tokens for i in trained) == token_account(nodes).kept


@given(trees(), st.integers(0, 14), st.integers(0, 9))
def test_splitting_changes_no_count(nodes: list[Segment], i: int, offset: int) -> None:
    node = nodes[i % len(nodes)]
    if offset > node.n_tokens or node.status != "live":
        return
    changed, split = split_segment(nodes, node.id, offset, "new")
    assert changed == (0 < offset < node.n_tokens)
    assert token_account(split) == token_account(nodes)
    assert [leaf_sequence(split, x).mask for x in derived(split).leaves] == [
        leaf_sequence(nodes, x).mask for x in derived(nodes).leaves
    ]


def test_splitting_a_pruned_leaf_keeps_its_upper_part_alive() -> None:
    nodes = [Segment("p", None, "prompt", 2), Segment("a", "p", "model", 6, -6.0, None, "pruned")]
    changed, (_, upper, lower) = split_segment(nodes, "a", 2, "b", token_logprobs=[-1, -1, -1, -1, -1, -1.0])
    assert changed
    assert (upper.status, upper.logprob, lower.status, lower.logprob) == ("live", -2.0, "pruned", -4.0)


def test_errors_name_the_segment() -> None:
    nodes = [Segment("p", None, "prompt", 2), Segment("a", "p", "model", 6)]
    with pytest.raises(ValueError, match="offset 7 lies outside segment 'a' of 6 tokens"):
        split_segment(nodes, "a", 7, "b")
    with pytest.raises(ValueError, match="segment 'p' exists already"):
        split_segment(nodes, "a", 3, "p")
    with pytest.raises(ValueError, match="no segment 'z'"):
        leaf_sequence(nodes, "z")
    with pytest.raises(ValueError, match="parent 'a' of segment 'b' must stand before it"):
        derived([Segment("b", "a")])
    with pytest.raises(ValueError, match="segment 'p' appears twice"):
        derived([Segment("p"), Segment("p")])


def test_a_flat_rollout_is_a_tree_with_one_leaf() -> None:
    nodes = flat_as_tree(5, [7], [None])
    account = token_account(nodes)
    assert (account.generated, account.kept, account.sharing, account.n_leaves) == (7, 7, 1.0, 1)
    assert subtree_values(nodes)[0] == ("p", 0, None)


def test_all_branches_pruned_still_cost() -> None:
    nodes = [
        Segment("p", None, "prompt", 2),
        Segment("a", "p", "model", 6, status="pruned"),
        Segment("b", "a", "model", 3),
    ]
    account = token_account(nodes)
    assert (account.generated, account.pruned, account.kept, account.n_leaves) == (9, 9, 0, 0)
    assert derived(nodes).leaves == ()


def test_what_grows_out_of_a_segment_shares_all_of_it() -> None:
    nodes = [Segment("p", None, "prompt", 2), Segment("a", "p", "model", 6), Segment("b", "a", "model", 3)]
    assert shared_prefix(nodes, "a", "b") == ("a", 6)
    assert shared_prefix([*nodes, Segment("q", None, "prompt", 1)], "a", "q") == (None, 0)
