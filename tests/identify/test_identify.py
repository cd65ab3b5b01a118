# SPDX-License-Identifier: Apache-2.0
"""Identification from end to end: a declared arm, data of a simulator and of a known other arm, resumed and refused."""

import dataclasses
import json
import signal
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.cli.main import run
from neurodyn.core.artifacts import read_tree
from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.errors import InputError
from neurodyn.core.interruption import Interrupted
from neurodyn.data.header import StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.identification import identify
from neurodyn.identify.requests import IdentifyRequest
from neurodyn.identify.run import identify as identify_by_name
from neurodyn.identify.run import plan_identification
from neurodyn.identify.settings import IdentificationSettings, changed
from neurodyn.identify.stages.problem import IdentificationProblem
from neurodyn.learn.budget import TrainState
from neurodyn.learn.hybrid import NetworkTrainingSettings
from neurodyn.learn.manifest import read_manifest
from neurodyn.multibody.engine import EngineConfig, nominal
from neurodyn.robots import load as load_robot
from neurodyn.sim.simulators import articulation
from tests.learn.callbacks import SignalAt
from tests.learn.tracking.boards import texts

pytest.importorskip("newton")

ARM = Path(__file__).resolve().parents[2] / "examples" / "own_robot"
ROBOT = load_robot(str(ARM))
TRUTH = {"elbow.mass": 1.0, "elbow.com.z": -0.12, "shoulder.damping": 0.1, "elbow.friction": 0.08}
ASKED = ("elbow.mass", "elbow.com.z", "*.damping", "elbow.friction")
SETTINGS = IdentificationSettings(horizon=0.2, windows=40, iterations=20, seconds=(0.1, 0.2), rollouts=50)
NETWORKS = Blueprint(
    augmentations=(Augmentation(quantities=("torque.elbow",), inputs=("qd.elbow",), hidden=(8,), input_scale=(5.0,)),)
)


@pytest.fixture(scope="module")
def arm():
    from neurodyn.sim.simulators import mechanism

    return mechanism(articulation(ROBOT), ROBOT)


@pytest.fixture(scope="module")
def store(arm) -> Store:
    """A log of another arm of the same make, with noise."""
    model = HybridDynamics(ROBOT.spec, arm, EngineConfig(), select_parameters(nominal(arm, None), [*TRUTH]))
    return log_of(model, torch.tensor([TRUTH[spec.name] for spec in model.physical.specs], dtype=torch.float64))


