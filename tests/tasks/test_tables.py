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


def test_ids_follow_content_whatever_rows_stand_around():
    ids = lambda rows: set(tasks.load(rows, evaluation=1).pool.ids) | set(tasks.load(rows, evaluation=1).evaluation.ids)  # noqa: E731
    before = ids(SUMS)
    assert ids(SUMS[::-1]) == before
    assert ids([{"prompt": "New?", "answer": "1"}, *SUMS]) > before
    assert ids([*SUMS, *SUMS]) == before


@pytest.mark.parametrize(
    "twins", [("a question", "a question "), ("a question\r\n", "a question"), ("a  question", "a\u00a0question"), ("caf\u00e9?", "cafe\u0301?"),
              ("\ufeffa question", "a question"), ("a\u200b question", "a question")],
)  # fmt: skip
def test_near_copies_stay_on_one_side(twins, tmp_path):
    for extra in range(20):
        rows = [{"prompt": t, "answer": "1"} for t in twins] + [
            {"prompt": f"f {extra} {i}", "answer": "2"} for i in range(6)
        ]
        task = tasks.load(rows, evaluation=3)
        assert len({*task.pool.text} & {*twins}) in (0, 2)
    apart = tasks.load(rows, evaluation=[{"prompt": twins[0], "answer": "1"}])
    assert not {*apart.pool.text} & {*twins}
    turns = [{"role": "user", "content": twins[1]}]
    assert not {*tasks.load(rows, evaluation=[{"prompt": turns, "answer": "1"}]).pool.text} & {*twins}


def test_ids_of_two_tables_say_nothing_of_one_another():
    task = tasks.load(
        [{**r, "id": str(i)} for i, r in enumerate(SUMS)],
        evaluation=[{"prompt": f"Capital {i}?", "answer": "x", "id": str(i)} for i in range(5)],
    )
    assert len(task.pool) == 40
    assert not set(task.pool.ids) & set(task.evaluation.ids)


TEXTS = ["007", "1.50", "2024-01-02", "True", "1e5", "0x1F", "NA", "+3", "1,000", "two\nlines", "\u2028 x"]


@pytest.mark.parametrize("end", [".csv", ".tsv", ".csv.gz", ".tsv.gz"])
def test_cells_of_a_text_table_stay_as_they_are_written(tmp_path, end):
    import csv
    import gzip

    opened = gzip.open if end.endswith(".gz") else open
    with opened(tmp_path / f"t{end}", "wt", newline="", encoding="utf-8") as file:
        out = csv.writer(file, delimiter="\t" if "tsv" in end else ",")
        out.writerows([["id", "prompt", "answer"], *([f"0{i}", f"q{i}?", a] for i, a in enumerate(TEXTS))])
    task = tasks.load(tmp_path / f"t{end}", evaluation=1)
    assert task.name == "t"
    got = dict(zip([*task.pool.ids, *task.evaluation.ids], [*task.pool.answer, *task.evaluation.answer], strict=True))
    assert got == {f"0{i}": a for i, a in enumerate(TEXTS)}


