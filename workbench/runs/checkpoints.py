"""Checkpoints of a run: folders step-000020 with the world's own files and where the run was, whole or not at all.

Draws are keyed by seed, step and rollout, and methods' states are folded from the record, so weights and optimiser, the
prompts that are in, torch's own generator (a loss may draw from it), and in an overlapped run the steps that wait are all
there is to keep. Of several processes that make a run, the first one writes; all have to call.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from workbench.parallel import processes
from workbench.stages import Trainable
from workbench.store.folder.files import differing, fsync, write_sums
from workbench.store.open import data_folder
from workbench.store.rows.attempts import check_id

POSITION = "position.npz"
"""The file of a checkpoint that says where the run was, beside the world's own files."""


def folder_of_run(store_url: str, run_id: str) -> Path:
    """The folder of a run's checkpoints."""
    check_id(run_id, 0)
    return data_folder(store_url) / "checkpoints" / run_id


def of_step(folder: Path, step: int) -> Path:
    """Where the checkpoint after a step is or would be, among those of its run."""
    return folder / f"step-{step:06d}"


def newest(folder: Path) -> tuple[Path, int] | None:
    """The last checkpoint of a run, and the step it was made after; None where there is none."""
    found = processes.on_first(lambda: sorted(folder.glob("step-*[0-9]")))
    return (found[-1], int(found[-1].name.removeprefix("step-"))) if found else None


def save(folder: Path, step: int, world: Trainable, available: np.ndarray, also: Callable[[Path], None]) -> None:
    """Save the world and the (N,) mask of prompts that are in under a step, and remove the checkpoint before it; also writes
    what else belongs to it into the folder. Raises what writing raises, and leaves the one before it then."""
    final, part = of_step(folder, step), folder / f"step-{step:06d}.tmp"

    def begin() -> None:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)

    def end() -> None:
        torch = sys.modules.get("torch")
        state = np.empty(0, np.uint8) if torch is None else torch.get_rng_state().numpy()
        np.savez(part / POSITION, available=available, torch=state)
        also(part)
        write_sums(part)
        for path in [*sorted(p for p in part.rglob("*") if p.is_file()), part]:
            fsync(path)  # a rename may get to the disk before what it names
        part.rename(final)

    try:
        processes.on_first(begin)
        world.save(part)
        processes.on_first(end)
    except BaseException:
        if processes.first():
            shutil.rmtree(part, ignore_errors=True)
        raise
    if processes.first():
        for old in folder.glob("step-*"):
            if old != final:
                shutil.rmtree(old, ignore_errors=True)


def check(checkpoint: Path) -> None:
    """Raise ValueError where a file of a checkpoint does not hold what was written; one without checksums passes."""
    wrong = processes.on_first(lambda: differing(checkpoint))
    if wrong:
        name, why = wrong[0]
        raise ValueError(f"{checkpoint / name} is damaged: {why}; restore it from a copy, or start a new run")


def position(checkpoint: Path) -> np.ndarray | None:
    """Put torch's generator where it was; the (N,) mask of prompts that are in, None in a checkpoint without one."""
    if not (checkpoint / POSITION).exists():
        return None
    with np.load(checkpoint / POSITION) as kept:
        if len(kept["torch"]):
            import torch

            torch.set_rng_state(torch.from_numpy(kept["torch"].copy()))
        return kept["available"]
