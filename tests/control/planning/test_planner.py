# SPDX-License-Identifier: Apache-2.0
"""Planners on a mass on a line, whose returns can be computed by hand."""

import msgspec
import pytest
import torch

from neurodyn.control.planning import optimiser
from neurodyn.control.planning.optimiser import Imagination
from neurodyn.control.planning.planner import PLANNERS, Planner
from neurodyn.control.planning.sampling import Cem, CemSettings
from neurodyn.control.planning.settings import PlannerSettings, load_settings
from neurodyn.control.task_frames import TaskFrames
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.batch import Control, State, Step, Window
from tests.policy.small_worlds import SPEC, Hold, Known, Mass

DT = SPEC.dt


class Smooth(Mass):
    """The mass, with gradients."""

    differentiable = True


class Unsure(Smooth):
    """The mass with an uncertainty that grows with its speed."""

    @property
    def epistemic_scale(self):
        return torch.ones(2)

    def step(self, carry, state, control):
        carry, step = super().step(carry, state, control)
        return carry, Step(step.state, epistemic=torch.cat([step.state.qd.abs(), 0 * step.state.qd], -1))


def still(*q, dtype=torch.float32):
    return State(torch.tensor(q, dtype=dtype)[:, None], torch.zeros(len(q), 1, dtype=dtype))


def imagination(state, *, model=None, pending=None, value=None, **settings):
    frames, generator = TaskFrames(Hold(), model or Smooth()), torch.Generator().manual_seed(0)
    memory = frames.task.begin(frames.quantities(state, None, frames.no_torque(state)), generator)
    asked = PlannerSettings(**{"horizon": 3, **settings})
    return Imagination(frames, state, memory, asked, generator, pending=pending, value=value)


def by_hand(x, plan, discount=1.0, value=None):
    v, total, weight, last = 0.0, 0.0, 1.0, 0.0
    for u in plan:
        v += DT * 3.0 * u
        x += DT * v
        total += weight * (1.0 - abs(x) - abs(u - last) / 10)
        weight, last = weight * discount, u
    return total if value is None else total + weight * value(x, v)


def test_plans_beyond_the_known_places_cost_what_caution_asks():
    plan = torch.zeros(2, 1, 3, 1)
    careless, careful = (imagination(still(0.0, 0.5), model=Known(), caution=c).returns(plan) for c in (0.0, 2.0))
    assert (careless - careful)[:, 0].tolist() == pytest.approx([0.0, 6.0])
    tracked = imagination(still(0.0, 0.5), model=Known(), caution=2.0).returns(plan, tracked=True)
    assert torch.allclose(tracked, careful)


def test_a_planner_says_which_decisions_its_model_refuses():
    planner = Planner(Known(), Hold(), "cem", horizon=3, samples=8)
    planner.act(still(0.0, 0.5))
    assert planner.refused.tolist() == [False, True]
    planner = Planner(Mass(), Hold(), "cem", horizon=3, samples=8)
    planner.act(still(0.0))
    assert planner.refused is None
    with pytest.raises(InputError, match="caution is 1, but these fake dynamics"):
        Planner(Mass(), Hold(), "cem", caution=1.0)


def test_returns_are_sums_of_rewards():
    plans = 2 * torch.rand(2, 4, 3, 1, generator=torch.Generator().manual_seed(1)) - 1
    found = imagination(still(0.2, -0.4), discount=0.9).returns(plans)
    for row, x in enumerate((0.2, -0.4)):
        wanted = [by_hand(x, plan[:, 0].tolist(), 0.9) for plan in plans[row]]
        torch.testing.assert_close(found[row], torch.tensor(wanted))


def test_a_critic_says_what_comes_after():
    plans = 2 * torch.rand(1, 2, 3, 1, generator=torch.Generator().manual_seed(1)) - 1
    found = imagination(still(0.2), discount=0.9, value=lambda seen: seen[:, 0] + 2 * seen[:, 1]).returns(plans)
    wanted = [by_hand(0.2, plan[:, 0].tolist(), 0.9, lambda x, v: x + 2 * v) for plan in plans[0]]
    torch.testing.assert_close(found[0], torch.tensor(wanted))


