"""Tasks from files and tables, and what they say when a table is not right."""

import json

import numpy as np
import pytest

from workbench import tasks


def write(path, rows):
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows), encoding="utf-8")
    return path


SUMS = [{"prompt": f"What is {i} + {i}?", "answer": 2 * i} for i in range(40)]


def test_a_file_of_json_lines(tmp_path):
    task = tasks.load(str(write(tmp_path / "sums.jsonl", SUMS)), verifier="numeric")
    assert (task.name, len(task.pool), len(task.evaluation), task.max_tokens, task.stop) == ("sums", 36, 4, 256, ())
    assert not set(task.pool.text) & set(task.evaluation.text)
    row = task.pool.text.tolist().index("What is 7 + 7?")
    assert task.pool.answer[row] == "14"
    assert task.pool.ids[row].endswith("-0")
    assert task.pool.stratum[row] == "all"


def test_the_evaluation_set_follows_content_and_not_order_or_seed(tmp_path):
    a = tasks.load(write(tmp_path / "a.jsonl", SUMS), eval_share=0.25)
    b = tasks.load(write(tmp_path / "b.jsonl", SUMS[::-1]), eval_share=0.25, seed=5)
    assert len(a.evaluation) == 10
    assert set(a.evaluation.text) == set(b.evaluation.text)
    few = tasks.load(SUMS, size=5, seed=1)
    other = tasks.load(SUMS, size=5, seed=2)
    assert len(few.pool) == len(other.pool) == 5
    assert few.pool.text.tolist() != other.pool.text.tolist()
    assert few.evaluation.ids.tolist() == other.evaluation.ids.tolist()


def test_optional_columns_and_own_names(tmp_path):
    rows = [{"q": f"{i}?", "a": "x", "kind": "k", "start": "It is", "key": f"r{i}"} for i in range(12)]
    task = tasks.load(rows, prompt="q", answer="a", stratum="kind", prefix="start", id="key", evaluation=1)
    assert task.pool.prefix[0] == "It is"
    assert task.pool.stratum[0] == "k"
    assert sorted([*task.pool.ids, *task.evaluation.ids])[:2] == ["r0", "r1"]


def test_a_separate_evaluation_file_is_taken_out_of_the_pool(tmp_path):
    task = tasks.load(SUMS, evaluation=write(tmp_path / "eval.jsonl", [*SUMS[:3], {"prompt": "New?", "answer": "1"}]))
    assert len(task.evaluation) == 4
    assert len(task.pool) == 37
    assert task.notes == ("3 prompts of the evaluation set were taken out of the pool.",)


def test_copies_are_left_out_and_two_answers_of_one_prompt_stay_on_one_side():
    rows = [{"prompt": f"{i % 10}?", "answer": "a" if i < 20 else "b"} for i in range(40)]
    task = tasks.load(rows, eval_share=0.5)
    assert task.notes == ("20 copies were left out.",)
    assert len(task.pool) == len(task.evaluation) == 10
    assert not set(task.pool.text) & set(task.evaluation.text)


def test_messages_stay_messages():
    rows = [{"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{i}?"}], "answer": "1"}
            for i in range(5)]  # fmt: skip
    task = tasks.load(rows)
    assert task.pool.text[0] in {f"Be brief.\n{i}?" for i in range(5)}
    assert json.loads(task.pool.extra["messages"][0])[0] == {"role": "system", "content": "Be brief."}


def test_a_dataset_a_saved_folder_and_a_split(tmp_path):
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_list([{"prompt": r["prompt"], "answer": str(r["answer"])} for r in SUMS])
    ids = sorted(tasks.load(table).pool.ids)
    table.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": table.select(range(30)), "test": table.select(range(30, 40))}).save_to_disk(
        tmp_path / "two"
    )
    assert sorted(tasks.load(tmp_path / "one").pool.ids) == ids
    assert len(tasks.load(tmp_path / "two", split="test", evaluation=3).pool) == 9
    with pytest.raises(ValueError, match="no split 'dev'; there are train, test"):
        tasks.load(tmp_path / "two", split="dev")


