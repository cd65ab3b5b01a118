# SPDX-License-Identifier: Apache-2.0
r"""Bounds of the states that a robot can plausibly reach: declared ranges, and an energy budget for the velocities.

A robot starts with kinetic energy T and potential energy V, and its drives add work W to that. With all of it in one
coordinate, that coordinate moves at

$$|\dot q_i| \le \sqrt{2 E\,(M^{-1})_{ii}}, \qquad E = \max_s (T_s + V_s) - \min_s V_s + m g h + \sum_j W_j$$

which is the greatest value of a velocity on the ellipsoid $\tfrac12 \dot q^T M \dot q = E$. Here s are fastest starts
in the sampling ranges, h is the least height of a floating base above the ground, and $W_j$ is the work of a drive:
full effort over the range of a joint with limits, and over a whole trajectory where nothing stops the joint,
$W_j = \tfrac12 (M^{-1})_{jj} (\tau_j t)^2$. Bases also fall for a whole trajectory, which adds g t to their linear
velocity. Real motion does not come near: work is done on several joints, friction takes some of it, and resonance
rarely adds up. What is beyond `MARGIN` times the bound is an explosion of the integrator.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.seeds import generator
from neurodyn.robots import Robot
from neurodyn.robots.plausible import PlausibleBounds, declared_bounds
from neurodyn.robots.sections import Interval
from neurodyn.sim.energy import EnergyMeter
from neurodyn.sim.sampling import sample_states

MARGIN = 1.5
"""Velocities may be this many times those of the energy budget: limits give back more than one stroke of a drive."""

_STATES = 64


def plausible_bounds(robot: Robot, model: Any) -> PlausibleBounds:
    """Return the bounds of plausible states: those declared, and of other velocities those of an energy budget.

    Args:
        robot: The declared robot.
        model: A Newton model of worlds with the robot.

    Raises:
        InputError: The robot's sampling ranges are incomplete.
    """
    bounds = declared_bounds(robot)
    if all(math.isfinite(upper) for _, upper in bounds.qd):
        return bounds
    return bounds.within(_velocities(robot, EnergyMeter(model)))


def _velocities(robot: Robot, meter: EnergyMeter) -> tuple[Interval, ...]:
    q, qd = _fastest(robot)
    inverse = torch.linalg.inv(torch.cat([meter.mass_matrix(rows) for rows in q.split(meter.worlds)]))
    mobility = inverse.diagonal(dim1=-2, dim2=-1).amax(0)
    parts = [meter.measure(*rows) for rows in zip(q.split(meter.worlds), qd.split(meter.worlds), strict=True)]
    kinetic, potential = (torch.cat(column) for column in zip(*parts, strict=True))
    energy = float((kinetic + potential).max() - potential.min()) + _work(robot, mobility)
    seconds, gravity = robot.frames * robot.dt, float(np.linalg.norm(robot.gravity))
    floating, fall = robot.spec.floating, torch.zeros(robot.spec.nv, dtype=torch.float64)
    if floating:
        energy += meter.total_mass * gravity * max(0.0, (robot.sampling.height or (0.0, 0.0))[0])
        fall[:3] = gravity * seconds
    speed = MARGIN * torch.sqrt(2.0 * energy * mobility) + fall
    return tuple((-value, value) for value in speed.tolist())


def _work(robot: Robot, mobility: Tensor) -> float:
    """Return the work of all drives [J]; see the head of this file."""
    joints, seconds = {joint.name: joint for joint in robot.joints}, robot.frames * robot.dt
    total = 0.0
    for dof, (name, effort) in zip(robot.spec.control_dofs, robot.actuated.items(), strict=True):
        joint = joints[name]
        free = 0.5 * float(mobility[dof]) * (effort * seconds) ** 2
        stroke = math.inf if joint.lower is None or joint.upper is None else effort * (joint.upper - joint.lower)
        total += min(free, stroke)
    return total


def _fastest(robot: Robot) -> tuple[Tensor, Tensor]:
    """Return positions that data start from, with the greatest velocities that they start with, in random signs."""
    q, _ = sample_states(robot, _STATES, rng := generator(0, "plausible bounds"))
    most = [max(map(abs, robot.sampling_interval("qd", name))) for name in robot.spec.qd_names]
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=(_STATES, len(most))).astype(np.float32))
    return q, signs * torch.tensor(most)
