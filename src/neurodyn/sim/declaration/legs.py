# SPDX-License-Identifier: Apache-2.0
"""Legs of a robot in its nominal pose: its feet, the joints that swing them, and a pose with both soles level."""

from dataclasses import dataclass

import numpy as np

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.multibody.link_kinematics import LinkKinematics
from neurodyn.sim.articulations import Articulation, short_label

_LEVEL = 0.02
"""Height above the lowest point of a foot up to which its shapes are soles [m]."""
_SLACK = 0.05
"""Maximum height of a standing limb above the lowest point of the robot, as a share of the base's height."""
_ALONG = 0.8
"""Minimum y component of the axis of a joint that swings a leg."""
_BEND, _FROM_LIMIT, _ROUNDS = 0.5, 0.05, 12


@dataclass(frozen=True)
class FoundLegs:
    """Legs found in a robot.

    Attributes:
        feet: Labels of the sole's shapes, by name of the foot.
        ends: Joints of the feet's links, by index.
        trunk: Labels of the base's shapes.
        swing: Joints that move a foot forwards and backwards.
    """

    feet: dict[str, tuple[str, ...]]
    ends: tuple[int, ...]
    trunk: tuple[str, ...]
    swing: tuple[str, ...]


def find_legs(built: Articulation, layout: ContactPointLayout, q: np.ndarray) -> FoundLegs | str:
    """Return the legs of a robot in the pose `q`, shape [nq], or why it has none.

    A foot is the last link of a limb that reaches down to about the lowest point of the robot.
    """
    motion = built.kinematics(q[None])
    heights = _heights(motion, layout)
    lowest = {joint: min(heights[joint].values()) for joint in heights}
    ground = min(lowest.values())
    near = max(_LEVEL, _SLACK * (motion.origins[0, 0, 2] - ground))
    standing = [joint for joint, height in lowest.items() if height < ground + near]
    if 0 in standing:
        return "its base lies on the ground"
    chains = {joint: _chain(layout, joint) for joint in standing}
    standing = [joint for joint in standing if layout.joints[chains[joint][0]].parent == 0]  # not objects
    feet = [joint for joint in standing if not any(joint in chains[other][:-1] for other in standing)]
    if len(feet) < 2:
        return "fewer than two limbs reach the ground"
    soles = {joint: [name for name, at in heights[joint].items() if at < lowest[joint] + _LEVEL] for joint in feet}
    moving = {index for joint in feet for index in chains[joint]}
    swing = [index for index in sorted(moving) if _swings(motion, layout, index)] or sorted(moving)
    return FoundLegs(
        feet=_name_feet(built, soles),
        ends=tuple(feet),
        trunk=tuple(heights.get(0, {})),
        swing=tuple(layout.joints[index].name for index in swing),
    )


def _heights(motion: LinkKinematics, layout: ContactPointLayout) -> dict[int, dict[str, float]]:
    """Return the height of the lowest point of each shape [m], by joint and label."""
    heights: dict[int, dict[str, float]] = {}
    points = layout.contact_points
    places = motion.points([point.joint for point in points], np.array([point.point for point in points]))[0]
    for point, at in zip(points, places, strict=True):
        shapes, name = heights.setdefault(point.joint, {}), point.shape.partition("#")[0]
        shapes[name] = min(shapes.get(name, np.inf), float(at[2]) - point.radius)
    return heights


def _chain(layout: ContactPointLayout, end: int) -> list[int]:
    """Return the joints from the base to a link, without those of the base."""
    chain = [end]
    while layout.joints[chain[0]].parent > 0:
        chain.insert(0, layout.joints[chain[0]].parent)
    return chain


def _swings(motion: LinkKinematics, layout: ContactPointLayout, joint: int) -> bool:
    return layout.joints[joint].kind == "revolute" and abs(float(motion.axis(joint)[0, 1])) > _ALONG