def test_gradients_are_those_of_finite_differences():
    state = still(0.2, -0.4, dtype=torch.float64)
    at = imagination(state, horizon=3, discount=0.9, value=lambda seen: seen[:, 0] * seen[:, 1])
    plans = 0.8 * (2 * torch.rand(2, 2, 3, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64) - 1)
    assert torch.autograd.gradcheck(lambda x: at.returns(x, tracked=True), plans.requires_grad_(), eps=1e-6)


def test_an_episode_that_ends_earns_nothing_more():
    model = Smooth()
    state = State(torch.tensor([[1.99]]), torch.tensor([[5.0]]))  # beyond 2 in the first frame, whatever is done
    found = imagination(state, model=model, horizon=3).returns(torch.zeros(1, 1, 3, 1))
    torch.testing.assert_close(found, torch.tensor([[1.0 - 2.49]]))


def test_what_is_not_finite_ends_and_leaves_gradients_of_others_alone():
    model = Smooth()
    model.spoil = torch.tensor([True, False])
    plans = torch.zeros(1, 2, 3, 1, requires_grad=True)
    found = imagination(still(0.2), model=model).returns(plans, tracked=True)
    assert found[0, 0] == 0.0
    (gradient,) = torch.autograd.grad(found.sum(), plans)
    assert gradient[0, 1].isfinite().all()
    assert gradient[0, 1].abs().sum() > 0


def test_uncertainty_costs():
    plans = torch.ones(1, 1, 3, 1)
    free = imagination(still(0.0), model=Unsure()).returns(plans)
    dear = imagination(still(0.0), model=Unsure(), penalty=2.0).returns(plans)
    speeds = 0.3 * torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(free - dear, 2.0 * Hold.penalty_scale * speeds.sum().view(1, 1))


@pytest.mark.parametrize("at_once", [1, 13, 1000])
def test_frames_judged_in_batches_return_what_frames_judged_one_by_one_do(at_once, monkeypatch):
    monkeypatch.setattr(optimiser, "_JUDGED", at_once)
    state = State(torch.tensor([[0.2], [1.9]]), torch.tensor([[0.0], [0.5]]))
    pending = torch.tensor([[[0.5]], [[-0.5]]])
    plans = 2 * torch.rand(2, 3, 9, 1, generator=torch.Generator().manual_seed(1)) - 1
    plans[1, 0] = 1.0  # ends before the plan does
    at = imagination(
        state, model=Unsure(), horizon=9, discount=0.9, penalty=0.3, pending=pending, value=lambda seen: seen[:, 0]
    )
    torch.testing.assert_close(at.returns(plans), at.returns(plans, tracked=True))


def test_noise_of_several_sizes_reaches_from_coarse_to_fine():
    class Recorder:
        limit = 100.0

        def returns(self, plans):
            self.plans = plans
            return plans.sum((2, 3))

    given = CemSettings(horizon=200, samples=5, rounds=1, noise=0.01, finest=0.01)
    recorder = Recorder()
    Cem(given, torch.Generator().manual_seed(0)).improve(recorder, torch.zeros(1, 200, 1), first=False)  # pyright: ignore[reportArgumentType]
    sizes = recorder.plans[0, 1:].std((1, 2))
    torch.testing.assert_close(sizes, torch.tensor([10**-0.5, 0.1, 10**-1.5, 0.01]), rtol=0.2, atol=0.0)


def test_what_is_on_its_way_acts_first():
    pending = torch.tensor([[[1.0], [-1.0]]])
    plans = torch.tensor([[[[0.3], [0.4], [0.5]]]])
    found = imagination(still(0.0), pending=pending).returns(plans)
    torch.testing.assert_close(found, torch.tensor([[by_hand(0.0, [1.0, -1.0, 0.5])]]))


@pytest.mark.parametrize("name", list(PLANNERS))
def test_every_planner_brings_the_mass_to_the_middle(name):
    planner = Planner(Smooth(), Hold(), name, horizon=8, seed=1)
    state = still(0.8, -0.6)
    for _ in range(25):
        control = planner.act(state)
        qd = state.qd + DT * control.torque
        state = State(state.q + DT * qd, qd)
    assert state.q.abs().max() < 0.2
    assert planner.fallbacks == 0
    assert planner.spent.frames > 0
    assert (planner.spent.gradients > 0) == PLANNERS[name].needs_gradients


def planned(planner):
    planner.act(still(0.02))
    return planner._plan


