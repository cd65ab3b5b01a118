# SPDX-License-Identifier: Apache-2.0
"""Parameters of MuJoCo's soft constraints as plain data: contacts, joint limits and joint friction.

Names and defaults are MuJoCo's ("Solver parameters" in its documentation on modelling).
"""

import math
from typing import Literal

import msgspec

from neurodyn.core.config import Config
from neurodyn.core.errors import require

Cone = Literal["pyramidal", "elliptic"]
"""Friction cone: a pyramid of four edges, or the circular cone itself."""

SOLREF = ("timeconst", "dampratio")
"""Names of the numbers of solref."""

SOLIMP = ("d0", "dwidth", "width", "midpoint", "power")
"""Names of the numbers of solimp."""


class ConstraintParameters(Config, frozen=True):
    """How a constraint yields.

    Attributes:
        solref: Time constant [s] and damping ratio of the constraint as a spring and damper on a unit mass; two numbers
            of at most zero are its stiffness and damping themselves, negative [1/s^2, 1/s].
        solimp: Impedance: its value at the constraint and beyond `width` (shares, between 0 and 1), width [m or rad],
            midpoint (share of the width) and power of the curve between them.
    """

    solref: tuple[float, float] = (0.02, 1.0)
    solimp: tuple[float, float, float, float, float] = (0.9, 0.95, 0.001, 0.5, 2.0)

    def __post_init__(self) -> None:
        time, ratio = self.solref
        standard = time > 0 and ratio > 0
        valid = "a time constant [s] and a damping ratio above 0, or a stiffness and a damping, both negative"
        require((standard or (time <= 0 and ratio <= 0)) and math.isfinite(time + ratio), "solref", self.solref, valid)
        first, last, width, midpoint, power = self.solimp
        shares = all(0 < share < 1 for share in (first, last, midpoint))
        valid = "d0, dwidth and midpoint between 0 and 1, a width above 0 and a power of at least 1"
        require(shares and 0 < width < math.inf and 1 <= power < math.inf, "solimp", self.solimp, valid)


class SoftConstraints(Config, frozen=True):
    """The constraints of a mechanism.

    Attributes:
        cone: Friction cone of the contacts.
        impratio: Ratio of the impedances of friction and normal force; 1 for equal ones.
        friction: Coefficient of friction between robot and ground.
        contact: How contacts yield.
        limits: How the limits of a joint yield, by its name; MuJoCo's defaults for others.
        joint_friction: How the friction of a joint yields, by its name; MuJoCo's defaults for others.
    """

    cone: Cone = "pyramidal"
    impratio: float = 1.0
    friction: float = 1.0
    contact: ConstraintParameters = ConstraintParameters()
    limits: dict[str, ConstraintParameters] = msgspec.field(default_factory=dict)
    joint_friction: dict[str, ConstraintParameters] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        require(0 < self.impratio < math.inf, "impratio", self.impratio, "a finite number above 0")
        require(0 <= self.friction < math.inf, "friction", self.friction, "a finite number of at least 0")