def log_of(model: HybridDynamics, values: torch.Tensor, *, scale: float = 1.0, episodes: int = 24) -> Store:
    generator = torch.Generator().manual_seed(0)
    frames = 60

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    q, qd = scale * 0.8 * draw(episodes, 2), scale * 2.0 * draw(episodes, 2)
    control = scale * 2.0 * draw(episodes, 1, 2).expand(episodes, frames, 2)
    with torch.no_grad():
        path = model.simulate(State(q, qd), control, values, model.weights)
    measured = [path.q + 1e-3 * draw(*path.q.shape), path.qd + 1e-2 * draw(*path.qd.shape)]
    rows = torch.cat([*measured, torch.cat([control, torch.zeros(episodes, 1, 2)], 1)], -1)
    number = np.arange(episodes)
    table = episode_table([frames] * episodes, run=number % 12, split=number % 6 // 4 * (1 + number % 2))
    header = StoreHeader(spec=ROBOT.spec, source="log", runs=tuple(f"run {k}" for k in range(12)))
    return Store(header, rows.flatten(0, 1).float().numpy(), table)


def given(store: Store, asked=ASKED, blueprint: Blueprint | None = None) -> IdentificationProblem:
    return IdentificationProblem(ROBOT, str(ARM), "log.h5", store, asked, blueprint)


@pytest.fixture(scope="module")
def found(store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, Path]:
    out = tmp_path_factory.mktemp("identified") / "run"
    return identify(given(store), out, SETTINGS).figures.plain(), out


@pytest.mark.trains
def test_the_other_arm_is_found_within_its_intervals(found: tuple[dict, Path]):
    entries = {entry["name"]: entry for entry in found[0]["parameters"]}
    assert set(entries) == {"elbow.mass", "elbow.com.z", "shoulder.damping", "elbow.damping", "elbow.friction"}
    for name, truth in {**TRUTH, "elbow.damping": 0.05}.items():
        low, high = entries[name]["interval"]
        wide = 2.0 * (high - low)  # one study of five intervals misses one now and then
        assert low - wide <= truth <= high + wide, name
        assert high - low < 0.15 * max(abs(truth), 0.05), name
    assert entries["elbow.mass"]["nominal"] == pytest.approx(0.8)


def test_errors_are_reported_beside_nominal_and_fall(found: tuple[dict, Path]):
    errors = found[0]["errors"]
    assert set(errors) == {"nominal", "identified", "hold-last", "constant-velocity"}
    assert set(errors["identified"]) == {"0.1", "0.2"}
    for mark in ("0.1", "0.2"):
        assert errors["identified"][mark]["q_mean"] < 0.3 * errors["nominal"][mark]["q_mean"]
        assert errors["nominal"][mark]["q_mean"] < errors["hold-last"][mark]["q_mean"]
    assert found[0]["held_out"]["split"] == "test"


def test_inverse_dynamics_find_the_other_arm_from_its_torques(arm, tmp_path: Path):
    model = HybridDynamics(ROBOT.spec, arm, EngineConfig(), select_parameters(nominal(arm, None), [*TRUTH]))
    truth = torch.tensor([TRUTH[spec.name] for spec in model.physical.specs], dtype=torch.float64)
    store = log_of(model, truth, scale=0.3)  # which keeps it off its stops
    settings = changed(SETTINGS, method="inverse-dynamics", smoothing=0.2, inertial_prior=0.1)
    found = identify(given(store), tmp_path / "run", settings).figures.plain()
    values = {entry["name"]: entry["value"] for entry in found["parameters"]}
    assert values["elbow.mass"] * values["elbow.com.z"] == pytest.approx(-0.12, rel=0.1)
    assert values["shoulder.damping"] == pytest.approx(0.1, rel=0.2)
    assert found["converged"]
    assert found["intervals"] == "torques"
    misses = found["torque"]
    assert misses["split"] == "test"
    assert misses["identified"]["elbow"] < 0.7 * misses["nominal"]["elbow"]
    assert found["errors"]["identified"]["0.2"]["q_mean"] < 0.3 * found["errors"]["nominal"]["0.2"]["q_mean"]
    table = texts(tmp_path / "run")["parameters"].splitlines()
    assert [line.split(" | ")[0].strip("| ") for line in table[2:]] == [entry["name"] for entry in found["parameters"]]


def test_the_run_holds_a_model_that_moves_as_it_was_identified(found: tuple[dict, Path]):
    result, out = found
    model = load(out)
    assert isinstance(model, HybridDynamics)
    expected = {entry["name"]: entry["value"] for entry in result["parameters"]}
    for spec, value in zip(model.physical.specs, model.physical().tolist(), strict=True):
        assert value == pytest.approx(expected[spec.name], rel=1e-3, abs=1e-5)
    for name in ("config.yaml", "metrics.jsonl", "identification.json"):
        assert (out / name).is_file(), name
    json.loads((out / "identification.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.trains
def test_newtons_simulator_is_identified_from_its_own_data(tmp_path: Path):
    """Featherstone's solver and this engine step alike: what was declared comes back from a start far off."""
    from neurodyn.sim.generation import generate

    generate(ROBOT, transitions=3000, out=tmp_path / "arm.h5", worlds=30, seed=1, frames=25)
    asked = ("elbow.mass=1.2:0.3:3", "elbow.com.z=-0.1:-0.3:0", "shoulder.damping=0.2:0:1", "elbow.armature=0.03:0:1")
    store = Store.open(tmp_path / "arm.h5")
    result = identify(given(store, asked), tmp_path / "run", SETTINGS).figures.plain()
    entries = {entry["name"]: entry["value"] for entry in result["parameters"]}
    declared = {"elbow.mass": 0.8, "elbow.com.z": -0.15, "shoulder.damping": 0.05, "elbow.armature": 0.01}
    assert entries == pytest.approx(declared, rel=0.02)


def networks(**changes: object) -> IdentificationSettings:
    training = NetworkTrainingSettings(
        **{"steps": 60, "batch": 32, "rate": 0.01, "validations": 6, "windows": 400, **changes}
    )
    return changed(SETTINGS, network=training, windows=20, starts=3, rounds=2, round_iterations=2)


@pytest.mark.trains
def test_a_network_learns_the_friction_that_parameters_leave_out(store: Store, tmp_path: Path):
    asked = ("elbow.mass", "elbow.com.z", "shoulder.damping")
    settings = changed(networks(steps=250), starts=1)
    result = identify(given(store, asked, NETWORKS), tmp_path / "run", settings).figures.plain()
    errors = result["errors"]
    assert errors["hybrid"]["0.2"]["q_mean"] < 0.7 * errors["identified"]["0.2"]["q_mean"]
    model = load(tmp_path / "run")
    assert model.config.blueprint == NETWORKS
    assert result["weights"] == model.weights.numel() == NETWORKS.weights
    assert all("with_networks" in entry for entry in result["parameters"])


@pytest.mark.parametrize("optimiser", ["adam", "soap"])
def test_a_run_that_was_stopped_and_resumed_ends_in_the_same_bits(optimiser: str, store: Store, tmp_path: Path):
    settings = networks(optimiser=optimiser)
    asked = ("elbow.mass", "elbow.com.z")
    identify(given(store, asked, NETWORKS), tmp_path / "whole", settings)
    stop = SignalAt(25, signal.SIGTERM)
    with pytest.raises(Interrupted, match="interrupted at step 25"):
        identify(given(store, asked, NETWORKS), tmp_path / "killed", settings, callbacks=[stop])
    resumed = identify(given(store, asked, NETWORKS), tmp_path / "killed", settings, resume=True).figures.plain()
    whole = json.loads((tmp_path / "whole" / "identification.json").read_text())
    for key in ("parameters", "errors", "singular_values"):
        assert resumed[key] == whole[key]
    weights = [load(tmp_path / name).weights for name in ("whole", "killed")]
    assert torch.equal(*weights)
    steps = [json.loads(line)["step"] for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    longer = changed(settings, network=msgspec.structs.replace(settings.network, steps=80))
    identify(given(store, asked, NETWORKS), tmp_path / "killed", longer, resume=True)
    assert TrainState.read(read_tree(tmp_path / "killed" / "state", "networks")["position"]).step == 80


def call(*arguments: object) -> int:
    return run([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def log_file(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.h5"
    store.write(path)
    return path


def test_the_verb_writes_what_it_found(log_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    blueprint, settings = tmp_path / "blueprint.yaml", tmp_path / "settings.yaml"
    blueprint.write_text("augmentations: [{quantities: [torque.elbow], inputs: [qd.elbow], hidden: [4]}]")
    settings.write_text("{horizon: 0.1, windows: 10, rollouts: 20, network: {steps: 5}}")
    out = tmp_path / "run"
    flags = ("--settings", settings, "--json", tmp_path / "found.json", "--blueprint", blueprint, "--seed", 3)
    done = call(
        "identify", ARM, "--data", log_file, "--parameters", "elbow.mass=0.5:2", "*.damping", "--out", out, *flags
    )
    assert done == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert {"parameters", "errors"} <= set(found)
    assert set(found["errors"]) >= {"nominal", "identified", "hybrid", "hold-last"}
    printed = capsys.readouterr().out
    assert "elbow.mass" in printed
    assert f"verdict: {found['verdict']}" in " ".join(printed.split())
    again = ("identify", ARM, "--data", log_file, "--parameters", "elbow.mass=0.5:2", "*.damping", "--out", out)
    assert call(*again) == 2
    assert "already holds a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (["elbow.weight"], "'elbow.weight' matches no quantity"),
        (["forearm.mass"], "; a link's quantities are named after the joint that moves it"),
        (["elbow.mass=2:3"], "outside of the bounds"),
        (["elbow.mass=a:b"], "malformed"),
        (["elbow.inertia.xx"], "cannot identify elbow.inertia.xx"),
    ],
)
def test_bad_parameters_are_refused_in_one_line(
    parameters: list[str], message: str, log_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "run"
    assert call("identify", ARM, "--data", log_file, "--parameters", *parameters, "--out", out) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (out / "config.yaml").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--bootstrap", -5], "bootstrap is -5; valid: 0 for none, or at least 40 resamples"),
        (["--bootstrap", 10], "bootstrap is 10; valid: 0 for none, or at least 40 resamples"),
        (["--profile", -1], "profile is -1; valid: 0 for none, or 3 to 101 points"),
        (["--starts", -2], "starts is -2; valid: a whole number of at least 1"),
        (["--horizons", 0.2, 0.1], "valid: growing horizons"),
        (["--prior", "elbow.mass=0"], "its width is not a finite number above 0"),
        (["--prior", "elbow.mass"], "is malformed; valid: NAME=STANDARD_DEVIATION"),
        (["--prior", "wrist.mass=1"], "'wrist.mass' is not a free quantity"),
        (["--search", "annealing"], "unknown search 'annealing'; valid: basin-hopping"),
        (["--optimiser", "simplex"], "levenberg-marquardt"),
    ],
)
def test_bad_counts_priors_and_optimisers_are_refused_in_one_line(
    flags: list[object], message: str, log_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "run"
    assert call("identify", ARM, "--data", log_file, "--parameters", "elbow.mass", "--out", out, *flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1, error
    assert not (out / "config.yaml").exists()


def test_a_bootstrap_of_one_window_is_refused(store: Store, tmp_path: Path):
    alone = store.select([0, 4, 5])
    settings = changed(SETTINGS, horizon=0.55, bootstrap=50)
    with pytest.raises(InputError, match=r"bootstrap: 1 log\(s\) with 1 window\(s\) of .* valid: at least 5"):
        identify(given(alone, ("elbow.mass",)), tmp_path / "run", settings)
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_an_identification_says_why_it_is_believed_or_not(found: tuple[dict, Path]):
    result, _ = found
    assert result["converged"] is True
    assert "standard deviations long" in result["reason"]
    assert result["intervals"] == "sandwich"
    assert "12 logs" not in result["blocks"]  # eight of the twelve logs are for training
    for entry in result["runs"]:
        assert entry["q"]["identified"] < entry["q"]["nominal"]
        assert 0 < entry["floor"] < 3.0 * entry["q"]["identified"]


def test_without_convergence_there_is_no_interval(store: Store, tmp_path: Path):
    settings = changed(SETTINGS, iterations=1, reweigh=False, bootstrap=40)
    result = identify(given(store), tmp_path / "run", settings).figures
    assert not result.converged
    assert "costs still fell after 1 iterations" in result.reason
    assert all(entry.interval is None and entry.why_not == "not converged" for entry in result.parameters)
    assert any("there are no intervals" in text for text in result.warnings)


def test_the_seed_decides_which_windows_are_compared(store: Store, tmp_path: Path):
    values = []
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        settings = changed(SETTINGS, horizon=0.15, seed=seed, rollouts=5, windows=20)
        figures = identify(given(store, ("elbow.mass", "*.damping")), tmp_path / name, settings).figures
        values.append([entry.value for entry in figures.parameters])
    assert values[0] == values[1]
    assert values[0] != values[2]


def test_bootstrap_profiles_and_ends_are_in_the_table_and_the_page(log_file: Path, tmp_path: Path, capsys):
    out, settings = tmp_path / "run", tmp_path / "settings.yaml"
    settings.write_text("{horizon: 0.15, windows: 20, rollouts: 5, seconds: [0.1], rounds: 1, round_iterations: 3}")
    flags = ("--bootstrap", 40, "--profile", 5, "--starts", 4, "--prior", "elbow.mass=20%", "--settings", settings)
    words = ("identify", ARM, "--data", log_file, "--parameters", "elbow.mass", "shoulder.damping", "--out", out)
    assert call(*words, *flags) == 0
    text = capsys.readouterr().out
    for part in ("Converged", "By the sandwich", "Prior", "Where searches from 4 starts ended", "whole runs"):
        assert part in text, part
    result = json.loads((out / "identification.json").read_text())
    assert result["intervals"] == "bootstrap"
    assert 36 <= result["resamples"] <= 40
    assert set(result["profiles"]) == {"elbow.mass", "shoulder.damping"}
    assert result["parameters"][1]["prior"] == pytest.approx(0.16)
    page = (out / "report.html").read_text()
    for part in ("Profile likelihood of elbow.mass", "Whole runs", "Residual of shoulder", "Where searches ended"):
        assert part in page, part
    resumed = ("--resume", "--json", tmp_path / "again.json")
    assert call(*words, *flags, *resumed) == 0
    assert json.loads((tmp_path / "again.json").read_text())["parameters"] == result["parameters"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("augmentations: [{quantities: [torque.wrist], inputs: [qd.elbow]}]", "'torque.wrist'"),
        ("augmentations: [{quantities: [torque.elbow], inputs: [torque.elbow]}]", "torque.elbow"),
        ("augmentations: [{quantity: torque.elbow}]", "quantity"),
    ],
)
def test_bad_blueprints_are_refused_in_one_line(
    text: str, message: str, log_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "blueprint.yaml"
    path.write_text(text)
    flags = ("--parameters", "elbow.mass", "--blueprint", path, "--out", tmp_path / "run")
    assert call("identify", ARM, "--data", log_file, *flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_data_of_another_robot_are_refused(plant_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    flags = ("--parameters", "elbow.mass", "--out", tmp_path / "run")
    assert call("identify", ARM, "--data", plant_file, *flags) == 2
    assert "cartpole" in capsys.readouterr().err


def test_a_log_at_rest_cannot_tell_friction(arm, tmp_path: Path):
    model = HybridDynamics(ROBOT.spec, arm, EngineConfig())
    still = log_of(model, torch.zeros(0, dtype=torch.float64), scale=0.0)
    rows = still.frames.copy()
    rows[:, :4] = 0.0
    with pytest.raises(InputError, match=r"cannot identify shoulder\.damping, elbow\.damping"):
        identify(given(dataclasses.replace(still, frames=rows), ("*.damping",)), tmp_path / "run", SETTINGS)


def test_a_roll_out_that_breaks_down_is_named(store: Store, tmp_path: Path):
    rows = store.frames.copy()
    rows[30, 4:] = 1e38
    broken = dataclasses.replace(store, frames=rows)
    with pytest.raises(InputError, match=r"world \d \(episode 0, from state \d+ on\) is not finite: qd?\.\w+ at step"):
        identify(given(broken), tmp_path / "run", SETTINGS)


def test_what_does_not_fit_the_run_is_not_resumed(found: tuple[dict, Path], store: Store):
    _, out = found
    with pytest.raises(InputError, match="needs the settings"):
        identify(given(store), out, changed(SETTINGS, seed=9), resume=True)
    with pytest.raises(InputError, match="needs the parameters"):
        identify(given(store, ("elbow.mass",)), out, SETTINGS, resume=True)
    other = dataclasses.replace(store, frames=store.frames + np.float32(1e-3))
    with pytest.raises(InputError, match="needs the data"):
        identify(given(other), out, SETTINGS, resume=True)


def test_parameters_come_from_the_settings_where_none_are_asked_for(log_file: Path, tmp_path: Path, capsys):
    words = ["identify", ARM, "--data", log_file, "--settings", tmp_path / "quick.yaml"]
    quick = "horizon: 0.2\nwindows: 20\niterations: 3\nseconds: [0.1]\nrollouts: 20\n"
    (tmp_path / "quick.yaml").write_text(quick)
    assert call(*words, "--out", tmp_path / "none") == 2
    assert "name no parameters" in capsys.readouterr().err
    (tmp_path / "quick.yaml").write_text(quick + 'parameters: ["*.damping"]\nstart: past\n')
    assert call(*words, "--out", tmp_path / "run") == 0
    found = json.loads((tmp_path / "run" / "identification.json").read_text())
    assert [entry["name"] for entry in found["parameters"]] == ["shoulder.damping", "elbow.damping"]
    assert 0 < found["noise_floor"]["0.1"]["q_mean"] < found["errors"]["identified"]["0.1"]["q_mean"] * 1.5
    # Its evaluation starts from the past, too, and has a page of its own.
    assert call("evaluate", tmp_path / "run", "--data", log_file, "--horizon", 5, "--json", tmp_path / "e.json") == 0
    assert json.loads((tmp_path / "e.json").read_text())["context_frames"] == 10
    page = (tmp_path / "run" / f"evaluation-horizon-5-data-{log_file.stem}.html").read_text()
    assert "hybrid dynamics beside" in page
    assert "Sample trajectories" in page


def test_arguments_with_the_name_of_a_setting_replace_it(store: Store, tmp_path: Path):
    asked = IdentifyRequest(
        str(ARM), store, tmp_path, parameters=ASKED, settings=SETTINGS, seed=3, minutes=2.0, horizons=[0.05],
        prior=["elbow.mass=20%"], starts=2,
    )  # fmt: skip
    problem, settings = plan_identification(asked)
    assert settings == msgspec.structs.replace(
        SETTINGS, seed=3, minutes=2.0, horizons=(0.05,), prior={"elbow.mass": "20%"}, starts=2
    )
    assert problem.parameters == ASKED
    with pytest.raises(InputError, match="identification: horizon is -1"):
        plan_identification(msgspec.structs.replace(asked, horizon=-1.0))


def test_an_identification_gets_the_same_bits_again(store: Store, tmp_path: Path):
    store.write(tmp_path / "arm.h5")
    short = msgspec.structs.replace(SETTINGS, iterations=3, rollouts=5)
    runs = [tmp_path / "run", tmp_path / "again"]
    for out in runs:
        identify_by_name(str(ARM), tmp_path / "arm.h5", out, parameters=ASKED, settings=short)
    assert read_manifest(runs[0]).training == "identify"
    first, again = ((out / "model/model.safetensors").read_bytes() for out in runs)
    assert first == again
