# SPDX-License-Identifier: Apache-2.0
"""Train a world model from a store of logs."""

import msgspec
import torch
from torch import Tensor

from neurodyn.core.errors import InputError, MismatchError
from neurodyn.core.provenance import package_versions
from neurodyn.core.requests import taking
from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split, Status
from neurodyn.data.mixture import Mixture
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store, take
from neurodyn.data.training_range import training_range
from neurodyn.dynamics.artifact import require_match
from neurodyn.dynamics.world_model.model import WORLD_MODEL, WorldModel
from neurodyn.learn.learner import TrainState
from neurodyn.learn.run_folder import FinetuningJob, TrainingJob, check_run, shares_of, train_by_plan
from neurodyn.learn.settings import RunRecord
from neurodyn.learn.world_model.settings import WorldSettings
from neurodyn.learn.world_model.trainer import EventWeights, WorldModelLearner
from neurodyn.nets.normaliser import Normaliser
from neurodyn.nets.predictor import least_squares
from neurodyn.robots import Robot

_SAMPLE = 300_000
_LEAST_RESIDUAL = 1e-3
_MOST_WEIGHT = 100.0


WorldRunConfig = RunRecord[WorldSettings]
"""How a run of a world model was made."""


@taking(TrainingJob[WorldSettings])
def train_world_model(job: TrainingJob[WorldSettings]) -> TrainState:
    """Train a world model of a robot and write it to a run directory.

    What the store measures is what the model predicts.

    Raises:
        InputError: The data are another robot's, too short, or hold columns that do not vary; or the run exists or
            cannot be resumed.
    """
    settings, mixture = job.settings, Mixture.of(job.store)
    for part in mixture.stores:
        require_log(job.robot, part)
        if part.header.spec.contacts != mixture.header.spec.contacts:
            raise MismatchError("data with other contacts do not mix; valid: logs that observe the same contacts")
    record = WorldRunConfig(
        kind="world-model", robot=job.robot_name, data=job.data, shares=shares_of(mixture), settings=settings,
        versions=package_versions("torch"),
    )  # fmt: skip
    going_on = check_run(job.out, record, job.resume)
    for part in mixture.stores:
        require_long_enough(part, settings)
    torch.manual_seed(derive_seed(settings.seed, "weights"))
    terminates = any(
        bool((part.status[episodes_of(part, Split.TRAIN)] == Status.TERMINATED).any()) for part in mixture.stores
    )
    spec = mixture.header.spec.with_context(settings.context)
    model = WorldModel(spec, settings.net, terminates=terminates, declaration=job.robot_name)
    model.training_range = training_range(mixture)
    change = fit_statistics(model, mixture, settings)
    weights = event_weights(model, mixture, settings)
    learner = WorldModelLearner(job.out, model, mixture, settings, change, weights, device=job.device)
    return train_by_plan(learner, job, record, resume=going_on, patience=settings.patience)


@taking(FinetuningJob[WorldSettings])
def finetune_world_model(job: FinetuningJob[WorldSettings]) -> TrainState:
    """Adapt the weights of a trained world model to other logs of its robot and write them to a new run.

    Normalisation, and whether failures are predicted, stay as in the base model; its members learn from bootstraps of
    the new logs. The best model by held-out roll-outs is kept, the base model itself included.

    Raises:
        InputError: The data are another robot's or too short; or the run exists, or it cannot be resumed.
    """
    settings, mixture = job.settings, Mixture.of(job.store)
    config, _ = WORLD_MODEL.read(job.base)
    model = WORLD_MODEL.load(job.base).requires_grad_(True).train()
    for part, name in zip(mixture.stores, mixture.names, strict=True):
        require_match(model, part.header.spec, None, name or str(job.data))
    record = WorldRunConfig(
        kind="world-model", robot=config.robot, data=job.data, shares=shares_of(mixture), settings=settings,
        versions=package_versions("torch"), base=job.base,
    )  # fmt: skip
    going_on = check_run(job.out, record, job.resume)
    for part in mixture.stores:
        require_long_enough(part, settings)
    if model.training_range is not None:
        model.training_range = model.training_range.joined(training_range(mixture))
    states, _, following = _transitions(model, mixture)
    change = Normaliser(model.observation.size, eps=1e-12).fit(following - states).std.clone()
    weights = event_weights(model, mixture, settings)
    learner = WorldModelLearner(job.out, model, mixture, settings, change, weights, device=job.device)
    return train_by_plan(learner, job, record, resume=going_on, patience=settings.patience)


def require_log(robot: Robot, store: Store) -> None:
    """Refuse data of another robot. What else they measure, how often, and how controls act is theirs to say.

    The robot's floating base may be missing in the data: logs have channels in its place.

    Raises:
        MismatchError: The data differ; the message names the differences.
    """
    theirs, mine = store.header.spec, robot.spec
    if not any(joint.kind == "free" for joint in theirs.joints):
        mine = msgspec.structs.replace(mine, joints=tuple(joint for joint in mine.joints if joint.kind != "free"))
    mine = msgspec.structs.replace(
        mine, dt=theirs.dt, channels=theirs.channels, contacts=theirs.contacts, control_kind=theirs.control_kind
    )
    differences = mine.differences(theirs)
    if store.header.robot != robot.name:
        differences.insert(0, f"robot is {store.header.robot!r} instead of {robot.name!r}")
    if differences:
        raise MismatchError(f"data do not fit robot {robot.name!r}: {'; '.join(differences)}")


def require_long_enough(store: Store, settings: WorldSettings) -> None:
    """Refuse data in which no episode holds a window of some phase.

    Raises:
        InputError: So it is.
    """
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
    """Fit normalisation and linear skip of a model to training frames.

    Returns:
        Standard deviation of one frame's change, shape [size].

    Raises:
        InputError: A column does not vary and is to be refused.
    """
    states, control, following = _transitions(model, Mixture.of(data))
    _require_varying(model, states, control, settings)
    inputs = model.observation.features(states, control)
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
    """Return the weights of contacts and termination: the rarer class weighs the root of how much rarer it is.

    With the whole ratio a chance of one half would mean "as likely as not, were both as frequent", and a policy that
    stops there would stop far too often.
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


def _transitions(model: WorldModel, mixture: Mixture) -> tuple[Tensor, Tensor, Tensor]:
    """Return state vectors, controls and next state vectors of an even sample of the training frames."""
    parts: list[list[Tensor]] = [[], [], []]
    for store, starts in zip(mixture.stores, mixture.sampled(Split.TRAIN, _SAMPLE, following=1), strict=True):
        rows = take(store.frames, starts, 2)
        for part, at in ((parts[0], rows[:, 0]), (parts[2], rows[:, 1])):
            part.append(
                model.observation.join(*(torch.from_numpy(store.columns(x, at)) for x in ("q", "qd", "channel")))
            )
        parts[1].append(torch.from_numpy(store.columns("control", rows[:, 0])))
    states, control, following = (torch.cat(part) for part in parts)
    return states, control, following


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
