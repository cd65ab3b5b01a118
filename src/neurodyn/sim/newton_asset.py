# SPDX-License-Identifier: Apache-2.0
"""Prepares URDF and MJCF for Newton's importers.

A URDF is validated; of an MJCF, actuators and ground are removed, and bodies keep one joint each. Locked joints become
fixed, meshes are located or removed.
"""

import math
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from neurodyn.core.errors import InputError, among, choices, notice
from neurodyn.core.plain_data import require_regular
from neurodyn.robots.assets import find_file
from neurodyn.robots.sections import chosen

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
            for word in () if text is None else text.split() or [""]:
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
    file = find_file(path, name, folders)
    if file is None:
        raise MissingMeshError(f"mesh {name!r} does not exist")
    for module in _READERS.get(file.suffix.lower(), ("trimesh",)):
        if find_spec(module) is None:
            raise MissingMeshError(f"mesh {file.name!r} needs {_PACKAGES[module]}: pip install 'neurodyn[sim]'")
    return str(file)


def leave_out(path: Path, reasons: list[str]) -> None:
    """Give notice of meshes that were left out of an asset, if any."""
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        notice(f"{path}: left out: {reasons[0]}{more}; `meshes: false` leaves all meshes out")


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
    root = parse_xml(path, "robot", "URDF")
    require_sound(path, root)
    names = [joint.get("name", "") for joint in root.findall("joint")]
    for name in locked:
        if name not in names:
            raise InputError(f"{path}: locked joint {name!r} does not exist{among(name, names)}")
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
    """Parse an XML file; refuse one that cannot be read, is not XML, or has a root other than `tag`."""
    require_regular(path, what)
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError, ValueError, LookupError) as error:  # ValueError, LookupError: encodings
        raise InputError(f"{path}: not readable as {what} ({error})") from None
    if root.tag != tag:
        raise InputError(f"{path}: not a {what}: its root is <{root.tag}>; valid: <{tag}>")
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
        raise InputError(f"{path}: joint {name!r} has the unsupported type {kind!r}{among(str(kind), _SUPPORTED)}")
    if joint.find("mimic") is not None and not mimics:
        raise InputError(f"{path}: joint {name!r} mimics another one, which is unsupported; list it under `locked`")
    axis = joint.find("axis")
    if kind != "fixed" and axis is not None:
        _check_axis(path, name, axis.get("xyz", "1 0 0"))
    for end in ("parent", "child"):
        element = joint.find(end)
        link = None if element is None else element.get("link")
        if link not in links:
            known = [str(one) for one in links]
            raise InputError(f"{path}: {end} of joint {name!r} is the unknown link {link!r}{among(str(link), known)}")


def _check_axis(path: Path, name: str | None, text: str) -> None:
    try:
        axis = [float(word) for word in text.split()]
    except ValueError:
        axis = []
    if len(axis) != 3 or not 0 < sum(value * value for value in axis) < float("inf"):
        raise InputError(f"{path}: axis of joint {name!r} is {text!r}; valid: three numbers, not all 0")


_UNREAD = ("attach", "composite", "flexcomp", "flex", "replicate")
_PLACEMENT = ("pos", "quat", "axisangle", "xyaxes", "zaxis", "euler", "childclass")


@dataclass(frozen=True)
class PreparedMjcf:
    """An MJCF for the importer, and the settings that the importer does not apply."""

    text: str
    massless: dict[str, str]  # owner of each intermediate body of a multi-joint body, which needs a negligible mass
    total_mass: float | None = None  # mass to which the robot is scaled [kg] (`settotalmass`)


def prepare_mjcf(
    path: Path, *, locked: tuple[str, ...] = (), meshes: bool = True, densities: dict[str, float] | None = None
) -> PreparedMjcf:
    """Read an MJCF and return it as text for the importer.

    Actuators are removed: the declaration says which joints are driven, by torques. Static planes and heightfields are
    removed: the ground is a scene of the declaration. `locked` joints are removed, which welds their bodies to the
    parents. A mesh that cannot be loaded is left out with a notice. `densities` of shapes [kg/m^3], by pattern of their
    names, override masses and densities of the file.

    Raises:
        InputError: The file is not an MJCF, lacks a locked joint, or has unsupported elements.
    """
    root = parse_xml(path, "mujoco", "MJCF")
    _refuse_unread(path, root)
    for actuators in root.findall("actuator"):
        root.remove(actuators)
    for ground in root.findall("worldbody"):
        for geom in ground.findall("geom"):
            if geom.get("type") in {"plane", "hfield"}:
                ground.remove(geom)
    remaining = set(locked)
    names = []
    for body in root.iter("body"):
        for joint in body.findall("joint"):
            name = joint.get("name", "")
            names.append(name)
            if name in locked:
                body.remove(joint)
                remaining.discard(name)
    if remaining:
        raise InputError(f"{path}: locked joint {min(remaining)!r} does not exist{among(min(remaining), names)}")
    _set_densities(root, densities or {})
    massless = split_joints(root)
    if meshes:
        _drop_missing_meshes(path, root)
    return PreparedMjcf(ElementTree.tostring(root, encoding="unicode"), massless, _total_mass(path, root))


