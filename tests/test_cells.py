"""What objects look like in a notebook cell: rich, and everything from outside escaped."""

import dataclasses

import numpy as np

from workbench import Budget, Experiment, Session
from workbench.pipeline import Pipeline, advance, catalog
from workbench.runs.steering.remote import Remote
from workbench.worlds import SimWorld


def step():
    pipeline, world = Pipeline.parse("grpo + mopps"), SimWorld(n_prompts=20, seed=0)
    return advance(pipeline, pipeline.init(world.pool), world, Budget(3, 12), step=1)[1]


def test_rollouts_show_texts_escaped_cut_and_with_what_is_hidden() -> None:
    rollouts = step().rollouts
    text = np.array(["<script>1</script>", "a\x00b\n\u202ec", "x" * 500] * 4, dtype=object)
    shown = rollouts.with_(text=text)._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert "a\N{SYMBOL FOR SUBSTITUTE}b␣\N{SYMBOL FOR SUBSTITUTE}c" in shown
    assert "x" * 120 + "…" in shown
    assert shown.count("<tr>") == 9
    assert "and 4 more" in shown


def test_a_step_counts_fates_with_their_reasons() -> None:
    done = step()
    done = dataclasses.replace(
        done,
        fate=np.array(["trained"] * 9 + ["dropped"] * 3, dtype=object),
        fate_reason=np.array([""] * 9 + ["<b>"] * 3, dtype=object),
    )
    shown = done._repr_html_()
    assert "<td>trained</td><td></td><td>9</td>" in shown
    assert "<td>dropped</td><td>&lt;b&gt;</td><td>3</td>" in shown


def test_cards_pipelines_and_sessions(tmp_path) -> None:
    for cls in catalog.methods().values():
        assert cls.card.slug in cls.card._repr_html_()
    assert "arxiv.org/abs/" in catalog.methods()["mopps"].card._repr_html_()
    assert "allocate" in Pipeline.parse("grpo + mopps")._repr_html_()
    session = Session(Experiment(model="sim", store=str(tmp_path), name="<i>"))
    assert '<progress value="0" max="60">' in session._repr_html_()


def test_plans_pools_and_runs_of_other_processes(tmp_path) -> None:
    plan = dataclasses.replace(step().plan, context=np.array(["<b>", "", ""], dtype=object))
    shown = plan._repr_html_(shown=2)
    assert "Plan(step 1: 12 rollouts of 3 prompts)" in shown
    assert "<td>4</td><td>train</td><td>&lt;b&gt;</td><td>draw 0." in shown
    assert "distance 0." in shown
    assert shown.count("<tr>") == 3
    assert "and 1 more" in shown
    pool = SimWorld(n_prompts=20, seed=0).pool
    pool = dataclasses.replace(pool, text=np.array(["<script>1</script>"] * 20, dtype=object))
    shown = pool._repr_html_()
    assert "sim-pool-0-0" in shown
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert "and 12 more" in shown
    list(Experiment(model="sim", steps=2, eval_every=0, store=str(tmp_path), name="<i>").run())
    shown = Remote(str(tmp_path))._repr_html_()
    assert '<progress value="2" max="2">' in shown
    assert "finished, step 2 of 2" in shown
    assert "<i>" not in shown
