# SPDX-License-Identifier: Apache-2.0
"""Training and fine-tuning of dynamics of any kind, from a robot and data to a run directory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from neurodyn.core.artifacts import PRETRAINED, resolve_run
from neurodyn.core.config import with_changes
from neurodyn.core.errors import InputError, choices, notice, unknown
from neurodyn.core.requests import accepts_request
from neurodyn.data.mixture import Mixture
from neurodyn.dynamics.artifact import kind_of
from neurodyn.dynamics.conditions import fitted_conditions
from neurodyn.dynamics.kinds import KINDS, KindOperation
from neurodyn.dynamics.neural.base_prediction import BASES
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.dynamics.same_robot import as_declared, as_torques, require_same_simulator
from neurodyn.dynamics.world_model.model import WORLD_MODEL
from neurodyn.learn.budget import TrainState
from neurodyn.learn.devices import current_ranks, data_memory
from neurodyn.learn.neural.settings import Settings, load_finetuning, load_settings
from neurodyn.learn.neural.train import finetune as finetune_neural
from neurodyn.learn.neural.train import require_data
from neurodyn.learn.neural.train import train as train_neural
from neurodyn.learn.plan import TrainingPlan, with_budget
from neurodyn.learn.requests import ANY, FinetuneRequest, TrainRequest
from neurodyn.learn.run_folder import FinetuningJob, TrainingJob, open_mixture, place_of
from neurodyn.learn.tracking import require_tracker, tracking
from neurodyn.learn.world_model.settings import WorldSettings, load_world_finetuning, load_world_settings
from neurodyn.learn.world_model.train import finetune_world_model, require_log, train_world_model
from neurodyn.robots import Robot, load, locate
from neurodyn.robots.base_channels import open_measured_data
from neurodyn.robots.data import as_logged, open_robot_data

Planned = tuple[TrainingPlan, Mixture]


@dataclass(frozen=True)
class TrainedKind:
    """How models of one kind are trained.

    Attributes:
        settings: Type of the settings.
        plan_training: Resolves and checks settings and data of a training, without budget and seed.
        plan_finetuning: Resolves and checks settings and data of a fine-tuning, without budget and seed.
        train: Trains a model.
        finetune: Fine-tunes a model.
    """

    settings: type[TrainingPlan]
    plan_training: Callable[[Robot, TrainRequest], Planned]
    plan_finetuning: Callable[[FinetuneRequest], Planned]
    train: Callable[[TrainingJob[Any]], TrainState]
    finetune: Callable[[FinetuningJob[Any]], TrainState]


@accepts_request(TrainRequest)
def train(request: TrainRequest) -> TrainState:
    """Train a model of a robot and write it to a run directory.

    Raises:
        InputError: An argument is unknown, missing or incompatible; the run exists, or cannot be resumed.
        Interrupted: Ctrl-C or SIGTERM; the run is saved.
    """
    require_tracker(request.logger, request.out)
    robot = _robot(request)
    with current_ranks().exclusive(request.out), tracking(request.logger, request.out):
        settings, mixture = plan_training(with_changes(request, robot=robot))
        return TRAINED_KINDS[request.kind].train(
            TrainingJob(
                robot, locate(request.robot), place_of(mixture), mixture, Path(request.out), settings,
                resume=request.resume, progress=request.progress, device=request.device, callbacks=request.callbacks,
            )
        )  # fmt: skip


@accepts_request(FinetuneRequest)
def finetune(request: FinetuneRequest) -> TrainState:
    """Adapt the model of a run to other data of the same robot, in a new run directory.

    Raises:
        InputError: There is no such run, the data are of another robot, or models of its kind cannot be fine-tuned.
        Interrupted: Ctrl-C or SIGTERM; the run is saved.
    """
    with current_ranks().exclusive(request.out), tracking(request.logger, request.out):
        settings, mixture = plan_finetuning(request)
        return TRAINED_KINDS[kind_of(request.run)].finetune(
            FinetuningJob(
                str(request.run), place_of(mixture), mixture, Path(request.out), settings, resume=request.resume,
                progress=request.progress, device=request.device, callbacks=request.callbacks, actors=request.actors,
            )
        )  # fmt: skip


def plan_training(request: TrainRequest) -> tuple[TrainingPlan, Mixture]:
    """Return settings and data of `train`, with the same errors."""
    if request.kind == ANY:
        raise InputError(
            f"kind is {ANY!r}, which fits the mechanism, too; valid in Python: "
            f"neurodyn.identify.adapt(robot, data, out, kind={ANY!r}, minutes=10)"
        )
    KINDS.require(request.kind)
    if request.kind not in TRAINED_KINDS:
        raise InputError(f"kind is {request.kind!r}, whose dynamics are not trained; valid: {choices(TRAINED_KINDS)}")
    _require_settings(request.kind, request.size)
    settings, mixture = TRAINED_KINDS[request.kind].plan_training(_robot(request), request)
    return with_budget(settings, request.minutes, request.steps, request.seed, request.threads), mixture


def plan_finetuning(request: FinetuneRequest) -> tuple[TrainingPlan, Mixture]:
    """Return settings and data of `finetune`, with the same errors."""
    kind = kind_of(request.run)
    plan = TRAINED_KINDS.of(kind, request.run).plan_finetuning
    _require_settings(kind, request.size)
    settings, mixture = plan(request)
    return with_budget(settings, request.minutes, request.steps, request.seed, request.threads, request.keep), mixture


def _robot(request: TrainRequest) -> Robot:
    return request.robot if isinstance(request.robot, Robot) else load(request.robot)


def _require_settings(kind: str, size: str | TrainingPlan) -> None:
    """Raise an InputError for settings of another kind of dynamics."""
    if isinstance(size, TrainingPlan) and not isinstance(size, wanted := TRAINED_KINDS[kind].settings):
        raise InputError(f"size is {type(size).__name__}; valid for {kind!r}: a name, a file, or {wanted.__name__}")


def _conditioned(mixture: Mixture, patterns: Sequence[str]) -> Mixture:
    """Return data with their conditions; without any, name the quantities that the network will not see."""
    if not patterns and mixture.header.parameters:
        differ = choices(mixture.header.parameters)
        notice(f"quantities that differ between episodes are inputs of the network only by --conditions: {differ}")
    return mixture.differing_in(patterns)


def plan_neural_training(robot: Robot, request: TrainRequest) -> tuple[Settings, Mixture]:
    """Return settings and data of a training of neural dynamics; errors: see `learn.training.train`."""
    mixture = open_mixture(
        request.data, request.shares, partial(open_robot_data, robot, targets=True), data_memory(request.device)
    )
    for store in mixture.stores:
        require_data(as_logged(robot, store.header), store)
        require_same_simulator(robot, store)
    log = any(store.header.source == "log" for store in mixture.stores)
    size = request.size
    settings = size if isinstance(size, Settings) else load_settings(robot, str(size), request.net, log=log)
    settings = with_changes(settings, **_base_settings(request.base))
    mixture = _conditioned(mixture, tuple(request.conditions) or settings.conditions)
    settings = with_changes(settings, conditions=tuple(one.name for one in fitted_conditions(mixture)))
    if request.members is not None:
        settings = with_changes(settings, members=request.members)
    if settings.base is not None:
        mixture = replace(mixture, stores=tuple(as_declared(robot, store) for store in mixture.stores))
    return settings, mixture


def _base_settings(base: str | None) -> dict[str, str]:
    """Return the settings of `--base`: the name of a base, or the run of a hybrid model whose mechanism is the base."""
    if base is None or base in BASES:
        return {} if base is None else {"base": base}
    if not base.startswith(PRETRAINED) and not Path(base).exists():
        raise unknown("base", base, BASES, "the run of a hybrid model")
    return {"base": "contact", "base_from": str(resolve_run(base).resolve())}


def plan_neural_finetuning(request: FinetuneRequest) -> tuple[Settings, Mixture]:
    """Return settings and data of a fine-tuning of neural dynamics; errors: see `learn.training.finetune`."""
    config, known = NEURAL.read(request.run)
    robot = load(config.robot)
    if isinstance(request.size, Settings):
        settings = with_changes(request.size, net=config.net, members=config.members)
    else:
        settings = load_finetuning(str(request.size), config.net, robot, config.members)
    read, memory = partial(open_robot_data, robot, targets=True), data_memory(request.device or "cpu")
    mixture = open_mixture(request.data, request.shares, read, memory)
    if known.state.control_kind == "torque":
        mixture = replace(mixture, stores=tuple(as_torques(robot, store) for store in mixture.stores))
    return settings, mixture


def plan_world_model_training(robot: Robot, request: TrainRequest) -> tuple[WorldSettings, Mixture]:
    """Return settings and data of a training of a world model; a base or a network in the request is an error."""
    if request.base is not None:
        raise InputError("--base is for --kind neural; a world model learns from logs alone")
    if request.net is not None:
        raise InputError("--net is for --kind neural; the network of a world model is part of its settings (--size)")
    mixture = open_mixture(request.data, request.shares, partial(open_measured_data, robot))
    for store in mixture.stores:
        require_log(robot, store)
    size = request.size
    settings = size if isinstance(size, WorldSettings) else load_world_settings(robot, str(size))
    mixture = _conditioned(mixture, tuple(request.conditions) or settings.conditions)
    settings = with_changes(settings, conditions=tuple(one.name for one in fitted_conditions(mixture)))
    if request.members is not None:
        settings = with_changes(settings, net=with_changes(settings.net, members=request.members))
    return settings, mixture


def plan_world_model_finetuning(request: FinetuneRequest) -> tuple[WorldSettings, Mixture]:
    """Return settings and data of a fine-tuning of a world model; errors: see `learn.training.finetune`."""
    config, known = WORLD_MODEL.read(request.run)
    if isinstance(request.size, WorldSettings):
        settings = with_changes(request.size, net=config.net, context=known.state.context)
    else:
        settings = load_world_finetuning(str(request.size), config.net, known.state.context, known.state.dt)
    return settings, open_mixture(request.data, request.shares, partial(open_measured_data, load(config.robot)))


TRAINED_KINDS: KindOperation[TrainedKind] = KindOperation(
    "kind of trained dynamics",
    **{
        "neural": TrainedKind(Settings, plan_neural_training, plan_neural_finetuning, train_neural, finetune_neural),
        "world-model": TrainedKind(
            WorldSettings, plan_world_model_training, plan_world_model_finetuning, train_world_model,
            finetune_world_model,
        ),
    },
)  # fmt: skip
"""How models are trained, by kind."""
