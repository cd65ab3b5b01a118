# SPDX-License-Identifier: Apache-2.0
"""Logs whose base nobody tracks, with the states of the base as a model and the sensors of the log tell them.

The estimate stands in the rows of the store, beside the square root of its covariance. Horizontal position and heading
are gauge: nothing measures them and nothing depends on them, so they are those of the estimate. Windows begin at the
estimate plus an error with its covariance, which is fitted (`fit.residuals`); readings are compared without the biases
of their run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import numpy as np
import torch

from neurodyn.core import artifacts
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.sensors import SENSOR_KINDS, Sensor, places_of
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.estimate import BaseEstimate, EstimationSettings, smooth_base
from neurodyn.estimate.base_estimate import MOUNTING, MountingEstimate
from neurodyn.identify.result import IdentifiedParameter, InPriorDeviations
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.identify.unknowns.quantities import matching
from neurodyn.identify.unknowns.search_space import MASS_SCALE, PAYLOAD

_BASE = ("imu", "gyroscope", "accelerometer", "orientation")
"""Kinds of sensors that sit on the base unless a declaration says otherwise."""
_TORQUES = "joint_torque"
FREE = ("turn.x", "turn.y", "linear.x", "linear.y", "linear.z", "height", "angular.x", "angular.y", "angular.z")
"""Errors of an estimate that windows may begin with; those left out are gauge or biases."""
_HEIGHT = FREE.index("height")
_PLACES = (3, 4, 6, 7, 8, 2, 9, 10, 11)
"""Where they are in an error of position, rotation, linear and angular velocity, three each."""


def with_one_mass(
    settings: IdentificationSettings, mechanism: Mechanism, asked: Sequence[str] = ()
) -> IdentificationSettings:
    """Return settings in which a payload is all that the mass of the base may lack.

    Encoders and an IMU hardly tell its payload from a heavier base, nor does motion capture. With both free, priors
    part them: of 2.8 kg on a Go1, 2.1 kg were payload and .35 kg base.
    """
    scale = f"{mechanism.links[0].joint.name}.{MASS_SCALE}"
    both = all(any(fnmatchcase(name, one) for one in settings.quantities) for name in (PAYLOAD[0], scale))
    named = any(fnmatchcase(scale, one.partition("=")[0]) for one in (*asked, *settings.known))
    if not mechanism.floating or not both or named:
        return settings
    return msgspec.structs.replace(settings, known={**settings.known, scale: 1.0})


def sensors_on_base(header: StoreHeader, declared: Mapping[str, Sensor]) -> dict[str, Sensor]:
    """Return the sensors of a log that are compared with a model where the base is unmeasured.

    An IMU or attitude that is not declared sits at the origin of the base, along its axes.

    Raises:
        InputError: A specific force cannot be compared, because it is not averaged over frames.
    """
    known = {sensor.stream or name: (name, sensor) for name, sensor in declared.items()}
    sensors: dict[str, Sensor] = {}
    imus = [known[stream.name][1] for stream in header.streams if stream.kind == "imu" and stream.name in known]
    turn = imus[0].quaternion if imus else Sensor(kind="imu").quaternion
    for stream in header.streams:
        kind = SENSOR_KINDS[stream.kind]
        if not kind.compared or (stream.name not in known and stream.kind not in (*_BASE, _TORQUES)):
            continue
        if "specific_force" in kind.forces and not stream.averaged:
            raise InputError(
                f"stream {stream.name!r}: the base of {header.robot!r} is unmeasured, and its specific force belongs "
                "to instants, which impacts spoil; valid: `averaged: [specific_force]` in the column map"
            )
        if stream.kind != _TORQUES and any(name not in stream.averaged for name in kind.forces):
            continue  # contacts of instants, which impacts spoil
        name, sensor = known.get(stream.name, (stream.name, Sensor(kind=stream.kind, quaternion=turn)))
        sensors[name] = sensor
    return sensors


def split_mounting(
    asked: Sequence[str], header: StoreHeader, declared: Mapping[str, Sensor]
) -> tuple[tuple[str, ...], bool]:
    """Return the quantities that are asked for but those of the IMU's place and turn, and whether these are free.

    They are if a name or pattern asks for one of them ("imu.turn.z"), or if nobody says where the IMU sits.
    """
    names = [name for name, one in sensors_on_base(header, declared).items() if one.kind == "imu"]
    quantities = [f"{name}.{what}" for name in names for what in MOUNTING]
    told = {sensor.stream or name for name, sensor in declared.items()}
    own = [one for one in asked if matching(one, quantities)]
    free = bool(own) or any(one.kind == "imu" and one.name not in told for one in header.streams)
    return tuple(one for one in asked if one not in own), free


def moved_sensors(sensors: Mapping[str, Sensor], mounting: MountingEstimate | None) -> dict[str, Sensor]:
    """Return sensors with what sits in the IMU's unit where that was found to sit."""
    if mounting is None:
        return dict(sensors)
    return {name: mounting.on(one) if one.kind in _BASE else one for name, one in sensors.items()}


