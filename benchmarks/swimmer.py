# SPDX-License-Identifier: Apache-2.0
"""A swimmer of five links in MuJoCo's fluids: hybrid models, rigid bodies alone, an LSTM and a GRU; then a gait.

Uses examples/swimmer.py and swimmer_gait.py. All learned models get the same ten trajectories of 200 steps and the same
CPU time, and are compared on trajectories not used for any choice. Two hybrid models: "wrenches" has one network on
every link's force and moment, "torques" one network from body velocities and hinges to the torques of the hinges and
the wrench on the first link. The gait is optimised through the first model's gradients; for comparison, a hand-made
travelling wave (amplitude, frequency, phase between hinges, initial phase) is searched without gradients, in the same
model and CPU time.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from scipy.optimize import differential_evolution
from torch import Tensor

from _common import require, single_thread, write_result
from _recurrent import trained

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from neurodyn.core import Augmentation, Blueprint
from neurodyn.dynamics import Dynamics, HybridDynamics
from swimmer import DT, MEDIA, TORQUE, Data, drag, error, fit, record, rolled, simulator, swimmer, windows
from swimmer_gait import at_rest, bent, optimised, speed, torques

STEPS, TRAINED, TESTS, GAIT = 900, 200, 20, 600
RATE = 1e-2
"""Learning rate of the recurrent networks, the better of 3e-3 and 1e-2 in water at 25 C on trajectories of seed 1."""


def generalised(width: int = 16) -> Blueprint:
    """Return one network from the motion of the whole body to the torques of all joints."""
    hinges = [f"hinge_{k}" for k in range(1, 5)]
    acted = ["wrench.heading.force.x", "wrench.heading.force.y", "wrench.heading.moment.z"]
    acted += [f"torque.{name}" for name in hinges]
    seen = ["velocity.heading.x", "velocity.heading.y", "spin.heading.z", *(f"qd.{name}" for name in hinges)]
    seen += [f"{function}(q.{name})" for name in hinges for function in ("sin", "cos")]
    input_scale = (0.2, 0.2, *[4.0] * 5, *[1.0] * 8)
    output_scale = (2e-2, 2e-3, 1e-3, *[1e-3] * 4)
    net = Augmentation(
        tuple(acted), tuple(seen), hidden=(width, width), input_scale=input_scale, output_scale=output_scale
    )
    return Blueprint((net,))


HYBRIDS = {"wrenches": drag, "torques": generalised}
RECURRENT: dict[str, tuple[Literal["lstm", "gru"], int]] = {"lstm": ("lstm", 17), "gru": ("gru", 20)}
"""Kinds and sizes of recurrent networks."""


def mean_error(path: Tensor, data: Data) -> tuple[float, float]:
    """Return the mean error of the finite roll-outs [link lengths, radians], and their fraction."""
    errors = error(path, data[0][:, : path.shape[1]]).mean(1)
    finite = errors.isfinite()
    return float(errors[finite].mean()), float(finite.double().mean())


def hybrid_error(dynamics: Dynamics, data: Data, steps: int = STEPS) -> tuple[float, float]:
    """Return the same for a model's roll-outs."""
    return mean_error(rolled(dynamics, data[0][:, 0], data[1][:, 0], data[2][:, :steps])[0], data)


def learned(name: str, data: Data, seconds: float, seed: int) -> HybridDynamics:
    """Return a hybrid model with its networks trained."""
    torch.manual_seed(seed)
    model = swimmer(HYBRIDS[name](), seed)
    fit(model, data, seconds)
    return model


def measured(medium: str, name: str, seconds: float, seed: int, gait: float) -> dict[str, float]:
    """Train a model in a medium; return its weights, its mean error over the steps, and the speed of gaits."""
    data, test = record(medium, 10, TRAINED, seed=0), record(medium, TESTS, STEPS, seed=2)
    found: dict[str, float] = {}
    if name in HYBRIDS:
        model = learned(name, data, seconds, seed)
        found[f"{name}_weights"] = float(model.weights.numel())
        found[name], found[f"{name}_finite"] = hybrid_error(model, test)
        if gait and name == "wrenches":
            found |= gaits(model, medium, gait, seed)
        return found
    kind, hidden = RECURRENT[name]
    network = trained(kind, data, seconds, RATE, dt=DT, windows=windows, hidden=hidden, seed=seed)
    found[f"{name}_weights"] = float(sum(p.numel() for p in network.parameters()))
    with torch.no_grad():
        path, _ = network.rollout(test[0][:, 0], test[1][:, 0], test[2])
    found[name], found[f"{name}_finite"] = mean_error(path, test)
    return found


