# SPDX-License-Identifier: Apache-2.0
"""Devices, threads, and data-parallel processes of trainings, each with its share of the batch."""

import os
import signal
import subprocess
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

from neurodyn.core.errors import InputError, suggestion
from neurodyn.core.locks import exclusive
from neurodyn.core.seeds import derive_seed
from neurodyn.data.store import IN_MEMORY
from neurodyn.geometry.launching import drop_native_output


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run tensor operations on `count` threads: one is fastest for small networks, with the same bits everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def data_memory(device: str | torch.device) -> int:
    """Return the amount of data that a training holds in memory [bytes]: on a GPU a quarter of its memory."""
    place = torch.device(device)
    if place.type != "cuda" or not torch.cuda.is_available():
        return IN_MEMORY
    return max(IN_MEMORY, torch.cuda.get_device_properties(place).total_memory // 4)


def require_device(name: str) -> torch.device:
    """Return a torch device by name, or raise an InputError if this machine does not have it."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    have = ["cpu", *(["cuda"] if gpus else []), *(f"cuda:{i}" for i in range(gpus))]
    if name not in have:
        why = "" if gpus or not name.startswith("cuda") else ": torch finds no CUDA GPU"
        raise InputError(f"device {name!r} is not available{why or suggestion(name, have)}; valid: {', '.join(have)}")
    return torch.device(name)


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error reports too little device memory: torch's, or Warp's, which has no type of its own."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "Failed to allocate" in str(error)


T = TypeVar("T")

_TIMEOUT = timedelta(hours=2)
"""Longest wait of a rank for another, for example while rank 0 validates or data are read."""

_GRACE = 60.0
"""Grace period for the other processes to stop after one has failed [s]."""

_TELL = 5.0
"""Time for a failing rank to report its reason [s]."""

_PARENT = "NEURODYN_LAUNCHER"
"""Environment variable with the process number of `launch`."""

_MOST_NAMED = 4


class Ranks:
    """The processes that train one model or policy together, as seen by one of them; this class is a single process.

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
        """This rank's share of the windows in a batch of all ranks."""
        return slice(self.rank, None, self.count)

    def seed(self, seed: int) -> int:
        """Return a seed that differs between ranks; rank 0 keeps the one that a single process has."""
        return seed if self.leads else derive_seed(seed, "rank", self.rank)

    def exclusive(self, target: str | Path) -> AbstractContextManager[None]:
        """Hold the lock of a file or folder on rank 0; errors: see `core.locks.exclusive`."""
        return exclusive(target) if self.leads else nullcontext()

    def writes(self, path: Path | None) -> Path | None:
        """Return the path on rank 0, and None on other ranks, which write nothing."""
        return path if self.leads else None

    def device(self, name: str, gpu_ids: Sequence[int] = ()) -> str:
        """Return the torch device of this rank.

        Args:
            name: The device that the user asked for; with several processes "cuda" is the GPU of the rank's number.
            gpu_ids: One GPU for each rank; empty to use `name`.

        Raises:
            InputError: The ranks would share a GPU, or there is not one GPU for each rank.
        """
        if not gpu_ids:
            return name
        if len(gpu_ids) != self.count:
            raise InputError(
                f"--gpu-ids names {len(gpu_ids)} GPUs and there are {self.count} processes; valid: one GPU for each"
            )
        return f"cuda:{gpu_ids[self.rank]}"

    def agree(self, lead: Callable[[], T]) -> T:
        """Return the result of `lead` on rank 0; other ranks do not call it."""
        return lead()

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in their order."""
        return [value]

    def total(self, values: Sequence[float]) -> list[float]:
        """Return each number summed over the ranks."""
        return list(values)

    def greatest(self, value: int) -> int:
        """Return the largest number of any rank."""
        return value

    def share(self, weigh: Callable[[], Tensor | None]) -> Tensor | float:
        """Return the weight of the mean over this rank's windows in the mean over the ranks.

        Args:
            weigh: Returns the total weight of this rank's windows, any shape; None if all ranks weigh the same.
        """
        return 1.0

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their means over the ranks, in place."""

    def lead(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by the ones of rank 0, in place."""

    def clock(self, wall: float, cpu: float) -> tuple[float, float, float]:
        """Return the wall and CPU time that passed on rank 0, and the CPU time of all ranks [s]."""
        passed, spent, of_all = self.total([wall * self.leads, cpu * self.leads, cpu])
        return passed, spent, of_all

    def mean(self, value: float) -> float:
        """Return the mean of a number over the ranks."""
        return self.total([value])[0] / self.count

    def wait(self) -> None:
        """Wait until all ranks are here."""
        self.total([0.0])

    def require_equal(self, settings: Mapping[str, str]) -> None:
        """Raise an InputError on every rank if a named value differs from the one on rank 0."""
        by_rank = self.gather(dict(settings))
        differences = [
            f"{name} is {by_rank[0].get(name, 'missing')} on rank 0 and {own.get(name, 'missing')} on rank {rank}"
            for rank, own in enumerate(by_rank)
            for name in sorted({*by_rank[0], *own})
            if by_rank[0].get(name) != own.get(name)
        ]
        if differences:
            shown = "; ".join(differences[:_MOST_NAMED]) + ("; ..." if differences[_MOST_NAMED:] else "")
            raise InputError(f"the ranks disagree: {shown}; start all of them with the same arguments")


_now = [Ranks()]


def current_ranks() -> Ranks:
    """Return the processes that train together, as seen by this one."""
    return _now[-1]


def several() -> bool:
    """Return whether torchrun, or `launch`, started this process as one of several."""
    known = all(os.environ.get(name) for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"))
    return known and int(os.environ.get("WORLD_SIZE", "1")) > 1


def launched() -> bool:
    """Return whether `launch` started this process."""
    return _PARENT in os.environ


class _Group(Ranks):
    """One of several processes; numbers go through gloo, tensors through the backend of their device."""

    def __init__(self) -> None:
        """Find the other processes, by torch's environment variables."""
        # Imported later, its functions would hold this group as the default of an argument, and with it gloo's threads.
        # The group would then outlive Python, and a thread that frees a tensor aborts the process by `std::terminate`.
        import_module("torch.distributed.nn.functional")
        try:
            self._store, self.rank, self.count = next(rendezvous("env://", timeout=_TIMEOUT))
            with drop_native_output(1, 2):  # gloo prints how many are connected
                dist.init_process_group(
                    "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
                    store=PrefixStore("neurodyn", self._store), rank=self.rank, world_size=self.count,
                    timeout=_TIMEOUT,
                )  # fmt: skip
        except (RuntimeError, ValueError) as error:
            raise InputError(f"the processes do not find each other ({first_line(error)})") from None

    def close_failed(self) -> None:
        """Leave the group after a failure, unless NCCL might wait for the other ranks.

        The frames of the error hold the group too: it is freed only with them (see `__init__`).
        """
        if not torch.cuda.is_available():
            with suppress(RuntimeError):
                dist.destroy_process_group()

    def device(self, name: str, gpu_ids: Sequence[int] = ()) -> str:
        if name.startswith("cuda:"):
            raise InputError(f"--device is {name!r} for {self.count} processes; valid: cpu, cuda (a GPU for each)")
        local = int(os.environ.get("LOCAL_RANK", self.rank))
        device = f"cuda:{local}" if name == "cuda" and not gpu_ids else super().device(name, gpu_ids)
        if device != "cpu":
            if not torch.cuda.is_available() or int(device[5:]) >= torch.cuda.device_count():
                raise InputError(f"rank {self.rank} is to compute on {device!r}, which is not there; valid: a GPU each")
            torch.cuda.set_device(device)
        return device

    def agree(self, lead: Callable[[], T]) -> T:
        box: list[Any] = [lead() if self.leads else None]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def total(self, values: Sequence[float]) -> list[float]:
        sums = torch.tensor(list(values), dtype=torch.float64)
        dist.all_reduce(sums)
        return sums.tolist()

    def greatest(self, value: int) -> int:
        most = torch.tensor([value])
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        return int(most)

    def share(self, weigh: Callable[[], Tensor | None]) -> Tensor | float:
        weight = weigh()
        if weight is None:
            return 1.0
        total = weight.clone()
        dist.all_reduce(total)
        return self.count * weight / total

    def average(self, tensors: Sequence[Tensor]) -> None:
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):  # one message for each type of number
            own = [tensor.detach() for tensor in tensors if tensor.dtype == dtype]
            alone = len(own) == 1 and own[0].is_contiguous()
            flat = own[0].view(-1) if alone else torch.cat([tensor.reshape(-1) for tensor in own])
            dist.all_reduce(flat)
            flat /= self.count
            if not alone:
                for tensor, part in zip(own, flat.split([tensor.numel() for tensor in own]), strict=True):
                    tensor.copy_(part.view_as(tensor))

    def lead(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            flat = tensor.detach().contiguous()
            dist.broadcast(flat, src=0)
            tensor.detach().copy_(flat)

    def exit_error(self, error: BaseException) -> BaseException:
        """Return the exception with which this process stops after an error, so that rank 0 alone prints one line.

        Other ranks report their reason to rank 0 and exit silently. A process that merely lost its connection gives the
        reason of the rank that failed.
        """
        if isinstance(error, InputError) or lacks_memory(error):
            self._report(first_line(error))
            return error if self.leads else SystemExit(2)
        stopped, lost = isinstance(error, KeyboardInterrupt), _is_lost(error)
        if (stopped or lost) and (other := self._reason_of_others(0.0 if stopped else _TELL)):
            return InputError(other) if self.leads else SystemExit(2)
        if stopped:
            return error if self.leads else SystemExit(getattr(error, "code", 130))
        if lost:
            return InputError(
                f"rank {self.rank}: another of the {self.count} processes ended silently (out of memory, or "
                "killed); repeat the command with --resume to continue from the last checkpoint"
            )
        self._report(f"{type(error).__name__}: {first_line(error)}")
        return error

    def _report(self, reason: str) -> None:
        with suppress(RuntimeError):  # the process that holds the store has exited
            self._store.set(f"end/{self.rank}", reason)

    def _reason_of_others(self, seconds: float) -> str:
        """Return why another rank stopped, waiting up to `seconds` for its report; empty without one."""
        until = time.monotonic() + seconds
        try:
            while True:
                for rank in range(self.count):
                    if rank != self.rank and self._store.check([f"end/{rank}"]):
                        return f"rank {rank}: {self._store.get(f'end/{rank}').decode()}"
                if time.monotonic() >= until:
                    return ""
                time.sleep(0.1)
        except RuntimeError:  # the process that holds the store has exited
            return ""


def _is_lost(error: BaseException) -> bool:
    """Return whether an error says that the connection to another rank is lost."""
    if isinstance(error, dist.DistError):
        return True
    words = ("Connection closed by peer", "Connection reset by peer", "Timed out waiting", "gloo/transport", "NCCL")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; the name of its class if it is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def joined() -> Iterator[Ranks]:
    """Train together with the other processes that torchrun (or `launch`) started, or alone if there are none.

    Only rank 0 prints. If one rank fails, all stop, and rank 0 reports the reason.

    Raises:
        InputError: The processes do not find each other, or another one failed.
    """
    if not several():
        yield _now[0]
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
        dist.destroy_process_group()
    except (Exception, KeyboardInterrupt) as error:
        exit_error = group.exit_error(error)
        group.close_failed()
        if exit_error is error:
            raise
        raise exit_error from None
    finally:
        _now.remove(group)


def launch(count: int, command: Sequence[str]) -> int:
    """Run a command (program and arguments) in `count` processes of this machine, as torchrun does.

    Signals are passed on to all of them. If one fails, the others have some time to stop by themselves.

    Returns:
        Exit code: 0 if all succeeded, otherwise that of the lowest rank that failed (128 + number for a signal).
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
            rank_variables = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(subprocess.Popen(list(command), env={**os.environ, **shared, **rank_variables}))
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
    """Wait until all processes have exited, or one has failed and the others had time to follow."""
    deadline = None
    while any(process.poll() is None for process in processes):
        failed = any(process.poll() for process in processes)
        if failed and deadline is None:
            deadline = time.monotonic() + _GRACE
        if deadline is not None and time.monotonic() > deadline:
            return
        time.sleep(0.1)


def _watch_launcher() -> None:
    """Stop this process by SIGTERM when its launcher is gone: nothing else would stop a training on a GPU."""
    parent = int(os.environ.get(_PARENT, "0"))
    if not parent:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(2.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
