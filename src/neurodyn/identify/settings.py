# SPDX-License-Identifier: Apache-2.0
"""Settings of identifications, from a file beside the robot's declaration (identify.yaml) or from the caller.

An adaptation (`neurodyn adapt`) is an identification with the defaults of `AdaptationSettings`.
"""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Aliases, Config, load_preset, require_numbers
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.drive_tables import drives_of_controller
from neurodyn.core.description.parameter import current_names
from neurodyn.core.description.sensors import Sensor
from neurodyn.core.errors import InputError, require
from neurodyn.identify.choices import Method, Optimiser, StartKind
from neurodyn.identify.fit.population_search import SEARCHES
from neurodyn.identify.motion.limits import MotionLimitSettings
from neurodyn.learn.budget import Clock
from neurodyn.learn.hybrid import NetworkTrainingSettings
from neurodyn.learn.manifest import RunRecord
from neurodyn.multibody.contacts.contact_model import POINTS_SIZE
from neurodyn.multibody.engine import CONTACT_MODELS, EngineConfig
from neurodyn.robots import Robot

_SUBSTEPS = 4
_CONTACT_STARTS = 8
_MOST_POINTS = 101
LEAST = 40
"""Least number of resamples of a bootstrap."""


class FitStage(Config, frozen=True):
    """Roll-outs compared with the log in one stage of a fit."""

    seconds: float
    """Length of a window [s]; at least three frames."""
    windows: int
    """Most windows."""
    iterations: int
    """Most iterations."""

    def __post_init__(self) -> None:
        require_numbers(self, above=("seconds", "windows", "iterations"))


