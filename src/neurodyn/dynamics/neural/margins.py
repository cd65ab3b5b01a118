# SPDX-License-Identifier: Apache-2.0
"""Constants of the contact inputs (`rigid.contacts`), as they are stored with a model."""

from neurodyn.core.config import Config
from neurodyn.core.contact_points import ProbeLayout


class ContactConfig(Config, frozen=True):
    """Constants of the contact inputs.

    Attributes:
        margins: Distance of each probe's surface from the ground at which it begins to be seen [m].
    """

    margins: tuple[float, ...]


def default_margins(layout: ProbeLayout, margin: float | None = None) -> tuple[float, ...]:
    """Return how far each probe sees [m]: four radii, at least 0.12 m, unless declared otherwise."""
    return tuple(max(4.0 * probe.radius, 0.12) if margin is None else margin for probe in layout.probes)
