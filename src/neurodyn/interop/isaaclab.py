# SPDX-License-Identifier: Apache-2.0
"""A model as the physics of Isaac Lab's tasks: managers, rewards, commands and events stay Isaac Lab's own.

`use_dynamics` puts a model in place of `SimulationContext.step`, by the documented interface of Isaac Lab 2.3. A step
runs PhysX, from which contact sensors read as before, and then overwrites the articulation's view with the model's
state. Explicit and implicit actuators act by the torque that they applied. Works with `ManagerBasedRLEnv` and
`DirectRLEnv`; nothing of Isaac Lab is imported.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.interop.mjlab import TaskPhysics, whole_steps
from neurodyn.multibody.engine import nominal

_CHANGED = 1e-6  # relative difference at which a world's value counts as changed


class IsaacLabPhysics(TaskPhysics):
    """A model in place of an Isaac Lab environment's physics."""

    def __init__(self, env: Any, dynamics: Dynamics, *, robot: str = "robot", sensors: bool = True) -> None:
        """Replace `env.sim.step` and hook into `env.scene.reset`; arguments and errors: see `use_dynamics`."""
        env = env.unwrapped
        self._simulation, self._scene, self._sensors = env.sim, env.scene, sensors
        self._own = env.sim.step, env.scene.reset
        self._robot = articulation = env.scene.articulations[robot]
        self._every = whole_steps(dynamics, float(env.physics_dt), int(env.cfg.decimation), "Isaac Lab")
        device = torch.device(env.device)
        self._joints, self._controls = _columns(articulation, dynamics, device)
        self._floating, self._kind = dynamics.spec.floating, dynamics.spec.control_kind
        self._worlds = torch.arange(int(articulation.num_instances), device=device)
        self._randomised, left_out = _randomised_quantities(articulation, dynamics)
        names = [name for name, *_ in self._randomised]
        super().__init__(dynamics, names, left_out, len(self._worlds), device, "Isaac Lab")
        self._stale, self._count = True, 0
        env.sim.step, env.scene.reset = self._step, self._reset

    def restore(self) -> None:
        """Restore the environment's own physics."""
        self._simulation.step, self._scene.reset = self._own

    def _reset(self, env_ids: Any = None) -> None:
        """Reset as Isaac Lab does and clear the history of those worlds; events may redraw their values."""
        self._own[1](env_ids)
        self.forget(env_ids)
        self._stale = True

    @torch.no_grad()
    def _step(self, render: bool = True) -> None:
        """Advance by one time step of Isaac Lab; a model with longer frames advances in the first step of each."""
        view = self._robot.root_physx_view
        parts = [view.get_dof_positions().clone(), view.get_dof_velocities().clone()]
        parts += [view.get_root_transforms().clone(), view.get_root_velocities().clone()]
        torque = self._robot.data.applied_torque.clone()
        if self._sensors:
            self._own[0](render=render)
        elif render:
            self._simulation.render()
        if self._count % self._every == 0:
            parts = self._advance(parts, torque)
        self._count += 1
        setters = [view.set_dof_positions, view.set_dof_velocities, view.set_root_transforms, view.set_root_velocities]
        for write, part in zip(setters[: 4 if self._floating else 2], parts, strict=False):
            write(part, self._worlds)
        self._simulation.forward()

    def _advance(self, parts: list[Tensor], torque: Tensor) -> list[Tensor]:
        """Return joint positions and velocities and root pose and velocity after a frame."""
        if self._stale and self._randomised:
            for column, (_, field, place, own, usual) in enumerate(self._randomised):
                self._numbers[:, column] = own + _table(self._robot, field)[:, place].to(self._numbers) - usual
        self._stale = False
        positions, velocities, pose, twist = parts
        q, qd = positions[:, self._joints], velocities[:, self._joints]
        origins = self._scene.env_origins
        if self._floating:
            q = torch.cat([pose[:, :3] - origins, pose[:, 3:], q], 1)
            qd = torch.cat([twist, qd], 1)
        if self._kind == "torque":
            control = Control(torque=torque[:, self._controls])
        else:
            control = Control(target=self._robot.data.joint_pos_target[:, self._controls])
        after = self.move(State(q, qd), control)
        first, second = (7, 6) if self._floating else (0, 0)
        positions[:, self._joints], velocities[:, self._joints] = after.q[:, first:], after.qd[:, second:]
        if self._floating:
            pose = torch.cat([after.q[:, :3] + origins, after.q[:, 3:7]], 1)
            twist = after.qd[:, :6]
        return [positions, velocities, pose, twist]


