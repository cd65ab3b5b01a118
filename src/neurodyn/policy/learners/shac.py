# SPDX-License-Identifier: Apache-2.0
"""SHAC: policies trained by gradients through the dynamics over windows of frames, with a critic on TD(lambda)."""

from copy import deepcopy
from functools import partial
from typing import Any

import msgspec
import torch
from rsl_rl.models import MLPModel
from rsl_rl.modules import GaussianDistribution
from tensordict import TensorDict
from torch import Tensor, nn

from neurodyn.control.returns import lambda_returns
from neurodyn.learn.budget import TrainState
from neurodyn.learn.devices import current_ranks
from neurodyn.learn.learner import OptimiserStep
from neurodyn.policy.artifact import PolicyNetwork
from neurodyn.policy.learners.gradient_window import GradientWatch, GradientWindow, roll
from neurodyn.policy.learners.learner import PolicyLearner, critic_updates, warm_start
from neurodyn.policy.learners.mlp_pass import CHUNK, MlpPass, WindowPass
from neurodyn.policy.learners.symmetry import MirroredBatches
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.policy.settings import ShacSettings
from neurodyn.tasks.observations import CRITIC, POLICY
from neurodyn.tasks.views import SENSORS

_FEW, _MANY, _EASE = 0.001, 0.003, 0.02
"""Failures per frame below which pushes grow and above which they shrink, and by how much per window."""


class CriticRegression:
    """Fits a critic to targets."""

    def __init__(self, mlp: nn.Sequential, optimiser: torch.optim.Optimizer, clip: float) -> None:
        """Store the network, its optimiser and the gradient-norm limit."""
        self._mlp, self._optimiser, self._clip = mlp, optimiser, clip
        # Iterating over the modules would take a tenth of a small step.
        self._parameters: list[Tensor] = list(mlp.parameters())
        device = next(mlp.parameters()).device
        self._pass = MlpPass(mlp) if device.type == "cpu" and MlpPass.fits(mlp) else None

    def fit(self, seen: Tensor, targets: Tensor, epochs: int, minibatches: int) -> float:
        """Run `epochs` passes of `minibatches` steps; return the mean squared error before the steps.

        Observations are normalised, shape [rows, observations]; targets have shape [rows].
        """
        size, total = len(seen) // minibatches, torch.zeros((), device=seen.device)
        for _ in range(epochs):
            order = torch.randperm(len(seen), device=seen.device)[: size * minibatches]
            rows, wanted = seen[order], targets[order, None]
            for begin in range(0, size * minibatches, size):
                error = self._backward(rows[begin : begin + size], wanted[begin : begin + size])
                current_ranks().average([error, *(p.grad for p in self._parameters if p.grad is not None)])
                if self._pass is None:
                    nn.utils.clip_grad_norm_(self._parameters, self._clip)
                else:
                    self._pass.clip(self._clip)
                self._optimiser.step()
                total += error / size
        return float(total) / (epochs * minibatches)

    def _backward(self, rows: Tensor, wanted: Tensor) -> Tensor:
        """Write the gradients of the mean squared error to the parameters; return the sum of squares."""
        if self._pass is None:
            self._optimiser.zero_grad()
            error = (self._mlp(rows) - wanted).square().sum()
            (error / len(rows)).backward()
            return error.detach()
        total = torch.zeros(())
        with torch.no_grad():
            self._pass.begin()
            for begin in range(0, len(rows), CHUNK):
                error = self._pass.forward(rows[begin : begin + CHUNK]) - wanted[begin : begin + CHUNK]
                total += error.square().sum()
                self._pass.backward(error.mul_(2.0 / len(rows)))
        return total


