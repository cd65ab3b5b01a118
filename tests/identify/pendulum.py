# SPDX-License-Identifier: Apache-2.0
"""A double pendulum whose parameters are known, and windows of its motion with noise, for tests of identification."""

import torch

from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.data.windows import Origin, Windows
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.fit.residuals import ResidualOptions, Residuals
from neurodyn.multibody.engine import EngineConfig, nominal
from tests.multibody.machines import joint

SPEC = StateSpec(
    robot="double-pendulum",
    joints=tuple(JointSpec(name=name, kind="revolute", continuous=True) for name in ("shoulder", "elbow")),
    controls=("shoulder", "elbow"),
    dt=0.02,
)
NOISE = (2e-3, 2e-2)
MIRRORED = {"shoulder.com.z": 0.35, "elbow.com.z": 0.4, "elbow.mass": 3.0}


def mechanism(gravity: float = 9.81) -> Mechanism:
    """Two links of half a metre in a vertical plane, or with axes along gravity."""
    links = tuple(
        Link(joint=joint(name, "revolute", parent, origin), mass=1.0, com=(0.0, 0.0, -0.25), damping=0.1,
             inertia=(0.02, 0.02, 0.001, 0.0, 0.0, 0.0))
        for name, parent, origin in (("shoulder", -1, (0.0, 0.0, 0.0)), ("elbow", 0, (0.0, 0.0, -0.5)))
    )  # fmt: skip
    return Mechanism(links=links, gravity=(0.0, 0.0, -gravity))


def dynamics(*asked: str, gravity: float = 9.81) -> HybridDynamics:
    built = mechanism(gravity)
    return HybridDynamics(SPEC, built, EngineConfig(substeps=2), select_parameters(nominal(built, None), asked))


def windows(
    model: HybridDynamics, truth: dict[str, float], *, count: int = 24, frames: int = 25, seed: int = 0,
    noise: tuple[float, float] = NOISE, turn: bool = False, logs: int = 1, torque: float = 1.0,
) -> Windows:  # fmt: skip
    """Noisy motions from random states under constant torques; angles are wrapped where they `turn`."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    q, qd = draw(count, 2), 2.0 * draw(count, 2)
    control = torque * draw(count, 1, 2).expand(count, frames, 2)
    with torch.no_grad():
        path = model.simulate(State(q, qd), control, values(model, truth), model.weights)
    measured = path.q + noise[0] * draw(count, frames + 1, 2)
    if turn:
        measured = torch.remainder(measured + torch.pi, 2 * torch.pi) - torch.pi
    speed = path.qd + noise[1] * draw(count, frames + 1, 2)
    origin = Origin.of_logs(torch.arange(count) % logs, [f"log {k}" for k in range(logs)])
    return Windows(measured, speed, control, origin=origin)


def mirrored_masses(count: int = 4, frames: int = 60) -> Residuals:
    """Long roll-outs of a pendulum whose masses really lie on the other side of its joints (`MIRRORED`)."""
    model = dynamics("shoulder.com.z=-0.8:0.8", "elbow.com.z=-0.8:0.8", "elbow.mass=0.2:6")
    log = windows(model, MIRRORED, count=count, frames=frames, seed=5)
    return Residuals(model, log, true_noise(), ResidualOptions(velocities=False, initial=False))


def values(model: HybridDynamics, truth: dict[str, float]) -> torch.Tensor:
    return torch.tensor([truth.get(spec.name, spec.nominal) for spec in model.physical.specs], dtype=torch.float64)


def true_noise(noise: tuple[float, float] = NOISE) -> Noise:
    return Noise(*(torch.full((2,), size, dtype=torch.float64) for size in noise))
