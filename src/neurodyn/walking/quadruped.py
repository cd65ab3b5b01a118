# SPDX-License-Identifier: Apache-2.0
"""A controller's model of a quadruped: one rigid body on four legs of three joints, found in a mechanism."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.multibody.articulated import RelativeMotion, Tree
from neurodyn.multibody.mass_matrix import TreeInertia
from neurodyn.multibody.points import LinkPose, link_poses
from neurodyn.multibody.vectors import Vector, array, cross

LEGS = 4
JOINTS = 3
"""Joints of a leg."""


@dataclass(frozen=True)
class Leg:
    """A chain of joints from the base to a foot.

    Attributes:
        name: Name of its first joint.
        links: Indices of its links, from the hip on.
        dofs: Their velocity coordinates.
        controls: Their indices in the control vector.
        foot: Centre of the foot in the last link's body frame [m].
        radius: Distance from the centre to the sole [m].
    """

    name: str
    links: tuple[int, ...]
    dofs: tuple[int, ...]
    controls: tuple[int, ...]
    foot: tuple[float, float, float]
    radius: float


@dataclass(frozen=True)
class Quadruped:
    """The controller's model of a robot.

    Lengths and inertias are those of the nominal pose; the heading frame has a vertical z axis and the base's heading.

    Attributes:
        mechanism: The robot.
        legs: Front left, front right, hind left, hind right.
        mass: Mass [kg].
        inertia: Inertia about the centre of mass, axes of the base [kg m^2], shape [3, 3].
        height: Height of the centre of mass above the soles [m].
        stance: Nominal foot positions from the centre of mass, heading frame, z zero [m], shape [4, 3].
        jacobian: Velocities of feet per unit of joint rates, heading frame, shape [4, 3, 3].
        foot_inertia: Inertia of each foot against forces with the base held [kg], shape [4, 3, 3].
        effort: Torque limits [N m], shape [4, 3].
    """

    mechanism: Mechanism
    legs: tuple[Leg, ...]
    mass: float
    inertia: np.ndarray
    height: float
    stance: np.ndarray
    jacobian: np.ndarray
    foot_inertia: np.ndarray
    effort: np.ndarray

    @property
    def radii(self) -> np.ndarray:
        """Radii of the feet [m], shape [4]."""
        return np.array([leg.radius for leg in self.legs])

    @cached_property
    def gravity(self) -> float:
        """Magnitude of gravity [m/s^2]."""
        return float(np.linalg.norm(self.mechanism.gravity))

    @property
    def controls(self) -> np.ndarray:
        """Indices of the legs' joints in the control vector, shape [4, 3]."""
        return np.array([leg.controls for leg in self.legs])


def find_quadruped(
    mechanism: Mechanism, spec: StateSpec, nominal: Sequence[float], effort: Sequence[float]
) -> Quadruped:
    """Find base, legs and feet.

    Args:
        mechanism: The robot; feet are the contact points farthest from the last joint of a leg.
        spec: Names and order of state and control.
        nominal: Positions of the driven joints in a standing pose [rad], shape [nu].
        effort: Torque limits of the driven joints [N m], shape [nu].

    Raises:
        InputError: It has no floating base, or not four legs of three driven revolute joints that end in contact
            points.
    """
    if not mechanism.floating:
        raise InputError(f"robot {spec.robot!r}: has no floating base; valid: a quadruped")
    chains = _chains(mechanism)
    if len(chains) != LEGS or any(len(chain) != JOINTS for chain in chains):
        lengths = ", ".join(str(len(chain)) for chain in chains) or "none"
        raise InputError(
            f"robot {spec.robot!r}: chains of joints on its base: {lengths}; valid: a quadruped with four legs of "
            "three joints each"
        )
    tree = Tree(mechanism, mechanism.quantities().__getitem__)
    dof = tree.dofs
    names = mechanism.names
    for chain in chains:
        for link in chain:
            joint = mechanism.links[link].joint
            if joint.kind != "revolute" or joint.name not in spec.controls:
                raise InputError(
                    f"robot {spec.robot!r}: joint {joint.name!r} of a leg is "
                    + ("not driven" if joint.kind == "revolute" else joint.kind)
                    + "; valid: driven revolute joints"
                )
    legs = [
        Leg(names[chain[0]], chain, tuple(dof[names[link]] for link in chain),
            tuple(spec.controls.index(names[link]) for link in chain), *_foot(mechanism, chain[-1], spec))
        for chain in chains
    ]  # fmt: skip
    q = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, *([0.0] * (mechanism.nq - 7))]
    for leg in legs:
        for place, control in zip(leg.dofs, leg.controls, strict=True):
            q[place + 1] = float(nominal[control])
    motions = tree.motions(q, [0.0] * mechanism.nv)
    poses = link_poses(tree, motions)
    legs = _sort_legs(tree, poses, legs)
    mass, centre = centre_of_mass(tree, poses)
    feet = np.array([foot_position(tree, poses, leg) for leg in legs], float)
    stance = feet - np.asarray(centre, float)
    efforts = np.array([[effort[control] for control in leg.controls] for leg in legs], float)
    radii = np.array([leg.radius for leg in legs])
    height = float((radii - stance[:, 2]).mean())
    stance[:, 2] = 0.0
    jacobian = np.array([foot_jacobian(tree, poses, leg) for leg in legs], float)
    inertia = TreeInertia(tree, poses)
    foot_inertia = np.stack([_foot_inertia(inertia, leg, of) for leg, of in zip(legs, jacobian, strict=True)])
    return Quadruped(
        mechanism, tuple(legs), float(mass), _inertia(tree, poses, centre), height, stance, jacobian, foot_inertia,
        efforts,
    )  # fmt: skip


