# SPDX-License-Identifier: Apache-2.0
"""Objects on slides of their own start clear of the ground; joints that their damping holds start at rest; heights."""

import msgspec
import numpy as np
import pytest

import neurodyn
from neurodyn.core.description.contacts import ChainJoint, ContactPointLayout
from neurodyn.core.description.scene import IDENTITY
from neurodyn.evaluate.checks import run as checks
from neurodyn.evaluate.checks.findings import CheckFinding, CheckResult
from neurodyn.robots import load
from neurodyn.sim.declaration.declare import declare
from neurodyn.sim.declaration.heights import held_by_damping, lifting_joints
from neurodyn.sim.declaration.pose import standing_height
from neurodyn.sim.interface import AssetJoint
from neurodyn.sim.sampling import sample_states
from neurodyn.sim.simulators import simulator

HELD_ARM_AND_BALL = """<mujoco><compiler angle="radian" autolimits="true"/>
<worldbody><geom type="plane" size="5 5 .1"/>
  <body name="stand" pos="0 0 .6"><joint name="lift" type="slide" axis="0 0 1" damping="1e11" armature="1e-4"/>
    <geom type="sphere" size=".05" mass="5"/>
    <body name="arm"><joint name="shoulder" axis="0 1 0" range="-1 1" damping=".5" armature=".05"/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass="1"/></body></body>
  <body name="ball" pos=".2 .3 0"><joint name="ball_x" type="slide" axis="1 0 0"/>
    <joint name="ball_z" type="slide" axis="0 0 1"/><geom type="sphere" size=".08" mass=".2"/></body>
</worldbody><actuator><motor joint="shoulder" ctrlrange="-5 5"/></actuator>
<keyframe><key name="ready" qpos="0 0 0 .08"/></keyframe></mujoco>"""


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    folder = tmp_path_factory.mktemp("held")
    (folder / "held.xml").write_text(HELD_ARM_AND_BALL)
    return neurodyn.robots.load(declare(folder / "held.xml", folder / "held").path)


def test_an_object_starts_just_clear_of_the_ground_and_the_held_arm_where_it_is(robot):
    low, high = robot.reset.q["ball_z"]
    assert (low, high) == (pytest.approx(0.08, abs=1e-3), pytest.approx(0.11, abs=1e-3))
    assert robot.reset.q["lift"] == (-0.1, 0.1), "not lifted: its damping holds it"
    q, _ = sample_states(robot, 16, np.random.default_rng(0), reset=True)
    assert q[:, robot.spec.q_names.index("ball_z")].min() >= 0.08 - 1e-3


def test_a_joint_that_its_damping_holds_gets_no_speed_that_breaks_the_simulation(robot):
    fastest = robot.sampling.qd["lift"][1]
    assert 0 < 1e11 * fastest < 200 * 9.81 * 6.2
    assert robot.sampling.qd["shoulder"] == (-5.0, 5.0)
    worlds = simulator(robot, 8)
    q, qd = sample_states(robot, 8, np.random.default_rng(0))
    stepped = worlds.step(q, qd, q.new_zeros(8, 1))
    assert all(bool(one.isfinite().all()) for one in stepped[:2])


def test_variants_are_judged_by_what_the_first_one_failed_and_the_long_check_comes_last(robot, monkeypatch):
    failing, asked = {"asset", "rest"}, []

    def checked(name):
        def check(_):
            asked.append(name)
            grade = "fails" if name in failing else "ok"
            return CheckResult(findings=[CheckFinding(what=name, verdict=grade, advice="raise substeps")])

        return check

    monkeypatch.setattr(checks, "CHECKS", {name: checked(name) for name in ("rest", "convergence", "asset")})
    judge = checks.Acceptance()
    assert judge(robot) == "check fails (rest, asset): raise substeps"
    assert asked == ["rest", "convergence", "asset"]
    asked.clear()
    assert judge(robot) == "check fails (asset): raise substeps"
    failing.clear()
    assert judge(robot) is None
    assert asked == ["asset", "asset", "rest", "convergence"]


def test_what_lifts_is_an_unlimited_vertical_slide_that_no_other_lifts():
    def slide(name: str, parent: int, axis: tuple[float, float, float] = (0.0, 0.0, 1.0)) -> ChainJoint:
        return ChainJoint(
            name=name, kind="prismatic", parent=parent, parent_frame=IDENTITY, child_frame=IDENTITY, axis=axis
        )

    cart = slide("cart", -1, (1.0, 0.0, 0.0))
    joints = [slide("mast", -1), slide("hook", 0), cart, slide("ball", -1), slide("fork", -1)]
    layout, some = (ContactPointLayout(joints=tuple(part), contact_points=()) for part in (joints, joints[:3]))
    read = [AssetJoint(one.name, one.kind, 0.0 if one.name == "fork" else None) for one in joints]
    assert lifting_joints(read, layout, held=()) == {"mast": False, "ball": False}
    assert lifting_joints(read, layout, held=["mast"]) == {"hook": False, "ball": False}
    assert lifting_joints(read[:3], some, held=()) == {"mast": True}
    assert held_by_damping({"mast": 1e-8, "ball": 0.5}) == {"mast"}


def test_a_robot_stands_on_the_lowest_of_its_contact_points():
    robot = load("cube")
    assert standing_height(robot) == pytest.approx(0.0524)
    assert standing_height(msgspec.structs.replace(robot, contact_points=None)) == 0.0
