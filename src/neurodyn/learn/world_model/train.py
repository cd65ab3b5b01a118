# SPDX-License-Identifier: Apache-2.0
"""Training and fine-tuning of world models."""

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError, MismatchError
from neurodyn.core.requests import accepts_request
from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split, Status
from neurodyn.data.mixture import Mixture
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store, take
from neurodyn.data.training_range import training_range
from neurodyn.dynamics.conditions import fitted_conditions
from neurodyn.dynamics.world_model.model import WORLD_MODEL, WorldModel
from neurodyn.learn.budget import TrainState
from neurodyn.learn.manifest import RunRecord
from neurodyn.learn.neural.train import require_data
from neurodyn.learn.run_folder import FinetuningJob, TrainingJob, start_finetuning, start_job, train_by_plan
from neurodyn.learn.world_model.settings import WorldSettings
from neurodyn.learn.world_model.trainer import EventWeights, WorldModelLearner
from neurodyn.nets.normaliser import Normaliser
from neurodyn.nets.predictor import least_squares
from neurodyn.robots import Robot

_SAMPLE = 300_000
_LEAST_RESIDUAL = 1e-3
_MOST_WEIGHT = 100.0


WorldRunConfig = RunRecord[WorldSettings]
"""Record of a run of a world model."""


@accepts_request(TrainingJob[WorldSettings])
def train_world_model(job: TrainingJob[WorldSettings]) -> TrainState:
    """Train a world model, which predicts all measurements of the data, and write it to a run directory.

    Raises:
        InputError: The data are of another robot, too short, or have constant columns; or the run exists or cannot be
            resumed.
    """
    settings = job.settings
    mixture = Mixture.of(job.store).differing_in(settings.conditions)
    for part in mixture.stores:
        require_log(job.robot, part)
        if part.header.spec.contacts != mixture.header.spec.contacts:
            raise MismatchError(
                "data with different contacts cannot be mixed; valid: logs that observe the same contacts"
            )
    record, going_on = start_job(job, "world-model", job.robot_name, ("torch",))
    for part in mixture.stores:
        require_long_enough(part, settings)
    torch.manual_seed(derive_seed(settings.seed, "weights"))
    terminates = any(
        bool((part.status[episodes_of(part, Split.TRAIN)] == Status.TERMINATED).any()) for part in mixture.stores
    )
    spec = mixture.header.spec.with_context(settings.context)
    model = WorldModel(
        spec, settings.net, terminates=terminates, declaration=job.robot_name, conditions=fitted_conditions(mixture)
    )
    model.training_range = training_range(mixture)
    change = fit_statistics(model, mixture, settings)
    weights = event_weights(model, mixture, settings)
    learner = WorldModelLearner(job.out, model, mixture, settings, change, weights, device=job.device)
    return train_by_plan(learner, job, record, resume=going_on, patience=settings.patience)


@accepts_request(FinetuningJob[WorldSettings])
def finetune_world_model(job: FinetuningJob[WorldSettings]) -> TrainState:
    """Adapt the weights of a trained world model to other logs of its robot and write them to a new run.

    Normalisation and the prediction of failures stay those of the base model; its members learn from bootstraps of the
    new logs. The best model by held-out roll-outs is kept, the base model included; with `keep: last` the last.

    Raises:
        InputError: The data are of another robot or too short, or the run exists or cannot be resumed.
    """
    settings = job.settings
    model, mixture, record, going_on = start_finetuning(job, WORLD_MODEL, ("torch",))
    for part in mixture.stores:
        require_long_enough(part, settings)
    states, _, following, _ = _transitions(model, mixture)
    change = Normaliser(model.observation.size, eps=1e-12).fit(following - states).std.clone()
    weights = event_weights(model, mixture, settings)
    learner = WorldModelLearner(job.out, model, mixture, settings, change, weights, device=job.device)
    return train_by_plan(learner, job, record, resume=going_on, patience=settings.patience)


def require_log(robot: Robot, store: Store) -> None:
    """Raise a MismatchError, with the differences, for a log of another robot.

    The log's channels, contacts, rate and kind of control may differ. It may lack the floating base, in place of which
    logs have channels.
    """
    theirs, joints = store.header.spec, robot.spec.joints
    if not any(joint.kind == "free" for joint in theirs.joints):
        joints = tuple(joint for joint in joints if joint.kind != "free")
    mine = msgspec.structs.replace(
        robot.spec, joints=joints, dt=theirs.dt, channels=theirs.channels, contacts=theirs.contacts,
        control_kind=theirs.control_kind,
    )  # fmt: skip
    require_data(robot, store, mine)


