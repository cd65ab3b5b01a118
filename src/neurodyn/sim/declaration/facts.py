# SPDX-License-Identifier: Apache-2.0
"""Reads a robot's asset: joint limits, efforts and velocities, whether the base floats, and unmodelled features."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np

from neurodyn.core.description.drive import Drive
from neurodyn.core.description.scene import IDENTITY, Plane, Vector3
from neurodyn.core.errors import InputError, choices, suggested_file
from neurodyn.robots.declaration import ASSET_SUFFIXES
from neurodyn.sim.articulations import short_label
from neurodyn.sim.declaration.missing_features import missing_features
from neurodyn.sim.engine import import_mujoco, import_newton, joint_kinds
from neurodyn.sim.interface import AssetJoint, value_of
from neurodyn.sim.mujoco.actuators import read_drives
from neurodyn.sim.mujoco.articulation import compiled_joint
from neurodyn.sim.mujoco.asset import compile_asset, read_spec
from neurodyn.sim.mujoco.build import floor_types, joint_kind, joint_name
from neurodyn.sim.newton.build import imported_joint, read_asset
from neurodyn.sim.urdf import held_positions, parse_urdf

_WORLD_LINKS = ("world", "map", "odom", "ground")
_STROKE = 0.15
"""Maximum stroke of a sliding finger [m]."""


@dataclass(frozen=True)
class AssetEnd:
    """An end effector: what it is, joint whose body carries it, position in that body's frame [m], and the reason."""

    what: str
    joint: str
    point: Vector3
    why: str


@dataclass(frozen=True)
class AssetFacts:
    """Contents of an asset."""

    path: Path
    joints: tuple[AssetJoint, ...]  # moving joints in the order of the built articulation, without `locked`
    floating: bool  # whether the base is free
    why_floating: str
    locked: tuple[str, ...]  # joints to hold at zero
    floor: tuple[Plane, ...]  # fixed planes that the robot can touch
    notes: tuple[str, ...]  # one line each
    gravity: Vector3 = (0.0, 0.0, -9.81)  # world axes [m/s^2]
    step: float | None = None  # time step of its simulator [s]; None if unspecified
    iterations: int | None = None  # maximum number of iterations of its constraint solver; None if unspecified
    drives: dict[str, Any] = field(default_factory=dict)  # actuators that are not torques at joints, as plain data
    efforts: dict[str, float] = field(default_factory=dict)  # maximum force of each of them [N m or N]
    pose: dict[str, float] = field(default_factory=dict)  # pose of its first keyframe, by joint [rad or m]
    end: AssetEnd | None = None  # end effector of a bolted robot
    free_body_joints: tuple[str, ...] = ()  # first joints of bodies other than the robot, without drives
    solver: Literal["mujoco", "mujoco-c"] = "mujoco-c"  # reference simulator of a robot like this

    @property
    def tilted_planes(self) -> tuple[Plane, ...]:
        """The planes that are not level."""
        return tuple(plane for plane in self.floor if plane.rotation != IDENTITY[3:])

    @property
    def floor_height(self) -> float:
        """Height of the highest level plane [m]."""
        return max((plane.position[2] for plane in self.floor if plane.rotation == IDENTITY[3:]), default=0.0)

    def grounds(self) -> dict[str, Any]:
        """Return the declared grounds, the default first: the asset's planes, and level ground below floating bases."""
        height = {"position": [0.0, 0.0, self.floor_height]} if self.floor_height else {}
        flat: dict[str, Any] = {"kind": "plane", **height}
        if self.floating:
            tilted = {**flat, "rotation": [0.0, 0.0871557, 0.0, 0.9961947]}
            rough = {"kind": "terrain", "style": "rough", "seed": 1, "cell": 0.1, "amplitude": 0.05, "feature": 0.6}
            grounds = {"flat": [flat], "tilted": [tilted], "rough": [rough | height]}
        else:
            walls = [
                {"kind": "plane", "position": [*p.position], "rotation": [*p.rotation]} for p in self.tilted_planes
            ]
            level = len(walls) < len(self.floor)
            grounds = {"floor" if walls else "flat": [*([flat] if level else []), *walls]}
        return {name: {"shapes": shapes} for name, shapes in grounds.items()}


