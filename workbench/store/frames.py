"""Formats of a query result: Arrow, pandas or polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from workbench.store.errors import QuestionError

if TYPE_CHECKING:
    import pandas
    import polars

    Frame = pa.Table | pandas.DataFrame | polars.DataFrame
else:
    Frame = Any

FORMATS = ("arrow", "pandas", "polars")


def check_format(format: str) -> None:
    """Raise QuestionError for a format that is not known, before a query is made for it."""
    if format not in FORMATS:
        raise QuestionError(f"an answer comes as {', '.join(FORMATS)}, not as {format!r}")


def framed(table: pa.Table, format: str) -> Frame:
    """The table in a format; QuestionError names what to install where it is missing."""
    check_format(format)
    if format == "arrow":
        return table
    try:
        if format == "pandas":
            return table.to_pandas()
        import polars

        return polars.from_arrow(table)
    except ImportError as error:
        raise QuestionError(f"format {format!r} needs the package: pip install {format}") from error
