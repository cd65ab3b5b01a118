# SPDX-License-Identifier: Apache-2.0
"""Policy training in neural dynamics: the PPO update against rsl_rl's own, and frames per CPU-second with both."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from _common import require, result_parser, single_thread, write_result
from neurodyn.control.resolve import open_dynamics
from neurodyn.policy import PolicySettings, load_settings
from neurodyn.policy.learners.ppo import PpoLearner
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.tasks import load as load_task

WORK = {"cartpole-swingup": "pretrained:cartpole", "ant-run": "pretrained:ant"}
REFERENCE = "rsl_rl.algorithms.PPO"
UPDATES, ROUNDS = 2, 5


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(WORK), choices=list(WORK))
    arguments = parser.parse_args()
    single_thread()
    figures, ratios = {}, {}
    for task in arguments.tasks:
        ours, theirs = (Trainer(task, name) for name in (None, REFERENCE))
        check(ours, theirs)
        for _ in range(ROUNDS):
            for trainer in (ours, theirs):
                trainer.run()
        for name, trainer in (("ours", ours), ("rsl_rl", theirs)):
            figures |= {f"{task}_{name}_{what}": value for what, value in trainer.figures().items()}
        settings = ours.settings
        batch = settings.worlds * settings.horizon // settings.minibatches
        key = task.replace("-", "_")
        ratios[f"{key}_update_vs_rsl_rl_b{batch}"] = ours.update_seconds / theirs.update_seconds
    write_result(arguments.json, "policy_update", figures, ratios)


class Trainer:
    """A policy in training, whose updates are timed."""

    def __init__(self, task: str, algorithm: str | None) -> None:
        """Start a training with rsl_rl's PPO (`algorithm`), or with our own (None)."""
        self.settings = load_settings(task)
        configuration = self.settings.runner()
        if algorithm is not None:
            configuration["algorithm"]["class_name"] = algorithm
        wanted = load_task(task)
        with tempfile.TemporaryDirectory() as folder, patch.object(PolicySettings, "runner", lambda _: configuration):
            where = open_dynamics(wanted, WORK[task])
            self.learner = PpoLearner(PolicyTrainingJob(wanted, where, Path(folder), self.settings))
        self._updates: list[float] = []
        self._whole: list[float] = []
        algorithm_update = self.learner.runner.alg.update

        def timed() -> dict[str, float]:
            start = time.process_time()
            losses = algorithm_update()
            self._updates.append(time.process_time() - start)
            return losses

        self.learner.runner.alg.update = timed

    def first(self) -> dict[str, torch.Tensor]:
        """Make the first update, untimed, and return the resulting policy."""
        torch.manual_seed(0)
        self.learner.runner.learn(1)
        self._updates.clear()
        return self.learner.runner.alg.actor.state_dict()

    def run(self) -> None:
        """Train for some updates."""
        start = time.process_time()
        self.learner.runner.learn(UPDATES)
        self._whole.append((time.process_time() - start) / UPDATES)

    @property
    def update_seconds(self) -> float:
        """CPU time of an update."""
        return statistics.median(self._updates)

    def figures(self) -> dict[str, Any]:
        """Return the measurements."""
        whole = statistics.median(self._whole)
        return {
            "update_cpu_ms": 1e3 * self.update_seconds,
            "update_share": self.update_seconds / whole,
            "frames_per_cpu_s": self.settings.worlds * self.settings.horizon / whole,
        }


def check(ours: Trainer, theirs: Trainer) -> None:
    """Check that the first update changes both policies equally."""
    one, other = ours.first(), theirs.first()
    for name, value in one.items():
        require(torch.allclose(value, other[name], rtol=1e-2, atol=1e-3), f"{name} is that of rsl_rl after an update")


if __name__ == "__main__":
    main()
