# SPDX-License-Identifier: Apache-2.0
"""Validates a URDF and prepares it for importers: locked joints become fixed, meshes are located or removed.

A locked joint is held as near to zero as its limits allow, and one that mimics another locked joint where that puts it.
"""

import math
from collections.abc import Collection
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from neurodyn.core.errors import InputError, among, choices
from neurodyn.sim.asset_files import MissingMeshError, XmlFile, find_mesh, leave_out, parse_xml

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


def require_sound(urdf: XmlFile) -> None:
    """Raise InputError for a URDF with duplicate names, swapped limits, or invalid numbers."""
    path, links, joints = urdf.path, urdf.root.findall("link"), urdf.root.findall("joint")
    if not links:
        raise InputError(f"{path}: has no link; expected a robot")
    for kind, elements in (("link", links), ("joint", joints)):
        known: set[str | None] = set()
        for element in elements:
            if (name := element.get("name")) in known:
                raise InputError(
                    f"{urdf.where(element)}: {kind} {name!r} is there more than once; valid: each name once"
                )
            known.add(name)
    for element in [*links, *joints]:
        _require_numbers(urdf, element)
    for joint in joints:
        _require_limits(urdf, joint)
    for link in links:
        mass, inertial = link.find("inertial/mass"), link.find("inertial")
        if mass is not None and float(mass.get("value", "0")) < 0:
            raise InputError(
                f"{urdf.where(mass)}: mass of link {link.get('name')!r} is {mass.get('value')}; valid: at least 0 [kg]"
            )
        for tag in ("mass", "inertia") if inertial is not None else ():
            if link.find(f"inertial/{tag}") is None:
                raise InputError(
                    f"{urdf.where(inertial)}: <inertial> of link {link.get('name')!r} has no <{tag}>; "
                    "valid: a mass and an inertia, or no <inertial> at all"
                )


def parse_urdf(path: Path) -> XmlFile:
    """Parse a URDF; a link `world` that joints name as their parent needs no element of its own."""
    urdf = parse_xml(path, "robot", "URDF")
    parents = {element.get("link") for element in urdf.root.iterfind("joint/parent")}
    if _WORLD in parents - {link.get("name") for link in urdf.root.findall("link")}:
        urdf.root.append(ElementTree.Element("link", name=_WORLD))
    return urdf


def inertia_places(path: Path) -> dict[str, str]:
    """Return file and line of each link's inertia in a URDF, or of what the link has of one; none of other files."""
    if path.suffix.lower() != ".urdf":
        return {}
    urdf, places = parse_urdf(path), {}
    for link in urdf.root.findall("link"):
        parts = (link.find("inertial/inertia"), link.find("inertial"), link)
        places[link.get("name", "")] = urdf.where(next(part for part in parts if part is not None))
    return places


def no_inertia(path: Path, name: str) -> InputError:
    """Return the error that a moving link of a URDF resists no motion: what its <inertial> lacks, and in which line."""
    urdf = parse_urdf(path)
    link = next((link for link in urdf.root.findall("link") if link.get("name") == name), None)
    mass = None if link is None else link.find("inertial/mass")
    if link is None or mass is None or not float(mass.get("value", "0")):
        return InputError(
            f"{urdf.where(link if mass is None else mass)}: link {name!r} moves but has no mass; give it an inertial "
            "or a shape"
        )
    return InputError(
        f"{urdf.where(link.find('inertial/inertia'))}: link {name!r} moves with a mass of {mass.get('value')} kg, but "
        "ixx, iyy and izz of its <inertia> are 0; valid: moments above 0 [kg m^2]"
    )


