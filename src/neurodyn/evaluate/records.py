# SPDX-License-Identifier: Apache-2.0
"""Results of evaluations: typed records that tables, pages and JSON are made from.

Dictionaries use the JSON keys: horizon in frames ("100"), metric, joint, ground, baseline, or model.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Record
from neurodyn.core.verdict import Finding
from neurodyn.dynamics.guard import Fault

Percentiles = dict[str, float | None]
_KEYS = {
    "simulator": "teacher",
    "simulator_finite_fraction": "teacher_finite_fraction",
    "simulator_steps_per_cpu_second": "teacher_env_steps_per_cpu_second",
    "reference_errors": "floors",
    "half_step": "twice_substeps",
    "perturbed": "perturbed_1e-6",
    "mean_drift": "drift_J",
    "final_drift": "final_percentiles_J",
    "drift_curve": "curve_J",
    "energy_range": "scale_J",
    "scaled": "spreads",
    "one_sigma": "1",
    "two_sigma": "2",
    "one_sigma_columns": "1_columns",
    "two_sigma_columns": "2_columns",
    "epistemic_rank": "rank_correlation",
    "total_rank": "spread_rank_correlation",
    "out_of_distribution": "unlike",
}
"""JSON keys that differ from the field names."""


_ON_GROUND = ("joints", "by_horizon", "finite_fraction", "teacher_finite_fraction", "baselines", "floors")


class Result(Record, frozen=True, rename=_KEYS):
    """A part of an evaluation."""


class About(Result, frozen=True):
    """Subject of an evaluation: roll-outs of `horizon` frames of `dt` [s]; `seed` is that of starts or noise.

    `caveat` is that of the dynamics; UNSET for none.
    """

    robot: str
    kind: str
    network: str | None
    parameters: int
    horizon: int
    rollouts: int
    seed: int
    dt: float
    caveat: str | UnsetType = UNSET


class ErrorSummary(Result, frozen=True):
    """Mean errors over all frames up to a horizon and over all roll-outs.

    `means` by metric are None if no roll-out is finite, and 0 for base metrics of a robot with a fixed base. `at` are
    those at the horizon itself, of the metrics that apply to the robot.
    `percentiles` ("10", "50", "90") over the roll-outs exist for the metrics that apply to the robot.
    """

    inline: ClassVar = ("means",)

    means: dict[str, float | None]
    percentiles: dict[str, Percentiles] = msgspec.field(default_factory=dict)
    joints: dict[str, float | None] | UnsetType = UNSET
    at: dict[str, float | None] | UnsetType = UNSET

    def plain(self) -> dict[str, Any]:
        """Return the means, with "METRIC_percentiles" beside them."""
        plain = super().plain()
        return plain | {f"{name}_percentiles": values for name, values in plain.pop("percentiles").items()}

    def median(self, metric: str) -> float | None:
        """Return the median over the roll-outs."""
        return self.percentiles[metric]["50"]


class ErrorCurve(Result, frozen=True):
    """Errors at single frames over the roll-outs."""

    mean: list[float]
    median: list[float]
    p90: list[float]


class ErrorCurves(Result, frozen=True):
    """Errors at the frames `frame`, by metric."""

    inline: ClassVar = ("by_metric",)

    frame: list[int]
    by_metric: dict[str, ErrorCurve]


class LimitSplit(Result, frozen=True):
    """Errors of roll-outs that reach a joint limit, and of the others."""

    touching_fraction: float
    touching: ErrorSummary
    not_touching: ErrorSummary


class RolloutComparison(Result, frozen=True, kw_only=True):
    """Errors of roll-outs; fields that need a simulator or joint limits are UNSET for a log."""

    inline: ClassVar = ("summary",)

    summary: ErrorSummary
    by_horizon: dict[str, ErrorSummary]
    finite_fraction: float
    simulator_finite_fraction: float | UnsetType = UNSET
    baselines: dict[str, dict[str, ErrorSummary]]
    limits: dict[str, LimitSplit] | UnsetType = UNSET
    curve: ErrorCurves

    def better(self, horizon: str, metric: str) -> float | None:
        """Return the better baseline's mean error divided by the model's."""
        mine = self.by_horizon[horizon].means[metric]
        tables = self.baselines.values()
        others = [value for table in tables if (value := table[horizon].means[metric]) is not None]
        return min(others) / max(mine, 1e-12) if mine is not None and others else None


class Coverage(Result, frozen=True):
    """Fraction of true values within one and two standard deviations, as a mean and by column."""

    seconds: float
    one_sigma: float | None
    one_sigma_columns: list[float] | None
    two_sigma: float | None
    two_sigma_columns: list[float] | None


class RankCorrelation(Result, frozen=True, kw_only=True):
    """Rank correlation of error with epistemic and with total standard deviation; None for too few forecasts."""

    seconds: float | UnsetType = UNSET
    epistemic_rank: float | None
    total_rank: float | None
    mean: float | UnsetType = UNSET


class DrawnOut(Result, frozen=True):
    """Epistemic standard deviation on states scaled away from their mean, relative to in-distribution states."""

    ratio: float
    chance_above_usual: float


class OutOfDistribution(Result, frozen=True):
    """Epistemic standard deviation out of distribution, by the factor that scales states away from their mean."""

    inline: ClassVar = ("by_factor",)

    usual_median: float | None
    by_factor: dict[str, DrawnOut] = msgspec.field(default_factory=dict)


class Refusals(Result, frozen=True):
    """Starts of forecasts that a model refuses (`dynamics.known_inputs`), and the errors of these and the others.

    Attributes:
        refused: Share of the starts that are refused for either reason.
        outside: Share whose network inputs are far from the training data.
        contradicted: Share whose history contradicts the model; None if it cannot say.
        seconds: Horizon of the errors [s].
        unit: Unit of the errors.
        error: Mean error of refused starts at that horizon, over joints or all columns; None without any.
        error_of_others: That of the others.
    """

    refused: float
    outside: float
    contradicted: float | None
    seconds: float
    unit: str
    error: float | None
    error_of_others: float | None


class MemberCalibration(Result, frozen=True):
    """Calibration of a neural-dynamics ensemble, by frames of a roll-out."""

    members: int
    coverage: dict[str, Coverage]
    epistemic: dict[str, RankCorrelation]
    out_of_distribution: OutOfDistribution


class PartialComparison(Result, frozen=True, kw_only=True):
    """A subset of roll-outs: under random control, or from the first states of episodes."""

    inline: ClassVar = ("comparison",)

    rollouts: int
    seed: int | UnsetType = UNSET
    comparison: RolloutComparison
    calibration: MemberCalibration | UnsetType = UNSET


class ReferenceErrors(Result, frozen=True):
    """The simulator's own errors by horizon: at half the time step, and from starts perturbed by 1e-6."""

    rollouts: int
    half_step: dict[str, ErrorSummary]
    perturbed: dict[str, ErrorSummary]


