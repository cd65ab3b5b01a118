# SPDX-License-Identifier: Apache-2.0
"""Hybrid models come back from their files bitwise, by every command; damaged files are bad input."""

import json
import math
import re
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

import neurodyn
from neurodyn.cli.main import run as command
from neurodyn.core.artifacts import read_json
from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import kind_of, load, robot_of
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.multibody.engine import EngineConfig, nominal
from neurodyn.sim.newton.articulation import newton_articulation
from tests import damage
from tests.multibody import machines

NETS = Blueprint(
    augmentations=(
        Augmentation(quantities=("passive.elbow",), inputs=("qd.elbow", "sin(q.elbow)"), hidden=(3,), activation="elu"),
    )
)


def make(raw=0.4):
    """A pendulum that is identified far from where it began: on bounds, and in a thin inertia."""
    mechanism = machines.pendulum()
    asked = ("shoulder.damping=0:1", "elbow.friction", "elbow.rest", "shoulder.inertia")
    model = HybridDynamics(
        machines.spec(mechanism, ("elbow",)), mechanism, EngineConfig(substeps=2, blueprint=NETS),
        select_parameters(nominal(mechanism, None), asked), declaration="pendulum.yaml",
    )  # fmt: skip
    with torch.no_grad():
        model.weights.normal_(generator=torch.Generator().manual_seed(0))
        model.physical.raw.normal_(0.0, raw, generator=torch.Generator().manual_seed(1))
    return model


@pytest.fixture(scope="module")
def model():
    return make()


@pytest.fixture
def run(model, tmp_path):
    HYBRID.save(tmp_path / "run", model)
    return tmp_path / "run"