class IdentificationSettings(Config, frozen=True):
    """Settings of an identification of parameters."""

    aliases: ClassVar[Aliases] = {
        "controller": ("drives", drives_of_controller),
        "per_log": ("per_log", current_names),
        "prior": ("prior", current_names),
    }
    budget_fields: ClassVar[tuple[str, ...]] = ("minutes", "clock", "network.steps", "network.validations", "threads")

    parameters: tuple[str, ...] = ()
    """Free quantities if the caller names none; see `core.description.parameter.select_parameters`. They add to those
    of `quantities`."""
    quantities: tuple[str, ...] = ()
    """Free quantities of the default set (`identify.unknowns.quantities`), by names or patterns ("*.damping"). With any
    of them, each quantity is searched in standard deviations of its prior."""
    structures: bool = False
    """Whether other structures than the declared one are tried: the other friction cone of the floor, and springs in
    the last links."""
    screen: int = 160
    """Windows for comparing structures before the fit."""
    screen_iterations: int = 7
    """Iterations of that comparison."""
    structure_gain: float = 0.05
    """Share of the cost by which another structure must beat the declared one."""
    stages: tuple[FitStage, ...] = ()
    """Stages of a fit with growing windows, in place of `horizon` and `horizons`: a wrong model leaves the log within
    frames, and long windows then have no useful gradient. The stage that fits held-out windows best is kept. Empty for
    one search over `horizon`."""
    untouched: FitStage = FitStage(seconds=0.7, windows=60, iterations=10)
    """Last stage for a robot without contacts, in place of the last of `stages`."""
    past: float = 0.065
    """Time before the windows of `stages` in which motors settle [s]."""
    past_of_springs: float = 0.2
    """The same for a robot with springs, which swing for longer [s]."""
    base_rounds: int = 2
    """Most times that the states of an unmeasured base are estimated again, by the model of a short fit to a part of
    the log; 0 for never."""
    progress: float = 0.005
    """Relative decrease of the cost below which a stage ends."""
    undetermined_above: float = 0.7
    """Posterior over prior standard deviation above which the logs do not determine a quantity of `quantities`; it
    keeps its declared value."""
    method: Method = "roll-outs"
    """Data to compare: "roll-outs", or the torques of "inverse-dynamics", for fixed-base robots with logged torques and
    any number of inertial parameters; the latter ignores the settings of windows, noise and search below."""
    smoothing: float = 0.1
    """Window over which inverse dynamics smooth positions [s]."""
    inertial_prior: float = 10.0
    """Weight of nominal masses, centres and inertias in inverse dynamics, see `identify.inverse_dynamics`; it
    determines what torques do not."""
    horizon: float = 0.5
    """Length of the roll-outs to compare with the log [s]."""
    windows: int = 256
    """Maximum windows of the parameter stage; they do not overlap, so that their noise is independent."""
    moving: float | None = None
    """Minimum mean joint speed of a window [rad/s or m/s]; None for all windows."""
    positions: bool = True
    """Whether positions are compared."""
    velocities: bool = True
    """Whether velocities are compared, where they tell more than positions: not differences or between a log's rows."""
    noise_q: tuple[float, ...] = ()
    """Standard deviation of each position (by degree of freedom); empty to estimate it from the log."""
    noise_qd: tuple[float, ...] = ()
    """Standard deviation of each velocity; empty to estimate it from the log."""
    reweigh: bool = True
    """Whether channels are reweighted by their residuals after a first fit: a model that does not fit to within the
    sensors' noise errs more in one channel than in another."""
    huber: float | None = 3.0
    """Number of scales beyond which residuals count linearly instead of squared; None for squared throughout."""
    initial: Literal["free", "logged"] = "free"
    """Whether the initial state of each window is "free" (within the sensors' noise), as where velocities tell no more
    than positions, or as "logged"."""
    torque_offset: float = 0.0
    """Standard deviation of a constant torque of each log [N m or N]; 0 for none."""
    per_log: dict[str, float] = msgspec.field(default_factory=dict)
    """Free quantities that vary between logs (a payload), with the standard deviation of the difference: in their unit,
    or with `quantities`, whose names may be patterns, in standard deviations of the prior (1 for a payload that may be
    any other one)."""
    sensors: dict[str, Sensor] = msgspec.field(default_factory=dict)
    """Further sensors to compare (`core.description.sensors`), by name; they add to those that the robot declares, of
    which the ones in the data are compared."""
    drives: dict[str, Drive] = msgspec.field(default_factory=dict)
    """Drives, by joint or pattern, that follow the targets of a log; empty for those in its column map. Laws are
    evaluated once a frame unless `updates` is given."""
    optimiser: Optimiser = "levenberg-marquardt"
    """"levenberg-marquardt", "l-bfgs" with the gradients of the compiled adjoint, or "cma-es", a population without
    derivatives: for roll-outs over several impacts, from initial states as logged."""
    starts: int | UnsetType = UNSET
    """Starting points of the search; unset for 1, and 8 if contact quantities are free and the fit from one ends at a
    bound, or with errors well above the noise."""
    search: str = "basin-hopping"
    """Global search from several starts: "basin-hopping" or another of `identify.fit.population_search.SEARCHES`."""
    rounds: int = 6
    """Rounds of this search."""
    round_iterations: int = 10
    """Iterations of the local optimiser in a round."""
    horizons: tuple[float, ...] = ()
    """Shorter horizons to fit first, each from the previous solution [s]."""
    iterations: int = 60
    """Maximum iterations of the final local optimiser."""
    prior: dict[str, float | str] = msgspec.field(default_factory=dict)
    """Standard deviations of normal priors around nominal values, by name or pattern of free quantities: in their unit,
    or as a share of the nominal value ("20%")."""
    known: dict[str, float] = msgspec.field(default_factory=dict)
    """Values that the user knows, by name or pattern of quantities: with `quantities`, they are held exactly."""
    bootstrap: int = 0
    """Resamples of the logs for intervals; 0 for the sandwich covariance."""
    profile: int = 0
    """Points of the profile likelihood of each quantity on the page; 0 for none."""
    start: StartKind = "auto"
    """Initial states of held-out windows: as "logged", or estimated from "past" positions alone, if the log's
    velocities were smoothed with a look ahead; "auto" uses the past if velocities are differences, and with `ladder`
    past positions and velocities if roll-outs from measured ones are then better beyond the spread."""
    context: int = 10
    """Most past frames for estimating an initial state: with `ladder` 2, 3 and 5 are tried, too."""
    history: int = 16
    """Past frames that initialise memories of drives and networks, if there are any."""
    substeps: int | UnsetType = UNSET
    """Engine steps per frame; unset for the simulator's if contacts are soft or with `stages`, else for 4."""
    contact: str | UnsetType | None = UNSET
    """Contact model: "force", "impulse", "soft", or None; unset for that of the robot's simulator: "soft" for MuJoCo,
    else none."""
    network: NetworkTrainingSettings = NetworkTrainingSettings()
    """Settings of the training of a blueprint's networks."""
    networks: bool = False
    """Whether networks on the torques of all joints are tried on top of the identified values."""
    networks_from: float = 1.5
    """Ratio of an error after three frames to the noise's share from which on they are tried."""
    network_seconds: float = 0.15
    """Length of their training windows [s]."""
    network_steps: int = 300
    """Optimiser steps of their training; of networks of limbs, half of those on linearised errors, which are fast."""
    hidden: tuple[int, ...] | UnsetType = UNSET
    """Widths of their hidden layers; unset for 16 and 16, or 32 for networks of limbs, of robots without contacts."""
    memory: int | UnsetType = UNSET
    """Size of their hidden state; unset for 2, or 16 for those of limbs."""
    ladder: bool = False
    """Whether each model is kept only if it is better than the one before on whole held-out episodes."""
    rollouts_each: int = 60
    """Most held-out windows of each episode in this comparison."""
    refits: int = 0
    """Refits that judge policies; 0 for none."""
    reference_steps: int = 0
    """Optimiser steps of a recurrent network that is trained beside the ladder, for comparison alone; 0 for none."""
    kind: Literal["hybrid", "any"] = "hybrid"
    """Kinds of models that may be the run's: with "any" also that network, wider and trained for longer, or a world
    model, if it predicts held-out episodes better than every rung."""
    proposals: int = 0
    """Candidates for the next motion to log; 0 for none."""
    proposal_seconds: float = 120.0
    """Longest motion [s]; it is shorter if its log is expected to halve the widest interval earlier."""
    limits: MotionLimitSettings = MotionLimitSettings()
    """Limits of that motion."""
    seconds: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    """Horizons of held-out errors [s]."""
    rollouts: int = 4000
    """Maximum held-out windows, of baselines and other models, too; 0 for none."""
    parameter_share: float = 0.3
    """Share of a time budget for the parameter stage if networks follow."""
    minutes: float | None = None
    """Time budget [min]; None for iterations and steps, where everything depends on the seed alone."""
    clock: Clock = "own"
    """Clock of the minutes: "own" counts wall time in which other processes left this one a core, "wall" all of it,
    "cpu" the CPU time of all threads."""
    threads: int | None = None
    """CPU threads; None for those of the available cores. Results do not depend on it."""
    seed: int = 0
    """Seed of all random numbers."""

    def __post_init__(self) -> None:
        self._require_certainty()
        counts = (
            "windows", "rounds", "round_iterations", "iterations", "context", "history", "starts", "screen",
            "screen_iterations", "network_steps", "hidden", "rollouts_each",
        )  # fmt: skip
        numbers = (
            "horizon", "minutes", "huber", "smoothing", "inertial_prior", "seconds", "noise_q", "noise_qd", "past",
            "past_of_springs", "networks_from", "network_seconds", "proposal_seconds",
        )  # fmt: skip
        require_numbers(self, above=(*counts, *numbers, "substeps", "threads"))
        if list(self.horizons) != sorted(set(self.horizons)) or any(not 0 < s < self.horizon for s in self.horizons):
            raise ValueError(
                f"horizons is {list(self.horizons)}; valid: growing horizons above 0 and below {self.horizon:g} [s]"
            )
        require(len(self.seconds) > 0, "seconds", "empty", "horizons above 0 [s]")
        for name, deviation in self.per_log.items():
            require(0 < deviation < math.inf, f"per_log of {name!r}", deviation, "a finite number above 0")
        for name in ("parameter_share", "structure_gain", "progress", "undetermined_above"):
            require(0 < getattr(self, name) < 1, name, getattr(self, name), "between 0 and 1")
        if self.stages:
            self._require_stages()
        if self.optimiser == "cma-es" and (self.initial == "free" or self.torque_offset or self.per_log):
            raise ValueError(
                "optimiser cma-es searches the parameters alone; valid with it: initial: logged, no torque_offset, no "
                "per_log"
            )
        if isinstance(self.contact, str):
            CONTACT_MODELS.require(self.contact)
        SEARCHES.require(self.search)

    def _require_certainty(self) -> None:
        if self.bootstrap and self.bootstrap < LEAST:
            raise ValueError(
                f"bootstrap is {self.bootstrap}; valid: 0 for none, or at least {LEAST} resamples, of which a fortieth "
                "lies beyond each end of an interval"
            )
        if self.profile and not 3 <= self.profile <= _MOST_POINTS:
            raise ValueError(f"profile is {self.profile}; valid: 0 for none, or 3 to {_MOST_POINTS} points")
        if self.bootstrap and self.optimiser == "cma-es":
            raise ValueError("bootstrap repeats fits by least squares; valid with it: optimiser: levenberg-marquardt")

    def _require_stages(self) -> None:
        valid = {
            "method": "roll-outs", "optimiser": "levenberg-marquardt", "torque_offset": 0.0,
            "bootstrap": 0, "profile": 0,
        }  # fmt: skip
        for name, value in valid.items():
            given = getattr(self, name)
            require(given == value, name, repr(given), f"{value!r} with stages")
        require(len(self.quantities) > 0, "quantities", "empty", "at least one name or pattern with stages")

    def starts_of(self, names: Iterable[str]) -> int:
        """Return the largest number of starts of a search over free quantities with these names."""
        if self.starts is not UNSET:
            return self.starts
        touching = any(name.startswith("contact.") or name == POINTS_SIZE for name in names)
        return _CONTACT_STARTS if touching and self.optimiser != "cma-es" else 1

    def engine(self, robot: Robot) -> EngineConfig:
        """Return the engine's configuration for a robot, without networks."""
        contact = robot.simulated_contact if self.contact is UNSET else self.contact
        substeps = self.substeps
        if substeps is UNSET:
            substeps = robot.simulator.substeps if contact == "soft" or self.stages else _SUBSTEPS
        return EngineConfig(substeps=substeps, contact=contact)


