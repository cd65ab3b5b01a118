# SPDX-License-Identifier: Apache-2.0
"""States of a floating base over whole runs, from encoders, an IMU and a model: a Gauss-Newton smoother.

Unknown in every frame are orientation, velocity, height and biases of the IMU (`estimate.track`). Known of them are:

- the IMU's motion between frames (`estimate.inertial`), and its own attitude, if it has one;
- a loaded leg stands on the ground (`estimate.standing`), roughly: the first rounds have nothing else;
- what other sensors of the base say (`estimate.beside_imu`);
- what the model says of a frame (`estimate.model_frames`), with a scatter that its own residuals give, heavy tails, and
  less weight the longer the residuals persist.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neurodyn.data.store import Store
from neurodyn.dynamics.interface import Dynamics
from neurodyn.estimate.base_estimate import ERRORS, MOUNTING, BaseEstimate, EstimatedRun, MountingEstimate
from neurodyn.estimate.beside_imu import BaseMoment, residuals_beside
from neurodyn.estimate.chain import ChainEquations
from neurodyn.estimate.inertial import InertialSteps, inertial_errors, spins, upright
from neurodyn.estimate.model_frames import FrameModel
from neurodyn.estimate.robust import ModelScatter, persistence, scatter_of, share_of_flight
from neurodyn.estimate.sensed import SensedBatch, SensedRun
from neurodyn.estimate.sensed_logs import sensed_runs
from neurodyn.estimate.settings import EstimationSettings, ImuMounting
from neurodyn.estimate.shared import ResidualRows, SharedEquations, SharedStep
from neurodyn.estimate.standing import LegPoints, estimable_points, standing_residuals
from neurodyn.estimate.track import ACCELEROMETER, GYROSCOPE, HEIGHT, SIZE, TURN, VELOCITY, BaseTrack, skew
from neurodyn.geometry import rotation

_LEG_ROUNDS, _ENOUGH = 30, 1e-3
"""Most steps without the model, which cost little, and the share of the cost that one must change it by to go on."""
_ON_GROUND = 5e-3
"""Height of a point below which it touches [m]."""
_MOUNTINGS, _AFTER_MOUNTING, _SETTLED, _AGREES = 20, 2, 0.5, 1.0
"""Most steps of an IMU's place and turn, steps of the states after each, the size [deviations] of the last, and of a
step from what a part of the log tells."""
_MOMENTUM, _LAST_MOUNTINGS = 0.8, 5
"""Share of a step that the next one repeats at first, as each sees a part of the way; steps by which the end is known.
"""
_STEP, _FARTHEST = 1e-3, 0.1
"""Step of differences by place and turn, and the longest step of them [m, rad]."""
_LONGEST = (0.5, 0.05)
"""Longest step of a velocity [m/s] and a height [m]."""


@torch.no_grad()
def smooth_base(
    model: Dynamics,
    log: Store | SensedRun | Sequence[SensedRun],
    settings: EstimationSettings | None = None,
    mounted: MountingEstimate | None = None,
) -> BaseEstimate:
    """Return the states of a floating base along a log.

    Args:
        model: Differentiable dynamics with contacts and a floating base.
        log: A store with streams of an IMU, or plain arrays of one or several runs.
        settings: Place of the IMU, noises.
        mounted: How the IMU is mounted by a part of the log: where the search of that begins, and ends if the whole
            log agrees. It decides only where the settings let the mounting be free.

    Raises:
        InputError: The model has no floating base, no contact points or joints with several axes; or the log has no
            IMU.
    """
    settings = EstimationSettings() if settings is None else settings
    if isinstance(log, Store):
        runs, settings = sensed_runs(log, model, settings)
    else:
        runs = [log] if isinstance(log, SensedRun) else list(log)
    problem = BaseProblem.of(model, runs, settings)
    if mounted is not None and settings.mounting_free:
        problem = problem.remounted(mounted.change)
    begun = track = problem.first()
    contacts = problem.contacts(track)
    cost = torch.inf
    for _ in range(_LEG_ROUNDS):
        chain = problem.equations(track, begun, contacts)
        track = track.moved(_limited(chain.solve()))
        before, cost = cost, float(chain.cost.sum())
        if abs(before - cost) < _ENOUGH * abs(cost):
            break
    return problem.with_model(track, begun, contacts, mounted)


@dataclass(frozen=True)
class ContactKnowledge:
    """What the model says of contacts before the estimation.

    Attributes:
        pushed: How much the ground accelerates the base [m/s^2], shape [runs, frames].
        memories: Memory of the model's drives in each frame, shape [runs, frames - 1, memory]; None for none.
    """

    pushed: Tensor
    memories: Tensor | None


@dataclass(frozen=True)
class BaseProblem:
    """The estimation of the base in a batch of runs.

    Attributes:
        sensed: Readings.
        inertial: The IMU's motion.
        legs: Contact points in the base's frame.
        model: Predictions of the model.
        mounting: Place of the IMU.
        settings: The settings.
        moved: By how much the IMU is moved and turned from where the settings say, numbers `MOUNTING`, shape [6].
    """

    sensed: SensedBatch
    inertial: InertialSteps
    legs: LegPoints
    model: FrameModel
    mounting: ImuMounting
    settings: EstimationSettings
    moved: Tensor

    @classmethod
    def of(cls, dynamics: Dynamics, runs: Sequence[SensedRun], settings: EstimationSettings) -> "BaseProblem":
        """Prepare the estimation; errors: see `smooth_base`."""
        layout, spec = estimable_points(dynamics), dynamics.spec
        sensed, mounting = SensedBatch.of(runs), ImuMounting.of(settings.imu)
        return cls(
            sensed, InertialSteps.of(sensed, settings, spec.dt), LegPoints(layout, sensed),
            FrameModel(dynamics, mounting), mounting, settings, torch.zeros(len(MOUNTING), dtype=torch.float64),
        )  # fmt: skip

    def first(self) -> BaseTrack:
        """Return the states before the estimation: attitudes as read, at rest, with the lowest point on the ground."""
        quaternion = self.read_attitudes()
        if not quaternion.isfinite().all():
            quaternion = self._turned_along()
        nothing = torch.zeros(*quaternion.shape[:2], 3, dtype=torch.float64)
        track = BaseTrack(quaternion, nothing, nothing[..., 0], nothing, nothing)
        return BaseTrack(quaternion, nothing, -self.legs.heights(track).amin(-1), nothing, nothing)

    def read_attitudes(self) -> Tensor:
        """Return orientations of the base as the IMU reads them; without an attitude, from its gyroscope alone."""
        to_imu = rotation.conjugate(rotation.from_matrix(self.mounting.matrix))
        if self.sensed.attitude is not None:
            return rotation.multiply(self.sensed.attitude, to_imu.expand(self.sensed.attitude.shape))
        return self._turned_along()

    def _turned_along(self) -> Tensor:
        """Return orientations from the first half second's specific force, as at rest, and the gyroscope."""
        felt = self.inertial.force[:, : round(0.5 / self.inertial.dt) + 1].mean(1)
        path = [upright(felt, self.mounting)]
        for turn in (self.inertial.turn @ self.mounting.matrix.T * self.inertial.dt).unbind(1):
            path.append(rotation.multiply(path[-1], rotation.exponential(turn)))
        return torch.stack(path, 1)

    def contacts(self, track: BaseTrack) -> ContactKnowledge:
        """Return what the model says of contacts."""
        memories = self.model.memories(track, self.inertial, self.sensed)
        return ContactKnowledge(self.model.pushes(track, self.inertial, self.sensed, memories), memories)

    def equations(
        self, track: BaseTrack, begun: BaseTrack, contacts: ContactKnowledge, trust: ModelScatter | None = None
    ) -> ChainEquations:
        """Return the linearised estimation around a track that began from another; with the model, if it is trusted."""
        chain = ChainEquations(*track.height.shape, size=SIZE)
        self._fill(chain, track, begun, contacts, trust)
        return chain

    def _fill(
        self, chain: ChainEquations | ResidualRows, track: BaseTrack, begun: BaseTrack, contacts: ContactKnowledge,
        trust: ModelScatter | None,
    ) -> None:  # fmt: skip
        """Add the residuals of the estimation; derivatives by the model are left out where they are not used."""
        settings, valid = self.settings, self.sensed.valid
        given = track, self.inertial, self.mounting, settings, self.model.gravity
        residual, here, following = inertial_errors(*given).whitened()
        chain.couple(residual * valid[:, 1:, None], here, following)  # rows that only pad a run follow its last one
        chain.add(*self._start(track, begun))
        if (attitude := self.sensed.attitude) is not None:
            read = valid & attitude.isfinite().all(-1)
            residual, jacobian = self._attitudes(track)
            chain.add(residual.nan_to_num(), jacobian, read, robust=True)
        spin = spins(track, self.inertial.spin, self.mounting)
        stands, speeds = standing_residuals(track, self.legs, spin, contacts.pushed, self.mounting, settings)
        chain.add(*stands, valid, robust=True)
        chain.add(*speeds, valid, robust=True)
        moment = BaseMoment(track, self.inertial.spin, spin, self.legs, self.mounting, settings)
        for residual, jacobian in residuals_beside(moment, self.sensed.beside, settings.beside):
            chain.add(residual, jacobian, valid, robust=True)
        if trust is not None:
            slopes = isinstance(chain, ChainEquations)
            residual, jacobian = self._scaled(track, contacts.memories, slopes=slopes)
            whole = (0, 0, 0, 1)  # the last frame has no prediction
            residual, jacobian = trust.whiten(residual, jacobian)
            residual = torch.nn.functional.pad(residual, whole)
            chain.add(residual, torch.nn.functional.pad(jacobian, (0, 0, *whole)), self._predicted, robust=True)

    def with_model(
        self, track: BaseTrack, begun: BaseTrack, contacts: ContactKnowledge, mounted: MountingEstimate | None = None
    ) -> BaseEstimate:
        """Return the estimate with the model, starting from one without; for `mounted`, see `smooth_base`."""
        trust = self._trust(track, contacts.memories)
        track, chain, trust = self._improved(track, begun, contacts, trust, self.settings.rounds, first=True)
        if not self.settings.mounting_free:
            return self.estimate(track, chain.covariance(), trust)
        found = self.mounting_step(track, begun, contacts, trust)
        told = torch.zeros_like(found.covariance) if mounted is None else mounted.covariance
        if _is_within(found.shared, told, _AGREES):
            return replace(self.estimate(track, chain.covariance(), trust), mounting=mounted)
        problem, way, passed = self, torch.zeros_like(self.moved), [self.moved]
        for turn in range(_MOUNTINGS):
            way = _MOMENTUM * (1.0 - turn / _MOUNTINGS) * way + found.shared.clamp(-_FARTHEST, _FARTHEST)
            problem, track = problem.remounted(way), track.moved(_limited(found.states))
            passed.append(problem.moved)
            trust = problem._trust(track, contacts.memories)  # the scatter was that of the wrong place
            track, chain, trust = problem._improved(track, begun, contacts, trust, _AFTER_MOUNTING)
            found = problem.mounting_step(track, begun, contacts, trust)
            if _is_within(found.shared, found.covariance, _SETTLED) or _is_within(found.shared, told, _AGREES):
                break
        # The search wanders about its end, as each step takes new contacts for granted: so far it is not known.
        wandered = torch.stack(passed[-_LAST_MOUNTINGS:]) - problem.moved
        mounting = MountingEstimate(problem.moved, found.covariance + wandered.mT @ wandered / len(wandered))
        return replace(problem.estimate(track, chain.covariance(), trust), mounting=mounting)

    def _improved(
        self, track: BaseTrack, begun: BaseTrack, contacts: ContactKnowledge, trust: ModelScatter, rounds: int,
        *, first: bool = False,
    ) -> tuple[BaseTrack, ChainEquations, ModelScatter]:  # fmt: skip
        """Return a track after Gauss-Newton steps, its equations, and the trust in the model.

        In the `first` such steps, the scatter was that of the legs' estimate, and is found again. They end where two in
        a row hardly lower the cost: contacts make it rough.
        """
        chain = self.equations(track, begun, contacts, trust)
        step, length = _limited(chain.solve()), torch.ones(len(self.sensed.lengths), dtype=torch.float64)
        idle = 0
        for index in range(rounds):
            candidate = track.moved(length[:, None, None] * step)
            if first and index in (1, 3):
                track, trust = candidate, self._trust(candidate, contacts.memories)
                chain = self.equations(track, begun, contacts, trust)
                step = _limited(chain.solve())
                continue
            tried = self.equations(candidate, begun, contacts, trust)
            better = tried.cost < chain.cost
            gained = (chain.cost - tried.cost).clamp_min(0.0).sum()
            idle = idle + 1 if first and gained < _ENOUGH * chain.cost.abs().sum() else 0
            track = candidate.where(better, track)
            length = torch.where(better, (2.0 * length).clamp_max(1.0), 0.4 * length)
            chain = tried.where(better, chain)
            if idle == 2:
                break
            step = torch.where(better[:, None, None], _limited(chain.solve()), step)
        return track, chain, trust

    def remounted(self, change: Tensor) -> "BaseProblem":
        """Return the estimation with an IMU that is moved and turned by further numbers `MOUNTING`."""
        moved = self.moved + change
        mounting = ImuMounting.of(self.settings.imu).moved(moved)
        return replace(self, mounting=mounting, model=self.model.on(mounting), moved=moved)

    def mounting_step(
        self, track: BaseTrack, begun: BaseTrack, contacts: ContactKnowledge, trust: ModelScatter
    ) -> SharedStep:
        """Return how the IMU is mounted otherwise than here."""
        chain = SharedEquations(*track.height.shape, size=SIZE)
        self._fill(chain, track, begun, contacts, trust)
        slopes = []
        for change in _STEP * torch.eye(len(MOUNTING), dtype=torch.float64):
            ahead, behind = ResidualRows(), ResidualRows()
            self.remounted(change)._fill(ahead, track, begun, contacts, trust)
            self.remounted(-change)._fill(behind, track, begun, contacts, trust)
            pairs = zip(ahead.residuals, behind.residuals, strict=True)
            slopes.append([(a - b) / (2.0 * _STEP) for a, b in pairs])
        settings = self.settings
        deviations = [*[settings.imu_place_noise] * 3, *[settings.imu_turn_noise] * 3]
        return chain.step(slopes, self.moved, torch.tensor(deviations, dtype=torch.float64))

    def estimate(self, track: BaseTrack, covariance: Tensor, scatter: ModelScatter | None = None) -> BaseEstimate:
        """Return an estimate from a track and the covariance of its errors, shape [runs, frames, SIZE, SIZE]."""
        spin = spins(track, self.inertial.spin, self.mounting)
        arm = self.model.arms(track.quaternion)
        origin = rotation.rotate(track.quaternion, self.mounting.position.expand(spin.shape))
        drift = track.velocity - torch.linalg.cross(spin, origin)
        way = 0.5 * self.inertial.dt * (drift[:, 1:] + drift[:, :-1])[..., :2]
        place = torch.nn.functional.pad(way.cumsum(1), (0, 0, 1, 0))
        position = torch.cat([place, track.height[..., None]], -1)
        linear = track.velocity + torch.linalg.cross(spin, arm)
        spread = self._spread(track, covariance, spin, arm)
        shapes, touching = self._touching(track)
        parts = (position, track.quaternion, linear, spin, spread, touching, track.gyroscope, track.accelerometer)
        lengths = self.sensed.lengths.tolist()
        runs = (EstimatedRun(*(part[k, :length] for part in parts)) for k, length in enumerate(lengths))
        return BaseEstimate(tuple(runs), shapes, scatter=scatter)

    def _spread(self, track: BaseTrack, covariance: Tensor, spin: Tensor, arm: Tensor) -> Tensor:
        """Return the covariance of `ERRORS` from that of a track's errors and the noise of the gyroscope."""
        world = rotation.matrix(track.quaternion) @ self.mounting.matrix
        eye = torch.eye(3, dtype=torch.float64)
        change = torch.zeros(*covariance.shape[:2], len(ERRORS), covariance.shape[-1], dtype=torch.float64)
        change[..., :3, TURN] = change[..., 3:6, VELOCITY] = eye
        change[..., 6, HEIGHT] = 1.0
        change[..., 10:13, GYROSCOPE] = change[..., 13:, ACCELEROMETER] = eye
        change[..., 3:6, TURN], change[..., 7:10, TURN] = -skew(torch.linalg.cross(spin, arm)), -skew(spin)
        change[..., 3:6, GYROSCOPE], change[..., 7:10, GYROSCOPE] = skew(arm) @ world, -world
        read = torch.zeros(*covariance.shape[:2], len(ERRORS), 3, dtype=torch.float64)
        read[..., 3:6, :], read[..., 7:10, :] = -skew(arm), eye
        noise = self.settings.gyroscope_noise**2
        return change @ covariance @ change.mT + noise * read @ read.mT

    def _touching(self, track: BaseTrack) -> tuple[tuple[str, ...], Tensor]:
        names = [point.shape for point in self.legs.points]
        shapes = tuple(dict.fromkeys(names))
        low = self.legs.heights(track) < _ON_GROUND
        groups = [[k for k, name in enumerate(names) if name == shape] for shape in shapes]
        return shapes, torch.stack([low[..., group].any(-1) for group in groups], -1)

    @property
    def _predicted(self) -> Tensor:
        """Whether the next row is one of the run's, shape [runs, frames]."""
        return torch.cat([self.sensed.valid[:, 1:], torch.zeros(len(self.sensed.lengths), 1, dtype=torch.bool)], 1)

    def _scaled(self, track: BaseTrack, memories: Tensor | None, *, slopes: bool = True) -> tuple[Tensor, Tensor]:
        """Return the model's residuals and derivatives (or zeros), as they would be in free flight."""
        given = track, self.inertial, self.sensed, memories
        factor = share_of_flight(self.inertial.felt[:, :-1, None])
        if not slopes:
            residual = self.model.values(*given) * factor
            return residual, residual.new_zeros(*residual.shape, SIZE)
        seen = self.model.residuals(*given)
        return seen.residual * factor, seen.jacobian * factor[..., None]

    def _trust(self, track: BaseTrack, memories: Tensor | None) -> ModelScatter:
        residual, _ = self._scaled(track, memories, slopes=False)
        valid = self.sensed.valid[:, 1:]
        settings, count = self.settings, residual.shape[-1] - 6
        floor = [settings.accelerometer_noise * self.inertial.dt] * 3 + [settings.gyroscope_noise] * 3
        least = 0.5 * torch.tensor([*floor, *[settings.rate_noise] * count], dtype=torch.float64)
        factor = scatter_of(residual[valid], least)
        white = torch.linalg.solve_triangular(factor, residual[..., None], upper=False)[..., 0]
        lasting = persistence(white, valid)
        return ModelScatter(factor, (1.0 - lasting) / (1.0 + lasting))

    def _start(self, track: BaseTrack, begun: BaseTrack) -> tuple[Tensor, Tensor]:
        """Return what is known of the first frame: little, but its heading, which nothing tells."""
        settings = self.settings
        residual = torch.zeros(*track.height.shape, SIZE, dtype=torch.float64)
        off = rotation.multiply(track.quaternion[:, 0], rotation.conjugate(begun.quaternion[:, 0]))
        residual[:, 0, TURN] = rotation.logarithm(off)
        residual[:, 0, VELOCITY] = track.velocity[:, 0]
        residual[:, 0, HEIGHT] = track.height[:, 0] - begun.height[:, 0]
        residual[:, 0, GYROSCOPE], residual[:, 0, ACCELEROMETER] = track.gyroscope[:, 0], track.accelerometer[:, 0]
        biases = [*[settings.gyroscope_bias] * 3, *[settings.accelerometer_bias] * 3]
        noise = torch.tensor([0.5, 0.5, 0.02, 3.0, 3.0, 3.0, 0.5, *biases], dtype=torch.float64)
        scale = torch.zeros_like(residual)
        scale[:, 0] = 1.0 / noise
        return residual * scale, torch.eye(SIZE, dtype=torch.float64) * scale[..., None]

    def _attitudes(self, track: BaseTrack) -> tuple[Tensor, Tensor]:
        settings = self.settings
        off = rotation.multiply(track.quaternion, rotation.conjugate(self.read_attitudes()))
        noise = torch.tensor([settings.attitude_noise] * 2 + [settings.heading_noise], dtype=torch.float64)
        residual = rotation.logarithm(off) / noise
        jacobian = torch.zeros(*residual.shape, SIZE, dtype=torch.float64)
        jacobian[..., TURN] = torch.diag(1.0 / noise)
        return residual, jacobian


def _is_within(step: Tensor, covariance: Tensor, deviations: float) -> bool:
    """Return whether a step of an IMU's mounting is less than so many deviations of it."""
    return bool((step.abs() < deviations * covariance.diagonal().sqrt()).all())


def _limited(step: Tensor) -> Tensor:
    step = step.clone()
    speed, height = _LONGEST
    step[..., VELOCITY] = step[..., VELOCITY].clamp(-speed, speed)
    step[..., HEIGHT] = step[..., HEIGHT].clamp(-height, height)
    return step
