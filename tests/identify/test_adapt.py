# SPDX-License-Identifier: Apache-2.0
"""`adapt` on a cartpole in plain MuJoCo with a weak, slow motor and a hinge that rubs."""

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError
from neurodyn.core.workers import Beside
from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.artifact import load as load_run
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.identify import (
    AdaptationSettings,
    Identification,
    IdentificationSettings,
    adapt,
    identification,
    identify,
)
from neurodyn.identify.confidence.certainty import coordinate_parameters, hold_undetermined
from neurodyn.identify.confidence.refits import read_refits
from neurodyn.identify.fit.intervals import identifiability
from neurodyn.identify.ladder.network_rung import joint_networks
from neurodyn.identify.ladder.references import GRU, train_references
from neurodyn.identify.ladder.rungs import (
    DECLARED,
    IDENTIFIED,
    NETWORKS,
    held_out_errors,
    held_out_windows,
)
from neurodyn.identify.ladder.structures import FitModel, structures
from neurodyn.identify.motors import with_lag
from neurodyn.identify.settings import AdaptationRecord, FitStage
from neurodyn.identify.stages.growing_windows import Fitting, settled
from neurodyn.identify.stages.problem import IdentificationProblem
from neurodyn.robots import load
from neurodyn.sim.draws import read_posterior
from tests.identify.stand_ins import DAMPING, GAIN, LAG, cartpole_log, worn_cartpole

pytest.importorskip("newton")

SETTINGS = AdaptationSettings(
    stages=(FitStage(0.05, 150, 6), FitStage(0.15, 80, 4)), screen=60, network_steps=20, hidden=(4,), memory=1,
    rollouts_each=20, proposals=3, proposal_seconds=1.0, networks_from=0.1, refits=6,
    reference_steps=10,
)  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "worn.h5"
    cartpole_log(path, worn_cartpole())
    return path


@pytest.fixture(scope="module")
def run(log: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Identification]:
    out = tmp_path_factory.mktemp("runs") / "worn"
    return out, adapt("cartpole", log, out, settings=SETTINGS, threads=1)


def value(found: Identification, name: str) -> float:
    return next(one.value for one in found.figures.parameters if one.name == name)


def test_it_finds_what_is_worn(run: tuple[Path, Identification]):
    _, found = run
    # Mass and rotor of the cart (50 kg) and the motor's gain move it together: their ratio is what the log tells.
    moved = value(found, "slider.mass_scale") + value(found, "slider.armature") / 50.0
    assert value(found, "actuator.slider.gain") / moved == pytest.approx(GAIN, rel=0.03)
    assert value(found, "hinge.damping") == pytest.approx(DAMPING, rel=0.15)
    late = value(found, "actuator.slider.lag") + value(found, "motors.delay")
    assert late == pytest.approx(LAG, abs=0.004)


def test_structures_without_effect_are_not_kept(run: tuple[Path, Identification]):
    tried = run[1].figures.tried
    assert any("do not differ from nothing" in one.reason for one in tried), "they fit held-out windows a little better"
    assert not [one.name for one in tried if one.kept]


def test_references_that_another_process_trains_are_the_same(log: Path, tmp_path: Path):
    found = []
    for cores in (1, 2):
        call = partial(train_references, load("cartpole"), "cartpole", Store.open(log), SETTINGS, tmp_path)
        with Beside(call, cores) as beside:
            found.append(beside.result())
    (here,), (there,) = found
    assert here.name == there.name == GRU
    assert isinstance(here.dynamics, nn.Module)
    assert isinstance(there.dynamics, nn.Module)
    weights = there.dynamics.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in here.dynamics.state_dict().items())
    assert there.cpu_seconds > 0.0


def test_rungs_are_judged_on_the_log(run: tuple[Path, Identification]):
    _, found = run
    rungs = {rung.name: rung for rung in found.figures.rungs}
    assert rungs[DECLARED].kept
    assert rungs[IDENTIFIED].kept
    assert found.figures.chosen in (IDENTIFIED, NETWORKS)
    assert rungs[NETWORKS].share > 0.5  # little is left for networks: the fit of this test is short
    assert {one.name for one in found.figures.findings} <= {"lasting"}  # which that short fit leaves
    group = "joints [rad or m]"
    assert rungs[IDENTIFIED].errors[group][0] < 0.3 * rungs[DECLARED].errors[group][0]
    assert rungs[IDENTIFIED].test[group][0] < 0.3 * rungs[DECLARED].test[group][0]


