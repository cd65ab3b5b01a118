# SPDX-License-Identifier: Apache-2.0
"""MJCF: the robot's own asset with identified numbers, or one made of its mechanism where its asset is another file."""

import math
from pathlib import Path

from neurodyn.core.description.mechanism import Link
from neurodyn.core.errors import InputError
from neurodyn.dynamics.simulators.identified import BODY, Identified, heading, number
from neurodyn.dynamics.simulators.mjcf_parts import (
    PASSIVE,
    contact_attributes,
    write_drives,
    write_joint,
    write_options,
)
from neurodyn.dynamics.simulators.mjcf_tree import mechanism_tree
from neurodyn.dynamics.simulators.xml_files import Element, Files, comments_before, note, read_xml, vector, write_xml
from neurodyn.robots.asset import asset_path
from neurodyn.robots.asset_files import relocate_mjcf

_REFERENCES = ("joint", "joint1", "joint2", "jointinparent")
_INERTIA_SETTINGS = ("inertiafromgeom", "settotalmass", "balanceinertia", "boundmass", "boundinertia")


def write_mjcf(identified: Identified, folder: Path) -> set[str]:
    """Write ROBOT.xml and the files that it names.

    Args:
        identified: The robot.
        folder: An empty folder.

    Returns:
        Names of the quantities that found a place.

    Raises:
        InputError: There is an actuator network, or the asset cannot be read or is not the one of the model.
    """
    identified.refuse_network("MJCF")
    root, placed, before = edited_mjcf(identified, folder)
    placed |= write_drives(root, identified)
    robot = identified.require_robot("MJCF")
    write_xml(folder / f"{robot.name}.xml", root, heading(identified, f"MJCF of robot {robot.name}"), before)
    return placed


def edited_mjcf(identified: Identified, folder: Path) -> tuple[Element, set[str], list[str]]:
    """Return the tree of an MJCF, names of the quantities that found a place, and the comments before its root."""
    robot = identified.require_robot("MJCF")
    path = asset_path(robot)
    if path.suffix.lower() != ".xml":
        return *mechanism_tree(identified), []
    root = _flat(path, path, Files(folder, "assets"))
    _lock(root, robot.locked)
    asset = _Asset(root, path)
    placed = _write_bodies(asset, identified)
    for link in identified.scalar_links:
        placed |= _write_joint(asset, identified, link)
    placed |= _write_places(asset, identified) | _write_contact(asset, identified) | write_options(root, identified)
    return root, placed | identified.rigid_frictions(), comments_before(path)


def body_names(identified: Identified) -> dict[str, str]:
    """Return the names of the MJCF's bodies by the joint that moves them."""
    path = asset_path(identified.require_robot("MJCF"))
    asset = _Asset(_flat(path, path, None), path)
    bodies = {link.joint.name: asset.body(link) for link in identified.mechanism.links}
    return {name: body.get("name", "") for name, body in bodies.items() if body is not None}


class _Asset:
    """An MJCF: which body carries which joint.

    Attributes:
        root: The tree.
        joints: The elements of joints by the name of their link.
        bodies: The bodies that move, by the name of the link that they are the body of.
        parents: Parent of each element.
        degrees: Factor from radians to the unit of angles.
    """

    def __init__(self, root: Element, path: Path) -> None:
        self.root, self._path = root, path
        self.parents = {child: parent for parent in root.iter() for child in parent}
        self.joints: dict[str, Element] = {}
        self.bodies: dict[str, Element] = {}
        self.free: tuple[Element, Element] | None = None
        for body in root.iter("body"):
            joints = body.findall("joint")
            if body.find("freejoint") is not None or any(joint.get("type") == "free" for joint in joints):
                self.free = self.free or (body, body)
                continue
            for index, joint in enumerate(joints):
                several = f"{body.get('name')}_joint" if len(joints) == 1 else f"{body.get('name')}_joint_{index}"
                self.joints[joint.get("name", several)] = joint
            if joints:
                self.bodies[list(self.joints)[-1]] = body
        units = [compiler.get("angle") for compiler in root.iter("compiler") if compiler.get("angle")]
        self.degrees = 1.0 if units and units[-1] == "radian" else 180.0 / math.pi

    def joint(self, link: Link) -> Element:
        """Return the joint of a link.

        Raises:
            InputError: It is not there.
        """
        if link.joint.name not in self.joints:
            raise InputError(
                f"{self._path}: has no joint {link.joint.name!r}; valid: the asset that the model was made of"
            )
        return self.joints[link.joint.name]

    def body(self, link: Link) -> Element | None:
        """Return the body of a link; None where it only lies between two joints of one body."""
        if link.joint.kind == "free":
            return None if self.free is None else self.free[0]
        return self.bodies.get(link.joint.name)

    def welded(self, body: Element) -> list[Element]:
        """Return the bodies that are fixed to one."""
        found = []
        for child in body.findall("body"):
            if child.find("joint") is None and child.find("freejoint") is None:
                found += [child, *self.welded(child)]
        return found