@pytest.mark.parametrize("name", list(PLANNERS))
def test_a_seed_repeats_a_plan(name):
    first, again, other = (planned(Planner(Smooth(), Hold(), name, horizon=5, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


class Ordered(Hold):
    """Goes to a place that is commanded."""

    def commands(self, worlds, generator):
        return torch.full((worlds, 1), 0.3)

    def reward(self, quantities, memory, action):
        off = quantities["joint_position"] - memory.command
        return super().reward(quantities, memory, action) | {"order": -off[:, 0].abs()}


class Remembering(Smooth):
    """The mass, whose force fades with the mean velocity of the past that is known."""

    def __init__(self):
        super().__init__(msgspec.structs.replace(SPEC, context=4))

    def begin(self, context, environment=None):
        return context.qd.mean(1) if isinstance(context, Window) else context.qd

    def step(self, carry, state, control):
        qd = state.qd + DT * control.torque * torch.exp(-carry.square())
        return carry, Step(State(state.q + DT * qd, qd))


def held(planner, row):
    """Return all that a planner holds of a world."""
    memory = vars(planner._memory.rows(torch.tensor([row])))
    values = [planner._plan, planner.decided, planner.action, planner._pending, planner._torque]
    return {**memory, **{number: value[row : row + 1] for number, value in enumerate(values)}}


@pytest.mark.parametrize("model", [Smooth, Remembering])
@pytest.mark.parametrize("name", list(PLANNERS))
def test_a_world_that_starts_over_is_planned_for_as_one_that_starts(name, model):
    """Plan, rounds, past, torque, memory of the task and actions on their way are those of a first decision."""
    if name == "ilqr" and model is Remembering:
        pytest.skip("plans in models without a memory alone")
    both, alone = (Planner(model(), Ordered(), name, horizon=6, delay=2, seed=seed) for seed in (1, 2))
    for q in (0.8, 0.5, 0.1, -0.3, -0.5):
        both.act(State(torch.tensor([[q], [q + 0.2]]), torch.tensor([[-3.0], [-2.0]])))
    before = held(both, 0)
    both.restart(torch.tensor([False, True]))
    torch.testing.assert_close(held(both, 0), before)
    for q in (0.6, 0.4, 0.3) if model is Remembering else (0.6,):
        alone._generator.set_state(both._generator.get_state())  # worlds of which least is known are planned for first
        state = State(torch.tensor([[-0.7], [q]]), torch.tensor([[-1.0], [-1.0]]))
        commanded = both.act(state).torque
        torch.testing.assert_close(alone.act(state.rows(torch.tensor([1]))).torque, commanded[1:], rtol=0, atol=0)
        torch.testing.assert_close(held(alone, 0), held(both, 1), rtol=0, atol=0)
    assert not torch.equal(held(both, 0)["frame"], held(both, 1)["frame"])


def test_the_present_has_no_torques_where_targets_drive():
    class Servo(Smooth):
        def step(self, carry, state, control):
            return carry, Step(State(control.target, state.qd))

    class Reach(Hold):
        def control(self, action, quantities, memory):
            assert "joint_torque" not in quantities
            return Control(target=action)

    planner = Planner(Servo(msgspec.structs.replace(SPEC, control_kind="target")), Reach(), "cem", horizon=4)
    for q in (0.8, 0.3):
        assert planner.act(still(q)).target.abs().max() <= 1.0


def test_planning_draws_nothing_from_the_global_generator():
    torch.manual_seed(3)
    wanted = torch.rand(3)
    torch.manual_seed(3)
    Planner(Smooth(), Hold(), "mppi", horizon=5).act(still(0.8))
    assert torch.equal(torch.rand(3), wanted)


def test_the_first_decision_knows_that_nothing_acts_before_it():
    planner, seen = Planner(Smooth(), Hold(), "annealed", horizon=4, delay=2), []

    def improve(imagination, plan, first):
        seen.append(imagination.fixed)
        return torch.ones_like(plan)

    planner._optimiser.improve = improve
    acted = []
    for _ in range(4):
        planner.act(still(0.8))
        acted.append(float(planner.action))
    assert seen == [2, 2, 2, 2]
    assert acted == [0.0, 0.0, 1.0, 1.0]


def test_an_error_of_the_model_that_lasts_is_planned_for():
    def distance(correction: float) -> float:
        planner = Planner(Smooth(), Hold(), "gradient", horizon=8, correction=correction)
        state = still(0.5, -0.5)
        for _ in range(40):
            force = planner.act(state).torque
            assert force is not None
            qd = state.qd + DT * (force - 1.5)  # of a wind that the model does not know
            state = State(state.q + DT * qd, qd)
        return float(state.q.abs().max())

    assert distance(0.3) < 0.3 * distance(0.0)
    with pytest.raises(ValueError, match="correction is 2; valid: from 0 to 1"):
        PlannerSettings(correction=2)


def test_a_known_delay_is_planned_for():
    """Two frames late, the planner brakes in time; one that does not know of it swings."""
    off = {}
    for known in (2, 0):
        planner = Planner(Smooth(), Hold(), "gradient", horizon=12, delay=known, seed=1)
        state, sent = still(0.9), [torch.zeros(1, 1)] * 2
        late = 0.0
        for number in range(40):
            sent.append(planner.act(state).torque)
            qd = state.qd + DT * sent.pop(0)
            state = State(state.q + DT * qd, qd)
            late += float(state.q.abs().sum()) if number > 20 else 0.0
        off[known] = late
    assert off[2] < 0.6 * off[0]


def test_no_finite_plan_keeps_the_last_one():
    planner = Planner(Smooth(), Hold(), "annealed", horizon=4, seed=1)
    first = planner.act(still(0.8))
    planner._optimiser.improve = lambda imagination, plan, first: torch.full_like(plan, torch.nan)
    then = planner.act(still(0.8))
    assert planner.fallbacks == 1
    assert then.torque.isfinite().all()
    assert first.torque.isfinite().all()


def test_commands_can_be_given():
    planner = Planner(Smooth(), Hold(), "cem", horizon=4)
    with pytest.raises(InputError, match="no state yet"):
        planner.command = torch.zeros(1, 0)
    planner.act(still(0.8))
    planner.command = torch.zeros(1, 0)
    assert planner.command.shape == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"planner": "magic"}, "unknown planner 'magic'; valid: annealed"),
        ({"horizon": 1}, "horizon is 1; valid: at least 2 frames"),
        ({"planner": "cem", "samples": 1}, "samples is 1; valid: at least 2"),
        ({"planner": "cem", "elites": 1.0}, "elites is 1.0; valid: between 0 and 1"),
        ({"planner": "cem", "finest": 0.0}, "finest is 0.0; valid: above 0, at most 1"),
        ({"planner": "mppi", "temperature": 0.0}, "temperature is 0.0; valid: a finite number above 0"),
        ({"planner": "gradient", "samples": 8}, "samples is not a setting of the planner 'gradient'; it has"),
        ({"planner": "gradient", "steps": 0}, "steps is 0; valid: a whole number of at least 1"),
        ({"noise": float("nan")}, "noise is nan; valid: a finite number of at least 0"),
        ({"penalty": -1.0}, "penalty is -1.0; valid: a finite number of at least 0"),
        ({"penalty": 1.0}, "do not know how uncertain they are"),
        ({"delay": 40}, "delay is 40 frames; valid: 0 to 39, less than the horizon"),
        ({"settings": PlannerSettings()}, "settings are PlannerSettings; valid for 'cem': CemSettings"),
    ],
)
def test_bad_input_is_one_line(arguments, message):
    with pytest.raises(InputError) as error:
        Planner(Smooth(), Hold(), **arguments)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_model_without_gradients_is_refused():
    with pytest.raises(InputError, match="no gradients to plan by; valid: a planner that draws samples"):
        Planner(Mass(), Hold(), "gradient")


def test_a_model_of_another_robot_is_refused():
    with pytest.raises(MismatchError, match=r"dt is 0\.2 s instead of 0\.1 s"):
        Planner(Smooth(msgspec.structs.replace(SPEC, dt=0.2)), Hold(), "cem")


def test_settings_come_from_a_file(tmp_path):
    path = tmp_path / "cem.yaml"
    path.write_text("horizon: 7\nelites: 0.2\n")
    planner = Planner(Smooth(), Hold(), "cem", path, samples=9)
    assert (planner.settings.horizon, planner.settings.elites, planner.settings.samples) == (7, 0.2, 9)
    path.write_text("horizn: 7\n")
    with pytest.raises(InputError, match="horizn"):
        load_settings(PLANNERS["cem"].settings_type, "cem", "hold", path)
