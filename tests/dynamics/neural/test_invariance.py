# SPDX-License-Identifier: Apache-2.0
"""A robot on its ground, both moved and turned: the prediction moves and turns with them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.scene import Box, Plane, Scene, Sphere
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.dynamics.batch import Control, Environment, State
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.neural.encoding import Encoding, fit_encoding
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.geometry import rotation
from neurodyn.geometry.ground import Ground
from neurodyn.nets.networks import NetConfig
from neurodyn.nets.predictor import build_predictor

COM = (0.05, -0.02, 0.01)
SPEC = StateSpec(
    robot="hopper",
    joints=(
        JointSpec(name="root", kind="free"),
        JointSpec(name="knee", kind="revolute", lower=-1.0, upper=1.0),
        JointSpec(name="tail", kind="ball"),
    ),
    controls=("knee",),
    dt=0.02,
)
POSE = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
TILTED = (0.1, 0.2, -0.1, 0.1825741858, 0.3651483717, 0.0, 0.9128709292)
LAYOUT = ContactPointLayout(
    joints=(
        ChainJoint(name="root", kind="free", parent=-1, parent_frame=POSE, child_frame=POSE, axis=(0, 0, 0)),
        ChainJoint(name="knee", kind="revolute", parent=0, parent_frame=TILTED, child_frame=POSE, axis=(0, 1, 0)),
        ChainJoint(name="tail", kind="ball", parent=0, parent_frame=POSE, child_frame=TILTED, axis=(0, 0, 0)),
    ),
    contact_points=(
        ContactPoint(name="body/0", joint=0, point=(0.1, 0.0, -0.1), radius=0.05),
        ContactPoint(name="foot/0", joint=1, point=(0.0, 0.1, -0.3), radius=0.02),
        ContactPoint(name="tail/0", joint=2, point=(-0.2, 0.0, 0.0), radius=0.0),
    ),
    base_com=COM,
)
SCENE = Scene(
    shapes=(Plane(), Box(half=(0.3, 0.2, 0.2), position=(0.3, 0.0, 0.0)), Sphere(radius=0.2, position=(-0.5, 0, 0)))
)
WORLDS = 6


def model() -> NeuralDynamics:
    torch.manual_seed(0)
    motion = torch.randn(500, SPEC.nv)
    encoding: Encoding = fit_encoding(SPEC, motion, SPEC.dt * motion, motion, base_com=COM, layout=LAYOUT)
    predictor = build_predictor(NetConfig(kind="gru", width=12, head=8), encoding.inputs, encoding.outputs)
    torch.nn.init.normal_(predictor.net.output_layer.weight, std=0.3)
    return NeuralDynamics(encoding, predictor).requires_grad_(False)


def states() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    q, qd = 0.3 * torch.randn(WORLDS, SPEC.nq), torch.randn(WORLDS, SPEC.nv)
    for quaternion in (q[:, 3:7], q[:, 8:12]):
        quaternion.copy_(rotation.normalise(torch.randn(WORLDS, 4)))
    return q, qd, torch.randn(WORLDS, 4, 1)


def placed(turn: Tensor, shift: Tensor, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
    """Move and turn robots, shape [..., nq] and [..., nv]."""
    turn = turn.expand(*q.shape[:-1], 4)
    place = [rotation.rotate(turn, q[..., :3]) + shift, rotation.multiply(turn, q[..., 3:7])]
    velocity = [rotation.rotate(turn, qd[..., :3]), rotation.rotate(turn, qd[..., 3:6])]
    return torch.cat([*place, q[..., 7:]], -1), torch.cat([*velocity, qd[..., 6:]], -1)


def roll_out(turn: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    q, qd, torque = states()
    tilt = rotation.exponential(torch.tensor([0.1, -0.2, 0.0]))
    pose = torch.cat([rotation.rotate(turn, torch.tensor([0.1, 0.0, 0.05])) + shift, rotation.multiply(turn, tilt)])
    gravity = rotation.rotate(turn, torch.tensor([0.0, 0.0, -9.81]))
    environment = Environment(gravity=gravity, ground=Ground(SCENE, pose.expand(WORLDS, 7)))
    trajectory = model().rollout(State(*placed(turn, shift, q, qd)), torque, environment)
    return trajectory.q, trajectory.qd


def agree(turn: Tensor, shift: Tensor, tolerance: float) -> None:
    still, none = torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.zeros(3)
    expected = placed(turn, shift, *roll_out(still, none))
    reached = roll_out(turn, shift)
    assert position_difference(SPEC, reached[0], expected[0]).abs().max() < tolerance
    assert (reached[1] - expected[1]).abs().max() < tolerance * 10


@settings(max_examples=25, deadline=None)
@given(yaw=st.floats(-3.1, 3.1), x=st.floats(-5, 5), y=st.floats(-5, 5), z=st.floats(-2, 2))
def test_a_prediction_is_moved_and_turned_with_the_scene(yaw: float, x: float, y: float, z: float):
    agree(rotation.exponential(torch.tensor([0.0, 0.0, yaw])), torch.tensor([x, y, z]), 1e-5)


@settings(max_examples=10, deadline=None)
@given(vector=st.tuples(*[st.floats(-1.5, 1.5)] * 3))
def test_with_gravity_any_turn_is_the_same(vector: tuple[float, float, float]):
    agree(rotation.exponential(torch.tensor(vector)), torch.zeros(3), 1e-5)


def test_the_ground_acts_and_gradients_reach_the_start_through_it():
    q, qd, torque = (x.double() for x in states())
    dynamics = model().double()
    ground = Environment(ground=Ground(SCENE))
    on, off = (dynamics.rollout(State(q, qd), torque, e).q for e in (ground, Environment()))
    assert (on - off).abs().max() > 1e-3

    def end(q: Tensor, qd: Tensor, torque: Tensor) -> Tensor:
        carry = dynamics.begin(State(q, qd), Environment(ground=Ground(Scene(shapes=(Plane(),)))))
        _, step = dynamics.step(carry, State(q, qd), Control(torque=torque))
        return torch.cat([step.state.q, step.state.qd], -1)

    start = [x.clone().requires_grad_(True) for x in (q[:2], qd[:2], torque[:2, 0])]
    start[0].data[:, 3:7] = rotation.normalise(start[0].data[:, 3:7])
    outputs = end(*start)
    weights = torch.randn_like(outputs)

    @torch.no_grad()
    def weigh(*start: Tensor) -> Tensor:
        return (end(*start) * weights).sum()

    gradients = torch.autograd.grad((outputs * weights).sum(), start)
    for tensor, gradient in zip(start, gradients, strict=True):
        for index in range(tensor[0].numel()):
            if tensor is start[0] and (3 <= index < 7 or index >= 8):
                continue  # quaternions are compared along the sphere below
            step = torch.zeros_like(tensor)
            step[0, index] = 1e-6
            ends = [weigh(*(t + s * step if t is tensor else t for t in start)) for s in (1, -1)]
            assert float((ends[0] - ends[1]) / 2e-6) == pytest.approx(float(gradient[0, index]), rel=1e-4, abs=1e-5)
    for row in (3, 8):
        turn = torch.tensor([1e-6, -2e-6, 0.5e-6], dtype=torch.float64)
        ends = []
        for sign in (1, -1):
            moved = start[0].detach().clone()
            moved[0, row : row + 4] = rotation.multiply(rotation.exponential(sign * turn), moved[0, row : row + 4])
            ends.append(weigh(moved, *start[1:]))
        along = rotation.multiply(torch.cat([0.5 * turn, turn.new_zeros(1)]), start[0].detach()[0, row : row + 4])
        assert float((ends[0] - ends[1]) / 2) == pytest.approx(float(gradients[0][0, row : row + 4] @ along), rel=1e-4)