class AdaptationSettings(IdentificationSettings, frozen=True):
    """Settings of `neurodyn adapt`: an identification of the default set in stages, judged on whole held-out episodes.

    In files, `starts` and `horizons` name `rollouts_each` and `seconds`, and `unsaid` names `undetermined_above`.
    """

    quantities: tuple[str, ...] = ("*",)
    structures: bool = True
    stages: tuple[FitStage, ...] = (
        FitStage(seconds=0.05, windows=600, iterations=8), FitStage(seconds=0.13, windows=300, iterations=4),
        FitStage(seconds=0.25, windows=150, iterations=4),
    )  # fmt: skip
    initial: Literal["free", "logged"] = "logged"
    networks: bool = True
    ladder: bool = True
    refits: int = 24
    reference_steps: int = 150
    proposals: int = 12
    seconds: tuple[float, ...] = (0.05, 1 / 6, 0.5, 1.0)
    rollouts: int = 0

    @classmethod
    def aliases_of(cls, data: Mapping[str, Any]) -> Aliases:
        """Return the older keys; two of them mean something else where all keys are given."""
        names = {**cls.aliases, "unsaid": "undetermined_above"}
        return names if "method" in data else {**names, "starts": "rollouts_each", "horizons": "seconds"}


IdentificationRecord = RunRecord[IdentificationSettings]
"""Record of an identification."""
AdaptationRecord = RunRecord[AdaptationSettings]
"""Record of an adaptation."""


def load_identification(robot: Robot, path: str | None = None) -> IdentificationSettings:
    """Read identification settings: from a file, from the robot's identify.yaml, or the defaults.

    Raises:
        InputError: The file is missing or malformed.
    """
    loaded = load_preset(IdentificationSettings, path, (Path(robot.folder) / "identify.yaml",))
    return IdentificationSettings() if loaded is None else loaded


_Settings = TypeVar("_Settings", bound=IdentificationSettings)


def changed(settings: _Settings, **changes: object) -> _Settings:
    """Return settings with the changes that are not None.

    Raises:
        InputError: A change is out of range.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return msgspec.structs.replace(settings, **given)
    except ValueError as error:
        raise InputError(f"identification: {error}") from None
