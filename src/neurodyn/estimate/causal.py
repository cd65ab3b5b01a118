# SPDX-License-Identifier: Apache-2.0
r"""The state of a floating base while the robot runs: an iterated, robust error-state Kalman filter.

In each frame, what came of the last one corrects the state at its beginning: the model's prediction, weighted by a
Student t distribution of the innovation, and less while innovations are larger than expected, and the lowest point of a
loaded leg, on the ground and nearly at rest. Then the state moves on with the IMU, and the IMU's own attitude corrects
roll and pitch. Residuals are the smoother's.
Derivatives of the model are central differences, so that the same filter runs where models have no adjoint, in C
(`interop.c_code.base_filter`).

With derivatives A of residuals r in units of their noise, and the covariance P of the state's errors,

$$S = A P A^T + 1, \quad K = P A^T S^{-1}, \quad \delta = K (A \delta_i - r(\hat x \oplus \delta_i)), \quad
P^+ = (1 - K A) P (1 - K A)^T + K K^T$$

(Bell and Cathey 1993: the iterated filter is a Gauss-Newton method).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neurodyn.dynamics.interface import Dynamics
from neurodyn.estimate.base_estimate import BaseEstimate
from neurodyn.estimate.beside_imu import BaseMoment, residuals_beside
from neurodyn.estimate.inertial import InertialSteps, inertial_errors, rises, spins, strapdown, upright
from neurodyn.estimate.model_frames import LIFT, FrameModel
from neurodyn.estimate.robust import ModelScatter, share_of_flight, student_weights
from neurodyn.estimate.sensed import SensedBatch, SensedRun
from neurodyn.estimate.settings import EstimationSettings, ImuMounting
from neurodyn.estimate.smoother import BaseProblem
from neurodyn.estimate.standing import LegPoints, estimable_points, standing_residuals
from neurodyn.estimate.track import ACCELEROMETER, HEIGHT, SIZE, TURN, BaseTrack
from neurodyn.geometry import rotation

ITERATIONS = 2
"""Linearisations of a frame's prediction."""

STEPS = (5e-3,) * 3 + (2e-2,) * 3 + (2e-3,) + (2e-3,) * 3
"""Central differences of the model along the first errors of `estimate.track`; it does not depend on the others. They
are as large as errors of the filter, because contacts begin and end within these."""

SUNK = 5e-3
"""Depth of the lowest point in the ground at the start [m]."""

ROWS = 2 + 2 * len(STEPS)
"""Predictions for one linearisation: undisturbed, disturbed, and in free flight."""

MEMORY, MOST = 0.05, 20.0
"""Share of a frame in the running mean of surprises, and the most that it counts."""

LEARNT, JUMP, USUAL = 0.05, 4.0, 1.2
"""How fast the variance of the model's errors follows its surprises, in shares of a frame; the most that one counts, as
errors of a wrong model last, and those of a lost state are over soon; and their mean beyond which it grows."""

DOUBT = (0.0, 0.0, 0.0, 0.1, 0.1, 0.1, 0.015, *(0.0,) * 6)
"""Standard deviations of errors per root of a surprise beyond 2 that are added in a frame."""


@dataclass(frozen=True)
class FilterState:
    """What the filter keeps between two frames, of a batch of robots.

    Attributes:
        track: State of the base, with one frame.
        covariance: Of the errors of `estimate.track`, shape [robots, SIZE, SIZE].
        last: The last readings, with one frame.
        surprise: Running mean of the model's squared innovations over their expectation, shape [robots]: 1 if the
            filter knows how wrong it is.
        wrong: Variance of the model's errors over that of its `scatter`, at least 1, shape [robots].
        carry: Memory of the model's drives.
    """

    track: BaseTrack
    covariance: Tensor
    last: SensedBatch
    surprise: Tensor
    wrong: Tensor
    carry: Any


