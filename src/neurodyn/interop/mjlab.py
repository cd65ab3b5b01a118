# SPDX-License-Identifier: Apache-2.0
"""A model as the physics of mjlab's tasks: managers, rewards, commands and randomisation stay mjlab's own.

`use_dynamics` puts a model in place of `Simulation.step`. A step runs MuJoCo-Warp's forward pass, from which sensors,
contacts and actuators read as before, and then sets the model's state instead of integrating MuJoCo's. Hybrid models
adopt mjlab's randomised values (masses, centres of mass, friction, armatures ...) by name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import warp as wp
from torch import Tensor

from neurodyn.core.description.spec import JOINT_PROPERTIES
from neurodyn.core.errors import InputError, MismatchError, choices, notice
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import Control, Environment, State, WorldParameters
from neurodyn.dynamics.guard import MOST_FAULTS, Fault, report, state_fault
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.geometry import rotation
from neurodyn.geometry.launching import on_warp_stream
from neurodyn.multibody.engine import nominal

if TYPE_CHECKING:
    from neurodyn.sim.declaration.declare import Declaration

_XYZ = ("x", "y", "z")
_BODY_FIELDS = {"body_mass": ("mass",), "body_ipos": tuple(f"com.{axis}" for axis in _XYZ)}
_DOF_FIELDS = {own.mujoco: name for name, own in JOINT_PROPERTIES.items() if own.mujoco.startswith("dof_")}
_FRICTION = ("geom_friction",)
_DERIVED = {
    "dof_invweight0", "body_invweight0", "body_subtreemass", "tendon_invweight0", "tendon_length0", "actuator_acc0",
}  # fmt: skip
"""Fields that mjlab expands along with those it randomises."""
_CHANGED = 1e-7
_SAME = 1e-5
"""Largest relative difference between a nominal value in the model and in the scene."""


def declare_scene(scene: Any, out: str | Path, *, simulation: Any = None, dt: float | None = None) -> "Declaration":
    """Declare the robot of an mjlab scene as compiled there: its floor, its own collisions.

    Args:
        scene: `mjlab.scene.Scene`, such as `env.scene`, with one robot and a terrain that `neurodyn init` reads.
        out: Folder to write.
        simulation: `env.sim`, the source of the asset's options (time step, integrator, cone); None for the scene's.
        dt: Frame length [s]; None for the time step, which hybrid models need; neural ones may use an environment step.

    Raises:
        InputError: See `neurodyn.sim.declare`.
    """
    import tempfile

    from neurodyn.sim.declaration.declare import declare
    from neurodyn.sim.mujoco.shape_contacts import touching_pairs

    spec = scene.spec
    model = spec.compile() if simulation is None else simulation.mj_model
    if simulation is not None:
        for name in ("timestep", "integrator", "iterations", "cone", "impratio", "disableflags"):
            setattr(spec.option, name, getattr(simulation.mj_model.opt, name))
    with tempfile.TemporaryDirectory() as place:
        scene.write(Path(place) / "asset")
        return declare(
            Path(place) / "asset" / "scene.xml", out, name=Path(out).name,
            dt=float(spec.option.timestep) if dt is None else dt, self_contacts=bool(touching_pairs(model)),
        )  # fmt: skip


class TaskPhysics:
    """A model in place of a trainer task's physics: its history, randomised quantities, and guard.

    A world whose state becomes implausible (`dynamics.guard`) rests in its last plausible state until the task resets
    it.

    Attributes:
        dynamics: The model.
        quantities: Quantities adopted from the task's randomisation.
        left_out: Randomised quantities that the model ignores.
        faults: Worlds that became implausible, the first of each step; on a CPU only.
    """

    def __init__(
        self, dynamics: Dynamics, quantities: Sequence[str], left_out: Sequence[str], worlds: int, device: Any,
        task: str,
    ) -> None:  # fmt: skip
        """Prepare worlds on a device; `task` names the trainer in messages."""
        self.dynamics: Any = dynamics
        self.quantities, self.left_out, self._task = tuple(quantities), tuple(left_out), task
        if self.left_out:
            notice(f"{task}: the model of {dynamics.spec.robot!r} ignores the randomisation of {', '.join(left_out)}")
        self._numbers = torch.zeros(worlds, len(self.quantities), device=device)
        self._environment: Environment | None = None  # the model's own ground
        if self.quantities:
            self.dynamics = self.dynamics.freeing(self.quantities)
            home = self.dynamics.resolve_environment(None)
            self._environment = Environment(
                ground=home.ground, parameters=WorldParameters(self.quantities, self._numbers)
            )
        self._bounds = self.dynamics.rollout_bounds
        self._resting = torch.zeros(worlds, dtype=torch.bool, device=device)
        self._begun = torch.ones(worlds, dtype=torch.bool, device=device)
        self._carry: Any = None
        self._frames = 0
        self.faults: list[Fault] = []

    def forget(self, worlds: Any = None) -> None:
        """Clear the history of worlds, by index; of all for None."""
        chosen = slice(None) if worlds is None else worlds
        self._begun[chosen] = True
        self._resting[chosen] = False

    def move(self, state: State, control: Control) -> State:
        """Return the states after a frame; worlds that failed keep their last plausible state, at rest."""
        if self._carry is None:
            self._carry = self.dynamics.begin(state, self._environment)
        else:
            self._carry = self.dynamics.reset(self._carry, state, self._begun)
        self._begun.zero_()
        self._carry, step = self.dynamics.step(self._carry, state, control)
        after = step.state
        self._frames += 1
        bad = self._bounds.outside(after.q, after.qd)
        if bad.device.type == "cpu":
            self._record_faults(after, bad & ~self._resting)
        self._resting |= bad
        rests = self._resting[:, None]
        return State(torch.where(rests, state.q, after.q), after.qd.masked_fill(rests, 0.0))

    def _record_faults(self, state: State, new: Tensor) -> None:
        if len(self.faults) >= MOST_FAULTS or not bool(new.any()):
            return
        world = int(new.int().argmax())
        only = State(state.q[world : world + 1], state.qd[world : world + 1])
        where = f"{self.dynamics.kind} dynamics of {self.dynamics.spec.robot!r} in {self._task}"
        fault = state_fault(self._bounds, only, where, frame=self._frames)
        self.faults.append(
            report(type(fault)(**{**fault.plain(), "world": world, "worlds": int(new.sum()), "of": len(new)}))
        )


class ModelPhysics(TaskPhysics):
    """A model in place of an mjlab environment's physics."""

    def __init__(self, env: Any, dynamics: Dynamics) -> None:
        """Replace `env.sim.step` and hook into `env.sim.reset`; errors: see `use_dynamics`."""
        self._simulation = simulation = env.sim
        self._own = simulation.step, simulation.reset
        timestep = float(simulation.mj_model.opt.timestep)
        self._every = whole_steps(dynamics, timestep, int(env.cfg.decimation), "mjlab")
        self._columns = SceneColumns(simulation.mj_model, dynamics, torch.device(simulation.device))
        self._drawn, left_out = _drawn_quantities(simulation, dynamics)
        quantities = [one.name for one in self._drawn]
        super().__init__(dynamics, quantities, left_out, int(simulation.num_envs), simulation.device, "mjlab")
        self._count = 0
        simulation.step, simulation.reset = self._step, self._reset

    def restore(self) -> None:
        """Restore the environment's own physics."""
        self._simulation.step, self._simulation.reset = self._own

    def _reset(self, env_ids: Tensor | None = None) -> None:
        """Reset as mjlab does, and clear the history of those worlds."""
        self._own[1](env_ids)
        self.forget(env_ids)

    @torch.no_grad()
    def _step(self) -> None:
        """Advance by one time step of mjlab; a model with longer frames advances in the first step of each."""
        simulation = self._simulation
        simulation.forward()
        data = simulation.wp_data
        with on_warp_stream(torch.device(simulation.device)):
            wp.to_torch(data.time).add_(float(simulation.mj_model.opt.timestep))
            if self._count % self._every == 0:
                self._advance(data)
        self._count += 1

    def _advance(self, data: Any) -> None:
        qpos, qvel = wp.to_torch(data.qpos), wp.to_torch(data.qvel)
        for column, one in enumerate(self._drawn):
            self._numbers[:, column] = one.read(self._simulation)
        control = self._columns.control(wp.to_torch(data.ctrl), wp.to_torch(data.qfrc_actuator))
        self._columns.write(qpos, qvel, self.move(self._columns.state(qpos, qvel), control))


