"""What the views read from a recorded run, and what they draw of it."""

import duckdb
import numpy as np
import pytest

from workbench import Budget, Experiment
from workbench.analysis import evaluation
from workbench.methods.dapo_dynamic_sampling import DapoDynamicSampling
from workbench.methods.grpo import Grpo
from workbench.pipeline import Pipeline
from workbench.runs.run import Run
from workbench.store import Store
from workbench.store.questions import load
from workbench.views.data.binning import BinnedBeliefs
from workbench.views.data.budget import budget
from workbench.views.data.compare import columns_of
from workbench.views.data.difficulty import difficulty
from workbench.views.data.groups import groups_of
from workbench.views.data.records import CURVES, Prompts
from workbench.views.data.run import Source, kind_of, machine
from workbench.views.data.selection import OBSERVED
from workbench.views.data.signs import rates
from workbench.views.parts import cards
from workbench.views.parts.completions import row
from workbench.views.parts.heatmap import AHEAD, HeatMap
from workbench.views.parts.plots import CurvesPlot, StackPlot, follow, steps_range
from workbench.views.parts.theme import BUDGET, SECONDS


def read(store, run):
    source = Source(store)
    source.refresh(0)
    data = source.run(run)
    data.refresh()
    return source, data


def test_a_run_is_read_step_by_step(recording):
    rec = recording().go(2)
    source, data = read(recording.store, rec.run)
    assert data.curves.step.tolist() == [1, 2]
    assert data.facts.status == "running"
    assert data.facts.target == 12
    assert data.facts.pipeline == "grpo + mopps"
    assert data.facts.who["select"] == ["mopps"]
    rec.go(4)
    source.refresh(0)
    assert data.refresh()
    assert not data.refresh()
    assert data.curves.step.tolist() == [1, 2, 3, 4, 5, 6]
    assert data.evaluation.step.tolist() == [0, 6]
    assert data.budget.step.tolist() == [1, 2, 3, 4, 5, 6]
    assert sum(data.budget.totals().values()) == 6 * 64
    assert data.asked.sum() == 6 * 64
    assert set(data.seconds.amount) >= {"decide", "generate", "update"}
    fresh = read(recording.store, rec.run)[1]
    for name in CURVES:
        np.testing.assert_array_equal(getattr(fresh.curves, name), getattr(data.curves, name))


def test_a_run_resumed_from_an_earlier_step_is_read_again(tmp_path):
    cut = Experiment(
        model="sim", steps=9, eval_every=2, checkpoint_every=3, budget=Budget(4, 32), world={"n_prompts": 20},
        store=str(tmp_path), pipeline="grpo + mopps",
    )  # fmt: skip
    first = Run(cut)
    for _ in range(5):
        first.ready()
        first.step()
    first.record.writer.flush()
    source, held = read(str(tmp_path), first.run_id)
    plot, view = CurvesPlot(steps_range()), HeatMap(steps_range(), lambda row: None)

    def draw(data):
        plot.update(data.curves, data.evaluation)
        view.update(data.heat("mopps"), data.prompts, "pool order", "k", data.asked)

    draw(held)
    prompt = str(held.prompts.id[held.touched.argmax()])
    held.history(prompt, OBSERVED)
    assert sum(g.rollouts for g in groups_of(held, 5)) == 32
    rates(held)
    difficulty(held)
    budget(held)
    columns_of(source, first.run_id)
    assert held.curves.step.tolist() == [1, 2, 3, 4, 5]
    first.record.writer._backend.close()  # as after a kill: the checkpoint is that of step 3
    with Run(cut.with_(budget=Budget(4, 16)), resume=first.run_id) as run:
        for _ in range(3):
            run.ready()
            run.step()
        run.record.writer.flush()
        source.refresh(0)
        data = source.run(first.run_id)
        assert data is not held, "what is kept of it elsewhere goes with it"
        assert data.refresh()
        assert held.refresh()
        fresh = read(str(tmp_path), first.run_id)[1]
        fresh.heat("mopps")
        for one in (data, held):
            assert one.curves.step.tolist() == [1, 2, 3, 4, 5, 6]
            assert one.evaluation.step.tolist() == [0, 2, 4, 6]
            assert one.asked.sum() == sum(one.budget.totals().values()) == 3 * 32 + 3 * 16
            assert one.heat("mopps").n_columns == 6
            np.testing.assert_array_equal(one.touched, fresh.touched)
            assert one.history(prompt, OBSERVED).step.tolist() == fresh.history(prompt, OBSERVED).step.tolist()
            assert sum(g.rollouts for g in groups_of(one, 5)) == 16
            np.testing.assert_array_equal(rates(one)[0].by("kind")[1], rates(fresh)[0].by("kind")[1])
            np.testing.assert_array_equal(difficulty(one).tried, difficulty(fresh).tried)
            np.testing.assert_array_equal(budget(one).cost.total("tokens"), budget(fresh).cost.total("tokens"))
        assert columns_of(source, first.run_id).step.tolist() == [1, 2, 3, 4, 5, 6]
        assert source.run(first.run_id) is data
        draw(data)
        np.testing.assert_array_equal(plot.train.data["reward"], fresh.curves.reward)
        image = view.source.data["image"][0]
        np.testing.assert_array_equal(image[:, :6], fresh.heat("mopps").values[view.order, :6])


