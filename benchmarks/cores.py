# SPDX-License-Identifier: Apache-2.0
"""`generate`, `evaluate` and `identify` on one core and on two: equal results, and the division of work.

On a busy machine, wall time measures the load. Instead the processor time of the busiest process, or thread of
`identify`, counts: it is the wall time on free cores, and the single-core time divided by it is the speed-up. Trainings
in several processes: `benchmarks/ranks.py`.
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

from _common import require, result_parser, write_result

WORK = {"ant": (300_000, 300), "cartpole": (8_000_000, 1000)}
"""Number of generated transitions, and frames of the evaluated roll-outs."""
VERBS = ["generate", "evaluate", "identify"]
WINDOWS = 1024
"""Windows of a log of the compiled ant that `identify` compares."""


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--robot", default="ant", choices=list(WORK))
    parser.add_argument("--verbs", nargs="+", default=VERBS, choices=VERBS)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the work, for a quick look")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run is not None:
        verb, threads, out = arguments.run
        print(json.dumps(measure(verb, arguments.robot, int(threads), Path(out), arguments.scale)))
        return
    figures, ratios = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for verb in arguments.verbs:
            outs = [Path(scratch) / f"{verb}{threads}.h5" for threads in (1, 2)]
            if verb == "identify":  # prepares the log, and kernels for both
                apart(verb, arguments.robot, 1, Path(scratch) / "first", 0.02)
            one, two = (apart(verb, arguments.robot, 1 + n, out, arguments.scale) for n, out in enumerate(outs))
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


def apart(verb: str, robot: str, threads: int, out: Path, scale: float) -> dict[str, float]:
    """Measure a verb in its own process, imports included."""
    command = [sys.executable, __file__, "--robot", robot, "--scale", str(scale), "--run", verb, str(threads), str(out)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])


def measure(verb: str, robot: str, threads: int, out: Path, scale: float) -> dict[str, float]:
    """Run a verb; return its processor time, that of the other processes, and wall time, all since the start."""
    start = time.perf_counter()
    transitions, horizon = (round(scale * number) for number in WORK[robot])
    if verb == "generate":
        from neurodyn.robots import load
        from neurodyn.sim import generate

        generate(load(robot), transitions=transitions, out=out, threads=threads)
    elif verb == "identify":
        begun, whole = time.thread_time(), time.process_time()
        out.write_text(json.dumps(identified(out, robot, threads, scale)))
        main = time.thread_time() - begun
        return {
            "own_cpu_s": main,
            "others_cpu_s": time.process_time() - whole - main,
            "wall_s": time.perf_counter() - start,
        }
    else:
        from neurodyn.evaluate import evaluate

        out.write_text(json.dumps(evaluate(f"pretrained:{robot}", horizon=horizon, threads=threads).plain()))
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "own_cpu_s": time.process_time(),
        "others_cpu_s": others.ru_utime + others.ru_stime,
        "wall_s": time.perf_counter() - start,
    }


def identified(out: Path, robot: str, threads: int, scale: float) -> dict[str, float]:
    """Identify dampings and the mass of the base from a log of the compiled robot; return them by name."""
    from neurodyn.identify import IdentificationSettings, identify
    from neurodyn.robots import load
    from neurodyn.sim import generate

    log = out.with_name("log.h5")
    if not log.exists():
        amounts = {"transitions": 40_000, "frames": 200, "ground": "flat", "threads": 1}
        generate(load(robot), dynamics="hybrid", out=log, **amounts)
    settings = IdentificationSettings(
        parameters=("*.damping", "root.mass"), windows=max(8, round(scale * WINDOWS)), horizon=0.3, iterations=6,
        starts=1, initial="logged", start="logged", rollouts=64, seconds=(0.1,), threads=threads,
    )  # fmt: skip
    result = identify(robot, log, out.with_name(f"{out.stem}-run"), settings=settings)
    return {one["name"]: one["value"] for one in result.figures.plain()["parameters"]}


def same(verb: str, one: Path, other: Path) -> bool:
    """Return whether two results are equal apart from times."""
    if verb == "identify":
        return one.read_text() == other.read_text()
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
