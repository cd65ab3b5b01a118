# SPDX-License-Identifier: Apache-2.0
"""Results of an identification or adaptation: the content of their JSON files, of the pages and the printed tables."""

from pathlib import Path
from typing import Any, Literal, Self

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.artifacts import read_json
from neurodyn.core.config import Record, from_dict
from neurodyn.core.verdict import Finding, combine_verdicts

IDENTIFICATION, ADAPTATION = "identification.json", "adaptation.json"
MECHANISM = "mechanism"
"""Folder of the identified mechanism in a run whose model is a network."""
CONFIDENCE = 0.90
"""Confidence level of intervals with priors of the default set."""


class CoordinateErrors(Record, frozen=True):
    """Mean absolute errors at a horizon, over coordinates and by name; None if no window counts."""

    q_mean: float | None = None
    qd_mean: float | None = None
    q: dict[str, float] = msgspec.field(default_factory=dict)
    qd: dict[str, float] = msgspec.field(default_factory=dict)


class HorizonErrors(Record, frozen=True):
    """Errors at a horizon over all windows with a finite forecast, and over the moving ones among them."""

    inline = ("errors",)

    errors: CoordinateErrors
    moving: CoordinateErrors
    finite_fraction: float


class RunErrors(Record, frozen=True):
    """Root mean square residuals of a whole run, by consecutive roll-outs.

    Attributes:
        run: Name of the log or episode.
        seconds: Duration [s].
        q: Position residuals by model [rad or m].
        floor: Position residuals of a perfect model under the sensor noise [rad or m].
    """

    run: str
    seconds: float
    q: dict[str, float]
    floor: float


class RunFit(Record, frozen=True):
    """Fit of a whole held-out run by consecutive roll-outs, each from the state that the log provides.

    Attributes:
        run: Name of the log or episode.
        begin: Time of the first start in the run [s].
        dt: Frame time [s].
        horizon: Frames of a roll-out.
        names: Names of the positions.
        logged: Logged positions, shape [nq, T].
        paths: Predicted positions by model, shape [nq, T].
        residuals: Predicted minus logged positions by model, shape [nv, T].
        tangent_names: Names of the residuals.
        floor: Standard deviation of each residual from the sensor noise alone; empty if unknown.
    """

    run: str
    begin: float
    dt: float
    horizon: int
    names: list[str]
    logged: list[list[float]]
    paths: dict[str, list[list[float]]]
    residuals: dict[str, list[list[float]]]
    tangent_names: list[str]
    floor: list[float]


class LogValue(Record, frozen=True):
    """Value of a quantity in one log, and its standard deviation."""

    value: float
    deviation: float


class InPriorDeviations(Record, frozen=True):
    """A quantity in standard deviations of its prior, from the prior's centre: value, interval, bounds, declared.

    `deviation` is that of the prior, of the logarithm of positive quantities; a log may have widened it.
    """

    value: float
    interval: list[float]
    bounds: list[float]
    declared: float = 0.0
    deviation: float = 1.0


class LogDifference(Record, frozen=True):
    """A quantity that differs between logs.

    Attributes:
        name: The quantity.
        logs: The two logs that differ most certainly.
        values: Its values in them.
        errors: Their difference in standard errors.
        deviation: Standard deviation of the quantity between all logs.
        unit: Unit of the values; empty if unknown.
    """

    name: str
    logs: tuple[str, str]
    values: tuple[float, float]
    errors: float
    deviation: float
    unit: str = ""

    @property
    def text(self) -> str:
        """The difference in words: "b and c differ in calf.friction by 6 standard errors (0.31 and 0.12 N m)"."""
        (first, second), (one, other) = self.logs, self.values
        unit = f" {self.unit}" if self.unit not in ("", "1") else ""
        return (
            f"{first} and {second} differ in {self.name} by {self.errors:.0f} standard errors ({one:.3g} and "
            f"{other:.3g}{unit})"
        )


def _rounded(value: float) -> str:
    """Return a number to one digit, in full: "10", not "1e+01"."""
    return f"{float(f'{value:.1g}'):g}"