def test_a_run_that_is_not_there_shows_no_password(recording):
    recording().go(1)
    source = Source(recording.store)
    source.refresh(0)
    source.url = "postgresql://ada:secret@host/lake"
    with pytest.raises(LookupError, match="there is no run 'x'") as told:
        source.run("x").refresh()
    assert "secret" not in str(told.value)


def test_beliefs_equal_what_the_method_revealed(recording):
    rec = recording().go(5)
    _, data = read(recording.store, rec.run)
    assert data.beliefs == ["mopps", OBSERVED]
    assert data.believed == "mopps"
    heat = data.heat("mopps")
    told = rec.pipeline.reveal(rec.states)["mopps"]["mean"]
    np.testing.assert_allclose(heat.latest, told, atol=0.0101)  # the recorder's tolerance
    assert heat.n_columns == 5


def test_a_pipeline_without_beliefs_shows_what_was_observed(recording):
    rec = recording(Pipeline(Grpo())).go(2)
    _, data = read(recording.store, rec.run)
    assert data.beliefs == [OBSERVED]
    known = np.isfinite(data.heat(OBSERVED).latest)
    assert known.sum() == 16
    prompt = str(data.prompts.id[np.flatnonzero(known)[0]])
    history = data.history(prompt, OBSERVED)
    assert history.asked.tolist() == [8]
    assert history.mean.tolist() == (history.solved / 8).tolist()


def test_the_group_shown_first_is_a_mixed_one(recording):
    rec = recording().go(3)
    _, data = read(recording.store, rec.run)
    group = data.group(0)
    right = sum(c["correct"] for c in group.rows)
    assert (group.step, group.of, len(group.rows)) == (3, 8, 8)
    assert 0 < right < 8
    assert set(group.rows[0]["parts"]) == {"format", "closeness", "exactness"}
    own = data.group(prompt=group.prompt)
    assert [c["rollout_id"] for c in own.rows] == [c["rollout_id"] for c in group.rows]


def test_a_completion_that_was_cut_says_so_once_and_shows_no_empty_parts():
    nan = float("nan")
    cut = {"rollout_id": "1", "text": "x", "answer": "", "characters": 1, "length": 2, "parts": {"format": nan}}
    cut |= {
        "finish": "pruned",
        "fate": "pruned",
        "reason": "quality_head",
        "reward": None,
        "correct": nan,
        "advantage": nan,
    }
    assert (row(cut)["reward"], row(cut)["correct"]) == (None, None)
    assert (row(cut)["note"], row(cut)["parts"]) == ("2 tokens · pruned · quality head", [])
    whole = cut | {
        "finish": "stop",
        "fate": "trained",
        "reason": "",
        "answer": "4",
        "parts": {"format": 1, "exactness": 0},
    }
    assert row(whole)["note"] == "2 tokens · stop · trained · read as 4"
    assert row(whole)["parts"] == [["format", 1.0], ["exactness", 0.0]]


def test_what_a_world_says_of_itself_is_words():
    live = {"parameters": 1_353_120, "device": "cpu", "threads": 2, "engine": "TransformersEngine", "lr": 1e-4}
    assert machine(live) == "1.4M parameters · cpu, 2 threads · transformers engine"
    assert machine({"parameters": 38, "dtype": "float64", "device": "cpu"}) == "38 parameters · float64 · cpu"
    assert machine({"device": "cpu", "threads": 1}) == "cpu, 1 thread"
    assert machine({}) == ""


