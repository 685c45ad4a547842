"""Statements that never end, or want all memory; what one of them takes is measured from outside its process."""

import threading
import time
from typing import NamedTuple

import psutil

from workbench.views.data.run import Source
from workbench.views.data.sql import ask
from workbench.views.data.sql_processes import Workers

STATEMENTS = {
    "recursion": "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
    "recursion that grows": "WITH RECURSIVE r AS (SELECT 'x' AS s UNION ALL SELECT s || s FROM r) SELECT max(length(s)) FROM r",
    "recursion of distinct rows": "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT n + 1 FROM r) SELECT count(*) FROM r",
    "cross join": "SELECT count(*) FROM range(10000000) a, range(10000000) b",
    "cross join sorted": "SELECT * FROM range(100000) a(i), range(100000) b(j) ORDER BY hash(i, j) LIMIT 500000000",
    "distinct": "SELECT count(*) FROM (SELECT DISTINCT a.i * b.j FROM range(1000000) a(i), range(1000000) b(j))",
    "repeat": "SELECT length(repeat('x', 4000000000))",
    "repeat of repeats": "SELECT sum(length(repeat(repeat('x', 1000000 + i), 1000))) FROM range(100000) t(i)",
    "repeat returned": "SELECT repeat('x', 200000000 + i) FROM range(1000) t(i)",
    "lpad": "SELECT sum(length(lpad('x', 300000000 + i::INT, 'y'))) FROM range(1000) t(i)",
    "levenshtein": "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))",
    "levenshtein of rows": "SELECT sum(levenshtein(a.text, b.text)) FROM completions a, completions b, range(100000)",
    "jaro": "SELECT jaro_similarity(repeat('ab', 2000000), repeat('ba', 2000000))",
    "regex": "SELECT sum(length(regexp_replace(repeat('a', 1000000 + i::INT), '(a*)*b', 'c', 'g'))) FROM range(10000) t(i)",
    "regex split": "SELECT len(regexp_split_to_array(repeat('ab', 300000000), 'b'))",
    "list": "SELECT list(i) FROM range(10000000000) t(i)",
    "list of lists": "SELECT list_transform(range(100000), x -> range(100000))",
    "list aggregate": "SELECT list_reduce(range(100000000), (x, y) -> x + y)",
    "generate_series": "SELECT unnest(generate_series(1, 10000000000)) AS i ORDER BY hash(i)",
    "unnest": "SELECT count(*) FROM (SELECT unnest(range(1000000000)))",
    "text aggregate": "SELECT string_agg(repeat('x', 1000), ',') FROM range(1000000000)",
    "json": "SELECT json_array_length(to_json(list_transform(range(100000000), x -> {'a': x, 'b': [x, x, x]})))",
    "json text": "SELECT length(json('[' || repeat('[1,2,3],', 100000000) || '1]'))",
    "map": "SELECT map_from_entries(list_transform(range(100000000), x -> {'k': x, 'v': x::VARCHAR}))",
    "window": "SELECT median(i) OVER (ORDER BY i ROWS BETWEEN 5000000 PRECEDING AND 5000000 FOLLOWING) AS m FROM range(100000000) t(i) ORDER BY m",
    "format": "SELECT length(format('{:>2000000000}', 1))",
    "numbers": "SELECT sum(factorial(33) % (i + 1)) FROM range(100000000000) t(i)",
    "bits": "SELECT bit_count(repeat('1', 2000000000)::BIT)",
    "many columns": "SELECT * FROM " + ", ".join(f"(SELECT * FROM rollouts LIMIT 1000) t{i}" for i in range(60)),
    "nested": "SELECT " + "(" * 3000 + "1" + ")" * 3000,
    "wide answer": "SELECT " + ", ".join(f"repeat('x', 1000) AS c{i}" for i in range(300)) + " FROM range(1001)",
}  # fmt: skip
"""Name -> statement."""


class Taken(NamedTuple):
    """What a statement took: seconds until there was an answer or an error, the most bytes its process held beyond those
    that it held before, and what was said ("" for an answer)."""

    seconds: float
    memory: int
    problem: str


def taken(source: Source, statement: str) -> Taken:
    """Ask, and watch the process that answers."""
    ask(source, "SELECT 1")  # a process that has opened the store waits
    process = psutil.Process(source.workers._idle.process.pid)
    before = most = process.memory_info().rss
    over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.01):
            try:
                most = max(most, process.memory_info().rss)
            except psutil.NoSuchProcess:
                return

    watching = threading.Thread(target=watch)
    watching.start()
    began, problem = time.perf_counter(), ""
    try:
        ask(source, statement)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - began
    over.set()
    watching.join()
    return Taken(seconds, most - before, problem)


def limited(url: str, limits) -> Source:
    """A source of its own whose statements have other limits."""
    source = Source(url)
    source.workers = Workers(url, limits)
    return source
