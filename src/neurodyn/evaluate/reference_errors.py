# SPDX-License-Identifier: Apache-2.0
"""Reference errors: how far the simulator is from itself at half the step, and from starts that are a millionth off.

No model of the simulator can be asked for less. Contacts tell states apart quickly, so that beyond some horizon
even the smallest difference in the start decides where a robot lies.
"""

import numpy as np
import torch

from neurodyn.core.seeds import generator
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.analytic.model import AnalyticDynamics
from neurodyn.dynamics.interface import State, Trajectory, present_state
from neurodyn.dynamics.measures import displace
from neurodyn.evaluate.engine import Batch, roll_out
from neurodyn.evaluate.metrics import Compared, horizons_up_to
from neurodyn.evaluate.records import ReferenceErrors, Summary
from neurodyn.learn.devices import threads
from neurodyn.robots import Robot

SIZE = 1e-6


def measure_reference_errors(robot: Robot, starts: Batch, truth: Trajectory, seed: int) -> ReferenceErrors:
    """Return the simulator's own errors by horizon: at half the step, and from perturbed starts.

    Args:
        robot: The robot.
        starts: Starts of roll-outs that the simulator has done.
        truth: What it did in them.
        seed: Seed of the perturbation.
    """
    marks, start = horizons_up_to(starts.drive.frames), present_state(starts.past)

    def errors(simulator: AnalyticDynamics, first: State) -> dict[str, Summary]:
        with threads(1):
            path = roll_out(simulator, [Batch(first, starts.drive, starts.environment)]).path
        return Compared(robot, path, truth).by_horizon(marks)

    return ReferenceErrors(
        rollouts=start.worlds,
        half_step=errors(AnalyticDynamics(robot, substeps=2 * robot.simulator.substeps), start),
        perturbed=errors(AnalyticDynamics(robot), perturb(robot.spec, start, generator(seed, "perturb"))),
    )


def perturb(spec: StateSpec, state: State, rng: np.random.Generator, size: float = SIZE) -> State:
    """Return states of which every coordinate is off by `size` to either side [rad, m, rad/s or m/s]."""
    q, qd = (torch.from_numpy(rng.choice([-size, size], state.qd.shape).astype(np.float32)) for _ in range(2))
    return State(displace(spec, state.q, q), state.qd + qd)
