# SPDX-License-Identifier: Apache-2.0
"""Random states, torques and grounds of a declared robot (float32 tensors), and clearance from the ground."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from neurodyn.core.description.contacts import ChainJoint, ContactPoint, ContactPointLayout
from neurodyn.core.description.scene import IDENTITY, Scene
from neurodyn.core.description.spec import JointSpec
from neurodyn.core.errors import InputError
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.rotation import exponential, rotate
from neurodyn.geometry.solids import Solid, solids_of_scene
from neurodyn.robots import Robot
from neurodyn.robots.sections import Interval
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.simulators import articulation

_ABOVE = 20.0
_MARCHES = 64
_CLOSE = 1e-4
_POINT = ContactPointLayout(
    joints=(
        ChainJoint(
            name="point", kind="free", parent=-1, parent_frame=IDENTITY, child_frame=IDENTITY, axis=(0.0, 0.0, 0.0)
        ),
    ),
    contact_points=(ContactPoint(name="point", joint=0, point=(0.0, 0.0, 0.0), radius=0.0),),
)


def ground_height(ground: Ground, position: Tensor) -> Tensor:
    """Return the height of the ground [m] at horizontal positions, shape [worlds, 2]; zero if no ground is in reach.

    That of an upright heightfield is looked up. Elsewhere a point descends by its distance from the ground until it
    converges, which never passes through a surface (sphere tracing: Hart, "Sphere tracing", The Visual Computer 12,
    1996). The search spans 20 m above and below zero.
    """
    from neurodyn.geometry.proximity import ProximityQuery  # imports Warp, which free space does not need

    if (field := _upright_field(ground)) is not None:
        return _height_of_field(ground, field, position)
    proximity = ProximityQuery(_POINT)
    q = torch.zeros(len(position), 7)
    q[:, :2], q[:, 2], q[:, 6] = position, _ABOVE, 1.0
    rates = torch.zeros(len(position), 6)
    for _ in range(_MARCHES):
        readings = proximity(ground, q, rates, base_frame=False)
        step = torch.where(readings.valid[:, 0], readings.distance[:, 0], torch.inf)
        q[:, 2] = (q[:, 2] - step).clamp_min(-2 * _ABOVE)
        if not (step.abs() > _CLOSE).logical_and(q[:, 2] > -_ABOVE).any():
            break
    return torch.where(q[:, 2] > -_ABOVE, q[:, 2], 0.0)


def _upright_field(ground: Ground) -> Solid | None:
    """Return the heightfield that alone makes up the ground, unless a world tilts it."""
    if ground.own or len(ground.scene.shapes) + len(ground.shared) != 1:
        return None
    solid = (*ground.shared, *solids_of_scene(ground.scene))[0]
    level = tuple(solid.pose) == (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    if solid.kind != "heightfield" or not level or (ground.pose is not None and ground.pose[:, 3:5].any()):
        return None
    return solid


@lru_cache(maxsize=4)
def _heights_of(field: Solid) -> Tensor:
    return torch.tensor(field.heights, dtype=torch.float32)


def _height_of_field(ground: Ground, field: Solid, position: Tensor) -> Tensor:
    """Return the height of an upright heightfield's triangles at positions, shape [worlds, 2]; zero beside it."""
    heights, pose = _heights_of(field), ground.poses(len(position), torch.device("cpu"), torch.float32)
    away = torch.cat([position - pose[:, :2], position.new_zeros(len(position), 1)], 1)
    away = rotate(pose[:, 3:] * pose.new_tensor([-1.0, -1.0, -1.0, 1.0]), away)[:, :2]
    last = position.new_tensor([size - 1.0 for size in heights.shape[::-1]])
    place = away / position.new_tensor(field.size[:2]) + 0.5 * last
    inside = ((place >= 0.0) & (place <= last)).all(1)  # false where a position is not a number
    place = place.where(inside[:, None], torch.zeros(()))
    cell = place.floor().minimum(last - 1.0)
    (u, v), (column, row) = (place - cell).unbind(1), cell.long().unbind(1)
    a, b, c, d = (heights[row + i, column + j] for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)))
    height = a + torch.where(u >= v, u * (b - a) + v * (d - b), v * (c - a) + u * (d - c))
    return torch.where(inside, height + pose[:, 2], 0.0)


class Clearance:
    """Measures the penetration of robots into the ground."""

    def __init__(self, layout: ContactPointLayout) -> None:
        from neurodyn.geometry.proximity import ProximityQuery

        self._proximity = ProximityQuery(layout)
        self._radius = torch.tensor([contact_point.radius for contact_point in layout.contact_points])

    def depth(self, ground: Ground, q: Tensor) -> Tensor:
        """Return the depth of each robot's deepest contact point, radius included [m]; negative above the ground.

        Positions have shape [worlds, nq].
        """
        readings = self._proximity(ground, q, torch.zeros(len(q), self._proximity.nv), base_frame=False)
        depth = torch.where(readings.valid, self._radius - readings.distance, -torch.inf)
        return depth.amax(-1)


