# SPDX-License-Identifier: Apache-2.0
"""Learner of neural dynamics: losses of teacher forcing and of forecasts from the model's own states."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.seeds import derive_seed
from neurodyn.core.verdict import Finding, of_data
from neurodyn.data.header import Split, Status
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.store import IN_MEMORY, Store
from neurodyn.data.windows import Windows, concatenate
from neurodyn.dynamics.batch import Control, Environment, RecordedEnvironments, State, Window
from neurodyn.dynamics.capture import CapturedGradient, Recorder, cuda_graph
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.ensemble import Groups
from neurodyn.dynamics.guard import Fault, FaultHistory, fault_of, report
from neurodyn.dynamics.neural.model import NEURAL, NeuralDynamics
from neurodyn.learn.budget import TrainState
from neurodyn.learn.devices import current_ranks, require_device
from neurodyn.learn.learner import Validation, WindowLearner
from neurodyn.learn.neural.policy_rollouts import LoggedActor, PolicyRolloutTerm
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.validation import RolloutValidation
from neurodyn.learn.optimiser import MemberParameters, build_optimiser, trainable
from neurodyn.learn.samplers import MemberSampler


@dataclass(frozen=True)
class LossScale:
    """Standard deviations of the changes in one frame, the unit of forecast errors.

    Attributes:
        dq: Of positions [rad or m], shape [nv].
        dqd: Of velocities [rad/s or m/s], shape [nv].
    """

    dq: Tensor
    dqd: Tensor

    def to(self, device: torch.device) -> "LossScale":
        """Return the scale on another device."""
        return LossScale(self.dq.to(device), self.dqd.to(device))


@dataclass(frozen=True)
class LossPart:
    """Windows of one store.

    Attributes:
        batch: The windows.
        environment: Their environment, one world for each window; None for the model's own.
        members: Member that learns from each window, shape [B]; None for a model of one network.
        store: Number of the store.
    """

    batch: Windows
    environment: Environment | None = None
    members: Tensor | None = None
    store: int = 0


def training_loss(model: NeuralDynamics, parts: Sequence[LossPart], phase: Phase, scale: LossScale) -> Tensor:
    """Return the loss of each member over its windows, shape [members]; all members have the same number of windows."""
    errors_of = _forecast_errors if phase.forecast else _teacher_forced_errors
    errors = torch.cat([errors_of(model, part, phase, scale) for part in parts])
    weights = None if phase.balance is None else _weights([part.batch for part in parts], phase.balance, scale)
    by_member = _by_member(model, parts)
    return _mean(by_member(errors), None if weights is None else by_member(weights))


def total_weight(model: NeuralDynamics, parts: Sequence[LossPart], phase: Phase, scale: LossScale) -> Tensor | None:
    """Return the sum of the windows' weights, shape [members]; None for equal weights."""
    if phase.balance is None:
        return None
    return _by_member(model, parts)(_weights([part.batch for part in parts], phase.balance, scale)).sum(-1)


def _by_member(model: NeuralDynamics, parts: Sequence[LossPart]) -> Callable[[Tensor], Tensor]:
    """Return a function that groups values of windows by member, [B] -> [members, B / members]."""
    members = [part.members for part in parts if part.members is not None]
    if not members:
        return lambda values: values[None]
    return Groups.of(torch.cat(members), model.members, parts[0].batch.q.device).gather


def _teacher_forced_errors(model: NeuralDynamics, part: LossPart, phase: Phase, scale: LossScale) -> Tensor:
    """Return mean errors of one-frame predictions from true states, in normalised units, shape [B]."""
    batch, q, qd = part.batch, part.batch.q, part.batch.qd
    base_prediction, prediction = model(q[:, :-1], qd[:, :-1], batch.control, part.environment, part.members)
    target = model.encoding.target(base_prediction, q[:, 1:], qd[:, 1:])
    if model.encoding.impulses is not None:
        environment = model.resolve_environment(part.environment)
        output = model.predictor.denormaliser.inverse(prediction)
        error = model.encoding.changes(base_prediction, output, environment) - target
        return _measure(error / model.encoding.impulses.change, phase).mean((1, 2))
    return _measure(prediction - model.predictor.normalise_target(target), phase).mean((1, 2))


