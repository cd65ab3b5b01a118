# SPDX-License-Identifier: Apache-2.0
"""Initial policies from a log alone, by hindsight relabelling (Andrychowicz et al., arXiv 1707.01495).

A log may hold no commands. The motion of the next half second serves as the command that the logged control followed.
Training in imagination starts from a policy that imitates these pairs instead of a random one.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split, Status
from neurodyn.data.mixture import Mixture, MixtureSampler
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.interface import Dynamics
from neurodyn.learn.budget import TrainingBudget
from neurodyn.learn.learner import GradientLearner, OptimiserStep
from neurodyn.learn.loop import TrainingLoop
from neurodyn.learn.optimiser import build_optimiser, trainable
from neurodyn.policy.artifact import KNOWN
from neurodyn.policy.settings import CloneSettings
from neurodyn.tasks import Task

_NORMALISING = 20  # batches for the initial normalisation of observations
_RECENT = 50  # steps over which the error is averaged


class Demonstrations:
    """Pairs of observations and actions from a log."""

    def __init__(
        self, task: Task, dynamics: Dynamics, log: Store | Mixture, batch: int, seed: int, *, best: float = 1.0
    ) -> None:
        """Prepare batches of `batch` observations; raises an InputError if no episode is long enough.

        `dynamics` is a model of the log, which computes its quantities. `best` is the share of frames to draw from, in
        the episodes with the highest mean reward, if the log has rewards.
        """
        self._task, self._dynamics = task, dynamics
        mixture, stream = Mixture.of(log), derive_seed(seed, "demonstrations")
        chosen = [best_episodes(store, best) for store in mixture.stores]
        self._sampler = MixtureSampler(mixture, 1 + task.foresight, batch=batch, seed=stream, episodes=chosen)
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "demonstrations", "noise"))
        self._noise = torch.tensor(task.noise) if task.noise else None

    def draw(self) -> tuple[Tensor, Tensor]:
        """Return observations, shape [batch, observations], and actions, shape [batch, actions].

        Raises:
            InputError: The task cannot invert a control to actions.
        """
        task, batch = self._task, self._sampler.draw_together()
        channels = batch.channels
        now = self._dynamics.quantities(
            State(batch.q[:, 1], batch.qd[:, 1], None if channels is None else channels[:, 1])
        )
        ahead = State(*(None if x is None else x[:, 2:].flatten(0, 1) for x in (batch.q, batch.qd, channels)))  # type: ignore[arg-type]
        memory = replace(
            task.begin(now, self._generator),
            action=task.action_of(batch.control[:, 0]),
            command=task.hindsight(self._dynamics.quantities(ahead)),
        )
        seen = task.observe(now, memory)
        if self._noise is not None:
            seen = seen + self._noise * (2.0 * torch.rand(seen.shape, generator=self._generator) - 1.0)
        return seen, task.action_of(batch.control[:, 1]).clamp(-task.limit, task.limit)


def best_episodes(log: Store, share: float, split: int = Split.TRAIN) -> np.ndarray:
    """Return the episodes of a split with the highest mean reward that together hold a share of its frames.

    Failed episodes come last. Without rewards in the log, return all episodes.
    """
    episodes, returns = episodes_of(log, split), log.returns
    if returns is None or share >= 1.0:
        return episodes
    lengths = log.lengths[episodes]
    mean = returns[episodes] / np.maximum(lengths, 1)
    order = np.lexsort((-mean, log.status[episodes] == Status.TERMINATED))
    count = int(np.searchsorted(np.cumsum(lengths[order]), share * lengths.sum())) + 1
    return np.sort(episodes[order[:count]])


def clone(actor: Any, critic: Any, demonstrations: Demonstrations, settings: CloneSettings) -> float:
    """Train an rsl_rl actor (MLPModel) to imitate demonstrations; return the final RMS error of the actions.

    The critic only copies the normalisation of observations.
    """
    for _ in range(_NORMALISING):
        seen = _policy_group(demonstrations.draw()[0])
        actor.update_normalization(seen)
        critic.update_normalization(seen)
    learner = CloneLearner(actor, demonstrations, settings)
    TrainingLoop(learner, TrainingBudget(settings.steps)).run()
    for model in (actor, critic):
        count = getattr(model.obs_normalizer, "count", None)
        if count is not None:  # otherwise the first imagined frames would change the imitated policy
            count.fill_(KNOWN)
    return learner.error**0.5


class CloneLearner(GradientLearner):
    """Imitation of demonstrations by an actor; `error` is the running mean squared error of its actions."""

    clip = math.inf

    def __init__(self, actor: Any, demonstrations: Demonstrations, settings: CloneSettings) -> None:
        self._actor, self._demonstrations, self._settings = actor, demonstrations, settings
        self.error, self._count = 0.0, 0

    def start_phase(self, phase: int) -> None:
        """Build the optimiser."""
        self.set_optimiser(build_optimiser("adam", trainable(self._actor.mlp.parameters(), self._settings.rate)))

    def draw(self) -> None:
        """Draw observations and actions."""
        self._seen, self._wanted = self._demonstrations.draw()

    def loss(self) -> Tensor:
        """Return the mean squared error of the actions."""
        return (self._actor(_policy_group(self._seen)) - self._wanted).square().mean()

    def after_step(self, step: OptimiserStep) -> None:
        """Update the running error."""
        self._count = min(self._count + 1, _RECENT)
        self.error += (float(step.loss) - self.error) / self._count


def _policy_group(seen: Tensor) -> TensorDict:
    return TensorDict({"policy": seen}, batch_size=[len(seen)])
