# SPDX-License-Identifier: Apache-2.0
"""The velocity task of any robot: from a small quadruped's MJCF to a policy, and its quantities and rewards by hand."""

import math
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from neurodyn.control.resolve import open_dynamics
from neurodyn.control.starts import SampledStarts, home_ground
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.quantities import Quantities
from neurodyn.policy.artifact import load_policy, task_of
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.worlds.disturbances import disturbances_of
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.robots import load as load_robot
from neurodyn.sim.declaration.declare import declare
from neurodyn.sim.engine import import_mujoco
from neurodyn.sim.mujoco.build import build_model
from neurodyn.sim.simulators import articulation
from neurodyn.tasks import ObservationTerm, load
from neurodyn.tasks.observations import each
from neurodyn.tasks.velocity import Velocity
from tests.policy.small_worlds import TINY
from tests.tasks.quantities import rates, standing, walking_memory

BRIEF = msgspec.structs.replace(TINY, iterations=1, evaluations=0)

LEG = """<body name="{name}_thigh" pos="{x} {y} 0">
  <joint name="{name}_thigh" axis="0 1 0" range="-1.5 1.5" armature="0.01"/>
  <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.5" contype="0" conaffinity="0"/>
  <body name="{name}_calf" pos="0 0 -0.2">
    <joint name="{name}_calf" axis="0 1 0" range="-2.5 0.1" armature="0.01"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.015" mass="0.2" contype="0" conaffinity="0"/>
    <geom name="{name}" size="0.025" pos="0 0 -0.2" mass="0.05" condim="1"/>
  </body></body>"""
LEGS = {"FL": (0.2, 0.1), "FR": (0.2, -0.1), "RL": (-0.2, 0.1), "RR": (-0.2, -0.1)}
JOINTS = [f"{leg}_{joint}" for leg in LEGS for joint in ("thigh", "calf")]
QUADRUPED = f"""<mujoco><compiler angle="radian"/><option timestep="0.005" iterations="1"/><worldbody>
<geom type="plane" size="0 0 1" priority="1" condim="3" friction="0.6"/>
<body name="trunk" pos="0 0 0.5"><freejoint/>
<geom type="box" size="0.25 0.08 0.05" mass="4"/><geom size="0.02" pos="0.15 0.05 0.08" mass="1"/>
{"".join(LEG.format(name=name, x=x, y=y) for name, (x, y) in LEGS.items())}
</body></worldbody><actuator>
{"".join(f'<position name="{joint}" joint="{joint}" kp="40" kv="1" forcerange="-64 64"/>' for joint in JOINTS)}
</actuator></mujoco>"""


def declare_quadruped(place: Path) -> Path:
    """Write the quadruped's MJCF and its declaration, `dog`, and return the folder of the latter."""
    (place / "dog.xml").write_text(QUADRUPED)
    declare(place / "dog.xml", place / "dog")
    return place / "dog"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return declare_quadruped(tmp_path_factory.mktemp("quadruped"))


@pytest.fixture(scope="module")
def task(folder) -> Velocity:
    found = load(f"velocity@{folder}")
    assert isinstance(found, Velocity)
    return found


@pytest.fixture(scope="module")
def dynamics(task):
    return AnalyticDynamics(task.declaration())


def test_init_finds_the_legs(folder):
    robot = load_robot(folder)
    assert robot.legs is not None
    assert set(robot.legs.feet) == set(LEGS)
    assert set(robot.legs.swing) == set(JOINTS)
    assert set(robot.contacts) == {*LEGS, "base"}
    built = articulation(robot)
    q = np.array([0, 0, robot.legs.height, 0, 0, 0, 1, *(robot.nominal[name] for name in JOINTS)], dtype=float)[None]
    motion = built.kinematics(q)
    for leg in LEGS:  # on the ground, below the hips, knees bent
        thigh, calf = ([joint.name for joint in built.joints].index(f"{leg}_{joint}") for joint in ("thigh", "calf"))
        foot = motion.origins[0, calf] + motion.rotations[0, calf] @ [0, 0, -0.2]
        assert foot[2] - 0.025 == pytest.approx(0.0, abs=2e-3)
        assert foot[0] == pytest.approx(motion.origins[0, thigh, 0], abs=0.02)
        assert robot.nominal[f"{leg}_calf"] < -0.3


