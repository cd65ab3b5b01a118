# SPDX-License-Identifier: Apache-2.0
"""An MJCF made of a mechanism alone: bodies, joints, inertias, and what touches a ground.

For robots whose asset is a URDF or USD. Meshes and colours are left behind.
"""

from collections.abc import Sequence

import numpy as np

from neurodyn.core.description.contact_shapes import RoundedBox
from neurodyn.core.description.mechanism import Link
from neurodyn.core.description.scene import Pose
from neurodyn.dynamics.simulators.identified import BODY, Identified, number
from neurodyn.dynamics.simulators.mjcf_parts import PASSIVE, contact_attributes, write_joint, write_options
from neurodyn.dynamics.simulators.xml_files import Element, note, vector
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.sim.assets.merge import compose, invert

_TYPES = {"revolute": "hinge", "prismatic": "slide", "ball": "ball"}


def mechanism_tree(identified: Identified) -> tuple[Element, set[str]]:
    """Return the tree of an MJCF, and names of the quantities that found a place."""
    robot = identified.require_robot("MJCF")
    root = Element("mujoco", {"model": robot.name})
    root.append(Element("compiler", {"angle": "radian", "autolimits": "true"}))
    placed = write_options(root, identified) | identified.rigid_frictions()
    world = Element("worldbody")
    root.append(world)
    bodies: list[Element] = []
    for index, link in enumerate(identified.mechanism.links):
        parent = world if link.joint.parent < 0 else bodies[link.joint.parent]
        bodies.append(_body(identified, parent, link, index))
        name = link.joint.name
        parts = (*BODY, "origin", "axis", *((*PASSIVE, "rest", "lower", "upper") if link.joint.scalar else ()))
        placed |= identified.names(*(f"{name}.{what}" for what in parts))
        placed |= {one for one in identified.free if one.startswith(f"{name}.") and one in identified.contact}
    placed |= {name for name in identified.free if name.startswith("contact.") and name in identified.contact}
    return root, placed


def _body(identified: Identified, parent: Element, link: Link, index: int) -> Element:
    joint = link.joint
    place, turn = _split(compose(np.array(joint.parent_frame), invert(np.array(joint.child_frame))))
    body = Element("body", {"name": f"{joint.name}_link", "pos": place, "quat": turn})
    parent.append(body)
    body.append(
        Element("inertial", {"pos": vector(link.com), "mass": number(link.mass), "fullinertia": vector(link.inertia)})
    )
    if joint.kind == "free":
        body.append(Element("freejoint", {"name": joint.name}))
    else:
        body.append(_joint(identified, link))
    names = [name for name in identified.free if name.startswith(f"{joint.name}.")]
    note(parent, body, identified.changes(names))
    for geom in _geoms(identified, index):
        body.append(geom)
    return body


def _joint(identified: Identified, link: Link) -> Element:
    joint = link.joint
    element = Element("joint", {"name": joint.name, "type": _TYPES[joint.kind], "pos": vector(joint.child_frame[:3])})
    if joint.scalar:
        axis = np.array(quaternion_matrix(np.asarray(joint.child_frame[3:]))) @ np.asarray(joint.axis)
        element.set("axis", vector(axis.tolist()))
        write_joint(element, identified, link, 1.0, every=True)
    return element


def _geoms(identified: Identified, index: int) -> list[Element]:
    """Return the shapes of a link that touch grounds; not each other, as in the model."""
    mechanism = identified.mechanism
    common = {"contype": "0", "conaffinity": "1", "group": "3"}
    if "contact.friction" in identified.contact:
        common |= contact_attributes(identified, "1 0.005 0.0001")
    if mechanism.shapes:
        return [_shape(shape, common) for shape in mechanism.shapes if shape.joint == index]
    points = [point for point in mechanism.points if point.joint == index]
    return [
        Element(
            "geom", {"type": "sphere", "pos": vector(point.point), "size": number(max(point.radius, 1e-3)), **common}
        )
        for point in points
    ]


def _shape(shape: RoundedBox, common: dict[str, str]) -> Element:
    place, turn = _split(shape.place)
    if not any(shape.half):
        size = {"type": "sphere", "size": number(shape.radius)}
    elif shape.radius:
        size = {"type": "capsule", "size": vector((shape.radius, shape.half[2]))}
    else:
        size = {"type": "box", "size": vector(shape.half)}
    return Element("geom", {"name": shape.name, "pos": place, "quat": turn, **size, **common})


def _split(pose: Sequence[float] | Pose | np.ndarray) -> tuple[str, str]:
    """Return a pose as MJCF has it: place, and quaternion with the scalar first."""
    x, y, z, qx, qy, qz, qw = (float(value) for value in pose)
    return vector((x, y, z)), vector((qw, qx, qy, qz))
