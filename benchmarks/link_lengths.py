# SPDX-License-Identifier: Apache-2.0
"""Link lengths from joint positions: success rate of local search and basin hopping, from a grid of starts.

Uses examples/link_lengths.py, and also writes its map.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch

from _common import require, result_parser, single_thread, write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from link_lengths import TRUE, draw, pendulum, problem, search

RIGHT = 1e-3


def main() -> None:
    """Search, and write the result."""
    parser = result_parser(__doc__)
    parser.add_argument("--map", type=Path, help="picture of the errors over the grid")
    parser.add_argument("--grid", type=int, default=10, help="starts along each length")
    options = parser.parse_args()
    single_thread()
    residuals = problem(pendulum())
    at_truth = residuals.cost(residuals.start(torch.tensor([TRUE], dtype=torch.float64)))
    require(float(at_truth[0]) < 1e-12, f"the cost at the true lengths is {float(at_truth[0]):.1e}")
    start = time.process_time()
    local, hopped = search(options.grid)
    seconds = time.process_time() - start
    if options.map is not None:
        draw(local, hopped, options.map)
    figures = {
        "starts": float(options.grid**2),
        "local_right": float(np.mean(local < RIGHT)),
        "basin_hopping_right": float(np.mean(hopped < RIGHT)),
        "basin_hopping_worst_m": float(hopped.max()),
        "cpu_seconds_per_start": seconds / options.grid**2,
    }
    write_result(options.json, "link_lengths", figures, {})


if __name__ == "__main__":
    main()
