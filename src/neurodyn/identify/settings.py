# SPDX-License-Identifier: Apache-2.0
"""Settings of an identification, from a file beside the robot's declaration (identify.yaml) or from the caller."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from neurodyn.core.config import Aliases, Config, load_preset, require_numbers
from neurodyn.core.description.drive import Drive, drives_of_controller
from neurodyn.core.description.parameter import current_names
from neurodyn.core.description.sensors import Sensor
from neurodyn.core.errors import InputError, require
from neurodyn.identify.population_search import SEARCHES
from neurodyn.identify.requests import Method, Optimiser, StartKind
from neurodyn.learn.hybrid import NetworkTrainingSettings
from neurodyn.learn.manifest import RunRecord
from neurodyn.learn.plan import Clock
from neurodyn.multibody.contacts.contact_model import SIZE
from neurodyn.multibody.engine import CONTACT_MODELS, EngineConfig
from neurodyn.robots import Robot

_SUBSTEPS = 4
_CONTACT_STARTS = 8
_MOST_POINTS = 101
LEAST = 40
"""Least number of resamples of a bootstrap."""


class IdentificationSettings(Config, frozen=True):
    """Settings of an identification of parameters."""

    aliases: ClassVar[Aliases] = {
        "controller": ("drives", drives_of_controller),
        "per_log": ("per_log", current_names),
        "prior": ("prior", current_names),
    }
    budget_fields: ClassVar[tuple[str, ...]] = ("minutes", "clock", "network.steps", "network.validations", "threads")

    parameters: tuple[str, ...] = ()
    """Free quantities if the caller names none; see `core.description.parameter.select_parameters`."""
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
    """Whether velocities are compared."""
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
    """Whether the initial state of each window is "free" (within the sensors' noise) or as "logged"."""
    torque_offset: float = 0.0
    """Standard deviation of a constant torque of each log [N m or N]; 0 for none."""
    per_log: dict[str, float] = msgspec.field(default_factory=dict)
    """Free quantities that vary between logs (a payload), with the standard deviation of the difference."""
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
    """Global search from several starts: "basin-hopping", or another one of `identify.population_search.SEARCHES`."""
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
    bootstrap: int = 0
    """Resamples of the logs for intervals; 0 for the sandwich covariance."""
    profile: int = 0
    """Points of the profile likelihood of each quantity on the page; 0 for none."""
    start: StartKind = "auto"
    """Initial states of held-out windows: as "logged", or estimated from "past" positions alone, if the log's
    velocities were smoothed with a look ahead; "auto" uses the past if velocities are differences."""
    context: int = 10
    """Past frames for estimating an initial state."""
    history: int = 16
    """Past frames that initialise memories of drives and networks, if there are any."""
    substeps: int | UnsetType = UNSET
    """Engine steps per frame; unset for the simulator's if contacts are soft, else for 4."""
    contact: str | UnsetType | None = UNSET
    """Contact model: "force", "impulse", "soft", or None; unset for that of the robot's simulator: "soft" for MuJoCo,
    else none."""
    network: NetworkTrainingSettings = NetworkTrainingSettings()
    """Settings of the networks' training."""
    seconds: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    """Horizons of held-out errors [s]."""
    rollouts: int = 4000
    """Maximum held-out windows."""
    parameter_share: float = 0.3
    """Share of a time budget for the parameter stage if networks follow."""
    minutes: float | None = None
    """Time budget [min]; None for iterations and steps, where everything depends on the seed alone."""
    clock: Clock = "wall"
    """Clock of the minutes: "wall" time, or "cpu" time of the process."""
    threads: int | None = None
    """CPU threads; None for those of the available cores. Results do not depend on it."""
    seed: int = 0
    """Seed of all random numbers."""

    def __post_init__(self) -> None:
        self._require_certainty()
        counts = ("windows", "rounds", "round_iterations", "iterations", "context", "history", "rollouts", "starts")
        numbers = ("horizon", "minutes", "huber", "smoothing", "inertial_prior", "seconds", "noise_q", "noise_qd")
        require_numbers(self, above=(*counts, *numbers, "substeps", "threads"))
        if list(self.horizons) != sorted(set(self.horizons)) or any(not 0 < s < self.horizon for s in self.horizons):
            raise ValueError(
                f"horizons is {list(self.horizons)}; valid: growing horizons above 0 and below {self.horizon:g} [s]"
            )
        require(len(self.seconds) > 0, "seconds", "empty", "horizons above 0 [s]")
        for name, deviation in self.per_log.items():
            require(0 < deviation < math.inf, f"per_log of {name!r}", deviation, "a finite number above 0")
        require(0 < self.parameter_share < 1, "parameter_share", self.parameter_share, "between 0 and 1")
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

    def starts_of(self, names: Iterable[str]) -> int:
        """Return the largest number of starts of a search over free quantities with these names."""
        if self.starts is not UNSET:
            return self.starts
        touching = any(name.startswith("contact.") or name == SIZE for name in names)
        return _CONTACT_STARTS if touching and self.optimiser != "cma-es" else 1

    def engine(self, robot: Robot) -> EngineConfig:
        """Return the engine's configuration for a robot, without networks."""
        contact = robot.simulated_contact if self.contact is UNSET else self.contact
        substeps = self.substeps
        if substeps is UNSET:
            substeps = robot.simulator.substeps if contact == "soft" else _SUBSTEPS
        return EngineConfig(substeps=substeps, contact=contact)


IdentificationRecord = RunRecord[IdentificationSettings]
"""Record of an identification."""


def load_identification(robot: Robot, path: str | None = None) -> IdentificationSettings:
    """Read identification settings: from a file, from the robot's identify.yaml, or the defaults.

    Raises:
        InputError: The file is missing or malformed.
    """
    loaded = load_preset(IdentificationSettings, path, (Path(robot.folder) / "identify.yaml",))
    return IdentificationSettings() if loaded is None else loaded


def changed(settings: IdentificationSettings, **changes: object) -> IdentificationSettings:
    """Return settings with the changes that are not None.

    Raises:
        InputError: A change is out of range.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        return msgspec.structs.replace(settings, **given)
    except ValueError as error:
        raise InputError(f"identification: {error}") from None
