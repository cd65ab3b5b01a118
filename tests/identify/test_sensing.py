# SPDX-License-Identifier: Apache-2.0
"""From end to end: logs of targets, with sensors, and several logs with a payload each."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.cli.main import run
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.sensors import Sensor, Stream
from neurodyn.data.command_parts import part_streams
from neurodyn.data.header import StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.hybrid.readings import MountedSensor, SensorModel
from neurodyn.identify.run import identify
from neurodyn.identify.sensors import LogSensors
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.multibody.engine import EngineConfig, nominal
from neurodyn.robots import load as load_robot
from tests.identify.sensed import readings

pytest.importorskip("newton")

ARM = Path(__file__).resolve().parents[2] / "examples" / "own_robot"
ROBOT = load_robot(str(ARM))
DRIVES = {
    joint: Drive(kind="pd", kp=kp, kd=1.0, effort_limit=8.0, updates=2)
    for joint, kp in (("shoulder", 30.0), ("elbow", 12.0))
}
TIP = Sensor(kind="pose", link="elbow", position=(0.0, 0.0, -0.25), noise=(1e-3, 1e-3))
FAST = {"horizon": 0.2, "windows": 40, "iterations": 20, "seconds": (0.1, 0.2), "rollouts": 50}
EXTRA = Stream(name="spare", kind="pose")
SETTINGS = IdentificationSettings(**FAST, sensors={"tip": TIP})


@pytest.fixture(scope="module")
def mechanism():
    from neurodyn.sim import articulation
    from neurodyn.sim.simulators import mechanism as of

    return of(articulation(ROBOT), ROBOT)


def log(mechanism, truth, *, drives=None, seed=0, episodes=12, frames=60, tip=True):
    """A log of the arm with other quantities, under targets of drives, else under torques."""
    spec = ROBOT.spec if drives is None else ROBOT.behind(drives).spec
    mechanism = msgspec.structs.replace(mechanism, drives=drives or {})
    free = select_parameters(nominal(mechanism, None), [f"{name}={value}" for name, value in truth.items()])
    model = HybridDynamics(spec, mechanism, EngineConfig(), free)
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    control = 1.5 * draw(episodes, 1, 2).expand(episodes, frames, 2)
    with torch.no_grad():
        state = State(0.5 * draw(episodes, 2), draw(episodes, 2))
        path = model.rollout(state, control)
        stream = Stream(name="tip", kind="pose")
        mounted = [MountedSensor("tip", TIP, stream)]
        flat = State(path.q[:, :-1].flatten(0, 1), path.qd[:, :-1].flatten(0, 1))
        values = model.physical().expand(len(flat.q), -1)
        found = SensorModel(model, mounted)(flat, control.flatten(0, 1), values, values[:, :0], model.weights)
    poses = readings(found.view(episodes, frames, -1), mounted)
    poses = torch.cat([poses, poses[:, -1:]], 1) + 1e-3 * draw(episodes, frames + 1, 7)
    rows = torch.cat(
        [path.q + 1e-3 * draw(*path.q.shape), path.qd + 1e-2 * draw(*path.qd.shape),
         torch.cat([control, torch.zeros(episodes, 1, 2)], 1)], -1,
    )  # fmt: skip
    split = np.arange(episodes) % 6 // 4 * (1 + np.arange(episodes) % 2)
    header = StoreHeader(spec=spec, source="log", streams=(stream,) if tip else (), drives=drives or {})
    return Store(
        header, rows.flatten(0, 1).float().numpy(), episode_table([frames] * episodes, split=split),
        measured=poses.flatten(0, 1).float().numpy() if tip else None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def closed(mechanism, tmp_path_factory):
    path = tmp_path_factory.mktemp("closed") / "closed.h5"
    log(mechanism, {"elbow.mass": 1.1, "shoulder.damping": 0.3}, drives=DRIVES).write(path)
    return path


@pytest.mark.trains
def test_a_log_of_targets_is_compared_with_the_closed_loop(closed, tmp_path):
    """With the drives that the log carries, one of whose gains is off, and the poses of the tip."""
    store = Store.open(closed)
    wrong = {**DRIVES, "elbow": msgspec.structs.replace(DRIVES["elbow"], kp=9.0)}
    store = replace(store, header=msgspec.structs.replace(store.header, drives=wrong))
    asked = ("elbow.mass", "shoulder.damping", "controller.elbow.kp", "tip.position.z=-0.2:-0.5:0")
    found = identify(str(ARM), store, tmp_path / "run", parameters=asked, settings=SETTINGS).figures
    values = {entry.name: entry.value for entry in found.parameters}
    truth = {"elbow.mass": 1.1, "shoulder.damping": 0.3, "actuator.elbow.kp": 12.0, "tip.position.z": -0.25}
    assert values == pytest.approx(truth, rel=0.03)
    assert {"tip.position.x", "tip.quaternion.rz"} <= set(found.scale)
    assert found.scale["tip.position.x"] == pytest.approx(1e-3)
    held_out = found.sensors["tip.position.x"]
    assert held_out.identified < 0.3 * held_out.nominal
    assert held_out.identified < 5.0 * held_out.noise
    for mark in ("0.1", "0.2"):
        assert found.errors["identified"][mark].errors.q_mean < 0.5 * found.errors["nominal"][mark].errors.q_mean
    model = load(str(tmp_path / "run"))
    assert {spec.name for spec in model.physical.specs} == {"shoulder.damping", "elbow.mass"}
    kept = dict(zip((s.name for s in model.physical.specs), model.physical().tolist(), strict=True))
    assert kept["elbow.mass"] == pytest.approx(values["elbow.mass"], rel=1e-9)


@pytest.mark.trains
def test_each_log_has_a_payload_of_its_own_and_friction_is_shared(mechanism, tmp_path):
    paths = []
    for name, mass in (("empty", 0.8), ("light", 1.0), ("heavy", 1.3)):
        paths.append(tmp_path / f"{name}.h5")
        log(mechanism, {"elbow.mass": mass, "shoulder.damping": 0.25}, tip=False, episodes=6).write(paths[-1])
    settings = IdentificationSettings(**FAST, per_log={"elbow.mass": 0.5})
    found = identify(
        str(ARM), paths, tmp_path / "run", parameters=("elbow.mass", "shoulder.damping"), settings=settings
    )
    entries = {entry.name: entry for entry in found.figures.parameters}
    assert entries["shoulder.damping"].value == pytest.approx(0.25, rel=0.03)
    own = entries["elbow.mass"].by_log
    assert {log: entry.value for log, entry in own.items()} == pytest.approx(
        {"empty": 0.8, "light": 1.0, "heavy": 1.3}, rel=0.02
    )
    assert all(0 < entry.deviation < 0.02 for entry in own.values())


def test_what_is_wrong_is_said_in_one_line(closed, mechanism, tmp_path, capsys):
    """By the command line, with exit code 2, before a run is written."""
    torques = tmp_path / "torques.h5"
    log(mechanism, {}, episodes=2, tip=False).write(torques)
    unknown = tmp_path / "unknown.h5"
    bare = Store.open(closed)
    replace(bare, header=msgspec.structs.replace(bare.header, drives={})).write(unknown)

    def refused(data, settings, message, *more):
        (tmp_path / "settings.yaml").write_text(json.dumps({"parameters": ["elbow.mass"], **FAST, **settings}))
        code = run(["identify", str(ARM), "--data", str(data), "--out", str(tmp_path / "run"),
                    "--settings", str(tmp_path / "settings.yaml"), *more])  # fmt: skip
        error = capsys.readouterr().err
        assert (code, len(error.strip().splitlines())) == (2, 1), error
        assert message in error
        assert not (tmp_path / "run").exists()

    tip = {"kind": "pose", "link": "elbow"}
    refused(torques, {"sensors": {"tip": tip}}, "the data hold no stream 'tip'; valid: (none)")
    refused(closed, {"sensors": {"tip": {**tip, "link": "wrist"}}}, "there is no link 'wrist'; valid: elbow, shoulder")
    refused(closed, {"sensors": {"tip": {**tip, "noise": 0.0}}}, "noise is [0.0]; valid: standard deviations above 0")
    refused(closed, {"sensors": {"tip": {**tip, "delay": 3.0}}}, "a delay of 3 s is longer than windows of 0.2 s")
    refused(closed, {"sensors": {"tip": {**tip, "kind": "camera"}}}, "unknown kind of sensor 'camera'; valid:")
    refused(closed, {"controller": {"kind": "mpc"}}, "controller: unknown kind 'mpc'; valid: pd, velocity")
    refused(closed, {"controller": {"kp": {"wrist": 1.0}}}, "drives of the log: 'shoulder' has none; valid")
    refused(closed, {"drives": {"wrist*": {}}}, "the pattern 'wrist*' matches nothing; valid: patterns of")
    refused(closed, {"controller": {"kp": -1.0}}, "kp is -1.0; valid: a finite number of at least 0")
    refused(closed, {"controller": {"updates": 3}}, "updates is 3; valid: a divisor of the 4 substeps")
    refused(unknown, {}, "hold position targets, and nothing says which gains follow them; valid: `drives:")
    refused(torques, {"controller": {"kp": 1.0}}, "drives are given, but the data hold each torque that acted")
    refused(closed, {"torque_offset": 0.1}, "torque_offset is that of logs of torques")
    refused(torques, {"positions": False, "velocities": False}, "both left out, and there are no sensors")
    refused(closed, {"parameters": ["tip.delay"]}, "'tip.delay' matches no quantity")
    refused(closed, {"per_log": {"tip.delay": 0.1}}, "'tip.delay' is not a free quantity")


def test_parts_of_commands_are_no_readings_without_a_sensor():
    store = SimpleNamespace(header=SimpleNamespace(streams=(*part_streams(2, ("shoulder", "elbow")), EXTRA)))
    sensing = LogSensors.of(ROBOT, store, IdentificationSettings(), {"gravity.z": -9.81}, ("gravity.z",), {})
    assert sensing.unused == ("spare",)