def require_long_enough(store: Store, settings: WorldSettings) -> None:
    """Raise an InputError if no episode holds a window of the longest phase."""
    window = max(phase.window for phase in settings.phases)
    for split, frames in ((Split.TRAIN, window), (Split.VALIDATION, settings.context + 1)):
        longest = int(store.lengths[episodes_of(store, split)].max())
        if longest < frames:
            raise InputError(
                f"the longest {split.name.lower()} episode of {store.header.robot!r} has {longest} frames; warm-up and "
                f"forecast need {frames}; valid: longer episodes, or settings with a shorter context or forecast"
            )


@torch.no_grad()
def fit_statistics(model: WorldModel, data: Store | Mixture, settings: WorldSettings) -> Tensor:
    """Fit normalisation and linear skip to training frames; return the standard deviation of one frame's change [size].

    A constant column raises an InputError if the settings refuse it.
    """
    states, control, following, numbers = _transitions(model, Mixture.of(data))
    _require_varying(model, states, control, settings)
    inputs = model.observation.features(states, model.with_conditions(control[:, None], numbers)[:, 0])
    model.normaliser.fit(inputs)
    outputs = Normaliser(model.observation.size, eps=1e-12).fit(following - states)
    solution = least_squares(model.normaliser, outputs, inputs, following - states, 1e-6)
    predicted = model.normaliser(inputs) @ solution[:-1].float() + solution[-1].float()
    residual = (outputs(following - states) - predicted).std(0).clamp_min(_LEAST_RESIDUAL)
    model.varying.copy_(outputs.gain != 0)
    model.shift.copy_(outputs.mean)
    model.scale.copy_(outputs.std * residual)
    model.state_scale.copy_(states.double().std(0).clamp_min(1e-6))
    if model.net.skip is not None:
        model.net.skip.weight.copy_(torch.where(model.varying, solution[:-1].float() / residual, 0.0))
        model.net.skip.bias.copy_(torch.where(model.varying, solution[-1].float() / residual, 0.0))
    return outputs.std.clone()


def event_weights(model: WorldModel, data: Store | Mixture, settings: WorldSettings) -> EventWeights:
    """Return the weights of contacts and termination; the rarer class is weighted by the root of the classes' ratio.

    With the full ratio a probability of 0.5 would be that of balanced classes, and episodes would be terminated far too
    often.
    """
    mixture = Mixture.of(data)
    rates = mixture.sampled_columns("contact", Split.TRAIN).mean(0).tolist() if mixture.header.spec.nc else []
    event = [settings.contact_weight / max(1, len(rates))] * len(rates)
    if model.terminates:
        chosen = [(store, episodes_of(store, Split.TRAIN)) for store in mixture.stores]
        failures = sum(int((store.status[episodes] == Status.TERMINATED).sum()) for store, episodes in chosen)
        rates.append(failures / max(1, sum(int(store.lengths[episodes].sum()) for store, episodes in chosen)))
        event.append(settings.termination_weight)
    positive = [((1 - r) / r) ** 0.5 if 0 < r < 1 else 1.0 for r in rates]
    return EventWeights(
        torch.tensor(positive).clamp(1 / _MOST_WEIGHT, _MOST_WEIGHT), torch.tensor(event, dtype=torch.float32)
    )


def _transitions(model: WorldModel, mixture: Mixture) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return states, controls, next states, and parameters if there are any, of an even sample of training frames."""
    parts: list[list[Tensor]] = [[], [], [], []]
    for store, starts in zip(mixture.stores, mixture.sample_rows(Split.TRAIN, _SAMPLE, following=1), strict=True):
        rows = take(store.frames, starts, 2)
        for part, at in ((parts[0], rows[:, 0]), (parts[2], rows[:, 1])):
            part.append(
                model.observation.join(*(torch.from_numpy(store.columns(x, at)) for x in ("q", "qd", "channel")))
            )
        parts[1].append(torch.from_numpy(store.columns("control", rows[:, 0])))
        if store.parameters is not None:
            parts[3].append(torch.from_numpy(store.parameters[np.searchsorted(store.offsets, starts, "right") - 1]))
    states, control, following = (torch.cat(part) for part in parts[:3])
    return states, control, following, torch.cat(parts[3]) if parts[3] else None


def _require_varying(model: WorldModel, states: Tensor, control: Tensor, settings: WorldSettings) -> None:
    names = (*model.observation.names, *(f"{name} control" for name in model.spec.controls))
    values = torch.cat([states, control], -1)
    still = [name for name, column in zip(names, values.unbind(-1), strict=True) if bool((column == column[0]).all())]
    if still and settings.constant == "refuse":
        shown = ", ".join(repr(name) for name in still[:6]) + (" ..." if len(still) > 6 else "")
        raise InputError(
            f"the training episodes of {model.spec.robot!r} hold {len(still)} columns that never change ({shown}); "
            "leave them out of the log, or hold them with `constant: hold` in the settings"
        )
