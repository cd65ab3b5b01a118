# SPDX-License-Identifier: Apache-2.0
"""Connection to a Ray cluster: started or joined without output, and monitored."""

import contextlib
import os
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from neurodyn.core.errors import InputError
from neurodyn.core.extras import require_extra
from neurodyn.core.workers import available_cores

LOCAL, RUNNING = "local", "auto"
_OBJECTS = 1 << 28
"""Object-store memory of a cluster started here [bytes]; larger results spill to disk."""
_STARTS = 3
"""Attempts to start a cluster here: Ray gives its processes half a minute each time."""
_PATIENCE, _PAUSE = 3, 1.0
"""Consecutive failed replies after which the head counts as lost, and the time between two requests [s]."""
_LONGEST = 40
"""Longest folder path for Ray's sockets."""
_ENDING = 5.0
"""Longest time to leave a cluster [s]."""
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    "RAY_worker_niceness": "0",
}
"""Defaults: no telemetry, no output, and workers at the priority of the waiting command."""


def require_ray() -> ModuleType:
    """Return Ray, or raise an InputError that names the extra `cluster` if it is not installed."""
    require_extra(["ray"], "a cluster", "cluster")
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
    return ray


@contextlib.contextmanager
def connect(address: str, workers: int | None = None) -> Iterator[None]:
    """Start Ray here for the duration of the context, or join a cluster; an existing connection is reused and kept.

    Args:
        address: "local" to start Ray on this machine, "auto" for the cluster of this machine, or HOST:PORT of a head.
        workers: Workers of a cluster started here; None for one per available core.

    Raises:
        InputError: Ray is not installed, no cluster answers, or the head dies within the context.
    """
    ray = require_ray()
    _check_form(address)
    if ray.is_initialized():
        with _watch_head(ray, address):
            yield
        return
    with contextlib.ExitStack() as context:
        require_cluster(address)
        for left in reversed(range(_STARTS)):
            folder = context.enter_context(_short_folder()) if address == LOCAL else None
            try:
                _join(ray, address, workers, folder)
                break
            except Exception as error:  # Ray raises anything, for example after a slow start
                _leave(ray)
                if not left or address != LOCAL:
                    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                    here = "a machine with memory and disk to spare"
                    valid = here if address == LOCAL else "a cluster that `ray status` shows"
                    raise InputError(f"cluster {address}: cannot be reached ({reason}); valid: {valid}") from None
        context.callback(_leave, ray)
        context.enter_context(_watch_head(ray, address))
        yield


def require_cluster(address: str) -> None:
    """Raise an InputError if Ray is not installed, or nothing answers at an address (see `connect`)."""
    require_ray()
    _check_form(address)
    if address not in (LOCAL, RUNNING) and not _is_reachable(address):
        raise InputError(f"no Ray cluster answers at {address}; valid: the address that `ray start --head` printed")


def _check_form(address: str) -> None:
    host, _, port = address.rpartition(":")
    if address not in (LOCAL, RUNNING) and not (host and port.isdecimal()):
        raise InputError(f"cluster is {address!r}; valid: {LOCAL}, {RUNNING}, or HOST:PORT of the head (docs/scale.md)")


def _join(ray: ModuleType, address: str, workers: int | None, folder: Path | None) -> None:
    options: dict[str, object] = {}
    if address == LOCAL:
        options = {
            "num_cpus": available_cores() if workers is None else workers, "include_dashboard": False,
            "object_store_memory": _OBJECTS, "_temp_dir": str(folder),
        }  # fmt: skip
    with _keep_signals(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address, log_to_driver=False, logging_level="CRITICAL", **options)


def _leave(ray: ModuleType) -> None:
    """Leave the cluster. If its head is dead, leaving may hang, and the processes started here are killed."""
    started = getattr(ray._private.worker, "_global_node", None)
    ending = threading.Thread(target=ray.shutdown, daemon=True)
    ending.start()
    ending.join(_ENDING)
    if ending.is_alive() and started is not None:
        with contextlib.suppress(Exception):
            started.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)


@contextlib.contextmanager
def _watch_head(ray: ModuleType, asked: str) -> Iterator[None]:
    """End the context with an InputError if the head dies; Ray would abort the process with pages of traces."""
    address, dead, over = ray.get_runtime_context().gcs_address, threading.Event(), threading.Event()
    main = threading.current_thread() is threading.main_thread()

    def watch() -> None:
        failed = 0
        while not over.wait(_PAUSE):
            failed = 0 if _is_reachable(address) else failed + 1
            if failed >= _PATIENCE:
                dead.set()
                break
        if dead.is_set() and main:
            _interrupt_main(over, _head_lost_error(address, asked))

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except (KeyboardInterrupt, Exception):
        if dead.is_set() or not _is_reachable(address):
            raise _head_lost_error(address, asked) from None
        raise
    finally:
        over.set()


def _interrupt_main(over: threading.Event, error: InputError) -> None:
    """Interrupt the main thread; if it hangs in Ray's code, exit with the same line and code."""
    signal.raise_signal(signal.SIGINT)
    if not over.wait(_ENDING):
        sys.stderr.write(f"neurodyn: {error}\n")
        sys.stderr.flush()
        os._exit(2)


def _head_lost_error(address: str, asked: str) -> InputError:
    valid = "the same command with --resume"
    if asked != LOCAL:
        valid = f"start it again (docs/scale.md), then {valid}"
    return InputError(
        f"the head of the Ray cluster at {address} does not answer any more; what was finished is kept; valid: {valid}"
    )


def _is_reachable(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2.0):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _keep_signals() -> Iterator[None]:
    """Restore the handlers of Ctrl-C and SIGTERM, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _short_folder() -> Iterator[Path]:
    """Yield a temporary folder for Ray with a path short enough for sockets."""
    place = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(
        prefix="nd-", dir=place if len(place) <= _LONGEST else "/tmp", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)
