# SPDX-License-Identifier: Apache-2.0
"""Products by either library equal those in float64, up to rounding in float32."""

import pytest
import torch
from torch import Tensor

from neurodyn.nets import products


def error(given: Tensor, exact: Tensor) -> float:
    return float((given.double() - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("onednn", [False, True])
def test_products_equal_those_in_double_precision(onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if onednn and not torch.backends.mkldnn.is_available():
        pytest.skip("no oneDNN")
    monkeypatch.setattr(products, "prefers_onednn", lambda: onednn)
    torch.manual_seed(0)
    x, weight, bias, seed = torch.randn(512, 90), torch.randn(128, 90), torch.randn(128), torch.randn(512, 128)
    room, total = torch.empty(512, 128), torch.ones(128, 90)
    y = products.linear(x, weight, bias, room, 2.0)
    assert (y is room) is not onednn
    assert error(y, 2.0 * (x.double() @ weight.double().t() + bias)) < 1e-6
    assert error(products.product(seed, weight, torch.empty(512, 90)), seed.double() @ weight.double()) < 1e-6
    products.add_product_(total, seed, x)
    assert error(total, 1.0 + seed.double().t() @ x.double()) < 1e-6


def test_small_products_and_double_precision_stay_with_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "prefers_onednn", lambda: True)
    for rows, dtype in ((4, torch.float32), (2048, torch.float64)):
        x, weight, bias = (torch.randn(*shape, dtype=dtype) for shape in ((rows, 64), (64, 64), (64,)))
        room = x.new_empty(rows, 64)
        assert products.linear(x, weight, bias, room) is room