def _refuse_unread(path: Path, root: ElementTree.Element) -> None:
    """Raise InputError for elements that the importer would silently ignore."""
    for tag in _UNREAD:
        if next(root.iter(tag), None) is not None:
            raise InputError(
                f"{path}: <{tag}> is not read; save the model with its bodies written out (mj_saveLastXML)"
            )
    for compiler in root.findall("compiler"):
        if compiler.get("coordinate", "local") != "local":
            raise InputError(f"{path}: coordinate={compiler.get('coordinate')!r} is not read; valid: local")


def split_joints(root: ElementTree.Element) -> dict[str, str]:
    """Replace each body that has several joints by a chain of nested bodies with one joint each, in place.

    MuJoCo applies the joints of such a body in sequence, each with its axis and anchor in the frame moved by the
    previous joints. A chain of coincident bodies does the same. The last body keeps name, shapes and children. Return
    the body that each added one belongs to.
    """
    added: dict[str, str] = {}
    parents = {child: parent for parent in root.iter() for child in parent}
    for body in [body for body in root.iter("body") if len(body.findall("joint")) > 1]:
        joints = body.findall("joint")
        name = body.get("name") or f"body_of_{joints[0].get('name', len(added))}"
        body.set("name", name)
        for number, joint in enumerate(joints):
            joint.set("name", joint.get("name", f"{name}_joint_{number}"))  # as the importer names them
            body.remove(joint)
        outer = [ElementTree.Element("body", name=f"{name}_at_{joint.get('name')}") for joint in joints[:-1]]
        for key in _PLACEMENT:  # only the first body of the chain has a pose and a default class
            if key in body.attrib:
                outer[0].set(key, body.attrib.pop(key))
        chain = [*outer, body]
        for link, joint, inner in zip(outer, joints, chain[1:], strict=False):
            # Without an inertial, the importer would infer one from shapes.
            ElementTree.SubElement(link, "inertial", pos="0 0 0", mass="0", diaginertia="0 0 0")
            link.append(joint)
            added[link.get("name", "")] = name
            if inner is not body:
                link.append(inner)
        body.insert(0, joints[-1])
        parent = parents[body]
        parent[list(parent).index(body)] = outer[0]
        outer[-1].append(body)
    return added


def _drop_missing_meshes(path: Path, root: ElementTree.Element) -> None:
    """Remove meshes that cannot be loaded, and the shapes made of them."""
    home = folder = path.resolve().parent
    for compiler in root.findall("compiler"):
        folder = home / compiler.get("meshdir", compiler.get("assetdir", "."))
    reasons, missing = [], set()
    for assets in root.findall("asset"):
        for mesh in [mesh for mesh in assets.findall("mesh") if "file" in mesh.attrib]:
            file = mesh.get("file", "")
            try:
                find_mesh(path, file, (folder, home))
            except MissingMeshError as error:
                reasons.append(str(error))
                missing.add(mesh.get("name", Path(file).stem))
                assets.remove(mesh)
    for parent in root.iter():
        for geom in [geom for geom in parent.findall("geom") if geom.get("mesh") in missing]:
            parent.remove(geom)
    leave_out(path, reasons)


def _total_mass(path: Path, root: ElementTree.Element) -> float | None:
    """Return `settotalmass` of the compiler section [kg]."""
    for compiler in reversed(root.findall("compiler")):
        if "settotalmass" in compiler.attrib:
            text = compiler.get("settotalmass", "")
            try:
                value = float(text)
            except ValueError:
                raise InputError(f"{path}: settotalmass is {text!r}; valid: a mass in kg") from None
            return value if value > 0 else None
    return None


def _set_densities(root: ElementTree.Element, densities: dict[str, float]) -> None:
    """Override the densities of shapes by pattern of their names."""
    for body in root.iter("body"):
        for geom in body.findall("geom"):
            density = chosen(geom.get("name", ""), densities)
            if density is not None:
                geom.attrib.pop("mass", None)
                geom.set("density", repr(density))
