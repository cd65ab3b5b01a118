# SPDX-License-Identifier: Apache-2.0
"""How far the simulator is from itself: with half the step, and from starts that are a millionth off.

No model of the simulator can be asked for less. Contacts tell states apart quickly, so that beyond some horizon
even the smallest difference in the start decides where a robot lies.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from neurodyn.core.seeds import generator
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.analytic.model import AnalyticDynamics
from neurodyn.dynamics.interface import Environment, State, Trajectory
from neurodyn.dynamics.measures import Columns, displace, finite_worlds, horizons_up_to, position_errors, summarise
from neurodyn.evaluate.motion import Drive, follow
from neurodyn.learn.devices import threads
from neurodyn.robots import Robot

TWICE, PERTURBED = "twice_substeps", "perturbed_1e-6"
SIZE = 1e-6


@dataclass(frozen=True)
class Reference:
    """Circumstances of roll-outs that the simulator has already done.

    Attributes:
        start: First states.
        drive: What drives the robot.
        environment: What the worlds are in.
    """

    start: State
    drive: Drive
    environment: Environment


def measure_reference_errors(robot: Robot, reference: Reference, truth: Trajectory, seed: int) -> dict[str, Any]:
    """Return what the simulator itself is uncertain about: errors by horizon, as of a model.

    "twice_substeps" is the simulator with half the step, its own discretisation error; "perturbed_1e-6" the simulator
    from starts that are off by 1e-6 in every coordinate, the limit of predictability.

    Args:
        robot: The robot.
        reference: Circumstances of the roll-outs.
        truth: What the simulator did in them.
        seed: Seed of the perturbation.
    """
    columns, marks = Columns.of(robot), horizons_up_to(reference.drive.frames)
    result: dict[str, Any] = {"rollouts": reference.start.worlds}
    with threads(1):
        found = {TWICE: twice_substeps(robot, reference), PERTURBED: perturbed_starts(robot, reference, seed)}
    for name, trajectory in found.items():
        errors = position_errors(robot.spec, trajectory, truth)[finite_worlds(trajectory) & finite_worlds(truth)]
        result[name] = {str(h): summarise(errors, columns, h) for h in marks}
    return result


def twice_substeps(robot: Robot, reference: Reference) -> Trajectory:
    """Return the roll-outs of the simulator with twice the substeps."""
    simulator = AnalyticDynamics(robot, substeps=2 * robot.simulator.substeps)
    return follow(simulator, reference.start, reference.drive, reference.environment)


def perturbed_starts(robot: Robot, reference: Reference, seed: int) -> Trajectory:
    """Return the roll-outs of the simulator from starts that are off by 1e-6."""
    start = perturb(robot.spec, reference.start, generator(seed, "perturb"))
    return follow(AnalyticDynamics(robot), start, reference.drive, reference.environment)


def perturb(spec: StateSpec, state: State, rng: np.random.Generator, size: float = SIZE) -> State:
    """Return states of which every coordinate is off by `size` to either side [rad, m, rad/s or m/s]."""
    q, qd = (torch.from_numpy(rng.choice([-size, size], state.qd.shape).astype(np.float32)) for _ in range(2))
    return State(displace(spec, state.q, q), state.qd + qd)