class ConditionBin(Result, frozen=True):
    """Mean errors by metric of roll-outs with similar values of a condition, averaging `mean`.

    `inside` says whether these values are in the training range.
    """

    rollouts: int
    inside: bool
    mean: float | None
    errors: dict[str, float | None]


class ConditionErrors(Result, frozen=True):
    """Errors up to `frames` by the value of a condition, trained between `lower` and `upper`, by bin name."""

    name: str
    lower: float
    upper: float
    frames: int
    bins: dict[str, ConditionBin]


class Drift(Result, frozen=True):
    """Deviation of the energy from its initial value, and the range of energies over all roll-outs [J]."""

    mean_drift: float
    final_drift: Percentiles
    drift_curve: list[float]
    energy_range: float


class EnergyDrift(Result, frozen=True):
    """Energy drift of model and simulator at `frames`; None if no roll-out is finite."""

    frames: list[int]
    model: Drift | None
    simulator: Drift | None


class LongRun(Result, frozen=True):
    """Very long roll-outs, as fractions of worlds; None without a ground.

    `in_bounds_fraction` is the fraction that never leaves plausible bounds; `first_out` describes the first departure.
    """

    finite_fraction: float
    above_ground_fraction: float | None
    stable_fraction: float
    deepest_m: float | None
    greatest_speed: float | None
    in_bounds_fraction: float = 1.0
    first_out: str = ""


class Stability(Result, frozen=True):
    """Long passive and driven roll-outs; `driven` is UNSET for a robot without drives."""

    frames: int
    worlds: int
    deepest_allowed_m: float
    ground: str | None
    passive: LongRun
    driven: LongRun | UnsetType = UNSET


