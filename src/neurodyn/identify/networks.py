# SPDX-License-Identifier: Apache-2.0
"""Networks on top of a fitted mechanism for unmodelled effects: a torque at each joint, with a small memory."""

from pathlib import Path

import torch
from torch import Tensor

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.progress import present_work
from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.ladder import environments_of, held_out_errors
from neurodyn.identify.quantities import effort
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.identify.structures import FitModel
from neurodyn.learn.hybrid import NETWORK_STATE, NetworkLearner, NetworkTrainingSettings, NetworkWindows
from neurodyn.learn.loop import TrainingLoop
from neurodyn.learn.metrics import MetricsLog
from neurodyn.learn.plan import TrainingBudget

NETWORKS_FROM = 100_000
"""Step number at which networks start in the metrics."""
_SIZE = 0.05
"""Scale of a network's torque, as a share of the joint's largest."""


def joint_networks(model: FitModel, windows: Windows, settings: IdentificationSettings) -> Blueprint:
    """Return a network on the torque of each scalar joint, with the joint's motion, command and past as inputs."""
    spec, networks = model.robot.spec, []
    for index, link in enumerate(model.mechanism.links):
        joint = link.joint
        if joint.name not in spec.q_names:  # a base, or a spring absent from logs
            continue
        name, row, dof = joint.name, spec.q_names.index(joint.name), spec.qd_names.index(joint.name)
        inputs = {f"qd.{name}": windows.qd[..., dof]}
        if spec.continuous[row]:
            inputs |= {f"sin(q.{name})": torch.ones(1), f"cos(q.{name})": torch.ones(1)}
        else:
            inputs |= {f"q.{name}": windows.q[..., row]}
        if name in spec.controls:
            inputs |= {f"control.{name}": windows.control[..., spec.controls.index(name)]}
        scales = tuple(max(float(value.square().mean().sqrt()), 1e-6) for value in inputs.values())
        size = _SIZE * effort(model.robot, model.mechanism, index)
        networks.append(
            Augmentation(
                (f"torque.{name}",), tuple(inputs), hidden=settings.hidden, input_scale=scales, output_scale=(size,),
                memory=settings.memory,
            )
        )  # fmt: skip
    return Blueprint(tuple(networks))


def with_networks(
    model: FitModel, plain: HybridDynamics, store: Store, past: int, settings: IdentificationSettings, *, threads: int,
    out: Path, metrics: MetricsLog,
) -> HybridDynamics:  # fmt: skip
    """Train networks on top of fixed fitted values, and return the model with the lowest error on validation episodes.

    Args:
        model: The fitted structure.
        plain: Its dynamics, at the fitted values.
        store: The log.
        past: Frames in which motors and networks settle.
        settings: Settings.
        threads: CPU threads.
        out: Run directory, for checkpoints.
        metrics: The metrics of the run.
    """
    frames = max(3, round(settings.network_seconds / model.robot.spec.dt))
    train = select_windows(store, Split.TRAIN, past + frames, most=4000, seed=settings.seed).after(past)
    held_out = select_windows(store, Split.VALIDATION, past + frames, most=300, seed=settings.seed).after(past)
    dynamics = model.dynamics(
        store, threads, blueprint=joint_networks(model, train, settings), context=past, seed=settings.seed,
        device=plain.compute_device,
    )  # fmt: skip
    with torch.no_grad():
        dynamics.physical.raw.copy_(plain.physical.raw)
    scale = residual_scale(dynamics, store, held_out)
    windows = NetworkWindows(train, held_out, scale, environments_of(store, dynamics))
    training = NetworkTrainingSettings(
        parameter_rate=0.0, batch=64, validations=12, patience=5, steps=settings.network_steps
    )
    learner = NetworkLearner(dynamics, windows, training, seed=settings.seed, save=lambda _: None)
    loop = TrainingLoop(
        learner, TrainingBudget(training.steps), out, name=NETWORK_STATE, validations=training.validations,
        patience=training.patience, callbacks=(), progress=present_work(),
    )  # fmt: skip
    loop.run(metrics.after(NETWORKS_FROM))
    return dynamics


def residual_scale(dynamics: HybridDynamics, store: Store, windows: Windows) -> Tensor:
    """Return the median error of each position and velocity, shape [2 nv]."""
    errors = held_out_errors(dynamics, store, windows)
    sizes = torch.cat([errors.tangents, errors.velocities], -1).abs().flatten(0, 1)
    return sizes.median(0).values.clamp_min(1e-6)
