# SPDX-License-Identifier: Apache-2.0
"""Reads a robot's asset: joints with limits, efforts and velocities, and whether the base floats."""

import math
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
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
    """A moving joint as the asset has it; None for unspecified values."""

    name: str
    kind: JointKind
    lower: float | None = None  # [rad or m]
    upper: float | None = None  # [rad or m]
    effort: float | None = None  # maximum of its drive [N m or N]; None for a joint without a drive
    velocity: float | None = None  # maximum of its drive [rad/s or m/s]
    armature: float = 0.0  # rotor inertia [kg m^2 or kg]

    @property
    def scalar(self) -> bool:
        """Whether it has one degree of freedom."""
        return self.kind in ("revolute", "prismatic")


@dataclass(frozen=True)
class AssetFacts:
    """Contents of an asset."""

    path: Path
    joints: tuple[AssetJoint, ...]  # the moving ones in the order of the built articulation, without `locked`
    floating: bool  # whether the base is free
    why_floating: str
    locked: tuple[str, ...]  # joints to hold at zero
    has_floor: bool
    meshes: bool  # whether masses are unknown without meshes
    notes: tuple[str, ...]  # one line each
    unmodelled: tuple[str, ...] = ()  # elements that are simulated, but not supported by the hybrid engine


def read_facts(path: Path, *, floating: bool | None = None, lock: tuple[str, ...] = ()) -> AssetFacts:
    """Read a robot's asset, a URDF, MJCF or USD.

    Args:
        path: The asset.
        floating: Whether the base of a URDF is free; None to decide from the asset.
        lock: Joints to hold at zero, besides mimic joints and grippers.
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
    floor = False
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
        joints, meshes = _built_joints(path, (), floating=False)
    free = bool(joints) and joints[0].kind == "free"
    why = "the asset's first joint is free" if free else "the asset has no free joint at its base"
    return AssetFacts(path, joints, free, why, lock, floor, meshes, tuple(notes), unmodelled)


def _urdf_facts(path: Path, floating: bool | None, lock: tuple[str, ...]) -> AssetFacts:
    root = parse_xml(path, "robot", "URDF")
    links = [_Joint.of(joint) for joint in root.findall("joint")]
    held = _held_joints(links)
    locked, why = tuple(dict.fromkeys((*lock, *held))), "as asked for"
    if floating is None:
        floating, why = _guess_floating(root, links, locked)
    notes = [f"locked at zero: {name}, which {reason}" for name, reason in held.items()]
    joints, meshes = _built_joints(path, locked, floating=floating)
    return AssetFacts(path, joints, floating, why, locked, False, meshes, tuple(notes))


class _Joint(NamedTuple):
    """A joint of a URDF between two links; None for a link that is not given."""

    element: ElementTree.Element
    name: str
    kind: str | None
    parent: str | None
    child: str | None

    @classmethod
    def of(cls, joint: ElementTree.Element) -> "_Joint":
        parent, child = (None if (end := joint.find(tag)) is None else end.get("link") for tag in ("parent", "child"))
        return cls(joint, joint.get("name", ""), joint.get("type"), parent, child)


def _held_joints(joints: list[_Joint]) -> dict[str, str]:
    """Return why joints are held: mimic joints and those they mimic, fingers, and joints without range."""
    held: dict[str, str] = {}
    for joint in joints:
        mimic, limit = joint.element.find("mimic"), joint.element.find("limit")
        if joint.kind == "fixed":
            continue
        if mimic is not None:
            held[joint.name] = "mimics another joint"
            held.setdefault(mimic.get("joint", ""), "is mimicked, as grippers are")
        if limit is None or joint.kind not in ("revolute", "prismatic"):
            continue
        if "lower" not in limit.attrib and "upper" not in limit.attrib:
            continue  # efforts alone
        lower, upper = float(limit.get("lower", 0)), float(limit.get("upper", 0))
        if lower >= upper:
            held.setdefault(joint.name, "has no range between its limits")
        elif joint.kind == "prismatic" and upper - lower < _STROKE and _ends_arm(joint, joints):
            held.setdefault(joint.name, "is a finger")
    return held


def _ends_arm(joint: _Joint, joints: list[_Joint]) -> bool:
    """Return whether a joint is the last moving joint of a chain with other moving joints."""
    moving = [other for other in joints if other.kind != "fixed" and other is not joint]
    beyond = {joint.child}
    while further := {other.child for other in joints if other.parent in beyond} - beyond:
        beyond |= further
    return bool(moving) and not any(other.parent in beyond for other in moving)


def _guess_floating(root: ElementTree.Element, joints: list[_Joint], locked: tuple[str, ...]) -> tuple[bool, str]:
    """Return whether a URDF's base floats, and why: two or more moving branches start at it, or nothing moves."""
    children = {joint.child for joint in joints}
    roots = [link.get("name", "") for link in root.findall("link") if link.get("name") not in children]
    if any(name.lower() in _WORLD_LINKS for name in roots):
        return False, f"its root link is named {roots[0]!r}"
    fixed = [joint for joint in joints if joint.kind == "fixed" or joint.name in locked]
    base: set[str | None] = set(roots)
    while further := {joint.child for joint in fixed if joint.parent in base} - base:
        base |= further  # everything fixed to the root belongs to the base
    branches = sum(joint.parent in base and joint not in fixed for joint in joints)
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
