# SPDX-License-Identifier: Apache-2.0
"""What is asked of an identification or a discovery: arguments in Python, and flags of the verbs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from neurodyn.core.requests import IN_PYTHON, Flag
from neurodyn.learn.requests import RunOptions

if TYPE_CHECKING:
    from neurodyn.core.description.blueprint import Blueprint
    from neurodyn.core.progress import Progress
    from neurodyn.core.workers import Executor
    from neurodyn.data.store import Store
    from neurodyn.identify.adaptation.settings import AdaptationSettings
    from neurodyn.identify.discovery import DiscoverySettings
    from neurodyn.identify.settings import IdentificationSettings
    from neurodyn.robots import Robot

Method = Literal["roll-outs", "inverse-dynamics"]
Optimiser = Literal["levenberg-marquardt", "l-bfgs", "cma-es"]
StartKind = Literal["auto", "logged", "past"]


class IdentificationOptions(RunOptions, frozen=True, kw_only=True):
    """How a robot is identified; what has the name of a setting replaces that setting.

    Attributes:
        parameters: Quantities that are free: NAME, NAME=LOWER:UPPER or NAME=START:LOWER:UPPER; names may be patterns
            ("*.damping") or links ("elbow"); by default those that the settings name.
        drive: "torque" or "pd": identify the drives of driven joints, which such a drive stands for where none is
            declared. Without `parameters` its numbers are free, with armature, friction and damping.
        blueprint: YAML file that says which quantities networks act on, and what they see; "robot" for the one that
            comes with the robot's declaration.
        minutes: Time budget [min]; by default iterations and steps of the settings, so that results depend on the seed
            alone.
        seed: Seed of everything random: which windows of the logs are compared, starts of the search, resamples.
        method: What is compared with the data: roll-outs with logged motion, or for bolted robots with torque sensors
            what inverse-dynamics says of the logged motion with logged torques; networks are trained on roll-outs.
        starts: Starting points; by default 1, and 8 where quantities of contacts are free and the fit from one ends at
            a bound, or with errors well above the noise.
        search: What begins from several starts: basin-hopping.
        optimiser: What ends the search.
        horizon: Length of the roll-outs that are compared with the data [s].
        horizons: Shorter horizons that are fitted before [s], where the search from the nominal values goes astray.
        prior: What is known of a quantity beforehand, for combinations that the data do not see: NAME=DEVIATION or
            NAME=20%, a standard deviation about the nominal value; names may be patterns.
        bootstrap: Resamples of the logs (200, say) that intervals come from; by default the sandwich covariance.
        profile: Points (9, say) of the profile likelihood of each quantity, for the page.
        start: Starting states of held-out windows: as logged, or estimated from past positions; by default from the
            past where the log's velocities are differences of positions, which look ahead.
        device: Torch device of the roll-outs: cpu, cuda, cuda:1 ...; the search itself runs on the CPU.
        settings: Settings file; by default identify.yaml beside the robot's declaration, or the general settings.
        beside: Runs of other models that are measured on the same held-out windows.
        threads: Cores to use; by default those of the settings, which are all. Results do not depend on it.
        progress: Shown how far it is.
        executor: Its workers share the search from several starts, or the population of cma-es, as
            `neurodyn.cluster.Cluster`; results are those of one machine.
    """

    parameters: Annotated[Sequence[str], Flag(tuple[str, ...])] = ()
    drive: str | None = None
    blueprint: Annotated["Blueprint | str | Path | None", Flag(str | None)] = None
    minutes: float | None = None
    seed: int | None = None
    method: Method | None = None
    starts: int | None = None
    search: str | None = None
    optimiser: Optimiser | None = None
    horizon: float | None = None
    horizons: Annotated[Sequence[float] | None, Flag(tuple[float, ...] | None)] = None
    prior: Annotated[Mapping[str, float | str] | Sequence[str] | None, Flag(tuple[str, ...] | None)] = None
    bootstrap: int | None = None
    profile: int | None = None
    start: StartKind | None = None
    device: Annotated[str, Flag("device")] = "cpu"
    settings: Annotated["IdentificationSettings | str | None", Flag(str | None)] = None
    beside: Annotated[Sequence[str], Flag(tuple[str, ...])] = ()
    threads: Annotated[int | None, Flag("threads")] = None
    progress: Annotated["Progress | None", IN_PYTHON] = None
    executor: Annotated["Executor | None", IN_PYTHON] = None


class IdentifyRequest(IdentificationOptions, frozen=True, kw_only=False):
    """An identification of a robot from logs.

    Attributes:
        robot: Name of a robot, or the path of your own declaration; in Python also a `Robot`.
        data: HDF5 store of `neurodyn generate` or `neurodyn import`, or an npz log that the robot declares. Of several
            files each is one log, with values of its own of the quantities that `per_log` of the settings names.
        out: Run directory to write.
    """

    robot: Annotated["Robot | str | Path", Flag(str)]
    data: Annotated["Store | str | Path | Sequence[str | Path]", Flag(tuple[str, ...])]
    out: Annotated[str | Path, Flag(Path)]


class AdaptRequest(RunOptions, frozen=True, kw_only=False):
    """An adaptation of a robot's model to its logs.

    Attributes:
        robot: Name of a robot, or the path of your own declaration; or a run of neural dynamics with conditions; in
            Python also a `Robot`.
        data: Logs of the robot, as `neurodyn import` or `neurodyn policy log` writes them, or npz logs that the robot
            declares; of several files each is one log.
        out: Run directory to write.
        mechanism: Identify the mechanism alone, without networks on top.
        settings: File with settings, or the settings.
        seed: Seed of windows, weights and the proposed motion; by default that of the settings.
        threads: Cores to use; by default all. Results do not depend on it.
    """

    robot: Annotated["Robot | str | Path", Flag(str)]
    data: Annotated["Store | str | Path | Sequence[str | Path]", Flag(tuple[str, ...])]
    out: Annotated[str | Path, Flag(Path)]
    mechanism: bool = False
    settings: Annotated["AdaptationSettings | str | Path | None", Flag(Path | None)] = None
    seed: int | None = None
    threads: Annotated[int | None, Flag("threads")] = None


class DiscoverRequest(RunOptions, frozen=True, kw_only=False):
    """A discovery of the augmentations that the log of a robot asks for.

    Attributes:
        robot: Name of a robot, or the path of your own declaration.
        data: HDF5 store, or an npz log that the robot declares.
        out: Run directory to write.
        base: Run of `neurodyn identify` whose parameters are taken; by default the declared ones.
        candidates: Blueprint (YAML) of networks to choose among; by default one on the torque of each joint, with all
            positions, velocities and controls as inputs.
        settings: File with settings of the search.
        seed: Seed of the networks' weights; by default that of the settings.
        device: Where it computes: cpu, cuda, cuda:1 ...
        threads: Cores to use; by default all. Results do not depend on it.
    """

    robot: str
    data: str
    out: Path
    base: str | None = None
    candidates: Annotated["Blueprint | str | Path | None", Flag(Path | None)] = None
    settings: Annotated["DiscoverySettings | str | Path | None", Flag(Path | None)] = None
    seed: int | None = None
    device: Annotated[str, Flag("device")] = "cpu"
    threads: Annotated[int | None, Flag("threads")] = None
