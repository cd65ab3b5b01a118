# SPDX-License-Identifier: Apache-2.0
"""Hybrid dynamics with soft constraints against their simulator, and against MuJoCo's own step.

For the ant, ANYmal C and the cube, driven at random (the cube tossed): one frame from states along the simulator's own
roll-outs, compared with the simulator itself from states whose joints differ by one unit in the last place; 100 frames,
compared with the simulator's difference to itself at half its step. Then the time of a step of the ant with its
contacts and limits, and of its adjoint, against `mj_step` of MuJoCo's C library on the same model from the same states
(whose results are compared first), over 50 steps from each state.
"""

from dataclasses import dataclass

import mujoco
import mujoco.rollout
import numpy as np
import torch

from _common import compare, require, result_parser, single_thread, write_result
from neurodyn.dynamics import AnalyticDynamics, Environment, HybridDynamics, State, declared_hybrid
from neurodyn.geometry import Ground
from neurodyn.geometry.rotation import rotate
from neurodyn.robots import Robot, load
from neurodyn.sim import ReferenceSimulator, sample_states, sample_torques

GROUNDS = {"ant": ("flat", "rough"), "anymal-c": ("flat", "rough"), "cube": ("flat",)}
DRIVE = {"ant": 0.2, "anymal-c": 0.3}
"""Random torques, as a fraction of those in data: robots that keep falling over would be compared in the air."""

STEPS = 50
FRAME_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Rollouts:
    """Roll-outs of the simulator.

    Attributes:
        q: Positions, shape [worlds, frames + 1, nq].
        qd: Velocities.
        torque: Torques, shape [worlds, frames, nu].
    """

    q: torch.Tensor
    qd: torch.Tensor
    torque: torch.Tensor


