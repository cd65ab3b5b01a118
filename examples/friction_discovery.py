# SPDX-License-Identifier: Apache-2.0
"""Discovery of friction missing in a model: where it acts, what it depends on, and how few samples it takes.

A double pendulum has viscous friction in both joints, its model has none. Networks on both joints' torques get all
angles and speeds as inputs; a penalty on their first layers leaves the relevant ones. The discovered model is compared
with a feed-forward network that predicts the next state, trained on a hundred times the samples.

    python examples/friction_discovery.py --windows 48 --steps 150 --refit 400 --seconds 60
"""

import argparse
import math
import time

import torch
from torch import Tensor, nn

from neurodyn.core import ChainJoint, JointSpec, Link, Mechanism, StateSpec
from neurodyn.data import Windows
from neurodyn.dynamics import HybridDynamics, State
from neurodyn.identify import Discovery, DiscoverySettings, discover
from neurodyn.multibody import EngineConfig

DT, FRAMES, LONG, FRICTION = 0.02, 15, 100, 0.3
KAPPAS = (0.01, 0.1, 0.3, 1.0)
TRUE_PAIRS = {("torque.joint1", "qd.joint1"), ("torque.joint2", "qd.joint2")}


def pendulum(friction: float) -> HybridDynamics:
    """Return two rods of 1 m and 1 kg."""
    links = []
    for index in (0, 1):
        place = (0.0, 0.0, -1.0 if index else 0.0, 0.0, 0.0, 0.0, 1.0)
        joint = ChainJoint(
            name=f"joint{index + 1}", kind="revolute", parent=index - 1, parent_frame=place,
            child_frame=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0), axis=(0.0, 1.0, 0.0),
        )  # fmt: skip
        inertia = (0.1, 0.1, 0.01, 0.0, 0.0, 0.0)
        links.append(Link(joint=joint, mass=1.0, com=(0.0, 0.0, -0.5), inertia=inertia, damping=friction))
    joints = tuple(JointSpec(name=link.joint.name, kind="revolute", continuous=True) for link in links)
    spec = StateSpec(robot="double-pendulum", joints=joints, controls=(), dt=DT)
    return HybridDynamics(spec, Mechanism(links=tuple(links)), EngineConfig(substeps=1))


def record(count: int, frames: int, seed: int) -> Windows:
    """Return swings of the pendulum with friction from random states."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(count, 4, generator=generator, dtype=torch.float64) - 0.5
    controls = torch.zeros(count, frames, 0, dtype=torch.float64)
    with torch.no_grad():
        path = pendulum(FRICTION).rollout(State(4 * draw[:, :2], 6 * draw[:, 2:]), controls)
    return Windows(path.q, path.qd, controls)


def found_in(windows: int, steps: int, refit: int, kappas: tuple[float, ...] = KAPPAS) -> Discovery:
    """Discover from `windows` windows of 15 frames; as many more choose among the blueprints."""
    settings = DiscoverySettings(steps=steps, refit=refit, kappas=kappas)
    half = windows // 2
    return discover(pendulum(0.0), record(windows - half, FRAMES, 0), record(half, FRAMES, 1), settings)


class FeedForward(nn.Module):
    """Next state from the last one: a network for speed changes; angles are integrated from them."""

    def __init__(self, data: Windows, width: int = 128) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2)
        )
        self.double()
        self._speed = data.qd.flatten(0, 1).std(0)
        self._change = (data.qd[:, 1:] - data.qd[:, :-1]).flatten(0, 1).std(0)

    def forward(self, q: Tensor, qd: Tensor) -> Tensor:
        """Return speed changes in units of their spread, shape [n, 2]."""
        return self.net(torch.cat([q.sin(), q.cos(), qd / self._speed], -1))

    def fit(self, data: Windows, seconds: float, rate: float = 3e-3) -> None:
        """Train on all transitions for `seconds` of CPU time."""
        q, qd = data.q[:, :-1].flatten(0, 1), data.qd[:, :-1].flatten(0, 1)
        change = (data.qd[:, 1:] - data.qd[:, :-1]).flatten(0, 1) / self._change
        optimiser, begin, done = torch.optim.Adam(self.parameters()), time.process_time(), 0.0
        while done < 1.0:
            for group in optimiser.param_groups:
                group["lr"] = rate * (0.001 + 0.4995 * (1 + math.cos(math.pi * done)))
            rows = torch.randint(len(q), (512,))
            optimiser.zero_grad()
            (self(q[rows], qd[rows]) - change[rows]).square().mean().backward()
            optimiser.step()
            done = (time.process_time() - begin) / seconds

    def rollout(self, q: Tensor, qd: Tensor, frames: int) -> Tensor:
        """Return angles, shape [n, frames + 1, 2]."""
        path = [q]
        for _ in range(frames):
            qd = qd + self(q, qd) * self._change
            q = q + DT * qd
            path.append(q)
        return torch.stack(path, 1)


def error(path: Tensor, truth: Windows) -> float:
    """Return the mean error of angles over all frames [rad]."""
    off = path - truth.q
    return float(torch.atan2(off.sin(), off.cos())[:, 1:].abs().mean())


def compared(dynamics: HybridDynamics, network: FeedForward, count: int = 100) -> dict[str, float]:
    """Return errors of unseen swings of 2 s [rad]."""
    test = record(count, LONG, seed=3)
    start = State(test.q[:, 0], test.qd[:, 0])
    with torch.no_grad():
        rigid = error(pendulum(0.0).rollout(start, test.control).q, test)
        hybrid = error(dynamics.rollout(start, test.control).q, test)
        return {"rigid": rigid, "hybrid": hybrid, "feed_forward": error(network.rollout(start.q, start.qd, LONG), test)}


def main() -> None:
    """Discover, and compare the result with a feed-forward network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=16, help="windows of 15 frames to learn and choose from")
    parser.add_argument("--steps", type=int, default=60, help="optimiser steps at each penalty")
    parser.add_argument("--refit", type=int, default=100, help="optimiser steps without penalty")
    parser.add_argument("--seconds", type=float, default=3.0, help="CPU time of the feed-forward network")
    options = parser.parse_args()
    torch.manual_seed(0)
    found = found_in(options.windows, options.steps, options.refit)
    for quantity, seen in found.chosen.pairs:
        print(f"{seen} -> {quantity}")
    samples = record(100 * options.windows, FRAMES, seed=2)
    network = FeedForward(samples)
    network.fit(samples, options.seconds)
    for name, value in compared(found.dynamics, network).items():
        print(f"{name:14s} {value:.4f} rad")


if __name__ == "__main__":
    main()
