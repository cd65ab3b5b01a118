# SPDX-License-Identifier: Apache-2.0
"""Trainings that a sweep can repeat, by verb: what its file can set, resolved settings, execution and ranking."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from neurodyn.core.artifacts import read_json
from neurodyn.core.config import Config, with_changes
from neurodyn.core.registry import Registry
from neurodyn.core.requests import arguments_of, flag_of, names_of, python_type
from neurodyn.core.verdict import require_usable
from neurodyn.evaluate.run_comparison import Figure
from neurodyn.identify.requests import DiscoverRequest, IdentifyRequest
from neurodyn.learn.metrics import best_metric
from neurodyn.learn.requests import FinetuneRequest, TrainRequest
from neurodyn.policy.requests import TrainPolicyRequest


@dataclass(frozen=True)
class Training:
    """A verb that writes a run folder.

    Attributes:
        request: Request class of the verb.
        names: Fields of the request that a sweep's file can set; the rest are settings, or equal in all trials.
        plan: Returns the settings of a request, with all files read and checked; an InputError if they do not fit.
        run: Trains as a request says with settings, or raises an InputError if the result is not usable.
        figure: Returns the value that ranks a finished run, from the arguments and the run folder.
        what: Description of that value.
        greater_is_better: Whether it is a return, not an error.
    """

    request: Callable[..., Any]
    names: tuple[str, ...]
    plan: Callable[[Any], Config]
    run: Callable[[Any, Any], None]
    figure: Callable[[Any, Path], Figure]
    what: str
    greater_is_better: bool = False

    def arguments(self) -> type[Config]:
        """Return a struct of the fields that a sweep's file can set, typed as on the terminal."""
        fields: list[Any] = []
        for one in arguments_of(self.request):  # pyright: ignore[reportArgumentType]
            flag = flag_of(one.annotation)
            kind = python_type(one.annotation) if flag is None or isinstance(flag.kind, str) else flag.kind
            if kind == tuple[str, ...]:
                kind = str | tuple[str, ...]
            if one.name in self.names:
                default = msgspec.NODEFAULT if one.default is one.empty else one.default
                fields.append((one.name, str | None if kind == Path | None else kind, default))
        made: Any = msgspec.defstruct(self.request.__name__, fields, bases=(Config,), frozen=True, kw_only=True)
        return made

    def request_of(self, given: Any, out: Path = Path(), *, resume: bool = False, settings: Any = None) -> Any:
        """Return the request for some arguments; settings, if given, already contain the budget."""
        fields = {name: getattr(given, name) for name in given.__struct_fields__}
        if settings is not None:
            fields |= dict.fromkeys(fields.keys() & {"minutes", "steps", "net", "members"})
            if "task" not in fields:
                fields["size" if "size" in fields else "settings"] = settings
        return self.request(**fields | {"out": out} | ({"resume": resume} if settings is not None else {}))


def _plan_train(request: Any) -> Config:
    from neurodyn.learn.devices import require_device
    from neurodyn.learn.training import plan_finetuning, plan_training

    require_device(request.device)
    if isinstance(request, TrainRequest):
        return plan_training(request)[0]
    from neurodyn.dynamics.artifact import load, require_match

    settings, mixture = plan_finetuning(request)
    model = load(request.run)
    for store, name in zip(mixture.stores, mixture.names, strict=True):
        require_match(model, store.header.spec, None, name)
    return settings


def _train(request: Any, settings: Any) -> None:
    from neurodyn.learn.training import finetune, train

    result = train(request) if isinstance(request, TrainRequest) else finetune(request)
    require_usable(result.verdict)


def _held_out_score(given: Any, out: Path) -> Figure:
    return Figure(value=best_metric(out, "rollout_score", min))


def _plan_identify(request: Any) -> Config:
    from neurodyn.identify.identification import require_problem
    from neurodyn.identify.run import plan_identification

    problem, settings = plan_identification(request)
    require_problem(problem, settings)
    return settings


