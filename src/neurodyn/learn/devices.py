# SPDX-License-Identifier: Apache-2.0
"""Where trainings run: the device, the threads, and several processes that train one model or policy.

Each on its share of the batch (data parallel).
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage]  # documented
from torch.distributed.rendezvous import rendezvous

from neurodyn.core.errors import InputError
from neurodyn.core.locks import exclusive
from neurodyn.core.seeds import derive_seed


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let tensor operations use `count` threads inside the context.

    One is fastest for small networks, and gives the same bits on every machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def require_device(name: str) -> torch.device:
    """Return a torch device by name.

    Raises:
        InputError: There is no such device here.
    """
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    have = ["cpu", *(["cuda"] if found else []), *(f"cuda:{i}" for i in range(found))]
    if name not in have:
        why = "" if found or not name.startswith("cuda") else ": torch finds no CUDA GPU"
        raise InputError(f"device {name!r} is not available{why}; valid: {', '.join(have)}")
    return torch.device(name)


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error says that a device has too little memory: torch's, or Warp's, which has no type."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "Failed to allocate" in str(error)


T = TypeVar("T")

_TIMEOUT = timedelta(hours=2)
"""How long a rank waits for another: a validation of rank 0, or the reading of data, may take that long."""

_GRACE = 60.0
"""Time that the other processes have to end by themselves after one has failed [s]."""

_TELL = 5.0
"""Time in which a rank that fails says why [s]."""

_PARENT = "NEURODYN_LAUNCHER"
"""Process that launched this one."""

_MOST_NAMED = 4


class Ranks:
    """A process alone; `_Group` is one of several.

    Attributes:
        rank: Number of this process, from 0.
        count: Number of processes.
    """

    rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process validates, writes and prints."""
        return self.rank == 0

    @property
    def rows(self) -> slice:
        """Windows of a batch of all ranks that this one learns from."""
        return slice(self.rank, None, self.count)

    def seed(self, seed: int) -> int:
        """Return the seed of what is to differ between ranks; rank 0 has that of a process alone."""
        return seed if self.leads else derive_seed(seed, "rank", self.rank)

    def exclusive(self, target: str | Path) -> AbstractContextManager[None]:
        """Hold the lock of a file or folder on rank 0; errors are those of `core.locks.exclusive`."""
        return exclusive(target) if self.leads else nullcontext()

    def writes(self, path: Path | None) -> Path | None:
        """Return a path that rank 0 writes; None on other ranks, which write nothing."""
        return path if self.leads else None

    def device(self, name: str, gpu_ids: Sequence[int] = ()) -> str:
        """Return the torch device of this rank.

        Args:
            name: Device that was asked for.
            gpu_ids: A GPU for each rank; empty where `name` says all.

        Raises:
            InputError: The ranks would share a GPU, or there is not one GPU for each of them.
        """
        if not gpu_ids:
            return name
        if len(gpu_ids) != self.count:
            raise InputError(
                f"--gpu-ids names {len(gpu_ids)} GPUs and there are {self.count} processes; valid: one GPU for each"
            )
        return f"cuda:{gpu_ids[self.rank]}"

    def agree(self, lead: Callable[[], T]) -> T:
        """Return what rank 0 finds; the others do not call `lead`."""
        return lead()

    def gather(self, value: T) -> list[T]:
        """Return what each rank says, in their order."""
        return [value]

    def total(self, values: Sequence[float]) -> list[float]:
        """Return numbers summed over ranks."""
        return list(values)

    def clock(self, wall: float, cpu: float) -> tuple[float, float, float]:
        """Return wall and processor time that passed on rank 0, and the processor time of all ranks [s]."""
        return wall, cpu, cpu

    def greatest(self, value: int) -> int:
        """Return the greatest of the ranks' numbers."""
        return value

    def mean(self, value: float) -> float:
        """Return the mean of the ranks' numbers."""
        return value

    def share(self, weigh: Callable[[], Tensor | None]) -> Tensor | float:
        """Return by how much the mean over this rank's windows counts in the mean over all ranks' means.

        Args:
            weigh: Returns what this rank's windows weigh together, of any shape; None where all ranks' weigh alike.
        """
        return 1.0

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their means over ranks."""

    def lead(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of rank 0."""

    def wait(self) -> None:
        """Wait until all ranks are here."""

    def require_equal(self, what: Mapping[str, str]) -> None:
        """Refuse ranks that are about different things.

        Args:
            what: Names and values that must be equal.

        Raises:
            InputError: Some differ, on all ranks.
        """


_ALONE = Ranks()
_now: list[Ranks] = []