def test_a_floor_of_the_asset_decides_on_friction_and_its_solver_converges(folder):
    robot = load_robot(folder)
    assert robot.simulator.iterations == 100  # of 1 in the asset
    model = build_model(msgspec.structs.replace(robot, material=None), robot.named_ground()).model
    foot = model.geom("FL")
    assert int(foot.condim[0]) == 3  # of the floor, whose priority is greater; the asset's feet have 1
    assert float(foot.friction[0]) == 0.6


SLEDGE = """<mujoco><option timestep="0.005"/><worldbody><geom name="floor" type="plane" size="0 0 1" {floor}/>
<body name="sledge" pos="0 0 0.0499"><freejoint/><geom name="runner" type="box" size="0.2 0.1 0.05" mass="2" {own}/>
<body name="flag" pos="0 0 0.05"><joint name="flag" axis="0 1 0" damping="1"/>
<geom size="0.02" mass="0.1" contype="0" conaffinity="0"/></body></body></worldbody>{pair}</mujoco>"""


@pytest.mark.parametrize(
    ("own", "floor", "pair"),
    [
        ('condim="1"', 'friction="0.3" priority="1"', ""),
        ('condim="1" friction="0.2"', 'friction="0.5"', ""),
        ('friction="0.7" priority="2"', 'friction="0.1"', ""),
        (
            'contype="0" conaffinity="0"', 'friction="0.1"',
            '<contact><pair geom1="floor" geom2="runner" condim="3" friction="0.4 0.4"/></contact>',
        ),
    ],
)  # fmt: skip
def test_shapes_slide_on_our_ground_as_on_the_floor_of_the_asset(own, floor, pair, tmp_path):
    text = SLEDGE.format(own=own, floor=floor, pair=pair)
    (tmp_path / "sledge.xml").write_text(text)
    (tmp_path / "robot.yaml").write_text(
        "name: sledge\nasset: sledge.xml\ndt: 0.005\nfixed_base: false\nactuated: {}\n"
        "joints: [{name: base, kind: free}, {name: flag, kind: revolute, continuous: true}]\n"
        "simulator: {solver: mujoco-c, substeps: 1}\ngrounds: {flat: {shapes: [{kind: plane}]}}\nground: flat\n"
        "contact_points: {}\n"
    )
    mujoco = import_mujoco()
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    data.qvel[:2] = 1.0, 0.3
    for _ in range(30):
        mujoco.mj_step(model, data)
    robot = load_robot(tmp_path)
    ours = build_model(robot, robot.named_ground()).model
    mine = mujoco.MjData(ours)
    mine.qvel[:2] = 1.0, 0.3
    for _ in range(30):
        mujoco.mj_step(ours, mine)
    assert 0.01 < 1.0 - data.qvel[0] < 1.0  # it is braked
    np.testing.assert_allclose(mine.qvel[:6], data.qvel[:6], atol=1e-6)


def test_actions_bend_servos_by_a_quarter_of_their_force(task, folder):
    robot = load_robot(folder)
    assert task.action_scale == pytest.approx((0.25 * 64 / 40,) * 8)
    assert task.declaration().dt == pytest.approx(0.02)
    assert task.declaration().simulator.substeps == 2 * robot.simulator.substeps
    control = task.control(torch.ones(1, 8), Quantities("a test", {}), walking_memory(task))
    assert control.target is not None
    np.testing.assert_allclose(control.target[0], np.array(robot.nominal_q()) + 0.4, rtol=1e-5)
    torch.testing.assert_close(task.action_of(control.target), torch.ones(1, 8))


def test_a_robot_with_pd_drives_keeps_them(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "dog")
    declared = yaml.safe_load((tmp_path / "dog" / "robot.yaml").read_text())
    declared.pop("gains", None)
    drives = {"*_thigh": {"kind": "pd", "kp": 50.0, "kd": 2.0}, "*_calf": {"kind": "pd", "kp": 30.0, "kd": 1.0}}
    (tmp_path / "dog" / "robot.yaml").write_text(yaml.safe_dump({**declared, "drives": drives}))
    task = load(f"velocity@{tmp_path / 'dog'}")
    assert {drive.kind for drive in task.declaration().drives.values()} == {"pd"}
    control = task.control(torch.zeros(1, 8), Quantities("a test", {}), walking_memory(task))
    gains = {"thigh": (50.0, 2.0), "calf": (30.0, 1.0)}
    assert list(zip(*control.kp.tolist(), *control.kd.tolist(), strict=True)) == [
        gains[name.partition("_")[2]] for name in task.actions
    ]


