# SPDX-License-Identifier: Apache-2.0
"""Views and changes of a floating base: the kernels, which a GPU runs, compute what torch's operations do."""

import pytest
import torch

from neurodyn.geometry import base_frame, rotation
from neurodyn.geometry.base_kernels import base_advance, base_view

NQ, NV, WORLDS = 9, 8, 5


def _state(dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    q = draw(WORLDS, NQ)
    q[:, 3:7] = rotation.normalise(q[:, 3:7])
    change = draw(WORLDS, NV)
    change[0, 3:6] = 0.0  # no rotation at all, where its length divides by zero
    return q, draw(WORLDS, NV), change, draw(WORLDS, NV), draw(3), draw(WORLDS, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("unit", [False, True])
def test_the_kernel_sees_what_torch_does(dtype: torch.dtype, unit: bool) -> None:
    q, qd, *_, down = _state(dtype)
    q[:, 3:7] *= 1.01  # a quaternion that drifted: normalised, or taken as it is
    wanted = base_frame.view(q, qd, down, unit=unit)
    assert wanted.down is not None
    found = base_view(q, qd, down, unit)
    flat = [wanted.orientation, wanted.rotation.flatten(1), wanted.linear, wanted.angular, wanted.down]
    torch.testing.assert_close(found, torch.cat(flat, 1))
    same = base_view(q, qd, down[:1], unit)
    torch.testing.assert_close(same[:1], found[:1])
    assert (same[1:, -3:] - found[1:, -3:]).abs().max() > 0.1  # another gravity in each world is seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("nq", [NQ, 7])
def test_the_kernel_moves_a_base_as_torch_does(dtype: torch.dtype, nq: int) -> None:
    q, qd, dq, dqd, com, _ = _state(dtype)
    q = q[:, :nq]  # a view: rows with gaps between them
    base = rotation.matrix(q[:, 3:7])
    wanted = torch.cat(base_frame.advance(base, q, qd, dq, dqd, com), 1)
    torch.testing.assert_close(base_advance(base.flatten(1), q, qd, dq, dqd, com), wanted)
    without = torch.cat(base_frame.advance(base, q, qd, dq, dqd, None), 1)
    torch.testing.assert_close(base_advance(base.flatten(1), q, qd, dq, dqd, torch.zeros(3, dtype=dtype)), without)
    assert (wanted - without)[:, :3].abs().max() > 0.01


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("used", [(0, 1, 2, 3, 4), (2,), (1, 4), (0,)])
def test_gradients_of_a_view_are_those_of_differences(unit: bool, used: tuple[int, ...]) -> None:
    q, qd, *_, com, down = _state(torch.float64)
    q[:, 3:7] *= 1.1
    for given, lever in ((down, com), (down[0], None)):

        def seen(q, qd, given=given, lever=lever):
            found = base_frame.view(q, qd, given, unit=unit, com=lever)
            return [part for number, part in enumerate(found) if number in used]

        leaves = q.clone().requires_grad_(), qd.clone().requires_grad_()
        assert torch.autograd.gradcheck(seen, leaves)
        with torch.no_grad():
            for tracked, plain in zip(seen(*leaves), seen(q, qd), strict=True):
                assert torch.equal(tracked, plain)


def test_products_off_the_cpu_are_no_matrix_products() -> None:
    """TF32 would round them to ten bits: what runs there is seen on tensors without data."""
    q = torch.randn(WORLDS, 4, device="meta", requires_grad=True)
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        seen: set[str] = set()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen.add(function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    with Names() as names:
        rotation.rotate_rows(torch.ones(WORLDS, 2, 3, device="meta"), rotation.matrix(rotation.multiply(q, q)))
    assert not names.seen & {"mm", "bmm", "addmm", "matmul", "baddbmm"}
    assert "sum" in names.seen
