# SPDX-License-Identifier: Apache-2.0
"""Trainings with quantities of the robot as inputs."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.learn import finetune, train
from neurodyn.learn.neural.train import read_run_config
from tests import plant

EPISODES = 120


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("family") / "family.h5"
    plant.make_store(EPISODES, numbers=plant.draw_numbers(EPISODES)).write(path)
    return path


@pytest.fixture(scope="module")
def run(data, quick, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    train("cartpole", data, out, size=quick, steps=900, conditions=["*.damping", "hinge.*"])
    return out


def errors(model, numbers, environment):
    """Mean errors of roll-outs of 30 frames in worlds with these numbers, in units of their motion."""
    q, qd = plant.make_states(64, torch.float32).q, torch.zeros(64, 2)
    torques = 200.0 * (2.0 * torch.rand(64, 30, 1, generator=torch.Generator().manual_seed(9)) - 1.0)
    truth = plant.simulate(q, qd, torques, numbers=numbers)[0]
    return float(
        (model.rollout(State(q, qd), torques, environment).q - truth).abs().mean() / (truth - q[:, None]).std()
    )


def test_one_network_is_a_family_of_robots(run, data):
    model = NEURAL.load(run)
    assert read_run_config(run).settings.conditions == tuple(plant.DECLARED)
    store = Store.open(data)
    train_rows = store.parameters[store.split == 0]
    for one, column in zip(model.conditions, train_rows.T, strict=True):
        assert (one.lower, one.upper) == (float(column.min()), float(column.max()))
        assert one.value == plant.DECLARED[one.name]
    numbers = plant.draw_numbers(64, seed=8)
    own = Environment(parameters=dict(zip(plant.DECLARED, numbers.unbind(1), strict=True)))
    assert errors(model, numbers, own) < 0.4 * errors(model, numbers, None)


def test_a_finetuning_keeps_them(run, data, quick, tmp_path):
    finetune(run, data, tmp_path / "run", size=quick, steps=20)
    assert NEURAL.load(tmp_path / "run").conditions == NEURAL.load(run).conditions
    own = plant.make_store(20)
    own.write(tmp_path / "own.h5")
    finetune(run, tmp_path / "own.h5", tmp_path / "other", size=quick, steps=20)  # at the model's own values
    assert NEURAL.load(tmp_path / "other").conditions == NEURAL.load(run).conditions


def test_a_resumed_training_has_those_it_began_with(data, quick, tmp_path):
    settings = msgspec.structs.replace(quick, conditions=("hinge.*",))
    train("cartpole", data, tmp_path / "run", size=settings, steps=20)
    assert [one.name for one in NEURAL.load(tmp_path / "run").conditions] == ["hinge.length"]
    with pytest.raises(InputError, match="settings that the run was started with"):
        train("cartpole", data, tmp_path / "run", size=settings, steps=30, conditions=["*"], resume=True)


def test_without_conditions_the_network_sees_none(data, quick, tmp_path):
    train("cartpole", data, tmp_path / "run", size=quick, steps=20)
    assert NEURAL.load(tmp_path / "run").conditions == ()


def test_what_cannot_be_a_condition_is_refused(data, plant_file, quick, tmp_path):
    with pytest.raises(InputError, match=r"'mass' matches no parameter of the data; valid: .*hinge.length"):
        train("cartpole", data, tmp_path / "run", size=quick, steps=20, conditions=["mass"])
    with pytest.raises(InputError, match="generate --randomise"):
        train("cartpole", plant_file, tmp_path / "run", size=quick, steps=20, conditions=["*"])
    alike = plant.make_store(40, numbers=torch.tensor([[20.0, 1.0]]).repeat(40, 1))
    alike.write(tmp_path / "alike.h5")
    with pytest.raises(InputError, match="is 20 in all training episodes"):
        train("cartpole", tmp_path / "alike.h5", tmp_path / "run", size=quick, steps=20, conditions=["*"])
    assert np.all(alike.parameters == alike.parameters[0])
