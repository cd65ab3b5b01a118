# SPDX-License-Identifier: Apache-2.0
"""A model comes back from its files bitwise, and damaged files are bad input."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
import torch

from neurodyn.core.artifacts import read_json
from neurodyn.core.description.mechanism import BodyPrint, Fingerprint
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.artifact import require_match
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.neural.model import NEURAL, NeuralDynamics, build_model, describe
from tests import damage, plant

replace = msgspec.structs.replace
POLE = BodyPrint(name="pole", mass=2.5, com=(0.0, 0.0, 0.5), inertia=(0.1, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0))
PRINT = Fingerprint(joints=(), bodies=(POLE,), gravity=(0.0, 0.0, -9.81))


def make(kind: str = "mlp", fingerprint: Fingerprint | None = PRINT) -> NeuralDynamics:
    model = plant.make_model(kind, torch.float32)
    model.fingerprint = fingerprint
    return model


@pytest.fixture
def run(tmp_path: Path) -> Path:
    NEURAL.save(tmp_path / "run", make())
    return tmp_path / "run"


@pytest.mark.parametrize("fingerprint", [PRINT, None])
@pytest.mark.parametrize("kind", list(plant.NETS))
def test_a_loaded_model_is_bitwise_the_saved_one(kind: str, fingerprint: Fingerprint | None, tmp_path: Path):
    model = make(kind, fingerprint)
    NEURAL.save(tmp_path, model)
    found = NEURAL.load(tmp_path)
    assert list(found.state_dict()) == list(model.state_dict())
    for name, tensor in model.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
    assert found.spec == model.spec
    assert found.fingerprint == fingerprint
    state, torques = plant.make_states(3, torch.float32), plant.make_torques(3, 20, torch.float32)
    model.requires_grad_(False)
    assert torch.equal(found.rollout(state, torques).q, model.rollout(state, torques).q)


def test_a_loaded_model_is_frozen_until_it_is_asked_to_train(run: Path):
    model = NEURAL.load(run)
    assert not any(p.requires_grad for p in model.parameters())
    state, torques = plant.make_states(2, torch.float32), plant.make_torques(2, 3, torch.float32)
    assert model.requires_grad_(True).rollout(state, torques).q.requires_grad


def test_a_saved_model_replaces_the_one_before(run: Path):
    model = make()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    NEURAL.save(run, model)
    assert all(float(p.abs().sum()) == 0 for p in NEURAL.load(run).parameters())
    assert sorted(p.name for p in (run / "model").iterdir()) == ["config.json", "model.safetensors", "spec.json"]


def test_a_silent_network_is_written_down_and_found_without_that(run: Path, tmp_path: Path):
    acting, config = NEURAL.load(run), run / "model" / "config.json"
    assert acting.caveat == ""
    assert "caveat" not in read_json(config)
    NEURAL.save(tmp_path / "silent", acting.base_alone())
    config = tmp_path / "silent" / "model" / "config.json"
    written = read_json(config)
    assert written["caveat"] == NEURAL.load(tmp_path / "silent").caveat == "no motion, network silent"
    del written["caveat"]  # as older files
    config.write_text(json.dumps(written))
    assert NEURAL.load(tmp_path / "silent").caveat == "no motion, network silent"


@pytest.mark.parametrize("name", damage.FILES)
@pytest.mark.parametrize("keep", damage.KEPT)
def test_missing_and_truncated_files_are_bad_input(name: str, keep: float | None, run: Path):
    damage.check_damage_is_refused(run, name, keep, NEURAL.load)


def test_weights_of_another_network_are_bad_input(run: Path, tmp_path: Path):
    NEURAL.save(tmp_path / "other", make("gru"))
    shutil.copy(tmp_path / "other" / "model" / "model.safetensors", run / "model" / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors: weights do not fit"):
        NEURAL.load(run)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("config.json", {"kind": "quantum"}),
        ("config.json", {"colour": "red"}),
        ("config.json", {"net": {"kind": "transformer", "width": 7}}),
        ("spec.json", {"state": None}),
    ],
)
def test_a_file_of_another_version_is_bad_input(name: str, change: dict, run: Path):
    path = run / "model" / name
    path.write_text(json.dumps({**read_json(path), **change}))
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        NEURAL.load(run)


def test_a_model_is_built_from_what_its_files_say():
    model = make("transformer")
    built = build_model(*describe(model))
    assert built.spec == model.spec
    assert {n: p.shape for n, p in built.named_parameters()} == {n: p.shape for n, p in model.named_parameters()}


def test_the_robot_it_was_made_for_matches():
    model = make()
    require_match(model, plant.robot().spec, PRINT, "test")
    require_match(model, plant.robot().spec, None, "a log")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dt": 0.01}, "dt is 0.01 s instead of 0.0166667 s"),
        ({"controls": ("hinge",)}, "controls are ['hinge'] instead of ['slider']"),
        ({"joints": plant.robot().spec.joints[::-1]}, "joint order is ['hinge', 'slider'] instead of"),
    ],
)
def test_another_state_is_refused_and_the_difference_named(change: dict, words: str):
    with pytest.raises(MismatchError) as caught:
        require_match(make(), replace(plant.robot().spec, **change), PRINT, "robot 'x'")
    assert words in str(caught.value)
    assert str(caught.value).startswith("robot 'x'")


def test_an_edited_mass_is_refused_and_named():
    heavy = replace(PRINT, bodies=(replace(POLE, mass=5.0),))
    with pytest.raises(MismatchError, match=r"mass of body 'pole' is 5 instead of 2\.5"):
        require_match(make(), plant.robot().spec, heavy, "robot")


def test_the_state_passed_to_a_loaded_model_is_not_changed(run: Path):
    state, torques = plant.make_states(2, torch.float32), plant.make_torques(2, 5, torch.float32)
    kept = State(state.q.clone(), state.qd.clone())
    NEURAL.load(run).rollout(state, torques)
    assert torch.equal(state.q, kept.q)
    assert torch.equal(state.qd, kept.qd)