def _forecast_errors(model: NeuralDynamics, part: LossPart, phase: Phase, scale: LossScale) -> Tensor:
    """Return mean errors of a forecast after `phase.context` frames, in units of one frame's change, shape [B]."""
    batch, first, frames = part.batch, phase.context, part.batch.control.shape[1]
    past = Window(batch.q[:, : first + 1], batch.qd[:, : first + 1], batch.control[:, :first])
    carry = model.begin(past if first else past.present, part.environment, members=part.members, alone=True)
    state = past.present
    total = batch.q.new_zeros(batch.q.shape[0])
    for t in range(first, frames):
        carry, step = model.step(carry, state, Control(torque=batch.control[:, t]))
        state = step.state
        total = total + _state_error(model, state, State(batch.q[:, t + 1], batch.qd[:, t + 1]), phase, scale)
    return total / (frames - first)


def _state_error(model: NeuralDynamics, state: State, truth: State, phase: Phase, scale: LossScale) -> Tensor:
    position = position_difference(model.spec, state.q, truth.q) / scale.dq
    velocity = (state.qd - truth.qd) / scale.dqd
    return _measure(torch.cat([position, velocity], dim=-1), phase).mean(-1)


def _weights(batches: Sequence[Windows], balance: float, scale: LossScale) -> Tensor:
    """Return weights of windows, larger for less motion, shape [B]."""
    qd = torch.cat([batch.qd for batch in batches])
    change = ((qd[:, 1:] - qd[:, :-1]) / scale.dqd).abs().mean((1, 2))
    return 1 / (change + balance)


def _mean(errors: Tensor, weights: Tensor | None) -> Tensor:
    """Return mean errors, weighted if weights are given, [members, B] -> [members]."""
    return errors.mean(-1) if weights is None else (weights * errors).sum(-1) / weights.sum(-1)


def _measure(error: Tensor, phase: Phase) -> Tensor:
    return error.abs() if phase.loss == "absolute" else error.square()


_SHOWN = 4
"""Most positions whose errors are printed."""
_MOST_GRAPHS = 8
"""Most batch layouts to record; the number of windows from each store of a mixture varies by one."""


