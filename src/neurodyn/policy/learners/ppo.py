# SPDX-License-Identifier: Apache-2.0
"""PPO of rsl_rl in the library's training loop, with a faster update on a CPU that is equal up to rounding.

An update takes 0.49 (cartpole, batches of 8192) and 0.59 (ant, 4096) of the CPU time of rsl_rl 5.5's own, on a
processor of AMD (`nets.products`), collecting frames 0.82 and 0.92 (`benchmarks/policy_update.py`). Storage, models and
normalisation are rsl_rl's.

`TrackerWriter` is a `LogWriter` (rsl-rl-lib 5) that lets rsl_rl's own runners write the same logs as our trainings.
"""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, is_dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import msgspec
import torch
from rsl_rl.algorithms import PPO as ReferencePPO  # noqa: N811
from rsl_rl.models import MLPModel
from rsl_rl.modules import GaussianDistribution
from rsl_rl.runners import OnPolicyRunner
from rsl_rl.utils import LogWriter, check_nan
from tensordict import TensorDict
from torch import Tensor, nn

from neurodyn.control.returns import EpisodeOutcomes, lambda_returns
from neurodyn.core.workers import available_cores
from neurodyn.learn.budget import TrainState
from neurodyn.learn.devices import current_ranks
from neurodyn.learn.learner import OptimiserStep
from neurodyn.learn.metrics import MetricsLog
from neurodyn.learn.tracking import Logger, tracking
from neurodyn.policy.artifact import read_weights, save_policy
from neurodyn.policy.learners.cloning import Demonstrations, clone
from neurodyn.policy.learners.learner import (
    EncodedModel,
    LossKeeper,
    OurRanks,
    RunnerLearner,
    brings_critic,
    critic_groups,
    critic_updates,
    warm_start,
)
from neurodyn.policy.learners.mlp_pass import CHUNK, MlpPass, clip_
from neurodyn.policy.learners.normalisation import UpdateNormalisation
from neurodyn.policy.learners.penalty import AUTO, certainty_rule
from neurodyn.policy.learners.symmetry import MirroredBatches
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.policy.settings import PolicySettings
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.tasks.observations import CRITIC, POLICY

LEAST_RATE = 1e-5
"""Lowest learning rate of the adaptive schedule."""

_MOST_RATE, _RATE_FACTOR = 1e-2, 1.5


@dataclass(frozen=True)
class _Frames:
    """Training frames, one per row.

    Attributes:
        seen: Normalised observations of the policy, shape [n, observations].
        judged: Normalised observations of the critic, shape [n, observations].
        action: Actions, shape [n, actions].
        log_prob: Log-probability densities of the actions when they were taken, shape [n].
        advantage: Advantages, shape [n].
        target: Returns, shape [n, 1].
        mean: Mean of the policy when the actions were taken, shape [n, actions].
        std: Standard deviation of the policy when the actions were taken, shape [n, actions].
    """

    seen: Tensor
    judged: Tensor
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    target: Tensor
    mean: Tensor
    std: Tensor

    def rows(self, index: Tensor | slice) -> "_Frames":
        return _Frames(*(getattr(self, field.name)[index] for field in fields(self)))

    def pieces(self, size: int) -> "Iterator[_Frames]":
        parts = (getattr(self, field.name).split(size) for field in fields(self))
        return (_Frames(*rows) for rows in zip(*parts, strict=True))


