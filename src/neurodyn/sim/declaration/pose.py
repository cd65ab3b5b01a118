# SPDX-License-Identifier: Apache-2.0
"""The nominal pose of a robot (knees bent, feet below the hips), its legs, and contact points within a budget."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.errors import InputError
from neurodyn.multibody.link_kinematics import LinkKinematics
from neurodyn.robots import ContactPointSelection, Robot
from neurodyn.robots.sections import matching
from neurodyn.sim.articulations import Articulation, short_label
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.interface import AssetJoint
from neurodyn.sim.simulators import articulation

_FROM_LIMIT = 0.2  # margin of a nominal pose to joint limits, as a share of the joint's range
_KNEE = 0.8  # knee angle of a leg that would otherwise be straight [rad]
_STRAIGHT = 0.3  # largest angle between thigh and shank of a straight leg [rad]
_BESIDE = 0.3  # least horizontal way from hip to foot of a leg that stands beside the body, as a share of its length
_LONGEST = 4  # moving joints of a leg
_SEARCH = np.linspace(-1.6, 1.6, 161)


def rest_position(joint: AssetJoint) -> float:
    """Return the position closest to zero with a margin to the joint's limits [rad or m]."""
    if joint.lower is None or joint.upper is None:
        return 0.0
    slack = _FROM_LIMIT * (joint.upper - joint.lower)
    return float(np.clip(0.0, joint.lower + slack, joint.upper - slack))


def point_positions(built: Articulation, layout: ContactPointLayout, q: np.ndarray) -> np.ndarray:
    """Return contact points in world axes [m], shape [n, points, 3]; `q` are positions, shape [n, nq]."""
    points = layout.contact_points
    return built.kinematics(q).points([one.joint for one in points], np.array([one.point for one in points]))


def bend_legs(
    built: Articulation,
    robot: Robot,
    layout: ContactPointLayout,
    joints: tuple[AssetJoint, ...],
    nominal: dict[str, float],
) -> dict[str, float]:
    """Return a nominal pose by joint [rad or m] with bent legs and the feet below the hips.

    A leg is a chain of at most four joints from the base to a foot, whose last two (hip and knee) have parallel axes.
    Legs that stand beside the body, as an insect's, keep their hips, and have shanks that point down if they would be
    straight. Other chains keep the positions of `nominal`. `joints` are those of the asset, in the order of the
    layout's.
    """
    parents = [joint.parent for joint in layout.joints]
    pose = dict(nominal)
    for end in sorted({point.joint for point in layout.contact_points} - set(parents)):
        chain = [end]
        while parents[chain[0]] > 0:
            chain.insert(0, parents[chain[0]])
        if not 2 <= len(chain) <= _LONGEST or any(layout.joints[index].kind != "revolute" for index in chain):
            continue
        hip, knee = chain[-2:]
        motion = _motion(built, robot, pose)
        if abs(float(np.dot(*(motion.axis(joint)[0] for joint in (hip, knee))))) < 0.99:
            continue
        feet = [index for index, point in enumerate(layout.contact_points) if point.joint == end]
        thigh, shank = _leg(motion, hip, knee, _lowest(built, robot, layout, pose, feet))
        cosine = float(thigh @ shank) / max(float(np.linalg.norm(thigh) * np.linalg.norm(shank)), 1e-9)
        straight = cosine > math.cos(_STRAIGHT)
        beside = np.linalg.norm((thigh + shank)[:2]) > _BESIDE * (np.linalg.norm(thigh) + np.linalg.norm(shank))
        if beside and abs(motion.axis(knee)[0, 1]) < _ALONG:
            if straight:
                _set(pose, joints[knee], lambda pose=pose, feet=feet: _lowest(built, robot, layout, pose, feet)[2])
            continue
        if straight:
            front = motion.origins[0, hip, 0] >= 0
            pose[joints[knee].name] = _within(joints[knee], -_KNEE if front else _KNEE)

        def away(pose: dict[str, float] = pose, feet: list[int] = feet, hip: int = hip) -> float:
            foot = _lowest(built, robot, layout, pose, feet)
            off = float(np.linalg.norm(foot[:2] - _motion(built, robot, pose).origins[0, hip, :2]))
            return round(off, 4) + 10.0 * (foot[2] > 0)

        _set(pose, joints[hip], away)
    return {name: round(value, 2) for name, value in pose.items()}