@dataclass(frozen=True)
class EstimateDoubt:
    """How far an estimate is doubted beyond its covariance, because contacts of a wrong model persist.

    Attributes:
        widening: Ratio of errors to what the estimate says of them.
        height: Standard deviation of a further error of the height [m]: that of a floor of unknown softness.
    """

    widening: float
    height: float


_FIRST, _LATER = EstimateDoubt(3.0, 0.03), EstimateDoubt(3.0, 0.01)
"""Of an estimate by the declared and by a fitted model. (Errors in the worn ant: 4 and 3 times what estimates say in
velocity; 27 mm in height, where its floor is softer than declared.)"""


def with_base(
    store: Store, estimate: BaseEstimate, sensors: Mapping[str, Sensor], doubt: EstimateDoubt = EstimateDoubt(1.0, 0.0)
) -> Store:
    """Return a log with an estimate of its base, one run an episode, and its readings without their biases.

    Its header says that the base is estimated, and where the `sensors` sit.
    """
    frames, spec = np.array(store.frames, np.float32), store.header.spec
    measured = None if store.measured is None else store.measured.copy()
    spread = np.zeros((len(frames), 12, len(FREE)), np.float32)
    columns = [estimate.errors.index(name) for name in FREE]
    for episode, run in enumerate(estimate):
        rows = slice(int(store.offsets[episode]), int(store.offsets[episode + 1]))
        frames[rows, :3], frames[rows, 3:7] = run.position.numpy(), run.quaternion.numpy()
        frames[rows, spec.nq : spec.nq + 3] = run.linear.numpy()
        frames[rows, spec.nq + 3 : spec.nq + 6] = run.angular.numpy()
        covariance = doubt.widening**2 * run.covariance.numpy()[:, columns][:, :, columns]
        covariance[:, _HEIGHT, _HEIGHT] += doubt.height**2
        spread[rows][:, _PLACES] = _root(covariance)
        if measured is not None:
            biases = run.angular_velocity_bias.numpy(), run.specific_force_bias.numpy()
            _remove_biases(measured[rows], store.header, *biases)
    if not np.isfinite(frames).all():
        raise InputError(
            f"log of {spec.robot!r}: the states of its base cannot be estimated; look at its IMU's readings"
        )
    header = msgspec.structs.replace(store.header, base="estimated", sensors=dict(sensors))
    return replace(store, header=header, frames=frames, measured=measured, spread=spread)


def _root(covariance: np.ndarray) -> np.ndarray:
    """Return the square roots of covariances, shape [N, n, n]."""
    values, vectors = np.linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))[:, None]


def _remove_biases(rows: np.ndarray, header: StoreHeader, spin: np.ndarray, force: np.ndarray) -> None:
    """Subtract the biases [T, 3] of an IMU from its readings, in place."""
    first = 0
    for stream in header.streams:
        for part in stream.parts:
            width = len(part.components)
            bias = {"angular_velocity": spin, "specific_force": force}.get(part.name)
            if bias is not None and stream.kind in _BASE:
                rows[:, first : first + width] -= np.asarray(bias, np.float32)
            first += width


_STATE = "base"
"""Name of the state of an estimated base in a run."""
_PLACE, _TURN, _FARTHEST = 0.05, 0.1, 8.0
"""Prior deviations of an IMU's place [m] and turn [rad], and how many of them it may be off."""
_REACH = 1.645
"""Deviations to each end of a 90 % interval."""
_SETTLED = 0.1
"""Change of the base's velocity between two estimates, as a share of the first such change, that settles them."""


