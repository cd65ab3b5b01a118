# SPDX-License-Identifier: Apache-2.0
import pytest
import torch

from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.contact_features import ContactFeatures
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.proximity import ProximityQuery
from tests.geometry.chains import all_kinds, at, contact_point_at, joint, random_pose, random_state

PLANE = Ground(Scene(shapes=(Plane(),)))


def integrate(layout, q, qd, h):
    """Advance a state by a short time h at constant rates, written from the conventions of the coordinates."""

    def turn(quaternion, rate):
        unit = quaternion / quaternion.norm(dim=-1, keepdim=True)
        axis, w = unit[:, :3], unit[:, 3:]
        change = torch.cat([rate * w + torch.linalg.cross(rate, axis), -(rate * axis).sum(-1, keepdim=True)], -1)
        return unit + h / 2 * change

    def rotate(quaternion, vector):
        unit = quaternion / quaternion.norm(dim=-1, keepdim=True)
        axis, w = unit[..., :3], unit[..., 3:]
        twice = 2 * torch.linalg.cross(axis, vector)
        return vector + w * twice + torch.linalg.cross(axis, twice)

    parts, i, k = [], 0, 0
    for one in layout.joints:
        if one.kind == "ball":
            parts.append(turn(q[:, i : i + 4], qd[:, k : k + 3]))
            i, k = i + 4, k + 3
        elif one.kind == "free":
            spin, quaternion = qd[:, k + 3 : k + 6], q[:, i + 3 : i + 7]
            frame = torch.tensor(one.child_frame, dtype=q.dtype)
            # Joint frame in the child, from the centre of mass, in the axes of the joint's frame in the parent.
            back = torch.cat([-frame[3:6], frame[6:]])
            arm = rotate(
                quaternion, rotate(back, frame[:3] - torch.tensor(layout.base_com, dtype=q.dtype)).expand(len(q), 3)
            )
            velocity = qd[:, k : k + 3] + torch.linalg.cross(spin, arm)
            parts += [q[:, i : i + 3] + h * velocity, turn(quaternion, spin)]
            i, k = i + 7, k + 6
        else:
            parts.append(q[:, i : i + 1] + h * qd[:, k : k + 1])
            i, k = i + 1, k + 1
    return torch.cat(parts, -1)