class PPO(UpdateNormalisation, ReferencePPO):
    """PPO of rsl_rl; on a CPU, with the networks and settings of `neurodyn.policy`, it uses a faster update."""

    actor: MLPModel
    critic: MLPModel

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Set up rsl_rl's PPO with the same arguments."""
        super().__init__(*arguments, **options)
        self._passes: tuple[MlpPass, MlpPass] | None = None
        self._beside = ThreadPoolExecutor(1) if available_cores() > 1 else None  # for the critic, beside the actor
        if self._plain():
            parameters = list(chain(self.actor.parameters(), self.critic.parameters()))
            self.optimizer = torch.optim.Adam(parameters, lr=self.learning_rate, fused=True)
            # Side by side, so that ranks send one message and norms take one call: the divergence, and gradients.
            of_std = self._gaussian.log_std_param.numel()
            of_actor, of_critic = (
                sum(p.numel() for p in model.mlp.parameters()) for model in (self.actor, self.critic)
            )
            self._flat = torch.zeros(1 + of_std + of_actor + of_critic)
            self._divergence, self._by_std, by_actor, by_critic = self._flat.split([1, of_std, of_actor, of_critic])
            self._by_policy = self._flat[1 : 1 + of_std + of_actor]
            self._passes = MlpPass(self.actor.mlp, by_actor), MlpPass(self.critic.mlp, by_critic)

    @property
    def _gaussian(self) -> GaussianDistribution:
        distribution = self.actor.distribution
        assert isinstance(distribution, GaussianDistribution)
        return distribution

    @property
    def _log_std(self) -> Tensor:
        """Logarithm of the policy's standard deviation, shape [actions]."""
        return self._gaussian.log_std_param.clamp(*self._gaussian.log_std_range)

    def collects(self, world: object) -> bool:
        """Return whether `collect` knows worlds, networks and settings."""
        return self._passes is not None and isinstance(world, PolicyEnvironment)

    @torch.no_grad()
    def collect(self, world: PolicyEnvironment) -> None:
        """Fill the storage as rsl_rl's runner does, with values and densities of all frames at once.

        Raises:
            ValueError: An observation or a reward is not a number.
        """
        assert self._passes is not None
        actor, critic = self._passes
        storage, log_std = self.storage, self._log_std
        std = log_std.exp()
        seen, views, frames, means, actions = {POLICY: world.seen, **world.beside}, [], [], [], []
        for _ in range(storage.num_transitions_per_env):
            mean = actor.outputs(self.actor.get_latent(cast(TensorDict, seen)))
            action = torch.normal(mean, std.expand_as(mean))
            views.append(seen)
            means.append(mean)
            actions.append(action)
            frames.append(world.step_frame(action))
            seen = {POLICY: frames[-1].observation, **world.beside}
        for name, stored in storage.observations.items():
            torch.stack([view[name] for view in views], out=cast(Tensor, stored))
        self._gaussian.update(means[-1])  # which the model is asked for
        mean = torch.stack(means)
        torch.stack(actions, out=storage.actions)
        storage.distribution_params = mean, std.expand_as(mean)
        storage.actions_log_prob = log_density((storage.actions - mean) / std, log_std)[..., None]
        judged = [storage.observations.flatten(0, 1), seen]
        values = critic.outputs(torch.cat([self.critic.get_latent(cast(TensorDict, part)) for part in judged]))
        values = values.view(-1, *storage.values.shape[1:])
        storage.values = values[:-1]
        done, late = (
            torch.stack(part) for part in zip(*((x.done, x.extras["time_outs"]) for x in frames), strict=True)
        )
        reward = torch.stack([frame.reward for frame in frames])
        storage.rewards = torch.addcmul(reward, values[:-1, :, 0], late, value=self.gamma)[..., None]
        check_nan(storage.observations, storage.rewards, done)
        targets = lambda_returns(storage.rewards[..., 0], values[1:, :, 0], done, done, self.gamma, self.lam)
        storage.dones, storage.returns = done.byte()[..., None], targets[..., None]
        self._normalise_advantages()

    def compute_returns(self, obs: TensorDict) -> None:
        """Compute returns, and advantages normalised over the frames of all ranks."""
        super().compute_returns(obs)
        if current_ranks().count > 1 and not self.normalize_advantage_per_mini_batch:
            self._normalise_advantages()

    def _normalise_advantages(self) -> None:
        storage = self.storage
        advantages = (storage.returns - storage.values).double()
        mean, square = advantages.mean(), advantages.square().mean()
        current_ranks().average([mean, square])
        count = advantages.numel() * current_ranks().count
        deviation = ((square - mean.square()) * count / (count - 1)).clamp_min(0.0).sqrt()
        storage.advantages = ((advantages - mean) / (deviation + 1e-8)).to(storage.returns)

    def update(self) -> dict[str, float]:
        """Run the optimiser steps of all epochs; return mean losses by name."""
        if self._passes is None:
            return super().update()
        with torch.no_grad():
            losses = self._update(*self._passes)
        self.update_normalisers()
        self.storage.clear()
        return losses

    def _plain(self) -> bool:
        """Return whether the faster update supports the networks and settings."""
        models, distribution = (self.actor, self.critic), getattr(self.actor, "distribution", None)
        return (
            torch.device(self.device).type == "cpu"
            and all(type(model) is MLPModel and MlpPass.fits(model.mlp) for model in models)
            and type(distribution) is GaussianDistribution
            and distribution.std_type == "log"
            and type(self.optimizer) is torch.optim.Adam
            and self.rnd is None
            and self.symmetry is None
            and not self.use_clipped_value_loss
            and not self.normalize_advantage_per_mini_batch
            and not getattr(self, "use_mixed_precision", False)  # since rsl_rl 5.5
        )

    def _update(self, actor: MlpPass, critic: MlpPass) -> dict[str, float]:
        frames = self._frames()
        size = len(frames.action) // self.num_mini_batches
        sums = torch.zeros(3)
        for _ in range(self.num_learning_epochs):
            for minibatch in frames.pieces(size):
                sums += self._step(actor, critic, minibatch)
        means = (sums / (self.num_learning_epochs * self.num_mini_batches)).tolist()
        return dict(zip(("value", "surrogate", "entropy"), means, strict=True))

    def _frames(self) -> _Frames:
        storage = self.storage
        count = storage.num_envs * storage.num_transitions_per_env // self.num_mini_batches * self.num_mini_batches
        assert storage.distribution_params is not None
        observations = storage.observations.flatten(0, 1)
        mean, std = (parameter.flatten(0, 1) for parameter in storage.distribution_params)
        return _Frames(
            self.actor.get_latent(observations),
            self.critic.get_latent(observations),
            storage.actions.flatten(0, 1),
            storage.actions_log_prob.flatten(),
            storage.advantages.flatten(),
            storage.returns.flatten(0, 1),
            mean,
            std,
        ).rows(torch.randperm(count, device=self.device))

    def _step(self, actor: MlpPass, critic: MlpPass, minibatch: _Frames) -> Tensor:
        """Run one optimiser step; return value loss, surrogate loss and entropy, shape [3]."""
        log_std, clamped = self._gaussian.log_std_param, self._log_std
        count, learning = len(minibatch.action), log_std.requires_grad
        value_loss, surrogate = torch.zeros(()), torch.zeros(())
        divergence, towards_std = self._divergence.zero_(), self._by_std.zero_()

        @torch.no_grad()  # no_grad holds for the calling thread only
        def of_critic() -> None:
            critic.begin()
            for part in minibatch.pieces(CHUNK):
                error = critic.forward(part.judged) - part.target
                value_loss.add_(error.square().sum())
                critic.backward(error.mul_(2.0 * self.value_loss_coef / count))

        def of_actor() -> None:
            actor.begin()
            for part in minibatch.pieces(CHUNK):
                mean = actor.forward(part.seen)
                loss, distance, by_mean, by_log_std = _surrogate(mean, clamped, part, self.clip_param)
                surrogate.add_(loss)
                divergence.add_(distance)
                if learning:
                    actor.backward(by_mean.div_(count))
                    towards_std.add_(by_log_std)

        if self._beside is None:
            of_critic()
            of_actor()
        else:
            done = self._beside.submit(of_critic)
            of_actor()
            done.result()
        entropy = (clamped + 0.5 * (1.0 + math.log(2.0 * math.pi))).sum()
        towards_std.div_(count).sub_(self.entropy_coef).mul_(log_std == clamped)
        log_std.grad = towards_std
        current_ranks().average([self._flat])
        if self.desired_kl is not None and self.schedule == "adaptive":
            self._adapt(float(divergence) / count)
        clip_(self._by_policy, self.max_grad_norm)
        critic.clip(self.max_grad_norm)
        if not learning:  # no gradients at all: where they are zero, Adam's moments still move
            for parameter in self.actor.parameters():
                parameter.grad = None
        self.optimizer.step()
        return torch.stack([value_loss / count, surrogate / count, entropy])

    def _adapt(self, divergence: float) -> None:
        """Adapt the learning rate to keep the KL divergence of an update near `desired_kl`."""
        if divergence > self.desired_kl * 2.0:
            self.learning_rate = max(LEAST_RATE, self.learning_rate / _RATE_FACTOR)
        elif 0.0 < divergence < self.desired_kl / 2.0:
            self.learning_rate = min(_MOST_RATE, self.learning_rate * _RATE_FACTOR)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate


