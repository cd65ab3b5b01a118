# SPDX-License-Identifier: Apache-2.0
"""Faults of drives are found on stand-ins in plain MuJoCo that have them, and none on a healthy arm."""

from pathlib import Path

import mujoco
import numpy as np
import pytest

from tests.identify import faulty_arm

pytest.importorskip("newton")


@pytest.fixture(scope="module")
def declaration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return faulty_arm.declared(tmp_path_factory.mktemp("arm"))


def test_a_healthy_arm_keeps_no_structure(declaration: Path):
    search = faulty_arm.searched(declaration, faulty_arm.log(declaration.parent))
    assert not search.kept, search.tried


SHARE = 0.25


def rub(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Rub in the elbow in proportion to the torques of its motor and of gravity and motion."""
    torques = data.qfrc_actuator[1] + data.qfrc_bias[1]
    model.dof_frictionloss[:] = 1e-6, SHARE * abs(torques)


def test_friction_that_grows_with_load_is_found_in_its_joint(declaration: Path):
    search = faulty_arm.searched(declaration, faulty_arm.log(declaration.parent, step=rub))
    assert [(one.kind, one.place) for one in search.kept] == [("friction", "elbow")], search.tried
    space, x = search.fitting.space, search.fitting.x
    shares = [float(space.value(f"actuator.elbow.load_{side}", x)) for side in ("motor", "external")]
    assert np.mean(shares) == pytest.approx(SHARE, rel=0.3)


def test_a_spring_between_motor_and_link_is_found_in_its_joint(declaration: Path):
    stiffness = 25.0
    soft = faulty_arm.behind_a_joint(f'stiffness="{stiffness}" damping=".2"')
    search = faulty_arm.searched(declaration, faulty_arm.log(declaration.parent, xml=soft))
    assert [(one.kind, one.place) for one in search.kept][:1] == [("elastic", "elbow")], search.tried
    space, x = search.fitting.space, search.fitting.x
    assert float(space.value("actuator.elbow.stiffness", x)) == pytest.approx(stiffness, rel=0.3)
