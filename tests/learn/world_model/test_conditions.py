# SPDX-License-Identifier: Apache-2.0
"""World models with quantities of the robot as inputs."""

import dataclasses

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Control, Environment, Window, WorldParameters
from neurodyn.dynamics.conditions import Condition
from neurodyn.dynamics.world_model.model import WORLD_MODEL, WorldModel
from neurodyn.evaluate.world_model import forecast_log
from neurodyn.learn.world_model.train import finetune_world_model, train_world_model
from neurodyn.robots import Joint, Robot
from tests import worlds
from tests.learn.world_model.test_train import QUICK

DRAG = Condition(name="drag", value=5.0, lower=0.0, upper=20.0)
WORLDS = 4


def family(episodes: int = 60, **options) -> Store:
    """Episodes of springs of which each has a drag of its own."""
    drag = np.random.default_rng(1).uniform(0.0, 20.0, (episodes, 1))
    store = worlds.make_store(episodes, drag=drag, **options)
    header = msgspec.structs.replace(store.header, parameters={"drag": 5.0, "colour": 1.0})
    own = np.concatenate([drag, np.arange(episodes)[:, None]], 1).astype(np.float32)
    return dataclasses.replace(store, header=header, parameters=own)


@pytest.fixture(scope="module")
def robot() -> Robot:
    joints = tuple(Joint(name=j.name, kind=j.kind, continuous=j.continuous) for j in worlds.SPEC.joints)
    return Robot(name="spring", asset="none.urdf", joints=joints, actuated={"slide": 1.0, "wheel": 1.0}, dt=0.02)


@pytest.fixture
def model() -> WorldModel:
    """A model with random weights everywhere, in double precision."""
    torch.manual_seed(0)
    made = WorldModel(worlds.SPEC.with_context(3), worlds.SMALL, terminates=True, conditions=(DRAG,)).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
        made.scale.fill_(0.05)
    return made.requires_grad_(False)


def starts(states: int = 4) -> tuple[Window, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    past = Window(
        draw(WORLDS, states, 2), draw(WORLDS, states, 2), draw(WORLDS, states - 1, 2), draw(WORLDS, states, 1)
    )
    return past, draw(WORLDS, 5, 2)


def around(numbers: torch.Tensor) -> Environment:
    return Environment(parameters=WorldParameters(("drag",), numbers[:, None]))


NUMBERS = torch.tensor([1.0, 5.0, 9.0, 18.0], dtype=torch.float64)


def test_gradients_are_those_of_finite_differences(model):
    past, controls = starts()
    numbers = NUMBERS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda given: model.rollout(past, controls, around(given)).q, (numbers,), atol=1e-7)

    def stepped(given: torch.Tensor) -> torch.Tensor:
        carry = model.begin(past, around(given), members=torch.zeros(WORLDS, dtype=torch.int64))
        carry, step = model.step(carry, past.present, Control(torque=controls[:, 0]))
        return model.step(carry, step.state, Control(torque=controls[:, 1]))[1].state.qd

    assert torch.autograd.gradcheck(stepped, (numbers,), atol=1e-7)
    (gradient,) = torch.autograd.grad(stepped(numbers).square().sum(), numbers)
    assert (gradient.abs() > 1e-9).all()


def test_steps_are_those_of_rollouts_and_worlds_start_over_as_themselves(model):
    past, controls = starts()
    one = WorldModel(model.spec, msgspec.structs.replace(worlds.SMALL, members=1), terminates=True, conditions=(DRAG,))
    one = one.double().requires_grad_(False)
    for parameter in one.parameters():
        parameter.copy_(0.3 * torch.randn_like(parameter))
    carry, state = one.begin(past, around(NUMBERS)), past.present
    path = one.rollout(past, controls, around(NUMBERS))
    for frame, control in enumerate(controls.unbind(1), 1):
        carry, step = one.step(carry, state, Control(torque=control))
        state = step.state
        assert torch.allclose(state.q, path.q[:, frame], atol=1e-12)
    again = one.reset(carry, past, torch.tensor([True, False, True, False]))
    fresh = one.step(one.begin(past, around(NUMBERS)), past.present, Control(torque=controls[:, 0]))[1].state
    after = one.step(again, past.present, Control(torque=controls[:, 0]))[1].state
    assert torch.allclose(after.q[[0, 2]], fresh.q[[0, 2]], atol=1e-12)
    usual = one.rollout(past, controls)
    assert torch.equal(usual.q, one.rollout(past, controls, around(torch.full((1,), 5.0, dtype=torch.float64))).q)
    assert not torch.allclose(usual.q[0], path.q[0])


def test_other_environments_are_refused(model):
    past, _ = starts()
    with pytest.raises(InputError, match=r"'mass'; valid: drag"):
        model.begin(past, Environment(parameters={"mass": torch.ones(WORLDS, dtype=torch.float64)}))
    with pytest.raises(InputError, match="environment of its logs"):
        model.begin(past, Environment(gravity=torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64)))
    assert isinstance(model.begin(past).environment, Environment)


def test_training_evaluation_and_files(robot: Robot, tmp_path):
    store = family()
    settings = msgspec.structs.replace(QUICK, conditions=("drag",), steps=90)
    train_world_model(robot, "spring", "spring.h5", store, tmp_path / "run", settings)
    model = WORLD_MODEL.load(tmp_path / "run")
    own = model.conditions[0]
    assert (own.name, own.value) == ("drag", 5.0)
    assert 0.0 <= own.lower < 1.0
    assert 19.0 < own.upper <= 20.0
    told = forecast_log(model, store, split=None, horizon=20, rollouts=200)
    unknown = dataclasses.replace(store, header=msgspec.structs.replace(store.header, parameters={}), parameters=None)
    guessed = forecast_log(model, unknown, split=None, horizon=20, rollouts=200)
    error, without = (found.at_horizon["20"].by_model["model"].scaled for found in (told, guessed))
    assert error < 0.9 * without
    short = msgspec.structs.replace(QUICK, steps=10)
    finetune_world_model(str(tmp_path / "run"), "spring.h5", unknown, tmp_path / "tuned", short)
    assert WORLD_MODEL.load(tmp_path / "tuned").conditions == model.conditions
    past, controls = starts()
    past, controls = past.to(torch.float32), controls.float()
    assert torch.equal(
        WORLD_MODEL.load(tmp_path / "run").rollout(past, controls, around(NUMBERS.float())).q,
        model.rollout(past, controls, around(NUMBERS.float())).q,
    )