def wave(parameters: np.ndarray) -> Tensor:
    """Return torques of travelling waves from amplitude, frequency [Hz] and two phases [rad], rows of shape [n, 4]."""
    amplitude, frequency, phase, first = (torch.from_numpy(x)[:, None, None] for x in parameters.T)
    now = DT * torch.arange(GAIT, dtype=torch.float64)[None, :, None]
    return TORQUE * amplitude * torch.sin(2 * math.pi * frequency * now - phase * torch.arange(4) + first)


def searched(model: HybridDynamics, seconds: float, seed: int) -> Tensor:
    """Return the torques of the best travelling wave that differential evolution finds in the CPU time."""
    begin = time.process_time()

    def cost(columns: np.ndarray) -> np.ndarray:
        waves = wave(np.ascontiguousarray(columns.T))
        state = at_rest(len(waves))
        q = rolled(model, state.q, state.qd, waves)[0]
        return (bent(q) - speed(q)).nan_to_num(nan=math.inf).numpy()

    found = differential_evolution(
        cost, [(0.0, 1.0), (0.3, 3.0), (-math.pi, math.pi), (-math.pi, math.pi)], vectorized=True,
        updating="deferred", popsize=8, tol=0.0, maxiter=10_000, polish=False, rng=seed,
        callback=lambda *_: time.process_time() - begin > seconds,
    )  # fmt: skip
    return wave(found.x[None])


def gaits(model: HybridDynamics, medium: str, seconds: float, seed: int) -> dict[str, float]:
    """Return speeds [body lengths/s] in the model and in MuJoCo of both gaits, and how far hinges bend in MuJoCo."""
    torch.manual_seed(seed)
    found: dict[str, float] = {}
    made: dict[str, Callable[[], Tensor]] = {
        "gradient": lambda: torques(optimised(model, seconds), GAIT),
        "sine": lambda: searched(model, seconds, seed),
    }
    for name, make in made.items():
        gait, state = make(), at_rest(1)
        for where, dynamics in (("imagined", model), ("real", simulator(medium))):
            q = rolled(dynamics, state.q, state.qd, gait)[0]
            found[f"{name}_{where}"] = float(speed(q))
            found[f"{name}_bent_{where}"] = float(q[..., 3:].abs().max())
    return found


def main() -> None:
    """Check the rigid bodies against the simulator in vacuum, train, swim, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file for the result; figures of other cells in it are kept")
    parser.add_argument("--media", nargs="+", choices=MEDIA, default=["water25"])
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU time of each training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--models", nargs="+", choices=(*HYBRIDS, *RECURRENT), default=[*HYBRIDS, *RECURRENT])
    parser.add_argument("--gait", type=float, default=10.0, help="CPU time of each gait; 0 for none")
    options = parser.parse_args()
    single_thread()
    vacuum, _ = hybrid_error(swimmer(Blueprint()), record("vacuum", 4, 100, seed=2), 100)
    require(vacuum < 1e-3, f"without a fluid the rigid bodies err by {vacuum:.1e} over 100 steps")
    figures = {"cpu_seconds": options.seconds, "gait_cpu_seconds": options.gait, "vacuum_rigid_100_steps": vacuum}
    if options.json and options.json.exists():
        figures |= json.loads(options.json.read_text())["figures"]
    for medium in options.media:
        rigid, finite = hybrid_error(swimmer(Blueprint()), record(medium, TESTS, STEPS, seed=2))
        figures |= {f"{medium}_rigid": rigid, f"{medium}_rigid_finite": finite}
        for seed, name in product(options.seeds, options.models):
            found = measured(medium, name, options.seconds, seed, options.gait)
            figures |= {f"{medium}_{what}_seed{seed}": value for what, value in found.items()}
            figures |= ratios(figures, medium)
            write_result(options.json, "swimmer", figures, {})


def ratios(figures: dict[str, float], medium: str) -> dict[str, float]:
    """Return mean errors over seeds, and that of the hybrid model relative to the recurrent networks'."""
    means: dict[str, float] = {}
    for name in (*HYBRIDS, *RECURRENT):
        errors = [value for key, value in figures.items() if key.startswith(f"{medium}_{name}_seed")]
        if errors:
            means[f"{medium}_{name}_mean"] = sum(errors) / len(errors)
    for name in RECURRENT:
        if {f"{medium}_wrenches_mean", f"{medium}_{name}_mean"} <= means.keys():
            ratio = means[f"{medium}_wrenches_mean"] / means[f"{medium}_{name}_mean"]
            means[f"{medium}_wrenches_over_{name}"] = ratio
    return means


if __name__ == "__main__":
    main()
