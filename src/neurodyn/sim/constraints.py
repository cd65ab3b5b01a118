# SPDX-License-Identifier: Apache-2.0
"""Soft constraints of a robot in a model of MuJoCo, be it plain MuJoCo's or that of Newton's solver."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from neurodyn.core.description.contacts import SHAPE_PROPERTIES, ConstraintParameters, SoftConstraints
from neurodyn.core.errors import choices, notice
from neurodyn.robots import Robot
from neurodyn.sim.articulations import Springs

T = TypeVar("T")

_DIGITS = 6  # significant digits of float32
_LEAST_SHARE, _MOST_SHARE, _LEAST_WIDTH = 1e-4, 0.9999, 1e-9


def model_constraints(
    robot: Robot,
    read: Callable[[str], np.ndarray],
    joints: Mapping[str, tuple[int, int]],
    geoms: Mapping[str, int],
    *,
    elliptic: bool,
    impratio: float,
    per_shape_compliance: bool = False,
) -> tuple[SoftConstraints, Springs]:
    """Return the constraints of a robot in a model of MuJoCo, and the springs equivalent to its joint limits.

    Contacts are those of its shapes with the ground, whose own parameters the simulator overrides
    (`sim.newton.scene`). Each of `SHAPE_PROPERTIES` has the most common value, with exceptions by shape name. If shapes
    differ in further parameters, a notice says so, and all contacts get the most common ones.

    Args:
        robot: The declared robot.
        read: Returns an array of the model, such as "jnt_solref", by its name in MuJoCo.
        joints: Number and first degree of freedom of each joint in the model, by name.
        geoms: Number of the geom of each collision shape in the model, by name.
        elliptic: Whether friction cones are elliptic instead of pyramidal.
        impratio: Ratio of the impedances of friction and normal force.
        per_shape_compliance: Whether the mechanism holds shapes' own compliance elsewhere (`ground_shapes`).
    """
    scalar = {joint.name for joint in robot.joints if joint.scalar and joint.lower is not None}
    limited = scalar | {joint.name for joint in robot.joints if joint.kind == "ball"}
    every = {joint.name for joint in robot.joints}
    least = 2.0 * robot.dt / robot.simulator.substeps  # MuJoCo keeps time constants above two steps
    default, limits, frictions, springs = ConstraintParameters(), {}, {}, {}
    for name, (joint, dof) in joints.items():
        solref, solimp = read("jnt_solref")[joint].tolist(), read("jnt_solimp")[joint].tolist()
        friction = constraint_parameters(read("dof_solref")[dof], read("dof_solimp")[dof])
        if name in limited and (limit := constraint_parameters(solref, solimp)) != default:
            limits[name] = limit
        if name in every and friction != default:
            frictions[name] = friction
        if name in scalar:
            springs[name] = limit_spring(tuple(solref), solimp[1], 1.0 / float(read("dof_invweight0")[dof]), least)
    constraints = SoftConstraints(
        cone="elliptic" if elliptic else "pyramidal", impratio=float32_digits([impratio])[0], limits=limits,
        joint_friction=frictions,
    )  # fmt: skip
    if not geoms:
        return constraints, springs
    attributes = {one.attribute for one in SHAPE_PROPERTIES.values()} | {"solref", "solimp"}
    numbers = {
        one: [list(float32_digits(np.atleast_1d(row))) for row in read(f"geom_{one}")[list(geoms.values())]]
        for one in attributes
    }
    for name, place in SHAPE_PROPERTIES.items():
        column = [row[place.column] for row in numbers[place.attribute]]
        common = _most_common(column)
        own = {shape: value for shape, value in zip(geoms, column, strict=True) if value != common}
        constraints = constraints.with_property(name, common, own)
        for row in numbers[place.attribute]:
            row[place.column] = common  # leaves only the differences in further parameters
    compliances = [(tuple(ref), tuple(imp)) for ref, imp in zip(numbers["solref"], numbers["solimp"], strict=True)]
    contact = _most_common(compliances)
    others = [shape for shape, own in zip(geoms, compliances, strict=True) if own != contact]
    if others and not per_shape_compliance:
        notice(
            f"{robot.name}: {len(others)} of {len(geoms)} shapes yield in contacts in a way of their own "
            f"({choices(others)}), which soft contacts do not model: all yield by solref {list(contact[0])} and solimp "
            f"{list(contact[1])}; `material` with stiffness and damping gives them one solref in the simulator, too"
        )
    return msgspec.structs.replace(constraints, contact=constraint_parameters(*contact)), springs


def _most_common(values: Iterable[T]) -> T:
    return Counter(values).most_common(1)[0][0]


def constraint_parameters(
    solref: Sequence[float], solimp: Sequence[float], *, exact: bool = False
) -> ConstraintParameters:
    """Return a constraint's compliance, clipped as MuJoCo does at every step; in float32's digits unless `exact`.

    With `exact`, the default replaces a solref of mixed signs, as in MuJoCo.
    """
    time, ratio = map(float, solref) if exact else float32_digits(solref)
    if exact and (time > 0) != (ratio > 0):
        time, ratio = ConstraintParameters().solref
    first, last, width, midpoint, power = map(float, solimp) if exact else float32_digits(solimp)
    first, last, midpoint = (min(max(share, _LEAST_SHARE), _MOST_SHARE) for share in (first, last, midpoint))
    numbers = (first, last, max(width, 1e-15 if exact else _LEAST_WIDTH), midpoint, max(power, 1.0))
    return ConstraintParameters(solref=(time, ratio), solimp=numbers)


def float32_digits(values: Any) -> tuple[float, ...]:
    """Return numbers with the digits of float32."""
    return tuple(float(f"{float(value):.{_DIGITS}g}") for value in values)


def limit_spring(
    solref: tuple[float, float], impedance: float, inertia: float, least: float = 0.0
) -> tuple[float, float]:
    r"""Return stiffness and damping of a spring equivalent to the constraint of a joint limit.

    At a violation r, MuJoCo's reference acceleration is $-b\,v - k\,d\,r$, with $b = 2/(d\,t)$ and $k =
    1/(d\,t\,\zeta)^2$ from solref (t, zeta) and the impedance d from solimp, of which the share d is realised. A spring
    and damper on a body of the joint's effective inertia $m = 1/w$ (w: `dof_invweight0`) give the same without other
    forces:

    $$k_e = d\,k\,m, \qquad k_d = d\,b\,m$$

    The spring does not model that MuJoCo cancels the share d of other forces, so that a joint under torque rests closer
    to its limit in the simulator.

    Args:
        solref: Time constant [s] and damping ratio, or minus stiffness and damping.
        impedance: Impedance beyond the width of solimp.
        inertia: Effective inertia of the joint [kg m^2 or kg].
        least: Minimum time constant [s].
    """
    time, ratio = solref
    if time > 0:
        time = max(time, least)
        k, b = 1.0 / (impedance * time * ratio) ** 2, 2.0 / (impedance * time)
    else:
        k, b = -time / impedance**2, -ratio / impedance
    return impedance * k * inertia, impedance * b * inertia
