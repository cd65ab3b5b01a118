# SPDX-License-Identifier: Apache-2.0
"""URDF: the robot's asset with identified values."""

from pathlib import Path

from neurodyn.core.description.mechanism import Link
from neurodyn.core.errors import InputError
from neurodyn.interop.identified import BODY, IdentifiedRobot, drive_names, heading, number
from neurodyn.interop.texts import Element, Files, comments_before, entry, joint_of, note, read_xml, vector, write_xml
from neurodyn.robots.assets import asset_path, relocate_urdf
from neurodyn.sim.urdf import displace, fix_joints

_ENTRIES = ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
_NEGLIGIBLE = 1e-9
"""Mass [kg] for links whose mass is part of another link; simulators replace a mass of zero."""

_SPEED = 100.0
"""Speed limit, required by URDF, for assets without one [rad/s or m/s]."""


def write_urdf(identified: IdentifiedRobot, folder: Path) -> set[str]:
    """Write ROBOT.urdf and its meshes; see `interop.formats.SIMULATOR_FORMATS`."""
    identified.refuse_network("URDF")
    return write_urdf_asset(identified, folder)


def write_urdf_asset(identified: IdentifiedRobot, folder: Path) -> set[str]:
    """Write ROBOT.urdf, ignoring any actuator network; return names of the quantities it represents."""
    robot = identified.require_robot("URDF")
    path = asset_path(robot)
    if path.suffix.lower() != ".urdf":
        raise InputError(
            f"{identified.run}: the asset of robot {robot.name!r} is {path.name}; valid: mjcf, or a robot with a URDF"
        )
    root = read_xml(path)
    relocate_urdf(path, root, Files(folder, "meshes").copy)
    asset = _UrdfAsset(root, robot.locked, path)
    placed: set[str] = set()
    for link in identified.mechanism.links:
        placed |= _write_body(asset, identified, link)
        if link.joint.scalar:
            placed |= _write_joint(asset, identified, link) | _write_place(asset, identified, link)
            _write_zero(asset, identified, link)
    _shift_followers(root, identified)
    write_xml(
        folder / f"{robot.name}.urdf", root, heading(identified, f"URDF of robot {robot.name}"), comments_before(path)
    )
    return placed | identified.rigid_frictions() | identified.bias_names


def remarks(identified: IdentifiedRobot) -> list[str]:
    """Return what the file lacks by its nature, one line each."""
    lines = ["a URDF holds no drives and no armatures: those of the declaration are meant (and replayed)"]
    return [*lines, *(["joint positions are the encoders' readings (origins are turned)"] if identified.biased else [])]


def link_names(identified: IdentifiedRobot) -> dict[str, str]:
    """Return the names of the URDF's links by the joint that moves them."""
    robot = identified.require_robot("URDF")
    path = asset_path(robot)
    asset = _UrdfAsset(read_xml(path), robot.locked, path)
    return {link.joint.name: asset.link(link).get("name", "") for link in identified.mechanism.links}


class _UrdfAsset:
    """The joints and links of a URDF by name, with locked joints fixed."""

    def __init__(self, root: Element, locked: tuple[str, ...], path: Path) -> None:
        self.root, self._path = root, path
        self.joints = {joint.get("name", ""): joint for joint in root.findall("joint")}
        self.links = {link.get("name", ""): link for link in root.findall("link")}
        fix_joints(root, locked)

    def joint(self, link: Link) -> Element:
        """Return the joint of a link, or raise an InputError if the asset has none."""
        return joint_of(self.joints, link.joint.name, self._path)

    def link(self, link: Link) -> Element:
        """Return the link that a joint moves, or the root for a free joint."""
        if link.joint.kind == "free":
            return self.base
        return self.links[_end(self.joint(link), "child")]

    @property
    def base(self) -> Element:
        """The link that no joint moves."""
        moved = {_end(joint, "child") for joint in self.joints.values()}
        return next(link for name, link in self.links.items() if name not in moved)

    def links_fixed_to(self, link: Element) -> list[Element]:
        name, links = link.get("name"), []
        for joint in self.joints.values():
            if joint.get("type") == "fixed" and _end(joint, "parent") == name:
                child = self.links[_end(joint, "child")]
                links += [child, *self.links_fixed_to(child)]
        return links


def _end(joint: Element, tag: str) -> str:
    element = joint.find(tag)
    return "" if element is None else element.get("link", "")


