"""Data-parallel processes of one run, as torchrun starts them: collectives between them, and joining their group.

Every process makes the same calls in the same order, and holds the same rows, states and weights. What only one of them can
know (a request, a key pressed, a clock, a full disk) is broadcast before anybody acts on it. An error in work that
`gather_results` was given is raised in all. Any other error ends its process, which reports it first in the rendezvous
store; a process that waits for the failed one then ends as well, by the error of the connection or by `watchdog.Watch`.
torch is not imported before there is a second process.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.parallel.watchdog import ProcessError, Watch

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

TIMEOUT = timedelta(hours=1)
"""The longest wait in a collective: a checkpoint or a verifier of one process may take long."""

RENDEZVOUS_TIMEOUT = timedelta(minutes=10)
"""The longest wait for the other processes to be there at the beginning."""

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_thread = threading.local()
_joins = count(1)
_watch: Watch | None = None


def _distributed() -> Any:
    """torch.distributed where it is set up, else None."""
    found = sys.modules.get("torch.distributed")
    return found if found is not None and found.is_available() and found.is_initialized() else None


def ranks() -> int:
    """Processes of the run; 1 where torch.distributed was not set up."""
    dist = _distributed()
    return dist.get_world_size() if dist is not None else 1


def rank() -> int:
    """Which of them this is, counted from 0."""
    dist = _distributed()
    return dist.get_rank() if dist is not None else 0


def first() -> bool:
    """Whether this process is the one that records, prints and takes requests."""
    return rank() == 0


def launched() -> int:
    """Processes that torchrun, or whatever sets its environment variables, has started; 1 elsewhere."""
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in _ENVIRONMENT) else 1


def launched_rank() -> int:
    """Which of the launched processes this is, also before they join; 0 for one alone."""
    return int(os.environ["RANK"]) if launched() > 1 else 0


def gather(value: T) -> list[T]:
    """All-gather: the value of every process, in order. Values are pickled, so they must come from this program alone."""
    if (n := ranks()) == 1:
        return [value]
    values: list[T] = [value] * n
    _distributed().all_gather_object(values, value, group=_group())
    return values


def broadcast(value: T) -> T:
    """The first process's value, for what all have computed alike but for rounding or a clock."""
    if ranks() == 1:
        return value
    box = [value]
    _distributed().broadcast_object_list(box, src=0, group=_group())
    return box[0]


def barrier() -> None:
    """Wait until all processes are here."""
    gather(None)


def gather_results(work: Callable[[], T]) -> list[T]:
    """Do work in every process and gather the results, in order. The error of the first process to fail is raised in all."""
    if (n := ranks()) == 1:
        return [work()]
    result, failed = None, None
    try:
        result = work()
    except Exception as error:
        failed = error
    parts = gather((result, None if failed is None else _picklable(failed)))
    for i, (_, error) in enumerate(parts):
        if error is not None:
            error = failed if failed is not None and i == rank() else error
            error.add_note(f"(in process {i} of {n})")
            raise error
    return [result for result, _ in parts]  # type: ignore[misc]


def on_first(work: Callable[[], T]) -> T:
    """Do work in the first process and broadcast its result, or its error."""
    return gather_results(lambda: work() if first() else None)[0]  # type: ignore[return-value]


def check_same(value: object, what: str) -> None:
    """Raise ProcessError where the processes have different values of what they must have alike."""
    values = gather(value)
    if other := [i for i, one in enumerate(values) if one != values[0]]:
        raise ProcessError(
            f"processes 0 and {other[0]} of {len(values)} have different {what}; they must make the same calls with the same "
            "settings, and methods must draw from the generator that they are given alone"
        )


def _picklable(error: Exception) -> Exception:
    """The error as another process can have it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ProcessError(f"{type(error).__name__}: {error}")
    return error


def new_group() -> Any:
    """A second process group, for collectives of another thread of every process; None for a single process."""
    return _distributed().new_group(backend="gloo", timeout=TIMEOUT) if ranks() > 1 else None


def use_group(group: Any) -> None:
    """Let the collectives of this thread go through a `new_group`, or again through the common one (None)."""
    _thread.group = group


def _group() -> Any:
    return getattr(_thread, "group", None)


@contextmanager
def joined(device: str | None = None) -> Iterator[None]:
    """Inside, the processes that torchrun has started are one group; one process alone, or a group that is there, is left
    as it is. Over gloo, and over NCCL too where there are GPUs, each of which becomes one process's own.

    device: what the experiment trains on, None for GPUs where there are some. Raises ValueError where they are too few.
    An error that leaves the block reaches the other processes; one that only came of another process's is replaced by it."""
    global _watch
    if launched() == 1 or _distributed() is not None:
        yield
        return
    import torch.distributed as dist

    card, time = _own_card(device), next(_joins)
    shared, watched = (dist.PrefixStore(f"workbench/{time}", one) for one in _rendezvous())  # type: ignore[attr-defined]
    dist.init_process_group(
        "gloo" if card is None else "cpu:gloo,cuda:nccl",
        store=dist.PrefixStore("group", shared),  # type: ignore[attr-defined]
        rank=launched_rank(),
        world_size=launched(),
        timeout=TIMEOUT,
        device_id=card,
    )
    watch = _watch = Watch(watched, dist.get_rank())
    try:
        yield
        barrier()
    except GeneratorExit:  # whoever took steps from a generator has enough of them: no failure
        barrier()
        raise
    except BaseException as error:
        report_failure(error)
        origin = cause(error)
        if origin is error:
            raise
        raise origin from error
    finally:
        watch.end()
        _watch = None
        dist.destroy_process_group()


@cache
def _rendezvous() -> list[Any]:
    """Two connections to the rendezvous store: one may wait there while the watchdog reads through the other.

    They stay: the first process may keep the store, and who joins once more must not find that of the time before as it goes."""
    from torch.distributed.rendezvous import rendezvous

    return [next(iter(rendezvous("env://", timeout=RENDEZVOUS_TIMEOUT)))[0] for _ in range(2)]


def _own_card(device: str | None) -> torch.device | None:
    """The GPU that is this process's own, from now on this thread's; None where none is wanted."""
    import torch

    if device == "cpu" or not torch.cuda.is_available():
        return None
    here, cards = int(os.environ.get("LOCAL_RANK", os.environ["RANK"])), torch.cuda.device_count()
    if here >= cards:
        raise ValueError(
            f"process {here} of this machine has no GPU of its own, there are {cards}; start fewer (--nproc-per-node "
            f'{cards}), or train on the processor with world = {{ device = "cpu" }}'
        )
    torch.cuda.set_device(here)
    return torch.device("cuda", here)


def report_failure(error: BaseException) -> None:
    """Let the other processes know that this one fails; the first report counts."""
    if _watch is not None:
        _watch.report(error)


def cause(error: BaseException) -> BaseException:
    """The failure of another process that this error came of; the error itself where it did not."""
    if ranks() == 1:
        return error
    if not isinstance(error, _distributed().DistError) and not (type(error) is RuntimeError and "gloo" in str(error)):
        return error  # of this process's own: gloo has no class for what it raises where a connection is cut
    reported = _watch.failure() if _watch is not None else None
    return reported or ProcessError("another process of this run has gone without a word; its own output may say why")


@contextmanager
def on_failure(callback: Callable[[BaseException], object]) -> Iterator[None]:
    """Inside, where this process has to be ended since it waits in vain for one that failed, callback is called with what
    `cause` would give, from another thread."""
    watch = _watch
    if watch is not None:
        watch.callbacks.append(callback)
    try:
        yield
    finally:
        if watch is not None:
            watch.callbacks.remove(callback)
