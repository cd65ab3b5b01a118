# SPDX-License-Identifier: Apache-2.0
r"""The sparse-group lasso on the first layers of a blueprint's networks, as a proximal step: its zeros are exact.

SPINN (Feng and Simon 2017, "Sparse-input neural networks for high-dimensional nonparametric regression and
classification"), as NeuralSim uses it: an input without a weight to any hidden unit is not needed, and a network
without inputs is not needed either.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.description.blueprint import Blueprint


@dataclass(frozen=True)
class FirstLayer:
    """Place of one network's first layer among the weights.

    Attributes:
        index: Index of the augmentation.
        inputs: Number of its inputs.
        units: Number of units of its first hidden layer.
        start: First weight of the matrix [units, inputs].
    """

    index: int
    inputs: int
    units: int
    start: int

    def of(self, weights: Tensor) -> Tensor:
        """Return the matrix as a view, shape [units, inputs]."""
        return weights[self.start : self.start + self.units * self.inputs].view(self.units, self.inputs)


def first_layers(blueprint: Blueprint) -> tuple[FirstLayer, ...]:
    """Return the first layer of every network."""
    layers, start = [], 0
    for index, augmentation in enumerate(blueprint.augmentations):
        inputs, units, *_ = augmentation.widths
        layers.append(FirstLayer(index, inputs, units, start))
        start += augmentation.weights
    return tuple(layers)


@torch.no_grad()
def shrink_(weights: Tensor, layers: tuple[FirstLayer, ...], kappa: float, group: float = 0.5) -> None:
    r"""Take the proximal step of the sparse-group lasso, in place.

    $$\kappa \left((1 - g) |W|_1 + g \sum_j \sqrt{units}\,|W_j|_2\right)$$

    Elementwise soft thresholds, then one for each column (Simon, Friedman, Hastie and Tibshirani 2013, "A sparse-group
    lasso", equation 12).

    Args:
        weights: All weights, shape [weights].
        layers: First layers of the networks.
        kappa: Strength of the penalty times the step size.
        group: Share g of the penalty on whole columns.
    """
    for layer in layers:
        matrix = layer.of(weights)
        soft = torch.sign(matrix) * (matrix.abs() - kappa * (1.0 - group)).clamp_min(0.0)
        norm = soft.norm(dim=0, keepdim=True)
        keep = (1.0 - kappa * group * layer.units**0.5 / norm.clamp_min(1e-300)).clamp_min(0.0)
        matrix.copy_(soft * keep)


def strengths(weights: Tensor, layers: tuple[FirstLayer, ...]) -> list[Tensor]:
    """Return for each network the norm of the weights of each input, shape [inputs] each."""
    return [layer.of(weights.detach()).norm(dim=0) for layer in layers]
