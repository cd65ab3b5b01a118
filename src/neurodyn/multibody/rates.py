# SPDX-License-Identifier: Apache-2.0
"""Stiffness and damping of joints and tendons that depend on elongation and rate."""

from typing import Any

from neurodyn.multibody.articulated import Quantity
from neurodyn.multibody.trace import absolute


def polynomial(one: Any, quantity: Quantity, name: str, what: str, x: Any, *, slope: bool = False) -> Any:
    """Return k + a x + b x^2, the stiffness or damping of a joint or tendon; with `slope`, k + 2 a x + 3 b x^2.

    Args:
        one: The joint's link, or the tendon.
        quantity: Returns a quantity by name.
        name: How the names of its quantities begin.
        what: "stiffness" or "damping".
        x: Elongation, or the absolute value of a rate.
        slope: Whether to return the derivative of the force by x.
    """
    total = quantity(f"{name}.{what}") if getattr(one, what) or not curved(one, what) else 0.0
    if getattr(one, f"{what}_square"):
        total = total + (2.0 if slope else 1.0) * quantity(f"{name}.{what}_square") * x
    if getattr(one, f"{what}_cube"):
        total = total + (3.0 if slope else 1.0) * quantity(f"{name}.{what}_cube") * x * x
    return total


def damping_slope(one: Any, quantity: Quantity, name: str, rate: Any) -> Any:
    """Return minus the derivative of a damper's force by the rate of its joint or tendon."""
    return polynomial(one, quantity, name, "damping", absolute(rate) if curved(one) else rate, slope=True)


def curved(one: Any, what: str = "damping") -> bool:
    """Return whether the damping of a link's joint or of a tendon depends on its rate, or its stiffness on x."""
    return bool(getattr(one, f"{what}_square") or getattr(one, f"{what}_cube"))
