# SPDX-License-Identifier: Apache-2.0
"""Speed-up of a sweep with two workers: short trainings of a cartpole, the same ones twice."""

import os
import tempfile
import time
from pathlib import Path

import yaml

from _common import require, result_parser, write_result
from neurodyn import cluster, robots, sim


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--trainings", type=int, default=8)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="neurodyn-sweep-") as name:
        folder = Path(name)
        sim.generate(robots.load("cartpole"), transitions=20_000, out=folder / "data.h5", seed=1)
        spec = folder / "sweep.yaml"
        spec.write_text(
            yaml.safe_dump(
                {
                    "train": {"robot": "cartpole", "data": str(folder / "data.h5"), "steps": arguments.steps},
                    "settings": {"validations": 4},
                    "space": {"phases.0.rate": [0.01, 0.005]},
                    "seeds": list(range(arguments.trainings // 2)),
                }
            )
        )
        seconds, scores = {}, {}
        for workers in (1, arguments.workers):
            begin = time.perf_counter()
            found = cluster.sweep(spec, folder / f"on-{workers}", workers=workers)
            seconds[workers] = time.perf_counter() - begin
            scores[workers] = [outcome.figure.value for outcome in found.trials.values() if outcome.figure is not None]
            print(f"{workers} worker(s): {len(scores[workers])} trainings in {seconds[workers]:.1f} s")
    require(scores[1] == scores[arguments.workers], "the trainings on several workers are those on one")
    ratio, load = seconds[1] / seconds[arguments.workers], os.getloadavg()[0]
    print(f"{ratio:.2f} times as fast, start of Ray included; the same scores to the bit; load {load:.1f}")
    figures = {f"{workers} workers [s]": taken for workers, taken in seconds.items()}
    write_result(arguments.json, "sweep", {**figures, "load": load}, {"times as fast": ratio})


if __name__ == "__main__":
    main()
