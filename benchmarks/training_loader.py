# SPDX-License-Identifier: Apache-2.0
"""Share of training time that goes into drawing batches, for each phase of the default settings."""

import argparse
import tempfile
import time
from pathlib import Path

import msgspec
import torch

from _common import require, single_thread, write_result
from neurodyn.data import Store, WindowSampler
from neurodyn.learn import load_settings, with_budget
from neurodyn.learn.neural.train import train
from neurodyn.robots import load as load_robot
from neurodyn.sim import generate

STEPS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    single_thread()
    robot, figures = load_robot("cartpole"), {}
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "cartpole.h5"
        generate(robot, transitions=200_000, out=data)
        store = Store.open(data)
        check_sampler(store)
        for net in ("mlp", "gru", "transformer"):
            settings = with_budget(load_settings(robot, "small", net), None, STEPS, 0)
            settings = msgspec.structs.replace(settings, validations=1)
            start = time.process_time()
            end = train(robot, "cartpole", str(data), store, Path(scratch) / net, settings)
            whole = end.cpu_seconds
            loading = sum(
                drawing_seconds(store, phase.window, phase.batch) * STEPS * phase.share / total
                for total in [sum(p.share for p in settings.phases)]
                for phase in settings.phases
            )
            figures[f"{net}_train_step_cpu_ms"] = 1e3 * whole / end.step
            figures[f"{net}_loader_share"] = loading / whole
            figures[f"{net}_whole_cpu_s"] = time.process_time() - start
    write_result(arguments.json, "training_loader", figures, {})


def check_sampler(store: Store) -> None:
    """Check that drawn windows are rows of the store, in order, from a single episode."""
    batch = WindowSampler(store, 8, batch=64, seed=1).draw()
    rows = torch.from_numpy(store.q)
    for window in batch.q:
        start = (rows == window[0]).all(1).nonzero()
        require(
            any(torch.equal(rows[s : s + 9], window) for s in start.flatten().tolist()), "a window is no run of rows"
        )


def drawing_seconds(store: Store, length: int, batch: int) -> float:
    """Return the CPU seconds of one draw."""
    sampler = WindowSampler(store, length, batch=batch, seed=0)
    sampler.draw()
    start = time.process_time()
    for _ in range(200):
        sampler.draw()
    return (time.process_time() - start) / 200


if __name__ == "__main__":
    main()
