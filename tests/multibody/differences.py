# SPDX-License-Identifier: Apache-2.0
"""Gradients of rows of numbers beside central differences, for tests."""

import itertools

import torch


def along(value, point, *directions):
    """Yield the gradient along each direction and the difference quotient, of the smooth rows of `value(point)`.

    A row is smooth if two step sizes agree: no contact begins or ends between.
    """
    leaf = point.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf).sum(), leaf)
    for way in directions:
        with torch.no_grad():
            fine, coarse = ((value(point + h * way) - value(point - h * way)) / (2 * h) for h in (1e-6, 2e-6))
        smooth = (fine - coarse).abs() < 1e-6 * (1 + fine.abs())
        yield (gradient * way).flatten(1).sum(1)[smooth], fine[smooth]


def require_along(value, point, *directions, least, rtol=1e-6, atol=1e-6):
    """The gradient along each direction is the difference quotient, in at least so many smooth rows."""
    for gradient, quotient in along(value, point, *directions):
        assert len(gradient) >= least
        torch.testing.assert_close(gradient, quotient, rtol=rtol, atol=atol)


def require_gradient(value, point, least=1.0, accuracy=1e-5, steepness=0.1):
    """The gradient of each row by each column is that of differences, relative to its size."""
    leaf = point.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf).sum(), leaf)
    best = torch.full(gradient.shape, torch.inf, dtype=point.dtype)
    for size, column in itertools.product((1e-5, 1e-6, 1e-7), range(point.shape[1])):
        change = torch.zeros_like(point)
        change[:, column] = size * point[:, column].abs().clamp_min(least)
        with torch.no_grad():
            quotient = (value(point + change) - value(point - change)) / (2 * change[:, column])
        best[:, column] = torch.minimum(best[:, column], (quotient - gradient[:, column]).abs())
    assert gradient.norm(dim=1).min() > steepness
    assert (best / gradient.norm(dim=1, keepdim=True)).max() < accuracy


def off_quaternions(states, body, rng):
    """A random direction of one free body's position, which keeps its quaternion's length."""
    way = torch.zeros_like(states)
    way[:, 7 * body : 7 * body + 7] = torch.from_numpy(rng.normal(size=(len(states), 7)))
    turn, change = (x[:, 7 * body + 3 : 7 * body + 7] for x in (states, way))
    change -= (change * turn).sum(1, keepdim=True) * turn
    return way
