# SPDX-License-Identifier: Apache-2.0
"""Throughput of the Gymnasium vector environment against the environment below it, in CPU time.

OMP_NUM_THREADS=1 python benchmarks/gymnasium_step.py
OMP_NUM_THREADS=1 python benchmarks/gymnasium_step.py --task cartpole-swingup --dynamics hybrid
"""

import argparse
import statistics

import gymnasium
import torch

import neurodyn
from _common import cpu_seconds, result_parser, write_result
from neurodyn.control.resolve import open_dynamics
from neurodyn.policy import PolicyEnvironment
from neurodyn.tasks import load


def plain(asked: argparse.Namespace) -> PolicyEnvironment:
    task = load(asked.task)
    where = open_dynamics(task, asked.dynamics)
    return PolicyEnvironment(task, where.dynamics, where.starts(task, 0), asked.worlds)


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--task", default="ant-run")
    parser.add_argument("--dynamics", default="pretrained:ant")
    parser.add_argument("--worlds", type=int, default=512)
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--turns", type=int, default=9)
    asked = parser.parse_args()
    gymnasium.register_envs(neurodyn)
    env = gymnasium.make_vec(f"neurodyn/{asked.task}-v0", num_envs=asked.worlds, dynamics=asked.dynamics)
    env.reset(seed=0)
    torch.manual_seed(0)
    tensors = torch.rand(env.action_space.shape) * 2 - 1
    arrays = tensors.numpy()
    worlds = {"below": plain(asked), "gymnasium": env.unwrapped.worlds}  # type: ignore[attr-defined]
    acts = {"below": lambda: worlds["below"].step(tensors), "gymnasium": lambda: env.step(arrays)}
    spent: dict[str, list[float]] = {name: [] for name in acts}
    for turn in range(asked.turns + 1):
        for name in sorted(acts, reverse=bool(turn % 2)):  # in turns, because the machine's load changes
            length = worlds[name].max_episode_length // 2  # so that episodes end at different times
            worlds[name].episode_length_buf = torch.arange(asked.worlds) % length
            seconds = cpu_seconds(acts[name], asked.frames)
            if turn:  # the first one compiles
                spent[name].append(seconds)
    ratios = [below / above for below, above in zip(spent["below"], spent["gymnasium"], strict=True)]
    figures = {
        f"{name}_transitions_per_cpu_s": asked.worlds / statistics.median(seconds) for name, seconds in spent.items()
    }
    shares = {"least": min(ratios), "median": statistics.median(ratios), "most": max(ratios)}
    write_result(asked.json, "gymnasium_step", figures | {f"share_{name}": x for name, x in shares.items()}, {})


if __name__ == "__main__":
    main()
