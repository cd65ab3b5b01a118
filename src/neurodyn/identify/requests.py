# SPDX-License-Identifier: Apache-2.0
"""Arguments of identifications and discoveries, in Python and as flags of the commands."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from neurodyn.core.config import Config
from neurodyn.core.requests import IN_PYTHON, Flag
from neurodyn.identify.choices import Method, Optimiser, StartKind
from neurodyn.learn.requests import RunOptions

if TYPE_CHECKING:
    from neurodyn.core.description.blueprint import Blueprint
    from neurodyn.core.progress import Progress
    from neurodyn.core.workers import Executor
    from neurodyn.data.store import Store
    from neurodyn.identify.discovery.sparse_groups import DiscoverySettings
    from neurodyn.identify.motion.limits import MotionLimitSettings
    from neurodyn.identify.settings import AdaptationSettings
    from neurodyn.robots import Robot


class IdentificationOptions(RunOptions, frozen=True, kw_only=True):
    """Options of an identification; options named as a setting override it."""

    parameters: Annotated[Sequence[str], Flag(tuple[str, ...])] = ()
    """Free quantities: NAME, NAME=LOWER:UPPER or NAME=START:LOWER:UPPER; names may be patterns ("*.damping") or links
    ("elbow"); by default those in the settings."""
    drive: str | None = None
    """"torque" or "pd": identify drives of this kind, also for driven joints that declare none. Without `parameters`,
    their numbers are free, with armature, friction and damping. On the command line also "network" or "gru": train an
    actuator network from measured torques."""
    blueprint: Annotated["Blueprint | str | Path | None", Flag(str | None)] = None
    """YAML file with the quantities that networks act on, and their inputs; "robot" for the one that comes with the
    robot's declaration."""
    minutes: float | None = None
    """Time budget [min], without what other processes take; by default iterations and steps of the settings, so that
    results depend on the seed alone."""
    seed: int | None = None
    """Seed of all random numbers: compared windows of the logs, starts of the search, resamples."""
    method: Method | None = None
    """Compare roll-outs with logged motion, or, for fixed-base robots with torque sensors, the inverse-dynamics torques
    of the logged motion with logged torques; networks are trained on roll-outs."""
    starts: int | None = None
    """Number of starting points; by default 1, and 8 if contact quantities are free and the fit from one ends at a
    bound, or with errors well above the noise."""
    search: str | None = None
    """Global search from several starts: basin-hopping."""
    optimiser: Optimiser | None = None
    """Local optimiser of the final search."""
    horizon: float | None = None
    """Length of the roll-outs to compare with the data [s]."""
    horizons: Annotated[Sequence[float] | None, Flag(tuple[float, ...] | None)] = None
    """Shorter horizons to fit first [s], if the search from the nominal values diverges."""
    prior: Annotated[Mapping[str, float | str] | Sequence[str] | None, Flag(tuple[str, ...] | None)] = None
    """Prior on a quantity, for combinations that the data do not determine: NAME=DEVIATION or NAME=20%, a standard
    deviation around the nominal value; names may be patterns."""
    bootstrap: int | None = None
    """Number of resamples of the logs (200, say) for intervals; by default the sandwich covariance."""
    profile: int | None = None
    """Number of points (9, say) of each quantity's profile likelihood, for the page."""
    start: StartKind | None = None
    """Initial states of held-out windows: logged, or estimated from past positions; by default the past if the log's
    velocities are differences of positions, which look ahead."""
    device: Annotated[str, Flag("device")] = "cpu"
    """Torch device of the roll-outs: cpu, cuda, cuda:1 ...; the search itself runs on the CPU."""
    settings: Annotated[Config | str | None, Flag(str | None)] = None
    """Settings file; by default identify.yaml beside the robot's declaration, or the general settings."""
    beside: Annotated[Sequence[str], Flag(tuple[str, ...])] = ()
    """Runs of other models to evaluate on the same held-out windows."""
    threads: Annotated[int | None, Flag("threads")] = None
    """Cores to use; by default those of the settings, all. Results do not depend on it."""
    progress: Annotated["Progress | None", IN_PYTHON] = None
    """Progress display."""
    executor: Annotated["Executor | None", IN_PYTHON] = None
    """Distributes the search from several starts, or the population of cma-es, over workers, such as
    `neurodyn.cluster.Cluster`; results are those of one machine."""


