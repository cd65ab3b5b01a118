# SPDX-License-Identifier: Apache-2.0
"""Evaluate the model of a run with the defaults that suit it, and judge whether it is any use."""

from collections.abc import Iterator
from functools import singledispatch
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from neurodyn.core.artifacts import PRETRAINED, resolve_run
from neurodyn.core.config import Config, read_config, replaced
from neurodyn.core.errors import InputError, choices
from neurodyn.core.progress import stage, tracked
from neurodyn.core.requests import taking
from neurodyn.core.verdict import Verdict, of_bounds, of_faults, of_persistence, together
from neurodyn.core.workers import resolve_threads
from neurodyn.data.store import Store
from neurodyn.dynamics.artifact import kind_of, load, load_simulator, robot_of
from neurodyn.dynamics.guard import FOLDER, Fault, watching
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KINDS
from neurodyn.dynamics.same_robot import require_robot
from neurodyn.dynamics.world_model.model import WORLD_MODEL
from neurodyn.evaluate.logged import beside_log
from neurodyn.evaluate.recorded import chosen_split
from neurodyn.evaluate.records import (
    PERSISTENCE,
    Evaluation,
    ForecastEvaluation,
    Logged,
    RolloutComparison,
    Simulated,
    Tossed,
)
from neurodyn.evaluate.requests import EvaluationRequest
from neurodyn.evaluate.scenario import ALL, scenario, scenarios
from neurodyn.evaluate.simulated import beside_simulator, with_grounds
from neurodyn.evaluate.stability import stability
from neurodyn.evaluate.world_model import forecast_log
from neurodyn.learn.neural.train import require_data
from neurodyn.learn.world_model.train import require_log
from neurodyn.robots import load as load_robot
from neurodyn.robots.data import open_measured_data, open_robot_data


def judge(result: Evaluation, faults: list[Fault]) -> Verdict:
    """Return the verdict on an evaluation: beside persistence, on what broke down, and on what left its bounds.

    A model is compared with persistence at the shortest horizon: over longer ones motion may be chaotic, and nothing
    that is predicted may be better than the mean. `faults` are what broke down in the roll-outs.
    """
    worst = max(faults, key=lambda fault: fault.worlds / fault.of, default=None)
    found = [*_beside_persistence(result)]
    if worst is not None:
        found.append(of_faults(worst.words, worst.worlds, worst.of))
    if isinstance(result, Simulated) and result.stability is not UNSET:
        for mode in ("passive", "driven"):
            run = getattr(result.stability, mode)
            if run is not UNSET:
                found.append(of_bounds(mode, run.in_bounds_fraction, result.stability.frames, run.first_out))
    return together(found)


@singledispatch
def _beside_persistence(result: Evaluation) -> Iterator[Verdict]:
    raise TypeError(type(result))


@_beside_persistence.register
def _(result: Simulated | Tossed) -> Iterator[Verdict]:
    yield from _compared(result.comparison)


@_beside_persistence.register
def _(result: Logged) -> Iterator[Verdict]:
    marks = result.at_horizon["all"].marks
    mark = marks[min(marks, key=int)]
    yield of_persistence(mark.model.q_mean, mark.persistence.q_mean, f"joint error {mark.seconds:.3g} s ahead")


@_beside_persistence.register
def _(result: ForecastEvaluation) -> Iterator[Verdict]:
    mark = result.at_horizon[min(result.at_horizon, key=int)]
    mine, still = mark.by_model["model"].scaled, mark.by_model[PERSISTENCE].scaled
    yield of_persistence(mine, still, f"error {mark.seconds:.3g} s ahead, in standard deviations,")


def _compared(comparison: RolloutComparison) -> Iterator[Verdict]:
    """Judge each metric; a model that is better in one of them knows something."""
    horizon = min(comparison.by_horizon, key=int)
    mine, still = comparison.by_horizon[horizon], comparison.baselines.persistence[horizon]
    judged = [
        of_persistence(mine.means[name], still.means[name], f"{name} over {horizon} frames")
        for name in mine.percentiles
    ]
    if judged and all(one.grade == "fails" for one in judged):
        yield judged[0]


CARRIED = "log.h5"
"""Name of a log that a run carries with it."""