class JointRegion(Record, frozen=True):
    """Two quantities of which the logs tell a combination, but neither alone.

    Attributes:
        names: The quantities.
        form: "product", "ratio" of the first to the second, "sum" or "difference".
        value: Value of the combination.
        interval: Its 90 % interval.
        unit: Unit of a sum or difference.
    """

    names: tuple[str, str]
    form: str
    value: float
    interval: tuple[float, float]
    unit: str = ""

    @property
    def text(self) -> str:
        """The combination in words: "the ratio kp / armature is known to 2 %, neither alone"."""
        first, second = (name.removeprefix("actuator.") for name in self.names)
        return f"the {self.form} {first} {self.sign} {second} is known to {self.width}, neither alone"

    @property
    def sign(self) -> str:
        """Sign between the quantities."""
        return {"product": "x", "ratio": "/", "sum": "+", "difference": "-"}[self.form]

    @property
    def width(self) -> str:
        """Half of the interval in words, relative for a product or ratio: "2 %"."""
        half = 0.5 * (self.interval[1] - self.interval[0])
        if self.form in ("product", "ratio"):
            return f"{_rounded(100.0 * half / max(abs(self.value), 1e-300))} %"
        return f"{_rounded(half)} {self.unit}".strip()


class IdentifiedParameter(Record, frozen=True):
    """An identified quantity.

    Attributes:
        name: Its name.
        value: Identified value.
        interval: 95 % interval (90 % with priors of the default set); None if there is no reliable one.
        why_not: Reason for a missing interval; UNSET if there is one.
        sandwich: The sandwich interval in addition to a bootstrap's; UNSET without a bootstrap.
        prior: Width of its prior, for a normal one the standard deviation; UNSET without one.
        prior_kind: Kind of this prior (`identify.unknowns.priors.PRIORS`); UNSET for a normal one.
        nominal: Declared value.
        with_networks: Its value with the networks of a blueprint; UNSET without any.
        by_log: Its value in each log: as fitted if it varies between logs; else, of several logs, as it would be from
            that log alone.
        determined: Whether the logs determine it (`said` in JSON). If not, there is no interval; with a prior of the
            default set, value and interval are the declared value and the prior's.
        bound: Whether it lies on a bound, so that its interval is one-sided.
        unit: Its unit; empty if unknown.
        in_prior: The same in standard deviations of its prior; UNSET without a prior of the default set.
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
    determined: bool = msgspec.field(name="said", default=True)
    bound: bool = False
    unit: str = ""
    in_prior: InPriorDeviations | UnsetType = UNSET


class TriedStructure(Record, frozen=True):
    """A structure that the declaration lacks, and that was tried.

    Attributes:
        name: What it is ("a payload on the link of wrist_3").
        kept: Whether it is better on held-out windows.
        share: Its error there, relative to that without it; None without finite roll-outs.
        reason: Why it is kept or not.
        asked_by: What asked for it: quantities at a bound, and errors above the noise.
        expected: Share of the cost that the screening expected it to save.
        doubted: Whether held-out windows leave open whether it is there, and nothing else that is kept explains it.
    """

    name: str
    kept: bool
    share: float | None
    reason: str
    asked_by: list[str] = msgspec.field(default_factory=list)
    expected: float = 0.0
    doubted: bool = False


class UnseenPayload(Record, frozen=True):
    """The heaviest payload that the logs do not exclude: joint of its link, and mass at the end of its 90 % interval.

    Masses, gains and friction of the fit make up for it.
    """

    joint: str
    mass: float


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


class MotionLikeness(Record, frozen=True):
    """How like a robot's motion is that of a model under the logged commands, wherever both are by then.

    Attributes:
        speed: Root mean square of the model's rates or readings about their means, over that of the robot's.
        spectrum: Root mean square over octaves of the ratio of their power spectra [dB].
    """

    speed: float
    spectrum: float


class Rung(Record, frozen=True):
    """A model of the ladder on whole held-out episodes.

    Attributes:
        name: "declared", "identified" or "networks".
        kept: Whether it is better than the last kept rung.
        reason: Why.
        share: Its error, relative to that of the last kept rung; UNSET for the declared one, None without finite
            roll-outs.
        errors: Mean errors by group ("joints [rad or m]") at each horizon, over finite roll-outs; None without any.
        test: The same on the test episodes, which no choice depends on; empty if there are none.
        finite_fraction: Share of the roll-outs that are finite.
        motion: How it moves under the logged commands, by group; empty where the base is measured.
    """

    name: str
    kept: bool
    reason: str = msgspec.field(name="words")
    errors: dict[str, list[float | None]]
    test: dict[str, list[float | None]] = msgspec.field(default_factory=dict)
    share: float | UnsetType | None = UNSET
    finite_fraction: float = 1.0
    motion: dict[str, MotionLikeness] = msgspec.field(default_factory=dict)


class Reference(Record, frozen=True):
    """A model beside the ladder, which is never chosen: a baseline, or a network trained on the same episodes.

    Attributes:
        name: "persistence", "constant velocity", "gru" or "world-model".
        errors: Mean errors by group at each horizon, as those of a `Rung`.
        test: The same on the test episodes; empty if there are none.
        finite_fraction: Share of the roll-outs that are finite.
        cpu_seconds: CPU time of its training [s].
    """

    name: str
    errors: dict[str, list[float | None]]
    test: dict[str, list[float | None]] = msgspec.field(default_factory=dict)
    finite_fraction: float = 1.0
    cpu_seconds: float = 0.0


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
        file: CSV of its commands beside the page; empty if no motion is safe.
        seconds: Its length [s].
        amplitude: Largest share of its motion that the checks left of what the limits of commands allow.
        deviations: Standard deviations of quantities, relative to the prior: now, and expected.
        tells: What its log will tell: "narrows elbow.friction from +-40 % to +-10 %".
        why_not: Why no motion is safe; empty if one is.
        expected: CSV of the motion and torques that the model expects.
        pose: Where the pose comes from in which it begins and ends.
        kind: Kind of the commands: "target" for positions that drives or a controller of the robot's own follow,
            "torque" or "command".
        limits: Limits of each joint: lower, upper, speed, acceleration (averaged over 50 ms), torque.
        sources: Where the limits come from, by kind, and what was checked for contacts.
        target: The quantity that it is designed for: the one with the widest interval that a motion halves, or else
            narrows most.
        beyond: Why no motion halves wider intervals.
    """

    file: str
    seconds: float
    amplitude: float
    deviations: dict[str, tuple[float, float]]
    tells: list[str] = msgspec.field(default_factory=list)
    why_not: str = ""
    expected: str = ""
    pose: str = ""
    kind: str = ""
    limits: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    sources: dict[str, str] = msgspec.field(default_factory=dict)
    target: str = ""
    beyond: list[str] = msgspec.field(default_factory=list)


