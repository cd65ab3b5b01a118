# SPDX-License-Identifier: Apache-2.0
"""Limits of a motion that a robot is asked to make: positions, speeds, accelerations and torques of its joints.

They come from the declaration. Where it states none, they are what the logs show that the robot has done already.
"""

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec
import numpy as np
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core.config import Config, require
from neurodyn.core.errors import InputError, nearest
from neurodyn.data.store import Store
from neurodyn.robots import Robot

_OFTEN = 0.998
"""Quantile of the logs' speeds and accelerations that counts as their largest: beyond it lie glitches of sensors."""
SMOOTH = 0.05
"""Time over which accelerations are averaged [s]."""


class MotionLimitSettings(Config, frozen=True):
    """Limits of the motion to log next, as shares of what the declaration or the logs say, or as numbers."""

    position: float = 0.95
    """Share of the range between a joint's limits that is used."""
    speed: float = 1.0
    """Share of the largest speed."""
    acceleration: float = 1.0
    """Share of the largest acceleration in the logs; no declaration states one."""
    torque: float = 0.8
    """Share of the largest torque or force."""
    speeds: dict[str, float] = msgspec.field(default_factory=dict)
    """Largest speeds by joint or pattern [rad/s or m/s]; they override `speed`."""
    accelerations: dict[str, float] = msgspec.field(default_factory=dict)
    """Largest accelerations by joint or pattern [rad/s^2 or m/s^2]; they override `acceleration`."""
    floor: float | UnsetType = UNSET
    """Height of a floor [m]; unset for that of the asset or the declared ground, or of the mounting of a bolted robot
    that is above it at rest."""
    clearance: float = 0.01
    """Distance between links, or to the floor, that counts as a contact [m]."""

    def __post_init__(self) -> None:
        for name in ("position", "speed", "acceleration", "torque"):
            require(0 < getattr(self, name) <= 1, name, getattr(self, name), "above 0, and at most 1")
        level = self.floor is UNSET or math.isfinite(self.floor)
        require(level, "floor", self.floor, "a finite number [m]")
        require(0 <= self.clearance < math.inf, "clearance", self.clearance, "a finite number of at least 0 [m]")
        for name in ("speeds", "accelerations"):
            for joint, value in getattr(self, name).items():
                require(0 < value < math.inf, f"{name} of {joint!r}", value, "a finite number above 0")


@dataclass(frozen=True)
class MotionLimits:
    """Limits of the scalar joints of a robot.

    Attributes:
        names: The joints.
        lower: Lowest positions [rad or m], shape [joints].
        upper: Highest positions, shape [joints].
        speed: Largest speeds [rad/s or m/s], shape [joints].
        acceleration: Largest accelerations, averaged over `SMOOTH` [rad/s^2 or m/s^2], shape [joints].
        torque: Largest torques [N m or N], infinite for joints without a motor, shape [joints].
        sources: Where the limits come from, by kind.
    """

    names: tuple[str, ...]
    lower: Tensor
    upper: Tensor
    speed: Tensor
    acceleration: Tensor
    torque: Tensor
    sources: dict[str, str]

    @classmethod
    def of(cls, robot: Robot, store: Store, settings: MotionLimitSettings) -> "MotionLimits":
        """Return the limits of a robot.

        Raises:
            InputError: A pattern of the settings matches no joint.
        """
        joints = [joint for joint in robot.joints if joint.scalar]
        names = tuple(joint.name for joint in joints)
        seen = _Seen.of(store, [robot.spec.q_names.index(name) for name in names], names)
        lower, upper, speed = seen.lower.clone(), seen.upper.clone(), settings.speed * seen.speed
        ranged, rated = 0, 0
        for k, joint in enumerate(joints):
            if joint.lower is not None and joint.upper is not None and math.isfinite(joint.upper - joint.lower):
                margin = 0.5 * (1.0 - settings.position) * (joint.upper - joint.lower)
                lower[k], upper[k], ranged = joint.lower + margin, joint.upper - margin, ranged + 1
            drive, bound = robot.drives.get(joint.name), robot.range.qd.get(joint.name)
            stated = [abs(end) for end in bound or ()]
            if drive is not None and drive.velocity_limit is not None:
                stated.append(drive.velocity_limit)
            if drive is not None and drive.velocity_limit is not None:
                speed[k], rated = settings.speed * min(stated), rated + 1
            elif stated:
                speed[k] = min(float(speed[k]), settings.speed * min(stated))
        acceleration = settings.acceleration * seen.acceleration
        for given, values in ((settings.speeds, speed), (settings.accelerations, acceleration)):
            for pattern, value in given.items():
                rows = [k for k, name in enumerate(names) if fnmatchcase(name, pattern)]
                if not rows:
                    raise InputError(
                        f"limits: no joint is called {pattern!r}; valid: a pattern, {nearest(pattern, names)}"
                    )
                values[rows] = value
        torque = torch.tensor([_torque(robot, name, settings.torque) for name in names], dtype=torch.float64)
        sources = {
            "position": _source(ranged, len(names), f"{settings.position:.0%} of the declared range"),
            "speed": _source(rated, len(names), f"{settings.speed:.0%} of the declared", f"{settings.speed:.0%} of "),
            "acceleration": f"{settings.acceleration:.0%} of the logs' largest, averaged over {SMOOTH * 1e3:.0f} ms",
            "torque": f"{settings.torque:.0%} of the declared",
        }  # fmt: skip
        for name, given in (("speed", settings.speeds), ("acceleration", settings.accelerations)):
            if given:
                sources[name] = f"as given for {', '.join(given)}; else {sources[name]}"
        return cls(names, lower, upper, speed, acceleration, torque, sources)

    def excess(self, q: Tensor, qd: Tensor, dt: float) -> dict[str, Tensor]:
        """Return how far motions exceed the limits, by kind: 1 at the limit, shape [joints].

        Args:
            q: Positions of the joints, shape [N, T, joints].
            qd: Velocities, shape [N, T, joints].
            dt: Frame time [s].
        """
        half = (0.5 * (self.upper - self.lower)).clamp_min(1e-9)
        middle = 0.5 * (self.upper + self.lower)
        return {
            "position": ((q - middle).abs() / half).amax((0, 1)),
            "speed": (qd.abs() / self.speed.clamp_min(1e-9)).amax((0, 1)),
            "acceleration": (averaged_acceleration(qd, dt).abs() / self.acceleration.clamp_min(1e-9)).amax((0, 1)),
        }

    def by_joint(self) -> dict[str, dict[str, float]]:
        """Return the limits by joint and kind."""
        columns = {
            "lower": self.lower, "upper": self.upper, "speed": self.speed, "acceleration": self.acceleration,
            "torque": self.torque,
        }  # fmt: skip
        return {
            name: {kind: float(values[k]) for kind, values in columns.items() if math.isfinite(float(values[k]))}
            for k, name in enumerate(self.names)
        }


