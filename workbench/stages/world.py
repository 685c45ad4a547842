"""Worlds: where rollouts come from, and what learns. Three protocols by who uses them, and a base with plain answers.

The loop uses a `World`, a run that is recorded and resumed a `Trainable` one, and asynchronous training an `Overlapping`
one. `BaseWorld` answers all but sampling and learning as a world does that has nothing of the kind, so that nobody has to
ask what a world can do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from workbench.stages.method import PAUSE
from workbench.types import Advantage, Cut, Fork, Frontier, Loss, Plan, Pool, Rollouts
from workbench.types.checkpoint import Checkpoint, Pauses

T = TypeVar("T")


@dataclass(frozen=True)
class Branch:
    """What all methods that branch make of a frontier, and where rollouts pause for it."""

    act: Callable[[Frontier], Fork]
    checkpoint: Checkpoint | Pauses = PAUSE

    def __call__(self, frontier: Frontier) -> Fork:
        """Decide."""
        return self.act(frontier)


@dataclass(frozen=True)
class Prune:
    """What all methods that prune make of a frontier, and where rollouts pause for it."""

    act: Callable[[Frontier], Cut]
    checkpoint: Checkpoint | Pauses = PAUSE

    def __call__(self, frontier: Frontier) -> Cut:
        """Decide."""
        return self.act(frontier)


LossFn: TypeAlias = Callable[..., Loss]


class World(Protocol):
    """Where rollouts come from: a simulation, a recorded run, a live model. What the training loop uses."""

    @property
    def pool(self) -> Pool:
        """The N prompts that a plan may name."""
        ...

    @property
    def offers(self) -> frozenset[str]:
        """What methods may name in `needs`."""
        ...

    @property
    def version(self) -> int:
        """Updates the current policy has seen."""
        ...

    def sample(self, plan: Plan, branch: Branch | None = None, prune: Prune | None = None) -> Rollouts:
        """Generate and verify what the plan asks for; one row per rollout, ids as `Rollouts.of_plan` gives them."""
        ...

    def score(self, rollouts: Rollouts, needs: frozenset[str]) -> Rollouts:
        """Add the columns named in needs (proximal logprobs, embeddings, ...) before estimate."""
        ...

    def update(
        self, rollouts: Rollouts, advantage: Advantage, loss: LossFn, penalties: list[LossFn]
    ) -> Mapping[str, float | np.ndarray | str]:
        """One optimiser step on the kept rows; scalars, (R,) columns where they are per rollout, "skipped", a reason, where
        there was none, and "logp_per_token", what `proximal` is made of: log-probabilities before the step, NaN in rows that
        were not computed."""
        ...

    def broadcast(self, value: T) -> T:
        """The first process's value, where several make the run and each has its own, as of a clock."""
        ...


class Trainable(World, Protocol):
    """A world that a `Run` evaluates, saves, resumes and describes."""

    @property
    def evaluation(self) -> Pool:
        """The fixed evaluation prompts, disjoint from the pool; extra["set"] names the set of each, where there are several."""
        ...

    def evaluate(self, step: int) -> Rollouts:
        """Rollouts of the evaluation prompts under the current policy, purpose "eval", prompt a row of `evaluation`."""
        ...

    @property
    def settings(self) -> Mapping[str, float]:
        """Settings that may change between steps, by name: temperature, lr."""
        ...

    def set_setting(self, name: str, value: float) -> None:
        """Change one of the `settings` from the next step on. Raises ValueError for another name."""
        ...

    def describe(self) -> Mapping[str, object]:
        """Facts for the table of runs, as JSON has them."""
        ...

    def fingerprint(self) -> Mapping[str, object]:
        """What results depend on, each as a value or a hash: a run that is resumed is asked whether it is still the same."""
        ...

    def pieces(self) -> Mapping[str, np.ndarray]:
        """What the token ids stand for, as the store keeps it once with a run (`store.token_bytes`)."""
        ...

    def taken_decisions(self) -> Mapping[str, Sequence[object]] | None:
        """The tests made at checkpoints since the last call, as columns of the store's decisions; None = there were none."""
        ...

    def save(self, folder: Path) -> None:
        """Write what `load` needs to go on from here into a folder."""
        ...

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote."""
        ...

    def close(self) -> None:
        """Give back memory, processes and connections; a second call does nothing."""
        ...


class Overlapping(Trainable, Protocol):
    """A world whose sampler makes a later step while an earlier one is trained (`worlds.overlap`)."""

    def hold_sampler(self) -> HeldSampler:
        """Let the sampler keep the weights it has until it is told to take others over."""
        ...

    def twin(self) -> Overlapping:
        """A world of the same model and sampler that keeps its own accounts of what it samples, for one step."""
        ...

    def adopt(self, twin: Overlapping) -> None:
        """Enter what a twin has sampled for the step that is trained next."""
        ...

    def account(self) -> Mapping[str, object]:
        """What sampling has taken since the last update, as JSON has it, for a checkpoint."""
        ...

    def enter(self, account: Mapping[str, object]) -> None:
        """Enter what another world's `account` says, of the same step in an earlier process."""
        ...

    def recall(self, plan: Plan, rows: Rollouts) -> None:
        """Enter what a plan was given in an earlier process as if `sample` had just made it."""
        ...

    def give_up(self, step: int) -> None:
        """A step was sampled and will not be trained: what it went on with is unfinished as before."""
        ...