class DelayFigures(Record, frozen=True):
    """What the logs say of the time after which motors follow their commands; errors are half 90 % intervals [s].

    Attributes:
        delay: Delay of the motors [s].
        delay_error: Its error.
        lag: Mean lag of the motors [s]; None if none is free.
        lag_error: Its error.
        parts: What adds up to the total, such as "delay + lag".
        total: The sum [s].
        total_error: Its error.
        split: Whether the parts are known by themselves, and not only their sum.
        measured: Delay that the import of the log measured [s]; None for none of use.
        measured_error: Its standard error.
        shift: Shift of the commands that the column map declares [s].
        text: All of it in words.
    """

    delay: float
    delay_error: float
    parts: str
    total: float
    total_error: float
    split: bool
    text: str
    lag: float | None = None
    lag_error: float | None = None
    measured: float | None = None
    measured_error: float | None = None
    shift: float = 0.0


class OwnQuantities(Record, frozen=True):
    """Quantities with a value of their own in each group of runs, or run (`identify.ladder.own_quantities`).

    Attributes:
        by: What has values of its own: each "group" of runs, or each "run".
        names: The quantities of the engine.
        groups: Their values by group, or by run.
        scale: Errors of positions and velocities that the fit leaves, shape [2 nv].
        noise: Noise of the log's positions and velocities, shape [2 nv].
    """

    by: Literal["group", "run"]
    names: list[str]
    groups: dict[str, list[float]]
    scale: list[float]
    noise: list[float]

    @property
    def usual(self) -> list[float]:
        """The mean over groups."""
        return [sum(values) / len(values) for values in zip(*self.groups.values(), strict=True)]