def test_budget_kinds():
    assert kind_of("trained", "", "mixed") == "trained, with signal"
    assert kind_of("trained", "zero_advantage", "all solved") == "zero advantage, all solved"
    assert kind_of("trained", "zero_advantage", "none solved") == "zero advantage, none solved"
    assert kind_of("trained", "zero_advantage", "mixed") == "zero advantage, equal rewards"
    assert kind_of("dropped", "settled", "all solved") == "dropped"
    assert {kind_of(f, "", "mixed") for f in ("dropped", "pruned", "discarded", "carried", "failed")} <= set(BUDGET)


def test_dropped_rollouts_keep_their_reason(recording):
    rec = recording(Pipeline(Grpo(), DapoDynamicSampling())).go(4)
    _, data = read(recording.store, rec.run)
    dropped = data.budget.totals().get("dropped", 0)
    assert dropped == sum(n for (kind, _), n in data.reasons.items() if kind == "dropped") > 0
    assert "dropped" in cards.totals(data.budget, BUDGET, "rollouts", data.reasons)


def test_curves_are_appended_not_sent_again(recording):
    rec = recording().go(3)
    source, data = read(recording.store, rec.run)
    plot = CurvesPlot(steps_range())
    plot.update(data.curves, data.evaluation)
    before = plot.train.data
    rec.go(1)
    source.refresh(0)
    data.refresh()
    plot.update(data.curves, data.evaluation)
    assert plot.train.data is before
    assert list(plot.train.data["step"]) == [1, 2, 3, 4]


def test_heat_map_is_patched_by_column(recording):
    rec = recording().go(3)
    source, data = read(recording.store, rec.run)
    chosen = []
    view = HeatMap(steps_range(), chosen.append)
    view.update(data.heat("mopps"), data.prompts, "difficulty", "k", data.asked)
    image = view.source.data["image"][0]
    assert image.shape == (40, 16)
    assert (image[:, 3:] == AHEAD).all()
    order = view.order
    rec.go(2)
    source.refresh(0)
    data.refresh()
    view.update(data.heat("mopps"), data.prompts, "difficulty", "k", data.asked)
    assert view.source.data["image"][0] is image
    assert view.order is order
    np.testing.assert_array_equal(image[:, :5], data.heat("mopps").values[order, :5])
    view.select(int(order[7]))
    assert view.mark.location == 7.5
    assert view.neighbour(int(order[7]), 1) == order[8]
    assert view.neighbour(int(order[39]), 1) == order[39]


def test_zooming_in_shows_single_prompts():
    n = 2_000
    heat = BinnedBeliefs(n)
    heat.extend(np.arange(n), np.ones(n, int), np.arange(n) / n, 1)
    prompts = Prompts(*(np.array([f"{c}{i}" for i in range(n)], object) for c in "itj"))
    view = HeatMap(steps_range(), print)
    view.update(heat, prompts, "difficulty", "k", np.zeros(n))
    assert view.source.data["image"][0].shape == (400, 16)
    assert view.names.data["text"] == []
    view.figure.y_range.update(start=1_000, end=1_100)
    assert view.source.data["y"] == [950]
    assert view.source.data["dh"] == [200]
    np.testing.assert_allclose(view.source.data["image"][0][:, 0], np.arange(950, 1_150) / n, rtol=1e-6)
    assert view.names.data["text"][0] == "t950"
    heat.extend(np.array([1_000]), np.array([2]), np.array([0.0]), 2)
    view.update(heat, prompts, "difficulty", "k", np.zeros(n))
    assert view.source.data["image"][0][50, 1] == 0.0
    view.figure.y_range.update(start=0, end=n)
    assert view.source.data["image"][0].shape == (400, 16)


def test_heat_map_grows_and_changes_its_order(recording):
    rec = recording().go(17)
    _, data = read(recording.store, rec.run)
    view = HeatMap(steps_range(), print)
    view.update(data.heat("mopps"), data.prompts, "difficulty", "k", data.asked)
    assert view.source.data["image"][0].shape == (40, 32)
    view.update(data.heat("mopps"), data.prompts, "stratum", "k", data.asked)
    names = data.prompts.stratum[view.order]
    assert len(np.flatnonzero(names[1:] != names[:-1])) == len(np.unique(names)) - 1


