# SPDX-License-Identifier: Apache-2.0
"""Two processes that train together, against one with batches (or worlds) of twice the size.

Loss curves must be equal before timing, except those of policies, because each rank draws its own starts and actions;
`tests/learn/test_ranks.py` compares an update on the same frames. Times are minima over steps, without validations:
wall time, and processor time of the busiest rank, which is the time of a step if each process has its own core.

    OMP_NUM_THREADS=1 python benchmarks/ranks.py [--json FILE] [--only neural world_model policy] [--rounds 3]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from _common import require, result_parser, single_thread, write_result

RANKS, WARM_UP = 2, 3
TOLERANCE = 1e-2
"""Maximum relative difference of the losses of a step, in float32."""

NEURAL = """
net: {{kind: mlp, width: 128, depth: 3, activation: silu}}
steps: 24
validations: 1
optimiser: adam
phases: [{{share: 1, rate: 1.0e-3, batch: {batch}, forecast: 16, loss: absolute}}]
"""
WORLD = """
net: {{kind: gru, members: 5, trunk: own, width: 64, depth: 1, head: 64}}
steps: 12
validations: 1
optimiser: adam
context: 32
phases: [{{share: 1, rate: 1.0e-3, batch: {batch}, context: 32, forecast: 8, loss: absolute}}]
"""
BATCHES = {"neural": 1024, "world_model": 128, "policy": 1024}
"""Windows, or worlds, of all processes together."""

UPDATES = 16


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--times", type=int, default=1, help="factor on batches and worlds")
    parser.add_argument("--task", default="cartpole-swingup", help="of the policy")
    parser.add_argument("--dynamics", default="hybrid", help="of the policy")
    parser.add_argument("--data", type=Path, help="dataset of the cartpole; by default one is generated")
    parser.add_argument("--worker", type=Path, help="folder of results; set by the script itself")
    arguments = parser.parse_args()
    single_thread()
    if arguments.worker is not None:
        work(arguments.worker, arguments)
        return
    from neurodyn.learn.devices import launch

    figures: dict[str, float] = {"load_average": os.getloadavg()[0]}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        of_policies = arguments.only == ["policy"]
        data = arguments.data or (folder if of_policies else generated(folder / "data.h5"))
        found: dict[int, list[list[dict[str, Any]]]] = {1: [], RANKS: []}
        for number in range(arguments.rounds):
            for count in (1, RANKS):
                out = folder / f"{count}-{number}"
                out.mkdir()
                command = [sys.executable, __file__, "--worker", str(out), "--data", str(data)]
                command += ["--times", str(arguments.times), "--only", *arguments.only]
                command += ["--task", arguments.task, "--dynamics", arguments.dynamics]
                require(launch(count, command) == 0, f"{count} processes train")
                found[count].append([json.loads((out / f"{r}.json").read_text()) for r in range(count)])
    for what in arguments.only:
        one, two = ([[rank[what] for rank in round_] for round_ in found[count]] for count in (1, RANKS))
        if what != "policy":
            check(what, one[0][0]["losses"], two[0])
        for kind in ("wall", "cpu"):
            times = [min(max(rank[kind] for rank in round_) for round_ in rounds) for rounds in (one, two)]
            figures |= {f"{what}_{name}_{kind}_ms": 1e3 * t for name, t in zip(("one", "two"), times, strict=True)}
            figures[f"{what}_speedup_{kind}"] = times[0] / times[1]
            ratios[f"{what}_{kind}_two_vs_one_b{arguments.times * BATCHES[what]}"] = times[1] / times[0]
    write_result(arguments.json, "ranks", figures, ratios)


def generated(path: Path) -> Path:
    """Generate a dataset."""
    command = ["generate", "cartpole", "--transitions", "20000", "--out", str(path)]
    subprocess.run([sys.executable, "-m", "neurodyn", *command], check=True, stdout=subprocess.DEVNULL)
    return path


def check(what: str, alone: list[float], ranks: list[dict[str, Any]]) -> None:
    """Check that loss curves are equal."""
    for rank in ranks:
        pairs = list(zip(alone, rank["losses"], strict=True))
        apart = max(abs(a - b) / abs(a) for a, b in pairs)
        require(apart < TOLERANCE, f"losses of {what} are equal (they differ by {apart:.2g})")
    print(f"{what}: {len(alone)} losses equal to {apart:.1g}")


def work(out: Path, given: argparse.Namespace) -> None:
    """Train everything, and write this rank's measurements."""
    from neurodyn.learn.devices import current_ranks, joined

    with joined():
        shares = {what: given.times * BATCHES[what] // current_ranks().count for what in given.only}
        found = {what: WORKS[what](out, given, share) for what, share in shares.items()}
        (out / f"{current_ranks().rank}.json").write_text(json.dumps(found))


def timed() -> tuple[Any, Callable[[], dict[str, Any]]]:
    """Return a callback that records losses and step times, and a function that returns them."""
    from neurodyn.learn import Callback

    class Times(Callback):
        def __init__(self) -> None:
            self.losses: list[float] = []
            self.times: list[tuple[float, float]] = []
            self.before = (time.perf_counter(), time.process_time())

        def on_step(self, loop: Any) -> None:
            now = (time.perf_counter(), time.process_time())
            self.times.append((now[0] - self.before[0], now[1] - self.before[1]))
            self.losses.append(float(loop.last.loss))
            self.before = (time.perf_counter(), time.process_time())

    times = Times()

    def found() -> dict[str, Any]:
        wall, cpu = (min(column) for column in zip(*times.times[WARM_UP:-1], strict=True))
        return {"losses": times.losses, "wall": wall, "cpu": cpu}

    return times, found


def model(out: Path, data: Path, kind: str, settings: str) -> dict[str, Any]:
    """Train dynamics of a kind."""
    from neurodyn.learn import train
    from neurodyn.learn.devices import current_ranks

    size = out / f"{kind}-{current_ranks().rank}.yaml"
    size.write_text(settings)
    times, found = timed()
    train("cartpole", data, out / kind, kind=kind, size=str(size), callbacks=[times])
    return found()


def policy(out: Path, given: argparse.Namespace, worlds: int) -> dict[str, Any]:
    """Train a policy by PPO."""
    from neurodyn.control.resolve import open_dynamics
    from neurodyn.policy import load_settings, train
    from neurodyn.tasks import load

    task = load(given.task)
    settings = msgspec.structs.replace(load_settings(task.name), worlds=worlds, iterations=UPDATES, evaluations=1)
    times, found = timed()
    train(task, open_dynamics(task, given.dynamics), out / "policy", settings, callbacks=[times])
    return found()


WORKS: dict[str, Callable[[Path, argparse.Namespace, int], dict[str, Any]]] = {
    "neural": lambda out, given, batch: model(out, given.data, "neural", NEURAL.format(batch=batch)),
    "world_model": lambda out, given, batch: model(out, given.data, "world-model", WORLD.format(batch=batch)),
    "policy": policy,
}


if __name__ == "__main__":
    main()
