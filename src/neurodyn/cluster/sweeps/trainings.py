# SPDX-License-Identifier: Apache-2.0
"""Trainings that a sweep can repeat, by verb: arguments, settings, execution and ranking."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from neurodyn.core.artifacts import read_json
from neurodyn.core.config import Config, replaced
from neurodyn.core.registry import Registry
from neurodyn.core.requests import arguments_of, flag_of, names_of, python_type
from neurodyn.core.verdict import require_usable
from neurodyn.evaluate.run_comparison import Figure
from neurodyn.identify.requests import DiscoverRequest, IdentifyRequest
from neurodyn.learn.metrics import best_metric
from neurodyn.learn.requests import FinetuneRequest, TrainRequest
from neurodyn.policy.requests import TrainPolicyRequest

Paths = str | tuple[str, ...]


class Training(ABC):
    """A verb that writes a run folder.

    Attributes:
        request: Request class of its verb.
        arguments: Part of the request that a sweep file can set; the rest are settings, or equal in all trials.
        what: Description of the figure that ranks trials.
    """

    request: ClassVar[Callable[..., Any]]
    arguments: ClassVar[type[Config]]
    what: ClassVar[str]

    def asked(self, given: Any, out: Path = Path(), **changes: Any) -> Any:
        """Return the request of a training; settings, if given, already contain the budget."""
        fields = {name: getattr(given, name) for name in given.__struct_fields__}
        if changes:
            fields |= dict.fromkeys(fields.keys() & {"minutes", "steps", "net", "members"})
        return self.request(**fields | {"out": out} | changes)

    @abstractmethod
    def settings(self, given: Any) -> Config:
        """Return its unmodified settings, with all given files read and checked.

        Raises:
            InputError: A file is missing or malformed, or does not fit the others.
        """

    @abstractmethod
    def run(self, given: Any, settings: Any, out: Path, *, resume: bool) -> None:
        """Train, or resume a killed run.

        Raises:
            InputError: The result is not usable, or the arguments do not fit together.
        """

    @abstractmethod
    def figure(self, given: Any, out: Path) -> Figure:
        """Return the figure that ranks a finished run."""

    def weights(self, given: Any, out: Path) -> int:
        """Return the number of weights of a finished run's model."""
        from neurodyn.dynamics.artifact import load
        from neurodyn.nets.networks import weights_in

        return weights_in(load(out).parameters())


def arguments_in_file(request: type, *names: str) -> type[Config]:
    """Return a struct of the request fields that a sweep file can set, typed as on the terminal."""
    fields = [one for one in arguments_of(request) if one.name in names]
    made: Any = msgspec.defstruct(
        request.__name__.replace("Request", "Arguments"),
        [
            (one.name, _kind_in_file(one), msgspec.NODEFAULT if one.default is one.empty else one.default)
            for one in fields
        ],
        bases=(Config,),
        frozen=True,
        kw_only=True,
    )
    return made


def _kind_in_file(field: inspect.Parameter) -> Any:
    flag = flag_of(field.annotation)
    kind = python_type(field.annotation) if flag is None or isinstance(flag.kind, str) else flag.kind
    if field.name == "data" and kind == tuple[str, ...]:
        return Paths
    return str | None if kind == Path | None else kind


