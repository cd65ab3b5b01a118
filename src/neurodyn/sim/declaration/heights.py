# SPDX-License-Identifier: Apache-2.0
"""Sliding joints that lift a robot or an object above its ground, and joints that their damping holds."""

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.robots import Robot
from neurodyn.sim.articulations import Articulation
from neurodyn.sim.declaration.pose import full_position, lowest_point
from neurodyn.sim.interface import AssetJoint
from neurodyn.sim.simulators import articulation

_WEIGHTS = 100.0
"""Largest force of a joint's damping in data, in weights of the robot (at an arm of 1 m for torques)."""
_HELD = 1e-3
"""Speed below which a joint counts as held [rad/s or m/s]."""
_POSES = 200


def damped_speeds(robot: Robot) -> dict[str, float]:
    """Return the speeds at which the damping of joints takes `_WEIGHTS` weights [rad/s or m/s], by joint.

    Some assets hold a joint by a damping of 1e11 N s/m. It stops within far less than a step, with accelerations at
    which MuJoCo resets the simulation.
    """
    built = articulation(robot)
    force = _WEIGHTS * 9.81 * built.mass
    return {link.joint.name: float(f"{force / link.damping:.2g}") for link in built.links if link.damping > 0.0}


def held_by_damping(speeds: Mapping[str, float]) -> set[str]:
    """Return the joints that their damping holds in place, of `damped_speeds`."""
    return {name for name, speed in speeds.items() if speed < _HELD}


def lifting_joints(joints: Sequence[AssetJoint], layout: ContactPointLayout, held: Collection[str]) -> dict[str, bool]:
    """Return the unlimited vertical slides that no other lifts, and whether each carries most joints: the robot's own.

    `joints` are those of the layout, in its order; `held` ones lift nothing.
    """
    lifts: dict[str, bool] = {}
    for index, (joint, chain) in enumerate(zip(joints, layout.joints, strict=True)):
        vertical = joint.kind == "prismatic" and joint.lower is None and abs(chain.axis[2]) > 0.99
        if vertical and joint.name not in held and not any(name in lifts for name in _above(layout, index)):
            lifts[joint.name] = 2 * len(_joints_above(layout, joint.name)) >= len(joints)
    return lifts


def clear_heights(
    robot: Robot, layout: ContactPointLayout, ranges: dict[str, list[float]], floor: float, *, tilt: float = 0.0,
    lift: str | None = None,
) -> np.ndarray:  # fmt: skip
    """Return heights of a floating base [m], or positions of a lift, at which random poses are clear, shape [poses].

    Args:
        robot: The robot.
        layout: Its contact points; of a lift, those that it carries count.
        ranges: Range of each joint's position.
        floor: Height of the floor below a fixed base [m].
        tilt: Largest tilt of a floating base [rad].
        lift: The joint that lifts; None for a floating base.
    """
    rng, built = np.random.default_rng(0), articulation(robot)
    rows = []
    for _ in range(_POSES):
        pose = {name: rng.uniform(low, high) for name, (low, high) in ranges.items()}
        if lift is not None:
            pose[lift] = 0.0
        q = full_position(robot, pose)
        if lift is None:
            angle, heading = rng.uniform(0, tilt), rng.uniform(0, 2 * math.pi)
            half = math.sin(angle / 2)
            q[3:7] = [half * math.cos(heading), half * math.sin(heading), 0.0, math.cos(angle / 2)]
        rows.append(q)
    return floor - _lowest(built, layout, lift, np.array(rows))


def _lowest(built: Articulation, layout: ContactPointLayout, lift: str | None, q: np.ndarray) -> np.ndarray:
    if lift is not None:
        carried = _joints_above(layout, lift)
        points = tuple(point for point in layout.contact_points if point.joint in carried)
        layout = msgspec.structs.replace(layout, contact_points=points)
    return lowest_point(built, layout, q) if layout.contact_points else np.zeros(len(q))


def _above(layout: ContactPointLayout, index: int) -> list[str]:
    """Return the joints on which a joint hangs, from the next one up."""
    names = []
    while (index := layout.joints[index].parent) >= 0:
        names.append(layout.joints[index].name)
    return names


def _joints_above(layout: ContactPointLayout, lift: str) -> set[int]:
    """Return the indices of a joint and of those that hang on it."""
    return {index for index, chain in enumerate(layout.joints) if chain.name == lift or lift in _above(layout, index)}
