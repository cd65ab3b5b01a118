# SPDX-License-Identifier: Apache-2.0
"""Evaluate a run's model with suitable defaults, and judge whether it is any use."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import UNSET

from neurodyn.core.artifacts import PRETRAINED, read_json, resolve_run
from neurodyn.core.config import Config, from_dict, read_config, with_changes
from neurodyn.core.errors import InputError, choices
from neurodyn.core.progress import stage, tracked
from neurodyn.core.requests import accepts_request, names_of
from neurodyn.core.verdict import Finding, combine_verdicts
from neurodyn.core.workers import resolve_threads
from neurodyn.data.mixture import join_stores, run_names
from neurodyn.data.shifts import different_shifts, measured_shift, without_measured_shift
from neurodyn.data.store import Store
from neurodyn.data.writer import STORE_SUFFIXES
from neurodyn.dynamics.artifact import declared_robot, kind_of, load, load_simulator
from neurodyn.dynamics.behind_drives import put_behind_drives
from neurodyn.dynamics.guard import FOLDER, watching
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KindOperation
from neurodyn.dynamics.same_robot import require_robot
from neurodyn.dynamics.world_model.model import WORLD_MODEL
from neurodyn.evaluate.doubts import judge
from neurodyn.evaluate.logged import beside_log
from neurodyn.evaluate.named_scenarios import ALL, scenario, scenarios
from neurodyn.evaluate.records import Evaluation, ForecastEvaluation, Logged, Simulated, Tossed
from neurodyn.evaluate.references import open_rivals
from neurodyn.evaluate.requests import EvaluationRequest
from neurodyn.evaluate.rollouts import chosen_split
from neurodyn.evaluate.simulated import beside_simulator, by_condition, with_grounds
from neurodyn.evaluate.stability import stability
from neurodyn.evaluate.world_model import forecast_log
from neurodyn.identify.ladder.held_out import ALONG_LOG, FromPast
from neurodyn.identify.ladder.own_quantities import as_adapted
from neurodyn.identify.ladder.references import NETWORK
from neurodyn.identify.result import ADAPTATION, MECHANISM
from neurodyn.learn.neural.train import require_data
from neurodyn.learn.world_model.train import require_log
from neurodyn.robots import Robot
from neurodyn.robots.base_channels import open_measured_data
from neurodyn.robots.data import as_logged, on_declared_ground, open_robot_data
from neurodyn.sim.simulators import has_simulator

CARRIED = "log.h5"
"""Name of a log stored in a run."""


@accepts_request(EvaluationRequest)
def evaluate(request: EvaluationRequest) -> Evaluation:
    """Evaluate the model of a run.

    Returns:
        The measurements; `neurodyn evaluate --json` writes their `plain()`.

    Raises:
        InputError: The run or the data are missing, damaged, or of another robot; or the model does not support the
            request.
    """
    for name, value in (("horizon", request.horizon), ("rollouts", request.rollouts)):
        if value is not None and value < 1:
            raise InputError(f"--{name} is {value}; valid: at least 1")
    request = with_changes(request, run=(run := str(request.run)), threads=resolve_threads(request.threads))
    shipped = run.startswith(PRETRAINED)  # the package's own files are not written to
    with watching(None if shipped else resolve_run(run) / FOLDER) as watch:
        kind = kind_of(run)
        measured = EVALUATIONS[kind](request) if kind in EVALUATIONS else evaluate_simulating(request)
    findings = judge(measured, watch.faults)
    if isinstance(measured, Logged) and not shipped:
        findings += doubts_of_adaptation(resolve_run(run))
    return msgspec.structs.replace(
        measured, verdict=str(combine_verdicts(findings)), findings=findings or UNSET, faults=watch.faults or UNSET
    )


def doubts_of_adaptation(run: Path) -> list[Finding]:
    """Return what `adapt` doubted about the model of a run, as one finding, in which other logs do not acquit it."""
    file = run / ADAPTATION
    told = read_json(file).get("findings", []) if file.exists() else []
    if not told:
        return []
    first, *others = from_dict(told, list[Finding], f"{file}: findings")
    what = f"adapt doubted this model: {first.what}{f' and {len(others)} more' if others else ''}"
    return [Finding("adaptation", "warning", what, f"see {run / 'report.html'}")]


def evaluate_simulating(request: EvaluationRequest) -> Simulated | Logged | Tossed:
    """Evaluate a model that predicts the simulator's state."""
    run, robot = request.run, declared_robot(request.run)
    model = load_simulator(run, device=request.device)
    amounts: dict[str, Any] = {"horizon": request.horizon, "rollouts": request.rollouts, "seed": request.seed}
    data = _truth(model, request)
    if data:
        if request.ground is not None or request.stability:
            raise InputError("--ground and --stability are for roll-outs beside the simulator; leave out --data")
        model, start, robot, store = open_along_log(run, data, request.device)
        declared = _declared_simulator(model, robot, store, resolve_threads(request.threads))
        own = network_beside(run)
        rivals = open_rivals(
            request.beside or own,
            robot,
            store,
            training=lambda: open_robot_log(declared_robot(run), training_logs(run))[1],
            load=lambda name: _along_log(name, data, request.device),
        )
        rivals = {OWN_NETWORK if name in own else name: one for name, one in rivals.items()}
        chosen = chosen_split(store, request.split)
        logged = beside_log(model, robot, store, split=chosen, declared=declared, rivals=rivals, **amounts)
        return msgspec.structs.replace(logged, data=", ".join(data), start=start)
    if request.beside:
        how = shlex.join(["neurodyn", "compare", str(run), *map(str, request.beside)])
        raise InputError(f"--beside compares models along a log; give --data, or beside the simulator: {how}")
    if request.split is not None:
        raise InputError("--split picks episodes of recorded data; give --data too")
    require_robot(model, robot)
    requested = list(scenarios(robot).values()) if request.ground == ALL else [scenario(robot, request.ground)]
    amounts["threads"] = request.threads
    with stage(0.0, 0.6 if request.stability else 1.0):
        results = [
            beside_simulator(model, robot, where=w, driven=w is requested[0], **amounts) for w in tracked(requested)
        ]
    result = with_grounds(results) if request.ground == ALL else results[0]
    if model.conditions:
        horizon = request.horizon or robot.evaluation_horizon
        conditions = by_condition(model, robot, where=requested[0], horizon=horizon, seed=request.seed)
        result = msgspec.structs.replace(result, conditions=conditions)
    if request.stability:
        with stage(0.6, 1.0, "long roll-outs"):
            long = stability(model, robot, where=requested[0], seed=request.seed)
        result = msgspec.structs.replace(result, stability=long)
    return result


