# SPDX-License-Identifier: Apache-2.0
"""Robots without motion capture: a small quadruped in plain MuJoCo that gives encoders and an IMU alone."""

import math

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.control.robot import followed
from neurodyn.control.robot.in_loop import RobotDynamics, plant_of
from neurodyn.control.robot.process import RobotStoppedError
from neurodyn.control.robot.sensed import SensedBase
from neurodyn.core.description.sensors import Sensor
from neurodyn.core.errors import InputError
from neurodyn.data.readers import import_logs
from neurodyn.data.readers.column_map import read_column_map
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Control
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.declared import declared_hybrid, write_declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.estimate import smooth_base
from neurodyn.evaluate import estimated_states
from neurodyn.evaluate.requests import EvaluationRequest
from neurodyn.policy import online
from neurodyn.policy.artifact import policy_config, save_policy
from neurodyn.policy.episodes import logs, sensed_scores
from neurodyn.policy.episodes.logs import log_policies
from neurodyn.policy.episodes.play import record_policy
from neurodyn.policy.online_learning.record import model_error
from neurodyn.policy.online_learning.refit import ADAPT_REFIT
from neurodyn.policy.online_learning.settings import OnlineSettings
from neurodyn.policy.settings import NetworkSettings, load_settings
from neurodyn.robots import load as load_robot
from neurodyn.tasks import load
from tests.tasks.test_velocity import declare_quadruped

