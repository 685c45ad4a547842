"""Patches of weights: what arrives is what was sent, bit for bit, or it is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workbench.worlds.engines import patches
from workbench.worlds.engines.patches import Receiver, Sender, WrongChecksum, WrongVersion, from_bytes, to_bytes

FLOATS = st.floats(-4, 4, width=32)


def weights(*columns):
    return [(f"w{i}", torch.from_numpy(np.array(c, np.float32).copy())) for i, c in enumerate(columns)]


def bits(tensors):
    return {n: t.to(torch.bfloat16).view(torch.int16).tolist() for n, t in tensors}


@given(st.lists(st.tuples(arrays(np.float32, 40, elements=FLOATS), arrays(np.float32, (3, 5), elements=FLOATS)), min_size=2, max_size=6), st.data())  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_any_receiver_is_brought_to_the_present_bit_for_bit(versions, data):
    sender, receivers = Sender(), []
    for version in versions:
        sender.advance(weights(*version))
        receiver = Receiver()
        receiver.apply(from_bytes(to_bytes(sender.patch())))
        receivers.append(receiver)
    want = {n: t.to(torch.bfloat16).view(torch.int16).reshape(-1).tolist() for n, t in weights(*versions[-1])}
    for receiver in receivers:
        fresh = receiver.apply(from_bytes(to_bytes(sender.patch(receiver.version))))
        assert {n: b.view(np.int16).tolist() for n, b in receiver.bits.items()} == want
        assert receiver.version == len(versions) - 1
        assert all(t.dtype == torch.bfloat16 for t in fresh.values())
        assert {n: tuple(t.shape) for n, t in fresh.items()}.items() <= {"w0": (40,), "w1": (3, 5)}.items()


def test_only_what_changed_is_sent_and_the_smaller_way():
    start = np.linspace(1, 2, 1000)
    few, many = start.copy(), start.copy()
    few[[3, 900]] += 1
    many[:700] += 1
    sender = Sender()
    sender.advance(weights(start, start, start))
    sender.advance(weights(start, few, many))
    patch = sender.patch(0)
    assert [(p.name, None if p.indices is None else p.indices.tolist()) for p in patch.pieces] == [
        ("w1", [3, 900]),
        ("w2", None),
    ]
    assert patch.changed == 2 + 1000
    assert len(to_bytes(sender.patch(0))) < 2 * 1000 + 500 < len(to_bytes(sender.patch()))


def test_updates_that_rounding_absorbs_cost_nothing_and_the_version_moves():
    sender, receiver = Sender(), Receiver()
    sender.advance(weights([1.0, 2.0]))
    receiver.apply(sender.patch())
    sender.advance(weights([1.001, 2.001]))
    patch = sender.patch(receiver.version)
    assert (patch.base, patch.version, patch.pieces) == (0, 1, ())
    assert receiver.apply(patch) == {}
    assert receiver.version == 1
    assert sender.patch(1) == (1, 1, (), "")


def test_gaps_too_wide_for_two_bytes_take_four():
    start = np.ones(200_000)
    later = start.copy()
    later[[5, 150_000]] = 3
    sender, receiver = Sender(), Receiver()
    sender.advance(weights(start))
    receiver.apply(sender.patch())
    sender.advance(weights(later))
    receiver.apply(from_bytes(to_bytes(sender.patch(0))))
    assert receiver.bits["w0"].tolist() == sender.bits["w0"].tolist()


def test_a_receiver_at_another_version_refuses_and_a_full_patch_helps():
    sender, receiver = Sender(), Receiver()
    for k in range(3):
        sender.advance(weights([1.0 + k, 2.0, 3.0, 4.0, 5.0]))
    with pytest.raises(WrongVersion, match="from version 1 of '', and version -1 of '' is held"):
        receiver.apply(sender.patch(1))
    assert receiver.bits == {}
    receiver.apply(sender.patch())
    assert receiver.version == 2
    for _ in range(patches.KEPT + 1):  # too long ago
        sender.advance(weights([9.0, 2.0, 3.0, 4.0, 5.0]))
    assert sender.patch(2).base == patches.FROM_NOTHING
    assert sender.patch(77).base == patches.FROM_NOTHING


def test_a_receiver_whose_weights_were_touched_refuses_and_keeps_them():
    sender, receiver = Sender(), Receiver()
    sender.advance(weights([1.0] * 10, [1.0] * 10))
    receiver.apply(sender.patch())
    sender.advance(weights([2.0] + [1.0] * 9, [2.0] + [1.0] * 9))
    receiver.bits["w1"][7] += 1
    held = {n: b.tolist() for n, b in receiver.bits.items()}
    with pytest.raises(WrongChecksum, match=r"w1 does not come out as it was sent \(version 1\)"):
        receiver.apply(sender.patch(0))
    assert {n: b.tolist() for n, b in receiver.bits.items()} == held
    assert receiver.version == 0


@pytest.mark.parametrize("at", [0, 9, 30, -1])
def test_damaged_bytes_are_refused(at):
    sender = Sender()
    sender.advance(weights([1.0, 2.0, 3.0]))
    data = bytearray(to_bytes(sender.patch()))
    data[at] ^= 1
    with pytest.raises(WrongChecksum):
        from_bytes(bytes(data))
    with pytest.raises(WrongChecksum, match="cut short"):
        from_bytes(to_bytes(sender.patch())[:-2])


def test_nan_is_refused_at_the_source():
    with pytest.raises(ValueError, match="1 weights are NaN"):
        Sender().advance(weights([1.0, np.nan]))


def test_versions_of_another_trainer_are_not_ours():
    ours, theirs, receiver = Sender("ours"), Sender("theirs"), Receiver()
    for sender in (ours, theirs):
        sender.advance(weights([1.0, 2.0, 3.0, 4.0]))
        sender.advance(weights([1.0, 2.0, 3.0, 5.0]))
    receiver.apply(theirs.patch())
    ours.advance(weights([1.0, 2.0, 3.0, 6.0]))
    with pytest.raises(WrongVersion, match="from version 1 of 'ours', and version 1 of 'theirs' is held"):
        receiver.apply(ours.patch(1))


def test_parts_reach_the_version_with_the_last_one_and_may_be_broken_off():
    sender, receiver = Sender("a"), Receiver()
    sender.advance(weights(*np.ones((5, 40))))
    parts = list(sender.patch().split(100))
    assert [(len(p.pieces), p.version) for p in parts] == [(2, -1), (2, -1), (1, 0)]
    for part in parts:
        receiver.apply(from_bytes(to_bytes(part)))
    later = np.ones((5, 40))
    later[:, 3] = 2
    sender.advance(weights(*later))
    first, *_ = sender.patch(0).split(2)
    receiver.apply(first)
    assert receiver.version == 0
    later[0, 4] = 7
    sender.advance(weights(*later))
    for part in sender.patch(receiver.version).split(2):
        receiver.apply(part)
    assert {n: b.tolist() for n, b in receiver.bits.items()} == {n: b.tolist() for n, b in sender.bits.items()}
    assert receiver.version == 2
    assert [p.pieces for p in sender.patch(2).split(2)] == [()]


def test_a_version_with_nan_is_not_taken_over_at_all():
    sender = Sender()
    sender.advance(weights([1.0], [2.0]))
    with pytest.raises(ValueError, match="NaN"):
        sender.advance(weights([3.0], [np.nan]))
    assert sender.version == 0
    assert sender.bits["w0"].tolist() == [0x3F80]
