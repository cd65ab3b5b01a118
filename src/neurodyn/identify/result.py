# SPDX-License-Identifier: Apache-2.0
"""What an identification finds: identification.json, and what `neurodyn identify` prints and shows."""

from typing import Any

from msgspec import UNSET, UnsetType

from neurodyn.core.records import Record
from neurodyn.identify.held_out import HorizonErrors


class OfLog(Record, frozen=True):
    """A quantity in one log, and the standard deviation with which it is known there."""

    value: float
    deviation: float


class Found(Record, frozen=True):
    """A free quantity.

    Attributes:
        name: Its name.
        value: What was identified.
        interval: 95 % interval; None where the logs do not see it.
        nominal: What the robot's declaration says.
        with_networks: Its value beside the networks of a blueprint; UNSET without any.
        by_log: Its value in each log, where it has one of its own.
    """

    name: str
    value: float
    interval: list[float] | None
    nominal: float
    with_networks: float | UnsetType = UNSET
    by_log: dict[str, OfLog] | UnsetType = UNSET


class Insensitive(Record, frozen=True):
    """A direction of the quantities that the logs hardly see, and its standard deviation in their sizes."""

    direction: str
    deviation: float


class HeldOutWindows(Record, frozen=True):
    """Which windows errors are means over: how many, how many of them move, their split, and how forecasts start."""

    starts: int
    moving_starts: int
    moving_above: float
    seconds: list[float]
    split: str
    start: str
    context_frames: int


class Identified(Record, frozen=True):
    """What an identification finds.

    Attributes:
        robot: Name of the robot.
        kind: Kind of dynamics.
        parameters: The free quantities.
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
        warnings: What a user should know.
        seconds: Wall time [s].
        seed: Seed of everything random.
    """

    robot: str
    kind: str
    parameters: list[Found]
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


class Sample(Record, frozen=True):
    """One held-out window: frames of `dt` [s], `names` of positions, what was logged and what models forecast."""

    dt: float
    names: list[str]
    logged: list[list[float]]
    paths: dict[str, list[list[float]]]
