# SPDX-License-Identifier: Apache-2.0
"""Trial of a drafted simulator: a short time under random control, compared with itself at half the step."""

from dataclasses import dataclass

import numpy as np
import torch

from neurodyn.core.seeds import generator
from neurodyn.robots import Robot
from neurodyn.sim.batches import Recorder
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.energies import plausible_bounds
from neurodyn.sim.sampling import data_scene
from neurodyn.sim.simulators import simulator

WORST_ERROR = 0.05
"""Maximum error relative to half the step, as a share of the motion (median over worlds, ten frames)."""

WILD = 3.0
"""Factor on the velocities of the robot's energy budget beyond which a simulation has exploded."""

_WORLDS = 48
_FRAMES = 50
_COMPARED = 10


@dataclass(frozen=True)
class SimulatorTrial:
    """Result of a trial."""

    substeps: int  # solver steps in one frame
    finite: float  # share of worlds that stayed finite
    outside: float  # share of worlds that left plausible bounds
    error: float  # relative to half the step, as a share of the motion
    speed: np.ndarray  # maximum of each velocity in worlds that did not explode [rad/s or m/s], shape [nv]
    reach: np.ndarray  # range of each position in those worlds [rad or m], shape [nq, 2]

    @property
    def passed(self) -> bool:
        """Whether models can be learned from the simulator."""
        return self.finite == 1.0 and self.outside == 0.0 and self.error <= WORST_ERROR

    @property
    def text(self) -> str:
        """The results on one line."""
        return (
            f"{self.finite:.0%} of worlds finite, {self.outside:.0%} beyond plausible speeds, "
            f"{self.error:.1%} error beside half the step"
        )


def run_trial(robot: Robot) -> SimulatorTrial:
    """Simulate random motion of a robot, as for data, at the full and at half the step."""
    scene = data_scene(robot)
    worlds = simulator(robot, _WORLDS, scene=scene)
    layout = None if robot.contact_points is None else contact_point_layout(worlds.built, robot)
    q, qd, control, ground = Recorder(worlds, _FRAMES, scene, layout).record(generator(0, "trial"), 0.0)
    finite = q.isfinite().all(-1).all(-1) & qd.isfinite().all(-1).all(-1)
    bounds = plausible_bounds(robot, worlds.built)
    wild = torch.tensor([WILD * max(map(abs, interval)) for interval in bounds.qd])
    outside = ~finite | (qd.abs() > wild).any(-1).any(-1)
    fine = simulator(robot, _WORLDS, scene=scene, substeps=2 * robot.simulator.substeps)
    fine.set_ground(None if ground is None else torch.as_tensor(ground))
    compared, _ = fine.rollout(q[:, 0], qd[:, 0], control[:, :_COMPARED])
    error = (compared - q[:, : _COMPARED + 1]).abs().mean((1, 2))
    motion = (compared - compared[:, :1]).abs().mean((1, 2)).clamp_min(1e-6)
    kept = ~outside if bool((~outside).any()) else torch.ones_like(outside)
    reach = torch.stack([q[kept].amin((0, 1)), q[kept].amax((0, 1))], -1)
    return SimulatorTrial(
        substeps=robot.simulator.substeps,
        finite=float(finite.double().mean()),
        outside=float(outside.double().mean()),
        error=float((error / motion).nan_to_num(nan=np.inf).median()),
        speed=qd[kept].nan_to_num().abs().amax((0, 1)).numpy().astype(float),
        reach=reach.nan_to_num().numpy().astype(float),
    )
