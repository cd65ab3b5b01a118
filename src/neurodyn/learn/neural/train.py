# SPDX-License-Identifier: Apache-2.0
"""Training and fine-tuning of neural dynamics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import read_config
from neurodyn.core.description.drive import combine_drives
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.shape_contacts import ShapeContact
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, MismatchError, notice
from neurodyn.core.requests import accepts_request
from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.mixture import Mixture
from neurodyn.data.split import SAMPLE
from neurodyn.data.store import Store, take
from neurodyn.data.training_range import training_range
from neurodyn.dynamics.artifact import ROBOT, require_match
from neurodyn.dynamics.batch import Environment, RecordedEnvironments
from neurodyn.dynamics.conditions import fitted_conditions
from neurodyn.dynamics.coordinates import Coordinates
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.neural.base_prediction import Base, BaseMotion, build_base, predict_base
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.dynamics.neural.model import NEURAL, ModelConfig, ModelSpec, NeuralDynamics, build_model
from neurodyn.learn.budget import TrainState
from neurodyn.learn.manifest import RunRecord
from neurodyn.learn.neural.settings import Settings, invariant_columns
from neurodyn.learn.neural.trainer import LossScale, NeuralLearner
from neurodyn.learn.run_folder import FinetuningJob, TrainingJob, start_finetuning, start_job, train_by_plan
from neurodyn.multibody.engine import nominal
from neurodyn.robots import Robot
from neurodyn.robots.assets import write_bundle
from neurodyn.robots.data import as_logged
from neurodyn.robots.sections import SimulatorConfig


def known_base(settings: Settings, header: StoreHeader) -> tuple[Base | None, Mechanism | None]:
    """Return the base motion of the settings, and its mechanism, by default that of the data.

    A base has no memory: delays, lags and springs of drives are left to the network, with a notice. Data whose commands
    are not torques get no base "free", with a notice.

    Raises:
        InputError: The run of the base is of another robot, or has other than soft contacts, or networks.
    """
    if settings.base is None:
        return None, header.mechanism
    if header.spec.control_kind != "torque" and settings.base != _WHOLE:
        notice(
            f"base {settings.base!r} takes torques, and {header.spec.robot!r} is commanded otherwise: the model "
            "has none"
        )
        return None, header.mechanism
    simulator = header.simulator or {}
    substeps, values = int(simulator.get("substeps", SimulatorConfig().substeps)), {}
    mechanism, limits = header.mechanism, simulator.get("solver") == "mujoco" and header.source == "log"
    if settings.base_from is not None:
        model = _base_model(settings.base_from, header)
        mechanism, substeps, limits = model.mechanism, model.config.substeps, model.config.contact is not None
        values = dict(zip((spec.name for spec in model.physical.specs), model.physical().tolist(), strict=True))
    if mechanism is None:
        return Base(kind=settings.base, substeps=substeps), None
    mechanism = _without_memory(mechanism, header.robot)
    touching = bool(mechanism.shape_contacts)
    limits = limits or touching
    known = nominal(mechanism, _SOFT if limits or mechanism.points else None)
    values = {name: value for name, value in values.items() if name in known}
    limits = (
        limits and not mechanism.points and settings.base == _WHOLE and (touching or _has_limits(mechanism, values))
    )
    return Base(kind=settings.base, substeps=substeps, values=values, limits=limits), mechanism


def _has_limits(mechanism: Mechanism, values: Mapping[str, float]) -> bool:
    """Return whether joints have limits or friction."""
    quantities = {**mechanism.quantities(), **values}
    return any(
        name.endswith(_LIMITS) or (name.endswith(".friction") and value > 0) for name, value in quantities.items()
    )


def _base_model(run: str, header: StoreHeader) -> HybridDynamics:
    """Load the hybrid model of a base, with the drives that the data command; errors: see `known_base`."""
    model = HYBRID.load(run)
    bare = model.config.contact is None and not model.mechanism.points
    if model.config.blueprint.augmentations or not (bare or model.config.contact == _SOFT):
        raise InputError(
            f"{run}: a base is soft constraints without networks; valid: a run of `neurodyn hybrid`, or of "
            "`neurodyn identify` with `contact: soft` and without a blueprint"
        )
    if header.drives and model.spec.control_kind == "torque":
        drives = combine_drives(model.mechanism.drives, header.drives, model.spec.controls)
        model = cast(HybridDynamics, model.with_drives(drives))  # not None for models without networks
    require_match(model, header.spec, None, run)
    return model


def _without_memory(mechanism: Mechanism, robot: str) -> Mechanism:
    """Return a mechanism whose drives act without delay, with a notice if some do not."""
    late = [name for name, drive in mechanism.drives.items() if drive.remembers]
    if not late:
        return mechanism
    notice(f"base of {robot!r}: delay, lag and spring of the drives ({', '.join(late)}) are left to the network")
    drives = {name: drive.without_memory() for name, drive in mechanism.drives.items()}
    return msgspec.structs.replace(mechanism, drives=drives)


_WHOLE, _SOFT = "contact", "soft"
"""The base of a whole step, and its contact model."""
_LIMITS = (".lower", ".upper")

_THIN_SAMPLE = 150_000
"""Training frames for normalisation and initial weights of models with contact points, which have many inputs."""


RunConfig = RunRecord[Settings]
"""Record of a run of neural dynamics."""


@accepts_request(TrainingJob[Settings])
def train(job: TrainingJob[Settings]) -> TrainState:
    """Train neural dynamics of a robot and write them to a run directory.

    Raises:
        InputError: The data are of another robot or too short, or the run exists or cannot be resumed.
    """
    settings = job.settings.with_windows_alone()
    job = replace(job, settings=settings)
    mixture = Mixture.of(job.store).differing_in(settings.conditions)
    robot = _robot_of_logs(job.robot, mixture)
    record, going_on = start_job(job, "neural", job.robot_name, ("torch", "newton"), base=None)
    if robot != job.robot and not (job.out / ROBOT).is_dir():  # the run's robot takes the targets of its logs
        write_bundle(robot, job.out / ROBOT)
    header = mixture.header
    spec = msgspec.structs.replace(header.spec, contacts=())  # the model senses the ground instead
    coordinates = Coordinates(spec, header.base_com)
    samples = _transitions(mixture, coordinates)
    base, mechanism = known_base(settings, header)
    if going_on:
        config, _ = NEURAL.read(job.out)
    else:
        qd, dq, dqd = _changes(build_base(spec, mechanism, base), coordinates, samples)
        encoding = fit_encoding(
            spec, qd, dq, dqd, base=base, mechanism=mechanism, invariant=invariant_columns(robot),
            velocity_products=settings.velocity_products, base_com=header.base_com, layout=header.contact_points,
            margin=None if robot.contact_points is None else robot.contact_points.margin,
            touching=_touching(header, settings), conditions=fitted_conditions(mixture),
        )  # fmt: skip
        config = ModelConfig(
            kind="neural", net=settings.net, encoding=encoding.config, robot=job.robot_name, members=settings.members
        )
    torch.manual_seed(derive_seed(settings.seed, "weights"))
    scene = None if header.contact_points is None or robot.ground is None else robot.grounds[robot.ground]
    model_spec = ModelSpec(
        state=spec, fingerprint=header.fingerprint, contact_points=header.contact_points, scene=scene,
        mechanism=mechanism, training_range=training_range(mixture),
    )  # fmt: skip
    model = build_model(config, model_spec)
    _fit_statistics(model, samples)
    learner = NeuralLearner(job.out, model, mixture, settings, _scale(samples), device=job.device)
    return train_by_plan(learner, job, record, resume=going_on)


@accepts_request(FinetuningJob[Settings])
def finetune(job: FinetuningJob[Settings]) -> TrainState:
    """Adapt the weights of trained neural dynamics to other data of the robot and write them to a new run.

    Normalisation and encoding stay those of the base model. The best model by held-out roll-outs is kept, the base
    model included, so that the result is not worse on the validation episodes; with `keep: last` the last one. Phases
    with policy roll-outs are left out if the job names no policies.

    Raises:
        InputError: The data are of another robot, or the run exists or cannot be resumed.
    """
    settings = job.settings if job.actors else job.settings.with_windows_alone()
    job = replace(job, settings=settings)
    model, mixture, record, going_on = start_finetuning(job, NEURAL, ("torch", "newton"))
    samples = _transitions(mixture, model.encoding.coordinates)
    learner = NeuralLearner(job.out, model, mixture, settings, _scale(samples), device=job.device, actors=job.actors)
    return train_by_plan(learner, job, record, resume=going_on)


def _robot_of_logs(robot: Robot, mixture: Mixture) -> Robot:
    """Return the robot of all data; for logs of targets, behind their drives.

    Raises:
        InputError: Data are of another robot, or logs are of different drives.
    """
    robots = [as_logged(robot, part.header) for part in mixture.stores]
    for part, one in zip(mixture.stores, robots, strict=True):
        require_data(one, part)
        if one != robots[0]:
            raise InputError(
                f"data of robot {robot.name!r}: the logs have different drives; valid: one, or a model for each"
            )
    return robots[0]


def require_data(robot: Robot, store: Store, spec: StateSpec | None = None) -> None:
    """Raise a MismatchError, with the differences, for data of another robot, joint order or rate.

    `spec` is the expected state; None for that of the robot.
    """
    differences = (spec or robot.spec).differences(store.header.spec)
    if store.header.robot != robot.name:
        differences.insert(0, f"robot is {store.header.robot!r} instead of {robot.name!r}")
    if differences:
        raise MismatchError(f"data do not fit robot {robot.name!r}: {'; '.join(differences)}")


def read_run_config(run: str | Path) -> RunConfig:
    """Return the record of a run of neural dynamics."""
    return read_config(artifacts.resolve_run(run) / "config.yaml", RunConfig)


@dataclass(frozen=True)
class _Transitions:
    """Frames of the training episodes of a store; the environment has one world for each frame.

    Attributes:
        q, qd: State at the start of each frame, shapes [frames, nq] and [frames, nv].
        torque: Torques [N m or N], shape [frames, nu].
        q_next, qd_next: State at the end of each frame.
        dq, dqd: Changes of positions and velocities in the frame of the base, both [frames, nv].
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
    """Return training frames of each store, an even sample if there are many."""
    most = SAMPLE if mixture.header.contact_points is None else _THIN_SAMPLE
    parts = zip(mixture.stores, mixture.sample_rows(Split.TRAIN, most, following=1), strict=True)
    return [_transitions_of(store, starts, coordinates) for store, starts in parts]


