# SPDX-License-Identifier: Apache-2.0
"""Constants that are made once, and columns of tables."""

import pytest
import torch

from neurodyn.geometry.tensors import columns, constant, index


def test_a_constant_is_made_once_per_device_and_type():
    like = torch.zeros(2, dtype=torch.float64)
    assert constant((1.0, 2.0), like) is constant((1.0, 2.0), like)
    assert constant((1.0, 2.0), like).dtype == torch.float64
    assert constant((1.0, 2.0), like.float()).dtype == torch.float32
    assert index((0, 2), like).dtype == torch.long


@pytest.mark.parametrize(("which", "view"), [((1, 2), True), ((2, 0), False), ((), False)])
def test_adjacent_columns_are_a_view(which, view):
    table = torch.arange(6.0).view(2, 3)
    picked = columns(table, which)
    assert torch.equal(picked, table[:, list(which)])
    assert (picked.untyped_storage().data_ptr() == table.untyped_storage().data_ptr()) == view
