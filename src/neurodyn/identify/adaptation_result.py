# SPDX-License-Identifier: Apache-2.0
"""Results of an adaptation: the content of adaptation.json and of its page."""

from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.artifacts import read_json
from neurodyn.core.config import Record, from_dict

FIGURES = "adaptation.json"

CONFIDENCE = 0.90
"""Confidence level of the intervals."""


class AdaptedQuantity(Record, frozen=True):
    """A quantity in which the robot may differ from its declaration.

    Attributes:
        name: Its name.
        nominal: Declared value.
        value: Fitted value.
        interval: 90 % interval.
        determined: Whether the logs determine it (`said` in JSON); otherwise value and interval are the declared value
            and the prior's.
        bound: Whether it lies on a bound, so that its interval is one-sided.
        unit: Its unit.
    """

    name: str
    nominal: float
    value: float
    interval: tuple[float, float]
    determined: bool = msgspec.field(name="said")
    bound: bool
    unit: str


class Rung(Record, frozen=True):
    """A model of the ladder on whole held-out episodes.

    Attributes:
        name: "declared", "identified" or "networks".
        kept: Whether it is better than the last kept rung.
        reason: Why.
        share: Its error, relative to that of the last kept rung; UNSET for the declared one.
        errors: Mean errors by group ("joints [rad or m]") at each horizon.
        test: The same on the test episodes, which no choice depends on; empty if there are none.
    """

    name: str
    kept: bool
    reason: str = msgspec.field(name="words")
    errors: dict[str, list[float]]
    test: dict[str, list[float]] = msgspec.field(default_factory=dict)
    share: float | UnsetType = UNSET


class UnexplainedCoordinate(Record, frozen=True):
    """Unexplained error of one coordinate, in held-out roll-outs of three frames.

    Attributes:
        name: The coordinate.
        error: Root mean square error of the roll-outs that stay finite [rad or m]; None if none does.
        noise: Share of it from the sensors' noise [rad or m].
        diverged: Number of roll-outs that do not stay finite; a coordinate with any counts as the least explained.
        touching: Error during contact; None without such windows.
        air: Error without contact; None without such windows.
        with_signals: Correlations above .3 of the error with signals, strongest first.
    """

    name: str
    error: float | None
    noise: float
    touching: float | None
    air: float | None
    with_signals: dict[str, float]
    diverged: int = 0


class JointLog(Record, frozen=True):
    """Log statistics of one joint.

    Attributes:
        name: The joint.
        span: Range of its positions [rad or m].
        motion: Root mean square deviation of its positions within 20 frames [rad or m].
        speed: Root mean square speed [rad/s or m/s].
        noise: Noise of its positions [rad or m].
        saturated: Share of frames with its largest command.
        slope: Differences of positions over the logged velocities; 1 if they agree.
    """

    name: str
    span: float
    motion: float
    speed: float
    noise: float
    saturated: float
    slope: float | None


class LogCheck(Record, frozen=True):
    """A check of the logs before the fit.

    Attributes:
        rate: Frames per second.
        minutes: Length [min].
        episodes: Number of episodes: for training, for validation, for test.
        control: Kind of commands.
        repeated: Share of frames that repeat the one before.
        joints: Statistics of each joint.
        warnings: Problems, in words.
    """

    rate: float
    minutes: float
    episodes: tuple[int, int, int]
    control: str
    repeated: float
    joints: list[JointLog]
    warnings: list[str]


class NextMotion(Record, frozen=True):
    """The motion whose log would most reduce the remaining uncertainty.

    Attributes:
        file: CSV of its commands beside the page.
        seconds: Its length [s].
        amplitude: Largest commands, as a share of the limits.
        deviations: Standard deviations of quantities, relative to the prior: now, and expected.
    """

    file: str
    seconds: float
    amplitude: float
    deviations: dict[str, tuple[float, float]]


class AdaptationFigures(Record, frozen=True):
    """Content of adaptation.json.

    Attributes:
        robot: Name of the robot.
        structure: Structural difference from the declaration; empty for none.
        stage: Stage of the fit whose values are kept.
        costs: Cost per held-out window at the end of each stage.
        quantities: Quantities that may differ.
        horizons: Horizons of errors [s].
        rungs: The ladder.
        chosen: Name of the model's rung.
        unexplained: Unexplained errors of the model.
        unexplained_before: The same of rigid links if springs are kept, otherwise without networks if these are kept.
        log: The check of the logs.
        next: The motion to log next; UNSET if none is within limits.
        cpu_seconds: CPU time.
        verdict: "ok", or why the model is unreliable.
    """

    robot: str
    structure: str
    stage: str
    costs: dict[str, float]
    quantities: list[AdaptedQuantity]
    horizons: list[float]
    rungs: list[Rung]
    chosen: str
    unexplained: list[UnexplainedCoordinate]
    unexplained_before: list[UnexplainedCoordinate]
    log: LogCheck
    cpu_seconds: float
    verdict: str
    next: NextMotion | UnsetType = UNSET


def read_adaptation(run: Path) -> AdaptationFigures | None:
    """Read the results of a finished adaptation; None for an unfinished one.

    Raises:
        InputError: adaptation.json is damaged, or of a network with conditions.
    """
    path = run / FIGURES
    return from_dict(read_json(path), AdaptationFigures, str(path)) if path.exists() else None
