# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's actuators as drives: numbers, ranges and places; what is not modelled is named."""

import msgspec
import numpy as np
import pytest

from neurodyn.core.config import from_dict
from neurodyn.core.description.actuation import BodyWrench, DriveState, Muscle
from neurodyn.core.description.drive import Drive
from neurodyn.robots import Robot
from neurodyn.sim.mujoco.actuators import add_actuators, read_drives, takes_commands

mujoco = pytest.importorskip("mujoco")

BODIES = """<worldbody><site name="still"/><body name="fixed"/>
<body name="base" quat=".8 .6 0 0"><freejoint name="float"/><geom size=".1"/>
<body pos="0 0 .1" quat=".6 0 .8 0"><geom size=".02"/><site name="nozzle" pos=".1 0 0"/></body>
<body name="arm"><joint name="lift" type="slide" axis="0 0 1" actuatorfrcrange="-30 20"/><geom size=".1"/>
<body name="hand"><joint name="turn" axis="0 0 1" ref=".2"/><geom size=".1"/>
<body name="one"><joint name="left" type="slide" range="0 .04"/><geom size=".02"/></body>
<body name="two"><joint name="right" type="slide" axis="-1 0 0" range="0 .04"/><geom size=".02"/></body>
</body></body></body></worldbody>
<tendon><fixed name="both"><joint joint="left" coef=".5"/><joint joint="right" coef=".25"/></fixed>
<spatial name="rope"><site site="still"/><site site="nozzle"/></spatial></tendon>"""


def read(actuators, options=""):
    begin = f'<mujoco><compiler angle="radian" autolimits="true"/>{options}'
    text = f"{begin}{BODIES}<actuator>{actuators}</actuator></mujoco>"
    return read_drives(mujoco.MjModel.from_xml_string(text))


@pytest.mark.parametrize(
    ("actuator", "drive", "effort"),
    [
        ('<motor name="a" joint="lift" gear="5" ctrlrange="-1 2"/>',
         Drive(kind="affine", per_command=1.0, transmission={"lift": 5.0}, command_range=(-1.0, 2.0)), 6.0),
        ('<motor name="lift" joint="lift"/>', Drive(kind="affine", per_command=1.0), 30.0),
        ('<position name="a" joint="left" kp="80" kv="3" ctrlrange="0 .04" forcerange="-9 7"/>',
         Drive(kind="servo", kp=80.0, kd=3.0, transmission={"left": 1.0}, command_range=(0.0, 0.04),
               force_range=(-9.0, 7.0)), 9.0),
        ('<velocity name="a" joint="turn" kv="4" ctrlrange="-2 2"/>',
         Drive(kind="affine", per_command=4.0, kd=4.0, transmission={"turn": 1.0}, command_range=(-2.0, 2.0)), 8.0),
        ('<general name="a" tendon="both" gear="2" gainprm=".3" biastype="affine" biasprm="1 -100 -10"/>',
         Drive(kind="affine", per_command=0.3, offset=1.0, kp=100.0, kd=10.0,
               transmission={"left": 1.0, "right": 0.5}), None),
        ('<damper name="a" joint="left" kv="2" ctrlrange="0 1"/>',
         Drive(kind="affine", per_command=0.0, per_velocity=-2.0, transmission={"left": 1.0},
               command_range=(0.0, 1.0)), None),
        ('<muscle name="a" tendon="rope" lengthrange=".1 .4" force="7" timeconst=".02 .05"/>',
         Drive(kind="muscle", muscle=Muscle(force=7.0, lengths=(0.1, 0.4)), tendons={"rope": 1.0},
               state=DriveState(kind="muscle", time_constant=0.02, release=0.05)), 7.0),
        ('<adhesion name="a" body="hand" gain="3" ctrlrange="0 2"/>',
         Drive(kind="affine", per_command=3.0, adhesion="turn", command_range=(0.0, 2.0)), 6.0),
        ('<intvelocity name="a" joint="left" kp="50" actrange="0 .03"/>',
         Drive(kind="servo", kp=50.0, transmission={"left": 1.0},
               state=DriveState(kind="integrator", range=(0.0, 0.03))), 1.5),
        ('<general name="a" joint="left" dyntype="filterexact" dynprm=".02" actearly="true" gainprm="3"/>',
         Drive(kind="affine", per_command=3.0, transmission={"left": 1.0},
               state=DriveState(kind="filterexact", time_constant=0.02, early=True)), None),
    ],
)  # fmt: skip
def test_an_actuator_is_a_drive(actuator, drive, effort):
    found = read(actuator)
    (name,) = found.drives
    assert found.drives[name] == drive
    assert found.efforts[name] == pytest.approx(effort)
    assert found.joint_ranges == {"lift": (-30.0, 20.0)}
    assert from_dict(found.plain()[name], Drive) == drive
    assert not {"delay", "gain", "lag", "bias"} & found.plain()[name].keys(), "defaults are left out"


def test_a_ratio_of_damping_is_what_the_compiler_makes_of_it():
    found = read('<position name="a" joint="left" kp="80" dampratio="1"/>').drives["a"]
    assert found.kp == 80.0
    assert found.kd is not None
    assert found.kd > 0


