"""Fixtures of the tests of the shared catalog: a server for a module, a new store for a test."""

from __future__ import annotations

import importlib.util
from itertools import count

import duckdb
import postgres_server
import pytest

NUMBERS = count()


def why_not() -> str | None:
    """Why a shared catalog cannot be tested here."""
    for name in ("ducklake", "postgres"):
        if importlib.util.find_spec(f"duckdb_extension_{name}") is None:
            return f"DuckDB's extension {name} is not installed: pip install 'rollout-workbench[lake]'"
    if duckdb.__version__ != "1.5.5":
        return f"the packaged extensions are for duckdb 1.5.5, this is {duckdb.__version__}"
    return postgres_server.missing()


@pytest.fixture(scope="module")
def server():
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    running = postgres_server.Server()
    yield running
    running.remove()


@pytest.fixture
def url(server, tmp_path):
    """The URL of a store that is not there yet, in a database of its own."""
    return made_url(server, tmp_path / "data")


def made_url(server, data) -> str:
    name = f"runs{next(NUMBERS)}"
    server.sql(f"CREATE DATABASE {name}")
    return f"ducklake:postgres:{server.conninfo(name)}?data={data}"


def database(url: str) -> str:
    return url.split("dbname=")[1].split("?")[0]
