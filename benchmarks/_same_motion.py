# SPDX-License-Identifier: Apache-2.0
"""Whether a declared robot moves as its file does in plain MuJoCo: masses, efforts, ten frames, in three engines.

Its export as MJCF or URDF moves so, too, and robots of URDFs accelerate as in Pinocchio, where that is installed.
Accelerations of our engine and of exports are compared over the first frame.
"""

import copy
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import mujoco
import numpy as np
import torch
import warp as wp

from neurodyn.core import generator
from neurodyn.core.errors import InputError
from neurodyn.dynamics import Environment, HybridDynamics, State, declared_hybrid
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.geometry import Ground
from neurodyn.interop import export_identified
from neurodyn.multibody.articulated import Tree
from neurodyn.robots import Robot, asset_path
from neurodyn.sim import declare, sample_states, sample_torques, simulator
from neurodyn.sim.articulations import declared_colliders, with_short
from neurodyn.sim.declaration.declare import Declaration
from neurodyn.sim.mujoco.asset import read_spec
from neurodyn.sim.simulators import articulation

FRAMES, WORLDS = 10, 4
TOLERANCE = 1e-6
"""Of positions [m, rad] after FRAMES frames; beside Pinocchio, of accelerations, relative to the largest one."""
ACCELERATED = 1e-6
"""Of accelerations over a frame, relative to the largest one."""
SIMULATED = 5e-6
"""Of the simulator's positions, which are float32 and end with its solver's tolerance."""


_LOCKED = r"^locked at (\S+): (\S+), which"
Remover = Callable[[Any, Robot, re.Match[str]], None]
HELD, _NONE = 1e9, 1e-30
"""Rotor inertia of a joint that is held; factor of forces that are none."""


def without_noted(model: Any, robot: Robot, notes: tuple[str, ...]) -> bool:
    """Take the parts that notes name out of a model; return whether there are any."""
    found = [
        (remove, match) for note in notes for pattern, remove in _PARTS.items() if (match := re.search(pattern, note))
    ]
    for remove, match in found:
        remove(model, robot, match)
    if held := held_positions(notes):
        _weigh(model, held)
    return bool(found)


def held_positions(notes: tuple[str, ...]) -> dict[str, float]:
    """Return the positions of the joints that are held."""
    return {match[2]: float(match[1]) for note in notes if (match := re.search(_LOCKED, note))}


def without_extension(file: Path) -> Path:
    """Write a URDF without its settings for MuJoCo beside it, and return its path."""
    tree = ET.parse(file)
    for extension in tree.getroot().findall("mujoco"):
        for part in extension:
            for name in set(part.attrib) - {"meshdir", "strippath", "discardvisual", "fusestatic"}:
                del part.attrib[name]
    bare = file.with_name(f"bare-{file.name}")
    tree.write(bare)
    return bare


def _margins(model: Any, robot: Robot, match: re.Match[str]) -> None:
    model.geom_margin[:] = model.geom_gap[:] = model.pair_margin[:] = model.pair_gap[:] = 0.0


def _shapes(model: Any, robot: Robot, match: re.Match[str]) -> None:
    """Let the shapes without contact points pass through the ground."""
    named = read_spec(asset_path(robot)).compile()
    labels = {
        geom: with_short(named.geom(geom).name, named.body(int(named.geom_bodyid[geom])).name)
        for geom in range(model.ngeom)
        if model.body_weldid[model.geom_bodyid[geom]] and (model.geom_contype[geom] or model.geom_conaffinity[geom])
    }
    passing = sorted(set(labels) - set(declared_colliders(robot, labels)))
    model.geom_contype[passing] = model.geom_conaffinity[passing] = 0


def _uneven_pairs(model: Any, robot: Robot, match: re.Match[str]) -> None:
    model.pair_friction[:, 1], model.pair_friction[:, 4] = model.pair_friction[:, 0], model.pair_friction[:, 3]


def _noslip(model: Any, robot: Robot, match: re.Match[str]) -> None:
    model.opt.noslip_iterations = 0


def _compensation(model: Any, robot: Robot, match: re.Match[str]) -> None:
    model.jnt_actgravcomp[:] = 0


