# SPDX-License-Identifier: Apache-2.0
"""Results of an adaptation: the content of adaptation.json and of its page."""

from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.artifacts import read_json
from neurodyn.core.config import Record, from_dict

FIGURES = "adaptation.json"

CONFIDENCE = 0.90
"""Share of intervals that hold the true value."""


class AdaptedQuantity(Record, frozen=True):
    """A quantity in which the robot may differ from its declaration.

    Attributes:
        name: Its name.
        nominal: Declared value.
        value: What was found.
        interval: 90 % interval.
        said: Whether the logs say anything of it; else its value is the declared one, within what is known beforehand.
        bound: Whether it lies on a bound, so that its interval has one side.
        unit: Its unit.
    """

    name: str
    nominal: float
    value: float
    interval: tuple[float, float]
    said: bool
    bound: bool
    unit: str


class Rung(Record, frozen=True):
    """A model of the ladder on whole held-out episodes.

    Attributes:
        name: "declared", "identified" or "networks".
        kept: Whether it is better than the kept one below.
        words: Why.
        share: Its error as a share of that of the kept rung below; UNSET for the declared one.
        errors: Mean errors by group ("joints [rad or m]") at each horizon.
        test: The same on the test episodes, which nothing was chosen on; empty where there are none.
    """

    name: str
    kept: bool
    words: str
    errors: dict[str, list[float]]
    test: dict[str, list[float]] = msgspec.field(default_factory=dict)
    share: float | UnsetType = UNSET


class UnexplainedCoordinate(Record, frozen=True):
    """What a model leaves unexplained of one coordinate, in held-out roll-outs of three frames.

    Attributes:
        name: The coordinate.
        error: Root mean square error [rad or m].
        noise: What the sensors' noise explains of it [rad or m].
        touching: Error where the robot touches something; None without such windows.
        air: Error where it does not; None without such windows.
        with_signals: Correlation of the error with signals, strongest first, of those above .3.
    """

    name: str
    error: float
    noise: float
    touching: float | None
    air: float | None
    with_signals: dict[str, float]


class JointLog(Record, frozen=True):
    """What a log holds of one joint.

    Attributes:
        name: The joint.
        span: Range of its positions [rad or m].
        motion: Root mean square deviation of its positions within 20 frames [rad or m].
        speed: Root mean square speed [rad/s or m/s].
        noise: Noise of its positions [rad or m].
        saturated: Share of frames with its largest command.
        slope: Differences of positions over the velocities that the log holds; 1 where they agree.
    """

    name: str
    span: float
    motion: float
    speed: float
    noise: float
    saturated: float
    slope: float | None


class LogCheck(Record, frozen=True):
    """A check of the logs before anything is fitted.

    Attributes:
        rate: Frames per second.
        minutes: Length [min].
        episodes: Number of episodes: for training, for validation, for test.
        control: Kind of commands.
        repeated: Share of frames that repeat the one before.
        joints: What they hold of each joint.
        warnings: What is wrong, in words.
    """

    rate: float
    minutes: float
    episodes: tuple[int, int, int]
    control: str
    repeated: float
    joints: list[JointLog]
    warnings: list[str]


class NextMotion(Record, frozen=True):
    """A motion whose log would tell most of what is still uncertain.

    Attributes:
        file: CSV of its commands beside the page.
        seconds: Its length [s].
        amplitude: Share of the largest commands that it takes.
        deviations: Standard deviation of quantities, as a share of what was known beforehand: now, and expected.
    """

    file: str
    seconds: float
    amplitude: float
    deviations: dict[str, tuple[float, float]]


class AdaptationFigures(Record, frozen=True):
    """Content of adaptation.json.

    Attributes:
        robot: Name of the robot.
        structure: What differs from the declaration beside numbers; empty for nothing.
        stage: Stage of the fit whose values are kept.
        costs: Cost per held-out window at the end of each stage.
        quantities: What may differ.
        horizons: Horizons of errors [s].
        rungs: The ladder.
        chosen: Name of the rung that the model is.
        unexplained: What it leaves unexplained.
        unexplained_before: What rigid links leave where springs are kept, or else no networks where these are.
        log: The check of the logs.
        next: The motion to log next; UNSET where none is within limits.
        cpu_seconds: CPU time.
        verdict: "ok", or why the model cannot be relied on.
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
    """Read what a finished adaptation found; None where there is none, as of a run that was stopped.

    Raises:
        InputError: adaptation.json is damaged, or of a network with conditions.
    """
    path = run / FIGURES
    return from_dict(read_json(path), AdaptationFigures, str(path)) if path.exists() else None
