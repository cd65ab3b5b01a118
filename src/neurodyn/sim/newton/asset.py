# SPDX-License-Identifier: Apache-2.0
"""Prepares an MJCF for Newton's importer: without actuators and ground, with one joint a body.

Locked joints become fixed, missing meshes are removed.
"""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from neurodyn.core.errors import InputError, among
from neurodyn.robots.assets import resolve_asset
from neurodyn.robots.sections import choose
from neurodyn.sim.asset_files import MissingMeshError, find_mesh, leave_out, parse_xml

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
    root = parse_xml(path, "mujoco", "MJCF").root
    if meshes:
        root = _with_included_meshes(path, root)
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


def _with_included_meshes(path: Path, root: ElementTree.Element) -> ElementTree.Element:
    """Return an MJCF with its included files inlined if meshes of theirs are missing, so that these can be left out."""
    if next(root.iter("include"), None) is None:
        return root
    whole = deepcopy(root)
    try:
        _inline_includes(path, whole)
    except (InputError, OSError, ElementTree.ParseError):  # the importer reports the cause
        return root
    return whole if _missing_meshes(path, whole) else root


def _inline_includes(path: Path, root: ElementTree.Element) -> None:
    for parent in list(root.iter()):
        for number, child in reversed(list(enumerate(parent))):
            if child.tag == "include":
                included = ElementTree.parse(resolve_asset(path, None, child.get("file", ""))).getroot()
                _inline_includes(path, included)
                parent[number : number + 1] = list(included)


def _missing_meshes(path: Path, root: ElementTree.Element) -> list[tuple[ElementTree.Element, str]]:
    """Return meshes that cannot be loaded, with the reasons."""
    home = folder = path.resolve().parent
    for compiler in root.findall("compiler"):
        folder = home / compiler.get("meshdir", compiler.get("assetdir", "."))
    missing = []
    for mesh in [mesh for mesh in root.findall("asset/mesh") if "file" in mesh.attrib]:
        try:
            find_mesh(path, mesh.get("file", ""), (folder, home))
        except MissingMeshError as error:
            missing.append((mesh, str(error)))
    return missing


def _drop_missing_meshes(path: Path, root: ElementTree.Element) -> None:
    """Remove meshes that cannot be loaded, and the shapes made of them."""
    reasons, missing = [], set()
    for mesh, reason in _missing_meshes(path, root):
        reasons.append(reason)
        missing.add(mesh.get("name", Path(mesh.get("file", "")).stem))
        for assets in [assets for assets in root.findall("asset") if mesh in list(assets)]:
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
            density = choose(geom.get("name", ""), densities)
            if density is not None:
                geom.attrib.pop("mass", None)
                geom.set("density", repr(density))
