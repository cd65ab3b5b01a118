# SPDX-License-Identifier: Apache-2.0
"""Servos by name, as `drives: {JOINT: {servo: NAME}}` has them: numbers with their source.

All values are on the output side of the gear, at the nominal supply. Rotor inertias belong to the joint (`armature` of
the asset).
"""

from dataclasses import dataclass

from neurodyn.core.description.drive import Drive
from neurodyn.core.registry import Registry


@dataclass(frozen=True)
class ServoType:
    """A type of servo.

    Attributes:
        drive: Its drive, at the firmware's gain that the source names.
        armature: Inertia of rotor and gear at the output [kg m^2].
        source: Where the numbers come from.
    """

    drive: Drive
    armature: float
    source: str


SERVOS: Registry[ServoType] = Registry(
    "servo",
    **{
        "xl330-m288": ServoType(
            Drive(
                kind="dc_servo", kp=1.25, kd=0.047, saturation_effort=0.77, delay=0.011, longest_delay=0.03,
                coulomb=0.008, viscous=0.005, load_motor=0.38, load_external=0.11,
            ),
            0.0019,
            "Dynamixel XL330-M288-T at 7.4 V with firmware gain P = 400 (`gain` is P / 400). Stall torque and no-load "
            "speed: data sheet, .52 N m and 103 rpm at 5 V. The rest: fitted to Rhoban/bam's logs of a .49 kg pendulum "
            "(bam/data.bak at af22604, Apache-2.0) at gains 100, 200 and 800; 16 mrad and 40 mrad .1 and 1 s ahead on "
            "other motions.",
        ),
        "sts3215-7.4v": ServoType(
            Drive(kind="dc_servo", kp=17.8, kd=0.39, saturation_effort=1.9, coulomb=0.052, viscous=0.6),
            0.028,
            "Feetech STS3215 at 7.4 V with firmware gain P = 32 (`gain` is P / 32). Stall torque 19 kg cm and no-load "
            "speed 45 rpm: data sheet. Stiffness: Rhoban/bam. Friction and rotor: mujoco_menagerie's "
            "robotstudio_so101.",
        ),
    },
)  # fmt: skip
"""Servos by name."""