def use_dynamics(
    env: Any, dynamics: str | Path | Dynamics, *, robot: str = "robot", sensors: bool = True
) -> IsaacLabPhysics:
    """Replace a robot's physics in an Isaac Lab environment by a model, on the environment's device.

    The model sees its own ground at each environment's origin, and no moving objects. Body accelerations and joint
    wrenches are PhysX's.

    Args:
        env: `ManagerBasedRLEnv` or `DirectRLEnv`, after its first `reset`.
        dynamics: A run directory, "pretrained:NAME", or a model, driven by torques or position targets.
        robot: Name of the articulation in the scene.
        sensors: Whether PhysX steps too, so that contact sensors have data.

    Returns:
        The installed physics, with `restore`.

    Raises:
        InputError: Joints of the robot are missing in the model or vice versa.
        MismatchError: The model's frame is not a whole number of time steps, or does not divide the decimation.
    """
    device = str(env.unwrapped.device)
    model: Any = load(dynamics, device=device) if isinstance(dynamics, str | Path) else dynamics
    return IsaacLabPhysics(env, model, robot=robot, sensors=sensors)


def _columns(articulation: Any, dynamics: Dynamics, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the indices of the model's joints and controls among the articulation's joints."""
    spec, names = dynamics.spec, list(articulation.joint_names)
    if bool(articulation.is_fixed_base) == spec.floating:
        kind = "fixed" if articulation.is_fixed_base else "free"
        raise InputError(f"Isaac Lab: the robot's base is {kind}; valid: one as in the model of {spec.robot!r}")
    own = [joint.name for joint in spec.joints[int(spec.floating) :]]
    odd = next((joint for joint in spec.joints[int(spec.floating) :] if not joint.scalar), None)
    if odd is not None:
        raise InputError(f"Isaac Lab: joint {odd.name!r} is a {odd.kind} joint; valid: revolute, prismatic")
    missing = next((name for name in own if name not in names), None)
    if missing is not None:
        raise InputError(f"Isaac Lab: the robot has no joint {missing!r}; {choices(names)}")
    other = next((name for name in names if name not in own), None)
    if other is not None:
        raise InputError(
            f"Isaac Lab: joint {other!r} moves, but the model of {spec.robot!r} does not have it; {choices(own)}"
        )
    if spec.control_kind not in ("torque", "target"):
        raise InputError(f"Isaac Lab: the model's control is {spec.control_kind}; valid: torque or target")
    places = ([names.index(name) for name in chosen] for chosen in (own, spec.controls))
    joints, controls = (torch.tensor(place, dtype=torch.long, device=device) for place in places)
    return joints, controls


def _table(articulation: Any, field: str) -> Tensor:
    """Return per-world values, shape [worlds, bodies or joints]."""
    if field == "mass":
        return articulation.root_physx_view.get_masses()
    return articulation.data.joint_armature


def _randomised_quantities(
    articulation: Any, dynamics: Dynamics
) -> tuple[list[tuple[str, str, int, float, float]], tuple[str, ...]]:
    """Return name, field, index, own and usual value of quantities that differ between worlds; and ignored fields."""
    quantities: list[tuple[str, str, int, float, float]] = []
    left: list[str] = []
    hybrid = isinstance(dynamics, HybridDynamics)
    values = nominal(dynamics.mechanism, dynamics.config.contact) if hybrid else {}
    links = [joint.name for joint in dynamics.spec.joints]
    bodies = [] if dynamics.fingerprint is None else [body.name for body in dynamics.fingerprint.bodies]
    of_body = dict(zip(bodies, links, strict=len(bodies) == len(links)))
    data = articulation.data
    for field, usual, names in (
        ("mass", data.default_mass, [of_body.get(name) for name in articulation.body_names]),
        ("armature", data.default_joint_armature, list(articulation.joint_names)),
    ):
        here = _table(articulation, field)
        differs = ((here - usual.to(here)).abs() > _CHANGED * usual.to(here).abs().clamp_min(1e-3)).any(0)
        for place in differs.nonzero().flatten().tolist():
            name = f"{names[place]}.{field}"
            if name in values:
                quantities.append((name, field, place, float(values[name]), float(usual[0, place])))
            elif field not in left:
                left.append(field)
    view = articulation.root_physx_view
    for what, read in (("centres of mass", view.get_coms), ("materials", view.get_material_properties)):
        table = read()
        if bool(((table - table[:1]).abs() > _CHANGED).any()):
            left.append(what)
    return quantities, tuple(left)