def test_the_run_is_one_like_any_other(run: tuple[Path, Identification], log: Path):
    out, found = run
    model = HYBRID.load(out)
    store = Store.open(log)
    windows, _ = held_out_windows(store, Split.TEST, 4, (0.05, 0.5), 10)
    one, other = (held_out_errors(m, store, windows).tangents for m in (model, found.dynamics))
    assert torch.allclose(one, other, atol=1e-9)
    assert json.loads((out / "adaptation.json").read_text())["chosen"] == found.figures.chosen
    names, rows = read_posterior(out, 1)
    values = {spec.name: value for spec, value in zip(model.physical.specs, model.physical().tolist(), strict=True)}
    for name, column in zip(names, rows.unbind(1), strict=True):  # the sample lies about what was found
        if name in values:
            assert abs(float(column.median()) - values[name]) <= 0.5 * float(column.std()) + 1e-6
    assert found.figures.next is not msgspec.UNSET  # the pole falls from any pose in the log
    assert found.figures.next.why_not.startswith("no motion is safe: ")


def test_models_fitted_to_other_episodes_spread_like_the_posterior(run: tuple[Path, Identification]):
    refits, (names, rows) = read_refits(run[0]), read_posterior(run[0])
    assert refits is not None
    assert set(refits) == set(names)
    deviations = dict(zip(names, rows.std(0).tolist(), strict=True))
    for name in ("hinge.damping", "actuator.slider.gain"):
        assert refits[name].shape == (SETTINGS.refits,)
        # The posterior alone knows of the engine's steps and of the common scale of masses and gains, which are the
        # same in all episodes; this log has no noise, so that little else differs between them.
        assert 0.001 < float(refits[name].std()) / deviations[name] < 5.0


def test_the_metrics_hold_the_fit_and_the_networks(run: tuple[Path, Identification]):
    lines = [json.loads(line) for line in (run[0] / "metrics.jsonl").read_text().splitlines()]
    assert {"structure", "3 frames", "networks"} <= {line.get("stage") for line in lines}


def test_networks_act_on_joints_that_the_log_has():
    """Not on springs within links, which no state has."""
    robot = with_lag(load("ant"))
    model = structures(FitModel.declared(robot, "ant", SETTINGS), SETTINGS)[-1]
    windows = Windows(torch.ones(2, 4, robot.spec.nq), torch.ones(2, 4, robot.spec.nv), torch.ones(2, 3, robot.spec.nu))
    acted = {name for one in joint_networks(model, windows, SETTINGS).augmentations for name in one.quantities}
    assert acted == {f"torque.{name}" for name in robot.spec.controls}
    assert len(model.mechanism.names) == 13


@pytest.mark.slow
def test_a_run_that_was_stopped_after_its_fit_goes_on(run: tuple[Path, Identification], log: Path, tmp_path: Path):
    out, found = run
    half = tmp_path / "half"
    shutil.copytree(out, half)
    for name in ("model", "adaptation.json"):
        shutil.rmtree(half / name) if (half / name).is_dir() else (half / name).unlink()
    steps = [json.loads(line) for line in (half / "metrics.jsonl").read_text().splitlines()]
    again = adapt("cartpole", log, half, settings=SETTINGS, threads=2, resume=True)  # which changes nothing
    assert [one.value for one in again.figures.parameters] == [one.value for one in found.figures.parameters]
    now = [json.loads(line) for line in (half / "metrics.jsonl").read_text().splitlines()]
    assert sum(one.get("stage") == "structure" for one in now) <= sum(one.get("stage") == "structure" for one in steps)


