# SPDX-License-Identifier: Apache-2.0
"""The condensed program against a simulation of the single rigid body; solvers against the optimality conditions."""

import importlib.util

import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.walking.convex_mpc import (
    QP_SOLVERS,
    ConvexMpc,
    FrictionPyramids,
    MpcSettings,
    RigidBodyPrediction,
    pyramids,
)
from neurodyn.walking.gait import GAITS
from neurodyn.walking.state import FORCE_INPUTS, ForceInputs


def at(quadruped, worlds=1, seed=0, gait="trot") -> ForceInputs:
    rng = np.random.default_rng(seed)
    feet = np.tile(quadruped.stance, (worlds, 1, 1)) + rng.normal(0, 0.02, (worlds, 4, 3))
    feet[..., 2] -= quadruped.height
    return ForceInputs(
        tilt=rng.normal(0, 0.05, (worlds, 2)), yaw=rng.normal(0, 0.1, worlds), height=rng.normal(0, 0.01, worlds),
        spin=rng.normal(0, 0.2, (worlds, 3)), velocity=rng.normal(0, 0.2, (worlds, 3)),
        command=rng.uniform(-1, 1, (worlds, 3)) * (0.6, 0.3, 0.8), feet=feet,
        phase=GAITS[gait].phase(rng.uniform(0, 0.5, worlds)), gait=GAITS[gait],
    )  # fmt: skip


def simulated_cost(quadruped, settings, here, arms, forces):
    """Return the cost of forces [steps, 4, 3], by integrating the body exactly over every step."""
    h, cost = settings.step, 0.0
    angle, place = np.array([*here.tilt[0], 0.0]), np.array([0.0, 0.0, here.height[0]])
    spin, velocity = here.spin[0].copy(), here.velocity[0].copy()
    share = quadruped.mass * quadruped.gravity
    for k, force in enumerate(forces):
        turning = np.linalg.solve(quadruped.inertia, np.cross(arms[k], force).sum(0))
        pull = force.sum(0) / quadruped.mass - [0.0, 0.0, quadruped.gravity]
        angle, spin = angle + h * spin + 0.5 * h * h * turning, spin + h * turning
        place, velocity = place + h * velocity + 0.5 * h * h * pull, velocity + h * pull
        t = (k + 1) * h
        vx, vy, rate = here.command[0]
        c, s = np.cos(rate * t), np.sin(rate * t)
        wanted = [0, 0, here.yaw[0] + rate * t, 0, 0, 0, 0, 0, rate, c * vx - s * vy, s * vx + c * vy, 0]
        off = np.concatenate([angle, place, spin, velocity]) - wanted
        cost += (np.array(settings.weights) * off**2).sum()
        stands = np.abs(force).sum(1) > 0
        own = force[stands] - [0.0, 0.0, share / max(1, stands.sum())]
        cost += settings.effort / share**2 * (own**2).sum()
    return cost


def test_the_program_is_the_cost_of_the_simulated_body(a1):
    quadruped, settings, here = a1.quadruped, MpcSettings(), at(a1.quadruped)
    prediction = RigidBodyPrediction(quadruped, settings)
    [program] = prediction.programs(here)
    _, arms = prediction._schedule(here)
    count, rng, costs, values = len(program.step), np.random.default_rng(1), [], []
    for _ in range(4):
        x = rng.uniform(10, 60, 3 * count)
        forces = np.zeros((settings.horizon, 4, 3))
        forces[program.step, program.leg] = np.stack([x[count : 2 * count], x[2 * count :], x[:count]], 1)
        costs.append(simulated_cost(quadruped, settings, here, arms[0], forces))
        values.append(x @ program.H @ x + 2 * program.g @ x)
    assert np.diff(values) == pytest.approx(np.diff(costs), rel=1e-9)


@pytest.mark.parametrize("name", list(QP_SOLVERS))
def test_solvers_satisfy_the_optimality_conditions(a1, name):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    settings = MpcSettings()
    for program in RigidBodyPrediction(a1.quadruped, settings).programs(at(a1.quadruped, 5)):
        x = QP_SOLVERS[name](program.H, program.g, settings.friction, 135.0)
        assert x is not None
        count = len(program.step)
        rows, lower, upper = pyramids(count, settings.friction, 135.0)
        values = np.concatenate([x[:count], rows @ x])
        assert (values >= lower - 1e-3).all()
        assert (values <= upper + 1e-3).all()
        # No feasible direction is downhill: the gradient is a combination of the active rows with the right signs.
        whole = np.vstack([np.eye(count, 3 * count), rows])
        active = np.vstack([whole[values < lower + 1e-2], -whole[values > upper - 1e-2]])
        from scipy.optimize import nnls

        gradient = program.H @ x + program.g
        _, rest = nnls(active.T, gradient) if len(active) else (None, np.linalg.norm(gradient))
        assert rest < 1e-3 * np.linalg.norm(program.g)


def test_a_robot_at_rest_shares_its_weight(a1):
    still = at(a1.quadruped, gait="stand")
    zero = {name: np.zeros_like(getattr(still, name)) for name in ("tilt", "yaw", "height", "spin", "velocity")}
    feet = a1.quadruped.stance[None] - [0.0, 0.0, a1.quadruped.height]
    rest = ForceInputs(**zero, command=np.zeros((1, 3)), feet=feet, phase=still.phase, gait=GAITS["stand"])
    [forces] = ConvexMpc(a1.quadruped)(rest)
    weight = a1.quadruped.mass * a1.quadruped.gravity
    assert forces[:, 2].sum() == pytest.approx(weight, rel=0.02)
    assert np.abs(forces[:, :2]).max() < 0.02 * weight


def test_worlds_side_by_side_are_decided_as_alone(a1):
    mpc, many = ConvexMpc(a1.quadruped), at(a1.quadruped, 3)
    forces = mpc(many)
    assert forces.shape == (3, 4, 3)
    assert (forces[~many.contact] == 0).all()
    for world in range(3):
        parts = {name: getattr(many, name)[world : world + 1] for name in many.__dataclass_fields__ if name != "gait"}
        assert mpc(ForceInputs(**parts, gait=many.gait))[0] == pytest.approx(forces[world], abs=1e-9)
    assert many.features().shape == (3, FORCE_INPUTS)


def test_what_cannot_be_decided_is_not_a_number(a1):
    broken = at(a1.quadruped, 2)
    broken.velocity[1] = np.nan
    forces = ConvexMpc(a1.quadruped)(broken)
    assert np.isfinite(forces[0]).all()
    assert np.isnan(forces[1]).all()
    with pytest.raises(InputError, match="unknown solver 'luck'; valid: daqp"):
        ConvexMpc(a1.quadruped, MpcSettings(solver="luck"))


def test_forces_are_brought_into_the_pyramids():
    forces = np.array([[50.0, -50.0, 20.0], [0.0, 1.0, -3.0], [1.0, 1.0, 500.0], [1.0, 1.0, 9.0]])
    found = FrictionPyramids(0.5, 100.0).nearest(forces, np.array([True, True, True, False]))
    assert found == pytest.approx(np.array([[10.0, -10.0, 20.0], [0, 0, 0], [1.0, 1.0, 100.0], [0, 0, 0]]))
