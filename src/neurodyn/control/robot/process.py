# SPDX-License-Identifier: Apache-2.0
"""Parent side of a robot's process: starts it, requests frames, and ends it if it does not answer."""

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from neurodyn.control.robot.worker import STOPPED
from neurodyn.core.errors import InputError, suggested_file
from neurodyn.core.registry import is_file, split_name

_OPENING = 60.0
"""Longest time for importing and constructing the user's class [s]."""
_GRACE = 3.0
"""Extra time for the process beyond the class's own limit, in which it stops the robot [s]."""


class RobotStoppedError(InputError):
    """The robot's class raised, hung or gave an invalid answer; the robot was stopped, and its log is kept."""


@dataclass(frozen=True)
class RobotSettings:
    """Settings declared by a robot's class; see `RobotInterface`."""

    rate: float
    realtime: bool
    control: str
    patience: float
    reset_seconds: float
    velocity_filter: float
    base: str


@dataclass(frozen=True)
class Observation:
    """A measurement of a robot."""

    values: dict[str, list[float]]
    """Measured values by name, each a list."""
    clock: float
    """Time on a monotonic clock [s]."""
    late: int
    """Frames of this episode so far that started late, because the command before them came late."""


class RobotProcess:
    """A robot of a user's class in its own process; a context manager that stops the robot on exit.

    Attributes:
        name: FILE.py:CLASS.
        settings: Settings declared by the class.
    """

    settings: RobotSettings
    _replaced = False  # whether another process stops the robot

    def __init__(self, name: str, hold: Sequence[int]) -> None:
        """Start the process, which runs the file of the user.

        Args:
            name: FILE.py:CLASS.
            hold: Indices in q of the driven joints.

        Raises:
            InputError: There is no such file or class, it lacks methods, or its settings are not valid.
        """
        if not is_file(name):
            raise InputError(f"{name}: no class of a robot; valid: FILE.py:CLASS")
        path, kind = split_name(name)
        if not path.is_file():
            raise InputError(f"{path}: no such file{suggested_file(path)}; expected Python with a class of a robot")
        self.name = name
        self._hold, self._number, self._silence = list(hold), 0, "it was told to"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "neurodyn.control.robot.worker", str(path), kind, json.dumps(self._hold)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            start_new_session=True,  # Ctrl-C of the terminal is for this process alone
        )  # fmt: skip
        # Not a Queue: its lock, in Python, can stay held when Ctrl-C interrupts it.
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            answer = self._next(_OPENING, "to be imported and made")
        except BaseException:
            self._end()
            raise
        if answer["is"] != "ready":
            self._end()
            raise InputError(answer["why"])
        self.settings = RobotSettings(**{name: value for name, value in answer.items() if name != "is"})

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def reset(self) -> Observation:
        """Move the robot to the start of an episode, and return its measurement there."""
        return self._observe({"do": "reset"}, self.settings.reset_seconds + self.settings.patience, "reset()")

    def command(self, values: Sequence[float]) -> Observation:
        """Command torques or targets, shape [nu], and return the measurement a frame later.

        Raises:
            RobotStoppedError: The robot's class raised or hung, or no command came in time.
        """
        limit = 2.0 * self.settings.patience + 1.0 / self.settings.rate
        return self._observe({"do": "command", "values": list(values)}, limit, "command() and observe()")

    def stop(self) -> None:
        """Make the robot safe, and wait until it is. Earlier answers are dropped."""
        if self._send({"do": "stop"}):
            with suppress(RobotStoppedError):
                self._answer(self.settings.patience + _GRACE, "stop()")

    def close(self) -> None:
        """Make the robot safe and end the process."""
        if self._process.poll() is None and self._send({"do": "close"}):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(self.settings.patience + _GRACE)
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _observe(self, order: dict[str, Any], limit: float, what: str) -> Observation:
        if self._process.poll() is not None and self._answers.empty():
            raise RobotStoppedError(f"{self.name}: its process has ended; start again")
        self._send(order)
        answer = self._answer(limit + _GRACE, what)
        if answer["is"] == "observed":
            return Observation(answer["values"], answer["clock"], answer["late"])
        if answer["is"] == "failed":
            self._end()
        raise RobotStoppedError(f"{self.name}: stopped: {answer.get('why', self._silence)}")

    def _answer(self, limit: float, what: str) -> dict[str, Any]:
        """Return the answer to the last order; answers to others are dropped."""
        while True:
            answer = self._next(limit, what)
            if answer["is"] == "silence":
                self._silence = answer["why"]
            if answer["is"] == "failed" or answer.get("to") == self._number:
                return answer

    def _next(self, limit: float, what: str) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=limit)
        except queue.Empty:
            self._end()
            raise RobotStoppedError(
                f"{self.name}: {what} took longer than {limit:.3g} s; its process was ended"
            ) from None
        if answer is None:
            code = self._process.wait()
            self._answers.put(None)
            self._end()
            raise RobotStoppedError(f"{self.name}: its process ended by itself (exit code {code})")
        return answer

    def _send(self, order: dict[str, Any]) -> bool:
        assert self._process.stdin is not None
        self._number += 1
        try:
            self._process.stdin.write(json.dumps({**order, "id": self._number}) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError, OSError):
            for line in self._process.stdout:
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def _end(self) -> None:
        """End the process, by force if it does not react; a new process stops a robot that it left moving."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.returncode not in (0, STOPPED):
            self._stop_anew()

    def _stop_anew(self) -> None:
        """Construct the class again in a new process, which stops the robot when it ends."""
        if self._replaced or not hasattr(self, "settings"):
            return
        self._replaced = True
        with suppress(InputError):
            replacement = RobotProcess(self.name, self._hold)
            replacement._replaced = True
            replacement.close()