def test_it_stands_in_the_nominal_pose_with_its_feet_at_rest(task, dynamics, monkeypatch):
    monkeypatch.setattr(task, "fastest", (1e-3, 1e-3, 1e-3))  # pushes are as small
    environment = PolicyEnvironment(task, dynamics, SampledStarts(task, seed=0), 4)
    for _ in range(50):
        environment.step(torch.zeros(4, 8))
    now = environment.now
    feet = [now.contact_names.index(leg) for leg in LEGS]
    assert now["contact_height"][:, feet].abs().max() < 0.01
    assert now["contact_speed"][:, feet].max() < 0.05
    assert (now["contact_height"][:, now.contact_names.index("base")] > 0.1).all()
    assert not task.terminated(now, environment.memory).any()
    assert (now["base_height"] - task.legs.height).abs().max() < 0.05


def test_feet_move_as_a_rigid_body_does(task, dynamics):
    """The speed of a foot is v + w x (p - c), horizontally, with c the off-centre mass of a rotated base."""
    robot = task.declaration()
    built = articulation(robot)
    turn = torch.tensor([0.2, -0.1, 0.5])
    half = 0.5 * turn.norm()
    quaternion = torch.cat([turn / turn.norm() * half.sin(), half.cos()[None]])
    q = torch.cat([torch.tensor([0.3, -0.2, 0.6]), quaternion, torch.tensor(robot.nominal_q())])[None].float()
    qd = torch.zeros(1, robot.spec.nv)
    qd[0, :6] = torch.tensor([0.4, -0.3, 0.2, 0.5, -0.7, 0.9])
    motion = built.kinematics(q.double().numpy())
    read = dynamics.quantities(State(q, qd), environment=home_ground(task))
    com = motion.origins[0, 0] + motion.rotations[0, 0] @ np.array(built.base_com)
    assert abs(built.base_com[0]) > 0.01
    for number, leg in enumerate(read.contact_names):
        if leg == "base":
            continue
        calf = [joint.name for joint in built.joints].index(f"{leg}_calf")
        foot = motion.origins[0, calf] + motion.rotations[0, calf] @ [0, 0, -0.2]
        velocity = qd[0, :3].numpy() + np.cross(qd[0, 3:6].numpy(), foot - com)
        assert float(read["contact_speed"][0, number]) == pytest.approx(np.hypot(*velocity[:2]), rel=1e-3)
        assert float(read["contact_height"][0, number]) == pytest.approx(foot[2] - 0.025, abs=1e-5)


def _quantities(task: Velocity, **given: Tensor) -> Quantities:
    names = task.contacts
    feet = {"base_height": torch.full((1, 1), task.legs.height), "contact_height": torch.zeros(1, len(names)),
            "contact_speed": torch.zeros(1, len(names))}  # fmt: skip
    return standing(task, names, **(feet | given))


def test_standing_as_asked_is_worth_tracking_uprightness_and_pose(task):
    earned = rates(task, _quantities(task), walking_memory(task), torch.zeros(1, 8))
    paid = {name: rate for name, rate in earned.items() if rate != 0.0}
    assert paid == pytest.approx(
        {"track_velocity": 3.0, "track_turning": 2.0, "upright": 1.0, "pose": 0.5, "gait": 1.0}
    )


def test_a_joint_far_from_its_pose_hides_none_of_the_others(task):
    moved = torch.zeros(1, 8)
    moved[0, 0] = 9.0
    quantities = _quantities(task, joint_position=task.joint_nominal(moved) + moved)
    earned = rates(task, quantities, walking_memory(task), torch.zeros(1, 8))
    assert earned["pose"] == pytest.approx(0.5 * 7 / 8, rel=1e-3)
    assert task.presets == ()