class Simulated(Result, frozen=True):
    """A model against its reference simulator, in passive motion and under random control.

    `hold` holds the gains of the controller for the nominal pose, None without one. `energy` is None with contacts or a
    controller. `worlds` is the batch size of the throughput measurement.
    """

    inline: ClassVar = ("about", "comparison")

    about: About
    ground: str | None
    starts: str
    hold: list[float] | None
    comparison: RolloutComparison
    reference_errors: ReferenceErrors | None
    energy: EnergyDrift | None
    driven: PartialComparison | None
    env_steps_per_second: float
    env_steps_per_cpu_second: float
    simulator_steps_per_cpu_second: float
    worlds: int
    simulator: dict[str, Any]
    grounds: "dict[str, Simulated] | UnsetType" = UNSET
    grounds_mean: dict[str, float | None] | UnsetType = UNSET
    stability: Stability | UnsetType = UNSET
    conditions: list[ConditionErrors] | UnsetType = UNSET
    calibration: MemberCalibration | UnsetType = UNSET
    verdict: str | UnsetType = UNSET
    findings: list[Finding] | UnsetType = UNSET
    faults: list[Fault] | UnsetType = UNSET

    def plain(self) -> dict[str, Any]:
        """Return plain data; each ground lists only what differs between grounds."""
        plain = super().plain()
        for name, entry in plain.get("grounds", {}).items():
            kept = [*_ON_GROUND, *self.comparison.summary.means]
            plain["grounds"][name] = {key: value for key, value in entry.items() if key in kept}
        return plain


class LogEvaluation(Result, frozen=True, kw_only=True):
    """Common fields of evaluations against logs.

    A model sees `context_frames` recorded frames before a start. `start` says whether roll-outs start from states as
    "logged", or estimated from "past" positions or, "filtered", also from past velocities. `data` and `start` are UNSET
    if the caller passed the log. `declared` holds the declared simulator's errors up to and at each horizon from the
    same starts, UNSET without one; `beside` those of other models, by name.
    """

    inline: ClassVar = ("about", "summary", "comparison")

    about: About
    context_frames: int
    split: str
    episodes: int
    env_steps_per_second: float | None = None
    simulator: None = None
    notes: dict[str, Any]
    data: str | UnsetType = UNSET
    start: str | UnsetType = UNSET
    declared: dict[str, ErrorSummary] | UnsetType = UNSET
    beside: dict[str, dict[str, ErrorSummary]] | UnsetType = UNSET
    conditions: list[ConditionErrors] | UnsetType = UNSET
    refusals: Refusals | UnsetType = UNSET
    verdict: str | UnsetType = UNSET
    findings: list[Finding] | UnsetType = UNSET
    faults: list[Fault] | UnsetType = UNSET


class StateErrors(Result, frozen=True):
    """Errors of positions and velocities at a horizon: by name, as a mean, and as percentiles over starts."""

    q: list[float]
    qd: list[float]
    q_mean: float
    qd_mean: float
    q_percentiles: Percentiles
    qd_percentiles: Percentiles

    def means(self, what: str, units: Sequence[str]) -> dict[str, float]:
        """Return the means of positions ("q") or velocities ("qd") over the joints of each unit.

        Args:
            what: "q" or "qd".
            units: Units of the joints; where joints have several velocities, all velocities have one mean, without a
                unit.
        """
        values: list[float] = getattr(self, what)
        if len(units) != len(values):
            return {"": getattr(self, f"{what}_mean")}
        by_unit: dict[str, list[float]] = {}
        for unit, value in zip(units, values, strict=True):
            by_unit.setdefault(unit if what == "q" else f"{unit}/s", []).append(value)
        return {unit: fmean(values) for unit, values in by_unit.items()}


class UnitMeans(NamedTuple):
    """Mean errors of joints of one unit.

    Attributes:
        label: What tells them from others, ", in UNIT"; empty if all joints have this unit.
        unit: The unit.
        values: Errors of the model and then of the baselines.
    """

    label: str
    unit: str
    values: list[float]


class LogMark(Result, frozen=True):
    """Errors of the model and the baselines at one horizon."""

    inline: ClassVar = ("baselines",)

    seconds: float
    model: StateErrors
    baselines: dict[str, StateErrors]
    better_than_baselines: dict[str, float]

    def means(self, what: str, units: Sequence[str]) -> list[UnitMeans]:
        """Return the means of the model and the baselines in each unit of `StateErrors.means`."""
        each = [errors.means(what, units) for errors in (self.model, *self.baselines.values())]
        alone = len(each[0]) == 1
        return [UnitMeans("" if alone else f", in {unit}", unit, [means[unit] for means in each]) for unit in each[0]]


