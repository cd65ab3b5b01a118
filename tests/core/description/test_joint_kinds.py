# SPDX-License-Identifier: Apache-2.0
"""What follows from the kinds of joints: numbers of coordinates, units, and places in a state."""

import pytest
from msgspec import UNSET

from neurodyn.core.description.contacts import ChainJoint
from neurodyn.core.description.scene import IDENTITY
from neurodyn.core.description.spec import COORDINATES, JointSpec, StateSpec

KINDS = ("free", "ball", "prismatic", "revolute")


def spec(*kinds: str, controls: tuple[str, ...] = (), **changes) -> StateSpec:
    joints = tuple(JointSpec(name=f"{kind}{i}", kind=kind) for i, kind in enumerate(kinds))  # type: ignore[arg-type]
    return StateSpec(robot="r", joints=joints, controls=controls, dt=0.01, **changes)


@pytest.mark.parametrize(
    ("kind", "nq", "nv"), [("revolute", 1, 1), ("prismatic", 1, 1), ("ball", 4, 3), ("free", 7, 6)]
)
def test_names_and_units_are_as_many_as_coordinates(kind: str, nq: int, nv: int):
    joint, known = JointSpec(name="j", kind=kind), COORDINATES[kind]  # type: ignore[arg-type, index]
    assert (joint.nq, joint.nv, joint.scalar) == (nq, nv, nv == 1)
    assert len(known.q) == len(known.q_units) == nq
    assert len(known.qd) == len(known.tangent) == len(known.tangent_units) == nv


def test_places_follow_each_other_and_name_the_quaternion():
    free, ball, slide, hinge = spec(*KINDS).places
    assert [place.q for place in (free, ball, slide, hinge)] == [
        slice(0, 7), slice(7, 11), slice(11, 12), slice(12, 13),
    ]  # fmt: skip
    assert [place.qd for place in (free, ball, slide, hinge)] == [slice(0, 6), slice(6, 9), slice(9, 10), slice(10, 11)]
    assert (free.quaternion, free.linear, free.angular) == (slice(3, 7), slice(0, 3), slice(3, 6))
    assert (ball.quaternion, ball.linear, ball.angular) == (slice(7, 11), slice(6, 6), slice(6, 9))
    q, qd = list(range(13)), list(range(11))
    assert q[hinge.quaternion] == qd[hinge.angular] == []


def test_a_base_floats_if_the_first_joint_is_free():
    q = list(range(8))
    floating, bolted = spec("free", "revolute"), spec("prismatic", "revolute")
    assert (floating.floating, bolted.floating) == (True, False)
    assert (q[floating.joint_q], q[floating.joint_qd]) == ([7], [6, 7])
    assert q[bolted.joint_q] == q[bolted.joint_qd] == q


def test_units_of_controls_are_those_of_what_they_drive():
    names = ("prismatic1", "revolute0")
    assert spec("revolute", "prismatic", controls=names).control_units == ("N", "N m")
    assert spec("revolute", "prismatic", controls=names, control_kind="target").control_units == ("m", "rad")
    assert spec("revolute", "prismatic").qd_units == ("rad/s", "m/s")


@pytest.mark.parametrize(
    ("kind", "pitch", "like"),
    [("free", UNSET, "free"), ("ball", UNSET, "ball"), ("prismatic", UNSET, "prismatic"),
     ("revolute", UNSET, "revolute"),
     ("screw", 0.1, "screw"), ("screw", 0.0, "revolute")],
)  # fmt: skip
def test_joints_of_one_degree_of_freedom_move_by_how_they_turn_and_slide(kind: str, pitch: float, like: str):
    """Kinematics and kernels ask this alone, so that a further kind is its coordinates and its `shares`."""
    axis = (0.0, 0.0, 1.0) if COORDINATES[kind].qd == ("",) else (0.0, 0.0, 0.0)  # type: ignore[index]
    joint = ChainJoint(
        name="j", kind=kind, parent=-1, parent_frame=IDENTITY, child_frame=IDENTITY, axis=axis, pitch=pitch,
    )  # fmt: skip
    assert joint.moves_like == like
