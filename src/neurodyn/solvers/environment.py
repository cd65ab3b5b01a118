# SPDX-License-Identifier: Apache-2.0
"""Environment of a Newton model as learned dynamics need it: gravity, and the ground under the contact points.

A neural model knows its robot in the frame in which it was trained, with the root joint in one fixed pose X. In a
user's scene robots may stand elsewhere, with the root joint of world w in the pose X_w. The ground is then seen at the
pose X X_w^-1, and gravity is rotated in the same way.
"""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.batch import Environment
from neurodyn.sim.articulation import short_label
from neurodyn.sim.bodies import compose, invert, rotation
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.engine import collides, import_newton
from neurodyn.sim.fingerprint import body_groups
from neurodyn.sim.newton_articulation import newton_articulation
from neurodyn.sim.scene import ground_of_model
from neurodyn.solvers.worlds import arrays_of, count_worlds

if TYPE_CHECKING:
    import newton

_IDENTITY = np.array([0, 0, 0, 0, 0, 0, 1.0])
_TOLERANCE = 1e-4
_CONTACT_POINT_TOLERANCE = 1e-5


def resolve_environment(model: "newton.Model", dynamics: LearnedDynamics, where: str) -> Environment:
    """Return gravity and ground of a Newton model as the neural model of its robots sees them.

    Args:
        model: Worlds with robots, checked by `require_robots_only`.
        dynamics: The neural model.
        where: Caller, for error messages.

    Raises:
        InputError: A static shape is of a kind that cannot be measured against, or its mesh does not bound a solid.
        MismatchError: Gravity differs from training (for a floating base: in magnitude), or the root joints of a
            robot are placed differently relative to each other.
    """
    layout = dynamics.contact_points
    free = dynamics.floating
    if layout is None:
        _warn_of_shapes(model, dynamics.spec.robot, where)
        if not free:  # where it stands does not matter, how it leans is part of the fingerprint
            return dynamics.resolve_environment(None)
    poses = _seen_from_roots(model, layout, where)
    device = dynamics.device
    ground = None
    if layout is not None:
        ground = ground_of_model(model)
        if np.abs(poses - _IDENTITY).max() > 1e-9:
            ground = ground.posed(torch.tensor(poses, dtype=torch.float32, device=device))
    gravity = None
    if free:
        vectors = np.asarray(arrays_of(model).gravity.numpy(), dtype=float).reshape(-1, 3)
        turned = [rotation(pose) @ vectors[min(world, len(vectors) - 1)] for world, pose in enumerate(poses)]
        gravity = torch.tensor(np.array(turned), dtype=torch.float32, device=device)
        if bool((gravity == gravity[0]).all()):
            gravity = gravity[0]
    try:
        return dynamics.resolve_environment(Environment(gravity=gravity, ground=ground))
    except InputError as error:
        raise MismatchError(f"{where}: {error}") from None


def require_contact_points(model: "newton.Model", dynamics: LearnedDynamics, where: str) -> None:
    """Refuse a robot whose collision shapes have other contact points than the model.

    If the declaration of the robot, which says what is measured against the ground, is gone, a warning says that
    nothing was compared.

    Raises:
        MismatchError: Contact points differ; the message names the differences.
    """
    layout, robot = dynamics.contact_points, dynamics.robot
    if layout is None:
        return
    if robot is None:
        warnings.warn(
            f"{where}: the declaration {dynamics.declaration!r} of robot {dynamics.spec.robot!r} is not there any "
            "more, so the robot's collision shapes were not compared with the contact points of the neural model",
            stacklevel=4,
        )
        return
    try:
        differences = _differences(layout, contact_point_layout(newton_articulation(model, robot), robot))
    except InputError as error:
        differences = [str(error)]
    if differences:
        more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise MismatchError(
            f"{where}: not the collision shapes that the model of {dynamics.spec.robot!r} was trained with: "
            f"{'; '.join(differences[:3])}{more}"
        )


def _differences(own: ContactPointLayout, built: ContactPointLayout) -> list[str]:
    """Compare positions, regardless of names and order of the shapes."""
    a, b = (np.array([[p.joint, *p.point, p.radius] for p in x.contact_points]).reshape(-1, 5) for x in (own, built))
    if len(a) == len(b):
        same = np.abs(a[:, None] - b[None]).max(-1) <= _CONTACT_POINT_TOLERANCE
        if same.any(0).all() and same.any(1).all():
            return []
    return own.differences(built) or ["some contact points are missing, others are there twice"]


def _seen_from_roots(model: Any, layout: ContactPointLayout | None, where: str) -> np.ndarray:
    """Return the pose at which the robot of each world sees the world frame, shape [worlds, 7]."""
    worlds = count_worlds(model)
    kinds, parent = model.joint_type.numpy(), model.joint_parent.numpy()
    frames = model.joint_X_p.numpy().astype(float)
    groups = body_groups(model)
    moving = np.flatnonzero(kinds != int(import_newton().JointType.FIXED)).reshape(worlds, -1)
    poses = np.zeros((worlds, 7))
    for world, joints in enumerate(moving):
        first = None
        for index, joint in enumerate(joints):
            leader, offset = groups[int(parent[joint])]
            if leader >= 0:
                continue
            own = _IDENTITY if layout is None else np.array(layout.joints[index].parent_frame)
            seen = compose(own, invert(compose(offset, frames[joint])))
            seen[3:] *= (1.0 if seen[6] >= 0 else -1.0) / np.linalg.norm(seen[3:])
            first = seen if first is None else first
            if layout is not None and np.abs(seen - first).max() > _TOLERANCE * (1 + np.abs(first).max()):
                name = short_label(model.joint_label[joint])
                raise MismatchError(
                    f"{where}: joint {name!r} in world {world} does not stand to joint "
                    f"{short_label(model.joint_label[joints[0]])!r} as it did in training"
                )
        poses[world] = _IDENTITY if first is None else first
    return poses


def _warn_of_shapes(model: Any, robot: str, where: str) -> None:
    pairs = model.shape_contact_pairs
    if pairs is None or not len(pairs):
        return
    groups, body = body_groups(model), model.shape_body.numpy()
    static = np.array([groups[int(b)][0] < 0 for b in body]) & collides(model)
    touched = {int(shape) for pair in pairs.numpy().reshape(-1, 2) if static[pair].sum() == 1 for shape in pair}
    unfelt = sorted(shape for shape in touched if static[shape])
    if unfelt:
        warnings.warn(
            f"{where}: the model of {robot!r} has no contact points and feels none of the {len(unfelt)} static "
            f"shapes that the robots could touch, such as {short_label(model.shape_label[unfelt[0]])!r}",
            stacklevel=4,
        )
