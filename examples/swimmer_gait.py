# SPDX-License-Identifier: Apache-2.0
"""A gait, optimised through the gradients of a swimmer learned from logs (swimmer.py), and played in MuJoCo.

The torques of four hinges are two harmonics each. Starting from noise, gradient ascent increases the model's swimming
speed; the simulator is used once, at the end.

    python examples/swimmer_gait.py --seconds 20 --gait 20 --film swimmer.gif
"""

import argparse
import math
import time
from pathlib import Path

import torch
from torch import Tensor

from neurodyn.dynamics import HybridDynamics, State
from swimmer import DT, LENGTH, LINKS, TORQUE, drag, fit, record, rolled, simulator, swimmer


def centre(q: Tensor) -> Tensor:
    """Return the centre of mass [m], shape [..., 2]."""
    angles = q[..., 2:].cumsum(-1)
    along = LENGTH * torch.stack([-angles.sin(), angles.cos()], -1)
    middles = along.cumsum(-2) - 0.5 * along
    return q[..., :2] + middles.mean(-2)


def torques(gait: Tensor, frames: int) -> Tensor:
    """Return torques within their bounds, two harmonics per hinge, shape [n, frames, 4].

    `gait` has shape [n, 17]: the logarithm of the frequency [Hz], then sines and cosines by harmonic and hinge.
    """
    turns = gait[:, :1].exp() * DT * torch.arange(frames)
    phases = 2 * math.pi * turns[..., None] * torch.tensor([1.0, 2.0])
    waves = torch.cat([phases.sin(), phases.cos()], -1)
    return TORQUE * torch.tanh(waves.double() @ gait[:, 1:].unflatten(1, (4, 4)))


def speed(q: Tensor) -> Tensor:
    """Return the head-first swimming speed along -y after the first second [lengths/s], shape [n]."""
    return (centre(q[:, 100]) - centre(q[:, -1]))[:, 1] / (LINKS * LENGTH * DT * (q.shape[1] - 101))


def bent(q: Tensor) -> Tensor:
    """Return how far hinges bend beyond 1.2 rad, the mean over each roll-out, shape [n]."""
    return (q[..., 3:].abs() - 1.2).clamp_min(0.0).mean((1, 2))


def at_rest(count: int) -> State:
    """Return straight swimmers at rest."""
    return State(torch.zeros(count, 7, dtype=torch.float64), torch.zeros(count, 7, dtype=torch.float64))


def optimised(model: HybridDynamics, seconds: float, starts: int = 8, frames: int = 600) -> Tensor:
    """Ascend the speed through the model's gradients from random gaits; return the best one, shape [1, 17]."""
    model.requires_grad_(False)
    gaits = torch.cat([torch.zeros(starts, 1), 0.3 * torch.randn(starts, 16)], 1).double().requires_grad_()
    optimiser, begin = torch.optim.Adam([gaits], lr=0.05), time.process_time()
    best, value = gaits[:1].detach(), -math.inf
    while time.process_time() - begin < seconds:
        q = model.rollout(at_rest(starts), torques(gaits, frames)).q
        gain = speed(q) - bent(q)
        most = int(gain.argmax())
        if float(gain[most].detach()) > value:
            best, value = gaits[[most]].detach().clone(), float(gain[most].detach())
        optimiser.zero_grad()
        (-gain.sum()).backward()
        gaits.grad = torch.nn.functional.normalize(gaits.grad)  # each start has its own step size
        optimiser.step()
    return best


def film(path: Path, swum: dict[str, Tensor]) -> None:
    """Write a film of roll-outs, seen from above, every fourth frame."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.animation import FuncAnimation, PillowWriter

    figure, axes = plt.subplots(len(swum), 1, figsize=(6.4, 1.3 * len(swum)), sharex=True)
    lines = []
    for where, (name, q) in zip(axes, swum.items(), strict=True):
        angles = q[0, :, 2:].cumsum(-1)
        along = LENGTH * torch.stack([-angles.sin(), angles.cos()], -1)
        joints = torch.cat([q[0, :, None, :2], q[0, :, None, :2] + along.cumsum(1)], 1)
        where.set(xlim=(-1.2, 0.6), ylim=(-0.17, 0.17), aspect="equal", yticks=[], title=name)
        lines.append((where.plot([], [], "-o", lw=4, ms=5)[0], joints[..., 1], joints[..., 0]))
    axes[-1].set_xlabel("y [m]")
    figure.tight_layout()

    def draw(frame: int) -> list:
        for line, x, y in lines:
            line.set_data(x[frame].numpy(), y[frame].numpy())
        return [line for line, *_ in lines]

    FuncAnimation(figure, draw, range(0, len(lines[0][1]), 4)).save(path, PillowWriter(25), dpi=80)


def main() -> None:
    """Learn the fluid, optimise a gait in the model, and test it in MuJoCo."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU time of the training")
    parser.add_argument("--gait", type=float, default=10.0, help="CPU time of the gait")
    parser.add_argument("--frames", type=int, default=600, help="frames of the path, more than 100")
    parser.add_argument("--film", type=Path, help="file for a film (.gif)")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = swimmer(drag())
    fit(model, record("water25", 10, 200, seed=0), options.seconds)
    gait, swum = torques(optimised(model, options.gait), options.frames), {}
    for name, dynamics in (("imagined", model), ("in MuJoCo", simulator("water25"))):
        q = swum[name] = rolled(dynamics, at_rest(1).q, at_rest(1).qd, gait)[0]
        print(f"{name:10s} {float(speed(q)):.3f} body lengths a second")
    if options.film:
        film(options.film, swum)


if __name__ == "__main__":
    main()