def require_asset(path: Path) -> None:
    """Raise InputError for a path that is no file of a known kind."""
    kinds = ", ".join(ASSET_SUFFIXES)
    if not path.is_file():
        raise InputError(
            f"{path}: {'is a folder' if path.is_dir() else f'no such file{suggested_file(path)}'}; valid: an asset of "
            f"kind {kinds}"
        )
    if path.suffix.lower() == ".xacro":
        urdf = path.with_name(f"{path.stem.removesuffix('.urdf')}.urdf")
        raise InputError(f"{path}: is a xacro; `xacro {quote(str(path))} > {quote(str(urdf))}` expands it")
    if path.suffix.lower() not in ASSET_SUFFIXES:
        raise InputError(f"{path}: unknown kind of asset {path.suffix!r}; valid: {kinds}")


def read_facts(path: Path, *, floating: bool | None = None, lock: tuple[str, ...] = ()) -> AssetFacts:
    """Read a robot's asset, a URDF, MJCF or USD.

    Args:
        path: The asset.
        floating: Whether the base of a URDF is free; None to decide from the asset.
        lock: Joints to hold at zero, besides mimic joints and grippers.
    """
    require_asset(path)
    suffix = path.suffix.lower()
    if suffix == ".urdf":
        return _urdf_facts(path, floating, lock)
    if floating is not None:
        raise InputError(f"{path}: an MJCF or USD says itself whether its base floats; add or remove its free joint")
    if suffix == ".xml":
        return _mjcf_facts(path, lock)
    if lock:
        raise InputError(f"{path}: joints of a USD cannot be locked; fix them in the file")
    joints = _imported_joints(path)
    free, why = _base(joints)
    return AssetFacts(path, joints, free, why, (), (), (), solver="mujoco")


def _base(joints: tuple[AssetJoint, ...]) -> tuple[bool, str]:
    """Return whether the base floats by itself, and why."""
    free = bool(joints) and joints[0].kind == "free"
    return free, "the asset's first joint is free" if free else "the asset has no free joint at its base"


def _mjcf_facts(path: Path, lock: tuple[str, ...]) -> AssetFacts:
    notes: list[str] = []
    spec = read_spec(path, locked=lock, messages=notes)
    model = compile_asset(path, spec, notes)
    read = read_drives(model, {joint: joint_name(model, joint) for joint in range(model.njnt)})
    notes += [f"actuator {name!r} is left out: {reason}" for name, reason in read.unmodelled.items()]
    at_joints = bool((model.actuator_trntype == int(import_mujoco().mjtTrn.mjTRN_JOINT)).all())
    own = {} if read.motors and at_joints else read.plain()
    efforts = {} if own else _efforts(model, notes)
    joints = _compiled_joints(path, model, {name: (effort, None) for name, effort in efforts.items()})
    bounds = {name: _largest_force(read.efforts[name], read.drives[name], joints) for name in own}
    free, why = _base(joints)
    notes += [
        f"held by mocap body {name!r}, which stays where the asset has it: starts far from there are violent"
        for name in _handles(model)
    ]
    x, y, z = map(float, model.opt.gravity)
    driven = {name for one in own.values() for name in one.get("transmission", ())} | {*efforts, *own}
    return AssetFacts(
        path, joints, free, why, lock, _floor(model), (*notes, *missing_features(model)), gravity=(x, y, z),
        step=float(model.opt.timestep), iterations=int(model.opt.iterations), pose=_keyed_pose(model), drives=own,
        efforts=bounds, end=None if free else _end_effector(model, driven),
        free_body_joints=_free_body_joints(model, driven),
    )  # fmt: skip


def _handles(model: Any) -> list[str]:
    """Return the mocap bodies that other bodies are welded or pinned to."""
    kinds = import_mujoco().mjtEq
    ends = model.eq_type[:, None] == [int(kinds.mjEQ_WELD), int(kinds.mjEQ_CONNECT)]
    held = np.flatnonzero(
        ends.any(1) & (model.eq_active0 != 0) & (model.eq_objtype == int(import_mujoco().mjtObj.mjOBJ_BODY))
    )
    bodies = {int(body) for one in held for body in (model.eq_obj1id[one], model.eq_obj2id[one])}
    return [model.body(body).name for body in sorted(bodies) if model.body_mocapid[body] >= 0]


