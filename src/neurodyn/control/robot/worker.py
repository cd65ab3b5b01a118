# SPDX-License-Identifier: Apache-2.0
"""Interface of a robot's class, FILE.py:CLASS, through which neurodyn moves a robot, and the process that calls it.

The process calls the user's class at its rate, and makes the robot safe when either side falls silent.

Orders arrive as JSON lines on standard input, answers leave on standard output. The robot is stopped when an order says
so, when standard input ends (the other process died), when no command comes in time, when a call raises or hangs, and
on SIGTERM. Ctrl-C is for the other process, which stops the robot in order.
"""

import json
import math
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Protocol, TypeGuard

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.core.registry import own_class

METHODS = ("reset", "observe", "command")
"""Methods that a class must have; `stop` is optional."""


class RobotInterface(Protocol):
    """A robot, or a simulated one, that neurodyn moves in closed loop. A class needs no base class.

    It is constructed without arguments in its own process, which calls its methods (`stop` from another thread if
    another call hangs). If that process dies or hangs for good, a new one constructs the class again and calls `stop`:
    the constructor must not move the robot. Any exception stops the robot and ends the command; its text is shown.

    Positions and velocities have the order, units and frames of the declared robot (`neurodyn robots ROBOT`): for a
    floating base the position of its origin [m], a quaternion x, y, z, w, the velocity of its centre of mass [m/s] and
    its angular velocity [rad/s], all in world axes.
    """

    rate: float
    """Frames per second [Hz]: that of the task's robot, or a multiple, at which commands are repeated."""
    realtime: bool = True
    """Whether time passes by itself. If not, `command` lasts until a frame has passed in the simulation."""
    control: Literal["torque", "target", "command"] = "torque"
    """Whether commands are torques [N m or N], target positions for the robot's own controller [rad or m], or "command"
    for inputs of the declared actuators; then `stop` is needed."""
    patience: float | None = None
    """Longest time that `observe` or `command` may take, and that a robot in real time moves on without a new command
    [s]; by default five frames, at least 0.2 s, and 30 s if not `realtime`."""
    base: Literal["measured", "unmeasured"] = "measured"
    """Whether "q" and "qd" have pose and velocity of a floating base; if it is unmeasured, they hold the other
    joints alone, and `observe` also returns what its IMU reads, in its axes."""
    reset_seconds: float = 60.0
    """Longest time that `reset` may take [s]; by default 60."""
    velocity_filter: float | None = None
    """Time constant of the filter of velocities that `observe` leaves out [s]; by default a frame."""

    def reset(self) -> None:
        """Move the robot to the start of an episode, and return once it is there."""
        ...

    def observe(self) -> Mapping[str, Any]:
        """Return the current measurements.

        "q" has shape [nq]; "qd", shape [nv], may be left out (then filtered differences of q are used), and so may
        "time" [s] if it follows from the frame number. A robot whose base is "unmeasured" adds "angular_velocity"
        [rad/s] and "orientation" (of its attitude filter, IMU to world, scalar last) or "gravity" (its direction), and
        may add "specific_force" (its mean over the last frame) [m/s^2] and, for a stand-in, "truth": the whole q and
        qd. Further entries, numbers or 1-D arrays of equal length in every frame, are only logged.
        """
        ...

    def command(self, values: np.ndarray) -> None:
        """Apply torques, targets or commands, shape [nu], within the declared limits, until the next command."""
        ...

    def stop(self) -> None:
        """Make the robot safe at once. Without this method it gets zero torques, or its current position as targets.

        It may be called from another thread while `observe` or `command` hangs, and more than once.
        """
        ...


_FRAMES, _LEAST_PATIENCE, _SIMULATED_PATIENCE = 5, 0.2, 30.0
_LOOK = 0.005
"""Time between two checks of the watchdog [s]."""
_GRACE = 1.0
"""Time for a stop before the process ends [s]."""
STOPPED, _UNSTOPPED = 3, 4
"""Exit codes of a process in which a call hung, and whose `stop` returned or hung, too."""
_END: dict[str, Any] = {"do": "close"}


