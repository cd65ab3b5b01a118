# SPDX-License-Identifier: Apache-2.0
"""Episodes of a planner on a plant: what they return is what the plant does, and the model's errors are found."""

import msgspec
import pytest
import torch

from neurodyn.control.planning.closed_loop import run
from neurodyn.control.planning.planner import Planner
from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.task_frames import MeasurementNoise
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, State, Step, Window
from neurodyn.dynamics.interface import Dynamics
from neurodyn.report.planning import control_tables, write_control_report
from neurodyn.tasks.commands import GOAL, GoalCommand
from tests.control.planning.test_planner import Smooth
from tests.policy.small_worlds import SPEC, Hold, Known


class Rolling(Smooth):
    """The mass, which rolls out."""

    rollout = Dynamics.rollout


class Heavy(Rolling):
    """Half the force arrives."""

    def step(self, carry, state, control):
        return super().step(carry, state, type(control)(torque=0.5 * control.torque))


class Longer(Hold):
    """Ten frames, commanded to be at the middle."""

    frames = 10

    def commanded(self, quantities, memory):
        return {GOAL: GoalCommand(quantities["joint_position"][:, 0].abs())}


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
    command = result.result.commands[GOAL]  # of each frame at its start
    assert command.commanded == pytest.approx(float(x[:, 0].abs().mean()), rel=1e-5)
    assert command.achieved == pytest.approx(float((x[:, 0].abs() - x[:, 9].abs()).mean()), rel=1e-5)


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
    noisy, path = looped(noise=MeasurementNoise(position=0.3, velocity=0.3))
    assert noisy.result.mean < plain.result.mean
    assert noisy.noise == {"position": 0.3, "velocity": 0.3}
    assert path.trajectory.q[:, 1:].diff(dim=1).abs().max() < 0.5  # the mass itself does not jump


def test_an_episode_that_ends_rests_and_the_others_continue():
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


