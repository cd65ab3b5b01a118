# SPDX-License-Identifier: Apache-2.0
"""Normalisation by mean and standard deviation of the training set, fitted once and stored in the model."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from neurodyn.core.errors import InputError, NeurodynError

_CHUNK = 65536
_FITTED = "this normaliser is fitted; its statistics are part of the model and stay"


class Normaliser(nn.Module):
    r"""$(x - \bar x)/\sqrt{\mathrm{var}\,x + \epsilon}$ per dimension; the identity until it is fitted.

    A dimension that was constant in the training set is mapped to zero, and the inverse returns its mean: divided by
    $\sqrt\epsilon$, any later change would be amplified.
    """

    mean: Tensor
    """Mean of the training set, shape [size]."""
    std: Tensor
    """sqrt(variance + eps) of the training set, shape [size]."""
    gain: Tensor
    """1 / std, or zero for a dropped dimension, shape [size]."""
    fitted: Tensor

    def __init__(self, size: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("std", torch.ones(size))
        self.register_buffer("gain", torch.ones(size))
        self.register_buffer("fitted", torch.tensor(False))

    @property
    def size(self) -> int:
        """Number of dimensions."""
        return self.mean.shape[0]

    def fit(self, x: Any) -> "Normaliser":
        """Fit mean and variance, once, on a tensor, array or HDF5 dataset of shape [..., size], read in pieces.

        Raises:
            InputError: The data are empty, have another size, or are not finite.
            NeurodynError: The normaliser has been fitted before.
        """
        if bool(self.fitted):
            raise NeurodynError(_FITTED)
        mean, variance = moments(x, self.size)
        std = torch.sqrt(variance + self.eps)
        # Rounding of a constant c in float32 is about 1e-7 |c|; smaller variations count as constant.
        constant = torch.sqrt(variance) <= 1e-6 * mean.abs()
        gain = torch.where(constant, 0.0, 1.0 / std)
        self.mean.copy_(mean)
        self.std.copy_(std)
        self.gain.copy_(gain)
        self.fitted.fill_(True)
        return self

    def adopt(self, other: "Normaliser") -> None:
        """Copy another normaliser's statistics to the last dimensions, once; the first keep mean 0 and unit 1.

        Raises:
            NeurodynError: The normaliser has been fitted before.
        """
        if bool(self.fitted):
            raise NeurodynError(_FITTED)
        first = self.size - other.size
        for own, given in ((self.mean, other.mean), (self.std, other.std), (self.gain, other.gain)):
            own[first:] = given.to(own)
        self.fitted.fill_(True)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x`, shape [..., size]."""
        return (x - self.mean) * self.gain

    def inverse(self, x: Tensor) -> Tensor:
        """Undo `forward`, shape [..., size]; a dropped dimension becomes its mean."""
        return torch.addcmul(self.mean, x, self.std * (self.gain != 0))


def moments(x: Any, size: int) -> tuple[Tensor, Tensor]:
    """Return mean and population variance over all but the last axis, in float64, shape [size] each.

    Pieces are merged by the formula of Chan, Golub and LeVeque, which avoids cancellation if the mean is large relative
    to the standard deviation.

    Raises:
        InputError: The data are empty, have another size, or are not finite.
    """
    count, mean, squares = 0, torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    for piece in pieces(x, size):
        n = piece.shape[0]
        piece_mean = piece.mean(0)
        delta = piece_mean - mean
        squares += ((piece - piece_mean) ** 2).sum(0) + delta**2 * (count * n / (count + n))
        mean += delta * (n / (count + n))
        count += n
    if count == 0:
        raise InputError("no data to take the normalisation from; expected at least one frame")
    if not bool(torch.isfinite(squares).all()):
        bad = [i for i in range(size) if not bool(torch.isfinite(squares[i]))]
        raise InputError(f"dimensions {bad} of the data hold values that are not finite; expected finite numbers")
    return mean, squares / count


def pieces(x: Any, size: int) -> Iterator[Tensor]:
    """Yield data [..., size] in float64 pieces [rows, size]; raise an InputError if the last axis has another size."""
    shape = tuple(x.shape)
    if len(shape) < 2 or shape[-1] != size:
        raise InputError(f"data of shape {list(shape)} where [frames, {size}] was expected")
    rows = max(1, _CHUNK // max(1, int(np.prod(shape[1:-1]))))
    for start in range(0, shape[0], rows):
        piece = torch.as_tensor(x[start : start + rows]).detach().to("cpu", torch.float64).reshape(-1, size)
        if piece.shape[0]:
            yield piece
