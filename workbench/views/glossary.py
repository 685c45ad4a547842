"""The words of the pages and what they mean here, in the order in which one meets them. Text alone, no drawing."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """A word, what it means, and where it is shown."""

    word: str
    meaning: str
    page: str = ""


GLOSSARY: dict[str, tuple[Term, ...]] = {
    "What happens": (
        Term("step", "One round of choosing prompts, generating rollouts, scoring them and updating the model once.", "live"),
        Term("prompt", "A question of the pool, with a reference answer that a verifier compares with.", "difficulty"),
        Term("rollout", "One completion of one prompt, generated and scored. The unit that a budget counts.", "live"),
        Term("group", "The rollouts of one prompt in one step. Their rewards are compared with each other.", "tree"),
        Term("group size", "Rollouts of a prompt in a step, G. It may differ from prompt to prompt.", "budget"),
        Term("pool", "All prompts that a run may ask for.", "difficulty"),
        Term("stratum", "The family that a prompt belongs to, such as two-digit sums.", "difficulty"),
        Term("policy", "The model as it is at a step: what generates, and what is trained.", "live"),
        Term("purpose", "What a rollout was made for: train, probe, profile, reference, teacher or eval. Only the first trains.",
             "budget"),
        Term("context", "What was put before the prompt, such as a hint. Only plain prompts are evidence of difficulty.",
             "tokens"),
    ),
    "What is measured": (
        Term("reward", "What training uses, usually between 0 and 1; made of parts such as format and exactness.", "live"),
        Term("correct", "Whether the answer is right, 0 or 1. The evidence of difficulty.", "live"),
        Term("pass rate", "Share of the training rollouts of a step that are correct. It moves with the selection of prompts, so "
             "it is no measure of learning.", "live"),
        Term("evaluation", "A fixed set of prompts outside the pool, scored now and then with the same random numbers. The "
             "measure of learning; its band is a 95 % interval.", "live"),
        Term("advantage", "How much better a rollout did than what it is compared with. Positive: made likelier by the update.",
             "tokens"),
        Term("baseline", "What a reward is compared with, most often the mean of the group.", "signs"),
        Term("estimator", "The rule that turns rewards into advantages, such as GRPO's or leave-one-out.", "signs"),
        Term("zero advantage", "Rollouts whose group has equal rewards: they enter the loss and pull nowhere. Penalties on "
             "drift and entropy may still act on them.", "budget"),
        Term("signal", "An advantage that is not zero.", "budget"),
        Term("sign flip", "A rollout that one estimator pushes up and another pushes down.", "signs"),
        Term("entropy", "How undecided the model was at a token, in nats; 0 = sure.", "tokens"),
        Term("log-probability", "Natural logarithm of the probability that the sampler gave to the token it drew.", "tokens"),
        Term("ratio", "Probability of a token under the policy in training over that under the sampler; 1 = equal.", "tokens"),
        Term("clipped", "A token whose ratio left the band within which the loss follows it.", "tokens"),
        Term("proximal", "The policy at the start of the update, against which ratios are clipped.", "tokens"),
        Term("coverage", "For how many rollouts the trainer's figures are kept.", "tokens"),
        Term("tokens/s", "Generated tokens over the seconds of the whole step.", "live"),
    ),
    "What is believed": (
        Term("difficulty", "A prompt's chance of being solved by the present policy; low = hard.", "difficulty"),
        Term("belief", "What a method holds of that chance: a mean, and a low and a high end.", "difficulty"),
        Term("posterior", "The belief after the outcomes seen so far.", "difficulty"),
        Term("observed pass rate", "The share solved when a prompt was last asked: no belief of a method, only a count.",
             "difficulty"),
        Term("calibration", "Whether of the prompts believed solved to 30 % about 30 % are.", "difficulty"),
        Term("frontier", "Prompts neither too easy nor too hard: chances between 10 % and 90 %.", "difficulty"),
        Term("forgotten", "Prompts that were solved more often than they are now.", "difficulty"),
        Term("stuck", "Prompts asked often and never solved.", "difficulty"),
    ),
    "Where the budget goes": (
        Term("budget", "What a step may spend: prompts and rollouts, perhaps tokens or seconds.", "budget"),
        Term("fate", "What became of a rollout: exactly one of the following six.", "budget"),
        Term("trained", "It entered the loss.", "budget"),
        Term("dropped", "Generated and left out of the loss, with a reason.", "budget"),
        Term("pruned", "Stopped before its end because it was not worth going on.", "budget"),
        Term("discarded", "Broken off for another reason, as when enough others were done.", "budget"),
        Term("carried", "Not finished or not used in this step, kept for a later one.", "budget"),
        Term("failed", "No reward could be given: the verifier failed or ran out of time.", "budget"),
        Term("flat", "A group in which every rollout begins at the prompt: no tree.", "tree"),
        Term("fork", "The place where a rollout leaves another one whose beginning it shares.", "tree"),
        Term("savings", "Tokens of a tree against what as many flat rollouts would have cost.", "budget"),
    ),
    "Who decides": (
        Term("method", "One paper's rule, with its settings; the pages call it by its short name.", "live"),
        Term("pipeline", "The methods of a run, in order. At select, allocate and loss the last one that has the verb decides; at "
             "the others all that have it act.", "live"),
        Term("verb", "A place in a step at which methods act.", "live"),
        Term("select", "Which prompts a step asks.", "live"),
        Term("allocate", "How many rollouts each of them gets.", "live"),
        Term("amend", "Changes to that plan: hints, a rollout more, limits.", "live"),
        Term("more", "Whether prompts are wanted in addition, after a look at the first rollouts.", "live"),
        Term("branch", "Where a rollout forks.", "tree"),
        Term("prune", "Where a rollout stops early.", "tree"),
        Term("admit", "What may enter the batch.", "live"),
        Term("replay", "Rollouts of earlier steps, used again.", "live"),
        Term("estimate", "How rewards become advantages.", "signs"),
        Term("loss", "The objective of the update.", "live"),
        Term("penalty", "A term beside it, such as one on drift.", "live"),
    ),
    "Where the seconds go": (
        Term("generate", "Making rollouts, and verifying them.", "live"),
        Term("score", "Figures of rollouts that methods need from the trainer, such as log-probabilities.", "live"),
        Term("decide", "Select, allocate, amend and more.", "live"),
        Term("update", "The optimiser step.", "live"),
        Term("evaluate", "The fixed set.", "live"),
        Term("record", "Handing the step over to the store.", "live"),
        Term("other", "What has no colour of its own.", "live"),
    ),
    "Steering": (
        Term("command", "What somebody asked of the run. It waits until the step in hand ends, acts on the next one, and is "
             "recorded with its name and step.", "live"),
        Term("pin", "Have a prompt in every step.", "live"),
        Term("drop", "Take a prompt out of the pool.", "live"),
        Term("boost", "More rollouts for a prompt whenever it is asked, at the cost of the others of the step.", "live"),
        Term("free", "Take back pin, drop and boost.", "live"),
        Term("swap", "Put another pipeline in; a method that stays keeps what it learned.", "live"),
        Term("temperature", "How evenly tokens are drawn; 1 = as the model says, lower = closer to its first choice.", "live"),
        Term("learning rate", "How far one update moves the weights.", "live"),
        Term("checkpoint", "The weights and the optimiser on disk, from which a run can go on.", "live"),
    ),
    "Keys": (
        Term("1 … 9", "To that page of the navigation."),
        Term("n, p", "To the next and the previous prompt, group or rollout of the page."),
        Term("g", "To the next group of the step.", "live"),
        Term("s", "Show the SQL behind the page, or hide it."),
    ),
    "What is kept": (
        Term("store", "The folder, or the shared catalog, that holds all runs.", "sql"),
        Term("run", "One experiment as it went, with everything it recorded.", "live"),
        Term("attempt", "Each time a run was opened to be written: its start and every resume.", "sql"),
        Term("question", "A saved statement of SQL with parameters; every view stands on some.", "sql"),
        Term("event", "A warning, a failure or a note.", "live"),
    ),
}  # fmt: skip
"""Heading -> its terms."""


def words() -> set[str]:
    """All words that are explained."""
    return {term.word for terms in GLOSSARY.values() for term in terms}


def found(text: str) -> dict[str, tuple[Term, ...]]:
    """The terms whose word or meaning holds a text, whatever its case."""
    wanted = text.strip().lower()
    hits = {
        heading: tuple(t for t in terms if wanted in t.word.lower() or wanted in t.meaning.lower())
        for heading, terms in GLOSSARY.items()
    }
    return {heading: terms for heading, terms in hits.items() if terms}