def _largest_force(effort: float | None, drive: Drive, joints: tuple[AssetJoint, ...]) -> float:
    """Return the maximum force of an actuator; for a servo without a bound, its stiffness times the joints' range."""
    if effort is not None and math.isfinite(effort) and effort > 0:
        return effort
    ranges = [joint.upper - joint.lower for joint in joints if joint.lower is not None and joint.upper is not None]
    return (drive.kp or 1.0) * (max(ranges) if ranges else math.pi)


def _floor(model: Any) -> tuple[Plane, ...]:
    """Return the fixed planes of a model that moving geoms can touch; a plane for a heightfield."""
    mujoco = import_mujoco()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    fixed = (model.body_weldid[model.geom_bodyid] == 0) & (model.body_mocapid[model.geom_bodyid] < 0)
    moving, kinds = np.flatnonzero(~fixed), np.isin(model.geom_type, [int(kind) for kind in floor_types()])
    pairs = [{int(model.pair_geom1[pair]), int(model.pair_geom2[pair])} for pair in range(model.npair)]
    planes = []
    for geom in np.flatnonzero(fixed & kinds).tolist():
        bits = (model.geom_contype[geom] & model.geom_conaffinity[moving]) | (
            model.geom_conaffinity[geom] & model.geom_contype[moving]
        )
        if bits.any() or any(geom in pair for pair in pairs):
            x, y, z = (round(float(part), 9) for part in data.geom_xpos[geom])
            quat = np.zeros(4)
            mujoco.mju_mat2Quat(quat, data.geom_xmat[geom])
            qw, qx, qy, qz = (round(float(part), 9) for part in quat)
            turned = abs(qx) + abs(qy) > 1e-9  # a rotation about the normal changes nothing
            planes.append(Plane(position=(x, y, z), rotation=(qx, qy, qz, qw)) if turned else Plane(position=(0, 0, z)))
    return tuple(dict.fromkeys(planes))


def _free_body_joints(model: Any, driven: set[str]) -> tuple[str, ...]:
    """Return the first joint of each tree of bodies, except the first tree, without driven joints."""
    trees: dict[int, list[str]] = {}
    for joint in range(model.njnt):
        trees.setdefault(int(model.dof_treeid[model.jnt_dofadr[joint]]), []).append(joint_name(model, joint))
    return tuple(names[0] for names in list(trees.values())[1:] if driven.isdisjoint(names))


_ENDS = re.compile(r"grip|grasp|pinch|tcp|tool|end_?eff|(^|[_/])eef?($|[_/])|attach|hand|palm", re.IGNORECASE)
"""Name patterns of sites at end effectors."""


_LEAST_HINGES = 4  # minimum number of driven hinges in sequence that make an arm


def _end_effector(model: Any, driven: set[str]) -> AssetEnd | None:
    """Return the end effector of a bolted robot: a site with such a name, else the end of an arm, or None."""
    mujoco = import_mujoco()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return _named_end(model, data) or _arm_end(model, data, driven)


def _named_end(model: Any, data: Any) -> AssetEnd | None:
    ends: dict[int, AssetEnd] = {}
    for site in range(model.nsite):
        name, body, moving = model.site(site).name, int(model.site_bodyid[site]), 0
        while body and not model.body_jntnum[body]:
            body = int(model.body_parentid[body])
        if not body or not _ENDS.search(name):
            continue
        joint = int(model.body_jntadr[body] + model.body_jntnum[body] - 1)
        if joint_kind(model, joint) not in ("revolute", "prismatic"):
            continue
        point = _in_body_frame(data, body, data.site_xpos[site])
        end = AssetEnd(
            f"site {name!r}", joint_name(model, joint), point, "the site with such a name that most joints move"
        )
        while body:
            moving, body = moving + int(model.body_jntnum[body]), int(model.body_parentid[body])
        ends.setdefault(moving, end)
    return ends[max(ends)] if ends else None


