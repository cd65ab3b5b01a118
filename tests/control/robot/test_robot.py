# SPDX-License-Identifier: Apache-2.0
"""A robot of the user's in the loop: what it is told and measures, its limits and watchdogs, and what is left of it."""

import os
import re
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn.cli.main import run
from neurodyn.control.planning.closed_loop import run as plan
from neurodyn.control.planning.planner import Planner
from neurodyn.control.resolve import open_dynamics
from neurodyn.control.robot.in_loop import REHEARSED, RobotDynamics, robot_in_loop
from neurodyn.control.robot.process import RobotProcess, RobotStoppedError
from neurodyn.core.artifacts import pretrained_names
from neurodyn.core.errors import InputError
from neurodyn.data.header import Status
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Control, State
from neurodyn.policy.artifact import behaviour
from neurodyn.policy.episodes.logs import record_log
from neurodyn.tasks import load

ROOT = Path(__file__).resolve().parents[3]
FILE = Path(__file__).with_name("cartpole.py")
TASK = load("cartpole-swingup")
FRAMES = 20


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return a function that returns what the robot was told."""
    file = tmp_path / "says"
    monkeypatch.setenv("ROBOT_SAYS", str(file))
    return lambda: file.read_text().splitlines() if file.exists() else []


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[RobotDynamics]:
    with robot_in_loop(TASK, f"{FILE}:{kind}", folder / "robot.csv") as robot:
        assert isinstance(robot.dynamics, RobotDynamics)
        yield robot.dynamics


def drive(robot: RobotDynamics, force: float, frames: int = FRAMES) -> list[State]:
    """Push with a constant force [N]."""
    states = [robot.start()]
    carry = robot.begin(states[0])
    for _ in range(frames):
        carry, step = robot.step(carry, states[-1], Control(torque=torch.full((1, 1), force)))
        states.append(step.state)
    return states


def rows(folder: Path) -> tuple[list[str], np.ndarray]:
    """Return head and numbers of a robot's log."""
    head, *lines = (folder / "robot.csv").read_text().splitlines()
    return head.split(","), np.array([[float(cell) for cell in line.split(",")] for line in lines])


def test_commands_stay_within_declared_limits_and_each_frame_is_logged(tmp_path: Path, says: Callable[[], list[str]]):
    with opened("Cartpole", tmp_path) as robot:
        first = drive(robot, 2000.0)
        drive(robot, -100.0, 3)
    told = says()
    assert [one for one in told if one != "stop"] == ["command 1500"] * FRAMES + ["command -100"] * 3
    assert told[-1] == "stop"
    head, values = rows(tmp_path)
    assert head[:7] == ["episode", "time", "q.slider", "q.hinge", "qd.slider", "qd.hinge", "control.slider"]
    assert head[7:] == ["force", "imu.0", "imu.1"]
    assert values[:, 0].tolist() == [0] * (FRAMES + 1) + [1] * 4
    assert np.allclose(np.diff(values[: FRAMES + 1, 1]), 1 / 60)
    assert np.allclose(values[: FRAMES + 1, 2:4], torch.cat([state.q for state in first]).numpy(), atol=1e-6)
    assert values[FRAMES, 6] == 0.0  # what the robot is told when it stops
    assert first[-1].q[0, 0] > 1.0


def test_a_log_is_imported_and_continued(tmp_path: Path):
    for _ in range(2):
        with opened("Cartpole", tmp_path) as robot:
            drive(robot, 300.0)
    with (tmp_path / "robot.csv").open("a") as file:
        file.write("7,0.1,0.")  # a machine that lost its power
    with opened("Cartpole", tmp_path) as robot:
        states = drive(robot, 300.0)
    out = tmp_path / "imported.h5"
    log = tmp_path / "robot.csv"
    assert run(["import", str(log), "--reader", str(log.with_suffix(".yaml")), "--out", str(out)]) == 0
    store = Store.open(out)
    assert store.lengths.tolist() == [FRAMES] * 3
    assert np.allclose(store.frames[-FRAMES - 1 :, :2], torch.cat([one.q for one in states]).numpy(), atol=1e-5)


def test_velocities_that_are_not_measured_are_filtered_differences(tmp_path: Path):
    with opened("Blind", tmp_path) as robot:
        found = drive(robot, 1000.0)
    with opened("Cartpole", tmp_path / "seen") as robot:
        truth = drive(robot, 1000.0)
    q = torch.cat([state.q for state in truth]).double()
    velocity = torch.zeros(2, dtype=torch.float64)
    for before, now in pairwise(q):
        velocity = velocity + 0.5 * ((now - before) * 60.0 - velocity)
    assert torch.allclose(found[-1].qd[0].double(), velocity, atol=1e-3)
    assert float((found[-1].qd - truth[-3].qd)[0, 0].abs()) < 0.2  # a frame and a half behind


