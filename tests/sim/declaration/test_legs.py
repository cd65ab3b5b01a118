# SPDX-License-Identifier: Apache-2.0
"""Legs of robots without a keyframe: a biped's bent knees and level soles, hands that are no feet, bodies that lie."""

import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.robots import load
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.declaration.declare import declare
from neurodyn.sim.simulators import articulation
from neurodyn.tasks import load as load_task

SIDE = """<body name="{s}_hip" pos="0 {y} 0"><joint name="{s}_hip_yaw" axis="0 0 1" range="-1 1"/>
<geom size=".02" mass=".2" contype="0" conaffinity="0"/>
<body name="{s}_hip2"><joint name="{s}_hip_roll" axis="1 0 0" range="-.5 2"/>
<geom size=".02" mass=".2" contype="0" conaffinity="0"/>
<body name="{s}_thigh"><joint name="{s}_hip_pitch" axis="0 1 0" range="-2 2"/>
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass="2" contype="0" conaffinity="0"/>
<body name="{s}_shank" pos="0 0 -.3"><joint name="{s}_knee" axis="0 1 0" range="0 2.5"/>
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".025" mass="1" contype="0" conaffinity="0"/>
<body name="{s}_ankle" pos="0 0 -.3"><joint name="{s}_ankle_pitch" axis="0 1 0" range="-1 1"/>
<geom size=".02" mass=".1" contype="0" conaffinity="0"/>
<body name="{s}_foot"><joint name="{s}_ankle_roll" axis="1 0 0" range="-.4 .4"/>
<geom name="{s}_sole" type="box" size=".09 .04 .01" pos=".02 0 -.04" mass=".4"/>
</body></body></body></body></body></body>
<body name="{s}_arm" pos="0 {a} .4"><joint name="{s}_shoulder" axis="0 1 0" range="-2 2"/>
<geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass="1" contype="0" conaffinity="0"/>
<geom name="{s}_hand" size=".03" pos="0 0 -.33" mass=".1"/></body>"""
BIPED = f"""<mujoco><compiler angle="radian"/><worldbody><body name="pelvis" pos="0 0 .7"><freejoint/>
<geom type="box" size=".08 .1 .08" mass="5"/><geom type="box" size=".08 .15 .15" pos=".03 0 .3" mass="8"/>
{SIDE.format(s="left", y=0.1, a=0.22)}{SIDE.format(s="right", y=-0.1, a=-0.22)}</body></worldbody></mujoco>"""


def test_a_biped_stands_on_level_soles_below_its_centre_of_mass(tmp_path):
    (tmp_path / "biped.xml").write_text(BIPED)
    made = declare(tmp_path / "biped.xml", tmp_path / "biped")
    robot = load(tmp_path / "biped")
    assert robot.legs is not None
    assert set(robot.legs.feet) == {"left_sole", "right_sole"}
    joints = ("hip_pitch", "knee", "ankle_pitch")
    assert set(robot.legs.swing) == {f"{side}_{joint}" for side in ("left", "right") for joint in joints}
    assert robot.nominal["left_knee"] == pytest.approx(0.5, abs=1e-3)
    built = articulation(robot)
    place = [0.0, 0.0, robot.legs.height, 0.0, 0.0, 0.0, 1.0]
    motion = built.kinematics(np.array([place + [robot.nominal[joint.name] for joint in robot.joints[1:]]]))
    names = [joint.name for joint in built.joints]
    soles = []
    for side in ("left", "right"):
        foot = names.index(f"{side}_ankle_roll")
        assert motion.rotations[0, foot, 2, 2] > 0.9995  # level
        soles.append(motion.origins[0, foot] + motion.rotations[0, foot] @ [0.02, 0.0, -0.05])
    assert np.array(soles)[:, 2] == pytest.approx([0.0, 0.0], abs=2e-3)
    masses = np.array([link.mass for link in built.links])
    com = masses @ motion.centres[0] / masses.sum()
    assert np.mean(soles, 0)[:2] == pytest.approx(com[:2], abs=0.01)
    assert {"legs", "nominal"} <= {decision.what for decision in made.decisions}
    with pytest.raises(InputError, match=r"nothing drives it; add `actuated: \{JOINT: greatest torque\}`"):
        load_task(f"velocity@{tmp_path / 'biped'}")


def test_a_keyframe_with_a_lying_base_is_no_pose_to_stand_in(tmp_path):
    keys = """<keyframe><key qpos="0 0 .1 .7 0 .7 0 1 1 1 1 1 0 1 1 1 1 1 1 0 1"/>
<key qpos="0 0 .7 1 0 0 0 0 0 -.2 .4 -.2 0 .3 0 0 -.2 .4 -.2 0 .3"/></keyframe></mujoco>"""
    (tmp_path / "biped.xml").write_text(BIPED.replace("</mujoco>", keys))
    from neurodyn.sim.declaration.facts import read_facts

    pose = read_facts(tmp_path / "biped.xml").pose
    assert (pose["left_knee"], pose["right_hip_pitch"]) == (0.4, -0.2)


