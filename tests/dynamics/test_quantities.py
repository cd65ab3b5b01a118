# SPDX-License-Identifier: Apache-2.0
"""Quantities by name: right, lazy, and refused by name where they are not there."""

import pytest
import torch

from neurodyn.core.description.spec import Channel, JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import Environment, State, Step
from neurodyn.dynamics.quantities import Quantities, StateReader, gravity_direction
from neurodyn.geometry import rotation
from neurodyn.geometry.ground import Ground
from neurodyn.robots import load as load_robot
from neurodyn.tasks.task import reset_states

F64 = torch.float64
FREE = StateSpec(
    robot="rock",
    joints=(JointSpec(name="root", kind="free"), JointSpec(name="arm", kind="revolute")),
    controls=("arm",),
    dt=0.01,
)


def states(worlds=6, dtype=F64):
    random = torch.Generator().manual_seed(3)
    q = torch.randn(worlds, 8, generator=random, dtype=dtype)
    q[:, 3:7] = rotation.normalise(q[:, 3:7])
    return State(q, torch.randn(worlds, 7, generator=random, dtype=dtype))


def test_the_origins_velocity_is_the_derivative_of_its_place():
    """Of a body that turns about its centre of mass, which is off its origin and moves on straight."""
    state, com = states(), torch.tensor([0.3, -0.2, 0.5], dtype=F64)
    turn, velocity, spin = state.q[:, 3:7], state.qd[:, :3], state.qd[:, 3:6]

    def origin(t):
        turned = rotation.multiply(rotation.exponential(spin * t), turn)
        centre = state.q[:, :3] + rotation.rotate(turn, com.expand(6, 3)) + velocity * t
        return centre - rotation.rotate(turned, com.expand(6, 3))

    h = 1e-5
    wanted = (origin(h) - origin(-h)) / (2 * h)
    found = StateReader(FREE, owner="a rock", com=com).read(state)
    in_world = rotation.rotate(turn, found["base_linear_velocity"])
    torch.testing.assert_close(in_world, wanted, rtol=0.0, atol=1e-8)
    # By the formula, in the axes of the base, and unlike the velocity of the centre of mass.
    lever = torch.linalg.cross(spin, rotation.rotate(turn, com.expand(6, 3)))
    torch.testing.assert_close(in_world, velocity - lever)
    assert (in_world - velocity).abs().max() > 0.1
    torch.testing.assert_close(rotation.rotate(turn, found["base_angular_velocity"]), spin)


def test_gravity_is_seen_from_the_base():
    state = states()
    down = gravity_direction(torch.tensor([0.0, 0.0, -9.81]))
    found = StateReader(FREE, owner="a rock", down=down).read(state)["projected_gravity"]
    matrix = rotation.matrix(state.q[:, 3:7])
    torch.testing.assert_close(found, -matrix[:, 2])
    assert gravity_direction(torch.zeros(3)) is None
    assert "projected_gravity" not in StateReader(FREE, owner="a rock").read(state)


def test_worlds_without_gravity_among_others_have_no_direction():
    gravity = torch.tensor([[0.0, 0.0, -9.81], [0.0, 0.0, 0.0]], dtype=F64)
    down = gravity_direction(gravity)
    assert torch.equal(down, torch.tensor([[0.0, 0.0, -1.0], [0.0, 0.0, 0.0]], dtype=F64))
    found = StateReader(FREE, owner="a rock", down=down).read(states(2))["projected_gravity"]
    assert (found[1] == 0).all()
    assert torch.linalg.vector_norm(found[0]) == pytest.approx(1.0)


def test_gravity_edited_in_place_is_read_again():
    dynamics = AnalyticDynamics(load_robot("ant"))
    environment = Environment(gravity=torch.tensor([0.0, 0.0, -9.81]))
    state = State(torch.zeros(1, dynamics.spec.nq), torch.zeros(1, dynamics.spec.nv))
    state.q[:, 6] = 1.0
    before = dynamics.quantities(state, environment=environment)["projected_gravity"]
    environment.gravity.copy_(torch.tensor([9.81, 0.0, 0.0]))
    after = dynamics.quantities(state, environment=environment)["projected_gravity"]
    torch.testing.assert_close(before, torch.tensor([[0.0, 0.0, -1.0]]))
    torch.testing.assert_close(after, torch.tensor([[1.0, 0.0, 0.0]]))


def test_joints_are_those_behind_the_base():
    state = states()
    found = StateReader(FREE, owner="a rock").read(state, torque=torch.ones(6, 1))
    assert torch.equal(found["joint_position"], state.q[:, 7:])
    assert torch.equal(found["joint_velocity"], state.qd[:, 6:])
    assert torch.equal(found["joint_torque"], torch.ones(6, 1))


def test_missing_quantities_are_refused_with_the_available_ones():
    found = StateReader(FREE, owner="the rock").read(states())
    with pytest.raises(
        InputError, match="the rock does not offer 'joint_torque'; it offers base_angular_velocity, base_"
    ):
        found["joint_torque"]
    assert "joint_torque" not in found
    assert "base_position" in found
    with pytest.raises(InputError, match=r"does not offer the contact of 'FOOT'; it offers \(none\)"):
        found.contacts(("FOOT",))


def test_a_quantity_is_computed_once_and_only_when_it_is_asked_for():
    calls = []

    def make(name):
        return lambda _: calls.append(name) or torch.zeros(1)

    found = Quantities("a test", {name: make(name) for name in "ab"})
    assert set(found) == {"a", "b"}
    assert calls == []
    assert found["a"] is found["a"]
    assert calls == ["a"]


def test_channels_and_contacts_are_quantities():
    spec = StateSpec(
        robot="dog",
        joints=(JointSpec(name="hip", kind="revolute"),),
        controls=("hip",),
        dt=0.02,
        channels=(
            Channel(name="base_linear_velocity.x", unit="m/s", frame="base"),
            Channel(name="base_linear_velocity.y", unit="m/s", frame="base"),
            Channel(name="joint_torque", unit="N m"),
        ),
        contacts=("LEFT", "RIGHT"),
    )
    state = State(torch.zeros(2, 1), torch.ones(2, 1), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    step = Step(state, contacts=torch.tensor([[0.1, 0.9], [0.2, 0.8]]))
    found = StateReader(spec, owner="a model").read(state, step, torch.zeros(2, 1))
    assert found["base_linear_velocity"].tolist() == [[1.0, 2.0], [4.0, 5.0]]
    assert found["joint_torque"].tolist() == [[3.0], [6.0]]  # as measured, whatever acted
    torch.testing.assert_close(found.contacts(("RIGHT",)), torch.tensor([[0.9], [0.8]]))
    assert "base_position" not in found


@pytest.mark.parametrize("name", ["ant", "anymal-c"])
def test_simulator_and_model_agree(name):
    robot = load_robot(name)
    state = reset_states(robot, 4, torch.Generator().manual_seed(0))
    state = State(state.q, torch.randn(state.qd.shape, generator=torch.Generator().manual_seed(1)))
    home = Environment(ground=Ground(robot.named_ground()))
    mine = AnalyticDynamics(robot).quantities(state, environment=home)
    theirs = load(f"pretrained:{name}").quantities(state, environment=home)
    for quantity in ("base_linear_velocity", "base_angular_velocity", "projected_gravity", "joint_position"):
        torch.testing.assert_close(mine[quantity], theirs[quantity], rtol=0.0, atol=1e-5)
