# SPDX-License-Identifier: Apache-2.0
"""Contact points within a budget: the ends of limbs first, then the base, then what hangs lowest.

Every contact point adds inputs to a network, and few of a robot's shapes ever touch a ground. Shapes of one kind and
size (the feet; the shanks) are taken together or not at all, so that a selection is as symmetric as the robot.
"""

from dataclasses import dataclass

import msgspec
import numpy as np

from neurodyn.core.description.contact_points import ContactPointLayout
from neurodyn.core.errors import InputError
from neurodyn.robots import ContactPointSelection, Robot
from neurodyn.sim.build import build
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.declaration.pose import point_positions

BUDGET = 44
"""Most contact points that a selection has; four feet, four shanks of eight corners, and a trunk."""

_VERTICES = (16, 8, 4)


@dataclass(frozen=True)
class ChosenPoints:
    """A selection of contact points.

    Attributes:
        selection: For the declaration; None where no shape can touch anything.
        layout: Its points on the built robot.
        shapes: The chosen shapes and the joints that move them.
        left_out: Number of shapes that are left out.
    """

    selection: ContactPointSelection | None
    layout: ContactPointLayout | None
    shapes: dict[str, str]
    left_out: int


@dataclass(frozen=True)
class _Shape:
    name: str
    joint: int
    count: int
    size: tuple[float, ...]
    lowest: float


def choose_contact_points(robot: Robot, q: np.ndarray, budget: int = BUDGET) -> ChosenPoints:
    """Choose the contact points of a robot.

    Args:
        robot: The robot without contact points.
        q: The pose in which it stands, shape [nq].
        budget: Most points.
    """
    best = ChosenPoints(None, None, {}, 0)
    for vertices in _VERTICES:
        candidates = _candidates(robot, q, vertices)
        if candidates is None:
            break
        found, complete = _fitting(robot, *candidates, vertices, budget)
        if best.layout is None or _points(found) < _points(best):
            best = found
        if complete:
            break
    return best


def _points(chosen: ChosenPoints) -> int:
    return 0 if chosen.layout is None else len(chosen.layout.contact_points)


def _fitting(
    robot: Robot, layout: ContactPointLayout, shapes: list[_Shape], vertices: int, budget: int
) -> tuple[ChosenPoints, bool]:
    """Return a selection within the budget, and whether it has all ends of limbs and the base.

    A point within a sphere is redundant only as long as the sphere is chosen, too, so that a selection may have more
    points than its shapes have among all.
    """
    allowed = budget
    while True:
        chosen, complete = _choose(shapes, layout, allowed)
        result = _chosen(robot, shapes, chosen, vertices)
        assert result.layout is not None
        excess = len(result.layout.contact_points) - budget
        if excess <= 0 or allowed == 0:
            return result, complete and excess <= 0
        allowed = max(0, allowed - excess)


def _candidates(robot: Robot, q: np.ndarray, vertices: int) -> tuple[ContactPointLayout, list[_Shape]] | None:
    """Return all shapes that could touch a ground; None where there is none."""
    whole = msgspec.structs.replace(
        robot, contact_points=ContactPointSelection(vertices=vertices, distinct=True), colliders=("*",)
    )
    try:
        model = build(whole)
        layout = contact_point_layout(model, whole)
    except InputError as error:
        if "match no collision shape" in str(error):
            return None
        raise
    return layout, _shapes(layout, point_positions(model, whole, layout, q[None])[0])


def _chosen(robot: Robot, shapes: list[_Shape], chosen: list[_Shape], vertices: int) -> ChosenPoints:
    """Return a selection of shapes as a robot has it."""
    names = tuple(_pattern(shape.name) for shape in chosen)
    selection = ContactPointSelection(
        shapes=("*",) if len(names) == len(shapes) else names, vertices=vertices, distinct=True
    )
    final = msgspec.structs.replace(robot, contact_points=selection, colliders=selection.shapes)
    layout = contact_point_layout(build(final), final)
    joints = {shape.name: robot.joints[shape.joint].name for shape in chosen}
    return ChosenPoints(selection, layout, joints, len(shapes) - len(chosen))


def _pattern(name: str) -> str:
    """Return a pattern of a shape's label: names that bodies share come as BODY/SHAPE."""
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
    """Return chosen shapes in their order, and whether all ends of limbs and the base are among them."""
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

    # A limb without its end would sink into the ground, so that ends are chosen beyond the budget, too.
    chosen = set(foot_names)
    used = sum(foot.count for foot in feet)
    for group in sorted(groups.values(), key=rank):
        for part in (group, [shape for shape in group if shape is base]):
            more = sum(shape.count for shape in part if shape.name not in chosen)
            if used + more <= budget:
                chosen |= {shape.name for shape in part}
                used += more
                break
    return [shape for shape in shapes if shape.name in chosen], base.name in chosen and used <= budget