def averaged_acceleration(qd: Tensor, dt: float) -> Tensor:
    """Return accelerations averaged over `SMOOTH`, shape [N, T - frames, joints], from velocities [N, T, joints]."""
    frames = min(max(1, round(SMOOTH / dt)), qd.shape[1] - 1)
    return (qd[:, frames:] - qd[:, :-frames]) / (frames * dt)


@dataclass(frozen=True)
class _Seen:
    """Extremes of logs: positions, speeds and accelerations, shape [joints] each."""

    lower: Tensor
    upper: Tensor
    speed: Tensor
    acceleration: Tensor

    @classmethod
    def of(cls, store: Store, columns: list[int], names: tuple[str, ...]) -> "_Seen":
        dt, frames = store.header.spec.dt, max(1, round(SMOOTH / store.header.spec.dt))
        continuous = np.array([store.header.spec.continuous[column] for column in columns])
        lower, upper = np.full(len(columns), np.inf), np.full(len(columns), -np.inf)
        speeds, accelerations = list[np.ndarray](), list[np.ndarray]()
        for episode in range(len(store.lengths)):
            q = store.episode(episode)[0].astype(np.float64)[:, columns]
            lower, upper = np.minimum(lower, q.min(0)), np.maximum(upper, q.max(0))
            if len(q) <= 2 * frames:
                continue
            # Differences over the same time as accelerations: velocities of logs are noisy, or not there.
            turned = q[frames:] - q[:-frames]
            turned = np.where(continuous, (turned + np.pi) % (2 * np.pi) - np.pi, turned)
            rate = turned / (frames * dt)
            speeds.append(np.abs(rate))
            accelerations.append(np.abs(rate[frames:] - rate[:-frames]) / (frames * dt))
        if not speeds:
            zero = torch.zeros(len(columns), dtype=torch.float64)
            return cls(torch.from_numpy(lower), torch.from_numpy(upper), zero, zero)
        speed, acceleration = (
            torch.from_numpy(np.quantile(np.concatenate(parts), _OFTEN, axis=0)) for parts in (speeds, accelerations)
        )
        return cls(torch.from_numpy(lower), torch.from_numpy(upper), speed, acceleration)


def _torque(robot: Robot, name: str, share: float) -> float:
    if name not in robot.actuated:
        return math.inf
    drive = robot.drives.get(name)
    limits = [robot.actuated[name]]
    if drive is not None:
        limits += [limit for limit in (drive.effort_limit,) if limit is not None]
        limits += [] if drive.force_range is UNSET else [max(abs(end) for end in drive.force_range)]
    return share * min(limits)


def _source(stated: int, joints: int, declared: str, share: str = "") -> str:
    logged = f"{share}the logs' largest" if share else "the range of the logs"
    if stated == joints:
        return declared
    return logged if not stated else f"{declared} for {stated} joints, {logged} for the others"
