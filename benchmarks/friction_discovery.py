# SPDX-License-Identifier: Apache-2.0
"""Joint friction discovered on a frictionless model, and its error against a feed-forward network's with 100x the data.

Uses examples/friction_discovery.py.
"""

import sys
import time
from pathlib import Path

import torch

from _common import require, result_parser, single_thread, write_result

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from friction_discovery import FRAMES, FRICTION, TRUE_PAIRS, FeedForward, compared, error, found_in, pendulum, record
from neurodyn.dynamics import State


def main() -> None:
    """Discover, train the peer, and write the result."""
    parser = result_parser(__doc__)
    parser.add_argument("--windows", type=int, default=96, help="windows of 15 frames to learn and choose from")
    parser.add_argument("--steps", type=int, default=150, help="optimiser steps at each penalty")
    parser.add_argument("--refit", type=int, default=400, help="optimiser steps without penalty")
    parser.add_argument("--seconds", type=float, default=40.0, help="CPU time of the feed-forward network")
    options = parser.parse_args()
    single_thread()
    torch.manual_seed(0)
    swings = record(4, FRAMES, seed=4)
    with torch.no_grad():
        path = pendulum(FRICTION).rollout(State(swings.q[:, 0], swings.qd[:, 0]), swings.control)
    require(error(path.q, swings) < 1e-9, "the reference does not repeat its own swings")
    start = time.process_time()
    found = found_in(options.windows, options.steps, options.refit)
    seconds = time.process_time() - start
    samples = record(100 * options.windows, FRAMES, seed=2)
    network = FeedForward(samples)
    network.fit(samples, options.seconds)
    errors = compared(found.dynamics, network)
    pairs = set(found.chosen.pairs)
    figures = {
        "samples_hybrid": float(options.windows * FRAMES),
        "samples_feed_forward": float(samples.count * FRAMES),
        "pairs_found": float(len(pairs)),
        "pairs_right": float(len(pairs & TRUE_PAIRS)),
        **{f"error_{name}_rad": value for name, value in errors.items()},
        "hybrid_over_feed_forward": errors["hybrid"] / errors["feed_forward"],
        "cpu_seconds_discovery": seconds,
        "cpu_seconds_feed_forward": options.seconds,
    }
    write_result(options.json, "friction_discovery", figures, {})


if __name__ == "__main__":
    main()
