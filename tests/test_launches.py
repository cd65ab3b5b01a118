# SPDX-License-Identifier: Apache-2.0
"""Launches are counted as a GPU would have them, and what moves numbers to or from the host is found."""

import pytest
import torch
from benchmarks._launches import count_launches


def _table() -> torch.Tensor:
    return torch.zeros(4, 3, device="meta")


def test_operators_count_and_views_do_not() -> None:
    x = _table()
    found = count_launches(lambda: (x[:, :2] + 1.0).mul_(2.0).view(-1))
    assert found.operators == {"add": 1, "mul_": 1}
    assert found.launches == 2
    assert not found.copies


def test_what_is_empty_launches_nothing() -> None:
    assert count_launches(lambda: torch.zeros(5, 0, device="meta") + 1.0).launches == 0


@pytest.mark.parametrize(
    ("work", "copy"),
    [
        (lambda x: x.new_tensor([1.0, 2.0]), "new_tensor"),
        (lambda x: torch.tensor([1.0, 2.0], device="meta"), "tensor"),
        (lambda x: x[:, [0, 2]], "__getitem__ with a list"),
        (lambda x: x.index_select(1, torch.tensor([0, 2])), "index_select"),
        (lambda x: torch.ones(3).to(x), "_to_copy"),
    ],
)
def test_copies_from_the_host_are_found(work, copy) -> None:
    assert count_launches(lambda: work(_table())).copies == [copy]


def test_single_numbers_travel_with_the_launch() -> None:
    assert not count_launches(lambda: _table() * torch.tensor(2.0)).copies


@pytest.mark.parametrize("work", [lambda x: bool(x.any()), lambda x: x.sum().item(), lambda x: x.tolist(),
                                  lambda x: x.cpu(), lambda x: x[x > 0], lambda x: x.nonzero()])  # fmt: skip
def test_what_is_read_fails(work) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        count_launches(lambda: work(_table()))


def test_reads_are_found_on_a_cpu_too() -> None:
    x = torch.ones(3)
    found = count_launches(lambda: bool((x + 1.0).any()), device="cpu")
    assert found.copies == ["_local_scalar_dense"]
    assert found.operators["add"] == 1
