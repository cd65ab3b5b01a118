# SPDX-License-Identifier: Apache-2.0
"""Policy and model in turns on a robot of the user's."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from neurodyn.control.robot.process import RobotStoppedError
from neurodyn.control.starts import home_ground
from neurodyn.core.artifacts import pretrained_policy_names
from neurodyn.core.errors import InputError
from neurodyn.data.header import StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics import AnalyticDynamics
from neurodyn.dynamics.artifact import kind_of
from neurodyn.policy.online_learning.problem import pose, settings_of
from neurodyn.policy.online_learning.record import model_error
from neurodyn.policy.online_learning.refit import ADAPT_REFIT
from neurodyn.policy.online_learning.settings import with_flags
from neurodyn.policy.requests import LogPolicyRequest, OnlineRequest, PlayPolicyRequest
from neurodyn.tasks import load
from neurodyn.tasks.task import reset_states

pytest.importorskip("rsl_rl")
pytest.importorskip("newton")
ROBOT = f"{Path(__file__).parents[2] / 'control' / 'robot' / 'cartpole.py'}:Cartpole"
BRIEF = """
stages: [{seconds: 0.05, windows: 60, iterations: 2}]
screen: 20
screen_iterations: 1
networks: false
starts: 5
proposals: 2
reference_steps: 0
structures: false
"""


def request(tmp_path: Path, **changes: object) -> OnlineRequest:
    given = OnlineRequest("cartpole-swingup", tmp_path / "loop", robot=ROBOT)
    settings = with_flags(settings_of(given), policy={}, **changes)
    return OnlineRequest("cartpole-swingup", tmp_path / "loop", robot=ROBOT, settings=settings)


def test_a_robot_is_logged_for_minutes_and_its_model_adapted(tmp_path: Path):
    problem = pose(request(tmp_path))
    dt = load("cartpole-swingup").declaration().dt
    assert problem.kind == "hybrid"
    assert problem.settings.frames == round(360 / dt)
    assert problem.settings.log_frames == round(120 / dt)
    assert problem.settings.reference == ROBOT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": ("slider.damping",)}, "--parameters is not for models that are adapted to a robot's logs"),
        ({"members": 3}, "--members is not for models that are adapted"),
        ({"reference": "hybrid"}, "--reference and --robot exclude each other"),
        ({"frames": 0}, "a new model of kind hybrid learns from data"),
    ],
)
def test_what_an_adaptation_chooses_by_itself_is_refused(changes: dict[str, object], message: str, tmp_path: Path):
    with pytest.raises(InputError, match=re.escape(message)):
        pose(request(tmp_path, **changes))


def test_flags_of_simulators_are_refused_with_a_robot(tmp_path: Path):
    from neurodyn.policy.episodes.logs import log_policies
    from neurodyn.policy.episodes.play import record_policy

    with pytest.raises(InputError, match="--position-noise is for simulators; leave it out with --robot"):
        log_policies(LogPolicyRequest("random", tmp_path / "x.h5", robot=ROBOT, position_noise=0.1))
    with pytest.raises(InputError, match="--on is for a real robot; valid without --dynamics and --ground"):
        record_policy(PlayPolicyRequest("pretrained-policy:cartpole", dynamics="hybrid", on=ROBOT))


def test_forecasts_along_a_log_stand_on_the_declared_ground(tmp_path: Path):
    """A robot's log names no ground; in free space an ant falls, and the model's error is that of the fall."""
    task = load("ant-run")
    robot = task.declaration()
    model = AnalyticDynamics(robot)
    control = 300.0 * torch.randn(4, 60, robot.spec.nu, generator=torch.Generator().manual_seed(1))
    path = model.rollout(reset_states(robot, 4, torch.Generator().manual_seed(0)), control, home_ground(task))
    with StoreWriter(tmp_path / "log.h5", StoreHeader(spec=robot.spec, source="log")) as writer:
        writer.append(path.q.numpy(), path.qd.numpy(), control.numpy())
    fallen, _ = model_error(model, Store.open(tmp_path / "log.h5"))
    error, finite = model_error(model, ADAPT_REFIT.open(robot, str(tmp_path / "log.h5")))
    assert finite == 1.0
    assert fallen is not None
    assert error is not None
    assert error < 0.2 * fallen


@pytest.mark.slow
def test_rounds_on_a_robot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A new model is adapted to the first log, and the policy that was trained in it acts on the robot.

    The robot breaks on the way; the loop goes on with what was logged until then.
    """
    from neurodyn.policy.episodes.play import record_policy
    from neurodyn.policy.online_learning.loop import online

    if "cartpole" not in pretrained_policy_names():
        pytest.skip("pretrained-policy:cartpole does not ship with this tree")
    (tmp_path / "adapt.yaml").write_text(BRIEF)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken").touch()
    monkeypatch.setenv("ROBOT_BREAKS", str(tmp_path / "broken"))
    robot = ROBOT.replace(":Cartpole", ":Breaks")
    given = OnlineRequest("cartpole-swingup", tmp_path / "loop", robot=robot)
    settings = with_flags(
        settings_of(given), policy={"iterations": 1, "worlds": 16}, frames=900, log_frames=400, rounds=2,
        size=str(tmp_path / "adapt.yaml"), episodes=8,
    )  # fmt: skip
    call = {"robot": robot, "settings": settings, "policy": "pretrained-policy:cartpole"}
    with pytest.raises(RobotStoppedError, match=r"a cable came off .*; logged until then: .*random\.h5"):
        online("cartpole-swingup", tmp_path / "loop", **call)
    known = Store.open(tmp_path / "loop" / "random.h5")
    assert 600 < known.transitions < 700
    (tmp_path / "broken").unlink()
    lines: list[str] = []
    result = online("cartpole-swingup", tmp_path / "loop", resume=True, report=lines.append, **call)
    assert re.match(r"first log: [\d,]+ robot frames in ", lines[0])
    assert lines[1].startswith("round 1: return ")
    whole = Store.open(tmp_path / "loop" / "random.h5")
    assert whole.transitions >= 900
    assert np.array_equal(whole.frames[: len(known.frames)], known.frames)
    assert len(result.rounds) == 2
    for one in result.rounds:
        assert one.model is not None
        assert kind_of(one.model.run) == "hybrid"
        assert (Path(one.model.run) / "adaptation.json").is_file()
        assert one.log is not None
        log = Store.open(one.log.path)
        assert log.transitions >= 400
        lines = Path(one.log.path).with_name("log-robot.csv").read_text().splitlines()
        assert len(lines) > log.transitions
        assert one.gap < 0.2  # the declaration is right about this robot, and the policy is good
    played = record_policy(PlayPolicyRequest(tmp_path / "loop" / "policy", on=robot, seconds=1.0))
    assert played.predicted_label == robot
    assert (played.predicted.q[:, 0] - played.truth.q[:, 0]).abs().max() < 1e-5  # the simulator starts where it does
    assert list(tmp_path.glob("robot-*.csv"))