def rollout(model):
    generator = torch.Generator().manual_seed(2)
    q, qd = (torch.randn(4, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    with torch.no_grad():
        found = model.rollout(State(q, qd), torch.randn(4, 20, 1, generator=generator, dtype=torch.float64))
    return torch.cat([found.q, found.qd], -1)


@pytest.mark.parametrize("raw", [0.4, 6.0])
def test_a_loaded_model_rolls_out_bitwise_as_the_saved_one(raw, tmp_path):
    saved = make(raw)
    HYBRID.save(tmp_path, saved)
    found = load(tmp_path)
    assert isinstance(found, HybridDynamics)
    assert torch.equal(found.physical(), saved.physical())
    assert torch.equal(rollout(found), rollout(saved))
    assert (found.spec, found.mechanism, found.config) == (saved.spec, saved.mechanism, saved.config)
    assert not any(p.requires_grad for p in found.parameters())
    HYBRID.save(tmp_path / "again", found)
    for name in ("config.json", "spec.json", "model.safetensors"):
        assert (tmp_path / "again" / "model" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()


def test_it_is_found_by_the_package(run):
    assert torch.equal(rollout(neurodyn.load(str(run))), rollout(HYBRID.load(run, threads=2)))
    assert (kind_of(run), robot_of(run)) == ("hybrid", "pendulum.yaml")


def test_a_scene_and_a_contact_model_are_kept(tmp_path):
    mechanism = machines.sphere()
    scene = Scene(shapes=(Plane(position=(0.0, 0.0, 0.1)),))
    config = EngineConfig(contact="force", substeps=10)
    saved = HybridDynamics(machines.spec(mechanism), mechanism, config, scene=scene)
    HYBRID.save(tmp_path, saved)
    found = HYBRID.load(tmp_path)
    assert (found.scene, found.config.contact) == (scene, "force")
    q = torch.tensor([[0.0, 0.0, 0.3, 0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
    ends = [m.rollout(State(q, torch.zeros(1, 6).double()), torch.zeros(1, 100, 0).double()) for m in (saved, found)]
    assert torch.equal(ends[0].q, ends[1].q)
    assert ends[0].q[0, -1, 2] > 0.15  # it lies on the plane


def test_what_was_identified_can_be_read_without_the_library(run, model):
    found = load_file(run / "model" / "model.safetensors")
    names = [p["name"] for p in json.loads((run / "model" / "config.json").read_text())["parameters"]]
    assert names == [spec.name for spec in model.physical.specs]
    assert torch.equal(found["quantities"], model.physical().detach())
    config, spec = HYBRID.read(run)
    assert (config.robot, config.engine.blueprint, spec.mechanism) == ("pendulum.yaml", NETS, model.mechanism)


@pytest.mark.parametrize("name", damage.FILES)
@pytest.mark.parametrize("keep", damage.KEPT)
def test_missing_and_truncated_files_are_bad_input(name, keep, run):
    damage.check_damage_is_refused(run, name, keep, load)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {k: v for k, v in t.items() if k != "raw"}, r"'raw' does not fit config.json.*shape \[9\]"),
        (lambda t: {**t, "weights": t["weights"][:-1]}, "'weights' does not fit"),
        (lambda t: {**t, "quantities": t["quantities"][None]}, "'quantities' does not fit"),
        (lambda t: {**t, "weights": t["weights"] * math.nan}, "'weights' holds numbers that are not finite"),
        (lambda t: {**t, "raw": t["raw"] + 0.1}, "quantities do not follow from the start and bounds"),
    ],
)
def test_numbers_that_do_not_fit_are_bad_input(change, message, run):
    path = run / "model" / "model.safetensors"
    save_file({name: x.contiguous() for name, x in change(load_file(path)).items()}, path)
    with pytest.raises(InputError, match=f"model.safetensors: {message}") as caught:
        load(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("config.json", {"kind": "quantum"}, "kind is 'quantum'; valid: neural or hybrid"),
        ("config.json", {"robot": 3}, "robot"),
        ("config.json", {"colour": "red"}, "unknown key 'colour'"),
        ("config.json", {"engine": {"contact": "glue"}}, "valid: force, impulse"),
        ("config.json", {"engine": {"substeps": 0}}, "substeps is 0"),
        (
            "spec.json",
            {"mechanism": {"links": []}},
            "its joints are shoulder .*, but those of the mechanism are \\(none",
        ),
        ("spec.json", {"state": None}, "state is null; valid: a table of keys"),
    ],
)
def test_a_file_of_another_version_is_bad_input(name, change, message, run):
    path = run / "model" / name
    path.write_text(json.dumps({**read_json(path), **change}))
    with pytest.raises(InputError, match=message) as caught:
        load(run)
    assert "\n" not in str(caught.value)


# --- commands ------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def cartpole_run(cartpole, tmp_path_factory):
    """The declared cartpole with a heavier pole."""
    pytest.importorskip("newton")
    from neurodyn.sim.newton.build import build
    from neurodyn.sim.newton.fingerprints import fingerprint
    from neurodyn.sim.simulators import mechanism

    built = build(cartpole)
    found = mechanism(newton_articulation(built, cartpole), cartpole)
    parameters = select_parameters(nominal(found, None), ["hinge.mass", "*.damping"])
    model = HybridDynamics(cartpole.spec, found, EngineConfig(substeps=5), parameters, fingerprint(built))
    with torch.no_grad():
        model.physical.raw[0] += 0.2
    folder = tmp_path_factory.mktemp("hybrid") / "run"
    HYBRID.save(folder, model)
    return folder


def test_evaluate_measures_a_hybrid_run(cartpole_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    figures = tmp_path / "figures.json"
    before = set(cartpole_run.rglob("*"))
    arguments = ["evaluate", str(cartpole_run), "--horizon", "50", "--rollouts", "8", "--json", str(figures)]
    assert command(arguments) == 0
    found = json.loads(figures.read_text(), parse_constant=pytest.fail)
    assert found["finite_fraction"] == 1.0
    # A pole that is 15 % too heavy shows, but the model is no guess.
    error = found["by_horizon"]["50"]["joint_rad"]
    assert 1e-4 < error < 0.1
    assert error < 0.2 * found["baselines"]["constant_velocity"]["50"]["joint_rad"]
    assert "cartpole: identified" in capsys.readouterr().out
    assert set(cartpole_run.rglob("*")) - before == {cartpole_run / "report-horizon-50-rollouts-8.html"}


def test_a_hybrid_model_is_exported_to_simulators_and_as_code(cartpole_run, capsys):
    assert command(["export", str(cartpole_run)]) == 2
    error = capsys.readouterr().err.strip()
    assert re.search("holds a hybrid model, for which there is no ONNX; valid: --to c, .*mjcf", error)
    assert error.count("\n") == 0


def test_finetune_refuses_a_hybrid_run_in_one_line(cartpole_run, plant_file, tmp_path, capsys):
    out = tmp_path / "out"
    assert command(["finetune", str(cartpole_run), "--data", str(plant_file), "--out", str(out)]) == 2
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0
    assert "holds a hybrid model; valid here: a neural model" in error
    assert not out.exists()


def test_a_neural_run_is_no_hybrid_one(trained_run):
    with pytest.raises(InputError, match="holds a neural model; valid here: a hybrid model"):
        HYBRID.load(trained_run)


def test_another_robot_is_refused(cartpole_run, tmp_path, capsys):
    config = cartpole_run / "model" / "config.json"
    content = config.read_text()
    try:
        config.write_text(json.dumps({**read_json(config), "robot": "dfki-c1"}))
        assert command(["evaluate", str(cartpole_run), "--horizon", "5", "--rollouts", "2"]) == 2
        assert "not the robot that the model of 'cartpole'" in capsys.readouterr().err
    finally:
        config.write_text(content)


def test_parameters_of_a_file_are_those_of_the_model(run, model):
    assert HYBRID.read(run)[0].parameters == model.physical.specs
    assert msgspec.structs.asdict(HYBRID.read(run)[0].engine)["free"] == ()
