# SPDX-License-Identifier: Apache-2.0
"""Open-loop roll-outs of any dynamics along batches of starts, wherever these come from."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.dynamics.interface import Dynamics, Environment, State, Trajectory, Window, present_state
from neurodyn.evaluate.drive import Drive


@dataclass(frozen=True)
class Batch:
    """Starts of roll-outs, one world each.

    Attributes:
        past: First states, or histories that end in them.
        drive: What drives the robot from there on.
        environment: What the worlds are in; None for the dynamics' own.
    """

    past: State | Window
    drive: Drive
    environment: Environment | None = None


@dataclass(frozen=True)
class Rolled:
    """Roll-outs from all starts.

    Attributes:
        path: States, the first ones included.
        seconds: Wall time [s].
        cpu_seconds: Processor time [s].
    """

    path: Trajectory
    seconds: float
    cpu_seconds: float


@torch.no_grad()
def roll_out(dynamics: Dynamics, batches: Iterable[Batch]) -> Rolled:
    """Roll dynamics out from all starts, batch by batch, so that memory stays bounded."""
    paths, wall, cpu = [], 0.0, 0.0
    for batch in batches:
        begin = time.perf_counter(), time.process_time()
        paths.append(follow(dynamics, batch))
        wall, cpu = wall + time.perf_counter() - begin[0], cpu + time.process_time() - begin[1]
    return Rolled(joined(paths), wall, cpu)


def follow(dynamics: Dynamics, batch: Batch) -> Trajectory:
    """Roll out as driven: under torques, or with a controller that acts on the dynamics' own state."""
    drive = batch.drive
    if drive.torque is not None:
        return dynamics.rollout(batch.past, drive.torque, batch.environment)
    # The fast step of a network uses up the carry, which nobody else holds here.
    carry, state = dynamics.begin(batch.past, batch.environment), present_state(batch.past)
    q, qd = [state.q], [state.qd]
    for frame in range(drive.frames):
        carry, step = dynamics.step_(carry, state, drive.at(frame))
        state = step.state
        q.append(state.q)
        qd.append(state.qd)
    return Trajectory(torch.stack(q, 1), torch.stack(qd, 1))


def joined(paths: list[Trajectory]) -> Trajectory:
    """Return roll-outs of several batches as one."""

    def cat(parts: list[Tensor | None]) -> Tensor | None:
        there = [part for part in parts if part is not None]
        return torch.cat(there) if there else None

    return Trajectory(
        torch.cat([path.q for path in paths]), torch.cat([path.qd for path in paths]),
        cat([path.channels for path in paths]), cat([path.aleatoric for path in paths]),
        cat([path.epistemic for path in paths]),
    )  # fmt: skip


def picked(path: Trajectory, rows: Tensor | slice) -> Trajectory:
    """Return positions and velocities of some of the roll-outs."""
    return Trajectory(path.q[rows], path.qd[rows])