def _arm_end(model: Any, data: Any, driven: set[str]) -> AssetEnd | None:
    """Return the end of the longest chain of driven hinges: between its fingers, else its last named or outermost body.

    A chain ends where several moving bodies branch off, such as the fingers of a hand.
    """
    carriers = {0: 0}  # the moving body that each body is part of; 0 for the world
    for body in range(1, model.nbody):
        carriers[body] = body if model.body_jntnum[body] else carriers[int(model.body_parentid[body])]
    parents = {
        body: carriers[int(model.body_parentid[body])] for body in range(1, model.nbody) if carriers[body] == body
    }
    chains: dict[int, list[int]] = {}
    for start in (body for body, parent in parents.items() if parent == 0):
        chain = [start]
        while len(further := [body for body, parent in parents.items() if parent == chain[-1]]) == 1:
            chain += further
        hinged = [body for body in chain if _driven_hinge(model, body, driven)]
        if hinged == chain and len(chain) >= _LEAST_HINGES:
            chains.setdefault(len(chain), chain)
    if not chains:
        return None
    last = chains[max(chains)][-1]
    name = joint_name(model, int(model.body_jntadr[last]))
    own = [body for body, carrier in carriers.items() if carrier == last]
    fingers = [body for body, parent in parents.items() if parent == last]
    beyond = {body for body in carriers if any(_descends(model, body, finger) for finger in fingers)}
    if beyond:
        positions = data.geom_xpos[np.isin(model.geom_bodyid, list(beyond))]
        position = (positions if len(positions) else data.xipos[list(beyond)]).mean(0)
        return AssetEnd(
            "between its fingers", name, _in_body_frame(data, last, position), "of an arm whose hand has several"
        )
    named = [body for body in own if body != last and _ENDS.search(model.body(body).name)]
    if named:
        ends = {float(np.linalg.norm(data.xpos[body] - data.xpos[last])): body for body in named}
        body = ends[max(ends)]
        point = _in_body_frame(data, last, data.xpos[body])
        return AssetEnd(f"link {model.body(body).name!r}", name, point, "at the end of the arm, by its name")
    positions = [*data.geom_xpos[np.isin(model.geom_bodyid, own)], data.xipos[last]]
    position = max(positions, key=lambda one: float(np.linalg.norm(one - data.xanchor[int(model.body_jntadr[last])])))
    return AssetEnd(
        f"link {model.body(last).name!r}", name, _in_body_frame(data, last, position), "the last one of the arm"
    )


def _driven_hinge(model: Any, body: int, driven: set[str]) -> bool:
    joint = int(model.body_jntadr[body])
    alone = int(model.body_jntnum[body]) == 1 and joint_kind(model, joint) == "revolute"
    return alone and joint_name(model, joint) in driven


def _descends(model: Any, body: int, ancestor: int) -> bool:
    while body and body != ancestor:
        body = int(model.body_parentid[body])
    return body == ancestor


def _in_body_frame(data: Any, body: int, position: Any) -> Vector3:
    x, y, z = (round(float(part), 6) for part in data.xmat[body].reshape(3, 3).T @ (position - data.xpos[body]))
    return x, y, z


def _keyed_pose(model: Any) -> dict[str, float]:
    """Return the pose of the first keyframe with an upright base, by joint with one degree of freedom, if any."""
    base = [joint for joint in range(model.njnt) if joint_kind(model, joint) == "free"][:1]
    keys = [key for key in model.key_qpos if all(_upright(key[model.jnt_qposadr[joint] + 3 :][:4]) for joint in base)]
    if not keys:
        return {}
    return {
        joint_name(model, joint): float(keys[0][model.jnt_qposadr[joint]])
        for joint in range(model.njnt)
        if joint_kind(model, joint) in ("revolute", "prismatic")
    }


def _upright(quaternion: Any) -> bool:
    """Return whether a base's z axis is within 30 degrees of the vertical; scalar first."""
    _, x, y, _ = quaternion
    return 1.0 - 2.0 * (x * x + y * y) > math.cos(math.pi / 6)