def require_tree(urdf: XmlFile) -> None:
    """Raise InputError unless the joints form a tree of all links; their links must exist in the file."""
    links = [str(link.get("name")) for link in urdf.root.findall("link")]
    above: dict[str, tuple[ElementTree.Element, str]] = {}
    for joint in urdf.root.findall("joint"):
        parent, child = (str(joint.find(end).get("link")) for end in ("parent", "child"))  # type: ignore[union-attr]
        if child in above:
            raise InputError(
                f"{urdf.where(joint.find('child'))}: link {child!r} is the child of two joints, "
                f"{above[child][0].get('name')!r} and {joint.get('name')!r}; valid: one joint above each link"
            )
        above[child] = (joint, parent)
    roots = [link for link in links if link not in above]
    if len(roots) > 1:
        more = f" and {len(roots) - _SHOWN} more" if len(roots) > _SHOWN else ""
        raise InputError(f"{urdf.path}: has several roots, {choices(roots[:_SHOWN])}{more}; valid: one root link")
    for link in links:
        seen = {link}
        while link in above:
            joint, link = above[link]
            if link in seen:
                raise InputError(
                    f"{urdf.where(joint)}: the joints around link {link!r} form a loop; valid: a tree of links"
                )
            seen.add(link)


def _require_numbers(urdf: XmlFile, element: ElementTree.Element) -> None:
    for part in element.iter():
        for name in _NUMBERS.get(part.tag, ()):
            text = part.get(name)
            for word in () if text is None else text.split() or [""]:
                try:
                    value = float(word)
                except ValueError:
                    value = math.nan
                if math.isnan(value) or (math.isinf(value) and name not in _MAY_BE_INFINITE):
                    cure = "; `xacro FILE > FILE.urdf` computes expressions" if "${" in str(text) else ""
                    raise InputError(
                        f"{urdf.where(part)}: {name} of <{part.tag}> in {element.tag} {element.get('name')!r} is "
                        f"{text!r}; valid: finite numbers{cure}"
                    )


def _require_limits(urdf: XmlFile, joint: ElementTree.Element) -> None:
    limit = joint.find("limit")
    if limit is None or joint.get("type") not in _LIMITED:
        return
    lower, upper = float(limit.get("lower", "0")), float(limit.get("upper", "0"))
    if lower > upper:
        raise InputError(
            f"{urdf.where(limit)}: limits of joint {joint.get('name')!r} are swapped: lower {lower:g} is above upper "
            f"{upper:g}"
        )


_WORLD = "world"
_SUPPORTED = ("continuous", "fixed", "prismatic", "revolute")


def prepare_urdf(
    path: Path, *, locked: tuple[str, ...] = (), meshes: bool = True, visuals: bool = True, mimics: bool = False
) -> str:
    """Read a URDF and return it as text for the importer, with `locked` joints fixed.

    Without `meshes`, primitives and given inertias remain; without `visuals`, purely visual shapes are removed. A mesh
    that cannot be loaded is left out with a notice. With `mimics`, joints may mimic others.

    Raises:
        InputError: The file is not a URDF, has joints of an unsupported type, or lacks a locked joint.
    """
    urdf = parse_urdf(path)
    require_sound(urdf)
    root = urdf.root
    names = [joint.get("name", "") for joint in root.findall("joint")]
    for name in locked:
        if name not in names:
            raise InputError(f"{path}: locked joint {name!r} does not exist{among(name, names)}")
    links = {link.get("name") for link in root.findall("link")}
    for joint in root.findall("joint"):
        _check_joint(urdf, joint, links, mimics or joint.get("name") in locked)
    fix_joints(root, locked)
    for limit in root.iterfind("joint[@type='continuous']/limit"):
        for end in ("lower", "upper"):  # of efforts and speeds alone, by the format's definition
            limit.attrib.pop(end, None)
    require_tree(urdf)
    for link in root.findall("link") if not visuals else ():
        for seen in link.findall("visual"):
            link.remove(seen)
    _prepare_meshes(path, root, meshes)
    _add_missing_masses(root)
    return ElementTree.tostring(root, encoding="unicode")