FAR_BELOW = -100.0
"""Height of a ground that stands for its absence [m]."""


def data_scene(robot: Robot) -> Scene | None:
    """Return the scene of a robot's data; None for free space."""
    sampling = robot.ground_sampling
    scene = robot.named_ground(None if sampling is None else sampling.ground)
    return scene if scene is not None and scene.shapes else None


def sample_grounds(robot: Robot, count: int, rng: np.random.Generator) -> Tensor | None:
    """Draw poses of the ground according to the robot's `ground_sampling`.

    The scene is turned about the vertical, shifted, tilted about the point below the robot, and lifted. Poses map scene
    to world [x y z, qx qy qz qw], shape [count, 7]; None for robots in free space.
    """
    if data_scene(robot) is None:
        return None
    pose, sampling = torch.tensor(IDENTITY).repeat(count, 1), robot.ground_sampling
    if sampling is None:
        return pose
    unit = torch.from_numpy(rng.random((count, 7), dtype=np.float32))
    rotation = tilted_rotation(math.pi * (2 * unit[:, 0] - 1), 2 * math.pi * unit[:, 1], sampling.tilt * unit[:, 2])
    shift = torch.cat([sampling.extent * (2 * unit[:, 3:5] - 1), torch.zeros(count, 1)], 1)
    # Moves the scene's point `shift` below the world's origin.
    pose[:, :3] = -rotate(rotation, shift)
    pose[:, 2] += sampling.height[0] + (sampling.height[1] - sampling.height[0]) * unit[:, 5]
    pose[:, 3:] = rotation
    pose[unit[:, 6] < sampling.absent] = torch.tensor([0.0, 0.0, FAR_BELOW, 0.0, 0.0, 0.0, 1.0])
    return pose


def tilted_rotation(heading: Tensor, direction: Tensor, tilt: Tensor) -> Tensor:
    """Return quaternions of a rotation about z by `heading`, then a tilt about a horizontal axis; shape [count, 4]."""
    sine, w = torch.sin(tilt / 2), torch.cos(tilt / 2)
    x, y = torch.cos(direction) * sine, torch.sin(direction) * sine
    s, c = torch.sin(heading / 2), torch.cos(heading / 2)
    return torch.stack([x * c + y * s, y * c - x * s, w * s, w * c], 1)


CONTACT_DEPTH = 0.005
"""Maximum penetration of an initial state [m]: about that of a standing robot."""

_DRAWS = 200
_LIFTS = 20

_Draw = Callable[[int, Tensor], tuple[Tensor, Tensor]]


def sample_states(
    robot: Robot,
    count: int,
    rng: np.random.Generator,
    ground: Ground | None = None,
    layout: ContactPointLayout | None = None,
    *,
    reset: bool = False,
) -> tuple[Tensor, Tensor]:
    """Draw positions [rad or m], shape [count, nq], and velocities [rad/s or m/s], shape [count, nv].

    Args:
        robot: The declared robot.
        count: Number of states.
        rng: Source of randomness.
        ground: The ground around each state; None for free space, where heights are relative to zero.
        layout: The robot's contact points; None to extract them from a new model.
        reset: Whether to draw from the reset ranges, for evaluation, instead of the sampling ranges, for data.

    Raises:
        InputError: A range is neither declared nor implied, or a robot cannot be clear of the ground.
    """
    floor = torch.zeros(count)
    if ground is not None and not ground.scene.shapes:
        ground = None
    if ground is not None and not robot.fixed_base:
        floor = ground_height(ground, torch.zeros(count, 2))
    draw = _drawer(robot, reset, rng)
    q, qd = draw(count, floor)
    if ground is None or robot.contact_points is None:
        return q, qd
    clearance = Clearance(contact_point_layout(articulation(robot), robot) if layout is None else layout)
    left = torch.nonzero(clearance.depth(ground, q) > CONTACT_DEPTH).flatten()
    for _ in range(_DRAWS):
        if not len(left):
            return q, qd
        q[left], qd[left] = draw(len(left), floor[left])
        left = left[clearance.depth(ground.rows(left), q[left]) > CONTACT_DEPTH]
    if not robot.fixed_base and not reset:
        q[left] = _lift(clearance, ground.rows(left), q[left])
        return q, qd
    raise InputError(
        f"robot {robot.name!r}: below the ground at reset in {len(left)} of {count} worlds, after {_DRAWS} draws of "
        f"each; lower the ground, or change `{'reset' if reset else 'sampling'}`"
    )


