# SPDX-License-Identifier: Apache-2.0
"""What evaluations return: typed records, from which tables, pages and JSON are made.

Dictionaries are keyed as their JSON is: by horizon in frames ("100"), by metric, by joint, by ground, by model.
"""

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Record
from neurodyn.dynamics.guard import Fault

PERSISTENCE = "hold_last"
"""The persistence baseline, among models by name."""
Percentiles = dict[str, float | None]
_KEYS = {
    "persistence": PERSISTENCE,
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
"""Keys that fields have in JSON, where these are others than their names."""


_ON_GROUND = ("joints", "by_horizon", "finite_fraction", "teacher_finite_fraction", "baselines", "floors")


class Result(Record, frozen=True, rename=_KEYS):
    """A part of an evaluation."""


class About(Result, frozen=True):
    """What was evaluated: roll-outs of `horizon` frames of `dt` [s], from starts (or with noise) of a seed."""

    robot: str
    kind: str
    network: str | None
    parameters: int
    horizon: int
    rollouts: int
    seed: int
    dt: float


class ErrorSummary(Result, frozen=True):
    """Mean errors over all frames up to a horizon and over all roll-outs.

    `means` are by metric, None where no roll-out is finite and 0 of a base that a robot does not have; `percentiles`
    ("10", "50", "90") over the roll-outs are of the metrics that the robot has.
    """

    inline: ClassVar = ("means",)

    means: dict[str, float | None]
    percentiles: dict[str, Percentiles] = msgspec.field(default_factory=dict)
    joints: dict[str, float | None] | UnsetType = UNSET

    def plain(self) -> dict[str, Any]:
        """Return the means beside "METRIC_percentiles"."""
        found = super().plain()
        return found | {f"{name}_percentiles": values for name, values in found.pop("percentiles").items()}

    def median(self, metric: str) -> float | None:
        """Return the median over the roll-outs."""
        return self.percentiles[metric]["50"]


class Baselines(Result, frozen=True):
    """Errors of trivial predictions, by horizon: nothing moves; velocities stay as they are."""

    persistence: dict[str, ErrorSummary]
    constant_velocity: dict[str, ErrorSummary]


class ErrorCurve(Result, frozen=True):
    """Errors at single frames, over the roll-outs."""

    mean: list[float]
    median: list[float]
    p90: list[float]


class ErrorCurves(Result, frozen=True):
    """Errors at `frame`, by metric."""

    inline: ClassVar = ("by_metric",)

    frame: list[int]
    by_metric: dict[str, ErrorCurve]


class LimitSplit(Result, frozen=True):
    """Errors of roll-outs that reach a joint limit, and of the others."""

    touching_fraction: float
    touching: ErrorSummary
    not_touching: ErrorSummary


class RolloutComparison(Result, frozen=True, kw_only=True):
    """Roll-outs beside the truth; UNSET is what a log does not have: a simulator, and joint limits."""

    inline: ClassVar = ("summary",)

    summary: ErrorSummary
    by_horizon: dict[str, ErrorSummary]
    finite_fraction: float
    simulator_finite_fraction: float | UnsetType = UNSET
    baselines: Baselines
    limits: dict[str, LimitSplit] | UnsetType = UNSET
    curve: ErrorCurves

    def better(self, horizon: str, metric: str) -> float | None:
        """Return how many times the better baseline's mean error is that of the model."""
        mine = self.by_horizon[horizon].means[metric]
        both = self.baselines.persistence, self.baselines.constant_velocity
        others = [value for table in both if (value := table[horizon].means[metric]) is not None]
        return min(others) / max(mine, 1e-12) if mine is not None and others else None


class Coverage(Result, frozen=True):
    """How often the truth lies within one and two standard deviations, mean and by column."""

    seconds: float
    one_sigma: float | None
    one_sigma_columns: list[float] | None
    two_sigma: float | None
    two_sigma_columns: list[float] | None


class RankCorrelation(Result, frozen=True, kw_only=True):
    """How well the epistemic and the total standard deviation order forecasts by their error; None of too few."""

    seconds: float | UnsetType = UNSET
    epistemic_rank: float | None
    total_rank: float | None
    mean: float | UnsetType = UNSET


class DrawnOut(Result, frozen=True):
    """The epistemic standard deviation on states that are drawn out from their mean, beside the usual one."""

    ratio: float
    chance_above_usual: float


class OutOfDistribution(Result, frozen=True):
    """The epistemic standard deviation out of distribution, by the factor that states are drawn out by."""

    inline: ClassVar = ("by_factor",)

    usual_median: float | None
    by_factor: dict[str, DrawnOut] = msgspec.field(default_factory=dict)


class MemberCalibration(Result, frozen=True):
    """Whether the members of neural dynamics know how large their errors are; by frames of a roll-out."""

    members: int
    coverage: dict[str, Coverage]
    epistemic: dict[str, RankCorrelation]
    out_of_distribution: OutOfDistribution


class PartialComparison(Result, frozen=True, kw_only=True):
    """Some of the roll-outs: those under random torques or targets, or those from the first states of episodes."""

    inline: ClassVar = ("comparison",)

    rollouts: int
    seed: int | UnsetType = UNSET
    comparison: RolloutComparison
    calibration: MemberCalibration | UnsetType = UNSET


class ReferenceErrors(Result, frozen=True):
    """The simulator's own errors by horizon: at half the step, and from starts that are off by 1e-6."""

    rollouts: int
    half_step: dict[str, ErrorSummary]
    perturbed: dict[str, ErrorSummary]


class Drift(Result, frozen=True):
    """How far the energy moves from its start, and the range of energies over all roll-outs [J]."""

    mean_drift: float
    final_drift: Percentiles
    drift_curve: list[float]
    energy_range: float


class EnergyDrift(Result, frozen=True):
    """Energy drift of model and simulator at `frames`; None where no roll-out is finite."""

    frames: list[int]
    model: Drift | None
    simulator: Drift | None


class LongRun(Result, frozen=True):
    """What becomes of very long roll-outs: shares of them; None where there is no ground.

    `in_bounds_fraction` never leave plausible bounds; `first_out` says which does first, and by what.
    """

    finite_fraction: float
    above_ground_fraction: float | None
    stable_fraction: float
    deepest_m: float | None
    greatest_speed: float | None
    in_bounds_fraction: float = 1.0
    first_out: str = ""


class Stability(Result, frozen=True):
    """Long roll-outs, passive and driven; the latter UNSET where nothing drives the robot."""

    frames: int
    worlds: int
    deepest_allowed_m: float
    ground: str | None
    passive: LongRun
    driven: LongRun | UnsetType = UNSET


class Simulated(Result, frozen=True):
    """A model beside its reference simulator: passive motion, and what else was asked for.

    `hold` are gains of the controller that holds the nominal pose, None without one; there is no `energy` drift with
    contacts or a controller; `worlds` ran at once while throughput was measured.
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
    calibration: MemberCalibration | UnsetType = UNSET
    verdict: str | UnsetType = UNSET
    faults: list[Fault] | UnsetType = UNSET

    def plain(self) -> dict[str, Any]:
        """Return plain data; of each ground what differs between grounds."""
        found = super().plain()
        for name, entry in found.get("grounds", {}).items():
            kept = [*_ON_GROUND, *self.comparison.summary.means]
            found["grounds"][name] = {key: value for key, value in entry.items() if key in kept}
        return found


class LogEvaluation(Result, frozen=True, kw_only=True):
    """What evaluations beside logs have in common.

    Before a start the model sees `context_frames` recorded frames; roll-outs `start` as "logged", or from states
    estimated from the "past". `data` and `start` are UNSET where the log was handed over.
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
    verdict: str | UnsetType = UNSET
    faults: list[Fault] | UnsetType = UNSET


class StateErrors(Result, frozen=True):
    """Errors of positions and velocities at a horizon: by name, their mean, and percentiles over starts."""

    q: list[float]
    qd: list[float]
    q_mean: float
    qd_mean: float
    q_percentiles: Percentiles
    qd_percentiles: Percentiles


class LogMark(Result, frozen=True):
    """Errors of model and baselines at one horizon."""

    seconds: float
    model: StateErrors
    persistence: StateErrors
    constant_velocity: StateErrors
    better_than_baselines: dict[str, float]


class LogSection(Result, frozen=True):
    """Errors at horizons over some of the starts."""

    inline: ClassVar = ("marks",)

    starts: int
    marks: dict[str, LogMark]


class Logged(LogEvaluation, frozen=True):
    """A model beside the log of a bolted robot.

    `by_horizon` are means up to a horizon, `at_horizon` errors at the horizon itself: over "all" starts, and over those
    of "moving" windows, whose mean joint speed is above `moving_above` [rad/s or m/s].
    """

    moving_above: float
    summary: ErrorSummary
    by_horizon: dict[str, ErrorSummary]
    finite_fraction: float
    at_horizon: dict[str, LogSection]
    groups: dict[str, LogSection]
    q_names: list[str]
    q_units: list[str]
    qd_names: list[str]
    calibration: MemberCalibration | UnsetType = UNSET


class Tossed(LogEvaluation, frozen=True):
    """A model beside the log of a floating robot, from single states, `stride` states apart; and from first states."""

    stride: int
    comparison: RolloutComparison
    releases: PartialComparison
    calibration: MemberCalibration | UnsetType = UNSET


class ColumnMeans(Result, frozen=True):
    """Mean absolute errors of a world model; None where no forecast is finite.

    `scaled` is over all columns, each in its standard deviation over the training data.
    """

    columns: list[float] | None
    q_mean: float | None
    qd_mean: float | None
    scaled: float | None


class WorldMark(Result, frozen=True):
    """Errors at one horizon of a world model ("model"), the persistence baseline and other models."""

    inline: ClassVar = ("by_model",)

    seconds: float
    starts: int
    by_model: dict[str, ColumnMeans]


class WorldGroup(Result, frozen=True):
    """Errors on a group of recordings by horizon, then by model."""

    inline: ClassVar = ("marks",)

    starts: int
    marks: dict[str, dict[str, ColumnMeans]]


class Noisy(Result, frozen=True):
    """Errors by horizon with noise on the history."""

    inline: ClassVar = ("marks",)

    finite_fraction: float
    marks: dict[str, ColumnMeans]


class EventScores(Result, frozen=True):
    """Scores of an event: of a contact over all frames, of termination over forecasts; None where a class is empty."""

    rate: float
    recall: float | None
    precision: float | None
    balanced_accuracy: float | None


class Failures(Result, frozen=True):
    """How many episodes failed within so many frames, and how many forecasts of them did.

    `failed` and `predicted` are shares of the starts, which are spread evenly over all frames of the log.
    """

    frames: int
    starts: int
    failed: float
    predicted: float


class ForecastEvaluation(LogEvaluation, frozen=True):
    """A world model beside a log.

    `columns` are what was measured, `state_scale` their standard deviations over the training data, and `by_frame` the
    mean error of all columns in these, by model; `marks` are the horizons.
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
