"""The table of model families that a command writes: `python -m workbench.reference.families`, after a new family or pass.

Each row is measured on a random model of the family (`workbench.models.families`); a test holds `docs/models.md` against it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from workbench.models.families import FAMILIES, random_model
from workbench.worlds.engines.llama import supported
from workbench.worlds.live.passes import checked_passes
from workbench.worlds.training.lora import add

TEXT = """# Models: which families train, and how

Any causal language model that transformers runs: a folder, a hub id, or `(model, tokenizer)` in memory. Before the first
step the passes of the run are compared with the model's own forward, on rows longer than any window that a row of the run
can cross. The fastest passes that give the same log-probabilities are used; where only the model's own forward is right,
that is what runs; where nothing is, the model is refused with the figures.

`workbench doctor --model FOLDER` prints what was found for a model: passes and how far each was from its own forward, in
nats, engines, adapters, memory, context, template, end tokens. `Experiment(model=FOLDER, ...).check()` returns the same for
an experiment.

- **sampling**: *cached* computes each prompt once for its group and keeps keys and values; *recomputed* reads every token
  from the whole row (right for recurrent layers, and slow). Where rows pause (trees, pruning) windows leave no cache to
  take back, and those rows are recomputed.
- **update**: *packed* puts the answers of a prompt behind one copy of it; *padded* runs every row by itself.
- **graph**: whether decoding with CUDA graphs and compiled updates over streams, for a GPU, know the family.
- **LoRA**: adapters in all linear layers; experts that are kept as one tensor get none.

vLLM and servers sample whatever they support themselves; their log-probabilities are compared with the trained model's at
the start, and a server of other weights is refused.

Measured on random models of each family, float32, windows of 8 tokens where there are any, by
`python -m workbench.reference.families`:

"""


def rows() -> list[str]:
    """The lines of the table."""
    found = [
        "| family | transformers' type | sampling | where rows pause | update | graph | LoRA |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, (kind, _) in FAMILIES.items():
        model = random_model(name)
        passes = checked_passes(model, 100)
        whole, paused = (
            ("cached" if passes.cached else "recomputed"),
            ("cached" if passes.cached is True else "recomputed"),
        )
        fast = "no" if supported(model) else "yes"
        try:
            add(model, 2)
            adapters = "yes"
        except ValueError:
            adapters = "no"
        found.append(f"| {name} | `{kind}` | {whole} | {paused} | {passes.update} | {fast} | {adapters} |")
    return found


def page() -> str:
    """The text of `docs/models.md`."""
    logging.getLogger("transformers").setLevel(logging.ERROR)  # hints at packages that would make a family faster
    return TEXT + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    (Path(__file__).parents[2] / "docs" / "models.md").write_text(page())
