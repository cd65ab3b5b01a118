# SPDX-License-Identifier: Apache-2.0
"""Reads a robot's asset: joints with limits, efforts and velocities, and whether the base floats."""

import math
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from neurodyn.core.description.elements import modelled_tags
from neurodyn.core.description.spec import JointKind
from neurodyn.core.errors import InputError, choices
from neurodyn.robots.declaration import ASSET_SUFFIXES
from neurodyn.sim.build import read_asset
from neurodyn.sim.engine import import_newton, joint_kinds, short_label
from neurodyn.sim.urdf import parse_xml

_UNSAID = 1e5
"""Efforts and velocities from here on count as unspecified: importers fill in 1e6."""

_WORLD_LINKS = ("world", "map", "odom", "ground")
_STROKE = 0.15
"""Maximum stroke of a sliding finger [m]."""


@dataclass(frozen=True)
class AssetJoint:
    """A moving joint as the asset has it; None for unspecified values.

    Attributes:
        name: Name.
        kind: Kind.
        lower: Lower position limit [rad or m].
        upper: Upper position limit [rad or m].
        effort: Maximum torque or force of its drive [N m or N]; None for a joint without a drive.
        velocity: Maximum velocity of its drive [rad/s or m/s].
        armature: Rotor inertia [kg m^2 or kg].
    """

    name: str
    kind: JointKind
    lower: float | None = None
    upper: float | None = None
    effort: float | None = None
    velocity: float | None = None
    armature: float = 0.0

    @property
    def scalar(self) -> bool:
        """Whether it has one degree of freedom."""
        return self.kind in ("revolute", "prismatic")


@dataclass(frozen=True)
class AssetFacts:
    """Contents of an asset.

    Attributes:
        path: The asset.
        joints: Moving joints in the order of the built articulation, without those of `locked`.
        floating: Whether the base is free.
        why_floating: Reason for `floating`.
        locked: Joints to hold at zero.
        has_floor: Whether the asset includes a floor.
        meshes: Whether masses are unknown without meshes.
        notes: Further notes, one line each.
        unmodelled: Names of elements that are simulated, but not supported by the hybrid engine.
    """

    path: Path
    joints: tuple[AssetJoint, ...]
    floating: bool
    why_floating: str
    locked: tuple[str, ...]
    has_floor: bool
    meshes: bool
    notes: tuple[str, ...]
    unmodelled: tuple[str, ...] = ()


def read_facts(path: Path, *, floating: bool | None = None, lock: tuple[str, ...] = ()) -> AssetFacts:
    """Read a robot's asset.

    Args:
        path: A URDF, MJCF or USD.
        floating: Whether the base is free; None to decide from the asset.
        lock: Joints to hold at zero, besides mimic joints and grippers.

    Raises:
        InputError: The asset is of an unknown format, missing or damaged, or a body has no mass or an impossible
            inertia.
    """
    if path.suffix.lower() not in ASSET_SUFFIXES:
        raise InputError(f"{path}: unknown kind of asset {path.suffix!r}; valid: {', '.join(ASSET_SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file; valid: an asset of kind {', '.join(ASSET_SUFFIXES)}")
    if path.suffix.lower() == ".urdf":
        return _urdf_facts(path, floating, lock)
    if floating is not None:
        raise InputError(f"{path}: an MJCF or USD says itself whether its base floats; add or remove its free joint")
    notes: list[str] = []
    unmodelled: tuple[str, ...] = ()
    if path.suffix.lower() == ".xml":
        root = parse_xml(path, "mujoco", "MJCF")
        efforts = _mjcf_efforts(path, notes)
        known = modelled_tags()
        unmodelled = tuple(
            tag
            for tag in ("equality", "tendon")
            if any(f"{tag}/{child.tag}" not in known for child in root.findall(f"{tag}/*"))
        )
        notes += [
            f"the asset has <{tag}>: it is simulated, but the hybrid engine does not know it" for tag in unmodelled
        ]
        floor = any(geom.get("type") in ("plane", "hfield") for geom in root.findall("worldbody/geom"))
        joints, meshes = _built_joints(path, lock, floating=False)
        joints = tuple(replace(joint, effort=efforts.get(joint.name) or joint.effort) for joint in joints)
    else:
        if lock:
            raise InputError(f"{path}: joints of a USD cannot be locked; fix them in the file")
        floor = False
        joints, meshes = _built_joints(path, (), floating=False)
    free = bool(joints) and joints[0].kind == "free"
    why = "the asset's first joint is free" if free else "the asset has no free joint at its base"
    return AssetFacts(path, joints, free, why, lock, floor, meshes, tuple(notes), unmodelled)


