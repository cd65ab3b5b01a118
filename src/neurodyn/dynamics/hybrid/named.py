# SPDX-License-Identifier: Apache-2.0
"""All that has a name in a step of a robot's dynamics: what is identified, acted on by networks, or seen by them."""

from typing import Literal

from neurodyn.core.config import Config
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.multibody.engine import nominal

Role = Literal["parameter", "computed", "seen"]
_SEEN = ("q", "qd", "control", "velocity", "spin")


class Quantity(Config, frozen=True):
    """One named quantity.

    Attributes:
        name: Its name, as blueprints and `--parameters` have it.
        role: "parameter": a number of the robot, which can be identified, and made to depend on others by a network.
            "computed": follows in the course of a step, and a network can add to it, scale it, or take its place.
            "seen": can be an input of a network, no more.
        value: Nominal value of a parameter (SI units); None of others.
    """

    name: str
    role: Role
    value: float | None = None


def list_quantities(dynamics: HybridDynamics) -> list[Quantity]:
    """Return the quantities of a robot's dynamics in the order in which a step makes use of them."""
    values = nominal(dynamics.mechanism, dynamics.config.contact)
    found = []
    for name in dynamics.names:
        role: Role = "parameter" if name in values else "seen" if name.split(".")[0] in _SEEN else "computed"
        found.append(Quantity(name=name, role=role, value=float(values[name]) if name in values else None))
    return found