def test_other_data_are_no_way_to_go_on(run: tuple[Path, Identification], tmp_path: Path):
    out, _ = run
    other = tmp_path / "worn.h5"
    cartpole_log(other, worn_cartpole(), episodes=8, seed=3)
    half = tmp_path / "half"
    shutil.copytree(out, half)
    with pytest.raises(InputError, match="--resume needs"):
        adapt("cartpole", other, half, settings=SETTINGS, threads=1, resume=True)


def test_a_sound_robot_keeps_its_declaration(tmp_path: Path):
    path = tmp_path / "sound.h5"
    cartpole_log(path, worn_cartpole(gain=1.0, lag=0.0, damping=0.0), episodes=10, frames=80)
    settings = msgspec.structs.replace(SETTINGS, networks_from=1.5)
    found = adapt("cartpole", path, tmp_path / "run", settings=settings, threads=1)
    assert [rung.name for rung in found.figures.rungs] == [DECLARED, IDENTIFIED]
    assert found.figures.rungs[1].reason.endswith("no networks")  # which would learn noise
    gain = next(one for one in found.figures.parameters if one.name == "actuator.slider.gain")
    assert gain.value == pytest.approx(1.0, abs=0.05)
    assert found.figures.chosen == DECLARED or found.figures.rungs[1].share > 0.5


def test_a_log_without_motion_is_refused(tmp_path: Path):
    path = tmp_path / "still.h5"
    model = worn_cartpole()
    model.dof_damping[:] = 1e9
    cartpole_log(path, model, episodes=8, frames=60)
    with pytest.raises(InputError, match="no joint moves by more than its noise"):
        adapt("cartpole", path, tmp_path / "run", settings=SETTINGS, threads=1)
    assert not (tmp_path / "run" / "model").exists()


def model_of(name: str, *quantities: str) -> FitModel:
    settings = msgspec.structs.replace(SETTINGS, quantities=quantities, structures=False)
    return structures(FitModel.declared(with_lag(load(name)), name, settings), settings)[0]


def test_a_limit_that_the_log_reaches_is_found_and_of_another_it_says_nothing(tmp_path: Path):
    """A cart rolls against the stop at one end of its rail, which is 15 cm nearer than declared."""
    model = model_of("cartpole", "slider.lower", "slider.upper")
    plant = model.dynamics(None, threads=1)
    with torch.no_grad():
        plant.physical.raw.copy_(plant.physical.raw_of(torch.tensor([-4.0, 3.85], dtype=torch.float64)))
    rng = np.random.default_rng(0)
    q, qd = rng.uniform([2.6, -3.0], [3.6, 3.0], (12, 2)), rng.uniform([2.0, -1.0], [4.0, 1.0], (12, 2))
    with torch.no_grad():
        path = plant.rollout(State(torch.from_numpy(q), torch.from_numpy(qd)), torch.zeros(12, 60, 1))
    noise = rng.normal(0.0, 1e-3, (12, 61, 2))
    split = np.where(np.arange(12) % 4 == 0, Split.VALIDATION, Split.TRAIN).astype(np.int8)
    with StoreWriter(tmp_path / "log.h5", StoreHeader(spec=model.robot.spec, source="log")) as writer:
        measured = (path.q.numpy() + noise, path.qd.numpy() + 10.0 * noise, np.zeros((12, 60, 1)))
        writer.append(*(part.astype(np.float32) for part in measured), lengths=np.full(12, 60), split=split)
    fitting = Fitting(model, Store.open(tmp_path / "log.h5"), SETTINGS, 1)
    fitted = fitting.run()
    analysis = identifiability(fitted.residuals, fitted.point)
    fitted, analysis, determined = hold_undetermined(fitted, analysis, SETTINGS)
    x = fitted.point.x[0]
    assert float(fitting.space.values(x)[0]) == -4.0
    lower, upper = coordinate_parameters(fitting.space, x, analysis, determined)
    assert not lower.determined
    assert lower.value == lower.nominal == -4.0
    assert lower.interval[0] < -4.0 < lower.interval[1]
    assert upper.determined
    assert upper.value == pytest.approx(3.85, abs=0.01)
    assert upper.interval[0] < 3.85 < upper.interval[1]