def _urdf_facts(path: Path, floating: bool | None, lock: tuple[str, ...]) -> AssetFacts:
    root = parse_xml(path, "robot", "URDF")
    notes: list[str] = []
    held = _held_joints(root, notes)
    locked = tuple(dict.fromkeys((*lock, *held)))
    if floating is None:
        floating, why = _guess_floating(root, locked)
    else:
        why = "as asked for"
    joints, meshes = _built_joints(path, locked, floating=floating)
    return AssetFacts(path, joints, floating, why, locked, False, meshes, tuple(notes))


def _held_joints(root: ElementTree.Element, notes: list[str]) -> list[str]:
    """Return joints of a URDF that are held: mimic joints and those they mimic, fingers, and joints without range."""
    held: dict[str, str] = {}
    parents = {child.get("link"): joint for joint in root.findall("joint") for child in joint.findall("child")}
    for joint in root.findall("joint"):
        name, mimic, limit = joint.get("name", ""), joint.find("mimic"), joint.find("limit")
        if joint.get("type") == "fixed":
            continue
        if mimic is not None:
            held[name] = "mimics another joint"
            held.setdefault(mimic.get("joint", ""), "is mimicked, as grippers are")
        if limit is None or joint.get("type") not in ("revolute", "prismatic"):
            continue
        if "lower" not in limit.attrib and "upper" not in limit.attrib:
            continue  # efforts alone
        lower, upper = float(limit.get("lower", 0)), float(limit.get("upper", 0))
        if lower >= upper:
            held.setdefault(name, "has no range between its limits")
        elif joint.get("type") == "prismatic" and upper - lower < _STROKE and _ends_arm(joint, parents, root):
            held.setdefault(name, "is a finger")
    notes += [f"locked at zero: {name}, which {why}" for name, why in held.items()]
    return list(held)


def _ends_arm(joint: ElementTree.Element, parents: dict[str | None, Any], root: ElementTree.Element) -> bool:
    """Return whether a joint is the last moving joint of a chain with other moving joints."""
    moving = [other for other in root.findall("joint") if other.get("type") != "fixed" and other is not joint]
    child = joint.find("child")
    beyond = {None if child is None else child.get("link")}
    grown = True
    while grown:
        further = {
            end.get("link")
            for other in root.findall("joint")
            if (start := other.find("parent")) is not None and start.get("link") in beyond
            for end in other.findall("child")
        }
        grown = not further <= beyond
        beyond |= further
    return bool(moving) and not any((p := m.find("parent")) is not None and p.get("link") in beyond for m in moving)


def _guess_floating(root: ElementTree.Element, locked: tuple[str, ...]) -> tuple[bool, str]:
    """Return whether a URDF's base floats, and why: two or more moving branches start at it, or nothing moves."""
    children = {end.get("link") for joint in root.findall("joint") for end in joint.findall("child")}
    roots = [link.get("name", "") for link in root.findall("link") if link.get("name") not in children]
    if any(name.lower() in _WORLD_LINKS for name in roots):
        return False, f"its root link is named {roots[0]!r}"
    base, branches = set(roots), 0
    grown = True
    while grown:  # everything fixed to the root belongs to the base
        grown, branches = False, 0
        for joint in root.findall("joint"):
            start, end = joint.find("parent"), joint.find("child")
            if start is None or end is None or start.get("link") not in base:
                continue
            if joint.get("type") == "fixed" or joint.get("name") in locked:
                grown = grown or end.get("link") not in base
                base.add(end.get("link", ""))
            else:
                branches += 1
    if branches == 1:
        return False, "one chain of joints stands on its base, as of an arm"
    return True, f"{branches} chains of joints stand on its base, as legs do" if branches else "nothing is jointed"


