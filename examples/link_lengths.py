# SPDX-License-Identifier: Apache-2.0
"""Link lengths of a double pendulum from its joint positions: local search against parallel basin hopping.

The pendulum has rods of 3 m and 4 m with a mass at each end. Only the angles of one swing are known. From most points
of a grid of initial guesses, local least squares ends in a wrong minimum; basin hopping, parallel searches that combine
and mutate the best, finds the right lengths from everywhere. Plots a map of both.

    python examples/link_lengths.py --grid 10 --out link_lengths.png
"""

import argparse
from pathlib import Path

import matplotlib
import numpy as np
import torch
from torch import Tensor

from neurodyn.core import ChainJoint, JointSpec, Link, Mechanism, StateSpec, select_parameters
from neurodyn.data import Windows
from neurodyn.dynamics import HybridDynamics, State
from neurodyn.identify import BoxedSpace, Noise, ResidualOptions, Residuals, basin_hopping, levenberg_marquardt
from neurodyn.multibody import EngineConfig, nominal

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TRUE, LOWER, UPPER = (3.0, 4.0), 0.5, 8.0
DT, FRAMES = 0.05, 100
START = (2.0, 1.0, 0.0, 0.0)
QUANTITIES = ("upper.com.z", "lower.origin.z", "lower.com.z")


class Lengths(BoxedSpace):
    """Search space: two lengths, and the quantities that follow from them."""

    names = ("length 1", "length 2")
    lower = torch.tensor([LOWER, LOWER], dtype=torch.float64)
    upper = torch.tensor([UPPER, UPPER], dtype=torch.float64)

    def __init__(self, order: tuple[str, ...], nominal: tuple[float, float]) -> None:
        self._columns = [(0, 0, 1)[QUANTITIES.index(name)] for name in order]
        self.nominal = torch.tensor(nominal, dtype=torch.float64)

    def values(self, x: Tensor) -> Tensor:
        """Return the quantities; the rods lie along -z."""
        return -x[..., self._columns]


def pendulum() -> HybridDynamics:
    """Return the pendulum with all length-dependent quantities free."""
    links = []
    for index, name in enumerate(("upper", "lower")):
        place = (0.0, 0.0, -TRUE[0] if index else 0.0, 0.0, 0.0, 0.0, 1.0)
        joint = ChainJoint(
            name=name, kind="revolute", parent=index - 1, parent_frame=place,
            child_frame=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0), axis=(0.0, 1.0, 0.0),
        )  # fmt: skip
        inertia = (1e-3, 1e-3, 1e-3, 0.0, 0.0, 0.0)
        links.append(Link(joint=joint, mass=1.0, com=(0.0, 0.0, -TRUE[index]), inertia=inertia))
    mechanism = Mechanism(links=tuple(links))
    joints = tuple(JointSpec(name=name, kind="revolute", continuous=True) for name in ("upper", "lower"))
    spec = StateSpec(robot="double-pendulum", joints=joints, controls=(), dt=DT)
    free = select_parameters(nominal(mechanism, None), QUANTITIES)
    return HybridDynamics(spec, mechanism, EngineConfig(substeps=4), free)


def problem(dynamics: HybridDynamics, guess: tuple[float, float] = (1.0, 1.0)) -> Residuals:
    """Return the residuals of one swing's joint positions."""
    start = torch.tensor([START], dtype=torch.float64)
    controls = torch.zeros(1, FRAMES, 0, dtype=torch.float64)
    with torch.no_grad():
        path = dynamics.rollout(State(start[:, :2], start[:, 2:]), controls)
    swing = Windows(path.q, path.qd, controls)
    ones = torch.ones(2, dtype=torch.float64)
    space = Lengths(tuple(spec.name for spec in dynamics.physical.specs), guess)
    options = ResidualOptions(velocities=False, initial=False)
    return Residuals(dynamics, swing, Noise(0.01 * ones, ones), options, space=space)


def search(grid: int, members: int = 24, rounds: int = 6, iterations: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return the larger error of the two lengths [m] for local search and basin hopping, shape [grid, grid]."""
    dynamics = pendulum()
    side = torch.linspace(LOWER, UPPER, grid, dtype=torch.float64)
    starts = torch.cartesian_prod(side, side)
    residuals = problem(dynamics)
    local = levenberg_marquardt(residuals, residuals.start(starts), rounds * iterations).point.x
    truth = torch.tensor(TRUE, dtype=torch.float64)
    hopped = torch.empty_like(starts)
    for index, start in enumerate(starts):
        generator = torch.Generator().manual_seed(index)
        crowd = start + torch.randn(members, 2, generator=generator, dtype=torch.float64) * (UPPER - LOWER) / 4
        crowd[0] = start  # a user only knows this guess
        found = basin_hopping(residuals, residuals.space.clip(crowd), rounds, iterations, seed=index)
        hopped[index] = found.x[0]
    errors = [(x - truth).abs().amax(1).view(grid, grid).numpy() for x in (local, hopped)]
    return errors[0], errors[1]


def draw(local: np.ndarray, hopped: np.ndarray, out: Path) -> None:
    """Plot the map."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained", sharey=True)
    for axis, errors, title in zip(axes, (local, hopped), ("local search", "basin hopping"), strict=True):
        extent = (LOWER, UPPER, LOWER, UPPER)
        image = axis.imshow(np.log10(errors.T + 1e-9), origin="lower", extent=extent, vmin=-6, vmax=1, cmap="viridis")
        axis.set(title=f"{title}: {np.mean(errors < 1e-3):.0%} right", xlabel="first guess of length 1 [m]")
        axis.plot(*TRUE, "r+")
    axes[0].set_ylabel("first guess of length 2 [m]")
    figure.colorbar(image, ax=axes, label="error [m], log10")
    figure.savefig(out, dpi=110)


def main() -> None:
    """Search from every start and plot the map."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", type=int, default=5, help="starts along each length")
    parser.add_argument("--out", type=Path, default=Path("link_lengths.png"))
    options = parser.parse_args()
    local, hopped = search(options.grid)
    draw(local, hopped, options.out)
    print(f"right to 1 mm: local search {np.mean(local < 1e-3):.0%}, basin hopping {np.mean(hopped < 1e-3):.0%}")
    print(f"map: {options.out}")


if __name__ == "__main__":
    main()
