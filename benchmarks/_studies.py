# SPDX-License-Identifier: Apache-2.0
"""Mechanisms for repeated identification: logs of a robot with unmodelled friction, free or in contact."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from neurodyn.core import (
    ChainJoint,
    ContactPoint,
    JointSpec,
    Link,
    Mechanism,
    Plane,
    Scene,
    StateSpec,
    select_parameters,
)
from neurodyn.data.windows import Origin, Windows
from neurodyn.dynamics import HybridDynamics, State
from neurodyn.multibody import EngineConfig, nominal

IDENTITY = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Study:
    """A model, a robot that differs from it, and the robot's motion.

    Attributes:
        model: The model with its free quantities.
        robot: The same mechanism with other values, and with friction.
        start: Draws initial positions and velocities of a number of logs.
        torque: Size of the torques.
        noise: Noise of positions and velocities.
        windows: Windows of a log.
        frames: Frames of a window.
    """

    model: HybridDynamics
    robot: HybridDynamics
    start: Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
    torque: float
    noise: tuple[float, float]
    windows: int
    frames: int

    @property
    def robot_noise(self) -> Tensor:
        """Standard deviation of each channel's noise, shape [2 nv]."""
        nv = self.robot.spec.nv
        return torch.tensor([self.noise[0]] * nv + [self.noise[1]] * nv, dtype=torch.float64)

    def draw(self, logs: int, seed: int) -> Windows:
        """Return the windows of new logs of the robot, with measurement noise."""
        generator = torch.Generator().manual_seed(seed)
        q, qd = self.start(logs, generator)
        total = self.windows * self.frames
        control = self.torque * smooth(logs, total, self.robot.spec.nu, self.robot.spec.dt, generator)
        with torch.no_grad():
            path = self.robot.rollout(State(q, qd), control)
        q, qd = (
            part + size * torch.randn(part.shape, generator=generator, dtype=torch.float64)
            for part, size in ((path.q, self.noise[0]), (path.qd, self.noise[1]))
        )

        def cut(rows: Tensor, frames: int) -> Tensor:
            return rows.unfold(1, frames, self.frames).permute(0, 1, 3, 2).flatten(0, 1).contiguous()

        log = torch.arange(logs).repeat_interleave(self.windows)
        places = torch.stack([log, self.frames * torch.arange(self.windows).repeat(logs)], 1)
        origin = Origin.of_logs(log, [f"log {k}" for k in range(logs)], places)
        parts = cut(q, self.frames + 1), cut(qd, self.frames + 1), cut(control, self.frames)
        return Windows(*parts, origin=origin)


def smooth(logs: int, frames: int, count: int, dt: float, generator: torch.Generator) -> Tensor:
    """Return sums of four sines of up to 1.5 Hz, of variance 1, shape [logs, frames, count]."""
    shape = (logs, 1, count, 4)
    rate, phase = (torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    time = dt * torch.arange(frames, dtype=torch.float64)[None, :, None, None]
    return 0.5**0.5 * torch.sin(2 * torch.pi * (1.5 * rate * time + phase)).sum(-1)


def pendulum() -> Study:
    """A driven pendulum; the robot has Coulomb friction at its joint, the model does not."""
    link = Link(
        joint=_joint("shoulder", "revolute", -1, (0.0, 1.0, 0.0)), mass=1.0, com=(0.0, 0.0, -0.25), damping=0.1,
        inertia=(0.02, 0.02, 0.001, 0.0, 0.0, 0.0),
    )  # fmt: skip
    free = ("shoulder.com.z", "shoulder.inertia.yy", "shoulder.damping")
    values = {"shoulder.com.z": -0.2, "shoulder.inertia.yy": 0.03, "shoulder.damping": 0.06, "shoulder.friction": 0.08}

    def start(logs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        drawn = torch.randn(2, logs, 1, generator=generator, dtype=torch.float64)
        return drawn[0], 2.0 * drawn[1]

    model, robot = _pair("pendulum", Mechanism(links=(link,)), ("shoulder",), free, values, None, 0.02, 2)
    return Study(model, robot, start, 0.5, (2e-3, 2e-2), 3, 20)


def slider() -> Study:
    """A block thrown onto the ground, on guides along x and z; the robot's guides have friction, the model's do not."""
    light = (1e-4, 1e-4, 1e-4, 0.0, 0.0, 0.0)
    links = (
        Link(joint=_joint("x", "prismatic", -1, (1.0, 0.0, 0.0)), mass=0.05, com=(0.0, 0.0, 0.0), inertia=light),
        Link(joint=_joint("z", "prismatic", 0, (0.0, 0.0, 1.0)), mass=1.0, com=(0.0, 0.0, 0.0), inertia=light),
    )
    points = (ContactPoint(name="foot", joint=1, point=(0.0, 0.0, -0.05), radius=0.0),)
    free = ("contact.friction=0.5", "contact.stiffness=2e4", "contact.damping=0.5")
    values = {"contact.friction": 0.35, "contact.stiffness": 3e4, "contact.damping": 0.8}
    values |= {"x.friction": 0.3, "z.friction": 0.3}

    def start(logs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        drawn = torch.rand(4, logs, generator=generator, dtype=torch.float64)
        q = torch.stack([0.0 * drawn[0], 0.06 + 0.06 * drawn[1]], 1)
        return q, torch.stack([0.5 + 1.5 * drawn[2], -0.5 * drawn[3]], 1)

    model, robot = _pair("slider", Mechanism(links=links, points=points), (), free, values, "force", 0.01, 10)
    return Study(model, robot, start, 0.0, (2e-4, 5e-3), 2, 20)


STUDIES: dict[str, Callable[[], Study]] = {"pendulum": pendulum, "slider": slider}


def _pair(
    name: str, mechanism: Mechanism, driven: tuple[str, ...], free: tuple[str, ...], values: dict[str, float],
    contact: str | None, dt: float, substeps: int,
) -> tuple[HybridDynamics, HybridDynamics]:  # fmt: skip
    """Return a model with free quantities, and the robot with its values."""
    joints = tuple(
        JointSpec(name=link.joint.name, kind=link.joint.kind, continuous=link.joint.kind == "revolute")
        for link in mechanism.links
    )
    spec = StateSpec(robot=name, joints=joints, controls=driven, dt=dt)
    config = EngineConfig(substeps=substeps, contact=contact)
    scene = None if contact is None else Scene(shapes=(Plane(),))
    known = nominal(mechanism, contact)
    robot = tuple(f"{quantity}={value:g}" for quantity, value in values.items())
    return tuple(
        HybridDynamics(spec, mechanism, config, select_parameters(known, asked), None, scene) for asked in (free, robot)
    )  # type: ignore[return-value]


def _joint(
    name: str, kind: Literal["revolute", "prismatic"], parent: int, axis: tuple[float, float, float]
) -> ChainJoint:
    return ChainJoint(name=name, kind=kind, parent=parent, parent_frame=IDENTITY, child_frame=IDENTITY, axis=axis)
