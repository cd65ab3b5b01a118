# SPDX-License-Identifier: Apache-2.0
"""World models in training: windows of each member, their losses, validation by roll-out, calibration at the end."""

from pathlib import Path

import torch
from torch import Tensor

from neurodyn.core.verdict import Verdict, of_data
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Split, Store
from neurodyn.dynamics.guard import Before, Fault, report
from neurodyn.dynamics.interface import Window
from neurodyn.dynamics.world_model.artifact import WORLD_MODEL
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.learn.devices import require_device
from neurodyn.learn.learner import Validation, WindowLearner
from neurodyn.learn.loop import TrainState
from neurodyn.learn.member_parameters import MemberParameters
from neurodyn.learn.optimiser import build_optimiser, trainable
from neurodyn.learn.ranks import here
from neurodyn.learn.world_model.ends import Ends, EpisodeSampler
from neurodyn.learn.world_model.loss import EventWeights, world_model_loss
from neurodyn.learn.world_model.settings import WorldSettings
from neurodyn.learn.world_model.validation import WorldValidation


class WorldModelLearner(WindowLearner):
    """Trains a world model in place; at the end the best one is calibrated on the held-out episodes."""

    def __init__(
        self,
        run: Path,
        model: WorldModel,
        data: Store | Mixture,
        settings: WorldSettings,
        change: Tensor,
        weights: EventWeights,
        *,
        device: str = "cpu",
    ) -> None:
        """Prepare a training.

        Args:
            run: Run directory.
            model: The model, with its statistics.
            data: The trajectories, of one store or of several.
            settings: How to train.
            change: Standard deviation of one frame's change, shape [size].
            weights: Weights of contacts and termination.
            device: Torch device that trains.
        """
        self.device = require_device(device)
        self._run, self._model = run, model.to(self.device)
        self._data, self._settings, self._change = Mixture.of(data), settings, change.to(self.device)
        self._weights = EventWeights(weights.positive.to(self.device), weights.event.to(self.device))
        self.schedule, self.clip = settings.schedule, settings.clip
        self._validation = WorldValidation(self._data, settings, self.device)

    def enter(self, phase: int) -> None:
        """Make optimiser and sampler of a phase."""
        settings, own = self._settings, self._settings.net.trunk == "own"
        self._phase = settings.phases[phase]
        self._parameters = MemberParameters(self._model, self._model.members)
        groups = trainable(self._parameters.views, self._phase.rate)
        self.set_optimiser(build_optimiser(settings.optimiser, groups, weight_decay=settings.weight_decay))
        self._sampler = EpisodeSampler(
            self._data,
            self._phase.context,
            self._phase.forecast,
            members=self._model.members if own else 1,
            bootstrap=settings.bootstrap and own and self._model.members > 1,
            batch=self._phase.batch * here().count,
            seed=settings.seed,
            phase=phase,
            device=self.device,
            rows=here().rows,
        )

    def draw(self) -> None:
        """Draw the next windows, and some that end in a failure."""
        ends = self._sampler.draw_ends() if self._model.terminates else None
        self._batch = (self._sampler.draw(), ends)

    def windows(self) -> int:
        """Return how many windows each member has, those that end in a failure last."""
        batch, ends = self._batch
        return batch.q.shape[1] + (0 if ends is None else ends.windows.q.shape[1])

    def take(self, rows: Tensor) -> None:
        """Replace the batch by the windows at some places of each member's batch."""
        batch, ends = self._batch
        whole = batch.q.shape[1]
        late = rows[rows >= whole] - whole
        self._batch = (
            batch.rows((slice(None), rows[rows < whole])),
            None if ends is None or not len(late) else Ends(ends.windows.rows((slice(None), late)), ends.weight),
        )

    def broken(self, row: int) -> None:
        """Report a window on which the model, or its gradient, breaks down."""
        self.take(torch.tensor([row]))
        batch, ends = self._batch
        windows = batch if batch.q.shape[1] else ends.windows
        where, frames = f"training of a world model of {self._model.spec.robot!r}", windows.control.shape[2]
        parts = (windows.q, windows.qd, windows.control, windows.channels)
        # Of the members' windows at this place the first that is not finite; where all are, the first.
        sound = torch.stack([x[:, 0].isfinite().all((-1, -2)) for x in parts if x is not None]).all(0)
        m = int(sound.int().argmin())
        q, qd, control, channels = (None if x is None else x[m] for x in parts)
        window = Window(q, qd, control, channels)  # pyright: ignore[reportArgumentType]
        fault = Fault(where, row, frames, "the gradient", None, None, None)
        report(fault, Before(self._model.spec, window))

    def zero_gradients(self) -> None:
        """Forget the gradients of the ensemble, which the optimiser sees views of."""
        self._model.zero_grad(set_to_none=True)

    def loss(self) -> Tensor:
        """Return the loss of the batch, by member."""
        batch, ends = self._batch
        return world_model_loss(
            self._model, batch, self._phase, self._settings, self._change, self._weights, ends
        )  # fmt: skip

    def clip_gradients(self) -> Tensor:
        """Cut each member's gradient off by itself."""
        return self._parameters.take_gradients(self.clip)

    def verdicts(self, at: TrainState) -> list[Verdict]:
        """Judge the data."""
        return [of_data(*self._data.amount(Split.TRAIN))]

    def validate(self, at: TrainState) -> Validation:
        """Roll out along held-out windows."""
        error = self._validation.measure(self._model)
        values = {
            "rollout": dict(zip(self._model.observation.names, error.columns, strict=True)),
            "within_two_sigma": error.coverage,
        }
        return Validation(error.score, values, f"held-out roll-out error: {error.score:.3g} standard deviations")

    def keep(self, at: TrainState) -> None:
        """Write the model to the run directory."""
        if at.step:  # a model that is fine-tuned was fitted before
            self._model.fitted.fill_(True)
        WORLD_MODEL.save(self._run, self._model)

    def finish(self, at: TrainState) -> None:
        """Calibrate the best model on more held-out windows."""
        best = WORLD_MODEL.load(self._run).to(self.device)
        self._validation.calibrate(best)
        WORLD_MODEL.save(self._run, best)
