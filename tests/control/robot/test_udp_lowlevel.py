# SPDX-License-Identifier: Apache-2.0
"""The example of low-level messages by UDP: packets, checksum, the robot in its process, and what moves it."""

import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn.control.robot.in_loop import RobotDynamics, robot_in_loop
from neurodyn.dynamics import Control
from neurodyn.tasks import load

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "udp_lowlevel"


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import interface
    import messages

    yield messages, interface
    for name in ("messages", "interface"):
        sys.modules.pop(name)


@pytest.fixture
def robot(monkeypatch):
    """The address of a robot that loses some packets, in the environment."""
    words = [sys.executable, str(FOLDER / "robot.py"), "--port", "0", "--lost", ".05", "--seconds", "60"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    monkeypatch.setenv("LOW_LEVEL", process.stdout.readline().split()[-1])
    yield process
    process.kill()
    process.communicate()


def test_the_checksum_is_crc_32_mpeg_2_of_words_from_their_highest_bit(modules):
    messages, _ = modules
    assert messages.crc(struct.pack("<2I", *struct.unpack(">2I", b"12345678"))) == reference_crc(b"12345678")
    assert messages.crc(b"\x01\x00\x00\x00") == reference_crc(b"\x00\x00\x00\x01")
    assert messages.crc(b"\x01\x00\x00\x00zz") == messages.crc(b"\x01\x00\x00\x00")
    assert reference_crc(b"123456789") == 0x0376E6E7  # the published check value of CRC-32/MPEG-2


def reference_crc(data):
    """Divide bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        for bit in range(7, -1, -1):
            top = (value >> 31) ^ (byte >> bit & 1)
            value = ((value << 1) & 0xFFFFFFFF) ^ (0x04C11DB7 if top else 0)
    return value


def test_packets_come_back_as_they_were_and_none_with_a_flipped_bit(modules):
    messages, _ = modules
    rng = np.random.default_rng(0)
    arrays = {n: rng.normal(size=messages.MOTORS).astype(np.float32) for n in ("q", "dq", "tau")}
    command = messages.LowCommand(7, kp=np.full(messages.MOTORS, 3.0), **arrays)
    command.mode[:8] = messages.SERVO
    state = messages.LowState(
        9, 1234, gyroscope=np.array([1.0, 2.0, 3.0]), position=np.array([4.0, 5.0, 6.0]), **arrays
    )
    for sent in (command, state):
        packet = sent.pack()
        found = type(sent).unpack(packet)
        for name, value in vars(sent).items():
            np.testing.assert_array_equal(getattr(found, name), value)
        for at in rng.integers(0, 8 * len(packet), 40).tolist():
            wrong = bytearray(packet)
            wrong[at // 8] ^= 1 << at % 8
            assert type(sent).unpack(bytes(wrong)) is None
        assert type(sent).unpack(packet[:-1]) is None
    assert len(command.pack()) == 4 + 4 + 20 * 21 + 4


def test_the_robot_stands_by_its_motor_gains_and_damps_without_commands(modules, robot):
    _, interface = modules
    ant = interface.LowLevelAnt()
    ant.reset()
    for _ in range(60):
        ant.observe()
        ant.send(q=interface.NOMINAL, kp=400.0, kd=20.0)
        time.sleep(1 / 60)
    standing = ant.observe()
    assert standing["q"][2] > 0.4
    assert np.abs(ant.state.tau[:8]).max() > 5.0
    np.testing.assert_allclose(np.array(standing["q"][7:]), interface.NOMINAL, atol=0.35)
    assert np.linalg.norm(standing["q"][3:7]) == pytest.approx(1.0, abs=1e-5)
    time.sleep(1.0)  # it damps by itself after a tenth of a second
    ant._newest(0.1)
    np.testing.assert_allclose(ant.state.tau[:8], -20.0 * ant.state.dq[:8], atol=5.0)
    assert np.abs(ant.state.dq).max() < 1.0


def test_neurodyn_moves_the_robot_in_closed_loop(robot, tmp_path):
    task = load("ant-run")
    with robot_in_loop(task, f"{FOLDER / 'interface.py'}:LowLevelAnt", tmp_path / "robot.csv") as loop:
        assert isinstance(loop.dynamics, RobotDynamics)
        state = loop.starts(task, 0).draw(1)
        begun = state.q.clone()
        for _ in range(30):
            _, step = loop.dynamics.step(None, state, Control(torque=torch.full((1, 8), 80.0)))
            state = step.state
    assert float((state.q[0, 7:] - begun[0, 7:]).abs().max()) > 0.2
    assert abs(float(state.q[0, 3:7].norm()) - 1.0) < 1e-4


def test_a_robot_that_does_not_answer_is_reported(modules, monkeypatch):
    monkeypatch.setenv("LOW_LEVEL", "127.0.0.1:19125")
    _, interface = modules
    ant = interface.LowLevelAnt()
    with pytest.raises(ConnectionError, match="the robot does not answer"):
        ant.reset()
    with pytest.raises(ConnectionError, match="no valid state of the robot for ever"):
        ant.observe()
