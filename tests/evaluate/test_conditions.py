# SPDX-License-Identifier: Apache-2.0
"""Errors by the conditions of a network, within the range of its training data and beyond."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.dynamics.batch import Environment, State, Trajectory
from neurodyn.dynamics.conditions import Condition
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.evaluate.logged import beside_log
from neurodyn.evaluate.metrics import ABOVE, BELOW, THIRDS, draw_conditions, errors_by_condition
from neurodyn.evaluate.named_scenarios import scenario
from neurodyn.evaluate.simulated import by_condition
from neurodyn.report.accuracy import by_condition as tables_by_condition
from tests import plant

CONDITIONS = (
    Condition(name="hinge.mass", value=2.5, lower=2.0, upper=4.0),
    Condition(name="slider.damping", value=0.0, lower=0.0, upper=10.0),
)


class Family:
    """The declared cartpole whose error in the cart's place is a hundredth of the hinge's mass in every frame."""

    conditions = CONDITIONS
    kind, device = "neural", "cpu"

    def __init__(self) -> None:
        self._truth = declared_hybrid("cartpole").freeing([one.name for one in CONDITIONS])
        self.spec = self._truth.spec

    def rollout(self, context: State, controls: torch.Tensor, environment: Environment) -> Trajectory:
        path = self._truth.rollout(context, controls, environment)
        q = path.q.clone()
        q[:, 1:, 0] += 0.01 * environment.parameters["hinge.mass"][:, None]
        return Trajectory(q, path.qd)


def test_draws_reach_beyond_what_was_trained():
    numbers = draw_conditions(CONDITIONS, 0)
    assert numbers.shape == (384 + 3 * 64, 2)  # damping is never negative
    assert float(numbers[:, 1].min()) >= 0.0
    mass = numbers[:, 0]
    assert 1.5 <= float(mass.min()) < 1.55
    assert 4.45 < float(mass.max()) <= 4.5
    outside = (numbers < torch.tensor([2.0, 0.0])) | (numbers > torch.tensor([4.0, 10.0]))
    assert outside.sum(0).tolist() == [128, 64]
    assert not outside.all(1).any()


def test_errors_are_those_of_the_worlds_in_a_bin(cartpole):
    found = by_condition(Family(), cartpole, where=scenario(cartpole), horizon=5, seed=0)
    assert [one.name for one in found] == ["hinge.mass", "slider.damping"]
    mass, damping = found
    assert list(mass.bins) == [*THIRDS, BELOW, ABOVE]
    assert list(damping.bins) == [*THIRDS, ABOVE]
    for entry in mass.bins.values():
        assert entry.errors["base_position_m"] == pytest.approx(0.01 * entry.mean, rel=1e-3)
        assert entry.errors["joint_rad"] == pytest.approx(0.0, abs=1e-6)
    assert [entry.inside for entry in mass.bins.values()] == [True] * 3 + [False] * 2
    assert sum(entry.rollouts for entry in mass.bins.values()) == 384 + 128
    assert mass.bins[BELOW].mean < 2.0 < mass.bins[THIRDS[0]].mean < mass.bins[THIRDS[2]].mean < 4.0
    tables = tables_by_condition(found, cartpole.dt)
    assert [table.head for table in tables] == [
        ["Quantity and trained range", *(n.capitalize() for n in mass.bins)]
    ] * 2
    assert len(tables[0].rows) == 2


def test_models_without_conditions_have_none(cartpole):
    none = msgspec.UNSET
    assert by_condition(declared_hybrid("cartpole"), cartpole, where=scenario(cartpole), horizon=5, seed=0) is none
    assert tables_by_condition(none, 0.02) == []


def test_a_log_that_has_them_says_how_errors_depend_on_them():
    store = plant.make_store(40, numbers=plant.draw_numbers(40))
    model = plant.make_model("mlp", torch.float32, conditions=plant.CONDITIONS).requires_grad_(False)
    result = beside_log(model, plant.robot(), store, split=None, horizon=3)
    length = result.conditions[1]
    assert (length.name, length.frames) == ("hinge.length", 3)
    assert sum(entry.rollouts for entry in length.bins.values()) == result.about.rollouts
    narrow = tuple(msgspec.structs.replace(one, upper=0.5 * (one.lower + one.upper)) for one in plant.CONDITIONS)
    numbers = torch.from_numpy(np.repeat(store.parameters, 2, 0))
    path = Trajectory(torch.zeros(80, 4, 2), torch.zeros(80, 4, 2))
    bins = errors_by_condition(narrow, numbers, RolloutErrors.of(plant.robot(), path, path), 3)[0].bins
    own = numbers[numbers[:, 1] <= narrow[1].upper, 0]
    assert bins[ABOVE].rollouts == int((own > narrow[0].upper).sum())
    assert not bins[ABOVE].inside
    assert (
        beside_log(plant.make_model("mlp", torch.float32), plant.robot(), store, split=None).conditions is msgspec.UNSET
    )
