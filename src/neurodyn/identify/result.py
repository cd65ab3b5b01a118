# SPDX-License-Identifier: Apache-2.0
"""Results of an identification: the content of identification.json and of the printed tables."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Record
from neurodyn.identify.held_out import HorizonErrors, RunErrors


class LogValue(Record, frozen=True):
    """Value of a quantity in one log, and its standard deviation."""

    value: float
    deviation: float


class IdentifiedParameter(Record, frozen=True):
    """An identified quantity.

    Attributes:
        name: Its name.
        value: Identified value.
        interval: 95 % interval; None if there is no reliable one.
        why_not: Reason for a missing interval; UNSET if there is one.
        sandwich: The sandwich interval in addition to a bootstrap's; UNSET without a bootstrap.
        prior: Width of its prior, for a normal one the standard deviation; UNSET without one.
        prior_kind: Kind of this prior (`identify.priors.PRIORS`); UNSET for a normal one.
        nominal: Declared value.
        with_networks: Its value with the networks of a blueprint; UNSET without any.
        by_log: Its value in each log, if it varies between logs.
    """

    name: str
    value: float
    interval: list[float] | None
    nominal: float
    why_not: str | UnsetType = UNSET
    sandwich: list[float] | UnsetType = UNSET
    prior: float | UnsetType = UNSET
    prior_kind: str | UnsetType = UNSET
    with_networks: float | UnsetType = UNSET
    by_log: dict[str, LogValue] | UnsetType = UNSET


class SearchMinima(Record, frozen=True):
    """Minima found from several starts: costs in ascending order, and the values of each quantity in the same order."""

    starts: int
    costs: list[float]
    values: dict[str, list[float]]


class ProfileCurve(Record, frozen=True):
    """Profile likelihood of a quantity: rise of the cost when it is fixed and all else is fitted again.

    Attributes:
        values: Fixed values of the quantity.
        rise: Twice the rise of the cost over the residual variance, for each value.
        bound: The rise at both limits of the 95 % interval if the cost were quadratic.
    """

    values: list[float]
    rise: list[float | None]
    bound: float


class Insensitive(Record, frozen=True):
    """A parameter direction to which the logs are hardly sensitive, and its standard deviation in parameter sizes."""

    direction: str
    deviation: float


class SensorErrors(Record, frozen=True):
    """Root mean square error of one sensor channel on held-out windows, and its noise in the fit."""

    nominal: float
    identified: float
    noise: float


class HeldOutWindows(Record, frozen=True):
    """The held-out windows: their number, how many of them move, horizons, split, and how forecasts start."""

    starts: int
    moving_starts: int
    moving_above: float
    seconds: list[float]
    split: str
    start: str
    context_frames: int


class TorqueErrors(Record, frozen=True):
    """Root mean square torque of each driven joint over a split, and the error of inverse dynamics [N m or N]."""

    split: str
    logged: dict[str, float]
    nominal: dict[str, float]
    identified: dict[str, float]


class IdentificationFigures(Record, frozen=True):
    """Content of identification.json.

    Attributes:
        robot: Name of the robot.
        kind: Kind of dynamics.
        parameters: The free quantities.
        converged: Whether the search converged; intervals are valid only then.
        reason: Explanation of `converged` in one line.
        intervals: Source of the intervals: "sandwich", "bootstrap", or "torques" (linear in the parameters).
        blocks: Independent units of the data, for example "12 logs".
        resamples: Number of fitted bootstrap resamples; UNSET without a bootstrap.
        ends: Minima found from several starts; UNSET for one start.
        profiles: Profile likelihoods by name; UNSET unless requested.
        runs: Residuals of whole held-out runs.
        errors: Errors on held-out windows by model and horizon ("0.1").
        noise_floor: Errors of a perfect model under the sensor noise, by horizon.
        held_out: The held-out windows.
        singular_values: Singular values of the scaled Jacobian.
        condition: Ratio of the largest to the smallest of them.
        insensitive: Directions to which the logs are hardly sensitive.
        residual_deviation: Standard deviation of the scaled residuals.
        noise: Sensor noise by channel.
        scale: Standard deviation of the residuals by channel.
        windows: Number of training windows.
        logs: Number of logs with training windows.
        horizon_s: Length of a window [s].
        weights: Number of network weights.
        blueprint: The networks.
        sensors: Errors of sensors other than joint encoders by channel, over the horizon of the fit.
        warnings: Warnings for the user.
        seconds: Wall time [s].
        seed: Seed of all random draws.
        torque: Torque errors of inverse dynamics; UNSET for roll-outs.
    """

    robot: str
    kind: str
    parameters: list[IdentifiedParameter]
    converged: bool
    reason: str
    intervals: str
    blocks: str
    runs: list[RunErrors]
    errors: dict[str, dict[str, HorizonErrors]]
    noise_floor: dict[str, HorizonErrors]
    held_out: HeldOutWindows
    singular_values: list[float]
    condition: float
    insensitive: list[Insensitive]
    residual_deviation: float
    noise: dict[str, float]
    scale: dict[str, float]
    windows: int
    logs: int
    horizon_s: float
    weights: int
    blueprint: dict[str, Any]
    warnings: list[str]
    seconds: float
    seed: int
    sensors: dict[str, SensorErrors] = msgspec.field(default_factory=dict)
    resamples: int | UnsetType = UNSET
    ends: SearchMinima | UnsetType = UNSET
    profiles: dict[str, ProfileCurve] | UnsetType = UNSET
    torque: TorqueErrors | UnsetType = UNSET


class Sample(Record, frozen=True):
    """One held-out window: frame time `dt` [s], position `names`, the logged positions and each model's forecast."""

    dt: float
    names: list[str]
    logged: list[list[float]]
    paths: dict[str, list[list[float]]]
