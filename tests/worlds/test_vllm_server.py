"""Sampling from a server: the protocol, its faults, and weights on their way, against a server of the tests' own."""

from __future__ import annotations

import socket
import threading
import time

import numpy as np
import pytest
import torch

from workbench.runs.experiment import Experiment
from workbench.runs.run import Run
from workbench.store import Store
from workbench.types import Budget
from workbench.worlds.engines import Request, Until
from workbench.worlds.engines.choice import pick
from workbench.worlds.engines.draws import streams
from workbench.worlds.engines.http_json import Client, Rejected, ServerError
from workbench.worlds.engines.server_engine import ServerEngine, seed_of
from workbench.worlds.training import lora

from .conftest import toy_model
from .fake_server import MODELS, FakeServer
from .scripted_engine import ScriptedEngine
from .test_completions import MARK, STOP, script

PREFIXES = [[9, 8, 7], [4]]
KEYS = streams(0, "abcd")
N, LIMIT = np.array([3, 1]), np.array([6, 9])


def engine_of(server, **settings):
    waits = []
    return ServerEngine(server.url, sync="never", sleep=waits.append, **{"timeout": 5.0, **settings}), waits


@pytest.fixture
def server():
    with FakeServer(script) as running:
        yield running


def expected(prefix, key, position, limit, temperature=1.0, stop=(STOP,)):
    """What the script makes of the server's seed."""
    return ScriptedEngine(script).generate(
        Request.of_groups([prefix], np.ones(1, int), np.array([limit]), np.array([seed_of(int(key), position)], np.uint64),
        temperature=temperature, stop=stop,
    ))  # fmt: skip


def test_rows_are_what_the_server_draws_from_their_seeds(server):
    engine, _ = engine_of(server)
    made = engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, position=np.arange(4), stop=[STOP]))
    for row, (prefix, limit) in enumerate([(0, 6), (0, 6), (0, 6), (1, 9)]):
        want = expected(PREFIXES[prefix], KEYS[row], row, limit)
        assert made.tokens.row(row).tolist() == want.tokens.values.tolist()
        assert made.logp.row(row).tolist() == pytest.approx(want.logp.values.tolist())
        assert made.finish[row] == want.finish[0]
    assert np.isnan(made.entropy.values).all()
    assert engine.lacks == {"hidden", "token_entropy"}
    body = server.asked[0]
    assert (body["top_p"], body["top_k"], body["min_p"], body["repetition_penalty"]) == (1.0, 0, 0.0, 1.0)
    assert (body["ignore_eos"], body["add_special_tokens"], body["return_token_ids"]) == (True, False, True)


def test_prompt_tokens_that_the_server_had_are_not_counted(server):
    engine, _ = engine_of(server, parallel=1)
    made = engine.generate(Request.of_groups(PREFIXES, N, np.array([1, 1]), KEYS))
    assert (made.prefilled, made.decoded) == (3 + 1 + 1 + 1, 0)


@pytest.mark.parametrize("fault", [503, 429, 500, "drop", "garbage"])
def test_what_may_pass_is_tried_again_with_growing_waits(server, fault):
    engine, waits = engine_of(server, parallel=1)
    server.faults = [fault, fault, fault]
    made = engine.generate(Request.of_groups(PREFIXES[1:], np.array([1]), np.array([4]), KEYS[:1], stop=[STOP]))
    assert made.tokens.values.tolist() == expected(PREFIXES[1], KEYS[0], 0, 4).tokens.values.tolist()
    assert waits == [0.5, 1.0, 2.0]


def test_after_the_last_try_the_error_says_what_it_was(server):
    engine, waits = engine_of(server, parallel=1, tries=3)
    server.faults = [503, 503, 503]
    with pytest.raises(ServerError, match=r"/v1/completions answered 503: told to say 503, 3 times in a row"):
        engine.generate(Request.of_groups(PREFIXES[1:], np.array([1]), np.array([4]), KEYS[:1]))
    server.faults = ["drop"] * 3
    with pytest.raises(ServerError, match=r"is not there or broke off \(RemoteDisconnected"):
        engine.generate(Request.of_groups(PREFIXES[1:], np.array([1]), np.array([4]), KEYS[:1]))
    assert len(waits) == 4