class HeldSampler:
    """A sampler with weights of its own for the time of a run; this one has none that could differ."""

    def take_over(self) -> None:
        """Let the sampler have the trained weights; nobody may be generating."""

    def release(self) -> None:
        """Give the world its own sampler back, up to date."""


class BaseWorld:
    """A world with nothing to evaluate, set, save or hold: what a world of your own overrides as far as it has more.

    A subclass has `pool`, `version` (an attribute or a property) and `sample`; `Overlapping` documents the rest."""

    pool: Pool
    offers: frozenset[str] = frozenset()
    version: int = 0
    _evaluation: Pool | None = None

    def sample(self, plan: Plan, branch: Branch | None = None, prune: Prune | None = None) -> Rollouts:
        """Generate and verify what the plan asks for."""
        raise NotImplementedError(f"{type(self).__name__} has no sample")

    def score(self, rollouts: Rollouts, needs: frozenset[str]) -> Rollouts:
        """As they are."""
        return rollouts

    def update(
        self, rollouts: Rollouts, advantage: Advantage, loss: LossFn, penalties: list[LossFn]
    ) -> Mapping[str, float | np.ndarray | str]:
        """Nothing learns."""
        return {}

    def broadcast(self, value: T) -> T:
        """One process: its own value."""
        return value

    @property
    def evaluation(self) -> Pool:
        """No prompt, unless it was set."""
        return self.pool.take(np.empty(0, np.int64)) if self._evaluation is None else self._evaluation

    @evaluation.setter
    def evaluation(self, pool: Pool) -> None:
        self._evaluation = pool

    def evaluate(self, step: int) -> Rollouts:
        """No rollout."""
        nothing = np.empty(0, np.int64)
        return Rollouts.of_plan(Plan(nothing, nothing, step=step), self.evaluation, self.version)

    @property
    def settings(self) -> Mapping[str, float]:
        """None."""
        return {}

    def set_setting(self, name: str, value: float) -> None:
        """Raises ValueError."""
        raise ValueError(f"{type(self).__name__} has no {name} to set; a live model has one")

    def describe(self) -> Mapping[str, object]:
        """The name of its class."""
        return {"world": type(self).__name__}

    def fingerprint(self) -> Mapping[str, object]:
        """Nothing is compared."""
        return {}

    def pieces(self) -> Mapping[str, np.ndarray]:
        """No token has a text."""
        return {}

    def taken_decisions(self) -> Mapping[str, Sequence[object]] | None:
        """None were made."""
        return None

    def save(self, folder: Path) -> None:
        """Nothing to keep."""

    def load(self, folder: Path) -> None:
        """Nothing was kept."""

    def close(self) -> None:
        """Nothing is held."""

    def hold_sampler(self) -> HeldSampler:
        """Nothing to hold."""
        return HeldSampler()

    def twin(self) -> Overlapping:
        """A shallow copy."""
        return copy(self)

    def adopt(self, twin: Overlapping) -> None:
        """No accounts."""

    def account(self) -> Mapping[str, object]:
        """Nothing was taken."""
        return {}

    def enter(self, account: Mapping[str, object]) -> None:
        """No accounts."""

    def recall(self, plan: Plan, rows: Rollouts) -> None:
        """No accounts."""

    def give_up(self, step: int) -> None:
        """Nothing was unfinished."""
