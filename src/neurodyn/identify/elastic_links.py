# SPDX-License-Identifier: Apache-2.0
"""Robots whose last links bend: a spring joint in each, which is neither declared nor measured."""

import math

import msgspec
import numpy as np
from msgspec import UNSET

from neurodyn.core.description.contacts import ChainJoint, ContactPoint
from neurodyn.core.description.mechanism import Inertia, Link, Mechanism
from neurodyn.geometry.rotation import quaternion_matrix

SPRING = "spring"
"""Suffix of a hidden joint's name, after the joint of the bending link."""
SPRINGS = "springs in the links of"
"""Prefix of the name of a structure with hidden joints."""
_RATE, _DAMPED = 60.0, 0.1
"""Prior natural frequency [rad/s] and damping ratio of a spring."""


def spring_of(joint: str) -> str:
    """Return the name of the spring joint in the link of a joint."""
    return f"{joint}.{SPRING}".replace(".", "_")


def bending(mechanism: Mechanism) -> tuple[str, ...]:
    """Return the joints whose links may bend: revolute, with contact points, and no child link.

    Links in tendons and equality constraints are excluded, too.
    """
    tied = {name for tendon in mechanism.tendons or () for name in tendon.links}
    tied |= {name for one in mechanism.equalities or () for name in (one.first, one.second)}
    parents = {link.joint.parent for link in mechanism.links}
    touching = {point.joint for point in mechanism.points}
    return tuple(
        link.joint.name
        for index, link in enumerate(mechanism.links)
        if index not in parents
        and index in touching
        and link.joint.kind == "revolute"
        and _length(link) > 1e-3
        and link.joint.name not in tied
    )


def with_springs(mechanism: Mechanism) -> Mechanism:
    """Return a mechanism whose last links (see `bending`) bend at their centre of mass, around their joint's axis.

    Each is split into halves of a rod; contact points beyond the centre move to the far half.
    """
    links, points = list(mechanism.links), list(mechanism.points)
    names = bending(mechanism)
    for name in names:
        index = mechanism.names.index(name)
        near, far, along = _halves(links[index], index)
        links[index] = near
        links.append(far)
        points = [_moved(one, index, len(links) - 1, links[index], far, along) for one in points]
    reference = (*mechanism.reference, *[0.0] * len(names)) if mechanism.reference else UNSET
    return msgspec.structs.replace(
        mechanism, links=tuple(links), points=tuple(points), hidden=len(names), reference=reference
    )


def _length(link: Link) -> float:
    return math.dist(link.com, link.joint.child_frame[:3])


def _halves(link: Link, index: int) -> tuple[Link, Link, np.ndarray]:
    """Return the halves of a link, and the direction from its joint to its centre in the body frame."""
    com, origin = np.array(link.com), np.array(link.joint.child_frame[:3])
    arm = com - origin
    quarter = 0.5 * arm
    inertia = _halved(link, quarter)
    near = msgspec.structs.replace(link, mass=0.5 * link.mass, com=tuple((com - quarter).tolist()), inertia=inertia)
    place = (*com.tolist(), 0.0, 0.0, 0.0, 1.0)
    axis = np.array(quaternion_matrix(link.joint.child_frame[3:])) @ np.array(link.joint.axis)
    joint = ChainJoint(
        name=spring_of(link.joint.name), kind="revolute", parent=index, parent_frame=place,
        child_frame=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0), axis=(float(axis[0]), float(axis[1]), float(axis[2])),
    )  # fmt: skip
    x, y, z = quarter.tolist()
    swung = 0.5 * link.mass * float(quarter @ quarter) + sum(inertia[:3]) / 3.0
    far = Link(
        joint=joint, mass=0.5 * link.mass, com=(x, y, z), inertia=inertia, stiffness=swung * _RATE**2,
        damping=2.0 * _DAMPED * _RATE * swung,
    )  # fmt: skip
    return near, far, arm / np.linalg.norm(arm)


def _halved(link: Link, quarter: np.ndarray) -> Inertia:
    """Return the inertia of each half about its own centre, so that both together have the link's."""
    xx, yy, zz, xy, xz, yz = link.inertia
    whole = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    steiner = link.mass * (quarter @ quarter * np.eye(3) - np.outer(quarter, quarter))
    values, vectors = np.linalg.eigh(0.5 * (whole - steiner))
    least = 0.05 * max(float(np.trace(whole)) / 6.0, 1e-9)
    half = vectors @ np.diag(np.clip(values, least, None)) @ vectors.T
    return tuple(float(half[i, j]) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)))  # type: ignore[return-value]


def _moved(one: ContactPoint, index: int, there: int, near: Link, far: Link, along: np.ndarray) -> ContactPoint:
    """Return a contact point on the half of the link that carries it."""
    if one.joint != index:
        return one
    centre = np.array(far.joint.parent_frame[:3])
    beyond = np.array(one.point) - centre
    if float(beyond @ along) <= 0.0:
        return one
    x, y, z = beyond.tolist()
    return msgspec.structs.replace(one, joint=there, point=(x, y, z))
