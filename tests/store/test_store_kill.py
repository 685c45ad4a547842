"""kill -9 at twenty points: what was acknowledged is whole, nothing is there in part, and the run plans on as before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from run_steps import first_plan, live_run, make_world, pipeline_of
from same import same

from tests.timing import patience
from workbench.pipeline import catalog
from workbench.store import Store, Writer, compact

SCRIPT = Path(__file__).with_name("kill_points.py")
POINTS, STEPS, SWAP = 20, 9, 5
TABLES = ("asks", "rollouts", "completions", "rewards", "advantages", "fates", "metrics", "timings")


class Reference:
    """The run nobody killed: steps, and for each step the states of every catalog method before it."""

    def __init__(self) -> None:
        self.pool = make_world().pool
        methods = {slug: catalog.make(slug) for slug in catalog.methods()}
        self.methods = methods
        self.states = [{slug: m.init(self.pool) for slug, m in methods.items()}]
        self.steps = []
        for _, _, step in live_run(STEPS + 1, SWAP):
            self.steps.append(step)
            self.states.append({s: m.observe(self.states[-1][s], step) for s, m in methods.items()})


@pytest.fixture(scope="module")
def reference():
    return Reference()


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, SCRIPT, folder, str(POINTS), str(STEPS), str(SWAP)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=patience(120))
    return folder, [json.loads(line) for line in done.stdout.splitlines()]


def counts(step) -> dict[str, int]:
    r = len(step.rollouts)
    scalars = sum(np.ndim(v) == 0 for v in step.update.values())
    return {"asks": len(step.plan), "rollouts": r, "completions": r, "rewards": r * len(step.rollouts.rewards),
            "advantages": r, "fates": r, "metrics": scalars, "timings": len(step.seconds)}  # fmt: skip


@pytest.mark.slow
def test_every_point_kills_a_writer_at_work(killed):
    assert [k["killed"] for k in killed[1]] == [True] * POINTS
    assert len({k["acknowledged"] for k in killed[1]}) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("point", range(POINTS))
def test_a_killed_run_is_whole_and_plans_on(killed, reference, point):
    folder, told = killed[0] / str(point), killed[1][point]
    with Store.open(folder) as store:
        found = store.sql("SELECT step FROM steps ORDER BY step")["step"].to_pylist()
        last = len(found)
        assert found == list(range(1, last + 1)) and last >= told["acknowledged"]
        for table in TABLES:
            rows = store.sql(f"SELECT step, count(*) AS n FROM {table} GROUP BY step ORDER BY step").to_pylist()
            whole = [(s.step, counts(s)[table]) for s in reference.steps[:last]]
            assert [(r["step"], r["n"]) for r in rows] == [w for w in whole if w[1]], table
        assert store.runs()["status"].to_pylist() in ([["interrupted"]] if last else [[], ["interrupted"]])
        assert store.sql("SELECT bool_and(balanced) AS ok FROM ledger")["ok"].to_pylist() == [True if last else None]
        steps = list(store.steps("a", reference.pool)) if last else []
    folded = {slug: m.init(reference.pool) for slug, m in reference.methods.items()}
    for step in steps:
        folded = {slug: m.observe(folded[slug], step) for slug, m in reference.methods.items()}
    for slug in reference.methods:
        same(reference.states[last][slug], folded[slug])
    pipeline = pipeline_of(last + 1, SWAP)
    states = {m.name: folded[m.name] for m in pipeline.methods}
    plan, wanted = first_plan(reference.pool, states, last + 1, SWAP), reference.steps[last].plan
    first = wanted.round == 0
    assert plan.prompt.tolist() == wanted.prompt[first].tolist() and plan.n.tolist() == wanted.n[first].tolist()
    with Writer(folder, {"name": "killed"}, reference.pool, run="a") as writer:  # and records on
        assert writer.step == last
        writer.append(reference.steps[last])
    assert not list(folder.glob("commits/a/r0/*.tmp"))
    with Store.open(folder) as store:
        assert store.sql("SELECT max(step) AS step FROM steps")["step"].to_pylist() == [last + 1]
        assert store.runs()["status"].to_pylist() == ["finished"]


@pytest.fixture(scope="module")
def fifty(tmp_path_factory):
    """Fifty steps with failures, carried rollouts and a swap; recorded, in part compacted, and opened again."""
    folder, pool, live = tmp_path_factory.mktemp("fifty"), make_world().pool, []
    with Writer(folder, {}, pool, run="a", compacting=False) as writer:
        for pipeline, states, step in live_run(50, 25):
            writer.acting(pipeline.who())
            writer.append(step, pipeline.reveal({m.name: states[m.name] for m in pipeline.methods}))
            live.append(step)
            if step.step == 30:
                writer.flush()
                compact(folder)
    with Store.open(folder) as store:
        return pool, live, list(store.steps("a", pool)), store.sql("SELECT DISTINCT fate FROM fates ORDER BY fate")


def test_the_fifty_steps_have_every_kind_of_trouble(fifty):
    assert {"carried", "failed", "trained"} <= set(fifty[3]["fate"].to_pylist())
    assert len(fifty[1]) == len(fifty[2]) == 50


def test_folding_a_reopened_store_is_the_live_state_by_value(fifty):
    pool, live, stored, _ = fifty
    for slug in catalog.methods():
        method = catalog.make(slug)
        one = two = method.init(pool)
        for a, b in zip(live, stored, strict=True):
            one, two = method.observe(one, a), method.observe(two, b)
            same({slug: one}, {slug: two})
