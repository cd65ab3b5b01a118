# SPDX-License-Identifier: Apache-2.0
"""Mirror-symmetric robots: policies learn from both sides at once (`--symmetry`).

A reflection in the plane y = 0 takes vectors to (x, -y, z) and axial vectors, such as angular velocities, to (-x, y,
-z). The mirror partner of each joint is found from the robot's geometry; the images of observation columns from their
names, checked in random states. rsl_rl doubles the batches of PPO (Mittal et al., ICRA 2024); SHAC's loss has the
policy's asymmetry, and its critic sees half of the frames in the mirror.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.robots import Robot
from neurodyn.tasks import Task
from neurodyn.tasks.observations import CRITIC, POLICY

_VECTOR, _AXIAL = (1.0, -1.0, 1.0), (-1.0, 1.0, -1.0)
_NEAR, _ALIKE = 2e-3, 0.05
"""Tolerances of a mirrored joint's position [m], and of mirrored masses, as a share."""
_COLUMNS = {
    **{f"{name}.{axis}": sign for axis, sign in zip("xyz", _VECTOR, strict=True)
       for name in ("base_linear_velocity", "projected_gravity", "base_position", "push.velocity")},
    **{f"{name}.{axis}": sign for axis, sign in zip("xyz", _AXIAL, strict=True)
       for name in ("base_angular_velocity", "gyroscope")},
    **{f"gravity{between}{axis}": sign for between in "_." for axis, sign in zip("xyz", _VECTOR, strict=True)},
    **{f"{prefix}v{axis}": sign for prefix in ("", "command.") for axis, sign in zip("xyz", _VECTOR, strict=True)},
    **{f"{prefix}w{axis}": sign for prefix in ("", "command.") for axis, sign in zip("xyz", _AXIAL, strict=True)},
    "qx": -1.0, "qy": 1.0, "qz": -1.0, "qw": 1.0, "height": 1.0, "base_height": 1.0, "up": 1.0, "heading": 1.0,
    "direction_x": 1.0, "direction_y": -1.0,
}  # fmt: skip
"""Signs of columns that map to themselves."""
_OF_JOINTS = (
    ("", ""),
    ("joint_position.", ""),
    ("joint_velocity.", ""),
    ("last_action.", ""),
    ("", "_velocity"),
    ("", "_action"),
)
"""Prefixes and suffixes around the joint name in a column name."""
Placed = tuple[np.ndarray, np.ndarray]
"""Placement: rotation matrix and position of a body, or position and axis of a joint."""
_STATES = 64
"""Number of states in which observation and reward are checked."""


@dataclass(frozen=True)
class Mirror:
    """Mirror partners of a robot's joints.

    Attributes:
        partner: Partner of each joint (and actuator), by name; itself if it lies in the plane.
        sign: Factor that turns the position of a joint with one degree of freedom into its partner's.
        reflected: Whether the frames of the partners' bodies are reflections of each other, so that their centres of
            mass and inertias are reflections in body axes.
    """

    partner: dict[str, str]
    sign: dict[str, float]
    reflected: bool

    def state(self, spec: StateSpec, state: State) -> State:
        """Return the mirror images of states of a robot."""
        q, qd = torch.empty_like(state.q), torch.empty_like(state.qd)
        places = dict(zip((joint.name for joint in spec.joints), spec.places, strict=True))
        for joint in spec.joints:
            columns = places[joint.name]
            partner_columns = places[self.partner[joint.name]]
            if joint.kind == "free":
                q[:, partner_columns.q] = state.q[:, columns.q] * state.q.new_tensor((*_VECTOR, -1.0, 1.0, -1.0, 1.0))
                qd[:, partner_columns.qd] = state.qd[:, columns.qd] * state.qd.new_tensor((*_VECTOR, *_AXIAL))
            else:
                q[:, partner_columns.q], qd[:, partner_columns.qd] = (
                    self.sign[joint.name] * part for part in (state.q[:, columns.q], state.qd[:, columns.qd])
                )
        return State(q, qd)


