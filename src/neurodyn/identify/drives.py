# SPDX-License-Identifier: Apache-2.0
"""Drives from measured torques: drive networks (`neurodyn identify ROBOT --drive network`) and parametric drives."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import torch
from scipy.signal import lfilter
from torch import Tensor, nn

from neurodyn.core import artifacts
from neurodyn.core.config import Config, Record, require_numbers, to_dict
from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.drive_network import DriveNetwork, Signal
from neurodyn.core.description.sensors import stream_columns
from neurodyn.core.errors import InputError, choices, require
from neurodyn.core.progress import stage, tracked
from neurodyn.data.header import Split
from neurodyn.data.split import held_out_split
from neurodyn.data.store import Store
from neurodyn.data.training_range import training_range
from neurodyn.dynamics.artifact import ROBOT
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.declared import declared_mechanism
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.settings import load_identification
from neurodyn.learn.devices import threads as torch_threads
from neurodyn.multibody.drives.friction import FRICTION_SPEED
from neurodyn.robots import Robot, locate, ships
from neurodyn.robots.assets import write_bundle

Columns = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Command, command (position error for targets), velocity, measured torque, row index in the run; shape [N] each."""

_DELAYS = 16
"""Largest delay of the grid search, in quarters of a period."""

_LAGS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Time constants of the grid search, in periods."""

_LIMITS = (1.0, 0.999, 0.99, 0.97, 0.9)
"""Effort limits of the grid search, as quantiles of |torque|; 1 means no limit."""

_STRIBECK_SPEED = 0.1

_ROWS = 20_000
"""Maximum number of rows in the grid search over delay, lag and limit."""

_AGES = (0.0, 0.01, 0.02)
_WARM_UP = 16
"""Periods at the start of a sequence for which a GRU's torque is not trained."""


@dataclass(frozen=True)
class FittedDrive:
    """A parametric drive.

    Attributes:
        numbers: Its parameters by name.
        error: Root mean square torque error on other runs [N m or N].
    """

    numbers: dict[str, float]
    error: float


