"""Server engine: a running server that speaks OpenAI's completions, vLLM's dialect: token ids in and out, and weights by patches.

Every row is a request with a seed of its own, so that a request made again is answered alike. The draws are the server's: a
resumed row draws others than it would have drawn uninterrupted, and statistics are what the protocol has: log-probabilities
of the sampled distribution and of a few likely tokens, no entropy (NaN) and no hidden states. `vllm_worker` says how to start
a server whose weights can be changed.
"""

from __future__ import annotations

import base64
import threading
import time
import uuid
import weakref
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
from transformers import PreTrainedModel

from workbench.worlds.engines import NEVER, Until
from workbench.worlds.engines.completions import Completion, CompletionEngine, Prompt
from workbench.worlds.engines.draws import uniform
from workbench.worlds.engines.http_json import Client, Rejected, ServerError
from workbench.worlds.engines.patches import FROM_NOTHING, Sender, to_bytes
from workbench.worlds.training import lora

PARALLEL = 64
"""Requests that wait for an answer at the same time."""

BROKEN_OFF = frozenset({"abort", "error"})
"""Reasons of a server to end an answer that is not at its end."""

ANSWER_TIMEOUT = 3600.0
"""Seconds that a whole answer may take: it is not streamed, so a long one gives no sign of life before its end."""


