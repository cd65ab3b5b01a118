# SPDX-License-Identifier: Apache-2.0
"""A swimmer of two links: known rigid bodies, and the forces of the fluid learned from ten short trajectories.

The truth is MuJoCo with its fluid forces (inertia-box model). The model has the same two plates, hinge and torque and
knows of no fluid; a blueprint adds a network to the force and moment on each link, which sees how that link moves
through the medium. It is trained on the first 2 s of each trajectory and then swims on its own for 9 s.

    python examples/swimmer.py --medium water25 --seconds 60
"""

import argparse
import math
import time

import mujoco
import numpy as np
import torch
from pytorch_optimizer import SOAP
from torch import Tensor

from neurodyn.core import Augmentation, Blueprint, ChainJoint, JointSpec, Link, Mechanism, StateSpec
from neurodyn.dynamics import HybridDynamics, State
from neurodyn.learn import split_weights
from neurodyn.multibody import EngineConfig

MEDIA = {"water5": (1000.0, 1.518e-3), "water25": (997.0, 8.9e-4), "air25": (1.184, 1.849e-5), "vacuum": (0.0, 0.0)}
"""Density [kg/m^3] and viscosity [Pa s]."""
DT, SUBSTEPS, TORQUE = 0.01, 2, 5e-4
LENGTH, MASS, INERTIA = 0.1, 0.01, (8.667e-6, 3.367e-7, 8.337e-6)
JOINTS = ("x", "y", "heading", "hinge")
MJCF = """<mujoco><option timestep="{step}" density="{density}" viscosity="{viscosity}" gravity="0 0 0"
integrator="Euler"/><worldbody><body name="front"><joint name="x" type="slide" axis="1 0 0"/>
<joint name="y" type="slide" axis="0 1 0"/><joint name="heading" axis="0 0 1"/>
<inertial pos="0 .05 0" mass="{mass}" diaginertia="{inertia}"/><body name="rear" pos="0 .1 0">
<joint name="hinge" axis="0 0 1"/><inertial pos="0 .05 0" mass="{mass}" diaginertia="{inertia}"/></body></body>
</worldbody><actuator><motor joint="hinge"/></actuator></mujoco>"""
Data = tuple[Tensor, Tensor, Tensor]
"""Positions [n, T + 1, 4], velocities [n, T + 1, 4], torques [n, T, 1]."""


def record(medium: str, count: int, frames: int, seed: int) -> Data:
    """Let MuJoCo swim: random states, and torques that are sums of three waves of 0.3 to 2 Hz."""
    density, viscosity = MEDIA[medium]
    shape = {"mass": MASS, "inertia": " ".join(map(str, INERTIA))}
    text = MJCF.format(step=DT / SUBSTEPS, density=density, viscosity=viscosity, **shape)
    model = mujoco.MjModel.from_xml_string(text)
    data, random = mujoco.MjData(model), np.random.default_rng(seed)
    q, qd = np.zeros((2, count, frames + 1, 4))
    time_of = DT * np.arange(frames)[None, :, None]
    pitch, phase = 2 * np.pi * random.uniform(0.3, 2.0, (count, 1, 3)), random.uniform(0, 2 * np.pi, (count, 1, 3))
    control = TORQUE * np.sin(pitch * time_of + phase).mean(2, keepdims=True)
    for run in range(count):
        data.qpos[:] = random.uniform(-1, 1, 4) * (0.0, 0.0, math.pi, 1.0)
        data.qvel[:] = random.uniform(-1, 1, 4) * (0.2, 0.2, 2.0, 2.0)
        for frame in range(frames + 1):
            q[run, frame], qd[run, frame] = data.qpos, data.qvel
            if frame < frames:
                data.ctrl[:] = control[run, frame]
                mujoco.mj_step(model, data, SUBSTEPS)
    return torch.from_numpy(q), torch.from_numpy(qd), torch.from_numpy(control)


