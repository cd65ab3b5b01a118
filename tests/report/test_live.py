# SPDX-License-Identifier: Apache-2.0
"""Dynamics in a browser, without one: frames advance, sliders command, drags push, plots run."""

import sys
import urllib.request

import mujoco
import numpy as np
import pytest
import torch

from neurodyn.cli.main import run
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.evaluate.requests import RecordingRequest
from neurodyn.report.live import LiveView, Pushes, open_session
from neurodyn.robots import load
from tests.interop.runs import write_arm

pytest.importorskip("newton")


@pytest.fixture(scope="module")
def session():
    return open_session(RecordingRequest("cartpole"), ("hybrid", "analytic"))


@pytest.fixture
def view(session):
    pytest.importorskip("viser")
    session.reset()
    made = LiveView(session, port=0)
    yield made
    made.stop()


def test_a_push_changes_velocities_by_the_inverse_mass_matrix(tmp_path):
    mechanism = declared_mechanism(load(write_arm(tmp_path, simulator={"solver": "mujoco-c"})), None)[0]
    compiled = mujoco.MjModel.from_xml_path(str(tmp_path / "arm.xml"))
    data, jacobian, matrix = mujoco.MjData(compiled), np.zeros((3, 3)), np.zeros((3, 3))
    data.qpos[:] = 0.2, 0.7, -0.5
    mujoco.mj_forward(compiled, data)
    mujoco.mj_jacBodyCom(compiled, data, jacobian, None, compiled.body("fore").id)
    for column in range(3):
        mujoco.mj_mulM(compiled, data, matrix[column], np.eye(3)[column])
    impulse = np.array([0.3, 0.1, -0.2])
    state = State(torch.from_numpy(data.qpos.copy())[None], torch.zeros(1, 3, dtype=torch.float64))
    found = Pushes(mechanism).change(state, "elbow", impulse)[0].numpy()
    np.testing.assert_allclose(found, np.linalg.solve(matrix, jacobian.T @ impulse), rtol=1e-4)


def test_a_push_gives_a_floating_robot_the_impulse_it_says():
    robot = load("cube")
    mechanism = declared_mechanism(robot, None)[0]
    q = torch.zeros(1, 7, dtype=torch.float64)
    q[0, 2:] = torch.tensor([1.0, 0.1, 0.2, 0.3, 0.927361849549])
    pushes = Pushes(mechanism)
    change = pushes.change(
        State(q, torch.zeros(1, 6, dtype=torch.float64)), mechanism.names[0], np.array([1.0, 2.0, 3.0])
    )
    np.testing.assert_allclose(change[0, :3] * pushes.mass, [1.0, 2.0, 3.0], rtol=1e-6)
    np.testing.assert_allclose(change[0, 3:], 0.0, atol=1e-6)


def test_frames_advance_and_the_page_is_there(view, session):
    for _ in range(5):
        view.step()
    assert session.frame == 5
    assert view.status.content == f"{5 * session.robot.dt:.2f} s"
    assert b"<html" in urllib.request.urlopen(view.address, timeout=10).read()[:2000].lower()
    view.paused.value = True
    view.step()
    assert session.frame == 5


def test_sliders_command_both_dynamics(view, session):
    before = [state.qd.clone() for state in session.states]
    view.sliders[0].value = 1500.0
    for _ in range(10):
        view.step()
    gained = [float((after.qd - b)[0, 0]) for after, b in zip(session.states, before, strict=True)]
    assert min(gained) > 1.0
    view._rest()
    assert view.sliders[0].value == session.commands.rest[0]


def test_dragging_pushes_and_letting_go_ends_it(view, session):
    view.link.value = "slider"
    view.step()
    assert view.force() is None
    still = session.states[0].qd.clone()
    view._hold(True)
    view.handle.position = np.asarray(view.handle.position) + np.array([0.5, 0.0, 0.0])
    force = view.force()
    assert force[0] == pytest.approx(0.5 * view.stiffness.value, rel=1e-4)
    view.step()
    pushed = float((session.states[0].qd - still)[0, 0])
    assert pushed > 0.02
    view._hold(False)
    view.step()
    assert view.force() is None
    assert np.allclose(view.handle.position, view._places(0)[view._bodies["slider"]])


def test_meshes_of_both_robots_lie_where_their_links_are_side_by_side(view, session):
    view.sliders[0].value = 800.0
    for _ in range(10):
        view.step()
    half = len(view._meshes) // 2
    apart = np.array(view._meshes[half].position) - np.array(view._meshes[0].position)
    assert apart[1] >= 1.5
    assert view._meshes[0].wxyz == pytest.approx((1.0, 0.0, 0.0, 0.0), abs=1e-5)


def test_the_error_plot_runs_and_starts_over_with_the_same_state(view, session):
    view._drawn = 0.0
    for _ in range(30):
        view.step()
    assert len(view._past) == 30
    assert view._past[-1][0] == pytest.approx(session.frame * session.robot.dt)
    assert len(view.plot.data) == 3
    session.states[1] = State(session.states[1].q + 0.2, session.states[1].qd)
    assert session.errors()[1] == pytest.approx(0.2 * 2**0.5, abs=0.02)
    session.synchronise()
    assert session.errors() == (0.0, 0.0)
    view._reset()
    assert session.frame == 0
    assert not view._past


def test_a_model_that_diverges_is_named(session):
    session.reset()
    session.states[1] = State(session.states[1].q * float("nan"), session.states[1].qd)
    session.advance([0.0])
    assert session.stop_reason.startswith("analytic diverged after 0.00 s")
    session.reset()
    session.advance([0.0])
    assert session.stop_reason == ""


def test_it_runs_in_real_time(view, session):
    frames = view.run(0.5)
    assert 10 < frames <= 32


def test_what_cannot_run_is_refused(monkeypatch, capsys):
    with pytest.raises(InputError, match="--dynamics names 3, hybrid, analytic, pretrained:cartpole; valid: at most 2"):
        open_session(RecordingRequest("cartpole"), ("hybrid", "analytic", "pretrained:cartpole"))
    monkeypatch.setitem(sys.modules, "viser", None)
    assert run(["view", "cartpole", "--live"]) == 2
    assert "install it with: pip install 'neurodyn[live]'" in capsys.readouterr().err


def test_the_command_runs_for_a_while(capsys):
    pytest.importorskip("viser")
    words = ["view", "cartpole", "--live", "--dynamics", "hybrid", "--port", "0", "--seconds", "0.3"]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert "cartpole: hybrid at http://127.0.0.1:" in said
    assert "frames in 0.3 s" in said
