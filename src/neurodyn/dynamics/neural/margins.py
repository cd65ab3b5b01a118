# SPDX-License-Identifier: Apache-2.0
"""Constants of the contact inputs (`geometry.contact_inputs`), as they are stored with a model."""

from neurodyn.core.config import Config
from neurodyn.core.description.contact_points import ContactPointLayout


class ContactConfig(Config, frozen=True):
    """Constants of the contact inputs.

    Attributes:
        margins: Distance of each contact point's surface from the ground at which it begins to be seen [m].
    """

    margins: tuple[float, ...]


def default_margins(layout: ContactPointLayout, margin: float | None = None) -> tuple[float, ...]:
    """Return how far each contact point sees [m]: four radii, at least 0.12 m, unless declared otherwise."""
    return tuple(
        max(4.0 * contact_point.radius, 0.12) if margin is None else margin for contact_point in layout.contact_points
    )
