# SPDX-License-Identifier: Apache-2.0
r"""Friction under a body that slides on a horizontal plane, at the points of a grid under it.

At a point with the share $w_i$ of the weight $m g$ and the velocity $u_i$ along the plane, with the anisotropy a along
the world's y axis,

$$f_i = -\mu\,m g\,w_i \tanh(4 s_i/v_0)\,\frac{(u_x, a^2 u_y)}{s_i}, \qquad s_i = \sqrt{u_x^2 + a^2 u_y^2}$$

which dissipates the most work of all forces within the ellipse with half axes $\mu m g w_i$ and $a \mu m g w_i$
(Goyal, Ruina and Papadopoulos 1991, "Planar sliding with dry friction"), but for the smooth sign of Brown and McPhee.
Shares are positive whatever their parameters,

$$w_i \propto \exp\left(\frac{2\,c \cdot r_i}{\rho^2} + b \left(\frac{|r_i|^2}{\rho^2} - 1\right)\right)$$

with $r_i$ from the middle of the grid and $\rho^2$ the mean of $|r_i|^2$: c is the centre of pressure to first order, b
the excess at the rim.

Force and moment, about the middle of the grid, are quantities along the axes of the body, on which networks may act.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurodyn.core.description.body_contacts import Support
from neurodyn.multibody.articulated import LinkMotion, Tree
from neurodyn.multibody.points import LinkPose, Wrenches
from neurodyn.multibody.scope import Scope
from neurodyn.multibody.trace import exp, safe_sqrt, tanh
from neurodyn.multibody.vectors import array, cross


def support_wrenches(tree: Tree, motions: Sequence[LinkMotion], poses: Sequence[LinkPose], scope: Scope) -> Wrenches:
    """Return moment and force of the friction under all supported bodies, in the frames of their links."""
    names = [link.joint.name for link in tree.links]
    found: Wrenches = {}
    for support in tree.mechanism.supports:
        index = names.index(support.link)
        moment, force = _wrench(support, index, tree, motions[index], poses[index], scope)
        if index in found:
            moment, force = found[index][0] + moment, found[index][1] + force
        found[index] = moment, force
    return found


def _wrench(support: Support, index: int, tree: Tree, motion: LinkMotion, pose: LinkPose, scope: Scope) -> Any:
    name, places = f"support.{support.name}", np.array(support.points)
    middle = places.mean(0)
    arms = [pose.turn @ tree.in_link_frame(index, array([*map(float, place), 0.0])) for place in places]
    centre = pose.turn @ tree.in_link_frame(index, array([*map(float, middle), 0.0]))
    velocity, spin = pose.turn @ motion.velocity, pose.turn @ motion.spin
    weight = -scope("gravity.z") * scope(f"{support.link}.mass")
    most = scope(f"{name}.friction") * weight
    squared = scope(f"{name}.anisotropy") * scope(f"{name}.anisotropy")
    fast = 4.0 / scope(f"{name}.slip_speed")
    force_x: Any = 0.0
    force_y: Any = 0.0
    moment: Any = 0.0
    for share, arm in zip(_shares(support, places - middle, scope), arms, strict=True):
        u = velocity + cross(spin, arm)
        across = squared * u[1]
        speed = safe_sqrt(u[0] * u[0] + across * u[1])
        size = share * tanh(fast * speed) / speed
        x, y = size * u[0], size * across
        force_x, force_y = force_x + x, force_y + y
        moment = moment + (arm[0] - centre[0]) * y - (arm[1] - centre[1]) * x
    world = array([-1.0 * most * force_x, -1.0 * most * force_y, 0.0])
    body = tree.turned_to_body(index, pose.turn.T @ world)
    acted = [scope.define(f"{name}.force.{axis}", value) for axis, value in zip("xy", body[:2], strict=True)]
    about = tree.turned_to_body(index, pose.turn.T @ array([0.0, 0.0, -1.0 * most * moment]))
    turning = array([0.0, 0.0, scope.define(f"{name}.moment", about[2])])
    force = tree.turned_to_link(index, array([*acted, 0.0]))
    return cross(pose.turn.T @ centre, force) + tree.turned_to_link(index, turning), force


def _shares(support: Support, places: np.ndarray, scope: Scope) -> list[Any]:
    """Return the share of the weight that each point carries."""
    name, mean = f"support.{support.name}", float((places**2).sum(1).mean())
    if len(places) == 1:
        return [1.0]
    x, y, rim = (scope(f"{name}.{what}") for what in ("centre.x", "centre.y", "rim"))
    weights = [
        exp((2.0 / mean) * (float(px) * x + float(py) * y) + (float(px * px + py * py) / mean - 1.0) * rim)
        for px, py in places
    ]
    total: Any = 0.0
    for weight in weights:
        total = total + weight
    return [weight / total for weight in weights]
