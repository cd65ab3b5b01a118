# SPDX-License-Identifier: Apache-2.0
import math

import pytest
import torch

from neurodyn.core.description.scene import Heightfield, Mesh, Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.proximity import ProximityQuery
from tests.geometry.chains import at, contact_point_at

PROBER = ProximityQuery(contact_point_at())


def test_each_world_sees_the_scene_at_its_pose():
    """A plane at a tilted pose is a tilted plane; a shift along its normal is a height."""
    half = math.pi / 12
    tilt = (0.0, math.sin(half), 0.0, math.cos(half))
    pose = torch.tensor([[0.0, 0.0, 0.2, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, *tilt]])
    q, qd = at([[1.0, 0.0, 1.0]] * 2)
    readings = PROBER(Ground(Scene(shapes=(Plane(),)), pose), q, qd)
    normal = torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.0, math.sqrt(0.75)]], dtype=torch.float64)
    torch.testing.assert_close(readings.normal[:, 0], normal, atol=1e-7, rtol=0)
    expected = torch.tensor([0.8, 0.5 + math.sqrt(0.75)], dtype=torch.float64)
    torch.testing.assert_close(readings.distance[:, 0], expected, atol=1e-7, rtol=0)
    declared = PROBER(Ground(Scene(shapes=(Plane(rotation=tilt),))), q, qd)
    torch.testing.assert_close(readings.normal[1], declared.normal[1], atol=1e-7, rtol=0)


def test_another_pose_shares_what_was_compiled():
    ground = Ground(Scene(shapes=(Plane(),)))
    arrays = ground.compiled.arrays("cpu", torch.float32)
    assert ground.at_pose(torch.zeros(3, 7)).compiled.arrays("cpu", torch.float32) is arrays


def test_one_pose_serves_all_worlds():
    pose = torch.tensor([[0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0]])
    q, qd = at([[0.0, 0.0, 1.0], [0.0, 0.0, 2.0]])
    distance = PROBER(Ground(Scene(shapes=(Plane(),)), pose), q, qd).distance
    assert distance.flatten().tolist() == [0.5, 1.5]


def test_files_are_read_on_first_use(tmp_path):
    q, qd = at([[0.0, 0.0, 1.0]])
    for shape in (Mesh(file="none.obj"), Heightfield(file="none.npy", cell=0.1)):
        ground = Ground(Scene(shapes=(shape,), folder=str(tmp_path)))
        with pytest.raises(InputError, match=str(tmp_path / "none")):
            PROBER(ground, q, qd)
