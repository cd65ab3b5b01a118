# SPDX-License-Identifier: Apache-2.0
"""An LSTM and a GRU that swim, as baselines for examples/swimmer.py.

They get the same information as the hybrid model: velocities in the axes of the first body, so that position and
heading do not matter, and positions follow from velocities by the simulator's equation. They learn velocity changes,
first with the true states as inputs, then on their own roll-outs.
"""

import math
import time
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

Data = tuple[Tensor, Tensor, Tensor]
"""Positions and velocities (x, y, heading, hinges) and controls, shapes [n, T + 1, nq], [n, T + 1, nq], [n, T, nu]."""


def _turned(vector: Tensor, heading: Tensor) -> Tensor:
    """Rotate planar vectors by angles."""
    c, s = heading.cos(), heading.sin()
    x, y = vector.unbind(-1)
    return torch.stack([c * x - s * y, s * x + c * y], -1)


def _own(q: Tensor, qd: Tensor) -> Tensor:
    """Return velocities with those of the base in the axes of the first body."""
    return torch.cat([_turned(qd[..., :2], -q[..., 2]), qd[..., 2:]], -1)


def _changes(q: Tensor, qd: Tensor) -> Tensor:
    """Return velocity changes from state to state, in the earlier state's axes of the first body."""
    return _own(q[:, :-1], qd[:, 1:] - qd[:, :-1])


class Recurrent(nn.Module):
    """A recurrent network with a linear output layer, normalised by its training data."""

    def __init__(self, kind: Literal["lstm", "gru"], data: Data, dt: float, hidden: int) -> None:
        super().__init__()
        self._dt = dt
        q, qd, control = data
        self._size = control.std()
        self._mean, self._spread = torch.zeros(1).double(), torch.ones(1).double()
        seen = self._inputs(q[:, :-1], qd[:, :-1], control).flatten(0, 1)
        self._mean, self._spread = seen.mean(0), seen.std(0)
        self._change = _changes(q, qd).flatten(0, 1).std(0)
        made = {"lstm": nn.LSTM, "gru": nn.GRU}[kind]
        self.cell, self.out = made(seen.shape[1], hidden, batch_first=True), nn.Linear(hidden, q.shape[-1])
        self.double()

    def _inputs(self, q: Tensor, qd: Tensor, control: Tensor) -> Tensor:
        hinge = q[..., 3:]
        seen = torch.cat([_own(q, qd), hinge.sin(), hinge.cos(), control / self._size], -1)
        return (seen - self._mean) / self._spread

    def forced(self, data: Data) -> Tensor:
        """Return the loss of one step ahead from true states."""
        q, qd, control = data
        changes = self.out(self.cell(self._inputs(q[:, :-1], qd[:, :-1], control))[0])
        return (changes - _changes(q, qd) / self._change).square().mean()

    def rollout(self, q: Tensor, qd: Tensor, control: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions and velocities from the first ones on, shapes [n, T + 1, nq]."""
        memory = None
        paths = ([q], [qd])
        for u in control.unbind(1):
            seen, memory = self.cell(self._inputs(q, qd, u)[:, None], memory)
            change = self.out(seen[:, 0]) * self._change
            qd = qd + torch.cat([_turned(change[:, :2], q[:, 2]), change[:, 2:]], -1)
            q = q + self._dt * qd
            paths[0].append(q)
            paths[1].append(qd)
        return torch.stack(paths[0], 1), torch.stack(paths[1], 1)


def trained(
    kind: Literal["lstm", "gru"], data: Data, seconds: float, rate: float, *, dt: float,
    windows: Callable[[Data, int, int], Data], hidden: int = 17, seed: int = 0,
) -> Recurrent:  # fmt: skip
    """Train a network within a budget of CPU time.

    Args:
        kind: Which network.
        data: Trajectories.
        seconds: CPU time.
        rate: Learning rate.
        dt: Length of a frame [s].
        windows: Cuts trajectories into windows of a given length and stride.
        hidden: Size of its hidden state.
        seed: Seed of weights and batches.
    """
    torch.manual_seed(seed)
    model = Recurrent(kind, data, dt, hidden)
    optimiser = torch.optim.Adam(model.parameters())
    whole = data[2].shape[1]
    for frames, share, batch, part in ((0, 0.4, 0, 1.0), (20, 0.3, 64, 0.5), (whole, 0.3, 10, 0.3)):
        q, qd, control = windows(data, frames or whole, max(frames // 10, 1))
        sizes = [(x[:, 1:] - x[:, :1]).square().mean((0, 1)).sqrt() for x in (q, qd)]
        begin, done = time.process_time(), 0.0
        while done < 1.0:
            for group in optimiser.param_groups:
                group["lr"] = rate * part * (0.01 + 0.495 * (1 + math.cos(math.pi * done)))
            rows = torch.randperm(len(q))[:batch]
            if frames:
                path = model.rollout(q[rows, 0], qd[rows, 0], control[rows])
                off = [(p - x[rows]) / size for p, x, size in zip(path, (q, qd), sizes, strict=True)]
                loss = torch.cat(off).square().mean()
            else:
                loss = model.forced(data)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            done = (time.process_time() - begin) / (share * seconds)
    return model
