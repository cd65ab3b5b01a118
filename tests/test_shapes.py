# SPDX-License-Identifier: Apache-2.0
"""Shapes in annotations are true: tests of the functions that have them pass while every call is checked."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import CHECKED

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "dynamics/test_control.py", "dynamics/test_coordinates.py", "dynamics/test_measures.py",
    "dynamics/test_tangent.py", "dynamics/test_interface.py", "dynamics/hybrid/test_model.py",
    "dynamics/neural/test_invariance.py", "dynamics/world_model/test_model.py", "geometry/test_rotation.py",
    "geometry/test_base_frame.py", "geometry/test_proximity.py", "multibody/test_free_motion.py",
)  # fmt: skip


NAMES = (
    "Quaternions", "Vectors", "Matrices", "Rows", "Positions", "Velocities", "Torques", "Controls", "WorldMask",
)  # fmt: skip
"""Annotations of `neurodyn.geometry.tensors`."""


def checked(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NEURODYN_CHECK_SHAPES": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.slow
def test_public_functions_take_and_return_the_shapes_that_they_say():
    quick = "not newton and not simulator and not off_the_cpu"  # which check what is computed, slowly
    words = ("-m", "pytest", "-q", "-k", quick, "-p", "no:cacheprovider", "-p", "no:xdist")
    done = checked(*words, *(f"tests/{t}" for t in TESTS))
    assert done.returncode == 0, done.stdout[-4000:]


WRONG = """
import tests, torch
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.geometry import rotation

for call in (lambda: rotation.multiply(torch.zeros(2, 4), torch.zeros(2, 3)),
             lambda: wrap_angle(torch.zeros(2, dtype=torch.int64))):
    try:
        call()
    except Exception as error:
        print(type(error).__name__)
"""


def test_a_wrong_shape_or_dtype_is_found():
    done = checked("-c", WRONG)
    assert done.stdout.split() == 2 * ["TypeCheckError"], done.stderr


def test_every_module_with_annotated_shapes_is_checked():
    annotated = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for path in (ROOT / "src").rglob("*.py")
        if re.search(rf"jaxtyping import|geometry.tensors import [^)]*\b({'|'.join(NAMES)})\b", path.read_text())
    }
    # Batches check themselves.
    others = {"neurodyn.geometry.tensors", "neurodyn.dynamics.batch"}
    assert annotated - others == set(CHECKED)