def _set(pose: dict[str, float], joint: AssetJoint, cost: Callable[[], float]) -> None:
    """Set a joint of a pose to the position of least cost, which reads the pose; to the smallest of equal ones."""
    costs = []
    for angle in _SEARCH:
        pose[joint.name] = _within(joint, float(angle))
        costs.append((cost(), abs(angle), pose[joint.name]))
    pose[joint.name] = min(costs)[2]


def _lowest(
    built: Articulation, robot: Robot, layout: ContactPointLayout, pose: Mapping[str, float], points: Sequence[int]
) -> np.ndarray:
    """Return the lowest of some contact points [m], shape [3]."""
    places = point_positions(built, layout, full_position(robot, pose)[None])[0][points]
    return places[np.argmin(places[:, 2])]


def _leg(motion: LinkKinematics, hip: int, knee: int, foot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return thigh and shank in the plane in which the hip moves them [m], each of shape [3]."""
    axis = motion.axis(hip)[0]
    thigh, shank = motion.origins[0, knee] - motion.origins[0, hip], foot - motion.origins[0, knee]
    return thigh - (thigh @ axis) * axis, shank - (shank @ axis) * axis


def full_position(robot: Robot, pose: Mapping[str, float]) -> np.ndarray:
    """Return all coordinates of a pose, with the base upright at the origin, shape [nq]."""
    q: list[float] = []
    for joint in robot.joints:
        if joint.scalar:
            q.append(pose.get(joint.name, 0.0))
        else:
            q += [0.0] * (joint.nq - 1) + [1.0]
    return np.array(q)


def lowest_point(built: Articulation, layout: ContactPointLayout, q: np.ndarray) -> np.ndarray:
    """Return the height of the lowest contact point, radius included [m], shape [n]."""
    radius = np.array([point.radius for point in layout.contact_points])
    return (point_positions(built, layout, q)[..., 2] - radius).min(1)


def standing_height(robot: Robot) -> float:
    """Return the height of an upright floating base on the ground in the nominal pose [m]; 0 without contact points."""
    if robot.contact_points is None:
        return 0.0
    built = articulation(robot)
    layout = contact_point_layout(built, robot)
    return -float(lowest_point(built, layout, full_position(robot, robot.nominal)[None])[0])


def foot_places(robot: Robot) -> np.ndarray:
    """Return the middles of the feet in the nominal pose, with the base upright at the origin [m], shape [feet, 3]."""
    assert robot.legs is not None
    built = articulation(robot)
    layout = contact_point_layout(built, robot)
    at = point_positions(built, layout, full_position(robot, robot.nominal)[None])[0]
    shapes = [point.name.rpartition("/")[0] for point in layout.contact_points]
    return np.stack([
        at[[matching(shape, robot.contacts[foot]) for shape in shapes]].mean(0) for foot in robot.legs.feet
    ])  # fmt: skip


def _within(joint: AssetJoint, value: float) -> float:
    if joint.lower is None or joint.upper is None:
        return value
    slack = 0.05 * (joint.upper - joint.lower)
    return float(np.clip(value, joint.lower + slack, joint.upper - slack))


def _motion(built: Articulation, robot: Robot, pose: dict[str, float]) -> LinkKinematics:
    return built.kinematics(full_position(robot, pose)[None])


BUDGET = 44
"""Default maximum of contact points: four feet, four shanks of eight corners, and a trunk."""

_VERTICES = (16, 8, 4)


class CandidateShape(NamedTuple):
    """A shape that could touch a ground."""

    name: str
    joint: int
    points: int
    size: tuple[float, ...]
    lowest: float


@dataclass(frozen=True)
class ChosenPoints:
    """A selection of contact points."""

    selection: ContactPointSelection | None  # None if no shape can touch anything
    layout: ContactPointLayout | None  # its points on the built robot
    shapes: dict[str, str]  # the chosen shapes and the joints that move them
    kept: tuple[CandidateShape, ...] = ()  # the chosen shapes
    rest: tuple[CandidateShape, ...] = ()  # the others

    def with_soles(self, ends: Collection[int]) -> tuple[int, int]:
        """Return how many shapes the soles of feet lack, and how many points there would be with them.

        `ends` are the joints of the feet's links, by index.
        """
        lowest = {joint: min(shape.lowest for shape in self.kept if shape.joint == joint) for joint in ends}
        lacking = [shape for shape in self.rest if shape.lowest < lowest.get(shape.joint, -math.inf) + _LEVEL]
        return len(lacking), sum(shape.points for shape in (*self.kept, *lacking))


def choose_contact_points(robot: Robot, q: np.ndarray, budget: int = BUDGET) -> ChosenPoints:
    """Choose at most `budget` contact points of a robot that stands in the pose `q`, shape [nq]."""
    best = ChosenPoints(None, None, {})
    for vertices in _VERTICES:
        candidates = _candidates(robot, q, vertices)
        if candidates is None:
            break
        points, complete = _fitting(robot, *candidates, vertices, budget)
        if best.layout is None or _points(points) < _points(best):
            best = points
        if complete:
            break
    return best


def _points(chosen: ChosenPoints) -> int:
    return 0 if chosen.layout is None else len(chosen.layout.contact_points)


def _fitting(
    robot: Robot, layout: ContactPointLayout, shapes: list[CandidateShape], vertices: int, budget: int
) -> tuple[ChosenPoints, bool]:
    """Return a selection within the budget, and whether it includes the end of every limb and the base.

    A point inside a sphere is redundant only if the sphere is chosen too, so a selection may have more points than its
    shapes have among all shapes.
    """
    allowed = budget
    while True:
        chosen, complete = _choose(shapes, layout, allowed)
        result = _selection(robot, shapes, chosen, vertices)
        assert result.layout is not None
        excess = len(result.layout.contact_points) - budget
        if excess <= 0 or allowed == 0:
            return result, complete and excess <= 0
        allowed = max(0, allowed - excess)


def _candidates(robot: Robot, q: np.ndarray, vertices: int) -> tuple[ContactPointLayout, list[CandidateShape]] | None:
    """Return all shapes that could touch a ground; None if there are none."""
    whole = msgspec.structs.replace(
        robot, contact_points=ContactPointSelection(vertices=vertices, distinct=True), colliders=("*",)
    )
    try:
        built = articulation(whole)
        layout = contact_point_layout(built, whole)
    except InputError as error:
        if "match no collision shape" in str(error):
            return None
        raise
    return layout, _shapes(layout, point_positions(built, layout, q[None])[0])


def _selection(robot: Robot, shapes: list[CandidateShape], chosen: list[CandidateShape], vertices: int) -> ChosenPoints:
    names = tuple(label_pattern(shape.name) for shape in chosen)
    selection = ContactPointSelection(
        shapes=("*",) if len(names) == len(shapes) else names, vertices=vertices, distinct=True
    )
    final = msgspec.structs.replace(robot, contact_points=selection, colliders=selection.shapes)
    layout = contact_point_layout(articulation(final), final)
    joints = {shape.name: robot.joints[shape.joint].name for shape in chosen}
    rest = tuple(shape for shape in shapes if shape not in chosen)
    return ChosenPoints(selection, layout, joints, tuple(chosen), rest)


def label_pattern(name: str) -> str:
    """Return a pattern for a shape's label; names shared between bodies are given as BODY/SHAPE."""
    return f"*{name}" if "/" in name else name


def _shapes(layout: ContactPointLayout, positions: np.ndarray) -> list[CandidateShape]:
    """Return the shapes of a layout; `positions` are its points in the world [m], shape [points, 3]."""
    by_name: dict[str, list[int]] = {}
    for index, point in enumerate(layout.contact_points):
        by_name.setdefault(point.name.rpartition("/")[0].partition("#")[0], []).append(index)
    shapes = []
    for name, indices in by_name.items():
        points = [layout.contact_points[index] for index in indices]
        places = np.array([point.point for point in points])
        spread = np.linalg.norm(places - places.mean(0), axis=1)
        size = (len(points), round(float(spread.max()), 3), round(max(point.radius for point in points), 4))
        lowest = min(positions[index, 2] - layout.contact_points[index].radius for index in indices)
        shapes.append(CandidateShape(name, points[0].joint, len(points), size, float(lowest)))
    return shapes


def _choose(shapes: list[CandidateShape], layout: ContactPointLayout, budget: int) -> tuple[list[CandidateShape], bool]:
    """Return the chosen shapes in order, and whether the end of every limb and the base are among them."""
    parents = {joint.parent for joint in layout.joints}
    ends = sorted({shape.joint for shape in shapes} - parents)
    feet = [min((s for s in shapes if s.joint == end), key=lambda s: s.lowest) for end in ends]
    first = min(shape.joint for shape in shapes)
    base = max((s for s in shapes if s.joint == first), key=lambda s: s.size[1:])
    groups: dict[tuple[float, ...], list[CandidateShape]] = {}
    for shape in shapes:
        key = (*shape.size, shape.joint in ends, shape.joint == first)
        groups.setdefault(key, []).append(shape)
    foot_names = {foot.name for foot in feet}

    def rank(group: list[CandidateShape]) -> tuple[int, float]:
        names = {shape.name for shape in group}
        importance = 0 if names & foot_names else 1 if base.name in names else 2
        return importance, min(shape.lowest for shape in group)

    # A limb without contact points at its end would sink into the ground, so these may exceed the budget.
    chosen = set(foot_names)
    used = sum(foot.points for foot in feet)
    for group in sorted(groups.values(), key=rank):
        for part in (group, [shape for shape in group if shape is base]):
            more = sum(shape.points for shape in part if shape.name not in chosen)
            if used + more <= budget:
                chosen |= {shape.name for shape in part}
                used += more
                break
    return [shape for shape in shapes if shape.name in chosen], base.name in chosen and used <= budget


_LEVEL = 0.02
"""Height above the lowest point of a foot up to which its shapes are soles [m]."""
_SLACK = 0.05
"""Maximum height of a standing limb above the lowest point of the robot, as a share of the base's height."""
_ALONG = 0.8
"""Minimum y component of the axis of a joint that swings a leg."""
_BEND, _LIMIT_SHARE, _ROUNDS = 0.5, 0.05, 12


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
    heights = _shape_heights(motion, layout)
    lowest = {joint: min(heights[joint].values()) for joint in heights}
    ground = min(lowest.values())
    near = max(_LEVEL, _SLACK * (motion.origins[0, 0, 2] - ground))
    standing = [joint for joint, height in lowest.items() if height < ground + near]
    if 0 in standing:
        return "its base lies on the ground"
    chains = {joint: _chain_to(layout, joint) for joint in standing}
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


def _shape_heights(motion: LinkKinematics, layout: ContactPointLayout) -> dict[int, dict[str, float]]:
    """Return the height of the lowest point of each shape [m], by joint and label."""
    heights: dict[int, dict[str, float]] = {}
    points = layout.contact_points
    places = motion.points([point.joint for point in points], np.array([point.point for point in points]))[0]
    for point, at in zip(points, places, strict=True):
        shapes, name = heights.setdefault(point.joint, {}), point.shape.partition("#")[0]
        shapes[name] = min(shapes.get(name, np.inf), float(at[2]) - point.radius)
    return heights


def _chain_to(layout: ContactPointLayout, end: int) -> list[int]:
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
        for name in (layout.joints[index].name for index in _chain_to(layout, limb) if index):
            if name in columns:
                zero[columns[name]] = np.clip(0.0, *limits[name])
    legs = find_legs(built, layout, zero)
    if isinstance(legs, str):
        return {}
    straight, q = built.kinematics(zero[None]), zero.copy()
    for end in legs.ends:
        chain = _chain_to(layout, end)
        pitch = [index for index in chain if _swings(straight, layout, index)]
        if len(chain) < 5 or len(pitch) < 3 or not all(layout.joints[index].name in columns for index in chain):
            continue
        knee = layout.joints[pitch[1]].name
        low, high = limits[knee]
        q[columns[knee]] = np.clip(_BEND if high > -low else -_BEND, *_clear_of_limits(limits[knee]))
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
    low, high = np.array([_clear_of_limits(limit) for limit in limits]).T

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


def _clear_of_limits(limits: tuple[float, float]) -> tuple[float, float]:
    low, high = limits
    slack = _LIMIT_SHARE * (high - low) if np.isfinite(high - low) else 0.0
    return low + slack, high - slack
