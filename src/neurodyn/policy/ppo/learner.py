# SPDX-License-Identifier: Apache-2.0
"""A policy that PPO trains: rsl_rl's runner in the training loop of the library."""

import contextlib
import io
import math
from pathlib import Path
from typing import Any, cast

import torch
from rsl_rl.models import MLPModel
from rsl_rl.runners import OnPolicyRunner
from torch import nn

from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.returns import Outcome
from neurodyn.control.starts import Starts
from neurodyn.learn.learner import Step
from neurodyn.learn.loop import TrainState
from neurodyn.learn.ranks import here
from neurodyn.policy.artifact import read_weights, save_policy
from neurodyn.policy.cloning import Demonstrations, clone
from neurodyn.policy.learner import PolicyLearner
from neurodyn.policy.penalty import AUTO, certainty_rule
from neurodyn.policy.ppo.update import LEAST_RATE
from neurodyn.policy.settings import PolicySettings
from neurodyn.policy.warm_start import brings_critic, critic_updates, warm_start
from neurodyn.tasks import Task


class _Losses:
    """Stands where rsl_rl's logger does, and keeps the losses of the last update; nothing is written."""

    writer = None
    log_dir = None

    def __init__(self) -> None:
        self.losses: dict[str, float] = {}

    def init_logging_writer(self) -> None:
        """Open nothing."""

    def process_env_step(self, *_: Any) -> None:
        """Leave episodes to the environment, which counts them."""

    def log(self, *, loss_dict: dict[str, float], **_: Any) -> None:
        """Keep the losses."""
        self.losses = dict(loss_dict)


class _Runner(OnPolicyRunner):
    """rsl_rl's runner among the processes of `learn.ranks`; rsl_rl would look for some itself, on GPUs alone."""

    def _configure_multi_gpu(self) -> None:
        ranks = here()
        self.is_distributed, self.gpu_world_size = False, ranks.count  # weights are equal already
        self.gpu_local_rank = self.gpu_global_rank = ranks.rank
        several = {"global_rank": ranks.rank, "local_rank": ranks.rank, "world_size": ranks.count}
        self.cfg["multi_gpu"] = several if ranks.count > 1 else None


