# SPDX-License-Identifier: Apache-2.0
"""Kinds of dynamics, and the operations that rooms register for them."""

import subprocess
import sys

import pytest

from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import Artifact
from neurodyn.dynamics.kinds import KINDS, KindOperation, is_simulated, require_kind, simulate
from neurodyn.evaluate.run import EVALUATIONS
from neurodyn.identify.ladder.held_out import ALONG_LOG
from neurodyn.interop.c_code.units import C_UNITS
from neurodyn.interop.identified import IDENTIFIED
from neurodyn.interop.onnx import ONNX_FRAMES
from neurodyn.learn.training import TRAINED_KINDS
from neurodyn.policy.online_learning.refit import REFITS
from tests import plant

OPERATIONS = [ALONG_LOG, C_UNITS, EVALUATIONS, IDENTIFIED, ONNX_FRAMES, REFITS, TRAINED_KINDS]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.what)
def test_operations_are_registered_for_known_kinds(operation: KindOperation):
    assert set(operation) <= set(KINDS)
    assert all(callable(entry) or operation in (REFITS, TRAINED_KINDS) for entry in operation.values())


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.artifact])
def test_an_artifact_is_of_its_kind(name: str):
    artifact = KINDS[name].artifact
    assert artifact is not None
    assert isinstance(artifact(), Artifact)
    assert artifact().kind == name


def test_a_model_of_a_kind_without_the_operation_is_refused_with_the_kinds_that_have_it():
    message = "^runs/a: holds a hybrid model; valid here: a neural model or a world model$"
    with pytest.raises(InputError, match=message):
        ONNX_FRAMES.of("hybrid", "runs/a")
    with pytest.raises(InputError, match=message):
        require_kind("hybrid", ("world-model", "neural"), "runs/a")
    assert ONNX_FRAMES.of("neural", "runs/a") is ONNX_FRAMES["neural"]


def test_only_some_kinds_simulate_a_declared_robot():
    assert [name for name in KINDS if is_simulated(name)] == ["analytic", "hybrid"]
    assert not is_simulated("no kind")
    with pytest.raises(InputError, match="'neural': needs a run; valid without one: analytic, hybrid"):
        simulate("neural", plant.robot())


def test_plain_import_knows_the_kinds_of_higher_rooms():
    script = (
        "import sys, neurodyn; from neurodyn.dynamics.kinds import KINDS;"
        "assert 'neurodyn.interop.nerd' not in sys.modules; print(KINDS['nerd'].artifact().kind)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout == "nerd\n"
