"""The password of a catalog is taken out of every text, whatever its spelling."""

from __future__ import annotations

import pytest

from workbench import Experiment
from workbench.store.lake.catalog import Lake, explained
from workbench.store.urls import redacted, secrets_of


@pytest.mark.parametrize(
    ("given", "password"),
    [
        (r"host=h password=se\ cret dbname=d", "se cret"), (r"host=h password='a \'b' dbname=d", "a 'b"),
        ("postgresql://me:p@s/w%2F@db/runs?sslmode=require", "p@s/w/"), ("postgresql://db/runs?password=a%26b&x=1", "a&b"),
        ("host=h PASSWORD = x&y dbname=d", "x&y"),
    ],
)  # fmt: skip
def test_passwords_of_every_spelling_are_known(given, password):
    shown = redacted(f"ducklake:postgres:{given}")
    assert "***" in shown and password in secrets_of(given)
    assert not any(secret in shown for secret in secrets_of(given))
    said = explained(Lake(given), RuntimeError(f"ATTACH '{given.replace(chr(39), chr(39) * 2)}' failed for {password}"))
    assert password not in said and not any(secret in said for secret in secrets_of(given))


def test_an_experiment_prints_without_it():
    assert "hunter2" not in repr(Experiment(store="ducklake:postgres:host=h password=hunter2 dbname=d?data=/x"))
