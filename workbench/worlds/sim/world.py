"""Simulated world: a policy that learns from the advantages it is given, a run of minutes in a second, without torch.

The policy is log-linear. Prompt i has a logit k (b_i + u_i . theta): b is where the recorded model started, u what
the prompt shares with others (all prompts, its family, and random directions), theta what training moves, and k the
sharpness, which grows as training takes entropy away: a settled prompt stays settled, right or wrong. A rollout
draws a quality q = logit + logistic noise; it is correct where q > 0, so the pass rate is sigmoid(logit), and a wrong
one comes closer to the answer the nearer q is to 0. `update` follows the exact policy gradient of that model,

    g = mean over generated rollouts of  advantage * weight * d log p(q) / d logit * u,    d log p(q) / d logit = 2 v - 1

with v in (0, 1) the chance of a quality below q; a replayed rollout is weighted by the ratio of its densities under
the present policy and under the one that drew it. Zero advantages therefore teach nothing, dropped rows do not count,
prompts of one family teach each other, and what a graded reward tells between two wrong answers is learned too.

Draws are keyed by rollout id (world seed, prompt id, step, purpose, ordinal), never by call order: two pipelines that
ask for the same rollout get the same draw. The numbers live in `Dynamics`, fitted to a recorded run by
`workbench.worlds.sim.fit` and fixed before any method is scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from workbench import validate
from workbench.stages import BaseWorld, Branch, LossFn, Prune
from workbench.types import Advantage, Plan, Rollouts
from workbench.worlds.sim.dynamics import (
    FITTED,
    Dynamics,
    Prompts,
    content_hash,
    draw_prompts,
    mix,
    ordinals,
    sigmoid,
    uniforms,
)

PARTS = {"format": 0.1, "closeness": 0.2, "exactness": 0.7}
"""Weights of the reward's named parts, as in the tasks."""

_FINISH = np.array(["stop", "length"], dtype=object)
_FAILURE = np.array(["", "verifier"], dtype=object)


