# SPDX-License-Identifier: Apache-2.0
"""Blueprints as declarations: what they count, what they refuse, and that files keep them."""

import json
import math

import msgspec
import pytest

from neurodyn.core.config import from_dict, read_config, to_dict, to_yaml
from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.errors import InputError

ELBOW = Augmentation(
    quantities=("passive.elbow", "passive.shoulder"),
    inputs=("qd.elbow", "sin(q.elbow)", "cos(q.elbow)"),
    mode="scale",
    hidden=(5, 4),
    activation="silu",
    input_scale=(10.0, 1.0, 1.0),
    output_scale=(0.5, -2.0),
)
MASS = Augmentation(quantities=("elbow.mass",), inputs=("q.elbow",), mode="replace", hidden=())


def test_weights_are_a_matrix_and_a_bias_for_each_layer():
    assert ELBOW.widths == (3, 5, 4, 2)
    assert ELBOW.weights == (3 * 5 + 5) + (5 * 4 + 4) + (4 * 2 + 2)
    assert (MASS.widths, MASS.weights) == ((1, 1), 2)
    assert Blueprint(augmentations=(ELBOW, MASS)).weights == ELBOW.weights + 2
    assert Blueprint().weights == 0


def test_networks_share_weights_by_name():
    knee = msgspec.structs.replace(MASS, quantities=("knee.mass",), inputs=("q.knee",))
    nets = [ELBOW, *(msgspec.structs.replace(x, shared="mass") for x in (MASS, knee))]
    blueprint = Blueprint(augmentations=(nets[1], nets[0], nets[2], msgspec.structs.replace(knee, quantities=("a",))))
    assert blueprint.owners == (blueprint.augmentations[0], nets[0], blueprint.augmentations[3])
    assert blueprint.firsts == (0, 2, 0, 2 + ELBOW.weights)
    assert blueprint.weights == 2 + ELBOW.weights + 2


def test_networks_that_share_weights_are_alike():
    nets = [msgspec.structs.replace(x, shared="one") for x in (ELBOW, MASS)]
    with pytest.raises(ValueError, match=r"share the weights 'one' and have widths \[3, 5, 4, 2\] and \[1, 1\]; valid"):
        Blueprint(augmentations=tuple(nets))


def test_plain_data_and_back():
    blueprint = Blueprint(augmentations=(ELBOW, MASS))
    assert from_dict(json.loads(json.dumps(to_dict(blueprint))), Blueprint) == blueprint


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_a_file_holds_a_blueprint(tmp_path, suffix):
    blueprint = Blueprint(augmentations=(ELBOW, MASS))
    path = tmp_path / f"blueprint{suffix}"
    path.write_text(to_yaml(blueprint) if suffix == ".yaml" else json.dumps(to_dict(blueprint)))
    assert read_config(path, Blueprint) == blueprint


def test_what_a_user_leaves_out_has_a_default(tmp_path):
    path = tmp_path / "short.yaml"
    path.write_text("augmentations:\n- {quantities: [passive.elbow], inputs: [qd.elbow]}\n")
    (found,) = read_config(path, Blueprint).augmentations
    assert found == Augmentation(quantities=("passive.elbow",), inputs=("qd.elbow",))
    assert (found.mode, found.hidden, found.activation) == ("add", (16, 16), "tanh")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quantities": ()}, "an augmentation has no quantities"),
        ({"inputs": ()}, "an augmentation has no inputs"),
        ({"quantities": ("a", "a")}, "lists one of its quantities twice: a, a"),
        ({"inputs": ("a", "b", "a")}, "lists one of its inputs twice"),
        ({"hidden": (4, 0)}, r"hidden is \[4, 0\]; valid: widths of at least 1"),
        ({"input_scale": (1.0, 1.0)}, "input_scale is .*; valid: 3 finite numbers other than 0"),
        ({"input_scale": (1.0, 0.0, 1.0)}, "input_scale is"),
        ({"output_scale": (1.0, math.inf)}, "output_scale is .*; valid: 2 finite"),
        ({"output_scale": (1.0, math.nan)}, "output_scale is"),
    ],
)
def test_an_augmentation_that_cannot_be_is_refused_also_when_read(change, message):
    with pytest.raises(ValueError, match=message):
        Augmentation(**{**msgspec.structs.asdict(ELBOW), **change})
    with pytest.raises(InputError, match=message) as caught:
        from_dict({"augmentations": [{**to_dict(ELBOW), **change}]}, Blueprint, "blueprint.yaml")
    assert str(caught.value).startswith("blueprint.yaml: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "multiply"}, "valid: add, replace, scale"),
        ({"activation": "sigmoid"}, "valid: elu, relu, silu, softplus, softsign, tanh"),
        ({"layers": [3]}, "unknown key 'layers'; keys of Augmentation: hidden, input_scale"),
        ({"hidden": "16"}, "hidden is '16'; valid: a list"),
    ],
)
def test_a_misspelt_declaration_names_what_is_valid(change, message):
    with pytest.raises(InputError, match=message):
        from_dict({"augmentations": [{**to_dict(ELBOW), **change}]}, Blueprint, "blueprint.yaml")


def test_two_networks_of_one_quantity_are_refused():
    with pytest.raises(ValueError, match=r"two augmentations act on 'elbow\.mass'"):
        Blueprint(augmentations=(MASS, ELBOW, MASS))
