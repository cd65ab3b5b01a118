# SPDX-License-Identifier: Apache-2.0
"""States of a base over whole runs: derivatives against differences, the chain against dense algebra, and a robot."""

from dataclasses import replace

import msgspec
import pytest
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.estimate import ERRORS, smooth_base
from neurodyn.estimate.base_estimate import MountingEstimate
from neurodyn.estimate.chain import ChainEquations
from neurodyn.estimate.inertial import inertial_errors, spins
from neurodyn.estimate.shared import SharedEquations
from neurodyn.estimate.smoother import BaseProblem
from neurodyn.estimate.standing import standing_residuals
from neurodyn.estimate.track import SIZE, BaseTrack
from neurodyn.geometry import rotation
from tests.estimate.tripod import IMU, SETTINGS, hop, model


def _problem() -> tuple[BaseProblem, BaseTrack]:
    """A turned and moving base beside the readings of short runs of different length."""
    run, _ = hop(0.6)
    short = run.until(20)
    problem = BaseProblem.of(model(), [run, short], SETTINGS)
    generator = torch.Generator().manual_seed(1)
    error = 0.3 * torch.randn(2, run.frames, SIZE, generator=generator, dtype=torch.float64)
    error[..., 6] *= 0.03
    return problem, problem.first().moved(error)


def differences(residual_of, track: BaseTrack, frames: slice) -> Tensor:
    """Derivatives of residuals by the errors of some frames, by central differences."""
    columns = []
    for k in range(SIZE):
        step = torch.zeros(*track.height.shape, SIZE, dtype=torch.float64)
        step[:, frames, k] = 1e-5
        columns.append((residual_of(track.moved(step)) - residual_of(track.moved(-step))) / 2e-5)
    return torch.stack(columns, -1)


def test_standing_legs_have_the_derivatives_of_differences():
    problem, track = _problem()

    def residuals(moved: BaseTrack, which: int = 0):
        spin = spins(track, problem.inertial.spin, problem.mounting)  # held, as in the derivatives
        felt = torch.full_like(moved.height, 20.0)
        return standing_residuals(moved, problem.legs, spin, felt, problem.mounting, problem.settings)

    (_, height), (_, speed) = residuals(track)
    torch.testing.assert_close(
        height, differences(lambda x: residuals(x)[0][0], track, slice(None)), atol=1e-4, rtol=1e-4
    )
    numeric = differences(lambda x: residuals(x)[1][0], track, slice(None))
    # The spin turns with the base in the formula.
    torch.testing.assert_close(speed[..., 3:], numeric[..., 3:], atol=1e-4, rtol=1e-4)


def test_inertial_steps_have_the_derivatives_of_differences():
    problem, track = _problem()
    given = problem.inertial, problem.mounting, problem.settings, problem.model.gravity
    near = problem.first()  # rotations between frames are small, as they are near a solution
    track = BaseTrack(near.quaternion, track.velocity, track.height, track.gyroscope, track.accelerometer)
    _, here, following = inertial_errors(track, *given).whitened()
    for t in (3, 8):
        numeric = differences(lambda x: inertial_errors(x, *given).whitened()[0], track, slice(t, t + 1))
        off = numeric[:, t] - here[:, t]
        scale = here[:, t].abs().amax((-1, -2), keepdim=True)
        # The vertical velocity's small dependence on the rotation is left out; rotations are small within frames.
        assert float((off.abs() / scale).max()) < 0.05
        off = numeric[:, t - 1] - following[:, t - 1]
        assert float((off.abs() / following[:, t - 1].abs().amax((-1, -2), keepdim=True)).max()) < 0.05


def test_predictions_of_the_model_have_the_derivatives_of_differences():
    problem, track = _problem()
    for lifted in (0.3, 0.0):  # in the air, and with contacts
        higher = track.height + lifted
        moved = BaseTrack(track.quaternion, track.velocity, higher, track.gyroscope, track.accelerometer)
        seen = problem.model.residuals(moved, problem.inertial, problem.sensed, None)
        numeric = differences(
            lambda x: problem.model.residuals(x, problem.inertial, problem.sensed, None).residual,
            moved,
            slice(0, None, 2),
        )
        off = (numeric - seen.jacobian)[:, ::2].abs().flatten(0, 1).amax(1).median(0).values
        # The median, because contacts begin and end between the differences in a few frames.
        assert float(off[:7].max()) < 1e-6
        assert float(off[7:].max()) < 0.05  # biases turn the base within a frame, which is left out


