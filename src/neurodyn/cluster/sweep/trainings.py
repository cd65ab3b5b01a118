# SPDX-License-Identifier: Apache-2.0
"""Trainings that a sweep can repeat, by their verb: what they take, their settings, how they run, how they are judged.

Figures are of validation data: `rollout_score` of models, the return in the dynamics of the training of policies, and
for identifications the errors of `evaluate --split validation`. Test data are left to `neurodyn evaluate`.
"""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from neurodyn.core.artifacts import write_text
from neurodyn.core.config import Config, to_yaml
from neurodyn.core.errors import InputError, choices
from neurodyn.core.registry import Registry
from neurodyn.core.verdict import grade_of
from neurodyn.evaluate.runs.comparison import Figure
from neurodyn.learn.metrics import read_metrics

Paths = str | tuple[str, ...]


class Training(ABC):
    """A verb that makes a run folder.

    Attributes:
        arguments: Its arguments; those with the name of a flag mean the same.
        what: What the figure is that trials are chosen by.
    """

    arguments: ClassVar[type[Config]]
    what: ClassVar[str]

    @abstractmethod
    def settings(self, given: Any) -> Config:
        """Return its settings before any is changed, with all that is given read and checked.

        Raises:
            InputError: A file is missing or malformed, or does not fit the others.
        """

    @abstractmethod
    def settings_type(self, given: Any) -> type[Config]:
        """Return the type of its settings."""

    @abstractmethod
    def run(self, given: Any, settings: Any, out: Path, *, resume: bool) -> None:
        """Train, or go on with a run that was killed.

        Raises:
            InputError: The result cannot be used, or something of that does not fit.
        """

    @abstractmethod
    def figure(self, given: Any, out: Path) -> Figure:
        """Return the figure of a finished run by which it is chosen."""


class TrainArguments(Config, frozen=True):
    """Arguments of `neurodyn train` that a sweep takes."""

    robot: str
    data: Paths
    kind: str = "neural"
    size: str = "small"
    net: str | None = None
    minutes: float | None = None
    steps: int | None = None
    shares: tuple[float, ...] | None = None
    members: int | None = None
    device: str = "cpu"


