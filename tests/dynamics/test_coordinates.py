# SPDX-License-Identifier: Apache-2.0
"""The frame of the base: round trips, the velocity of an off-centre mass, and Newton's conventions."""

import pytest
import torch
from torch import Tensor

from neurodyn.dynamics.coordinates import Coordinates, position_difference
from neurodyn.geometry import rotation
from tests.dynamics.test_tangent import SPEC, draw

COM = (0.3, -0.2, 0.1)
DT = 1e-3


def states(worlds: int = 30) -> tuple[Coordinates, Tensor, Tensor]:
    torch.manual_seed(3)
    return Coordinates(SPEC, COM).double(), draw(worlds), torch.randn(worlds, SPEC.nv, dtype=torch.float64)


def test_a_change_that_is_applied_again_ends_in_the_same_state():
    coordinates, q, qd = states()
    q_next, qd_next = draw(30), torch.randn(30, SPEC.nv, dtype=torch.float64)
    dq, dqd = coordinates.change(q, qd, q_next, qd_next)
    reached, velocity = coordinates.advance(coordinates.base_rotation(q), q, qd, dq, dqd)
    difference = position_difference(SPEC, reached, q_next)
    assert difference[:, [0, 1, 2, 3, 4, 5, 7, 8, 9, 10]].abs().max() < 1e-12
    assert (velocity - qd_next).abs().max() < 1e-12


def test_the_velocity_of_a_free_base_moves_its_centre_of_mass():
    coordinates, q, qd = states()
    base = coordinates.base_rotation(q)
    moved, _ = coordinates.advance(base, q, qd, DT * coordinates.to_base(base, qd), torch.zeros_like(qd))
    com = torch.tensor(COM, dtype=torch.float64).expand(30, 3)
    centres = [x[:, :3] + rotation.rotate(x[:, 3:7], com) for x in (q, moved)]
    assert torch.allclose(centres[1] - centres[0], DT * qd[:, :3], atol=1e-12)
    lever = rotation.rotate(q[:, 3:7], com)
    origin_velocity = qd[:, :3] - torch.linalg.cross(qd[:, 3:6], lever)
    assert torch.allclose((moved[:, :3] - q[:, :3]) / DT, origin_velocity, atol=5e-3)


def test_a_moved_and_turned_robot_has_the_same_velocities_and_changes():
    coordinates, q, qd = states()
    q_next, qd_next = draw(30), torch.randn(30, SPEC.nv, dtype=torch.float64)
    turn = rotation.exponential(torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)).expand(30, 4)
    shift = torch.tensor([5.0, -3.0, 2.0], dtype=torch.float64)

    def placed(q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
        place = torch.cat([rotation.rotate(turn, q[:, :3]) + shift, rotation.multiply(turn, q[:, 3:7])], -1)
        velocity = [rotation.rotate(turn, qd[:, :3]), rotation.rotate(turn, qd[:, 3:6])]
        return torch.cat([place, q[:, 7:]], -1), torch.cat([*velocity, qd[:, 6:]], -1)

    before = coordinates.change(q, qd, q_next, qd_next)
    after = coordinates.change(*placed(q, qd), *placed(q_next, qd_next))
    for a, b in zip(before, after, strict=True):
        assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("kind", ["free", "ball"])
def test_velocities_are_those_of_newton(kind: str):
    """Integrating our way, Newton's forward kinematics find the body where its velocity says."""
    newton = pytest.importorskip("newton")
    wp = pytest.importorskip("warp")
    builder = newton.ModelBuilder()
    body = builder.add_link(mass=2.0, com=wp.vec3(*COM), inertia=wp.mat33(1, 0, 0, 0, 2, 0, 0, 0, 3))
    joint = builder.add_joint_free(child=body) if kind == "free" else builder.add_joint_ball(parent=-1, child=body)
    builder.add_articulation([joint])
    model = builder.finalize(device="cpu")
    from neurodyn.core.description.spec import JointSpec, StateSpec

    spec = StateSpec(robot="body", joints=(JointSpec(name="j", kind=kind),), controls=(), dt=DT)
    coordinates = Coordinates(spec, COM).double()
    torch.manual_seed(4)
    q = rotation.normalise(torch.randn(1, 4, dtype=torch.float64))
    if kind == "free":
        q = torch.cat([torch.randn(1, 3, dtype=torch.float64), q], -1)
    qd = torch.randn(1, spec.nv, dtype=torch.float64)
    base = coordinates.base_rotation(q)
    moved, _ = coordinates.advance(base, q, qd, DT * coordinates.to_base(base, qd), torch.zeros_like(qd))

    def newton_body(q: Tensor) -> tuple[Tensor, Tensor]:
        state = model.state()
        state.joint_q.assign(q[0].float().numpy())
        state.joint_qd.assign(qd[0].float().numpy())
        newton.eval_fk(model, state.joint_q, state.joint_qd, state)
        return tuple(torch.from_numpy(a.numpy()[0].copy()).double() for a in (state.body_q, state.body_qd))

    (pose, twist), (pose_next, _) = newton_body(q), newton_body(moved)
    com = torch.tensor(COM, dtype=torch.float64)
    centre, centre_next = (p[:3] + rotation.rotate(p[3:], com) for p in (pose, pose_next))
    turn = rotation.logarithm(rotation.multiply(pose_next[3:], rotation.conjugate(pose[3:])))
    assert torch.allclose((centre_next - centre) / DT, twist[:3], atol=3e-3)
    assert torch.allclose(turn / DT, twist[3:], atol=3e-3)
