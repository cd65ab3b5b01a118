# SPDX-License-Identifier: Apache-2.0
r"""Whether the return that a policy imagines is supported, by what it never trains in and by held-out logs.

A policy that trains in a network finds what pays there and nowhere else. Three figures tell, without a simulator:

- Its return in a *judge*: the last of three or more members, which it never trains in, or, where a network corrects a
  whole base, the base alone. Both are played from the same starts.
- The share of its frames *outside* of the log: the network's inputs lie farther from the nearest of the log's training
  frames than those of 95 % of the held-out frames do. Of a model whose log is gone, the share of frames with
  a velocity beyond the range of its training data, which it keeps.
- The members' *disagreement* along its episodes, beside that on held-out frames.

A return is not supported where the judge takes a fifth of it, or where there is no judge and a tenth of the frames lies
outside. Frames outside prove nothing beside a judge: on the contacts of a compiled base a policy leaves the data of
random torques at once, and returns what it imagines (docs/benchmarks.md, ant run).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.config import Record
from neurodyn.core.verdict import Verdict
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.data.training_range import Ranges, TrainingRange
from neurodyn.data.windows import WindowSampler
from neurodyn.dynamics.batch import Control, RecordedEnvironments, State
from neurodyn.dynamics.interface import Dynamics
from neurodyn.policy.environment import PolicyEnvironment

LOST = 0.2
"""Share of the imagined return that the judge may take."""

OUTSIDE = 0.1
"""Share of frames outside of the log that is allowed where nothing else judges.

`ant-run` in one network without a base, of random transitions: after 30, 50, 70 and 80 updates the policy imagined 717,
1159, 2452 and 2919 and returned 529, 533, 531 and 503, with 0, 12, 37 and 46 % of its frames outside. A second network
took 10 % of the return after 30 updates and 51 % after 50. Policies of the cartpole that return what they imagine in a
world model have 1 to 3 % outside and lose at most .3 % with a member.
"""

_HELD_OUT = 0.95
"""Share of the held-out frames that count as inside."""
_KNOWN, _TRIED, _PLAYED = 8192, 2048, 4096
"""Frames of the log that are compared with, held-out ones that set the distance, and frames of a play."""
_SURE = 2.0
"""Standard errors by which the judge's return has to be lower."""
_TINY = 1e-9