def test_a_server_that_does_not_answer_in_time(server):
    engine, _ = engine_of(server, answer_timeout=0.1, tries=2)
    server.faults = [0.6, 0.6]
    with pytest.raises(ServerError, match=r"gave no sign of life for 0.1 s, 2 times in a row"):
        engine.generate(Request.of_groups(PREFIXES[1:], np.array([1]), np.array([4]), KEYS[:1]))


def test_a_whole_answer_may_take_longer_than_other_calls(server):
    engine, _ = engine_of(server, timeout=0.1, tries=1)
    server.faults = [0.4]
    assert engine.generate(Request.of_groups(PREFIXES[1:], np.array([1]), np.array([4]), KEYS[:1])).finish.tolist() != [
        "aborted"
    ]
    server.faults = [0.4]
    with pytest.raises(ServerError, match=r"gave no sign of life for 0.1 s"):
        engine.client.call("GET", "/v1/models")


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_server_broke_off_is_no_finished_one(reason):
    class Gives(FakeServer):
        """Ends every answer by itself."""

        def complete(self, body):
            status, answer = super().complete(body)
            answer["choices"][0]["finish_reason"] = reason
            return status, answer

    with Gives(script) as server, pytest.raises(ServerError, match=f"broke off an answer .*{reason}"):
        engine_of(server)[0].generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, stop=[STOP]))


def test_connections_are_kept_from_call_to_call_and_closed_at_the_end(server):
    engine, _ = engine_of(server, parallel=2)
    for _ in range(6):
        engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS))
    assert len(engine.client._open) <= 3  # two that ask for answers, and this thread's
    threads = [*engine._pool._threads]
    for _ in range(2):
        engine.close()
        assert not engine.client._open
        assert not any(t.is_alive() for t in threads)
    assert (
        len(engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS)).finish) == 4
    )  # whoever asks again gets new ones
    engine.close()


def test_after_an_error_nothing_is_under_way(server):
    engine, _ = engine_of(server, parallel=2, tries=1)
    server.faults = [400, 0.4]
    with pytest.raises(Rejected):
        engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS))
    asked = len(server.asked)
    time.sleep(0.6)
    assert len(server.asked) == asked
    assert len(engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS)).finish) == 4


def test_nobody_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ServerError, match=r"/v1/models is not there or broke off \(ConnectionRefusedError.*2 times"):
        ServerEngine(url, sync="never", tries=2, sleep=lambda s: None)


def test_what_the_server_will_never_do_is_not_tried_again(server):
    engine, waits = engine_of(server)
    server.faults = [400]
    with pytest.raises(Rejected, match="answered 400: told to say 400") as caught:
        engine.generate(Request.of_groups(PREFIXES[1:], np.array([1]), np.array([4]), KEYS[:1]))
    assert (caught.value.status, waits) == (400, [])


def test_the_wrong_model_is_named_with_those_there_are(server):
    with pytest.raises(ServerError, match="has no model 'other'; there are: toy"):
        engine_of(server, model="other")
    with FakeServer(script, models=(*MODELS, {"id": "second"})) as two:
        with pytest.raises(ServerError, match="several models or none, and none was named; there are: toy, second"):
            engine_of(two)
        assert engine_of(two, model="second")[0].max_model_len == 0
    engine, _ = engine_of(server)
    assert (engine.model, engine.max_model_len) == ("toy", 64)
    with pytest.raises(ValueError, match="may have 64 tokens together, not 73"):
        engine.generate(Request.of_groups(PREFIXES[:1], np.array([1]), np.array([70]), KEYS[:1]))


def test_addresses_and_settings_that_make_no_sense():
    with pytest.raises(ValueError, match="'ftp://x' is no address of a server"):
        Client("ftp://x")
    with pytest.raises(ValueError, match="the environment has no NO_SUCH_KEY"):
        Client("http://x", key_variable="NO_SUCH_KEY")
    with pytest.raises(ValueError, match="no way 'often'"):
        ServerEngine("http://x", sync="often")
    with pytest.raises(ValueError, match="needs the model whose weights are sent"):
        ServerEngine("http://x")