def _urdf_facts(path: Path, floating: bool | None, lock: tuple[str, ...]) -> AssetFacts:
    root = parse_urdf(path).root
    links = [_Joint.of(joint) for joint in root.findall("joint")]
    held = _held_joints(links)
    held |= _followers(links, {*lock, *held})
    locked, why = tuple(dict.fromkeys((*lock, *held))), "as asked for"
    if floating is None:
        floating, why = _guess_floating(root, links, locked)
    at = held_positions(root, locked)
    notes = [f"locked at {at[name]:g}: {name}, which {reason}" for name, reason in held.items()]
    notes += [note for joint in links if joint.name not in locked for note in _effort_notes(joint)]
    notes += _extension_notes(root)
    model = compile_asset(path, read_spec(path, locked=locked, floating=floating))
    limits = {joint.name: _drive_limits(joint.element) for joint in links if joint.element.find("mimic") is None}
    joints = _compiled_joints(path, model, limits)
    end = None if floating else _end_effector(model, {joint.name for joint in joints if joint.effort is not None})
    return AssetFacts(path, joints, floating, why, locked, (), (*notes, *missing_features(model)), end=end)


_OF_FILES = {"assetdir", "autolimits", "discardvisual", "fusestatic", "meshdir", "strippath", "texturedir", "usethread"}
"""Settings of MuJoCo's compiler that change no value of a robot."""


def _extension_notes(root: ElementTree.Element) -> list[str]:
    """Name the settings of a URDF that are for MuJoCo alone, which would differ by simulator."""
    parts = [part for extension in root.findall("mujoco") for part in extension.iter() if part is not extension]
    settings = [f"{part.tag} {name}" for part in parts for name in part.attrib if name not in _OF_FILES]
    return [f"not modelled: <mujoco> of the URDF, which sets {choices(settings)}"] if settings else []


def _drive_limits(joint: ElementTree.Element) -> tuple[float | None, float | None]:
    """Return the effort and velocity of a URDF joint; None if unspecified."""
    limit = joint.find("limit")
    effort, velocity = (None if limit is None else float(limit.get(what, "0")) for what in ("effort", "velocity"))
    return value_of(effort), value_of(velocity)


def _effort_notes(joint: "_Joint") -> list[str]:
    """Return what is said about the effort of a joint that its URDF leaves unknown."""
    limit = joint.element.find("limit")
    text = None if limit is None else limit.get("effort")
    if joint.kind == "fixed" or joint.element.find("mimic") is not None or value_of(float(text or "nan")) is not None:
        return []
    what = "no effort" if text is None else f"an effort of {text}"
    return [f"{joint.name} is not driven: its <limit> gives {what}; add it to `actuated` with its own"]


class _Joint(NamedTuple):
    """A joint of a URDF between two links; None for an unspecified link."""

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
        if mimic is not None and _is_finger(joint, joints):
            held[joint.name] = "mimics another joint"
            held.setdefault(mimic.get("joint", ""), "is mimicked, as grippers are")
        if limit is None or joint.kind not in ("revolute", "prismatic"):
            continue
        if "lower" not in limit.attrib and "upper" not in limit.attrib:
            continue  # only efforts
        lower, upper = float(limit.get("lower", 0)), float(limit.get("upper", 0))
        if lower >= upper:
            held.setdefault(joint.name, "has no range between its limits")
        elif joint.kind == "prismatic" and upper - lower < _STROKE and _ends_arm(joint, joints):
            held.setdefault(joint.name, "is a finger")
    return held


def _followers(joints: list[_Joint], held: set[str]) -> dict[str, str]:
    """Return why further joints are held: those that mimic held ones, directly or through others."""
    mimics = {
        joint.name: mimic.get("joint", "") for joint in joints if (mimic := joint.element.find("mimic")) is not None
    }
    found: dict[str, str] = {}
    while more := {name for name, leader in mimics.items() if leader in held and name not in held}:
        held |= more
        found |= dict.fromkeys(sorted(more), "mimics a held joint")
    return found