def _held(model: Any, robot: Robot, match: re.Match[str]) -> None:
    """Hold a joint, whose couplings then do nothing."""
    joint = model.joint(match[2]).id
    model.dof_armature[model.jnt_dofadr[joint]] = HELD
    model.jnt_limited[joint] = 0
    joints = model.eq_type == mujoco.mjtEq.mjEQ_JOINT
    model.eq_active0[joints & ((model.eq_obj1id == joint) | (model.eq_obj2id == joint))] = 0


def _weigh(model: Any, held: dict[str, float]) -> None:
    """Let limits be as hard as where joints are held: it follows from inertias in the pose in which a file begins."""
    data, inertia = mujoco.MjData(model), np.zeros((model.nv, model.nv))
    for name, value in held.items():
        data.joint(name).qpos[:] = value
    mujoco.mj_forward(model, data)
    mujoco.mj_fullM(model, data, inertia)
    model.dof_invweight0[:] = np.linalg.inv(inertia).diagonal()
    model.opt.tolerance, model.opt.iterations = 0.0, 500  # inertias of many sizes are hard for the solver
    model.opt.ls_tolerance, model.opt.ls_iterations = 1e-6, 200


_PARTS: dict[str, Remover] = {
    r"with a margin: contact with the ground": _margins,
    r"[1-9]\d* shapes left out": _shapes,
    r"of unequal frictions along its axes": _uneven_pairs,
    r"noslip iterations: none are done": _noslip,
    r"whose actuators carry weight, but there are none": _compensation,
    _LOCKED: _held,
}
EXTENSION, EXPLICIT = "not modelled: <mujoco> of the URDF", "in a medium: with forces that are explicit"
"""Notes of the settings of a URDF for MuJoCo, and of ellipsoids whose resistance is no implicit part of a step."""


class ExplicitMedium:
    """The forces of a medium on ellipsoids as at the beginning of a step; takes them out of a model's own step."""

    def __init__(self, model: Any) -> None:
        self._with = copy.copy(model)
        model.geom_size[model.geom_fluid[:, 0] > 0] = _NONE  # whose derivatives know no interaction coefficient
        model.geom_fluid[:, 0] *= _NONE  # 0 would make other shapes of them
        model.geom_fluid[:, 1:] = 0.0
        self._data = mujoco.MjData(self._with)

    def push(self, model: Any, data: Any) -> None:
        """Apply the forces for one step."""
        mujoco.mj_forward(model, data)
        self._data.qpos[:], self._data.qvel[:] = data.qpos, data.qvel
        mujoco.mj_forward(self._with, self._data)
        data.qfrc_applied[:] += self._data.qfrc_fluid - data.qfrc_fluid


class _Motion(NamedTuple):
    """A motion: positions after every frame [frames, nq], and mean accelerations of the first frame [nv]."""

    q: np.ndarray
    qdd: np.ndarray


class Difference(NamedTuple):
    """What differs from plain MuJoCo, and whether the declaration says so.

    Attributes:
        what: The first difference, rather one that is not named; empty if there is none.
        named: Whether it goes with the parts of the file that the declaration says it does not model.
        notes: What the declaration says.
    """

    what: str
    named: bool
    notes: tuple[str, ...]


def compare(file: Path, folder: Path, seed: int = 0, *, engine: bool = True) -> Difference:
    """Declare the robot of a file in a folder, and compare it with plain MuJoCo: masses, simulator, and our engine.

    Raises:
        InputError: The file is refused.
    """
    declaration = declare(file, folder, name="drawn", floating=False if file.suffix == ".urdf" else None)
    said = declaration.decisions
    notes = tuple(one.value for one in said if one.what == "note")
    notes += tuple(one.why for one in said if one.what == "contact_points" and "; 0 shapes left out" not in one.why)
    truth, first = _Truth(file, declaration), ""
    accelerated = [_accelerated] if file.suffix == ".urdf" and find_spec("pinocchio") else []
    for check in (_masses, _efforts, _simulated, *accelerated, *([_engine] if engine else [])):
        if what := check(declaration, truth, seed):
            what, less = f"{check.__name__[1:]}: {what}", truth.without(notes, engine=check is _engine)
            if less is None or (rest := check(declaration, less, seed)):
                return Difference(what if less is None else f"{what}; without what is noted: {rest}", False, notes)
            first = first or what
    return Difference(first, True, notes)