class ServerEngine(CompletionEngine):
    """Samples from a server.

    trained: whose weights the server is to have. model: its name there, needed where the server has several. sync:
    "patch" sends after each update what changed, exactly, for models served in bfloat16; "never" leaves the weights that
    the server was started with. answer_timeout: seconds that a whole answer may take. More settings: `http_json.Client`'s,
    whose timeout is that of all other calls. Raises ServerError where there is no such server or model.
    """

    lacks = frozenset({"hidden", "token_entropy"})

    def __init__(
        self,
        url: str,
        trained: PreTrainedModel | None = None,
        *,
        model: str = "",
        sync: str = "patch",
        parallel: int = PARALLEL,
        answer_timeout: float = ANSWER_TIMEOUT,
        **connection: object,
    ) -> None:
        if sync not in ("patch", "never"):
            raise ValueError(f"no way {sync!r} to bring weights to a server; there are patch and never")
        if sync == "patch" and trained is None:
            raise ValueError("sync='patch' needs the model whose weights are sent; without one take sync='never'")
        self.client = Client(url, **connection)  # type: ignore[arg-type]
        self.trained, self.way, self.parallel, self.answer_timeout = trained, sync, parallel, answer_timeout
        self._pool = self._threads()
        self.model, self.max_model_len = _served(self.client, model)
        self.synced: dict[str, float] = {}
        self._sender = Sender(uuid.uuid4().hex)
        self._ending, self._tempered = threading.Event(), False
        self.sync()

    @classmethod
    def of(cls, name: str, trained: PreTrainedModel, dtype: str, **settings) -> ServerEngine:
        """See `Engine.of`; name is the server's address, and the dtype is the server's own."""
        return cls(name, trained, **settings)

    def complete(
        self,
        prompts: Sequence[Prompt],
        *,
        temperature: float,
        stop: Collection[int],
        until: Until = NEVER,
        top: int = 0,
    ) -> list[Completion]:
        """See `CompletionEngine.complete`."""
        if until.entropy is not None:
            raise NotImplementedError("a server reports no entropy to pause at; use engine='vllm' or 'transformers'")
        longest = max((len(q.tokens) + q.limit for q in prompts), default=0)
        if self.max_model_len and longest > self.max_model_len:
            raise ValueError(f"a prefix and its answer may have {self.max_model_len} tokens together, not {longest}")
        if any(q.forced >= 0 for q in prompts) and temperature not in (0.0, 1.0):
            raise NotImplementedError("a server tells the log-probability of a forced token at temperature 1 alone")
        if prompts and temperature not in (0.0, 1.0) and not self._tempered:
            self._check_temperature(prompts[0], temperature)
        self._ending.clear()
        self.client.listen()
        stops, ends = frozenset(stop), sorted(frozenset(stop) | until.markers)

        def one(prompt: Prompt) -> Completion:
            try:
                return self._one(prompt, temperature, stops, ends, top)
            except ServerError:
                if self._ending.is_set():
                    return Completion.empty()
                raise

        pending = [self._pool.submit(one, prompt) for prompt in prompts]
        try:
            return [answer.result() for answer in pending]
        finally:  # where one failed, those that have not begun are dropped and those under way end first
            for answer in pending:
                answer.cancel()
            wait(pending)

    def close(self) -> None:
        """End the threads that ask, once they have their answers, and their connections; a later call begins its own."""
        self._pool.shutdown()
        self.client.close()
        self._pool = self._threads()

    def _threads(self) -> ThreadPoolExecutor:
        """Who waits for answers, each on a connection of its own that is kept."""
        pool = ThreadPoolExecutor(max(1, self.parallel), "answers")
        weakref.finalize(self, pool.shutdown, wait=False)
        return pool

    def abort(self) -> None:
        """Break off what is being generated, from another thread; rows that were not answered come back empty."""
        self._ending.set()
        self.client.hang_up()

    def _one(self, q: Prompt, temperature: float, stops: frozenset[int], ends: list[int], top: int) -> Completion:
        if self._ending.is_set():
            return Completion.empty()
        forced = q.forced >= 0
        body = self._body((*q.tokens, q.forced) if forced else q.tokens, q, temperature, ends)
        body |= {"logprobs": top, "prompt_logprobs": 0 if forced else None}
        if forced:
            body["max_tokens"] = max(q.limit - 1, 1)
        answer = self.client.call("POST", "/v1/completions", body, timeout=self.answer_timeout)
        tokens, logp, cached, choice = _parsed(answer, self.client.url)
        if (why := choice.get("finish_reason")) in BROKEN_OFF:
            raise ServerError(f"{self.client.url} broke off an answer by itself (finish_reason {why!r})")
        if forced:
            if q.limit == 1 or q.forced in ends:
                tokens, logp = tokens[:0], logp[:0]
            tokens = np.append(np.int32(q.forced), tokens)
            logp = np.append(_prompt_logp(choice, q.forced), logp)
        last = int(tokens[-1]) if len(tokens) else -1
        finish = "stop" if last in stops else "" if last in ends else "length" if len(tokens) >= q.limit else "stop"
        entropy = np.full(len(tokens), np.nan, np.float32)
        return Completion(
            tokens, logp, entropy, finish, min(cached, len(q.tokens)), _likely(choice, top) if top else None
        )

    def _body(self, prompt: Sequence[int], q: Prompt, temperature: float, ends: list[int]) -> dict[str, object]:
        return {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": q.limit,
            "temperature": temperature,
            "seed": seed_of(q.key, q.position),
            "stop_token_ids": ends,
            # the distribution is the model's at this temperature, whatever the server's defaults
            "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0,
            "ignore_eos": True,
            "add_special_tokens": False,
            "skip_special_tokens": False,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }  # fmt: skip

    def _check_temperature(self, q: Prompt, temperature: float) -> None:
        """Raise ServerError where reported log-probabilities are those before the temperature."""
        seen = []
        for t in (1.0, temperature):
            body = self._body(q.tokens, q._replace(limit=1), t, []) | {"logprobs": 2}
            answer = self.client.call("POST", "/v1/completions", body, timeout=self.answer_timeout)
            _, _, _, choice = _parsed(answer, self.client.url)
            seen.append(np.sort(_likely(choice, 2)[1]))
        if np.ptp(seen[0]) > 1e-3 and np.abs(seen[0] - seen[1]).max() < 1e-6:
            raise ServerError(
                f"{self.client.url} reports log-probabilities before the temperature {temperature:g} is applied, not those "
                "of what is sampled; start it with --logprobs-mode processed_logprobs, or sample at temperature 1"
            )
        self._tempered = True

    def sync(self) -> None:
        """Send what changed since the version that the server holds, or everything; see `patches`.

        synced: seconds, bytes sent, share of elements sent, version. Raises ServerError where the server cannot take it.
        """
        if self.way == "never" or self.trained is None:
            return
        began = time.perf_counter()
        weights = lora.plain_weights(self.trained)
        tied = set(getattr(self.trained, "all_tied_weights_keys", ()) or ())
        version = self._sender.advance((n, t) for n, t in weights if n not in tied and t.is_floating_point())
        held = self._rpc("workbench_version")
        ours = all(one["origin"] == self._sender.origin for one in held)
        bases = {int(one["version"]) for one in held}
        base = bases.pop() if ours and len(bases) == 1 else FROM_NOTHING
        sent = self._send(base)
        if sent is None:  # somebody changed the weights meanwhile, or the server began anew
            sent = self._send(FROM_NOTHING)
        if sent is None:
            raise ServerError(f"{self.client.url} refused a full set of weights")
        self.client.call("POST", "/reset_prefix_cache")
        elements = sum(map(len, self._sender.bits.values()))
        self.synced = {
            "sync_seconds": time.perf_counter() - began,
            "sync_bytes": float(sent[0]),
            "sync_share": sent[1] / elements,
            "sync_version": float(version),
        }

    def _send(self, base: int) -> tuple[int, int] | None:
        """(bytes, elements) sent; None where a worker refused."""
        patch, n = self._sender.patch(base), 0
        for part in patch.split():
            data = to_bytes(part)
            n += len(data)
            answers = self._rpc("workbench_patch", base64.b64encode(data).decode())
            if any("error" in one for one in answers):
                return None
        return n, patch.changed

    def _rpc(self, method: str, *arguments: str) -> list[dict]:
        try:
            answer = self.client.call("POST", "/collective_rpc", {"method": method, "args": list(arguments)})
        except Rejected as error:
            raise ServerError(
                f"{error}. The server takes no weights: start it with VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls "
                "workbench.worlds.engines.vllm_worker.PatchedWeights, or choose sync='never'"
            ) from error
        answers = answer.get("results") if isinstance(answer, Mapping) else answer
        if not isinstance(answers, list) or not answers or not all(isinstance(one, dict) for one in answers):
            raise ValueError(f"expected a list with an answer of each worker, got {answers!r:.200}")
        return answers


