# SPDX-License-Identifier: Apache-2.0
"""Impulses in the cone: the conditions they are to meet, the loop against a plain one, and both its adjoints."""

import numpy as np
import pytest
import torch

from neurodyn.multibody.contacts.gauss_seidel import cone_impulses
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramSizes
from neurodyn.multibody.trace.target import Target

F64 = torch.float64
TANGENTS = (2, 1, 0, 2, 1, 2)
ROWS = len(TANGENTS) + sum(TANGENTS)
LOWER = [(i, j) for i in range(ROWS) for j in range(i + 1)]
FIRST = [sum(1 + t for t in TANGENTS[:p]) for p in range(len(TANGENTS))]
DEPTH = [0.01, 0.01, 0.01, -0.01, 0.02, 0.01]
FRICTION = [0.5, 0.3, 0.9, 0.7, 0.6, 0.4]


def problem(seed, dofs=18):
    """Return A and b of points that come down, slowly enough along their tangents that some stick."""
    rng = np.random.default_rng(seed)
    jacobian = rng.normal(size=(ROWS, dofs))
    matrix = jacobian @ jacobian.T / dofs + 0.05 * np.eye(ROWS)
    offset = 0.6 * rng.normal(size=ROWS)
    offset[FIRST] = rng.normal(size=len(FIRST)) - 0.5
    return matrix, offset


def plain(matrix, offset, sweeps, depth=DEPTH, friction=FRICTION):
    """Sweep in residuals, with u = A x + b formed anew at every projection."""
    x = np.zeros(len(offset))
    for _ in range(sweeps):
        for first, count, mu, d in zip(FIRST, TANGENTS, friction, depth, strict=True):
            if d <= 0:
                continue
            u = matrix @ x + offset
            x[first] = max(x[first] - u[first] / matrix[first, first], 0)
            own = slice(first + 1, first + 1 + count)
            if count:
                u, step = matrix @ x + offset, np.linalg.eigvalsh(matrix[own, own])[-1]
                t = x[own] - u[own] / step
                x[own] = t * min(1.0, mu * x[first] / max(np.linalg.norm(t), 1e-300))
    return x


def by_floats(matrix, offset, sweeps, **changes):
    given = {"friction": FRICTION, "depth": DEPTH, **changes}
    return np.array(cone_impulses(matrix.tolist(), offset.tolist(), TANGENTS, sweeps=sweeps, **given))


def states(matrix, offset, x):
    """Return for each point whether it is left out, leaves, sticks or slides, after its conditions are checked."""
    u, found = matrix @ x + offset, []
    for first, count, mu, d in zip(FIRST, TANGENTS, FRICTION, DEPTH, strict=True):
        t, slip = x[first + 1 : first + 1 + count], u[first + 1 : first + 1 + count]
        if d <= 0:
            assert not x[first : first + 1 + count].any()
            found.append("out")
        elif x[first] == 0:
            assert u[first] >= -1e-9
            assert not t.any()
            found.append("leaves")
        else:
            assert abs(u[first]) < 1e-9
            assert np.linalg.norm(t) <= mu * x[first] + 1e-12
            sticks = np.linalg.norm(slip) < 1e-9
            if not sticks:  # friction is at its bound, against the slip
                np.testing.assert_allclose(t, -mu * x[first] * slip / np.linalg.norm(slip), atol=1e-7)
            found.append("sticks" if sticks and count else "slides")
    return found


def test_solutions_meet_the_conditions_of_contact():
    seen = set()
    for seed in range(12):
        matrix, offset = problem(seed)
        seen |= set(states(matrix, offset, by_floats(matrix, offset, 3000)))
    assert seen == {"out", "leaves", "sticks", "slides"}


@pytest.mark.parametrize("sweeps", [1, 2, 7])
def test_sweeps_are_those_in_residuals(sweeps):
    for seed in range(5):
        matrix, offset = problem(seed)
        np.testing.assert_allclose(by_floats(matrix, offset, sweeps), plain(matrix, offset, sweeps), atol=1e-13)


def test_a_point_outside_the_ground_takes_no_part():
    matrix, offset = problem(3)
    kept = [i for i in range(ROWS) if not FIRST[3] <= i < FIRST[3] + 3]
    small = matrix[np.ix_(kept, kept)]
    tangents, pick = [t for p, t in enumerate(TANGENTS) if p != 3], [p for p in range(6) if p != 3]
    expected = cone_impulses(
        small.tolist(), offset[kept].tolist(), tangents, [FRICTION[p] for p in pick], [0.01] * 5, 20
    )
    found = by_floats(matrix, offset, 20)
    np.testing.assert_allclose(found[kept], expected, atol=1e-14)
    assert not by_floats(matrix, offset, 20, depth=[0.0, -1.0, -0.1, 0.0, -1e-9, -5.0]).any()


