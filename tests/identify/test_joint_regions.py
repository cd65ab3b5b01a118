# SPDX-License-Identifier: Apache-2.0
"""Of which pairs of quantities a combination is told, against draws of the posterior."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from neurodyn.identify.confidence.joint_regions import joint_regions
from neurodyn.identify.unknowns.search_space import Coordinate

COORDINATES = (
    Coordinate("gain", 2.0, 0.3),
    Coordinate("inertia", 0.1, 0.2, size=0.05),
    Coordinate("friction", 1.0, 0.3),
    Coordinate("left", 0.0, 0.02, signed=True, unit="rad"),
    Coordinate("right", 0.1, 0.02, signed=True, unit="rad"),
)
X = torch.tensor([0.2, -0.1, 0.0, 0.5, -0.5], dtype=torch.float64)
DEVIATIONS = torch.tensor([0.6, 0.61, 0.5, 0.6, 0.6], dtype=torch.float64)


def correlation(entries: dict[tuple[int, int], float]) -> torch.Tensor:
    matrix = torch.eye(len(X), dtype=torch.float64)
    for (i, j), value in entries.items():
        matrix[i, j] = matrix[j, i] = value
    return matrix


def told(entries: dict[tuple[int, int], float]) -> list[Any]:
    analysis: Any = SimpleNamespace(
        degrees=10**6, deviations=DEVIATIONS, correlation=correlation(entries), bound=torch.zeros(len(X)).bool()
    )
    space: Any = SimpleNamespace(coordinates=COORDINATES)
    return joint_regions(space, X, analysis)


def test_a_ratio_is_known_as_draws_say():
    (region,) = told({(0, 1): 0.999})
    assert (set(region.names), region.form) == ({"gain", "inertia"}, "ratio")
    root = torch.linalg.cholesky(correlation({(0, 1): 0.999}))
    rows = X + DEVIATIONS * (torch.randn(20_000, len(X), generator=torch.Generator().manual_seed(0)).double() @ root.mT)
    first, second = (next(k for k, one in enumerate(COORDINATES) if one.name == name) for name in region.names)
    ratio = COORDINATES[first].value(rows[:, first]) / COORDINATES[second].value(rows[:, second])
    ends = ratio.quantile(torch.tensor([0.05, 0.95]).double()).tolist()
    assert region.interval == pytest.approx(tuple(ends), rel=0.05)
    assert "neither alone" in region.text


def test_offsets_with_opposite_errors_have_a_sum_and_others_nothing():
    (region,) = told({(3, 4): -0.99})
    assert (region.form, region.value) == ("sum", pytest.approx(0.1))
    assert region.text.endswith("is known to 0.003 rad, neither alone")
    assert told({(0, 2): 0.8, (2, 3): 0.99}) == []