class NeuralLearner(WindowLearner):
    """Trains neural dynamics in place, and keeps the best ones by held-out roll-outs."""

    def __init__(
        self,
        run: Path,
        model: NeuralDynamics,
        store: Store | Mixture,
        settings: Settings,
        scale: LossScale,
        *,
        device: str = "cpu",
        record: Recorder = cuda_graph,
        actors: Sequence[LoggedActor] = (),
    ) -> None:
        self.device, self._record = require_device(device), record
        self._run, self._model = run, model.to(self.device)
        self._data, self._settings, self._scale = Mixture.of(store), settings, scale.to(self.device)
        self._actors, self._rollouts = actors, None
        self.schedule, self.clip = settings.schedule, settings.clip
        self._validation = RolloutValidation(self._data, settings, self.device)
        self._environments = [
            RecordedEnvironments(part, self.device, tuple(part.header.parameters)) for part in self._data.stores
        ]

    def start_phase(self, phase: int) -> None:
        """Build optimiser and sampler of a phase."""
        self._phase, settings = self._settings.phases[phase], self._settings
        self._captured: dict[tuple[tuple[int, int], ...], CapturedGradient] = {}
        several, ranks = self._model.members > 1, current_ranks()
        self._parameters = MemberParameters(self._model, self._model.members) if several else None
        weights = self._model.parameters() if self._parameters is None else self._parameters.views
        groups = trainable(weights, self._phase.rate)
        self.set_optimiser(build_optimiser(settings.optimiser, groups, weight_decay=settings.weight_decay))
        if several:
            self._sampler = MemberSampler(
                self._data, self._phase.window, members=self._model.members, bootstrap=settings.bootstrap,
                batch=self._phase.batch * ranks.count, seed=settings.seed, phase=phase, device=self.device,
                rows=ranks.rows,
            )  # fmt: skip
        else:
            self._sampler = MixtureSampler(
                self._data, self._phase.window, batch=self._phase.batch * ranks.count,
                seed=derive_seed(settings.seed, "batches", phase), device=self.device, stream=IN_MEMORY,
                rows=ranks.rows,
            )  # fmt: skip
        self._rollouts, asked = None, self._phase.policy_rollouts
        if asked is not None:
            seed = derive_seed(settings.seed, "policy rollouts", phase)
            term = PolicyRolloutTerm(self._model, self._data, self._actors, asked, seed, self.device)
            self._rollouts = term if term.usable else None

    def draw(self) -> None:
        """Draw the next windows, and roll-outs in phases that have them."""
        if self._rollouts is not None:
            self._rollouts.draw()
        drawn = self._sampler.draw_rows()
        if len(drawn) > 1 and self._capturable and self._alike:
            drawn = [(0, concatenate([batch for _, batch, _ in drawn]), None)]  # one shape in every step
        self._batch = [LossPart(batch, self._environments[n].of(batch), members, n) for n, batch, members in drawn]

    def loss(self) -> Tensor:
        """Return the loss of the batch, by member."""
        return training_loss(self._model, self._batch, self._phase, self._scale)

    def differentiate(self, share: Tensor | float = 1.0) -> Tensor:
        """See `GradientLearner.differentiate`; the gradient of roll-outs is added, each clipped."""
        loss = self._differentiate(share)
        if self._rollouts is not None:
            weights = [p for p in self._model.parameters() if p.requires_grad]
            for p, own, further in zip(
                weights, self._clip([p.grad for p in weights]), self._clip(self._rollouts.gradients(weights)),
                strict=True,
            ):  # fmt: skip
                p.grad = further if own is None else own + further
        return loss

    def _clip(self, gradients: Sequence[Tensor | None]) -> list[Any]:
        norm = torch.stack([g.norm() for g in gradients if g is not None]).norm()
        factor = (self.clip / (norm + 1e-12)).clamp_max(1.0)
        return [None if g is None else factor * g for g in gradients]

    def _differentiate(self, share: Tensor | float) -> Tensor:
        """Set the gradients of the windows; on a GPU by a CUDA graph if possible."""
        sizes = tuple((part.store, len(part.batch.q)) for part in self._batch)
        new, whole = sizes not in self._captured, not isinstance(share, Tensor) and share == 1.0
        if not (whole and self._capturable) or (new and len(self._captured) == _MOST_GRAPHS):
            return super().differentiate(share)
        batches = [part.batch for part in self._batch]
        if new:
            environments = [self._environments[store] for store, _ in sizes]
            self._captured[sizes] = CapturedGradient(
                partial(self._loss_of, environments), batches, self._model.parameters(), record=self._record
            )
        return self._captured[sizes](batches)

    @property
    def _capturable(self) -> bool:
        """Whether the batch can be captured: one network, on a GPU, from stores without per-world quantities."""
        graphs = self.device.type == "cuda" or self._record is not cuda_graph
        return graphs and self._model.members == 1 and not any(s.header.parameters for s in self._data.stores)

    @cached_property
    def _alike(self) -> bool:
        """Whether all stores share the first one's scene, gravity and window fields."""
        stores = []
        for store in self._data.stores:
            own = store.header.fingerprint
            fields = store.ground is None, bool((store.status == Status.TERMINATED).any())
            stores.append((store.header.scene, None if own is None else own.gravity, fields))
        return all(one == stores[0] for one in stores)

    def _loss_of(
        self, environments: Sequence[RecordedEnvironments], batches: Sequence[Windows]
    ) -> Callable[[], Tensor]:
        """Return the loss as a function of the batches' current contents."""
        # Built only once: the checks of an environment read it, which stalls a GPU.
        parts = [LossPart(batch, where.of(batch)) for where, batch in zip(environments, batches, strict=True)]
        return lambda: training_loss(self._model, parts, self._phase, self._scale)

    def batch_weight(self) -> Tensor | None:
        """Return the sum of the windows' weights, shape [members]; None for equal weights."""
        return total_weight(self._model, self._batch, self._phase, self._scale)

    def windows(self) -> int:
        """Return the number of windows in the batch of each member."""
        return sum(len(part.batch.q) for part in self._batch) // self._model.members

    def keep_windows(self, rows: Tensor) -> None:
        """Replace the batch by the windows at some indices in each member's batch."""
        wanted = torch.zeros(self.windows(), dtype=torch.bool)
        wanted[rows] = True
        parts, before = [], [0] * self._model.members
        for part in self._batch:
            members = torch.zeros(len(part.batch.q), dtype=torch.int64) if part.members is None else part.members
            places = torch.empty_like(members)
            for m in range(self._model.members):
                of_member = members == m
                count = int(of_member.sum())
                places[of_member] = torch.arange(before[m], before[m] + count)
                before[m] += count
            of_member = wanted[places].nonzero()[:, 0]
            if len(of_member):
                environment = None if part.environment is None else part.environment.rows(of_member)
                kept = None if part.members is None else part.members[of_member]
                parts.append(LossPart(part.batch.rows(of_member), environment, kept, part.store))
        self._batch = parts

    @torch.no_grad()
    def report_breakdown(self, row: int) -> None:
        """Report a window on which the roll-out or its gradient breaks down."""
        self.keep_windows(torch.tensor([row]))
        faults = [(part, self._fault(part)) for part in self._batch]
        part, fault = next(((part, fault) for part, fault in faults if fault is not None), (self._batch[0], None))
        batch, world = part.batch, 0 if fault is None else fault.world
        frames = batch.control.shape[1]
        if fault is None:
            fault = Fault(self._where, 0, frames, "the gradient", None, None, None)
        last = max(1, min(fault.frame, frames))
        own = slice(world, world + 1)
        window = Window(batch.q[own, : last + 1], batch.qd[own, : last + 1], batch.control[own, :last])
        before = FaultHistory(self._model.spec, window, part.environment, world)
        report(msgspec.structs.replace(fault, world=row), before)

    @property
    def _where(self) -> str:
        return f"training of neural dynamics of {self._model.spec.robot!r}"

    def _fault(self, part: LossPart) -> Fault | None:
        """Return where roll-outs along windows break down; None if they do not."""
        batch = part.batch
        state = State(batch.q[:, 0], batch.qd[:, 0])
        predicted = self._model._rollout(state, batch.control, part.environment)
        return fault_of(self._model.rollout_bounds, predicted, self._where)

    def validate(self, train_state: TrainState) -> Validation:
        """Roll out along held-out windows."""
        error, spec = self._validation.measure(self._model), self._model.spec
        values: dict[str, Any] = {
            "rollout_q": dict(zip(spec.tangent_names, error.q, strict=True)),
            "rollout_qd": dict(zip(spec.qd_names, error.qd, strict=True)),
        }
        if self._rollouts is not None:
            values["policy_rollouts"] = self._rollouts.mismatch
        shown = "  ".join(f"{name} {value:.2g} {unit}" for name, value, unit in _by_size(spec, error.q))
        return Validation.of_ranking(error.ranking, values, f"held-out roll-out error: {shown}")

    def finish(self, train_state: TrainState) -> None:
        """Calibrate the best members on more held-out windows, and keep what they have seen."""
        best = NEURAL.load(self._run).to(self.device)
        if train_state.best_step or not best.known_inputs.fitted:  # a base that was kept has learned nothing
            best.remember_inputs(self._data, self._model, self._settings.seed)
        if self._model.members > 1:
            self._validation.calibrate(best)
        NEURAL.save(self._run, best)

    def verdicts(self, train_state: TrainState) -> list[Finding]:
        """Judge the amount of data, and the network in comparison with its base."""
        verdicts = [of_data(*self._data.amount(Split.TRAIN))]
        if train_state.broken < 1.0:
            verdicts += self._validation.beside_baselines(NEURAL.load(self._run).to(self.device))
        base = self._validation.base_ranking(self._model)
        if base is not None and train_state.best is not None and (train_state.broken, train_state.best) >= base:
            verdicts.append(
                Finding(
                    "base", "warning",
                    "the network adds nothing to its base on held-out episodes: the base alone is as good",
                    "use the base, or give more data or a larger budget",
                )
            )  # fmt: skip
        return verdicts

    def closing_metrics(self, train_state: TrainState) -> dict[str, Any]:
        """Return the best score and that of the base alone, if the base is whole."""
        base = self._validation.base_ranking(self._model)
        return {} if base is None else {"base_score": base.error, "best_score": train_state.best}

    def state(self) -> dict[str, Any]:
        """Return the states of model, optimiser, sampler and roll-outs."""
        return super().state() | ({} if self._rollouts is None else {"policy_rollouts": self._rollouts.state_dict()})

    def load(self, saved: dict[str, Any]) -> None:
        """Restore `state`."""
        super().load(saved)
        if self._rollouts is not None:
            self._rollouts.load_state_dict(saved["policy_rollouts"])

    def keep(self, train_state: TrainState) -> None:
        """Write the model to the run directory."""
        NEURAL.save(self._run, self._model)


def _by_size(spec: StateSpec, errors: tuple[float, ...]) -> list[tuple[str, float, str]]:
    """Return name, error and unit of the positions, if there are many only of the largest errors."""
    named = list(zip(spec.tangent_names, errors, spec.tangent_units, strict=True))
    return named if len(named) <= _SHOWN else sorted(named, key=lambda entry: -entry[1])[:_SHOWN]