class ShacLearner(PolicyLearner):
    """SHAC training of one policy; a step is a window, a policy update, and the critic's passes over the window.

    Attributes:
        critic: The critic, as an rsl_rl model.
    """

    _settings: ShacSettings

    def __init__(self, job: PolicyTrainingJob) -> None:
        """Build worlds, networks and optimisers; errors: see `policy.learners.training.train`."""
        super().__init__(job)
        settings, device = self._settings, self._world.device
        seen, models = self._world.get_observations(), settings.models()
        judge = CRITIC if job.task.observes == SENSORS else POLICY
        groups = {"actor": [POLICY], "critic": [judge]}
        if judge == CRITIC:
            self._config = msgspec.structs.replace(self._config, critic=job.task.groups[CRITIC].columns)
        self._actor, self.critic = (
            MLPModel(
                seen, groups, name, width, **{key: value for key, value in models[name].items() if key != "class_name"}
            ).to(device)
            for name, width in (("actor", len(job.task.actions)), ("critic", 1))
        )
        self._target = deepcopy(self.critic.mlp).requires_grad_(False)
        self._mean = deepcopy(self._actor.mlp).requires_grad_(False)
        self._optimiser, self._critic_optimiser = (
            torch.optim.Adam(model.parameters(), rate, settings.betas, fused=True)
            for model, rate in ((self._actor, settings.rate), (self.critic, settings.critic_rate))
        )
        self._regression = CriticRegression(self.critic.mlp, self._critic_optimiser, settings.gradient)
        mlp, normaliser = self._actor.mlp, self._actor.obs_normalizer
        fits = torch.device(device).type == "cpu" and WindowPass.fits(mlp, normaliser)
        self._pass = WindowPass(mlp, normaliser) if fits else None
        self._mirror = MirroredBatches(self._world) if settings.symmetry else None
        self._judge_group = judge
        self._frames, self._median = 0, 0.0
        self._noise: Tensor | None = None
        self._watch = GradientWatch(settings.horizon, settings.worlds)

    @property
    def actor(self) -> MLPModel:
        """The acting network."""
        return self._actor

    def networks(self) -> list[nn.Module]:
        """Return policy, critic, target critic and the policy's running average."""
        return [self._actor, self.critic, self._target, self._mean]

    @property
    def network(self) -> PolicyNetwork:
        """The running average of the policies."""
        network = super().network
        network.layers.load_state_dict(self._mean.state_dict())
        return network

    def begin(self, train_state: TrainState) -> None:
        """Start from an earlier policy, if one is given, and spread the ages of the episodes."""
        if train_state.step:
            return
        if self._initial is not None:
            warm_start(self._actor, self.critic, self._initial, self._settings, self._config.critic)
            self._target.load_state_dict(self.critic.mlp.state_dict())
            self._mean.load_state_dict(self._actor.mlp.state_dict())
        # Otherwise all episodes would time out in the same frame.
        longest = int(self._world.max_episode_length)
        self._world.episode_length_buf = torch.randint(longest, (self._settings.worlds,)).to(self._world.device)

    def step(self, done: float, train_state: TrainState) -> OptimiserStep:
        """Roll out a window, step the policy, and fit the critic; a given policy is frozen until its critic is fit."""
        settings, frames = self._settings, self._settings.horizon
        done = settings.done_of_all(done, train_state)
        share = settings.final + (1.0 - settings.final) * (1.0 - done)
        for optimiser, rate in ((self._optimiser, settings.rate), (self._critic_optimiser, settings.critic_rate)):
            optimiser.param_groups[0]["lr"] = share * rate
        limit = settings.action_gradient
        most = None if limit is None or not self._median else limit * self._median
        self._watch = GradientWatch(frames, settings.worlds, most)
        with torch.enable_grad():
            std = self._std
            act = partial(self.act, std=std) if self._pass is None else partial(self._act_in_window, self._pass, std)
            if self._pass is not None:
                self._pass.begin(frames, settings.worlds)
            window = roll(self._world, act, self.value, frames, settings.gamma, self._watch)
            # The entropy of a Gaussian is the sum of the logarithms of its deviations plus a constant.
            loss = window.loss - settings.entropy * std.log().sum()
            self._optimiser.zero_grad()
            loss.backward()
            if self._pass is not None:
                self._pass.finish()
            if self._mirror is not None:
                (settings.mirror_loss * self._asymmetry(self._mirror, window.seen.flatten(0, 1))).backward()
        loss = loss.detach()
        current_ranks().average([loss, *(p.grad for p in self._actor.parameters() if p.grad is not None)])
        self._median = current_ranks().mean(self._watch.median)
        self._frames += frames * settings.worlds * current_ranks().count
        norm = nn.utils.clip_grad_norm_(self._actor.parameters(), settings.gradient)
        taken = bool(norm.isfinite())
        if taken and train_state.step >= critic_updates(self._initial, settings):
            self._optimiser.step()
            follow(self._mean, self._actor.mlp, settings.average)
        self.losses = {"policy": float(loss), "gradient": float(norm), "value": self._fit(window)}
        self._world.push_share = self._mastered(float(window.failed.float().mean()))
        self.end_update(train_state)
        return OptimiserStep(float(loss), share * settings.rate, taken)

    def _asymmetry(self, mirror: MirroredBatches, seen: Tensor) -> Tensor:
        """Return the mean squared difference of actions in mirror images from mirrored actions, shape []."""
        mean, of_images = self._actor.mlp(
            self._actor.obs_normalizer(torch.cat([seen, mirror.observations(seen)]))
        ).chunk(2)
        return (of_images - mirror.actions(mean)).square().mean()

    def _mastered(self, falls: float) -> float:
        """Return the next factor on pushes: it grows while few episodes fail per frame, and falls while many do."""
        falls, before = current_ranks().mean(falls), self._world.push_share
        if falls < _FEW:
            return min(1.0, before + _EASE)
        return max(0.0, before - _EASE) if falls > _MANY else before

    def act(self, observation: Tensor, std: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return reparametrised noisy actions and their means, each of shape [worlds, actions].

        `std` is the standard deviation of each action, shape [actions]; None for the network's.
        """
        mean = self._actor.mlp(self._actor.obs_normalizer(observation))
        return torch.addcmul(mean, self._std if std is None else std, self._draw_noise(mean)), mean

    def _act_in_window(self, acting: WindowPass, std: Tensor, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the results of `act`; gradients of the weights follow at the end of the window."""
        return acting(observation, std, self._draw_noise(observation.new_empty(observation.shape[0], std.shape[0])))

    def _draw_noise(self, like: Tensor) -> Tensor:
        """Return the noise of a frame, in standard deviations: an independent AR(1) process per world."""
        fresh, share = torch.randn_like(like), self._settings.correlation
        if not share:
            return fresh
        before = self._noise
        drawn = fresh if before is None else share * before + (1.0 - share * share) ** 0.5 * fresh
        self._noise = drawn
        return drawn

    def value(self, observation: Tensor) -> Tensor:
        """Return the target critic's values, shape [rows]."""
        return self._target(self.critic.obs_normalizer(observation))[:, 0]

    def noise(self) -> float:
        """Return the mean standard deviation of actions."""
        return float(self._std.detach().mean())

    def state(self) -> dict[str, Any]:
        """Return networks, optimisers, worlds and random states."""
        self._world.cut()  # the next window starts with the same call
        return {
            "learner": {"actor_state_dict": self._actor.state_dict(), "critic_state_dict": self.critic.state_dict()},
            "target": self._target.state_dict(),
            "mean": self._mean.state_dict(),
            "optimisers": [self._optimiser.state_dict(), self._critic_optimiser.state_dict()],
            **self.of_ranks(
                {"random": torch.get_rng_state(), "worlds": self._world.checkpoint(), "noise": self._noise}
            ),
            "frames": self._frames,
            "median": self._median,
            "push_share": self._world.push_share,
        }  # fmt: skip

    def load(self, saved: dict[str, Any]) -> None:
        """Resume from `state`, bitwise on a CPU; on a GPU, episodes start anew."""
        self._actor.load_state_dict(saved["learner"]["actor_state_dict"])
        self.critic.load_state_dict(saved["learner"]["critic_state_dict"])
        self._target.load_state_dict(saved["target"])
        self._mean.load_state_dict(saved["mean"])
        for optimiser, state in zip((self._optimiser, self._critic_optimiser), saved["optimisers"], strict=True):
            optimiser.load_state_dict(state)
        rank_state = self.of_this_rank(saved)
        if rank_state["worlds"] is not None:
            self._world.load(rank_state["worlds"])
        self._noise = rank_state.get("noise")  # checkpoints of version 0.1 have none
        self._frames, self._median = saved["frames"], saved["median"]
        self._world.push_share = saved.get("push_share", 1.0)
        torch.set_rng_state(rank_state["random"].cpu())

    def extra_metrics(self) -> dict[str, Any]:
        """Return the length of the window and statistics of its gradients."""
        watch = self._watch
        figures = {"horizon": len(watch.norms), "explosion": watch.explosion(), "gradients": watch.by_horizon()}
        figures |= {"pushes": self._world.push_share} if self._world.disturbances.pushes else {}
        return {**figures, "gradients_lost": watch.not_finite} if watch.not_finite else figures

    def closing_metrics(self, train_state: TrainState) -> dict[str, Any]:
        """Return the frames of all worlds so far."""
        return {"frames": self._frames}

    @property
    def _std(self) -> Tensor:
        distribution = self._actor.distribution
        assert isinstance(distribution, GaussianDistribution)
        return distribution.log_std_param.clamp(*distribution.log_std_range).exp()

    def _fit(self, window: GradientWindow) -> float:
        """Fit the critic to a window, update its target network, and add the window to the normalisation."""
        settings, critic = self._settings, self.critic
        with torch.no_grad():
            values = self.value(window.last.flatten(0, 1)).view_as(window.reward)
            targets = lambda_returns(
                window.reward, values, window.failed, window.done, settings.gamma, settings.lam,
                settings.failure * settings.reward_scale,
            ).flatten()  # fmt: skip
            seen, judged = window.seen.flatten(0, 1), window.judged.flatten(0, 1)
            if self._mirror is not None:
                turned = torch.rand(len(seen), 1, device=seen.device) < 0.5
                seen = torch.where(turned, self._mirror.observations(seen), seen)
                judged = torch.where(turned, self._mirror.observations(judged, self._judge_group), judged)
            normalised = critic.obs_normalizer(judged)
        loss = self._regression.fit(normalised, targets, settings.critic_epochs, settings.critic_minibatches)
        follow(self._target, critic.mlp, settings.target)
        named = TensorDict({POLICY: seen, CRITIC: judged}, batch_size=[len(seen)])
        self._actor.update_normalization(named)
        critic.update_normalization(named)
        return loss


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, old: float) -> None:
    """Move the weights of one network towards another's; `old` is the weight of the current values."""
    for ours, theirs in zip(slow.parameters(), fast.parameters(), strict=True):
        ours.lerp_(theirs, 1.0 - old)
