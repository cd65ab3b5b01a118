# SPDX-License-Identifier: Apache-2.0
"""Whether models stay in bounds for 10,000 frames, passive and driven at random, in 1,000 worlds.

    OMP_NUM_THREADS=1 python benchmarks/long_runs.py [RUN ...] [--worlds 1000] [--frames 10000] [--markdown FILE]

Bounds are the robot's declared ones, joint limits plus half their range, and, where undeclared, velocities allowed by
its energy; a contact point may be 25 cm deep. Every frame is checked. Without RUN all shipped models of simulators are
measured.
"""

from pathlib import Path

from msgspec import UNSET

import neurodyn
from _common import require, result_parser, single_thread, write_result
from neurodyn.evaluate.records import LongRun
from neurodyn.evaluate.stability import FRAMES, stability

SHIPPED = ("cartpole", "pendulum", "cube", "ant", "anymal-c")


def row(name: str, mode: str, found: LongRun, worlds: int, seconds: float) -> str:
    """Return a row of the table."""
    deepest = "" if found.deepest_m is None else f"{100 * max(0.0, found.deepest_m):.1f} cm"
    out = round(worlds * (1 - found.in_bounds_fraction))
    lost = round(worlds * (1 - found.finite_fraction))
    speed = "" if found.greatest_speed is None else f"{found.greatest_speed:.3g}"
    return f"| {name} | {mode} | {worlds:,} | {lost} | {out} | {deepest} | {speed} | {seconds:.0f} |"


def main() -> None:
    """Run the benchmark."""
    import time

    parser = result_parser(__doc__)
    parser.add_argument("runs", nargs="*", default=[f"pretrained:{name}" for name in SHIPPED])
    parser.add_argument("--worlds", type=int, default=1000)
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    single_thread()
    lines = [
        "| model | motion | worlds | not finite | out of bounds | deepest | greatest speed | CPU-s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    figures = {}
    for run in arguments.runs:
        model = neurodyn.load(run)
        require(model.robot is not None, f"{run}: its robot is gone")
        begin = time.process_time()
        found = stability(model, model.robot, worlds=arguments.worlds, frames=arguments.frames, seed=arguments.seed)
        seconds = time.process_time() - begin
        for mode in ("passive", "driven"):
            one = getattr(found, mode)
            if one is UNSET:
                continue
            lines.append(row(run, mode, one, arguments.worlds, seconds))
            figures[f"{run}_{mode}_out_of_bounds"] = round(arguments.worlds * (1 - one.in_bounds_fraction))
            figures[f"{run}_{mode}_unstable"] = round(arguments.worlds * (1 - one.stable_fraction))
            print(lines[-1], one.first_out, flush=True)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_result(arguments.json, "long_runs", figures, {})


if __name__ == "__main__":
    main()