class Worker:
    """Serves one robot until it is ordered to close."""

    def __init__(self, robot: Any, hold: list[int], answer: Callable[[dict[str, Any]], None]) -> None:
        """Read the class's settings; raises an InputError if they are invalid.

        Args:
            robot: An object of the user's class.
            hold: Indices in q, from its end, of the driven joints, whose positions become the targets of a robot that
                stops.
            answer: Sends an answer.
        """
        self._robot, self._hold, self._answer = robot, hold, answer
        self.settings = _settings(robot)
        self._period, self._patience = 1.0 / self.settings["rate"], self.settings["patience"]
        self._realtime = self.settings["realtime"]
        self._q: list[float] | None = None
        self._running = self._driven = False  # whether an episode runs; whether it has had a command
        self._tick, self._late, self._order = 0.0, 0, 0
        self._call: tuple[str, float] | None = None
        self._stopping = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def serve(self, orders: "queue.SimpleQueue[dict[str, Any]]") -> None:
        """Execute orders until there are no more."""
        while True:
            wait = None
            if self._driven and self._realtime:
                wait = max(0.0, self._tick + self._patience - time.monotonic())
            try:
                order = orders.get(timeout=wait)
            except queue.Empty:
                self.stop()
                self._answer({"is": "silence", "why": f"no command came within {self._patience:g} s"})
                continue
            if order["do"] == "close":
                self.stop()
                return
            self._follow(order)

    def _follow(self, order: dict[str, Any]) -> None:
        self._order = order["id"]
        if order["do"] == "stop":
            self.stop()
            self._answer({"is": "stopped", "to": self._order})
        elif order["do"] == "reset":
            self.stop()
            with self._time_out("reset", self.settings["reset_seconds"]):
                self._robot.reset()
            self._late, self._running = 0, True
            self._observe()
        elif self._running:
            self._frame(order["values"])
        else:  # stopped in the meantime; the other process knows
            self._answer({"is": "stopped", "to": self._order})

    def _frame(self, values: list[float]) -> None:
        now = time.monotonic()
        if not self._driven:
            self._driven, self._tick = True, now
        if self._realtime and now > self._tick + self._period:
            self._late += 1
            self._tick = now
        with self._time_out("command", self._patience):
            self._robot.command(np.asarray(values))
        if self._realtime:
            time.sleep(max(0.0, self._tick + self._period - time.monotonic()))
        self._observe()

    def _observe(self) -> None:
        due = self._tick + self._period
        with self._time_out("observe", self._patience):
            seen = self._robot.observe()
        plain = _plain(seen)
        q = plain.get("q")
        self._q = q if isinstance(q, list) else None
        now = time.monotonic()
        # Ticks keep their distance, so that delays of the operating system do not accumulate.
        self._tick = due if 0.0 <= now - due < self._period else now
        self._answer({"is": "observed", "values": plain, "clock": now, "late": self._late, "to": self._order})

    def stop(self) -> None:
        """Make the robot safe."""
        with self._stopping:
            self._running = self._driven = False
            if callable(getattr(self._robot, "stop", None)):
                self._robot.stop()
            elif self.settings["control"] == "torque":
                self._robot.command(np.zeros(len(self._hold)))
            elif self._q is not None:
                self._robot.command(np.asarray([self._q[place] for place in self._hold]))

    @contextmanager
    def _time_out(self, name: str, seconds: float) -> Iterator[None]:
        self._call = (name, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._call = None

    def _watch(self) -> None:
        """Stop the robot from this thread and end the process when a call to the user's class takes too long."""
        while True:
            time.sleep(_LOOK)
            call = self._call
            if call is None or time.monotonic() < call[1]:
                continue
            stopper = threading.Thread(target=self._stop_quietly, daemon=True)
            stopper.start()
            stopper.join(_GRACE)
            seconds = self.settings["reset_seconds"] if call[0] == "reset" else self._patience
            self._answer({"is": "failed", "why": f"{call[0]}() took longer than {seconds:g} s"})
            os._exit(_UNSTOPPED if stopper.is_alive() else STOPPED)

    def _stop_quietly(self) -> None:
        with suppress(Exception):
            self.stop()


def _settings(robot: Any) -> dict[str, Any]:
    """Return the settings declared by a class, with defaults filled in."""
    rate = getattr(robot, "rate", None)
    if not _positive(rate):
        raise InputError(f"rate is {rate!r}; valid: frames per second, above 0 [Hz]")
    realtime = bool(getattr(robot, "realtime", True))
    control = getattr(robot, "control", "torque")
    if control not in ("torque", "target", "command"):
        raise InputError(f"control is {control!r}; valid: 'torque', 'target' or 'command'")
    if control == "command" and not callable(getattr(robot, "stop", None)):
        raise InputError("control is 'command' without a method stop; valid: one that makes the robot safe")
    base = getattr(robot, "base", "measured")
    if base not in ("measured", "unmeasured"):
        raise InputError(f"base is {base!r}; valid: 'measured' or 'unmeasured'")
    patience = max(_LEAST_PATIENCE, _FRAMES / rate) if realtime else _SIMULATED_PATIENCE
    given = {"patience": patience, "reset_seconds": 60.0, "velocity_filter": 1.0 / rate}
    for name, default in given.items():
        value = getattr(robot, name, None)
        given[name] = default if value is None else value
        if not _positive(given[name]):
            raise InputError(f"{name} is {value!r}; valid: a time above 0 [s]")
    return {"rate": float(rate), "realtime": realtime, "control": control, "base": base, **given}


def _positive(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _plain(seen: Any) -> dict[str, Any]:
    """Return measured values as lists, scalars as lists of one; raises an InputError for invalid values."""
    if not hasattr(seen, "items"):
        raise InputError(f"observe() returned {type(seen).__name__}; valid: a dict with at least 'q'")
    plain = {}
    for name, value in seen.items():
        if value is None:
            continue
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"observe(): {name!r} is {type(value).__name__}; valid: numbers") from None
        if array.ndim > 1:
            raise InputError(f"observe(): {name!r} has shape {list(array.shape)}; valid: a number, or 1-D")
        plain[str(name)] = array.reshape(-1).tolist()
    return plain


def make(file: str, kind: str) -> Any:
    """Return a robot of a user's class; an InputError names missing parts."""
    path = Path(file).resolve()
    sys.path.insert(0, str(path.parent))  # finds modules beside it, as a script does
    made = own_class(path, kind, "robot", object)
    missing = [name for name in METHODS if not callable(getattr(made, name, None))]
    if missing:
        raise InputError(
            f"{path}: {kind} has no method {missing[0]}(); valid: a class with {', '.join(METHODS)} and a `rate`"
        )
    try:
        return made()
    except TypeError as error:
        raise InputError(f"{path}: {kind} cannot be made without arguments ({error})") from None


def describe_error(error: BaseException) -> str:
    """Return an exception of the user's class in a line, with its location."""
    if isinstance(error, InputError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    location = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{location}"


def _read(orders: "queue.SimpleQueue[dict[str, Any]]") -> None:
    with suppress(ValueError, OSError):
        for line in sys.stdin:
            orders.put(json.loads(line))
    orders.put(_END)


def main() -> None:
    """Serve the robot FILE CLASS; HOLD are the indices of its driven joints in q, as JSON."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of the user's class must not mix with the answers
    lock = threading.Lock()

    def answer(message: dict[str, Any]) -> None:
        with lock, suppress(OSError, ValueError):
            out.write(json.dumps(message) + "\n")
            out.flush()

    file, kind, hold = sys.argv[1:]
    try:
        worker = Worker(make(file, kind), json.loads(hold), answer)
    except Exception as error:  # the user's file may raise anything
        answer({"is": "refused", "why": describe_error(error)})
        return
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()  # signal handlers may put into it
    signal.signal(signal.SIGTERM, lambda *_: orders.put(_END))
    threading.Thread(target=_read, args=(orders,), daemon=True).start()
    answer({"is": "ready", **worker.settings})
    try:
        worker.serve(orders)
    except Exception as error:  # so may its methods
        with suppress(Exception):
            worker.stop()
        answer({"is": "failed", "why": describe_error(error)})


if __name__ == "__main__":
    main()