def use_dynamics(env: Any, dynamics: str | Path | Dynamics) -> ModelPhysics:
    """Replace the physics of an mjlab environment by a model, on the environment's device.

    Args:
        env: `mjlab.envs.ManagerBasedRlEnv` after its first `reset`, in which only the model's robot moves.
        dynamics: A run directory, "pretrained:NAME", or a model, for example from `neurodyn.dynamics.declared_hybrid`.

    Returns:
        The installed physics, with `restore`.

    Raises:
        InputError: Joints or actuators of the scene are missing in the model or vice versa.
        MismatchError: The model's frame is not a whole number of mjlab's time steps, or does not divide its decimation.
    """
    device = str(env.sim.device)
    model: Any = load(dynamics, device=device) if isinstance(dynamics, str | Path) else dynamics
    return ModelPhysics(env, model)


def whole_steps(dynamics: Dynamics, timestep: float, decimation: int, task: str) -> int:
    """Return the number of task time steps per model frame."""
    dt = dynamics.spec.dt
    steps = round(dt / timestep)
    if steps < 1 or abs(steps * timestep - dt) > 1e-6 or decimation % steps:
        raise MismatchError(
            f"{task}: the model of {dynamics.spec.robot!r} has frames of {dt:g} s; valid: {timestep:g} s times a "
            f"divisor of the decimation ({decimation})"
        )
    return steps


