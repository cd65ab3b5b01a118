# SPDX-License-Identifier: Apache-2.0
"""Identification and adaptation by names: from a robot, its logs and the free quantities to a run directory."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from neurodyn.core.artifacts import read_json, run_folder, write_json
from neurodyn.core.config import read_config, to_dict
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.errors import InputError
from neurodyn.core.requests import accepts_request, names_of
from neurodyn.data.mixture import join_stores, run_names
from neurodyn.data.readers.column_map import is_log
from neurodyn.data.shifts import without_measured_shift
from neurodyn.data.store import Store
from neurodyn.dynamics.same_robot import require_same_simulator
from neurodyn.identify.identification import finished_fit
from neurodyn.identify.identification import identify as identify_problem
from neurodyn.identify.motion.limits import MotionLimitSettings
from neurodyn.identify.motors import drive_parameters, with_drives, with_motors, with_named_motors
from neurodyn.identify.next_motion import next_motion as propose
from neurodyn.identify.requests import AdaptRequest, IdentifyRequest, NextMotionRequest
from neurodyn.identify.result import IdentificationFigures, NextMotion, read_adaptation
from neurodyn.identify.settings import (
    AdaptationRecord,
    AdaptationSettings,
    IdentificationSettings,
    changed,
    load_identification,
)
from neurodyn.identify.stages.problem import Identification, IdentificationProblem
from neurodyn.identify.unknowns.priors import parse_known, parse_priors
from neurodyn.learn.tracking import require_tracker, tracking
from neurodyn.robots import Robot, load, locate
from neurodyn.robots.data import on_declared_ground, open_robot_data

_OTHERS = {"parameters", "horizons", "prior", "progress"}  # converted first, or a display
_REPLACED = ({*IdentifyRequest.__struct_fields__} & {*IdentificationSettings.__struct_fields__}) - _OTHERS
"""Arguments that override the setting of their name."""


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
    store, names = open_logs(declared, data), () if isinstance(data, Store) else names_of(data)
    require_same_simulator(declared, store)
    asked = tuple(request.parameters) or settings.parameters
    if request.drive is not None:
        declared = with_drives(declared, request.drive)
        asked = tuple(request.parameters) or drive_parameters(declared)
    elif settings.quantities:
        declared = with_motors(declared, store)
    else:
        declared = with_named_motors(declared, asked)
    if not asked and not settings.quantities:
        raise InputError(f"robot {declared.name!r}: its settings name no parameters; give some with --parameters")
    if blueprint is not None and not isinstance(blueprint, Blueprint):
        declared_file = Path(declared.folder) / "blueprint.yaml"
        blueprint = read_config(declared_file if blueprint == "robot" else Path(blueprint), Blueprint)
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


@accepts_request(AdaptRequest)
def adapt(request: AdaptRequest) -> Identification:
    """Adapt the model of a robot to its logs: `identify` with the defaults of `AdaptationSettings`.

    Motors, mechanism and floor are identified from a default set of quantities (`identify.unknowns.quantities`), then
    networks are tried on top; each rung is kept only if it is better on whole held-out episodes. The run directory gets
    model, config.yaml, metrics.jsonl, adaptation.json and the next motion to log.

    Raises:
        InputError: An argument is missing or malformed, the logs are of another robot or hold no motion, or the run
            exists or cannot be resumed.
    """
    require_tracker(request.logger, request.out)
    declared, settings = request.robot if isinstance(request.robot, Robot) else load(request.robot), request.settings
    declared = at_rate_of(declared, request.data)
    if settings is None:
        settings = AdaptationSettings()
    elif not isinstance(settings, AdaptationSettings):
        settings = read_config(Path(settings), AdaptationSettings)
    settings = msgspec.structs.replace(
        settings, seed=settings.seed if request.seed is None else request.seed,
        networks=settings.networks and not request.mechanism, threads=request.threads or settings.threads,
        known=settings.known | parse_known(request.known), kind=request.kind or settings.kind,
    )  # fmt: skip
    settings = changed(settings, minutes=request.minutes)
    problem = _adaptation(declared, locate(request.robot), request.data, settings)
    with tracking(request.logger, Path(request.out)):
        return identify_problem(problem, Path(request.out), settings, resume=request.resume)


def _adaptation(
    declared: Robot, name: str, data: Store | str | Path | Sequence[str | Path], settings: AdaptationSettings
) -> IdentificationProblem:  # fmt: skip
    names = () if isinstance(data, Store) else names_of(data)
    store, tracked = _by_base(declared, data)
    return IdentificationProblem(
        with_motors(declared, store), name, tuple(str(one) for one in names), store, settings.parameters,
        tracked=tracked,
    )  # fmt: skip


def _by_base(declared: Robot, data: Store | str | Path | Sequence[str | Path]) -> tuple[Store, Store | None]:
    """Return logs without motion capture, and logs with it that judge a fit to these; without both, all logs, None."""
    paths = [] if isinstance(data, Store) else names_of(data)
    stores = {str(path): open_logs(declared, path) for path in paths} if len(paths) > 1 else {}
    with_it = [path for path, store in stores.items() if store.header.base == "measured"]
    without = [path for path in stores if path not in with_it]
    if not with_it or not without:
        return open_logs(declared, data), None
    store, tracked = open_logs(declared, without), open_logs(declared, with_it)
    if store.header.spec != tracked.header.spec:
        raise InputError(
            f"{', '.join(with_it)}: with motion capture, holds other joints, commands or rates than "
            f"{', '.join(without)}; valid: the same robot, kind of commands and rate"
        )
    return store, tracked


@accepts_request(NextMotionRequest)
def next_motion(request: NextMotionRequest) -> NextMotion:
    """Propose another motion to log next from a finished adaptation; see `identify.next_motion`.

    The run gets the motion's files, and its adaptation.json says what the motion tells.

    Raises:
        InputError: The folder is no finished run of `adapt`, its logs are missing or others, or a limit is invalid.
    """
    run = run_folder(request.run)
    if request.candidates is not None and request.candidates < 1:
        raise InputError(f"--candidates is {request.candidates}; valid: at least 1")
    problem, settings, figures = open_adaptation(run)
    candidates = request.candidates or settings.proposals or AdaptationSettings().proposals
    changes = {
        "proposal_seconds": request.seconds, "proposals": candidates, "seed": request.seed,
        "limits": read_config(Path(request.limits), MotionLimitSettings) if isinstance(request.limits, str | Path)
        else request.limits, "threads": request.threads,
    }  # fmt: skip
    if (base := problem.store.header.base) != "measured":
        raise InputError(
            f"{run}: motions are designed where states are measured, and the base of its log is {base}; valid: a log "
            "with motion capture, or motion like that of your tasks"
        )
    fitting, fit = finished_fit(problem, run, changed(settings, **changes))
    motion = propose(fitting, fit.searched.point.x[0], fit.known.analysis, run)
    write_json(run / figures.file, {**read_json(run / figures.file), "next": to_dict(motion)})
    return motion


def open_adaptation(run: Path) -> tuple[IdentificationProblem, AdaptationSettings, IdentificationFigures]:
    """Return problem, settings and results of a finished adaptation.

    Raises:
        InputError: The folder is no finished run of `adapt`, or its logs are missing.
    """
    figures = read_adaptation(run)
    if figures is None:
        raise InputError(f"{run}: is no finished run of neurodyn adapt; valid: one with adaptation.json")
    record = read_config(run / "config.yaml", AdaptationRecord)
    names = [record.data] if isinstance(record.data, str) else list(record.data)
    if not names:
        raise InputError(f"{run}: its data came from memory; valid: a run of data in files")
    robot = at_rate_of(load(record.robot), names)
    return _adaptation(robot, record.robot, names, record.settings), record.settings, figures


def at_rate_of(robot: Robot, data: Store | str | Path | Sequence[str | Path]) -> Robot:
    """Return a robot with the frames of its log, if a task recorded it with a multiple of the declared ones.

    Steps of its simulator stay as long.
    """
    if isinstance(data, Store) or is_log(path := Path(names_of(data)[0])) or not path.is_file():
        return robot
    return robot.with_frames(Store.open(path).header.spec.dt)


def open_logs(robot: Robot, data: Store | str | Path | Sequence[str | Path]) -> Store:
    """Return the trajectories of one file, or of several, each as one log.

    Commands that an import of an older version shifted by a measured delay are taken back.

    Raises:
        InputError: A file is missing or malformed, or of another robot.
    """
    if isinstance(data, Store):
        return on_declared_ground(robot, without_measured_shift(data))
    paths = [Path(path) for path in names_of(data)]
    stores = [without_measured_shift(open_robot_data(robot, path, targets=True, base=False)) for path in paths]
    if len(stores) == 1:
        return stores[0]
    return join_stores(stores, run_names(paths))