def test_bars_of_fates_and_seconds(recording):
    rec = recording().go(3)
    _, data = read(recording.store, rec.run)
    for stack, colors in ((data.budget, BUDGET), (data.seconds, SECONDS)):
        plot = StackPlot(steps_range(), colors, "amount", "x")
        plot.update(stack)
        drawn = sum(np.sum(plot.source.data[k]) for k in colors)
        assert drawn == pytest.approx(sum(stack.totals().values()))


def test_following_stops_where_the_reader_zooms():
    steps = steps_range()
    follow(steps, 63.5)
    assert (steps.start, steps.end) == (-1, 64)
    steps.update(start=10, end=20)
    follow(steps, 127.5)
    assert (steps.start, steps.end, steps.reset_start, steps.reset_end) == (10, 20, -2, 128)


def test_hostile_text_stays_text(recording):
    rec = recording(hostile=True).go(1)
    _, data = read(recording.store, rec.run)
    for place in range(8):
        group = data.group(place)
        for c in map(row, group.rows):
            assert len(c["text"]) <= 280
        assert "<script" not in cards.group_line(group)
        assert "<script" not in cards.prompt(data.history(group.prompt, "mopps"), "mopps")
    long = next(c for c in group.rows if c["characters"] == 200_000)
    assert row(long)["more"] == "show all 200,000 characters"
    assert data.text(1, long["rollout_id"]) == ("A" * 200_000, 200_000)


def test_names_and_messages_are_escaped():
    bad = "<img src=x onerror=hit()>"
    assert "<img" not in cards.notes([{"step": 1, "kind": "warning", "subject": bad, "message": bad}])
    assert "<img" not in cards.error(bad, bad, bad)
    assert "<img" not in cards.key("#000", bad, bad)


def test_notes_of_one_kind_are_one_line():
    rows = [{"step": s, "kind": "warning", "subject": "verifier", "message": f"message {s}"} for s in (9, 8, 7)]
    text = cards.notes(rows)
    assert "message 9" in text
    assert "message 8" not in text
    assert "×3" in text


def test_the_interval_of_an_evaluation_is_that_of_its_prompts():
    """Four answers to one prompt are not four prompts: the band is as wide as the t interval of pass@1."""
    with Store.sample() as store:
        for run in store.runs()["run"].to_pylist():
            data = Source.around(store)
            data.refresh(0)
            e = data.run(run)
            e.refresh()
            e = e.evaluation
            scores = evaluation.pass_at_k(store, run, ks=(1,))
            assert e.n.tolist() == [320.0] * len(e.step)
            for step, solved, low, high in zip(e.step, e.solved, e.low, e.high, strict=True):
                mean, lowest, highest, n = scores.at(int(step), 1)
                assert n == 80
                assert abs(solved - mean) < 1e-9
                assert abs((high - low) - (highest - lowest)) < 0.02


@pytest.mark.parametrize(
    ("answers", "n"),
    [
        ([[1, 1], [0, 0], [1, 1], [0, 0]], 4),  # all alike: four prompts
        ([[1, 0], [1, 0], [0, 1], [1, 0]], 8),  # no more than there are answers
        ([[0, 0], [0, 0], [0, 0]], 3),  # nothing solved tells of three prompts
        ([[1], [0], [0]], 3),
        ([[1, 1, 1], [0, 0, 1], [1, 0, 0], [0, 0, 0]], 7.368421),
    ],
)
def test_answers_of_an_evaluation_count_as_far_as_they_differ(answers, n):
    rows = [(0, f"p{i}", "", "eval", a, a, 3, 0) for i, row in enumerate(answers) for a in row]
    text = load()["page_evaluation"].sql
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE rollouts (step INT, prompt_id TEXT, context TEXT, purpose TEXT, correct REAL, reward REAL, "
            "length INT, inherited INT, run TEXT DEFAULT 'r')"
        )
        con.executemany("INSERT INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'r')", rows)
        con.execute("INSERT INTO rollouts VALUES (0, 'q', 'another set', 'eval', 1, 1, 3, 0, 'r')")
        found = con.execute(text, {"run": "r", "since": -1}).to_arrow_table().to_pylist()
    solved = sum(map(sum, answers)) / sum(map(len, answers))
    assert found[0]["n"] == n
    assert abs(found[0]["solved"] - solved * n) < 1e-9
    assert (found[0]["tried"], found[0]["rollouts"]) == (len(rows), len(rows) + 1)