def test_a_force_at_a_site_is_one_on_the_body_that_a_joint_moves():
    wrench = read('<motor name="a" site="nozzle" gear="0 0 2 0 0 .1"/>').drives["a"].wrench
    assert isinstance(wrench, BodyWrench)
    assert wrench.link == "float"
    turn = np.array([[-0.28, 0, 0.96], [0, 1, 0], [-0.96, 0, -0.28]])  # of the quaternion .6 0 .8 0
    np.testing.assert_allclose(wrench.point, [0, 0, 0.1] + turn @ [0.1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(wrench.force, turn @ [0, 0, 2], atol=1e-12)
    np.testing.assert_allclose(wrench.moment, turn @ [0, 0, 0.1], atol=1e-12)


@pytest.mark.parametrize(
    ("actuator", "reason"),
    [
        ('<general name="a" joint="left" gaintype="user"/>', "gain user; modelled: fixed, affine and muscle"),
        ('<general name="a" joint="left" gaintype="muscle" biastype="affine" lengthrange="0 1" '
         'gainprm=".75 1.05 -1 200 .5 1.6 1.5 1.3 1.2"/>', "gain muscle with bias affine"),
        ('<general name="a" joint="left" dyntype="user" actdim="1"/>', "dynamics user; modelled: integrator, filter"),
        ('<motor name="a" joint="left" damping="1"/>', "its own damping; modelled: none"),
        ('<motor name="a" site="still"/>', "its site does not move"),
        ('<adhesion name="a" body="fixed" gain="1" ctrlrange="0 1"/>', "its body is the world's"),
        ('<general name="a" body="hand" biastype="affine" biasprm="0 0 -1"/>', "depends on motion where nothing moves"),
    ],
)  # fmt: skip
def test_what_is_not_modelled_is_named_with_a_reason(actuator, reason):
    found = read(actuator + '<motor name="other" joint="lift"/>')
    assert list(found.drives) == ["other"]
    assert list(found.unmodelled) == ["a"]
    assert reason in found.unmodelled["a"]
    assert not found.motors


def test_torques_at_joints_are_distinguished_from_actuators_of_other_kinds():
    motors = '<motor name="a" joint="turn" gear="5"/><motor joint="left"/>'
    assert list(read(motors).drives) == ["a", "actuator1"]
    assert read(motors).motors
    assert not read(motors + '<motor joint="left"/>').motors, "two at a joint are no torque of their own"
    assert not read(motors + '<position joint="right" kp="3"/>').motors
    assert not read(motors + '<motor tendon="both"/>').motors
    assert not read(motors + '<motor joint="lift"/>').motors, "its joint takes 20 N upwards and 30 N downwards"
    assert not read(motors + '<motor joint="right" ctrlrange="-1 2"/>').motors


def test_drives_become_the_actuators_that_they_were_read_from():
    whole = (
        '<motor name="lift" joint="lift" ctrlrange="-1 2"/>'
        '<position name="b" joint="left" kp="80" kv="3" ctrlrange="0 .04" forcerange="-9 7"/>'
        '<general name="c" tendon="both" gear="2" gainprm=".3" biastype="affine" biasprm="1 -100 -10"/>'
        '<general name="d" joint="turn" gear="3" dyntype="filterexact" dynprm=".02" actearly="true" gainprm="3"/>'
        '<intvelocity name="e" joint="left" kp="50" actrange="0 .03"/>'
        '<motor name="f" site="nozzle" gear="0 .5 2 0 0 .1"/>'
        '<damper name="g" tendon="rope" kv="2" ctrlrange="0 1"/>'
        '<muscle name="h" joint="left" lengthrange=".1 .4" force="7" timeconst=".02 .05" tausmooth=".1"/>'
        '<motor name="i" joint="float" gear="1 2 3 .1 .2 .3"/>'
        '<motor name="j" jointinparent="float" gear="0 0 0 1 2 3"/>'
        '<position name="k" site="nozzle" refsite="still" gear="1 0 0 0 .5 0" kp="3"/>'
        '<motor name="l" cranksite="nozzle" slidersite="still" cranklength=".3" gear="2"/>'
        '<adhesion name="m" body="hand" gain="3" ctrlrange="0 2"/>'
    )
    drives = read(whole).drives
    joints = [{"name": "float", "kind": "free"}, *(
        {"name": name, "kind": "revolute" if name == "turn" else "prismatic"}
        for name in ("lift", "turn", "left", "right")
    )]  # fmt: skip
    robot = from_dict(
        {"name": "r", "joints": joints, "fixed_base": False, "dt": 0.02, "actuated": dict.fromkeys(drives, 1.0),
         "drives": read(whole).plain()}, Robot)  # fmt: skip
    assert takes_commands(robot)
    assert not takes_commands(msgspec.structs.replace(robot, drives=drives | {"b": Drive(kind="servo", kp=1.0, lag=0.1,
                              transmission={"left": 1.0})}))  # fmt: skip
    spec = mujoco.MjSpec.from_string(f'<mujoco><compiler angle="radian" autolimits="true"/>{BODIES}</mujoco>')
    add_actuators(spec, robot)
    again = read_drives(spec.compile()).drives
    assert list(again) == [f"neurodyn {name}" for name in drives]
    there = Drive(kind="affine", per_command=1.0, command_range=(-1.0, 2.0), transmission={"lift": 1.0})
    for name, drive in drives.items():
        assert again[f"neurodyn {name}"] == (there if name == "lift" else drive)


def test_switches_of_the_model_are_obeyed():
    motor = '<motor name="a" joint="lift" ctrlrange="-1 1"/>'
    assert not read(motor, '<option><flag actuation="disable"/></option>').drives
    unclamped = read(motor, '<option><flag clampctrl="disable"/></option>').drives["a"]
    assert unclamped == Drive(kind="affine", per_command=1.0, transmission={"lift": 1.0})
