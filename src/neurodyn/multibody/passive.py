# SPDX-License-Identifier: Apache-2.0
"""Passive joint torques: damping, springs, and friction and limits, smooth where they can be."""

from typing import Any

from neurodyn.core.description.mechanism import Link
from neurodyn.multibody.articulated import Quantity
from neurodyn.multibody.trace import maximum, tanh

FRICTION_SPEED = 0.05
"""Speed at which Coulomb friction has reached 76 % of its value [rad/s or m/s]: sign(qd) becomes tanh(qd / speed)."""


def passive_torque(link: Link, quantity: Quantity, q: Any, qd: Any, *, constrained: bool = False) -> Any:
    r"""Return the torque of a joint's friction, spring and limits.

    $$\tau = -d\,\dot q - k\,(q - q_{rest}) - f \tanh(\dot q/v_0) \mp \max(k_e s \pm k_d \dot q,\ 0)$$

    with the last term beyond a limit by s > 0, which pushes and never pulls.

    Args:
        link: A link with a revolute or prismatic joint.
        quantity: Values of its quantities.
        q: Position.
        qd: Velocity.
        constrained: Whether the last two terms are left out, since friction and limits are constraints.
    """
    name = link.joint.name
    torque = -(quantity(f"{name}.damping") * qd)
    if not constrained:
        torque = torque - quantity(f"{name}.friction") * tanh(qd * (1.0 / FRICTION_SPEED))
    torque = torque - quantity(f"{name}.stiffness") * (q - quantity(f"{name}.rest"))
    if constrained:
        return torque
    ke, kd = quantity(f"{name}.limit_stiffness"), quantity(f"{name}.limit_damping")
    if link.upper is not None:
        torque = torque - _stop(q - quantity(f"{name}.upper"), qd, ke, kd)
    if link.lower is not None:
        torque = torque + _stop(quantity(f"{name}.lower") - q, -qd, ke, kd)
    return torque


def _stop(passed: Any, speed: Any, stiffness: Any, damping: Any) -> Any:
    """Return the force of a stop that has been passed by so much; the damper works on what is passed up to 1e-2."""
    depth = maximum(passed, 0.0)
    engaged = depth * 100.0
    share = engaged / (1.0 + engaged)
    return maximum(stiffness * depth + damping * share * speed, 0.0)
