"""Comparisons at equal cost, and the sweeps that make the runs for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.analysis.compare import Comparison, Curve, amount, compare, unfair
from workbench.cli.main import main
from workbench.runs.experiment import Experiment
from workbench.runs.sweep import Sweep, _key
from workbench.store import Store

FILE = """
[experiment]
model = "sim"
steps = 12
eval_every = 4
checkpoint_every = 4
budget = { prompts = 4, rollouts = 32 }
world = { n_prompts = 60 }
[sweep]
pipelines = ["grpo", "grpo + vade"]
seeds = [0, 1, 2]
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "sweep.toml").write_text(FILE)
    Sweep.from_toml(folder / "sweep.toml").run(store=str(folder / "store"))
    return str(folder / "store")


def curve(label: str, seed: int, x: list[float], y: list[float], **experiment: object) -> Curve:
    return Curve(f"{label}-{seed}", label, seed, np.array(x, float), np.array(y, float), experiment, frozenset("ab"))


def test_a_curve_is_read_between_its_evaluations() -> None:
    c = curve("grpo", 0, [0, 100, 300], [0.2, 0.4, 0.8])
    assert c.at(np.array([50.0, 200.0])).tolist() == pytest.approx([0.3, 0.6])
    assert c.to_reach(0.6) == pytest.approx(200)
    assert c.to_reach(0.1) == 0
    assert np.isnan(c.to_reach(0.9))


def test_a_sweep_runs_every_pair_and_compares_them_in_pairs(swept: str) -> None:
    with Store.open(swept) as store:
        assert len(store.runs()) == 6
        made = compare(store)
    assert made.labels == ["grpo", "grpo + vade"]
    assert made.x[0] == 0
    assert made.warnings == []
    base, other = made.rows()
    assert (base["difference"], base["pairs"]) == (0, 3)
    assert other["pairs"] == 3
    assert other["low"] <= other["difference"] <= other["high"]
    mean, low, high = made.band("grpo")
    assert len(mean) == 50
    assert ((low <= mean) & (mean <= high)).all()
    # the difference is that of the seeds, one by one
    final, grpo = made.final("grpo + vade"), made.final("grpo")
    assert other["difference"] == pytest.approx(np.mean([final[s] - grpo[s] for s in (0, 1, 2)]))


@pytest.mark.parametrize("axis", ["rollouts", "tokens", "trained_tokens", "seconds", "step"])
def test_every_axis_has_a_common_range(swept: str, axis: str) -> None:
    with Store.open(swept) as store:
        made = compare(store, axis=axis)
    assert made.x[-1] > made.x[0] >= 0
    if axis == "rollouts":
        assert made.x[-1] == 12 * 32


def test_pass_at_k_and_majorities_are_compared_like_pass_rates(swept: str) -> None:
    with Store.open(swept) as store:
        plain, many, most = (compare(store, measure=m) for m in ("pass@1", "pass@4", "majority@4"))
        with pytest.raises(ValueError, match=r"as in pass@4, not by 'best'"):
            compare(store, measure="best")
        with pytest.raises(ValueError, match="4 samples of a prompt"):
            compare(store, measure="pass@8")
        with pytest.raises(ValueError, match="not evaluated on the set 'hard'"):
            compare(store, set="hard")
    assert (plain.what, many.what) == ("evaluation pass rate", "evaluation pass@4")
    for a, b in zip(plain.curves, many.curves, strict=True):
        assert (a.run, a.x.tolist()) == (b.run, b.x.tolist())
        assert (b.pass_rate > a.pass_rate).all()
    assert (most.curves[0].pass_rate < many.curves[0].pass_rate).all()


