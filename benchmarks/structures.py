# SPDX-License-Identifier: Apache-2.0
"""Networks with and without structure on a double pendulum, over long roll-outs.

The pendulum has joint friction, a spring in its elbow and a payload missing in the model. All variants train on the
same one-second roll-outs under torques, for the same CPU time, and swing freely for 30 s from states with more energy
than in training: outside its data, a network may drive the pendulum, unless its structure prevents it.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

from _common import require, result_parser, single_thread, write_result
from _studies import IDENTITY, smooth

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from neurodyn.core import Augmentation, Blueprint, ChainJoint, JointSpec, Link, Mechanism, StateSpec, select_parameters
from neurodyn.dynamics import HybridDynamics, State
from neurodyn.multibody import EngineConfig, nominal
from swimmer import Data, fit

JOINTS, DT, SECONDS = ("shoulder", "elbow"), 0.01, 30
TRUTH = {
    "shoulder.damping": 0.12, "elbow.damping": 0.06, "shoulder.friction": 0.05, "elbow.friction": 0.03,
    "elbow.stiffness": 0.6, "elbow.rest": 0.3, "elbow.mass": 1.4, "elbow.com.z": -0.32, "elbow.inertia.yy": 0.03,
}  # fmt: skip
GRAVITY, LENGTH = 9.81, 0.5


def pendulum(
    blueprint: Blueprint = Blueprint(), values: dict[str, float] | None = None, seed: int = 0
) -> HybridDynamics:
    """Return a double pendulum with the networks of a blueprint, or with other values of its quantities."""
    links = tuple(
        Link(
            joint=ChainJoint(
                name=name, kind="revolute", parent=k - 1, parent_frame=(0.0, 0.0, -LENGTH * k, *IDENTITY[3:]),
                child_frame=IDENTITY, axis=(0.0, 1.0, 0.0),
            ),
            mass=1.0, com=(0.0, 0.0, -0.25), inertia=(0.02, 0.02, 0.001, 0.0, 0.0, 0.0),
        )
        for k, name in enumerate(JOINTS)
    )  # fmt: skip
    mechanism = Mechanism(links=links)
    joints = tuple(JointSpec(name=name, kind="revolute", continuous=True) for name in JOINTS)
    spec = StateSpec(robot="pendulum", joints=joints, controls=JOINTS, dt=DT)
    asked = [f"{name}={value}" for name, value in (values or {}).items()]
    free = select_parameters(nominal(mechanism, None), asked) if asked else ()
    return HybridDynamics(spec, mechanism, EngineConfig(substeps=4, blueprint=blueprint), free, seed=seed)


def network(prefix: str, structure: str, *, moving: bool, size: tuple[float, ...]) -> Augmentation:
    """Return a network on a quantity of both joints with positions, and optionally velocities, as inputs."""
    seen = [text.format(name) for name in JOINTS for text in ("sin(q.{})", "cos(q.{})")]
    scale = [1.0] * 4
    if moving:
        seen, scale = [*seen, *(f"qd.{name}" for name in JOINTS)], [*scale, 5.0, 8.0]
    acted = tuple(f"{prefix}.{name}" for name in JOINTS)
    return Augmentation(
        acted, tuple(seen), structure=structure, hidden=(16, 16), input_scale=tuple(scale), output_scale=size
    )


VARIANTS = {
    "free": Blueprint((network("torque", "free", moving=True, size=(2.0, 1.0)),)),
    "friction": Blueprint((
        network("torque", "free", moving=False, size=(2.0, 1.0)),
        network("passive", "passive", moving=True, size=(0.3, 0.3)),
    )),
    "structured": Blueprint((
        network("torque", "conservative", moving=False, size=(2.0, 2.0)),
        network("passive", "dissipative", moving=True, size=(0.3, 0.3)),
        network("mass_matrix", "inertial", moving=False, size=(0.1, 0.1)),
    )),
}  # fmt: skip
"""Without structure; dissipative damping with a free torque of positions; all parts structured."""


def swung(robot: HybridDynamics, count: int, seconds: float, size: float, torque: float, seed: int) -> Data:
    """Return roll-outs of the robot from random states."""
    random = torch.Generator().manual_seed(seed)
    frames = round(seconds / DT)
    q, qd = (scale * torch.randn(count, 2, dtype=torch.float64, generator=random) for scale in (size, 3.0 * size))
    control = torque * smooth(count, frames, 2, DT, random)
    with torch.no_grad():
        path = robot.rollout(State(q, qd), control)
    return path.q, path.qd, control


def energy(q: Tensor, qd: Tensor) -> Tensor:
    """Return the energy of the true pendulum [J]."""
    upper, lower = q[..., 0], q[..., 0] + q[..., 1]
    one, both = qd[..., 0], qd[..., 0] + qd[..., 1]
    mass, arm = TRUTH["elbow.mass"], -TRUTH["elbow.com.z"]
    joint = 0.5 * mass * (LENGTH * one) ** 2 + mass * LENGTH * arm * one * both * q[..., 1].cos()
    kinetic = 0.5 * (0.02 + 0.25**2) * one**2 + joint + 0.5 * (TRUTH["elbow.inertia.yy"] + mass * arm**2) * both**2
    height = -0.25 * upper.cos() - mass * (LENGTH * upper.cos() + arm * lower.cos())
    spring = 0.5 * TRUTH["elbow.stiffness"] * (q[..., 1] - TRUTH["elbow.rest"]) ** 2
    return kinetic + GRAVITY * height + spring


def measured(model: HybridDynamics, test: Data) -> dict[str, float]:
    """Return errors [rad] by time, and the energy gain of roll-outs, in the true pendulum's energy."""
    q, qd, control = test
    with torch.no_grad():
        path = model.rollout(State(q[:, 0], qd[:, 0]), control)
    off = torch.atan2((path.q - q).sin(), (path.q - q).cos()).abs().mean(-1)
    finite = path.q.isfinite().all(2).all(1)
    gained = energy(path.q, path.qd).amax(1) - energy(q[:, 0], qd[:, 0])
    found = {f"error_{s}s": float(off[finite, round(s / DT)].mean()) for s in (1, 5, SECONDS)}
    found["energy_gained_J"] = float(gained[finite].clamp_min(0).mean())
    found["gains_1J"] = float(((gained > 1.0) | ~finite).double().mean())
    return found


def main() -> None:
    """Check the truth's energy, train all variants with all seeds, and write the result."""
    parser = result_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="CPU time of each training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    single_thread()
    robot = pendulum(values=TRUTH)
    test = swung(robot, 40, SECONDS, 1.0, 0.0, seed=100)
    true = energy(test[0], test[1])
    gained = float((true - true[:, :1]).max())
    require(gained < 0.3, f"the true pendulum gains {gained:.2f} J")
    figures = {"cpu_seconds": options.seconds, "true_gains_J": gained}
    figures |= {f"true_{what}": value for what, value in measured(robot, test).items()}
    figures |= {f"nominal_{what}": value for what, value in measured(pendulum(), test).items()}
    for seed in options.seeds:
        data = swung(robot, 8, 1.0, 0.7, 1.0, seed=seed)
        for name, blueprint in VARIANTS.items():
            torch.manual_seed(seed)
            model = pendulum(blueprint, seed=seed)
            fit(model, data, options.seconds)
            figures |= {f"{name}_{what}_seed{seed}": value for what, value in measured(model, test).items()}
        write_result(options.json, "structures", figures, {})


if __name__ == "__main__":
    main()
