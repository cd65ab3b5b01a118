# SPDX-License-Identifier: Apache-2.0
"""Quaternions and rotation vectors: definitions, signs, and gradients where formulas have a hole."""

import math

import torch

from neurodyn.geometry import rotation

A, B = rotation.normalise(torch.randn(2, 50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))


def test_a_quarter_turn_about_z_takes_x_to_y():
    q = rotation.exponential(torch.tensor([0.0, 0.0, math.pi / 2], dtype=torch.float64))
    expected = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    x = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    assert torch.allclose(rotation.rotate(q, x), expected, atol=1e-15)
    assert torch.allclose(rotation.matrix(q) @ x, expected, atol=1e-15)


def test_a_product_applies_its_right_factor_first():
    assert torch.allclose(rotation.matrix(rotation.multiply(A, B)), rotation.matrix(A) @ rotation.matrix(B), atol=1e-14)
    assert torch.allclose(rotation.matrix(rotation.conjugate(A)), rotation.matrix(A).mT, atol=1e-14)


def test_the_logarithm_undoes_the_exponential_up_to_half_a_turn():
    axis = torch.nn.functional.normalize(torch.randn(50, 3, dtype=torch.float64), dim=-1)
    for angle in (0.0, 1e-9, 1e-5, 1e-3, 1.0, 3.1):
        vector = angle * axis
        assert torch.allclose(rotation.logarithm(rotation.exponential(vector)), vector, atol=1e-12)


def test_both_signs_of_a_quaternion_are_the_same_rotation():
    assert torch.equal(rotation.logarithm(A), rotation.logarithm(-A))


def test_gradients_are_right_everywhere_and_at_zero():
    for vector in (torch.randn(5, 3, dtype=torch.float64), 1e-4 * torch.randn(5, 3, dtype=torch.float64)):
        vector.requires_grad_(True)
        assert torch.autograd.gradcheck(rotation.exponential, vector)
        assert torch.autograd.gradcheck(lambda v: rotation.logarithm(rotation.exponential(v)), vector)
    zero = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    rotation.logarithm(rotation.exponential(zero)).sum().backward()
    assert zero.grad is not None
    assert torch.allclose(zero.grad, torch.ones(1, 3, dtype=torch.float64))