def _is_finger(follower: _Joint, joints: list[_Joint]) -> bool:
    """Return whether a joint that mimics another one and the joint that it mimics both end an arm, as fingers do."""
    mimic = follower.element.find("mimic")
    leader = None if mimic is None else mimic.get("joint")
    return all(_ends_arm(joint, joints) for joint in joints if joint is follower or joint.name == leader)


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


def _compiled_joints(
    path: Path, model: Any, drives: Mapping[str, tuple[float | None, float | None]]
) -> tuple[AssetJoint, ...]:
    """Return the moving joints as compiled by MuJoCo; `drives` are their efforts and velocities."""
    if not model.njnt:
        raise InputError(f"{path}: nothing moves; valid: an asset with joints, or a floating base (--floating)")
    joints = []
    for joint in range(model.njnt):
        name, kind = joint_name(model, joint), joint_kind(model, joint)
        if kind in ("free", "ball"):
            start = model.key_qpos[0] if model.nkey else model.qpos0
            x, y, z = map(float, start[model.jnt_qposadr[joint] :][:3])
            joints.append(AssetJoint(name, kind, position=(x, y, z) if kind == "free" else None))
            continue
        effort, velocity = drives.get(name, (None, None))
        joints.append(compiled_joint(model, joint, name, kind, effort, velocity))
    return tuple(joints)


def _imported_joints(path: Path) -> tuple[AssetJoint, ...]:
    """Return the moving joints of a USD as imported by Newton."""
    builder, newton = read_asset(path), import_newton()
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
        floating = kinds[kind] == "free" and (name == "floating_base" or "free" in name.lower())
        joints.append(imported_joint(builder, index, "base" if floating else name, kinds[kind]))
    if not joints:
        raise InputError(f"{path}: nothing moves; valid: an asset with joints")
    return tuple(joints)


def _efforts(model: Any, notes: list[str]) -> dict[str, float]:
    """Return the maximum torque or force of each driven joint of an MJCF."""
    mujoco = import_mujoco()
    efforts: dict[str, float] = {}
    for index in range(model.nu):
        joint, label = int(model.actuator_trnid[index, 0]), model.actuator(index).name or f"number {index}"
        if int(model.actuator_trntype[index]) != int(mujoco.mjtTrn.mjTRN_JOINT):
            notes.append(f"actuator {label!r} drives no joint: left out")
            continue
        if joint_kind(model, joint) not in ("revolute", "prismatic"):
            notes.append(f"actuator {label!r} drives a {joint_kind(model, joint)} joint: left out")
            continue
        name = joint_name(model, joint)
        force = _force(model, index) * abs(float(model.actuator_gear[index, 0]))
        if math.isfinite(force) and force > 0:
            efforts[name] = efforts.get(name, 0.0) + force
        else:
            notes.append(f"actuator {label!r} has no bound: add {name!r} to `actuated` yourself")
    for joint in range(model.njnt):
        if model.jnt_actfrclimited[joint] and (name := joint_name(model, joint)) in efforts:
            efforts[name] = min(efforts[name], float(abs(model.jnt_actfrcrange[joint]).max()))
    return efforts


def _force(model: Any, index: int) -> float:
    """Return the maximum force of an MJCF actuator before its gear [N m or N]; infinite if unbounded."""
    if model.actuator_forcelimited[index]:
        return float(abs(model.actuator_forcerange[index]).max())
    if not model.actuator_ctrllimited[index]:
        return math.inf
    mujoco, (lower, upper) = import_mujoco(), map(float, model.actuator_ctrlrange[index])
    if int(model.actuator_biastype[index]) == int(mujoco.mjtBias.mjBIAS_AFFINE):
        return abs(float(model.actuator_gainprm[index, 0])) * (upper - lower) / 2  # of a servo: over half its range
    data, forces = mujoco.MjData(model), []
    for command in (lower, upper):  # at rest: a gain may be of another kind than a factor, as of `dcmotor`
        data.ctrl[index] = command
        mujoco.mj_forward(model, data)
        forces.append(abs(float(data.actuator_force[index])))
    return max(forces)
