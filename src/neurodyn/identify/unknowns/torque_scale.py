# SPDX-License-Identifier: Apache-2.0
"""What no roll-out tells: the common scale of all masses and torques.

Masses, inertias, gains of motors, frictions, dampings and rotor inertias that all grow by one factor leave every motion
as it is. Only what is declared, or known, says how large that factor is. An engine that regularises dry friction by
declared inertias sees it all the same, but that is no property of the robot.
"""

from collections.abc import Collection, Iterable

_SCALED = (
    "kp", "kd", "gain", "friction", "damping", "armature", "mass_scale", "mass", "stiffness", "coulomb", "viscous",
    "stribeck", "rotor_inertia", "elastic_damping",
)  # fmt: skip
"""Quantities that are proportional to torques, by the ends of their names."""


def scaled_coordinates(
    names: Collection[str], motors: Iterable[str], limbs: Iterable[str], known: Iterable[str]
) -> list[str]:
    """Return the coordinates of a space that grow with a common scale of torques; none if something fixes the scale.

    Args:
        names: Free coordinates.
        motors: Joints with motors, each of which needs a free gain or stiffness.
        limbs: Limbs, each of which needs a free mass.
        known: Coordinates with a known value.
    """
    needed = [f"{limb}.mass_scale" for limb in limbs]
    driven = all(f"actuator.{joint}.kp" in names or f"actuator.{joint}.gain" in names for joint in motors)
    if not needed or not driven or any(_scales(name) for name in known) or not all(one in names for one in needed):
        return []
    stiff = {name.rpartition(".")[0] for name in names if name.endswith(".kp")}
    return [name for name in names if _scales(name) and not (name.endswith(".gain") and name[:-5] in stiff)]


def _scales(name: str) -> bool:
    return name.rpartition(".")[2] in _SCALED