class _Truth:
    """The file in plain MuJoCo, stepped as the declaration says, with a floor wherever the declaration has its own."""

    def __init__(self, file: Path, declaration: Declaration) -> None:
        self.file, self.declaration = file, declaration
        self.robot = robot = declaration.robot
        self._medium: ExplicitMedium | None = None
        self._held: dict[str, float] = {}
        spec = mujoco.MjSpec.from_file(str(file))
        self.scene = robot.named_ground() if file.suffix == ".xml" else None
        if self.scene is None:  # links of an URDF may overlap
            for geom in spec.geoms:
                geom.contype = geom.conaffinity = 0
            endless = {one.get("name") for one in ET.parse(file).iterfind("joint[@type='continuous']")}
            for joint in (one for one in spec.joints if one.name in endless):  # which MuJoCo limits
                joint.limited = mujoco.mjtLimited.mjLIMITED_FALSE
        self.model = spec.compile()
        self.substeps = robot.simulator.substeps
        self.model.opt.timestep = robot.dt / self.substeps
        if robot.simulator.integrator is not None:
            self.model.opt.integrator = {"euler": 0, "implicitfast": 3}[robot.simulator.integrator]
        self.model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        for joint in robot.joints:  # rotor inertias that `init` adds, and says so
            if joint.armature is not None:
                self.model.joint(joint.name).armature[:] = joint.armature
        mujoco.mj_setConst(self.model, mujoco.MjData(self.model))
        self._find()

    def without(self, notes: tuple[str, ...], *, engine: bool) -> "_Truth | None":
        """Return the file without the parts that notes name, those of our engine alone, too; None if they name none."""
        extended = any(EXTENSION in note for note in notes)
        less = _Truth(without_extension(self.file) if extended else self.file, self.declaration)
        less._held = held_positions(notes)
        explicit = engine and any(EXPLICIT in note for note in notes)
        if explicit:
            less._medium = ExplicitMedium(less.model)
        return less if without_noted(less.model, self.robot, notes) or extended or explicit else None

    def _find(self) -> None:
        names = [self.model.joint(number).name for number in range(self.model.njnt)]
        self._actuators = {
            self.model.actuator(number).name or f"actuator{number}": number for number in range(self.model.nu)
        }
        self.numbers = [names.index(joint.name) for joint in self.robot.joints]

    def moves(self, body: int) -> bool:
        """Return whether joints that are not held carry a body."""
        joints = {
            int(body)
            for body, armature in zip(
                self.model.jnt_bodyid, self.model.dof_armature[self.model.jnt_dofadr], strict=True
            )
            if armature < HELD
        }
        while body and body not in joints:
            body = int(self.model.body_parentid[body])
        return bool(body)

    def exported(self, path: Path) -> "_Truth":
        """Return an exported file in plain MuJoCo, as it stands but for what a URDF cannot hold."""
        other = copy.copy(self)
        other.model = mujoco.MjModel.from_xml_path(str(path))
        other.model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        if path.suffix == ".urdf":
            other.model.opt.timestep, other.model.opt.integrator = self.model.opt.timestep, self.model.opt.integrator
            other.model.geom_contype[:] = other.model.geom_conaffinity[:] = 0
        other._find()
        if path.suffix == ".urdf":
            other.model.dof_armature[:] = self.model.dof_armature
        other.model.opt.tolerance, other.model.opt.iterations = self.model.opt.tolerance, self.model.opt.iterations
        return other

    def rollout(self, q: np.ndarray, qd: np.ndarray, control: np.ndarray) -> "_Motion":
        """Return the motion in our order and conventions; `touched` says afterwards whether there was a contact."""
        data = mujoco.MjData(self.model)
        self.touched = False
        self._write(data, q, qd)
        path, first = [], qd
        for command in control:
            for _ in range(self.substeps):
                self._command(data, command)
                if self._medium is not None:
                    self._medium.push(self.model, data)
                mujoco.mj_step(self.model, data)
                self.touched |= bool(data.ncon)
            first = first if path else self._rates(data)
            path.append(self._read(data))
        return _Motion(np.array(path), (first - qd) / self.robot.dt)

    def expected(self, *parts: torch.Tensor) -> "_Motion | None":
        """Return the motion from one world's q, qd and control; None if it diverges, or parts from a near one."""
        q, qd, control = (part.double().numpy() for part in parts)
        nudged, motion = self.rollout(q * (1 + 1e-7), qd, control), self.rollout(q, qd, control)
        return motion if np.isfinite(motion.q).all() and np.abs(nudged.q - motion.q).max() <= TOLERANCE else None

    def _command(self, data: Any, command: np.ndarray) -> None:
        data.qfrc_applied[:] = 0.0
        if self.robot.drives:
            for name, value in zip(self.robot.actuated, command, strict=True):
                data.ctrl[self._actuators[name]] = value
            return
        for joint, torque in zip(self.robot.actuated, command, strict=True):
            data.qfrc_applied[self.model.joint(joint).dofadr[0]] = torque

    def _write(self, data: Any, q: np.ndarray, qd: np.ndarray) -> None:
        for name, value in self._held.items():
            data.joint(name).qpos[:] = value
        for place, joint, number in zip(self.robot.spec.places, self.robot.spec.joints, self.numbers, strict=True):
            at, rate = int(self.model.jnt_qposadr[number]), int(self.model.jnt_dofadr[number])
            if joint.scalar:
                data.qpos[at], data.qvel[rate] = q[place.q.start], qd[place.qd.start]
                continue
            turn = np.roll(q[place.quaternion], 1)
            matrix = np.zeros(9)
            mujoco.mju_quat2Mat(matrix, turn)
            matrix, spin = matrix.reshape(3, 3), qd[place.angular]
            if joint.kind == "free":
                body = int(self.model.jnt_bodyid[number])
                center = self._center(body)
                data.qpos[at : at + 3] = q[place.q.start : place.q.start + 3]
                data.qvel[rate : rate + 3] = qd[place.linear] - np.cross(spin, matrix @ center)
                at, rate = at + 3, rate + 3
            data.qpos[at : at + 4] = turn
            data.qvel[rate : rate + 3] = matrix.T @ spin

    def _center(self, body: int) -> np.ndarray:
        """Return the centre of mass of a body with all that is welded to it, in its frame."""
        model, data = self.model, mujoco.MjData(self.model)
        mujoco.mj_kinematics(model, data)
        welded = [one for one in range(model.nbody) if model.body_weldid[one] == body]
        mass = model.body_mass[welded]
        center = (mass[:, None] * data.xipos[welded]).sum(0) / mass.sum() if mass.sum() else data.xpos[body]
        return data.xmat[body].reshape(3, 3).T @ (center - data.xpos[body])

    def _read(self, data: Any) -> np.ndarray:
        q = np.zeros(self.robot.spec.nq)
        for place, joint, number in zip(self.robot.spec.places, self.robot.spec.joints, self.numbers, strict=True):
            at = int(self.model.jnt_qposadr[number])
            if joint.scalar:
                q[place.q.start] = data.qpos[at]
                continue
            if joint.kind == "free":
                q[place.q.start : place.q.start + 3] = data.qpos[at : at + 3]
                at += 3
            q[place.quaternion] = np.roll(data.qpos[at : at + 4], -1)
        return q

    def _rates(self, data: Any) -> np.ndarray:
        qd = np.zeros(self.robot.spec.nv)
        for place, joint, number in zip(self.robot.spec.places, self.robot.spec.joints, self.numbers, strict=True):
            at, rate = int(self.model.jnt_qposadr[number]), int(self.model.jnt_dofadr[number])
            if joint.scalar:
                qd[place.qd.start] = data.qvel[rate]
                continue
            free = joint.kind == "free"
            matrix = np.zeros(9)
            mujoco.mju_quat2Mat(matrix, data.qpos[at + 3 * free : at + 3 * free + 4])
            qd[place.angular] = spin = matrix.reshape(3, 3) @ data.qvel[rate + 3 * free : rate + 3 * free + 3]
            if free:
                center = matrix.reshape(3, 3) @ self._center(int(self.model.jnt_bodyid[number]))
                qd[place.linear] = data.qvel[rate : rate + 3] + np.cross(spin, center)
        return qd