def fit_drive(train: Columns, test: Columns, *, period: float, target: bool) -> FittedDrive:
    """Fit a parametric drive: grid search over delay, lag and effort limit, least squares for the other parameters.

    Rows are `period` [s] apart; `target` says whether commands are position targets. The error is that on `test`.
    """
    best: tuple[float, tuple[float, float, float], Tensor] | None = None
    rows = torch.nonzero(torch.isfinite(train[3]))[:, 0]
    rows = rows[:: max(1, len(rows) // _ROWS)]
    torque = train[3][rows].double()
    limits = [float("inf") if q == 1.0 else float(torch.quantile(torque.abs(), q)) for q in _LIMITS]
    for quarter in range(_DELAYS + 1):
        for lag in _LAGS:
            features = _features(train, quarter / 4, lag)[rows]
            for limit in limits:
                free = torque.abs() <= limit
                weights = torch.linalg.lstsq(features[free], torque[free][:, None]).solution[:, 0]
                error = _error(features, weights, limit, torque)
                if best is None or error < best[0]:
                    best = error, (quarter / 4, lag, limit), weights
    assert best is not None
    (delay, lag, limit), weights = best[1], best[2]
    gain, damping, coulomb, viscous, stribeck = weights.tolist()
    numbers = {
        "delay": delay * period, "lag": lag * period, ("kp" if target else "gain"): gain, "kd": -damping,
        "coulomb": -coulomb, "viscous": -viscous, "stribeck": -stribeck,
    }  # fmt: skip
    if limit < float("inf"):
        numbers["effort_limit"] = limit
    return FittedDrive(numbers, _error(_features(test, delay, lag), weights, limit, test[3]))


def _features(columns: Columns, delay: float, lag: float) -> Tensor:
    """Return the regressors of the torque, shape [N, 5]: filtered command and velocity, and three friction terms."""
    command, error, velocity, _, since = columns
    v, whole = velocity.double(), int(delay)
    share, index = delay - whole, torch.arange(len(command))
    now, before = (command.double()[index - torch.clamp(since, max=age)] for age in (whole, whole + 1))
    dry = torch.tanh(v / FRICTION_SPEED)
    position_error = error.double() + (1.0 - share) * now + share * before - command.double()
    drives = [_lag(x, since, lag) for x in (position_error, v)]
    return torch.stack([*drives, dry, v, torch.exp(-(v / _STRIBECK_SPEED).square()) * dry], -1)


def _lag(x: Tensor, since: Tensor, lag: float) -> Tensor:
    """Return a signal after a first-order lag, with a time constant in periods; each run starts settled."""
    if not lag:
        return x
    keep = math.exp(-1.0 / lag)
    begins = [*torch.nonzero(since == 0)[:, 0].tolist(), len(x)]
    parts = [
        lfilter([1.0 - keep], [1.0, -keep], x[a:b].numpy(), zi=[keep * float(x[a])])[0] for a, b in pairwise(begins)
    ]
    return torch.from_numpy(np.concatenate(parts))


def _error(features: Tensor, weights: Tensor, limit: float, torque: Tensor) -> float:
    motor = (features[:, :2] @ weights[:2]).clamp(-limit, limit)
    error = motor + features[:, 2:] @ weights[2:] - torque.double()
    return float(error[torch.isfinite(error)].square().mean().sqrt())


class DriveNetworkSettings(Config, frozen=True):
    """Training settings of a drive network.

    Attributes:
        network: "mlp" or "gru".
        hidden: Widths of the hidden layers; one for a "gru".
        history: Ages of the signals that an "mlp" sees [s]; empty for 0, 10 and 20 ms, in whole frames of the log.
        steps: Optimiser steps.
        batch: Rows in a batch; for a "gru", number of sequences times their length.
        rate: Initial learning rate, with cosine decay to zero.
        length: Frames of a sequence of a "gru".
        validations: Number of evaluations on validation runs; the best weights are kept.
        seed: Seed of weights and batches.
    """

    network: Literal["mlp", "gru"] = "mlp"
    hidden: tuple[int, ...] = ()
    history: tuple[float, ...] = ()
    steps: int = 3000
    batch: int = 1024
    rate: float = 5e-3
    length: int = 64
    validations: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.length > _WARM_UP, "length", self.length, f"more than {_WARM_UP} frames")
        require(0 < self.rate < 1, "rate", self.rate, "between 0 and 1")
        require_numbers(self, above=("steps", "batch", "validations", "hidden"))


class JointTorques(Record, frozen=True):
    """Torque errors of one joint, root mean squares over held-out runs [N m or N].

    Attributes:
        network: Error of the drive network.
        drive: Error of the best parametric drive.
        torque: Error of predicting no torque: the root mean square of the measured torque.
        numbers: Parameters of that drive.
    """

    network: float
    drive: float
    torque: float
    numbers: dict[str, float]


class DriveNetworkResult(Record, frozen=True):
    """A drive network and its errors.

    Attributes:
        robot: Name of the robot.
        network: Content of its JSON file.
        joints: Errors by joint.
        split: Split of the runs on which errors are measured.
        rows: Number of training rows.
    """

    robot: str
    network: dict[str, object]
    joints: dict[str, JointTorques]
    split: str
    rows: int


@dataclass(frozen=True)
class Rows:
    """Rows of whole runs, by joint.

    Attributes:
        signals: Signals by name, shape [joints, N] each.
        torque: Measured torque, NaN where none was measured, shape [joints, N].
        first: Which rows are the first of their run, shape [N].
    """

    signals: dict[Signal, Tensor]
    torque: Tensor
    first: Tensor

    def since(self) -> Tensor:
        """Return the index of each row within its run, shape [N]."""
        index = torch.arange(len(self.first))
        return index - torch.cummax(torch.where(self.first, index, 0), 0).values


def identify_drive_network(
    robot: Robot, store: Store, out: str | Path, settings: DriveNetworkSettings | None = None
) -> DriveNetworkResult:
    """Train a drive network for the driven joints of a robot, and build the robot's hybrid model with it.

    Args:
        robot: The robot.
        store: Log with measured joint torques (`measured` in the column map, kind `joint_torque`).
        out: Run directory: actuator_network.json, actuator_network.safetensors, drive.json, and for an "mlp" the model.
        settings: Training settings; None for the defaults.

    Raises:
        InputError: The log holds no measured torque of a driven joint, or the directory holds a run.
    """
    settings = settings or DriveNetworkSettings()
    out = Path(out)
    if (out / "model").exists() or (out / "actuator_network.json").exists():
        raise InputError(f"{out}: holds a run already; valid: another --out")
    joints = _measured_joints(robot, store)
    with torch_threads(1):
        torch.manual_seed(settings.seed)
        parts = {split: _rows(store, joints, store.episodes(split)) for split in (Split.TRAIN, Split.VALIDATION)}
        held_out = held_out_split(store)
        test = _rows(store, joints, store.episodes(held_out))
        described = _describe(store, joints, parts[Split.TRAIN], settings)
        with stage(0.0, 0.8):
            net = _train(described, parts[Split.TRAIN], parts[Split.VALIDATION], settings)
        with torch.no_grad():
            predicted = _predict(net, described, test)
        errors = [_rms(predicted[j] - test.torque[j]) for j in range(len(joints))]
        with stage(0.8, 1.0, "parametric drives"):
            drives = [_parametric(store, parts[Split.TRAIN], test, j) for j in tracked(range(len(joints)))]
    described = msgspec.structs.replace(described, error=float(np.sqrt(np.mean(np.square(errors)))))
    result = DriveNetworkResult(
        robot=robot.name,
        network=to_dict(described),
        joints={
            name: JointTorques(network=error, drive=drive.error, torque=_rms(test.torque[j]), numbers=drive.numbers)
            for j, (name, error, drive) in enumerate(zip(joints, errors, drives, strict=True))
        },
        split=held_out.name.lower(),
        rows=int(torch.isfinite(parts[Split.TRAIN].torque).sum()),
    )
    weights = {name: value.detach().float().contiguous() for name, value in net.state_dict().items()}
    model = None if settings.network == "gru" else drive_by_network(robot, described, weights)
    artifacts.make_folder(out)
    if model is not None:
        model.training_range = training_range(store)
        HYBRID.save(out, model)
    elif not ships(robot):
        write_bundle(robot, out / ROBOT)
    artifacts.write_tensors(out / "actuator_network.safetensors", weights)
    artifacts.write_checksummed(out / "actuator_network.json", to_dict(described))
    artifacts.write_json(out / "drive.json", result.plain())
    return result


def drive_by_network(robot: Robot, network: DriveNetwork, weights: dict[str, Tensor]) -> HybridDynamics:
    """Return the hybrid dynamics of a robot whose drives are a feedforward drive network."""
    engine = load_identification(robot).engine(robot)
    mechanism, fingerprint, scene = declared_mechanism(robot, engine.contact)
    drives = dict(mechanism.drives)
    if network.command == "target":  # the network's law defines the position error
        drives |= {name: Drive(kind="pd", kp=0.0, kd=0.0) for name in network.joints if name not in drives}
    blueprint = Blueprint(augmentations=tuple(_augmentation(network, name) for name in network.joints))
    spec = msgspec.structs.replace(robot.spec, control_kind=network.command)
    context = max(network.steps)
    engine = msgspec.structs.replace(engine, blueprint=blueprint, context=context)
    model = HybridDynamics(
        spec, msgspec.structs.replace(mechanism, drives=drives), engine, (), fingerprint, scene,
        declaration=locate(robot),
    )  # fmt: skip
    layers = sorted({int(name.split(".")[1]) for name in weights})
    flat = [weights[f"layers.{k}.{part}"].double().flatten() for k in layers for part in ("weight", "bias")]
    with torch.no_grad():
        model.weights.copy_(torch.cat(flat).repeat(len(network.joints)))
    return model.requires_grad_(False)


def _augmentation(network: DriveNetwork, joint: str) -> Augmentation:
    names = {
        "position_error": f"error.{joint}", "velocity": f"qd.{joint}", "position": f"q.{joint}",
        "effort_command": f"control.{joint}", "target_position": f"control.{joint}",
    }  # fmt: skip
    inputs = [
        names[signal] + (f"@{age:g}" if age else "") for signal in network.signals for age in network.history
    ]  # fmt: skip
    scales = [1.0 / scale for scale in network.scales for _ in network.history]
    return Augmentation(
        quantities=(f"actuator.{joint}",), inputs=tuple(inputs), mode="replace", hidden=network.hidden,
        activation=network.activation, input_scale=tuple(scales), output_scale=(network.effort_scale,),
    )  # fmt: skip


class _Perceptron(nn.Module):
    def __init__(self, inputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise((inputs, *hidden, 1)))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = nn.functional.softsign(layer(x))
        return self.layers[-1](x)[..., 0]


class _Recurrent(nn.Module):
    def __init__(self, inputs: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.gru = nn.GRU(inputs, hidden[0], batch_first=True)
        self.head = nn.Linear(hidden[0], 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x)[0])[..., 0]


def _measured_joints(robot: Robot, store: Store) -> tuple[str, ...]:
    driven = tuple(store.header.spec.controls)
    if store.header.spec.control_kind == "command":
        raise InputError(f"data of {robot.name!r}: its actuators take commands of their own; valid: torques or targets")
    there = {joint for s in store.header.streams if s.kind == "joint_torque" for joint in s.joints}
    joints = tuple(name for name in driven if name in there)
    if not joints or store.measured is None:
        raise InputError(
            f"the data of {robot.name!r} hold no measured torque of a driven joint ({choices(driven)}); valid: logs "
            "imported with a stream of kind joint_torque under `measured` in their column map, or a network at "
            "actuator.JOINT in a blueprint, which needs none"
        )
    return joints


def _rows(store: Store, joints: tuple[str, ...], episodes: np.ndarray) -> Rows:
    spec = store.header.spec
    if not len(episodes):
        raise InputError(f"data of {spec.robot!r}: a split has no runs; valid: runs to train, to choose and to test on")
    columns = list(stream_columns(store.header.streams))
    torque = [
        next(columns.index(f"{s.name}.torque.{name}") for s in store.header.streams if name in s.joints)
        for name in joints
    ]
    assert store.measured is not None
    parts: dict[str, list[np.ndarray]] = {key: [] for key in ("q", "qd", "u", "torque", "first")}
    rows = [spec.q_names.index(name) for name in joints]
    dofs, controls = [spec.qd_names.index(name) for name in joints], [spec.controls.index(name) for name in joints]
    for episode in episodes:
        q, qd, control = store.episode(int(episode))
        begin = int(store.table["start"][episode])
        parts["q"].append(q[:-1, rows])
        parts["qd"].append(qd[:-1, dofs])
        parts["u"].append(control[:, controls])
        parts["torque"].append(store.measured[begin : begin + len(control)][:, torque])
        parts["first"].append(np.arange(len(control)) == 0)
    q, qd, u, measured = (
        torch.from_numpy(np.concatenate(parts[key])).T.contiguous() for key in ("q", "qd", "u", "torque")
    )
    signals: dict[Signal, Tensor] = {"velocity": qd}
    if spec.control_kind == "target":
        turns = torch.tensor([spec.continuous[row] for row in rows])[:, None]
        signals |= {"position_error": torch.where(turns, wrap_angle(u - q), u - q), "target_position": u}
    else:
        signals["effort_command"] = u
    return Rows(signals, measured, torch.from_numpy(np.concatenate(parts["first"])))


def _describe(
    store: Store, joints: tuple[str, ...], train: Rows, settings: DriveNetworkSettings
) -> DriveNetwork:  # fmt: skip
    spec = store.header.spec
    signals: tuple[Signal, ...] = ("position_error" if spec.control_kind == "target" else "effort_command", "velocity")
    ages = settings.history or tuple(dict.fromkeys(max(1, round(age / spec.dt)) * (age > 0) for age in _AGES))
    history = settings.history or tuple(spec.dt * age for age in ages)
    if not settings.history and len(history) < len(_AGES):
        history = tuple(spec.dt * age for age in range(len(_AGES)))
    known = train.torque[torch.isfinite(train.torque)]
    if not len(known):
        raise InputError(f"data of {spec.robot!r}: no run to train on has a measured torque; valid: some")
    if spec.control_kind == "velocity" or spec.control_kind == "command":
        raise InputError(f"data of {spec.robot!r}: its commands are {spec.control_kind}; valid: torques or targets")
    gru = settings.network == "gru"
    return DriveNetwork(
        network=settings.network,
        joints=joints,
        signals=signals,
        scales=tuple(1.0 / max(float(train.signals[name].std()), 1e-6) for name in signals),
        effort_scale=max(float(known.std()), 1e-6),
        history=(0.0,) if gru else history,
        period=spec.dt,
        hidden=settings.hidden or ((32,) if gru else (32, 32, 32)),
        command=spec.control_kind,
    )


def _inputs(network: DriveNetwork, rows: Rows) -> Tensor:
    """Return scaled inputs, shape [joints, N, inputs]; signals before a run equal those at its start."""
    since, index = rows.since(), torch.arange(len(rows.first))
    return torch.stack(
        [
            scale * rows.signals[name][:, index - torch.clamp(since, max=steps)]
            for name, scale in zip(network.signals, network.scales, strict=True)
            for steps in network.steps
        ],
        -1,
    )


def _predict(net: nn.Module, network: DriveNetwork, rows: Rows) -> Tensor:
    """Return predicted torques [N m or N], shape [joints, N]."""
    inputs = _inputs(network, rows)
    if network.network == "mlp":
        return network.effort_scale * net(inputs)
    bounds = [*torch.nonzero(rows.first)[:, 0].tolist(), len(rows.first)]
    return network.effort_scale * torch.cat([net(inputs[:, a:b]) for a, b in pairwise(bounds)], 1)


def _train(network: DriveNetwork, train: Rows, validation: Rows, settings: DriveNetworkSettings) -> nn.Module:
    """Train a network; return it with the weights of the lowest validation error."""
    make = _Perceptron if network.network == "mlp" else _Recurrent
    net = make(network.inputs, network.hidden)
    inputs, wanted = _inputs(network, train), train.torque / network.effort_scale
    draw = _sequences if network.network == "gru" else _single_rows
    optimiser = torch.optim.Adam(net.parameters(), lr=settings.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps)
    least, best = float("inf"), {}
    every = max(1, settings.steps // settings.validations)
    for step in tracked(range(1, settings.steps + 1), "actuator network"):
        x, y = draw(inputs, wanted, train, settings)
        known = torch.isfinite(y)
        error = nn.functional.smooth_l1_loss(net(x), torch.nan_to_num(y), beta=0.2, reduction="none")
        if network.network == "gru":
            known[:, :_WARM_UP] = False
        loss = torch.where(known, error, 0.0).sum() / known.sum().clamp_min(1)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % every == 0 or step == settings.steps:
            with torch.no_grad():
                error_now = _rms(_predict(net, network, validation) - validation.torque)
            if error_now < least:
                least, best = error_now, {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(best)
    return net


def _single_rows(inputs: Tensor, wanted: Tensor, _: Rows, settings: DriveNetworkSettings) -> tuple[Tensor, Tensor]:
    joint = torch.randint(len(inputs), (settings.batch,))
    row = torch.randint(inputs.shape[1], (settings.batch,))
    return inputs[joint, row], wanted[joint, row]


def _sequences(inputs: Tensor, wanted: Tensor, rows: Rows, settings: DriveNetworkSettings) -> tuple[Tensor, Tensor]:
    """Draw sequences, each within one run."""
    length = settings.length
    ends = torch.nonzero(rows.since() >= length - 1)[:, 0]
    if not len(ends):
        raise InputError(f"no run is {length} frames long; valid: longer runs, or a shorter `length`")
    count = max(1, settings.batch // length)
    joint, last = torch.randint(len(inputs), (count, 1)), ends[torch.randint(len(ends), (count, 1))]
    row = last - torch.arange(length - 1, -1, -1)
    return inputs[joint, row], wanted[joint, row]


def _parametric(store: Store, train: Rows, test: Rows, joint: int) -> FittedDrive:
    target = store.header.spec.control_kind == "target"
    names: list[Signal] = ["target_position", "position_error"] if target else ["effort_command", "effort_command"]
    columns = []
    for rows in (train, test):
        command, error, velocity = (rows.signals[name][joint] for name in (*names, "velocity"))
        columns.append((command, error, velocity, rows.torque[joint], rows.since()))
    return fit_drive(*columns, period=store.header.spec.dt, target=target)


def _rms(error: Tensor) -> float:
    known = error[torch.isfinite(error)]
    return float(known.square().mean().sqrt()) if len(known) else float("nan")