class PpoLearner(PolicyLearner):
    """One policy in training: a step is an update of PPO."""

    _settings: PolicySettings

    def __init__(
        self,
        out: Path,
        task: Task,
        where: ResolvedDynamics,
        settings: PolicySettings,
        reference: ResolvedDynamics | None = None,
        *,
        initial: Path | None = None,
        starts: Starts | None = None,
    ) -> None:
        """Build worlds, network and learner; arguments and errors are those of `train_policy`."""
        best = 1.0 if settings.clone is None else settings.clone.best
        self._rule = certainty_rule(where.dynamics, where.log, best) if settings.penalty == AUTO else None
        self._uncertain, self._certain = 0.0, True
        super().__init__(out, task, where, settings, reference, initial=initial, starts=starts)
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
            self.runner = _Runner(self._world, settings.runner(), None, str(self._world.device))
        self._losses = _Losses()
        self.runner.logger = cast(Any, self._losses)

    @property
    def actor(self) -> MLPModel:
        """The network that acts."""
        return self.runner.alg.get_policy()

    def networks(self) -> list[nn.Module]:
        """Return policy and critic."""
        return [self.runner.alg.actor, self.runner.alg.critic]

    def begin(self, at: TrainState) -> None:
        """Start from an earlier policy or from what the log shows, where that is asked for and there is one."""
        settings, where = self._settings, self._where
        if self._initial is not None and not at.step:
            self._take_over(self._initial)
        if settings.clone is None or where.log is None or at.step:
            return
        shown = Demonstrations(
            self._task, where.dynamics, where.log, settings.clone.batch, settings.seed, best=settings.clone.best
        )
        clone(self.runner.alg.actor, self.runner.alg.critic, shown, settings.clone)

    def _take_over(self, folder: Path) -> None:
        """Go on with a policy; with the optimiser, too, where PPO trained it."""
        alg = self.runner.alg
        rest = warm_start(alg.actor, alg.critic, folder, self._settings)
        if "optimizer_state_dict" in rest:
            alg.optimizer.load_state_dict(rest["optimizer_state_dict"])
            alg.learning_rate = alg.optimizer.param_groups[0]["lr"]
        elif brings_critic(folder, self._settings) and self._settings.schedule == "adaptive":
            alg.learning_rate = LEAST_RATE  # what another algorithm trained is not undone by the first steps

    def step(self, done: float, at: TrainState) -> Step:
        """Roll out and update; what was imitated or given stays until the critic knows what it is worth."""
        settings = self._settings
        updates = critic_updates(self._initial, settings)
        if settings.clone is not None and self._where.log is not None:
            updates = settings.clone.critic
        held = at.step < updates
        if updates and at.step == updates:
            self._release(at)
        self.runner.alg.actor.requires_grad_(not held)
        before = self._world.uncertainty
        self.runner.learn(1, init_at_random_ep_len=at.step == 0)
        self._uncertain = here().mean((self._world.uncertainty - before) / settings.horizon)
        means = here().total(list(self._losses.losses.values()))
        self.losses = {name: value / here().count for name, value in zip(self._losses.losses, means, strict=True)}
        if self._rule is not None and held:
            self._rule.watch(self._uncertain)
        elif self._rule is not None:
            self._world.set_penalty(self._rule.update(self._uncertain))
        self.keep_now_and_then(at)
        finite = all(math.isfinite(value) for value in self.losses.values())
        return Step(rate=self.runner.alg.learning_rate, taken=finite)

    def _release(self, at: TrainState) -> None:
        """Let the policy learn, too; under a rule for lambda the first is kept until another is as certain."""
        if self._settings.schedule == "adaptive":
            # At the rate at which the critic learned, the first steps would undo what was imitated or given.
            self.runner.alg.learning_rate = LEAST_RATE
        if self._rule is not None:
            uncertain, at.best = here().agree(self._first_kept)
            self._rule.release(uncertain)
            self._rule.kept = 0

    def _first_kept(self) -> tuple[float, float]:
        """Write the policy that another must be as certain as; return its uncertainty and its return."""
        network = self.network
        played = self._play(network, self._plays, self._penalty)
        save_policy(self._out, self._config, network)
        return self._uncertainty(played), float(played.penalised.mean())

    def watch(self, played: Outcome) -> dict[str, float]:
        """Return how uncertain a play was, under a rule for lambda."""
        if self._rule is None:
            return {}
        uncertain = self._uncertainty(played)
        self._certain = self._rule.certain(uncertain)
        return {"uncertainty_training": uncertain}

    def better(self, score: float, best: float) -> bool:
        """Return whether a return is greater; under a penalty that changes, the later one is, if it is certain."""
        return super().better(score, best) if self._rule is None else self._certain

    def keep(self, at: TrainState) -> None:
        """Write the policy that was played; under a rule for lambda, the mean of all that were kept."""
        if self._rule is not None:
            if self._rule.kept:
                network = self._config.build()
                network.take_mean(read_weights(self._out), self._played.state_dict(), 1.0 / (1 + self._rule.kept))
                self._played = network
            self._rule.kept += 1
        super().keep(at)

    def state(self) -> dict[str, Any]:
        """Return the learner, the worlds it learns in (on a CPU), and torch's random state."""
        saved = {
            "learner": self.runner.alg.save(), "penalty": self._penalty, "rate": self.runner.alg.learning_rate,
            "uncertain": self._uncertain,
            **self.of_ranks({"random": torch.get_rng_state(), "worlds": self._world.saved()}),
        }  # fmt: skip
        return saved if self._rule is None else saved | {"rule": self._rule.state()}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from `state`; on a GPU, and from checkpoints of older versions, episodes begin anew."""
        self.runner.alg.load(saved["learner"], None, True)
        self.runner.alg.learning_rate = saved.get("rate", self.runner.alg.learning_rate)
        self._uncertain = saved.get("uncertain", 0.0)
        own = self.of_this_rank(saved)
        if own.get("worlds") is not None:
            self._world.load(own["worlds"])
        torch.set_rng_state(own["random"].cpu())
        if self._rule is not None:
            self._rule.load(saved["rule"])
            self._world.set_penalty(self._rule.value)

    def further(self) -> dict[str, float]:
        """Return lambda, and how uncertain the policy and held-out episodes of the log are, where that is watched."""
        if not self._penalty:
            return {}
        found = {"penalty": self._penalty, "uncertainty": self._uncertain}
        return found if self._rule is None else found | {"uncertainty_log": self._rule.reference}

    @property
    def _penalty(self) -> float:
        return self._rule.value if self._rule is not None else super()._penalty

    def _uncertainty(self, played: Outcome) -> float:
        """Return the mean uncertainty of the frames of a play, which its penalty tells."""
        lost = float((played.returns - played.penalised).sum() / played.lengths.sum())
        return lost / (self._penalty * self._task.penalty_scale)
