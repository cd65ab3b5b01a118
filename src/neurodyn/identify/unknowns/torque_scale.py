# SPDX-License-Identifier: Apache-2.0
"""What no roll-out tells: the common scale of all masses and torques.

Masses, inertias, gains of motors, frictions, dampings and rotor inertias that all grow by one factor leave every motion
as it is. Only what is declared, or known, says how large that factor is. An engine that regularises dry friction by
declared inertias sees it all the same, but that is no property of the robot.
"""

from collections.abc import Collection, Iterable, Mapping

from neurodyn.core.description.drive import Drive

_SCALED = (
    "kp", "kd", "gain", "friction", "damping", "armature", "mass_scale", "mass", "stiffness", "coulomb", "viscous",
    "stribeck", "rotor_inertia", "elastic_damping",
)  # fmt: skip
"""Quantities that are proportional to torques, by the ends of their names."""


def scaled_coordinates(
    names: Collection[str], motors: Mapping[str, Drive], limbs: Iterable[str], known: Iterable[str]
) -> list[str]:
    """Return the coordinates of a space that grow with a common scale of torques; none if something fixes the scale.

    Args:
        names: Free coordinates.
        motors: Drives by joint, each of which needs a free gain or stiffness, and a velocity servo a free kd.
        limbs: Limbs, each of which needs a free mass.
        known: Coordinates with a known value.
    """
    needed = [f"{limb}.mass_scale" for limb in limbs]
    laws = {joint: ("kd",) if drive.kind == "velocity_servo" else ("kp", "gain") for joint, drive in motors.items()}
    driven = all(any(f"actuator.{joint}.{law}" in names for law in own) for joint, own in laws.items())
    if not needed or not driven or any(_scales(name) for name in known) or not all(one in names for one in needed):
        return []
    stiff = {name.rpartition(".")[0] for name in names if name.endswith(".kp")}
    return [name for name in names if _scales(name) and not (name.endswith(".gain") and name[:-5] in stiff)]


def _scales(name: str) -> bool:
    return name.rpartition(".")[2] in _SCALED
