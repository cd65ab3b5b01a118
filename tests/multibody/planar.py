# SPDX-License-Identifier: Apache-2.0
"""Bodies in a plane: a tip, a block, and discs."""

import math

import torch

from neurodyn.core import BodyContact, BodyShape, ChainJoint, Drive, Link, Mechanism, Support
from neurodyn.dynamics import HybridDynamics
from neurodyn.multibody import EngineConfig
from tests.multibody import machines

F64 = torch.float64
HALF, RADIUS, MASS = 0.045, 0.005, 0.8
SQUARE = ((-HALF, -HALF), (HALF, -HALF), (HALF, HALF), (-HALF, HALF))
STILL = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
NUMBERS = {
    "force": {"friction": 0.3, "stiffness": 2e5, "damping": 2.0, "slip_speed": 0.02},
    "impulse": {"friction": 0.3, "restitution": 0.0},
}


def body(name, first, mass=MASS, inertia=1e-3, com=(0.0, 0.0, 0.0), child=STILL):
    """Return the links of a body that slides along x and y and turns; `first` is the number of links before it."""
    links = []
    for number, (suffix, kind, axis) in enumerate(
        (("_x", "prismatic", (1.0, 0.0, 0.0)), ("_y", "prismatic", (0.0, 1.0, 0.0)), ("", "revolute", (0.0, 0.0, 1.0)))
    ):
        joint = ChainJoint(
            name=name + suffix, kind=kind, parent=first + number - 1 if number else -1, axis=axis, parent_frame=STILL,
            child_frame=child if number == 2 else STILL,
        )  # fmt: skip
        own = (mass, com, (inertia,) * 3) if number == 2 else (1e-9, (0.0, 0.0, 0.0), (1e-12,) * 3)
        links.append(Link(joint=joint, mass=own[0], com=own[1], inertia=(*own[2], 0.0, 0.0, 0.0)))
    return tuple(links)


def spec(mechanism, controls=(), dt=0.01):
    return machines.spec(mechanism, controls, dt, "velocity" if controls else "torque")


def pushed(contact="force", *, com=(0.0, 0.0, 0.0), child=STILL, vertices=SQUARE, support=True):
    """Return a tip on a prescribed path beside a block on a table."""
    tip = body("tip", 0)[:2]
    block = body("block", 2, com=com, child=child)
    pair = BodyContact(
        name="push", first=BodyShape(link="tip_y", kind="sphere", radius=RADIUS),
        second=BodyShape(link="block", kind="polygon", vertices=vertices), quantities=NUMBERS[contact],
    )  # fmt: skip
    under = (Support(name="under", link="block", outline=vertices, friction=0.25),) if support else ()
    drives = {"tip_x": Drive(kind="velocity"), "tip_y": Drive(kind="velocity")}
    return Mechanism(links=(*tip, *block), body_contacts=(pair,), supports=under, drives=drives)


def two_bodies(contact, first, second, **quantities):
    """Return two free bodies in space with these shapes, by kind and sizes."""
    pair = BodyContact(
        name="pair", first=BodyShape(link="a", **first), second=BodyShape(link="b", **second),
        quantities={**NUMBERS[contact], **quantities},
    )  # fmt: skip
    links = (*body("a", 0, mass=0.5), *body("b", 3, mass=1.1, inertia=2e-3))
    return Mechanism(links=links, gravity=(0.0, 0.0, 0.0), body_contacts=(pair,))


def dynamics(mechanism, contact, parameters=(), blueprint=None, *, substeps=10, dt=0.01):
    controls = tuple(mechanism.drives)
    config = EngineConfig(substeps=substeps, contact=contact)
    if blueprint is not None:
        config = EngineConfig(substeps=substeps, contact=contact, blueprint=blueprint)
    return HybridDynamics(spec(mechanism, controls, dt), mechanism, config, tuple(parameters))


def turned(x, y, angle):
    """Turn places in the plane."""
    c, s = math.cos(angle), math.sin(angle)
    return c * x - s * y, s * x + c * y