def simulated(robot: Robot, ground: str, worlds: int, frames: int) -> Rollouts:
    """Return roll-outs from resets under random torques, a quarter of them without torque."""
    rng = np.random.default_rng(0)
    scene = robot.grounds[ground]
    q, qd = sample_states(robot, worlds, rng, Ground(scene), reset=True)
    torque = DRIVE.get(robot.name, 0.0) * sample_torques(robot, worlds, frames, rng)
    torque[: worlds // 4] = 0.0
    return Rollouts(*ReferenceSimulator(robot, worlds, scene=scene).rollout(q, qd, torque), torque)


def one_frame(hybrid: HybridDynamics, ground: str, robot: Robot, found: Rollouts) -> dict[str, float]:
    """Return differences after one frame from every state, relative to the velocity."""
    frames = found.torque.shape[1]
    flat = [x.double().flatten(0, 1) for x in (found.q[:, :frames], found.qd[:, :frames])]
    torque = found.torque.double().reshape(len(flat[0]), 1, found.torque.shape[2])
    wanted = found.qd[:, 1:].double().flatten(0, 1)
    with torch.no_grad():
        path = hybrid.rollout(State(*flat), torque, Environment(ground=Ground(robot.grounds[ground])))
    error = relative(path.qd[:, 1], wanted)
    key = f"{robot.name}_{ground}_frame"
    return {
        f"{key}_share_within_1e-3": float((error < FRAME_TOLERANCE).double().mean()),
        f"{key}_median": float(error.median()),
        f"{key}_99_percent": float(torch.quantile(error, 0.99)),
    }


def relative(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return differences of velocities relative to the velocity."""
    return (found - wanted).norm(dim=1) / wanted.norm(dim=1).clamp_min(1e-3)


def rounding(ground: str, robot: Robot, found: Rollouts) -> dict[str, float]:
    """Return the fraction of its own frames that the simulator reproduces from states one rounding error apart."""
    worlds, frames = found.torque.shape[:2]
    simulator = ReferenceSimulator(robot, worlds, scene=robot.grounds[ground])
    generator, errors = torch.Generator().manual_seed(0), []
    first = 7 if found.q.shape[2] > 7 else 0
    for frame in range(frames):
        q = found.q[:, frame].clone()
        sign = torch.randint(-1, 2, q[:, first:].shape, generator=generator)
        q[:, first:] *= 1.0 + torch.finfo(torch.float32).eps * sign
        after = simulator.step(q, found.qd[:, frame], found.torque[:, frame])[1]
        errors.append(relative(after.double(), found.qd[:, frame + 1].double()))
    share = (torch.cat(errors) < FRAME_TOLERANCE).double().mean()
    return {f"{robot.name}_{ground}_frame_share_within_1e-3_simulator_rounded": float(share)}


def many_frames(hybrid: HybridDynamics, ground: str, robot: Robot, found: Rollouts) -> dict[str, float]:
    """Return errors after the whole roll-out and those of the simulator at half its step: medians and means."""
    environment = Environment(ground=Ground(robot.grounds[ground]))
    start = State(found.q[:, 0], found.qd[:, 0])
    half = AnalyticDynamics(robot, substeps=2 * robot.simulator.substeps)
    with torch.no_grad():
        own = hybrid.rollout(State(start.q.double(), start.qd.double()), found.torque.double(), environment)
        other = half.rollout(start, found.torque, environment)
    figures = {}
    for name, path in (("hybrid", own), ("half_step", other)):
        error = (path.q[:, -1].double() - found.q[:, -1].double()).norm(dim=1)
        key = f"{robot.name}_{ground}_{found.torque.shape[1]}_frames_{name}"
        figures |= {f"{key}_mean": float(error.mean()), f"{key}_median": float(error.median())}
    return figures


class Stepping:
    """Steps of the ant's engine, and of MuJoCo on Newton's compiled model, from the same states."""

    def __init__(self, hybrid: HybridDynamics, robot: Robot, found: Rollouts, worlds: int) -> None:
        frames = found.torque.shape[1]
        rows = torch.randperm(found.q.shape[0] * frames, generator=torch.Generator().manual_seed(0))[:worlds]
        q, qd = (x[:, 1:].double().flatten(0, 1)[rows] for x in (found.q, found.qd))
        self.state = torch.cat([q, qd], 1)
        self.dt = robot.dt / robot.simulator.substeps
        solver = ReferenceSimulator(robot, 1, scene=robot.grounds["flat"], capture=False)._solver
        self.model = solver.mj_model
        self.model.opt.timestep = self.dt
        self.data = mujoco.MjData(self.model)
        turn = q[:, 3:7] * q.new_tensor([-1.0, -1.0, -1.0, 1.0])
        com = hybrid.base_com.expand(worlds, 3)
        origin = qd[:, :3] - torch.linalg.cross(qd[:, 3:6], rotate(q[:, 3:7], com))
        qpos = torch.cat([q[:, :3], q[:, [6, 3, 4, 5]], q[:, 7:]], 1)
        qvel = torch.cat([origin, rotate(turn, qd[:, 3:6]), qd[:, 6:]], 1)
        self.theirs = torch.cat([torch.zeros(worlds, 1).double(), qpos, qvel], 1).numpy()
        engine = hybrid._engine("plane")
        plane = q.new_tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]).expand(worlds, STEPS, 6)
        self.program = engine.program
        self.run = self.program.run(
            self.state, frames=STEPS, control=q.new_zeros(worlds, STEPS, robot.spec.nu), held=plane,
            parameters=q.new_tensor(engine.nominal),
        )  # fmt: skip
        self.seeds = q.new_ones(worlds, STEPS + 1, self.state.shape[1])
        self.nq = robot.spec.nq

    def forward(self) -> torch.Tensor:
        """Return the states along our steps."""
        return self.program.forward(self.run, self.state)

    def both(self) -> object:
        """Compute the gradient with respect to the initial states."""
        return self.program.adjoint(self.run, self.program.record(self.run, self.state)[1], self.seeds)

    def mujoco(self) -> np.ndarray:
        """Return the states along MuJoCo's steps."""
        state, _ = mujoco.rollout.rollout(self.model, self.data, self.theirs, nstep=STEPS)
        return state

    def check(self) -> float:
        """Return the median relative difference of joint speeds after one step.

        For upright capsules, C and Warp use different tangents, and so different friction pyramids.
        """
        ours, theirs = self.forward()[:, 1], torch.from_numpy(self.mujoco()[:, 0])
        speeds = theirs[:, 1 + self.nq + 6 :]
        error = (ours[:, self.nq + 6 :] - speeds).norm(dim=1) / speeds.norm(dim=1)
        return float(error.median())


def speed(hybrid: HybridDynamics, robot: Robot, found: Rollouts, worlds: int, seconds: float) -> tuple[dict, dict]:
    """Return figures and ratios of the ant's step against MuJoCo's."""
    work = Stepping(hybrid, robot, found, worlds)
    error = work.check()
    require(error < 1e-5, f"one step differs from mj_step by {error:.1e} of the joint speeds")
    times = compare({"forward": work.forward, "both": work.both, "mujoco": work.mujoco}, seconds=seconds)
    each = {name: time / (worlds * STEPS) * 1e6 for name, time in times.items()}
    figures = {
        "ant_step_forward_us": each["forward"],
        "ant_step_forward_and_adjoint_us": each["both"],
        "ant_step_mujoco_us": each["mujoco"],
        "ant_step_check": error,
    }
    ratios = {
        f"ant_step_forward_vs_mj_step_b{worlds}": each["forward"] / each["mujoco"],
        f"ant_step_adjoint_vs_forward_b{worlds}": (each["both"] - each["forward"]) / each["forward"],
    }
    return figures, ratios


def main() -> None:
    """Measure, and write the results."""
    parser = result_parser(__doc__)
    parser.add_argument("--worlds", type=int, default=128)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for name, grounds in GROUNDS.items():
        robot = load(name)
        hybrid = declared_hybrid(robot)
        for ground in grounds:
            found = simulated(robot, ground, options.worlds, options.frames)
            figures |= one_frame(hybrid, ground, robot, found) | rounding(ground, robot, found)
            figures |= many_frames(hybrid, ground, robot, found)
            if (name, ground) == ("ant", "flat"):
                more, ratios = speed(hybrid, robot, found, 256, options.seconds)
                figures |= more
        print({key: value for key, value in figures.items() if key.startswith(name)}, flush=True)
    write_result(options.json, "soft_contact", figures, ratios)


if __name__ == "__main__":
    main()
