# SPDX-License-Identifier: Apache-2.0
"""Identification by names.

From a robot, its logs and the free quantities to a run directory; default drives for joints that declare none.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from neurodyn.core.config import read_config
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.description.drive import DRIVE_KINDS, Drive
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError
from neurodyn.core.requests import accepts_request, names_of
from neurodyn.data.mixture import joined
from neurodyn.data.store import Store
from neurodyn.dynamics.same_robot import require_same_simulator
from neurodyn.identify.identification import Identification, IdentificationProblem
from neurodyn.identify.identification import identify as identify_problem
from neurodyn.identify.priors import parse_priors
from neurodyn.identify.requests import IdentifyRequest
from neurodyn.identify.settings import IdentificationRecord, IdentificationSettings, changed, load_identification
from neurodyn.learn.reproduction import TrainingAgain
from neurodyn.learn.tracking import require_tracker, tracking
from neurodyn.robots import Robot, load, locate
from neurodyn.robots.data import open_robot_data

LONGEST_DELAY = 0.03
"""Longest delay that is searched [s]."""

_PASSIVE = ("armature", "damping", "friction")
_REPLACED = ({*IdentifyRequest.__struct_fields__} & {*IdentificationSettings.__struct_fields__}) - {
    "parameters",
    "horizons",
    "prior",
}
"""Arguments that override the setting of their name; the excluded ones are converted first."""


def with_drives(robot: Robot, kind: str) -> Robot:
    """Return a robot with a drive of the given kind on every driven joint that declares none.

    Raises:
        InputError: There is no such kind, or a PD drive has no gains to start from.
    """
    DRIVE_KINDS.require(kind)
    start = Drive(longest_delay=LONGEST_DELAY, kind=kind)
    missing = [name for name in DRIVE_KINDS[kind].needs if getattr(start, name) is None]
    starts = dict.fromkeys(robot.actuated, start)
    undriven = [name for name in robot.actuated if name not in robot.drives]
    if missing and undriven:
        held = robot.hold_gains()
        if held is None or missing != ["kp", "kd"]:
            raise InputError(
                f"robot {robot.name!r}: a drive of kind {kind!r} at {undriven[0]!r} needs {' and '.join(missing)} to "
                f"start from; valid: `drives: {{{undriven[0]}: {{kind: {kind}, ...}}}}` in the declaration, or `gains` "
                "with hold"
            )
        starts = {
            name: msgspec.structs.replace(start, kp=kp, kd=kd)
            for name, kp, kd in zip(robot.actuated, *held, strict=True)
        }
    return msgspec.structs.replace(robot, drives=starts | robot.drives)


def drive_parameters(robot: Robot) -> tuple[str, ...]:
    """Return the default free quantities of drives: their own numbers, and armature, damping and friction."""
    free = []
    for name, drive in robot.drives.items():
        quantities = drive.quantities()
        free += [f"actuator.{name}.{what}" for what in DRIVE_KINDS[drive.kind].free if what in quantities]
        free += [f"actuator.{name}.{what}" for what in ("effort_limit", "lag") if what in quantities]
        if not drive.elastic:
            free += [
                f"{joint}.{what}" for joint in (drive.joints if drive.acts_elsewhere else (name,)) for what in _PASSIVE
            ]
        else:
            free += [f"actuator.{name}.{what}" for what in ("stiffness", "rotor_inertia", "coulomb", "viscous")]
    return tuple(dict.fromkeys(free))


@accepts_request(IdentifyRequest)
def identify(request: IdentifyRequest) -> Identification:
    """Identify quantities of a robot's dynamics, and train the networks of a blueprint, from its log.

    The run directory gets model, state, config.yaml, metrics.jsonl and identification.json.

    Returns:
        The model, its parameters and their intervals, and errors on held-out windows.

    Raises:
        InputError: An argument is missing, malformed or of another robot; the data do not depend on a parameter or on a
            combination of them; roll-outs are not finite; or the run exists or cannot be resumed.
    """
    require_tracker(request.logger, request.out)
    if request.executor is not None and request.device != "cpu":
        raise InputError(
            f"device is {request.device!r}; valid with a cluster, whose workers compute on their cores: cpu"
        )
    problem, settings = plan_identification(request)
    with tracking(request.logger, request.out):
        return identify_problem(problem, Path(request.out), settings, resume=request.resume, progress=request.progress)


def plan_identification(request: IdentifyRequest) -> tuple[IdentificationProblem, IdentificationSettings]:
    """Return the problem and the settings of `identify`; raises its errors."""
    robot, data, blueprint = request.robot, request.data, request.blueprint
    declared = robot if isinstance(robot, Robot) else load(robot)
    settings = _settings(request, declared)
    asked = tuple(request.parameters) or settings.parameters
    if request.drive is not None:
        declared = with_drives(declared, request.drive)
        asked = tuple(request.parameters) or drive_parameters(declared)
    if not asked:
        raise InputError(f"robot {declared.name!r}: its settings name no parameters; give some with --parameters")
    if blueprint is not None and not isinstance(blueprint, Blueprint):
        declared_file = Path(declared.folder) / "blueprint.yaml"
        blueprint = read_config(declared_file if blueprint == "robot" else Path(blueprint), Blueprint)
    store, names = open_logs(declared, data), () if isinstance(data, Store) else names_of(data)
    require_same_simulator(declared, store)
    problem = IdentificationProblem(
        declared, locate(robot), names if len(names) > 1 else "".join(names), store, asked, blueprint, request.beside,
        request.device, request.executor,
    )  # fmt: skip
    return problem, settings


def _settings(request: IdentifyRequest, robot: Robot) -> IdentificationSettings:
    """Return the settings of a robot, overridden by the request."""
    given, horizons, prior = request.settings, request.horizons, request.prior
    if not isinstance(given, IdentificationSettings | str | None):
        raise InputError(f"settings are {type(given).__name__}; valid: IdentificationSettings, or the path of a file")
    return changed(
        given if isinstance(given, IdentificationSettings) else load_identification(robot, given),
        **{name: getattr(request, name) for name in _REPLACED},
        horizons=None if horizons is None else tuple(horizons),
        prior=dict(prior) if isinstance(prior, Mapping) else parse_priors(prior or ()) or None,
    )


def identify_again(again: TrainingAgain) -> None:
    """Repeat the identification of a run, without the runs that were evaluated beside it."""
    record = again.read(IdentificationRecord)
    assert isinstance(record.parameters, tuple)
    networks = record.blueprint if isinstance(record.blueprint, Blueprint) and record.blueprint.augmentations else None
    identify(
        again.robot, again.data, again.out, parameters=[_text(one) for one in record.parameters], blueprint=networks,
        settings=record.settings, device=again.device, progress=again.progress,
    )  # fmt: skip


def _text(parameter: Parameter) -> str:
    """Return a free quantity in the user's notation."""
    lower, upper = ("" if bound is None else repr(bound) for bound in (parameter.lower, parameter.upper))
    return f"{parameter.name}={parameter.nominal!r}:{lower}:{upper}"


def open_logs(robot: Robot, data: Store | str | Path | Sequence[str | Path]) -> Store:
    """Return the trajectories of one file, or of several, each as one log.

    Raises:
        InputError: A file is missing or malformed, or of another robot.
    """
    if isinstance(data, Store):
        return data
    paths = [Path(path) for path in names_of(data)]
    stores = [open_robot_data(robot, path, targets=True) for path in paths]
    if len(stores) == 1:
        return stores[0]
    stems = [path.stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else [str(path) for path in paths]
    return joined(stores, names)