class Watched(Planner):
    """Keeps what it is given."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.seen, self.restarts = [], []

    def act(self, state, memory=None):
        self.seen.append((state, memory))
        return super().act(state, memory)

    def restart(self, mask):
        self.restarts.append((len(self.seen), mask))
        super().restart(mask)


class Felt(Rolling):
    """The mass, which keeps the forces that arrive."""

    def __init__(self):
        super().__init__()
        self.forces = []

    def step(self, carry, state, control):
        self.forces.append(control.torque)
        return super().step(carry, state, control)


class Strict(Longer):
    """Ends beyond the first few decimetres; commands are drawn."""

    def commands(self, worlds, generator):
        return torch.rand(worlds, 1, generator=generator)

    def terminated(self, quantities, memory):
        return quantities["joint_position"][:, 0] > 0.3


@pytest.mark.parametrize("delay", [0, 2])
def test_a_world_whose_episode_ended_stands_at_its_start_with_nothing_of_the_episode(delay: int):
    """State, memory of the task and actions on their way, of plant and planner."""
    plant = Felt()
    planner = Watched(Rolling(), Strict(), "annealed", horizon=6, seed=0, delay=delay)
    resolved = ResolvedDynamics("model", planner.model), ResolvedDynamics("plant", plant)
    result, path = run(planner, "annealed", *resolved, episodes=16, seed=4, delay=delay)
    assert 0 < result.result.failed < 1
    state, memory = planner.seen[0]
    lengths = path.running.sum(1).tolist()
    for world, frames in enumerate(lengths):
        masks = [number for number, mask in planner.restarts if mask[world]]
        assert masks == ([frames] if frames < Longer.frames else [])
        for then, at in planner.seen[frames:]:
            assert torch.equal(then.q[world], state.q[world])
            assert torch.equal(then.qd[world], state.qd[world])
            assert all(torch.equal(vars(at)[name][world], values[world]) for name, values in vars(memory).items())
        for forces in plant.forces[frames : frames + delay]:
            assert forces[world] == 0
    assert min(lengths) < max(lengths) - delay


def test_a_plant_starts_over_with_its_whole_history():
    class Logged(ResolvedDynamics):
        def starts(self, task, seed):
            return self

        def draw(self, count):
            q = torch.linspace(-0.5, 0.25, 3).expand(count, 3)[..., None]
            return Window(q, torch.tensor([2.0, 0.0])[:, None, None].expand_as(q), torch.zeros(count, 2, 1))

    class Past(Rolling):
        def reset(self, carry, context, mask):
            given.append(context)
            return super().reset(carry, context, mask)

    given: list[object] = []
    planner = Planner(Rolling(), Strict(), "annealed", horizon=6, seed=0)
    run(planner, "annealed", ResolvedDynamics("model", Rolling()), Logged("plant", Past()), episodes=2, seed=4)
    assert given
    assert all(isinstance(context, Window) for context in given)


class Servo(Rolling):
    """A mass that goes where it is told, and keeps the targets that arrive."""

    def __init__(self):
        super().__init__(msgspec.structs.replace(SPEC, control_kind="target"))
        self.targets = []

    def step(self, carry, state, control):
        self.targets.append(control.target)
        return carry, Step(State(state.q + 0.5 * (control.target - state.q), state.qd))


class Nearby(Longer):
    """An action moves the target relative to where the mass is, less the longer the episode lasts."""

    def control(self, action, quantities, memory):
        return Control(target=quantities["joint_position"] + action / (1.0 + memory.frame[:, None]))


def test_the_delay_is_the_planners_unless_another_is_given():
    planner = Planner(Rolling(), Longer(), "annealed", horizon=6, seed=0, delay=2)
    resolved = ResolvedDynamics("model", planner.model), ResolvedDynamics("plant", Rolling())
    result, path = run(planner, "annealed", *resolved, episodes=2, seed=4)
    assert result.delay == 2
    assert (path.control[:, :2] == 0).all()
    assert (path.control[:, 2] != 0).all()
    assert run(planner, "annealed", *resolved, episodes=2, seed=4, delay=1)[0].delay == 1
    with pytest.raises(InputError, match="delay is -1 frames; valid: at least 0"):
        run(planner, "annealed", *resolved, episodes=2, seed=4, delay=-1)


@pytest.mark.parametrize("known", [0, 2])
def test_recorded_commands_are_those_that_the_plant_received(known: int):
    """A target follows from the state in which its frame began, and from the action that acted then."""
    plant = Servo()
    planner = Planner(Servo(), Nearby(), "cem", horizon=6, seed=0, delay=known)
    resolved = ResolvedDynamics("model", planner.model), ResolvedDynamics("plant", plant)
    _, path = run(planner, "cem", *resolved, episodes=3, seed=4, delay=2)
    torch.testing.assert_close(path.control, torch.stack(plant.targets, 1), rtol=0, atol=0)


def test_decisions_without_a_finite_plan_are_those_of_this_run():
    planner = Planner(Rolling(), Longer(), "annealed", horizon=6, seed=0)
    planner.fallbacks = 7
    resolved = ResolvedDynamics("model", planner.model), ResolvedDynamics("plant", Rolling())
    result, _ = run(planner, "annealed", *resolved, episodes=1, seed=4)
    assert result.fallbacks == 0


def test_a_plant_of_other_states_is_refused():
    spec = StateSpec(robot="mass", joints=(JointSpec(name="line", kind="revolute"),), controls=("line",), dt=0.1)
    with pytest.raises(InputError, match="the model model cannot plan from states of the plant plant"):
        looped(plant=Rolling(spec))


def test_refused_decisions_are_counted_and_doubted():
    model = ResolvedDynamics("known", Known(SPEC.with_context(2)))
    result, _ = run(
        Planner(model.dynamics, Hold(), "cem", horizon=3, samples=8), "cem", model, model, episodes=4, seed=0
    )
    assert 0.0 < result.refused < 1.0
    doubted = msgspec.structs.replace(result, refused=0.2, fallbacks=0)
    assert "refuses 20% of the decisions" in str(doubted.verdict)


def test_verdicts():
    result, _ = looped()
    assert str(result.verdict).startswith("ok: a decision takes")
    from msgspec.structs import replace

    assert str(replace(result, decision_ms=200.0).verdict).startswith("warning: too slow for real time here")
    assert str(replace(result, fallbacks=3).verdict).startswith("fails: in 3 decisions no plan was finite")
    assert str(replace(result, result=replace(result.result, failed=0.6)).verdict).startswith(
        "fails: 60% of episodes fail; "
    )


def test_the_page_shows_every_table(tmp_path):
    result, path = looped()
    write_control_report(tmp_path / "page.html", Longer(), result, path)
    page = (tmp_path / "page.html").read_text()
    for table in control_tables(result):
        assert all(cell in page for row in table.rows for cell in row)
    assert "planned by annealed" in page
