# SPDX-License-Identifier: Apache-2.0
"""A camera for pictures, and how one is placed so that it sees everything."""

from dataclasses import dataclass
from typing import Any

import numpy as np

FIELD_OF_VIEW = 0.6  # vertical [rad]
_MARGIN = 1.12
_NEAREST = 0.1  # [m]


@dataclass(frozen=True)
class Camera:
    """A camera.

    Attributes:
        eye: Position [m], world axes, shape [3].
        target: Point in the middle of the picture [m], world axes, shape [3].
        field_of_view: Vertical field of view [rad].
    """

    eye: np.ndarray
    target: np.ndarray
    field_of_view: float = FIELD_OF_VIEW


def fit_camera(points: np.ndarray, forward: np.ndarray, aspect: float) -> Camera:
    """Return the nearest camera that looks along `forward` and has all points in its picture.

    Args:
        points: What must be seen [m], world axes, shape [n, 3].
        forward: Direction of view, world axes, unit length, shape [3].
        aspect: Width of the picture over its height.
    """
    right, up = _right_and_up(forward)
    across, above, ahead = points @ right, points @ up, points @ forward
    middle = [(x.min() + x.max()) / 2 for x in (across, above, ahead)]
    target = middle[0] * right + middle[1] * up + middle[2] * forward
    slope = np.tan(FIELD_OF_VIEW / 2) / _MARGIN
    needed = np.maximum(abs(across - middle[0]) / (slope * aspect), abs(above - middle[1]) / slope)
    distance = max(float((needed - (ahead - middle[2])).max()), _NEAREST)
    return Camera(eye=target - distance * forward, target=target)


def camera_pose(camera: Camera) -> Any:
    """Return the Warp transform of a camera that looks along its own -z axis, +y up."""
    import warp as wp

    forward = np.asarray(camera.target, float) - np.asarray(camera.eye, float)
    forward = forward / max(float(np.linalg.norm(forward)), 1e-12)
    right, up = _right_and_up(forward)
    axes: Any = wp.mat33(*np.stack([right, up, -forward], axis=1).ravel().tolist())
    return wp.transform(wp.vec3(*map(float, camera.eye)), wp.quat_from_matrix(axes))


def _right_and_up(forward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    right = np.cross(forward, [0.0, 0.0, 1.0])
    length = np.linalg.norm(right)
    right = np.array([1.0, 0.0, 0.0]) if length < 1e-9 else right / length
    return right, np.cross(right, forward)
