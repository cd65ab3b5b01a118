# SPDX-License-Identifier: Apache-2.0
"""What identifies a built articulation, so that a model refuses a robot that it was not made for.

The fingerprint is taken of the articulation as built, never of a file: two files that build the same
mechanism have the same fingerprint, and an edited mass changes it.
"""

import math

from neurodyn.core.config import Config

Vector = tuple[float, ...]


class JointPrint(Config, frozen=True):
    """One joint as built.

    Attributes:
        name: Name without the prefix of the articulation or world.
        kind: "revolute", "prismatic", "ball", "free" or "fixed".
        axis: Axes of the degrees of freedom in the joint frame, flattened, shape [3 * axes].
        parent_pose: Joint frame in the parent body [x y z, qx qy qz qw]; of a root joint only how it leans
            against gravity, empty where it is upright: where the robot stands and heads is not part of it.
        child_pose: Joint frame in the child body [x y z, qx qy qz qw].
        lower: Least positions [rad or m].
        upper: Greatest positions [rad or m].
        armature: Rotor inertia of each degree of freedom [kg m^2 or kg].
        damping: Viscous friction [N m s/rad or N s/m].
        friction: Coulomb friction [N m or N].
        stiffness: Stiffness of a passive spring [N m/rad or N/m].
        limit_stiffness: Stiffness of the limits [N m/rad or N/m]; 0 where there is none.
        limit_damping: Damping of the limits [N m s/rad or N s/m]; 0 where there is none.
    """

    name: str
    kind: str
    axis: Vector
    parent_pose: Vector
    child_pose: Vector
    lower: Vector
    upper: Vector
    armature: Vector
    damping: Vector
    friction: Vector
    stiffness: Vector
    limit_stiffness: Vector
    limit_damping: Vector


class BodyPrint(Config, frozen=True):
    """One body as built.

    Attributes:
        name: Name without the prefix of the articulation or world.
        mass: Mass [kg].
        com: Centre of mass in the body frame [m], shape [3].
        inertia: Inertia about the centre of mass in body axes [kg m^2], row by row, shape [9].
    """

    name: str
    mass: float
    com: Vector
    inertia: Vector


class Fingerprint(Config, frozen=True):
    """Identity of one articulation and the gravity that it was simulated in [m/s^2], shape [3]."""

    joints: tuple[JointPrint, ...]
    bodies: tuple[BodyPrint, ...]
    gravity: Vector

    def differences(self, other: "Fingerprint", tolerance: float = 1e-4) -> list[str]:
        """List, in words, in what `other` differs from this articulation.

        Args:
            other: The articulation that is compared.
            tolerance: Relative tolerance of numbers.
        """
        mine, theirs = [j.name for j in self.joints], [j.name for j in other.joints]
        if mine != theirs:
            return [f"joint order is {theirs} instead of {mine}"]
        differences = []
        for a, b in zip(self.joints, other.joints, strict=True):
            differences += _field_differences(f"joint {a.name!r}", a, b, tolerance)
        if [b.name for b in self.bodies] != [b.name for b in other.bodies]:
            return [
                *differences,
                f"bodies are {[b.name for b in other.bodies]} instead of {[b.name for b in self.bodies]}",
            ]
        for a, b in zip(self.bodies, other.bodies, strict=True):
            differences += _field_differences(f"body {a.name!r}", a, b, tolerance)
        if not _close(self.gravity, other.gravity, tolerance):
            differences.append(f"gravity is {_show(other.gravity)} instead of {_show(self.gravity)}")
        return differences


def _field_differences(what: str, a: Config, b: Config, tolerance: float) -> list[str]:
    differences = []
    for field in a.__struct_fields__:
        mine, theirs = getattr(a, field), getattr(b, field)
        same = mine == theirs if isinstance(mine, str) else _close(mine, theirs, tolerance)
        if not same:
            differences.append(f"{field.replace('_', ' ')} of {what} is {_show(theirs)} instead of {_show(mine)}")
    return differences


def _close(a: float | Vector, b: float | Vector, tolerance: float) -> bool:
    left, right = _tuple(a), _tuple(b)
    if len(left) != len(right):
        return False
    scale = max((abs(x) for x in (*left, *right) if math.isfinite(x)), default=0.0)
    return all(x == y or abs(x - y) <= tolerance * scale + 1e-9 for x, y in zip(left, right, strict=True))


def _tuple(value: float | Vector) -> Vector:
    return value if isinstance(value, tuple) else (value,)


def _show(value: str | float | Vector) -> str:
    if isinstance(value, tuple):
        return "[" + " ".join(f"{x:.6g}" for x in value) + "]"
    return value if isinstance(value, str) else f"{value:.6g}"