class SimWorld(BaseWorld):
    """A world without a model: prompts in families, a policy that learns by `Dynamics`.

    dynamics defaults to the recorded run; p_fail is the chance that the verifier fails on a rollout; graded=False
    trains on `correct` alone, as in the recorded run and in most papers. The true pass rates are at hand (`pass_rate`),
    which no live world has. It has no tokens: `sample` refuses methods that fork or cut, hints and continuations.

    >>> len(SimWorld(n_prompts=8).pool)
    8
    """

    offers: frozenset[str] = frozenset({"embedding"})

    def __init__(
        self,
        *,
        n_prompts: int = 1000,
        n_eval: int = 200,
        eval_samples: int = 4,
        max_tokens: int = 8,
        p_fail: float = 0.0,
        graded: bool = True,
        seed: int = 0,
        dynamics: Dynamics = FITTED,
    ) -> None:
        self.dynamics = dynamics
        for name, value, low in (("n_prompts", n_prompts, 1), ("n_eval", n_eval, 0), ("eval_samples", eval_samples, 1)):
            validate.whole(name, value, low)
        validate.whole("max_tokens", max_tokens)
        validate.number("p_fail", p_fail, 0.0, 1.0)
        if not self.dynamics.families:
            raise ValueError(f"{n_prompts} prompts of no family make no pool")
        self.seed, self.p_fail, self.max_tokens, self.eval_samples = seed, p_fail, max_tokens, eval_samples
        self.graded = graded
        self.pool, self._prompts = draw_prompts(self.dynamics, n_prompts, seed, "pool")
        self.evaluation, self._eval_prompts = draw_prompts(self.dynamics, n_eval, seed, "eval")
        self._theta = np.zeros(self._prompts.loading.shape[1])
        self._log_sharpness = 0.0
        self._version = 0
        self._past: list[tuple[np.ndarray, float]] = []  # theta and log sharpness of earlier versions
        self._keyed: tuple[np.ndarray | None, np.ndarray] = (None, np.empty(0, np.uint64))
        self._seed_key = np.uint64(content_hash(f"world {seed}"))

    @property
    def version(self) -> int:
        """Updates the policy has seen."""
        return self._version

    def pass_rate(self, *, evaluation: bool = False) -> np.ndarray:
        """(N,) true pass rates of the pool, or of the evaluation set, under the current policy."""
        return sigmoid(self._logit(self._eval_prompts if evaluation else self._prompts))

    def _logit(self, prompts: Prompts, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        return np.exp(self._log_sharpness) * (prompts.base[rows] + prompts.loading[rows] @ self._theta)

    def _score(self, rollouts: Rollouts, rows: np.ndarray) -> np.ndarray:
        """(K,) d log p / d logit of some rows, times the density ratio where an earlier version drew them."""
        v = uniforms(self._keys(rollouts, self._prompts)[rows], 0)
        score, version, prompt = 2 * v - 1, rollouts.version[rows], rollouts.prompt[rows]
        for old in np.unique(version[version < self._version]).tolist():
            at = version == old
            (theta, log_sharpness), p = self._past[old], prompt[at]
            then = np.exp(log_sharpness) * (self._prompts.base[p] + self._prompts.loading[p] @ theta)
            now = sigmoid(np.log(v[at]) - np.log1p(-v[at]) + then - self._logit(self._prompts, p))
            score[at] = (2 * now - 1) * now * (1 - now) / (v[at] * (1 - v[at]))  # the logistic density is v (1 - v)
        return score

    def sample(self, plan: Plan, branch: Branch | None = None, prune: Prune | None = None) -> Rollouts:
        """Draw and verify what the plan asks for; from the plain prompt only, since there are no tokens to fork."""
        if branch is not None or prune is not None:
            raise ValueError("SimWorld has no tokens to fork or cut; use a live world for methods with branch or prune")
        if any(start is not None for start in plan.start):  # type: ignore[union-attr]
            raise ValueError("SimWorld starts from the plain prompt only; use a live world for hints and continuations")
        return self._answer(Rollouts.of_plan(plan, self.pool, self._version), plan, self._prompts)

    def _keys(self, rollouts: Rollouts, prompts: Prompts) -> np.ndarray:
        """(R,) uint64, a hash of (seed, prompt id, step, purpose, ordinal): of what the rollout id says."""
        if rollouts.id is self._keyed[0]:  # update comes after sample with the same ids
            return self._keyed[1]
        kind = np.fromiter(map(content_hash, rollouts.purpose), np.uint64, len(rollouts))
        key = mix(prompts.key[rollouts.prompt] ^ self._seed_key)
        key = mix(key ^ kind ^ rollouts.step.astype(np.uint64))
        self._keyed = (rollouts.id, mix(key ^ ordinals(rollouts.id)))
        return self._keyed[1]

    def _answer(self, rows: Rollouts, plan: Plan, prompts: Prompts) -> Rollouts:
        d, keys, row = self.dynamics, self._keys(rows, prompts), rows.prompt
        v = uniforms(keys, 0)
        quality = self._logit(prompts, row) + np.log(v) - np.log1p(-v)
        normal = np.sqrt(-2 * np.log(uniforms(keys, 1))) * np.cos(2 * np.pi * uniforms(keys, 2))
        natural = np.exp(d.log_length + d.wrong_longer * (quality <= 0) + d.length_spread * normal)
        natural = np.maximum(np.rint(natural), 1).astype(np.int64)
        cap = np.where(plan.max_tokens > 0, np.minimum(plan.max_tokens, self.max_tokens), self.max_tokens)[rows.ask]
        unfinished = (natural > cap) & (cap < self.max_tokens)  # the world's own limit leaves room for the answer
        correct = ((quality > 0) & ~unfinished).astype(float)
        readable = ((quality > -d.format_gap) & ~unfinished).astype(float)
        target = prompts.target[row]
        scale = 1 + target / 10  # off by this much, closeness is 0 (workbench.tasks.verifiers.near)
        off = np.where(correct > 0, 0, 1 + np.floor(np.maximum(-quality, 0) / d.reach * scale)).astype(np.int64)
        closeness = readable * np.maximum(0.0, 1 - off / scale)
        parts = {"format": readable, "closeness": closeness, "exactness": correct}
        value = target + np.where(keys & np.uint64(1) == 0, off, -off)
        answer, text = np.empty(len(row), dtype=object), np.empty(len(row), dtype=object)
        answer[:] = [str(x) if r else None for x, r in zip(value.tolist(), (readable > 0).tolist(), strict=True)]
        text[:] = [" the" if a is None else f" {a}" for a in answer]
        failed = uniforms(keys, 3) < self.p_fail
        answer[failed] = None
        rewards = {name: np.where(failed, np.nan, part) for name, part in parts.items()}
        return rows.with_(
            text=text,
            answer=answer,
            reward=sum(w * rewards[part] for part, w in PARTS.items()) if self.graded else rewards["exactness"].copy(),
            correct=np.where(failed, np.nan, correct),
            rewards=rewards,
            length=np.minimum(natural, cap),
            finish=_FINISH[(natural > cap).astype(np.int64)],
            failure=_FAILURE[failed.astype(np.int64)],
        )

    def score(self, rollouts: Rollouts, needs: frozenset[str]) -> Rollouts:
        """Add extra["embedding"] (R, d) float32, the prompt's, where it is needed."""
        if "embedding" not in needs:
            return rollouts
        embedding = self.pool.features["embedding"][rollouts.prompt]
        return rollouts.with_(extra={**rollouts.extra, "embedding": embedding})

    def update(
        self,
        rollouts: Rollouts,
        advantage: Advantage,
        loss: LossFn | None = None,
        penalties: list[LossFn] | None = None,
    ) -> Mapping[str, float | np.ndarray | str]:
        """One step of length `rate` along the policy gradient; torch losses and penalties are not asked.

        Where nothing carries signal nothing moves. A settled group may be dropped or kept with advantage zero: the
        step, its noise, forgetting and sharpening are the same. Without a kept row the update is skipped."""
        keep = np.flatnonzero(advantage.keep)
        if not len(keep):
            return {"skipped": "no rollout was kept", "grad_norm": 0.0}
        value = advantage.value if advantage.tokens is None else np.nan_to_num(advantage.tokens.mean())
        signal = (value * advantage.weight)[keep]
        score = self._score(rollouts, keep)
        g = (signal * score) @ self._prompts.loading[rollouts.prompt[keep]] / len(rollouts)
        norm = float(np.linalg.norm(g))
        d = self.dynamics
        live = float((signal != 0).sum() / len(rollouts))
        self._past.append((self._theta, self._log_sharpness))
        if norm > 0:  # neither length nor sharpness depends on how many rows carry signal: as with a clipped gradient
            rng = np.random.default_rng([self.seed, 7, self._version])
            stray = rng.standard_normal(len(g)) / np.sqrt(len(g))
            part = min(norm / d.clip, 1.0) if d.clip else 1.0
            self._theta = (1 - part * d.forgetting) * self._theta + part * d.rate * (g / norm + d.noise * stray)
            self._log_sharpness = (1 - part * d.forgetting) * self._log_sharpness + part * d.sharpening
        self._version += 1
        return {"loss": float(-(signal * score).sum() / len(rollouts)), "grad_norm": norm, "live": live}

    def evaluate(self, step: int) -> Rollouts:
        """The evaluation set under the current policy, purpose "eval", `eval_samples` rollouts a prompt."""
        n = len(self.evaluation)
        plan = Plan(np.arange(n), np.full(n, self.eval_samples), purpose=np.full(n, "eval", dtype=object), step=step)
        rows = Rollouts.of_plan(plan, self.evaluation, self._version)
        return self._answer(rows, plan, self._eval_prompts).with_(group=rows.prompt)

    def save(self, folder: Path) -> None:
        """Write theta, as it is and as it was at every version, to folder/sim.npz."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(
            folder / "sim.npz",
            theta=self._theta,
            log_sharpness=self._log_sharpness,
            version=self._version,
            seed=self.seed,
            past_theta=np.array([theta for theta, _ in self._past]).reshape(-1, len(self._theta)),
            past_log_sharpness=np.array([sharpness for _, sharpness in self._past]),
        )

    def load(self, folder: Path) -> None:
        """Read what `save` wrote; the world must have the same seed and dynamics."""
        with np.load(Path(folder) / "sim.npz") as saved:
            if int(saved["seed"]) != self.seed or len(saved["theta"]) != len(self._theta):
                raise ValueError(
                    f"{folder} was saved by a world of seed {int(saved['seed'])} and {len(saved['theta'])} parameters; "
                    f"this one has seed {self.seed} and {len(self._theta)}"
                )
            self._theta, self._version = saved["theta"], int(saved["version"])
            self._log_sharpness = float(saved["log_sharpness"])
            self._past = list(zip(saved["past_theta"], saved["past_log_sharpness"].tolist(), strict=True))

    def describe(self) -> dict[str, object]:
        """Facts for the table of runs, JSON-able."""
        return {
            "world": "sim",
            "model": "simulated",
            "parameters": len(self._theta),
            "dtype": "float64",
            "device": "cpu",
            "seed": self.seed,
            "p_fail": self.p_fail,
            "graded": self.graded,
            "max_tokens": self.max_tokens,
            "dynamics": asdict(self.dynamics),
        }

    def __repr__(self) -> str:
        return f"SimWorld({len(self.pool)} prompts, seed {self.seed}, version {self._version})"