def test_terms_by_hand(task):
    names = list(task.contacts)
    feet = [names.index(foot) for foot in task.feet]
    contact, height, speed = (torch.zeros(1, len(names)) for _ in range(3))
    contact[0, feet[:2]], speed[0, feet], height[0, feet[2:]] = 1.0, 0.5, 0.01
    high = torch.tensor([0.1 - 0.05 * 2.6 + 0.03 if name.endswith("calf") else 0.0 for name in JOINTS])
    quantities = _quantities(
        task, contact=contact, contact_height=height, contact_speed=speed, joint_position=high[None],
        base_linear_velocity=torch.tensor([[0.5, 0.1, 0.2]]), base_angular_velocity=torch.tensor([[0.3, 0.4, -0.5]]),
        projected_gravity=torch.tensor([[0.6, 0.0, -0.8]]),
    )  # fmt: skip
    memory = walking_memory(task, (1.0, 0.0, 0.5))
    memory.command[:, 4] = 0.5 * math.pi - task.stride  # at the end of the frame, the first diagonal is to be highest
    earned = rates(task, quantities, memory, torch.full((1, 8), 0.5))
    assert earned["track_velocity"] == pytest.approx(3.0 * math.exp(-4.0 * (0.25 + 0.01 + 0.04)), rel=1e-5)
    assert earned["track_turning"] == pytest.approx(2.0 * math.exp(-2.0 * 1.0), rel=1e-5)
    assert earned["roll_and_pitch"] == pytest.approx(-0.05 * 0.25, rel=1e-5)
    assert earned["upright"] == pytest.approx(math.exp(-5.0 * 0.36), rel=1e-5)
    assert earned["limits"] == pytest.approx(-4 * 0.03, rel=1e-3)
    assert earned["action_change"] == pytest.approx(-0.01 * 8 * 0.25, rel=1e-5)
    assert earned["slip"] == pytest.approx(-0.2 * 1.0, rel=1e-5)
    lift = min(0.1, 0.15 * task.legs.height)
    off = [lift, 0.0, 0.01, lift - 0.01]  # the first two touch, the others are at 1 cm: feet 0 and 3 are due
    assert earned["gait"] == pytest.approx(math.exp(-sum((x / (0.5 * lift)) ** 2 for x in off) / 4), rel=1e-4)


def test_feet_are_lifted_higher_on_terrains(task):
    height = torch.zeros(1, len(task.contacts))
    memory = walking_memory(task, (1.0, 0.0, 0.0))
    memory.command[:, 4] = 0.5 * math.pi - task.stride
    high = min(0.1, 0.25 * task.legs.height)
    for beat, foot in zip(task._beat, task.feet, strict=True):
        height[0, task.contacts.index(foot)] = 0.0 if beat else high
    quantities = _quantities(task, contact_height=height)
    earned = [rates(one, quantities, memory, torch.zeros(1, 8))["gait"] for one in (task.on_terrain(), task)]
    low = 0.15 * task.legs.height
    assert earned == pytest.approx([1.0, math.exp(-0.5 * ((high - low) / (0.5 * low)) ** 2)], rel=1e-4)


def test_the_gait_goes_on_whatever_is_commanded_and_is_seen_only_when_walking(task, dynamics):
    world = PolicyEnvironment(task, dynamics, SampledStarts(task, 0), 64, noisy=False)
    column = task.observations.index("clock.sin")
    phases = []
    for _ in range(130):  # longer than any command
        memory = world.memory
        phases.append(memory.command[:, 4])
        standing = memory.command[:, :3].norm(dim=-1) < 0.05
        clock = world.seen[:, [column, column + 1]]
        wanted = torch.stack([phases[-1].sin(), phases[-1].cos()], -1).masked_fill(standing[:, None], 0.0)
        torch.testing.assert_close(clock, wanted)
        frame = world.step_frame(torch.zeros(64, 8))
        phases[-1] = phases[-1].masked_fill(frame.done, math.nan)
    turned = torch.stack(phases).diff(dim=0).remainder(2 * math.pi)
    known = turned[~turned.isnan()]
    assert len(known) > 64 * 60
    torch.testing.assert_close(known, torch.full_like(known, task.stride), atol=1e-4, rtol=0)
    assert 3 + len(task.unseen_command) == memory.command.shape[1]
    assert task.stride == pytest.approx(2 * math.pi * 0.02 * 0.35 * math.sqrt(9.81 / task.legs.height), rel=1e-6)


@pytest.mark.parametrize("order", [("FL", "FR", "RL", "RR"), ("FL", "RR", "FR", "RL")])
def test_diagonal_feet_are_lifted_together_whatever_their_order(folder, tmp_path, order):
    shutil.copytree(folder, tmp_path / "dog")
    file = tmp_path / "dog" / "robot.yaml"
    tree = yaml.safe_load(file.read_text())
    tree["legs"]["feet"] = list(order)
    file.write_text(yaml.safe_dump(tree))
    task = Velocity(str(tmp_path / "dog"))
    phase = dict(zip(task.feet, task._beat, strict=True))
    assert phase["FL"] == phase["RR"] != phase["FR"] == phase["RL"]


