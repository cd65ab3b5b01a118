# SPDX-License-Identifier: Apache-2.0
"""Random states and torques fill the declared ranges, keep clear of the ground, and repeat for a seed."""

import itertools

import msgspec
import pytest
import torch

from neurodyn import robots
from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.scene import IDENTITY, Box, Plane, Scene, Terrain
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.geometry.ground import Ground
from neurodyn.robots import Joint, Ranges
from neurodyn.sim.sampling import CONTACT_DEPTH, Clearance, ground_height, sample_states, sample_torques

HALF = 0.0524
FLAT = Scene(shapes=(Plane(),))


@pytest.fixture(scope="module")
def cube():
    return robots.load("cube")


@pytest.fixture(scope="module")
def corners() -> ContactPointLayout:
    joint = ChainJoint(name="base", kind="free", parent=-1, parent_frame=IDENTITY, child_frame=IDENTITY, axis=(0, 0, 0))
    points = itertools.product((-HALF, HALF), repeat=3)
    return ContactPointLayout(
        joints=(joint,),
        contact_points=tuple(
            ContactPoint(name=f"cube/{i}", joint=0, point=point, radius=0.0) for i, point in enumerate(points)
        ),
    )


def upright(q):
    """Cosine of the angle between the base's z axis and the vertical."""
    return 1 - 2 * (q[:, 3] ** 2 + q[:, 4] ** 2)


def test_states_fill_their_ranges(cartpole):
    q, qd = sample_states(cartpole, 20_000, generator(0, "x"))
    assert q.shape == qd.shape == (20_000, 2)
    assert q.dtype == torch.float32
    torch.testing.assert_close(q.amax(0), torch.tensor([3.5, torch.pi]), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(qd.amin(0), torch.tensor([-10.0, -10.0]), rtol=1e-3, atol=1e-3)
    assert q.mean(0).abs().max() < 0.1


def test_torques_are_independent_in_every_frame(cartpole):
    u = sample_torques(cartpole, 500, 100, generator(0, "x"))[..., 0]
    assert u.shape == (500, 100)
    assert u.abs().max() <= 1500
    assert torch.corrcoef(torch.stack([u[:, :-1].flatten(), u[:, 1:].flatten()]))[0, 1].abs() < 0.02


def test_resets_fill_their_own_ranges(cartpole):
    q, qd = sample_states(cartpole, 1000, generator(0, "x"), reset=True)
    assert q[:, 0].abs().max() <= 1
    assert qd.abs().max() <= 1


def test_a_seed_repeats_and_another_does_not(cartpole, cube, corners):
    first, same, other = (sample_states(cartpole, 4, generator(seed, "x"))[0] for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    first, same = (sample_states(cube, 64, generator(1, "x"), Ground(FLAT), corners)[0] for _ in range(2))
    assert torch.equal(first, same)


def test_floating_bases_are_tilted_up_to_their_range_with_any_heading(cube):
    robot = msgspec.structs.replace(cube, sampling=Ranges(height=(0.5, 1.0), tilt=0.5, qd={"base.wx": (-2.0, 3.0)}))
    q, qd = sample_states(robot, 20_000, generator(0, "x"))
    torch.testing.assert_close(q[:, 3:].norm(dim=1), torch.ones(20_000))
    tilt = torch.arccos(upright(q).clamp(-1, 1))
    assert tilt.max() == pytest.approx(0.5, abs=1e-3)
    assert tilt.median() == pytest.approx(0.25, abs=0.01)
    # The x axis, whatever its heading, points nowhere in particular; nor does the direction of the tilt.
    x, y, z, w = q[:, 3:].T
    for direction in ((1 - 2 * (y * y + z * z), 2 * (x * y + z * w)), (2 * (x * z + y * w), 2 * (y * z - x * w))):
        quadrants = torch.atan2(*direction).div(torch.pi / 2).floor().long() + 2
        assert torch.bincount(quadrants.clamp(0, 3)).min() > 4500
    assert (q[:, 2].amin(), q[:, 2].amax()) == (pytest.approx(0.5, abs=1e-3), pytest.approx(1.0, abs=1e-3))
    assert (q[:, :2] == 0).all()
    assert (qd[:, 3].amin(), qd[:, 3].amax()) == (pytest.approx(-2, abs=1e-2), pytest.approx(3, abs=1e-2))
    assert (qd[:, [0, 1, 2, 4, 5]] == 0).all()


def test_ball_joints_take_any_rotation(cartpole):
    robot = msgspec.structs.replace(
        cartpole, joints=(Joint(name="neck", kind="ball"),), actuated={}, reset=Ranges(),
        sampling=Ranges(qd={"neck.wz": (1.0, 1.0)}),
    )  # fmt: skip
    q, qd = sample_states(robot, 5000, generator(0, "x"))
    torch.testing.assert_close(q.norm(dim=1), torch.ones(5000))
    # A uniform rotation takes the z axis to a uniform point of the sphere, whose z is uniform.
    z = 1 - 2 * (q[:, 0] ** 2 + q[:, 1] ** 2)
    assert z.mean().abs() < 0.03
    assert z.square().mean() == pytest.approx(1 / 3, abs=0.02)
    assert (qd == torch.tensor([0.0, 0.0, 1.0])).all()


def test_heights_count_from_the_ground_below(cube):
    scene = Scene(shapes=(Plane(), Box(half=(0.5, 0.5, 0.5), position=(0, 0, 0.5))))
    pose = torch.tensor([[0, 0, 0, 0, 0, 0, 1.0], [2, 0, 0, 0, 0, 0, 1.0], [2, 0, -0.7, 0, 0, 0, 1.0]])
    ground = Ground(scene, pose)
    torch.testing.assert_close(ground_height(ground, torch.zeros(3, 2)), torch.tensor([1.0, 0.0, -0.7]))
    robot = msgspec.structs.replace(cube, sampling=Ranges(height=(0.25, 0.25)), contact_points=None)
    q, _ = sample_states(robot, 3, generator(0, "x"), ground)
    torch.testing.assert_close(q[:, 2], torch.tensor([1.25, 0.25, -0.45]))


def test_the_height_of_a_tilted_plane_is_exact():
    half = 0.2
    rotation = (float(torch.tensor(half).sin()), 0.0, 0.0, float(torch.tensor(half).cos()))
    ground = Ground(Scene(shapes=(Plane(position=(0, 0, 0.3), rotation=rotation),)))
    # Turned by 0.4 about x, the plane rises by tan 0.4 along y.
    place = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, -2.0]])
    expected = 0.3 + place[:, 1] * torch.tan(torch.tensor(0.4))
    torch.testing.assert_close(ground_height(ground, place), expected, atol=2e-4, rtol=0)


