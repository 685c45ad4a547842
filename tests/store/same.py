"""Equality by value of steps and states."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import numpy as np

from workbench.types import Ragged


def same(one, two, where=""):
    """Equal by value, all the way down; NaN equals NaN."""
    if is_dataclass(one):
        for f in fields(one):
            same(getattr(one, f.name), getattr(two, f.name), f"{where}.{f.name}")
    elif isinstance(one, Ragged):
        same(one.values, two.values, where)
        same(one.offsets, two.offsets, where)
    elif hasattr(one, "items"):
        assert set(one) == set(two), where
        for name in one:
            same(one[name], two[name], f"{where}[{name}]")
    elif isinstance(one, (tuple, list)):
        assert type(one) is type(two) and len(one) == len(two), where
        for i, (a, b) in enumerate(zip(one, two, strict=True)):
            same(a, b, f"{where}[{i}]")
    elif isinstance(one, np.ndarray) and one.dtype == object:
        assert one.tolist() == two.tolist(), where
    elif isinstance(one, np.ndarray):
        assert one.dtype == two.dtype and one.shape == two.shape, (where, one.dtype, two.dtype)
        np.testing.assert_array_equal(one, two, where)
    elif isinstance(one, float):
        np.testing.assert_equal(two, one, where)
    else:
        assert one == two, (where, one, two)


def rounded(table) -> list[str]:
    """The rows of a table as sorted text: sums of floats to 12 digits, since compaction changes the order of rows."""

    def short(value):
        if isinstance(value, float):
            return float(f"{value:.12g}")
        if isinstance(value, (list, tuple)):
            return type(value)(map(short, value))
        return {k: short(v) for k, v in value.items()} if isinstance(value, dict) else value

    return sorted(str(short(row)) for row in table.to_pylist())
