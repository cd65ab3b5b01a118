# SPDX-License-Identifier: Apache-2.0
"""Servos and general actuators: MuJoCo's own steps to rounding, derivatives, and what cannot be."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.actuation import BodyWrench
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.geometry.rotation import rotate
from neurodyn.multibody.drives.actuators import share_within
from neurodyn.multibody.drives.drive_program import DriveProgram
from neurodyn.multibody.engine import Engine, EngineConfig
from neurodyn.sim.mujoco.actuators import read_drives
from tests.multibody import machines

mujoco = pytest.importorskip("mujoco")

F64 = torch.float64
DT = 0.004
JOINTS = ("shoulder", "elbow", "left", "right")
HAND = """<mujoco><compiler angle="radian" autolimits="true"/>
<option timestep="{dt}" integrator="implicitfast" jacobian="dense"/><worldbody>
<body name="upper"><joint name="shoulder" axis="0 1 0" damping=".1" armature=".01"{shoulder}/>
<inertial pos=".02 .01 -.15" mass="1.2" fullinertia=".012 .011 .003 .001 -.0005 .0002"/>
<body name="fore" pos="0 .05 -.3"><joint name="elbow" axis="0 .8 .6"/>
<inertial pos=".01 0 -.12" mass=".7" fullinertia=".006 .005 .002 0 .0003 0"/>
<body name="one" pos="0 .02 -.3"><joint name="left" type="slide" axis="0 1 0"/>
<inertial pos="0 0 -.02" mass=".05" diaginertia="1e-5 1e-5 1e-5"/></body>
<body name="two" pos="0 -.02 -.3"><joint name="right" type="slide" axis="0 -1 0"/>
<inertial pos="0 0 -.02" mass=".06" diaginertia="1e-5 2e-5 1e-5"/></body></body></body></worldbody>
<tendon><fixed name="split"><joint joint="left" coef=".5"/><joint joint="right" coef=".7"/></fixed></tendon>
<actuator>{actuators}</actuator></mujoco>"""

ACTUATORS = {
    "position servo": '<position name="a" joint="shoulder" kp="80" kv="3" ctrlrange="-.4 .5"/>',
    "damping ratio": '<position name="a" joint="shoulder" kp="80" dampratio="1.2" gear="3"/>',
    "limited servo": '<position name="a" joint="elbow" kp="200" kv="9" forcerange="-4 3"/>',
    "velocity servo": '<velocity name="a" joint="elbow" kv="7" gear="2"/>',
    "general": '<general name="a" joint="elbow" gainprm="11" biastype="affine" biasprm=".3 -5 -.8" gear="-2"/>',
    "motor": '<motor name="a" joint="elbow" gear="30" ctrlrange="-.2 .3"/>',
    "integrator": '<intvelocity name="a" joint="elbow" kp="60" kv="2" actrange="-.03 .03"/>',
    "filter": '<general name="a" joint="elbow" dyntype="filter" dynprm=".03" gainprm="9" actearly="true"/>',
    "exact filter": '<general name="a" joint="elbow" dyntype="filterexact" dynprm=".005" gainprm="9"/>',
    "tendon servo": '<position name="a" tendon="split" kp="400" kv="30" gear="1.5"/>',
    "tendon motor": '<motor name="a" tendon="split" gear="2"/>',
    "force at a site": '<motor name="a" site="tip" gear=".2 -.4 1 .05 .02 -.1"/>',
    "two at a joint": '<position name="a" joint="elbow" kp="90" kv="4"/><motor name="b" joint="elbow" gear="5"/>'
    '<velocity name="c" tendon="split" kv="3"/>',
}


def hand(actuators, shoulder=""):
    text = HAND.format(dt=DT, actuators=actuators, shoulder=shoulder)
    site = '<site name="tip" pos=".1 .2 -.3" quat=".5 .1 -.7 .2"/></body></body></worldbody>'
    return mujoco.MjModel.from_xml_string(text.replace("</body></body></worldbody>", site))


def mechanism(model):
    """The same, with its actuators as drives."""
    read = read_drives(model)
    assert not read.unmodelled

    def link(name, kind, parent, origin, axis, mass, com, inertia, **more):
        limits = {"effort_range": read.joint_ranges[name]} if name in read.joint_ranges else {}
        joint = machines.joint(name, kind, parent, origin, axis)
        return Link(joint=joint, mass=mass, com=com, inertia=inertia, **more, **limits)

    links = (
        link("shoulder", "revolute", -1, (0.0, 0.0, 0.0), (0.0, 1.0, 0.0), 1.2, (0.02, 0.01, -0.15),
             (0.012, 0.011, 0.003, 0.001, -0.0005, 0.0002), damping=0.1, armature=0.01),
        link("elbow", "revolute", 0, (0.0, 0.05, -0.3), (0.0, 0.8, 0.6), 0.7, (0.01, 0.0, -0.12),
             (0.006, 0.005, 0.002, 0.0, 0.0003, 0.0)),
        link("left", "prismatic", 1, (0.0, 0.02, -0.3), (0.0, 1.0, 0.0), 0.05, (0.0, 0.0, -0.02),
             (1e-5, 1e-5, 1e-5, 0.0, 0.0, 0.0)),
        link("right", "prismatic", 1, (0.0, -0.02, -0.3), (0.0, -1.0, 0.0), 0.06, (0.0, 0.0, -0.02),
             (1e-5, 2e-5, 1e-5, 0.0, 0.0, 0.0)),
    )  # fmt: skip
    return Mechanism(links=links, drives=read.drives)


def spec(tree: Mechanism) -> StateSpec:
    return machines.spec(tree, tuple(tree.drives), DT, "command")


def engine(tree, contact="soft", **config):
    return Engine(tree, spec(tree), EngineConfig(substeps=1, contact=contact, **config))


def motions(count, nu, frames, seed=0):
    """Random states and commands."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(count, 4)) * [0.5, 0.5, 0.02, 0.02]
    qd = rng.normal(size=(count, 4)) * [1.0, 1.0, 0.2, 0.2]
    return q, qd, rng.normal(size=(count, frames, nu)) * 0.4