def _masses(declaration: Declaration, truth: _Truth, seed: int) -> str:
    ours = sum(link.mass for link in articulation(declaration.robot).links)
    moving = [body for body in range(1, truth.model.nbody) if truth.moves(body)]
    theirs = float(truth.model.body_mass[moving].sum())
    return "" if abs(ours - theirs) < 1e-6 * theirs else f"{ours:.6g} kg for {theirs:.6g}"


def _efforts(declaration: Declaration, truth: _Truth, seed: int) -> str:
    if declaration.robot.drives or truth.model.nu == 0:
        return ""
    for joint, effort in declaration.robot.actuated.items():
        number = truth.model.joint(joint).id
        actuator = next((one for one in range(truth.model.nu) if truth.model.actuator_trnid[one, 0] == number), None)
        if actuator is None:
            return f"{joint} is driven without an actuator"
        if truth.model.opt.disableactuator & 1 << int(truth.model.actuator_group[actuator]):
            continue  # the joint is driven as one of a file without actuators
        data = mujoco.MjData(truth.model)
        data.ctrl[actuator] = 1e9
        mujoco.mj_forward(truth.model, data)
        most = abs(float(data.actuator_force[actuator] * truth.model.actuator_gear[actuator, 0]))
        if truth.model.jnt_actfrclimited[number]:
            most = min(most, float(abs(truth.model.jnt_actfrcrange[number]).max()))
        if most < 1e6 and abs(effort - most) > 1e-3 * most:
            return f"{joint} has {effort:.6g} for {most:.6g}"
    return ""


