# SPDX-License-Identifier: Apache-2.0
"""Commanded and achieved values of episodes: whether a policy does what it is asked to, or stands."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from neurodyn.core.config import Record
from neurodyn.core.verdict import Finding
from neurodyn.dynamics.quantities import Quantities
from neurodyn.tasks import Memory, Task
from neurodyn.tasks.commands import LEAST_COMMAND, GoalCommand

STANDS = 0.2
"""Largest mean size of the motion, relative to the commanded one, of a robot that stands."""
IGNORES = 0.5
"""Largest share of the commanded value that a policy achieves without being said to ignore its command."""
STANDS_STILL = "stands"
"""Name of the finding that a policy does not move."""
_TINY = 1e-9


class CommandFigures(Record, frozen=True):
    """A command, and what the robot did, on average over frames with a command.

    Attributes:
        commanded: Size of the commanded velocity; of a goal, its distance at the start.
        achieved: Velocity along the command; of a goal, the way made towards it.
        moved: Size of the velocity in any direction; of a goal, the change of its distance.
    """

    commanded: float
    achieved: float
    moved: float

    def in_words(self, name: str) -> str:
        """Return the values in words; `name` ends with the unit in brackets."""
        what, _, unit = name.partition(" [")
        return f"{what} commanded {self.commanded:.3g}, achieved {self.achieved:.3g} {unit.rstrip(']')}".rstrip()


Commands = dict[str, CommandFigures]
"""Commands by name, with their units."""


class CommandTally:
    """Commanded and achieved values of the first episode of each of a batch of worlds."""

    def __init__(self, task: Task) -> None:
        """Start without frames."""
        self._task = task
        self._sums: dict[str, Tensor] = {}
        self._first: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}
        self._started = torch.ones(0, dtype=torch.bool)

    def count(self, now: Quantities, memory: Memory, running: Tensor) -> None:
        """Count a frame of the worlds that are `running`, shape [worlds], bool."""
        for name, command in self._task.commanded(now.of_rewards, memory).items():
            if isinstance(command, GoalCommand):
                if name not in self._first:
                    self._first[name], self._started = command.distance, running.clone()
                last = self._last.get(name, self._first[name])
                self._last[name] = torch.where(running, command.distance, last)
                continue
            counts = running & (command.asked > LEAST_COMMAND)
            rows = torch.stack([command.asked, command.along, command.moved, torch.ones_like(command.asked)])
            self._sums[name] = self._sums.get(name, 0.0) + (rows * counts).sum(1).double()

    def figures(self) -> Commands:
        """Return the means so far; without commands none."""
        found: Commands = {}
        for name, sums in self._sums.items():
            asked, along, moved, count = sums.tolist()
            if count:
                found[name] = CommandFigures(commanded=asked / count, achieved=along / count, moved=moved / count)
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
        values = {key: sum(getattr(one, key) for one in known) / len(known) for key in CommandFigures.__struct_fields__}
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