def test_velocities_of_a_free_base_are_those_of_its_centre_of_mass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(RobotDynamics, "base_com", torch.tensor([0.1, -0.2, 0.3]))
    with robot_in_loop(load("ant-run"), f"{FILE}:Tumbles", tmp_path / "robot.csv") as robot:
        state = robot.starts(load("ant-run"), 0).draw(1)
        for _ in range(FRAMES):
            state = robot.dynamics.step(None, state, Control(torque=torch.zeros(1, 8)))[1].state
    assert state.qd[0, :6].tolist() == pytest.approx([0.5, 0.0, 0.0, 0.4, -1.0, 2.0], abs=1e-3)


@pytest.mark.parametrize("kind", ["Dies", "Deaf"])
def test_another_process_stops_a_robot_that_its_own_cannot_stop(
    kind: str, tmp_path: Path, says: Callable[[], list[str]]
):
    with opened(kind, tmp_path) as robot, pytest.raises(RobotStoppedError):
        drive(robot, 1.0)
    assert says()[0] == says()[-1] == "stop"  # before a reset, and in the end
    assert says().count("stop") == 2


def test_the_store_holds_what_the_robot_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    task = load("cartpole-swingup")
    task.frames = FRAMES
    monkeypatch.setattr(task, "control", lambda action, now, memory: Control(torque=9000.0 + 0.0 * action))
    with robot_in_loop(task, f"{FILE}:Cartpole", tmp_path / "robot.csv") as robot:
        record_log(task, robot.dynamics, [behaviour("still", task)], tmp_path / "log.h5", transitions=5, worlds=1)
    store = Store.open(tmp_path / "log.h5")
    control = np.asarray(store.frames[:])[: store.lengths[0], 4]
    assert control.tolist() == [1500.0] * len(control)
    assert len(control) >= 5


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Hangs", "observe() took longer than 0.3 s"),
        ("Raises", "RuntimeError: motor 1 is too hot (cartpole.py, line "),
        ("Dies", "its process ended by itself (exit code 9)"),
        ("Short", "observe(): 'q' has 1 values; valid: 2 finite numbers (slider, hinge)"),
        ("NotFinite", "observe(): 'qd' has a value that is not finite"),
    ],
)
def test_a_robot_whose_class_fails_is_stopped(kind: str, message: str, tmp_path: Path, says: Callable[[], list[str]]):
    began = time.monotonic()
    with opened(kind, tmp_path) as robot:
        pid = robot.process.pid
        with pytest.raises(RobotStoppedError, match=re.escape(message)):
            drive(robot, 1.0)
    assert time.monotonic() - began < 10.0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert says()[-1] == "stop"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py:Cartpole", "none.py: no such file; expected Python with a class of a robot"),
        ("cartpole", "cartpole: no class of a robot; valid: FILE.py:CLASS"),
        (f"{FILE}:Nope", "has no robot 'Nope'; valid: Cartpole, Deaf, "),
        (f"{FILE}:NoObserve", "NoObserve has no method observe(); valid: a class with reset, observe, command"),
        (f"{FILE}:NeedsArguments", "NeedsArguments cannot be made without arguments"),
        (f"{FILE}:Slow", "rate is 50 Hz, but robot 'cartpole' has frames of 0.0166667 s; valid: 60 Hz or a multiple"),
        (f"{FILE}:Odd", "control is 'current'; valid: 'torque', 'target' or 'command'"),
    ],
)
def test_classes_that_do_not_fit_the_robot_are_refused(name: str, message: str, tmp_path: Path):
    with pytest.raises(InputError, match=re.escape(message)), robot_in_loop(TASK, name, tmp_path / "robot.csv"):
        pass
    assert not (tmp_path / "robot.csv").exists()


def test_a_robot_without_commands_stops_by_itself(tmp_path: Path, says: Callable[[], list[str]]):
    with opened("RealTime", tmp_path) as robot:
        states = drive(robot, 200.0, 3)
        time.sleep(0.6)
        assert says()[-1] == "command 0"
        with pytest.raises(RobotStoppedError, match="no command came within"):
            robot.step(None, states[-1], Control(torque=torch.ones(1, 1)))
        drive(robot, 200.0, 3)  # a reset starts anew


def test_a_robot_in_real_time_keeps_its_rate(tmp_path: Path):
    with opened("RealTime", tmp_path) as robot:
        began = time.monotonic()
        drive(robot, 0.0, 30)
        assert time.monotonic() - began >= 29 / 60
    assert np.diff(rows(tmp_path)[1][:, 1]).min() > 0.005


