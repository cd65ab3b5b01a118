# SPDX-License-Identifier: Apache-2.0
"""The nominal pose of a robot (knees bent, feet below the hips, at standing height); contact points within a budget."""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.errors import InputError
from neurodyn.multibody.link_kinematics import LinkKinematics
from neurodyn.robots import ContactPointSelection, Robot
from neurodyn.sim.articulations import Articulation
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.interface import AssetJoint
from neurodyn.sim.simulators import articulation

_FROM_LIMIT = 0.2  # margin of a nominal pose to joint limits, as a share of the joint's range
_KNEE = 0.8  # knee angle of a leg that would otherwise be straight [rad]
_STRAIGHT = 0.3
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
    Other chains keep the positions of `nominal`. `joints` are those of the asset, in the order of the layout's.
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
        if abs(float(np.dot(*(_motion(built, robot, pose).axis(joint)[0] for joint in (hip, knee))))) < 0.99:
            continue
        front = _motion(built, robot, pose).origins[0, hip, 0] >= 0
        if abs(pose[joints[knee].name]) < _STRAIGHT:
            pose[joints[knee].name] = _within(joints[knee], -_KNEE if front else _KNEE)
        feet = [index for index, point in enumerate(layout.contact_points) if point.joint == end]
        best = []
        for angle in _SEARCH:
            pose[joints[hip].name] = _within(joints[hip], float(angle))
            foot = point_positions(built, layout, full_position(robot, pose)[None])[0][feet]
            lowest = foot[np.argmin(foot[:, 2])]
            away = float(np.linalg.norm(lowest[:2] - _motion(built, robot, pose).origins[0, hip, :2]))
            best.append((round(away, 4) + 10.0 * (lowest[2] > 0), abs(angle), pose[joints[hip].name]))
        pose[joints[hip].name] = min(best)[2]
    return {name: round(value, 2) for name, value in pose.items()}


def full_position(robot: Robot, pose: dict[str, float]) -> np.ndarray:
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


@dataclass(frozen=True)
class ChosenPoints:
    """A selection of contact points."""

    selection: ContactPointSelection | None  # None if no shape can touch anything
    layout: ContactPointLayout | None  # its points on the built robot
    shapes: dict[str, str]  # the chosen shapes and the joints that move them
    left_out: int  # number of shapes


class _Shape(NamedTuple):
    name: str
    joint: int
    points: int
    size: tuple[float, ...]
    lowest: float


def choose_contact_points(robot: Robot, q: np.ndarray, budget: int = BUDGET) -> ChosenPoints:
    """Choose at most `budget` contact points of a robot that stands in the pose `q`, shape [nq]."""
    best = ChosenPoints(None, None, {}, 0)
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
    robot: Robot, layout: ContactPointLayout, shapes: list[_Shape], vertices: int, budget: int
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


def _candidates(robot: Robot, q: np.ndarray, vertices: int) -> tuple[ContactPointLayout, list[_Shape]] | None:
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


def _selection(robot: Robot, shapes: list[_Shape], chosen: list[_Shape], vertices: int) -> ChosenPoints:
    """Return a selection of shapes on the built robot."""
    names = tuple(label_pattern(shape.name) for shape in chosen)
    selection = ContactPointSelection(
        shapes=("*",) if len(names) == len(shapes) else names, vertices=vertices, distinct=True
    )
    final = msgspec.structs.replace(robot, contact_points=selection, colliders=selection.shapes)
    layout = contact_point_layout(articulation(final), final)
    joints = {shape.name: robot.joints[shape.joint].name for shape in chosen}
    return ChosenPoints(selection, layout, joints, len(shapes) - len(chosen))


def label_pattern(name: str) -> str:
    """Return a pattern for a shape's label; names shared between bodies are given as BODY/SHAPE."""
    return f"*{name}" if "/" in name else name


def _shapes(layout: ContactPointLayout, positions: np.ndarray) -> list[_Shape]:
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
        shapes.append(_Shape(name, points[0].joint, len(points), size, float(lowest)))
    return shapes


def _choose(shapes: list[_Shape], layout: ContactPointLayout, budget: int) -> tuple[list[_Shape], bool]:
    """Return the chosen shapes in order, and whether the end of every limb and the base are among them."""
    parents = {joint.parent for joint in layout.joints}
    ends = sorted({shape.joint for shape in shapes} - parents)
    feet = [min((s for s in shapes if s.joint == end), key=lambda s: s.lowest) for end in ends]
    first = min(shape.joint for shape in shapes)
    base = max((s for s in shapes if s.joint == first), key=lambda s: s.size[1:])
    groups: dict[tuple[float, ...], list[_Shape]] = {}
    for shape in shapes:
        key = (*shape.size, shape.joint in ends, shape.joint == first)
        groups.setdefault(key, []).append(shape)
    foot_names = {foot.name for foot in feet}

    def rank(group: list[_Shape]) -> tuple[int, float]:
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