def test_heights_of_an_upright_terrain_are_those_of_its_triangles(monkeypatch):
    terrain = Terrain(style="mixed", tiles=("rough", "steps", "slopes"), amplitude=0.2, size=(10.0, 8.0), cell=0.1)
    turn, place = torch.linspace(0.0, 3.0, 64), 3.0 * torch.randn(64, 2, generator=torch.Generator().manual_seed(1))
    place[0], place[1] = 30.0, torch.nan  # beside it, and nowhere
    pose = torch.zeros(64, 7)
    pose[:, 2], pose[:, 5], pose[:, 6] = 0.1 * turn, turn.sin(), turn.cos()
    ground = Ground(Scene(shapes=(terrain,)), pose)
    heights = ground_height(ground, place)
    assert (heights[:2] == 0.0).all()
    assert heights.std() > 0.05
    monkeypatch.setattr("neurodyn.sim.sampling._upright_field", lambda _: None)
    torch.testing.assert_close(heights, ground_height(ground, place), atol=2e-3, rtol=0)


def test_where_there_is_no_ground_heights_count_from_zero():
    assert (ground_height(Ground(Scene()), torch.zeros(2, 2)) == 0).all()
    far = torch.tensor([[0, 0, -100.0, 0, 0, 0, 1]])
    assert (ground_height(Ground(FLAT, far), torch.zeros(1, 2)) == 0).all()


def test_starts_keep_clear_of_the_ground(cube, corners):
    ground = Ground(FLAT, torch.tensor([0, 0, 0.3, 0, 0, 0, 1.0]).expand(500, 7).contiguous())
    blind, _ = sample_states(msgspec.structs.replace(cube, contact_points=None), 500, generator(0, "x"), ground)
    clearance = Clearance(corners)
    assert (clearance.depth(ground, blind) > CONTACT_DEPTH).sum() > 10
    for reset in (False, True):
        q, _ = sample_states(cube, 500, generator(0, "x"), ground, corners, reset=reset)
        assert clearance.depth(ground, q).max() <= CONTACT_DEPTH
        assert q[:, 2].max() <= 0.3 + 0.262 + 1e-6


def test_data_that_cannot_be_clear_are_lifted_and_resets_refused(cube, corners):
    deep = Ranges(height=(-0.2, -0.1), tilt=1.0)
    robot = msgspec.structs.replace(cube, sampling=deep, reset=deep)
    q, _ = sample_states(robot, 50, generator(0, "x"), Ground(FLAT), corners)
    depth = Clearance(corners).depth(Ground(FLAT), q)
    assert depth.max() <= CONTACT_DEPTH
    assert depth.min() > -0.1
    with pytest.raises(InputError, match="robot 'cube': below the ground at reset in 50 of 50 worlds") as caught:
        sample_states(robot, 50, generator(0, "x"), Ground(FLAT), corners, reset=True)
    assert "\n" not in str(caught.value)


def test_a_floating_base_without_a_height_is_refused(cube):
    robot = msgspec.structs.replace(cube, sampling=Ranges(), reset=Ranges())
    with pytest.raises(InputError, match=r"declare it as sampling: \{height: \[lower, upper\]\}"):
        sample_states(robot, 1, generator(0, "x"))
