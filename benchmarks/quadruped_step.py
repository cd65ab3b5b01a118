# SPDX-License-Identifier: Apache-2.0
"""One step of a quadruped with four feet on the ground: forward, and with its adjoint.

The robot is Unitree's A1 (free base, 12 joints) of example-robot-data, contacts are forces at the feet, inertial
quantities are constant. Also the speed-up of two threads on 1024 worlds (wall time), and the Jacobian of a step with
respect to state and control against Pinocchio's derivatives of the articulated-body algorithm, which have no contacts.
"""

import time
from collections.abc import Callable

import torch

from _common import compare, require, result_parser, single_thread, write_result
from neurodyn.core import Mechanism
from neurodyn.multibody import Engine, EngineConfig
from neurodyn.robots import ContactPointSelection, Joint, Ranges, Robot
from neurodyn.sim import articulation, mechanism

FRAMES, WORLDS = 50, 1024
JACOBIANS = 64
DT = 1e-3


def quadruped() -> Robot:
    """Return the A1, with contact points at its feet."""
    joints = [f"{leg}_{part}_joint" for leg in ("FR", "FL", "RR", "RL") for part in ("hip", "thigh", "calf")]
    return Robot(
        name="a1",
        asset="a1_description/urdf/a1.urdf",
        package="example-robot-data",
        joints=(Joint(name="root", kind="free"), *(Joint(name=name, kind="revolute") for name in joints)),
        actuated=dict.fromkeys(joints, 33.5),
        dt=DT,
        fixed_base=False,
        meshes=False,
        contact_points=ContactPointSelection(shapes=("shape_9", "shape_15", "shape_21", "shape_27")),
        sampling=Ranges(height=(0.3, 0.4)),
    )


class Quadrupeds:
    """Worlds with a robot standing on a plane."""

    def __init__(self, worlds: int, threads: int = 1) -> None:
        robot = quadruped()
        tree = mechanism(articulation(robot), robot)
        require(len(tree.points) == 4, f"{len(tree.points)} feet instead of 4")
        engine = Engine(tree, robot.spec, EngineConfig(substeps=1, contact="force"), threads)
        self.program, self.tree = engine.program, tree
        generator = torch.Generator().manual_seed(0)
        q = torch.zeros(worlds, tree.nq, dtype=torch.float64)
        q[:, 2], q[:, 6] = 0.3, 1.0
        q[:, 8::3], q[:, 9::3] = 0.75, -1.5
        q[:, 7:] += 0.05 * torch.randn(worlds, 12, generator=generator, dtype=torch.float64)
        qd = 0.1 * torch.randn(worlds, tree.nv, generator=generator, dtype=torch.float64)
        self.state = torch.cat([q, qd], 1)
        ground = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0], dtype=torch.float64)
        self.control = torch.zeros(worlds, FRAMES, 12, dtype=torch.float64)
        self.run = self.program.run(
            self.state, frames=FRAMES, control=self.control, held=ground.expand(worlds, FRAMES, 6)
        )
        self.seeds = torch.ones(worlds, FRAMES + 1, self.state.shape[1], dtype=torch.float64)

    def forward(self) -> torch.Tensor:
        """Return the path."""
        return self.program.forward(self.run, self.state)

    def both(self) -> torch.Tensor:
        """Return the gradient with respect to the initial states."""
        return self.program.adjoint(self.run, self.program.record(self.run, self.state)[1], self.seeds).state


def check(work: Quadrupeds) -> float:
    """Compare the gradient of one world with central differences; return the largest relative difference."""
    found, worst = work.both()[0], []
    for size in (1e-6, 1e-7, 1e-8):
        errors = []
        for i in (0, 2, 8, 12, 20, 30):
            values = []
            for sign in (1, -1):
                state = work.state[:1].clone()
                state[0, i] += sign * size
                run = work.program.run(state, frames=FRAMES, control=work.control[:1], held=work.run.held[:1])
                values.append(float(work.program.forward(run, state).sum()))
            errors.append(abs(float(found[i]) - (values[0] - values[1]) / (2 * size)))
        worst.append(max(errors) / float(found.abs().max()))
    path = work.forward()
    feet_pushed = float(path[:, -1, 2].mean()) > 0.2
    require(min(worst) < 1e-5 and bool(path.isfinite().all()) and feet_pushed, f"gradients differ by {worst}")
    return min(worst)


