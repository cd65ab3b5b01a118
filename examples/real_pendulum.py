# SPDX-License-Identifier: Apache-2.0
"""How far ahead can a real, chaotic double pendulum be forecast?

Identifies IBM's free double pendulum from its film (or uses a run of `neurodyn identify`), starts forecasts of its test
runs from past angles alone, and plots their error over time between two bounds: the declared pendulum, with little
known except the lengths, and a perfect model started with the camera's noise.

    python examples/real_pendulum.py --data ibm_double_pendulum.npz --out forecast.png
    python examples/real_pendulum.py --data ibm_double_pendulum.npz --run runs/hybrid --out forecast.png
"""

import argparse
import tempfile
from pathlib import Path

import matplotlib
import torch

import neurodyn
from neurodyn.core import read_json
from neurodyn.data import Split, Store, Windows, select_windows
from neurodyn.dynamics import HybridDynamics, RecordedEnvironments, RolloutErrors, Trajectory
from neurodyn.identify import (
    IdentificationSettings,
    Noise,
    changed,
    horizon_errors,
    hybrid_forecast,
    identify,
    load_identification,
    noise_floor,
)
from neurodyn.robots import Robot, open_robot_data

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Curves = dict[str, list[float]]


def forecasts(
    run: Path, robot: Robot, store: Store, settings: IdentificationSettings, seconds: tuple[float, ...], count: int
) -> Curves:
    """Return mean angle errors of nominal and identified model and of the noise, at each of `seconds` [rad]."""
    found = read_json(run / "identification.json")
    noise = Noise(*torch.tensor(list(found["noise"].values()), dtype=torch.float64).chunk(2))
    windows, past = held_out(store, settings.context, round(seconds[-1] / robot.dt), count), settings.context
    model = neurodyn.load(run)
    assert isinstance(model, HybridDynamics)
    nowhere = RecordedEnvironments(store)
    models = {"nominal": as_declared(model), "hybrid" if found["weights"] else "identified": model}
    made = {name: hybrid_forecast(m, "past", past, noise, nowhere) for name, m in models.items()}
    parts = windows.after(past)
    truth = Trajectory(parts.q, parts.qd)
    errors = {name: RolloutErrors(robot.spec, forecast(parts), truth) for name, forecast in made.items()}
    own = hybrid_forecast(model, "past", past, noise, nowhere)
    errors["the camera's noise alone"] = noise_floor(own, model, windows, past, noise, nowhere, seed=0)
    return {
        name: [entry.errors.q_mean for entry in horizon_errors(one, seconds).values()] for name, one in errors.items()
    }


def as_declared(model: HybridDynamics) -> HybridDynamics:
    """Return the model without networks and with the parameters of the robot's declaration."""
    from neurodyn.multibody import EngineConfig

    config = EngineConfig(substeps=model.config.substeps)
    return HybridDynamics(model.spec, model.mechanism, config, (), model.fingerprint)


def held_out(store: Store, past: int, frames: int, count: int) -> Windows:
    """Return windows of the test runs, or of all if the log does not declare any."""
    return select_windows(store, Split.TEST if len(store.episodes(Split.TEST)) else None, past + frames, most=count)


def draw(curves: Curves, seconds: tuple[float, ...], out: Path) -> None:
    """Plot errors over time."""
    figure, axes = plt.subplots(figsize=(7, 4.2))
    for name, errors in curves.items():
        axes.semilogy(seconds, errors, "--" if "noise" in name else "-", label=name)
    axes.set(xlabel="time from the start of the forecast [s]", ylabel="mean angle error [rad]")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.savefig(out, dpi=120, bbox_inches="tight")


def main() -> None:
    """Identify unless a run is given, forecast, print and plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="npz file of the film, or of others in the same layout")
    parser.add_argument("--robot", default="ibm-pendulum")
    parser.add_argument("--run", type=Path, help="run of `neurodyn identify`; by default one is made")
    parser.add_argument("--windows", type=int, default=500, help="forecasts")
    parser.add_argument("--horizon", type=float, default=1.0, help="length of a forecast [s]")
    parser.add_argument("--out", type=Path, default=Path("forecast.png"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    robot = neurodyn.robots.load(options.robot)
    store = open_robot_data(robot, options.data)
    settings = changed(load_identification(robot), rollouts=options.windows)
    marks = tuple(round(k * options.horizon / 20, 6) for k in range(1, 21))
    with tempfile.TemporaryDirectory() as scratch:
        run = options.run or Path(scratch) / "run"
        if options.run is None:
            found = identify(robot, options.data, run, settings=settings).figures
            for entry in found.parameters:
                print(f"{entry.name:24s} {entry.value:.5g}")
        curves = forecasts(run, robot, store, settings, marks, options.windows)
    for name, errors in curves.items():
        print(
            f"{name:26s}", " ".join(f"{s:g} s {e:.2g}" for s, e in zip(marks, errors, strict=True) if s in marks[1::6])
        )
    draw(curves, marks, options.out)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