def test_at_a_multiple_of_the_rate_each_command_is_repeated(tmp_path: Path):
    with opened("Fast", tmp_path / "fast") as robot:
        fast = drive(robot, 300.0)
    with opened("Cartpole", tmp_path / "one") as robot:
        one = drive(robot, 300.0)
    assert torch.allclose(torch.cat([s.q for s in fast]), torch.cat([s.q for s in one]))
    head, numbers = rows(tmp_path / "fast")
    assert len(numbers) == FRAMES + 1
    assert np.allclose(np.diff(numbers[:, head.index("time")]), 1 / 60)


def test_transitions_that_came_late_are_not_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A decision takes four frames: the state after it is not one frame from the state before."""
    task = load("cartpole-swingup")
    task.frames = FRAMES
    control, calls = task.control, 0

    def sometimes_slow(*args: object) -> Control:
        nonlocal calls
        calls += 1
        if calls in (REHEARSED + 8, REHEARSED + 15):
            time.sleep(4 / 60)
        return control(*args)

    monkeypatch.setattr(task, "control", sometimes_slow)
    with robot_in_loop(task, f"{FILE}:RealTime", tmp_path / "robot.csv") as robot:
        found = record_log(task, robot.dynamics, [behaviour("still", task)], tmp_path / "log.h5", transitions=1)
    store = Store.open(tmp_path / "log.h5")
    assert len(store.table) >= 3  # more where the machine is busy
    assert (store.table["world"] == 0).all()
    assert store.table["status"].tolist() == [Status.LOG] * (len(store.table) - 1) + [Status.COMPLETE]
    assert found.transitions == store.lengths.sum() <= FRAMES - 2
    assert found.outcomes["still"].lengths.tolist() == [found.transitions]
    head, numbers = rows(tmp_path)
    passed = np.diff(numbers[:, head.index("time")])
    assert (passed > 1.5 / 60).sum() >= 2


def test_a_robot_beyond_its_limits_is_stopped(tmp_path: Path, says: Callable[[], list[str]]):
    with opened("Runs", tmp_path) as robot:
        states = drive(robot, 1.0, 2)
        assert robot.limits.bounds.outside(states[-1].q, states[-1].qd).tolist() == [True]
        assert says()[-1] == "stop"


def test_a_robot_stops_when_the_commanding_process_dies(tmp_path: Path, says: Callable[[], list[str]]):
    """As after kill -9: nobody tells the robot to stop, its orders end."""
    process = RobotProcess(f"{FILE}:RealTime", [0])
    process.reset()
    process.command([7.0])
    assert process._process.stdin is not None
    process._process.stdin.close()
    assert process._process.wait(5) == 0
    assert says()[-1] == "command 0"


def test_a_planner_acts_on_a_robot(tmp_path: Path):
    if "cartpole" not in pretrained_names():
        pytest.skip("pretrained:cartpole does not ship with this tree")
    model = open_dynamics(TASK, "pretrained:cartpole")
    planner = Planner(model.dynamics, TASK, "cem", samples=8, rounds=1, horizon=10)
    with robot_in_loop(TASK, f"{FILE}:Cartpole", tmp_path / "robot.csv") as plant:
        result, path = plan(planner, "cem", model, plant, episodes=2, seed=0, frames=12)
    assert result.result.episodes == 2
    assert result.plant.endswith(":Cartpole")
    assert list(path.control.shape) == [2, 12, 1]
    values = rows(tmp_path)[1]
    assert len(values) == 2 * 13
    assert np.allclose(values[:12, 6], path.control[0, :, 0].numpy(), rtol=1e-5)
    assert isinstance(result.model_error, list)
    assert result.model_error[0].position < 5e-3  # the model is of this cartpole


def begin_log(out: Path, kind: str = "Cartpole") -> subprocess.Popen[str]:
    """Begin a log that is longer than anybody waits, in a process of its own."""
    words = ["policy", "log", "random", "--task", "cartpole-swingup", "--robot", f"{FILE}:{kind}", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-m", "neurodyn", *words, "--transitions", "1000000"], stderr=subprocess.PIPE, text=True
    )


def wait_for(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 60.0
    while not done():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_ctrl_c_stops_the_robot_and_keeps_the_log(tmp_path: Path, says: Callable[[], list[str]]):
    pytest.importorskip("rsl_rl")
    out = tmp_path / "log.h5"
    process = begin_log(out)
    wait_for(lambda: len(says()) > 5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert says()[-1] == "stop"
    store = Store.open(out)
    assert store.table["status"][-1] == Status.LOG
    lines = (tmp_path / "log-robot.csv").read_text().splitlines()
    assert store.transitions > 0
    assert len(lines) > store.transitions


def test_a_killed_log_stops_the_robot_and_is_continued(tmp_path: Path, says: Callable[[], list[str]]):
    pytest.importorskip("rsl_rl")
    out = tmp_path / "log.h5"
    part = out.with_name("log.h5.part")
    process = begin_log(out)
    wait_for(lambda: (tmp_path / "log-robot.csv").exists() and "\n1," in (tmp_path / "log-robot.csv").read_text())
    process.kill()
    process.wait()
    assert part.exists()
    known = Store.open(part).frames[:].copy()
    assert len(known) > 10
    wait_for(lambda: says()[-1] == "stop")  # by the robot's own process
    lines = (tmp_path / "log-robot.csv").read_text().splitlines()
    assert lines[-1].startswith("1,")  # the episode that was under way
    with robot_in_loop(TASK, f"{FILE}:Cartpole", tmp_path / "log-robot.csv") as robot:
        found = record_log(
            TASK, robot.dynamics, [behaviour("random", TASK)], out, transitions=len(known) + 20, noise=0.5,
            declared=False, resume=True,
        )  # fmt: skip
    store = Store.open(out)
    assert np.array_equal(store.frames[: len(known)], known)
    assert store.transitions >= len(known) + 20
    assert found.episodes == len(store.table)
    assert store.returns is not None
    assert found.returns["random"] == pytest.approx(store.returns.mean(), rel=1e-5)
    assert (tmp_path / "log-robot.csv").read_text().splitlines()[: len(lines)] == lines


PATIENT = """
import runpy

