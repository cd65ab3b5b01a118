# SPDX-License-Identifier: Apache-2.0
r"""Friction inside a drive, from Coulomb's law to one that depends on load and direction, in a traced step.

The largest dry friction of a motor torque $\tau_m$ against an external torque $\tau_e$ of gravity and motion is

$$F = c + |k_m \tau_m - k_e \tau_e| + e^{-|\dot q/v_s|^\alpha} \left(s + |s_m \tau_m - s_e \tau_e| + Q\right)$$

with $Q = p_e \tau_e^2$ where the motor drives the load and $Q = p_m \tau_m^2$ where the load drives the motor
($\tau_m \tau_e < 0$, by which is greater), else 0. These are the laws M1 to M6 of Duclusaud, Passault, Padois and Ly
(2025, "Extended friction models for the physics simulation of servo actuators", arXiv:2410.08650): M1 is c alone with
viscous friction, M2 adds s, M3 and M4 have $k_m = k_e$ and $s_m = s_e$, M5 different ones, M6 adds Q.
"""

from typing import Any

from msgspec import UNSET

from neurodyn.core.description.drive import Drive, Number
from neurodyn.multibody.trace import absolute, exp, log, select_less, tanh

FRICTION_SPEED = 0.05
"""Speed v0 of smooth Coulomb friction, tanh(qd / v0) for sign(qd); friction is at 76 % there [rad/s or m/s]."""
_REST = 1e-9


def dry_friction(drive: Drive, number: Number, qd: Any, motor: Any, load: Any) -> Any:
    """Return the largest dry friction of a drive at a speed [N m].

    Args:
        drive: The drive.
        number: Looks up its parameters by name.
        qd: Speed [rad/s].
        motor: Torque of the motor [N m].
        load: Torque of gravity and motion on the joint [N m]; None if unknown: what the motor holds.
    """
    motion = absolute(qd / number("stribeck_speed"))
    if drive.stribeck_exponent is UNSET:
        rest = exp(-(motion * motion))
    else:
        rest = exp(-exp(number("stribeck_exponent") * log(motion + _REST)))
    dry = number("coulomb") + number("stribeck") * rest
    if not drive.loaded:
        return dry
    load = -motor if load is None else load

    def share(prefix: str) -> Any:
        by_motor, by_load = (_or_zero(drive, number, f"{prefix}load_{side}") for side in ("motor", "external"))
        if getattr(drive, f"{prefix}load_external") is UNSET:
            by_load = by_motor
        return absolute(by_motor * motor - by_load * load)

    square = 0.0
    if drive.square_load_motor is not UNSET or drive.square_load_external is not UNSET:
        driving = _or_zero(drive, number, "square_load_external") * load * load
        driven = _or_zero(drive, number, "square_load_motor") * motor * motor
        larger = select_less(absolute(load), absolute(motor), driving, driven)
        square = select_less(motor * load, 0.0, larger, 0.0)
    return dry + share("") + rest * (share("stribeck_") + square)


def _or_zero(drive: Drive, number: Number, name: str) -> Any:
    return 0.0 if getattr(drive, name) is UNSET else number(name)


def smooth_friction(dry: Any, qd: Any) -> Any:
    """Return dry friction as a smooth function of speed, which creeps where real friction sticks."""
    return dry * tanh(qd * (1.0 / FRICTION_SPEED))