class Jacobians:
    """Jacobians of a step in several worlds, and Pinocchio's in as many."""

    def __init__(self, work: Quadrupeds) -> None:
        self.state = work.state[:JACOBIANS].contiguous()
        size = self.state.shape[1]
        self.program, self.held = work.program, work.run.held[:JACOBIANS, :1]
        self.control = work.control[:JACOBIANS, :1]
        self.seeds = torch.eye(size, dtype=torch.float64).expand(JACOBIANS, size, size).contiguous()

    def __call__(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return derivatives of the next state with respect to state and control."""
        none = self.state.new_zeros(0)
        return self.program.frame(self.state, 1, self.control, self.held, none, none)[1](self.seeds)

    def check(self) -> None:
        """Compare a row with the adjoint."""
        run = self.program.run(self.state, frames=1, control=self.control, held=self.held)
        _, tape = self.program.record(run, self.state)
        seeds = torch.stack([torch.zeros_like(self.state), self.seeds[:, 25]], 1)
        found, expected = self()[0][:, 25], self.program.adjoint(run, tape, seeds).state
        require(bool(((found - expected).abs() <= 1e-9 * expected.abs().max()).all()), "rows differ from the adjoint")


def pinocchio_derivatives(tree: Mechanism) -> Callable[[], None]:
    """Return Pinocchio's derivatives for a robot with the same joints, in as many worlds."""
    import numpy as np
    import pinocchio

    model = pinocchio.Model()
    indices: list[int] = []
    for link in tree.links:
        joint, x = link.joint, link.inertia
        kind = pinocchio.JointModelFreeFlyer() if joint.kind == "free" else pinocchio.JointModelRX()
        place = pinocchio.SE3(np.eye(3), np.array(joint.parent_frame[:3]))
        parent = indices[joint.parent] if joint.parent >= 0 else 0
        index = model.addJoint(parent, kind, place, joint.name)
        matrix = np.array([[x[0], x[3], x[4]], [x[3], x[1], x[5]], [x[4], x[5], x[2]]])
        inertia = pinocchio.Inertia(link.mass, np.array(link.com), matrix)
        model.appendBodyToJoint(index, inertia, pinocchio.SE3.Identity())
        indices.append(index)
    data, q, v = model.createData(), pinocchio.neutral(model), np.full(model.nv, 0.1)

    def work() -> None:
        for _ in range(JACOBIANS):
            pinocchio.computeABADerivatives(model, data, q, v, v)

    return work


def wall(work: Quadrupeds, repeat: int = 5) -> float:
    """Return the minimum wall time of a gradient [s]."""
    work.both()
    found = []
    for _ in range(repeat):
        start = time.perf_counter()
        work.both()
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    """Check, time, and write the result."""
    parser = result_parser(__doc__)
    options = parser.parse_args()
    single_thread()
    work = Quadrupeds(WORLDS)
    difference = check(work)
    jacobians = Jacobians(work)
    jacobians.check()
    times = compare({"forward": work.forward, "both": work.both}, seconds=0.5)
    beside = compare({"ours": jacobians, "pinocchio": pinocchio_derivatives(work.tree)}, seconds=0.2)
    one, two = wall(Quadrupeds(1024)), wall(Quadrupeds(1024, threads=2))
    steps = FRAMES * WORLDS
    operations = work.program.operations
    figures = {
        "central_differences": difference,
        "forward_us_per_step": 1e6 * times["forward"] / steps,
        "forward_and_adjoint_us_per_step": 1e6 * times["both"] / steps,
        "jacobian_us": 1e6 * beside["ours"] / JACOBIANS,
        "pinocchio_derivatives_us": 1e6 * beside["pinocchio"] / JACOBIANS,
        "operations_forward": operations[0],
        "operations_adjoint": operations[1],
        "threads_2_speedup_b1024": one / two,
    }
    ratios = {f"quadruped_jacobian_vs_pinocchio_b{JACOBIANS}": beside["ours"] / beside["pinocchio"]}
    write_result(options.json, "quadruped_step", figures, ratios)


if __name__ == "__main__":
    main()