class Identify(Training):
    """`neurodyn identify`."""

    request = IdentifyRequest
    arguments = arguments_in_file(
        IdentifyRequest, "robot", "data", "parameters", "drive", "blueprint", "settings", "minutes"
    )
    what = "error on validation episodes"

    def settings(self, given: Any) -> Config:
        """See `Training`."""
        from neurodyn.identify.identification import require_problem
        from neurodyn.identify.run import plan_identification

        problem, found = plan_identification(self.asked(given))
        require_problem(problem, found)
        return found

    def run(self, given: Any, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.identify.run import identify
        from neurodyn.report.identification import write_identification

        found = identify(self.asked(given, out, settings=settings, resume=resume))
        write_identification(out, found.figures, found.sample, found.runs)

    def figure(self, given: Any, out: Path) -> Figure:
        """See `Training`."""
        from neurodyn.evaluate.run import evaluate
        from neurodyn.evaluate.run_figures import figures_of

        found = []
        for path in names_of(given.data):
            measured = figures_of(str(out), evaluate(out, data=path, split="validation", threads=1))
            found.append(next(iter(measured.figures.values())))
        values = [figure.value for figure in found if figure.value is not None]
        whole = sum(values) / len(values) if len(values) == len(found) else None
        return msgspec.structs.replace(found[0], value=whole)


class Discover(Training):
    """`neurodyn discover`."""

    request = DiscoverRequest
    arguments = arguments_in_file(DiscoverRequest, "robot", "data", "base", "candidates", "settings", "device")
    what = "held-out error of what was found, in standard deviations"

    def settings(self, given: Any) -> Config:
        """See `Training`."""
        from neurodyn.identify.discovery_run import plan_discovery, read_base
        from neurodyn.learn.devices import require_device
        from neurodyn.learn.neural.train import require_data

        require_device(given.device)
        robot, store, settings, _ = plan_discovery(self.asked(given))
        require_data(robot, store)
        if given.base is not None:
            read_base(given.base, robot)
        return settings

    def run(self, given: Any, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.identify.discovery_run import discover_robot

        discover_robot(self.asked(given, out, settings=settings, threads=1, resume=resume))

    def figure(self, given: Any, out: Path) -> Figure:
        """See `Training`."""
        return Figure(value=read_json(out / "discovery.json")["held_out_error"])


class ModelTraining(Training):
    """A training of neural dynamics or a world model, ranked by its roll-outs."""

    what = "held-out roll-out error, in standard deviations"

    def figure(self, given: Any, out: Path) -> Figure:
        """See `Training`."""
        return Figure(value=best_metric(out, "rollout_score", min))


class Train(ModelTraining):
    """`neurodyn train`, for neural dynamics and world models."""

    request = TrainRequest
    arguments = arguments_in_file(
        TrainRequest, "robot", "data", "kind", "size", "net", "minutes", "steps", "shares", "members", "device"
    )

    def settings(self, given: Any) -> Config:
        """See `Training`."""
        from neurodyn.learn.devices import require_device
        from neurodyn.learn.training import plan_training

        require_device(given.device)
        return plan_training(self.asked(given))[0]

    def run(self, given: Any, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.learn.training import train

        require_usable(train(self.asked(given, out, size=settings, resume=resume)).verdict)


class Finetune(ModelTraining):
    """`neurodyn finetune`, for neural dynamics and world models."""

    request = FinetuneRequest
    arguments = arguments_in_file(FinetuneRequest, "run", "data", "size", "minutes", "steps", "shares", "device")

    def settings(self, given: Any) -> Config:
        """See `Training`."""
        from neurodyn.dynamics.artifact import load, require_match
        from neurodyn.learn.devices import require_device
        from neurodyn.learn.training import plan_finetuning

        require_device(given.device)
        settings, mixture = plan_finetuning(self.asked(given))
        model = load(given.run)
        for store, name in zip(mixture.stores, mixture.names, strict=True):
            require_match(model, store.header.spec, None, name)
        return settings

    def run(self, given: Any, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.learn.training import finetune

        require_usable(finetune(self.asked(given, out, size=settings, resume=resume)).verdict)


class PolicyTrain(Training):
    """`neurodyn policy train`."""

    request = TrainPolicyRequest
    arguments = arguments_in_file(
        TrainPolicyRequest, "task", "dynamics", "algorithm", "settings", "policy", "starts", "reference", "minutes",
        "iterations", "worlds", "device",
    )  # fmt: skip
    what = "return in the dynamics of the training"

    def settings(self, given: Any) -> Config:
        """See `Training`."""
        from neurodyn.policy.algorithms import require_learner

        require_learner()
        from neurodyn.policy.training import open_training

        return open_training(self.asked(given)).settings

    def run(self, given: Any, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.control.resolve import open_reference
        from neurodyn.control.task_frames import require_fit
        from neurodyn.policy.training import open_training
        from neurodyn.policy.training import train as train_policy

        job = open_training(self.asked(given, out, resume=resume))
        require_fit(job.task, job.training_dynamics.dynamics, settings.penalty)
        reference = open_reference(job.task, job.training_dynamics, given.reference)
        require_usable(train_policy(replaced(job, settings=settings, reference=reference)).verdict)

    def weights(self, given: Any, out: Path) -> int:
        """See `Training`."""
        from neurodyn.nets.networks import weights_in
        from neurodyn.policy.artifact import load_policy

        return weights_in(load_policy(out)[1].parameters())

    def figure(self, given: Any, out: Path) -> Figure:
        """See `Training`."""
        return Figure(value=best_metric(out, "return_training", max), greater_is_better=True)


TRAININGS: Registry[Training] = Registry("training of a sweep")
"""Trainings that a sweep can repeat, by verb."""
TRAININGS.add("train", Train())
TRAININGS.add("finetune", Finetune())
TRAININGS.add("identify", Identify())
TRAININGS.add("discover", Discover())
TRAININGS.add("policy train", PolicyTrain())