def mirror_of(mechanism: Mechanism) -> Mirror:
    """Return the mirror image of a robot.

    Raises:
        InputError: It is not mirror-symmetric, or all of its parts lie in the plane.
    """
    bodies = [(np.eye(3), np.zeros(3))]  # the world's; link i is at index i + 1
    anchors: list[Placed] = []
    for link in mechanism.links:
        joint = link.joint
        rotation, position = _compose(bodies[joint.parent + 1], _placement(joint.parent_frame))
        anchors.append((position, rotation @ np.array(joint.axis)))
        child_rotation, child_position = _placement(joint.child_frame)
        bodies.append(_compose((rotation, position), (child_rotation.T, -child_rotation.T @ child_position)))
    images: dict[int, tuple[int, float]] = {-1: (-1, 1.0)}
    for number, link in enumerate(mechanism.links):
        taken = {other for other, _ in images.values()}
        fits = [
            (other, sign) for other, one in enumerate(mechanism.links)
            if other not in taken and one.joint.parent == images[link.joint.parent][0]
            and (sign := _image(link, one, anchors[number], anchors[other])) is not None
        ]  # fmt: skip
        if not fits:
            raise InputError(
                f"symmetry: joint {link.joint.name!r} has no mirror image in the plane y = 0; valid: robots whose left "
                "side is their right side's image"
            )
        images[number] = fits[0]
    names = mechanism.names
    partner = {names[i]: names[j] for i, (j, _) in images.items() if i >= 0}
    if all(name == other for name, other in partner.items()):
        raise InputError("symmetry: no joint has another side; valid: robots with a left and a right")
    flip = np.diag(_VECTOR)
    reflected = all(
        np.allclose(bodies[j + 1][0], flip @ bodies[i + 1][0] @ flip, atol=1e-3) for i, (j, _) in images.items()
    )
    return Mirror(partner, {names[i]: sign for i, (_, sign) in images.items() if i >= 0}, reflected)


def with_actuators(mirror: Mirror, robot: Robot) -> Mirror:
    """Return a mirror image that also knows the partners of actuators with names other than those of their joints."""
    single = {
        name: next(iter(drive.transmission.items()))
        for name, drive in robot.drives.items()
        if isinstance(drive.transmission, dict) and len(drive.transmission) == 1 and name not in mirror.partner
    }
    of_joint = {joint: name for name, (joint, _) in single.items()}
    partner, sign = dict(mirror.partner), dict(mirror.sign)
    for name, (joint, factor) in single.items():
        other = of_joint.get(mirror.partner.get(joint, ""))
        if other is not None:
            partner[name] = other
            sign[name] = mirror.sign[joint] * math.copysign(1.0, factor * single[other][1])
    return replace(mirror, partner=partner, sign=sign)


def _placement(pose: Sequence[float]) -> Placed:
    return np.array(quaternion_matrix(np.array(pose[3:]) / np.linalg.norm(pose[3:]))), np.array(pose[:3])


def _compose(a: Placed, b: Placed) -> Placed:
    return a[0] @ b[0], a[1] + a[0] @ b[1]


def _image(link: Link, partner: Link, pose: Placed, partner_pose: Placed) -> float | None:
    """Return the sign that maps one joint's position to another's in the mirror; None if they are no mirror images."""
    alike = link.joint.kind == partner.joint.kind and abs(link.mass - partner.mass) <= _ALIKE * max(
        link.mass, partner.mass
    )
    if not alike or link.joint.kind == "ball" or np.linalg.norm(pose[0] * _VECTOR - partner_pose[0]) > _NEAR:
        return None
    if not link.joint.scalar:
        return 1.0
    turns, slides = link.joint.shares
    if turns and not np.isclose(slides, -partner.joint.shares[1], rtol=1e-3):  # the image of a right-handed screw
        return None
    along = float((pose[1] * (_AXIAL if turns else _VECTOR)) @ partner_pose[1])
    return round(along) * 1.0 if abs(abs(along) - 1.0) < _NEAR else None


