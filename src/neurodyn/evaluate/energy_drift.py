# SPDX-License-Identifier: Apache-2.0
"""How the energy of passive roll-outs drifts, where nothing but errors changes it."""

import torch

from neurodyn.dynamics.interface import Trajectory
from neurodyn.dynamics.measures import finite_worlds
from neurodyn.evaluate.metrics import percentiles
from neurodyn.evaluate.records import Drift, EnergyDrift
from neurodyn.robots import Robot

_SAMPLES, _WORLDS = 101, 256


def energy_drift(robot: Robot, predicted: Trajectory, truth: Trajectory) -> EnergyDrift:
    """Return how far the energy of passive roll-outs moves from its start, of model and simulator."""
    frames = torch.linspace(0, truth.q.shape[1] - 1, _SAMPLES).long().unique()
    model, simulator = (_drift(robot, path, frames) for path in (predicted, truth))
    return EnergyDrift(frames=frames.tolist(), model=model, simulator=simulator)


def _drift(robot: Robot, path: Trajectory, frames: torch.Tensor) -> Drift | None:
    from neurodyn.sim.energy import energy

    kept = finite_worlds(path)
    q, qd = path.q[kept][:_WORLDS, frames], path.qd[kept][:_WORLDS, frames]
    if not len(q):
        return None
    kinetic, potential = energy(robot, q, qd)
    total = kinetic + potential
    drift = (total - total[:, :1]).abs()
    return Drift(
        mean_drift=float(drift[:, 1:].mean()), final_drift=percentiles(drift[:, -1]),
        drift_curve=drift.mean(0).tolist(), energy_range=float((total.max() - total.min()).abs()),
    )  # fmt: skip
