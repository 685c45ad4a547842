"""%%sql in a notebook's shell."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest
from IPython.core.interactiveshell import InteractiveShell

from workbench.store import QuestionError, ReadOnlyError, StoreError


@pytest.fixture
def shell(recorded, store):
    made = InteractiveShell.instance()
    made.user_ns.update(store=store, other=store, run=recorded.run, folder=str(recorded.folder))
    made.run_line_magic("load_ext", "workbench.store")
    yield made
    InteractiveShell.clear_instance()


QUERY = "SELECT step, count(*) AS n FROM rollouts WHERE run = $run AND purpose = 'train' GROUP BY step ORDER BY step"


def test_a_cell_is_asked_of_the_store_with_the_variables_it_names(shell):
    answer = shell.run_cell_magic("sql", "", QUERY)
    assert isinstance(answer, pd.DataFrame) and answer["n"].tolist() == [16] * 5
    assert shell.run_line_magic("sql", QUERY + " LIMIT 2")["step"].tolist() == [1, 2]
    shell.user_ns["run"] = "' OR true --"
    assert len(shell.run_cell_magic("sql", "", QUERY)) == 0


def test_the_line_names_the_store_the_format_and_where_to_keep_it(shell, recorded):
    assert shell.run_cell_magic("sql", "other -o kept -f arrow", QUERY) is None
    assert isinstance(shell.user_ns["kept"], pa.Table) and shell.user_ns["kept"]["n"].to_pylist() == [16] * 5
    assert len(shell.run_cell_magic("sql", str(recorded.folder), QUERY)) == 5


def test_what_is_wrong_is_named(shell, tmp_path):
    with pytest.raises(QuestionError, match=r"the query names \$missing; give a variable missing a value first"):
        shell.run_cell_magic("sql", "", "SELECT $missing")
    with pytest.raises(StoreError, match="there is no store"):
        shell.run_cell_magic("sql", str(tmp_path / "nowhere"), "SELECT 1")
    with pytest.raises(ReadOnlyError):
        shell.run_cell_magic("sql", "", "DELETE FROM rollouts")
    with pytest.raises(ReadOnlyError):
        shell.run_cell_magic("sql", "", "SELECT * FROM read_text('/etc/hostname')")
    with pytest.raises(QuestionError, match=r"unrecognized arguments: .*; write %%sql \[STORE\]"):
        shell.run_cell_magic("sql", "store -x", "SELECT 1")
