# SPDX-License-Identifier: Apache-2.0
"""Actuator networks: from a log with measured torques to files, and into hybrid dynamics; and what is refused."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.cli.main import run
from neurodyn.core.artifacts import read_json, read_tensors
from neurodyn.core.config import from_dict
from neurodyn.core.description.drive_network import DriveNetwork
from neurodyn.core.description.sensors import Stream
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import State
from neurodyn.identify.drives import DriveNetworkSettings, fit_drive, identify_drive_network
from neurodyn.robots import load as load_robot

pytest.importorskip("newton")

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "own_drive"
ROBOT = load_robot(str(FOLDER))
KP, KD, COULOMB, LIMIT = 30.0, 0.8, 0.4, 40.0
FRAMES = 400


def log(*, torques: bool = True, runs: int = 8) -> Store:
    """Runs of a joint whose drive is late by two frames, and saturates."""
    time = ROBOT.dt * np.arange(FRAMES + 1)
    rng = np.random.default_rng(0)
    rows, measured = [], []
    for _ in range(runs):
        rate, phase = rng.uniform(3.0, 15.0, 3), rng.uniform(0.0, 6.0, 3)
        q = 0.3 * np.sin(np.outer(time, rate) + phase).sum(1)
        qd = 0.3 * (rate * np.cos(np.outer(time, rate) + phase)).sum(1)
        target = q + 0.4 * np.sin(9.0 * time + phase[0])
        late = np.maximum(np.arange(FRAMES + 1) - 2, 0)
        torque = np.clip(KP * (target[late] - q) - KD * qd, -LIMIT, LIMIT) - COULOMB * np.tanh(qd / 0.05)
        rows.append(np.stack([q, qd, target], 1))
        measured.append(torque[:, None])
    table = episode_table([FRAMES] * runs, split=[Split.TRAIN] * (runs - 2) + [Split.VALIDATION, Split.TEST])
    streams = (Stream(name="motor", kind="joint_torque", joints=("knee",)),) if torques else ()
    header = StoreHeader(spec=ROBOT.spec, source="log", streams=streams)
    readings = np.concatenate(measured).astype(np.float32) if torques else None
    return Store(header, np.concatenate(rows).astype(np.float32), table, measured=readings)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory):
    out = tmp_path_factory.mktemp("drive") / "run"
    return identify_drive_network(ROBOT, log(), out, DriveNetworkSettings(steps=400, batch=256)), out


def test_the_network_learns_the_torque_and_stands_beside_a_drive(trained):
    joint = trained[0].joints["knee"]
    assert joint.network < 0.1 * joint.torque
    assert joint.drive < 0.1 * joint.torque
    assert joint.numbers["delay"] == pytest.approx(2 * ROBOT.dt)
    assert joint.numbers["kp"] == pytest.approx(KP, rel=0.1)


def test_the_files_say_what_the_network_is(trained):
    out = trained[1]
    network = from_dict(read_json(out / "actuator_network.json"), DriveNetwork)
    assert network.signals == ("position_error", "velocity")
    assert network.steps == (0, 2, 4)
    assert network.error == pytest.approx(trained[0].joints["knee"].network)
    weights = read_tensors(out / "actuator_network.safetensors")
    assert list(weights["layers.0.weight"].shape) == [32, 6]
    assert list(weights["layers.3.bias"].shape) == [1]


def test_the_model_of_the_run_has_the_torque_of_the_files(trained):
    out = trained[1]
    network = from_dict(read_json(out / "actuator_network.json"), DriveNetwork)
    weights = read_tensors(out / "actuator_network.safetensors")
    model = load(out)
    state, target = State(torch.tensor([[0.2]]).double(), torch.tensor([[1.5]]).double()), torch.tensor([[[0.6]]])
    # At a start all ages see the present, over one frame the joint hardly moves.
    x = torch.cat([torch.full((3,), 0.4) * network.scales[0], torch.full((3,), 1.5) * network.scales[1]])
    for k in range(4):
        x = weights[f"layers.{k}.weight"] @ x + weights[f"layers.{k}.bias"]
        x = torch.nn.functional.softsign(x) if k < 3 else x
    wanted = float(x[0]) * network.effort_scale

    def accelerated(dynamics, command, of=state):
        return float(dynamics.rollout(of, command).qd[0, 1] - of.qd[0]) / ROBOT.dt

    from neurodyn.dynamics.hybrid.declared import declared_hybrid

    plain = declared_hybrid(msgspec.structs.replace(ROBOT, drives={}), contact=None)
    expected = accelerated(plain, torch.tensor([[[wanted]]]).double())
    assert accelerated(model, target.double()) == pytest.approx(expected, rel=0.1)
    assert model.memory > 0


def test_a_gru_learns_it_too_and_makes_files_alone(tmp_path):
    settings = DriveNetworkSettings(network="gru", steps=150, batch=640, length=64, hidden=(16,))
    result = identify_drive_network(ROBOT, log(), tmp_path / "run", settings)
    joint = result.joints["knee"]
    assert joint.network < 0.3 * joint.torque
    assert not (tmp_path / "run" / "model").exists()
    assert "gru.weight_ih_l0" in read_tensors(tmp_path / "run" / "actuator_network.safetensors")


def test_a_lag_and_a_delay_of_part_of_a_period_are_found():
    generator = torch.Generator().manual_seed(0)
    command = torch.cumsum(torch.randn(4000, generator=generator), 0).double()
    command = torch.sin(0.3 * command)
    velocity, since = torch.cos(0.02 * torch.arange(4000)).double(), torch.arange(4000)
    torque = torch.zeros(4000).double()
    for t in range(2, 4000):
        late = 0.5 * command[t - 1] + 0.5 * command[t - 2]
        torque[t] = torque[t - 1] + (1 - np.exp(-0.5)) * (0.8 * late - torque[t - 1])
    torque = torque - 0.1 * velocity
    columns = (command, command, velocity, torque, since)
    found = fit_drive(columns, columns, period=0.004, target=False)
    assert found.numbers["delay"] == pytest.approx(0.006)
    assert found.numbers["lag"] == pytest.approx(0.008)
    assert found.numbers["gain"] == pytest.approx(0.8, rel=1e-2)
    assert found.error < 1e-2


def test_logs_without_torques_are_refused(tmp_path):
    with pytest.raises(InputError, match="hold no measured torque of a driven joint"):
        identify_drive_network(ROBOT, log(torques=False), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_written_over(trained):
    with pytest.raises(InputError, match="holds a run already"):
        identify_drive_network(ROBOT, log(), trained[1])


def test_the_command_line_trains_and_refuses(tmp_path, capsys):
    data = tmp_path / "log.h5"
    log().write(data)
    assert (
        run(["identify", str(FOLDER), "--data", str(data), "--drive", "hydraulic", "--out", str(tmp_path / "x")]) == 2
    )
    assert "unknown kind of drive 'hydraulic'; valid: affine, dc_motor, dc_servo, muscle, pd" in capsys.readouterr().err
