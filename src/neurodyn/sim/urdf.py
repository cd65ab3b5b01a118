# SPDX-License-Identifier: Apache-2.0
"""Prepares a URDF for the importer: validated, locked joints fixed, meshes located or removed."""

import math
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from neurodyn.core.errors import InputError, choices, notice
from neurodyn.core.plain_data import require_regular
from neurodyn.robots.assets import find_file

_NUMBERS = {
    "mass": ("value",),
    "inertia": ("ixx", "iyy", "izz", "ixy", "ixz", "iyz"),
    "origin": ("xyz", "rpy"),
    "limit": ("lower", "upper", "effort", "velocity"),
    "dynamics": ("damping", "friction"),
    "box": ("size",),
    "sphere": ("radius",),
    "cylinder": ("radius", "length"),
    "capsule": ("radius", "length"),
    "mesh": ("scale",),
}
_MAY_BE_INFINITE = {"lower", "upper", "effort", "velocity"}
_LIMITED = ("revolute", "prismatic")
_SHOWN = 3


def require_sound(path: Path, root: ElementTree.Element) -> None:
    """Raise InputError for a URDF with duplicate names, swapped limits, or invalid numbers."""
    links, joints = root.findall("link"), root.findall("joint")
    if not links:
        raise InputError(f"{path}: has no link; expected a robot")
    for kind, elements in (("link", links), ("joint", joints)):
        twice = [str(name) for name, count in Counter(one.get("name") for one in elements).items() if count > 1]
        if twice:
            raise InputError(f"{path}: {kind} {twice[0]!r} is there more than once; valid: each name once")
    for element in [*links, *joints]:
        _require_numbers(path, element)
    for joint in joints:
        _require_limits(path, joint)
    for link in links:
        mass = link.find("inertial/mass")
        if mass is not None and float(mass.get("value", "0")) < 0:
            raise InputError(
                f"{path}: mass of link {link.get('name')!r} is {mass.get('value')}; valid: at least 0 [kg]"
            )


def require_tree(path: Path, root: ElementTree.Element) -> None:
    """Raise InputError unless the joints form a tree of all links; their links must exist in the file."""
    links, above = [str(link.get("name")) for link in root.findall("link")], {}
    for joint in root.findall("joint"):
        parent, child = (str(joint.find(end).get("link")) for end in ("parent", "child"))  # type: ignore[union-attr]
        if child in above:
            raise InputError(
                f"{path}: link {child!r} is the child of two joints, {above[child][0]!r} and {joint.get('name')!r}; "
                "valid: one joint above each link"
            )
        above[child] = (joint.get("name"), parent)
    roots = [link for link in links if link not in above]
    if len(roots) > 1:
        more = f" and {len(roots) - _SHOWN} more" if len(roots) > _SHOWN else ""
        raise InputError(
            f"{path}: has several roots, {choices(roots[:_SHOWN])}{more}; valid: one link that all others hang on"
        )
    for link in links:
        seen = {link}
        while link in above:
            link = above[link][1]
            if link in seen:
                raise InputError(f"{path}: the joints around link {link!r} form a loop; valid: a tree of links")
            seen.add(link)


def _require_numbers(path: Path, element: ElementTree.Element) -> None:
    for part in element.iter():
        for name in _NUMBERS.get(part.tag, ()):
            text = part.get(name)
            for word in () if text is None else text.split():
                try:
                    value = float(word)
                except ValueError:
                    value = math.nan
                if math.isnan(value) or (math.isinf(value) and name not in _MAY_BE_INFINITE):
                    raise InputError(
                        f"{path}: {name} of <{part.tag}> in {element.tag} {element.get('name')!r} is {text!r}; "
                        "valid: finite numbers"
                    )


def _require_limits(path: Path, joint: ElementTree.Element) -> None:
    limit = joint.find("limit")
    if limit is None or joint.get("type") not in _LIMITED:
        return
    lower, upper = float(limit.get("lower", "0")), float(limit.get("upper", "0"))
    if lower > upper:
        raise InputError(
            f"{path}: limits of joint {joint.get('name')!r} are swapped: lower {lower:g} is above upper {upper:g}"
        )


_READERS = {".dae": ("trimesh", "collada"), ".msh": ()}
_PACKAGES = {"trimesh": "trimesh", "collada": "pycollada"}


class MissingMeshError(Exception):
    """A mesh cannot be loaded; the message says why."""


def find_mesh(path: Path, name: str, folders: tuple[Path, ...] = ()) -> str:
    """Return the absolute path of a mesh; arguments: see `find_file`.

    Raises:
        MissingMeshError: There is no such file, or no installed package reads it.
    """
    place = find_file(path, name, folders)
    if place is None:
        raise MissingMeshError(f"mesh {name!r} does not exist")
    _require_reader(place)
    return str(place)


def leave_out(path: Path, reasons: list[str]) -> None:
    """Give notice of meshes that were left out of an asset, if any."""
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        notice(f"{path}: left out: {reasons[0]}{more}; `meshes: false` leaves all meshes out")


def _require_reader(path: Path) -> None:
    for module in _READERS.get(path.suffix.lower(), ("trimesh",)):
        if find_spec(module) is None:
            raise MissingMeshError(f"mesh {path.name!r} needs {_PACKAGES[module]}: pip install 'neurodyn[sim]'")


_SUPPORTED = ("continuous", "fixed", "prismatic", "revolute")


def prepare_urdf(
    path: Path, *, locked: tuple[str, ...] = (), meshes: bool = True, visuals: bool = True, mimics: bool = False
) -> str:
    """Read a URDF and return it as text for the importer, with `locked` joints fixed.

    Without `meshes`, primitives and given inertias remain; without `visuals`, what can be seen but not touched goes. A
    mesh that cannot be loaded is left out with a notice. With `mimics`, joints may mimic others.

    Raises:
        InputError: The file is not a URDF, has joints of an unsupported type, or lacks a locked joint.
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
            joint[:] = [child for child in joint if child.tag not in ("axis", "limit", "mimic", "dynamics")]
        _check_joint(path, joint, links, mimics)
    require_tree(path, root)
    for link in root.findall("link") if not visuals else ():
        for seen in link.findall("visual"):
            link.remove(seen)
    _prepare_meshes(path, root, meshes)
    _add_missing_masses(root)
    return ElementTree.tostring(root, encoding="unicode")


def _prepare_meshes(path: Path, root: ElementTree.Element, keep: bool) -> None:
    """Make mesh paths absolute, or remove the mesh shapes."""
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
    """Parse an XML file; refuse one that cannot be read, is not XML, or has another root than `tag`."""
    require_regular(path, what)
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError, ValueError, LookupError) as error:  # ValueError, LookupError: encodings
        raise InputError(f"{path}: not readable as {what} ({error})") from None
    if root.tag != tag:
        raise InputError(f"{path}: not a {what}: its root is <{root.tag}> instead of <{tag}>")
    return root


def _add_missing_masses(root: ElementTree.Element) -> None:
    """Give links without mass zero mass if a link that is fixed to them has a mass.

    Otherwise the importer would infer a mass from their shapes, which the other link's mass already includes.
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


def _check_joint(path: Path, joint: ElementTree.Element, links: set[str | None], mimics: bool) -> None:
    name, kind = joint.get("name"), joint.get("type")
    if kind not in _SUPPORTED:
        raise InputError(f"{path}: joint {name!r} has the unsupported type {kind!r}; valid: {choices(_SUPPORTED)}")
    if joint.find("mimic") is not None and not mimics:
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
