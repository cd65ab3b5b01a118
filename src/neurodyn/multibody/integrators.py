# SPDX-License-Identifier: Apache-2.0
r"""Integrators: from a mechanism's accelerations to its state after a step.

An integrator is a function of an `IntegrationStep`. It takes the acceleration over the step, or evaluates accelerations
in other states within it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neurodyn.core.registry import Registry
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.vectors import Vector, array, cross, turn

EULER = "semi-implicit-euler"


@dataclass
class IntegrationStep:
    """One step of a mechanism.

    Attributes:
        tree: The mechanism.
        q: Positions at the start of the step, in Newton's convention [rad or m].
        qd: Velocities at the start of the step [rad/s or m/s].
        acceleration: Time derivative of `qd` over the step, with contacts, and with the damping that is implicit in it.
        dt: Length of the step [s].
        acceleration_at: Returns the time derivative of `qd` at given positions and velocities, all forces explicit;
            raises an InputError for mechanisms whose acceleration is no function of them.
    """

    tree: Tree
    q: list[Any]
    qd: list[Any]
    acceleration: list[Any]
    dt: Any
    acceleration_at: Callable[[list[Any], list[Any]], list[Any]]


Integrator = Callable[[IntegrationStep], tuple[list[Any], list[Any]]]
"""Returns positions and velocities after a step."""


def displace(tree: Tree, q: list[Any], rates: list[Any], dt: Any) -> list[Any]:
    """Return positions after a motion at constant rates over `dt` [s]; quaternions have unit length.

    A free body's reference point (`Tree.reference`) moves in a straight line; rotations follow the exponential of their
    angular velocity.
    """
    positions: list[Any] = []
    for index in range(len(tree.links)):
        positions += _displace_joint(tree, index, tree.q_of(index, q), tree.v_of(index, rates), dt)
    return positions


def _displace_joint(tree: Tree, index: int, q: list[Any], rate: list[Any], dt: Any) -> list[Any]:
    joint = tree.links[index].joint
    if joint.scalar:
        return [q[0] + dt * rate[0]]
    if joint.kind == "ball":
        return [*turn(q, dt * array(rate))]
    quaternion = turn(q[3:], dt * array(rate[3:]))
    arm, new_arm = _arms(tree, index, q, quaternion)
    return [*(array(q[:3]) + (arm + dt * array(rate[:3])) - new_arm), *quaternion]


def _arms(tree: Tree, index: int, q: list[Any], quaternion: Any) -> list[Vector]:
    """Return a free joint's reference point relative to the origin, now and after a rotation, in world axes."""
    point = tree.reference(index)
    return [array(quaternion_matrix(rotation)) @ point for rotation in (q[3:], quaternion)]


def semi_implicit_euler(step: IntegrationStep) -> tuple[list[Any], list[Any]]:
    """Change velocities first; positions follow the new ones.

    With `SoftConstraints.free_point` "origin", a free body's origin moves in a straight line instead of its reference
    point.
    """
    tree, qd, dt = step.tree, step.qd, step.dt
    after = [v + dt * a for v, a in zip(qd, step.acceleration, strict=True)]
    by_origin = tree.centripetal(step.q, qd)
    positions: list[Any] = []
    for index in range(len(tree.links)):
        own, rate = tree.q_of(index, step.q), tree.v_of(index, after)
        first = tree.v_of(index, list(range(len(qd))))[0]
        if first not in by_origin:
            positions += _displace_joint(tree, index, own, rate, dt)
            continue
        quaternion = turn(own[3:], dt * array(rate[3:]))
        now, accelerations = tree.v_of(index, qd), tree.v_of(index, step.acceleration)
        arm, new_arm = _arms(tree, index, own, quaternion)
        own_acceleration = array(accelerations[:3]) - cross(array(accelerations[3:]), arm)
        own_acceleration = own_acceleration - array([by_origin[first + axis] for axis in range(3)])
        velocity = array(now[:3]) - cross(array(now[3:]), arm) + dt * own_acceleration
        positions += [*(array(own[:3]) + dt * velocity), *quaternion]
        after[first : first + 3] = velocity + cross(array(rate[3:]), new_arm)
    return positions, after


def runge_kutta_4(step: IntegrationStep) -> tuple[list[Any], list[Any]]:
    r"""The classical Runge-Kutta method of order 4, in rotation vectors since the start of the step.

    A rotation vector $\phi$ in the outer frame changes by $\dot\phi = \omega - \frac{1}{2} \phi \times \omega +
    \frac{1}{12} \phi \times (\phi \times \omega)$ up to order 4 (Hairer, Lubich, Wanner 2006, section IV.8).
    """
    tree, dt = step.tree, step.dt
    rates, accelerations = [step.qd], [step.acceleration_at(step.q, step.qd)]
    for share in (0.5, 0.5, 1.0):
        h = share * dt
        qd = [v + h * a for v, a in zip(step.qd, accelerations[-1], strict=True)]
        at_stage = displace(tree, step.q, rates[-1], h)
        rates.append(_tangent_rates(tree, [h * x for x in rates[-1]], qd))
        accelerations.append(step.acceleration_at(at_stage, qd))
    after = [v + dt * a for v, a in zip(step.qd, _simpson(accelerations), strict=True)]
    return displace(tree, step.q, _simpson(rates), dt), after


def _simpson(stages: list[list[Any]]) -> list[Any]:
    return [(a + 2.0 * (b + c) + d) / 6.0 for a, b, c, d in zip(*stages, strict=True)]


def _tangent_rates(tree: Tree, moved: list[Any], qd: list[Any]) -> list[Any]:
    """Return the time derivative of a displacement (see `displace`) from velocities at its end."""
    rates: list[Any] = []
    for index, link in enumerate(tree.links):
        rate = tree.v_of(index, qd)
        if not link.joint.scalar:
            turn, spin = array(tree.v_of(index, moved)[-3:]), array(rate[-3:])
            across = cross(turn, spin)
            rate = [*rate[:-3], *(spin - 0.5 * across + cross(turn, across) / 12.0)]
        rates += rate
    return rates


INTEGRATORS: Registry[Integrator] = Registry("integrator", **{EULER: semi_implicit_euler, "rk4": runge_kutta_4})
"""Integrators by name."""
