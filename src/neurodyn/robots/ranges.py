# SPDX-License-Identifier: Apache-2.0
"""The ranges that a robot's data are meant to cover."""

from typing import Literal

from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.robots import load

_Field = Literal["q", "qd", "control"]


def declared_ranges(spec: StateSpec) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the sampling range of each coordinate of "q", "qd" and "control" that the robot of `spec` declares.

    Empty where the robot is not one that ships with the package; without the coordinates that have no range.
    """
    try:
        robot = load(spec.robot)
    except InputError:
        return {}
    fields: dict[_Field, tuple[str, ...]] = {"q": spec.q_names, "qd": spec.qd_names, "control": spec.controls}
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for field, coordinates in fields.items():
        found[field] = {}
        for name in coordinates:
            try:
                lower, upper = robot.sampling_interval(field, name)
            except (InputError, KeyError):
                continue  # nothing declared, or a position of a ball or free joint
            if lower < upper:
                found[field][name] = (lower, upper)
    return found
