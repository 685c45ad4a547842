"""A server of the tests' own that speaks vLLM's completions: its model is a script, its weights are patches, its faults are told."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from workbench.worlds.engines import Request
from workbench.worlds.engines.vllm_worker import PatchedWeights

from .scripted_engine import ScriptedEngine

MODELS = ({"id": "toy", "max_model_len": 64},)


class Worker(PatchedWeights):
    """A worker whose model remembers what was loaded into it."""

    def __init__(self):
        self.loaded = {}
        self.model_runner = self
        self.model = self

    def load_weights(self, weights):
        self.loaded |= {name: tensor.clone() for name, tensor in weights}


class FakeServer:
    """Answers as vLLM does. faults: what to do instead, one a request: a status, "drop", "garbage" or seconds to wait.

    dialect: "ids" tells token ids, "names" only "token_id:17", "words" neither. raw: log-probabilities are those before the
    temperature. takes_weights: whether /collective_rpc is there. asked: bodies of completions.
    """

    def __init__(self, script, *, models=MODELS, dialect="ids", raw=False, takes_weights=True):
        self.script, self.models, self.dialect, self.raw, self.takes_weights = (
            script,
            models,
            dialect,
            raw,
            takes_weights,
        )
        self.faults, self.asked, self.calls, self.seen = [], [], [], set()
        self.worker = Worker()
        self.lock = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            """One connection."""

            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.reply(None)

            def do_POST(self):
                self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"null"))

            def reply(self, body):
                with fake.lock:
                    fake.calls.append(self.path)
                    fault = fake.faults.pop(0) if fake.faults else None
                if isinstance(fault, float):
                    time.sleep(fault)
                if fault == "drop":
                    self.close_connection = True
                    return
                status, answer = (fault, {"error": {"message": f"told to say {fault}"}}) if isinstance(fault, int) else (
                    fake.answer(self.path, body)
                )  # fmt: skip
                data = b"<html>" if fault == "garbage" else json.dumps(answer).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True  # the client has gone

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.http.shutdown()
        self.http.server_close()

    def answer(self, path, body):
        if path == "/v1/models":
            return 200, {"data": list(self.models)}
        if path == "/v1/completions":
            return self.complete(body)
        if path == "/reset_prefix_cache" and self.takes_weights:
            self.seen = set()
            return 200, None
        if path == "/collective_rpc" and self.takes_weights:
            return 200, {"results": [getattr(self.worker, body["method"])(*body["args"])]}
        return 404, {"detail": "Not Found"}

    def complete(self, body):
        with self.lock:
            self.asked.append(body)
        if body["model"] not in [m["id"] for m in self.models]:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        prompt, top = body["prompt"], body.get("logprobs") or 0
        temperature = body["temperature"]
        session = ScriptedEngine(self.script).open(
            Request([prompt], np.zeros(1, int), np.array([body["seed"]], np.uint64), temperature=temperature,
            stop=body["stop_token_ids"],
        ))  # fmt: skip
        likely = session.top(max(top, 1))
        scale = 1.0 if self.raw or not temperature else temperature
        made = session.advance(np.array([body["max_tokens"]]))
        ids = made.tokens.values.tolist()
        choice = {"text": "?", "finish_reason": made.finish[0] or "length", "logprobs": {
            "tokens": ["x" if self.dialect == "words" else f"token_id:{i}" for i in ids],
            "token_logprobs": made.logp.values.tolist(),
            "top_logprobs": [{f"token_id:{i}": p for i, p in zip(*self.tempered(likely, scale), strict=True) if i >= 0}],
        }}  # fmt: skip
        if self.dialect == "ids":
            choice |= {"token_ids": ids}
        if body.get("prompt_logprobs") is not None:
            forced = self.script(tuple(prompt[:-1])).get(prompt[-1], 1e-9)
            choice |= {"prompt_logprobs": [None, {str(prompt[-1]): {"logprob": float(np.log(forced))}}]}
        with self.lock:
            cached = max((n for n in range(len(prompt)) if tuple(prompt[:n]) in self.seen), default=0)
            self.seen |= {tuple(prompt[:n]) for n in range(len(prompt) + 1)}
        return 200, {"choices": [choice], "usage": {"prompt_tokens_details": {"cached_tokens": cached}}}

    @staticmethod
    def tempered(likely, scale):
        ids, logp = likely[0][0].tolist(), likely[1][0] / scale
        return ids, (logp - np.logaddexp.reduce(logp)).tolist() if scale != 1 else logp.tolist()
