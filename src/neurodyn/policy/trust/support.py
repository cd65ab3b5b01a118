# SPDX-License-Identifier: Apache-2.0
r"""Support of a policy's imagined return, by a model outside of its training and by held-out logs.

A policy that trains in a network finds rewards that exist only there. Three figures show this without a simulator:

- Its return in a *judge*: the last of three or more members, which is left out of training, or, if a network corrects a
  whole base model, the base alone. Both are evaluated from the same starts.
- The share of its frames *outside* of the log: network inputs farther from the nearest training frame of the log than
  95 % of the held-out frames are. If neither model nor log tells, the share of frames with a velocity beyond the range
  of the training data.
- The members' *disagreement* along its episodes, relative to that on held-out frames.

A return is not supported if the judge's return is lower by a fifth, or if there is no judge and a tenth of the frames
lies outside. The model keeps the training frames to compare with (`dynamics.known_inputs`); older files do not, and
their log has to be there. With a judge, frames outside prove nothing: on the contacts of a compiled base a policy
leaves the data of random torques at once, and still returns what it imagines (docs/benchmarks.md, ant run).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.config import Record
from neurodyn.core.verdict import Finding
from neurodyn.data.training_range import Ranges, TrainingRange
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.known_inputs import KnownInputs
from neurodyn.policy.worlds.environment import PolicyEnvironment

LOST = 0.2
"""Largest supported loss of the imagined return in the judge, as a share."""

OUTSIDE = 0.1
"""Largest supported share of frames outside of the log, without a judge.

`ant-run` in one network without a base, of random transitions: after 30, 50, 70 and 80 updates the policy imagined 717,
1159, 2452 and 2919 and returned 529, 533, 531 and 503, with 0, 12, 37 and 46 % of its frames outside. In a second
network it lost 10 % of the return after 30 updates and 51 % after 50. Policies of the cartpole that return what they
imagine in a world model have 1 to 3 % outside and lose at most .3 % with a member.
"""

HELD_OUT = 0.95
"""Share of the held-out frames that count as inside."""
_PLAYED = 4096
"""Number of frames of an evaluation."""
_SURE = 2.0
"""Standard errors by which the judge's return must be lower."""
_TINY = 1e-9


class PolicySupport(Record, frozen=True):
    """Evidence for a policy's return in its training dynamics.

    Attributes:
        imagined: Mean return in the training dynamics.
        judge: Mean return in the judge; None without one.
        judged_by: Description of the judge; empty without one.
        lost: Share of the return lost in the judge, at least 0; None without a judge.
        outside: Share of frames outside of the log; None without a log.
        disagreement: Members' disagreement relative to that on held-out frames; None if unknown.
    """

    imagined: float
    judge: float | None = None
    judged_by: str = ""
    lost: float | None = None
    outside: float | None = None
    disagreement: float | None = None

    @property
    def exploits(self) -> bool:
        """Whether the policy exploits the model."""
        if self.lost is not None:
            return self.lost > LOST
        return self.outside is not None and self.outside > OUTSIDE

    def __str__(self) -> str:
        """Return the figures in one line."""
        parts = [f"imagined return {self.imagined:.4g}"]
        if self.judge is not None:
            parts.append(f"{self.judged_by} {self.judge:.4g}")
        if self.outside is not None:
            parts.append(f"frames outside of the log {self.outside:.0%}")
        if self.disagreement is not None:
            parts.append(f"disagreement {self.disagreement:.3g} times that on the log")
        return ", ".join(parts)

    def verdict(self) -> Finding:
        """Judge the policy."""
        if not self.exploits:
            return Finding("support")
        return Finding(
            "support", "warning", f"the imagined return is not supported: {self}",
            "log this policy and refit (neurodyn policy online), give a penalty, or stop earlier "
            "(--stop-when-exploiting)",
        )  # fmt: skip

    def figures(self) -> dict[str, Any]:
        """Return the entries of metrics.jsonl for an evaluation."""
        known = {
            "return_judge": self.judge, "judged_by": self.judged_by or None, "lost": self.lost,
            "outside": self.outside, "disagreement": self.disagreement,
        }  # fmt: skip
        return {name: value for name, value in known.items() if value is not None} | {"exploits": self.exploits}


def support_in(lines: Sequence[Mapping[str, Any]]) -> PolicySupport | None:
    """Return the support of the last evaluated policy, from the lines of metrics.jsonl; None if unknown."""
    line = next((line for line in reversed(lines) if "exploits" in line), None)
    if line is None:
        return None
    return PolicySupport(
        line["return_training"], line.get("return_judge"), line.get("judged_by", ""), line.get("lost"),
        line.get("outside"), line.get("disagreement"),
    )  # fmt: skip


def return_loss_share(imagined: Tensor, judged: Tensor, first: float) -> float:
    """Return the share of a policy's return that it loses in its judge.

    The share is of the larger return, or of the gain since the training's `first` evaluation: returns begin near zero.
    A difference within two standard errors counts as none.

    Args:
        imagined: Returns of the episodes in the training dynamics, shape [episodes].
        judged: Returns in the judge from the same starts, shape [episodes].
        first: Mean return of the first evaluation of the training.
    """
    difference = (imagined - judged).double()
    mean, imagined_mean, judged_mean = float(difference.mean()), float(imagined.mean()), float(judged.mean())
    error = float(difference.std()) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
    if mean <= _SURE * error:
        return 0.0
    return mean / max(abs(imagined_mean), abs(judged_mean), abs(imagined_mean - first), _TINY)


def share_outside(inputs: Tensor, known: KnownInputs) -> float:
    """Return the share of frames outside of the log, from their network inputs, shape [frames, inputs]."""
    return float(known.outside(inputs, HELD_OUT).double().mean())


def share_out_of_range(state: State, known: TrainingRange) -> float:
    """Return the share of states outside of the range of a missing log, which its model stores, or not finite."""
    beyond = _beyond(state.qd, known.qd)
    if state.channels is not None and known.channels:
        beyond |= _beyond(state.channels, known.channels)
    return float(beyond.double().mean())


class FrameSample:
    """Sample of a policy's frames: states and network inputs."""

    def __init__(self, frames: int, worlds: int) -> None:
        """Set the length of an episode and the number of worlds."""
        self._every = max(1, frames * worlds // _PLAYED)
        self._frame, self._parts, self._states = 0, list[Tensor](), list[State]()

    def __call__(self, world: PolicyEnvironment, actions: Tensor) -> None:
        """Record the next inputs of the network."""
        if self._frame % self._every == 0:
            limit = world.task.limit
            control = world.task.control(actions.clamp(-limit, limit), world.now, world.memory)
            inputs = world.dynamics.network_inputs(world.state, control)
            if inputs is not None:
                self._parts.append(inputs)
                self._states.append(world.state)
        self._frame += 1

    @property
    def state(self) -> State:
        """All states."""
        channels = [one.channels for one in self._states if one.channels is not None]
        return State(
            torch.cat([one.q for one in self._states]), torch.cat([one.qd for one in self._states]),
            torch.cat(channels) if channels else None,
        )  # fmt: skip

    @property
    def inputs(self) -> Tensor | None:
        """All inputs, shape [frames, inputs]; None if there are none."""
        return torch.cat(self._parts) if self._parts else None


def _beyond(values: Tensor, ranges: Ranges) -> Tensor:
    """Return whether any column is beyond its range or not finite, shape [rows]."""
    low, high = torch.tensor(ranges, dtype=values.dtype, device=values.device).unbind(-1)
    return ~((values >= low) & (values <= high)).all(-1)