def test_the_chain_solves_and_inverts_as_dense_algebra_does():
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    runs, frames, n = 2, 4, 3
    own, coupled = (
        (drawn(runs, frames, 5), drawn(runs, frames, 5, n)),
        (drawn(runs, 3, 2), drawn(runs, 3, 2, n), drawn(runs, 3, 2, n)),
    )
    chain = ChainEquations(runs, frames, n)
    chain.add(*own)
    chain.couple(*coupled)
    for run in range(runs):
        rows, right = [], []
        for t in range(frames):
            block = torch.zeros(5, frames, n, dtype=torch.float64)
            block[:, t] = own[1][run, t]
            rows.append(block.flatten(1)), right.append(own[0][run, t])
        for t in range(frames - 1):
            block = torch.zeros(2, frames, n, dtype=torch.float64)
            block[:, t], block[:, t + 1] = coupled[1][run, t], coupled[2][run, t]
            rows.append(block.flatten(1)), right.append(coupled[0][run, t])
        jacobian, residual = torch.cat(rows), torch.cat(right)
        inverse = torch.linalg.inv(jacobian.T @ jacobian)
        torch.testing.assert_close(chain.solve()[run].flatten(), -inverse @ jacobian.T @ residual)
        blocks = torch.stack([inverse[t * n : t * n + n, t * n : t * n + n] for t in range(frames)])
        torch.testing.assert_close(chain.covariance()[run], blocks)


def test_unknowns_that_frames_share_are_those_of_dense_algebra():
    generator = torch.Generator().manual_seed(2)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    runs, frames, n, m = 2, 4, 3, 2
    own, between = (drawn(runs, frames, 5), drawn(runs, frames, 5, n)), (drawn(runs, 3, 2), *drawn(2, runs, 3, 2, n))
    slopes = [[drawn(runs, frames, 5), drawn(runs, 3, 2)] for _ in range(m)]
    off, deviations = drawn(m), torch.tensor([0.5, 2.0], dtype=torch.float64)
    chain = SharedEquations(runs, frames, n)
    chain.add(*own)
    chain.couple(*between)
    step = chain.step(slopes, off, deviations)
    jacobian = torch.zeros(runs, frames * 5 + 6, runs, frames * n, dtype=torch.float64)
    by, right = [], []
    for run in range(runs):
        for t in range(frames):
            jacobian[run, 5 * t : 5 * t + 5, run, n * t : n * t + n] = own[1][run, t]
        for t in range(frames - 1):
            rows = slice(5 * frames + 2 * t, 5 * frames + 2 * t + 2)
            jacobian[run, rows, run, n * t : n * t + n] = between[1][run, t]
            jacobian[run, rows, run, n * t + n : n * t + 2 * n] = between[2][run, t]
        right.append(torch.cat([own[0][run].flatten(), between[0][run].flatten()]))
        by.append(torch.stack([torch.cat([a[run].flatten(), b[run].flatten()]) for a, b in slopes], -1))
    whole = torch.cat([jacobian.flatten(2).flatten(0, 1), torch.cat(by)], 1)
    prior = torch.cat([torch.zeros(m, runs * frames * n), torch.diag(1.0 / deviations)], 1)
    found = -torch.linalg.lstsq(torch.cat([whole, prior]), torch.cat([*right, off / deviations])).solution
    torch.testing.assert_close(step.shared, found[-m:])
    torch.testing.assert_close(step.states.flatten(), found[:-m])
    least = torch.linalg.inv(torch.cat([whole, prior]).T @ torch.cat([whole, prior]))[-m:, -m:]
    assert (step.covariance.diagonal() >= least.diagonal()).all()