def current_ranks() -> Ranks:
    """Return the processes that train together, as this one sees them."""
    return _now[-1] if _now else _ALONE


def several() -> bool:
    """Return whether torchrun, or `launch`, started this process as one of several."""
    known = all(os.environ.get(name) for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"))
    return known and int(os.environ.get("WORLD_SIZE", "1")) > 1


class _Group(Ranks):
    """One of several processes; numbers go through gloo, tensors through the backend of their device."""

    def __init__(self) -> None:
        """Find the other processes, by torch's environment variables."""
        # Imported later, its functions would keep this group as the default of an argument, and so gloo's threads: the
        # group could not end before Python does, and a thread that then frees a tensor ends all by `std::terminate`.
        import_module("torch.distributed.nn.functional")
        try:
            self._store, self.rank, self.count = next(rendezvous("env://", timeout=_TIMEOUT))
            with _silent_descriptors():  # gloo prints how many are connected
                dist.init_process_group(
                    "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
                    store=PrefixStore("neurodyn", self._store), rank=self.rank, world_size=self.count,
                    timeout=_TIMEOUT,
                )  # fmt: skip
        except (RuntimeError, ValueError) as error:
            raise InputError(f"the processes do not find each other ({_first_line(error)})") from None

    def close(self) -> None:
        """Leave the others."""
        dist.destroy_process_group()

    def close_failed(self) -> None:
        """Leave the others after a failure, where that does not wait for them as NCCL may.

        The frames of the error hold the group, too, which is not gone before they are (see `__init__`).
        """
        if not torch.cuda.is_available():
            with suppress(RuntimeError):
                self.close()

    def device(self, name: str, gpu_ids: Sequence[int] = ()) -> str:
        """Return the device of this rank; "cuda" is the GPU of its number on this machine."""
        if name.startswith("cuda:"):
            raise InputError(f"--device is {name!r} for {self.count} processes; valid: cpu, cuda (a GPU for each)")
        local = int(os.environ.get("LOCAL_RANK", self.rank))
        found = f"cuda:{local}" if name == "cuda" and not gpu_ids else super().device(name, gpu_ids)
        if found != "cpu":
            if not torch.cuda.is_available() or int(found[5:]) >= torch.cuda.device_count():
                raise InputError(f"rank {self.rank} is to compute on {found!r}, which is not there; valid: a GPU each")
            torch.cuda.set_device(found)
        return found

    def agree(self, lead: Callable[[], T]) -> T:
        """Return what rank 0 finds."""
        box: list[Any] = [lead() if self.leads else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: T) -> list[T]:
        """Return what each rank says."""
        found: list[Any] = [None] * self.count
        dist.all_gather_object(found, value)
        return found

    def total(self, values: Sequence[float]) -> list[float]:
        """Return numbers summed over ranks."""
        sums = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(sums)
        return sums.tolist()

    def clock(self, wall: float, cpu: float) -> tuple[float, float, float]:
        """Return the times of rank 0, and the processor time of all."""
        passed, spent, of_all = self.total([wall * self.leads, cpu * self.leads, cpu])
        return passed, spent, of_all

    def greatest(self, value: int) -> int:
        """Return the greatest of the ranks' numbers."""
        most = torch.tensor(value)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return int(most)

    def mean(self, value: float) -> float:
        """Return the mean of the ranks' numbers."""
        return self.total([value])[0] / self.count

    def share(self, weigh: Callable[[], Tensor | None]) -> Tensor | float:
        """Return count * weight / sum of all ranks' weights."""
        own = weigh()
        if own is None:
            return 1.0
        total = own.clone()
        dist.all_reduce(total)
        return self.count * own / total

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their means: one message for each type of number."""
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            own = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in own])
            dist.all_reduce(flat)
            flat /= self.count
            parts = flat.split([tensor.numel() for tensor in own])
            for tensor, part in zip(own, parts, strict=True):
                tensor.detach().copy_(part.view_as(tensor))

    def lead(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of rank 0."""
        for tensor in tensors:
            flat = tensor.detach().contiguous()
            dist.broadcast(flat, src=0)
            tensor.detach().copy_(flat)

    def wait(self) -> None:
        """Wait until all ranks are here."""
        self.total([0.0])

    def require_equal(self, what: Mapping[str, str]) -> None:
        """Compare with rank 0, name by name."""
        told = self.gather(dict(what))
        found = [
            f"{name} is {told[0].get(name, 'missing')} on rank 0 and {own.get(name, 'missing')} on rank {rank}"
            for rank, own in enumerate(told)
            for name in sorted({*told[0], *own})
            if told[0].get(name) != own.get(name)
        ]
        if found:
            shown = "; ".join(found[:_MOST_NAMED]) + ("; ..." if found[_MOST_NAMED:] else "")
            raise InputError(f"the ranks disagree: {shown}; start all of them with the same arguments")

    def told(self, error: BaseException) -> BaseException:
        """Return what this process ends with where an error ends it: rank 0 says in one line why all of them end.

        The others tell rank 0 and end silently; a process that is only left alone says what ended the other.
        """
        if isinstance(error, InputError) or lacks_memory(error):
            self._say(_first_line(error))
            return error if self.leads else SystemExit(2)
        stopped, lost = isinstance(error, KeyboardInterrupt), _is_lost(error)
        if (stopped or lost) and (other := self._ended(0.0 if stopped else _TELL)):
            return InputError(other) if self.leads else SystemExit(2)
        if stopped:
            return error if self.leads else SystemExit(getattr(error, "code", 130))
        if lost:
            return InputError(
                f"rank {self.rank}: another of the {self.count} processes ended without a word (out of memory, or "
                "killed); the same command with --resume goes on from the last checkpoint"
            )
        self._say(f"{type(error).__name__}: {_first_line(error)}")
        return error

    def _say(self, text: str) -> None:
        """Tell the other ranks why this one ends."""
        with suppress(RuntimeError):  # whoever keeps the texts has ended
            self._store.set(f"end/{self.rank}", text)

    def _ended(self, seconds: float) -> str:
        """Return what another rank has said of why it ends, at the latest after some seconds; empty for nothing."""
        until = time.monotonic() + seconds
        try:
            while True:
                for rank in range(self.count):
                    if rank != self.rank and self._store.check([f"end/{rank}"]):
                        return f"rank {rank}: {self._store.get(f'end/{rank}').decode()}"
                if time.monotonic() >= until:
                    return ""
                time.sleep(0.1)
        except RuntimeError:  # whoever kept the texts has ended, too
            return ""


def _is_lost(error: BaseException) -> bool:
    """Return whether an error says that a message found nobody."""
    if isinstance(error, dist.DistError):
        return True
    words = ("Connection closed by peer", "Connection reset by peer", "Timed out waiting", "gloo/transport", "NCCL")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@contextmanager
def joined() -> Iterator[Ranks]:
    """Train together with the other processes that torchrun (or `launch`) has started; alone where there are none.

    Ranks other than 0 print nothing within, and end silently where rank 0 says why all of them end.

    Raises:
        InputError: The processes do not find each other, or another one failed.
    """
    if not several():
        yield _ALONE
        return
    group = _Group()
    _now.append(group)
    try:
        with ExitStack() as stack:
            _watch_launcher()
            if not group.leads:
                nowhere = stack.enter_context(open(os.devnull, "w"))
                stack.enter_context(redirect_stdout(nowhere))
                stack.enter_context(redirect_stderr(nowhere))
            yield group
            group.wait()
        group.close()
    except (Exception, KeyboardInterrupt) as error:
        end = group.told(error)
        group.close_failed()
        if end is error:
            raise
        raise end from None
    finally:
        _now.remove(group)


def launch(count: int, command: Sequence[str]) -> int:
    """Run a command in several processes of this machine, as torchrun does, and return its exit code.

    Signals go to all of them. Where one fails, the others have some time to end by themselves.

    Args:
        count: Number of processes.
        command: Program and arguments, as those of `neurodyn`.

    Returns:
        0 if all ended so, otherwise the code of the lowest rank that failed (128 + number where a signal ended it).
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), _PARENT: str(os.getpid()),
    }  # fmt: skip
    processes: list[subprocess.Popen[bytes]] = []
    before = {
        number: signal.signal(number, lambda number, _: [process.send_signal(number) for process in processes])
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        for rank in range(count):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(subprocess.Popen(list(command), env={**os.environ, **shared, **own}))
        _wait(processes)
        codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    return next((code if code > 0 else 128 - code for code in codes if code), 0)


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until all processes have ended; where one fails the others have to follow."""
    deadline = None
    while any(process.poll() is None for process in processes):
        failed = any(process.poll() for process in processes)
        if failed and deadline is None:
            deadline = time.monotonic() + _GRACE
        if deadline is not None and time.monotonic() > deadline:
            return
        time.sleep(0.1)


def _watch_launcher() -> None:
    """Stop in order where the process that launched this one is gone: nobody else would stop a training on a GPU."""
    parent = int(os.environ.get(_PARENT, "0"))
    if not parent:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(2.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _silent_descriptors() -> Iterator[None]:
    """Let nothing through that C++ code prints."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        for number, _ in kept:
            os.dup2(sink, number)
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
        os.close(sink)
