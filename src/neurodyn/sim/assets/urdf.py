# SPDX-License-Identifier: Apache-2.0
"""A URDF as the importer gets it: checked, locked joints fixed, meshes found or left out."""

from pathlib import Path
from xml.etree import ElementTree

from neurodyn.core.errors import InputError, choices
from neurodyn.core.plain_data import require_regular
from neurodyn.sim.assets.mesh_files import MissingMeshError, find_mesh, leave_out
from neurodyn.sim.assets.urdf_checks import require_sound, require_tree

_SUPPORTED = ("continuous", "fixed", "prismatic", "revolute")


def prepare_urdf(path: Path, *, locked: tuple[str, ...] = (), meshes: bool = True) -> str:
    """Read a URDF and return it as text for the importer.

    Args:
        path: The URDF.
        locked: Joints that are turned into fixed ones.
        meshes: Whether meshes stay; without them, primitives and given inertias remain. One that cannot be loaded is
            left out with a notice.

    Raises:
        InputError: The file is no URDF, has joints of an unsupported type, or lacks a locked joint.
    """
    root = parse_xml(path, "robot", "URDF")
    require_sound(path, root)
    names = [joint.get("name", "") for joint in root.findall("joint")]
    for name in locked:
        if name not in names:
            raise InputError(f"{path}: locked joint {name!r} does not exist; valid: {choices(names)}")
    links = {link.get("name") for link in root.findall("link")}
    for joint in root.findall("joint"):
        if joint.get("name") in locked:
            joint.set("type", "fixed")
            for child in [child for child in joint if child.tag in ("axis", "limit", "mimic", "dynamics")]:
                joint.remove(child)
        _check_joint(path, joint, links)
    require_tree(path, root)
    _prepare_meshes(path, root, meshes)
    _add_missing_masses(root)
    return ElementTree.tostring(root, encoding="unicode")


def _prepare_meshes(path: Path, root: ElementTree.Element, keep: bool) -> None:
    """Give meshes their absolute paths, or remove their shapes."""
    reasons = []
    for link in root.findall("link"):
        for shape in [*link.findall("collision"), *link.findall("visual")]:
            mesh = shape.find("geometry/mesh")
            if mesh is None:
                continue
            if not keep:
                link.remove(shape)
                continue
            try:
                mesh.set("filename", find_mesh(path, mesh.get("filename", "")))
            except MissingMeshError as missing:
                reasons.append(str(missing))
                link.remove(shape)
    leave_out(path, reasons)


def parse_xml(path: Path, tag: str, what: str) -> ElementTree.Element:
    """Parse an XML file whose root must have the given tag.

    Raises:
        InputError: The file cannot be read, is no XML, or has another root.
    """
    require_regular(path, what)
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError, ValueError, LookupError) as error:  # ValueError, LookupError: encodings
        raise InputError(f"{path}: not readable as {what} ({error})") from None
    if root.tag != tag:
        raise InputError(f"{path}: not a {what}: its root is <{root.tag}> instead of <{tag}>")
    return root


def _add_missing_masses(root: ElementTree.Element) -> None:
    """Give links without mass one of zero where a link that is fixed to them has a mass.

    Otherwise the importer would take the mass of their shapes, which the other link's mass includes already.
    """
    leader = {link.get("name", ""): link.get("name", "") for link in root.findall("link")}

    def find(name: str) -> str:
        return name if leader[name] == name else find(leader[name])

    for joint in root.findall("joint"):
        if joint.get("type") == "fixed":
            ends = [find(element.get("link", "")) for tag in ("parent", "child") for element in joint.findall(tag)]
            leader[ends[0]] = ends[-1]
    known = {find(link.get("name", "")) for link in root.findall("link") if link.find("inertial") is not None}
    for link in root.findall("link"):
        if link.find("inertial") is None and find(link.get("name", "")) in known:
            inertial = ElementTree.SubElement(link, "inertial")
            ElementTree.SubElement(inertial, "mass", value="0")
            ElementTree.SubElement(inertial, "inertia", dict.fromkeys(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), "0"))


def _check_joint(path: Path, joint: ElementTree.Element, links: set[str | None]) -> None:
    name, kind = joint.get("name"), joint.get("type")
    if kind not in _SUPPORTED:
        raise InputError(f"{path}: joint {name!r} has the unsupported type {kind!r}; valid: {choices(_SUPPORTED)}")
    if joint.find("mimic") is not None:
        raise InputError(f"{path}: joint {name!r} mimics another one, which is unsupported; list it under `locked`")
    axis = joint.find("axis")
    if kind != "fixed" and axis is not None:
        _check_axis(path, name, axis.get("xyz", "1 0 0"))
    for end in ("parent", "child"):
        element = joint.find(end)
        link = None if element is None else element.get("link")
        if link not in links:
            valid = choices(str(known) for known in links)
            raise InputError(f"{path}: {end} of joint {name!r} is the unknown link {link!r}; valid: {valid}")


def _check_axis(path: Path, name: str | None, text: str) -> None:
    try:
        axis = [float(word) for word in text.split()]
    except ValueError:
        axis = []
    if len(axis) != 3 or not 0 < sum(value * value for value in axis) < float("inf"):
        raise InputError(f"{path}: axis of joint {name!r} is {text!r}; valid: three numbers, not all 0")
