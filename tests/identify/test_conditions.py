# SPDX-License-Identifier: Apache-2.0
"""Conditions of a network, found in logs of one robot by gradients through its roll-outs."""

import copy
import json

import numpy as np
import pytest
import torch

from neurodyn.cli.main import run as command
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Environment
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.identify import ConditionSettings, adapt_conditions, identify_conditions
from neurodyn.identify.conditions import _ConditionFit
from neurodyn.learn import finetune
from tests import plant

TRUTH = {"slider.damping": 15.0, "hinge.length": 1.3}
QUICK = ConditionSettings(seconds=0.2, windows=60, candidates=16)


def smooth_model(kind="mlp"):
    """A network whose motion depends on its conditions, and stays where it is."""
    model = plant.make_model(kind, torch.float32, conditions=plant.CONDITIONS).requires_grad_(False)
    model.predictor.denormaliser.std.fill_(0.005)
    return model


def log_of(model, values=TRUTH, noise=1e-3, episodes=20, frames=30):
    """What a robot does that moves as the network says with these conditions, as a noisy log."""
    generator = torch.Generator().manual_seed(4)
    state = plant.make_states(episodes, torch.float32)
    torques = plant.make_torques(episodes, frames, torch.float32)
    path = model.rollout(state, torques, Environment(parameters=values))
    rows = torch.cat([path.q, path.qd], -1)
    rows = rows + noise * torch.randn(rows.shape, generator=generator)
    rows = torch.cat([rows, torch.cat([torques, torch.zeros(episodes, 1, 1)], 1)], -1)
    split = np.where(np.arange(episodes) < episodes - 4, Split.TRAIN, Split.TEST)
    table = episode_table(np.full(episodes, frames), split=split)
    return Store(StoreHeader(spec=plant.robot().spec, source="log"), rows.flatten(0, 1).numpy(), table)


@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_the_robot_of_a_log_is_found(kind):
    model = smooth_model(kind)
    before = copy.deepcopy(model.state_dict())
    found = identify_conditions(model, log_of(model), QUICK)
    for one in model.conditions:
        width = one.upper - one.lower
        assert found.values[one.name] == pytest.approx(TRUTH[one.name], abs=0.05 * width)
        low, high = found.intervals[one.name]
        assert 2 * low - high < TRUTH[one.name] < 2 * high - low
        assert 0.0 < high - low < 0.5 * width
    assert found.figures.share < 0.8
    assert found.figures.verdict == "ok"
    assert [one.value for one in found.dynamics.conditions] == list(found.values.values())
    assert all(torch.equal(tensor, before[name]) for name, tensor in found.dynamics.state_dict().items())


def test_the_gradient_is_that_of_finite_differences():
    model = smooth_model()
    fit = _ConditionFit(model, log_of(model), Split.TRAIN, QUICK)
    x = torch.tensor([0.3, -0.2], dtype=torch.float64)
    fit.rescale(x)
    total, by_window = fit.gradient(x)
    assert by_window.shape == (fit.count, 2)
    for column, step in enumerate(1e-5 * torch.eye(2, dtype=torch.float64)):
        difference = float(fit.total(x + step) - fit.total(x - step)) / 2e-5
        assert float(total[column]) == pytest.approx(difference, rel=1e-5, abs=1e-7)


def test_what_a_log_does_not_tell_is_said():
    model = smooth_model()
    deaf = copy.deepcopy(model)
    column = deaf.encoding.condition_columns.start
    for layer in (deaf.predictor.skip, next(m for m in deaf.predictor.net.modules() if hasattr(m, "in_features"))):
        layer.weight[:, column] = 0.0
    found = identify_conditions(deaf, log_of(deaf), QUICK)
    silent, told = found.figures.quantities
    assert (silent.determined, told.determined) == (False, True)
    assert found.values[silent.name] == silent.value == silent.nominal
    assert found.dynamics.conditions[0].value == silent.nominal
    assert "does not determine slider.damping" in found.figures.verdict


def test_a_robot_beyond_the_training_data_is_said():
    model = smooth_model()
    found = identify_conditions(model, log_of(model, {"slider.damping": 15.0, "hinge.length": 1.75}), QUICK)
    assert found.values["hinge.length"] > 1.6
    assert "hinge.length lies beyond the training data" in found.figures.verdict


def test_models_without_conditions_are_refused():
    with pytest.raises(InputError, match="--conditions"):
        identify_conditions(plant.make_model("mlp"), plant.make_store(10))


@pytest.fixture
def files(tmp_path):
    model = smooth_model()
    NEURAL.save(tmp_path / "family", model)
    log_of(model).write(tmp_path / "log.h5")
    return tmp_path


def test_a_run_with_the_found_conditions_is_one_like_any_other(files, capsys, quick):
    asked = ["adapt", str(files / "family"), "--data", str(files / "log.h5"), "--out", str(files / "mine")]
    assert command([*asked, "--json", str(files / "found.json")]) == 0
    assert "hinge.length" in capsys.readouterr().out
    found = json.loads((files / "found.json").read_text())
    assert found["quantities"][1]["value"] == pytest.approx(TRUTH["hinge.length"], abs=0.05)
    assert (files / "mine" / "report.html").is_file()
    mine, family = NEURAL.load(files / "mine"), NEURAL.load(files / "family")
    assert [one.value for one in mine.conditions] == [one["value"] for one in found["quantities"]]
    state, torques = plant.make_states(3, torch.float32), plant.make_torques(3, 5, torch.float32)
    around = Environment(parameters={one.name: one.value for one in mine.conditions})
    assert torch.equal(mine.rollout(state, torques).q, family.rollout(state, torques, around).q)
    assert command([*asked]) == 2  # holds a run
    finetune(files / "mine", files / "log.h5", files / "tuned", size=quick, steps=5)
    assert NEURAL.load(files / "tuned").conditions == mine.conditions


def test_a_run_without_conditions_is_refused_before_anything_is_written(files):
    NEURAL.save(files / "plain", plant.make_model("mlp", torch.float32))
    with pytest.raises(InputError, match="--conditions"):
        adapt_conditions(str(files / "plain"), files / "log.h5", files / "mine")
    assert not (files / "mine").exists()


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="seconds"):
        ConditionSettings(seconds=0.0)
