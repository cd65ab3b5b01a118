# SPDX-License-Identifier: Apache-2.0
"""How the energy of passive roll-outs drifts, where nothing but errors changes it."""

from typing import Any

import torch

from neurodyn.dynamics.interface import Trajectory
from neurodyn.dynamics.measures import finite_worlds, percentiles
from neurodyn.robots import Robot


def energy_drift(
    robot: Robot, predicted: Trajectory, truth: Trajectory, samples: int = 101, worlds: int = 256
) -> dict[str, Any]:
    """Return how far the energy of passive roll-outs moves from its start [J], of model and simulator.

    Energies are taken at `samples` frames of at most `worlds` roll-outs.
    """
    from neurodyn.sim.energy import energy

    frames = torch.linspace(0, truth.q.shape[1] - 1, samples).long().unique()
    result: dict[str, Any] = {"frames": frames.tolist()}
    for name, trajectory in (("model", predicted), ("teacher", truth)):
        kept = finite_worlds(trajectory)
        q, qd = trajectory.q[kept][:worlds, frames], trajectory.qd[kept][:worlds, frames]
        if not len(q):
            result[name] = None
            continue
        kinetic, potential = energy(robot, q, qd)
        total = kinetic + potential
        drift = (total - total[:, :1]).abs()
        result[name] = {
            "drift_J": float(drift[:, 1:].mean()),
            "final_percentiles_J": percentiles(drift[:, -1]),
            "curve_J": drift.mean(0).tolist(),
            "scale_J": float((total.max() - total.min()).abs()),
        }
    return result