class LogSection(Result, frozen=True):
    """Errors by horizon over a subset of the starts."""

    inline: ClassVar = ("marks",)

    starts: int
    marks: dict[str, LogMark]


class Logged(LogEvaluation, frozen=True):
    """A model against the log of a fixed-base robot.

    `by_horizon` holds means up to a horizon, `at_horizon` errors at the horizon itself: over "all" starts, and over
    "moving" windows, with a mean joint speed above `moving_above` [rad/s or m/s]. `baselines` has those of persistence
    and constant velocity as `by_horizon` has the model's.
    """

    moving_above: float
    summary: ErrorSummary
    by_horizon: dict[str, ErrorSummary]
    finite_fraction: float
    baselines: dict[str, dict[str, ErrorSummary]]
    at_horizon: dict[str, LogSection]
    groups: dict[str, LogSection]
    q_names: list[str]
    q_units: list[str]
    qd_names: list[str]
    calibration: MemberCalibration | UnsetType = UNSET

    @property
    def units(self) -> tuple[str, str]:
        """Units of positions and velocities, empty if joints differ."""
        units = set(self.q_units)
        unit = units.pop() if len(units) == 1 else ""
        return unit, f"{unit}/s" if unit else ""


class Tossed(LogEvaluation, frozen=True):
    """A model against the log of a floating robot, from states `stride` frames apart and from episode starts."""

    stride: int
    comparison: RolloutComparison
    releases: PartialComparison
    calibration: MemberCalibration | UnsetType = UNSET


class ColumnMeans(Result, frozen=True):
    """Mean absolute errors of a world model's finite forecasts, and the share of these; None if there are none.

    `scaled` is the mean over all columns, each in units of its training standard deviation.
    """

    columns: list[float] | None
    q_mean: float | None
    qd_mean: float | None
    scaled: float | None
    finite_fraction: float


class WorldMark(Result, frozen=True):
    """Errors at one horizon by model: the world model ("model"), the persistence baseline, and other models."""

    inline: ClassVar = ("by_model",)

    seconds: float
    starts: int
    by_model: dict[str, ColumnMeans]


class WorldGroup(Result, frozen=True):
    """Errors on a group of recordings, by horizon and model."""

    inline: ClassVar = ("marks",)

    starts: int
    marks: dict[str, dict[str, ColumnMeans]]


class Noisy(Result, frozen=True):
    """Errors by horizon with noise on the history."""

    inline: ClassVar = ("marks",)

    finite_fraction: float
    marks: dict[str, ColumnMeans]


class EventScores(Result, frozen=True):
    """Scores for a contact (over frames) or termination (over forecasts); None if a class is empty."""

    rate: float
    recall: float | None
    precision: float | None
    balanced_accuracy: float | None


class Failures(Result, frozen=True):
    """Failures within a number of frames, in episodes and in forecasts.

    `failed` and `predicted` are fractions of the starts, which are evenly spaced over all frames of the log, without
    those whose forecast is not finite. `finite_fraction` is the share of the forecasts that are; UNSET if all are.
    """

    frames: int
    starts: int
    failed: float
    predicted: float
    finite_fraction: float | UnsetType = UNSET


class ForecastEvaluation(LogEvaluation, frozen=True):
    """A world model against a log.

    `columns` are the measured quantities, `state_scale` their training standard deviations, `by_frame` the mean scaled
    error over all columns by model, and `marks` the horizons [frames].
    """

    members: int
    summary: ErrorSummary
    by_horizon: dict[str, ErrorSummary]
    finite_fraction: float
    columns: list[str]
    units: list[str]
    state_scale: list[float]
    marks: list[int]
    at_horizon: dict[str, WorldMark]
    groups: dict[str, WorldGroup]
    by_frame: dict[str, list[float]]
    coverage: dict[str, Coverage]
    epistemic: dict[str, RankCorrelation]
    out_of_distribution: OutOfDistribution
    noise: dict[str, Noisy]
    events: dict[str, EventScores]
    failures: Failures | UnsetType = UNSET


Evaluation = Simulated | Logged | Tossed | ForecastEvaluation
