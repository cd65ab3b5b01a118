# SPDX-License-Identifier: Apache-2.0
"""A state's names, units and order follow from its joints."""

import msgspec
import pytest

from neurodyn.core.config import from_dict, to_dict
from neurodyn.core.description.spec import JointSpec, StateSpec

SPEC = StateSpec(
    robot="walker",
    joints=(
        JointSpec(name="root", kind="free"),
        JointSpec(name="hip", kind="revolute", lower=-1.0, upper=1.0),
        JointSpec(name="wheel", kind="revolute", continuous=True),
        JointSpec(name="spring", kind="prismatic"),
    ),
    controls=("spring", "hip"),
    dt=0.01,
)
replace = msgspec.structs.replace


def test_sizes_names_and_units_are_of_the_same_length():
    assert (SPEC.nq, SPEC.nv, SPEC.nu) == (10, 9, 2)
    assert len(SPEC.q_names) == len(SPEC.q_units) == len(SPEC.continuous) == SPEC.nq
    assert SPEC.q_names[:7] == ("root.x", "root.y", "root.z", "root.qx", "root.qy", "root.qz", "root.qw")
    assert SPEC.q_units == ("m",) * 3 + ("1",) * 4 + ("rad", "rad", "m")


def test_controls_act_on_the_velocity_of_their_joint():
    assert SPEC.control_dofs == (8, 6)
    assert [SPEC.qd_names[i] for i in SPEC.control_dofs] == ["spring", "hip"]


def test_only_the_wheel_is_compared_modulo_a_turn():
    assert [name for name, c in zip(SPEC.q_names, SPEC.continuous, strict=True) if c] == ["wheel"]


def test_a_spec_survives_plain_data():
    assert from_dict(to_dict(SPEC), StateSpec) == SPEC


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(SPEC, joints=(SPEC.joints[0], SPEC.joints[2], SPEC.joints[1], SPEC.joints[3])), "joint order is"),
        (replace(SPEC, controls=("hip", "spring")), "controls are ['hip', 'spring'] instead of ['spring', 'hip']"),
        (replace(SPEC, dt=0.02), "dt is 0.02 s instead of 0.01 s"),
        (replace(SPEC, joints=(*SPEC.joints[:3], replace(SPEC.joints[3], kind="revolute"))), "'spring' is revolute"),
        (
            replace(SPEC, joints=(*SPEC.joints[:2], replace(SPEC.joints[2], continuous=False), SPEC.joints[3])),
            "'wheel' is not continuous instead of continuous",
        ),
    ],
)
def test_a_difference_is_described_in_words(other: StateSpec, words: str):
    (found,) = SPEC.differences(other)
    assert words in found


def test_context_and_rounding_of_dt_are_no_difference():
    assert SPEC.differences(replace(SPEC, dt=0.01 * (1 + 1e-9)).with_context(5)) == []