class MirroredBatches:
    """Doubles batches of PPO with their mirror images.

    Attributes:
        mirror: The mirror image of the robot.
    """

    def __init__(self, world: PolicyEnvironment) -> None:
        """Prepare for the observations and actions of some worlds.

        Raises:
            InputError: Robot or task are not mirror-symmetric, or a column has no known image.
        """
        task, device = world.task, torch.device(world.device)
        robot = task.declaration()
        self.mirror = with_actuators(mirror_of(declared_hybrid(robot).mechanism), robot)
        seen = self._columns(task.observations, task, device)
        actions = [self._of_joint(name, name) for name in task.actions]
        self._actions = _map(task.actions, actions, device)
        self._require_alike(task)
        settings = world.disturbances
        frame = [seen, *([self._actions] if settings.with_actions else [])]
        self._groups = {POLICY: _side_by_side(frame * settings.history)}
        if (drawn := world.robots.names) and world.robots.numbers is not None:
            self._groups["robot"] = _map(drawn, [self._quantity(name, task) for name in drawn], device)
        if CRITIC in task.groups:
            self._groups[CRITIC] = self._columns(task.groups[CRITIC].columns, task, device)
        self._check(world, seen)

    def augment(
        self, env: Any, obs: TensorDict | None, actions: Tensor | None
    ) -> tuple[TensorDict | None, Tensor | None]:
        """Return observations and actions with their mirror images appended, in rsl_rl's format."""
        if obs is not None:
            images = {name: _reflect(self._groups[name], cast(Tensor, values)) for name, values in obs.items()}
            obs = cast(TensorDict, torch.cat([obs, cast(Any, TensorDict(images, batch_size=obs.batch_size))]))
        return obs, None if actions is None else torch.cat([actions, _reflect(self._actions, actions)])

    def actions(self, actions: Tensor) -> Tensor:
        """Return the mirror images of actions, shape [..., actions]."""
        return _reflect(self._actions, actions)

    def observations(self, observations: Tensor, group: str = POLICY) -> Tensor:
        """Return the mirror images of observations of a group, shape [..., columns]."""
        return _reflect(self._groups[group], observations)

    def _columns(self, names: Sequence[str], task: Task, device: torch.device) -> tuple[Tensor, Tensor]:
        return _map(names, [self._column(name, task) for name in names], device)

    def _column(self, name: str, task: Task) -> tuple[str, float]:
        if name in task.mirrored:
            return task.mirrored[name]
        for before, behind in _OF_JOINTS:
            joint = name.removeprefix(before).removesuffix(behind)
            if f"{before}{joint}{behind}" == name and joint in self.mirror.partner:
                return f"{before}{self.mirror.partner[joint]}{behind}", self.mirror.sign[joint]
        if name not in _COLUMNS:
            raise InputError(
                f"symmetry: column {name!r} of task {task.name!r} has no known mirror image; valid: define it in "
                "`Task.mirrored`"
            )
        return name, _COLUMNS[name]

    def _of_joint(self, name: str, joint: str) -> tuple[str, float]:
        if joint not in self.mirror.partner:
            raise InputError(f"symmetry: {name!r} is of no joint; valid: actions of joints")
        return name.replace(joint, self.mirror.partner[joint]), self.mirror.sign[joint]

    def _quantity(self, name: str, task: Task) -> tuple[str, float]:
        kind, _, rest = name.partition(".")
        bare, _, way = rest.partition(" ")
        if kind in ("observation", "action"):
            other, sign = self._column(bare, task) if kind == "observation" else self._of_joint(bare, bare)
            return f"{kind}.{other}{' ' if way else ''}{way}", 1.0 if "factor" in way else sign
        if kind in ("contact", "delay", "push", "gravity"):
            return name, _COLUMNS.get(name, 1.0)
        joint = rest.partition(".")[0] if kind == "actuator" else kind
        other, sign = self._of_joint(name, joint)
        what = name.partition(f"{joint}.")[2]
        if what.startswith(("com.", "inertia.")) and not self.mirror.reflected:
            raise InputError(f"symmetry: {name!r} is in axes of bodies that are not reflected; valid: other quantities")
        if what in ("com.y", "inertia.xy", "inertia.yz"):
            return other, -1.0
        if what in ("lower", "upper") and sign < 0.0:
            return other.replace(what, "upper" if what == "lower" else "lower"), -1.0
        return other, sign if what in ("rest", "bias") else 1.0

    def _require_alike(self, task: Task) -> None:
        """Raise an InputError if scales or nominal pose differ between sides."""
        images, cpu = [self._of_joint(name, name) for name in task.actions], torch.device("cpu")
        scale = torch.tensor(task.action_scale)
        partners = _map(task.actions, [(other, 1.0) for other, _ in images], cpu)
        if not torch.allclose(_reflect(partners, scale), scale, rtol=_ALIKE):
            raise InputError(f"symmetry: actions of task {task.name!r} differ in scale between sides; valid: the same")
        nominal = task.nominal(scale)
        if len(nominal) == len(scale) and not torch.allclose(
            _reflect(_map(task.actions, images, cpu), nominal), nominal, atol=0.02
        ):
            raise InputError(f"symmetry: the nominal pose of {task.robot!r} differs on the other side; valid: the same")

    def _check(self, world: PolicyEnvironment, seen: tuple[Tensor, Tensor]) -> None:
        """Raise an InputError for tasks whose observations or rewards are not mirrored as states are."""
        task, dynamics = world.task, world.dynamics
        if dynamics.measured or dynamics.spec.nq != task.declaration().spec.nq:
            return  # a model of logs has no states to reflect
        generator = torch.Generator(device=world.device).manual_seed(derive_seed(0, "mirror"))
        state = task.start(_STATES, generator)
        speed = torch.randn(state.qd.shape, generator=generator, device=world.device)
        state = State(state.q, state.qd + speed)
        read = dynamics.reader(None).read
        torque = state.q.new_zeros(_STATES, dynamics.spec.nu) if dynamics.spec.control_kind == "torque" else None
        observations, rewards = [], []
        for side in (state, self.mirror.state(task.declaration().spec, state)):
            now = read(side, None, torque)
            memory = task.begin(now, generator)
            memory = replace(memory, command=torch.zeros_like(memory.command))
            observations.append(task.observe(now, memory))
            if "contact" not in task.quantities and not task.contacts:
                rewards.append(torch.stack(list(task.reward(now, memory, memory.action).values())).sum(0))
        off = (observations[1] - _reflect(seen, observations[0])).abs().amax(0) / (1.0 + observations[0].abs().amax(0))
        if float(off.max()) > 0.01:
            worst = task.observations[int(off.argmax())]
            raise InputError(
                f"symmetry: column {worst!r} of task {task.name!r} is not mirrored as its name says; valid: "
                "define it in `Task.mirrored`"
            )
        if rewards and not torch.allclose(rewards[0], rewards[1], rtol=0.02, atol=0.01):
            raise InputError(
                f"symmetry: task {task.name!r} rewards one side more than the other; valid: a symmetric task"
            )


def _map(names: Sequence[str], images: Sequence[tuple[str, float]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return index and sign: column k of the image is column `index[k]` times `sign[k]`."""
    index, sign = [0] * len(names), [1.0] * len(names)
    places = {name: number for number, name in enumerate(names)}
    for number, (other, factor) in enumerate(images):
        if other not in places:
            raise InputError(f"symmetry: {names[number]!r} becomes {other!r}, which is not there; valid: both sides")
        index[places[other]], sign[places[other]] = number, factor
    return torch.tensor(index, device=device), torch.tensor(sign, device=device)


def _side_by_side(maps: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    index, begin = [], 0
    for index_of_map, _ in maps:
        index.append(index_of_map + begin)
        begin += len(index_of_map)
    return torch.cat(index), torch.cat([sign for _, sign in maps])


def _reflect(by: tuple[Tensor, Tensor], values: Tensor) -> Tensor:
    return values[..., by[0]] * by[1]
