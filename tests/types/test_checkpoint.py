"""Where rollouts pause: literal places, and that several checkpoints together pause wherever one of them does."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workbench.types.checkpoint import NOWHERE, Checkpoint, Pauses

checkpoints = st.builds(
    Checkpoint, every=st.integers(0, 9), at=st.lists(st.integers(1, 30), max_size=3).map(tuple), top=st.integers(0, 4)
)


def places(checkpoint: Checkpoint, last: int = 40) -> list[int]:
    n = np.arange(1, last)
    return n[checkpoint.counted(n)].tolist()


def test_places_are_counted_on_the_path() -> None:
    assert places(Checkpoint(every=8), 20) == [8, 16]
    assert places(Checkpoint(every=0, at=(3, 11)), 20) == [3, 11]
    assert places(Checkpoint(every=8, at=(3, 11)), 20) == [3, 8, 11, 16]
    assert Checkpoint(every=8).ahead(np.array([0, 5, 8, 15])).tolist() == [8, 3, 8, 1]
    assert Checkpoint(every=0, at=(3, 11)).ahead(np.array([0, 3, 11])).tolist() == [3, 8, NOWHERE]
    assert Checkpoint(every=0, markers=("x",)).ahead(np.array([0, 7])).tolist() == [NOWHERE, NOWHERE]


@given(st.lists(checkpoints, max_size=4), st.integers(0, 35))
def test_together_they_pause_wherever_one_does(wanted: list[Checkpoint], n: int) -> None:
    together = Pauses.of([*wanted, Pauses.of(wanted)])
    assert len(together.parts) == len(set(wanted))
    later = [p for c in wanted for p in places(c, 60) if p > n]
    assert together.ahead(np.array([n])).tolist() == [min(later) - n if later else NOWHERE]
    assert together.top == max((c.top for c in wanted), default=0)


def test_of_other_wishes_the_widest_holds() -> None:
    one, two = (
        Checkpoint(markers=("a", "b"), entropy=2.0, keeps=("x",)),
        Checkpoint(markers=("b",), entropy=1.0, hidden=True),
    )
    both = Pauses.of([one, two])
    assert (both.markers, both.entropy, both.hidden, both.keeps) == (("a", "b"), 1.0, True, ("x",))
    assert (Pauses().markers, Pauses().entropy, Pauses().hidden, Pauses().top) == ((), None, False, 0)
    assert Pauses().ahead(np.array([4])).tolist() == [NOWHERE]