def test_what_the_log_does_not_tell_is_held_and_the_rest_fitted_again(log: Path):
    model, store = model_of("cartpole", "*"), Store.open(log)
    settings = msgspec.structs.replace(SETTINGS, initial="logged")
    fitting = Fitting(model, store, settings, 1)
    fitted = fitting.run()
    analysis, x = identifiability(fitted.residuals, fitted.point), fitted.point.x[0]
    held, _, determined = hold_undetermined(fitted, analysis, settings)
    known, unknown = torch.nonzero(determined)[:, 0], torch.nonzero(~determined)[:, 0]
    assert len(known) > 2
    assert len(unknown) > 2
    assert torch.equal(held.point.x[0, unknown], fitting.space.declared[unknown])
    # The conditional mean of the normal approximation, which is what one step without roll-outs can give.
    covariance = analysis.white[:, None] * analysis.correlation * analysis.white
    change = torch.linalg.pinv(covariance[unknown][:, unknown], hermitian=True) @ (fitting.space.declared - x)[unknown]
    moved = torch.where(determined, x, fitting.space.declared)
    moved[known] += covariance[known][:, unknown] @ change
    residuals = fitted.residuals
    costs = [
        float(residuals.cost(settled(residuals, residuals.start(at[None]))))
        for at in (held.point.x[0], fitting.space.clip(moved))
    ]
    assert costs[0] < costs[1]


def test_the_model_has_exactly_the_declared_values_of_what_the_log_does_not_tell(run: tuple[Path, Identification]):
    out, found = run
    silent = {one.name: one for one in found.figures.parameters if not one.determined}
    written = {one["name"]: one for one in json.loads((out / "adaptation.json").read_text())["quantities"]}
    assert len(silent) > 2
    for name, one in silent.items():
        assert one.value == one.nominal == written[name]["value"]
    for model in (found.dynamics, HYBRID.load(out)):
        values = dict(zip((spec.name for spec in model.physical.specs), model.physical().tolist(), strict=True))
        assert {name: values[name] for name in silent if name in values} == {
            name: one.nominal for name, one in silent.items() if name in values
        }


def test_quantities_are_chosen_and_added_by_a_file_of_older_keys(log: Path, tmp_path: Path):
    (tmp_path / "adapt.yaml").write_text(
        'quantities: ["*.damping"]\nparameters: [hinge.com.z, actuator.slider.gain=0.7:0.3:1.2]\nunsaid: 0.8\n'
        "stages: [{seconds: 0.05, windows: 80, iterations: 4}]\nscreen: 40\nstarts: 10\nhorizons: [0.05]\n"
        "networks: false\nproposals: 0\nrefits: 0\nreference_steps: 0\n"
    )
    figures = adapt("cartpole", log, tmp_path / "run", settings=tmp_path / "adapt.yaml", threads=1).figures
    entries = {one.name: one for one in figures.parameters}
    assert list(entries) == ["slider.damping", "hinge.damping", "hinge.com.z", "actuator.slider.gain"]
    assert entries["actuator.slider.gain"].value == pytest.approx(GAIN, rel=0.1)
    assert entries["actuator.slider.gain"].nominal == 1.0
    assert figures.horizons == [0.05]
    record = read_config(tmp_path / "run" / "config.yaml", AdaptationRecord)
    assert (record.settings.undetermined_above, record.settings.rollouts_each) == (0.8, 10)


@pytest.mark.slow
def test_an_adaptation_is_an_identification_with_its_settings(log: Path, tmp_path: Path):
    settings = msgspec.structs.replace(SETTINGS, quantities=("*.damping", "actuator.*"), networks=False, proposals=0)
    adapted = adapt("cartpole", log, tmp_path / "adapted", settings=settings, threads=1).figures
    same = IdentificationSettings(**{name: getattr(settings, name) for name in settings.__struct_fields__})
    identified = identify("cartpole", log, tmp_path / "identified", settings=same, threads=1).figures
    assert identified.plain()["quantities"] == adapted.plain()["quantities"]
    assert identified.rungs == adapted.rungs