def test_sessions_pause_fork_and_force(server):
    engine, _ = engine_of(server)
    session = engine.open(Request(PREFIXES, np.array([0, 0, 1]), KEYS[:3], stop=[STOP]))
    made = session.advance(np.array([5, 5, 5]), Until(frozenset({MARK})))
    for row in range(3):
        tokens = made.tokens.row(row).tolist()
        want = expected(PREFIXES[row // 2], KEYS[row], 0, 5, stop=(STOP, MARK)).tokens.values.tolist()
        assert tokens == want
        assert made.finish[row] == ("stop" if tokens[-1] == STOP else "")
    assert len(session) == int((made.finish == "").sum())
    path = session.paths[0]
    session.keep(np.array([0, 0]), KEYS[:2])
    ids, logp = session.top(2)
    likely = sorted(script(path).items(), key=lambda pair: (-pair[1], pair[0]))[:2]
    assert ids[0].tolist() == [t for t, _ in likely]
    assert logp[0].tolist() == pytest.approx([np.log(p) for _, p in likely])
    session.force(1, likely[1][0])
    made = session.advance(np.array([2, 3]))
    assert int(made.tokens.row(1)[0]) == likely[1][0]
    assert float(made.logp.row(1)[0]) == pytest.approx(np.log(likely[1][1]), abs=1e-6)
    with pytest.raises(NotImplementedError, match="no entropy to pause at"):
        session.advance(np.ones(len(session), int), Until(entropy=1.0))
    with pytest.raises(NotImplementedError, match="no hidden states"):
        session.hidden()


def test_log_probabilities_from_before_the_temperature_are_refused():
    with FakeServer(script) as good:
        made = engine_of(good)[0].generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, temperature=0.5, stop=[STOP]))
        want = expected(PREFIXES[1], KEYS[3], 0, 9, temperature=0.5)
        assert made.logp.row(3).tolist() == pytest.approx(want.logp.values.tolist())
    with FakeServer(script, raw=True) as raw:
        engine, _ = engine_of(raw)
        with pytest.raises(
            ServerError, match=r"before the temperature 0.5 is applied.*--logprobs-mode processed_logprobs"
        ):
            engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS, temperature=0.5))
        engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS))
        session = engine.open(Request(PREFIXES, np.array([0]), KEYS[:1], temperature=0.7))
        session.force(0, 3)
        with pytest.raises(NotImplementedError, match="forced token at temperature 1 alone"):
            session.advance(np.array([2]))


def test_ids_may_come_as_names_of_tokens_and_words_are_refused():
    with FakeServer(script, dialect="names") as names:
        made = engine_of(names)[0].generate(
            Request.of_groups(PREFIXES[1:], np.array([1]), np.array([4]), KEYS[:1], stop=[STOP])
        )
        assert made.tokens.values.tolist() == expected(PREFIXES[1], KEYS[0], 0, 4).tokens.values.tolist()
    with FakeServer(script, dialect="words") as words, pytest.raises(ServerError, match="reports no token ids"):
        engine_of(words)[0].generate(Request.of_groups(PREFIXES[1:], np.array([1]), np.array([4]), KEYS[:1]))


def test_generation_is_broken_off_from_another_thread(server):
    engine, _ = engine_of(server, parallel=2)
    server.faults = [0.0, 3.0, 3.0, 3.0]
    timer = threading.Timer(0.4, engine.abort)
    timer.start()
    began = time.perf_counter()
    made = engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS))
    assert time.perf_counter() - began < 2.5
    assert sorted(set(made.finish.tolist()) - {"stop"}) == ["aborted", "length"]
    server.faults = []
    assert "aborted" not in engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS)).finish.tolist()


def weights(model):
    return {n: t.to(torch.bfloat16) for n, t in model.state_dict().items() if n not in set(model.all_tied_weights_keys)}


def holds(server, model):
    want = weights(model)
    return set(server.worker.loaded) == set(want) and all(
        torch.equal(server.worker.loaded[n], t) for n, t in want.items()
    )


def test_weights_arrive_bit_for_bit_and_later_only_what_changed(server):
    model = toy_model()
    engine = ServerEngine(server.url, model)
    assert holds(server, model)
    whole = engine.synced
    assert whole["sync_share"] == 1.0
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[3, :5] += 0.5
        model.model.norm.weight += 1e-6  # vanishes in bfloat16
    engine.sync()
    assert holds(server, model)
    elements = sum(t.numel() for t in weights(model).values())
    assert engine.synced["sync_share"] == pytest.approx(5 / elements)
    assert engine.synced["sync_bytes"] < whole["sync_bytes"] / 20
    assert (engine.synced["sync_version"], server.calls[-1]) == (1.0, "/reset_prefix_cache")


