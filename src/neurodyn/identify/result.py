# SPDX-License-Identifier: Apache-2.0
"""What an identification finds: identification.json, and what `neurodyn identify` prints and shows."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Record
from neurodyn.identify.held_out import HorizonErrors


class LogValue(Record, frozen=True):
    """A quantity in one log, and the standard deviation with which it is known there."""

    value: float
    deviation: float


class IdentifiedParameter(Record, frozen=True):
    """A free quantity.

    Attributes:
        name: Its name.
        value: What was identified.
        interval: 95 % interval; None where there is none to believe.
        why_not: Why there is none; UNSET where there is one.
        sandwich: The interval of the sandwich covariance beside that of a bootstrap; UNSET without one.
        prior: Width of its prior, of a normal one the standard deviation; UNSET without one.
        prior_kind: Kind of this prior (`identify.priors.PRIORS`); UNSET for a normal one.
        nominal: What the robot's declaration says.
        with_networks: Its value beside the networks of a blueprint; UNSET without any.
        by_log: Its value in each log, where it has one of its own.
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
    """Where searches from several starts ended: their costs, the lowest first, and values by name in this order."""

    starts: int
    costs: list[float]
    values: dict[str, list[float]]


class ProfileCurve(Record, frozen=True):
    """Profile likelihood of a quantity: how far the cost rises as it is moved and all else is fitted again.

    Attributes:
        values: Values of the quantity.
        rise: Twice the rise of the cost over the variance of the residuals, for each.
        bound: The rise at the ends of the 95 % interval, were the cost a parabola.
    """

    values: list[float]
    rise: list[float | None]
    bound: float


class RunErrors(Record, frozen=True):
    """Root mean square of a whole run's residuals over consecutive roll-outs.

    Attributes:
        run: Name of the log or episode.
        seconds: Its length [s].
        q: Of positions, by model [rad or m].
        floor: What the sensors' noise alone leaves [rad or m].
    """

    run: str
    seconds: float
    q: dict[str, float]
    floor: float


class Insensitive(Record, frozen=True):
    """A direction of the quantities that the logs hardly see, and its standard deviation in their sizes."""

    direction: str
    deviation: float


class SensorErrors(Record, frozen=True):
    """Root mean square of the errors of one component of a sensor on held-out windows, and its noise in the fit."""

    nominal: float
    identified: float
    noise: float


class HeldOutWindows(Record, frozen=True):
    """Which windows errors are means over: how many, how many of them move, their split, and how forecasts start."""

    starts: int
    moving_starts: int
    moving_above: float
    seconds: list[float]
    split: str
    start: str
    context_frames: int


class TorqueErrors(Record, frozen=True):
    """Root mean square torque of each driven joint over a split, and of what inverse dynamics miss of it [N m or N]."""

    split: str
    logged: dict[str, float]
    nominal: dict[str, float]
    identified: dict[str, float]


class IdentificationFigures(Record, frozen=True):
    """What an identification finds.

    Attributes:
        robot: Name of the robot.
        kind: Kind of dynamics.
        parameters: The free quantities.
        converged: Whether the search has converged: whether intervals mean anything.
        reason: Why, in a line.
        intervals: What intervals come from: "sandwich", "bootstrap", or "torques" (linear in the parameters).
        blocks: What counts as independent, for example "12 logs".
        resamples: Resamples of the bootstrap that were fitted; UNSET without one.
        ends: Where searches from several starts ended; UNSET for one start.
        profiles: Profile likelihoods by name; UNSET where none were asked for.
        runs: Residuals of whole held-out runs.
        errors: Errors on held-out windows by model and horizon ("0.1").
        noise_floor: What the sensors' noise alone leaves of a perfect model, by horizon.
        held_out: The held-out windows.
        singular_values: Singular values of the scaled Jacobian.
        condition: Their ratio.
        insensitive: Directions that the logs hardly see.
        residual_deviation: Standard deviation of the scaled residuals.
        noise: Noise of the sensors by channel.
        scale: Standard deviation of the residuals by channel.
        windows: Number of training windows.
        logs: Number of logs that they come from.
        horizon_s: Their length [s].
        weights: Number of the networks' weights.
        blueprint: The networks.
        sensors: Errors of sensors beside those of joints, by component, from logged states over the horizon of the fit.
        warnings: What a user should know.
        seconds: Wall time [s].
        seed: Seed of everything random.
        torque: Errors of predicted torques; UNSET where these were not fitted.
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
    """One held-out window: frames of `dt` [s], `names` of positions, what was logged and what models forecast."""

    dt: float
    names: list[str]
    logged: list[list[float]]
    paths: dict[str, list[list[float]]]


class RunFit(Record, frozen=True):
    """A whole held-out run and its fits: consecutive roll-outs, each from the state that the log allows.

    Attributes:
        run: Name of the log or episode.
        dt: Frame [s].
        horizon: Frames of a roll-out.
        names: Names of the positions.
        logged: Logged positions, shape [nq, T].
        paths: What models make of them, shape [nq, T], by model.
        residuals: Predicted minus logged, shape [nv, T], by model.
        tangent_names: Names of these.
        floor: Standard deviation that the sensors' noise alone leaves, by degree of freedom.
    """

    run: str
    dt: float
    horizon: int
    names: list[str]
    logged: list[list[float]]
    paths: dict[str, list[list[float]]]
    residuals: dict[str, list[list[float]]]
    tangent_names: list[str]
    floor: list[float]
