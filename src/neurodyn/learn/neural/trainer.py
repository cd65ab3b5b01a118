# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics in training: their windows, their loss, and validation by roll-out.

The members of an ensemble are trained side by side, and none knows of the others: each has windows of its own, its own
part of the optimiser's statistics, and a gradient that is cut off by itself.
"""

from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.seeds import derive_seed
from neurodyn.core.verdict import Verdict, of_data
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.store import Split, Store
from neurodyn.data.stored_rows import IN_MEMORY
from neurodyn.dynamics.guard import Before, Fault, fault_of, guard_bounds_of, report
from neurodyn.dynamics.interface import State, Window
from neurodyn.dynamics.neural.artifact import NEURAL
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.learn.bootstrap import MemberSampler
from neurodyn.learn.devices import require_device
from neurodyn.learn.learner import Validation, WindowLearner
from neurodyn.learn.loop import TrainState
from neurodyn.learn.member_parameters import MemberParameters
from neurodyn.learn.neural.loss import Part, Scale, total_weight, training_loss
from neurodyn.learn.neural.settings import Settings
from neurodyn.learn.neural.validation import RolloutValidation
from neurodyn.learn.optimiser import build_optimiser, trainable
from neurodyn.learn.ranks import here


class NeuralLearner(WindowLearner):
    """Trains neural dynamics in place and keeps the best by held-out roll-outs."""

    def __init__(
        self,
        run: Path,
        model: NeuralDynamics,
        store: Store | Mixture,
        settings: Settings,
        scale: Scale,
        *,
        device: str = "cpu",
    ) -> None:
        self.device = require_device(device)
        self._run, self._model = run, model.to(self.device)
        self._data, self._settings, self._scale = Mixture.of(store), settings, scale.to(self.device)
        self.schedule, self.clip = settings.schedule, settings.clip
        self._validation = RolloutValidation(self._data, settings, self.device)
        self._environments = [RecordedEnvironments(part, self.device) for part in self._data.stores]

    def enter(self, phase: int) -> None:
        """Make optimiser and sampler of a phase."""
        self._phase, settings = self._settings.phases[phase], self._settings
        several, ranks = self._model.members > 1, here()
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

    def draw(self) -> None:
        """Draw the next windows."""
        drawn = self._sampler.draw_rows()
        self._batch = [Part(batch, self._environments[n].of(batch), members) for n, batch, members in drawn]

    def loss(self) -> Tensor:
        """Return the loss of the batch, by member."""
        return training_loss(self._model, self._batch, self._phase, self._scale)

    def batch_weight(self) -> Tensor | None:
        """Return the sum of the windows' weights, by member, where they are balanced."""
        return total_weight(self._model, self._batch, self._phase, self._scale)

    def windows(self) -> int:
        """Return how many windows the batch has; of members, how many each has."""
        return sum(len(part.batch.q) for part in self._batch) // self._model.members

    def take(self, rows: Tensor) -> None:
        """Replace the batch by some of its windows; of members, by those at the same places of each member's batch."""
        wanted = torch.zeros(self.windows(), dtype=torch.bool)
        wanted[rows] = True
        parts, before = [], [0] * self._model.members
        for part in self._batch:
            members = torch.zeros(len(part.batch.q), dtype=torch.int64) if part.members is None else part.members
            places = torch.empty_like(members)
            for m in range(self._model.members):
                own = members == m
                count = int(own.sum())
                places[own] = torch.arange(before[m], before[m] + count)
                before[m] += count
            own = wanted[places].nonzero()[:, 0]
            if len(own):
                environment = None if part.environment is None else part.environment.rows(own)
                parts.append(
                    Part(part.batch.rows(own), environment, None if part.members is None else part.members[own])
                )
        self._batch = parts

    @torch.no_grad()
    def broken(self, row: int) -> None:
        """Report a window on which the model breaks down: where its roll-out does, or its gradient."""
        self.take(torch.tensor([row]))
        found = [(part, self._fault(part)) for part in self._batch]
        part, fault = next(((part, fault) for part, fault in found if fault is not None), (self._batch[0], None))
        batch, world = part.batch, 0 if fault is None else fault.world
        frames = batch.control.shape[1]
        if fault is None:
            fault = Fault(self._where, 0, frames, "the gradient", None, None, None)
        last = max(1, min(fault.frame, frames))
        own = slice(world, world + 1)
        window = Window(batch.q[own, : last + 1], batch.qd[own, : last + 1], batch.control[own, :last])
        before = Before(self._model.spec, window, part.environment, world)
        report(msgspec.structs.replace(fault, world=row), before)

    @property
    def _where(self) -> str:
        return f"training of neural dynamics of {self._model.spec.robot!r}"

    def _fault(self, part: Part) -> Fault | None:
        """Return where roll-outs along windows break down; None where they do not."""
        batch = part.batch
        state = State(batch.q[:, 0], batch.qd[:, 0])
        predicted = self._model._rollout(state, batch.control, part.environment)
        return fault_of(guard_bounds_of(self._model), predicted, self._where)

    def zero_gradients(self) -> None:
        """Forget the gradients; the optimiser sees views of those of members."""
        self._model.zero_grad(set_to_none=True)

    def clip_gradients(self) -> Tensor:
        """Cut the gradient off, that of each member by itself."""
        return super().clip_gradients() if self._parameters is None else self._parameters.take_gradients(self.clip)

    def validate(self, at: TrainState) -> Validation:
        """Roll out along held-out windows."""
        error, spec = self._validation.measure(self._model), self._model.spec
        values = {
            "rollout_q": dict(zip(spec.tangent_names, error.q, strict=True)),
            "rollout_qd": dict(zip(spec.qd_names, error.qd, strict=True)),
        }
        shown = "  ".join(f"{name} {value:.2g} {unit}" for name, value, unit in _by_size(spec, error.q))
        return Validation(error.score, values, f"held-out roll-out error: {shown}")

    def finish(self, at: TrainState) -> None:
        """Calibrate the best members on more held-out windows."""
        if self._model.members > 1:
            best = NEURAL.load(self._run).to(self.device)
            self._validation.calibrate(best)
            NEURAL.save(self._run, best)

    def verdicts(self, at: TrainState) -> list[Verdict]:
        """Judge the data, and the network beside its base."""
        found = [of_data(*self._data.amount(Split.TRAIN))]
        base = self._validation.base_score(self._model)
        if base is not None and at.best is not None and at.best >= base:
            found.append(
                Verdict(
                    "warning", "the network adds nothing to its base on held-out episodes: the base alone is as good",
                    "use the base, or give more data or a larger budget",
                )
            )  # fmt: skip
        return found

    def closing(self, at: TrainState) -> dict[str, Any]:
        """Return the best score beside that of the base alone, where that leaves nothing out."""
        base = self._validation.base_score(self._model)
        return {} if base is None else {"base_score": base, "best_score": at.best}

    def keep(self, at: TrainState) -> None:
        """Write the model to the run directory."""
        NEURAL.save(self._run, self._model)


def _by_size(spec: StateSpec, errors: tuple[float, ...], most: int = 4) -> list[tuple[str, float, str]]:
    """Return name, error and unit of the positions; of many, the largest."""
    named = list(zip(spec.tangent_names, errors, spec.tangent_units, strict=True))
    return named if len(named) <= most else sorted(named, key=lambda entry: -entry[1])[:most]
