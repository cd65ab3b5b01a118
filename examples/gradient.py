# SPDX-License-Identifier: Apache-2.0
"""Swing a pole up by gradient descent through a neural roll-out.

The forces of all frames are optimised together, in many worlds from different random starts, by differentiating the
final state with respect to them. The analytic solver, which has no gradients, then evaluates the best.

    python examples/gradient.py --run pretrained:cartpole
"""

import argparse
import sys

import torch

import neurodyn
from neurodyn.dynamics import AnalyticDynamics, State


def cost(q, qd, force):
    """Return each world's final distance from an upright, resting pole, shape [worlds]; the angle is 0 upright."""
    upright = 1 - torch.cos(q[:, -1, 1])
    return 10 * upright + 0.1 * qd[:, -1, 1] ** 2 + 0.01 * qd[:, -1, 0] ** 2 + 0.3 * force.pow(2).mean((1, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="pretrained:cartpole", help="a run directory or pretrained:NAME")
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--frames", type=int, default=90)
    parser.add_argument("--iterations", type=int, default=80)
    args = parser.parse_args()

    robot = neurodyn.robots.load("cartpole")
    neural, effort = neurodyn.load(args.run), robot.actuated["slider"]
    hanging = State(torch.tensor([[0.0, torch.pi]]).repeat(args.worlds, 1), torch.zeros(args.worlds, 2))
    torch.manual_seed(0)
    # Smooth initial guesses: a slow sine of random amplitude and phase in each world.
    time = torch.linspace(0, 2 * torch.pi, args.frames)
    force = (torch.randn(args.worlds, 1) * torch.sin(torch.rand(args.worlds, 1) * 6 + time))[..., None]
    force.requires_grad_(True)
    optimiser = torch.optim.Adam([force], lr=0.05)
    for iteration in range(args.iterations):
        bounded = torch.tanh(force)
        trajectory = neural.rollout(hanging, effort * bounded)
        each = cost(trajectory.q, trajectory.qd, bounded)
        optimiser.zero_grad()
        each.sum().backward()
        optimiser.step()
        if iteration % 20 == 0:
            print(f"iteration {iteration:3d}: best cost {each.min():.3f}, median {each.median():.3f}")

    controls = effort * torch.tanh(force.detach())
    exact = AnalyticDynamics(robot).rollout(hanging, controls)
    angle = torch.rad2deg(torch.acos(torch.cos(exact.q[:, -1, 1]).clamp(-1, 1)))
    standing = int((angle < 10).sum())
    print(
        f"in the analytic solver the poles end {angle.median():.1f} deg from upright (median, best {angle.min():.1f}),"
    )
    print(f"{standing} of {args.worlds} within 10 deg")
    if standing < args.worlds / 2:
        sys.exit("most poles do not stand")


if __name__ == "__main__":
    main()
