# SPDX-License-Identifier: Apache-2.0
"""Training and fine-tuning of dynamics of any kind, from a robot and data to a run directory."""

from pathlib import Path

from neurodyn.core.config import replaced
from neurodyn.core.errors import InputError, choices
from neurodyn.core.requests import taking
from neurodyn.data.mixture import Mixture
from neurodyn.dynamics.artifact import kind_of
from neurodyn.dynamics.kinds import KINDS
from neurodyn.learn.devices import current_ranks
from neurodyn.learn.learner import TrainState
from neurodyn.learn.plan import TrainingPlan, with_budget
from neurodyn.learn.requests import FinetuneRequest, TrainRequest
from neurodyn.learn.run_folder import FinetuningJob, TrainingJob, place_of
from neurodyn.learn.tracking.session import require_tracker, tracking
from neurodyn.robots import Robot, load, locate


@taking(TrainRequest)
def train(request: TrainRequest) -> TrainState:
    """Train a model of a robot and write it to a run directory.

    Raises:
        InputError: An argument is unknown, missing or does not fit; the run exists, or cannot be resumed.
        Interrupted: Ctrl-C or SIGTERM; the run is saved.
    """
    require_tracker(request.logger, request.out)
    robot = _robot(request)
    with current_ranks().exclusive(request.out), tracking(request.logger, request.out):
        settings, mixture = plan_training(replaced(request, robot=robot))
        return KINDS[request.kind].train.get()(
            TrainingJob(
                robot, locate(request.robot), place_of(mixture), mixture, Path(request.out), settings,
                resume=request.resume, progress=request.progress, device=request.device, callbacks=request.callbacks,
            )
        )  # fmt: skip


@taking(FinetuneRequest)
def finetune(request: FinetuneRequest) -> TrainState:
    """Adapt the model of a run to other data of the same robot, in a new run directory.

    Raises:
        InputError: There is no such run, the data are of another robot, or models of its kind cannot be fine-tuned.
        Interrupted: Ctrl-C or SIGTERM; the run is saved.
    """
    with current_ranks().exclusive(request.out), tracking(request.logger, request.out):
        settings, mixture = plan_finetuning(request)
        return KINDS[kind_of(request.run)].finetune.get(request.run)(
            FinetuningJob(
                str(request.run), place_of(mixture), mixture, Path(request.out), settings, resume=request.resume,
                progress=request.progress, device=request.device, callbacks=request.callbacks,
            )
        )  # fmt: skip


def plan_training(request: TrainRequest) -> tuple[TrainingPlan, Mixture]:
    """Return settings and data of `train`, with the same errors."""
    kind = KINDS[request.kind]
    if not kind.train:
        able = choices(name for name, known in KINDS.items() if known.train)
        raise InputError(f"kind is {request.kind!r}, whose dynamics are not trained; valid: {able}")
    _require_settings(request.kind, request.size)
    settings, mixture = kind.plan_training.get()(_robot(request), request)
    return with_budget(settings, request.minutes, request.steps, request.seed, request.threads), mixture


def plan_finetuning(request: FinetuneRequest) -> tuple[TrainingPlan, Mixture]:
    """Return settings and data of `finetune`, with the same errors."""
    kind = kind_of(request.run)
    plan = KINDS[kind].plan_finetuning.get(request.run)
    _require_settings(kind, request.size)
    settings, mixture = plan(request)
    return with_budget(settings, request.minutes, request.steps, request.seed, request.threads), mixture


def _robot(request: TrainRequest) -> Robot:
    return request.robot if isinstance(request.robot, Robot) else load(request.robot)


def _require_settings(kind: str, size: str | TrainingPlan) -> None:
    """Raise an InputError for settings of another kind of dynamics."""
    if isinstance(size, TrainingPlan) and not isinstance(size, wanted := KINDS[kind].settings.get()):
        raise InputError(f"size is {type(size).__name__}; valid for {kind!r}: a name, a file, or {wanted.__name__}")
