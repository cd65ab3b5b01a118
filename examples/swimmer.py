# SPDX-License-Identifier: Apache-2.0
"""A swimmer of five links: known rigid bodies, and fluid forces learned from ten short logs.

The logs are of the declared robot `swimmer` in MuJoCo, with its fluid forces. The model has the same plates and hinges
but no fluid; a blueprint adds a network to the force and moment on each link, with the link's velocity as input. It is
trained on 2 s of each log and then swims open loop for 9 s; swimmer_gait.py makes it swim fast.

    python examples/swimmer.py --medium water25 --seconds 20
"""

import argparse
import math
import time
from pathlib import Path

import msgspec
import numpy as np
import torch
from pytorch_optimizer import SOAP
from torch import Tensor

import neurodyn
from neurodyn.core import Blueprint, read_config
from neurodyn.dynamics import AnalyticDynamics, Dynamics, HybridDynamics, State, declared_hybrid
from neurodyn.learn import split_weights
from neurodyn.multibody import EngineConfig
from neurodyn.robots import Fluid

MEDIA = {"water5": (1000.0, 1.518e-3), "water25": (997.0, 8.9e-4), "air25": (1.184, 1.849e-5), "vacuum": (0.0, 0.0)}
"""Density [kg/m^3] and viscosity [Pa s]."""
LINKS, LENGTH, TORQUE, DT = 5, 0.1, 1e-3, 0.01
Data = tuple[Tensor, Tensor, Tensor]
"""Positions [n, T + 1, 7], velocities [n, T + 1, 7], torques [n, T, 4]."""


def simulator(medium: str) -> AnalyticDynamics:
    """Return MuJoCo's swimmer in a medium."""
    robot = neurodyn.robots.load("swimmer")
    declared = msgspec.structs.replace(robot.simulator, fluid=Fluid(*MEDIA[medium]))
    return AnalyticDynamics(msgspec.structs.replace(robot, simulator=declared))


def rolled(dynamics: Dynamics, q: Tensor, qd: Tensor, torques: Tensor) -> Data:
    """Return roll-outs of a simulator or a model, and their torques."""
    exact = torch.float32 if isinstance(dynamics, AnalyticDynamics) else torch.float64
    with torch.no_grad():
        path = dynamics.rollout(State(q.to(exact), qd.to(exact)), torques.to(exact))
    return path.q.double(), path.qd.double(), torques.double()


def record(medium: str, count: int, frames: int, seed: int) -> Data:
    """Simulate swimming in MuJoCo: random states, and torques that are sums of three waves of 0.3 to 2 Hz."""
    random = np.random.default_rng(seed)
    now = DT * np.arange(frames)[None, :, None, None]
    pitch, phase = (random.uniform(low, high, (count, 1, 4, 3)) for low, high in ((0.3, 2.0), (0, 1)))
    torques = TORQUE * np.sin(2 * np.pi * (pitch * now + phase)).mean(3)
    q = random.uniform(-1, 1, (count, 7)) * (0.0, 0.0, math.pi, 1.0, 1.0, 1.0, 1.0)
    qd = random.uniform(-1, 1, (count, 7)) * (0.3, 0.3, 2.0, 2.0, 2.0, 2.0, 2.0)
    return rolled(simulator(medium), *map(torch.from_numpy, (q, qd, torques)))


def swimmer(blueprint: Blueprint, seed: int = 0) -> HybridDynamics:
    """Return the five plates without fluid, with a blueprint's networks."""
    rigid = declared_hybrid("swimmer")
    config = EngineConfig(substeps=rigid.config.substeps, blueprint=blueprint)
    return HybridDynamics(rigid.spec, rigid.mechanism, config, fingerprint=rigid.fingerprint, seed=seed)


def drag() -> Blueprint:
    """Return one network for all links: from a link's velocity to force and moment, in its own axes."""
    return read_config(Path(neurodyn.robots.load("swimmer").folder) / "blueprint.yaml", Blueprint)


def windows(data: Data, frames: int, stride: int) -> Data:
    """Cut trajectories into windows that start every `stride` frames."""
    q, qd, control = data
    q, qd = (x.unfold(1, frames + 1, stride).flatten(0, 1).transpose(1, 2) for x in (q, qd))
    return q, qd, control.unfold(1, frames, stride).flatten(0, 1).transpose(1, 2)


def fit(model: HybridDynamics, data: Data, seconds: float) -> None:
    """Train the weights within a budget of CPU time: on single frames, windows of 10, and whole trajectories."""
    leaves = [torch.nn.Parameter(part.clone()) for part in split_weights(model.config.blueprint, model.weights)]
    optimiser = SOAP(leaves, weight_decay=0.0, precondition_frequency=10)
    for frames, share, batch, rate in ((1, 0.5, 128, 1e-2), (10, 0.3, 30, 3e-3), (data[2].shape[1], 0.2, 2, 1e-3)):
        q, qd, control = windows(data, frames, max(frames // 10, 1))
        sizes = [(x[:, 1:] - x[:, :1]).square().mean((0, 1)).sqrt() for x in (q, qd)]
        begin, done, step = time.process_time(), 0.0, 0
        while done < 1.0:
            fall = 0.01 + 0.495 * (1 + math.cos(math.pi * done))
            optimiser.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / 20) * fall
            rows = torch.randperm(len(q))[:batch]
            weights = torch.cat([leaf.flatten() for leaf in leaves])
            path = model.simulate(State(q[rows, 0], qd[rows, 0]), control[rows], model.physical(), weights)
            off = ((path.q - q[rows]) / sizes[0], (path.qd - qd[rows]) / sizes[1])
            optimiser.zero_grad()
            torch.cat(off).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(leaves, 1.0)
            optimiser.step()
            step, done = step + 1, (time.process_time() - begin) / (share * seconds)
    with torch.no_grad():
        model.weights.copy_(torch.cat([leaf.flatten() for leaf in leaves]))


def error(path: Tensor, q: Tensor) -> Tensor:
    """Return errors of positions [link lengths] and angles [rad, modulo a turn], averaged, shape [n, T]."""
    off = (path - q)[:, 1:]
    turn = torch.atan2(off[..., 2:].sin(), off[..., 2:].cos())
    return torch.cat([off[..., :2] / LENGTH, turn], -1).abs().mean(-1)


def main() -> None:
    """Record, train, and forecast."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--medium", choices=MEDIA, default="water25")
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU time of the training")
    options = parser.parse_args()
    torch.manual_seed(0)
    tests, model = record(options.medium, 10, 900, seed=1), swimmer(drag())
    fit(model, record(options.medium, 10, 200, seed=0), options.seconds)
    print(f"{options.medium}: mean error over 900 steps")
    for name, dynamics in (("rigid bodies alone", swimmer(Blueprint())), ("with networks", model)):
        q = rolled(dynamics, tests[0][:, 0], tests[1][:, 0], tests[2])[0]
        print(f"{name:20s} {float(error(q, tests[0]).mean()):.4f}")


if __name__ == "__main__":
    main()
