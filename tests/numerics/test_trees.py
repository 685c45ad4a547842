import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.numerics.trees import (
    Segment,
    derived,
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


def path_of(nodes: list[Segment], id_: str) -> list[str]:
    by_id = {n.id: n for n in nodes}
    path = [id_]
    while (parent := by_id[path[-1]].parent) is not None:
        path.append(parent)
    return path


def status_of(nodes: list[Segment], node: Segment) -> str:
    by_id = {n.id: n for n in nodes}
    path = [by_id[i] for i in path_of(nodes, node.id)]
    return next((n.status for n in reversed(path) if n.status != "live"), "live")


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
    on_path = {i for leaf in derived(nodes).leaves for i in path_of(nodes, leaf)}
    live = [n for n in nodes if n.kind == "model" and n.id not in on_path]
    if not any(status_of(nodes, n) == "live" for n in live):
        assert got.generated == got.kept + got.pruned + got.discarded


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
        below = [by_id[i].reward for i in leaves if n.id in path_of(nodes, i)]
        assert values[n.id].n_leaves == len(below)
        assert values[n.id].value == (None if not below else pytest.approx(np.mean(below)))


def test_errors_name_the_segment() -> None:
    with pytest.raises(ValueError, match="parent 'a' of segment 'b' must stand before it"):
        derived([Segment("b", "a")])
    with pytest.raises(ValueError, match="segment 'p' appears twice"):
        derived([Segment("p"), Segment("p")])


def test_a_flat_rollout_is_a_tree_with_one_leaf() -> None:
    nodes = [Segment("p", None, "prompt", 5), Segment("r0", "p", "model", 7)]
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