@pytest.mark.slow
def test_an_imu_that_sits_elsewhere_and_is_turned_is_found(monkeypatch):
    runs, truths = zip(*(hop(3.0, seed) for seed in range(3)), strict=True)
    steps, step = [], BaseProblem.mounting_step
    monkeypatch.setattr(BaseProblem, "mounting_step", lambda *given: steps.append(given) or step(*given))
    off = torch.tensor([-0.02, 0.02, 0.02, 0.05, -0.06, 0.04], dtype=torch.float64)
    said = MountingEstimate(off, torch.eye(6)).on(IMU)
    wrong = msgspec.structs.replace(SETTINGS, imu=said)
    free = msgspec.structs.replace(wrong, imu_place_noise=0.05, imu_turn_noise=0.1)
    estimate = smooth_base(model(), list(runs), free)
    assert estimate.mounting is not None
    back = estimate.mounting.on(said)
    assert back.position == pytest.approx(IMU.position, abs=0.01)
    turned = rotation.multiply(
        *(torch.tensor(q, dtype=torch.float64) for q in (back.quaternion, [-x for x in IMU.quaternion[:3]] + [0.8]))
    )
    assert float(rotation.logarithm(turned).norm()) < 0.015
    deviations = estimate.mounting.covariance.diagonal().sqrt()
    assert float(deviations[:3].max()) < 0.005
    # From where the search of a part of the runs ends, it is found sooner, and the same.
    afresh = len(steps)
    part = smooth_base(model(), list(runs[:2]), free).mounting
    assert part is not None
    steps.clear()
    again = smooth_base(model(), list(runs), free, part).mounting
    assert again is not None
    assert len(steps) < afresh // 2
    both = (part.covariance + estimate.mounting.covariance).diagonal().sqrt()
    assert ((again.change - estimate.mounting.change).abs() < 3.0 * both).all()  # a deviation of intervals is three
    for which, most in ((estimate, 0.02), (smooth_base(model(), list(runs), wrong), 1.0)):
        errors = [errors_of(run, truth)[0] for run, truth in zip(which, truths, strict=True)]
        assert sum(errors) / 3 < most
    assert sum(errors) / 3 > 0.08


def errors_of(run, truth) -> tuple[float, float, float]:
    """Mean errors of velocity, in axes of the heading, height and angular velocity."""

    def level(quaternion: Tensor, vector: Tensor) -> Tensor:
        ahead = rotation.matrix(quaternion)
        angle = -torch.atan2(ahead[:, 1, 0], ahead[:, 0, 0])
        return rotation.rotate(rotation.exponential(torch.stack([0 * angle, 0 * angle, angle], -1)), vector)

    off = level(run.quaternion, run.linear) - level(truth["quaternion"], truth["linear"])
    spin = level(run.quaternion, run.angular) - level(truth["quaternion"], truth["angular"])
    height = run.position[:, 2] - truth["position"][:, 2]
    return float(off.norm(dim=1).mean()), float(height.abs().mean()), float(spin.norm(dim=1).mean())


def test_a_hopping_robot_is_followed():
    runs, truths = zip(*(hop(3.0, seed) for seed in range(2)), strict=True)
    estimate = smooth_base(model(), list(runs), SETTINGS)
    assert len(estimate) == 2
    for run, truth in zip(estimate, truths, strict=True):
        velocity, height, spin = errors_of(run, truth)
        assert velocity < 0.03
        assert height < 0.003
        assert spin < 0.03
        assert run.covariance.shape == (len(run.linear), len(ERRORS), len(ERRORS))
        off = (run.position[:, 2] - truth["position"][:, 2]) / run.deviation("height")
        assert 0.2 < float(off.square().mean().sqrt()) < 4.0
        assert 0.0 < float(run.contacts.double().mean()) < 1.0


def test_without_an_attitude_the_gyroscope_and_gravity_do():
    run, truth = hop(3.0)
    velocity, height, _ = errors_of(smooth_base(model(), replace(run, attitude=None), SETTINGS)[0], truth)
    assert velocity < 0.1
    assert height < 0.01


def test_gaps_of_an_imu_are_filled_and_absent_ones_refused():
    run, truth = hop(3.0)
    force = run.specific_force.clone()
    force[10], force[40:42] = torch.nan, torch.nan
    velocity, _, _ = errors_of(smooth_base(model(), replace(run, specific_force=force), SETTINGS)[0], truth)
    assert velocity < 0.1
    with pytest.raises(InputError, match="0 rows of a run have a reading"):
        replace(run, specific_force=torch.full_like(force, torch.nan))
    with pytest.raises(InputError, match="equally many"):
        replace(run, q=run.q[:-1])


def test_a_robot_without_a_floating_base_is_refused():
    run, _ = hop(0.2)
    with pytest.raises(InputError, match="floating base, contact points"):
        smooth_base(declared_hybrid("cartpole"), run)
