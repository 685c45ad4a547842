"""An experiment: what is run, and the ways to run it.

`Experiment` adds to its data (`spec`) what makes its steps: a `Run` in the foreground, a `Session` in the background.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workbench.parallel import processes
from workbench.pipeline import Pipeline, catalog
from workbench.runs.run import Run
from workbench.runs.session import Session
from workbench.runs.spec import ExperimentSpec, Untrusted
from workbench.store import Store
from workbench.types import Step

if TYPE_CHECKING:
    from typing import Self


class Experiment(ExperimentSpec):
    """What is run: model, tasks, pipeline, budget of a step, number of steps, seed, store.

    model is "smollm2", "tiny", "sim", a transformers folder or a hub id; tasks a name, a JSONL file or a list of
    families; pipeline anything `Pipeline.parse` reads; methods the Python files or modules that bring methods of
    your own. name is part of the run's id, the model's name where empty.
    tokens: keep the token-level columns of "all" rollouts, of a "sample" of the groups, or of "none"; never less than
    the pipeline needs. too_long: what becomes of prompts that with their answer exceed the model's context: "error",
    "drop" or "truncate_left"; see `worlds.live.prompts.fitted`.
    update: how rows are trained on, by default in one optimiser step: epochs over them, minibatches of whole groups in each,
    clip, betas, reference, lora and more, see `worlds.training.policy.Policy`.
    world and task_options are passed on to the world and to the task. eval_every steps (and at the start and the end) the fixed evaluation set is scored; 0 turns it off.
    eval_samples: rollouts of each evaluation prompt, the most that pass@k can be asked for; 0 is the world's default, 4.
    eval_sets: more evaluation sets by name, each a task as in `tasks`, or {"source": ..., "answer": "gold", ...} with
    options of its own; scored with the first, kept apart by name. See `tasks.with_sets`.
    staleness: updates that the policy which samples a step may be behind the one trained on it, at most; 0 trains on each
    step before the next is generated, 1 generates the next one meanwhile. See `worlds.overlap.overlap`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as store:
    ...     experiment = Experiment(model="sim", pipeline="grpo + mopps", steps=2, store=store)
    ...     [step.step for step in experiment.run()]
    [1, 2]
    """

    @classmethod
    def recorded(cls, store_url: str, run: str, *, verifiers: Sequence[str] = ()) -> Self:
        """The experiment that a run was started with, with the pipeline it was last swapped to and as many steps as it was
        to make when it was opened last.

        Resumed, it has the budget and the other settings again that commands had left; see `resume`. verifiers: those of its
        verifiers ("package.module:function") that may be imported; a world with another one is refused."""
        with Store.open(store_url) as store:
            found = store.sql("select experiment from runs where run = ?", [run]).to_pylist()
            if not found:
                known = ", ".join(store.runs().column("run").to_pylist()) or "none"
                raise ValueError(f"the store {store.where} has no run {run!r}; it has {known}")
            data = json.loads(found[0]["experiment"])
            target = store.ask("page_run", run=run).to_pylist()[0]["target"]
            swaps = store.sql(
                "select payload from commands where run = ? and kind = 'swap' order by seq desc limit 1", [run]
            ).to_pylist()
        if swaps:
            data["pipeline"] = json.loads(swaps[0]["payload"])["to"]
        if "pipeline" in data:
            data["pipeline"] = Pipeline.recorded(data)
        # a store may come from anyone: what it names is not run, unless the researcher has loaded it already
        named = [o for o in (data.get("task_options"), *data.get("eval_sets", {}).values()) if isinstance(o, dict)]
        known = {o["verifier"] for o in named if isinstance(o.get("verifier"), str) and ":" in o["verifier"]}
        if strange := sorted(set(verifiers) - known):
            raise ValueError(
                f"run {run} was not judged by {', '.join(strange)}; it names {', '.join(sorted(known)) or 'none'}"
            )
        for options in named:
            if options.get("verifier") in known - set(verifiers):
                options["verifier"] = Untrusted(options["verifier"])
        data["methods"] = [source for source in data.get("methods", ()) if catalog.added(source)]
        return cls.from_dict(data | {"store": store_url} | ({"steps": target} if target else {}))

    def start(self, paused: bool = False) -> Session:
        """Run in the background of this process; returns the `Session` that steers it."""
        return Session(self).start(paused=paused)

    def run(self) -> Iterator[Step]:
        """Run in the foreground, recorded, as an iterator of finished steps. Under torchrun, in all its processes."""
        with processes.joined(self.device), Run(self) as run:
            while not run.done and run.ready():
                yield run.step()
