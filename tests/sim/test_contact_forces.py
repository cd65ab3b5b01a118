# SPDX-License-Identifier: Apache-2.0
"""Contact forces: a robot that stands carries its weight with its feet, one that falls touches nothing."""

from typing import Any

import msgspec
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Control, Environment, State
from neurodyn.geometry.ground import Ground
from neurodyn.robots import load
from neurodyn.sim.newton.simulator import ReferenceSimulator

_FEET = ["LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT"]


def _standing(height: float = 0.6) -> tuple[torch.Tensor, torch.Tensor]:
    robot = load("anymal-c")
    q = torch.zeros(1, robot.spec.nq)
    q[0, 2], q[0, 6] = height, 1.0
    q[0, 7:] = torch.tensor(robot.nominal_q())
    return q, torch.zeros(1, robot.spec.nv)


def test_feet_of_a_standing_robot_carry_its_weight() -> None:
    robot = load("anymal-c")
    scene = robot.named_ground()
    assert scene is not None
    ground = Ground(scene)
    dynamics = AnalyticDynamics(robot)
    low, high = _standing(0.55), _standing(100.0)
    state = State(torch.cat([low[0], high[0]]), torch.cat([low[1], high[1]]))
    kp, kd = torch.tensor(85.0), torch.tensor(2.0)
    control = Control(target=torch.tensor(robot.nominal_q()).expand(2, -1), kp=kp, kd=kd)
    carry = dynamics.begin(state, Environment(ground=ground))
    pressed, touched = [], []
    for _ in range(200):
        carry, step = dynamics.step(carry, state, control)
        state = step.state
        forces, contacts = carry.simulator.contact_forces(), step.contacts
        assert forces is not None
        assert contacts is not None
        pressed.append(forces)
        touched.append(contacts)
    mean = torch.stack(pressed[80:]).mean(0)
    names = list(robot.contacts)
    feet = [names.index(name) for name in _FEET]
    # The base goes nowhere, so that on the mean the feet carry the weight.
    assert mean[0, feet].sum().item() == pytest.approx(_weight(carry.simulator), rel=0.03)
    assert mean[0].sum().item() == pytest.approx(mean[0, feet].sum().item())
    assert touched[-1][0, feet].tolist() == [1.0] * 4
    assert torch.stack(pressed)[:, 1].abs().max().item() == 0.0  # falls all the while


def _weight(simulator: ReferenceSimulator) -> float:
    masses: Any = simulator.model.body_mass
    return 9.81 * float(masses.numpy().sum()) / simulator.worlds


def test_no_forces_without_ground() -> None:
    assert ReferenceSimulator(load("anymal-c"), 1, capture=False).contact_forces() is None


def test_a_pattern_without_shapes_is_refused() -> None:
    robot = msgspec.structs.replace(load("anymal-c"), legs=None, contacts={"TAIL": ("tail_*",)})
    with pytest.raises(InputError, match=r"TAIL.*matches no collision shape; valid.*shape_21"):
        ReferenceSimulator(robot, 1, scene=robot.named_ground(), capture=False)