class IdentifyRequest(IdentificationOptions, frozen=True, kw_only=False):
    """Identification of a robot from logs."""

    robot: Annotated["Robot | str | Path", Flag(str)]
    """Name of a robot, or the path of your own declaration."""
    data: Annotated["Store | str | Path | Sequence[str | Path]", Flag(tuple[str, ...])]
    """HDF5 store of `neurodyn generate` or `neurodyn import`, or an npz log that the robot declares. Each of several
    files is one log, with its own values of the quantities that `per_log` of the settings names."""
    out: Annotated[str | Path, Flag(Path)]
    """Run directory to write."""


class AdaptRequest(RunOptions, frozen=True, kw_only=False):
    """Adaptation of a robot's model to its logs."""

    robot: Annotated["Robot | str | Path", Flag(str)]
    """Name of a robot, or the path of your own declaration; or a run of neural dynamics with conditions."""
    data: Annotated["Store | str | Path | Sequence[str | Path]", Flag(tuple[str, ...])]
    """Logs of the robot, from `neurodyn import` or `neurodyn policy log`, or npz logs that the robot declares; each
    file is one log."""
    out: Annotated[str | Path, Flag(Path)]
    """Run directory to write."""
    kind: Literal["hybrid", "any"] | None = None
    """With "any", the run's model is a recurrent network or a world model if that predicts held-out episodes better;
    the identified mechanism is in RUN/mechanism then. By default that of the settings: hybrid."""
    minutes: float | None = None
    """Time budget [min], without what other processes take: after 30 % of it no more structures are tried, after 70 %
    no networks on top; a step that has begun is finished. By default that of the settings: none."""
    mechanism: bool = False
    """Identify the mechanism alone, without networks on top."""
    settings: Annotated["AdaptationSettings | str | Path | None", Flag(Path | None)] = None
    """File with settings (YAML, TOML or JSON), or the settings as JSON."""
    known: Annotated[Mapping[str, float] | Sequence[str] | None, Flag(tuple[str, ...] | None)] = None
    """Value that you know, held exactly: NAME=VALUE, as in actuator.elbow.kp=14 or payload.mass=1.2; names may be
    patterns. They add to those of the settings."""
    seed: int | None = None
    """Seed of windows, weights and the proposed motion; by default that of the settings."""
    threads: Annotated[int | None, Flag("threads")] = None
    """Cores to use; by default all. Results do not depend on it."""


class NextMotionRequest(Config, frozen=True, kw_only=False):
    """Proposal of a motion to log next, from a finished adaptation."""

    run: Annotated[str | Path, Flag(Path)]
    """Run directory of `neurodyn adapt`."""
    seconds: float | None = None
    """Longest motion [s]; by default that of the run's settings."""
    candidates: int | None = None
    """Number of random motions to compare; by default that of the run's settings, or 12 if that is 0."""
    limits: Annotated["MotionLimitSettings | str | Path | None", Flag(Path | None)] = None
    """File with limits (position, speed, acceleration, torque, floor ...), or the limits; by default the run's."""
    seed: int | None = None
    """Seed of the motions; by default that of the run."""
    threads: Annotated[int | None, Flag("threads")] = None
    """Cores to use; by default all. Results do not depend on it."""


class DiscoverRequest(RunOptions, frozen=True, kw_only=False):
    """Discovery of augmentations that explain a robot's log."""

    robot: str
    """Name of a robot, or the path of your own declaration."""
    data: str
    """HDF5 store, or an npz log that the robot declares."""
    out: Path
    """Run directory to write."""
    base: str | None = None
    """Run of `neurodyn identify` that provides the parameters; by default the declared ones."""
    candidates: Annotated["Blueprint | str | Path | None", Flag(Path | None)] = None
    """Blueprint (YAML) of candidate networks; by default one on the torque of each joint, with all positions,
    velocities and controls as inputs."""
    settings: Annotated["DiscoverySettings | str | Path | None", Flag(Path | None)] = None
    """File with settings of the search."""
    seed: int | None = None
    """Seed of the networks' weights; by default that of the settings."""
    device: Annotated[str, Flag("device")] = "cpu"
    """Compute device: cpu, cuda, cuda:1 ..."""
    threads: Annotated[int | None, Flag("threads")] = None
    """Cores to use; by default all. Results do not depend on it."""
