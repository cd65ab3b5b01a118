# SPDX-License-Identifier: Apache-2.0
"""Episodes of a planner on a plant: what they return is what the plant does, and the model's errors are found."""

import pytest
import torch

from neurodyn.control.measured_state import Noise
from neurodyn.control.planning.closed_loop import run
from neurodyn.control.planning.planner import Planner
from neurodyn.control.planning.report import control_tables, render_control_report
from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.base import BaseDynamics
from tests.control.planning.test_planner import Smooth
from tests.policy.worlds import Hold


class Rolling(Smooth):
    """The mass, which rolls out."""

    rollout = BaseDynamics.rollout


class Heavy(Rolling):
    """Half the force arrives."""

    def step(self, carry, state, control):
        return super().step(carry, state, type(control)(torque=0.5 * control.torque))


class Longer(Hold):
    """Ten frames."""

    frames = 10


def looped(model=None, plant=None, task=None, planner="annealed", **options):
    model, plant = model or Rolling(), plant or Rolling()
    asked = Planner(model, task or Longer(), planner, horizon=6, seed=0, delay=options.get("delay", 0))
    return run(
        asked, planner, ResolvedDynamics("model", model), ResolvedDynamics("plant", plant),
        **{"episodes": 3, "seed": 4, **options},
    )  # fmt: skip


def test_returns_are_those_of_the_plant():
    result, path = looped()
    x, u = path.trajectory.q[..., 0], path.control[..., 0] / 3.0
    change = torch.diff(u, dim=1, prepend=torch.zeros(3, 1))
    wanted = (1.0 - x[:, 1:].abs() - 0.1 * change.abs()).sum(1)
    assert result.result.mean == pytest.approx(float(wanted.mean()), rel=1e-5)
    assert result.result.episodes == 3
    assert result.result.failed == 0
    assert result.frame_ms == pytest.approx(100.0)
    assert result.model_frames > 0
    assert path.running.all()


def test_the_error_of_the_model_is_found():
    same, _ = looped()
    assert all(error.position < 1e-6 for error in same.model_error)
    off, _ = looped(plant=Heavy())
    assert [error.frames for error in off.model_error] == [1, 10, 6]
    assert off.model_error[0].velocity > 1e-3


def test_a_delay_shifts_what_acts():
    _, path = looped(delay=2)
    assert (path.control[:, :2] == 0).all()
    assert (path.control[:, 2] != 0).all()


def test_noise_changes_what_is_planned_but_not_what_is():
    plain, _ = looped()
    noisy, path = looped(noise=Noise(position=0.3, velocity=0.3))
    assert noisy.result.mean < plain.result.mean
    assert noisy.noise == {"position": 0.3, "velocity": 0.3}
    assert path.trajectory.q[:, 1:].diff(dim=1).abs().max() < 0.5  # the mass itself does not jump


def test_an_episode_that_ends_rests_and_the_others_go_on():
    class Strict(Longer):
        def terminated(self, quantities, memory):
            return quantities["joint_position"][:, 0] > 0.3

    result, path = looped(task=Strict(), episodes=16)
    assert 0 < result.result.failed < 1
    assert path.trajectory.q.isfinite().all()
    ended = ~path.running.all(1)
    assert ended.any()
    last = path.running[ended].sum(1)
    for row, frame in zip(path.trajectory.q[ended, :, 0], last.tolist(), strict=True):
        assert (row[frame:] == row[frame]).all()


def test_a_plant_of_other_states_is_refused():
    spec = StateSpec(robot="mass", joints=(JointSpec(name="line", kind="revolute"),), controls=("line",), dt=0.1)
    with pytest.raises(InputError, match="the model model cannot plan from states of the plant plant"):
        looped(plant=Rolling(spec))


def test_verdicts():
    result, _ = looped()
    assert str(result.verdict).startswith("ok: a decision takes")
    from msgspec.structs import replace

    assert str(replace(result, decision_ms=200.0).verdict).startswith("warning: too slow for real time here")
    assert str(replace(result, fallbacks=3).verdict).startswith("fails: in 3 decisions no plan was finite")
    assert str(replace(result, result=replace(result.result, failed=0.6)).verdict).startswith(
        "fails: 60% of episodes fail; "
    )


def test_the_page_shows_every_table():
    result, path = looped()
    page = render_control_report(Longer(), result, path)
    for table in control_tables(result):
        assert all(cell in page for row in table.rows for cell in row)
    assert "planned by annealed" in page