def evaluate_forecasting(request: EvaluationRequest) -> ForecastEvaluation:
    """Evaluate a world model, which predicts the quantities that its log measures."""
    if request.ground is not None or request.stability:
        raise InputError("--ground and --stability are for roll-outs beside a simulator, not for world models")
    if request.device != "cpu":
        raise InputError(f"--device {request.device}: forecasts of world models are measured on the CPU; valid: cpu")
    store = open_measured(request.run, request.data)
    return forecast_log(
        WORLD_MODEL.load(request.run), store, split=chosen_split(store, request.split), horizon=request.horizon,
        rollouts=request.rollouts, seed=request.seed, beside={name: WORLD_MODEL.load(name) for name in request.beside},
    )  # fmt: skip


EVALUATIONS: KindOperation[Callable[[EvaluationRequest], Evaluation]] = KindOperation(
    "evaluation", **{"world-model": evaluate_forecasting}
)
"""Evaluations of kinds that are not compared with simulator or log as all others."""


OWN_NETWORK = "the network trained beside it"


def network_beside(run: str | Path) -> tuple[str, ...]:
    """Return the folder of the recurrent network that was trained beside a run's mechanism; none if it is the model.

    An adaptation of any kind of model keeps it.
    """
    folder = resolve_run(run)
    adapted = folder.parent if folder.name == MECHANISM else folder
    network = adapted / NETWORK
    trained = (adapted / ADAPTATION).is_file() and (network / "model").is_dir()
    return (str(network),) if trained and kind_of(run) == "hybrid" else ()


Logs = str | Path | Sequence[str | Path]
"""One or several logs."""

SIMULATOR = "simulator"
"""Value of `data` that selects the declared simulator for a model of logs."""


def _truth(model: Dynamics, request: EvaluationRequest) -> tuple[str, ...]:
    """Return the logs that a model is compared with; empty for the declared simulator.

    Logs are ground truth for models made from them; other models are compared with the simulator.
    """
    simulated = request.data == SIMULATOR or (model.from_logs and (request.ground is not None or request.stability))
    if request.data is not None or simulated:
        return () if request.data is None or simulated else (request.data,)
    return training_logs(request.run) if model.from_logs or model.fingerprint is None else ()


def open_along_log(run: str | Path, data: Logs, device: str = "cpu") -> tuple[Dynamics, str, Robot, Store]:
    """Open a run with a log of its robot, or several as one, without those of simulated data.

    Returns:
        The model, how its roll-outs along the log start (`Start`), the robot, and the log. For
        a log of targets, model and robot have the log's controller in their drives.

    Raises:
        InputError: The log is missing, damaged or of another robot, or holds targets of an unknown controller.
    """
    robot, store = open_robot_log(declared_robot(run), data)
    kind = kind_of(run)
    store = _as_trained(run, without_measured_shift(store) if kind == "hybrid" else store, kind)
    past = ALONG_LOG[kind](run, device) if kind in ALONG_LOG else None
    own = past.dynamics if isinstance(past, FromPast) else load(run, device=device)
    if own.contact_points is not None:
        store = on_declared_ground(robot, store)
    if robot.command != own.spec.control_kind:
        own = put_behind_drives(own, robot.drives)
    store = as_adapted(run, store, own, _name_in_fit(run, names_of(data)))
    if isinstance(past, FromPast) and isinstance(own, HybridDynamics):
        return cast(Dynamics, FromPast(own, past.context, past.noise, past.start)), past.start, robot, store
    return own, "logged", robot, store


