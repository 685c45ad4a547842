"""What a model folder declares and which passes are used for it: `Experiment.check()` and `workbench doctor --model`."""

from __future__ import annotations

from html import escape

from workbench.worlds.engines import choice
from workbench.worlds.live.world import LiveWorld
from workbench.worlds.training.lora import linear_layers
from workbench.worlds.training.memory import shortage


class Facts(dict[str, str]):
    """Name -> what was found, in the order of reading; printed as lines, in a notebook as a table."""

    def __str__(self) -> str:
        return "\n".join(f"{name:<14}{found}" for name, found in self.items())

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(found)}</td></tr>" for name, found in self.items())
        return f"<table>{rows}</table>"


def examine(world: LiveWorld) -> Facts:
    """Facts of a model under training: passes, engines, adapters, memory, context, template and end tokens."""
    model, tokenizer, facts = world.policy.model, world.tokenizer, world.describe()
    tied = " (output tied to the embedding)" if getattr(model.config, "tie_word_embeddings", False) else ""
    engines = {name: choice.load(name).obstacle(model) for name in choice.names()}
    others = "; ".join(f"{name}: {why or 'can run'}" for name, why in engines.items())
    needed = world.memory_needed()
    template = "the tokenizer's own" if tokenizer.chat_template else "none; prompts are read as they stand"
    return Facts(
        {
            "model": f"{world.name}: {model.config.model_type}, {world.parameters:,} parameters{tied}",
            "sampling": str(facts["sampling_pass"]),
            "update": f"{facts['update_pass']}, {facts['precision']}",
            "verdict": str(world.passes),
            "engine": world.engine_why,
            "engines": others,
            "LoRA": f"{len(linear_layers(model))} linear layers take adapters: world={{'update': {{'lora': 16}}}}",
            "memory": shortage(needed, model.device) or f"about {needed / 2**30:.1f} GiB at the peak of a step",
            "context": f"{world.context:,} tokens" if world.context else "not bounded",
            "longest": f"{world.longest:,} tokens: the longest prompt and an answer of {world.max_tokens}",
            "template": template,
            "end tokens": ", ".join(f"{i} {tokenizer.decode([i])!r}" for i in sorted(world.stop_ids))
            or "none: answers end at their limit",
        }
    )