def _built_joints(path: Path, locked: tuple[str, ...], *, floating: bool) -> tuple[tuple[AssetJoint, ...], bool]:
    """Return the moving joints as built, and whether masses need the meshes."""
    try:
        builder, meshes = read_asset(path, locked=locked, meshes=False, floating=floating), False
    except InputError:
        if path.suffix.lower() not in (".urdf", ".xml"):
            raise
        builder, meshes = read_asset(path, locked=locked, meshes=True, floating=floating), True
    newton = import_newton()
    kinds, fixed = joint_kinds(newton), int(newton.JointType.FIXED)
    joints = []
    for index, kind in enumerate(map(int, builder.joint_type)):
        name = short_label(builder.joint_label[index])
        if kind == fixed:
            continue
        if kind not in kinds:
            raise InputError(
                f"{path}: joint {name!r} is of the unsupported type {newton.JointType(kind).name}; valid: "
                f"{choices(kinds.values())}"
            )
        joints.append(_built_joint(builder, index, name, kinds[kind]))
    if not joints:
        raise InputError(f"{path}: nothing moves; valid: an asset with joints, or a floating base (--floating)")
    return tuple(joints), meshes


def _built_joint(builder: Any, index: int, name: str, kind: JointKind) -> AssetJoint:
    if kind == "free":
        return AssetJoint("base" if name == "floating_base" or "free" in name.lower() else name, kind)
    if kind == "ball":
        return AssetJoint(name, kind)
    dof = builder.joint_qd_start[index]
    said = {
        field: value if 0 < (value := float(getattr(builder, f"joint_{field}_limit")[dof])) < _UNSAID else None
        for field in ("effort", "velocity")
    }
    lower, upper = float(builder.joint_limit_lower[dof]), float(builder.joint_limit_upper[dof])
    limited = -_UNSAID < lower < upper < _UNSAID
    return AssetJoint(
        name, kind,
        lower=lower if limited else None, upper=upper if limited else None,
        effort=said["effort"], velocity=said["velocity"], armature=float(builder.joint_armature[dof]),
    )  # fmt: skip


def _mjcf_efforts(path: Path, notes: list[str]) -> dict[str, float]:
    """Return the maximum torque or force of each driven joint of an MJCF, as MuJoCo compiles it."""
    mujoco: Any = import_module("mujoco")  # has no types
    mujoco.set_mju_user_warning(notes.append)  # otherwise MuJoCo writes a log file to the working directory
    try:
        model = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        notes.append(f"MuJoCo itself cannot compile it, so that actuators are unknown: {error}")
        return {}
    finally:
        mujoco.set_mju_user_warning(None)
    efforts: dict[str, float] = {}
    for index in range(model.nu):
        name = model.joint(int(model.actuator_trnid[index, 0])).name
        if int(model.actuator_trntype[index]) != int(mujoco.mjtTrn.mjTRN_JOINT):
            notes.append(f"actuator {model.actuator(index).name!r} drives no joint: left out")
            continue
        force = _force(model, index) * abs(float(model.actuator_gear[index, 0]))
        if math.isfinite(force) and force > 0:
            efforts[name] = efforts.get(name, 0.0) + force
        else:
            notes.append(f"actuator {model.actuator(index).name!r} has no bound: add {name!r} to `actuated` yourself")
    for joint in range(model.njnt):
        if model.jnt_actfrclimited[joint] and (name := model.joint(joint).name) in efforts:
            efforts[name] = min(efforts[name], float(abs(model.jnt_actfrcrange[joint]).max()))
    return efforts


def _force(model: Any, index: int) -> float:
    """Return the maximum force of an MJCF actuator before its gear [N m or N]; infinite if unbounded."""
    if model.actuator_forcelimited[index]:
        return float(abs(model.actuator_forcerange[index]).max())
    if not model.actuator_ctrllimited[index]:
        return math.inf
    lower, upper = map(float, model.actuator_ctrlrange[index])
    gain = abs(float(model.actuator_gainprm[index, 0]))
    if int(model.actuator_biastype[index]) == 0:
        return gain * max(abs(lower), abs(upper))
    return gain * (upper - lower) / 2  # a position servo pulls by its stiffness times half its range
