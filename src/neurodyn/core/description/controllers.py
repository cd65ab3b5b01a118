# SPDX-License-Identifier: Apache-2.0
"""Controllers that drove a robot while its log was made: plain data, which travel with logs of targets."""

import math
from collections.abc import Sequence

from neurodyn.core.config import Config
from neurodyn.core.errors import InputError, choices, require
from neurodyn.core.registry import Registry

GAINS: Registry[tuple[str, ...]] = Registry(
    "controller",
    pd=("kp", "kd"),
    velocity=("kd",),
)
"""Gains of each kind of controller; what they do is in `dynamics.controllers`."""

Gain = float | dict[str, float]


class Controller(Config, frozen=True):
    """A controller of driven joints, whose targets are the controls of a log.

    Attributes:
        kind: A name of `GAINS`: "pd", or "velocity", whose targets are velocities.
        kp: Stiffness, of all driven joints or by joint [N m/rad or N/m].
        kd: Damping [N m s/rad or N s/m].
        limit: Greatest torque or force [N m or N]; none where it is left out.
        updates: How often it runs in a frame; the engine's substeps must be a multiple of it.
    """

    kind: str = "pd"
    kp: Gain = 0.0
    kd: Gain = 0.0
    limit: Gain = math.inf
    updates: int = 1

    def __post_init__(self) -> None:
        GAINS.require(self.kind)
        require(self.updates >= 1, "updates", self.updates, "at least 1")
        for name in ("kp", "kd", "limit"):
            given = getattr(self, name)
            for value in given.values() if isinstance(given, dict) else (given,):
                if not value >= 0 or (name != "limit" and value == math.inf):
                    raise ValueError(f"{name} is {value}; valid: finite numbers of at least 0")
            if name != "limit" and name not in GAINS[self.kind] and given != 0.0:
                raise ValueError(f"{name} is given, but {self.kind!r} has {' and '.join(GAINS[self.kind])} alone")

    def gains(self, joints: Sequence[str]) -> dict[str, float]:
        """Return gain by quantity, "controller.JOINT.kp", of all driven joints.

        Raises:
            InputError: A gain lacks a driven joint, or names one that is none.
        """
        values: dict[str, float] = {}
        for name in GAINS[self.kind]:
            values |= {f"controller.{joint}.{name}": x for joint, x in self.by_joint(name, joints).items()}
        return {f"controller.{j}.{g}": values[f"controller.{j}.{g}"] for j in joints for g in GAINS[self.kind]}

    def by_joint(self, name: str, joints: Sequence[str]) -> dict[str, float]:
        """Return one of its numbers by joint.

        Raises:
            InputError: As of `gains`.
        """
        given = getattr(self, name)
        if not isinstance(given, dict):
            return dict.fromkeys(joints, float(given))
        for joint in given:
            if joint not in joints:
                raise InputError(f"controller: {name} names {joint!r}, which is not driven; valid: {choices(joints)}")
        if missing := [joint for joint in joints if joint not in given]:
            raise InputError(f"controller: {name} has no {missing[0]!r}; valid: one for each of {', '.join(joints)}")
        return {joint: float(given[joint]) for joint in joints}