def test_a_server_gets_adapters_merged_into_the_weights(server):
    pytest.importorskip("peft")
    model, plain = lora.add(toy_model(), rank=4), toy_model()
    engine = ServerEngine(server.url, model)
    assert holds(server, plain)
    _, layer = lora.layers(model)[0]
    with torch.no_grad():
        layer.lora_B["default"].weight[0] += 0.5
    engine.sync()
    plain.load_state_dict(dict(lora.plain_weights(model)))
    assert holds(server, plain)
    elements = sum(t.numel() for t in weights(plain).values())
    assert engine.synced["sync_share"] <= layer.weight.shape[1] / elements  # one row of one matrix


def test_a_server_that_began_anew_or_was_changed_gets_everything(server):
    model = toy_model()
    engine = ServerEngine(server.url, model)
    server.worker.__init__()
    del server.worker._workbench
    engine.sync()
    assert holds(server, model)
    assert engine.synced["sync_share"] == 1.0
    ServerEngine(server.url, toy_model(seed=1))  # another trainer
    with torch.no_grad():
        model.model.norm.weight += 0.5
    engine.sync()
    assert holds(server, model)
    assert engine.synced["sync_share"] == 1.0
    server.worker._receiver.bits["model.norm.weight"][3] += 1
    with torch.no_grad():
        model.model.norm.weight[0] += 0.5
    engine.sync()  # the checksum does not come out
    assert holds(server, model)
    assert engine.synced["sync_share"] == 1.0


def test_a_server_that_takes_no_weights_says_how_to_start_it():
    with FakeServer(script, takes_weights=False) as fixed:
        with pytest.raises(ServerError, match="takes no weights: start it with VLLM_SERVER_DEV_MODE=1"):
            ServerEngine(fixed.url, toy_model())
        engine, why = pick(toy_model(), "float32", {"name": fixed.url, "sync": "never"})
        engine.sync()
        assert why == f"{fixed.url}: asked for"
        assert engine.generate(Request.of_groups(PREFIXES, N, LIMIT, KEYS)).tokens.values.size > 0


def test_a_world_offers_what_the_server_gives(server, monkeypatch):
    monkeypatch.setattr("workbench.worlds.live.world.check_engine", lambda *args: None)  # its figures are made up
    from workbench.worlds.live.world import LiveWorld

    from .conftest import ToyTask, pool_of, toy_tokenizer

    world = LiveWorld(
        ToyTask(pool_of(range(1, 5)), pool_of(range(5, 7))), (toy_model(), toy_tokenizer()), engine=server.url
    )
    assert "token_entropy" not in world.offers
    assert {"behaviour", "top_tokens", "nodes"} <= world.offers
    assert holds(server, world.policy.model)


def test_a_server_of_other_weights_is_refused_with_the_figure(server):
    from workbench.worlds.live.world import LiveWorld

    from .conftest import ToyTask, pool_of, toy_tokenizer

    with pytest.raises(ValueError, match=r"ServerEngine samples from another distribution .* are [0-9.]+ nats from"):
        LiveWorld(
            ToyTask(pool_of(range(1, 5)), pool_of(range(5, 7))), (toy_model(), toy_tokenizer()), engine=server.url
        )


def test_a_run_samples_from_a_server_and_records_what_went_there(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.worlds.live.world.check_engine", lambda *args: None)

    def likely(path):
        """Digits and the end, as if it could add."""
        return dict.fromkeys((20, 21, 22, 23, 24, 25, 26), 0.12) | {0: 0.16}

    with FakeServer(likely, models=({"id": "tiny", "max_model_len": 512},)) as server:
        experiment = Experiment(
            model="tiny", pipeline="grpo", budget=Budget(rollouts=64), steps=2, eval_every=0, store=tmp_path,
            world={"engine": server.url, "max_tokens": 6},
        )  # fmt: skip
        with Run(experiment) as run:
            run.begin()
            steps = [run.step(), run.step()]
            assert holds(server, run.world.policy.model)
        updates = [step.update for step in steps if step.update.get("rows")]
        assert updates
        assert all(0 < u["sync_share"] < 1 for u in updates)
        with pytest.raises(ValueError, match="token_entropy"):
            Run(experiment.with_(pipeline="grpo + ettrl"))
    with Store.open(tmp_path) as store:
        told = store.sql("select count(*) as n from rollouts where purpose = 'train'")
        assert told.to_pylist() == [{"n": 128}]
