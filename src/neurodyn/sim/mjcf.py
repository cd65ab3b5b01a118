# SPDX-License-Identifier: Apache-2.0
"""An MJCF as the importer gets it: locked joints removed, actuators and the ground left out."""

from pathlib import Path
from xml.etree import ElementTree

from neurodyn.core.errors import InputError, choices
from neurodyn.robots.sections import chosen
from neurodyn.sim.urdf import parse_xml


def prepare_mjcf(path: Path, *, locked: tuple[str, ...] = (), densities: dict[str, float] | None = None) -> str:
    """Read an MJCF and return it as text for the importer.

    Actuators are left out: the declaration says which joints are driven, and by torques alone. So are static planes and
    heightfields: the ground is a scene of the declaration.

    Args:
        path: The MJCF.
        locked: Joints that are removed, which welds their bodies to the parents.
        densities: Densities of shapes by pattern of their names [kg/m^3], in place of masses and densities of the file.

    Raises:
        InputError: The file is no MJCF, or lacks a locked joint.
    """
    root = parse_xml(path, "mujoco", "MJCF")
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
        raise InputError(f"{path}: locked joint {min(remaining)!r} does not exist; valid: {choices(names)}")
    for body in root.iter("body"):
        for geom in body.findall("geom"):
            density = chosen(geom.get("name", ""), densities or {})
            if density is not None:
                geom.attrib.pop("mass", None)
                geom.set("density", repr(density))
    return ElementTree.tostring(root, encoding="unicode")


def resolve_asset(path: Path, base: str | None, file: str) -> str:
    """Return the absolute path of a file that an MJCF names, relative to itself or to the file that includes it."""
    for folder in (Path(base) if base else path.parent, path.resolve().parent):
        if (folder / file).is_file():
            return str((folder / file).resolve())
    raise InputError(f"{path}: file {file!r} does not exist; paths are relative to the MJCF")
