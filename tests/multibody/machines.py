# SPDX-License-Identifier: Apache-2.0
"""Small mechanisms with the specs of their states, for tests of the hybrid engine."""

from neurodyn.core.description.contacts import ChainJoint, ContactPoint
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.scene import IDENTITY
from neurodyn.core.description.spec import JointSpec, StateSpec

DT = 0.01
TURNED = (0.1, -0.2, 0.05, 0.1825741858, 0.3651483717, 0.0, 0.9128709292)
"""A frame that is shifted, and turned by a unit quaternion (1, 2, 0, 5) / sqrt(30)."""


def joint(name, kind, parent=-1, origin=(0.0, 0.0, 0.0), axis=None, child=IDENTITY, turn=IDENTITY[3:]):
    axis = axis or ((0.0, 1.0, 0.0) if kind in ("revolute", "prismatic") else (0.0, 0.0, 0.0))
    return ChainJoint(name=name, kind=kind, parent=parent, parent_frame=(*origin, *turn), child_frame=child, axis=axis)


def spec(mechanism, controls=(), dt=DT, kind="torque"):
    joints = tuple(JointSpec(name=link.joint.name, kind=link.joint.kind) for link in mechanism.links)
    return StateSpec(robot="machine", joints=joints, controls=tuple(controls), dt=dt, control_kind=kind)


def pendulum(**quantities):
    """A double pendulum with everything that a joint can do by itself."""
    shoulder = {"damping": 0.05, "friction": 0.1, "armature": 0.01, "stiffness": 0.3, "rest": 0.2, **quantities}
    elbow = {"damping": 0.02, "friction": 0.05, "lower": -0.6, "upper": 0.7, "limit_stiffness": 60.0, **quantities}
    elbow |= {"limit_damping": 0.5}
    return Mechanism(
        links=(
            Link(
                joint=joint("shoulder", "revolute"), mass=1.2, com=(0.02, 0.01, -0.15),
                inertia=(0.012, 0.011, 0.003, 0.001, -0.0005, 0.0002), **shoulder,
            ),
            Link(
                joint=joint("elbow", "revolute", 0, (0.0, 0.05, -0.3), (0.0, 0.8, 0.6)), mass=0.7,
                com=(0.01, 0.0, -0.12), inertia=(0.006, 0.005, 0.002, 0.0, 0.0003, 0.0), **elbow,
            ),
        )
    )  # fmt: skip


def bare_pendulum():
    """A double pendulum in a plane without friction, springs and limits."""
    links = tuple(
        Link(joint=joint(name, "revolute", parent, origin), mass=1.0, com=(0.0, 0.0, -0.25),
             inertia=(0.02, 0.02, 0.001, 0.0, 0.0, 0.0))
        for name, parent, origin in (("shoulder", -1, (0.0, 0.0, 0.0)), ("elbow", 0, (0.0, 0.0, -0.5)))
    )  # fmt: skip
    return Mechanism(links=links)


def hopper():
    """A floating body with an off-centre mass and a leg that turns; four points, one of which is a ball."""
    body = Link(
        joint=joint("base", "free"), mass=2.0, com=(0.05, -0.03, 0.02),
        inertia=(0.02, 0.03, 0.025, 0.002, -0.001, 0.003),
    )  # fmt: skip
    leg = Link(
        joint=joint("knee", "revolute", 0, (0.1, 0.0, -0.1), child=TURNED), mass=0.5, com=(0.0, 0.02, -0.1),
        inertia=(0.002, 0.002, 0.0006, 0.0, 0.0, 0.0001), damping=0.1, lower=-1.0, upper=1.0, limit_stiffness=50.0,
    )  # fmt: skip
    points = (
        ContactPoint(name="foot", joint=1, point=(0.05, 0.0, -0.25), radius=0.03),
        ContactPoint(name="left", joint=0, point=(-0.1, 0.1, -0.12), radius=0.0),
        ContactPoint(name="right", joint=0, point=(-0.1, -0.1, -0.12), radius=0.0),
        ContactPoint(name="front", joint=0, point=(0.2, 0.0, -0.12), radius=0.0),
    )
    return Mechanism(links=(body, leg), points=points)


def sphere(mass=0.5, radius=0.1, com=(0.0, 0.0, 0.0)):
    """A ball that flies and touches with its whole surface."""
    inertia = 0.4 * mass * radius**2
    link = Link(joint=joint("ball", "free"), mass=mass, com=com, inertia=(inertia,) * 3 + (0.0,) * 3)
    return Mechanism(links=(link,), points=(ContactPoint(name="skin", joint=0, point=(0.0, 0.0, 0.0), radius=radius),))
