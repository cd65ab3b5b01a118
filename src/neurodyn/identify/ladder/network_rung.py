# SPDX-License-Identifier: Apache-2.0
"""The last rung of the ladder: networks for unmodelled effects on top of a fitted mechanism.

Without contacts there is one network with memory a limb, on the torques of its joints, trained on linearised errors
along the log (`linearised_errors`) and finished on roll-outs. With contacts there is a small one a joint, trained on
roll-outs alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.progress import present_work
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.ladder.initial_states import Start, estimate_starts
from neurodyn.identify.ladder.linearised_errors import LinearisedLearner, can_be_linearised, linearise_along
from neurodyn.identify.ladder.references import WARMUP
from neurodyn.identify.ladder.rungs import NETWORKS_FROM, environments_of, held_out_errors
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.identify.unknowns.quantities import effort, gyration
from neurodyn.learn.budget import TrainingBudget
from neurodyn.learn.hybrid import NETWORK_STATE, NetworkLearner, NetworkTrainingSettings, NetworkWindows
from neurodyn.learn.loop import TrainingLoop
from neurodyn.learn.metrics import MetricsLog

_SIZE = 0.05
"""Scale of a network's torque, as a share of the joint's largest."""
_SMALL, _LARGE = ((16, 16), 2), ((32,), 16)
"""Widths of hidden layers and size of the memory of a joint's network, and of a limb's."""
_FORECAST, _FINE_SECONDS = 32, 1.0
"""Frames of the windows of linearised errors, and length of those of the roll-outs after these [s]."""
_LINEARISED, _WINDOWS, _HELD_OUT = 8000, 1000, 300
"""Most frames that are linearised, most windows among them, and most validation windows."""
_STEPS, _FINISHING = 2, 2
"""Steps on linearised errors for each of `network_steps`, and the part of these for roll-outs after that."""
_RATE, _FINE_RATE, _FINE_BATCH, _VALIDATIONS = 1e-2, 6e-3, 32, 4
_SPEED_WEIGHT = 0.2
"""Weight of velocities beside positions: within a frame a sensor's noise is most of what is left of them."""


def joint_networks(model: FitModel, windows: Windows, settings: IdentificationSettings) -> Blueprint:
    """Return networks on the torques of scalar joints, one each, with the joint's motion, command and past as inputs.

    Without contacts they are one for each limb. A free body without joints has one on its wrench.
    """
    limbs = _limbs(model)
    if not model.mechanism.points:
        networks = [_torque_network(model, limb, windows, settings, _LARGE) for limb in limbs]
    else:
        networks = [_torque_network(model, [joint], windows, settings, _SMALL) for limb in limbs for joint in limb]
    return Blueprint(tuple(networks) or body_network(model, windows, settings))


def _limbs(model: FitModel) -> list[list[int]]:
    """Return the links with logged scalar joints, by chain from the base."""
    links, logged = model.mechanism.links, set(model.robot.spec.q_names)
    limbs: dict[int, list[int]] = {}
    for index, link in enumerate(links):
        if link.joint.name not in logged:  # a base, or a spring absent from logs
            continue
        root = index
        while (parent := links[root].joint.parent) >= 0 and links[parent].joint.name in logged:
            root = parent
        limbs.setdefault(root, []).append(index)
    return list(limbs.values())


def _torque_network(
    model: FitModel, joints: Sequence[int], windows: Windows, settings: IdentificationSettings,
    sizes: tuple[tuple[int, ...], int],
) -> Augmentation:  # fmt: skip
    """Return a network on the torques of some links' joints."""
    spec, inputs = model.robot.spec, dict[str, Tensor]()
    names = [model.mechanism.names[index] for index in joints]
    for name in names:
        row, dof = spec.q_names.index(name), spec.qd_names.index(name)
        inputs |= {f"qd.{name}": windows.qd[..., dof]}
        if spec.continuous[row]:
            inputs |= {f"sin(q.{name})": torch.ones(1), f"cos(q.{name})": torch.ones(1)}
        else:
            inputs |= {f"q.{name}": windows.q[..., row]}
        if name in spec.controls:
            inputs |= {f"control.{name}": windows.control[..., spec.controls.index(name)]}
    return Augmentation(
        tuple(f"torque.{name}" for name in names), tuple(inputs),
        hidden=sizes[0] if settings.hidden is UNSET else settings.hidden,
        memory=sizes[1] if settings.memory is UNSET else settings.memory,
        input_scale=tuple(max(float(value.square().mean().sqrt()), 1e-6) for value in inputs.values()),
        output_scale=tuple(_SIZE * effort(model.robot, model.mechanism, index) for index in joints),
    )  # fmt: skip