def _name_feet(built: Articulation, soles: dict[int, list[str]]) -> dict[str, tuple[str, ...]]:
    """Return the soles by name: that of their only shape if the asset names it, else that of the body."""
    bodies = {joint: [short_label(shape.body) for shape in built.shapes if shape.joint == joint] for joint in soles}
    feet = {}
    for joint, shapes in soles.items():
        own = len(shapes) == 1 and not shapes[0].startswith("shape_") and "/" not in shapes[0]
        name = shapes[0] if own else bodies[joint][-1]
        feet[name if name not in feet else built.joints[joint].name] = tuple(shapes)
    return feet


def level_soles(
    built: Articulation,
    layout: ContactPointLayout,
    q: np.ndarray,
    columns: dict[str, int],
    limits: dict[str, tuple[float, float]],
) -> dict[str, float]:
    """Return joint positions of long legs (three swinging joints, as a humanoid's) with bent knees and level soles.

    The soles are as level as with all joints of the leg at zero, and the centre of mass is above their middle.

    Args:
        built: The robot.
        layout: Its contact points.
        q: Pose of the other joints, with the base upright at the origin, shape [nq].
        columns: Column in `q` of each joint with one degree of freedom.
        limits: Limits of these joints [rad or m].
    """
    zero, pose = q.copy(), {}
    for limb in {point.joint for point in layout.contact_points}:
        for name in (layout.joints[index].name for index in _chain(layout, limb) if index):
            if name in columns:
                zero[columns[name]] = np.clip(0.0, *limits[name])
    legs = find_legs(built, layout, zero)
    if isinstance(legs, str):
        return {}
    straight, q = built.kinematics(zero[None]), zero.copy()
    for end in legs.ends:
        chain = _chain(layout, end)
        pitch = [index for index in chain if _swings(straight, layout, index)]
        if len(chain) < 5 or len(pitch) < 3 or not all(layout.joints[index].name in columns for index in chain):
            continue
        knee = layout.joints[pitch[1]].name
        low, high = limits[knee]
        q[columns[knee]] = np.clip(_BEND if high > -low else -_BEND, *_within(limits[knee]))
        free = [layout.joints[index].name for index in chain if index != pitch[1]]
        q = _solve(built, straight, layout, q, end, [columns[name] for name in free], [limits[name] for name in free])
        pose |= {layout.joints[index].name: float(q[columns[layout.joints[index].name]]) for index in chain}
    return pose


def _solve(
    built: Articulation, straight: LinkKinematics, layout: ContactPointLayout, q: np.ndarray, end: int,
    free: list[int], limits: list[tuple[float, float]],
) -> np.ndarray:  # fmt: skip
    """Return `q` with free joints such that a foot is oriented as in the straight pose, below the centre of mass."""
    masses = np.array([link.mass for link in built.links])
    middle = np.mean([point.point for point in layout.contact_points if point.joint == end], 0)
    aside = straight.points([end], middle[None])[0, 0, 1]
    low, high = np.array([_within(limit) for limit in limits]).T

    def off(rows: np.ndarray) -> np.ndarray:
        motion = built.kinematics(rows)
        rotation = motion.rotations[:, end] @ straight.rotations[0, end].T
        position = motion.points([end], middle[None])[:, 0]
        com = np.einsum("l,nli->ni", masses, motion.centres) / masses.sum()
        skew = rotation - rotation.transpose(0, 2, 1)
        tilt, ahead, beside = skew[:, (2, 0, 1), (1, 2, 0)], position[:, :1] - com[:, :1], position[:, 1:2] - aside
        return np.concatenate([0.5 * tilt, ahead, beside, 0.01 * rows[:, free]], 1)

    for _ in range(_ROUNDS):
        rows = np.repeat(q[None], len(free) + 1, 0)
        rows[np.arange(1, len(free) + 1), free] += 1e-5
        residual = off(rows)
        slope = (residual[1:] - residual[0]).T / 1e-5
        step = np.linalg.lstsq(slope, -residual[0], rcond=None)[0]
        q = q.copy()
        q[free] = np.clip(q[free] + np.clip(step, -0.3, 0.3), low, high)
    return q


def _within(limits: tuple[float, float]) -> tuple[float, float]:
    low, high = limits
    slack = _FROM_LIMIT * (high - low) if np.isfinite(high - low) else 0.0
    return low + slack, high - slack
