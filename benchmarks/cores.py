# SPDX-License-Identifier: Apache-2.0
"""`generate` and `evaluate` on one core and on two: the same result, and how the work is shared.

On a busy machine wall time says how busy it is. What counts is the processor time of the busiest of the processes: it
is the wall time on cores that are free, and the time of one process over it is the speed-up there.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from _common import require, write_result

WORK = {"ant": (300_000, 300), "cartpole": (8_000_000, 1000)}
"""Transitions that are generated, and frames of the roll-outs that are evaluated."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--robot", default="ant", choices=list(WORK))
    parser.add_argument("--verbs", nargs="+", default=["generate", "evaluate"], choices=["generate", "evaluate"])
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        verb, threads, out = arguments.run
        print(json.dumps(measure(verb, arguments.robot, int(threads), Path(out))))
        return
    figures, ratios = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for verb in arguments.verbs:
            outs = [Path(scratch) / f"{verb}{threads}.h5" for threads in (1, 2)]
            one, two = (apart(verb, arguments.robot, 1 + n, out) for n, out in enumerate(outs))
            require(same(verb, *outs), f"{verb} gives the same on one core and on two")
            name = f"{arguments.robot}_{verb}"
            figures |= {
                f"{name}_one_core_cpu_s": one["own_cpu_s"],
                f"{name}_two_cores_cpu_s": two["own_cpu_s"] + two["others_cpu_s"],
                f"{name}_two_cores_busiest_cpu_s": max(two["own_cpu_s"], two["others_cpu_s"]),
                f"{name}_one_core_wall_s": one["wall_s"],
                f"{name}_two_cores_wall_s": two["wall_s"],
            }
            ratios[f"{name}_two_cores_vs_one"] = max(two["own_cpu_s"], two["others_cpu_s"]) / one["own_cpu_s"]
    write_result(arguments.json, "cores", figures, ratios)


def apart(verb: str, robot: str, threads: int, out: Path) -> dict[str, float]:
    """Measure a verb in a process of its own, imports included."""
    command = [sys.executable, __file__, "--robot", robot, "--run", verb, str(threads), str(out)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])


def measure(verb: str, robot: str, threads: int, out: Path) -> dict[str, float]:
    """Run a verb; return its processor time, that of the other processes, and wall time, all of it since the start."""
    start, (transitions, horizon) = time.perf_counter(), WORK[robot]
    if verb == "generate":
        from neurodyn.robots import load
        from neurodyn.sim import generate

        generate(load(robot), transitions=transitions, out=out, threads=threads)
    else:
        from neurodyn.evaluate import evaluate

        out.write_text(json.dumps(evaluate(f"pretrained:{robot}", horizon=horizon, threads=threads).plain()))
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "own_cpu_s": time.process_time(),
        "others_cpu_s": others.ru_utime + others.ru_stime,
        "wall_s": time.perf_counter() - start,
    }


def same(verb: str, one: Path, other: Path) -> bool:
    """Return whether two results are equal, but for times."""
    if verb == "evaluate":
        return timeless(json.loads(one.read_text())) == timeless(json.loads(other.read_text()))
    with h5py.File(one) as first, h5py.File(other) as second:
        return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def timeless(tree: object) -> object:
    """Return a result without its times."""
    if isinstance(tree, dict):
        return {key: timeless(value) for key, value in tree.items() if "second" not in key}
    return [timeless(value) for value in tree] if isinstance(tree, list) else tree


if __name__ == "__main__":
    main()
