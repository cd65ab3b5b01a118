# SPDX-License-Identifier: Apache-2.0
r"""Residuals of roll-outs beside a log, for many sets of parameters at once, and their normal equations.

Every pair of a set and a window is a world of one compiled roll-out. The Jacobian is formed by central differences,

$$J_k = \frac{r(x + h_k e_k) - r(x - h_k e_k)}{2 h_k}, \qquad h_k = 10^{-5} \max(|x_k|, size_k)$$

whose perturbed sets are further worlds: P parameters cost 2 P roll-outs, where the compiled adjoint, which gives one
row a time, would cost one for each residual (hundreds for each window), each about two roll-outs long. In float64
entries are good to about 1e-8. Gradients of scalar losses (`optimisers.lbfgs`, `learn.hybrid`) come from the adjoint.

Residuals are in units of their standard deviations: predicted minus logged positions (wrapped where angles turn without
end, rotation vectors for quaternions) and velocities, and the errors of sensors (`identify.measured`). Beside the
parameters, these may be free:
- the starting state of each window, as an offset z from the logged one that costs |z|^2 in units of the sensors' noise;
- a constant torque in each log, and parameters that differ from log to log, which cost likewise.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.batch import State, Trajectory
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.closed_loop import DrivenModel
from neurodyn.dynamics.hybrid.parameters import Parameters, size_of
from neurodyn.dynamics.measures import displace
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.identify.priors import Prior
from neurodyn.identify.readings import LEAST, ComparedReadings, Noise
from neurodyn.identify.search_space import SearchSpace
from neurodyn.learn.fit_windows import FitWindows, require_finite_path

_BYTES = 1 << 27
_STEP = 1e-5


@dataclass(frozen=True)
class ResidualOptions:
    """What is compared, and what is free beside the parameters; see `IdentificationSettings`."""

    positions: bool = True
    velocities: bool = True
    huber: float | None = None
    initial: bool = True
    torque_offset: float = 0.0
    per_log: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """Point of a search, for S sets.

    Attributes:
        x: Coordinates of the free quantities, shape [S, n].
        local: Free quantities of each log, in standard deviations, shape [S, logs, locals].
        initial: Offsets of starting states, in standard deviations of the noise, shape [S, W, 2 nv or 0].
    """

    x: Tensor
    local: Tensor
    initial: Tensor

    def pick(self, rows: Tensor) -> "Point":
        """Return some of the sets."""
        return Point(self.x[rows], self.local[rows], self.initial[rows])

    def put(self, rows: Tensor, other: "Point") -> "Point":
        """Return these sets with others in the places `rows`."""
        merged = Point(self.x.clone(), self.local.clone(), self.initial.clone())
        merged.x[rows], merged.local[rows], merged.initial[rows] = other.x, other.local, other.initial
        return merged


@dataclass(frozen=True)
class Normal:
    """J^T J and J^T r of each window, for S sets; priors are not in them.

    Attributes:
        matrix: Shape [S, W, m, m], m = parameters, locals of the window's log, starting state.
        gradient: Shape [S, W, m].
        cost: Of all residuals and priors, shape [S].
    """

    matrix: Tensor
    gradient: Tensor
    cost: Tensor


class Space(Protocol):
    """Coordinates that are searched; see `SearchSpace`."""

    names: tuple[str, ...]
    lower: Tensor
    upper: Tensor
    nominal: Tensor

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values of all free quantities, shape [..., quantities]."""
        ...

    def clipped(self, x: Tensor) -> Tensor:
        """Return the nearest coordinates within the bounds."""
        ...

    def held(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Return which coordinates lie on a bound that descent leads across."""
        ...


class Residuals:
    """Residuals of a hybrid model over windows of logs.

    Attributes:
        dynamics: The model, or its closed loop with a controller; its networks have their present weights.
        windows: The windows.
        noise: Noise of the joints' sensors.
        measured: What other sensors read; None where nothing of that is compared.
        scale: Standard deviation of each channel's residuals, shape [channels]: positions, velocities, sensors.
        options: What is compared, and what is free.
        space: The coordinates that are searched.
        parameters: Their number n.
        names: Names of the free quantities.
        prior: What is known of the quantities beforehand; None for nothing.
    """

    def __init__(
        self,
        dynamics: DrivenModel,
        windows: FitWindows,
        noise: Noise,
        options: ResidualOptions | None = None,
        *,
        measured: ComparedReadings | None = None,
        scale: Tensor | None = None,
        environments: RecordedEnvironments | None = None,
        space: Space | None = None,
        prior: Prior | None = None,
    ) -> None:
        """Prepare the residuals.

        Args:
            dynamics: The model.
            windows: The windows.
            noise: Noise of the sensors.
            options: What is compared, and what is free.
            measured: What other sensors read; None where nothing of that is compared.
            scale: Standard deviation of each channel's residuals; None for the noise.
            environments: Environments of the windows; None for the model's own.
            space: The coordinates that are searched; None for those of the model's quantities. Others tie quantities to
                each other.
            prior: What is known of the quantities beforehand; None for nothing.

        Raises:
            InputError: A quantity that is to differ from log to log is not free.
        """
        self.dynamics, self.windows, self.noise = dynamics, windows, noise
        self.options = options or ResidualOptions()
        self.measured = measured
        own = noise.joined if measured is None else torch.cat([noise.joined, measured.noise])
        self.scale = own if scale is None else scale
        specs = (*dynamics.physical.specs, *(() if measured is None else measured.free))
        self.space: Space = SearchSpace(Parameters(specs)) if space is None else space
        self.parameters = len(self.space.nominal)
        self.prior = prior
        self._environments = environments
        self._spec, self._nv = dynamics.spec, dynamics.spec.nv
        self.sizes = torch.tensor([size_of(spec) for spec in specs], dtype=torch.float64)
        self.names = names = [spec.name for spec in specs]
        for name in self.options.per_log:
            if name not in names:
                raise InputError(f"per_log: {name!r} is not a free quantity; valid: {choices(names)}")
        self._local_columns = [names.index(name) for name in self.options.per_log]
        self._local_sizes = torch.tensor(list(self.options.per_log.values()), dtype=torch.float64)
        kept = [self.options.positions] * self._nv + [self.options.velocities] * self._nv
        kept += [True] * (len(self.scale) - 2 * self._nv)
        self._channels = torch.nonzero(torch.tensor(kept))[:, 0]

    @property
    def locals(self) -> int:
        """Number of free quantities of each log."""
        return (self._spec.nu if self.options.torque_offset else 0) + len(self._local_columns)

    @property
    def initials(self) -> int:
        """Number of free quantities of each window."""
        return 2 * self._nv if self.options.initial else 0

    @property
    def count(self) -> int:
        """Number of residuals, those of starting states included."""
        joints = len(self._channels) - (len(self.scale) - 2 * self._nv)
        sensors = 0 if self.measured is None else self.measured.count
        return self.windows.count * (self.windows.frames * joints + self.initials) + sensors

    @property
    def channel_scale(self) -> Tensor:
        """Scale of each position and velocity, infinite for those that are not compared, shape [2 nv]."""
        scale = torch.full_like(self.scale, torch.inf)
        scale[self._channels] = self.scale[self._channels]
        return scale[: 2 * self._nv]

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels: positions, velocities, components of the errors of sensors."""
        joints = (*(f"q.{name}" for name in self._spec.tangent_names), *(f"qd.{name}" for name in self._spec.qd_names))
        return (*joints, *(() if self.measured is None else self.measured.channels))

    def robust(self, point: Point) -> Tensor:
        """Return the robust size of each channel's errors at the first set of a point, shape [channels]."""
        errors = self.errors(point.pick(torch.tensor([0])))[0]
        joints = errors[..., : 2 * self._nv].abs().flatten(0, 1)
        scale = (joints.median(0).values / 0.6745).clamp_min(LEAST)
        return scale if self.measured is None else torch.cat([scale, self.measured.robust(errors[..., 2 * self._nv :])])

    def _changed(self, **attributes: Any) -> "Residuals":
        copy = object.__new__(Residuals)
        copy.__dict__.update({**self.__dict__, **attributes})
        return copy

    def with_scale(self, scale: Tensor, noise: Noise) -> "Residuals":
        """Return these residuals in other units, and with other noise."""
        return self._changed(scale=scale, noise=noise)

    def on(self, windows: FitWindows, measured: ComparedReadings | None) -> "Residuals":
        """Return these residuals over other windows, and what sensors read in them."""
        return self._changed(windows=windows, measured=measured)

    def with_space(self, space: Space) -> "Residuals":
        """Return these residuals over other coordinates of the same quantities."""
        return self._changed(space=space)

    def within(self, frames: int) -> "Residuals":
        """Return the residuals of the first frames of all windows."""
        measured = None if self.measured is None else self.measured.within(frames)
        return self._changed(windows=self.windows.until(frames), measured=measured)

    def start(self, x: Tensor) -> Point:
        """Return the start of a search: `x`, shape [S, n], and zero in all else."""
        sets, w = x.shape[0], self.windows
        local = x.new_zeros(sets, len(w.logs), self.locals)
        return Point(x, local, x.new_zeros(sets, w.count, self.initials))

    @torch.no_grad()
    def errors(self, point: Point) -> Tensor:
        """Return predicted minus logged positions, velocities and readings, shape [S, W, T, channels]."""
        return self._errors(*self._worlds(self.space.values(point.x), point))

    def weighted(self, errors: Tensor) -> Tensor:
        """Return the errors that are compared, in units of their scales, shape [..., T, channels]."""
        return (errors / self.scale)[..., self._channels]

    def cost(self, point: Point) -> Tensor:
        """Return half the sum of squares (or Huber's) of each set; what is not finite costs infinity; shape [S]."""
        return self._cost(self.weighted(self.errors(point)), point)

    def gradients(self, point: Point) -> tuple[Tensor, Point]:
        """Return the cost of each set and its gradient, from the compiled adjoint."""
        with torch.enable_grad():
            leaves = Point(*(part.detach().clone().requires_grad_(True) for part in vars(point).values()))
            worlds = self._worlds(self.space.values(leaves.x), leaves)
            cost = self._cost(self.weighted(self._errors(*worlds)), leaves)
            by = torch.autograd.grad(cost.sum(), [leaves.x, leaves.local, leaves.initial], allow_unused=True)
        parts = zip(by, vars(point).values(), strict=True)
        return cost.detach(), Point(*(torch.zeros_like(part) if g is None else g for g, part in parts))

    @torch.no_grad()
    def normal(self, point: Point, *, physical: bool = False) -> Normal:
        """Linearise at a point; with `physical` the first columns are by physical values instead of coordinates."""
        base, jacobian = self._linearised(point, physical)
        weights = self._weights(base)
        r, j = (base * weights).flatten(2), (jacobian * weights[..., None]).flatten(2, 3)
        matrix = j.mT @ j
        gradient = (j.mT @ r[..., None])[..., 0]
        if self.initials:
            first = matrix.shape[-1] - self.initials
            matrix[..., first:, first:] += torch.eye(self.initials, dtype=matrix.dtype)
            gradient[..., first:] += point.initial
        return Normal(matrix, gradient, self._cost(base, point))

    def path(self, point: Point) -> Trajectory:
        """Return the roll-outs of the first set."""
        physical, shift, torque = self._worlds(self.space.values(point.x[:1]), point.pick(torch.tensor([0])))
        return self._rollout(physical[0], shift[0], torque[0], torch.arange(self.windows.count))[0]

    @property
    def physical(self) -> bool:
        """Whether coordinates stand for single quantities, so that one can linearise by the values of these."""
        return isinstance(self.space, SearchSpace)

    def chain(self, x: Tensor) -> Tensor:
        """Return the derivative of the physical values by the coordinates, shape [S, quantities, n]."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_(True)
            values = self.space.values(leaf)
            rows = [
                torch.autograd.grad(values[:, k].sum(), leaf, retain_graph=True)[0] for k in range(values.shape[-1])
            ]
        return torch.stack(rows, 1) if rows else x.new_zeros(len(x), 0, x.shape[1])

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values of the free quantities, shape [..., quantities]."""
        return self.space.values(x).detach()

    @torch.no_grad()
    def window_costs(self, point: Point) -> Tensor:
        """Return the cost of each window, shape [S, W]; without what is free for whole logs."""
        rho = self._rho(self.weighted(self.errors(point))).sum((2, 3)) + 0.5 * point.initial.square().sum(2)
        return torch.where(torch.isfinite(rho), rho, torch.inf)

    def of_windows(self, rows: Tensor) -> "Residuals":
        """Return the residuals of some windows; for points whose locals are those of all logs."""
        measured = None if self.measured is None else self.measured.rows(rows)
        return self._changed(windows=self.windows.rows(rows), measured=measured)

    def _rho(self, weighted: Tensor) -> Tensor:
        size, k = weighted.abs(), self.options.huber
        square = 0.5 * size.square()
        return square if k is None else torch.where(size <= k, square, k * (size - 0.5 * k))

    def _cost(self, weighted: Tensor, point: Point) -> Tensor:
        priors = point.local.square().sum((1, 2)) + point.initial.square().sum((1, 2))
        if self.prior is not None:
            priors = priors + self.prior.distance(self.space.values(point.x)).square().sum(-1)
        cost = self._rho(weighted).sum((1, 2, 3)) + 0.5 * priors
        return torch.where(torch.isfinite(cost), cost, torch.inf)

    def _weights(self, weighted: Tensor) -> Tensor:
        """Return the square roots of the weights with which least squares approximate Huber's loss."""
        if self.options.huber is None:
            return torch.ones_like(weighted)
        return (self.options.huber / weighted.abs().clamp_min(1e-12)).clamp_max(1.0).sqrt()

    def _linearised(self, point: Point, physical: bool) -> tuple[Tensor, Tensor]:
        """Return weighted residuals [S, W, T, c] and their Jacobian [S, W, T, c, m]."""
        values, sets = self.space.values(point.x), point.x.shape[0]
        base = self.weighted(self._errors(*self._worlds(values, point)))
        if not torch.isfinite(base).all():
            base = torch.nan_to_num(base, nan=1e9, posinf=1e9, neginf=-1e9)
        steps = _STEP * torch.maximum(values.abs(), self.sizes)
        searched = range(values.shape[-1] if self.parameters else 0)
        columns = [self._difference(values, point, step=steps[:, k], column=k, sets=sets) for k in searched]
        blocks = [torch.stack(columns, -1)] if columns else [base.new_zeros(*base.shape, 0)]
        if columns and not physical:
            blocks[0] = torch.einsum("swtcp,spn->swtcn", blocks[0], self.chain(point.x))
        for name, count in (("local", self.locals), ("initial", self.initials)):
            if count:
                blocks.append(torch.stack([self._shifted(values, point, name, k) for k in range(count)], -1))
        return base, torch.nan_to_num(torch.cat(blocks, -1), nan=0.0, posinf=0.0, neginf=0.0)

    def _difference(self, values: Tensor, point: Point, *, step: Tensor, column: int, sets: int) -> Tensor:
        both = torch.cat([values, values])
        both[:sets, column] += step
        both[sets:, column] -= step
        return self._halved(self._errors(*self._worlds(both, _twice(point))), sets) / step[:, None, None, None]

    def _shifted(self, values: Tensor, point: Point, name: str, column: int) -> Tensor:
        sets, both = values.shape[0], _twice(point)
        moved = getattr(both, name).clone()
        moved[:sets, :, column] += 1e-4
        moved[sets:, :, column] -= 1e-4
        errors = self._errors(*self._worlds(torch.cat([values, values]), replace(both, **{name: moved})))
        return self._halved(errors, sets) / 1e-4

    def _halved(self, errors: Tensor, sets: int) -> Tensor:
        # Differences of differences: an angle that is wrapped on one side only must not jump.
        difference = errors[:sets] - errors[sets:]
        angles = [joint.continuous for joint in self._spec.joints for _ in joint.tangent_names]
        turns = torch.tensor([*angles, *([False] * (len(self.scale) - self._nv))], dtype=torch.bool)
        wrapped = torch.remainder(difference + torch.pi, 2 * torch.pi) - torch.pi
        return 0.5 * self.weighted(torch.where(turns, wrapped, difference))

    def _worlds(self, values: Tensor, point: Point) -> tuple[Tensor, Tensor, Tensor]:
        """Return parameters [S, W, P], shifts of the first states [S, W, 2 nv] and extra torques [S, W, nu]."""
        w, sets = self.windows, values.shape[0]
        physical = values[:, None].expand(sets, w.count, values.shape[-1])
        torque = values.new_zeros(sets, w.count, self._spec.nu)
        if self.locals:
            local = point.local[:, w.log]
            split = self.locals - len(self._local_columns)
            if split:
                torque = self.options.torque_offset * local[..., :split]
            if self._local_columns:
                physical = physical.clone()
                physical[..., self._local_columns] += self._local_sizes * local[..., split:]
        zero = values.new_zeros(sets, w.count, 2 * self._nv)
        return physical, point.initial * self.noise.joined if self.initials else zero, torque

    def _errors(self, physical: Tensor, shift: Tensor, torque: Tensor) -> Tensor:
        w, sets = self.windows, physical.shape[0]
        rows = torch.arange(w.count).repeat(sets)
        flat = [x.flatten(0, 1) for x in (physical, shift, torque)]
        size = 8 * (w.frames * self.dynamics.config.substeps + 1) * (self._spec.nq + self._nv + self.dynamics.memory)
        chunk = max(1, _BYTES // size)
        parts = []
        for first in range(0, len(rows), chunk):
            picked = rows[first : first + chunk]
            physical, shift, torque = (x[first : first + chunk] for x in flat)
            path, driven = self._rollout(physical, shift, torque, picked)
            positions = position_difference(self._spec, path.q[:, 1:], w.q[picked, 1:])
            both = [positions, path.qd[:, 1:] - w.qd[picked, 1:]]
            if self.measured is not None:
                both.append(self._sensed(self.measured, path, driven, physical, picked))
            parts.append(torch.cat(both, -1))
        return torch.cat(parts).view(sets, w.count, w.frames, len(self.scale))

    def _sensed(
        self, measured: ComparedReadings, path: Trajectory, torque: Tensor, physical: Tensor, rows: Tensor
    ) -> Tensor:  # fmt: skip
        """Return the errors of sensors along roll-outs, shape [N, T, channels]."""
        environment, ground = None, self.windows.ground
        if self._environments is not None:
            poses = None if ground is None else ground[rows].repeat_interleave(torque.shape[1], 0)
            environment = self._environments.at(poses)
        model, sensed = len(self.dynamics.plant.physical.specs), len(self.dynamics.physical.specs)
        return measured.errors(
            path, torque, physical[:, :model], physical[:, sensed:], self.dynamics.weights.detach(), environment, rows
        )

    def _rollout(self, physical: Tensor, shift: Tensor, torque: Tensor, rows: Tensor) -> tuple[Trajectory, Tensor]:
        """Return roll-outs, and the torques that act in their frames."""
        w = self.windows
        q = displace(self._spec, w.q[rows, 0], shift[:, : self._nv]) if self.initials else w.q[rows, 0]
        state = State(q, w.qd[rows, 0] + shift[:, self._nv :])
        environment = None
        if self._environments is not None:
            environment = self._environments.at(None if w.ground is None else w.ground[rows])
        control, own = w.control[rows] + torque[:, None], physical[:, : len(self.dynamics.physical.specs)]
        context = w.context(state, rows)
        return self.dynamics.driven(context, control, own, self.dynamics.weights.detach(), environment)


def _twice(point: Point) -> Point:
    x, local, initial = (torch.cat([part, part]) for part in (point.x, point.local, point.initial))
    return Point(x, local, initial)


def require_finite(residuals: Residuals, point: Point) -> None:
    """Refuse a first set whose roll-outs are not finite, with an InputError of window, frame and quantity."""
    require_finite_path(residuals.path(point), residuals.dynamics.spec, residuals.windows)
