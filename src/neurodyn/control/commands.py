# SPDX-License-Identifier: Apache-2.0
"""Commanded and achieved values of episodes: whether a policy does what it is asked to, or stands."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core.config import Record, from_dict
from neurodyn.core.verdict import Finding
from neurodyn.dynamics.quantities import Quantities
from neurodyn.tasks import Memory, Task
from neurodyn.tasks.commands import LEAST_COMMAND, GoalCommand, VelocityCommand

STANDS = 0.2
"""Largest mean size of the motion, relative to the commanded one, of a robot that stands."""
IGNORES = 0.5
"""Largest share of the commanded value that a policy achieves without being said to ignore its command."""
STANDS_STILL = "stands"
"""Name of the finding that a policy does not move."""
SETTLED = 1.0
"""Seconds after a change of a commanded velocity from which its error counts, in means over as many seconds."""
_TINY = 1e-9


class CommandFigures(Record, frozen=True):
    """A command, and what the robot did, on average over frames with a command.

    Attributes:
        commanded: Size of the commanded velocity; of a goal, its distance at the start.
        achieved: Velocity along the command; of a goal, the way made towards it.
        moved: Size of the velocity in any direction; of a goal, the change of its distance.
        error: Root mean square of the velocity's error, of means over 1 s from 1 s after a change of the command, also
            of commands to stand and during pushes; UNSET for goals and where no command holds for 2 s.
    """

    commanded: float
    achieved: float
    moved: float
    error: float | UnsetType = UNSET

    def in_words(self, name: str) -> str:
        """Return the values in words; `name` ends with the unit in brackets."""
        what, _, unit = name.partition(" [")
        error = "" if self.error is UNSET else f", error {self.error:.2g}"
        return f"{what} commanded {self.commanded:.3g}, achieved {self.achieved:.3g}{error} {unit.rstrip(']')}".rstrip()

    def in_short(self, name: str) -> str:
        """Return the values in short words for a line of progress."""
        what, _, unit = name.partition(" [")
        error = "" if self.error is UNSET else f" (error {self.error:.2g})"
        return f"{what} {self.achieved:.2g} of {self.commanded:.2g} {unit.rstrip(']')}{error}"


Commands = dict[str, CommandFigures]
"""Commands by name, with their units."""


def read_commands(plain: Mapping[str, Any]) -> Commands:
    """Return figures from metrics, where they are plain data by name."""
    return {name: from_dict(values, CommandFigures, "metrics") for name, values in plain.items()}


class _SettledError:
    """Squared errors of a velocity, in means over whole seconds, from a second after each change of the command."""

    def __init__(self, first: VelocityCommand, second: int) -> None:
        """Start without frames; `second` is the number of frames in a second."""
        self._second, self._command = second, first.command
        self._held = torch.full_like(first.asked, -1, dtype=torch.int64)  # frames since the command changed
        self._sum = torch.zeros_like(first.off)
        self._total = torch.zeros(2, dtype=torch.float64, device=first.off.device)  # of squares, and of windows

    def count(self, command: VelocityCommand, running: Tensor) -> None:
        """Count a frame of the worlds that are `running`, shape [worlds], bool."""
        same = running & (command.command == self._command).all(-1)
        self._command, self._held = command.command, (self._held + 1) * same
        begins = self._held % self._second == 0
        self._sum = command.off + self._sum.masked_fill(begins[:, None], 0.0)
        ends = ((self._held + 1) % self._second == 0) & (self._held >= 2 * self._second - 1)
        squares = (self._sum / self._second).square().sum(-1)
        self._total += torch.stack([torch.where(ends, squares, 0.0).sum().double(), ends.sum().double()])

    def rms(self) -> float | UnsetType:
        """Return the root of the mean square; UNSET without windows or where nobody measures the velocity."""
        squares, windows = self._total.tolist()
        return math.sqrt(squares / windows) if windows and math.isfinite(squares) else UNSET


class CommandTally:
    """Commanded and achieved values of the first episode of each of a batch of worlds."""

    def __init__(self, task: Task) -> None:
        """Start without frames."""
        self._task = task
        self._sums: dict[str, Tensor] = {}
        self._first: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}
        self._started = torch.ones(0, dtype=torch.bool)
        self._settled: dict[str, _SettledError] = {}

    def count(self, now: Quantities, memory: Memory, running: Tensor) -> None:
        """Count a frame of the worlds that are `running`, shape [worlds], bool."""
        for name, command in self._task.commanded(now.of_rewards, memory).items():
            if isinstance(command, GoalCommand):
                if name not in self._first:
                    self._first[name], self._started = command.distance, running.clone()
                last = self._last.get(name, self._first[name])
                self._last[name] = torch.where(running, command.distance, last)
                continue
            if name not in self._settled:
                self._settled[name] = _SettledError(command, max(1, round(SETTLED / self._task.declaration().dt)))
            self._settled[name].count(command, running)
            counts = running & (command.asked > LEAST_COMMAND)
            rows = torch.stack([command.asked, command.along, command.moved, torch.ones_like(command.asked)])
            self._sums[name] = self._sums.get(name, 0.0) + (rows * counts).sum(1).double()

    def figures(self) -> Commands:
        """Return the means so far; without commands none."""
        found: Commands = {}
        for name, sums in self._sums.items():
            asked, along, moved, count = sums.tolist()
            if count:
                found[name] = CommandFigures(
                    commanded=asked / count, achieved=along / count, moved=moved / count,
                    error=self._settled[name].rms(),
                )  # fmt: skip
        for name, first in self._first.items():
            first, last = first[self._started], self._last[name][self._started]
            found[name] = CommandFigures(
                commanded=float(first.mean()), achieved=float((first - last).mean()),
                moved=float((first - last).abs().mean()),
            )  # fmt: skip
        return {name: one for name, one in found.items() if not math.isnan(one.achieved)}  # else nobody measures it


def mean_commands(parts: Sequence[Commands]) -> Commands:
    """Return the means of several policies' figures."""
    names = dict.fromkeys(name for part in parts for name in part)
    means: Commands = {}
    for name in names:
        known = [part[name] for part in parts if name in part]
        values: dict[str, Any] = {
            key: UNSET if UNSET in (each := [getattr(one, key) for one in known]) else sum(each) / len(each)
            for key in CommandFigures.__struct_fields__
        }
        means[name] = CommandFigures(**values)
    return means


def of_commands(commands: Mapping[str, CommandFigures], where: str = "") -> list[Finding]:
    """Judge whether a policy follows its commands; `where` follows the values, such as " (update 30 of 85)"."""
    findings: list[Finding] = []
    for name, one in commands.items():
        if one.achieved >= IGNORES * one.commanded or one.commanded < _TINY:
            continue
        stands = one.moved < STANDS * one.commanded
        findings.append(
            Finding(
                STANDS_STILL if stands else "ignores-command", "warning",
                f"the policy {'stands' if stands else 'ignores its command'}: {one.in_words(name)}{where}",
                "train longer, or look at the reward terms: what does it earn without following the command?",
            )
        )  # fmt: skip
    return findings
