# SPDX-License-Identifier: Apache-2.0
"""Material of a report: evaluation, files of the run, sample roll-outs, and an animation.

Missing material (a moved data file, no Newton) is left out, and the report says why.
"""

from dataclasses import dataclass, field, replace
from functools import singledispatch
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from neurodyn.core.artifacts import PRETRAINED, pretrained_names, resolve_run
from neurodyn.core.config import Config, read_config
from neurodyn.core.errors import InputError
from neurodyn.core.progress import stage, tracked
from neurodyn.data.header import StoreHeader, dataset, read_header
from neurodyn.data.writer import STORE_SUFFIXES, open_store_file
from neurodyn.dynamics.artifact import load_simulator, robot_of
from neurodyn.dynamics.batch import RecordedEnvironments
from neurodyn.dynamics.world_model.model import WORLD_MODEL
from neurodyn.evaluate.named_scenarios import scenario
from neurodyn.evaluate.records import Evaluation, ForecastEvaluation, LogEvaluation, Simulated
from neurodyn.evaluate.rollouts import chosen_split
from neurodyn.evaluate.run import open_along_log, open_measured
from neurodyn.identify.ladder.held_out import model_forecast, whole_runs
from neurodyn.identify.result import RunFit
from neurodyn.learn.metrics import read_metrics
from neurodyn.report.forecast import bands
from neurodyn.report.recording import LOG_SECONDS, USUAL_SECONDS, Recording, pictures, record, record_log
from neurodyn.robots import Robot
from neurodyn.robots import load as load_robot

SAMPLES = 2
_RATE = 10.0  # of the animation [1/s]


class RunFacts(Config, frozen=True, forbid_unknown_fields=False):
    """How a run was made, from its config.yaml, for any kind of dynamics."""

    robot: str = ""  # name or path of its declaration
    data: str | tuple[str, ...] = ""  # path or paths of the training data
    shares: tuple[float, ...] = ()  # of each file
    base: str | None = None  # run that it was fine-tuned from; None for training from scratch
    settings: dict[str, Any] = msgspec.field(default_factory=dict)  # resolved
    versions: dict[str, str] = msgspec.field(default_factory=dict)  # of packages

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the training data."""
        return (self.data,) if isinstance(self.data, str) else self.data


@dataclass
class ReportMaterial:
    """Content of a report."""

    run: Path
    name: str  # as on the command line
    result: Evaluation
    robot: Robot | None = None  # None if its declaration is missing
    config: RunFacts | None = None  # None without a config.yaml
    config_text: str = ""  # of RUN/config.yaml
    metrics: list[dict[str, Any]] = field(default_factory=list)  # lines of RUN/metrics.jsonl
    header: StoreHeader | None = None  # of the training data; None if missing or not a store
    transitions: int | None = None  # in the training data; None if unknown
    data: str | None = None  # log passed to the evaluation; None for the run's own
    recordings: list[Recording] = field(default_factory=list)  # sample roll-outs
    whole: list[RunFit] = field(default_factory=list)  # residuals over whole runs of a log
    bands: str = ""  # sample forecasts of a world model, as HTML
    frames: np.ndarray | None = None  # images of the first recording, uint8, shape [T, H, W, 3]
    interval: float = 0.0  # between images [s]
    remarks: list[str] = field(default_factory=list)  # reasons for missing material

    @property
    def logs(self) -> list[str]:
        """Candidate paths of the evaluation's log."""
        result = self.result
        own, notes = ("", {}) if isinstance(result, Simulated) else (result.data or "", result.notes)
        named = [self.data or own, *(self.config.files if self.config else ()), *(notes.get("files") or [])[:1]]
        return [name for name in named if name]


def gather(run: Path, result: Evaluation, *, moving: bool = True, data: str | None = None) -> ReportMaterial:
    """Collect a report's material, with an animation if `moving`; `data` is the log passed to the evaluation."""
    material = ReportMaterial(run, _name(run), result, metrics=read_metrics(run), data=data)
    robot, path = robot_of(run), run / "config.yaml"
    if path.is_file():
        material.config_text = path.read_text(encoding="utf-8")
        material.config = read_config(path, RunFacts)
        _read_data_headers(material, material.config.files)
    try:
        material.robot = load_robot(robot)
        with stage(0.0, 0.5, "sample trajectories"):
            _add_samples(result, material, material.robot)
        if moving and material.recordings:
            with stage(0.5, 1.0):
                material.frames, material.interval = pictures(_short(material.recordings[0]), rate=_RATE)
    except InputError as error:
        material.remarks.append(str(error))
    return material


@singledispatch
def _add_samples(result: LogEvaluation, material: ReportMaterial, robot: Robot) -> None:
    path = _first_file(material.logs)
    if path is None:
        raise InputError("the recorded data of the evaluation are gone, so that there are no sample trajectories")
    model, _, robot, store = open_along_log(material.run, path)
    frames, split = round(LOG_SECONDS / robot.dt), chosen_split(store, result.split)
    seed = result.about.seed
    material.recordings.append(record_log(model, robot, store, frames=frames, seed=seed, worlds=3, split=split))
    if not robot.spec.floating:
        where = RecordedEnvironments(store, names=[one.name for one in model.conditions])
        forecasts = {"model": model_forecast(model, where)}
        material.whole = whole_runs(forecasts, store, split, frames=result.about.horizon, past=model.spec.context)


@_add_samples.register
def _(result: Simulated, material: ReportMaterial, robot: Robot) -> None:
    model, about, where = load_simulator(material.run), result.about, scenario(robot, result.ground)
    for driven in tracked((False, True) if robot.spec.nu else (False,)):
        made = record(
            model, robot, frames=about.horizon, seed=about.seed + driven, worlds=SAMPLES, driven=driven, where=where
        )
        material.recordings.append(made)


@_add_samples.register
def _(result: ForecastEvaluation, material: ReportMaterial, robot: Robot) -> None:
    store = open_measured(material.run, material.data)
    split = chosen_split(store, result.split)
    material.bands = bands(WORLD_MODEL.load(material.run), store, split, result.about.horizon)


def _short(recording: Recording) -> Recording:
    """Return the first seconds of a recording, for a small animation."""
    frames = round(USUAL_SECONDS / recording.robot.dt)
    return replace(recording, predicted=recording.predicted.until(frames), truth=recording.truth.until(frames))


def _read_data_headers(material: ReportMaterial, files: tuple[str, ...]) -> None:
    """Read the header of the first file, and the number of transitions of all."""
    paths_or_none = [_first_file([data, str(material.run.parent / data)]) for data in files]
    paths = [path for path in paths_or_none if path is not None and path.suffix.lower() in STORE_SUFFIXES]
    if len(paths) < len(files):
        return
    try:
        headers, transitions = zip(*map(_data_header, paths), strict=True)
    except InputError as error:
        material.remarks.append(str(error))
        return
    material.header, material.transitions = headers[0], sum(transitions)


def _data_header(path: Path) -> tuple[StoreHeader, int]:
    with open_store_file(path) as file:
        return read_header(file, str(path)), int(dataset(file, "episodes")["length"].astype(np.int64).sum())


def _first_file(names: list[str]) -> Path | None:
    return next((path for name in names if name and (path := Path(name)).is_file()), None)


def _name(run: Path) -> str:
    for name in pretrained_names():
        if resolve_run(PRETRAINED + name).resolve() == run.resolve():
            return PRETRAINED + name
    return str(run)