def _surrogate(mean: Tensor, log_std: Tensor, frames: _Frames, clip: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the clipped surrogate loss, summed over frames, KL(old | new) of the policies, and the loss's gradients.

    The gradients are those with respect to the policy's mean, shape [n, actions], and to the logarithm of its standard
    deviation, shape [actions].
    """
    std = log_std.exp()
    deviation = (frames.action - mean) / std
    log_prob = log_density(deviation, log_std)
    ratio = (log_prob - frames.log_prob).exp_()
    plain = -frames.advantage * ratio
    clipped = -frames.advantage * ratio.clamp(1.0 - clip, 1.0 + clip)
    towards = torch.where(plain >= clipped, plain, 0.0)[:, None]  # factor of the log-probability's gradient
    spread = frames.std / std
    change = (frames.mean - mean) / std
    divergence = 0.5 * (spread.square() + change.square() - 1.0).sum() - spread.log().sum()
    by_log_std = (towards * (deviation.square() - 1.0)).sum(0)
    return torch.maximum(plain, clipped).sum(), divergence, towards * deviation / std, by_log_std


def log_density(deviation: Tensor, log_std: Tensor) -> Tensor:
    """Return the logarithms of a Gaussian's density, shape [...].

    `deviation` are differences from the mean in standard deviations, shape [..., actions]; `log_std` are the logarithms
    of these, shape [actions].
    """
    return -0.5 * deviation.square().sum(-1) - (log_std + 0.5 * math.log(2.0 * math.pi)).sum()


class _Runner(OurRanks, OnPolicyRunner):
    """rsl_rl's runner with our ranks and way to collect."""

    def learn(self, num_learning_iterations: int, init_at_random_ep_len: bool = False) -> None:
        alg, world = self.alg, self.env
        if not (isinstance(alg, PPO) and alg.collects(world)):
            super().learn(num_learning_iterations, init_at_random_ep_len)
            return
        assert isinstance(world, PolicyEnvironment)
        if init_at_random_ep_len:
            world.episode_length_buf = torch.randint_like(world.episode_length_buf, high=int(world.max_episode_length))
        alg.train_mode()
        for _ in range(num_learning_iterations):
            alg.collect(world)
            cast(LossKeeper, self.logger).log(loss_dict=alg.update())


class PpoLearner(RunnerLearner):
    """Training of one policy with PPO; a step is one update."""

    _settings: PolicySettings

    def __init__(self, job: PolicyTrainingJob) -> None:
        """Build worlds, networks and PPO; errors: see `policy.learners.training.train`."""
        settings, training_dynamics = cast(PolicySettings, job.settings), job.training_dynamics
        best = 1.0 if settings.clone is None else settings.clone.best
        self._rule = (
            certainty_rule(training_dynamics.dynamics, training_dynamics.log, best)
            if settings.penalty == AUTO
            else None
        )
        self._uncertain, self._certain = 0.0, True
        super().__init__(job)
        if CRITIC in self._task.groups:
            self._config = msgspec.structs.replace(self._config, critic=self._task.groups[CRITIC].columns)
        self.start_runner(_Runner, self._configuration())

    def _configuration(self) -> dict[str, Any]:
        configuration, settings = self._settings.runner(), self._settings
        if CRITIC in self._task.groups:
            configuration["obs_groups"]["critic"] = critic_groups(configuration["obs_groups"]["critic"], self._task)
        if settings.network.latent:
            configuration["actor"]["class_name"] = EncodedModel
        configuration["algorithm"].setdefault("class_name", PPO)
        if settings.symmetry:
            configuration["algorithm"]["symmetry_cfg"] = {
                "use_data_augmentation": True,
                "use_mirror_loss": settings.mirror_loss > 0.0,
                "mirror_loss_coeff": settings.mirror_loss,
                "data_augmentation_func": MirroredBatches(self._world).augment,
            }
        return configuration

    def networks(self) -> list[nn.Module]:
        """Return policy and critic networks."""
        return [self.runner.alg.actor, self.runner.alg.critic]

    def begin(self, train_state: TrainState) -> None:
        """Start from an earlier policy or by cloning the log, if the settings ask for it."""
        settings, training_dynamics = self._settings, self._training_dynamics
        if self._initial is not None and not train_state.step:
            self._take_over(self._initial)
        if settings.clone is None or training_dynamics.log is None or train_state.step:
            return
        shown = Demonstrations(
            self._task,
            training_dynamics.dynamics,
            training_dynamics.log,
            settings.clone.batch,
            settings.seed,
            best=settings.clone.best,
        )
        clone(self.runner.alg.actor, self.runner.alg.critic, shown, settings.clone)

    def _take_over(self, folder: Path) -> None:
        """Load an earlier policy, with the state of the optimiser if PPO trained it."""
        alg = self.runner.alg
        rest = warm_start(alg.actor, alg.critic, folder, self._settings, self._config.critic)
        if "optimizer_state_dict" in rest:
            alg.optimizer.load_state_dict(rest["optimizer_state_dict"])
            alg.learning_rate = alg.optimizer.param_groups[0]["lr"]
        elif brings_critic(folder, self._settings) and self._settings.schedule == "adaptive":
            alg.learning_rate = LEAST_RATE  # so that the first steps do not undo what another algorithm trained

    def step(self, done: float, train_state: TrainState) -> OptimiserStep:
        """Roll out and update. A cloned or given policy is frozen for the first updates, while the critic learns."""
        settings = self._settings
        updates = critic_updates(self._initial, settings)
        if settings.clone is not None and self._training_dynamics.log is not None:
            updates = settings.clone.critic
        frozen = train_state.step < updates
        if updates and train_state.step == updates:
            self._release(train_state)
        self.runner.alg.actor.requires_grad_(not frozen)
        before = self._world.uncertainty
        self.runner.learn(1, init_at_random_ep_len=train_state.step == 0)
        self._uncertain = current_ranks().mean((self._world.uncertainty - before) / settings.horizon)
        means = current_ranks().total(list(self._losses.losses.values()))
        self.losses = {
            name: value / current_ranks().count for name, value in zip(self._losses.losses, means, strict=True)
        }
        if self._rule is not None and frozen:
            self._rule.watch(self._uncertain)
        elif self._rule is not None:
            self._world.set_penalty(self._rule.update(self._uncertain))
        self.end_update(train_state)
        return self.outcome()

    def _release(self, train_state: TrainState) -> None:
        """Unfreeze the policy; under a penalty rule, also save it as the first one kept."""
        if self._settings.schedule == "adaptive":
            # At the critic's learning rate, the first steps would undo the cloned or given policy.
            self.runner.alg.learning_rate = LEAST_RATE
        if self._rule is not None:
            uncertain, train_state.best = current_ranks().agree(self._first_kept)
            self._rule.release(uncertain)
            self._rule.kept = 0

    def _first_kept(self) -> tuple[float, float]:
        """Save the policy as the reference of the penalty rule; return its uncertainty and its return."""
        network = self.network
        played = self._play(network, self._evaluation_dynamics, self._penalty)
        save_policy(self._out, self._config, network)
        return self._uncertainty(played), float(played.penalised.mean())

    def evaluation_metrics(self, played: EpisodeOutcomes) -> dict[str, float]:
        """Return the uncertainty of evaluation episodes under a penalty rule."""
        if self._rule is None:
            return {}
        uncertain = self._uncertainty(played)
        self._certain = self._rule.certain(uncertain)
        return {"uncertainty_training": uncertain}

    def better(self, score: float, best: float) -> bool:
        """Return whether to keep a policy: for a higher return or, under a penalty rule, if it is certain."""
        return super().better(score, best) if self._rule is None else self._certain and not self._stops

    def keep(self, train_state: TrainState) -> None:
        """Save the evaluated policy; under a penalty rule, the mean of all policies kept so far."""
        if self._rule is not None:
            if self._rule.kept:
                latest, share = self._played.state_dict(), 1.0 / (1 + self._rule.kept)
                self._played = self._config.build()
                self._played.load_state_dict({
                    name: torch.lerp(value, latest[name].to(value), share)
                    for name, value in read_weights(self._out).items()
                })  # fmt: skip
            self._rule.kept += 1
        super().keep(train_state)

    def state(self) -> dict[str, Any]:
        """Return the state of PPO, of the worlds (on a CPU), and of torch's random generator."""
        saved = {
            "learner": self.runner.alg.save(), "penalty": self._penalty, "rate": self.runner.alg.learning_rate,
            "uncertain": self._uncertain, **self.worlds_and_memory(),
        }  # fmt: skip
        return saved if self._rule is None else saved | {"rule": self._rule.state()}

    def load(self, saved: dict[str, Any]) -> None:
        """Resume from `state`; on a GPU, episodes start anew."""
        self.runner.alg.load(saved["learner"], None, True)
        self.runner.alg.learning_rate = saved["rate"]
        self._uncertain = saved["uncertain"]
        self.restore_worlds(saved)
        if self._rule is not None:
            self._rule.load(saved["rule"])
            self._world.set_penalty(self._rule.value)

    def extra_metrics(self) -> dict[str, float]:
        """Return the penalty and the uncertainty of the policy and of held-out logs, if tracked."""
        if not self._penalty:
            return {}
        figures = {"penalty": self._penalty, "uncertainty": self._uncertain}
        return figures if self._rule is None else figures | {"uncertainty_log": self._rule.reference}

    @property
    def _penalty(self) -> float:
        return self._rule.value if self._rule is not None else super()._penalty


_TIMES = "/time"
"""Suffix of tags that rsl_rl logs over training seconds; the same values are also logged by iteration."""


class TrackerWriter(LogWriter):
    """Writes `log_dir/metrics.jsonl` and a tracker from an rsl_rl runner.

    Configuration: `cfg["logger"] = {"class_name": "neurodyn.policy:TrackerWriter", "logger": "wandb"}`.
    """

    def __init__(self, log_dir: str, logger: Logger = "tensorboard") -> None:
        """Open the log of a run; raises an InputError if the tracker (`learn.train`) is unknown or unavailable."""
        self._run = Path(log_dir)
        with tracking(logger, self._run):
            self._log = MetricsLog(self._run)
        self._step, self._line = 0, dict[str, float]()

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Add a number to the line of its iteration, which is written when the next iteration begins."""
        if tag.endswith(_TIMES):
            return
        if global_step != self._step:
            self._write_line()
            self._step = global_step
        self._line[tag] = float(scalar_value)

    def store_config(self, env_cfg: dict[str, Any] | object, train_cfg: dict[str, Any]) -> None:
        """Log the configurations."""
        self._log.describe({"environment": _plain_configuration(env_cfg), "settings": _plain_configuration(train_cfg)})

    def save_model(self, model_path: str, it: int) -> None:
        """Log a checkpoint."""
        self._write_line()
        self._log.keep_files([Path(model_path)])

    def save_file(self, path: str) -> None:
        """Log a file."""
        self._log.keep_file(Path(path))

    def save_video(self, video: Path, it: int) -> None:
        """Log a video."""
        self._log.show_film(Path(video))

    def stop(self) -> None:
        """Write the last line and close the log."""
        self._write_line()
        self._log.__exit__(None, None, None)

    def _write_line(self) -> None:
        if self._line:
            self._log.write(self._step, **self._line)
        self._line = {}


def _plain_configuration(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return _plain_configuration(value.to_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return _plain_configuration(asdict(value))
    if isinstance(value, dict):
        return {str(name): _plain_configuration(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_configuration(item) for item in value]
    plain = value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else str(value)