class PolicySupport(Record, frozen=True):
    """What supports a policy's return where it trains.

    Attributes:
        imagined: Mean return where it trains.
        judge: Mean return in the judge; None without one.
        judged_by: What the judge is; empty without one.
        lost: Share of the return that is lost there, 0 where none is; None without a judge.
        outside: Share of frames outside of the log; None without a log.
        disagreement: Members' disagreement beside that on held-out frames; None where it is not known.
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
        """Return the figures in a line."""
        parts = [f"imagined return {self.imagined:.4g}"]
        if self.judge is not None:
            parts.append(f"{self.judged_by} {self.judge:.4g}")
        if self.outside is not None:
            parts.append(f"frames outside of the log {self.outside:.0%}")
        if self.disagreement is not None:
            parts.append(f"disagreement {self.disagreement:.3g} times that on the log")
        return ", ".join(parts)

    def verdict(self) -> Verdict:
        """Judge the policy."""
        if not self.exploits:
            return Verdict()
        return Verdict(
            "warning", f"the imagined return is not supported: {self}",
            "log this policy and refit (neurodyn policy online), give a penalty, or stop earlier "
            "(--stop-when-exploiting)",
        )  # fmt: skip

    def figures(self) -> dict[str, Any]:
        """Return what metrics.jsonl holds of a play."""
        known = {
            "return_judge": self.judge, "judged_by": self.judged_by or None, "lost": self.lost,
            "outside": self.outside, "disagreement": self.disagreement,
        }  # fmt: skip
        return {name: value for name, value in known.items() if value is not None} | {"exploits": self.exploits}


def support_in(lines: Sequence[Mapping[str, Any]]) -> PolicySupport | None:
    """Return what supported the last policy that was played, from the lines of metrics.jsonl; None if it is unknown."""
    line = next((line for line in reversed(lines) if "exploits" in line), None)
    if line is None:
        return None
    return PolicySupport(
        line["return_training"], line.get("return_judge"), line.get("judged_by", ""), line.get("lost"),
        line.get("outside"), line.get("disagreement"),
    )  # fmt: skip


def lost_share(imagined: Tensor, judged: Tensor, first: float) -> float:
    """Return the share of a policy's return that it loses with its judge.

    The share is of the larger return, or of what training has gained since the `first` play: returns begin near zero.
    A difference within two standard errors counts as none.

    Args:
        imagined: Returns of the episodes where the policy trains, shape [episodes].
        judged: Returns with the judge from the same starts, shape [episodes].
        first: Mean return of the first play of the training.
    """
    difference = (imagined - judged).double()
    mean, mine, other = float(difference.mean()), float(imagined.mean()), float(judged.mean())
    error = float(difference.std()) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
    if mean <= _SURE * error:
        return 0.0
    return mean / max(abs(mine), abs(other), abs(mine - first), _TINY)


@dataclass(frozen=True)
class LogDensity:
    """Frames of a log, as a network reads them, and how far held-out ones are from them.

    Attributes:
        known: Inputs of training frames, shape [frames, inputs].
        radius: Distance to the nearest of them within which 95 % of the held-out frames lie.
    """

    known: Tensor
    radius: float

    @classmethod
    def of(cls, dynamics: Dynamics, log: Store | Mixture, seed: int = 0) -> "LogDensity | None":
        """Draw frames of a log; None where the dynamics read no frames, or no frames are held out."""
        known = _drawn(dynamics, log, Split.TRAIN, _KNOWN, seed)
        tried = None if known is None else _drawn(dynamics, log, Split.VALIDATION, _TRIED, seed + 1)
        if known is None or tried is None:
            return None
        return cls(known, float(_nearest(tried, known).quantile(_HELD_OUT)))

    def outside(self, inputs: Tensor) -> float:
        """Return the share of frames outside, from their inputs, shape [frames, inputs]."""
        return float((_nearest(inputs, self.known) > self.radius).double().mean())


@dataclass(frozen=True)
class LogRange:
    """Range of the velocities and channels of a log that is gone, as the model that was fitted to it keeps it."""

    known: TrainingRange

    def outside(self, state: State) -> float:
        """Return the share of states beyond it, or that are not finite."""
        beyond = _beyond(state.qd, self.known.qd)
        if state.channels is not None and self.known.channels:
            beyond |= _beyond(state.channels, self.known.channels)
        return float(beyond.double().mean())


class FrameSample:
    """Some of the frames that a policy plays: states, and what the network reads."""

    def __init__(self, frames: int, worlds: int) -> None:
        """Take the length of an episode and the number of worlds."""
        self._every = max(1, frames * worlds // _PLAYED)
        self._frame, self._parts, self._states = 0, list[Tensor](), list[State]()

    def __call__(self, world: PolicyEnvironment, actions: Tensor) -> None:
        """Note what the network is about to read."""
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
        """All inputs, shape [frames, inputs]; None where there are none."""
        return torch.cat(self._parts) if self._parts else None


def _beyond(values: Tensor, ranges: Ranges) -> Tensor:
    """Return whether any column is beyond its range or not finite, shape [rows]."""
    low, high = torch.tensor(ranges, dtype=values.dtype, device=values.device).unbind(-1)
    return ~((values >= low) & (values <= high)).all(-1)


def _drawn(dynamics: Dynamics, log: Store | Mixture, split: Split, count: int, seed: int) -> Tensor | None:
    mixture, parts = Mixture.of(log), []
    names, targets = [one.name for one in dynamics.conditions], dynamics.spec.control_kind != "torque"
    for store, share in zip(mixture.stores, mixture.shares, strict=True):
        number = round(share * count)
        if not number or not (store.table["split"] == split).any():
            continue
        batch = WindowSampler(store, 1, split=split, batch=number, seed=seed, device=dynamics.device).draw()
        channels = None if batch.channels is None else batch.channels[:, 0]
        environment = None
        if not dynamics.measured:
            environment = RecordedEnvironments(store, dynamics.device, names).of(batch)
        control = Control(target=batch.control[:, 0]) if targets else Control(torque=batch.control[:, 0])
        inputs = dynamics.network_inputs(State(batch.q[:, 0], batch.qd[:, 0], channels), control, environment)
        if inputs is None:
            return None
        parts.append(inputs)
    return torch.cat(parts) if parts else None


def _nearest(inputs: Tensor, known: Tensor) -> Tensor:
    """Return the distance of rows to the nearest known row, shape [rows]; rows that are not finite are far."""
    parts = [torch.cdist(part, known).amin(1) for part in inputs.split(1024)]
    return torch.cat(parts).nan_to_num(math.inf)
