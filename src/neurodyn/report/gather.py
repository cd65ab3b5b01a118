# SPDX-License-Identifier: Apache-2.0
"""What a report is made of: the evaluation, the run's own files, sample roll-outs, and a moving picture.

Whatever is missing (a moved data file, no Newton) is left out, and the reason is kept for the page.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from neurodyn.core.artifacts import PRETRAINED, pretrained_names, resolve_run
from neurodyn.core.errors import InputError
from neurodyn.data.header import StoreHeader, dataset, read_header
from neurodyn.data.store import Split
from neurodyn.data.writer import open_store_file
from neurodyn.dynamics.artifact import kind_of, robot_of
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.neural.artifact import NEURAL, ModelConfig
from neurodyn.evaluate.as_evaluated import as_evaluated, without_past
from neurodyn.evaluate.scenario import scenario
from neurodyn.identify.starts import FromPast
from neurodyn.learn.metrics import read_metrics
from neurodyn.learn.neural.train import RunConfig, read_run_config
from neurodyn.report.pictures import pictures
from neurodyn.report.recording import LOG_SECONDS, SECONDS, Recording, record, record_log
from neurodyn.robots import Robot
from neurodyn.robots import load as load_robot
from neurodyn.robots.data import open_robot_data

SAMPLES = 2
_SPLITS = {"train": Split.TRAIN, "validation": Split.VALIDATION, "test": Split.TEST, "all": None}


@dataclass
class Material:
    """Everything that a report shows.

    Attributes:
        run: Run directory.
        name: The run as the command line names it.
        report: What the evaluation returned.
        model: What a neural model's files say; None for a hybrid one.
        robot: The robot; None where its declaration is gone.
        config: How the run was made; None where it does not say.
        config_text: RUN/config.yaml.
        metrics: Lines of RUN/metrics.jsonl.
        header: Header of the training data; None where they are no store, or gone.
        transitions: Transitions in the training data; None where unknown.
        recordings: Sample roll-outs.
        frames: Moving picture of the first recording, uint8, shape [T, H, W, 3]; None without one.
        interval: Time between two pictures [s].
        remarks: Why something is missing.
    """

    run: Path
    name: str
    report: dict[str, Any]
    model: ModelConfig | None
    robot: Robot | None = None
    config: RunConfig | None = None
    config_text: str = ""
    metrics: list[dict[str, Any]] = field(default_factory=list)
    header: StoreHeader | None = None
    transitions: int | None = None
    recordings: list[Recording] = field(default_factory=list)
    frames: np.ndarray | None = None
    interval: float = 0.0
    remarks: list[str] = field(default_factory=list)

    @property
    def of_log(self) -> bool:
        """Whether the evaluation is beside a log instead of a simulator."""
        return "at_horizon" in self.report or self.of_tosses

    @property
    def of_tosses(self) -> bool:
        """Whether the evaluation is beside a log of a floating robot."""
        return "releases" in self.report


def gather(run: Path, report: dict[str, Any], *, moving: bool = True) -> Material:
    """Collect what a report shows.

    Args:
        run: Run directory.
        report: What the evaluation returned.
        moving: Whether a moving picture is rendered.

    Raises:
        InputError: There is no such run, or its model is damaged.
    """
    hybrid = kind_of(run) == "hybrid"
    material = Material(run, _name(run), report, None if hybrid else NEURAL.read(run)[0])
    if (run / "config.yaml").is_file():
        material.config_text = (run / "config.yaml").read_text(encoding="utf-8")
        if not hybrid:
            material.metrics, material.config = read_metrics(run), read_run_config(run)
            _read_data_header(material, material.config.data)
    model = as_evaluated(str(run))
    try:
        material.robot = load_robot(robot_of(run))
        _record(material, model, material.robot)
        if moving and material.recordings:
            material.frames, material.interval = pictures(_short(material.recordings[0]))
    except InputError as error:
        material.remarks.append(str(error))
    return material


def _record(material: Material, model: LearnedDynamics | FromPast, robot: Robot) -> None:
    report, seed = material.report, material.report["seed"]
    if not material.of_log:
        frames = report["horizon"]
        where = scenario(robot, report.get("ground"))
        for driven in (False, True) if robot.spec.nu else (False,):
            made = record(
                without_past(model),
                robot,
                frames=frames,
                seed=seed + driven,
                worlds=SAMPLES,
                driven=driven,
                where=where,
            )
            material.recordings.append(made)
        return
    files = report.get("notes", {}).get("files") or []
    path = _first_file([report.get("data"), material.config.data if material.config else None, *files[:1]])
    if path is None:
        raise InputError("the recorded data of the evaluation are gone, so that there are no sample trajectories")
    store = open_robot_data(robot, path)
    frames, split = round(LOG_SECONDS / robot.dt), _SPLITS.get(report.get("split", "all"))
    material.recordings.append(record_log(model, robot, store, frames=frames, seed=seed, worlds=3, split=split))


def _short(recording: Recording) -> Recording:
    """Return the first seconds of a recording, for a picture that stays small."""
    from dataclasses import replace

    frames = round(SECONDS / recording.robot.dt)
    return replace(recording, predicted=recording.predicted.until(frames), truth=recording.truth.until(frames))


def _read_data_header(material: Material, data: str) -> None:
    path = _first_file([data, str(material.run.parent / data)])
    if path is None or path.suffix.lower() not in {".h5", ".hdf5"}:
        return
    try:
        with open_store_file(path) as file:
            material.header = read_header(file, str(path))
            material.transitions = int(dataset(file, "episodes")["length"].astype(np.int64).sum())
    except InputError as error:
        material.remarks.append(str(error))


def _first_file(names: list[str | None]) -> Path | None:
    return next((path for name in names if name and (path := Path(name)).is_file()), None)


def _name(run: Path) -> str:
    for name in pretrained_names():
        if resolve_run(PRETRAINED + name).resolve() == run.resolve():
            return PRETRAINED + name
    return str(run)