def sample_torques(robot: Robot, count: int, frames: int, rng: np.random.Generator) -> Tensor:
    """Draw torques or forces, independent in every frame [N m or N], shape [count, frames, nu].

    For a robot with drives these are commands within the drives' ranges.
    """
    return _uniform(robot.control_intervals(), (count, frames), rng)


LONGEST_HOLD, WEAKEST = 20, 0.1
"""Maximum number of frames that a control is held, and minimum strength of a trajectory's held controls."""


def held_controls(robot: Robot, control: Tensor, rng: np.random.Generator) -> Tensor:
    """Hold controls, shape [count, frames, nu], each for 1 to `LONGEST_HOLD` frames, at a strength per trajectory.

    Controls that change in every frame hardly move a heavy robot, so such data lack the motions of policies.
    """
    count, frames, size = control.shape
    each = rng.integers(1, LONGEST_HOLD + 1, (count, 1, size))
    phase = rng.integers(0, LONGEST_HOLD, (count, 1, size))
    frame = np.arange(frames)[None, :, None]
    start = torch.from_numpy(np.maximum(frame - (frame + phase) % each, 0))
    middle = torch.tensor(robot.control_intervals(), dtype=torch.float32).mean(1)
    strength = torch.from_numpy(rng.uniform(WEAKEST, 1.0, (count, 1, 1)).astype(np.float32))
    return middle + strength * (torch.gather(control, 1, start) - middle)


def _drawer(robot: Robot, reset: bool, rng: np.random.Generator) -> _Draw:
    """Return a function that draws positions and velocities, with base heights above a floor [m], shape [count]."""
    ranges = robot.reset if reset else robot.sampling
    interval = robot.reset_interval if reset else robot.sampling_interval
    rates = [interval("qd", name) for name in robot.spec.qd_names]
    scalars = {j.name: interval("q", j.name) for j in robot.spec.joints if j.scalar}
    places = {name: robot.object_intervals(name, reset=reset) for name in robot.spec.objects}
    height = robot.sampling.height if ranges.height is None else ranges.height
    heading = interval("q", f"{robot.spec.joints[0].name}.heading")
    if not robot.fixed_base and height is None:
        raise InputError(
            f"robot {robot.name!r}: no range to draw the base's height from; declare it as "
            "sampling: {height: [lower, upper]}"
        )

    def orientation(count: int) -> Tensor:
        if ranges.rotation is not None:
            axis = normalize(torch.from_numpy(rng.standard_normal((count, 3), dtype=np.float32)), dim=-1)
            return exponential(_uniform([(0.0, ranges.rotation)], (count,), rng) * axis)
        turns = [heading, (-math.pi, math.pi), (0.0, ranges.tilt)]  # heading, direction of the tilt, tilt
        return tilted_rotation(*_uniform(turns, (count,), rng).T)

    def position(joint: JointSpec, count: int, floor: Tensor) -> Tensor:
        if joint.kind == "ball":
            quaternion = torch.from_numpy(rng.standard_normal((count, 4), dtype=np.float32))  # uniform rotations
            return quaternion / quaternion.norm(dim=1, keepdim=True)
        if joint.name in places:  # an object: upright
            drawn, still = _uniform(places[joint.name], (count,), rng), torch.zeros(count)
            return torch.cat([drawn[:, :3], tilted_rotation(drawn[:, 3], still, still)], 1)
        if joint.kind == "free":
            z = floor + _uniform([height or (0.0, 0.0)], (count,), rng)[:, 0]
            return torch.cat([torch.zeros(count, 2), z[:, None], orientation(count)], 1)
        return _uniform([scalars[joint.name]], (count,), rng)

    def draw(count: int, floor: Tensor) -> tuple[Tensor, Tensor]:
        q = torch.cat([position(joint, count, floor) for joint in robot.spec.joints], 1)
        return q, _uniform(rates, (count,), rng)

    return draw


def _lift(clearance: Clearance, ground: Ground, q: Tensor) -> Tensor:
    """Raise floating robots until no contact point penetrates the ground."""
    for _ in range(_LIFTS):
        depth = clearance.depth(ground, q)
        if not (depth > CONTACT_DEPTH).any():
            break
        q[:, 2] += torch.where(depth > CONTACT_DEPTH, 1.2 * depth, 0.0)
    return q


def _uniform(intervals: Sequence[Interval], shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    low = np.array([lower for lower, _ in intervals], dtype=np.float32)
    width = np.array([upper - lower for lower, upper in intervals], dtype=np.float32)
    unit = rng.random((*shape, len(intervals)), dtype=np.float32)
    return torch.from_numpy(low + width * unit)
