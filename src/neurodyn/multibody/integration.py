# SPDX-License-Identifier: Apache-2.0
r"""Semi-implicit Euler in Newton's coordinates.

$$\dot q_{t+1} = \dot q_t + dt\,\ddot q_t, \qquad q_{t+1} = q_t \oplus dt\,\dot q_{t+1}$$
"""

from collections.abc import Callable
from typing import Any

from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.vectors import array, turned

Integrator = Callable[[Tree, list[Any], list[Any], list[Any], Any], tuple[list[Any], list[Any]]]
"""From mechanism, positions, velocities, accelerations and dt to positions and velocities after a step."""


def advanced(tree: Tree, q: list[Any], qd: list[Any], acceleration: list[Any], dt: Any) -> tuple[list[Any], list[Any]]:
    """Return positions and velocities after a step.

    A free body's centre of mass moves in a straight line and its rotation by the exponential of its angular velocity.

    Args:
        tree: The mechanism.
        q: Positions; quaternions of unit length.
        qd: Velocities.
        acceleration: Time derivative of `qd`.
        dt: Length of the step [s].
    """
    after = [v + dt * a for v, a in zip(qd, acceleration, strict=True)]
    positions: list[Any] = []
    for index, link in enumerate(tree.links):
        joint, own, rate = link.joint, tree.q_of(index, q), tree.v_of(index, after)
        if joint.scalar:
            positions.append(own[0] + dt * rate[0])
        elif joint.kind == "ball":
            positions += [*turned(own, dt * array(rate))]
        else:
            quaternion = turned(own[3:], dt * array(rate[3:]))
            centre = tree.centre(index)
            arm, new_arm = (array(quaternion_matrix(turn)) @ centre for turn in (own[3:], quaternion))
            positions += [*(array(own[:3]) + (arm + dt * array(rate[:3])) - new_arm), *quaternion]
    return positions, after