@pytest.mark.parametrize("first", ["free", "revolute", "ball"])
def test_velocity_is_the_rate_of_position(first):
    proximity = ProximityQuery(all_kinds(first))
    q, qd = random_state(proximity, 4)
    h = 1e-6
    ahead = proximity(None, integrate(proximity.layout, q, qd, h), qd).position
    behind = proximity(None, integrate(proximity.layout, q, qd, -h), qd).position
    torch.testing.assert_close(proximity(None, q, qd).velocity, (ahead - behind) / (2 * h), atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("base_frame", [False, True])
@pytest.mark.parametrize("first", ["free", "prismatic", "screw"])
def test_gradients_are_those_of_finite_differences(first, base_frame):
    """On planes the held normal is exact."""
    proximity = ProximityQuery(all_kinds(first))
    q, qd = (x.requires_grad_() for x in random_state(proximity, 2))
    ground = PLANE.at_pose(random_pose(2))

    def outputs(q, qd):
        readings = proximity(ground, q, qd, base_frame=base_frame)
        values = (readings.distance, readings.position, readings.velocity)
        return (*values, readings.normal) if base_frame and first == "free" else values

    assert torch.autograd.gradcheck(outputs, (q, qd), atol=1e-7)


def test_gradient_of_a_ground_point_in_the_base_frame_holds_it_in_the_world():
    proximity = ProximityQuery(all_kinds())
    q, qd = random_state(proximity, 2)
    ground = PLANE.at_pose(random_pose(2))
    held = proximity(ground, q, qd).point
    weight = torch.randn_like(held)

    def seen(q):
        """The held points, seen from the base, whose frame four contact points on it show."""
        corners = [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
        layout = proximity.layout
        frame = ProximityQuery(type(layout)(
            joints=layout.joints,
            contact_points=tuple(type(layout.contact_points[0])(name=str(c), joint=0, point=c, radius=0.0) for c in
            corners),
        ))  # fmt: skip
        place = frame(None, q, qd).position
        rotation = (place[:, 1:] - place[:, :1]).transpose(1, 2)
        return (held - place[:, :1]) @ rotation

    q.requires_grad_()
    ours = proximity(ground, q, qd, base_frame=True).point
    torch.testing.assert_close(ours, seen(q))
    (gradient,) = torch.autograd.grad((ours * weight).sum(), q)
    (expected,) = torch.autograd.grad((seen(q) * weight).sum(), q)
    torch.testing.assert_close(gradient, expected)


def test_base_frame_is_the_same_reading_in_other_axes():
    """Turned and shifted with its ground, a robot reads the same in its base frame."""
    proximity = ProximityQuery(contact_point_at())
    q, qd = at([[0.1, 0.2, 0.7]])
    qd[:, :3] = torch.tensor([0.3, -0.2, 0.1])
    readings = proximity(PLANE, q, qd, base_frame=True)
    half = torch.tensor(0.4, dtype=torch.float64)
    turn = torch.tensor([[0.0, 0.0, half.sin(), half.cos()]], dtype=torch.float64)
    c, s = (2 * half).cos(), (2 * half).sin()
    moved = q.clone()
    moved[:, 0], moved[:, 1] = c * q[:, 0] - s * q[:, 1] + 3, s * q[:, 0] + c * q[:, 1] - 1
    moved[:, 3:] = turn
    rates = qd.clone()
    rates[:, 0], rates[:, 1] = c * qd[:, 0] - s * qd[:, 1], s * qd[:, 0] + c * qd[:, 1]
    pose = torch.cat([torch.tensor([[3.0, -1.0, 0.0]], dtype=torch.float64), turn], -1)
    for one, other in zip(readings, proximity(PLANE.at_pose(pose), moved, rates, base_frame=True), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("ground", [None, Ground()])
def test_free_space_has_no_valid_reading(ground):
    proximity = ProximityQuery(contact_point_at())
    readings = proximity(ground, *at([[1.0, 2.0, 3.0]]))
    assert not readings.valid.any()
    assert readings.distance.item() == 1000.0
    assert readings.normal.abs().max() == 0
    assert readings.point.abs().max() == 0
    assert readings.position.flatten().tolist() == [1.0, 2.0, 3.0]


def test_float32_is_right_to_a_micrometre():
    proximity = ProximityQuery(all_kinds())
    ground = Ground(Scene(shapes=(Plane(), Box(half=(0.3, 0.4, 0.5), rotation=(0.5, 0.5, 0.5, 0.5))))).at_pose(
        random_pose(64)
    )
    q, qd = random_state(proximity, 64)
    q[:, :3] *= 0.3
    exact = proximity(ground, q.float().double(), qd.float().double())
    single = proximity(ground.at_pose(ground.pose), q.float(), qd.float())
    assert (exact.distance - single.distance).abs().max() < 2e-6
    assert (exact.position - single.position).abs().max() < 2e-6


def test_other_widths_precisions_and_worlds_are_refused():
    proximity = ProximityQuery(contact_point_at())
    q, qd = at([[0.0, 0.0, 1.0]])
    with pytest.raises(InputError, match=r"valid for these contact points: \[worlds, 7\]"):
        proximity(PLANE, q[:, :6], qd)
    with pytest.raises(InputError, match="float32 or float64"):
        proximity(PLANE, q.half(), qd.half())
    with pytest.raises(InputError, match=r"poses of shape \[3, 7\]"):
        proximity(PLANE.at_pose(random_pose(3)), q, qd)


def test_features_of_a_second_tree_beside_a_floating_robot_are_refused():
    layout = all_kinds()
    wider = type(layout)(joints=(*layout.joints, joint("revolute", -1)), contact_points=layout.contact_points)
    with pytest.raises(InputError, match="second tree"):
        ContactFeatures(wider, [0.1] * len(layout.contact_points), 0.01)


def test_no_world_and_no_contact_point_are_no_trouble():
    layout = contact_point_at()
    q, qd = at(torch.zeros(0, 3))
    assert ProximityQuery(layout)(PLANE, q, qd).distance.shape == (0, 1)
    q, qd = at(torch.zeros(2, 3))
    assert ProximityQuery(type(layout)(joints=layout.joints, contact_points=()))(PLANE, q, qd).distance.shape == (2, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_reads_and_differentiates_like_the_cpu():
    proximity = ProximityQuery(all_kinds())
    ground = PLANE.at_pose(random_pose(8))
    results = []
    for device in ("cpu", "cuda"):
        q, qd = (x.to(device).requires_grad_() for x in random_state(proximity, 8))
        readings = proximity(ground, q, qd, base_frame=True)
        loss = readings.distance.sum() + (readings.velocity**2).sum() + (readings.point**2).sum()
        results.append([*readings, *torch.autograd.grad(loss, (q, qd))])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other.cpu())
