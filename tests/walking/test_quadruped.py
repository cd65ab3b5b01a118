# SPDX-License-Identifier: Apache-2.0
"""A quadruped found in a mechanism; its kinematics against finite differences."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.robots import load
from neurodyn.walking.plant import walking_plant, walking_robot
from neurodyn.walking.quadruped import find_quadruped
from neurodyn.walking.state import LegKinematics


def test_legs_mass_and_height_of_an_a1(a1):
    quadruped = a1.quadruped
    assert [leg.name[:2] for leg in quadruped.legs] == ["FL", "FR", "RL", "RR"]
    assert quadruped.mass == pytest.approx(13.741, abs=1e-3)
    assert quadruped.radii == pytest.approx([0.02] * 4)
    # Thigh and shank of 0.2 m at 0.8 rad each: the hips are 0.279 m above the feet, and the trunk's centre with them.
    assert quadruped.height == pytest.approx(0.4 * np.cos(0.8) + 0.02, abs=0.03)
    assert (quadruped.stance[:2, 0] > 0.1).all()
    assert (quadruped.stance[[0, 2], 1] > 0.1).all()
    assert np.linalg.eigvalsh(quadruped.inertia).min() > 0.05
    assert (np.linalg.eigvalsh(quadruped.foot_inertia) > 0.1).all()


def drawn(plant, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = torch.zeros(1, 19, dtype=torch.float64)
    q[0, :3] = torch.tensor([0.1, -0.2, 0.4])
    q[0, 3:7] = torch.nn.functional.normalize(torch.tensor([0.1, 0.2, -0.1, 1.0], dtype=torch.float64), dim=0)
    q[0, 7:] = torch.tensor(plant.robot.nominal_q()) + 0.2 * torch.randn(12, generator=generator)
    return q, torch.randn(1, 18, generator=generator, dtype=torch.float64)


def test_velocities_and_jacobians_are_derivatives_of_places(a1):
    read = LegKinematics(a1.quadruped)
    q, qd = drawn(a1)
    qd[:, :6] = 0.0
    found, step = read(q, qd), 1e-6
    ahead, behind = (read(torch.cat([q[:, :7], q[:, 7:] + d * qd[:, 6:]], 1), qd) for d in (step, -step))
    moved = (ahead.feet - behind.feet) / (2 * step)
    assert moved == pytest.approx(found.foot_velocity, abs=1e-7)
    assert (ahead.com - behind.com) / (2 * step) == pytest.approx(found.velocity, abs=1e-7)
    for row, leg in enumerate(a1.quadruped.legs):
        rates = qd[0, list(leg.dofs)].numpy()
        assert found.jacobian[0, row] @ rates == pytest.approx(moved[0, row], abs=1e-7)


def test_leg_weights_hold_the_legs_still(a1):
    """The torques are the gradient of the legs' potential energy, while the base does not move."""
    read = LegKinematics(a1.quadruped)
    q, qd = drawn(a1, 1)
    found, step, weight = read(q, qd), 1e-5, a1.quadruped.mass * a1.quadruped.gravity
    for row, leg in enumerate(a1.quadruped.legs):
        for place, dof in enumerate(leg.dofs):
            other = []
            for sign in (1, -1):
                turned = q.clone()
                turned[0, dof + 1] += sign * step
                other.append(weight * read(turned, qd).com[0, 2])
            assert (other[0] - other[1]) / (2 * step) == pytest.approx(found.weight[0, row, place], abs=1e-6)


def test_what_is_no_quadruped_is_refused(a1):
    with pytest.raises(InputError, match="'cartpole': has no floating base"):
        walking_plant(load("cartpole"))
    bare = msgspec.structs.replace(a1.quadruped.mechanism, points=())
    robot = a1.robot
    with pytest.raises(InputError, match="has no contact points; declare"):
        find_quadruped(bare, robot.spec, robot.nominal_q(), tuple(robot.actuated.values()))


def test_frames_are_short_enough_for_legs():
    assert walking_robot(load("a1")).dt == 0.005
    anymal = walking_robot(load("anymal-c"))
    assert anymal.dt == pytest.approx(1 / 240)
    assert anymal.simulator.substeps >= 2