@pytest.mark.parametrize(
    ("text", "message"),
    [("prompt,answer\na,1,2\n", "line 2: 3 cells where the header has 2"), ("prompt,prompt\na,1\n", "the column 'prompt' more than once"),
     ("prompt,answer\na,\nb,1\n", "row 1: the answer is null"), ('prompt,answer\n"a,1\n', "line 2: unexpected end of data")],
)  # fmt: skip
def test_what_a_text_table_is_told(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        tasks.load(tmp_path / "t.csv")


def test_numbers_are_written_without_a_needless_point_or_exponent(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    whole = [{"prompt": f"{i}?", "answer": a} for i, a in enumerate([72.0, 1e22, 1e-7, 2.5, 10**30])]
    task = tasks.load(whole, evaluation=1, id="prompt")
    got = dict(zip([*task.pool.ids, *task.evaluation.ids], [*task.pool.answer, *task.evaluation.answer], strict=True))
    assert [got[f"{i}?"] for i in range(5)] == ["72", "1" + "0" * 22, "0.0000001", "2.5", "1" + "0" * 30]
    table = {
        "prompt": ["a?", "b?", "c?"],
        "answer": pa.array([0.1, 72, 3], pa.float32()),
        "id": pa.array([1.0, None, 3.0]),
    }
    pa.parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    task = tasks.load(tmp_path / "t.parquet", evaluation=1)
    assert {*task.pool.answer, *task.evaluation.answer} == {"0.1", "72", "3"}
    assert {"1", "3"} < {*task.pool.ids, *task.evaluation.ids}
    with pytest.raises(ValueError, match="row 1: the answer is inf"):
        tasks.load([{"prompt": "a", "answer": float("inf")}])


def test_a_folder_of_shards_and_compressed_lines(tmp_path):
    import gzip

    import pyarrow as pa
    import pyarrow.parquet

    for i in range(2):
        pa.parquet.write_table(
            pa.Table.from_pylist(SUMS[20 * i : 20 * i + 20]), tmp_path / f"train-0000{i}-of-00002.parquet"
        )
    pa.parquet.write_table(pa.Table.from_pylist(SUMS[:5]), tmp_path / "test-00000-of-00001.parquet")
    (tmp_path / "dataset_infos.json").write_text("{}")
    task = tasks.load(tmp_path)
    assert (task.name, len(task.pool) + len(task.evaluation)) == (tmp_path.name, 40)
    assert len(tasks.load(tmp_path, split="test", evaluation=1).pool) == 4
    with pytest.raises(ValueError, match="has no split 'dev'; there are test, train"):
        tasks.load(tmp_path, split="dev")
    lines = tmp_path / "lines"
    lines.mkdir()
    with gzip.open(lines / "a.jsonl.gz", "wt") as file:
        file.write("\n".join(map(json.dumps, SUMS[:20])))
    write(lines / "b.jsonl", SUMS[20:])
    assert {*tasks.load(lines).pool.ids} == {*task.pool.ids}
    assert len(tasks.load(lines / "a.jsonl.gz").pool) == 18
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="the folder none has no table"):
        tasks.load(tmp_path / "none")
    (tmp_path / "broken.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(ValueError, match=r"broken.jsonl.gz cannot be read"):
        tasks.load(tmp_path / "broken.jsonl.gz")


def test_nested_columns_and_messages_with_parts():
    rows = [
        {
            "prompt": [{"role": "user", "content": [{"type": "text", "text": f"What is {i} + "}, {"type": "text", "text": "1?"}]}],
            "reward_model": {"ground_truth": str(i + 1), "style": "rule"},
            "extra_info": {"index": i},
        }
        for i in range(10)
    ]  # fmt: skip
    task = tasks.load(rows, answer="reward_model.ground_truth", id="extra_info.index", verifier="numeric", evaluation=1)
    row = task.pool.ids.tolist().index("7") if "7" in task.pool.ids else task.pool.ids.tolist().index("8")
    assert task.pool.text[row] == f"What is {task.pool.ids[row]} + 1?"
    assert int(task.pool.answer[row]) == int(task.pool.ids[row]) + 1
    assert task.notes == ()
    with pytest.raises(ValueError, match=r"its columns are prompt, reward_model.ground_truth, .*--columns answer="):
        tasks.load(rows)
    rows[0]["prompt"][0]["content"].append({"type": "image", "image": "cat.png"})
    with pytest.raises(ValueError, match="row 1: a message holds image"):
        tasks.load(rows, answer="reward_model.ground_truth")


def test_columns_that_are_not_used_are_told_once():
    rows = [{**r, "level": i % 3, "source": "made", "empty": None} for i, r in enumerate(SUMS)]
    assert tasks.load(rows).notes == ("Columns not used: level, source.",)
    assert tasks.load(rows, stratum="level", ignore=["source"]).notes == ()
    assert tasks.load([{"question": r["prompt"], "answer": r["answer"]} for r in SUMS]).notes == (
        "The prompt is the column 'question', for rows has none named prompt.",
    )
    with pytest.raises(ValueError, match="no column 'sauce' to ignore"):
        tasks.load(rows, ignore=["sauce"])


@pytest.mark.parametrize(
    "column", [{"image": {"bytes": b"x", "path": None}}, {"pictures": [b"x"]}, {"tools": [{"name": "search"}]}, {"system": "Be brief."},
               {"audio": "a.wav"}],
)  # fmt: skip
def test_columns_that_a_model_cannot_be_asked_without_are_refused(column):
    rows = [{**r, **column} for r in SUMS]
    name = next(iter(column))
    with pytest.raises(ValueError, match=rf"the column '{name}' holds .*ignore=\['{name}'\]"):
        tasks.load(rows)
    assert tasks.load(rows, ignore=[name]).notes == ()
    assert len(tasks.load([{**r, name: None} for r in SUMS]).pool) == 36


def test_a_verifier_finds_the_other_columns_in_its_row():
    def in_range(completion, answer, row):
        return row["low"] <= int(completion) <= row["limits"]["high"] and row["stratum"] == "all"

    rows = [{**r, "low": i, "limits": {"high": i + 2}} for i, r in enumerate(SUMS)]
    task = tasks.load(rows, verifier=in_range, evaluation=1)
    assert "Columns not used: low, limits; the verifier finds them in row." in task.notes
    row = task.pool.text.tolist().index("What is 7 + 7?")
    assert task.verifier(["9", "10"], task.pool, np.array([row, row])).correct.tolist() == [1.0, 0.0]
    task.verifier.close()