def body_network(model: FitModel, windows: Windows, settings: IdentificationSettings) -> tuple[Augmentation, ...]:
    """Return a network on the wrench of a free body without joints, with its motion, commands and past as inputs."""
    spec, body = model.robot.spec, model.mechanism.links[0]
    name, place = body.joint.name, spec.places[0]
    speeds = [windows.qd[..., place.qd][..., part].square().mean().sqrt() for part in (slice(0, 3), slice(3, 6))]
    inputs = {
        f"{what}.{name}.{axis}": s for what, s in zip(("velocity", "spin"), speeds, strict=True) for axis in "xyz"
    }
    for k, control in enumerate(spec.controls):
        inputs[f"control.{control}"] = windows.control[..., k].square().mean().sqrt()
    force = _SIZE * 9.81 * body.mass
    wrench = {f"wrench.{name}.moment.{axis}": force * gyration(body) for axis in "xyz"}
    wrench |= {f"wrench.{name}.force.{axis}": force for axis in "xyz"}
    return (
        Augmentation(
            tuple(wrench), tuple(inputs), hidden=_SMALL[0] if settings.hidden is UNSET else settings.hidden,
            memory=_SMALL[1] if settings.memory is UNSET else settings.memory,
            input_scale=tuple(max(float(s), 1e-6) for s in inputs.values()), output_scale=tuple(wrench.values()),
        ),
    )  # fmt: skip