def _write_body(asset: _UrdfAsset, identified: IdentifiedRobot, link: Link) -> set[str]:
    """Write mass and inertia if they are free or differ from the asset's."""
    name, body = link.joint.name, asset.link(link)
    fixed = asset.links_fixed_to(body)
    complete = all(one.find("inertial") is not None for one in (body, *fixed))
    if complete and not identified.changes_bodies and not identified.body_is_free(name):
        return set()
    element = _inertial(body, vector(link.com), link.mass, link.inertia)
    for child in fixed:
        _inertial(child, "0 0 0", _NEGLIGIBLE, (*(3 * (_NEGLIGIBLE * 1e-3,)), 0.0, 0.0, 0.0))
    names = identified.free_names(*(f"{name}.{what}" for what in BODY))
    note(body, element, identified.changes(sorted(names)))
    return names


def _inertial(link: Element, com: str, mass: float, inertia: tuple[float, ...]) -> Element:
    for old in link.findall("inertial"):
        link.remove(old)
    element = Element("inertial")
    element.append(Element("origin", {"xyz": com, "rpy": "0 0 0"}))
    element.append(Element("mass", {"value": number(mass)}))
    element.append(Element("inertia", {key: number(value) for key, value in zip(_ENTRIES, inertia, strict=True)}))
    link.insert(0, element)
    return element


def _write_joint(asset: _UrdfAsset, identified: IdentifiedRobot, link: Link) -> set[str]:
    name, joint = link.joint.name, asset.joint(link)
    declared = next(one for one in identified.require_robot("URDF").joints if one.name == name)
    for what, value in (("damping", identified.damping(link)), ("friction", identified.friction(link))):
        if getattr(declared, what) is not None or identified.is_free(f"{name}.{what}") or value != getattr(link, what):
            entry(joint, "dynamics").set(what, number(value))
    drive = identified.drives.get(name)
    effort = identified.effort_limits.get(name) if drive is None or drive.effort_limit is None else drive.effort_limit
    if link.lower is not None and link.upper is not None:
        limit = entry(joint, "limit")
        bias = identified.bias(name)
        limit.attrib.update(lower=number(link.lower + bias), upper=number(link.upper + bias))
    elif joint.get("type") == "revolute":
        joint.set("type", "continuous")
        for limit in joint.findall("limit"):
            limit.attrib.pop("lower", None)
            limit.attrib.pop("upper", None)
    limit = joint.find("limit")
    if limit is not None or effort is not None:
        limit = entry(joint, "limit")
        limit.set("effort", number(effort) if effort is not None else limit.get("effort", "0"))
        limit.set("velocity", limit.get("velocity", number(_SPEED)))
    names = identified.free_names(*(f"{name}.{what}" for what in ("damping", "friction", "lower", "upper")))
    note(asset.root, joint, identified.changes(sorted(names)))
    return names | (drive_names(name, ("effort_limit",)) if drive is not None else set())


def _write_place(asset: _UrdfAsset, identified: IdentifiedRobot, link: Link) -> set[str]:
    """Write an identified origin, as a shift, and an identified joint axis."""
    name, joint, placed = link.joint.name, asset.joint(link), set()
    origin, axis = identified.free_names(f"{name}.origin"), identified.free_names(f"{name}.axis")
    parents = identified.mechanism.links
    parent = asset.base if link.joint.parent < 0 else asset.link(parents[link.joint.parent])
    if origin and _end(joint, "parent") == parent.get("name"):
        element = entry(joint, "origin")
        element.set("xyz", identified.shifted_origin(name, element.get("xyz", "0 0 0")))
        placed |= origin
    if axis:
        entry(joint, "axis").set("xyz", vector(link.joint.axis))
        placed |= axis
    return placed


def _write_zero(asset: _UrdfAsset, identified: IdentifiedRobot, link: Link) -> None:
    """Move a joint's zero to that of its encoder, so that positions of the file are readings."""
    bias = identified.bias(link.joint.name)
    if bias:
        displace(asset.joint(link), -bias)


def _shift_followers(root: Element, identified: IdentifiedRobot) -> None:
    """Shift the offsets of joints that follow readings of others."""
    for joint in root.findall("joint"):
        mimic = joint.find("mimic")
        if mimic is None:
            continue
        factor, offset = float(mimic.get("multiplier", "1")), float(mimic.get("offset", "0"))
        shift = identified.bias(joint.get("name", "")) - factor * identified.bias(mimic.get("joint", ""))
        if shift:
            mimic.set("offset", number(offset + shift))
