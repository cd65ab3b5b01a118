# SPDX-License-Identifier: Apache-2.0
"""Energy is what the closed form says, and motion without drive and friction keeps it."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.robots import SimulatorConfig
from neurodyn.sim.energies import energy
from neurodyn.sim.newton.simulator import ReferenceSimulator


def test_energy_of_the_cartpole_is_the_closed_form():
    from neurodyn import robots

    q, qd = torch.randn(5, 7, 2), torch.randn(5, 7, 2)
    kinetic, potential = energy(robots.load("cartpole"), q, qd)
    x, t = qd[..., 0].double(), qd[..., 1].double()
    inertia = 2.5 * (1 + 0.05**2) / 12 + 0.01 + 2.5 * 0.25
    expected = 0.5 * 52.51 * x**2 + 1.25 * torch.cos(q[..., 1].double()) * x * t + 0.5 * (inertia + 0.01) * t**2
    torch.testing.assert_close(kinetic, expected, rtol=1e-5, atol=1e-5)
    height = 2.5 * 9.81 * 0.5 * torch.cos(q[..., 1].double())
    torch.testing.assert_close(potential, height, rtol=1e-5, atol=1e-4)


def test_limit_springs_hold_energy(cartpole):
    _, inside = energy(cartpole, torch.tensor([[4.0, 0.0]]), torch.zeros(1, 2))
    _, beyond = energy(cartpole, torch.tensor([[4.2, 0.0]]), torch.zeros(1, 2))
    assert (beyond - inside).item() == pytest.approx(0.5 * 1e4 * 0.2**2, rel=1e-3)


@pytest.mark.parametrize("name", ["cartpole", "tilted", "pendulum"])
def test_passive_motion_without_friction_keeps_its_energy(name, request):
    robot = request.getfixturevalue(name)
    joints = tuple(msgspec.structs.replace(joint, damping=0.0, friction=0.0) for joint in robot.joints)
    robot = msgspec.structs.replace(robot, joints=joints, simulator=SimulatorConfig(substeps=1))
    worlds = 8
    rng = np.random.default_rng(0)
    q = torch.tensor(rng.uniform(-1, 1, (worlds, robot.spec.nq)), dtype=torch.float32)
    qd = torch.tensor(rng.uniform(-1, 1, (worlds, robot.spec.nv)), dtype=torch.float32)
    drift = []
    for substeps in (50, 100):
        states = ReferenceSimulator(robot, worlds, substeps=substeps).rollout(
            q, qd, torch.zeros(worlds, 40, robot.spec.nu)
        )
        kinetic, potential = energy(robot, *states)
        total = kinetic + potential
        drift.append(((total - total[:, :1]).abs().max() / kinetic.max()).item())
        assert kinetic.std() > 0.01 * kinetic.mean()  # it does move
    assert drift[1] < 2e-3
    assert drift[1] < 0.7 * drift[0]  # what is left is the integrator's error


def test_wrong_shapes_are_refused(cartpole):
    with pytest.raises(InputError, match=r"valid: \[\.\.\., 2\]"):
        energy(cartpole, torch.zeros(3, 3), torch.zeros(3, 2))
