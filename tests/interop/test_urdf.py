# SPDX-License-Identifier: Apache-2.0
"""Exported URDF: Newton and MuJoCo read the identified robot from it."""

import xml.etree.ElementTree as ElementTree

import mujoco
import numpy as np
import pytest

from neurodyn import InputError, robots
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.interop import export_identified
from neurodyn.interop.identified import IdentifiedRobot
from neurodyn.interop.urdf import write_urdf
from neurodyn.sim.newton.build import read_asset
from tests.interop.runs import identified_run, mujoco_path, random_start, write_arm
from tests.robots.own_robots import write_arm as write_mesh_arm


def test_mujoco_moves_it_as_the_model(tmp_path):
    names = ("hinge.mass=2.7", "hinge.com.x=.02", "hinge.damping=.3", "hinge.friction=.1", "slider.upper=.6")
    model = identified_run(tmp_path / "run", "cartpole", *names, "hinge.origin.z=.05", "*.armature=.02", contact="soft")
    exported = export_identified(tmp_path / "run", "urdf")
    assert exported.left_out == ("slider.armature", "hinge.armature")  # of which a URDF knows nothing
    compiled = mujoco.MjModel.from_xml_path(str(exported.folder / "cartpole.urdf"))
    compiled.dof_armature[:] = 0.02
    state, torques = random_start(model, 50)
    ours = model.rollout(state, torques).q[0, 1:].numpy()
    np.testing.assert_allclose(mujoco_path(compiled, model, state, torques), ours, atol=1e-5)


def test_newton_reads_the_masses_of_links_with_all_that_is_fixed_to_them(tmp_path):
    robot = robots.load("franka")
    mechanism, _, _ = declared_mechanism(robot, None)
    changed = mechanism.with_quantities({"panda_joint7.mass": 2.5})
    (tmp_path / "out").mkdir()
    identified = IdentifiedRobot(
        "a run", robot, changed, free={"panda_joint7.mass": 2.5}, nominal={"panda_joint7.mass": 1.0}
    )
    assert write_urdf(identified, tmp_path / "out") == {"panda_joint7.mass"}
    builder = read_asset(tmp_path / "out" / "franka.urdf", meshes=False)
    masses = dict(zip((label.rsplit("/", 1)[-1] for label in builder.body_label), builder.body_mass, strict=True))
    for number, link in enumerate(changed.links, 1):
        assert masses[f"panda_link{number}"] == pytest.approx(link.mass, rel=1e-6)
    fixed = [joint.get("type") for joint in ElementTree.parse(tmp_path / "out" / "franka.urdf").iter("joint")]
    assert fixed.count("fixed") >= 2  # the gripper, which the model holds closed, among them


def test_meshes_lie_beside_the_urdf(tmp_path):
    robot = robots.load(write_mesh_arm(tmp_path, "urdf"))
    mechanism, _, _ = declared_mechanism(robot, None)
    (tmp_path / "out").mkdir()
    write_urdf(IdentifiedRobot("a run", robot, mechanism), tmp_path / "out")
    files = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    meshes = {mesh.get("filename") for mesh in ElementTree.parse(tmp_path / "out" / "my-arm.urdf").iter("mesh")}
    assert meshes < files
    assert len(meshes) == 2  # of one name in two folders


def test_a_robot_without_a_urdf_is_refused_before_anything_is_written(tmp_path):
    identified_run(tmp_path / "run", write_arm(tmp_path / "arm"), "elbow.mass=3", "elbow.limit_stiffness=5")
    with pytest.raises(InputError, match=r"the asset of robot 'arm' is arm\.xml; valid: mjcf, or a robot with a URDF"):
        export_identified(tmp_path / "run", "urdf")
    assert not (tmp_path / "run" / "urdf").exists()
