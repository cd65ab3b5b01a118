# SPDX-License-Identifier: Apache-2.0
r"""Contact as a force that follows from the state: Hunt and Crossley's spring-damper with smooth friction.

Normal force at depth d with rate $\dot d$ (Hunt and Crossley 1975, "Coefficient of restitution interpreted as damping
in vibroimpact"), and friction against the sliding velocity u (Brown and McPhee 2016, "A continuous velocity-based
friction model for dynamics and control with physically meaningful parameters", without its static and viscous parts):

$$f_n = \max(k\,d^{3/2} (1 + c\,\dot d),\ 0), \qquad f_t = -\mu f_n \tanh(4 |u|/v_0)\,\frac{u}{|u|}$$
"""

from typing import Any

from neurodyn.multibody.articulated import Quantity
from neurodyn.multibody.contact_model import ContactModel, Contacts
from neurodyn.multibody.points import Touch, Wrenches, wrenches
from neurodyn.multibody.trace import maximum, safe_sqrt, tanh
from neurodyn.multibody.vectors import Vector, array, dot

NAMES = ("contact.stiffness", "contact.damping", "contact.friction", "contact.slip_speed")
"""Quantities of the model: k [N/m^1.5], c [s/m], mu, v0 [m/s]."""

DEFAULTS = {"contact.stiffness": 1e5, "contact.damping": 1.0, "contact.friction": 0.8, "contact.slip_speed": 0.05}


def normal_force(quantity: Quantity, touch: Touch) -> Any:
    """Return the size of the normal force [N]."""
    name = touch.constants
    depth = maximum(touch.depth, 0.0)
    rate = -dot(touch.normal, touch.velocity)
    spring = quantity(f"{name}.stiffness") * depth * safe_sqrt(depth)
    return maximum(spring * (1.0 + quantity(f"{name}.damping") * rate), 0.0)


def friction_force(quantity: Quantity, touch: Touch, normal: Any) -> Vector:
    """Return the friction force on the point, world axes [N]."""
    slip = touch.velocity - dot(touch.normal, touch.velocity) * array(touch.normal)
    speed = safe_sqrt(dot(slip, slip))
    name = touch.constants
    size = quantity(f"{name}.friction") * normal * tanh(4.0 * speed / quantity(f"{name}.slip_speed"))
    return -1.0 * size / speed * slip


class Force(ContactModel):
    """Contact as a force; networks may act on the normal force and the friction of each point."""

    defaults = DEFAULTS

    def forces(self, contacts: Contacts) -> Wrenches:
        """Return the wrenches on the links."""
        scope, forces = contacts.scope, []
        for touch in contacts.touched:
            normal = scope.define(f"contact.{touch.name}.normal", normal_force(scope, touch))
            friction = [
                scope.define(f"contact.{touch.name}.friction.{axis}", value)
                for axis, value in zip("xyz", friction_force(scope, touch, normal), strict=True)
            ]
            forces.append(array([normal * n + f for n, f in zip(touch.normal, friction, strict=True)]))
        return wrenches(contacts.poses, contacts.touched, forces)


FORCE = Force()
