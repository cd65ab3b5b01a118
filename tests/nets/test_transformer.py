# SPDX-License-Identifier: Apache-2.0
"""What is particular to the cached transformer: exact positions, shared ring, cheap resets."""

import math

import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.nets.transformer import Rotary, Transformer, rotate, rotate_


@torch.no_grad()
def test_a_roll_out_of_a_million_steps_is_as_exact_as_a_short_one():
    torch.manual_seed(0)
    net = Transformer(4, 2, 32, 2, 4, 6)
    x = torch.randn(3, 30, 4)
    carry = net.begin(3)
    late = type(carry)(carry.rings, carry.filled, frame=10**6 + 7)
    for t in range(30):
        y, late = net.step_(x[:, t], late)
    assert (y - net(x)[:, -1]).abs().max() < 1e-6


@torch.no_grad()
def test_a_reset_touches_no_ring():
    net = Transformer(4, 2, 16, 2, 2, 6)
    _, carry = net.step(torch.randn(3, 4), net.begin(3))
    fresh = net.reset(carry, torch.tensor([True, False, True]))
    assert all(a is b for a, b in zip(carry.rings, fresh.rings, strict=True))
    assert fresh.filled.tolist() == [0, 1, 0]
    assert carry.filled.tolist() == [1, 1, 1]


@torch.no_grad()
def test_worlds_do_not_mix():
    torch.manual_seed(0)
    net = Transformer(4, 2, 16, 2, 2, 6).double()
    x = torch.randn(5, 20, 4, dtype=torch.float64)
    other = x.clone()
    other[2] += 1.0
    keep = torch.arange(5) != 2
    assert torch.equal(net(x)[keep], net(other)[keep])
    assert not torch.equal(net(x)[2], net(other)[2])


def test_products_of_rotated_vectors_depend_on_their_distance_only():
    rotary = Rotary(8, window=10)
    q, k = torch.randn(2, 8, dtype=torch.float64)
    cos, sin = rotary.at(5 * rotary.period, q)

    def product(i, j):
        return float(rotate(q, cos[i], sin[i]) @ rotate(k, cos[j], sin[j]))

    for distance in range(10):
        found = [product(i, i - distance) for i in range(distance, 5 * rotary.period)]
        assert max(found) - min(found) < 1e-13
    near = [product(20, 20 - distance) for distance in range(10)]
    assert min(abs(a - b) for i, a in enumerate(near) for b in near[:i]) > 1e-6


def test_angles_match_their_definition_and_repeat_bit_by_bit():
    rotary = Rotary(16, window=10)
    assert rotary.period == 64
    assert rotary.harmonics[0] == 1
    like = torch.zeros(1, dtype=torch.float64)
    cos, sin = rotary.at(3 * rotary.period, like)
    angle = torch.arange(3 * rotary.period)[:, None] * torch.tensor(rotary.harmonics) * (2 * math.pi / rotary.period)
    torch.testing.assert_close(cos, torch.cos(angle.double()), rtol=0, atol=1e-4)
    torch.testing.assert_close(sin, torch.sin(angle.double()), rtol=0, atol=1e-4)
    assert torch.equal(cos[: rotary.period], cos[rotary.period : 2 * rotary.period])


def test_the_rotation_in_place_is_the_rotation():
    rotary = Rotary(8, window=4)
    x = torch.randn(3, 8, 5, dtype=torch.float64)
    cos, sin = (table[7][:, None] for table in rotary.tables(x))
    expected = rotate(x, cos, sin, 1)
    rotate_(x, cos, sin)
    torch.testing.assert_close(x, expected, rtol=0, atol=1e-15)


def test_the_window_in_training_is_the_plain_causal_mask_for_short_chunks():
    torch.manual_seed(0)
    net = Transformer(4, 2, 16, 1, 2, 6).double()
    x = torch.randn(2, 14, 4, dtype=torch.float64)
    assert (net(x)[:, :6] - net(x[:, :6])).abs().max() < 1e-12
    # One block sees only its window, so a window on its own gives the last frame of a longer chunk.
    assert (net(x)[:, -1] - net(x[:, -6:])[:, -1]).abs().max() < 1e-12


def test_carries_at_different_frames_are_not_merged():
    net = Transformer(4, 2, 16, 1, 2, 6)
    carry = net.begin(2)
    _, later = net.step(torch.randn(2, 4), carry)
    with pytest.raises(InputError, match="frames 0 and 1"):
        net.merge(carry, later, torch.tensor([True, False]))
