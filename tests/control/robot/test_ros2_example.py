# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 node of the examples, with stand-ins of rclpy and its messages."""

import sys
from types import SimpleNamespace

import mujoco
import numpy as np
import pytest
import torch
import yaml

from neurodyn.control.task_frames import TaskFrames
from neurodyn.dynamics import declared_hybrid
from neurodyn.interop import export_identified, export_policy
from neurodyn.policy.artifact import load_policy
from neurodyn.tasks import load
from tests.control.robot import ros_stub
from tests.control.robot.ros_stub import CLOCK, EXAMPLE, Message, example

WALK = yaml.safe_load((EXAMPLE / "policy.yaml").read_text())["policy"]["ros__parameters"]
QUATERNION = np.array([0.1, -0.2, 0.3, 0.927361849549])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("policies")
    for name in ("cartpole", "anymal-velocity"):
        export_policy(f"pretrained-policy:{name}", folder / f"{name}.onnx")
    return folder


@pytest.fixture
def make(files, monkeypatch):
    ros_stub.stub(monkeypatch)
    monkeypatch.setitem(sys.modules, "policy", example("policy.py"))
    monkeypatch.setattr(CLOCK, "seconds", 10.0)

    def made(policy, **parameters):
        monkeypatch.setattr(ros_stub, "PARAMETERS", {"model": str(files / f"{policy}.onnx"), **parameters})
        return example("policy_node.py").PolicyNode()

    return made


def vector(values):
    return Message(**dict(zip("xyz", map(float, values), strict=True)))


def sense(node, q, qd, spin=(0.0, 0.0, 0.0), quaternion=(0.0, 0.0, 0.0, 1.0), linear=(0.0, 0.0, 0.0),
          force=(0.0, 0.0, 9.81), effort=()):  # fmt: skip
    """Send a walking robot's messages."""
    node.callbacks["joint_states"](
        Message(name=WALK["joints"], position=list(q), velocity=list(qd), effort=list(effort))
    )
    turn = Message(**dict(zip("xyzw", map(float, quaternion), strict=True)))
    node.callbacks["imu"](Message(orientation=turn, angular_velocity=vector(spin), linear_acceleration=vector(force)))
    if linear is not None:
        node.callbacks["odometry"](Message(twist=Message(twist=Message(linear=vector(linear)))))


def start(node):
    return node.callbacks["~/start"](None, SimpleNamespace(success=None, message=""))


def test_it_swings_up_a_cartpole_of_plain_mujoco(make, tmp_path):
    limits = {"lower": [-1500.0], "upper": [1500.0], "fastest": 1e6}
    node = make("cartpole", command="effort", joints=["slider"], **limits)
    folder = export_identified(declared_hybrid("cartpole"), "mjcf", tmp_path / "out").folder
    model = mujoco.MjModel.from_xml_path(str(folder / "cartpole.xml"))
    data = mujoco.MjData(model)
    data.qpos[1] = np.pi
    steps, upright = round(node.period / model.opt.timestep), []
    for frame in range(300):
        CLOCK.seconds += node.period
        state = Message(name=["slider", "hinge"], position=data.qpos.tolist(), velocity=data.qvel.tolist(), effort=[])
        node.callbacks["joint_states"](state)
        if frame == 0:
            assert start(node).success
        node.callbacks["timer"]()
        data.ctrl[0] = node.published[-1][0]
        mujoco.mj_step(model, data, steps)
        upright.append(np.cos(data.qpos[1]))
    assert upright[0] < -0.9
    assert min(upright[-60:]) > 0.95


def test_it_acts_as_the_policy_does_in_its_task(make):
    node = make("anymal-velocity", **{**WALK, "fastest": 1e6})
    rng = np.random.default_rng(0)
    nominal = np.array(WALK["nominal"])
    q, qd, spin, linear = (
        nominal + rng.normal(size=12) * 0.1,
        rng.normal(size=12),
        rng.normal(size=3),
        rng.normal(size=3),
    )
    sense(node, q, qd, spin, QUATERNION, linear)
    assert start(node).success
    node.callbacks["cmd_vel"](Message(linear=vector([0.7, -0.2, 0.0]), angular=vector([0.0, 0.0, 0.4])))
    node.callbacks["timer"]()
    x, y, z, w = QUATERNION
    gravity = [-2 * (x * z - w * y), -2 * (y * z + w * x), 2 * (x * x + y * y) - 1]
    seen = torch.tensor([[*linear, *spin, *gravity, 0.7, -0.2, 0.4, *(q - nominal), *qd, *[0.0] * 12]]).float()
    config, network = load_policy("pretrained-policy:anymal-velocity")
    wanted = nominal + network(seen)[0].detach().numpy() * np.array(config.action_scale)
    assert len(load("anymal-velocity").observations) == seen.shape[1]
    inside = np.clip(wanted, WALK["lower"], WALK["upper"])
    np.testing.assert_allclose(node.published[-1], inside, atol=1e-5)
    assert node.period == config.dt


