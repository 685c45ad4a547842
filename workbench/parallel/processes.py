"""The processes that make one run together, as torchrun starts them: telling each other, and joining.

Every process makes the same calls in the same order, and holds the same rows, states and weights. What only one of them can
know (a request, a key pressed, a clock, a full disk) is told to all before anybody acts on it. An error in work that `shared`
was given is raised in all. Any other one ends its process, which says so first, in the store that the processes met in; one
that waits for it in vain then ends as well, by the error of the connection or by `watchdog.Watch`. Nothing here imports torch
before there is a second process.
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
from typing import Any, TypeVar

from workbench.parallel.watchdog import ProcessError, Watch

T = TypeVar("T")

PATIENCE = timedelta(hours=1)
"""What a process waits for another one at most: a checkpoint or a verifier of one of them may take long."""

MEETING = timedelta(minutes=10)
"""What a process waits at most for the others to be there at the beginning."""

_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_channel = threading.local()
_times = count(1)
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
    """Whether this process is the one that records, prints and is asked."""
    return rank() == 0


def started() -> int:
    """Processes that torchrun, or whatever sets its environment variables, has started; 1 elsewhere."""
    return int(os.environ["WORLD_SIZE"]) if all(name in os.environ for name in _ENVIRONMENT) else 1


def place() -> int:
    """Which of the processes that were started this is, also where they are not joined; 0 for one alone."""
    return int(os.environ["RANK"]) if started() > 1 else 0


def heard(value: T) -> list[T]:
    """What every process has to say, in order; it is pickled on the way, so it comes from this program alone."""
    if (n := ranks()) == 1:
        return [value]
    said: list[T] = [value] * n
    _distributed().all_gather_object(said, value, group=getattr(_channel, "group", None))
    return said


def agreed(value: T) -> T:
    """The first process's value: what all have computed alike, but for rounding or a clock."""
    if ranks() == 1:
        return value
    box = [value]
    _distributed().broadcast_object_list(box, src=0, group=getattr(_channel, "group", None))
    return box[0]


def meet() -> None:
    """Wait until all processes are here."""
    heard(None)


def shared(work: Callable[[], T]) -> list[T]:
    """What every process makes, in order. What the first one to fail raises is raised in all, so that nobody waits for it."""
    if (n := ranks()) == 1:
        return [work()]
    made, failed = None, None
    try:
        made = work()
    except Exception as error:
        failed = error
    said = heard((made, None if failed is None else _portable(failed)))
    for who, (_, error) in enumerate(said):
        if error is not None:
            error = failed if failed is not None and who == rank() else error
            error.add_note(f"(in process {who} of {n})")
            raise error
    return [made for made, _ in said]  # type: ignore[misc]


def by_first(work: Callable[[], T]) -> T:
    """What the first process makes, told to all: the others wait, and fail where it fails."""
    return shared(lambda: work() if first() else None)[0]  # type: ignore[return-value]


def same(value: object, what: str) -> None:
    """Raise ProcessError where what all processes should have alike, they have not."""
    said = heard(value)
    if other := [who for who, one in enumerate(said) if one != said[0]]:
        raise ProcessError(
            f"processes 0 and {other[0]} of {len(said)} have different {what}; they must make the same calls with the same "
            "settings, and methods must draw from the generator that they are given alone"
        )


def _portable(error: Exception) -> Exception:
    """The error as another process can have it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ProcessError(f"{type(error).__name__}: {error}")
    return error


def group_aside() -> Any:
    """A way of telling each other that another thread of every process can use meanwhile; None for a single process."""
    return _distributed().new_group(backend="gloo", timeout=PATIENCE) if ranks() > 1 else None


def speak_in(group: Any) -> None:
    """Let what this thread tells other processes go through a `group_aside`, or again through the common one (None)."""
    _channel.group = group


@contextmanager
def joined(device: str | None = None) -> Iterator[None]:
    """Inside, the processes that torchrun has started are one group; one process alone, or a group that is there, is left
    as it is. Over gloo, and over NCCL too where there are GPUs, each of which becomes one process's own.

    device: what the experiment trains on, None for GPUs where there are some. Raises ValueError where they are too few.
    An error that leaves the block reaches the other processes; one that only came of another process's is replaced by it."""
    global _watch
    if started() == 1 or _distributed() is not None:
        yield
        return
    import torch.distributed as dist

    card, time = _own_card(device), next(_times)
    met, watched = (dist.PrefixStore(f"workbench/{time}", one) for one in _met())  # type: ignore[attr-defined]
    dist.init_process_group(
        "gloo" if card is None else "cpu:gloo,cuda:nccl",
        store=dist.PrefixStore("group", met),  # type: ignore[attr-defined]
        rank=place(),
        world_size=started(),
        timeout=PATIENCE,
        device_id=card,
    )
    _watch = Watch(watched, dist.get_rank())
    try:
        yield
        meet()
    except GeneratorExit:  # whoever took steps from a generator has enough of them: no failure
        meet()
        raise
    except BaseException as error:
        say_failed(error)
        origin = cause(error)
        if origin is error:
            raise
        raise origin from error
    finally:
        _watch.end()
        _watch = None
        dist.destroy_process_group()


@cache
def _met() -> list[Any]:
    """Two connections to the store that the processes meet in: one may wait there while the other one looks.

    They stay: the first process may keep the store, and who joins once more must not find that of the time before as it goes."""
    from torch.distributed.rendezvous import rendezvous

    return [next(iter(rendezvous("env://", timeout=MEETING)))[0] for _ in range(2)]


def _own_card(device: str | None) -> Any:
    """The torch.device of the GPU that is this process's own, from now on this thread's; None where none is wanted."""
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


def say_failed(error: BaseException) -> None:
    """Let the other processes know that this one fails; the first to say so is believed."""
    if _watch is not None:
        _watch.say(error)


def cause(error: BaseException) -> BaseException:
    """The failure of another process that this error came of; the error itself where it did not."""
    if ranks() == 1:
        return error
    if not isinstance(error, _distributed().DistError) and not (type(error) is RuntimeError and "gloo" in str(error)):
        return error  # of this process's own: gloo has no class for what it raises where a connection is cut
    told = _watch.told() if _watch is not None else None
    return told or ProcessError("another process of this run has gone without a word; its own output may say why")


@contextmanager
def last_words(say: Callable[[BaseException], object]) -> Iterator[None]:
    """Inside, where this process has to be ended since it waits in vain for one that failed, say is called with what `cause`
    would give, from another thread."""
    watch = _watch
    if watch is not None:
        watch.words.append(say)
    try:
        yield
    finally:
        if watch is not None:
            watch.words.remove(say)
