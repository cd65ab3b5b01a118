# SPDX-License-Identifier: Apache-2.0
"""How wide the input of a robot's neural dynamics is, before any data are made."""

from neurodyn.core.description.contact_points import ContactPointLayout
from neurodyn.dynamics.neural.encoding import count_inputs
from neurodyn.learn.neural.settings import load_settings
from neurodyn.robots import Robot

MANY_CONTACT_POINTS = 48
"""Contact points above which training on a CPU is slow: each gives a network 18 inputs.

ANYmal C has 44, which make 792 of its 909 inputs; a quadruped with all of its 212 points would have 4,000, more weights
in the first layer of a small network than in all others.
"""


def network_inputs(robot: Robot, layout: ContactPointLayout | None) -> int:
    """Return the number of network inputs of a robot's neural dynamics in its small size.

    Args:
        robot: The declared robot.
        layout: Its contact points; None where it has none.
    """
    settings = load_settings(robot, "small")
    return count_inputs(
        robot.spec,
        layout,
        invariant=invariant_columns(robot),
        velocity_products=settings.velocity_products,
        base=settings.base is not None,
    )


def invariant_columns(robot: Robot) -> tuple[int, ...]:
    """Return the positions that stay out of the inputs, because nothing but limits depends on them."""
    return tuple(robot.spec.q_names.index(name) for name in robot.invariant_joints)


def contact_point_advice(layout: ContactPointLayout | None) -> str | None:
    """Return what to do about too many contact points; None where there are not."""
    points = [] if layout is None else layout.contact_points
    if len(points) <= MANY_CONTACT_POINTS:
        return None
    shapes = list(dict.fromkeys(point.name.rpartition("/")[0] for point in points))
    some = ", ".join(shapes[:3])
    return (
        f"{len(points)} contact points on {len(shapes)} shapes (more than {MANY_CONTACT_POINTS} make training slow); "
        f"declare those that touch the ground: contact_points: {{shapes: [{some}, ...]}}"
    )
