# SPDX-License-Identifier: Apache-2.0
"""Walking for a second: tracking, falls, forces that are not found, the same in both engines, and a network."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch
from msgspec import structs

from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Trajectory
from neurodyn.walking.closed_loop import walk
from neurodyn.walking.controller import walker
from neurodyn.walking.convex_mpc import ConvexMpc
from neurodyn.walking.force_network import load_imitation, save_imitation
from neurodyn.walking.gait import RAMP, SPEED, Commands
from neurodyn.walking.imitation import ImitationSettings, imitate
from neurodyn.walking.plant import walking_plant
from tests.walking.test_rigid_body import at

pytestmark = pytest.mark.slow
FORWARD = Commands.steady((0.4, 0.0, 0.3), 2)


@pytest.fixture(scope="module")
def walked(a1):
    controller, law, gait = walker(a1)
    return walk(a1, controller, FORWARD, seconds=1.5, seed=0, names=(law, gait))


def test_an_a1_trots_as_commanded(walked):
    result, path = walked
    assert (result.falls, result.fallbacks) == (0, 0)
    assert result.velocity_error < 0.05
    assert result.yaw_rate_error < 0.05
    assert result.decisions == 2 * 150
    moved = (path.trajectory.q[:, -1, :2] - path.trajectory.q[:, 0, :2]).norm(dim=1)
    assert (moved > 0.3).all()


def test_newton_walks_as_the_hybrid_engine_does(a1, walked):
    _, path = walked
    newton = walking_plant(a1.robot, "analytic")
    result, other = walk(newton, walker(newton)[0], FORWARD, seconds=0.3, seed=0)
    assert result.falls == 0
    frames = other.trajectory.q.shape[1]
    assert other.trajectory.q.double() == pytest.approx(path.trajectory.q[:, :frames], abs=2e-3)


def test_decisions_without_a_solution_keep_the_last_forces_and_are_counted(a1):
    controller, _, _ = walker(a1, gait="stand")
    law, calls = controller.law, []

    def sometimes(here):
        calls.append(1)
        return law(here) if len(calls) % 5 else np.full((here.worlds, 4, 3), np.nan)

    controller.law = sometimes
    result, path = walk(a1, controller, Commands.steady((0, 0, 0), 2), seconds=0.5, seed=0)
    assert result.falls == 0
    assert result.fallbacks == 2 * (len(calls) // 5)
    assert str(result.verdict).startswith("fails: ")
    assert "found no forces, and kept the last one" in str(result.verdict)
    few = structs.replace(result, fallbacks=1)
    assert few.verdict.grade == "warning"
    assert structs.replace(result, fallbacks=0).plain()["verdict"] == "ok: no falls in 2 episodes"
    assert bool(torch.isfinite(path.trajectory.q).all())


def test_a_robot_without_forces_falls_and_rests(a1):
    controller, _, _ = walker(a1)
    controller.law = lambda here: np.zeros((here.worlds, 4, 3))
    result, path = walk(a1, controller, FORWARD, seconds=1.0, seed=0)
    assert result.falls == 2
    assert str(result.verdict).startswith("fails: 100% of episodes end in a fall")
    assert structs.replace(result, falls=1).verdict.grade == "warning"
    last = int(path.standing[0].sum())
    assert last < path.standing.shape[1]
    assert bool(torch.isfinite(path.trajectory.q).all())


def test_a_robot_that_fell_begins_with_no_command_and_the_others_continue(a1):
    controller, _, _ = walker(a1)

    def tipped(state, frame):
        if frame != 20:
            return state
        q = state.q.clone()
        q[0, 3:7] = torch.tensor([1.0, 0.0, 0.0, 0.0])
        return replace(state, q=q)

    _, path = walk(a1, controller, FORWARD, seconds=0.15, seed=0, disturb=tipped)
    assert path.standing[:, -1].tolist() == [False, True]
    ramp = np.array([min(0.4, RAMP[0] * a1.dt), 0.0, min(0.3, RAMP[2] * a1.dt)])
    assert path.command[0, 20] == pytest.approx(21 * ramp)
    assert path.command[0, 21] == pytest.approx(ramp)
    assert path.command[1, 21] == pytest.approx(22 * ramp)


def test_a_controller_that_starts_over_has_read_and_decided_nothing(a1):
    controller, _, _ = walker(a1)
    walk(a1, controller, FORWARD, seconds=0.01, seed=0)
    assert controller.decided is not None
    decisions = controller.decisions
    controller.reset()
    assert controller.decided is None
    assert controller.reading is None
    assert not controller.just_decided
    assert controller.decisions == decisions


def test_commands_follow_ramps():
    commands = Commands.drawn(50, 9.0, 3)
    assert np.hypot(*commands.targets[..., :2].T).max() <= SPEED + 1e-9
    command = np.zeros((50, 3))
    for step in range(100):
        after = commands.follow(command, step * 0.01, 0.01)
        assert (np.abs(after - command) <= np.array(RAMP) * 0.01 + 1e-12).all()
        command = after
    assert command == pytest.approx(commands.at(0.5))


def test_a_network_imitates_and_walks(a1, tmp_path):
    short = ImitationSettings(transitions=600, rounds=1, round_transitions=200, seconds=1.0, epochs=20, batch=64)
    network, law = imitate(a1, settings=short)
    here = at(a1.quadruped, 20)
    weight = a1.quadruped.mass * a1.quadruped.gravity
    assert law(here).shape == (20, 4, 3)
    assert (law(here)[~here.contact] == 0).all()
    raw = network(torch.as_tensor(here.features())).detach().numpy()
    assert law.network(here.features()) == pytest.approx(raw, abs=1e-4 * weight)
    folder = tmp_path / "network"
    save_imitation(folder, network, law.config)
    again = load_imitation(folder, a1.quadruped, "a1")
    assert again(here) == pytest.approx(law(here), abs=1e-3 * weight)
    session = onnxruntime.InferenceSession(folder / "forces.onnx", providers=["CPUExecutionProvider"])
    assert session.run(None, {"features": here.features()})[0] == pytest.approx(raw, abs=1e-4 * weight)
    controller, name, gait = walker(a1, imitation=folder)
    result, path = walk(a1, controller, FORWARD, seconds=0.6, seed=0, names=(name, gait))
    assert isinstance(path.trajectory, Trajectory)
    assert (result.law, result.gait, result.falls) == ("imitation", "trot", 0)
    with pytest.raises(InputError, match="imitates forces of 'a1'"):
        load_imitation(folder, a1.quadruped, "go2")
    with pytest.raises(InputError, match="of the gait 'trot', not 'walk'"):
        walker(a1, imitation=folder, gait="walk")
    with pytest.raises(InputError, match="holds no imitated forces"):
        load_imitation(tmp_path, a1.quadruped, "a1")


def test_the_law_is_convex_mpc_by_default(a1):
    assert isinstance(walker(a1)[0].law, ConvexMpc)
