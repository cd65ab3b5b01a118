# SPDX-License-Identifier: Apache-2.0
"""Dynamics by name, and what is refused."""

import msgspec
import numpy as np
import pytest

from neurodyn.control import resolve
from neurodyn.control.resolve import ResolvedDynamics, open_dynamics, open_reference
from neurodyn.control.starts import SampledStarts
from neurodyn.core.description.spec import Channel
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, Status, StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.tasks import load

TASK = load("cartpole-swingup")


def test_names():
    real, model = open_dynamics(TASK, "analytic"), open_dynamics(TASK, "pretrained:cartpole")
    assert isinstance(real.dynamics, AnalyticDynamics)
    assert isinstance(model.dynamics, NeuralDynamics)
    assert isinstance(model.starts(TASK, 0), SampledStarts)
    assert model.dynamics.device == "cpu"


def test_the_reference_is_the_simulator_unless_it_is_what_is_trained_in():
    real, model = open_dynamics(TASK, "analytic"), open_dynamics(TASK, "pretrained:cartpole")
    assert open_reference(TASK, real, None) is None
    found = open_reference(TASK, model, None)
    assert found is not None
    assert found.name == "analytic"
    assert open_reference(TASK, model, "none") is None
    other = open_reference(TASK, real, "pretrained:cartpole")
    assert other is not None
    assert other.name == "pretrained:cartpole"


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere", "no such dynamics; valid: analytic, hybrid, a run directory, or one of .*pretrained:cartpole"),
     ("pretrained:horse", "no pretrained model 'horse'"),
     ("pretrained:ant", "task 'cartpole-swingup' is not for these dynamics of 'ant': controls are")],
)  # fmt: skip
def test_others_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        open_dynamics(TASK, name)


def test_starts_are_for_models():
    with pytest.raises(InputError, match="--starts is for models of logs"):
        open_dynamics(TASK, "analytic", starts="log.h5")


@pytest.mark.parametrize(("context", "channel", "message"), [(0, False, None), (1, False, None),
    (8, False, "reads 8 frames of history"), (0, True, "which a task cannot draw")])  # fmt: skip
def test_a_task_draws_starts_for_models_without_a_memory(context, channel, message, tmp_path, monkeypatch):
    spec = TASK.declaration().spec.with_context(context)
    if channel:
        spec = msgspec.structs.replace(spec, channels=(Channel(name="light", unit="1"),))
    model = WorldModel(spec, EnsembleConfig(kind="mlp", members=2))
    model.fitted.fill_(True)
    monkeypatch.setattr(resolve, "load", lambda *_, **__: model)
    if message is None:
        for found in (
            open_dynamics(TASK, "pretrained:cartpole", starts="task"),
            open_dynamics(TASK, "pretrained:cartpole", drawn=True),
        ):
            assert isinstance(found.starts(TASK, 0), SampledStarts)
        return
    with pytest.raises(InputError, match=message):
        open_dynamics(TASK, "pretrained:cartpole", starts="task")
    monkeypatch.setattr(resolve, "training_log", lambda *_: str(tmp_path / "the log"))
    with pytest.raises(InputError, match="the log"):  # there the episodes start then
        open_dynamics(TASK, "pretrained:cartpole", drawn=True)


def test_starts_of_the_task_and_of_the_log_in_shares(tmp_path):
    spec = TASK.declaration().spec
    rows = np.zeros((3 * 41, 5), np.float32)
    rows[:, 0] = 1.25  # where no task draws
    table = episode_table([40] * 3, status=Status.COMPLETE, split=[Split.TRAIN, Split.VALIDATION, Split.TEST])
    log = Store(StoreHeader(spec=spec, source="log"), rows, table)
    model = WorldModel(spec, EnsembleConfig(members=2, width=8, depth=1, head=8))
    where = ResolvedDynamics("model", model, log)
    assert where.is_drawn_by(TASK)
    drawn = where.mixed_starts(TASK, 0, 0.25).draw(40).q
    assert int((drawn[:, 0] == 1.25).sum()) == 30
    assert len(drawn[:, 1].unique()) >= 10
    long = WorldModel(spec.with_context(8), EnsembleConfig(members=2, width=8, depth=1, head=8))
    assert not ResolvedDynamics("model", long, log).is_drawn_by(TASK)


def test_a_log_of_another_robot_is_refused(tmp_path):
    from neurodyn.data.header import StoreHeader
    from neurodyn.data.writer import StoreWriter
    from tests.policy.small_worlds import SPEC

    path = tmp_path / "log.h5"
    with StoreWriter(path, StoreHeader(source="log", spec=SPEC)) as writer:
        writer.append([[[0.0], [1.0]]], [[[0.0], [1.0]]], [[[0.0]]])
    with pytest.raises(InputError, match=r"its states do not fit the model pretrained:cartpole: joint order"):
        open_dynamics(TASK, "pretrained:cartpole", starts=str(path))