def held_positions(root: ElementTree.Element, locked: Collection[str]) -> dict[str, float]:
    """Return the positions at which joints of a URDF are held [rad or m], by name."""
    joints = {joint.get("name", ""): joint for joint in root.findall("joint")}
    held: dict[str, float] = {}

    def position(name: str, above: frozenset[str] = frozenset()) -> float:
        mimic, limit = joints[name].find("mimic"), joints[name].find("limit")
        leader = "" if mimic is None else mimic.get("joint", "")
        if mimic is not None and leader in joints and leader not in above:
            factor, offset = float(mimic.get("multiplier", "1")), float(mimic.get("offset", "0"))
            return offset + (factor * position(leader, above | {name}) if leader in locked else 0.0)
        if limit is None or joints[name].get("type") not in _LIMITED or not {"lower", "upper"} & limit.attrib.keys():
            return 0.0
        return min(max(0.0, float(limit.get("lower", "0"))), float(limit.get("upper", "0")))

    for name in [name for name in locked if name in joints]:  # others are refused where the URDF is read
        held[name] = position(name)
    return held


def fix_joints(root: ElementTree.Element, locked: Collection[str]) -> None:
    """Fix joints of a URDF in place, at their `held_positions`."""
    for name, value in held_positions(root, locked).items():
        joint = next(joint for joint in root.findall("joint") if joint.get("name") == name)
        if value:
            displace(joint, value)
        joint.set("type", "fixed")
        for child in [child for child in joint if child.tag in ("axis", "limit", "mimic", "dynamics")]:
            joint.remove(child)


def displace(joint: ElementTree.Element, value: float) -> None:
    """Move the origin of a joint to where a position of it [rad or m] puts its child."""
    from scipy.spatial.transform import Rotation  # rarely needed, and slow to import

    origin, axis = joint.find("origin"), joint.find("axis")
    if origin is None:
        origin = ElementTree.SubElement(joint, "origin")
    position, angles = (np.array(origin.get(key, "0 0 0").split(), dtype=float) for key in ("xyz", "rpy"))
    along = np.array([1.0, 0.0, 0.0] if axis is None else axis.get("xyz", "1 0 0").split(), dtype=float)
    along, frame = along / np.linalg.norm(along), Rotation.from_euler("xyz", angles)
    if joint.get("type") == "prismatic":
        position = position + frame.apply(value * along)
    elif joint.get("type") in ("revolute", "continuous"):
        angles = (frame * Rotation.from_rotvec(value * along)).as_euler("xyz")
    origin.set("xyz", " ".join(map(repr, position.tolist())))
    origin.set("rpy", " ".join(map(repr, angles.tolist())))


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


def _check_joint(urdf: XmlFile, joint: ElementTree.Element, links: set[str | None], mimics: bool) -> None:
    name, kind = joint.get("name"), joint.get("type")
    if kind is None:
        raise InputError(f"{urdf.where(joint)}: joint {name!r} has no type; valid: {', '.join(_SUPPORTED)}")
    if kind not in _SUPPORTED:
        raise InputError(
            f"{urdf.where(joint)}: joint {name!r} has the unsupported type {kind!r}{among(str(kind), _SUPPORTED)}"
            f"{'; without the joint, `init --floating` declares a free base' if kind == 'floating' else ''}"
        )
    if (mimic := joint.find("mimic")) is not None and not mimics:
        raise InputError(
            f"{urdf.where(mimic)}: joint {name!r} mimics another one, which is unsupported; list it under `locked`"
        )
    axis = joint.find("axis")
    if kind != "fixed" and axis is not None:
        _check_axis(urdf.where(axis), joint, axis.get("xyz", "1 0 0"))
    for end in ("parent", "child"):
        element = joint.find(end)
        link = None if element is None else element.get("link")
        if link not in links:
            place, known = urdf.where(joint if element is None else element), [str(one) for one in links]
            raise InputError(f"{place}: {end} of joint {name!r} is the unknown link {link!r}{among(str(link), known)}")


def _check_axis(where: str, joint: ElementTree.Element, text: str) -> None:
    try:
        axis = [float(word) for word in text.split()]
    except ValueError:
        axis = []
    if len(axis) != 3 or not 0 < sum(value * value for value in axis) < float("inf"):
        raise InputError(f"{where}: axis of joint {joint.get('name')!r} is {text!r}; valid: three numbers, not all 0")
