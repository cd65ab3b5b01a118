# SPDX-License-Identifier: Apache-2.0
"""The start of a training: its job, its data, and the check of its run directory."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from neurodyn.core import artifacts
from neurodyn.core.config import read_config, read_plain, read_record
from neurodyn.core.errors import InputError, notice
from neurodyn.core.progress import Progress
from neurodyn.core.provenance import package_versions
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import IN_MEMORY, Store, blocks
from neurodyn.data.training_range import training_range
from neurodyn.dynamics.artifact import Artifact, require_match
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.conditions import known_conditions
from neurodyn.learn.budget import TrainState
from neurodyn.learn.learner import Learner
from neurodyn.learn.loop import Callback, TrainingLoop, has_state
from neurodyn.learn.manifest import DEFAULT_ALGORITHM, RunRecord
from neurodyn.learn.plan import TrainingPlan
from neurodyn.robots import Robot

Data = Store | str | Path | Sequence[Store | str | Path]
"""Data of a training: one or several stores or paths."""


class ReadStore(Protocol):
    """Opens a path."""

    def __call__(self, path: str | Path, /, *, memory: int) -> Store:
        """Return the store at a path, with at most `memory` bytes of its rows in memory."""
        ...


P_co = TypeVar("P_co", bound=TrainingPlan, covariant=True)
M = TypeVar("M", bound=LearnedDynamics)


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of a training."""

    resume: bool = False
    """Whether to continue a stopped run."""
    progress: Progress | None = None
    """Progress bar."""
    device: str = "cpu"
    """Torch device that trains."""
    callbacks: Sequence[Callback] = ()
    """Called during the training."""


@dataclass(frozen=True)
class TrainingJob(JobOptions, Generic[P_co]):
    """The argument of `learn.training.TrainedKind.train`."""

    robot: Robot
    """The robot."""
    robot_name: str
    """Name or path of the robot's declaration, for the record."""
    data: str | tuple[str, ...]
    """Paths of the trajectories, for the record."""
    store: Store | Mixture
    """The trajectories, of one or several stores."""
    out: Path
    """Run directory."""
    settings: P_co
    """Settings of the training."""


@dataclass(frozen=True)
class FinetuningJob(JobOptions, Generic[P_co]):
    """The argument of `learn.training.TrainedKind.finetune`."""

    base: str
    """Run of the model to adapt, or "pretrained:NAME"; the settings have the same network."""
    data: str | tuple[str, ...]
    """Paths of the trajectories, for the record."""
    store: Store | Mixture
    """The trajectories, of one or several stores."""
    out: Path
    """Run directory."""
    settings: P_co
    """Settings of the training."""
    actors: Sequence[Any] = ()
    """Policies that acted in the data, for settings with roll-outs of them (`learn.neural.policy_rollouts`)."""


_FREE = ("data", "versions")
"""Fields of a record that may change when a run is resumed; data are compared by their checksum."""


def check_run(out: Path, record: RunRecord[Any], resume: bool, state: str | None = "training") -> bool:
    """Return whether a run can continue from a checkpoint; a run stopped before its first one starts again.

    Args:
        out: Run directory.
        record: Record of the run.
        resume: Whether to continue a stopped run.
        state: Name of the checkpoint; None for a run that continues from its other files.

    Raises:
        InputError: The run exists without `resume`, or its record differs in more than the budget.
    """
    path = out / "config.yaml"
    if resume:
        if not path.exists() and not (out / "model").exists():  # stopped before it began, or no run at all
            notice(f"{out}: holds no training to resume; a new one starts")
            return False
        recorded = read_plain(path)
        algorithm = recorded.get("algorithm", "") if isinstance(recorded, dict) else ""
        if algorithm != record.algorithm:  # with other settings
            raise InputError(
                f"{path}: --resume needs the algorithm that the run was started with, "
                f"{algorithm or DEFAULT_ALGORITHM}; give that one, or another --out"
            )
        before: RunRecord[Any] = read_config(path, RunRecord[record.settings.own_kind])
        for name in record.__struct_fields__:
            if name not in _FREE and _lasting(getattr(before, name)) != _lasting(getattr(record, name)):
                raise InputError(
                    f"{path}: --resume needs the {name} that the run was started with; "
                    "leave out the flags that differ, or give another --out"
                )
        if state is not None and not has_state(out, state):
            notice(f"{out}: was stopped before its first save; it starts over")
            return False
        return True
    if path.exists() or (out / "model").exists():
        raise InputError(f"{out}: already holds a run; add --resume to continue it, or give another --out")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; give a folder for the run")
    return False


