# SPDX-License-Identifier: Apache-2.0
"""Frames of policy training in hybrid dynamics: tasks in torch or compiled, matrix products by either library.

    OMP_NUM_THREADS=1 python benchmarks/policy_frames.py --tasks ant-run velocity@./go1
    OMP_NUM_THREADS=1 python benchmarks/policy_frames.py --threads     # what two threads are worth on this machine

All ways make updates in turns from the same seed; the losses of the first must be equal before timing. Figures are
medians of CPU time over updates, whole trainings without evaluations. `--threads` steps worlds of the compiled ant, a
loop in C without Python, on one thread and on two, each with half of them: the most that any training can gain.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import torch

from _common import require, result_parser, single_thread, write_result
from neurodyn.control.resolve import open_dynamics
from neurodyn.dynamics import declared_hybrid
from neurodyn.dynamics.batch import State
from neurodyn.learn.budget import TrainState
from neurodyn.nets import products
from neurodyn.policy import ALGORITHMS, load_settings
from neurodyn.policy.learners import learner
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.policy.settings import for_view
from neurodyn.tasks import load

WAYS = {
    f"{task}_{library}": (task == "compiled", library == "onednn")
    for task in ("torch", "compiled") for library in ("mkl", "onednn")
}  # fmt: skip
"""Whether the task is compiled, and whether products are by oneDNN."""
WORLDS, FRAMES, ROUNDS = 4096, 25, 12


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--tasks", nargs="+", default=["ant-run"])
    parser.add_argument("--algorithms", nargs="+", default=["shac", "ppo"])
    parser.add_argument("--updates", type=int, default=12, help="timed updates of PPO; four times as many of SHAC")
    parser.add_argument("--threads", action="store_true", help="measure two threads instead")
    arguments = parser.parse_args()
    single_thread()
    if arguments.threads:
        write_result(arguments.json, "policy_frames", *two_threads())
        return
    figures, ratios = {}, {}
    for name in arguments.tasks:
        for algorithm in arguments.algorithms:
            updates = arguments.updates * (4 if algorithm == "shac" else 1)
            found = ways_of(name, algorithm, updates)
            key = f"{name.partition('@')[0]}_{algorithm}".replace("-", "_")
            figures |= {f"{key}_{way}_us_per_frame": 1e6 * seconds for way, seconds in found.items()}
            figures[f"{key}_frames_per_cpu_s"] = 1.0 / found["compiled_onednn"]
            ratios[f"{key}_compiled_vs_torch_b1"] = found["compiled_onednn"] / found["torch_onednn"]
            ratios[f"{key}_onednn_vs_mkl_b1"] = found["compiled_onednn"] / found["compiled_mkl"]
    write_result(arguments.json, "policy_frames", figures, ratios)


def ways_of(name: str, algorithm: str, updates: int) -> dict[str, float]:
    """Return the CPU time of a frame of training by way [s]."""
    trainings = {way: Training(name, algorithm, compiled) for way, (compiled, _) in WAYS.items()}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for update in range(updates + 1):
        for way, training in trainings.items():
            with patch.object(products, "prefers_onednn", lambda way=way: WAYS[way][1]):
                seconds = training.update(update)
            if update:
                times[way].append(seconds / training.frames)
            else:
                same = [abs(training.losses[key] - value) for key, value in trainings["torch_mkl"].losses.items()]
                require(max(same) < 1e-3, f"{name}, {algorithm}, {way}: the losses of the first update are equal")
    return {way: statistics.median(seconds) for way, seconds in times.items()}


class Training:
    """A training whose updates are timed."""

    def __init__(self, name: str, algorithm: str, compiled: bool) -> None:
        """Start it, with the task compiled or in torch."""
        task, kind = load(name), ALGORITHMS[algorithm]
        task, settings = for_view(load_settings((*task.presets, name), kind=kind.settings), task)
        settings = msgspec.structs.replace(settings, seed=0)
        worth = 0.0 if compiled else float("inf")
        with tempfile.TemporaryDirectory() as folder, patch.object(learner, "_WORTH_COMPILING", worth):
            where = open_dynamics(task, "hybrid")
            self._learner = kind.learner()(PolicyTrainingJob(task, where, Path(folder), settings))
        self.frames = settings.worlds * settings.horizon
        self._state = TrainState()
        torch.manual_seed(0)
        self._learner.begin(self._state)

    @property
    def losses(self) -> dict[str, float]:
        """Losses of the last update."""
        return self._learner.losses

    def update(self, number: int) -> float:
        """Make an update; return its CPU time [s]."""
        torch.manual_seed(number)
        start = time.process_time()
        self._learner.step(0.0, self._state)
        self._state.step += 1
        return time.process_time() - start


def two_threads() -> tuple[dict[str, float], dict[str, float]]:
    """Return the wall times of equal work on one thread and on two, and their ratio."""
    model = declared_hybrid("ant")
    halves = [rollout(model, seed) for seed in (0, 1)]
    first = [half() for half in halves]
    one, two = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for half in halves:
            half()
        one.append(time.perf_counter() - start)
        start = time.perf_counter()
        together = [threading.Thread(target=half) for half in halves]
        for thread in together:
            thread.start()
        for thread in together:
            thread.join()
        two.append(time.perf_counter() - start)
    require(all(torch.equal(half(), known) for half, known in zip(halves, first, strict=True)), "equal results")
    figures = {"one_thread_wall_s": min(one), "two_threads_wall_s": min(two), "gain": min(one) / min(two)}
    return figures, {"ant_two_threads_vs_one_b1": min(two) / min(one)}


def rollout(model: Any, seed: int) -> Callable[[], torch.Tensor]:
    """Return a function that rolls out worlds by the compiled program alone."""
    generator = torch.Generator().manual_seed(seed)
    start = load("ant-run").start(WORLDS, generator)
    torque = 20.0 * torch.randn(WORLDS, FRAMES, model.spec.nu, generator=generator)
    return lambda: model.rollout(State(start.q, start.qd), torque).q


if __name__ == "__main__":
    main()
