# SPDX-License-Identifier: Apache-2.0
"""Whether a declared robot moves as its file does in plain MuJoCo: masses, efforts, ten frames, in three engines."""

from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
import torch
import warp as wp

from neurodyn.core import generator
from neurodyn.dynamics import Environment, State, declared_hybrid
from neurodyn.geometry import Ground
from neurodyn.sim import declare, sample_states, sample_torques, simulator
from neurodyn.sim.declaration.declare import Declaration
from neurodyn.sim.simulators import articulation

FRAMES, WORLDS = 10, 4
TOLERANCE = 1e-5
"""Of positions [m, rad] after FRAMES frames: the simulator returns float32."""
FREE_TOLERANCE = 1e-6
"""Of the engine in float64, one frame without contact, beside the largest position."""


class Difference(NamedTuple):
    """What differs from plain MuJoCo, and whether the declaration says so.

    Attributes:
        what: The first difference; empty if there is none.
        notes: What the declaration says of parts that it does not model.
    """

    what: str
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
    truth = _Truth(file, declaration)
    for check in (_masses, _efforts, _simulated, *([_engine] if engine else [])):
        if what := check(declaration, truth, seed):
            return Difference(f"{check.__name__[1:]}: {what}", notes)
    return Difference("", notes)


def named(difference: Difference) -> bool:
    """Return whether the declaration names a part that would explain a difference."""
    words = ["not modelled", "integrator", "none", "explicit", "locked at"]
    if difference.what.startswith("simulated"):
        words += ["margin", "left out"]  # of contacts
    return any(word in note for note in difference.notes for word in words)


class _Truth:
    """The file in plain MuJoCo, stepped as the declaration says, with a floor wherever the declaration has its own."""

    def __init__(self, file: Path, declaration: Declaration) -> None:
        self.robot = robot = declaration.robot
        spec = mujoco.MjSpec.from_file(str(file))
        self.scene = robot.named_ground() if file.suffix == ".xml" else None
        if self.scene is None:  # links of an URDF may overlap
            for geom in spec.geoms:
                geom.contype = geom.conaffinity = 0
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
        names = [self.model.joint(number).name for number in range(self.model.njnt)]
        self._actuators = {
            self.model.actuator(number).name or f"actuator{number}": number for number in range(self.model.nu)
        }
        self.numbers = [names.index(joint.name) for joint in robot.joints]

    def rollout(self, q: np.ndarray, qd: np.ndarray, control: np.ndarray) -> np.ndarray:
        """Return positions after every frame, in our order and conventions, shape [frames, nq].

        `touched` says afterwards whether there was a contact.
        """
        data = mujoco.MjData(self.model)
        self.touched = False
        self._write(data, q, qd)
        path = []
        for command in control:
            self._command(data, command)
            for _ in range(self.substeps):
                mujoco.mj_step(self.model, data)
                self.touched |= bool(data.ncon)
            path.append(self._read(data))
        return np.array(path)

    def _command(self, data: Any, command: np.ndarray) -> None:
        if self.robot.drives:
            for name, value in zip(self.robot.actuated, command, strict=True):
                data.ctrl[self._actuators[name]] = value
            return
        for joint, torque in zip(self.robot.actuated, command, strict=True):
            data.qfrc_applied[self.model.joint(joint).dofadr[0]] = torque

    def _write(self, data: Any, q: np.ndarray, qd: np.ndarray) -> None:
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


def _masses(declaration: Declaration, truth: _Truth, seed: int) -> str:
    ours = sum(link.mass for link in articulation(declaration.robot).links)
    moving = [body for body in range(1, truth.model.nbody) if truth.model.body_weldid[body] != 0]
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


def _apart(declaration: Declaration, ours: np.ndarray, theirs: np.ndarray) -> str:
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
    return f"{where} {worst:.2g}" if not worst <= TOLERANCE * size else ""


def _simulated(declaration: Declaration, truth: _Truth, seed: int) -> str:
    """Compare the declared simulator, contacts and all."""
    q, qd, control = _states(declaration, truth.scene, seed)
    worlds = simulator(declaration.robot, WORLDS, scene=truth.scene)
    path, _ = worlds.rollout(q, qd, control)
    for world in range(WORLDS):
        expected = truth.rollout(*(part[world].double().numpy() for part in (q, qd, control)))
        nudged = truth.rollout(*(part[world].double().numpy() for part in (q * (1 + 1e-7), qd, control)))
        if not np.isfinite(expected).all() or np.abs(nudged - expected).max() > TOLERANCE:
            continue  # it parts from itself
        if what := _apart(declaration, path[world, 1:].double().numpy(), expected):
            return f"world {world}, {what}"
    return ""


def _engine(declaration: Declaration, truth: _Truth, seed: int) -> str:
    """Compare our engine in float64, in worlds without a contact."""
    q, qd, control = _states(declaration, truth.scene, seed)
    for place, joint in zip(declaration.robot.spec.places, declaration.robot.spec.joints, strict=True):
        if joint.kind == "free":
            q[:, place.q.start + 2] += 20.0
    dynamics = declared_hybrid(declaration.robot).double()
    truth.model.opt.tolerance, truth.model.opt.iterations = 0.0, 200
    scene = truth.scene
    environment = None if scene is None else Environment(ground=Ground(scene))
    usual, wp.config.optimization_level = wp.config.optimization_level, 0  # it is compiled for ten frames alone
    try:
        path = dynamics.rollout(State(q.double(), qd.double()), control.double(), environment=environment).q
    finally:
        wp.config.optimization_level = usual
    for world in range(WORLDS):
        expected = truth.rollout(*(part[world].double().numpy() for part in (q, qd, control)))
        if not np.isfinite(expected).all() or truth.touched:
            continue
        if what := _apart(declaration, path[world, 1:].numpy(), expected):
            return f"world {world}, {what}"
    return ""