def _flat(main: Path, path: Path, files: Files | None) -> Element:
    """Return an MJCF with what it includes in place, and its files copied, if there is where to."""
    root = read_xml(path)

    def place(source: Path) -> str:
        return str(source) if files is None or source.suffix.lower() == ".xml" else files.copy(source)

    relocate_mjcf(main, path, root, place, meshes=True)
    for parent in list(root.iter()):
        for element in [element for element in parent if element.tag == "include"]:
            index = list(parent).index(element)
            parent.remove(element)
            for offset, child in enumerate(_flat(main, Path(element.get("file", "")), files)):
                parent.insert(index + offset, child)
    return root


def _lock(root: Element, locked: tuple[str, ...]) -> None:
    """Remove locked joints, and what refers to them."""
    if not locked:
        return
    for parent in list(root.iter()):
        for element in list(parent):
            own = element.tag == "joint" and element.get("name") in locked and parent.tag == "body"
            if own or element.tag == "keyframe" or any(element.get(key) in locked for key in _REFERENCES):
                parent.remove(element)


def _write_bodies(asset: _Asset, identified: Identified) -> set[str]:
    """Write masses and inertias of all bodies where the declaration changes them, else of those that are free."""
    settings = {key for compiler in asset.root.iter("compiler") for key in _INERTIA_SETTINGS if key in compiler.attrib}
    every = identified.all_bodies or bool(settings and any(map(identified.body_is_free, identified.mechanism.names)))
    placed: set[str] = set()
    for link in identified.mechanism.links:
        body, name = asset.body(link), link.joint.name
        if body is None or not (every or identified.body_is_free(name)):
            continue
        names = identified.names(*(f"{name}.{what}" for what in BODY))
        element = _inertial(body, vector(link.com), number(link.mass), fullinertia=vector(link.inertia))
        note(body, element, identified.changes(sorted(names)))
        for child in asset.welded(body):
            _inertial(child, "0 0 0", "0", diaginertia="0 0 0")
        placed |= names
    if every:
        for compiler in asset.root.iter("compiler"):
            for key in _INERTIA_SETTINGS:
                compiler.attrib.pop(key, None)
    return placed


def _inertial(body: Element, com: str, mass: str, **inertia: str) -> Element:
    for old in body.findall("inertial"):
        body.remove(old)
    element = Element("inertial", {"pos": com, "mass": mass, **inertia})
    body.insert(0, element)
    return element


def _write_joint(asset: _Asset, identified: Identified, link: Link) -> set[str]:
    name, joint = link.joint.name, asset.joint(link)
    write_joint(joint, identified, link, asset.degrees)
    names = identified.names(*(f"{name}.{what}" for what in (*PASSIVE, "rest", "lower", "upper")))
    names |= {one for one in identified.free if one.startswith(f"{name}.") and one in identified.contact}
    note(asset.parents[joint], joint, identified.changes(sorted(names)))
    return names


def _write_places(asset: _Asset, identified: Identified) -> set[str]:
    """Move bodies whose joint is elsewhere than declared, and turn axes."""
    placed: set[str] = set()
    for link in identified.mechanism.links:
        name, body = link.joint.name, asset.body(link)
        origin, axis = identified.names(f"{name}.origin"), identified.names(f"{name}.axis")
        if origin and body is not None and asset.parents[body] is _leader(asset, identified, link):
            shift = [identified.free.get(f"{name}.origin.{x}", 0.0) - identified.nominal.get(f"{name}.origin.{x}", 0.0)
                     for x in "xyz"]  # fmt: skip
            place = [float(x) for x in body.get("pos", "0 0 0").split()]
            body.set("pos", vector(a + b for a, b in zip(place, shift, strict=True)))
            note(asset.parents[body], body, identified.changes(sorted(origin)))
            placed |= origin
        if axis:
            asset.joint(link).set("axis", vector(link.joint.axis))
            placed |= axis
    return placed


def _leader(asset: _Asset, identified: Identified, link: Link) -> Element | None:
    """Return the element in whose frame the place of a link's joint is given."""
    if link.joint.parent < 0:
        return asset.root.find("worldbody")
    return asset.body(identified.mechanism.links[link.joint.parent])


def _write_contact(asset: _Asset, identified: Identified) -> set[str]:
    """Write friction and solver parameters of the robot's geoms, which override those of a ground."""
    names = {name for name in identified.free if name.startswith("contact.") and name in identified.contact}
    robot = identified.require_robot("MJCF")
    if "contact.friction" not in identified.contact or not (names or robot.material is not None):
        return set()
    for body in asset.root.iter("body"):
        for geom in body.findall("geom"):
            for key, value in contact_attributes(identified, geom.get("friction", "1 0.005 0.0001")).items():
                geom.set(key, value)
    return names
