"""What a query may be: EXPLAIN stands before a SELECT only, and no function that acts is called."""

import duckdb
import pytest

from workbench.store import Store
from workbench.store.errors import ReadOnlyError

COPY = "COPY (SELECT 1) TO '{inside}/x.json' (FORMAT json)"


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    "query",
    [
        f"EXPLAIN ANALYZE {COPY}", f"EXPLAIN (ANALYZE) {COPY}", f"EXPLAIN (ANALYZE, FORMAT json) {COPY}", f"EXPLAIN {COPY}",
        f"/* a */ -- b\n explain /* c */ analyze -- d\n {COPY}", f"EXPLAIN ANALYZE /* /* */ SELECT 1 -- */ */ {COPY}",
        f"EXPLAIN /* /* */ SELECT 1; -- */ */ ANALYZE {COPY}", "EXPLAIN ANALYZE SET threads = 1",
        "EXPLAIN ANALYZE CALL enable_logging()", "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1",
        "EXPLAIN ANALYZE INSERT INTO alive VALUES ('x')", "EXPLAIN SELECT * FROM enable_logging()",
        "EXPLAIN ANALYZE SELECT * FROM enable_logging()", "EXPLAIN (ANALYZE) FROM enable_logging()",
    ],
)  # fmt: skip
def test_explain_stands_before_a_select_only(store, tmp_path, query):
    with pytest.raises((ReadOnlyError, duckdb.ParserException)):  # the latter of comments in comments
        store.sql(query.format(inside=tmp_path))
    assert not list(tmp_path.rglob("x.json"))
    assert store.sql("SELECT current_setting('enable_logging') AS on")["on"].to_pylist() == [False]


@pytest.mark.parametrize(
    "query",
    [
        "EXPLAIN SELECT 1", "EXPLAIN ANALYZE SELECT count(*) FROM rollouts", "EXPLAIN (ANALYZE) SELECT 1",
        "EXPLAIN (FORMAT json) SELECT 1", "-- a\n/* b */ EXPLAIN /* c */ (ANALYZE, FORMAT json) FROM runs",
        "EXPLAIN (SELECT 1)", "explain(select 1)", "EXPLAIN WITH x AS (SELECT 1) FROM x;",
    ],
)  # fmt: skip
def test_a_select_is_explained(store, query):
    assert store.sql(query).num_rows >= 1


def test_a_parameter_may_stand_in_what_is_explained(store):
    assert store.sql("EXPLAIN SELECT * FROM runs WHERE run = $run", {"run": "x"}).num_rows >= 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM enable_logging('QueryLog', storage='file', storage_path='{inside}/logs')",
        "FROM Enable_Logging /* a */ ()", 'SELECT * FROM "enable_logging"()', "SELECT * FROM disable_logging()",
        "SELECT * FROM system.main.enable_logging()", "SELECT (SELECT count(*) FROM enable_logging())",
        "WITH x AS (FROM enable_logging()) SELECT 1", "SUMMARIZE FROM enable_logging()", "FROM enable_profiling()",
        "SELECT write_log('x')", "SELECT ('x').write_log()", "FROM truncate_duckdb_logs()", "FROM checkpoint()",
        "FROM force_checkpoint()", "FROM query('SELECT 1')", "FROM query_table('runs')",
        "FROM query('SELECT * FROM enable_' || 'logging()')", "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
        "SELECT 1 UNION ALL SELECT 2 FROM enable_logging()", "SELECT 1 ORDER BY (SELECT 1 FROM enable_logging())",
        "PIVOT (SELECT 1 AS a FROM enable_logging()) ON a IN (1) USING count(*)",
        "CALL enable_logging()", "PRAGMA enable_profiling", "PRAGMA enable_logging", "SET threads = 1", "RESET threads",
        "EXECUTE x", "PREPARE x AS SELECT 1",
    ],
)  # fmt: skip
def test_functions_that_act_are_refused(store, tmp_path, query):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((ReadOnlyError, duckdb.CatalogException) if query == "PRAGMA enable_logging" else ReadOnlyError):
        store.sql(query.format(inside=tmp_path))
    assert sorted(tmp_path.rglob("*")) == before
    assert store.sql("SELECT current_setting('enable_logging') AS on")["on"].to_pylist() == [False]


def test_their_names_may_stand_in_texts_and_columns(store):
    found = store.sql("SELECT 'enable_logging()' AS query, set_bit('010'::BIT, 0, 1)::VARCHAR AS bits -- query(")
    assert found.to_pylist() == [{"query": "enable_logging()", "bits": "110"}]
    assert store.sql('SELECT query FROM (SELECT 1 AS query) WHERE query > 0 AND "query" < 2').num_rows == 1