def by_mujoco(model, q, qd, commands):
    data, after = mujoco.MjData(model), []
    for one, rate, run in zip(q, qd, commands, strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = one, rate
        for command in run:
            data.ctrl[:] = command
            mujoco.mj_step(model, data)
        after.append(np.concatenate([data.qpos, data.qvel]))
    return np.array(after)


def by_engine(made, q, qd, commands):
    start = np.concatenate([q, qd, np.zeros((len(q), made.memory))], 1)
    path = made.program.rollout(
        torch.from_numpy(start), frames=commands.shape[1], substeps=1, control=torch.from_numpy(commands)
    )
    return path[:, -1, :8].numpy()


@pytest.mark.parametrize("contact", ["soft", None])
@pytest.mark.parametrize("which", ACTUATORS)
def test_a_step_is_mujocos(which, contact):
    model = hand(ACTUATORS[which])
    tree = mechanism(model)
    if contact is None:  # passive damping of joints is explicit there
        links = tuple(msgspec.structs.replace(link, damping=0.0) for link in tree.links)
        tree, model.dof_damping[:] = msgspec.structs.replace(tree, links=links), 0.0
    frames = 5 if any(drive.remembers for drive in tree.drives.values()) else 1
    given = motions(30, model.nu, frames)
    np.testing.assert_allclose(by_engine(engine(tree, contact), *given), by_mujoco(model, *given), rtol=0, atol=1e-9)


def test_a_joint_limits_the_torque_of_all_its_actuators():
    both = '<position name="a" joint="shoulder" kp="90" kv="4"/><motor name="b" joint="shoulder" gear="5"/>'
    model = hand(both, ' actuatorfrcrange="-6 5"')
    given = motions(30, 2, 1)
    ours = by_engine(engine(mechanism(model)), *given)
    np.testing.assert_allclose(ours, by_mujoco(model, *given), rtol=0, atol=1e-9)
    assert np.abs(ours - by_mujoco(hand(both), *given)).max() > 1e-3


@pytest.mark.parametrize("which", ["position servo", "tendon servo", "filter", "integrator", "force at a site"])
def test_states_commands_and_numbers_have_the_derivatives_of_finite_differences(which):
    tree = mechanism(hand(ACTUATORS[which]))
    free = tuple(f"actuator.a.{name}" for name in ("kp", "kd", "per_command") if getattr(tree.drives["a"], name))
    made = engine(tree, free=free)
    q, qd, commands = motions(3, 1, 3, seed=1)
    start = torch.from_numpy(np.concatenate([q, qd], 1))

    def end(start, commands, values):
        whole = torch.cat([start, start.new_zeros(3, made.memory)], -1)
        path = made.program.rollout(whole, frames=3, substeps=1, control=commands, parameters=values)
        return path[:, -1, :8]

    given = [start, 0.5 * torch.from_numpy(commands), torch.tensor(made.nominal, dtype=F64)]
    given = [x.clone().requires_grad_(True) for x in given]
    assert torch.autograd.gradcheck(end, given, eps=1e-7, atol=1e-4, rtol=1e-4)


def test_a_stiff_servo_stays_stable_where_explicit_damping_explodes():
    model = hand('<position name="a" tendon="split" kp="1000" kv="200"/>')
    q, qd, commands = motions(1, 1, 200, seed=2)
    after = by_engine(engine(mechanism(model), None), q, qd, 0.0 * commands)
    assert np.abs(after[:, [2, 3, 6, 7]] @ [0.5, 0.7, 0.0, 0.0]).max() < 0.05


def test_a_thruster_pushes_in_the_frame_of_its_body():
    """Against MuJoCo, on a floating body that is turned."""
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep="{DT}"/><worldbody><body name="base"><freejoint name="base"/>'
        '<inertial pos="0 0 0" mass="2" diaginertia=".02 .03 .025"/><body pos=".1 0 .2" quat=".8 .6 0 0">'
        '<site name="s" pos="0 .1 0" quat="1 0 .2 0"/></body></body></worldbody><actuator>'
        '<motor name="a" site="s" gear="0 .3 2 0 0 .1"/></actuator></mujoco>'
    )
    link = Link(
        joint=machines.joint("base", "free"), mass=2.0, com=(0.0, 0.0, 0.0), inertia=(0.02, 0.03, 0.025, 0, 0, 0)
    )
    made = engine(Mechanism(links=(link,), drives=read_drives(model).drives))
    data, turn = mujoco.MjData(model), torch.tensor([0.1, -0.5, 0.3, 0.8], dtype=F64)
    turn = turn / turn.norm()
    spin = torch.tensor([0.3, -0.2, 0.5], dtype=F64)  # in the world
    data.qpos[3:] = [turn[3], *turn[:3]]
    data.qvel[3:] = rotate(turn * torch.tensor([-1.0, -1, -1, 1]), spin)
    data.ctrl[:] = 1.7
    mujoco.mj_step(model, data)
    start = torch.cat([torch.zeros(3), turn, torch.zeros(3), spin]).to(F64)[None]
    after = made.program.rollout(start, frames=1, substeps=1, control=torch.full((1, 1, 1), 1.7, dtype=F64))[0, -1]
    torch.testing.assert_close(after[7:10], torch.tensor(data.qvel[:3]), rtol=0, atol=1e-12)
    body = torch.tensor([*data.qpos[4:], data.qpos[3]])
    torch.testing.assert_close(after[10:], rotate(body, torch.tensor(data.qvel[3:])), rtol=0, atol=1e-12)


