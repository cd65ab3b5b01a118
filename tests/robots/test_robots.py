# SPDX-License-Identifier: Apache-2.0
"""The robots that ship with the package, and anybody's own by path."""

import math
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml

from neurodyn import robots
from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError, Notice
from neurodyn.robots.declaration import Ranges
from neurodyn.robots.listing import list_robots


def test_every_shipped_robot_reads_and_is_named_like_its_folder():
    pendulums = {"dfki-a0", "dfki-c0", "dfki-c1", "ibm-pendulum", "pendulum"}
    shipped = {"a1", "ant", "anymal-c", "cartpole", "cube", "franka", "go2", "laikago", "planar-runner"} | pendulums
    assert shipped <= set(robots.names())
    for name in robots.names():
        assert robots.load(name).name == name


def test_reading_a_robot_needs_no_simulator():
    code = (
        "import sys; sys.modules['newton'] = None; sys.modules['warp'] = None\n"
        "from neurodyn import robots\n"
        "assert all(robots.load(name).spec.dt > 0 for name in robots.names())"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_cartpole_has_the_published_ranges():
    robot = robots.load("cartpole")
    assert robot.dt == 1 / 60
    assert robot.sampling_interval("q", "slider") == (-3.5, 3.5)
    assert robot.sampling_interval("control", "slider") == (-1500.0, 1500.0)
    assert robot.reset_interval("qd", "hinge") == (-1.0, 1.0)
    assert robot.invariant_joints == ("slider",)


def test_targets_of_drives_range_between_the_limits_of_joints():
    """Not over efforts, which are in other units: a policy would send targets of 40 rad."""
    robot = msgspec.structs.replace(robots.load("cartpole"), sampling=Ranges())
    joints = [
        msgspec.structs.replace(joint, lower=-2.0, upper=1.0) if joint.name == "slider" else joint
        for joint in robot.joints
    ]
    for drive, interval in (
        (Drive(kind="pd", kp=500.0, kd=20.0), (-2.0, 1.0)), (Drive(kind="velocity_servo", kd=20.0), (-75.0, 75.0))
    ):  # fmt: skip
        driven = msgspec.structs.replace(robot, joints=tuple(joints), drives={"slider": drive})
        assert driven.control_intervals() == (interval,)


def test_unknown_robot_lists_the_valid_ones():
    with pytest.raises(
        InputError,
        match=r"unknown robot 'cartpool' \(did you mean 'cartpole'\?\); valid: a1, ant, anymal-c, anymal-d, cart",
    ):
        robots.load("cartpool")


def test_a_shipped_name_that_is_also_a_folder_here_says_which_it_is(tmp_path, monkeypatch):
    folder = tmp_path / "pendulum"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("neurodyn.core.errors._given", Counter())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        robots.load("pendulum")  # a folder without a declaration is none of a robot
    (folder / "cartpole.urdf").write_text("<robot/>")
    text = robots.ROBOTS["cartpole"].read_text().replace("name: cartpole", "name: mine")
    (folder / "robot.yaml").write_text(text)
    with pytest.warns(Notice, match=r"'pendulum' is the one that ships with neurodyn, .* write \./pendulum for that"):
        assert robots.load("pendulum").name == "pendulum"
    assert robots.load("./pendulum").name == robots.load(Path("pendulum")).name == "mine"
    assert robots.locate(Path("pendulum")) == str(folder.resolve())
    assert robots.locate("pendulum") == "pendulum"


@pytest.mark.parametrize("form", ["file", "folder"])
def test_own_robot_loads_by_path(tmp_path, form):
    declaration = {
        "name": "own",
        "asset": "own.urdf",
        "joints": [{"name": "a", "kind": "revolute"}],
        "actuated": {"a": 1.0},
        "dt": 0.01,
    }
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(declaration))
    path = tmp_path if form == "folder" else tmp_path / "robot.yaml"
    with pytest.raises(InputError, match=r"asset .*own\.urdf does not exist"):
        robots.load(path)
    (tmp_path / "own.urdf").write_text("<robot/>")
    assert robots.load(path).name == "own"
    assert robots.load(str(path)).folder == str(tmp_path.resolve())


def test_folder_without_a_declaration_says_what_is_expected(tmp_path):
    with pytest.raises(InputError, match=r"expected one of robot\.yaml"):
        robots.load(tmp_path)


def test_listing_names_what_is_pretrained_of_existing_robots():
    found = {robot.name: robot for robot in list_robots()}
    assert found["cartpole"].joints == ("slider", "hinge")
    assert found["cartpole"].installed
    assert all(name.startswith("pretrained:") for robot in found.values() for name in robot.pretrained)


@pytest.mark.parametrize(("name", "extra"), [("franka", "robots"), ("ant", "newton")])
def test_missing_package_names_the_extra(monkeypatch, name, extra):
    monkeypatch.setattr("neurodyn.robots.assets.package_folder", lambda package: None)
    robot = robots.load(name)
    assert not robots.is_installed(robot)
    with pytest.raises(InputError, match=rf"pip install 'neurodyn\[{extra}\]'"):
        robots.asset_path(robot)


def test_contact_robots_declare_what_contact_needs():
    for name in ("pendulum", "cube", "ant", "anymal-c"):
        robot = robots.load(name)
        assert robot.simulator.solver == "mujoco"
        assert robot.simulator.substeps >= 4
        assert robot.contact_points is not None
        assert robot.named_ground() is not None
        assert robot.ground_sampling is not None


def test_the_pendulum_has_the_seven_published_grounds():
    Rotation = pytest.importorskip("scipy.spatial.transform", reason="scipy is not installed").Rotation
    robot = robots.load("pendulum")
    published = {  # offset [m], and rotations about x, y, z of a world whose y axis points up
        "none": (-15.5, 0, 0, 0),
        "plane-1": (0, 0, 0, 0),
        "plane-2": (0.2, math.pi / 8, math.pi / 16, math.pi / 16),
        "plane-3": (0.5, 0, 0, 0),
        "plane-4": (-0.5, 0, 0, 0),
        "plane-5": (-0.3, 0, 0, 0),
        "plane-6": (0, math.pi / 8, 0, 0),
    }
    assert set(robot.grounds) == set(published)
    for name, (offset, *angles) in published.items():
        (plane,) = robot.grounds[name].shapes
        normal = Rotation.from_euler("xyz", angles).apply([0, 1, 0])
        assert plane.position == (0.0, 0.0, offset)
        # y up becomes z up by a turn of +90 degrees about x.
        np.testing.assert_allclose(
            Rotation.from_quat(plane.rotation).apply([0, 0, 1]), [normal[0], -normal[2], normal[1]], atol=1e-8
        )
    assert robot.sampling_interval("control", "elbow") == (-1500.0, 1500.0)
    assert robot.reset_interval("qd", "elbow") == (-2.0, 2.0)
