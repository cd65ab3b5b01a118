# SPDX-License-Identifier: Apache-2.0
"""Faults of drives are found on stand-ins in plain MuJoCo that have them, and none on a healthy arm."""

from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from neurodyn.identify import AdaptationSettings
from neurodyn.identify.stages import structure_search
from neurodyn.identify.stages.structure_choice import best_structure
from neurodyn.identify.stages.structure_screening import Screened, candidates_for, screen
from neurodyn.identify.stages.structure_search import StructureSearch, fit_with
from tests.identify import faulty_arm

pytest.importorskip("newton")


@pytest.fixture(scope="module")
def declaration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return faulty_arm.declared(tmp_path_factory.mktemp("arm"))


@pytest.mark.slow
def test_a_healthy_arm_keeps_no_structure(declaration: Path):
    search = faulty_arm.searched(declaration, faulty_arm.log(declaration.parent))
    assert not search.kept, search.tried
    assert not any("friction" in one.name for one in search.tried), "the screening sees that there is none"
    assert search.unseen is not None, "masses and gains would make up for a small payload"
    assert 0.1 < search.unseen.mass < 1.0


SHARE = 0.25


def rub(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Rub in the elbow in proportion to the torques of its motor and of gravity and motion."""
    torques = data.qfrc_actuator[1] + data.qfrc_bias[1]
    model.dof_frictionloss[:] = 1e-6, SHARE * abs(torques)


@pytest.mark.slow
def test_friction_that_grows_with_load_is_found_in_its_joint(declaration: Path):
    search = faulty_arm.searched(declaration, faulty_arm.log(declaration.parent, step=rub))
    assert [(one.kind, one.place) for one in search.kept] == [("friction", "elbow")], search.tried
    assert 0.1 < search.tried[0].expected < 1.0, "of the cost, as a roll-out along the step says"
    space, x = search.fitting.space, search.fitting.x
    shares = [float(space.value(f"actuator.elbow.load_{side}", x)) for side in ("motor", "external")]
    assert np.mean(shares) == pytest.approx(SHARE, rel=0.3)


def test_friction_that_grows_with_load_is_found_where_errors_last(declaration: Path):
    store = faulty_arm.log(declaration.parent, step=rub, episodes=5, frames=200)
    fitting, _ = best_structure([faulty_arm.fit_model(declaration, store)], store, faulty_arm.SETTINGS, 1)
    search = StructureSearch(fitting, costs=dict(fitting.run().stages))
    assert search._round_of_springs(["elbow"])
    assert [one.name for one in search.tried] == [
        "friction that grows with load in the drive of elbow", "a spring beside the drive of elbow",
        "a spring between motor and link of elbow",
    ]  # fmt: skip
    assert all(one.asked_by == ["errors of elbow last"] for one in search.tried)
    space, x = search.fitting.space, search.fitting.x
    assert float(space.value("actuator.elbow.load_motor", x)) > 0.1


def test_a_spring_between_motor_and_link_is_found_in_its_joint(declaration: Path):
    stiffness = 25.0
    soft = faulty_arm.behind_a_joint(f'stiffness="{stiffness}" damping=".2"')
    search = faulty_arm.searched(declaration, faulty_arm.log(declaration.parent, xml=soft))
    assert [(one.kind, one.place) for one in search.kept][:1] == [("elastic", "elbow")], search.tried
    space, x = search.fitting.space, search.fitting.x
    assert float(space.value("actuator.elbow.stiffness", x)) == pytest.approx(stiffness, rel=0.3)


def test_a_spring_beside_a_drive_is_found_in_its_joint(declaration: Path):
    stiffness, rest = 15.0, -0.4

    def pull(spec: mujoco.MjSpec) -> None:
        spec.joint("elbow").stiffness[0], spec.joint("elbow").springref = stiffness, rest

    search = faulty_arm.searched(declaration, faulty_arm.log(declaration.parent, pull, episodes=5, frames=200))
    assert [(one.kind, one.place) for one in search.kept] == [("pull", "elbow")], search.tried
    space, x = search.fitting.space, search.fitting.x
    assert float(space.value("elbow.stiffness", x)) == pytest.approx(stiffness, rel=0.3)
    assert float(space.value("elbow.rest", x)) == pytest.approx(rest, abs=0.2)


def test_a_base_that_stands_askew_tilts_gravity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tilt, folder = 0.06, faulty_arm.declared(tmp_path, faulty_arm.TURNING)
    gravity = [9.81 * np.sin(tilt), 0.0, -9.81 * np.cos(tilt)]
    store = faulty_arm.log(tmp_path, lambda spec: setattr(spec.option, "gravity", gravity), xml=faulty_arm.TURNING)
    model = faulty_arm.fit_model(folder, store)
    candidate = next(one for one in candidates_for(model, faulty_arm.SETTINGS) if one.kind == "tilt")
    fitting, _ = best_structure([model], store, faulty_arm.SETTINGS, 1)
    fitting.refine(fitting.stages[-1])
    trial, costs = fit_with(fitting, Screened(candidate, 0.0), [fitting.stages[-1]])
    assert min(costs.values()) < 0.7 * fitting.held_out_cost()
    found = [float(trial.space.value(f"gravity.{axis}", trial.x)) for axis in "xy"]
    assert found == pytest.approx(gravity[:2], abs=0.1)
    monkeypatch.setattr(structure_search, "_HOPELESS", 0.0)  # as if a part of the windows cost no less
    _, costs = fit_with(fitting, Screened(candidate, 0.0), [fitting.stages[-1]])
    assert list(costs.values()) == [np.inf]


def test_stated_gains_are_held_where_they_are_right_and_freed_where_they_are_not(declaration: Path):
    stated = {
        "actuator.shoulder.kp": 200.0, "actuator.shoulder.kd": 8.0, "actuator.elbow.kp": 120.0, "actuator.elbow.kd": 4.0
    }  # fmt: skip
    for factor in (1.0, 1.6):
        store = faulty_arm.log(declaration.parent, gains=(factor,), episodes=5, frames=200)
        model = replace(faulty_arm.fit_model(declaration, store), stated=stated).in_prior_deviations(
            faulty_arm.SETTINGS
        )
        assert model.space is not None
        assert not set(stated) & set(model.space.names)
        fitting, _ = best_structure([model], store, faulty_arm.SETTINGS, 1)
        fitting.refine(fitting.stages[0])
        best = next(one for one in screen(fitting, [fitting.stages[0]]) if one.candidate.kind == "gains")
        if factor == 1.0:
            assert best.share < 0.02
            continue
        trial, _ = fit_with(fitting, best, [fitting.stages[0]])
        assert trial.held_out_cost() < 0.5 * fitting.held_out_cost()
    named = AdaptationSettings(quantities=("*", "actuator.elbow.kp"))
    space = model.in_prior_deviations(named).space
    assert space is not None
    assert ("actuator.elbow.kp" in space.names, "actuator.shoulder.kp" in space.names) == (True, False)


def test_gains_of_a_placeholder_begin_where_the_log_is_predicted(declaration: Path):
    """A servo that is 40 times softer than its declaration is out of reach of its prior, and of a search from there."""
    softer = 1.0 / 40.0
    store = faulty_arm.log(declaration.parent, gains=(softer,))
    fitting, _ = best_structure([faulty_arm.fit_model(declaration, store)], store, faulty_arm.SETTINGS, 1)
    fitting.run()
    for joint, stiffness in (("shoulder", 200.0), ("elbow", 120.0)):
        found = float(fitting.space.value(f"actuator.{joint}.kp", fitting.x))
        assert found == pytest.approx(softer * stiffness, rel=0.25)