def with_networks(
    model: FitModel, plain: HybridDynamics, store: Store, past: int, settings: IdentificationSettings, *, threads: int,
    out: Path, metrics: MetricsLog, noise: Noise | None = None, start: Start = "past",
) -> HybridDynamics:  # fmt: skip
    """Train networks on top of fixed fitted values, and return the model with the lowest error on validation episodes.

    Args:
        model: The fitted structure.
        plain: Its dynamics, at the fitted values.
        store: The log.
        past: Frames in which motors settle.
        settings: Settings.
        threads: CPU threads.
        out: Run directory, for checkpoints.
        metrics: The metrics of the run.
        noise: Noise of the sensors if roll-outs begin at states that are estimated from past frames, as held-out ones
            do: an error of the log's velocity would count for more than what networks can explain. None for states as
            logged.
        start: How they are estimated.
    """
    room = min(int(store.lengths[episodes_of(store, s)].max()) for s in (Split.TRAIN, Split.VALIDATION)) - past
    phase = OnRollouts.within(room, store, settings)
    sample = select_windows(store, Split.TRAIN, past + phase.frames, most=phase.most, seed=settings.seed)
    blueprint = joint_networks(model, sample.after(past), settings)
    phases = [phase]
    if can_be_linearised(plain, blueprint):
        phases = [
            OnLinearisedErrors.within(room, store, settings),
            OnRollouts.after_linearised(room, past, store, settings),
        ]
    before = past + phases[0].settling
    dynamics = model.dynamics(
        store, threads, blueprint=blueprint, context=before, seed=settings.seed, device=plain.compute_device
    )
    with torch.no_grad():
        names = [one.name for one in plain.physical.specs]
        kept = [names.index(one.name) for one in dynamics.physical.specs]
        dynamics.physical.set_values(plain.physical()[kept])
    environments = environments_of(store, dynamics)

    def begun(windows: Windows) -> Windows:
        counted = windows.after(before)
        if noise is None or before == 0:
            return counted
        context = min(settings.context, before)
        found = estimate_starts(plain, counted, context, start, noise, environments, history=min(past, before))
        return replace(counted, q=found.q, qd=found.qd)

    first = NETWORKS_FROM
    for phase in phases:
        whole, held_out = (
            select_windows(store, split, before + phase.frames, most=most, seed=settings.seed)
            for split, most in ((Split.TRAIN, phase.most), (Split.VALIDATION, _HELD_OUT))
        )
        windows = NetworkWindows(begun(whole), begun(held_out), torch.empty(0), environments)
        scale = residual_scale(dynamics, store, windows.held_out)
        scale[len(scale) // 2 :] /= phase.speed_weight
        learner = phase.learner(plain, dynamics, whole, replace(windows, scale=scale), settings)
        plan = learner.settings
        TrainingLoop(
            learner, TrainingBudget(plan.steps), out, name=NETWORK_STATE, validations=plan.validations,
            patience=plan.patience, callbacks=(), progress=present_work(),
        ).run(metrics.after(first))  # fmt: skip
        first += plan.steps
    return dynamics


@dataclass(frozen=True)
class OnRollouts:
    """A training of networks on roll-outs.

    Attributes:
        frames: Frames of a window that count.
        plan: Its settings.
        most: Most windows.
        settling: Frames before these in which the memory of networks settles.
        speed_weight: Weight of velocities beside positions.
    """

    frames: int
    plan: NetworkTrainingSettings
    most: int = 4000
    settling: int = 0
    speed_weight: float = 1.0

    @classmethod
    def within(cls, room: int, store: Store, settings: IdentificationSettings) -> "OnRollouts":
        """Return the training on windows of a log whose episodes have `room` frames."""
        dt = store.header.spec.dt
        plan = NetworkTrainingSettings(
            parameter_rate=0.0, batch=64, validations=12, patience=5, steps=settings.network_steps
        )
        return cls(min(max(3, round(settings.network_seconds / dt)), room), plan)

    @classmethod
    def after_linearised(cls, room: int, past: int, store: Store, settings: IdentificationSettings) -> "OnRollouts":
        """Return the training after that on linearised errors, in windows as long as held-out roll-outs.

        Errors of networks add up over a second as those of mechanisms do. Half of the episodes are as long.

        Args:
            room: Frames of the longest episodes after the `past` ones.
            past: Frames in which motors settle.
            store: The log.
            settings: Settings.
        """
        coarse = OnLinearisedErrors.within(room, store, settings)
        most = min(_FINE_SECONDS, max(settings.seconds))
        typical = (int(np.median(store.lengths[episodes_of(store, s)])) for s in (Split.TRAIN, Split.VALIDATION))
        frames = min(round(most / store.header.spec.dt), min(typical) - past - coarse.settling)
        plan = msgspec.structs.replace(
            coarse.plan, steps=max(1, settings.network_steps // _FINISHING), rate=_FINE_RATE, batch=_FINE_BATCH
        )
        return cls(max(frames, coarse.frames), plan, _WINDOWS, coarse.settling, coarse.speed_weight)

    def learner(
        self, plain: HybridDynamics, dynamics: HybridDynamics, whole: Windows, windows: NetworkWindows,
        settings: IdentificationSettings,
    ) -> NetworkLearner:  # fmt: skip
        """Return what is trained.

        Args:
            plain: The model without networks.
            dynamics: The model that learns.
            whole: Training windows with the frames before them.
            windows: The data.
            settings: Settings.
        """
        return NetworkLearner(dynamics, windows, self.plan, seed=settings.seed)


class OnLinearisedErrors(OnRollouts):
    """A training on linearised errors along the log, for larger networks."""

    @classmethod
    def within(cls, room: int, store: Store, settings: IdentificationSettings) -> "OnLinearisedErrors":
        """Return the training on windows of a log; arguments: see `OnRollouts`."""
        frames = min(_FORECAST, room)
        settling, recorded = min(WARMUP, room - frames), int(store.lengths[episodes_of(store, Split.TRAIN)].sum())
        most = _WINDOWS if recorded <= _LINEARISED else _LINEARISED // (frames + settling)
        plan = NetworkTrainingSettings(
            parameter_rate=0.0, batch=64, validations=_VALIDATIONS, patience=_VALIDATIONS,
            steps=_STEPS * settings.network_steps, rate=_RATE,
        )  # fmt: skip
        return cls(frames, plan, most, settling, _SPEED_WEIGHT)

    def learner(
        self, plain: HybridDynamics, dynamics: HybridDynamics, whole: Windows, windows: NetworkWindows,
        settings: IdentificationSettings,
    ) -> NetworkLearner:  # fmt: skip
        """Return what is trained; arguments: see `OnRollouts`."""
        past = whole.frames - self.frames - self.settling
        errors = linearise_along(plain, dynamics, whole, past, self.settling, windows.environments, windows.train)
        return LinearisedLearner(dynamics, windows, self.plan, errors, seed=settings.seed)


def residual_scale(dynamics: HybridDynamics, store: Store, windows: Windows) -> Tensor:
    """Return the median error of each position and velocity, shape [2 nv]."""
    errors = held_out_errors(dynamics, store, windows)
    sizes = torch.cat([errors.tangents, errors.velocities], -1).abs().flatten(0, 1)
    scale = sizes.median(0).values.clamp_min(1e-6)
    if store.header.base != "measured":  # its estimate is nothing to learn from
        nv = dynamics.spec.nv
        scale[: dynamics.spec.joints[0].nv] = scale[nv : nv + dynamics.spec.joints[0].nv] = torch.inf
    return scale