class Train(Training):
    """`neurodyn train`, of neural dynamics and world models."""

    arguments = TrainArguments
    what = "held-out roll-out error, in standard deviations"

    def settings(self, given: TrainArguments) -> Config:
        """See `Training`."""
        from neurodyn.learn.devices import require_device
        from neurodyn.learn.neural.settings import load_settings
        from neurodyn.learn.neural.train import require_data
        from neurodyn.learn.plan import with_budget
        from neurodyn.learn.world_model.settings import load_world_settings
        from neurodyn.robots import load
        from neurodyn.robots.data import open_measured_data, open_robot_data

        require_device(given.device)
        robot = load(given.robot)
        if given.kind == "world-model":
            if given.net is not None:
                raise InputError("net is for kind neural; the network of a world model is part of its settings")
            for path in paths_of(given.data):
                open_measured_data(robot, path)
            found = with_budget(load_world_settings(robot, given.size), given.minutes, given.steps, None)
            if given.members is not None:
                found = msgspec.structs.replace(found, net=msgspec.structs.replace(found.net, members=given.members))
            return found
        if given.kind != "neural":
            raise InputError(f"kind is {given.kind!r}; valid in a sweep: {choices(('neural', 'world-model'))}")
        stores = [open_robot_data(robot, path) for path in paths_of(given.data)]
        for store in stores:
            require_data(robot, store)
        log = any(store.header.source == "log" for store in stores)
        found = with_budget(load_settings(robot, given.size, given.net, log=log), given.minutes, given.steps, None)
        return found if given.members is None else msgspec.structs.replace(found, members=given.members)

    def settings_type(self, given: TrainArguments) -> type[Config]:
        """See `Training`."""
        from neurodyn.learn.neural.settings import Settings
        from neurodyn.learn.world_model.settings import WorldSettings

        return WorldSettings if given.kind == "world-model" else Settings

    def run(self, given: TrainArguments, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.learn.train import train

        with _file_of(settings) as size:
            end = train(
                given.robot, list(paths_of(given.data)), out, kind=given.kind, size=size, shares=given.shares,
                device=given.device, resume=resume,
            )  # fmt: skip
        _require_usable(end.verdict)

    def figure(self, given: TrainArguments, out: Path) -> Figure:
        """See `Training`."""
        return Figure(value=_best_of(out, "rollout_score", least=True))


class IdentifyArguments(Config, frozen=True):
    """Arguments of `neurodyn identify` that a sweep takes; the others are settings."""

    robot: str
    data: Paths
    parameters: tuple[str, ...] = ()
    drive: str | None = None
    blueprint: str | None = None
    settings: str | None = None
    minutes: float | None = None


class Identify(Training):
    """`neurodyn identify`."""

    arguments = IdentifyArguments
    what = "error on validation episodes"

    def settings(self, given: IdentifyArguments) -> Config:
        """See `Training`."""
        from neurodyn.core.config import read_config
        from neurodyn.core.description.blueprint import Blueprint
        from neurodyn.dynamics.files.same_robot import require_same_simulator
        from neurodyn.identify.run import open_logs
        from neurodyn.identify.settings import changed, load_identification
        from neurodyn.robots import load

        robot = load(given.robot)
        require_same_simulator(robot, open_logs(robot, paths_of(given.data)))
        if given.blueprint is not None and given.blueprint != "robot":
            read_config(Path(given.blueprint), Blueprint)
        found = changed(load_identification(robot, given.settings), minutes=given.minutes)
        if not (given.parameters or found.parameters or given.drive):
            raise InputError(f"robot {robot.name!r}: its settings name no parameters; give some as `parameters`")
        return found

    def settings_type(self, given: IdentifyArguments) -> type[Config]:
        """See `Training`."""
        from neurodyn.identify.settings import IdentificationSettings

        return IdentificationSettings

    def run(self, given: IdentifyArguments, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.identify.run import identify
        from neurodyn.report.identification import write_identification

        found = identify(
            given.robot, paths_of(given.data), out, parameters=given.parameters, drive=given.drive,
            blueprint=given.blueprint, settings=settings, resume=resume,
        )  # fmt: skip
        write_identification(out, found.figures, found.sample, found.runs)

    def figure(self, given: IdentifyArguments, out: Path) -> Figure:
        """See `Training`."""
        from neurodyn.evaluate.run import evaluate
        from neurodyn.evaluate.runs.figures import figures_of

        found = []
        for path in paths_of(given.data):
            measured = figures_of(str(out), evaluate(out, data=path, split="validation", threads=1))
            found.append(next(iter(measured.figures.values())))
        values = [figure.value for figure in found if figure.value is not None]
        whole = sum(values) / len(values) if len(values) == len(found) else None
        return msgspec.structs.replace(found[0], value=whole)


class PolicyArguments(Config, frozen=True):
    """Arguments of `neurodyn policy train` that a sweep takes; the others are settings."""

    task: str
    dynamics: str
    algorithm: str = "ppo"
    settings: str | None = None
    policy: str | None = None
    starts: str | None = None
    reference: str | None = None
    minutes: float | None = None
    iterations: int | None = None
    worlds: int | None = None
    device: str = "cpu"


class PolicyTrain(Training):
    """`neurodyn policy train`."""

    arguments = PolicyArguments
    what = "return in the dynamics of the training"

    def settings(self, given: PolicyArguments) -> Config:
        """See `Training`."""
        from neurodyn.policy.optional_dependencies import require_learner

        require_learner()
        from neurodyn.control.resolve import open_dynamics
        from neurodyn.policy.algorithms import ALGORITHMS
        from neurodyn.policy.settings import load_settings, with_flags
        from neurodyn.policy.warm_start import begun_with
        from neurodyn.tasks import load

        chosen, task = ALGORITHMS[given.algorithm], load(given.task)
        where = open_dynamics(task, given.dynamics, device=given.device, starts=given.starts)
        chosen.require(where.dynamics)
        path = None if given.settings is None else Path(given.settings)
        found = with_flags(
            load_settings(given.task, path, logs=where.dynamics.measured, kind=chosen.settings),
            minutes=given.minutes, iterations=given.iterations, worlds=given.worlds,
        )  # fmt: skip
        return found if given.policy is None else begun_with(task, given.policy, found)[1]

    def settings_type(self, given: PolicyArguments) -> type[Config]:
        """See `Training`."""
        from neurodyn.policy.algorithms import ALGORITHMS

        return ALGORITHMS[given.algorithm].settings

    def run(self, given: PolicyArguments, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.control.compatibility import require_fit
        from neurodyn.control.resolve import open_dynamics, open_reference
        from neurodyn.policy.train import train_policy
        from neurodyn.policy.warm_start import begun_with
        from neurodyn.tasks import load

        task = load(given.task)
        where = open_dynamics(task, given.dynamics, device=given.device, starts=given.starts)
        require_fit(task, where.dynamics, settings.penalty)
        begun = None if given.policy is None else begun_with(task, given.policy, settings)[0]
        end = train_policy(
            task, where, out, settings, reference=open_reference(task, where, given.reference), starts=given.starts,
            initial=begun, resume=resume,
        )  # fmt: skip
        _require_usable(end.verdict)

    def figure(self, given: PolicyArguments, out: Path) -> Figure:
        """See `Training`."""
        return Figure(value=_best_of(out, "return_training", least=False), greater_is_better=True)


TRAININGS: Registry[Training] = Registry("training of a sweep")
"""What a sweep can repeat, by its verb."""
TRAININGS.add("train", Train())
TRAININGS.add("identify", Identify())
TRAININGS.add("policy train", PolicyTrain())


def paths_of(data: Paths) -> tuple[str, ...]:
    """Return the paths of one or several files."""
    return (data,) if isinstance(data, str) else data


def _best_of(out: Path, name: str, *, least: bool) -> float | None:
    found = [line[name] for line in read_metrics(out) if isinstance(line.get(name), int | float)]
    return None if not found else float(min(found) if least else max(found))


def _require_usable(verdict: str) -> None:
    if grade_of(verdict) == "fails":
        raise InputError(f"verdict: {verdict}")


@contextmanager
def _file_of(settings: Config) -> Iterator[str]:
    """Yield the path of a file with settings."""
    with tempfile.TemporaryDirectory(prefix="neurodyn-") as folder:
        path = Path(folder) / "settings.yaml"
        write_text(path, to_yaml(settings))
        yield str(path)