class BaseFilter:
    """A causal filter of the floating bases of a batch of robots.

    Attributes:
        settings: Its settings.
        mounting: Place of the IMU.
        model: Predictions of the model.
        layout: Contact points of the robot.
        scatter: How far the model is trusted.
        whitening: Takes the model's residuals in free flight to units of their noise, shape [nv, nv].
        dt: Length of a frame [s].
    """

    def __init__(
        self, dynamics: Dynamics, settings: EstimationSettings | None = None, *, scatter: ModelScatter | None = None
    ) -> None:
        """Prepare a filter.

        Args:
            dynamics: Any dynamics with contacts and a floating base.
            settings: Place of the IMU, noises.
            scatter: How far the model is trusted, as `smooth_base` finds it; None for the settings' `model_noise`.

        Raises:
            InputError: See `smooth_base`.
        """
        self.settings = EstimationSettings() if settings is None else settings
        self.layout, self.dynamics = estimable_points(dynamics), dynamics
        self.mounting = ImuMounting.of(self.settings.imu)
        self.model = FrameModel(dynamics, self.mounting)
        self.scatter = ModelScatter.of(self.settings.model_noise, dynamics.spec.nv) if scatter is None else scatter
        self.whitening = torch.linalg.inv(self.scatter.factor) * self.scatter.share**0.5
        self.dt = dynamics.spec.dt

    def begin(self, sensed: SensedBatch) -> FilterState:
        """Return the state at the first readings, with one frame: at rest, with the lowest point on the ground."""
        quaternion = self._read(sensed)
        nothing = torch.zeros(*quaternion.shape[:2], 3, dtype=torch.float64)
        track = BaseTrack(quaternion, nothing, nothing[..., 0], nothing, nothing)
        # In the ground, not at its surface, where contacts begin.
        track = replace(track, height=-LegPoints(self.layout, sensed).heights(track).amin(-1) - SUNK)
        noise = torch.tensor(self.start_noise(attitude=sensed.attitude is not None), dtype=torch.float64)
        covariance = torch.diag(noise.square()).expand(len(quaternion), SIZE, SIZE)
        surprise = torch.ones(len(quaternion), dtype=torch.float64)
        return FilterState(track, covariance, sensed, surprise, surprise, self.model.begin(sensed, ROWS))

    def start_noise(self, *, attitude: bool) -> tuple[float, ...]:
        """Return the standard deviations of the errors at the start, with an attitude of the IMU or without."""
        tilt = 0.1 if attitude else 0.5
        biases = *[self.settings.gyroscope_bias] * 3, *[self.settings.accelerometer_bias] * 3
        return (tilt, tilt, 0.02, 1.0, 1.0, 1.0, 0.3, *biases)

    def step(self, state: FilterState, sensed: SensedBatch) -> FilterState:
        """Return the state a frame later, from the readings of one frame.

        The control of the frame that ended is that of the readings at its begin.
        """
        both = state.last.followed(sensed)
        inertial = InertialSteps.of(both, self.settings, self.dt)
        track, covariance, surprise, wrong, carry = self._corrected(state, both, inertial)
        track, covariance = self._moved_on(track, covariance, inertial)
        if sensed.attitude is not None:
            track, covariance = self._levelled(track, covariance, sensed)
        return FilterState(track, covariance, sensed, surprise, wrong, carry)

    def _corrected(
        self, state: FilterState, both: SensedBatch, inertial: InertialSteps
    ) -> tuple[BaseTrack, Tensor, Tensor, Tensor, Any]:
        """Return the state at the begin of a frame, corrected by what came of it, surprise, wrongness, and the carry.

        While readings surprise the model, the state is lost, after a fall or a wrong start: it is less certain. While
        they keep doing so, the model is wrong: it counts less.
        """
        first, surprise, wrong = state.track, state.surprise, state.wrong
        doubt = (surprise - 2.0).clamp_min(0.0)[:, None] * torch.tensor(DOUBT, dtype=torch.float64).square()
        covariance = state.covariance + torch.diag_embed(doubt)
        legs = LegPoints(self.layout, state.last)
        change = torch.zeros(len(covariance), SIZE, dtype=torch.float64)
        weights: list[Tensor] | None = None
        gain = rows = torch.empty(0)
        carry, trust = state.carry, wrong.rsqrt()
        for _ in range(ITERATIONS):
            track = first.moved(change[:, None])
            spin = spins(track, inertial.spin[:, :1], self.mounting)
            predicted, pushed, carry = self._linearised(track, both, inertial, state.carry)
            predicted = predicted[0] * trust[:, None], predicted[1] * trust[:, None, None]
            stands = standing_residuals(track, legs, spin, pushed, self.mounting, self.settings)
            moment = BaseMoment(track, inertial.spin[:, :1], spin, legs, self.mounting, self.settings)
            beside = residuals_beside(moment, state.last.beside, self.settings.beside)
            groups = [*((r[:, 0], a[:, 0]) for r, a in (*stands, *beside)), predicted]
            if weights is None:
                squares = [_innovation(r, a, covariance) for r, a in groups]
                weights = [_weight(square, r.shape[-1]) for square, (r, _) in zip(squares, groups, strict=True)]
                share = squares[-1] / groups[-1][0].shape[-1]
                surprise = (1.0 - MEMORY) * surprise + MEMORY * share.clamp_max(MOST)
                wrong = (wrong * (1.0 + LEARNT * (share.clamp_max(JUMP) - USUAL))).clamp_min(1.0)
            residual = torch.cat([r * w for (r, _), w in zip(groups, weights, strict=True)], -1)
            rows = torch.cat([a * w[..., None] for (_, a), w in zip(groups, weights, strict=True)], -2)
            gain = _gain(rows, covariance)
            change = (gain @ ((rows @ change[..., None])[..., 0] - residual)[..., None])[..., 0]
        return first.moved(change[:, None]), _reduced(covariance, gain, rows), surprise, wrong, carry

    def _linearised(
        self, track: BaseTrack, both: SensedBatch, inertial: InertialSteps, carry: Any
    ) -> tuple[tuple[Tensor, Tensor], Tensor, Any]:
        """Return the model's whitened residuals and derivatives, how the ground pushes the base, and the carry.

        Shapes [robots, nv] and [robots, nv, SIZE], and [robots, 1] [m/s^2].
        """
        robots, count = len(both.q), len(STEPS)
        steps = torch.diag(torch.tensor(STEPS, dtype=torch.float64))
        steps = torch.nn.functional.pad(steps, (0, SIZE - count))
        raised = torch.zeros(1, SIZE, dtype=torch.float64)
        raised[:, HEIGHT] = LIFT
        moves = torch.cat([torch.zeros_like(raised), steps, -steps, raised]).repeat(robots, 1)
        wide = track.each(lambda x: x.repeat_interleave(ROWS, 0)).moved(moves[:, None])
        wide = BaseTrack.concatenate([wide, wide])
        errors, carry = self.model.errors(wide, inertial.repeated(ROWS), both.repeated(ROWS), carry)
        errors = errors.view(robots, ROWS, -1)
        derivative = torch.zeros(robots, errors.shape[-1], SIZE, dtype=torch.float64)
        sizes = 2.0 * torch.tensor(STEPS, dtype=torch.float64)
        derivative[..., :count] = (errors[:, 1 : count + 1] - errors[:, count + 1 : -1]).mT / sizes
        world = rotation.matrix(track.quaternion[:, 0]) @ self.mounting.matrix
        derivative[:, :3, ACCELEROMETER] = self.dt * world
        scale = self.whitening * share_of_flight(inertial.felt[:, 0])[:, None, None]
        residual = (scale @ errors[:, 0, :, None])[..., 0]
        pushed = errors[:, -1, :3].norm(dim=-1, keepdim=True) / self.dt
        return (residual, scale @ derivative), pushed, _like_first(carry, robots)

    def _moved_on(self, track: BaseTrack, covariance: Tensor, inertial: InertialSteps) -> tuple[BaseTrack, Tensor]:
        """Return the state at the end of a frame, by the IMU."""
        quaternion, acceleration, _ = strapdown(
            BaseTrack.concatenate([track, track]), inertial, self.mounting, self.model.gravity
        )
        after = BaseTrack(
            rotation.normalise(quaternion), track.velocity + self.dt * acceleration, track.height, track.gyroscope,
            track.accelerometer,
        )  # fmt: skip
        path = BaseTrack.concatenate([track, after])
        rise = rises(path, spins(path, inertial.spin, self.mounting), self.mounting)
        after = replace(after, height=track.height + 0.5 * self.dt * rise.sum(1, keepdim=True))
        errors = inertial_errors(path, inertial, self.mounting, self.settings, self.model.gravity)
        onward = torch.linalg.inv(errors.following[:, 0])
        change = -onward @ errors.here[:, 0]
        noise = onward * errors.noise[:, 0, None]
        return after, change @ covariance @ change.mT + noise @ noise.mT

    def _levelled(self, track: BaseTrack, covariance: Tensor, sensed: SensedBatch) -> tuple[BaseTrack, Tensor]:
        """Return the state with the IMU's own attitude."""
        settings = self.settings
        off = rotation.logarithm(rotation.multiply(track.quaternion, rotation.conjugate(self._read(sensed))))[:, 0]
        read = off.isfinite().all(-1, keepdim=True).double()
        noise = torch.tensor([settings.attitude_noise] * 2 + [settings.heading_noise], dtype=torch.float64)
        rows = torch.zeros(len(off), 3, SIZE, dtype=torch.float64)
        rows[..., TURN] = torch.diag(1.0 / noise)
        residual, rows = (off / noise).nan_to_num() * read, rows * read[..., None]
        weight = _weight(_innovation(residual, rows, covariance), 3)
        residual, rows = residual * weight, rows * weight[..., None]
        gain = _gain(rows, covariance)
        change = -(gain @ residual[..., None])[..., 0]
        return track.moved(change[:, None]), _reduced(covariance, gain, rows)

    def _read(self, sensed: SensedBatch) -> Tensor:
        """Return the base's orientation by the IMU's own attitude; upright by its specific force without one."""
        to_imu = rotation.conjugate(rotation.from_matrix(self.mounting.matrix))
        if sensed.attitude is None:
            return upright(sensed.specific_force, self.mounting)
        return rotation.multiply(sensed.attitude, to_imu.expand(sensed.attitude.shape))


