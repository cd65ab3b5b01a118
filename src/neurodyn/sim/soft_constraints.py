# SPDX-License-Identifier: Apache-2.0
"""MuJoCo's soft constraints of a robot as plain data, from the numbers of its geoms and joints."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from neurodyn.core.description.contacts import SHAPE_PROPERTIES, Cone, ConstraintParameters, SoftConstraints
from neurodyn.core.errors import choices, notice
from neurodyn.robots import Robot

T = TypeVar("T")

_DIGITS = 6  # significant digits of float32
_LEAST_SHARE, _MOST_SHARE, _LEAST_WIDTH = 1e-4, 0.9999, 1e-9

ShapeNumbers = Callable[[str], Iterable[float]]
"""The numbers of an attribute of a shape, such as "friction" or "solref"."""


def constraints_of_shapes(
    robot: Robot,
    *,
    cone: Cone,
    impratio: float,
    limits: Mapping[str, ConstraintParameters],
    joint_friction: Mapping[str, ConstraintParameters],
    rows: Mapping[str, ShapeNumbers],
    own_ways: bool = False,
) -> SoftConstraints:
    """Return the compliance of the constraints of a robot.

    Contacts are those of its shapes with the ground, whose own parameters the simulator overrides (`sim.scene`). Each
    of `SHAPE_PROPERTIES` has the value of most shapes, with those of the others by name. Where shapes yield differently
    in other ways, a notice says so, and contacts yield as those of most shapes.

    Args:
        robot: The declared robot.
        cone: The friction cone.
        impratio: Ratio of the impedances of friction and normal force.
        limits: Compliance of the limits, by joint.
        joint_friction: Compliance of joint friction, by joint.
        rows: The numbers of each collision shape, by its name.
        own_ways: Whether the mechanism says elsewhere how shapes yield in a way of their own (`ground_shapes`).
    """
    every = {joint.name for joint in robot.joints}
    limited = {
        joint.name for joint in robot.joints if joint.kind == "ball" or (joint.scalar and joint.lower is not None)
    }
    constraints = SoftConstraints(
        cone=cone,
        impratio=impratio,
        limits=_declared(limits, limited),
        joint_friction=_declared(joint_friction, every),
    )
    if not rows:
        return constraints
    attributes = {one.attribute for one in SHAPE_PROPERTIES.values()} | {"solref", "solimp"}
    numbers = {one: [list(rounded(read(one))) for read in rows.values()] for one in attributes}
    for name, place in SHAPE_PROPERTIES.items():
        column = [row[place.column] for row in numbers[place.attribute]]
        common = _most_common(column)
        own = {shape: value for shape, value in zip(rows, column, strict=True) if value != common}
        constraints = constraints.with_property(name, common, own)
        for row in numbers[place.attribute]:
            row[place.column] = common  # what remains is how shapes differ in other ways
    yields = [(tuple(ref), tuple(imp)) for ref, imp in zip(numbers["solref"], numbers["solimp"], strict=True)]
    contact = _most_common(yields)
    others = [shape for shape, own in zip(rows, yields, strict=True) if own != contact]
    if others and not own_ways:
        notice(
            f"{robot.name}: {len(others)} of {len(rows)} shapes yield in contacts in a way of their own "
            f"({choices(others)}), which soft contacts do not model: all yield by solref {list(contact[0])} and solimp "
            f"{list(contact[1])}; `material` with stiffness and damping gives them one solref in the simulator, too"
        )
    return msgspec.structs.replace(constraints, contact=constraint_parameters(*contact))


def _most_common(values: Iterable[T]) -> T:
    return Counter(values).most_common(1)[0][0]


def _declared(parameters: Mapping[str, ConstraintParameters], names: set[str]) -> dict[str, ConstraintParameters]:
    """Return the parameters of the named joints that differ from MuJoCo's defaults."""
    default = ConstraintParameters()
    return {name: value for name, value in parameters.items() if name in names and value != default}


def constraint_parameters(
    solref: Sequence[float], solimp: Sequence[float], *, exact: bool = False
) -> ConstraintParameters:
    """Return a constraint's compliance, clipped as MuJoCo does at every step; in float32's digits unless `exact`.

    A solref of mixed signs is the default one then, as for MuJoCo.
    """
    time, ratio = map(float, solref) if exact else rounded(solref)
    if exact and (time > 0) != (ratio > 0):
        time, ratio = ConstraintParameters().solref
    first, last, width, midpoint, power = map(float, solimp) if exact else rounded(solimp)
    first, last, midpoint = (min(max(share, _LEAST_SHARE), _MOST_SHARE) for share in (first, last, midpoint))
    numbers = (first, last, max(width, 1e-15 if exact else _LEAST_WIDTH), midpoint, max(power, 1.0))
    return ConstraintParameters(solref=(time, ratio), solimp=numbers)


def rounded(values: Any) -> tuple[float, ...]:
    """Return numbers with the digits of float32."""
    return tuple(float(f"{float(value):.{_DIGITS}g}") for value in values)