def test_without_odometry_a_filter_tells_the_velocity_of_the_base(make, monkeypatch):
    """In the closed loop with a model of the robot, which walks."""
    monkeypatch.setitem(sys.modules, "base_filter", example("base_filter.py"))
    node = make("anymal-velocity", **{**WALK, "fastest": 1e6, "base_filter": "anymal-c"})
    task, generator = load("anymal-velocity"), torch.Generator().manual_seed(0)
    frames = TaskFrames(task, declared_hybrid(task.declaration()))
    current = frames.begin(task.start(1, generator), generator)
    before, command, errors, speeds = None, Message(linear=vector([0.5, 0, 0]), angular=vector([0, 0, 0])), [], []
    for frame in range(60):
        now = current.now
        turn = now["base_rotation"][0]
        velocity = turn @ now["base_linear_velocity"][0]
        gained = torch.zeros(3) if before is None else (velocity - before) / node.period
        force, before = turn.mT @ (gained + torch.tensor([0.0, 0.0, 9.81])), velocity
        CLOCK.seconds += node.period
        sense(node, now["joint_position"][0].tolist(), now["joint_velocity"][0].tolist(),
              now["base_angular_velocity"][0], now["base_orientation"][0], None, force,
              now["joint_torque"][0].tolist())  # fmt: skip
        node.callbacks["cmd_vel"](command)
        node.callbacks["timer"]()
        if frame == 0:
            assert start(node).success
            node.callbacks["timer"]()
        errors.append((torch.tensor(node.measured.linear) - now["base_linear_velocity"][0]).norm())
        speeds.append(float(now["base_linear_velocity"][0, 0]))
        current, _, _ = frames.frame(current, task.action_of(torch.tensor([node.published[-1]])), generator)
    assert node.safety.why == ""
    assert np.mean(speeds[30:]) > 0.3
    assert np.mean(errors[30:]) < 0.1


def test_it_stops_and_holds_where_it_was_when_a_stream_falls_silent(make):
    node = make("anymal-velocity", **WALK)
    nominal = WALK["nominal"]
    node.callbacks["timer"]()
    assert node.published == []  # before it was started
    sense(node, nominal, np.zeros(12))
    assert start(node).success
    node.callbacks["timer"]()
    assert node.safety.why == ""
    CLOCK.seconds += 0.2
    node.callbacks["joint_states"](Message(name=WALK["joints"], position=[0.3] * 12, velocity=[0.0] * 12, effort=[]))
    node.callbacks["timer"]()
    assert "stopped" in node.logged[-1]
    assert "nothing of imu for 0.20 s" in node.safety.why
    assert node.published[-1] == nominal
    assert not start(node).success  # still silent
    sense(node, nominal, np.zeros(12))
    assert start(node).success


def test_it_stops_when_it_tilts_when_asked_and_at_what_is_no_number(make):
    node = make("anymal-velocity", **WALK)
    sense(node, WALK["nominal"], np.zeros(12))
    start(node)
    sense(node, WALK["nominal"], np.zeros(12), quaternion=(np.sin(0.6), 0.0, 0.0, np.cos(0.6)))
    node.callbacks["timer"]()
    assert node.safety.why == "tilted"
    sense(node, WALK["nominal"], np.zeros(12))
    start(node)
    node.callbacks["~/stop"](None, SimpleNamespace(success=None, message=""))
    assert node.safety.why == "asked to"
    start(node)
    sense(node, WALK["nominal"], [np.nan, *[0.0] * 11])
    node.callbacks["timer"]()
    assert "the policy's command of LF_HAA is nan" in node.safety.why
    assert np.isfinite(node.published[-1]).all() if node.published else True


def test_commands_change_no_faster_and_go_no_further_than_allowed(make):
    node = make("anymal-velocity", **{**WALK, "fastest": 1.0, "upper": [0.1] * 12, "lower": [-0.1] * 12})
    rng = np.random.default_rng(0)
    for frame in range(20):
        CLOCK.seconds += node.period
        sense(node, rng.normal(size=12), 5 * rng.normal(size=12))
        if frame == 0:
            start(node)
        node.callbacks["timer"]()
    sent = np.array(node.published)
    assert np.abs(sent).max() <= 0.1
    assert 0.01 < np.abs(np.diff(sent, axis=0)).max() <= 1.0 * node.period + 1e-9


def test_without_a_commanded_velocity_it_is_to_stand(make):
    node = make("anymal-velocity", **WALK)
    sense(node, WALK["nominal"], np.zeros(12))
    start(node)
    node.callbacks["cmd_vel"](Message(linear=vector([0.7, 0.0, 0.0]), angular=vector([0.0, 0.0, 0.0])))
    node.callbacks["timer"]()
    assert node.measured.command.tolist() == [0.7, 0.0, 0.0]
    CLOCK.seconds += 0.6
    sense(node, WALK["nominal"], np.zeros(12))
    node.callbacks["timer"]()
    assert not node.measured.command.any()


def test_the_launch_file_starts_the_node_with_the_parameters_that_it_has(monkeypatch):
    ros_stub.stub(monkeypatch)
    description = example("policy.launch.py").generate_launch_description()
    command = description[-1][1]["cmd"]
    assert str(EXAMPLE / "policy_node.py") in command
    monkeypatch.setitem(sys.modules, "policy", example("policy.py"))
    assert set(WALK) | {"model"} == set(example("policy_node.py").PARAMETERS)
