# SPDX-License-Identifier: Apache-2.0
"""Reference errors: how far the simulator is from itself at half the step, and from starts that are a millionth off.

No model of the simulator can be asked for less. Contacts tell states apart quickly, so that beyond some horizon
even the smallest difference in the start decides where a robot lies.
"""

from collections.abc import Mapping

import numpy as np
import torch

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.seeds import generator
from neurodyn.dynamics.interface import State, present_state
from neurodyn.dynamics.measures import displace
from neurodyn.evaluate.engine import Batch, Rolled
from neurodyn.evaluate.metrics import Compared, horizons_up_to
from neurodyn.evaluate.records import ReferenceErrors, Summary
from neurodyn.evaluate.simulator_rollouts import Asked
from neurodyn.robots import Robot

SIZE = 1e-6


def reference_rollouts(robot: Robot, starts: Batch, seed: int) -> dict[str, Asked]:
    """Return the roll-outs of the simulator that `reference_errors` compares with those from `starts`.

    Args:
        robot: The robot.
        starts: The first starts of roll-outs of the simulator.
        seed: Seed of the perturbation.
    """
    start = perturb(robot.spec, present_state(starts.past), generator(seed, "perturb"))
    return {
        "half_step": Asked(starts, half_step=True),
        "perturbed": Asked(Batch(start, starts.drive, starts.environment)),
    }


def reference_errors(robot: Robot, found: Mapping[str, Rolled]) -> ReferenceErrors:
    """Return the simulator's own errors by horizon: at half the step, and from perturbed starts.

    Args:
        robot: The robot.
        found: What came of `reference_rollouts`, and "passive", the simulator's roll-outs, of which those from the
            same starts come first.
    """
    count, marks = found["perturbed"].path.worlds, horizons_up_to(found["passive"].path.q.shape[1] - 1)
    truth = found["passive"].path.rows(slice(0, count))

    def errors(name: str) -> dict[str, Summary]:
        return Compared(robot, found[name].path, truth).by_horizon(marks)

    return ReferenceErrors(rollouts=count, half_step=errors("half_step"), perturbed=errors("perturbed"))


def perturb(spec: StateSpec, state: State, rng: np.random.Generator, size: float = SIZE) -> State:
    """Return states of which every coordinate is off by `size` to either side [rad, m, rad/s or m/s]."""
    q, qd = (torch.from_numpy(rng.choice([-size, size], state.qd.shape).astype(np.float32)) for _ in range(2))
    return State(displace(spec, state.q, q), state.qd + qd)