def _transitions_of(store: Store, starts: np.ndarray, coordinates: Coordinates) -> _Transitions:
    rows, spec = torch.from_numpy(take(store.frames, starts, 2)), store.header.spec
    before, after = rows[:, 0], rows[:, 1]
    q, qd = slice(0, spec.nq), slice(spec.nq, spec.nq + spec.nv)
    dq, dqd = coordinates.change(before[:, q], before[:, qd], after[:, q], after[:, qd])
    episode = np.searchsorted(store.offsets, starts, side="right") - 1
    torque = before[:, spec.nq + spec.nv :][:, : spec.nu]
    pose, own = (None if x is None else torch.from_numpy(x[episode]) for x in (store.ground, store.parameters))
    environment = RecordedEnvironments(store, names=tuple(store.header.parameters)).at(pose, own)
    return _Transitions(before[:, q], before[:, qd], torque, after[:, q], after[:, qd], dq, dqd, environment)


def _changes(
    motion: BaseMotion | None, coordinates: Coordinates, samples: list[_Transitions]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the velocities after the base motion, and the remaining changes, in the frame of the base."""
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
    wanted, impulses = torch.cat(targets), model.encoding.impulses
    if impulses is not None:
        impulses.change.copy_(wanted.double().std(0).clamp_min(1e-12))
        wanted = wanted[:, impulses.supervised]
    missing = 0 if impulses is None else impulses.unsupervised_outputs
    model.predictor.fit(torch.cat(inputs), wanted, start_at_zero=model.encoding.base_is_whole, missing_outputs=missing)
    if model.members > 1:
        states = torch.cat([torch.cat([sample.q, sample.qd], -1) for sample in samples])
        model.state_scale.copy_(states.double().std(0).clamp_min(1e-6))


def _touching(header: StoreHeader, settings: Settings) -> Sequence[ShapeContact]:
    """Return the pairs of touching shapes if a network uses their distances as inputs."""
    return (header.mechanism.shape_contacts or ()) if header.mechanism and settings.object_contacts else ()


def _scale(samples: list[_Transitions]) -> LossScale:
    dq, dqd = (torch.cat([getattr(sample, name) for sample in samples]) for name in ("dq", "dqd"))
    return LossScale(dq.std(0).clamp_min(1e-9), dqd.std(0).clamp_min(1e-9))