def _along_log(run: str, data: Logs, device: str) -> tuple[Dynamics, Store]:
    """Return the model of a run, and a log as it knows it."""
    model, _, _, store = open_along_log(run, data, device)
    return model, store


def _name_in_fit(run: str | Path, data: Sequence[str]) -> str:
    """Return the name of the run that a fit to several logs took one of them for; empty for other logs."""
    folder = resolve_run(run)
    try:
        logs = list(map(Path, training_logs(folder.parent if folder.name == MECHANISM else folder)))
    except InputError:
        return ""
    names = {log.resolve(): name for log, name in zip(logs, run_names(logs), strict=True)}
    return names.get(Path(data[0]).resolve(), "") if len(data) == 1 < len(logs) else ""


def _as_trained(run: str | Path, store: Store, kind: str) -> Store:
    """Return a log, with a finding if its commands are shifted otherwise than those that a model was made from."""
    try:
        logs = [path for path in training_logs(run) if Path(path).suffix in STORE_SUFFIXES]
        headers = [Store.open(path, memory=0).header for path in logs]
    except InputError:
        return store
    shifts = [one.shift - (measured_shift(one) if kind == "hybrid" else 0.0) for one in headers]
    told = different_shifts([*shifts, store.header.shift], [*logs, "this log"])
    if told is None:
        return store
    advice = "import all logs of a robot with the same column map; a delay belongs to the robot"
    found = [*store.header.findings, Finding("shift", "warning", told, advice)]
    return replace(store, header=store.header.with_findings(found))


def open_robot_log(robot: Robot, data: Logs) -> tuple[Robot, Store]:
    """Open logs of a robot; return the robot with the drives that their controls command; see `open_along_log`."""
    stores = {Path(name): open_robot_data(robot, name, targets=True) for name in names_of(data)}
    logs = {path: store for path, store in stores.items() if store.header.of_robot} or stores
    store = next(iter(logs.values())) if len(logs) == 1 else join_stores(list(logs.values()), run_names(logs))
    robot = as_logged(robot, store.header)
    require_data(robot, store)
    return robot, store


def _declared_simulator(model: Dynamics, robot: Robot, store: Store, threads: int) -> Dynamics | None:
    """Return the declared simulator for the same log, on the hybrid engine; None if it is the model itself.

    Also None without an asset, without the simulator's package, or if the engine cannot represent it.
    """
    if not (store.header.of_robot and has_simulator(robot)) or robot.simulator.fluid is not None:
        return None
    if isinstance(model, HybridDynamics) and not model.from_logs:
        return None
    declared = declared_hybrid(robot, threads=threads)
    if isinstance(model, FromPast):
        return cast(Dynamics, FromPast(declared, model.context, model.noise, model.start))
    return declared


def open_measured(run: str | Path, data: str | None = None) -> Store:
    """Open the data that a world model was trained on, or other data of the same robot.

    Raises:
        InputError: The data are missing, damaged or of another robot.
    """
    robot = declared_robot(run)
    store = open_measured_data(robot, training_log(run) if data is None else data)
    require_log(robot, store)
    return store


class _MadeFrom(Config, frozen=True, forbid_unknown_fields=False):
    data: str | tuple[str, ...]


def training_log(run: str | Path, flag: str = "--data") -> str:
    """Return the path of the log that a run was trained on, or of the part stored in its folder (log.h5).

    `flag` is the flag that names another log, for messages.

    Raises:
        InputError: The log is missing, or there are several.
    """
    data = training_logs(run, flag)
    if len(data) != 1:
        raise InputError(f"{run}: was trained on several files; name one with {flag}; valid: {choices(data)}")
    return data[0]


def training_logs(run: str | Path, flag: str = "--data") -> tuple[str, ...]:
    """Return the paths of all logs that a run was trained on; arguments: see `training_log`.

    Raises:
        InputError: A log is missing.
    """
    folder = resolve_run(run)
    if (folder / CARRIED).is_file():
        return (str(folder / CARRIED),)
    if not (folder / "config.yaml").exists():
        raise InputError(f"{run}: was not trained here and has no log; name one with {flag}")
    data = names_of(read_config(folder / "config.yaml", _MadeFrom).data)
    places = [Path(), *folder.resolve().parents]  # relative names are those of where the run was started
    logs = [next((place / name for place in places if (place / name).exists()), None) for name in data]
    for name, log in zip(data, logs, strict=True):
        if log is None:
            raise InputError(f"{run}: was trained on the log {name}, which is gone; name one with {flag}")
    return tuple(map(str, logs))
