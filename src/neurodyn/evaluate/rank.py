# SPDX-License-Identifier: Apache-2.0
"""Rank statistics: whether one quantity orders things as another does."""

import torch
from torch import Tensor


def ranks(values: Tensor) -> Tensor:
    """Return the rank of each value, equal values sharing the mean of theirs, shape [n], float64."""
    ordered, order = values.double().sort()
    _, inverse, counts = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    mean = last - (counts.double() - 1) / 2
    found = torch.empty_like(ordered)
    found[order] = mean[inverse]
    return found


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Return Spearman's rank correlation of two sets of values, shape [n] each; 0 where one of them is constant."""
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    size = float(x.norm() * y.norm())
    return float(x @ y) / size if size > 0 else 0.0


def chance_above(a: Tensor, b: Tensor) -> float:
    """Return the chance that a value of `a` is above one of `b` (the area under the ROC curve), ties counting half."""
    joined = ranks(torch.cat([a, b]))
    n, m = len(a), len(b)
    return (float(joined[:n].sum()) - n * (n + 1) / 2) / (n * m)
