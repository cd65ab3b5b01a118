# SPDX-License-Identifier: Apache-2.0
"""Normalisation: the formula, streaming, frozen statistics, and dimensions that never varied."""

import h5py
import numpy as np
import pytest
import torch

from neurodyn.core.errors import InputError, NeurodynError
from neurodyn.nets.normaliser import Normaliser, moments


def test_statistics_are_those_of_the_formula():
    x = torch.randn(1000, 3, dtype=torch.float64) * torch.tensor([1.0, 5.0, 0.01]) + torch.tensor([0.0, -3.0, 7.0])
    found = Normaliser(3).double().fit(x)(x)
    expected = (x - x.mean(0)) / torch.sqrt(x.var(0, unbiased=False) + 1e-5)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_inverse_undoes_the_normalisation():
    x = torch.randn(200, 4, 3, dtype=torch.float64) * torch.tensor([1.0, 50.0, 0.1]) + 2.0
    normaliser = Normaliser(3).double().fit(x)
    torch.testing.assert_close(normaliser.inverse(normaliser(x)), x, rtol=1e-12, atol=1e-12)


def test_large_arrays_are_streamed_without_cancellation(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200_000, 2)) * [1e-2, 1.0] + [1e4, 0.0]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        mean, variance = moments(file.create_dataset("x", data=x), 2)
    np.testing.assert_allclose(mean, x.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(variance, x.var(0), rtol=1e-9)


def test_a_dimension_that_never_varied_is_harmless():
    x = torch.randn(500, 3)
    x[:, 1] = 9.81
    normaliser = Normaliser(3).fit(x)
    later = torch.tensor([[0.0, 1e6, 0.0]])
    assert normaliser(later)[0, 1] == 0.0
    assert normaliser.inverse(torch.ones(1, 3))[0, 1] == pytest.approx(9.81)


def test_statistics_are_frozen_once_fitted_and_travel_with_the_state():
    normaliser = Normaliser(2).fit(torch.randn(10, 2))
    with pytest.raises(NeurodynError, match="fitted"):
        normaliser.fit(torch.randn(10, 2))
    copy = Normaliser(2)
    copy.load_state_dict(normaliser.state_dict())
    x = torch.randn(5, 2)
    assert torch.equal(copy(x), normaliser(x))
    with pytest.raises(NeurodynError, match="fitted"):
        copy.fit(x)


def test_it_is_the_identity_before_it_is_fitted():
    x = torch.randn(5, 2)
    assert torch.equal(Normaliser(2)(x), x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.randn(5, 3), r"shape \[5, 3\]"),
        (torch.randn(2), r"shape \[2\]"),
        (torch.zeros(0, 2), "at least one frame"),
        (torch.tensor([[0.0, float("nan")], [1.0, 2.0]]), r"dimensions \[1\]"),
    ],
)
def test_bad_data_are_refused_in_one_line(x, message):
    with pytest.raises(InputError, match=message):
        Normaliser(2).fit(x)
