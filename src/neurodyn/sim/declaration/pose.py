# SPDX-License-Identifier: Apache-2.0
"""The nominal pose of a robot: knees bent, feet below the hips, and the height at which it stands."""

from typing import Any

import numpy as np

from neurodyn.core.description.contact_points import ContactPointLayout
from neurodyn.robots import Robot
from neurodyn.sim.assets.merge import compose, rotation
from neurodyn.sim.contact_points import carriers
from neurodyn.sim.declaration.facts import AssetJoint
from neurodyn.sim.engine import import_newton

_FROM_LIMIT = 0.2  # share of a joint's range that a nominal pose stays away from its limits
_KNEE = 0.8  # bend of a leg that could as well be straight [rad]
_STRAIGHT = 0.3
_LONGEST = 4  # moving joints of a leg
_SEARCH = np.linspace(-1.6, 1.6, 161)


def rest_position(joint: AssetJoint) -> float:
    """Return zero, or what is next to it well within a joint's limits [rad or m]."""
    if joint.lower is None or joint.upper is None:
        return 0.0
    slack = _FROM_LIMIT * (joint.upper - joint.lower)
    return float(np.clip(0.0, joint.lower + slack, joint.upper - slack))


def point_positions(model: Any, robot: Robot, layout: ContactPointLayout, q: np.ndarray) -> np.ndarray:
    """Return contact points in world axes [m], shape [n, points, 3]; `q` are positions, shape [n, nq]."""
    carrier = [point.joint for point in layout.contact_points]
    places = np.array([point.point for point in layout.contact_points])
    rows = []
    for poses in _body_poses(model, robot, q):
        turns = {joint: rotation(pose) for joint, pose in poses.items()}
        origins = np.array([poses[joint][:3] for joint in carrier])
        rows.append(origins + np.einsum("pij,pj->pi", np.array([turns[joint] for joint in carrier]), places))
    return np.array(rows)


def bend_legs(
    model: Any, robot: Robot, layout: ContactPointLayout, joints: tuple[AssetJoint, ...], nominal: dict[str, float]
) -> dict[str, float]:
    """Return a nominal pose whose legs are bent, with the feet below the hips.

    A leg is a chain of at most four joints from the base to an end, the last two of which are parallel: a hip and a
    knee. Chains of another kind stay as they are.

    Args:
        model: A model of the robot.
        robot: The robot.
        layout: Its contact points.
        joints: Its joints as the asset has them.
        nominal: Positions by joint to begin with [rad or m].
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
        if abs(float(np.dot(_axis(model, robot, pose, hip), _axis(model, robot, pose, knee)))) < 0.99:
            continue
        front = _body_poses(model, robot, full_position(robot, pose)[None])[0][hip][0] >= 0
        if abs(pose[joints[knee].name]) < _STRAIGHT:
            pose[joints[knee].name] = _within(joints[knee], -_KNEE if front else _KNEE)
        feet = [index for index, point in enumerate(layout.contact_points) if point.joint == end]
        best = []
        for angle in _SEARCH:
            pose[joints[hip].name] = _within(joints[hip], float(angle))
            q = full_position(robot, pose)[None]
            foot = point_positions(model, robot, layout, q)[0][feet]
            lowest = foot[np.argmin(foot[:, 2])]
            away = float(np.linalg.norm(lowest[:2] - _body_poses(model, robot, q)[0][hip][:2]))
            best.append((round(away, 4) + 10.0 * (lowest[2] > 0), abs(angle), pose[joints[hip].name]))
        pose[joints[hip].name] = min(best)[2]
    return {name: round(value, 2) for name, value in pose.items()}


def full_position(robot: Robot, pose: dict[str, float]) -> np.ndarray:
    """Return all coordinates of a pose, the base upright at the origin, shape [nq]."""
    q: list[float] = []
    for joint in robot.joints:
        if joint.scalar:
            q.append(pose.get(joint.name, 0.0))
        else:
            q += [0.0] * (joint.nq - 1) + [1.0]
    return np.array(q)


def lowest_point(model: Any, robot: Robot, layout: ContactPointLayout, q: np.ndarray) -> np.ndarray:
    """Return the height of the lowest contact point, radius included [m], shape [n]."""
    radius = np.array([point.radius for point in layout.contact_points])
    return (point_positions(model, robot, layout, q)[..., 2] - radius).min(1)


def _within(joint: AssetJoint, value: float) -> float:
    if joint.lower is None or joint.upper is None:
        return value
    slack = 0.05 * (joint.upper - joint.lower)
    return float(np.clip(value, joint.lower + slack, joint.upper - slack))


def _axis(model: Any, robot: Robot, pose: dict[str, float], index: int) -> np.ndarray:
    """Return the axis of a joint in world axes."""
    carrier = carriers(model, robot)
    joint = next(i for i, body in enumerate(model.joint_child.numpy()) if carrier.get(int(body)) == index)
    axis = model.joint_axis.numpy()[int(model.joint_qd_start.numpy()[joint])]
    child = model.joint_X_c.numpy()[joint]
    turned = compose(_body_poses(model, robot, full_position(robot, pose)[None])[0][index], child.astype(float))
    turned[:3] = 0
    return compose(turned, np.array([*axis, 0, 0, 0, 1.0]))[:3]


def _body_poses(model: Any, robot: Robot, q: np.ndarray) -> list[dict[int, np.ndarray]]:
    """Return for each row of positions the pose of the body that each joint moves, [x y z, qx qy qz qw]."""
    state, carrier = model.state(), carriers(model, robot)
    poses = []
    for row in q:
        state.joint_q.assign(row.astype(np.float32))
        import_newton().eval_fk(model, state.joint_q, state.joint_qd, state)
        body_q = state.body_q.numpy().astype(float)
        poses.append({index: body_q[body] for body, index in carrier.items()})
    return poses