def _like_first(carry: Any, robots: int) -> Any:
    """Return the carry with the memory of the undisturbed prediction in all rows of a robot."""
    memory = getattr(carry, "memory", None)
    if memory is None:
        return carry
    return replace(carry, memory=memory[torch.arange(robots) * ROWS].repeat_interleave(ROWS, 0))


def _innovation(residual: Tensor, rows: Tensor, covariance: Tensor) -> Tensor:
    """Return the squared length of an innovation in units of its expectation, shape [robots]."""
    spread = rows @ covariance @ rows.mT + torch.eye(residual.shape[-1], dtype=torch.float64)
    white = torch.linalg.solve_triangular(torch.linalg.cholesky(spread), residual[..., None], upper=False)
    return white.square().sum((-2, -1))


def _weight(squared: Tensor, count: int) -> Tensor:
    """Return the square root of the weight of an innovation, shape [robots, 1]."""
    return student_weights(squared, count).sqrt()[:, None]


def _gain(rows: Tensor, covariance: Tensor) -> Tensor:
    across = rows @ covariance
    spread = across @ rows.mT + torch.eye(rows.shape[-2], dtype=torch.float64)
    return torch.cholesky_solve(across, torch.linalg.cholesky(spread)).mT


def _reduced(covariance: Tensor, gain: Tensor, rows: Tensor) -> Tensor:
    rest = torch.eye(SIZE, dtype=torch.float64) - gain @ rows
    return rest @ covariance @ rest.mT + gain @ gain.mT


def filter_base(
    model: Dynamics, runs: SensedRun | Sequence[SensedRun], settings: EstimationSettings | None = None,
    *, scatter: ModelScatter | None = None,
) -> BaseEstimate:  # fmt: skip
    """Return the states of a floating base along runs, each from the readings up to it; see `BaseFilter`."""
    settings = EstimationSettings() if settings is None else settings
    problem = BaseProblem.of(model, [runs] if isinstance(runs, SensedRun) else list(runs), settings)
    base, sensed = BaseFilter(model, settings, scatter=scatter), problem.sensed
    state = base.begin(sensed.frame(0))
    tracks, covariances = [state.track], [state.covariance]
    for t in range(1, sensed.q.shape[1]):
        state = base.step(state, sensed.frame(t))
        tracks.append(state.track)
        covariances.append(state.covariance)
    return problem.estimate(BaseTrack.concatenate(tracks), torch.stack(covariances, 1), scatter)
