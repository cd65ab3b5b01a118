# SPDX-License-Identifier: Apache-2.0
"""Policies by gradients through the dynamics, against PPO: CPU time until an evaluation reaches the target return.

Both algorithms train in the same dynamics with the task's settings, from several seeds, one after the other on one
core; `--minutes` ends a training that does not succeed. An evaluation runs the policy without noise from 128 starts not
used in training, every few CPU seconds; evaluation time does not count. At the end the best policy of each is evaluated
in the reference simulator.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import msgspec
import torch

from _common import require, result_parser, single_thread, write_result
from neurodyn.control import SampledStarts
from neurodyn.control.resolve import open_dynamics
from neurodyn.learn.budget import TrainState
from neurodyn.policy import ALGORITHMS, load_settings
from neurodyn.policy.episodes.evaluation import play
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.tasks import load

_EPISODES = 128


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--task", default="cartpole-swingup")
    parser.add_argument("--dynamics", default="hybrid")
    parser.add_argument("--algorithms", nargs="+", default=["shac", "ppo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--target", type=float, default=1150.0, help="return that is asked")
    parser.add_argument("--minutes", type=float, default=2.0, help="most CPU time of a training")
    parser.add_argument("--every", type=float, default=2.0, help="CPU seconds between two plays")
    parser.add_argument(
        "--reference", default="analytic", help="where policies are played at the end; none for nowhere"
    )
    arguments = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    times: dict[str, list[float]] = {name: [] for name in arguments.algorithms}
    for seed in arguments.seeds:
        for name in arguments.algorithms:
            found = train(name, seed, arguments)
            print(name, seed, found, flush=True)
            figures |= {f"{name}_{seed}_{key}": value for key, value in found.items()}
            times[name].append(found["cpu_s_to_target"])
    medians = {name: statistics.median(found) for name, found in times.items()}
    figures |= {f"{name}_median_cpu_s_to_target": value for name, value in medians.items()}
    ratios = {
        f"{name}_vs_ppo_b1": value / medians["ppo"]
        for name, value in medians.items()
        if name != "ppo" and medians.get("ppo", float("inf")) < float("inf") and value < float("inf")
    }
    write_result(arguments.json, "shac", figures, ratios)


def train(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Train until an evaluation reaches the target; return CPU time, frames and returns, infinity if never."""
    task, algorithm = load(arguments.task), ALGORITHMS[name]
    where = open_dynamics(task, arguments.dynamics)
    preset = load_settings(arguments.task, kind=algorithm.settings)
    settings = msgspec.structs.replace(preset, seed=seed, evaluation_worlds=_EPISODES)
    with tempfile.TemporaryDirectory() as scratch:
        learner = algorithm.learner()(PolicyTrainingJob(task, where, Path(scratch), settings))
    updates = settings.iterations or 0
    require(updates > 0, "the settings have no number of updates")
    warm(algorithm.learner(), task, where, settings)
    spent, next_play, reached, best, kept = 0.0, arguments.every, float("inf"), float("-inf"), learner.network
    frames = 0
    at = TrainState()
    learner.begin(at)
    while spent < 60.0 * arguments.minutes and at.step < updates:
        began = time.process_time()
        learner.step(at.step / updates, at)
        spent += time.process_time() - began
        at.step += 1
        if spent < next_play and at.step < updates:
            continue
        next_play = spent + arguments.every
        frames = int(learner.closing_metrics(at)["frames"])
        with torch.random.fork_rng(devices=[]):  # evaluations, timed by CPU time, must not affect the training
            score = learner.validate(at).score
        if score > best:
            best, kept = score, learner.network
        if score >= arguments.target:
            reached = spent
            break
    found = {"cpu_s_to_target": reached, "cpu_s": spent, "frames": frames, "return": best}
    if arguments.reference != "none":
        there = open_dynamics(task, arguments.reference)
        outcome = play(kept, task, there.dynamics, SampledStarts(task, 77), _EPISODES)
        found["return_in_reference"] = float(outcome.returns.mean())
    return found


def warm(kind: type, task, where, settings) -> None:
    """Make one update, so that programs are compiled and torch has started before timing."""
    with tempfile.TemporaryDirectory() as scratch:
        learner = kind(PolicyTrainingJob(task, where, Path(scratch), settings))
        learner.begin(TrainState())
        learner.step(0.0, TrainState())


if __name__ == "__main__":
    main()