def swimmer(blueprint: Blueprint) -> HybridDynamics:
    """Return the two plates without fluid, with the networks of a blueprint."""
    links = []
    for index, name in enumerate(JOINTS):
        kind, body = ("prismatic", False) if index < 2 else ("revolute", True)
        axis = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))[min(index, 2)]
        turn, ahead = (0.0, 0.0, 0.0, 1.0), LENGTH if name == "hinge" else 0.0
        frames = {"parent_frame": (0.0, ahead, 0.0, *turn), "child_frame": (0.0, 0.0, 0.0, *turn)}
        joint = ChainJoint(name=name, kind=kind, parent=index - 1, axis=axis, **frames)
        inertia = (*(INERTIA if body else (1e-12,) * 3), 0.0, 0.0, 0.0)  # what slides alone weighs next to nothing
        links.append(Link(joint=joint, mass=MASS if body else 1e-9, com=(0.0, body * LENGTH / 2, 0.0), inertia=inertia))
    joints = tuple(JointSpec(name=link.joint.name, kind=link.joint.kind, continuous=False) for link in links)
    spec = StateSpec(robot="swimmer", joints=joints, controls=("hinge",), dt=DT)
    config = EngineConfig(substeps=SUBSTEPS, blueprint=blueprint)
    return HybridDynamics(spec, Mechanism(links=tuple(links), gravity=(0.0, 0.0, 0.0)), config)


def drag(width: int = 24) -> Blueprint:
    """Return a network on each body: from its velocity to force and moment, in its own axes."""
    nets = []
    for name in ("heading", "hinge"):
        acted = (f"wrench.{name}.force.x", f"wrench.{name}.force.y", f"wrench.{name}.moment.z")
        seen = (f"velocity.{name}.x", f"velocity.{name}.y", f"spin.{name}.z")
        scales = {"input_scale": (0.1, 0.1, 2.0), "output_scale": (2e-2, 2e-3, 1e-3)}
        nets.append(Augmentation(acted, seen, hidden=(width, width), **scales))
    return Blueprint(tuple(nets))


def windows(data: Data, frames: int, stride: int) -> Data:
    """Cut trajectories into windows that begin every `stride` frames."""
    q, qd, control = data
    q, qd = (x.unfold(1, frames + 1, stride).flatten(0, 1).transpose(1, 2) for x in (q, qd))
    return q, qd, control.unfold(1, frames, stride).flatten(0, 1).transpose(1, 2)


def fit(model: HybridDynamics, data: Data, seconds: float) -> None:
    """Train the weights within a budget of CPU time: on windows of 4 frames, of 20, and on whole trajectories."""
    leaves = [torch.nn.Parameter(part.clone()) for part in split_weights(model.config.blueprint, model.weights)]
    optimiser = SOAP(leaves, weight_decay=0.0, precondition_frequency=10)
    for frames, share, batch, rate in ((4, 0.6, 250, 1e-2), (20, 0.2, 50, 3e-3), (data[2].shape[1], 0.2, 5, 1e-3)):
        q, qd, control = windows(data, frames, max(frames // 10, 1))
        sizes = [(x[:, 1:] - x[:, :1]).square().mean((0, 1)).sqrt() for x in (q, qd)]
        begin, done, step = time.process_time(), 0.0, 0
        while done < 1.0:
            fall = 0.01 + 0.495 * (1 + math.cos(math.pi * done))
            optimiser.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 20) * fall
            rows = torch.randperm(len(q))[:batch]
            weights = torch.cat([leaf.flatten() for leaf in leaves])
            path = model.simulate(State(q[rows, 0], qd[rows, 0]), control[rows], None, weights)
            off = ((path.q - q[rows]) / sizes[0], (path.qd - qd[rows]) / sizes[1])
            optimiser.zero_grad()
            torch.cat(off).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(leaves, 1.0)
            optimiser.step()
            step, done = step + 1, (time.process_time() - begin) / (share * seconds)
    with torch.no_grad():
        model.weights.copy_(torch.cat([leaf.flatten() for leaf in leaves]))


def error(path: Tensor, q: Tensor) -> Tensor:
    """Return errors of places [link lengths] and angles [rad, modulo a turn], averaged, shape [n, T]."""
    off = (path - q)[:, 1:]
    turn = torch.atan2(off[..., 2:].sin(), off[..., 2:].cos())
    return torch.cat([off[..., :2] / LENGTH, turn], -1).abs().mean(-1)


def main() -> None:
    """Record, train, and swim on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--medium", choices=MEDIA, default="water25")
    parser.add_argument("--seconds", type=float, default=5.0, help="CPU time of the training")
    options = parser.parse_args()
    torch.manual_seed(0)
    tests, model = record(options.medium, 10, 900, seed=1), swimmer(drag())
    fit(model, record(options.medium, 10, 200, seed=0), options.seconds)
    print(f"{options.medium}: mean error over 900 steps")
    with torch.no_grad():
        for name, dynamics in (("rigid bodies alone", swimmer(Blueprint())), ("with networks", model)):
            path = dynamics.rollout(State(tests[0][:, 0], tests[1][:, 0]), tests[2])
            print(f"{name:20s} {float(error(path.q, tests[0]).mean()):.4f}")


if __name__ == "__main__":
    main()
