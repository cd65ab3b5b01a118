# SPDX-License-Identifier: Apache-2.0
"""PPO in one file, in the style of CleanRL, on a neurodyn task: the cartpole swings up in its hybrid model.

    python examples/trainers/cleanrl_ppo.py
    python examples/trainers/cleanrl_ppo.py --env ant-run --dynamics pretrained:ant --worlds 512 --updates 200

Equations: Schulman et al., arXiv 1707.06347 (clipped objective) and arXiv 1506.02438 (advantages).
"""

import argparse

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal

import neurodyn

GAMMA, LAMBDA, CLIP, EPOCHS, BATCHES = 0.98, 0.95, 0.2, 4, 4


class Agent(nn.Module):
    """Actor and critic, with running mean and variance of the observations."""

    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        self.actor, self.critic = (
            nn.Sequential(nn.Linear(observations, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, outputs))
            for outputs in (actions, 1)
        )
        self.log_std = nn.Parameter(torch.full((actions,), -0.5))
        self.register_buffer("mean", torch.zeros(observations))
        self.register_buffer("square", torch.ones(observations))
        self.register_buffer("count", torch.tensor(1e-4))

    def normalised(self, seen: Tensor) -> Tensor:
        """Return observations in units of their standard deviation."""
        return (seen - self.mean) / (self.square - self.mean.square()).clamp_min(1e-6).sqrt()

    def learn_scale(self, seen: Tensor) -> None:
        """Update mean and variance with observations."""
        self.count += len(seen)
        share = len(seen) / self.count
        self.mean += share * (seen.mean(0) - self.mean)
        self.square += share * (seen.square().mean(0) - self.square)

    def act(self, seen: Tensor) -> Normal:
        """Return the distribution of actions."""
        return Normal(self.actor(self.normalised(seen)), self.log_std.exp())

    def value(self, seen: Tensor) -> Tensor:
        """Return the expected return."""
        return self.critic(self.normalised(seen))[..., 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="cartpole-swingup")
    parser.add_argument("--dynamics", default="hybrid")
    parser.add_argument("--worlds", type=int, default=128)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--frames", type=int, default=32, help="frames between updates")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.manual_seed(asked.seed)
    gymnasium.register_envs(neurodyn)
    envs = gymnasium.make_vec(f"neurodyn/{asked.env}-v0", num_envs=asked.worlds, dynamics=asked.dynamics)
    columns, joints = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    agent = Agent(columns, joints)
    optimiser = torch.optim.Adam(agent.parameters(), lr=1e-3)
    shape = asked.frames, asked.worlds
    seen, acted = torch.zeros(*shape, columns), torch.zeros(*shape, joints)
    log_prob, rewards, values, goes_on = (torch.zeros(*shape) for _ in range(4))
    returns, ended = np.zeros(asked.worlds), []

    observation = torch.from_numpy(envs.reset(seed=asked.seed)[0])
    for update in range(1, asked.updates + 1):
        with torch.no_grad():
            for frame in range(asked.frames):
                agent.learn_scale(observation)
                policy = agent.act(observation)
                action = policy.sample()
                seen[frame], acted[frame] = observation, action
                log_prob[frame], values[frame] = policy.log_prob(action).sum(-1), agent.value(observation)
                after, reward, terminated, truncated, infos = envs.step(action.numpy())
                rewards[frame] = torch.from_numpy(reward)
                if truncated.any():  # the episode would have continued: bootstrap its value
                    last = torch.from_numpy(infos["final_obs"][truncated])
                    rewards[frame, torch.from_numpy(truncated)] += GAMMA * agent.value(last)
                goes_on[frame] = torch.from_numpy(1.0 - (terminated | truncated))
                returns += reward
                ended += returns[terminated | truncated].tolist()
                returns[terminated | truncated] = 0.0
                observation = torch.from_numpy(after)
            advantages, ahead, following = torch.zeros(*shape), torch.zeros(asked.worlds), agent.value(observation)
            for frame in reversed(range(asked.frames)):
                error = rewards[frame] + GAMMA * goes_on[frame] * following - values[frame]
                ahead = advantages[frame] = error + GAMMA * LAMBDA * goes_on[frame] * ahead
                following = values[frame]
        flat = [part.flatten(0, 1) for part in (seen, acted, log_prob, advantages, advantages + values)]
        for _ in range(EPOCHS):
            for rows in torch.randperm(shape[0] * shape[1]).chunk(BATCHES):
                at, action, old, gain, target = (part[rows] for part in flat)
                policy = agent.act(at)
                ratio = (policy.log_prob(action).sum(-1) - old).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                clipped = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
                loss = (agent.value(at) - target).square().mean() - clipped
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
                optimiser.step()
        if update % max(1, asked.updates // 8) == 0:
            recent = ended[-asked.worlds :]
            print(f"update {update}: return {np.mean(recent) if recent else float('nan'):.1f}")
    envs.close()


if __name__ == "__main__":
    main()
