# SPDX-License-Identifier: Apache-2.0
"""Errors of roll-outs beside the truth: by coordinate, by horizon, and over the roll-outs.

Figures follow NeRD's passive-motion evaluation (arXiv 2508.15755, section 4): means over all frames up to a
horizon and over all roll-outs. The base of a bolted robot is the chain of sliders that it begins with, so
that the cartpole's base position is the cart's.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.interface import Trajectory
from neurodyn.dynamics.tangent import position_difference
from neurodyn.robots import Robot

HORIZONS = (10, 100, 500, 1000)
PERCENTILES = (10, 50, 90)


@dataclass(frozen=True)
class Columns:
    """Which position coordinates make up the base, the turning joints and the sliding joints.

    Attributes:
        base: Coordinates of the base [m].
        angles: Turning joints [rad].
        slides: Sliding joints that are no base [m].
    """

    base: tuple[int, ...]
    angles: tuple[int, ...]
    slides: tuple[int, ...]

    @classmethod
    def of(cls, robot: Robot) -> "Columns":
        """Return the columns of a robot whose joints have one degree of freedom each."""
        spec = robot.spec
        kinds = [joint.kind for joint in spec.joints]
        base = tuple(
            spec.q_names.index(name) for name in robot.invariant_joints if spec.q_units[spec.q_names.index(name)] == "m"
        )
        angles = tuple(i for i, kind in enumerate(kinds) if kind == "revolute")
        slides = tuple(i for i, kind in enumerate(kinds) if kind == "prismatic" and i not in base)
        return cls(base, angles, slides)

    def groups(self) -> dict[str, tuple[int, ...]]:
        """Return the columns by the name of their error."""
        named = {"base_position_m": self.base, "joint_rad": self.angles, "joint_m": self.slides}
        return {name: columns for name, columns in named.items() if columns}


def position_errors(spec: StateSpec, predicted: Trajectory, truth: Trajectory) -> Tensor:
    """Return |q - q_true| of all frames but the first, wrapped where continuous, shape [worlds, T, nq]."""
    return position_difference(spec, predicted.q, truth.q)[:, 1:].abs()


def velocity_errors(predicted: Trajectory, truth: Trajectory) -> Tensor:
    """Return |qd - qd_true| of all frames but the first, shape [worlds, T, nv]."""
    return (predicted.qd - truth.qd)[:, 1:].abs()


def finite_worlds(trajectory: Trajectory) -> Tensor:
    """Return which roll-outs are finite to their end, shape [worlds]."""
    return torch.isfinite(trajectory.q).all(-1).all(-1) & torch.isfinite(trajectory.qd).all(-1).all(-1)


def summarise(errors: Tensor, columns: Columns, horizon: int) -> dict[str, Any]:
    """Return mean errors up to a horizon, and their percentiles over the roll-outs.

    Args:
        errors: Position errors of finite roll-outs, shape [worlds, T, nq].
        columns: Which coordinates belong together.
        horizon: Number of frames.
    """
    result: dict[str, Any] = {"base_orientation_rad": 0.0}
    if not columns.base:
        result["base_position_m"] = 0.0
    for name, picked in columns.groups().items():
        by_world = errors[:, :horizon, list(picked)].double().mean((1, 2))
        result[name] = _number(by_world.mean()) if len(by_world) else None
        result[f"{name}_percentiles"] = percentiles(by_world)
    return result


def percentiles(values: Tensor) -> dict[str, float | None]:
    """Return percentiles of a set of values, keyed by "10", "50", "90"."""
    if not len(values):
        return {str(p): None for p in PERCENTILES}
    shares = torch.tensor([p / 100 for p in PERCENTILES], dtype=torch.float64)
    return {str(p): _number(v) for p, v in zip(PERCENTILES, torch.quantile(values.double(), shares), strict=True)}


def horizons_up_to(frames: int, marks: tuple[int, ...] = HORIZONS) -> list[int]:
    """Return the horizons to report: the usual ones as far as the roll-outs go, and their end."""
    return sorted({mark for mark in marks if mark <= frames} | {frames})


def hold_last(truth: Trajectory) -> Trajectory:
    """Return the baseline that nothing moves: the first state forever."""
    return Trajectory(truth.q[:, :1].expand_as(truth.q), truth.qd[:, :1].expand_as(truth.qd))


def constant_velocity(truth: Trajectory, dt: float) -> Trajectory:
    """Return the baseline that velocities stay as they are (joints of one degree of freedom)."""
    time = dt * torch.arange(truth.q.shape[1], dtype=truth.q.dtype, device=truth.q.device)
    q = truth.q[:, :1] + time[None, :, None] * truth.qd[:, :1]
    return Trajectory(q, truth.qd[:, :1].expand_as(truth.qd))


def _number(value: Tensor) -> float:
    return float(value)
