# SPDX-License-Identifier: Apache-2.0
"""Plain MuJoCo as the reference simulator: one model for all worlds, or one for each."""

import copy
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.mechanism import INERTIA_ENTRIES
from neurodyn.core.description.spec import JOINT_PROPERTIES
from neurodyn.core.errors import InputError
from neurodyn.robots import Robot
from neurodyn.sim.articulations import Articulation
from neurodyn.sim.bodies import inertia_tensor
from neurodyn.sim.engine import collect_warnings, import_mujoco
from neurodyn.sim.interface import Gravity, Simulator, SimulatorOptions, checked_pose, gravity_vectors
from neurodyn.sim.mujoco.articulation import BodyTree, mujoco_articulation, names_of_geoms
from neurodyn.sim.mujoco.build import SCENE, BuiltModel, build_model
from neurodyn.sim.mujoco.states import StateColumns
from neurodyn.sim.parameters import CONTACT_COLUMNS, INERTIAL, ParameterWriter, Write, nothing


class MujocoSimulator(Simulator):
    """Steps worlds with MuJoCo's `mj_step`, in as many threads as torch has.

    Attributes:
        model: The `mujoco.MjModel` of one world.
    """

    def __init__(self, robot: Robot, worlds: int, **options: Unpack[SimulatorOptions]) -> None:
        """Build the worlds; arguments and errors: see `sim.simulators.simulator`."""
        device, gravity = options.get("device", "cpu"), options.get("gravity")
        if device != "cpu":
            raise InputError(f"device is {device!r}; valid for mujoco-c: cpu; on a GPU declare solver: mujoco")
        if worlds < 1:
            raise InputError(f"worlds is {worlds}; valid: at least 1")
        super().__init__(robot, worlds, **options)
        mujoco = import_mujoco()
        built = build_model(robot, self.scene)
        self.model = built.model
        self.model.opt.timestep = robot.dt / self.substeps
        self._commanded = self.model.nu > 0
        self.built = mujoco_articulation(robot, built)
        self._columns = StateColumns(
            self.model, built.joints, robot.spec, [link.com for link in self.built.links]
        )  # also in worlds whose centres differ
        dof = {
            joint.name: int(self.model.jnt_dofadr[number])
            for joint, number in zip(robot.joints, built.joints, strict=True)
        }
        self._driven = [dof[name] for name in robot.actuated if name in dof]
        self._forces: Tensor | None = None
        self._data = [mujoco.MjData(self.model) for _ in range(max(1, min(torch.get_num_threads(), worlds)))]
        self._pool = import_module("mujoco.rollout").Rollout(nthread=len(self._data) if len(self._data) > 1 else 0)
        kinds = mujoco.mjtState  # inputs at every step: commands or joint forces, and the pose of the scene
        driven = kinds.mjSTATE_CTRL if self._commanded else kinds.mjSTATE_QFRC_APPLIED
        posed = 0 if self.scene is None else kinds.mjSTATE_MOCAP_POS | kinds.mjSTATE_MOCAP_QUAT
        self._given = int(driven | posed)
        self._state = np.zeros((worlds, mujoco.mj_stateSize(self.model, int(mujoco.mjtState.mjSTATE_FULLPHYSICS))))
        self._input = np.zeros((worlds, 1, mujoco.mj_stateSize(self.model, self._given)))
        self._gravity: np.ndarray | None = None
        self._parameters: tuple[tuple[str, ...], np.ndarray] = ((), np.zeros((worlds, 0)))
        self._own: list[Any] = []  # models of worlds that differ in parameters
        self._models: Any = self.model
        self._writer = WorldModels(built, self.built)
        self.set_ground(None)
        if gravity is not None:
            self.set_gravity(gravity)

    @property
    def device(self) -> torch.device:
        """Device of the tensors that `step` takes and returns."""
        return torch.device("cpu")

    def set_ground(self, pose: Tensor | None) -> None:
        """See `Simulator.set_ground`."""
        if self.scene is None:
            return
        x = checked_pose(pose, self.worlds).double().numpy()
        rotation = x[:, 3:] / np.linalg.norm(x[:, 3:], axis=1, keepdims=True)
        model, body = self.model, import_mujoco().mj_name2id(self.model, import_mujoco().mjtObj.mjOBJ_BODY, SCENE)
        mocap, moving = int(model.body_mocapid[body]), model.body_mocapid >= 0
        positions = np.tile(model.body_pos[moving], (self.worlds, 1, 1))  # the asset's mocap bodies stay in place
        rotations = np.tile(model.body_quat[moving], (self.worlds, 1, 1))
        positions[:, mocap], rotations[:, mocap] = x[:, :3], rotation[:, [3, 0, 1, 2]]
        controls = model.nu if self._commanded else model.nv
        self._input[:, 0, controls:] = np.concatenate(
            [part.reshape(self.worlds, -1) for part in (positions, rotations)], 1
        )

    def set_gravity(self, gravity: Gravity | Tensor | None) -> None:
        """See `Simulator.set_gravity`."""
        self._gravity = np.atleast_2d(gravity_vectors(self.robot, self.worlds, gravity)).astype(float)
        self._models = self._models_in_gravity()

    def set_parameters(self, names: Sequence[str], numbers: Tensor | None) -> None:
        """See `Simulator.set_parameters`; a model is rewritten for each world whose numbers have changed."""
        self._writer.require(names)
        values = np.zeros((self.worlds, 0)) if numbers is None else numbers.detach().double().cpu().numpy()
        values = np.broadcast_to(values, (self.worlds, len(names)))
        known, before = self._parameters
        if tuple(names) != known or not names:
            self._own, before = [self.model] * (self.worlds if names else 0), np.full_like(values, np.nan)
        for world in np.flatnonzero((values != before).any(1)):
            self._own[world] = copy.copy(self.model)
            self._writer.write(self._own[world], dict(zip(names, values[world].tolist(), strict=True)))
        self._parameters = tuple(names), values.copy()
        self._models = self._models_in_gravity()

    def _models_in_gravity(self) -> Any:
        """Return the models of the worlds with their gravity; one model if all worlds are the same."""
        if self._gravity is None:
            return self._own or self.model
        if self._own:
            for model, vector in zip(self._own, np.broadcast_to(self._gravity, (self.worlds, 3)), strict=True):
                model.opt.gravity[:] = vector
            return self._own
        models = {}
        for vector in map(tuple, self._gravity.tolist()):
            if vector not in models:
                models[vector] = copy.copy(self.model)
                models[vector].opt.gravity[:] = vector
        return (
            next(iter(models.values())) if len(models) == 1 else [models[tuple(row)] for row in self._gravity.tolist()]
        )

    def step_(self, q: Tensor, qd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        """See `Simulator.step_`."""
        states = self._simulate(q, qd, torque[:, None])
        return self._read(states[:, -1])

    def rollout(self, q: Tensor, qd: Tensor, torques: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See `Simulator.rollout`."""
        self.begin(memory)
        states = self._simulate(q, qd, torques)[:, self.substeps - 1 :: self.substeps]
        frames = states.shape[1]
        q_after, qd_after = self._read(states.reshape(self.worlds * frames, -1))
        first = (q.detach().cpu().float(), qd.detach().cpu().float())
        after = (q_after.view(self.worlds, frames, -1), qd_after.view(self.worlds, frames, -1))
        q_all, qd_all = (torch.cat([begin[:, None], rest], 1) for begin, rest in zip(first, after, strict=True))
        return q_all, qd_all

    def contact_forces(self) -> Tensor | None:
        """See `Simulator.contact_forces`."""
        return self._forces

    def _coordinates(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return views of positions and velocities in full states, which begin with the time."""
        nq, nv = self.model.nq, self.model.nv
        return state[:, 1 : 1 + nq], state[:, 1 + nq : 1 + nq + nv]

    def _read(self, state: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return positions and velocities of full states, shape [n, ...], float32."""
        q, qd = self._columns.read(*self._coordinates(state))
        return torch.from_numpy(q).float(), torch.from_numpy(qd).float()

    def _simulate(self, q: Tensor, qd: Tensor, torques: Tensor) -> np.ndarray:
        """Return the state after every solver step under torques, shape [worlds, frames, nu]."""
        self._state[:] = 0.0
        x, v = (values.detach().cpu().double().numpy() for values in (q, qd))
        self._columns.write(*self._coordinates(self._state), x, v)
        inner = slice(1 + self.model.nq + self.model.nv, 1 + self.model.nq + self.model.nv + self.model.na)
        if self.memory is not None:
            self._state[:, inner] = self.memory.double().numpy()
        frames = torques.shape[1]
        given = np.repeat(np.repeat(self._input, frames, 1), self.substeps, 1)
        forces = np.repeat(torques.detach().cpu().double().numpy(), self.substeps, 1)
        given[:, :, slice(0, self.model.nu) if self._commanded else self._driven] = forces
        models = self._models if isinstance(self._models, list) else [self._models] * self.worlds
        with collect_warnings():
            states, sensed = self._pool.rollout(
                models, self._data, self._state, given, control_spec=self._given, nstep=frames * self.substeps,
                skip_checks=False,
            )  # fmt: skip
        stopped = np.diff(states[:, :, 0], axis=1, prepend=0.0) <= 0.0  # a world that became unstable
        states[stopped] = np.nan
        if self.model.nsensor:
            self._forces = _contact_forces(self.model, self.robot, sensed[:, -1])
        if self.model.na:
            self.memory = torch.from_numpy(states[:, -1, inner].copy())
        return states


def _contact_forces(model: Any, robot: Robot, sensed: np.ndarray) -> Tensor:
    """Return the normal forces of the declared contacts [N], shape [worlds, contacts], from the last step's sensors."""
    total = np.zeros((len(sensed), len(robot.contacts)))
    for sensor in range(model.nsensor):
        name = model.sensor(sensor).name.partition("/")[0]
        start, size = int(model.sensor_adr[sensor]), int(model.sensor_dim[sensor])
        forces = sensed[:, start : start + size].reshape(len(sensed), -1, 3)
        total[:, list(robot.contacts).index(name)] += forces[:, :, 0].sum(1)
    return torch.from_numpy(total).float()


_RANGE = {"lower": 0, "upper": 1}
_CONTACT = {"friction": ("geom_friction", 0)} | {
    name: (f"geom_{array}", column) for name, (array, column) in CONTACT_COLUMNS.items()
}
"""Quantities of contacts with scenes as fields and columns of geoms."""


class WorldModels(ParameterWriter):
    """Writes values of named quantities to copies of a model.

    A change of masses recomputes MuJoCo's inverse weights. Between links, MuJoCo mixes the geoms' numbers.
    """

    simulator = "plain MuJoCo"

    def __init__(self, built: BuiltModel, articulation: Articulation) -> None:
        """Prepare to write to copies of `built.model`; the articulation has the links."""
        names = names_of_geoms(built.model, built.geoms, articulation.shapes)
        super().__init__(articulation, {name: geom for geom, name in names.items()})
        self._model, self._tree, self._scratch = built.model, BodyTree(built.model), None

    def write(self, model: Any, values: Mapping[str, float]) -> None:
        """Set quantities in a copy of the model; all others keep their values."""
        for name, value in values.items():
            writer = self._writer(name)
            assert writer is not None  # `require` refuses such names
            writer(model, value)
        inertial = self._inertial(values)
        for joint, quantities in inertial.items():
            self._write_inertial(model, joint, quantities)
        if inertial or any(name.endswith(".armature") for name in values):  # constants at the reference pose
            self._scratch = self._scratch or import_mujoco().MjData(self._model)
            import_mujoco().mj_setConst(model, self._scratch)

    def _joint_writer(self, joint: int, what: str) -> Write | None:
        first = int(self._model.jnt_dofadr[joint])
        last = int(self._model.jnt_dofadr[joint + 1]) if joint + 1 < self._model.njnt else self._model.nv
        position = int(self._model.jnt_qposadr[joint])
        if what in JOINT_PROPERTIES:
            array = JOINT_PROPERTIES[what].mujoco
            rows = slice(first, last) if array.startswith("dof_") else slice(joint, joint + 1)
            return lambda model, value: getattr(model, array)[rows].fill(value)
        if what in _RANGE and self._model.jnt_limited[joint]:
            return lambda model, value: model.jnt_range[joint].__setitem__(_RANGE[what], value)
        if what == "rest":
            return lambda model, value: model.qpos_spring.__setitem__(position, value)
        carries = self._tree.link_of(int(self._model.jnt_bodyid[joint])) == joint
        return nothing if carries and what in INERTIAL else None

    def _contact_writer(self, field: str, geoms: list[int]) -> Write | None:
        if field not in _CONTACT:
            return None
        numbers, column = _CONTACT[field]
        return lambda model, value: getattr(model, numbers).__setitem__((geoms, column), value)

    def _write_inertial(self, model: Any, joint: int, quantities: Mapping[str, float]) -> None:
        """Set a link's mass, centre of mass and inertia; bodies welded to it are merged into its first body."""
        body = int(model.jnt_bodyid[joint])
        for other in range(1, model.nbody):
            if other != body and self._tree.link_of(other) == joint:
                model.body_mass[other], model.body_inertia[other] = 0.0, 0.0
        model.body_mass[body], model.body_ipos[body] = quantities["mass"], [quantities[f"com.{x}"] for x in "xyz"]
        moments, axes = np.linalg.eigh(inertia_tensor([quantities[f"inertia.{x}"] for x in INERTIA_ENTRIES]))
        axes[:, 2] *= np.sign(np.linalg.det(axes))
        model.body_inertia[body] = moments
        import_mujoco().mju_mat2Quat(model.body_iquat[body], axes.ravel())
