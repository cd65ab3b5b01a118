# SPDX-License-Identifier: Apache-2.0
"""Drives in the reference simulator: the same law as in hybrid dynamics, in steps, windows, resets and data."""

from pathlib import Path

import msgspec
import pytest
import torch

from neurodyn.core.description.drive import Drive
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Control, State, Window
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.robots import load

pytest.importorskip("newton")

ROBOT = load(str(Path(__file__).resolve().parents[2] / "examples" / "own_drive"))
WHOLE = Drive(
    kind="pd", kp=40.0, kd=0.8, delay=0.0087, effort_limit=8.0, saturation_effort=10.0, velocity_limit=25.0, lag=0.002,
    stiffness=150.0, elastic_damping=0.1, rotor_inertia=0.01, viscous=0.02, bias=0.03,
)  # fmt: skip
FRAMES = 12


@pytest.fixture(scope="module")
def analytic() -> AnalyticDynamics:
    """A robot without dry friction, which the two engines smooth in ways of their own."""
    joint = msgspec.structs.replace(ROBOT.joints[0], friction=0.0)
    simulator = msgspec.structs.replace(ROBOT.simulator, solver="featherstone", mass_matrix_interval=1)
    return AnalyticDynamics(
        msgspec.structs.replace(ROBOT, joints=(joint,), drives={"knee": WHOLE}, simulator=simulator)
    )


def drawn(*shape: int) -> torch.Tensor:
    return 0.5 * torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def motion(analytic: AnalyticDynamics):
    state, targets = State(drawn(2, 1), drawn(2, 1)), drawn(2, FRAMES, 1)
    return state, targets, analytic.rollout(state, targets)


def test_the_simulator_moves_as_the_hybrid_model_does(analytic: AnalyticDynamics, motion):
    state, targets, path = motion
    hybrid = declared_hybrid(analytic.robot)
    assert hybrid.memory > 0
    other = hybrid.rollout(State(state.q.double(), state.qd.double()), targets.double())
    assert float((path.q - other.q).abs().max()) < 2e-4
    assert float((path.qd - other.qd).abs().max()) < 5e-3


def test_steps_and_windows_continue_where_drives_were(analytic: AnalyticDynamics, motion):
    state, targets, path = motion
    carry, half = analytic.begin(state), FRAMES // 2
    for frame in range(half):
        carry, step = analytic.step(carry, state, Control(target=targets[:, frame]))
        state = step.state
        torch.testing.assert_close(state.q, path.q[:, frame + 1])
    window = Window(path.q[:, : half + 1], path.qd[:, : half + 1], targets[:, :half])
    onward = analytic.rollout(window, targets[:, half:])
    torch.testing.assert_close(onward.q, path.q[:, half:], rtol=1e-4, atol=1e-5)
    carry = analytic.reset(carry, state, torch.tensor([True, False]))
    assert not carry.memory[0].any()
    assert carry.memory[1].any()


def test_worlds_that_have_not_moved_start_over_with_what_a_window_leaves(analytic: AnalyticDynamics, motion):
    _, targets, path = motion
    window = Window(path.q[:, :5], path.qd[:, :5], targets[:, :4])
    carry = analytic.reset(analytic.begin(window.present), window, torch.tensor([True, False]))
    assert torch.equal(carry.memory[0], analytic.begin(window).memory[0])
    assert not carry.memory[1].any()


def test_data_hold_targets(tmp_path):
    from neurodyn.data.store import Store
    from neurodyn.sim.generation import generate

    generate(ROBOT, transitions=400, out=tmp_path / "data.h5", frames=50)
    store = Store.open(tmp_path / "data.h5")
    assert store.header.spec.control_kind == "target"
    assert abs(store.control).max() <= 1.2