class IdentificationFigures(Record, frozen=True):
    """Content of identification.json, and of adaptation.json.

    Attributes:
        robot: Name of the robot.
        kind: Kind of dynamics.
        parameters: The free quantities; also as `quantities` in adaptation.json.
        converged: Whether the search converged; intervals are valid only then.
        reason: Explanation of `converged` in one line.
        intervals: Source of the intervals: "sandwich", "bootstrap", or "torques" (linear in the parameters).
        blocks: Independent units of the data, for example "12 logs".
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
        warnings: Warnings for the user.
        seconds: Wall time [s].
        cpu_seconds: CPU time [s].
        seed: Seed of all random draws.
        structure: Structural difference from the declaration; empty for none.
        carrier: Joint of the link that carries the payload; empty without one.
        tried: Structures that were tried because the fit asked for them.
        unseen_payload: A payload that may be there all the same; UNSET if one is fitted, or less than matters.
        stage: Stage of the fit whose values are kept; empty for a fit without stages.
        costs: Cost per held-out window at the end of each stage.
        resamples: Number of fitted bootstrap resamples; UNSET without a bootstrap.
        ends: Minima found from several starts; UNSET for one start.
        profiles: Profile likelihoods by name; UNSET unless requested.
        sensors: Errors of sensors other than joint encoders by channel, over the horizon of the fit.
        torque: Torque errors of inverse dynamics; UNSET for roll-outs.
        runs: Residuals of whole held-out runs.
        errors: Errors on held-out windows by model and horizon ("0.1").
        noise_floor: Errors of a perfect model under the sensor noise, by horizon.
        held_out: The held-out windows of these errors; UNSET without any.
        horizons: Horizons of the ladder [s].
        rungs: The ladder: models that are kept if they are better on whole held-out episodes; empty without one.
        chosen: Name of the model's rung; UNSET without a ladder.
        network: Reference that is the run's model because it predicts better than that rung, which is in the run's
            folder `mechanism`; empty for none.
        kinds: Comparison of each network with the best model before it, by name, where any kind may be the run's.
        start: Initial states of an adaptation's held-out roll-outs (`Start`).
        context: Past frames to which these are then fitted.
        unexplained: Unexplained errors of the model.
        unexplained_before: The same of rigid links if springs are kept, otherwise without networks if these are kept.
        log: The check of the logs; UNSET without a ladder.
        next: The motion to log next; UNSET if none was asked for.
        differences: Quantities that differ between logs, the most certain first; the fit lets them vary.
        together: Combinations of two quantities that are known, where neither is.
        stated: Values that the map of the log states, which are held.
        delay: Delay and other slowness of motors; UNSET if no delay is free.
        verdict: "ok", or why the model is unreliable; UNSET in results of earlier versions.
        findings: The findings behind the verdict, worst first; those that are ok are left out.
        references: Models beside the ladder, such as the baselines; at the same horizons, from the same windows.
        own: Quantities with values of their own in each group of runs; UNSET if none differ.
    """

    robot: str
    parameters: list[IdentifiedParameter]
    kind: str = "hybrid"
    converged: bool = True
    reason: str = ""
    intervals: str = "sandwich"
    blocks: str = ""
    runs: list[RunErrors] = msgspec.field(default_factory=list)
    errors: dict[str, dict[str, HorizonErrors]] = msgspec.field(default_factory=dict)
    noise_floor: dict[str, HorizonErrors] = msgspec.field(default_factory=dict)
    held_out: HeldOutWindows | UnsetType = UNSET
    singular_values: list[float] = msgspec.field(default_factory=list)
    condition: float = 1.0
    insensitive: list[Insensitive] = msgspec.field(default_factory=list)
    residual_deviation: float = 1.0
    noise: dict[str, float] = msgspec.field(default_factory=dict)
    scale: dict[str, float] = msgspec.field(default_factory=dict)
    windows: int = 0
    logs: int = 0
    horizon_s: float = 0.0
    weights: int = 0
    blueprint: dict[str, Any] = msgspec.field(default_factory=dict)
    warnings: list[str] = msgspec.field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    seed: int = 0
    structure: str = ""
    carrier: str = ""
    tried: list[TriedStructure] = msgspec.field(default_factory=list)
    unseen_payload: UnseenPayload | UnsetType = UNSET
    stage: str = ""
    costs: dict[str, float] = msgspec.field(default_factory=dict)
    sensors: dict[str, SensorErrors] = msgspec.field(default_factory=dict)
    resamples: int | UnsetType = UNSET
    ends: SearchMinima | UnsetType = UNSET
    profiles: dict[str, ProfileCurve] | UnsetType = UNSET
    torque: TorqueErrors | UnsetType = UNSET
    horizons: list[float] = msgspec.field(default_factory=list)
    rungs: list[Rung] = msgspec.field(default_factory=list)
    chosen: str | UnsetType = UNSET
    unexplained: list[UnexplainedCoordinate] = msgspec.field(default_factory=list)
    unexplained_before: list[UnexplainedCoordinate] = msgspec.field(default_factory=list)
    log: LogCheck | UnsetType = UNSET
    next: NextMotion | UnsetType = UNSET
    differences: list[LogDifference] = msgspec.field(default_factory=list)
    together: list[JointRegion] = msgspec.field(default_factory=list)
    stated: dict[str, float] = msgspec.field(default_factory=dict)
    verdict: str | UnsetType = UNSET
    delay: DelayFigures | UnsetType = UNSET
    findings: list[Finding] = msgspec.field(default_factory=list)
    references: list[Reference] = msgspec.field(default_factory=list)
    network: str = ""
    kinds: dict[str, str] = msgspec.field(default_factory=dict)
    start: str = "logged"
    context: int | UnsetType = UNSET
    own: OwnQuantities | UnsetType = UNSET

    def judged(self, findings: list[Finding]) -> Self:
        """Return the results with findings and their verdict."""
        return msgspec.structs.replace(self, findings=findings, verdict=str(combine_verdicts(findings)))

    @property
    def file(self) -> str:
        """Name of the file of these results in a run."""
        return IDENTIFICATION if self.chosen is UNSET else ADAPTATION

    @property
    def sensed(self) -> bool:
        """Whether the base of the robot is unmeasured in the log."""
        return any(rung.motion for rung in self.rungs)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return header and rows of a table of the free quantities."""
        rows = []
        for one in self.parameters:
            interval = ["", ""] if one.interval is None else [f"{bound:.6g}" for bound in one.interval]
            rows.append([one.name, f"{one.value:.6g}", *interval, f"{one.nominal:.6g}"])
        return ["name", "value", "from", "to", "declared"], rows

    def plain(self) -> dict[str, Any]:
        """Return the results as plain data for JSON; an adaptation's quantities also under the name `quantities`."""
        figures = super().plain()
        return figures if self.chosen is UNSET else {**figures, "quantities": figures["parameters"]}


def read_adaptation(run: Path) -> IdentificationFigures | None:
    """Read the results of a finished adaptation; None for an unfinished one.

    Raises:
        InputError: adaptation.json is damaged, or of a network with conditions.
    """
    path = run / ADAPTATION
    if not path.exists():
        return None
    data = read_json(path)
    if isinstance(data, dict):  # older runs name the parameters so alone; errors by model are for pages
        left_out = ("quantities", "errors", "noise_floor")
        parameters = data.get("quantities", data.get("parameters"))
        data = {key: value for key, value in data.items() if key not in left_out} | {"parameters": parameters}
    return from_dict(data, IdentificationFigures, str(path))
