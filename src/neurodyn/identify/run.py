# SPDX-License-Identifier: Apache-2.0
"""Identification by names.

From a robot, its logs and what is free to a run directory; plain drives for joints that declare none.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from neurodyn.core.config import read_config
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.description.drive import DRIVE_LAWS, Drive
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError
from neurodyn.core.progress import Progress
from neurodyn.core.workers import Executor
from neurodyn.data.mixture import joined
from neurodyn.data.store import Store
from neurodyn.dynamics.same_robot import require_same_simulator
from neurodyn.identify.identify import Identification, IdentificationProblem
from neurodyn.identify.identify import identify as identify_problem
from neurodyn.identify.settings import (
    IdentificationRecord,
    IdentificationSettings,
    Method,
    Optimiser,
    changed,
    load_identification,
)
from neurodyn.learn.reproduction import TrainingAgain
from neurodyn.learn.tracking.session import require_tracker, tracking
from neurodyn.learn.tracking.tracker import Logger
from neurodyn.robots import Robot, load, locate
from neurodyn.robots.data import open_robot_data

LONGEST_DELAY = 0.03
"""Delays up to this are searched [s]."""

_FREE = {"torque": ("gain", "delay"), "pd": ("kp", "kd", "delay", "bias")}
_PASSIVE = ("armature", "damping", "friction")


def with_drives(robot: Robot, kind: str) -> Robot:
    """Return a robot whose driven joints all have a drive: of one kind where they declare none.

    Raises:
        InputError: There is no such kind, or a PD drive has no gains to start from.
    """
    DRIVE_LAWS.require(kind)
    start = Drive(longest_delay=LONGEST_DELAY, kind=kind)
    missing = [name for name in DRIVE_LAWS[kind].needs if getattr(start, name) is None]
    bare = [name for name in robot.actuated if name not in robot.drives]
    if missing and bare:
        if robot.gains is None or missing != ["kp", "kd"]:
            raise InputError(
                f"robot {robot.name!r}: a drive of kind {kind!r} at {bare[0]!r} needs {' and '.join(missing)} to start "
                f"from; valid: `drives: {{{bare[0]}: {{kind: {kind}, ...}}}}` in the declaration, or `gains` with hold"
            )
        start = msgspec.structs.replace(start, kp=robot.gains.hold[0], kd=robot.gains.hold[1])
    return msgspec.structs.replace(robot, drives={**dict.fromkeys(bare, start), **robot.drives})


def drive_parameters(robot: Robot) -> tuple[str, ...]:
    """Return what is free of drives where nobody says: their own numbers, and armature, damping and friction."""
    free = []
    for name, drive in robot.drives.items():
        own = drive.quantities()
        free += [f"actuator.{name}.{what}" for what in _FREE.get(drive.kind, ()) if what in own]
        free += [f"actuator.{name}.{what}" for what in ("effort_limit", "lag") if what in own]
        if not drive.elastic:
            free += [f"{name}.{what}" for what in _PASSIVE]
        else:
            free += [f"actuator.{name}.{what}" for what in ("stiffness", "rotor_inertia", "coulomb", "viscous")]
    return tuple(free)


def identify(
    robot: Robot | str | Path,
    data: Store | str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    parameters: Sequence[str] = (),
    blueprint: Blueprint | str | Path | None = None,
    settings: IdentificationSettings | str | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    method: Method | None = None,
    starts: int | None = None,
    search: str | None = None,
    optimiser: Optimiser | None = None,
    horizon: float | None = None,
    horizons: Sequence[float] | None = None,
    prior: Mapping[str, float | str] | None = None,
    bootstrap: int | None = None,
    profile: int | None = None,
    start: Literal["auto", "logged", "past"] | None = None,
    beside: Sequence[str] = (),
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    drive: str | None = None,
    logger: Logger | None = None,
    executor: Executor | None = None,
) -> Identification:
    """Identify quantities of a robot's dynamics, and train the networks of a blueprint, from its log.

    Args:
        robot: A robot, its name, or the path of its declaration.
        data: A store, or the path of one, or of a log that the robot declares; of several paths each is one log, whose
            `per_log` quantities are its own.
        out: Run directory: model, state, config.yaml, metrics.jsonl, identification.json.
        parameters: Quantities that are free: NAME, NAME=LOWER:UPPER or NAME=START:LOWER:UPPER; names may be patterns
            ("*.damping") or links ("elbow"). None: those that the settings name.
        blueprint: Which quantities networks act on, and what they see; "robot" for the one beside the declaration.
        settings: How; None for identify.yaml beside the declaration, or the general settings.
        minutes: Time budget [min]; None for the iterations and steps of the settings.
        seed: Seed of everything random.
        method: What is compared with the log: "roll-outs", or the torques of "inverse-dynamics".
        starts: Starting points; None for those of the settings, by default 8 where quantities of contacts are free.
        search: What begins from several starts, one of `identify.population_search.SEARCHES`.
        optimiser: The local optimiser.
        horizon: Length of the roll-outs that are compared with the data [s].
        horizons: Shorter horizons that are fitted before [s].
        prior: Standard deviations about nominal values, by name or pattern: numbers, or shares ("20%").
        bootstrap: Resamples of the logs that intervals come from; 0 for the sandwich covariance.
        profile: Points of each quantity's profile likelihood; 0 for none.
        start: Starting states of held-out windows: as logged, or estimated from past positions.
        beside: Runs of other models that are measured on the same held-out windows.
        device: Torch device on which roll-outs are computed; the search itself runs on the CPU.
        threads: CPU threads; None for those of the settings, by default one for each available core. Results do not
            depend on it.
        resume: Go on with a run that was killed.
        progress: Shown how far it is.
        drive: Kind of drive ("torque", "pd") of driven joints that declare none; without `parameters` its numbers are
            free, with armature, friction and damping (`identify.run`).
        logger: What follows the search, as of `learn.train`.
        executor: Whose workers share the search from many starts, or the population of CMA-ES, as
            `neurodyn.cluster.Cluster`; the result does not depend on it.

    Returns:
        The model, its parameters and their intervals, and errors on held-out windows.

    Raises:
        InputError: Something of that is missing, malformed or of another robot; the data do not depend on a parameter
            or on a combination of them; roll-outs are not finite; or the run exists or cannot be resumed.
    """
    require_tracker(logger, out)
    if executor is not None and device != "cpu":
        raise InputError(f"device is {device!r}; valid with a cluster, whose workers compute on their cores: cpu")
    problem, chosen = plan_identification(
        robot, data, parameters=parameters, blueprint=blueprint, settings=settings, beside=beside, device=device,
        drive=drive, executor=executor,
    )  # fmt: skip
    chosen = changed(
        chosen, minutes=minutes, method=method, seed=seed, starts=starts, search=search, optimiser=optimiser,
        horizon=horizon, horizons=None if horizons is None else tuple(horizons),
        prior=None if prior is None else dict(prior), bootstrap=bootstrap, profile=profile, start=start,
        threads=threads,
    )  # fmt: skip
    with tracking(logger, out):
        return identify_problem(problem, Path(out), chosen, resume=resume, progress=progress)


def plan_identification(
    robot: Robot | str | Path,
    data: Store | str | Path | Sequence[str | Path],
    *,
    parameters: Sequence[str] = (),
    blueprint: Blueprint | str | Path | None = None,
    settings: IdentificationSettings | str | None = None,
    beside: Sequence[str] = (),
    device: str = "cpu",
    drive: str | None = None,
    executor: Executor | None = None,
) -> tuple[IdentificationProblem, IdentificationSettings]:
    """Return the problem that `identify` is asked to solve, and its settings; arguments and errors are its own."""
    declared = robot if isinstance(robot, Robot) else load(robot)
    chosen = settings if isinstance(settings, IdentificationSettings) else load_identification(declared, settings)
    asked = tuple(parameters) or chosen.parameters
    if drive is not None:
        declared = with_drives(declared, drive)
        asked = tuple(parameters) or drive_parameters(declared)
    if not asked:
        raise InputError(f"robot {declared.name!r}: its settings name no parameters; give some with --parameters")
    if blueprint is not None and not isinstance(blueprint, Blueprint):
        own = Path(declared.folder) / "blueprint.yaml"
        blueprint = read_config(own if blueprint == "robot" else Path(blueprint), Blueprint)
    store = data if isinstance(data, Store) else open_logs(declared, data)
    require_same_simulator(declared, store)
    place = "" if isinstance(data, Store) else _place(data)
    return IdentificationProblem(
        declared, locate(robot), place, store, asked, blueprint, beside, device, executor
    ), chosen


def _paths(data: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(data)] if isinstance(data, str | Path) else [Path(path) for path in data]


def identify_again(again: TrainingAgain) -> None:
    """Identify once more what a run identified; the runs that were measured beside it are left out."""
    record = again.read(IdentificationRecord)
    assert isinstance(record.parameters, tuple)
    networks = record.blueprint if isinstance(record.blueprint, Blueprint) and record.blueprint.augmentations else None
    identify(
        again.robot, again.data, again.out, parameters=[_text(one) for one in record.parameters], blueprint=networks,
        settings=record.settings, device=again.device, progress=again.progress,
    )  # fmt: skip


def _text(one: Parameter) -> str:
    """Return a free quantity as a user asks for it."""
    lower, upper = ("" if bound is None else repr(bound) for bound in (one.lower, one.upper))
    return f"{one.name}={one.nominal!r}:{lower}:{upper}"


def _place(data: str | Path | Sequence[str | Path]) -> str | tuple[str, ...]:
    """Return where logs lie, for the record."""
    names = tuple(map(str, _paths(data)))
    return names if len(names) > 1 else "".join(names)


def open_logs(robot: Robot, data: str | Path | Sequence[str | Path]) -> Store:
    """Return the trajectories of one file, or of several, each of which becomes one log.

    Raises:
        InputError: A file is missing or malformed, or of another robot.
    """
    paths = _paths(data)
    stores = [open_robot_data(robot, path, targets=True) for path in paths]
    if len(stores) == 1:
        return stores[0]
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    return joined(stores, names)