def _identify(request: Any, settings: Any) -> None:
    from neurodyn.identify.run import identify
    from neurodyn.report.identification import write_identification

    result = identify(request)
    write_identification(Path(request.out), result.figures, result.runs)


def _validation_error(given: Any, out: Path) -> Figure:
    from neurodyn.evaluate.run import evaluate
    from neurodyn.evaluate.run_comparison import mean_of
    from neurodyn.evaluate.run_figures import figures_of

    evaluations = [evaluate(out, data=path, split="validation", threads=1) for path in names_of(given.data)]
    mean = mean_of([next(iter(figures_of(str(out), one).figures.values())) for one in evaluations])
    return Figure(value=None if mean.missing else mean.mean, unit=mean.unit)


def _plan_discover(request: Any) -> Config:
    from neurodyn.identify.discovery.run import plan_discovery, read_base
    from neurodyn.learn.devices import require_device
    from neurodyn.learn.neural.train import require_data

    require_device(request.device)
    robot, store, settings, _ = plan_discovery(request)
    require_data(robot, store)
    if request.base is not None:
        read_base(request.base, robot)
    return settings


def _discover(request: Any, settings: Any) -> None:
    from neurodyn.identify.discovery.run import discover_robot

    discover_robot(with_changes(request, threads=1))


def _discovery_error(given: Any, out: Path) -> Figure:
    return Figure(value=read_json(out / "discovery.json")["held_out_error"])


def _plan_policy(request: Any) -> Config:
    from neurodyn.policy.learners.algorithms import require_learner

    require_learner()
    from neurodyn.policy.learners.training import open_training

    return open_training(request).settings


def _train_policy(request: Any, settings: Any) -> None:
    from neurodyn.control.resolve import open_reference
    from neurodyn.control.task_frames import require_fit
    from neurodyn.policy.learners.training import open_training, train

    job = open_training(request)
    require_fit(job.task, job.training_dynamics.dynamics, settings.penalty)
    reference = open_reference(job.task, job.training_dynamics, request.reference)
    require_usable(train(with_changes(job, settings=settings, reference=reference)).verdict)


def _training_return(given: Any, out: Path) -> Figure:
    return Figure(value=best_metric(out, "return_training", max), greater_is_better=True)


_MODEL = "held-out roll-out error, in standard deviations"

SWEPT_TRAININGS: Registry[Training] = Registry("training of a sweep")
"""Trainings that a sweep can repeat, by verb."""
SWEPT_TRAININGS.add("train", Training(
    TrainRequest, ("robot", "data", "kind", "size", "net", "minutes", "steps", "shares", "members", "device"),
    _plan_train, _train, _held_out_score, _MODEL,
))  # fmt: skip
SWEPT_TRAININGS.add("finetune", Training(
    FinetuneRequest, ("run", "data", "size", "minutes", "steps", "shares", "device"),
    _plan_train, _train, _held_out_score, _MODEL,
))  # fmt: skip
SWEPT_TRAININGS.add("identify", Training(
    IdentifyRequest, ("robot", "data", "parameters", "drive", "blueprint", "settings", "minutes"),
    _plan_identify, _identify, _validation_error, "error on validation episodes",
))  # fmt: skip
SWEPT_TRAININGS.add("discover", Training(
    DiscoverRequest, ("robot", "data", "base", "candidates", "settings", "device"), _plan_discover, _discover,
    _discovery_error, "held-out error of what was found, in standard deviations",
))  # fmt: skip
SWEPT_TRAININGS.add("policy train", Training(
    TrainPolicyRequest, ("task", "dynamics", "algorithm", "settings", "policy", "starts", "reference", "minutes",
                         "iterations", "worlds", "device"),
    _plan_policy, _train_policy, _training_return, "return in the dynamics of the training", greater_is_better=True,
))  # fmt: skip
