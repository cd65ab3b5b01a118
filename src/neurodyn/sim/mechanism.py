# SPDX-License-Identifier: Apache-2.0
"""The mechanism of a robot as plain data, from the robot as its simulator built it."""

from msgspec import UNSET

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.multibody.engine import nominal
from neurodyn.robots import Robot
from neurodyn.sim.articulation import Articulation
from neurodyn.sim.contact_points import contact_point_layout, contacts_on_plane, rounded_boxes


def mechanism(built: Articulation, robot: Robot, *, every_contact: bool = False) -> Mechanism:
    """Return the tree of links of a robot as built.

    Stiffness and damping of joint limits are the model's for Featherstone, and the equivalent springs of the
    constraints for MuJoCo (`sim.articulation.limit_spring`). MuJoCo's constraint parameters are included too.

    Args:
        built: The robot as its simulator built it.
        robot: The declared robot.
        every_contact: Whether the contact points are those at which the simulator finds contacts on a plane, instead of
            the declared ones; the mechanism then has the robot's shapes too.

    Raises:
        InputError: A contact point selection matches nothing.
    """
    points, shapes = (), ()
    if robot.contact_points is not None:
        points = (contacts_on_plane if every_contact else contact_point_layout)(built, robot).contact_points
        shapes = rounded_boxes(built) if every_contact else ()
    return Mechanism(
        links=built.sprung_links,
        gravity=built.gravity,
        points=points,
        constraints=built.constraints,
        shapes=shapes,
        drives=robot.drives,
        body_contacts=robot.body_contacts,
        supports=robot.supports,
        elements=(*(robot.elements or ()), *built.elements) or UNSET,
        **built.couplings,
    )


def declared_values(built: Articulation, robot: Robot) -> tuple[Mechanism, dict[str, float]]:
    """Return the mechanism of a robot, and the declared values of its quantities and of its simulator's contacts."""
    contact = robot.simulated_contact
    tree = mechanism(built, robot, every_contact=contact == "soft")
    return tree, nominal(tree, contact)