def test_parquet_csv_and_a_json_array(tmp_path):
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    table = pa.Table.from_pylist(SUMS)
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    pa.csv.write_csv(table, tmp_path / "t.csv")
    (tmp_path / "t.json").write_text(json.dumps(SUMS))
    ids = [tasks.load(tmp_path / f"t.{end}").pool.ids.tolist() for end in ("parquet", "csv", "json")]
    assert ids[0] == ids[1] == ids[2]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {}, "t has no rows"),
        (["", "  "], {}, "t has no rows"),
        (['{"prompt": "a", "answer": "b"}', "", "{oops"], {}, r"t.jsonl, line 3: invalid JSON \(Expecting property"),
        (["[1, 2]"], {}, "line 1: an object with columns was expected, not list"),
        ([{"ask": "a", "answer": "b"}], {}, "no column 'prompt' for the prompt; its columns are ask, answer"),
        ([{"prompt": "a", "gold": "b"}], {}, "no column 'answer' for the answer; its columns are prompt, gold"),
        ([{"prompt": "a", "answer": "b"}], {"stratum": "level"}, "no column 'level' for the stratum"),
        ([*SUMS[:2], {"prompt": "a", "answer": None}], {}, "row 3: the answer is null"),
        ([*SUMS[:2], {"prompt": "a"}], {}, "row 3: the answer is null"),
        (['{"prompt": "a", "answer": NaN}'], {}, "row 1: the answer is null"),
        ([{"prompt": "a", "answer": [1]}], {}, "row 1: the answer is list; a text or a number is wanted"),
        ([{"prompt": " ", "answer": "b"}], {}, "row 1: the prompt is ' '; a text or a list of messages"),
        ([{"prompt": None, "answer": "b"}], {}, "row 1: the prompt is empty"),
        ([{"prompt": [{"role": "user"}], "answer": "b"}], {}, "row 1: the prompt is .* a text or a list of messages"),
        ([{"prompt": "a", "answer": "b"}], {"verifier": "numeric"}, "row 1 'b' is not one number"),
        (['{"prompt": "a\\ud800", "answer": "b"}'], {}, "row 1: a text holds half a surrogate pair"),
        (SUMS[:1], {}, "1 prompt cannot give both a pool and an evaluation set"),
        (SUMS, {"eval_share": 1.5}, "eval_share=1.5"),
        ([{**r, "id": "same"} for r in SUMS], {}, "prompt ids must be unique"),
    ],
)
def test_what_a_table_is_told(tmp_path, rows, options, message):
    with pytest.raises(ValueError, match=message):
        tasks.load(write(tmp_path / "t.jsonl", rows), **options)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file nowhere"):
        tasks.load("nowhere.jsonl")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        tasks.load(tmp_path / "b.jsonl")
    (tmp_path / "c.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"c\.xlsx is no \.jsonl"):
        tasks.load(tmp_path / "c.xlsx")


def test_all_prompts_in_the_evaluation_table():
    with pytest.raises(ValueError, match="all 40 prompts are in the evaluation set"):
        tasks.load(SUMS, evaluation=SUMS)


def test_the_verifier_looks_at_a_number_at_the_end_of_reasoning():
    task = tasks.load(
        [{"question": f"q{i}", "answer": f"{i} + {i} = {2 * i}\n#### {2 * i}"} for i in range(10)],
        prompt="question",
        verifier="numeric",
    )
    row = task.pool.text.tolist().index("q4") if "q4" in task.pool.text else 0
    gold = task.pool.answer[row].split()[-1]
    v = task.verifier([f"3 apples and then \\boxed{{{gold}}} of 99", "no idea"], task.pool, np.array([row, row]))
    assert v.correct.tolist() == [1.0, 0.0]
    assert v.answer.tolist() == [gold, None]
