# SPDX-License-Identifier: Apache-2.0
"""A swimmer's roll-outs in MuJoCo's fluids: hybrid model, rigid bodies alone, and an LSTM of about equal size.

The work is that of examples/swimmer.py. All models that learn get the same ten trajectories of 200 steps and the same
CPU time; the LSTM gets it once for each learning rate, and the better one on the test is what counts.
"""

import argparse
import sys
from pathlib import Path

import torch

from _common import require, single_thread, write_result
from _lstm import trained

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from examples.swimmer import DT, MEDIA, Data, drag, error, fit, record, swimmer, windows

from neurodyn.core import Blueprint
from neurodyn.dynamics import HybridDynamics, State

STEPS, TRAINED = 900, 200


def hybrid_errors(model: HybridDynamics, data: Data) -> torch.Tensor:
    """Return errors by trajectory and step, shape [n, T]."""
    with torch.no_grad():
        return error(model.rollout(State(data[0][:, 0], data[1][:, 0]), data[2]).q, data[0])


def measured(medium: str, seconds: float, rates: list[float], count: int = 10) -> dict[str, float]:
    """Train in a medium and return mean errors over the steps, in link lengths and radians."""
    long = record(medium, 10, STEPS, seed=0)
    data: Data = (long[0][:, : TRAINED + 1], long[1][:, : TRAINED + 1], long[2][:, :TRAINED])
    test = record(medium, count, STEPS, seed=2)  # on those of seed 1 the scales and the optimiser were chosen
    torch.manual_seed(0)
    model, bare = swimmer(drag()), swimmer(Blueprint())
    fit(model, data, seconds)
    found = {"weights_hybrid": float(model.weights.numel())}
    for what, logs in (("unseen", test), ("continued", long)):
        found[f"{what}_hybrid"] = float(hybrid_errors(model, logs).mean())
        found[f"{what}_rigid"] = float(hybrid_errors(bare, logs).mean())
    for rate in rates:
        lstm = trained(data, seconds, rate, dt=DT, windows=windows)
        found["weights_lstm"] = float(sum(p.numel() for p in lstm.parameters()))
        for what, logs in (("unseen", test), ("continued", long)):
            with torch.no_grad():
                path, _ = lstm.rollout(logs[0][:, 0], logs[1][:, 0], logs[2])
            own = float(error(path, logs[0]).mean())
            found[f"{what}_lstm"] = min(found.get(f"{what}_lstm", own), own)
    for what in ("unseen", "continued"):
        for peer in ("rigid", "lstm"):
            if f"{what}_{peer}" in found:
                found[f"{what}_hybrid_over_{peer}"] = found[f"{what}_hybrid"] / found[f"{what}_{peer}"]
    return found


def main() -> None:
    """Check the rigid bodies against the simulator in vacuum, train, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file for the result")
    parser.add_argument("--media", nargs="+", choices=MEDIA, default=["water25"])
    parser.add_argument("--seconds", type=float, default=25.0, help="CPU time of each training")
    parser.add_argument("--rates", nargs="+", type=float, default=[3e-3, 1e-2], help="learning rates of the LSTM")
    options = parser.parse_args()
    single_thread()
    vacuum = float(hybrid_errors(swimmer(Blueprint()), record("vacuum", 4, STEPS, seed=2)).mean())
    require(vacuum < 1e-3, f"without a fluid the rigid bodies err by {vacuum:.1e}")
    figures = {"cpu_seconds": options.seconds, "vacuum_rigid": vacuum}
    for medium in options.media:
        found = measured(medium, options.seconds, options.rates)
        figures |= {f"{medium}_{what}": value for what, value in found.items()}
        write_result(options.json, "swimmer", figures, {})


if __name__ == "__main__":
    main()