def train_by_plan(
    learner: Learner,
    job: TrainingJob[TrainingPlan] | FinetuningJob[TrainingPlan],
    record: RunRecord[Any],
    *,
    resume: bool,
    patience: int | None = None,
) -> TrainState:
    """Train the model of a job, from its checkpoint if `resume`."""
    plan = job.settings
    loop = TrainingLoop(
        learner, plan.budget, job.out, record=record, data=checksum(job.store), validations=plan.validation_count,
        keep_last=plan.keep == "last", patience=patience, thread_count=plan.threads, callbacks=job.callbacks,
        progress=job.progress,
    )  # fmt: skip
    if resume:
        loop.resume()
    return loop.run()


def open_mixture(data: Data, shares: Sequence[float] | None, read: ReadStore, memory: int = IN_MEMORY) -> Mixture:
    """Open the data of a training.

    Args:
        data: Stores or paths.
        shares: Share of each in the windows of a batch; None for its share of the transitions.
        read: Opens one path.
        memory: Total size up to which stores are read into memory [bytes].

    Raises:
        InputError: A file is missing or damaged, or the shares do not match the files.
        MismatchError: The files are of different robots.
    """
    given = [data] if isinstance(data, Store | str | Path) else list(data)
    files = sum(not isinstance(one, Store) for one in given)
    stores = [one if isinstance(one, Store) else read(one, memory=memory // max(1, files)) for one in given]
    return Mixture.of(stores, shares, ["" if isinstance(one, Store) else str(one) for one in given])


def place_of(data: Mixture) -> str | tuple[str, ...]:
    """Return the paths of data, for the record."""
    return data.names if len(data.names) > 1 else "".join(data.names)


def shares_of(data: Mixture) -> tuple[float, ...] | UnsetType:
    """Return the shares of several files, for the record."""
    return data.shares if len(data.stores) > 1 else UNSET


def checksum(data: Store | Mixture) -> int:
    """Return the checksum by which a resumed training recognises its data."""
    crc = 0
    for store in Mixture.of(data).stores:
        for _, block in blocks(store.frames):
            crc = zlib.crc32(np.ascontiguousarray(block).data, crc)
    return crc


def start_job(
    job: TrainingJob[Any] | FinetuningJob[Any], kind: str, robot: str, packages: tuple[str, ...],
    base: str | UnsetType | None = UNSET,
) -> tuple[RunRecord[Any], bool]:  # fmt: skip
    """Return the record of a job's run, and whether the run can continue from a checkpoint; errors: see `check_run`."""
    record = RunRecord[type(job.settings)](
        kind=kind, robot=robot, data=job.data, shares=shares_of(Mixture.of(job.store)), settings=job.settings,
        versions=package_versions(*packages), base=base,
    )  # fmt: skip
    return record, check_run(job.out, record, job.resume)


def start_finetuning(
    job: FinetuningJob[Any], artifact: Artifact[Any, Any, M], packages: tuple[str, ...]
) -> tuple[M, Mixture, RunRecord[Any], bool]:
    """Return the model that a job adapts, whose range of motion then includes the data; the data; and as `start_job`.

    Raises:
        InputError: The data are of another robot, or lack conditions of the model; see also `check_run`.
    """
    config, _ = artifact.read(job.base)
    model = artifact.load(job.base).requires_grad_(True).train()
    mixture = known_conditions(Mixture.of(job.store), model.conditions)
    for part, name in zip(mixture.stores, mixture.names, strict=True):
        require_match(model, part.header.spec, None, name or str(job.data))
    record, going_on = start_job(job, artifact.kind, config.robot, packages, base=job.base)
    if model.training_range is not None:
        model.training_range = model.training_range.union(training_range(mixture))
    return model, mixture, record, going_on


def _lasting(value: Any) -> Any:
    """Return a part of a record without its budget, as plain data."""
    plain = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
    for name in getattr(value, "budget_fields", ()):
        head, _, tail = name.partition(".")
        (plain[head] if tail else plain).pop(tail or head, None)
    return plain


def longest_forecast(run: str) -> int | None:
    """Return the longest forecast [frames] in training or validation by a run's config.yaml; None if it has none."""
    path = artifacts.resolve_run(run) / "config.yaml"
    if not path.is_file():
        return None
    try:
        settings = read_record(path, "settings")["settings"]
        known = [phase.get("forecast", 0) for phase in settings.get("phases", ())]
        return int(max([*known, settings.get("validation_frames", 0)])) or None
    except (AttributeError, KeyError, TypeError, ValueError):  # another kind of run, or one edited by hand
        return None
