# SPDX-License-Identifier: Apache-2.0
"""A fingerprint tells two mechanisms apart, in words, and does not mind rounding."""

import math

import msgspec
import pytest

from neurodyn.core.config import from_dict, to_dict
from neurodyn.core.description.mechanism import BodyPrint, Fingerprint, JointPrint

replace = msgspec.structs.replace


def joint(name: str, **changes) -> JointPrint:
    return JointPrint(
        **{
            "name": name,
            "kind": "revolute",
            "axis": (0.0, 1.0, 0.0),
            "parent_pose": (0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0),
            "child_pose": (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0),
            "lower": (-1.0,),
            "upper": (1.0,),
            "armature": (0.01,),
            "damping": (0.0,),
            "friction": (0.0,),
            "stiffness": (0.0,),
            "limit_stiffness": (1e4,),
            "limit_damping": (10.0,),
            **changes,
        }
    )


def body(name: str, **changes) -> BodyPrint:
    inertia = (0.1, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.02)
    return BodyPrint(**{"name": name, "mass": 2.5, "com": (0.0, 0.0, 0.5), "inertia": inertia, **changes})


ARM = Fingerprint(joints=(joint("a"), joint("b")), bodies=(body("x"), body("y")), gravity=(0.0, 0.0, -9.81))


def with_joint(**changes) -> Fingerprint:
    return replace(ARM, joints=(ARM.joints[0], replace(ARM.joints[1], **changes)))


def with_body(**changes) -> Fingerprint:
    return replace(ARM, bodies=(replace(ARM.bodies[0], **changes), ARM.bodies[1]))


def test_the_same_articulation_has_no_differences():
    assert ARM.differences(from_dict(to_dict(ARM), Fingerprint)) == []


def test_rounding_is_no_difference():
    assert ARM.differences(with_body(mass=2.5 * (1 + 1e-6))) == []


def test_small_terms_beside_large_ones_are_rounding():
    noisy = (0.1, 1e-7, 0.0, 1e-7, 0.1, 0.0, 0.0, 0.0, 0.02)
    assert ARM.differences(with_body(inertia=noisy)) == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (with_body(mass=3.0), "mass of body 'x' is 3 instead of 2.5"),
        (with_body(com=(0.0, 0.0, 0.4)), "com of body 'x'"),
        (with_body(inertia=(0.2, 0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.02)), "inertia of body 'x'"),
        (with_joint(kind="prismatic"), "kind of joint 'b' is prismatic instead of revolute"),
        (with_joint(axis=(0.0, -1.0, 0.0)), "axis of joint 'b' is [0 -1 0] instead of [0 1 0]"),
        (with_joint(upper=(2.0,)), "upper of joint 'b' is [2] instead of [1]"),
        (with_joint(lower=(-math.inf,)), "lower of joint 'b'"),
        (with_joint(armature=(0.02,)), "armature of joint 'b'"),
        (with_joint(parent_pose=()), "parent pose of joint 'b'"),
        (replace(ARM, gravity=(0.0, 0.0, -3.7)), "gravity is [0 0 -3.7] instead of [0 0 -9.81]"),
    ],
)
def test_a_difference_is_named_with_both_values(other: Fingerprint, words: str):
    (found,) = ARM.differences(other)
    assert words in found


def test_another_joint_order_is_the_whole_difference():
    swapped = replace(ARM, joints=ARM.joints[::-1])
    assert ARM.differences(swapped) == ["joint order is ['b', 'a'] instead of ['a', 'b']"]


def test_other_bodies_are_named():
    assert ARM.differences(replace(ARM, bodies=ARM.bodies[:1])) == ["bodies are ['x'] instead of ['x', 'y']"]


def test_joints_without_end_are_the_same_without_end():
    endless = with_joint(lower=(-math.inf,), upper=(math.inf,))
    assert endless.differences(endless) == []
