# SPDX-License-Identifier: Apache-2.0
"""Train a neural model from a trajectory store, or adapt one to other data."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import read_config
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.scene import Vector3
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, MismatchError, notice
from neurodyn.core.provenance import package_versions
from neurodyn.core.requests import taking
from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.mixture import Mixture
from neurodyn.data.split import SAMPLE
from neurodyn.data.store import Store, take
from neurodyn.data.training_range import training_range
from neurodyn.dynamics.artifact import require_match
from neurodyn.dynamics.batch import Environment
from neurodyn.dynamics.coordinates import Coordinates
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.neural.base_prediction import Base, BaseMotion, build_base, predict_base
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.dynamics.neural.model import NEURAL, ModelConfig, ModelSpec, NeuralDynamics, build_model
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.learn.learner import TrainState
from neurodyn.learn.neural.settings import Settings, invariant_columns
from neurodyn.learn.neural.trainer import LossScale, NeuralLearner
from neurodyn.learn.run_folder import FinetuningJob, TrainingJob, check_run, shares_of, train_by_plan
from neurodyn.learn.settings import RunRecord
from neurodyn.robots import Robot
from neurodyn.robots.sections import SimulatorConfig


def known_base(settings: Settings, header: StoreHeader) -> tuple[Base | None, Mechanism | None]:
    """Return what predictions start from, and the mechanism that it is of.

    Args:
        settings: How the model is trained.
        header: What its data are; they hold the mechanism of a simulated robot. Where their commands are targets there
            is no base, since it would take them for torques, and a notice says so.

    Raises:
        InputError: The run that the base is to come from is that of another robot, or of a model that is more than
            soft constraints with identified quantities.
    """
    if settings.base is None:
        return None, header.mechanism
    if header.spec.control_kind != "torque":
        notice(
            f"base {settings.base!r} takes torques, and {header.spec.robot!r} is commanded otherwise: the model "
            "has none"
        )
        return None, header.mechanism
    if settings.base_from is None:
        return Base(kind=settings.base, substeps=_substeps(header)), header.mechanism
    run = settings.base_from
    model = HYBRID.load(run)
    require_match(model, header.spec, None, run)
    if model.config.contact != "soft" or model.config.blueprint.augmentations:
        raise InputError(
            f"{run}: a base is soft constraints without networks; valid: a run of `neurodyn hybrid`, or of "
            "`neurodyn identify` with `contact: soft` and without a blueprint"
        )
    values = zip((spec.name for spec in model.physical.specs), model.physical().tolist(), strict=True)
    return Base(kind=settings.base, substeps=model.config.substeps, values=dict(values)), model.mechanism


def _substeps(header: StoreHeader) -> int:
    """Return the steps of the simulator in a frame; for logs as many as a simulator takes by default."""
    return int((header.simulator or {}).get("substeps", SimulatorConfig().substeps))


_THIN_SAMPLE = 150_000
"""Training frames that are enough for normalisation and first weights where inputs are many."""


RunConfig = RunRecord[Settings]
"""How a run of neural dynamics was made."""


@taking(TrainingJob[Settings])
def train(job: TrainingJob[Settings]) -> TrainState:
    """Train a neural model of a robot and write it to a run directory.

    Raises:
        InputError: The data are another robot's or too short, or the run exists or cannot be resumed.
    """
    robot, settings, mixture = job.robot, job.settings, Mixture.of(job.store)
    for part in mixture.stores:
        require_data(robot, part)
    record = RunConfig(
        kind="neural", robot=job.robot_name, data=job.data, shares=shares_of(mixture), settings=settings,
        versions=package_versions("torch", "newton"), base=None,
    )  # fmt: skip
    going_on = check_run(job.out, record, job.resume)
    header = mixture.header
    spec = msgspec.structs.replace(header.spec, contacts=())  # it feels the ground instead
    coordinates = Coordinates(spec, _base_com(header))
    samples = _transitions(mixture, coordinates)
    base, mechanism = known_base(settings, header)
    if going_on:
        config, _ = NEURAL.read(job.out)
    else:
        qd, dq, dqd = _changes(build_base(spec, mechanism, base), coordinates, samples)
        encoding = fit_encoding(
            spec,
            qd,
            dq,
            dqd,
            base=base,
            mechanism=mechanism,
            invariant=invariant_columns(robot),
            velocity_products=settings.velocity_products,
            base_com=_base_com(header),
            layout=header.contact_points,
            margin=None if robot.contact_points is None else robot.contact_points.margin,
        )
        config = ModelConfig(
            kind="neural", net=settings.net, encoding=encoding.config, robot=job.robot_name, members=settings.members
        )  # fmt: skip
    torch.manual_seed(derive_seed(settings.seed, "weights"))
    model = build_model(config, _model_spec(robot, mixture, spec, mechanism))
    _fit_statistics(model, samples)
    learner = NeuralLearner(job.out, model, mixture, settings, _scale(samples), device=job.device)
    return train_by_plan(learner, job, record, resume=going_on)


@taking(FinetuningJob[Settings])
def finetune(job: FinetuningJob[Settings]) -> TrainState:
    """Adapt the weights of a trained model to other data of the same robot and write them to a new run.

    Normalisation and encoding stay those of the base model. The best model by held-out roll-outs is kept, the
    base model itself included, so that the result is not worse on the validation episodes.

    Raises:
        InputError: The data are another robot's, or the run exists, or it cannot be resumed.
    """
    settings, mixture = job.settings, Mixture.of(job.store)
    config, _ = NEURAL.read(job.base)
    model = NEURAL.load(job.base).requires_grad_(True).train()
    for part, name in zip(mixture.stores, mixture.names, strict=True):
        require_match(model, part.header.spec, None, name or str(job.data))
    record = RunConfig(
        kind="neural",
        robot=config.robot,
        data=job.data,
        shares=shares_of(mixture),
        settings=settings,
        versions=package_versions("torch", "newton"),
        base=job.base,
    )
    going_on = check_run(job.out, record, job.resume)
    if model.training_range is not None:
        model.training_range = model.training_range.joined(training_range(mixture))
    samples = _transitions(mixture, model.encoding.coordinates)
    learner = NeuralLearner(job.out, model, mixture, settings, _scale(samples), device=job.device)
    return train_by_plan(learner, job, record, resume=going_on)


def require_data(robot: Robot, store: Store) -> None:
    """Refuse data of another robot, joint order or rate.

    Raises:
        MismatchError: The data differ; the message names the differences.
    """
    differences = robot.spec.differences(store.header.spec)
    if store.header.robot != robot.name:
        differences.insert(0, f"robot is {store.header.robot!r} instead of {robot.name!r}")
    if differences:
        raise MismatchError(f"data do not fit robot {robot.name!r}: {'; '.join(differences)}")


def read_run_config(run: str | Path) -> RunConfig:
    """Read how a run was made."""
    return read_config(artifacts.resolve_run(run) / "config.yaml", RunConfig)


@dataclass(frozen=True)
class _Transitions:
    """Frames of the training episodes of a store.

    Attributes:
        q: Positions at their starts [rad or m], shape [frames, nq].
        qd: Velocities [rad/s or m/s], shape [frames, nv].
        torque: Torques [N m or N], shape [frames, nu].
        q_next: Positions at their ends, shape [frames, nq].
        qd_next: Velocities at their ends, shape [frames, nv].
        dq: Position changes in the frame of the base, shape [frames, nv].
        dqd: Velocity changes in the frame of the base, shape [frames, nv].
        environment: Gravity and ground, one world for each frame.
    """

    q: Tensor
    qd: Tensor
    torque: Tensor
    q_next: Tensor
    qd_next: Tensor
    dq: Tensor
    dqd: Tensor
    environment: Environment


def _transitions(mixture: Mixture, coordinates: Coordinates) -> list[_Transitions]:
    """Return training frames of each store: all of moderate data, and an even sample of others.

    With contact points, whose inputs are many, fewer are enough.
    """
    most = SAMPLE if mixture.header.contact_points is None else _THIN_SAMPLE
    parts = zip(mixture.stores, mixture.sampled(Split.TRAIN, most, following=1), strict=True)
    return [_transitions_of(store, starts, coordinates) for store, starts in parts]


def _transitions_of(store: Store, starts: np.ndarray, coordinates: Coordinates) -> _Transitions:
    rows, spec = torch.from_numpy(take(store.frames, starts, 2)), store.header.spec
    before, after = rows[:, 0], rows[:, 1]
    q, qd = slice(0, spec.nq), slice(spec.nq, spec.nq + spec.nv)
    dq, dqd = coordinates.change(before[:, q], before[:, qd], after[:, q], after[:, qd])
    episode = np.searchsorted(store.offsets, starts, side="right") - 1
    torque = before[:, spec.nq + spec.nv :][:, : spec.nu]
    pose = None if store.ground is None else torch.from_numpy(store.ground[episode])
    environment = RecordedEnvironments(store).at(pose)
    return _Transitions(before[:, q], before[:, qd], torque, after[:, q], after[:, qd], dq, dqd, environment)


def _changes(
    motion: BaseMotion | None, coordinates: Coordinates, samples: list[_Transitions]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return velocities where predictions start, and changes from there, in the frame of the base."""
    parts = []
    for sample in samples:
        base = predict_base(motion, sample.q, sample.qd, sample.torque, sample.environment)
        dq, dqd = coordinates.change(base.q, base.qd, sample.q_next, sample.qd_next)
        parts.append((coordinates.to_base(coordinates.base_rotation(base.q), base.qd), dq, dqd))
    qd, dq, dqd = (torch.cat(part) for part in zip(*parts, strict=True))
    return qd, dq, dqd