def test_pushes_are_as_strong_as_the_learner_wants(task, dynamics):
    pushes = disturbances_of(["push.velocity=2:2", "push.interval=.02:.02"], task)
    sideways = []
    for share in (0.0, 0.5, 1.0):
        world = PolicyEnvironment(task, dynamics, SampledStarts(task, 0), 8, noisy=False, disturbed=pushes)
        world.push_share = share
        world.step_frame(torch.zeros(8, 8))
        sideways.append(world.now["base_linear_velocity"][:, :2])
    none, half, whole = sideways
    assert (half - none).norm(dim=-1) == pytest.approx(1.0, rel=0.2)
    torch.testing.assert_close(whole - none, 2.0 * (half - none), rtol=0.1, atol=0.1)


def test_rewards_of_the_gait_have_gradients(task):
    names, memory = list(task.contacts), walking_memory(task, (1.0, 0.0, 0.5))
    height = torch.full((1, len(names)), 0.013, dtype=torch.float64, requires_grad=True)

    def gait(height: Tensor) -> Tensor:
        return task.reward(_quantities(task, contact_height=height), memory, torch.zeros(1, 8))["gait"]

    assert torch.autograd.gradcheck(gait, height)


class Clearance(Velocity):
    """Velocity tracking that also sees how high the feet are."""

    def observation_terms(self):
        groups = super().observation_terms()
        height = ObservationTerm(
            "clearance", lambda now, memory: self._of_feet(now, "contact_height"), each("clearance.{}", self.feet),
            0.01, sensor="camera",
        )  # fmt: skip
        return {**groups, "policy": (*groups["policy"], height)}


def test_a_further_term_is_seen_with_its_noise(task, folder, dynamics):
    further = Clearance(str(folder))
    seen = (*task.observations, *(f"clearance.{foot}" for foot in task.feet))
    assert further.observations == seen
    assert further.observing("state").observations[-4:] == seen[-4:]
    worlds = [
        PolicyEnvironment(further, dynamics, SampledStarts(further, 0), 4, noisy=noisy) for noisy in (False, True)
    ]
    error = (worlds[1].seen - worlds[0].seen)[:, -4:].abs()
    assert 0.0 < float(error.min()) < float(error.max()) <= 0.01


def test_it_has_fallen_when_tilted_low_or_on_its_trunk(task):
    memory, names = walking_memory(task), task.contacts
    assert not task.terminated(_quantities(task), memory).any()
    lying = torch.tensor([[float(name == "base") for name in names]])
    for given in (
        {"projected_gravity": torch.tensor([[0.9, 0.0, -0.4]])},
        {"base_height": torch.full((1, 1), 0.5 * task.legs.height)},
        {"contact": lying},
    ):
        assert task.terminated(_quantities(task, **given), memory).all()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("velocity@cartpole", "its base is bolted to the world; valid: a robot with a floating base and feet"),
        ("velocity@ant", "declares no legs; valid: `legs:"),
        ("velocity", "is for any robot; valid: velocity@ROBOT"),
        ("velocity@nowhere", "unknown robot 'nowhere'"),
    ],
)
def test_robots_that_cannot_walk_are_refused(name, why):
    with pytest.raises(InputError, match=why):
        load(name)


def test_a_fresh_declaration_trains_and_its_policy_follows_the_robot_where_it_moves(folder, tmp_path):
    here = tmp_path / "dog"
    shutil.copytree(folder, here)
    task = load(f"velocity@{here}")
    train_policy(task, open_dynamics(task, "analytic"), tmp_path / "policy", BRIEF)
    config, _ = load_policy(tmp_path / "policy")
    assert config.actions == task.actions
    there = tmp_path / "moved"
    here.rename(there)
    with pytest.raises(InputError, match="if its robot has moved, give --task velocity@ROBOT"):
        task_of(config, None, "policy")
    assert task_of(config, f"velocity@{there}", "policy").actions == task.actions
    with pytest.raises(MismatchError, match=r"its observations lack .*FL_hip_joint.* and have .*FL_calf"):
        task_of(config, "velocity@go2", "policy")