JOINTS = 8
ROBOT = """
import mujoco, numpy as np
class Sensed:
    rate, realtime, control, base = 50.0, False, "{control}", "unmeasured"
    def __init__(self):
        self.model = mujoco.MjModel.from_xml_path("{xml}")
        self.data, self.frame = mujoco.MjData(self.model), 0
    def reset(self):
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[2], self.frame = {height}, 0
        self.data.qpos[7:] = {pose}
        yaw = 0.7
        self.data.qpos[3:7] = np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)
        self.before = np.zeros(3)
        mujoco.mj_forward(self.model, self.data)
    def observe(self):
        q, v = self.data.qpos, self.data.qvel
        R = self.data.xmat[1].reshape(3, 3)
        seen = dict(q=q[7:], qd=v[6:], angular_velocity=v[3:6], orientation=[*q[4:7], q[3]])
        seen['specific_force'] = R.T @ ((v[:3] - self.before) / 0.02 + [0, 0, 9.81])
        self.before = v[:3].copy()
        com = R @ self.model.body_ipos[1]
        truth = [*q[:3], *q[4:7], q[3], *q[7:], *(v[:3] + np.cross(R @ v[3:6], com)), *(R @ v[3:6]), *v[6:]]
        {change}
        return seen
    def command(self, values):
        self.data.ctrl[:] = values
        for _ in range(4):
            mujoco.mj_step(self.model, self.data)
    def stop(self):
        pass
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("sensed")
    declare_quadruped(place)
    return place


def robot_class(folder, name, change=""):
    task = load(f"velocity@{folder / 'dog'}")
    robot = task.declaration()
    text = ROBOT.format(
        xml=folder / "dog.xml", height=robot.legs.height, change=change, control=robot.command,
        pose=[robot.nominal.get(joint.name, 0.0) for joint in robot.joints[1:]],
    )  # fmt: skip
    (folder / f"{name}.py").write_text(text)
    return f"{folder / name}.py:Sensed"


def policy(folder, name, view="sensors"):
    torch.manual_seed(0)
    config = policy_config(load(f"velocity@{folder / 'dog'}", view), NetworkSettings(hidden=(16,), history=3))
    network = config.build()
    with torch.no_grad():
        for parameter in network.layers.parameters():
            parameter *= 0.3
    save_policy(folder / name, config, network)
    return folder / name


def test_its_logs_hold_readings_and_no_base(folder, tmp_path):
    out = tmp_path / "walk.h5"
    robot = robot_class(folder, "log_robot", "del seen['specific_force']")
    summary = log_policies([policy(folder, "log"), "still"], out, robot=robot, transitions=300, noise=0.1)
    assert summary.why_not_scored.startswith(
        "episodes are not scored, because these are not measured: base_height, base_linear_velocity"
    )
    assert all(math.isnan(value) for value in summary.returns.values())
    store = Store.open(out)
    assert store.header.base == "unmeasured"
    q, qd = np.asarray(store.q[:]), np.asarray(store.qd[:])
    assert np.isnan(q[:, :7]).all()
    assert np.isnan(qd[:, :6]).all()
    assert np.isfinite(q[:, 7:]).all()
    assert np.isfinite(qd[:, 6:]).all()
    read = np.asarray(store.measured[:])
    assert read.shape[1] == 10
    assert np.isfinite(read[:, [0, 1, 2, 6, 7, 8, 9]]).all()
    assert np.isnan(read[:, 3:6]).all()
    assert abs(read[0, 6:10] @ [0, 0, 0, 1]) > 0.99  # the heading starts at 0
    # Rounds of `policy online` adapt to it; the error of forecasts of states is not known.
    robot = load(f"velocity@{folder / 'dog'}").declaration()
    opened = ADAPT_REFIT.open(robot, str(out))
    assert model_error(declared_hybrid(robot), opened) == (None, 1.0)
    # The file of all frames imports as the same log.
    csv = tmp_path / "walk-robot.csv"
    again = import_logs([csv], read_column_map(csv.with_suffix(".yaml")), store.header.spec, tmp_path / "again.h5")
    assert again.header.base == "unmeasured"
    assert {stream.kind for stream in again.header.streams} == {"gyroscope", "orientation"}


@pytest.mark.slow
def test_a_stand_in_is_scored_by_its_truth(folder, tmp_path):
    truth = "seen['truth'] = truth"
    summary = log_policies(
        [policy(folder, "scored")], tmp_path / "scored.h5", robot=robot_class(folder, "scored_robot", truth),
        transitions=200, noise=0.0,
    )  # fmt: skip
    assert not summary.why_not_scored
    store = Store.open(tmp_path / "scored.h5")
    imu, _ = store.header.streams
    assert imu.averaged == ("specific_force",)
    csv = tmp_path / "scored-robot.csv"  # begins a row earlier; a row has the mean over the frame before
    again = import_logs([csv], read_column_map(csv.with_suffix(".yaml")), store.header.spec, tmp_path / "again.h5")
    assert again.header.streams[0].averaged == ("specific_force",)
    rows = int(again.lengths[0])
    np.testing.assert_allclose(again.measured[1:rows, 3:6], store.measured[: rows - 1, 3:6], atol=1e-3)
    [value] = summary.returns.values()
    assert math.isfinite(value)
    assert value > 0.0
    assert summary.true_states == str(tmp_path / "scored.true.h5")
    known = Store.open(summary.true_states)  # the same log as motion capture would see it
    assert known.header.base == "measured"
    np.testing.assert_array_equal(known.measured, store.measured)
    np.testing.assert_array_equal(known.q[:, 7:], store.q[:, 7:])
    assert known.table["split"].tolist() == store.table["split"].tolist()
    assert 0.05 < float(np.asarray(known.q[:, 2]).min()) < float(np.asarray(known.q[:, 2]).max()) < 1.0
    rate = np.diff(np.asarray(known.q[: rows + 1, 2])) / known.header.spec.dt
    assert np.corrcoef(rate, known.qd[1 : rows + 1, 2])[0, 1] > 0.9
    robot = load(f"velocity@{folder / 'dog'}").declaration()
    write_declared_hybrid(tmp_path / "declared", robot)
    request = EvaluationRequest(str(tmp_path / "declared"), data=summary.true_states, states=True, split="all")
    found = estimated_states(request)
    assert found.ways[0].way == "smoother"
    assert found.ways[0].height < 0.02


@pytest.mark.slow
def test_play_scores_by_truth_or_says_what_is_missing(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blind = robot_class(folder, "blind_robot", "del seen['specific_force']")
    recording = record_policy(policy(folder, "play"), on=blind, seconds=0.3)
    assert not any("achieved" in one and "speed" in one for one in recording.remarks if one.startswith(blind))
    [remark] = [one for one in recording.remarks if "not scored" in one]
    assert "episodes are not scored, because these are not measured: base_height" in remark
    assert "the robot has no specific_force" in remark
    robot = robot_class(folder, "true_robot", "seen['truth'] = truth")
    (tmp_path / "second").mkdir()
    monkeypatch.chdir(tmp_path / "second")  # logs are named by the second in which they begin
    recording = record_policy(policy(folder, "play2"), on=robot, seconds=1.0)
    [remark] = [one for one in recording.remarks if "by the estimated states" in one]
    estimated, true = (float(part.split("return ")[1].split()[0]) for part in remark.split("; "))
    assert estimated == pytest.approx(true, rel=0.05)


def test_play_and_log_estimate_states_by_the_model_of_a_run(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    played, robot = policy(folder, "play3"), robot_class(folder, "followed_robot", "seen['truth'] = truth")
    model, given = declared_hybrid(load_robot(folder / "dog")), []

    def smooth(own, *rest):
        given.append(own)
        return smooth_base(own, *rest)

    monkeypatch.setattr(sensed_scores, "smooth_base", smooth)
    monkeypatch.setattr(sensed_scores, "load_model", lambda run: {"run": model, "other": declared_hybrid("ant")}[run])
    remarks = record_policy(played, on=robot, seconds=0.3, states="run").remarks
    assert any("by the estimated states" in one for one in remarks)
    assert given == [model]
    with pytest.raises(InputError, match="--states other: holds hybrid dynamics of 'ant'; valid: a run of"):
        record_policy(played, on=robot, seconds=0.3, states="other")
    with pytest.raises(InputError, match="valid with --on"):
        record_policy(played, seconds=0.3, states="run")
    untold = robot_class(folder, "untold_robot")
    summary = log_policies(played, tmp_path / "walk.h5", robot=untold, transitions=20, states="run")
    assert all(math.isfinite(value) for value in summary.returns.values())
    assert given == [model, model]
    with pytest.raises(InputError, match="valid with --robot"):
        log_policies(played, tmp_path / "other.h5", states="run")


def test_planners_and_policies_of_the_state_get_the_estimated_base(folder, tmp_path, monkeypatch):
    task = load(f"velocity@{folder / 'dog'}", "state")
    model, given = declared_hybrid(task.declaration()), []

    class Follower(followed.BaseFollower):
        def __init__(self, robot, model=None):
            given.append(model)
            super().__init__(robot, model)

    monkeypatch.setattr(followed, "BaseFollower", Follower)
    name = robot_class(folder, "planned_robot", "seen['truth'] = truth")
    with plant_of(task, name, "cpu", tmp_path, model) as plant:
        dynamics, state = plant.dynamics, plant.starts(task, 0).draw(1)
        assert isinstance(dynamics, RobotDynamics)
        assert given == [model]  # not the declared one
        hold = Control(target=task.nominal(state.q)[None])
        for _ in range(60):
            _, step = dynamics.step(None, state, hold)
            state = step.state
        now, truth = dynamics.quantities(state), dynamics.base.reading.truth
        assert float((state.q[:, 2] - truth.q[:, 2]).abs()) < 0.02
        assert float((state.qd[:, :3] - truth.qd[:, :3]).norm()) < 0.1
        assert torch.isfinite(task.observe(now, task.begin(now, torch.Generator()))).all()
        assert now.of_rewards["base_height"].item() == pytest.approx(truth.q[0, 2].item(), abs=1e-4)
    blind = robot_class(folder, "unknown_robot", "del seen['specific_force']")
    with pytest.raises(InputError, match=r"not known without 'specific_force'"):
        log_policies([policy(folder, "state", "state")], tmp_path / "x.h5", robot=blind, transitions=50)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("del seen['angular_velocity']", "has no 'angular_velocity'"),
        ("del seen['orientation']", "has neither 'orientation' nor 'gravity'"),
        ("seen['orientation'] = [1, 0, 0]", "'orientation' is .*valid: 4 finite numbers"),
        ("seen['angular_velocity'] = [0, 0, np.nan]", "valid: 3 finite numbers"),
        ("seen['q'] = q", "'q' has 15 values; valid: 8 finite numbers"),
        ("seen['truth'] = truth[1:]", "'truth' is"),
    ],
)
def test_bad_readings_stop_the_robot(folder, tmp_path, change, message):
    dynamics = RobotDynamics(
        load(f"velocity@{folder / 'dog'}").declaration(), robot_class(folder, "bad_robot", change), tmp_path / "x.csv"
    )
    try:
        with pytest.raises(RobotStoppedError, match=message):
            dynamics.start()
    finally:
        dynamics.close()


def _quaternion(rng):
    q = rng.normal(size=4)
    return q / np.linalg.norm(q)


def _rotated(q, v):
    u, w = q[:3], q[3]
    return v + 2 * w * np.cross(u, v) + 2 * np.cross(u, np.cross(u, v))


def test_a_turned_imu_gives_the_base_axes_and_heading_starts_at_zero(folder):
    rng = np.random.default_rng(1)
    mount = _quaternion(rng)
    robot = msgspec.structs.replace(
        load_robot(folder / "dog"), sensors={"imu": Sensor(kind="imu", quaternion=tuple(mount))}
    )
    base = SensedBase(robot)
    base.restart()
    tilt, yaw = np.array([0.1, -0.2, 0.0, 0.0]), 1.1
    tilt[3] = math.sqrt(1 - tilt[:3] @ tilt[:3])
    spin = np.array([0.3, -0.4, 0.5])  # base axes

    def product(a, b):
        return np.array([*(a[3] * b[:3] + b[3] * a[:3] + np.cross(a[:3], b[:3])), a[3] * b[3] - a[:3] @ b[:3]])

    turned = product(np.array([0, 0, math.sin(yaw / 2), math.cos(yaw / 2)]), tilt)  # base to world
    inverse = np.array([*-mount[:3], mount[3]])
    read = {"angular_velocity": _rotated(inverse, spin).tolist(), "orientation": product(turned, mount).tolist()}
    base.read(read, 0.0)
    q, qd = base.complete([0.0] * JOINTS, [0.0] * JOINTS)
    ahead = _rotated(np.array(q[3:7]), np.array([1.0, 0.0, 0.0]))
    assert ahead[1] == pytest.approx(0.0, abs=1e-6)
    assert ahead[0] > 0
    up = _rotated(np.array([*-np.array(q[3:6]), q[6]]), np.array([0, 0, 1.0]))
    assert up == pytest.approx(_rotated(np.array([*-turned[:3], turned[3]]), np.array([0, 0, 1.0])), abs=1e-6)
    assert _rotated(np.array([*-np.array(q[3:6]), q[6]]), np.array(qd[3:6])) == pytest.approx(spin, abs=1e-6)
    down = _rotated(np.array([*-product(turned, mount)[:3], product(turned, mount)[3]]), np.array([0, 0, -1.0]))
    assert base.reading.gravity.numpy() == pytest.approx(down, abs=1e-6)


def test_a_direction_of_gravity_and_the_gyroscope_make_a_heading(folder):
    base = SensedBase(load_robot(folder / "dog"))
    base.restart()
    for frame in range(101):
        base.read({"angular_velocity": [0.0, 0.0, 0.8], "gravity": [0.0, 0.0, -9.8]}, 0.01 * frame)
    q, _ = base.complete([], [])
    assert 2 * math.atan2(q[5], q[6]) == pytest.approx(0.8, abs=1e-5)


@pytest.mark.slow
def test_policy_and_model_take_turns_on_a_robot_that_nobody_tracks(folder, tmp_path, monkeypatch):
    pytest.importorskip("rsl_rl")
    task, robot = load(f"velocity@{folder / 'dog'}"), robot_class(folder, "online_robot")
    monkeypatch.setattr(type(task), "frames", 40)
    HYBRID.save(tmp_path / "declared", declared_hybrid(task.declaration()))
    first = msgspec.structs.replace(load_settings(task.name, None), iterations=1, worlds=8)
    settings = OnlineSettings(rounds=1, frames=0, log_frames=20, rollout=None, policy=first, episodes=2)
    scored = []
    monkeypatch.setattr(logs, "score", lambda *given: scored.append(given[2]) or sensed_scores.score(*given))
    found = online(task, tmp_path / "out", dynamics=str(tmp_path / "declared"), robot=robot, settings=settings)
    logged = found.rounds[0].log
    assert logged is not None
    assert math.isfinite(logged.returns.mean)  # by the estimated base
    assert scored  # by the model of the round
    assert all(isinstance(model, HybridDynamics) for model in scored)
    assert Store.open(logged.path).header.base == "unmeasured"