def test_a_robot_that_lies_on_its_base_has_no_legs(tmp_path):
    lying = BIPED.replace('<geom type="box" size=".08 .1 .08" mass="5"/>', '<geom size=".7" mass="5"/>')
    (tmp_path / "ball.xml").write_text(lying)
    made = declare(tmp_path / "ball.xml", tmp_path / "ball")
    why = next(decision.why for decision in made.decisions if decision.what == "legs")
    assert why == "its base lies on the ground"
    assert contact_point_layout(articulation(made.robot), made.robot).contact_points
    with pytest.raises(InputError, match="it declares no legs"):
        load_task(f"velocity@{tmp_path / 'ball'}")


def test_free_bodies_beside_another_are_no_legs_of_it(tmp_path):
    bodies = "".join(
        f'<body name="b{n}" pos="{n} 0 .3"><freejoint name="f{n}"/><geom size=".1" mass="1"/></body>' for n in (1, 2, 3)
    )
    first = bodies.replace('<geom size=".1" mass="1"/>', '<geom size=".1" pos="0 0 .5" mass="1"/>', 1)
    text = f'<mujoco><worldbody><geom type="plane" size="1 1 1"/>{first}</worldbody></mujoco>'
    (tmp_path / "balls.xml").write_text(text)
    made = declare(tmp_path / "balls.xml", tmp_path / "balls")
    assert made.robot.legs is None
    assert next(decision.value for decision in made.decisions if decision.what == "legs") == "none"


def test_soles_that_a_budget_cuts_are_noted_with_the_points_that_keep_them(tmp_path):
    box = 'name="{s}_sole" type="box" size=".09 .04 .01" pos=".02 0 -.04" mass=".4"'
    bars = [
        f'name="{{s}}_bar{k}" type="capsule" fromto="-.07 {y} -.04 .11 {y} -.04" size=".01" mass=".1"'
        for k, y in enumerate((-0.03, 0.0, 0.03))
    ]
    text = BIPED
    for side in ("left", "right"):
        text = text.replace(box.format(s=side), "/><geom ".join(bars).format(s=side))
    (tmp_path / "biped.xml").write_text(text)
    notes = {}
    for points in (10, 44):
        made = declare(tmp_path / "biped.xml", tmp_path / f"biped{points}", budget=points)
        notes[points] = [one.value for one in made.decisions if one.what == "note" and "soles" in one.value]
    assert notes[44] == []
    (told,) = notes[10]
    assert told.startswith("the soles lack 4 of their shapes")
    keeps = int(told.partition("--points ")[2].partition("`")[0])
    made = declare(tmp_path / "biped.xml", tmp_path / "whole", budget=keeps)
    assert not [one for one in made.decisions if one.what == "note" and "soles" in one.value]


@pytest.mark.parametrize(("up", "down", "knee"), [(-30, 110, 0.0), (0, 0, np.pi / 2)], ids=["bent", "straight"])
def test_legs_beside_the_body_stand_there_with_shanks_that_point_down(tmp_path, up: int, down: int, knee: float):
    legs = "".join(
        f"""<body pos="{x} {y} 0" euler="0 0 {900 * y}"><joint name="yaw{n}" axis="0 0 1"/><geom size=".02" mass=".1"/>
<body pos=".05 0 0" euler="0 {up} 0"><joint name="hip{n}" axis="0 1 0" range="-100 100"/>
<geom type="capsule" fromto="0 0 0 .09 0 0" size=".01" mass=".1"/>
<body pos=".09 0 0" euler="0 {down} 0"><joint name="knee{n}" axis="0 1 0" range="-100 100"/>
<geom type="capsule" fromto="0 0 0 .14 0 0" size=".01" mass=".1"/></body></body></body>"""
        for n, (x, y) in enumerate((x, y) for x in (0.2, 0.0, -0.2) for y in (0.1, -0.1))
    )
    trunk = f'<body name="trunk" pos="0 0 .2"><freejoint/><geom type="box" size=".2 .1 .03" mass="2"/>{legs}</body>'
    (tmp_path / "crab.xml").write_text(f"<mujoco><worldbody>{trunk}</worldbody></mujoco>")
    robot = declare(tmp_path / "crab.xml", tmp_path / "crab").robot
    assert robot.legs is not None
    assert len(robot.legs.feet) == 6
    assert all(robot.nominal[f"hip{n}"] == 0 for n in range(6))
    assert [robot.nominal[f"knee{n}"] for n in range(6)] == pytest.approx([knee] * 6, abs=0.02)