def _same(name: str, other: str) -> bool:
    """Return whether two names are equal up to the entity's prefix."""
    return name == other or name.rpartition("/")[2] == other.rpartition("/")[2]


def _index_of(what: str, name: str, names: Sequence[str]) -> int:
    """Return the index of a name among a scene's, which have entity prefixes."""
    exact = [place for place, other in enumerate(names) if other == name]
    alike = exact or [place for place, other in enumerate(names) if _same(name, other)]
    if len(alike) != 1:
        raise InputError(
            f"mjlab: the scene has {'no' if not alike else 'several of'} {what} {name!r}; {choices(names)}"
        )
    return alike[0]


class SceneColumns:
    """Indices of a model's coordinates and controls in a scene's arrays, and their conversion.

    MuJoCo's quaternions have the scalar first; velocities of its free joints are the body origin's linear velocity in
    world axes and the angular velocity in body axes.
    """

    def __init__(self, scene: Any, dynamics: Dynamics, device: torch.device) -> None:
        """Find joints and actuators by name; `scene` is the `mujoco.MjModel`.

        Raises:
            InputError: One is missing, or something else moves.
        """
        spec = dynamics.spec
        joints = [scene.joint(index).name for index in range(scene.njnt)]
        free = [index for index in range(scene.njnt) if int(scene.jnt_type[index]) == 0]
        self.joints = []  # indices in the scene, in the model's order
        for joint in spec.joints:
            if joint.kind == "ball":
                raise InputError(f"mjlab: joint {joint.name!r} is a ball joint; valid: free, revolute, prismatic")
            self.joints.append(
                free[0] if joint.kind == "free" and len(free) == 1 else _index_of("joint", joint.name, joints)
            )
        other = sorted(set(range(scene.njnt)) - set(self.joints))
        if other:
            raise InputError(
                f"mjlab: joint {joints[other[0]]!r} moves, but the model of {spec.robot!r} does not have it; valid: "
                "scenes with that robot and nothing else that moves"
            )
        q, qd = [], []
        self._floating = spec.floating
        for joint, index in zip(spec.joints, self.joints, strict=True):
            at, rate = int(scene.jnt_qposadr[index]), int(scene.jnt_dofadr[index])
            q += [at, at + 1, at + 2, at + 4, at + 5, at + 6, at + 3] if joint.kind == "free" else [at]
            qd += range(rate, rate + 6) if joint.kind == "free" else [rate]
        self.dofs = tuple(qd)
        self._q, self._qd = torch.tensor(q, device=device), torch.tensor(qd, device=device)
        com = getattr(dynamics, "base_com", None)
        self._com = None if com is None else com.float().to(device)
        self._kind = spec.control_kind
        dof = dict(zip(spec.qd_names, qd, strict=True))
        if self._kind == "torque":
            given = [dof[name] for name in spec.controls]
        else:
            actuators = [scene.actuator(index).name for index in range(scene.nu)]
            given = [_index_of("actuator", name, actuators) for name in spec.controls]
        self._controls = torch.tensor(given, device=device, dtype=torch.long)

    def state(self, qpos: Tensor, qvel: Tensor) -> State:
        """Convert MuJoCo's states, shapes [worlds, nq] and [worlds, nv], to the model's."""
        q, qd = qpos[:, self._q], qvel[:, self._qd]
        if self._floating:
            spin = rotation.rotate(q[:, 3:7], qd[:, 3:6])
            if self._com is not None:
                qd[:, :3] += torch.linalg.cross(spin, rotation.rotate(q[:, 3:7], self._com.expand_as(spin)))
            qd[:, 3:6] = spin
        return State(q, qd)

    def write(self, qpos: Tensor, qvel: Tensor, state: State) -> None:
        """Write states of the model into MuJoCo's arrays."""
        qd = state.qd
        if self._floating:
            qd, turn, spin = qd.clone(), state.q[:, 3:7], state.qd[:, 3:6]
            if self._com is not None:
                qd[:, :3] -= torch.linalg.cross(spin, rotation.rotate(turn, self._com.expand_as(spin)))
            qd[:, 3:6] = rotation.rotate(rotation.conjugate(turn), spin)
        qpos[:, self._q] = state.q
        qvel[:, self._qd] = qd

    def control(self, ctrl: Tensor, force: Tensor) -> Control:
        """Return the model's control: actuator commands or targets, or actuator forces on its joints."""
        if self._kind == "torque":
            return Control(torque=force[:, self._controls])
        value = ctrl[:, self._controls]
        return Control(target=value)