class BaseEstimates:
    """Estimates of the base of a log by better and better models.

    Attributes:
        logged: The log.
        sensors: Where its sensors sit, by name.
        mounting: How the IMU is mounted otherwise than declared; None if that is not free.
        store: The log with the latest estimate; as logged before there is one.
        changes: Mean change of the base's velocity by each estimate but the first [m/s].
    """

    def __init__(self, logged: Store, declared: Mapping[str, Sensor], *, mounting: bool = False) -> None:
        """Prepare estimates, with the `mounting` of the IMU free or as declared; errors: see `sensors_on_base`."""
        self.logged, self._declared = logged, declared
        self.store = logged
        self.sensors = self._said = sensors_on_base(logged.header, declared)
        imu = next((sensor for sensor in self.sensors.values() if sensor.kind == "imu"), None)
        place, turn = (_PLACE, _TURN) if mounting else (0.0, 0.0)
        self._settings = EstimationSettings(imu=imu, imu_place_noise=place, imu_turn_noise=turn)
        self.mounting: MountingEstimate | None = None
        self.changes: list[float] = []

    def part(self, seconds: float) -> "BaseEstimates":
        """Return estimates of about so many seconds of training episodes, and of as large a part of validation.

        Of longer episodes they are the seconds in which the IMU turns most.
        """
        kinds = [episodes_of(self.logged, split) for split in (Split.TRAIN, Split.VALIDATION)]
        dt = self.logged.header.spec.dt
        recorded = float(self.logged.lengths[kinds[0]].sum()) * dt
        each = max(1, math.ceil(recorded / seconds))
        episodes = np.sort(np.concatenate([rows[::each] for rows in kinds]))
        frames = np.minimum(self.logged.lengths[episodes], round(seconds / dt))
        first = np.array([self._liveliest(*pair) for pair in zip(episodes, frames, strict=True)])
        logged = self.logged.select(episodes, frames, first)
        return BaseEstimates(logged, self._declared, mounting=self._settings.mounting_free)

    def _liveliest(self, episode: int, frames: int) -> int:
        """Return the first of so many frames of an episode in which the IMU turns most."""
        imu = next((one for one in self.logged.header.streams if one.kind == "imu"), None)
        if imu is None or self.logged.measured is None:
            return 0  # refused where the states are estimated
        rows = slice(int(self.logged.offsets[episode]), int(self.logged.offsets[episode + 1]))
        spin = self.logged.measured[rows][:, places_of(imu, self.logged.header.streams)[:3]]
        turned = np.nancumsum(np.square(spin, dtype=float).sum(1))
        return int((turned[frames:] - turned[: len(turned) - frames]).argmax())

    def update(
        self, dynamics: HybridDynamics, *, fitted: bool = False, mounted: MountingEstimate | None = None
    ) -> Store:
        """Estimate the base by a model, and return the log with it; the first model is the declared one or `fitted`.

        `mounted` is how the IMU is mounted by a part of the log, if that is free (`smooth_base`).
        """
        before, first = self.store, self.store is self.logged
        known = replace(self.logged, header=msgspec.structs.replace(self.logged.header, sensors=self._said))
        estimate = smooth_base(dynamics, known, self._settings, mounted)
        self.mounting, self.sensors = estimate.mounting, moved_sensors(self._said, estimate.mounting)
        self.store = with_base(self.logged, estimate, self.sensors, _FIRST if first and not fitted else _LATER)
        if not first:
            self.changes.append(_change(before, self.store))
        return self.store

    @property
    def streams(self) -> set[str]:
        """Streams of the log that are compared."""
        return {sensor.stream or name for name, sensor in self.sensors.items()}

    @property
    def remounted(self) -> dict[str, Sensor]:
        """Sensors that sit otherwise than declared."""
        return {name: one for name, one in self.sensors.items() if one != self._said[name]}

    @property
    def settled(self) -> bool:
        """Whether the latest estimate hardly differs from the one before."""
        return len(self.changes) > 1 and self.changes[-1] < _SETTLED * self.changes[0]

    def write(self, run: Path) -> None:
        """Save the latest estimate in the state of a run."""
        store, tree = self.store, dict[str, torch.Tensor]()
        for name in ("frames", "measured", "spread"):
            tree[name] = torch.from_numpy(np.asarray(getattr(store, name)))
        if self.mounting is not None:
            tree |= {f"mounting.{name}": value for name, value in vars(self.mounting).items()}
        artifacts.write_tree(run / "state", _STATE, tree)

    def read(self, run: Path) -> Store:
        """Return the log with the estimate that was saved in the state of a run."""
        tree = artifacts.read_tree(run / "state", _STATE)
        mounting = [
            tree.pop(name) for name in (f"mounting.{one.name}" for one in fields(MountingEstimate)) if name in tree
        ]
        self.mounting = MountingEstimate(*mounting) if mounting else None
        self.sensors = moved_sensors(self._said, self.mounting)
        header = msgspec.structs.replace(self.logged.header, base="estimated", sensors=self.sensors)
        self.store = replace(self.logged, header=header, **{name: value.numpy() for name, value in tree.items()})
        return self.store

    def quantities(self) -> list[IdentifiedParameter]:
        """Return place and turn of the IMU with their 90 % intervals, if they are free."""
        if self.mounting is None:
            return []
        name, imu = next((name, one) for name, one in self._said.items() if one.kind == "imu")
        nominal = [*imu.position, 0.0, 0.0, 0.0]
        widths, units = [_PLACE] * 3 + [_TURN] * 3, ["m"] * 3 + ["rad"] * 3
        deviations = _LATER.widening * self.mounting.covariance.diagonal().sqrt()
        found = zip(MOUNTING, nominal, self.mounting.change.tolist(), deviations.tolist(), widths, units, strict=True)
        return [
            IdentifiedParameter(
                name=f"{name}.{what}", nominal=said, value=said + change, unit=unit,
                interval=[said + change - _REACH * size, said + change + _REACH * size],
                in_prior=InPriorDeviations(
                    value=change / width, bounds=[-_FARTHEST, _FARTHEST], declared=0.0,
                    interval=[(change - _REACH * size) / width, (change + _REACH * size) / width], deviation=width,
                ),
            )
            for what, said, change, size, width, unit in found
        ]  # fmt: skip


def _change(before: Store, after: Store) -> float:
    nq = before.header.spec.nq
    change = np.asarray(after.frames)[:, nq : nq + 3] - np.asarray(before.frames)[:, nq : nq + 3]
    return float(np.linalg.norm(change, axis=1).mean())
