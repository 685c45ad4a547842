"""Weight patches: sparse, exact updates for a sampler elsewhere, from one version to another, or refused.

Tensor by tensor a patch is sparse (places and new bits) or dense, whichever is smaller, and carries the checksum of the
tensor that must come out. A receiver at another version than the patch starts from, or whose tensors come out otherwise,
raises and keeps what it had; the sender then starts from nothing, which brings anything up to date. The formulas are in
`numerics.sparse_sync`.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch

from workbench.numerics.sparse_sync import apply_update, changed, delta_decode, delta_encode, route, union_indices

FROM_NOTHING = -1
"""Version that a full patch starts from: it fits every receiver."""

KEPT = 8
"""Versions that a sender can still bring up to date sparsely; older ones get a full patch."""

MAGIC = b"wbpatch1"


class WrongVersion(ValueError):
    """The patch starts from a version that the receiver does not hold."""


class WrongChecksum(ValueError):
    """What came out, or what arrived, is not what was sent."""


class Piece(NamedTuple):
    """One tensor: name, shape, bits (k,) uint16 at indices (k,) int64, or of all elements where indices is None; check:
    crc32 of the bits of the whole tensor afterwards."""

    name: str
    shape: tuple[int, ...]
    indices: np.ndarray | None
    bits: np.ndarray
    check: int


class Patch(NamedTuple):
    """From version `base` to `version` of one sender (origin); tensors that did not change are not in it."""

    base: int
    version: int
    pieces: tuple[Piece, ...]
    origin: str = ""

    @property
    def changed(self) -> int:
        """Elements sent."""
        return sum(len(p.bits) for p in self.pieces)

    def split(self, elements: int = 1 << 24) -> Iterator[Patch]:
        """Parts of about so many elements, to be applied in order; the version is reached with the last one.

        A receiver that got some of them only is still at base, and any later patch from there makes it whole.
        """
        part: list[Piece] = []
        for piece in self.pieces:
            if part and sum(len(p.bits) for p in part) + len(piece.bits) > elements:
                yield self._replace(pieces=tuple(part), version=self.base)
                part = []
            part.append(piece)
        yield self._replace(pieces=tuple(part))


def bits_of(tensor: torch.Tensor) -> np.ndarray:
    """(n,) uint16: the bits of a tensor rounded to bfloat16. Raises ValueError for NaN, which must not be sent."""
    flat = tensor.detach().reshape(-1)
    if bool(torch.isnan(flat).any()):
        raise ValueError(f"{int(torch.isnan(flat).sum())} weights are NaN and are not sent")
    return flat.to(torch.bfloat16).view(torch.int16).cpu().numpy().view(np.uint16)


def tensor_of(bits: np.ndarray, shape: tuple[int, ...]) -> torch.Tensor:
    """The bfloat16 tensor of bits; they share memory."""
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).reshape(shape)


class Sender:
    """Versions of a model's weights, and the patches that lead to the last one.

    origin: whose versions they are; another trainer's version 3 is not ours.
    """

    def __init__(self, origin: str = "") -> None:
        self.origin, self.version = origin, FROM_NOTHING
        self.bits: dict[str, np.ndarray] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._steps: deque[tuple[int, dict[str, np.ndarray]]] = deque(maxlen=KEPT)

    def advance(self, weights: Iterable[tuple[str, torch.Tensor]]) -> int:
        """Take over the weights as the next version, which is returned."""
        present = {name: (bits_of(tensor), tuple(tensor.shape)) for name, tensor in weights}
        step = {}
        for name, (new, shape) in present.items():
            if name in self.bits and len(indices := changed(new, self.bits[name]).indices):
                step[name] = indices
            self.bits[name], self.shapes[name] = new, shape
        self._steps.append((self.version, step))
        self.version += 1
        return self.version

    def patch(self, base: int = FROM_NOTHING) -> Patch:
        """From a version to the present one: the union of what changed since, or everything where that is not known."""
        known = {since for since, _ in self._steps}
        if base == self.version and base >= 0:
            return Patch(base, base, (), self.origin)
        if base < 0 or base not in known:
            return Patch(FROM_NOTHING, self.version, tuple(self._piece(n, None) for n in self.bits), self.origin)
        steps = [step for since, step in self._steps if since >= base]
        names = dict.fromkeys(name for step in steps for name in step)
        merged = {name: union_indices(step[name] for step in steps if name in step) for name in names}
        return Patch(base, self.version, tuple(self._piece(n, i) for n, i in merged.items()), self.origin)

    def _piece(self, name: str, indices: np.ndarray | None) -> Piece:
        bits = self.bits[name]
        if indices is not None and route(len(indices) / len(bits), index_bytes=_width(indices)) == "dense":
            indices = None
        return Piece(
            name, self.shapes[name], indices, bits if indices is None else bits[indices], zlib.crc32(bits.data)
        )


def _width(indices: np.ndarray) -> int:
    return 4 if delta_encode(indices) is None else 2


class Receiver:
    """The bits that a sampler holds, and of which version they are."""

    def __init__(self) -> None:
        self.origin, self.version = "", FROM_NOTHING
        self.bits: dict[str, np.ndarray] = {}

    def apply(self, patch: Patch) -> dict[str, torch.Tensor]:
        """The tensors that changed, in bfloat16. Raises WrongVersion or WrongChecksum and keeps what it had."""
        held = (self.origin, self.version)
        if patch.base != FROM_NOTHING and held != (patch.origin, patch.base):
            raise WrongVersion(
                f"the patch starts from version {patch.base} of {patch.origin!r}, and version {held[1]} of {held[0]!r} is held"
            )
        fresh = {}
        for name, shape, indices, bits, check in patch.pieces:
            new = np.array(bits, np.uint16)
            if indices is not None:
                if name not in self.bits:
                    raise WrongVersion(f"the patch changes {name}, which is not held")
                new = apply_update(self.bits[name], indices, bits)
            if zlib.crc32(new.data) != check or len(new) != int(np.prod(shape)):
                raise WrongChecksum(f"{name} does not come out as it was sent (version {patch.version})")
            fresh[name] = (new, shape)
        self.bits |= {name: new for name, (new, _) in fresh.items()}
        self.origin, self.version = patch.origin, patch.version
        return {name: tensor_of(new, shape) for name, (new, shape) in fresh.items()}


def to_bytes(patch: Patch) -> bytes:
    """A patch as bytes: a header in JSON, then gaps and bits tensor by tensor, and a checksum over all."""
    heads, body = [], []
    for name, shape, indices, bits, check in patch.pieces:
        head: dict[str, object] = {"name": name, "shape": shape, "check": check, "n": len(bits), "gap": 0}
        if indices is not None:
            gaps = delta_encode(indices)
            coded = indices.astype("<u4") if gaps is None else gaps.astype("<u2")
            head["gap"] = coded.itemsize
            body.append(coded.tobytes())
        body.append(bits.astype("<u2").tobytes())
        heads.append(head)
    header = json.dumps(
        {"base": patch.base, "version": patch.version, "origin": patch.origin, "pieces": heads}
    ).encode()
    whole = b"".join([len(header).to_bytes(8, "little"), header, *body])
    return MAGIC + zlib.crc32(whole).to_bytes(4, "little") + whole


def from_bytes(data: bytes) -> Patch:
    """The inverse of `to_bytes`. Raises WrongChecksum for anything damaged or cut short."""
    if data[:8] != MAGIC:
        raise WrongChecksum("these bytes are no patch")
    whole = memoryview(data)[12:]
    if zlib.crc32(whole) != int.from_bytes(data[8:12], "little"):
        raise WrongChecksum(f"the {len(data)} bytes of a patch are damaged or cut short")
    size = int.from_bytes(whole[:8], "little")
    header: Mapping = json.loads(bytes(whole[8 : 8 + size]))
    at, pieces = 8 + size, []

    def take(kind: str, n: int) -> np.ndarray:
        nonlocal at
        values = np.frombuffer(whole, kind, n, at)
        at += values.nbytes
        return values

    for head in header["pieces"]:
        indices, n = None, head["n"]
        if head["gap"]:
            coded = take(f"<u{head['gap']}", n)
            indices = delta_decode(coded) if head["gap"] == 2 else coded.astype(np.int64)
        pieces.append(Piece(head["name"], tuple(head["shape"]), indices, take("<u2", n), head["check"]))
    return Patch(header["base"], header["version"], tuple(pieces), header["origin"])