@dataclass(frozen=True)
class _Drawn:
    """A model quantity that follows a scene value: `nominal` plus mjlab's change."""

    name: str
    field: str
    index: tuple[int, ...]
    nominal: float
    declared: float

    def read(self, simulation: Any) -> Tensor:
        """Return its current values, shape [worlds] or [1]."""
        values = wp.to_torch(getattr(simulation.wp_model, self.field))
        return self.nominal + (values[(slice(None), *self.index)] - self.declared)


def _drawn_quantities(simulation: Any, dynamics: Dynamics) -> tuple[tuple[_Drawn, ...], tuple[str, ...]]:
    """Return the quantities that differ between mjlab's worlds, and the randomised fields that the model ignores."""
    scene, quantities, left = simulation.mj_model, {}, []
    hybrid = dynamics if isinstance(dynamics, HybridDynamics) else None
    for field in sorted({*simulation.expanded_fields, *_FRICTION} - _DERIVED):
        here = wp.to_torch(getattr(simulation.wp_model, field))
        declared = torch.as_tensor(getattr(scene, field), dtype=here.dtype, device=here.device)
        matched = {} if hybrid is None else dict(_matched_fields(field, hybrid, scene))
        changed = {tuple(place) for place in ((here - declared).abs() > _CHANGED).any(0).nonzero().tolist()}
        for place in sorted(changed if field not in _FRICTION else {*changed, *matched}):
            name, value = matched.get(place, ("", 0.0))
            number = float(declared[place])
            if field in _FRICTION and name:  # overrides values that the declaration derived from it
                if place in changed or abs(value - number) > _SAME * number:
                    quantities.setdefault(name, _Drawn(name, field, place, number, number))
            elif name and abs(value - number) <= _SAME * max(1.0, abs(number)):
                quantities.setdefault(name, _Drawn(name, field, place, value, number))
            elif field not in left:
                left.append(field)
    return tuple(quantities.values()), tuple(left)


def _matched_fields(
    field: str, dynamics: HybridDynamics, scene: Any
) -> Iterator[tuple[tuple[int, ...], tuple[str, float]]]:
    """Yield indices into a field, and the name and nominal value of the model's quantity there."""
    values = nominal(dynamics.mechanism, dynamics.config.contact)
    columns = SceneColumns(scene, dynamics, torch.device("cpu"))
    links = [joint.name for joint in dynamics.spec.joints]
    if field in _BODY_FIELDS:
        for link, joint in zip(links, columns.joints, strict=True):
            body, parts = int(scene.jnt_bodyid[joint]), _BODY_FIELDS[field]
            for axis, part in enumerate(parts):
                name = f"{link}.{part}"
                if name in values:
                    yield ((body,) if len(parts) == 1 else (body, axis)), (name, float(values[name]))
    elif field in _DOF_FIELDS:
        for name, dof in zip(dynamics.spec.qd_names, columns.dofs, strict=True):
            quantity = f"{name}.{_DOF_FIELDS[field]}"
            if quantity in values:
                yield (dof,), (quantity, float(values[quantity]))
    elif field == "geom_friction":
        yield from _surfaces(dynamics, scene, values)


def _surfaces(dynamics: HybridDynamics, scene: Any, values: Any) -> Iterator[tuple[tuple[int, ...], tuple[str, float]]]:
    """Yield the friction of shapes that alone decide a contact with the floor, by MuJoCo's priority."""
    shapes = dynamics.mechanism.ground_shapes
    if not isinstance(shapes, dict):
        return
    for index in range(scene.ngeom):
        name = scene.geom(index).name
        key = next((key for key in shapes if name and _same(key, name)), None)
        if key is None or not int(scene.geom_priority[index]):
            continue
        shape, own = shapes[key], f"contact.{key}.friction"
        for part, word in enumerate(("slide", "torsion", "roll")):
            friction = own if own in values else "contact.friction"
            quantity = f"surface.{shape.surface}.{word}" if shape.surface else friction
            if quantity in values and (shape.surface or not part):
                yield (index, part), (quantity, float(values[quantity]))
