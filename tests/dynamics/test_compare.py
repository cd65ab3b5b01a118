# SPDX-License-Identifier: Apache-2.0
"""Dynamics beside others, or beside a recording, from the same states under the same controls."""

import msgspec
import pytest
import torch

import neurodyn
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.batch import Environment, State, Step, Trajectory
from neurodyn.dynamics.interface import Dynamics
from neurodyn.robots import Robot


class Falling(Dynamics):
    """Every coordinate is accelerated."""

    kind = "falling"

    def __init__(self, spec, acceleration):
        self.spec, self.acceleration = spec, acceleration

    def begin(self, context, environment=None):
        self.seen = environment
        return

    def reset(self, carry, context, mask):
        return None

    def step(self, carry, state, control):
        qd = state.qd + self.acceleration * self.spec.dt
        return None, Step(State(state.q + self.spec.dt * qd, qd))


@pytest.fixture
def start(cartpole: Robot) -> State:
    return State(torch.zeros(3, 2, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float64))


CONTROLS = torch.zeros(3, 20, 1, dtype=torch.float64)


def test_errors_are_those_of_the_two_paths(cartpole: Robot, start: State):
    spec = cartpole.spec
    found = Falling(spec, 1.0).compare(Falling(spec, 0.5), start, CONTROLS)
    frame = torch.arange(1, 21, dtype=torch.float64)
    wanted = 0.5 * spec.dt**2 * frame * (frame + 1) / 2
    assert found.names == ("slider", "hinge")
    assert torch.allclose(found.errors, wanted[None, :, None].expand(3, 20, 2))
    assert found.mean_errors(10)["hinge"] == pytest.approx(float(wanted[:10].mean()))
    assert (found.predicted_label, found.truth_label) == ("falling", "other falling")
    assert "20 frames" in repr(found)


def test_both_are_in_the_environment_that_the_first_fills_in(cartpole: Robot, start: State):
    class Grounded(Falling):
        home = Environment(gravity=torch.tensor([0.0, 0.0, -1.0]))

    model, other = Grounded(cartpole.spec, 1.0), Falling(cartpole.spec, 1.0)
    model.compare(other, start, CONTROLS)
    assert other.seen.gravity.tolist() == [0.0, 0.0, -1.0]


def test_a_recording_may_be_longer_and_takes_the_first_frames(cartpole: Robot, start: State):
    model = Falling(cartpole.spec, 1.0)
    recorded = model.rollout(start, torch.zeros(3, 30, 1, dtype=torch.float64))
    found = model.compare(recorded, start, CONTROLS)
    assert found.truth_label == "recorded"
    assert found.errors.abs().max() == 0.0
    with pytest.raises(InputError, match=r"truth.q has shape \[3, 6, 2\]; valid: \[3, 21, 2\], or more states"):
        model.compare(recorded.until(5), start, CONTROLS)


def test_other_robots_are_refused(cartpole: Robot, start: State):
    other = Falling(msgspec.structs.replace(cartpole.spec, dt=0.1), 1.0)
    with pytest.raises(MismatchError, match=r"dt is 0\.1 s"):
        Falling(cartpole.spec, 1.0).compare(other, start, CONTROLS)


def test_a_notebook_shows_a_table_and_a_picture(cartpole: Robot, start: State):
    found = Falling(cartpole.spec, 1.0).compare(Falling(cartpole.spec, 0.5), start, CONTROLS)
    html = found._repr_html_()
    assert html.count("<tr>") == 1 + 3 * 2
    assert "persistence" in html
    assert "constant velocity" in html
    figure = found.plot(worlds=(0, 2))
    assert [axes.get_ylabel() for axes in figure.axes] == ["slider [m]", "hinge [rad]"]
    assert [len(axes.lines) for axes in figure.axes] == [4, 4]
    assert figure._repr_png_()[:4] == b"\x89PNG"  # type: ignore[attr-defined]
    assert found.predicted.plot(cartpole.spec)._repr_png_()[:4] == b"\x89PNG"  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="worlds has 3; valid: 0 to 2"):
        found.plot(worlds=(3,))


def test_roll_outs_that_are_not_finite_are_reported(cartpole: Robot, start: State):
    lost = Trajectory(torch.full((3, 21, 2), float("nan"), dtype=torch.float64), torch.zeros(3, 21, 2).double())
    found = Falling(cartpole.spec, 1.0).compare(lost, start, CONTROLS)
    assert found.mean_errors() == {"slider": None, "hinge": None}
    assert "not finite" in found._repr_html_()


def test_a_model_that_ships_is_compared_with_its_robot():
    model = neurodyn.load("pretrained:pendulum")
    spec = model.spec
    state = State(torch.full((2, spec.nq), 0.3), torch.zeros(2, spec.nv))
    found = model.compare(model, state, torch.zeros(2, 5, spec.nu))
    assert max(value for value in found.mean_errors().values() if value is not None) == 0.0