def _states(declaration: Declaration, scene: Any, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    robot, rng = declaration.robot, generator(seed, "same motion")
    q, qd = sample_states(robot, WORLDS, rng, None if scene is None else Ground(scene))
    return q.float(), qd.float(), sample_torques(robot, WORLDS, FRAMES, rng).float()


def _apart(declaration: Declaration, ours: np.ndarray, theirs: np.ndarray, tolerance: float = TOLERANCE) -> str:
    """Return the largest difference of positions, with its joint."""
    size = max(1.0, float(np.abs(theirs).max()))
    worst, where = 0.0, ""
    for place, joint in zip(declaration.robot.spec.places, declaration.robot.spec.joints, strict=True):
        one, other = ours[:, place.q], theirs[:, place.q]
        if not joint.scalar:
            turn = slice(-4, None)
            sign = np.sign((one[:, turn] * other[:, turn]).sum(1, keepdims=True))
            one = one.copy()
            one[:, turn] *= np.where(sign == 0, 1, sign)
        apart = float(np.abs(one - other).max())
        if apart > worst:
            worst, where = apart, joint.name
    return f"{where} {worst:.2g}" if not worst <= tolerance * size else ""


def _simulated(declaration: Declaration, truth: _Truth, seed: int) -> str:
    """Compare the declared simulator, contacts and all."""
    q, qd, control = _states(declaration, truth.scene, seed)
    worlds = simulator(declaration.robot, WORLDS, scene=truth.scene)
    path, _ = worlds.rollout(q, qd, control)
    for world in range(WORLDS):
        expected = truth.expected(q[world], qd[world], control[world])
        if expected is None:
            continue
        if what := _apart(declaration, path[world, 1:].double().numpy(), expected.q, SIMULATED):
            return f"world {world}, {what}"
    return ""


def _accelerated(declaration: Declaration, truth: _Truth, seed: int) -> str:
    """Compare accelerations without limits and friction with Pinocchio's."""
    import pinocchio

    robot = declaration.robot
    mechanism = declared_mechanism(robot, None)[0]
    model = pinocchio.buildModelFromUrdf(str(asset_path(robot)))
    names = [link.joint.name for link in mechanism.links]
    if "compiler" in asset_path(robot).read_text() or set(model.names[1:]) != set(names):  # settings of MuJoCo; locked
        return ""
    tree, data = Tree(mechanism, mechanism.quantities().__getitem__), model.createData()
    rates = {name: model.joints[model.getJointId(name)].idx_v for name in names}
    for name, link in zip(names, mechanism.links, strict=True):
        model.armature[rates[name]] = link.armature
    q, qd, _ = (part[0].double().numpy() for part in _states(declaration, truth.scene, seed))
    torque = np.random.default_rng(seed).normal(size=len(names))
    found = tree.accelerations(tree.motions(q.tolist(), qd.tolist()), q.tolist(), torque.tolist())
    theirs, speeds, torques = pinocchio.neutral(model), np.zeros(model.nv), np.zeros(model.nv)
    for at, name in enumerate(names):
        joint = model.joints[model.getJointId(name)]
        theirs[joint.idx_q : joint.idx_q + joint.nq] = q[at] if joint.nq == 1 else (np.cos(q[at]), np.sin(q[at]))
        speeds[joint.idx_v], torques[joint.idx_v] = qd[at], torque[at]
    expected = pinocchio.aba(model, data, theirs, speeds, torques)[[rates[name] for name in names]]
    apart = float(np.abs(np.array(found) - expected).max() / max(1.0, np.abs(expected).max()))
    return f"acceleration {apart:.2g} beside Pinocchio's" if not apart <= TOLERANCE else ""


def _engine(declaration: Declaration, truth: _Truth, seed: int) -> str:
    """Compare our engine in float64, in worlds without a contact, and the robot's export."""
    q, qd, control = _states(declaration, truth.scene, seed)
    for place, joint in zip(declaration.robot.spec.places, declaration.robot.spec.joints, strict=True):
        if joint.kind == "free":
            q[:, place.q.start + 2] += 20.0
    dynamics = declared_hybrid(declaration.robot).double()
    truth.model.opt.tolerance, truth.model.opt.iterations = 0.0, 200
    scene, exported = truth.scene, _export(dynamics, declaration, truth)
    environment = None if scene is None else Environment(ground=Ground(scene))
    usual, wp.config.optimization_level = wp.config.optimization_level, 0  # it is compiled for ten frames alone
    try:
        path = dynamics.rollout(State(q.double(), qd.double()), control.double(), environment=environment)
    finally:
        wp.config.optimization_level = usual
    for world in range(WORLDS):
        expected = truth.expected(q[world], qd[world], control[world])
        if expected is None or truth.touched:
            continue
        ours = ((path.qd[world, 1] - path.qd[world, 0]) / declaration.robot.dt).numpy()
        if what := _apart(declaration, path.q[world, 1:].numpy(), expected.q) or _faster(declaration, ours, expected):
            return f"world {world}, {what}"
        if exported is not None:
            again = exported.rollout(*(part[world].double().numpy() for part in (q, qd, control)))
            if what := _apart(declaration, again.q, expected.q) or _faster(declaration, again.qdd, expected):
                return f"world {world} of the exported file, {what}"
    return ""


def _faster(declaration: Declaration, ours: np.ndarray, expected: _Motion) -> str:
    """Return the largest difference of accelerations over the first frame, with its coordinate."""
    apart = np.abs(ours - expected.qdd)
    size = max(1.0, float(np.abs(expected.qdd).max()))
    where = declaration.robot.spec.qd_names[int(apart.argmax())]
    wrong = apart.max() > ACCELERATED * size
    return f"{where} accelerates by {apart.max():.2g} of {size:.2g} otherwise" if wrong else ""


def _export(dynamics: HybridDynamics, declaration: Declaration, truth: _Truth) -> _Truth | None:
    """Write the robot in its file's format; None if that is refused, or if quantities are said to be left out."""
    folder, suffix = declaration.path / "exported", asset_path(declaration.robot).suffix
    try:
        exported = export_identified(dynamics, {".xml": "mjcf", ".urdf": "urdf"}[suffix], folder)
    except InputError:
        return None
    return None if exported.left_out else truth.exported(folder / f"{declaration.robot.name}{suffix}")