@torch.no_grad()
def _fit_statistics(model: NeuralDynamics, samples: list[_Transitions]) -> None:
    """Fit normalisation and linear skip of a model to training frames."""
    inputs, targets = [], []
    for sample in samples:
        environment = model.resolve_environment(sample.environment)
        base_prediction = model.encoding.predict_base(sample.q, sample.qd, sample.torque, environment)
        inputs.append(model.encoding.encode(base_prediction, sample.torque, environment))
        targets.append(model.encoding.target(base_prediction, sample.q_next, sample.qd_next))
    model.predictor.fit(torch.cat(inputs), torch.cat(targets), silent=model.encoding.base_is_whole)
    if model.members > 1:
        states = torch.cat([torch.cat([sample.q, sample.qd], -1) for sample in samples])
        model.state_scale.copy_(states.double().std(0).clamp_min(1e-6))


def _model_spec(robot: Robot, mixture: Mixture, spec: StateSpec, mechanism: Mechanism | None) -> ModelSpec:
    header = mixture.header
    scene = None if header.contact_points is None or robot.ground is None else robot.grounds[robot.ground]
    return ModelSpec(
        state=spec,
        fingerprint=header.fingerprint,
        contact_points=header.contact_points,
        scene=scene,
        mechanism=mechanism,
        training_range=training_range(mixture),
    )


def _base_com(header: StoreHeader) -> Vector3:
    """Return the centre of mass of a floating base in its own frame [m]."""
    if header.contact_points is not None:
        return header.contact_points.base_com
    if header.fingerprint is None or not header.spec.floating:
        return (0.0, 0.0, 0.0)
    x, y, z = header.fingerprint.bodies[0].com
    return (x, y, z)


def _scale(samples: list[_Transitions]) -> LossScale:
    dq, dqd = (torch.cat([getattr(sample, name) for sample in samples]) for name in ("dq", "dqd"))
    return LossScale(dq.std(0).clamp_min(1e-9), dqd.std(0).clamp_min(1e-9))
