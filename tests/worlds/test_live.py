"""The live world: rollouts of a toy model, its evaluation, its updates, its checkpoints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from workbench import models
from workbench.types import Advantage, Loss, Node, Plan, Text
from workbench.worlds.live.world import LiveWorld

from .conftest import ToyTask, pool_of, toy_model, toy_tokenizer


def plan(prompt=(0, 3, 11), n=(4, 2, 3), **columns) -> Plan:
    """A plan of step 1."""
    return Plan(np.array(prompt), np.array(n), step=1, **columns)


def push(batch) -> Loss:
    """The policy gradient at ratio one."""
    return Loss(-batch.advantage * (batch.logp - batch.proximal).exp())


def centred(rollouts) -> Advantage:
    """Reward minus the mean of the batch."""
    start = Advantage.start(rollouts)
    return Advantage(rollouts.reward - rollouts.reward.mean(), start.keep, start.weight, start.baseline, start.reason)


def test_a_plan_becomes_scored_rollouts_with_statistics(world):
    r = world.sample(plan())
    assert r.id.tolist()[:5] == ["1:q2:0", "1:q2:1", "1:q2:2", "1:q2:3", "1:q5:0"]
    assert r.tokens.lengths.tolist() == r.logp.lengths.tolist() == r.entropy.lengths.tolist() == r.length.tolist()
    assert (r.length <= 6).all()
    assert set(r.finish) <= {"stop", "length"}
    assert np.isfinite(r.reward).all()
    for text, tokens in zip(r.text, r.tokens.rows(), strict=True):
        assert "\n" not in text and "<end>" not in text
        assert toy_tokenizer().decode(tokens.tolist(), skip_special_tokens=True).startswith(text)


def test_rollouts_depend_on_seed_and_id_only(world):
    whole = world.sample(plan())
    parts = [world.sample(plan([11], [3])), world.sample(plan([0], [4])), world.sample(plan([3], [2]))]
    by_id = {i: t.tolist() for p in parts for i, t in zip(p.id, p.tokens.rows(), strict=True)}
    assert by_id == {i: t.tolist() for i, t in zip(whole.id, whole.tokens.rows(), strict=True)}
    again = world.sample(plan([3], [2], ordinal=np.array([4])))
    assert again.id.tolist() == ["1:q5:4", "1:q5:5"]
    assert [t.tolist() for t in again.tokens.rows()] != [by_id["1:q5:0"], by_id["1:q5:1"]]


def test_max_tokens_of_an_ask_overrides_the_task(world):
    r = world.sample(plan(max_tokens=np.array([2, 0, 1])))
    assert (r.length[r.prompt == 0] <= 2).all()
    assert (r.length[r.prompt == 11] == 1).all()


def test_text_starts_continue_the_answer_or_the_question(world):
    tokenizer = world.tokenizer
    assert tokenizer.decode(world.prefix(world.pool, 0)) == "2+3?\n2+3="
    assert tokenizer.decode(world.prefix(world.pool, 0, Text("5"))) == "2+3?\n2+3=5"
    assert tokenizer.decode(world.prefix(world.pool, 0, Text("add", "user"))) == "2+3?\nadd\n2+3="


def test_hinted_rollouts_are_trained_on_what_they_continued(world):
    start = np.array([None, Text("5 "), None], dtype=object)
    context = np.array(["", "hint", ""], dtype=object)
    r = world.sample(plan(start=start, context=context))
    scored = world.score(r, frozenset({"proximal", "current"}))
    assert scored.proximal.values == pytest.approx(r.logp.values, abs=1e-5)
    assert scored.current.values.tolist() == scored.proximal.values.tolist()
    stranger = LiveWorld(world.task, (toy_model(), toy_tokenizer()))
    with pytest.raises(ValueError, match=r"2 rollouts .* not started from the plain prompt"):
        stranger.score(r, frozenset({"proximal"}))


def test_a_rollout_sampled_again_without_its_text_is_trained_on_the_plain_prompt(world):
    world.sample(plan([2, 3], [1, 2], start=np.array([None, Text("8", "user")], dtype=object)))
    rows = world.sample(plan([2, 3], [1, 2]))  # the same ids
    assert world._lines(rows).prefixes == [world.prefix(world.pool, 2), world.prefix(world.pool, 3)]


def test_evaluation_asks_its_own_questions_where_both_tables_number_from_zero():
    tables = pool_of(range(2, 14)), pool_of(range(50, 53))
    numbered = [replace(p, ids=np.arange(len(p.ids)).astype(object)) for p in tables]
    world = LiveWorld(ToyTask(*numbered), (toy_model(), toy_tokenizer()), seed=3)
    for pool in (world.pool, world.evaluation):
        said = [world.tokenizer.decode(world.prefix(pool, row)) for row in range(3)]
        assert said == [f"{pool.text[row]}\n{pool.prefix[row]}" for row in range(3)]


def test_prompts_with_a_text_are_not_kept(world):
    kept = len(world.prefix._kept)
    for k in range(5):
        world.prefix(world.pool, 0, Text(str(k)))
    world.prefix(world.pool, 0)
    assert len(world.prefix._kept) == kept == len(world.pool) + len(world.evaluation)


def test_a_node_names_a_rollout_of_this_step(world):
    with pytest.raises(ValueError, match="'rollout id@tokens' of a rollout of this step"):
        world.sample(plan([0], [1], start=np.array([Node("a"), None], dtype=object)[:1]))


def test_score_adds_only_what_is_needed(world):
    r = world.sample(plan())
    assert world.score(r, frozenset()).proximal is None
    assert world.score(r, frozenset({"token_entropy"})).proximal is None
    assert {"proximal", "current", "token_entropy"} <= world.offers


def test_evaluation_uses_the_same_draws_at_every_step(world):
    first, later = world.evaluate(0), world.evaluate(20)
    assert first.id.tolist()[:5] == ["eval-0:q50:0", "eval-0:q50:1", "eval-0:q50:2", "eval-0:q50:3", "eval-0:q51:0"]
    assert later.id[0] == "eval-20:q50:0"
    assert set(first.purpose) == {"eval"}
    assert first.prompt.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert first.tokens.values.tolist() == later.tokens.values.tolist()


def test_updates_teach(world):
    before = world.evaluate(0).reward.mean()
    for step in range(1, 16):
        r = world.sample(Plan(np.arange(12), np.full(12, 4), step=step))
        done = world.update(r, centred(r), push, [])
        assert done["logp_gap"] < 1e-4  # one dtype for sampler and trainer
    assert world.version == 15
    assert world.sample(plan()).version.tolist() == [15] * 9
    assert world.evaluate(15).reward.mean() > before + 0.2


def test_an_update_reports_what_sampling_took(world):
    first, second = world.sample(plan()), world.sample(plan([1], [2]))
    done = world.update(first, centred(first), push, [])
    # "2+3?\n2+3=" is 9 tokens, "5+6?\n5+6=" 9, "13+14?\n13+14=" 13; "3+4?\n3+4=" 9
    assert done["prefilled_tokens"] == 9 + 9 + 13 + 9
    assert done["decoded_tokens"] == first.length.sum() + second.length.sum() - 11
    assert done["sample_seconds"] > 0
    assert "sample_seconds" not in world.update(first, centred(first), push, [])


def test_a_sampling_copy_follows_the_trained_weights(task):
    world = LiveWorld(task, (toy_model(), toy_tokenizer()), lr=1e-2, sampling="bfloat16")
    assert world.engine.model is not world.policy.model
    assert world.engine.model.dtype == torch.bfloat16
    assert world.engine.model.model.rotary_emb.inv_freq.dtype == torch.float32
    r = world.sample(plan())
    world.update(r, centred(r), push, [])
    for mine, theirs in zip(world.engine.model.parameters(), world.policy.model.parameters(), strict=True):
        assert torch.equal(mine, theirs.to(torch.bfloat16))


def test_a_saved_world_goes_on_as_if_it_had_not_stopped(world, task, tmp_path):
    r = world.sample(plan())
    world.update(r, centred(r), push, [])
    world.save(tmp_path / "checkpoint")
    world.save(tmp_path / "checkpoint")
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]
    other = LiveWorld(task, (toy_model(seed=9), toy_tokenizer()), seed=3, lr=1e-2)
    other.load(tmp_path / "checkpoint")
    assert other.version == 1
    a, b = world.sample(plan()), other.sample(plan())
    assert a.tokens.values.tolist() == b.tokens.values.tolist()
    one, two = (w.update(x, centred(x), push, []) for w, x in ((world, a), (other, b)))
    assert one["loss"] == two["loss"]
    assert one["grad_norm"] == two["grad_norm"]
    model, tokenizer = models.load(tmp_path / "checkpoint")
    assert type(model).__name__ == "LlamaForCausalLM"
    assert tokenizer("2+3").input_ids == toy_tokenizer()("2+3").input_ids


def test_another_architecture_is_not_loaded(world, task, tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    world.save(tmp_path / "checkpoint")
    config = LlamaConfig(**{**toy_model().config.to_dict(), "num_hidden_layers": 1})
    other = LiveWorld(task, (LlamaForCausalLM(config), toy_tokenizer()))
    with pytest.raises(ValueError, match="another architecture"):
        other.load(tmp_path / "checkpoint")


def test_facts_for_the_runs_table(world):
    import json

    facts = json.loads(json.dumps(world.describe()))
    assert facts["parameters"] == world.policy.model.num_parameters()
    assert (facts["sampling"], facts["precision"], facts["engine"]) == ("float32", "float32", "TransformersEngine")
    assert facts["memory_needed"] > 16 * facts["parameters"]


def test_leaving_a_world_closes_its_engine(task):
    with LiveWorld(task, (toy_model(), toy_tokenizer()), seed=3, engine="graph") as world:
        before = world.sample(plan())
        assert world.engine.slots.n >= 9
    assert world.engine.slots.n == 0
    assert world.sample(plan()).tokens.values.tolist() == before.tokens.values.tolist()
    world.close()
    world.close()
    assert world.engine.slots.n == 0