@taking(EvaluationRequest)
def evaluate(request: EvaluationRequest) -> Evaluation:
    """Measure the model of a run.

    Returns:
        What was measured; its `plain()` is what `neurodyn evaluate --json` writes.

    Raises:
        InputError: The run or the data are missing or damaged, or of another robot; or the model cannot do what is
            asked.
    """
    for name, value in (("horizon", request.horizon), ("rollouts", request.rollouts)):
        if value is not None and value < 1:
            raise InputError(f"--{name} is {value}; valid: at least 1")
    request = replaced(request, run=(run := str(request.run)), threads=resolve_threads(request.threads))
    shipped = run.startswith(PRETRAINED)  # what ships with the package is not written to
    with watching(None if shipped else resolve_run(run) / FOLDER) as watch:
        own = KINDS[kind_of(run)].evaluate
        measured = own.get()(request) if own else evaluate_simulating(request)
    return msgspec.structs.replace(measured, verdict=str(judge(measured, watch.faults)), faults=watch.faults or UNSET)


def evaluate_simulating(request: EvaluationRequest) -> Simulated | Logged | Tossed:
    """Measure a model that predicts what a simulator has as its state."""
    run, robot = request.run, load_robot(robot_of(request.run))
    if request.beside:
        raise InputError("--beside compares world models; valid: RUN of a world model")
    model = load_simulator(run, device=request.device)
    data = training_log(run) if request.data is None and model.fingerprint is None else request.data
    amounts: dict[str, Any] = {"horizon": request.horizon, "rollouts": request.rollouts, "seed": request.seed}
    if data is not None:
        if request.ground is not None or request.stability:
            raise InputError("--ground and --stability are for roll-outs beside the simulator; leave out --data")
        store = open_robot_data(robot, data)
        require_data(robot, store)
        model, start = load_along_log(run, request.device)
        found = beside_log(model, robot, store, split=chosen_split(store, request.split), **amounts)
        return msgspec.structs.replace(found, data=data, start=start)
    if request.split is not None:
        raise InputError("--split picks episodes of recorded data; give --data too")
    require_robot(model, robot)
    where = list(scenarios(robot).values()) if request.ground == ALL else [scenario(robot, request.ground)]
    amounts["threads"] = request.threads
    with stage(0.0, 0.6 if request.stability else 1.0):
        results = [beside_simulator(model, robot, where=w, driven=w is where[0], **amounts) for w in tracked(where)]
    result = with_grounds(results) if request.ground == ALL else results[0]
    if request.stability:
        with stage(0.6, 1.0, "long roll-outs"):
            long = stability(model, robot, where=where[0], seed=request.seed)
        result = msgspec.structs.replace(result, stability=long)
    return result


def evaluate_forecasting(request: EvaluationRequest) -> ForecastEvaluation:
    """Measure a world model, which predicts what its log measures."""
    if request.ground is not None or request.stability:
        raise InputError("--ground and --stability are for roll-outs beside a simulator, not for world models")
    if request.device != "cpu":
        raise InputError(f"--device {request.device}: forecasts of world models are measured on the CPU; valid: cpu")
    store = open_measured(request.run, request.data)
    return forecast_log(
        WORLD_MODEL.load(request.run), store, split=chosen_split(store, request.split), horizon=request.horizon,
        rollouts=request.rollouts, seed=request.seed, beside={name: WORLD_MODEL.load(name) for name in request.beside},
    )  # fmt: skip


def load_along_log(run: str | Path, device: str = "cpu") -> tuple[Dynamics, str]:
    """Load the model of a run as its roll-outs along a log begin, and return how: as "logged", or from the "past"."""
    along = KINDS[kind_of(run)].along_log
    own = along.get()(run, device) if along else None
    return (load(run, device=device), "logged") if own is None else (own, "past")


def open_measured(run: str | Path, data: str | None = None) -> Store:
    """Open the data that a world model was trained on, or others of the same robot.

    Raises:
        InputError: They are gone, damaged or of another robot.
    """
    robot = load_robot(robot_of(run))
    store = open_measured_data(robot, training_log(run) if data is None else data)
    require_log(robot, store)
    return store


class _MadeFrom(Config, frozen=True, forbid_unknown_fields=False):
    data: str | tuple[str, ...]


def training_log(run: str | Path, flag: str = "--data") -> str:
    """Return the path of the log that a run was trained on, or of the part of it that lies in its folder (log.h5).

    `flag` is how the user names another log, for messages.

    Raises:
        InputError: It is gone, or there are several.
    """
    folder = resolve_run(run)
    if (folder / CARRIED).is_file():
        return str(folder / CARRIED)
    if not (folder / "config.yaml").exists():
        raise InputError(f"{run}: was not trained here and has no log; name one with {flag}")
    data = read_config(folder / "config.yaml", _MadeFrom).data
    if not isinstance(data, str):
        raise InputError(f"{run}: was trained on several files; name one with {flag}; valid: {choices(data)}")
    if not Path(data).exists():
        raise InputError(f"{run}: was trained on the log {data}, which is gone; name one with {flag}")
    return data