def seed_of(key: int, position: int) -> int:
    """A seed for the server's draws of a stream from a position on, 52 bits."""
    return int(float(uniform(np.array([key], np.uint64), np.array([position]))[0]) * 2**52)


def _served(client: Client, wanted: str) -> tuple[str, int]:
    """Name and context (0 where it is not told) of the model that a server has."""
    answer = client.call("GET", "/v1/models")
    listed = answer.get("data", []) if isinstance(answer, Mapping) else []
    served = {str(one["id"]): int(one.get("max_model_len") or 0) for one in listed if isinstance(one, Mapping)}
    name = wanted or (next(iter(served)) if len(served) == 1 else "")
    if name not in served:
        there = ", ".join(served) or "none"
        found = f"no model {wanted!r}" if wanted else "several models or none, and none was named"
        raise ServerError(f"{client.url} has {found}; there are: {there}")
    return name, served[name]


def _parsed(answer: object, url: str) -> tuple[np.ndarray, np.ndarray, int, Mapping]:
    """Token ids, their log-probabilities, cached prompt tokens and the choice they came from."""
    if not isinstance(answer, Mapping) or not answer.get("choices"):
        raise ServerError(f"{url} answered without choices: {answer!r:.200}")
    choice = answer["choices"][0]
    logprobs = choice.get("logprobs") or {}
    ids = choice.get("token_ids")
    if ids is None:
        ids = [_id(text) for text in logprobs.get("tokens") or []]
    logp = logprobs.get("token_logprobs")
    if logp is None or len(logp) != len(ids) or any(i is None for i in ids):
        raise ServerError(
            f"{url} reports no token ids with a log-probability each; a vLLM server does, asked for return_token_ids"
        )
    details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
    return np.array(ids, np.int32), np.array(logp, np.float32), int(details.get("cached_tokens") or 0), choice


def _id(text: object) -> int | None:
    """The id in "token_id:17"; None for text of another kind."""
    name, _, number = str(text).partition(":")
    return int(number) if name == "token_id" and number.isdigit() else None


def _likely(choice: Mapping, m: int) -> tuple[np.ndarray, np.ndarray]:
    """(m,) ids and log-probabilities of the likeliest first tokens; -1 at -inf where the server tells fewer."""
    first = ((choice.get("logprobs") or {}).get("top_logprobs") or [{}])[0] or {}
    ranked = sorted(((float(p), _id(text)) for text, p in first.items()), key=lambda pair: (-pair[0], pair[1] or 0))[:m]
    ids, logp = np.full(m, -1, np.int32), np.full(m, -np.inf, np.float32)
    for k, (p, token) in enumerate(ranked):
        ids[k], logp[k] = -1 if token is None else token, p
    return ids, logp


def _prompt_logp(choice: Mapping, token: int) -> float:
    """Log-probability of the last token of the prompt."""
    entries = choice.get("prompt_logprobs") or [None]
    entry = (entries[-1] or {}).get(str(token))
    if entry is None:
        raise ServerError("the server does not tell the log-probability of a forced token (prompt_logprobs)")
    return float(entry["logprob"])