def program(sweeps, adjoint="taped"):
    """Return a program whose parameters are A's lower triangle, b, mu and the depths, and whose state x replaces."""

    def step(inputs):
        values = iter(inputs.parameters)
        matrix = [[None] * ROWS for _ in range(ROWS)]
        for i, j in LOWER:
            matrix[i][j] = next(values)
        offset, friction, depth = ([next(values) for _ in range(n)] for n in (ROWS, len(TANGENTS), len(TANGENTS)))
        return cone_impulses(matrix, offset, TANGENTS, friction, depth, sweeps, adjoint)

    return TracedProgram(ProgramSizes(state=ROWS, parameters=len(LOWER) + ROWS + 2 * len(TANGENTS)), step)


def packed(matrix, offset):
    return torch.tensor([*(matrix[i, j] for i, j in LOWER), *offset, *FRICTION, *DEPTH], dtype=F64)


def run(compiled, parameters):
    worlds = parameters.reshape(-1, parameters.shape[-1])
    return compiled.rollout(torch.zeros(len(worlds), ROWS, dtype=F64), frames=1, parameters=worlds)[:, 1]


@pytest.fixture(scope="module")
def seven():
    return program(7)


@pytest.fixture(scope="module")
def converged():
    return program(400), program(400, "implicit")


def gradient(compiled, parameters, seed):
    parameters = parameters.clone().requires_grad_()
    (run(compiled, parameters) * seed).sum().backward()
    return parameters.grad


def difference_error(compiled, parameters, seed, found):
    """Return the least over step sizes of the greatest error against central differences."""
    errors = []
    for step in (1e-4, 1e-5, 1e-6):
        moves = step * torch.eye(len(parameters), dtype=F64)
        ahead, behind = (run(compiled, parameters + sign * moves) @ seed for sign in (1, -1))
        errors.append(((ahead - behind) / (2 * step) - found).abs().max() / found.abs().max())
    return min(errors)


def test_the_loop_computes_what_floats_do(seven, converged):
    for seed in range(5):
        matrix, offset = problem(seed)
        for compiled, sweeps in ((seven, 7), (converged[0], 400), (converged[1], 400)):
            found = run(compiled, packed(matrix, offset))[0].numpy()
            np.testing.assert_allclose(found, by_floats(matrix, offset, sweeps), atol=1e-13)


def test_the_taped_adjoint_is_the_derivative_of_the_sweeps_that_were_done(seven):
    for seed in range(8):
        given, weights = (
            packed(*problem(seed)),
            torch.randn(ROWS, dtype=F64, generator=torch.Generator().manual_seed(9)),
        )
        assert difference_error(seven, given, weights, gradient(seven, given, weights)) < 1e-8


def test_both_adjoints_are_the_derivative_of_the_solution_at_convergence(converged):
    for seed in range(8):
        given, weights = (
            packed(*problem(seed)),
            torch.randn(ROWS, dtype=F64, generator=torch.Generator().manual_seed(9)),
        )
        taped, implicit = (gradient(compiled, given, weights) for compiled in converged)
        assert difference_error(converged[0], given, weights, implicit) < 1e-7
        torch.testing.assert_close(taped, implicit, rtol=1e-8, atol=1e-9)


def test_gradients_are_finite_where_nothing_is_left_of_the_problem(seven):
    matrix, offset = problem(0)
    for given in (
        packed(np.zeros_like(matrix), offset),
        packed(matrix, np.zeros_like(offset)),
        packed(0 * matrix, 0 * offset),
        packed(np.eye(ROWS), -np.ones(ROWS)),
    ):
        assert gradient(seven, given, torch.ones(ROWS, dtype=F64)).isfinite().all()


def test_friction_pulls_along_the_slip_even_where_it_begins_at_zero(seven):
    matrix, offset = problem(1)
    parameters = packed(matrix, offset)
    first = len(LOWER) + ROWS
    parameters[first : first + 6] = 0.0
    weights = torch.randn(ROWS, dtype=F64, generator=torch.Generator().manual_seed(3))
    found = gradient(seven, parameters, weights)[first : first + 6]
    for point in range(6):
        ahead = parameters.clone()
        ahead[first + point] = 1e-7
        change = (run(seven, ahead) - run(seven, parameters)) @ weights / 1e-7
        assert found[point].item() == pytest.approx(change.item(), rel=1e-4, abs=1e-5)
    assert found.abs().max() > 0.01


def test_loops_compile_for_a_gpu(seven, converged, tmp_path):
    """Through NVRTC, which needs no GPU."""
    import warp as wp

    if not any(wp.get_cuda_toolkit_version()):
        pytest.skip("Warp was built without CUDA")
    for compiled, single in ((seven, True), (converged[1], False)):
        for which in (0, 1):
            kernel = compiled.kernel(which, Target("cuda", single))
            wp.compile_aot_module(kernel.module, arch=90, module_dir=str(tmp_path), use_ptx=True)
    assert len(list(tmp_path.glob("*.ptx"))) == 4


def test_single_precision_does_nearly_the_same(seven):
    for seed in range(5):
        given = packed(*problem(seed))
        exact = run(seven, given)
        found = seven.rollout(torch.zeros(1, ROWS), frames=1, parameters=given.float()[None])[:, 1]
        torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)