def test_one_search_takes_the_names_of_an_adaptation(log: Path, tmp_path: Path):
    """A motor that is not declared, and a coordinate that moves mass and inertia."""
    settings = IdentificationSettings(horizon=0.1, windows=60, rollouts=40, seconds=(0.1,), initial="logged")
    asked = ("actuator.slider.gain", "hinge.damping", "slider.friction", "actuator.slider.lag=0.02:0:0.1")
    alone = identify("cartpole", log, tmp_path / "gain", parameters=asked, settings=settings).figures
    gain = next(one for one in alone.parameters if one.name == "actuator.slider.gain")
    assert gain.value == pytest.approx(GAIN, rel=0.05)
    asked = ("actuator.slider.gain", "hinge.damping", "hinge.mass_scale", "motors.delay")
    coupled = identify("cartpole", log, tmp_path / "scale", parameters=asked, settings=settings).figures
    entries = {one.name: one for one in coupled.parameters}
    assert set(entries) == set(asked)
    assert entries["hinge.mass_scale"].value == pytest.approx(1.0, abs=0.1)
    assert set(coupled.errors) == {"nominal", "identified", "hold-last", "constant-velocity"}
    assert load_run(tmp_path / "scale").spec.robot == "cartpole"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "inverse-dynamics"}, "method is 'inverse-dynamics'; valid: 'roll-outs' with stages"),
        ({"bootstrap": 40}, "bootstrap is 40; valid: 0 with stages"),
        ({"quantities": ()}, "quantities is empty"),
        ({"undetermined_above": 1.0}, "undetermined_above is 1.0; valid: between 0 and 1"),
    ],
)
def test_settings_that_stages_do_not_take_are_refused(changes: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        msgspec.structs.replace(SETTINGS, **changes)


@pytest.mark.slow
def test_derivatives_of_short_steps_are_taken_from_longer_ones(log: Path):
    model, store = model_of("cartpole", "*"), Store.open(log)
    short = replace(model, engine=msgspec.structs.replace(model.engine, substeps=80))
    fitting = Fitting(short, store, SETTINGS, 1)
    assert fitting.tangent is not None
    assert fitting.tangent.config.substeps == 40  # half a millisecond
    residuals = fitting.residuals(fitting.windows(Split.TRAIN, SETTINGS.stages[0]))
    point = fitting.start(residuals)
    normals = (one.chord(point)[0] for one in (residuals, residuals.with_dynamics(fitting.dynamics)))
    coarse, own = (one.gradient for one in normals)
    assert 0.0 < (coarse - own).norm() < 0.02 * own.norm()
    # Longer steps also tell how far the solution would move with none, to first order in their length.
    searched = fitting.end({f"stage {k}": 1.0 for k in range(len(fitting.stages))})
    assert searched.residuals.tangent is not None
    by_longer = fitting.end_with_shifts(searched).shifts[-1]
    fitting.tangent = None
    by_shorter = fitting.end_with_shifts(searched).shifts[-1]
    assert by_shorter.norm() > 0.0
    assert (by_longer - by_shorter).norm() < 0.1 * by_shorter.norm()
    assert Fitting(model, store, SETTINGS, 1).tangent is None


@pytest.mark.parametrize(("frames", "tried"), [(5, False), (60, True)])
def test_a_log_of_a_second_tries_no_structures_no_networks_and_no_wider_priors(
    tmp_path: Path, frames: int, tried: bool
):
    path = tmp_path / "log.h5"
    store = cartpole_log(path, worn_cartpole(), frames=frames)
    problem = IdentificationProblem(with_lag(load("cartpole")), "cartpole", str(path), store, ())
    asked = identification._Identification(problem, tmp_path, SETTINGS, ())
    assert asked.settings.structures == asked.settings.networks == tried
    fitting = Fitting(asked.model, store, SETTINGS, 1)
    guessed = torch.tensor([one.guessed for one in fitting.space.coordinates])
    fitting.x, widths = torch.where(guessed, 5.0, 0.0).double(), fitting.space.widths
    fitting.widen()
    assert bool(guessed.any())
    assert (fitting.space.widths != widths) == tried