def centre_of_mass(tree: Tree, poses: Sequence[LinkPose]) -> tuple[Any, Vector]:
    """Return total mass and centre of mass of all links, world axes."""
    total, moment = 0.0, array([0.0, 0.0, 0.0])
    for index, (link, pose) in enumerate(zip(tree.links, poses, strict=True)):
        mass = tree.quantity(f"{link.joint.name}.mass")
        total = total + mass
        moment = moment + mass * (pose.origin + pose.rotation @ tree.centre(index))
    return total, moment * (1.0 / total)


def foot_position(tree: Tree, poses: Sequence[LinkPose], leg: Leg) -> Vector:
    """Return the position of a foot's centre, world axes."""
    pose = poses[leg.links[-1]]
    return pose.origin + pose.rotation @ tree.in_link_frame(leg.links[-1], array(leg.foot))


def foot_jacobian(tree: Tree, poses: Sequence[LinkPose], leg: Leg) -> np.ndarray:
    """Return the velocity of a foot per unit of the rates of its leg's joints, world axes, shape [3, 3]."""
    foot = foot_position(tree, poses, leg)
    columns = []
    for link in leg.links:
        axis = poses[link].rotation @ tree.axis(link)
        columns.append(cross(axis, foot - poses[link].origin))
    return np.array(columns, dtype=object).T


def foot_velocity(tree: Tree, motions: Sequence[RelativeMotion], poses: Sequence[LinkPose], leg: Leg) -> Vector:
    """Return the velocity of a foot, world axes."""
    link = leg.links[-1]
    arm = tree.in_link_frame(link, array(leg.foot))
    return poses[link].rotation @ (motions[link].velocity + cross(motions[link].spin, arm))


def leg_weight(tree: Tree, poses: Sequence[LinkPose], leg: Leg) -> list[Any]:
    """Return the torques that hold a leg's own links against gravity."""
    gravity = tree.vector("gravity")
    torques = []
    for first, link in enumerate(leg.links):
        axis, origin = poses[link].rotation @ tree.axis(link), poses[link].origin
        torque: Any = 0.0
        for carried in leg.links[first:]:
            mass = tree.quantity(f"{tree.links[carried].joint.name}.mass")
            centre = poses[carried].origin + poses[carried].rotation @ tree.centre(carried)
            torque = torque - mass * (axis @ cross(centre - origin, gravity))
        torques.append(torque)
    return torques


def _chains(mechanism: Mechanism) -> list[tuple[int, ...]]:
    """Return the links of each chain on the base, from the base outwards; a branch is no chain."""
    chains: list[list[int]] = []
    of: dict[int, int] = {}
    for index, link in enumerate(mechanism.links[1:], 1):
        parent = link.joint.parent
        if parent == 0:
            of[index] = len(chains)
            chains.append([index])
        elif parent in of and chains[of[parent]][-1] == parent:
            of[index] = of[parent]
            chains[of[parent]].append(index)
        else:
            return []
    return [tuple(chain) for chain in chains]


def _foot(mechanism: Mechanism, link: int, spec: StateSpec) -> tuple[tuple[float, float, float], float]:
    """Return centre and radius of the foot on a link: the shape with points farthest from the joint."""
    points = [point for point in mechanism.points if point.joint == link]
    if not points:
        raise InputError(
            f"robot {spec.robot!r}: the leg that ends in {mechanism.names[link]!r} has no contact points; declare "
            "`contact_points` and colliders of its feet"
        )
    origin = np.asarray(mechanism.links[link].joint.child_frame[:3])
    farthest = max(points, key=lambda point: float(np.linalg.norm(np.asarray(point.point) - origin)))
    shape = farthest.name.rpartition("/")[0]
    own = np.array([point.point for point in points if point.name.rpartition("/")[0] == shape])
    centre = (own.min(0) + own.max(0)) / 2
    x, y, z = map(float, centre)
    return (x, y, z), farthest.radius + float(np.linalg.norm(own - centre, axis=1).max())


def _sort_legs(tree: Tree, poses: Sequence[LinkPose], legs: list[Leg]) -> list[Leg]:
    """Return the legs as front left, front right, hind left, hind right."""
    hips = {leg.name: np.asarray(poses[leg.links[0]].origin, float) for leg in legs}
    front_first = sorted(legs, key=lambda leg: -hips[leg.name][0])
    return [
        leg for pair in (front_first[:2], front_first[2:]) for leg in sorted(pair, key=lambda leg: -hips[leg.name][1])
    ]


def _inertia(tree: Tree, poses: Sequence[LinkPose], centre: Vector) -> np.ndarray:
    """Return the inertia of all links about their common centre of mass, world axes."""
    total = np.zeros((3, 3))
    for index, (link, pose) in enumerate(zip(tree.links, poses, strict=True)):
        turn = np.asarray(pose.rotation, float)
        arm = np.asarray(pose.origin + pose.rotation @ tree.centre(index) - centre, float)
        total += turn @ np.asarray(tree.inertia(index), float) @ turn.T
        total += link.mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    return total


def _foot_inertia(inertia: TreeInertia, leg: Leg, jacobian: np.ndarray) -> np.ndarray:
    r"""Return $(J M^{-1} J^T)^{-1}$ of a leg with the base held: M is the leg's block of the mass matrix."""
    lower = np.array([[inertia.matrix[i][j] if j <= i else 0.0 for j in leg.dofs] for i in leg.dofs], float)
    return np.linalg.inv(jacobian @ np.linalg.solve(lower + np.tril(lower, -1).T, jacobian.T))