def test_drives_before_a_simulator_reach_the_joints_of_a_tendon():
    tree = mechanism(hand(ACTUATORS["two at a joint"]))
    program = DriveProgram(tree.drives, spec(tree), DT)
    assert program.joints == ("elbow", "left", "right")
    q, qd = (torch.tensor([x], dtype=F64) for x in ([0.1, 0.2, 0.01, 0.02], [0.0, 0.5, 0.1, -0.2]))
    torque, memory = program(torch.tensor([[0.3, 0.1, 0.4]], dtype=F64), q, qd, None)
    split = 3.0 * (0.4 - (0.5 * 0.1 - 0.7 * 0.2))
    wanted = [90.0 * (0.3 - 0.2) - 4.0 * 0.5 + 5.0 * 0.1, 0.5 * split, 0.7 * split]
    assert memory is None
    np.testing.assert_allclose(torque[0].numpy(), wanted, rtol=1e-12)


def test_what_is_no_joint_is_refused_with_a_line():
    tree = mechanism(hand(ACTUATORS["tendon servo"]))
    with pytest.raises(InputError, match="control 'b' is no joint; valid: a joint, or a drive of that name with a tra"):
        Engine(tree, msgspec.structs.replace(spec(tree), controls=("a", "b")), EngineConfig())
    with pytest.raises(InputError, match="'a' is an actuator, not a joint"):
        _ = spec(tree).control_dofs
    with pytest.raises(ValueError, match="drives: a joint is 'thumb'; valid: one of shoulder"):
        Mechanism(links=tree.links, drives={"a": Drive(kind="servo", kp=1.0, transmission={"thumb": 1.0})})
    wrench = Drive(kind="affine", per_command=1.0, wrench=BodyWrench(link="elbow", force=(0.0, 0.0, 1.0)))
    with pytest.raises(InputError, match="'a' acts elsewhere than at joints; valid here: hybrid dynamics"):
        DriveProgram({"a": wrench}, spec(tree), DT)


@pytest.mark.parametrize(("forces", "share"), [((3.0, 1.0), 0.5), ((-9.0, 1.0), 0.25), ((0.5, 0.5), 1.0), ((), 1.0)])
def test_forces_of_one_tendon_stay_within_its_limits(forces, share):
    assert share_within((-2.0, 2.0), forces) == pytest.approx(share)
