# SPDX-License-Identifier: Apache-2.0
r"""The critic of SHAC: regression on TD(lambda) targets, and a copy that follows it slowly."""

import torch
from torch import Tensor, nn

from neurodyn.learn.ranks import here
from neurodyn.policy.mlp_pass import CHUNK, MlpPass


def lambda_returns(
    reward: Tensor, value: Tensor, failed: Tensor, done: Tensor, gamma: float, lam: float, failure: float = 0.0
) -> Tensor:
    r"""Return TD(lambda) targets, shape [frames, worlds].

    $$G_t = r_t + \gamma\,[(1 - \lambda)\,V(o_{t+1}) + \lambda\,G_{t+1}]$$

    (Sutton and Barto 2018, eq. 12.20), with $V(o_{t+1})$ alone in brackets where the window or an episode ends, and
    the value of a failure after one.

    Args:
        reward: Rewards, shape [frames, worlds].
        value: Values of the states in which frames ended, shape [frames, worlds].
        failed: Where an episode failed, likewise.
        done: Where an episode ended, likewise.
        gamma: Discount of a frame.
        lam: Lambda.
        failure: Value of a failure.
    """
    value = value.masked_fill(failed, failure)
    follows = (~done).to(value).mul_(lam)  # what lies ahead has a weight of
    follows[-1] = 0.0
    known = torch.addcmul(reward, value, 1.0 - follows, value=gamma)
    target, targets = torch.zeros_like(reward[0]), []
    for now, weight in zip(reversed(known.unbind()), reversed((gamma * follows).unbind()), strict=True):
        target = torch.addcmul(now, weight, target)
        targets.append(target)
    return torch.stack(targets[::-1])


class CriticRegression:
    """Fits a critic to targets."""

    def __init__(self, mlp: nn.Sequential, optimiser: torch.optim.Optimizer, clip: float) -> None:
        """Take the network, its optimiser, and the greatest norm of a gradient."""
        self._mlp, self._optimiser, self._clip = mlp, optimiser, clip
        self._parameters = list(mlp.parameters())  # to walk through the modules takes a tenth of a small step
        device = next(mlp.parameters()).device
        self._pass = MlpPass(mlp) if device.type == "cpu" and MlpPass.fits(mlp) else None

    def fit(self, seen: Tensor, targets: Tensor, epochs: int, minibatches: int) -> float:
        """Make the steps of some passes, and return the mean squared error before each.

        Args:
            seen: Normalised observations, shape [rows, observations].
            targets: Targets, shape [rows].
            epochs: Passes.
            minibatches: Steps of a pass.
        """
        size, total = len(seen) // minibatches, torch.zeros((), device=seen.device)
        for _ in range(epochs):
            order = torch.randperm(len(seen), device=seen.device)[: size * minibatches]
            rows, wanted = seen[order], targets[order, None]
            for begin in range(0, size * minibatches, size):
                error = self._backward(rows[begin : begin + size], wanted[begin : begin + size])
                here().average([error, *(p.grad for p in self._parameters if p.grad is not None)])
                nn.utils.clip_grad_norm_(self._parameters, self._clip)
                self._optimiser.step()
                total += error / size
        return float(total) / (epochs * minibatches)

    def _backward(self, rows: Tensor, wanted: Tensor) -> Tensor:
        """Leave the gradients of the mean squared error in the parameters; return the sum of squares."""
        if self._pass is None:
            self._optimiser.zero_grad()
            error = (self._mlp(rows) - wanted).square().sum()
            (error / len(rows)).backward()
            return error.detach()
        total = torch.zeros(())
        with torch.no_grad():
            self._pass.begin()
            for begin in range(0, len(rows), CHUNK):
                error = self._pass.forward(rows[begin : begin + CHUNK]) - wanted[begin : begin + CHUNK]
                total += error.square().sum()
                self._pass.backward(error.mul_(2.0 / len(rows)))
        return total
