# SPDX-License-Identifier: Apache-2.0
"""Stable-Baselines3 on a neurodyn task: its VecEnv over the vector environment, in thirty lines.

    pip install stable-baselines3
    python examples/trainers/sb3_ppo.py

A single environment needs no adapter: `PPO("MlpPolicy", gymnasium.make("neurodyn/cartpole-swingup-v0"))`.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

import neurodyn


class BatchedWorlds(VecEnv):
    """A Gymnasium vector environment that restarts in the same step, adapted to Stable-Baselines3."""

    def __init__(self, envs: gymnasium.vector.VectorEnv) -> None:
        self.envs, self._seed = envs, None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> np.ndarray:
        """Start all worlds."""
        return self.envs.reset(seed=self._seeds[0])[0]

    def step_async(self, actions: np.ndarray) -> None:
        """Store the actions of the next frame."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Advance one frame."""
        seen, reward, terminated, truncated, infos = self.envs.step(self._actions)
        ends = terminated | truncated
        each: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for row in np.flatnonzero(ends):
            each[row] = {"terminal_observation": infos["final_obs"][row], "TimeLimit.truncated": truncated[row]}
        return seen, reward, ends, each

    def close(self) -> None:
        """Release the worlds."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute, the same for each world."""
        return [getattr(self.envs, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of all worlds."""
        setattr(self.envs, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **options: Any) -> list[Any]:
        """Call a method of all worlds."""
        return [getattr(self.envs, method_name)(*args, **options)] * self.num_envs

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> Sequence[bool]:
        """Report that worlds have no wrappers of their own."""
        return [False] * self.num_envs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="cartpole-swingup")
    parser.add_argument("--dynamics", default="hybrid")
    parser.add_argument("--worlds", type=int, default=128)
    parser.add_argument("--updates", type=int, default=40)
    asked = parser.parse_args()
    gymnasium.register_envs(neurodyn)
    envs = gymnasium.make_vec(f"neurodyn/{asked.env}-v0", num_envs=asked.worlds, dynamics=asked.dynamics)
    learner = PPO(
        "MlpPolicy", VecMonitor(BatchedWorlds(envs)), n_steps=32, batch_size=1024, n_epochs=4, gamma=0.98,
        learning_rate=1e-3, seed=0, device="cpu",
    )  # fmt: skip
    for _ in range(4):
        learner.learn(32 * asked.worlds * (asked.updates // 4), reset_num_timesteps=False)
        episodes = [one["r"] for one in learner.ep_info_buffer or ()]
        print(f"{learner.num_timesteps} transitions, return {np.mean(episodes) if episodes else float('nan'):.1f}")


if __name__ == "__main__":
    main()
