# SPDX-License-Identifier: Apache-2.0
"""rsl_rl's own runner on a neurodyn task: the worlds of the vector environment are its VecEnv.

python examples/trainers/rsl_rl_ppo.py
python examples/trainers/rsl_rl_ppo.py --env ant-run --dynamics pretrained:ant --worlds 512 --updates 200
"""

import argparse

import gymnasium
from rsl_rl.runners import OnPolicyRunner

import neurodyn

NETWORK = {"class_name": "MLPModel", "hidden_dims": [64, 64], "activation": "elu", "obs_normalization": True}
SETTINGS = {
    "num_steps_per_env": 32,
    "save_interval": 1000,
    "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
    "actor": {**NETWORK, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.6}},
    "critic": NETWORK,
    "algorithm": {
        "class_name": "PPO", "learning_rate": 1e-3, "gamma": 0.98, "lam": 0.95, "num_learning_epochs": 4,
        "num_mini_batches": 4, "entropy_coef": 0.0, "schedule": "adaptive", "desired_kl": 0.01, "clip_param": 0.2,
        "value_loss_coef": 1.0, "use_clipped_value_loss": True, "max_grad_norm": 1.0,
        "rnd_cfg": None, "symmetry_cfg": None,
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="cartpole-swingup")
    parser.add_argument("--dynamics", default="hybrid")
    parser.add_argument("--worlds", type=int, default=128)
    parser.add_argument("--updates", type=int, default=40)
    asked = parser.parse_args()
    gymnasium.register_envs(neurodyn)
    envs = gymnasium.make_vec(f"neurodyn/{asked.env}-v0", num_envs=asked.worlds, dynamics=asked.dynamics)
    envs.reset(seed=0)
    worlds = envs.unwrapped.worlds  # type: ignore[attr-defined]
    runner = OnPolicyRunner(worlds, SETTINGS, log_dir=None, device="cpu")
    for _ in range(4):
        runner.learn(asked.updates // 4)
        episodes = worlds.collect().returns
        print(f"{len(episodes)} episodes, return {sum(episodes) / max(1, len(episodes)):.1f}")


if __name__ == "__main__":
    main()