class Patient(runpy.run_path({example!r})["UdpCartpole"]):
    patience = deaf = 5.0
"""
"""The same robot on a machine that leaves processes waiting for longer than a robot may be silent."""


def test_a_robot_behind_a_lossy_network_is_driven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("UDP_ROBOT", "127.0.0.1:19123")
    example = ROOT / "examples" / "udp_robot.py"
    (tmp_path / "patient.py").write_text(PATIENT.format(example=str(example)))
    words = [sys.executable, str(example), "--lost", "0.15", "--jitter", "0.004", "--seconds", "180"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert "listening" in server.stdout.readline()
        with robot_in_loop(TASK, f"{tmp_path / 'patient.py'}:Patient", tmp_path / "robot.csv") as robot:
            assert isinstance(robot.dynamics, RobotDynamics)
            states = drive(robot.dynamics, 500.0, 60)
    finally:
        server.kill()
        server.communicate()
    assert float(states[-1].q[0, 0] - states[0].q[0, 0]) > 1.0  # 52.5 kg for a second, friction and losses included
    head, values = rows(tmp_path)
    assert values[:, head.index("bridged")].max() >= 1  # packets were lost
    assert 40 < len(values) <= 61  # a busy machine loses some, too


def test_a_robot_stops_when_the_network_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("UDP_ROBOT", "127.0.0.1:19124")
    name = f"{ROOT / 'examples' / 'udp_robot.py'}:UdpCartpole"
    with (
        pytest.raises(RobotStoppedError, match="the robot does not answer"),
        robot_in_loop(TASK, name, tmp_path / "robot.csv") as robot,
    ):
        robot.starts(TASK, 0).draw(1)


def test_the_worn_ant_is_the_declared_one_but_for_its_faults():
    """Without the faults the declaration explains what it measures, in its order, units and axes."""
    ants = runpy.run_path(str(ROOT / "examples" / "worn_ant.py"))
    torque = np.tile([60.0, -30.0], 4)
    ends = {}
    for kind in ("DeclaredAnt", "WornAnt", "ElasticAnt"):
        ant = ants[kind]()
        ant.data.qpos[2], ant.data.qpos[ant.q] = 1.0, [0, 1, 0, -1, 0, -1, 0, 1]
        for _ in range(9):
            ant.command(torque)
        ends[kind] = ant.observe()
        assert (len(ends[kind]["q"]), len(ends[kind]["qd"])) == (15, 14)
    for kind in ("WornAnt", "ElasticAnt"):
        off = np.abs(ends[kind]["q"] - ends["DeclaredAnt"]["q"])
        assert 0.05 < off[7:].max() < 3.0
        assert off[:3].max() < 0.1  # it falls as fast


@pytest.mark.slow
def test_the_declaration_explains_the_ant_without_faults(tmp_path: Path):
    pytest.importorskip("newton")
    task = load("ant-run")
    with robot_in_loop(task, f"{ROOT / 'examples' / 'worn_ant.py'}:DeclaredAnt", tmp_path / "robot.csv") as robot:
        assert isinstance(robot.dynamics, RobotDynamics)
        states = [robot.starts(task, 0).draw(1)]
        for _ in range(6):
            _, step = robot.dynamics.step(None, states[-1], Control(torque=torch.full((1, 8), 60.0)))
            states.append(step.state)
    found = torch.cat([one.q for one in states])
    declared = open_dynamics(task, "hybrid").dynamics.rollout(states[0], torch.full((1, 6, 8), 60.0)).q[0]
    # Of all coordinates: single ones differ more where noise of the first state makes a foot touch a frame earlier.
    assert float((found - declared).abs().mean()) < 0.01  # noise of the sensors
