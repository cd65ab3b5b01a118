# SPDX-License-Identifier: Apache-2.0
"""Fraction of training time spent drawing batches, and memory and set-up time of training on a large file.

The large file repeats 200,000 generated transitions. Its training runs in its own process, so that the peak resident
memory is that of the training.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import torch

from _common import require, result_parser, single_thread, write_result
from neurodyn.data import Store, StoreWriter, WindowSampler
from neurodyn.learn import Callback, load_settings, with_budget
from neurodyn.learn.neural.train import train
from neurodyn.robots import load as load_robot
from neurodyn.sim import generate

STEPS = 300
STREAM = 512 << 20
"""Bytes of a large file's rows held by a training."""
NETS = ("mlp", "gru", "transformer")


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--nets", nargs="*", default=list(NETS), choices=NETS, help="networks of the small data set")
    parser.add_argument("--transitions", type=int, nargs="*", default=[10_000_000], help="sizes of the large file")
    parser.add_argument("--folder", type=Path, help="where the large file is written; by default a temporary folder")
    parser.add_argument("--large", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    single_thread()
    if arguments.large is not None:
        print(json.dumps(train_large(arguments.large)))
        return
    robot, figures = load_robot("cartpole"), {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        data = Path(scratch) / "cartpole.h5"
        generate(robot, transitions=200_000, out=data)
        store = Store.open(data)
        check_sampler(store)
        check_sampler(Store.open(data, memory=0))
        for net in arguments.nets:
            figures |= loader_share(net, store, Path(scratch) / net)
        for transitions in arguments.transitions:
            large = Path(scratch) / "large.h5"
            repeat(store, transitions, large)
            command = [sys.executable, __file__, "--large", str(large)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])
            figures |= {f"{transitions / 1e6:g}M_{name}": value for name, value in found.items()}
            large.unlink()
    write_result(arguments.json, "training_loader", figures, {})


def loader_share(net: str, store: Store, out: Path) -> dict[str, float]:
    """Return the time of a training step, and the fraction spent drawing its batch."""
    robot = load_robot("cartpole")
    settings = with_budget(load_settings(robot, "small", net), None, STEPS, 0)
    settings = msgspec.structs.replace(settings, validations=1)
    start = time.process_time()
    end = train(robot, "cartpole", "", store, out, settings)
    total = sum(phase.share for phase in settings.phases)
    loading = sum(
        drawing_seconds(store, phase.window, phase.batch) * STEPS * phase.share / total for phase in settings.phases
    )
    return {
        f"{net}_train_step_cpu_ms": 1e3 * end.cpu_seconds / end.step,
        f"{net}_loader_share": loading / end.cpu_seconds,
        f"{net}_whole_cpu_s": time.process_time() - start,
    }


def check_sampler(store: Store) -> None:
    """Check that drawn windows are rows of the store, in order, from a single episode."""
    batch = WindowSampler(store, 8, batch=64, seed=1, stream=1 << 20).draw()
    rows = torch.from_numpy(store.q)
    for window in batch.q:
        start = (rows == window[0]).all(1).nonzero()
        require(
            any(torch.equal(rows[s : s + 9], window) for s in start.flatten().tolist()), "a window is no run of rows"
        )


def drawing_seconds(store: Store, length: int, batch: int) -> float:
    """Return the CPU seconds of one draw."""
    sampler = WindowSampler(store, length, batch=batch, seed=0, stream=STREAM)
    sampler.draw()
    start = time.process_time()
    for _ in range(200):
        sampler.draw()
    return (time.process_time() - start) / 200


def repeat(store: Store, transitions: int, path: Path) -> None:
    """Repeat the trajectories of a store until there are `transitions` transitions."""
    with StoreWriter(path, store.header) as writer:
        for _ in range(-(-transitions // store.transitions)):
            writer.append_rows(store.q, store.qd, store.control, store.table, store.ground)


class FirstStep(Callback):
    """Records the time of the training's first step.

    Attributes:
        at: Processor time of the process at that step [s].
    """

    at: float | None = None

    def on_step(self, loop: object) -> None:
        """Record the time of the first step."""
        self.at = time.process_time() if self.at is None else self.at


def train_large(data: Path) -> dict[str, float]:
    """Train on a file; return the time until the first step, the fraction spent drawing, and the peak memory."""
    robot, first = load_robot("cartpole"), FirstStep()
    settings = with_budget(load_settings(robot, "small", "mlp"), None, STEPS, 0)
    settings = msgspec.structs.replace(settings, validations=1)
    with tempfile.TemporaryDirectory() as scratch:
        start = time.process_time()
        store = Store.open(data)
        end = train(robot, "cartpole", str(data), store, Path(scratch) / "run", settings, callbacks=[first])
        require(first.at is not None, "no step was made")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        total = sum(phase.share for phase in settings.phases)
        loading = sum(
            drawing_seconds(store, phase.window, phase.batch) * STEPS * phase.share / total for phase in settings.phases
        )
    return {
        "setup_cpu_s": (first.at or 0.0) - start,
        "most_memory_gib": memory / 2**30,
        "train_step_cpu_ms": 1e3 * end.cpu_seconds / end.step,
        "loader_share": loading / end.cpu_seconds,
    }


if __name__ == "__main__":
    main()
