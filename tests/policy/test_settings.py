# SPDX-License-Identifier: Apache-2.0
"""Settings of policies: presets, flags, and what is refused."""

import pytest

from neurodyn import tasks
from neurodyn.core.errors import InputError
from neurodyn.learn.budget import TrainingBudget, TrainState
from neurodyn.policy.online_learning.problem import settings_of
from neurodyn.policy.requests import OnlineRequest
from neurodyn.policy.settings import AimSettings, PolicySettings, ShacSettings, load_settings, with_flags


@pytest.mark.parametrize("name", tasks.names())
def test_every_task_has_settings(name):
    assert load_settings(name).iterations is not None


def test_a_task_may_know_settings_that_suit_its_robot_better():
    names = ("velocity-biped", "velocity@./g1")
    assert load_settings(names, kind=ShacSettings).network.initial_std == 0.3
    assert load_settings(names[1], kind=ShacSettings).network.initial_std == 0.7
    assert load_settings(names) == load_settings(names[1])  # PPO has none for two feet


def test_minutes_replace_updates_unless_both_are_given():
    settings = PolicySettings(iterations=10)
    assert with_flags(settings, minutes=None).iterations == 10
    assert with_flags(settings, minutes=2.0).iterations is None
    assert with_flags(settings, minutes=2.0, iterations=7).iterations == 7


@pytest.mark.parametrize(
    ("flags", "message"),
    [({"worlds": 0}, "worlds is 0; valid: a whole number of at least 1"),
     ({"penalty": -1.0}, "penalty is -1.0; valid: a finite number of at least 0"),
     ({"minutes": 0.0}, "minutes is 0.0; valid: a finite number above 0"), ({"iterations": 0}, "iterations is 0")],
)  # fmt: skip
def test_bad_values_are_refused(flags, message):
    with pytest.raises(InputError, match=message):
        with_flags(PolicySettings(), **flags)


def test_a_file_with_an_unknown_key_is_refused(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("wolds: 3\n")
    with pytest.raises(InputError, match="wolds"):
        load_settings("cartpole-swingup", path)


def test_a_penalty_is_a_number_or_left_to_the_model(tmp_path):
    assert with_flags(PolicySettings(), penalty="auto").penalty == "auto"
    path = tmp_path / "settings.yaml"
    path.write_text("penalty: auto\n")
    assert load_settings("cartpole-swingup", path).penalty == "auto"
    path.write_text("penalty: often\n")
    with pytest.raises(InputError, match="penalty"):
        load_settings("cartpole-swingup", path)


def test_training_in_models_of_logs_has_settings_of_its_own_where_there_are_any():
    assert load_settings("anymal-velocity", logs=True).penalty == "auto"
    assert load_settings("anymal-velocity").penalty == 0.0
    assert load_settings("cartpole-swingup", logs=True).task_share == 0.5
    assert load_settings("ant-run", logs=True) == load_settings("ant-run")


def test_loops_that_begin_with_nothing_have_settings_of_their_own_where_there_are_any():
    def begun(task, **given):
        return settings_of(OnlineRequest(task, "out", kind="world-model", **given)).policy

    fearful = begun("anymal-velocity")
    assert fearful.failure < 0
    assert fearful.clone is None
    for given in ({"data": ["walks.h5"]}, {"policy": "policies/walk"}):
        assert begun("anymal-velocity", **given) == load_settings("anymal-velocity", logs=True)
    assert begun("cartpole-swingup") == load_settings("cartpole-swingup", logs=True)
    assert load_settings("anymal-velocity", nothing=True) == load_settings("anymal-velocity")


def test_a_training_with_an_aim_may_go_on_unless_the_user_gave_a_budget():
    settings = ShacSettings(iterations=400, aim=AimSettings(updates=600))
    assert (settings.budget().steps, settings.budget().shares) == (1000, (400.0, 600.0))
    assert settings.done_of_all(0.1, TrainState(step=40)) == 0.1
    assert settings.done_of_all(0.1, TrainState(step=460, phase=1)) == 0.46
    for flags, budget in (({"iterations": 500}, TrainingBudget(500)), ({"minutes": 2.0}, TrainingBudget(None, 2.0))):
        given = with_flags(settings, **flags)
        assert given.budget() == budget
        assert given.aim is not None  # it is still judged by it
    assert ShacSettings(iterations=400).budget() == TrainingBudget(400)
    with pytest.raises(ValueError, match="falls"):
        AimSettings(falls=1.0)