def test_a_finished_sweep_has_nothing_to_do_and_a_cut_one_goes_on(tmp_path: Path) -> None:
    from workbench.runs.run import Run

    (tmp_path / "sweep.toml").write_text(FILE.replace("seeds = [0, 1, 2]", "seeds = [0]"))
    sweep = Sweep.from_toml(tmp_path / "sweep.toml")
    first = next(sweep.experiments()).with_(store=str(tmp_path / "store"))
    with Run(first) as run:
        for _ in range(6):
            run.step()
        cut = run.run_id
    said: list[str] = []
    made = sweep.run(said.append, store=str(tmp_path / "store"))
    assert made[0] == cut
    assert any(f"going on with {cut} after step 6" in s for s in said)
    with Store.open(tmp_path / "store") as store:
        assert {r["run"]: (r["status"], r["last_step"]) for r in store.runs().to_pylist()} == dict.fromkeys(
            made, ("finished", 12)
        )
    said.clear()
    assert sweep.run(said.append, store=str(tmp_path / "store")) == made
    assert all("there already" in s for s in said)


def test_a_run_of_an_older_workbench_is_known_again() -> None:
    e = Sweep(Experiment(model="sim"), ("grpo",), (0,)).experiment
    old = {k: v for k, v in e.to_dict().items() if k not in ("eval_samples", "eval_sets")}
    assert _key(old) == _key(e.to_dict())
    assert _key(e.with_(eval_samples=8).to_dict()) != _key(old)
    assert _key(e.with_(eval_every=0).to_dict()) != _key(old)


def test_everything_unfair_is_named() -> None:
    same = [curve("grpo", 0, [0, 10], [0, 1], model="tiny"), curve("vade", 0, [0, 100], [0, 1], model="smollm2")]
    said = " | ".join(unfair(same, 10, "rollouts"))
    for text in (
        'model differs: "smollm2", "tiny"',
        "vade-0 went on to 100 rollouts; only the part up to 10 rollouts",
        "fewer than three seeds for grpo, vade",
    ):
        assert text in said
    seeds = [curve("grpo", s, [0, 1], [0, 1]) for s in (0, 1, 2)] + [
        curve("vade", s, [0, 1], [0, 1]) for s in (0, 1, 1)
    ]
    said = " | ".join(unfair(seeds, 1))
    assert "more than once for vade" in said
    assert "not run with the same seeds" in said


def test_an_amount_has_its_unit() -> None:
    said = [
        amount(*of) for of in ((1.27, "seconds"), (1.0, "seconds"), (432.1, "seconds"), (12e3, "tokens"), (1, "step"))
    ]
    assert said == ["1.27 seconds", "1 second", "432 seconds", "12,000 generated tokens", "1 step"]


def test_a_seed_that_was_run_twice_counts_once() -> None:
    curves = [curve("grpo", 0, [0, 1], [0.2, 0.4]), curve("grpo", 0, [0, 1], [0.2, 0.5])]
    made = Comparison("rollouts", "grpo", curves, np.array([0.0, 1.0]), ())
    mean, low, _ = made.band("grpo")
    assert mean.tolist() == [0.2, 0.5] and np.isnan(low).all()
    assert made.rows()[0]["seeds"] == 1


def test_overlapped_and_plain_runs_are_not_alike_but_an_old_record_is_plain() -> None:
    plain, overlapped = curve("grpo", 0, [0, 1], [0, 1], staleness=0), curve("vade", 0, [0, 1], [0, 1], staleness=1)
    old = curve("vade", 0, [0, 1], [0, 1])
    assert any("staleness differs" in said for said in unfair([plain, overlapped], 1))
    assert not any("staleness differs" in said for said in unfair([plain, old], 1))


def test_too_few_runs_and_unknown_names_are_errors(swept: str, capsys: pytest.CaptureFixture) -> None:
    with Store.open(swept) as store:
        run = store.latest()
        with pytest.raises(ValueError, match="1 runs were evaluated"):
            compare(store, [run])
        with pytest.raises(ValueError, match="no run nope"):
            compare(store, ["nope"])
        with pytest.raises(ValueError, match="no run of 'mopps'"):
            compare(store, baseline="mopps")
    assert main(["compare", "--store", swept, "--target", "0.1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "grpo + vade" in out
    assert "3 of 3 seeds reached 0.1" in out


def test_a_sweep_file_with_an_unknown_key_says_what_it_knows(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("[sweep]\npipeline = ['grpo']\n")
    with pytest.raises(ValueError, match="unknown keys pipeline; a sweep is"):
        Sweep.from_toml(tmp_path / "s.toml")
