# SPDX-License-Identifier: Apache-2.0
"""Pictures show the robot where it is."""

import re

import numpy as np
import pytest
import torch

from neurodyn import robots
from neurodyn.core.description.scene import Box, Scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.sim.pictures import Camera, render
from tests.robots.own_robots import write_arm

ORANGE, BLUE = np.array([0.93, 0.52, 0.13]), np.array([0.16, 0.38, 0.72])


def centre_of(picture: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Return the mean column and row of the pixels that have a hue."""
    pixels = picture.astype(float)
    pixels /= np.linalg.norm(pixels, axis=-1, keepdims=True) + 1e-9
    rows, columns = np.nonzero(pixels @ (colour / np.linalg.norm(colour)) > 0.985)
    assert len(rows) > 20
    return np.array([columns.mean(), rows.mean()])


def test_cart_and_pole_move_in_the_picture_as_they_do_in_the_world(cartpole):
    pi = torch.pi
    q = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.5, pi / 2], [0.5, pi]])
    pictures = render(cartpole, q, width=120, height=80)
    assert pictures.shape == (4, 80, 120, 3)
    assert pictures.dtype == np.uint8
    cart = [centre_of(picture, BLUE) for picture in pictures]
    pole = [centre_of(picture, ORANGE) for picture in pictures]
    assert cart[1][0] > cart[0][0] + 10  # +x is to the right
    assert pole[0][1] < cart[0][1] - 5  # upright at 0
    assert pole[2][0] > cart[2][0] + 5  # a positive angle falls towards +x
    assert pole[3][1] > cart[3][1] + 5  # hanging at pi


def test_hanging_pendulum_hangs_and_swings_to_the_right(pendulum):
    pictures = render(pendulum, torch.tensor([[0.0, 0.0], [1.5, 0.0]]), width=120, height=80)
    upper = [centre_of(picture, BLUE) for picture in pictures]
    lower = [centre_of(picture, ORANGE) for picture in pictures]
    assert lower[0][1] > upper[0][1] + 5
    assert lower[1][0] > upper[1][0] + 5


def test_nothing_that_moves_leaves_the_picture(cartpole):
    q = torch.tensor([[-3.0, 0.0], [3.0, torch.pi]])
    for picture in render(cartpole, q, width=160, height=60):
        edge = np.concatenate([picture[0], picture[-1]])
        assert (edge == picture[0, 0]).all()


def test_ghost_shines_through(cartpole):
    q = torch.zeros(1, 2)
    camera = Camera(eye=np.array([0.0, -6.0, 0.5]), target=np.array([0.0, 0.0, 0.5]))
    alone = render(cartpole, q, width=90, height=60, camera=camera)[0].astype(int)
    ghost = render(cartpole, q, ghost=torch.tensor([[0.0, 1.0]]), width=90, height=60, camera=camera)[0].astype(int)
    changed = np.abs(ghost - alone).sum(-1) > 10
    assert 10 < changed.sum() < 1000


def test_frames_that_are_not_finite_repeat_the_last_that_was(cartpole):
    pictures = render(cartpole, torch.tensor([[0.3, 0.0], [torch.nan, 0.0]]), width=60, height=40)
    np.testing.assert_array_equal(pictures[0], pictures[1])


def test_a_robot_without_meshes_is_drawn_by_its_joints():
    robot = robots.load("franka")
    if not robots.is_installed(robot):
        pytest.skip("the extra `robots` is not installed")
    picture = render(robot, torch.zeros(1, 7), width=90, height=60)[0]
    centre_of(picture, BLUE)
    centre_of(picture, ORANGE)


def test_a_link_without_shapes_and_further_joints_is_a_capsule_through_its_centre_of_mass(tmp_path):
    folder = write_arm(tmp_path, "urdf")
    asset = folder.parent / "urdf" / "arm.urdf"
    asset.write_text(re.sub(r"<(visual|collision)>.*?</\1>", "", asset.read_text(), flags=re.DOTALL))
    robot = robots.load(folder)
    pictures = render(robot, torch.tensor([[0.0], [torch.pi / 2]]), width=90, height=90)
    hanging, level = (centre_of(picture, BLUE) for picture in pictures)
    assert abs(level[0] - hanging[0]) > 5
    assert level[1] < hanging[1] - 3  # which is upwards


def test_links_whose_meshes_are_left_out_show_what_collides():
    robot = robots.load("a1")
    if not robots.is_installed(robot):
        pytest.skip("the extra `robots` is not installed")
    q = torch.zeros(1, 19)
    q[0, 2], q[0, 6], q[0, 7:] = 0.3, 1.0, torch.tensor(robot.nominal_q())
    picture = render(robot, q, width=90, height=60)[0].astype(int)
    drawn = np.abs(picture - picture[0, 0]).sum(-1) > 30
    assert 0.08 < drawn.mean() < 0.6  # four spheres at the feet alone cover less than 0.02


def test_a_camera_that_goes_along_keeps_the_robot_where_it_is():
    cube = robots.load("cube")
    q = torch.tensor([[0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0], [3.0, -2.0, 0.5, 0.0, 0.0, 0.0, 1.0]])
    still = render(cube, q[:1], width=60, height=40)
    along = render(cube, q, width=60, height=40, path=q[:, :3].numpy() * [1, 1, 0])
    for picture in along:
        assert (picture != still[0]).any(-1).mean() < 0.01


@pytest.mark.parametrize(
    "change", [{"path": np.zeros((1, 3))}, {"q": torch.zeros(2, 3)}, {"ghost": torch.zeros(1, 2)}, {"width": 0}]
)
def test_bad_input_is_one_line(cartpole, change):
    with pytest.raises(InputError, match="pictures of 'cartpole'"):
        render(cartpole, **{"q": torch.zeros(2, 2), **change})


def test_the_ground_is_in_the_picture_where_it_is():
    cube = robots.load("cube")
    q = torch.tensor([[0.0, 0.0, 0.06, 0.0, 0.0, 0.0, 1.0]])
    camera = Camera(eye=np.array([0.0, -1.0, 0.3]), target=np.array([0.0, 0.0, 0.06]))
    scene = Scene(shapes=(Box(half=(5.0, 5.0, 0.1)),))

    def covered(height: float) -> float:
        ground = Ground(scene, torch.tensor([[0.0, 0.0, height, 0.0, 0.0, 0.0, 1.0]]))
        picture = render(cube, q, width=60, height=40, camera=camera, ground=ground)[0]
        return float((picture != picture[0, 0]).any(-1).mean())

    empty = render(cube, q, width=60, height=40, camera=camera)[0]
    alone = float((empty != empty[0, 0]).any(-1).mean())
    assert covered(-100.0) == pytest.approx(alone, abs=0.01)
    assert covered(-0.5) > alone + 0.1


def test_a_robot_that_falls_and_turns_is_drawn_where_it_is():
    cube = robots.load("cube")
    q = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.3826834, 0.9238795]])
    pictures = render(cube, q, width=60, height=90)
    rows = [np.nonzero((picture != picture[0, 0]).any(-1))[0].mean() for picture in pictures]
    assert rows[0] < 30 < 60 < rows[1]
