# SPDX-License-Identifier: Apache-2.0
r"""Residuals of roll-outs against a log, for many sets of parameters at once, and their normal equations.

Each pair of a parameter set and a window is one world of a compiled roll-out. The Jacobian is formed by central
differences,

$$J_k = \frac{r(x + h_k e_k) - r(x - h_k e_k)}{2 h_k}, \qquad h_k = 10^{-5} \max(|x_k|, size_k)$$

Perturbed sets are further worlds, so that P parameters cost 2 P roll-outs. The compiled adjoint gives one row at a
time; it would take one pass, about two roll-outs long, for each of the hundreds of residuals of a window. In float64
the entries are accurate to about 1e-8. Gradients of scalar losses (`parameter_search.lbfgs`, `learn.hybrid`) come from
the adjoint.

Residuals are scaled by their standard deviations: predicted minus logged positions (continuous angles wrapped, rotation
vectors for quaternions) and velocities, and errors of other sensors (`identify.fit.readings`). Further free variables:
- the initial state of each window, as an offset z from the logged one with cost |z|^2, in units of the sensor noise; of
  an estimated base, as an offset L z from the estimate, with its covariance L L^T (`Windows.spread`);
- a constant torque in each log, and parameters that vary between logs, with the same quadratic cost; in coordinates of
  a `CoordinateSpace` these are shifts of a coordinate, so that every log has physical values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.errors import InputError, choices
from neurodyn.core.workers import in_threads
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import RecordedEnvironments, State, Trajectory
from neurodyn.dynamics.coordinates import position_difference, wrap_angle
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.hybrid.parameters import Parameters, size_of
from neurodyn.dynamics.measures import displace
from neurodyn.dynamics.rollouts import context_of, require_finite_path
from neurodyn.identify.fit.readings import LEAST, MEDIAN, ComparedReadings, Noise
from neurodyn.identify.unknowns.priors import Prior, UnitPrior
from neurodyn.identify.unknowns.search_space import BoxedSpace, SearchSpace

_BYTES = 1 << 27
_STEP = 1e-5
_BROAD = 1e-3
"""Step of differences by coordinates in standard deviations of priors: as narrow as logs of a minute tell, and wide
enough to see past the smallest steps of a cost with dry friction."""
_SHIFT = 1e-4
_JUMP, _NEAR = 10.0, 3.0
"""Largest derivative of a window, in 95 % quantiles over windows, and in 75 % quantiles where the base is unmeasured:
in one of ten windows contacts then come or go within a step, with differences a hundred times as large."""
_WORLDS = 2048
"""Worlds of a launch up to which several coordinates share it."""

_COLUMNS = 8
"""Most derivatives that threads compute at once, as each holds its roll-outs in memory."""


@dataclass(frozen=True)
class ResidualOptions:
    """Compared channels, and free variables besides the parameters; see `IdentificationSettings`.

    One-sided differences need half the roll-outs, and are accurate to about 1e-5: enough for steps of a search.
    """

    positions: bool = True
    velocities: bool = True
    huber: float | None = None
    initial: bool = True
    torque_offset: float = 0.0
    per_log: dict[str, float] = field(default_factory=dict)
    one_sided: bool = False
    base: bool = True
    """Whether pose and velocity of a floating base are measured; if not, windows begin near their estimate, and only
    sensors tell of them."""
    rough: bool = False
    """Whether derivatives pass over jumps, as of contacts that come and go (`Residuals._by_coordinates`,
    `without_jumps`), at twice the cost; always where the base is not measured."""
    near: bool = False
    """Whether contacts of a robot that stands on its legs are near in all windows, and limit derivatives at no cost
    (`without_jumps`)."""


@dataclass(frozen=True)
class Point:
    """A point of the search, for S sets of parameters.

    Attributes:
        x: Coordinates of the free quantities, shape [S, n].
        local: Free quantities of each log, in standard deviations, shape [S, logs, locals].
        initial: Offsets of the initial states, in standard deviations of the noise, shape [S, W, 2 nv or 0].
    """

    x: Tensor
    local: Tensor
    initial: Tensor

    def pick(self, rows: Tensor) -> "Point":
        """Return some of the sets."""
        return Point(self.x[rows], self.local[rows], self.initial[rows])

    def at(self, x: Tensor) -> "Point":
        """Return sets with other coordinates, shape [S, n], and everything else of this point's one set."""
        return Point(x, *(part.expand(len(x), *part.shape[1:]) for part in (self.local, self.initial)))

    def equals(self, other: "Point") -> bool:
        """Return whether both have the same sets."""
        return all(torch.equal(part, vars(other)[name]) for name, part in vars(self).items())

    @classmethod
    def concatenate(cls, points: Sequence["Point"]) -> "Point":
        """Return the sets of several points, one after another."""
        return cls(*(torch.cat([getattr(p, name) for p in points]) for name in ("x", "local", "initial")))

    def put(self, rows: Tensor, other: "Point") -> "Point":
        """Return a copy in which the sets `rows` are replaced by another point's sets."""
        merged = Point(self.x.clone(), self.local.clone(), self.initial.clone())
        merged.x[rows], merged.local[rows], merged.initial[rows] = other.x, other.local, other.initial
        return merged


@dataclass(frozen=True)
class Normal:
    """J^T J and J^T r of each window for S sets, without priors.

    Attributes:
        matrix: Shape [S, W, m, m], where m counts parameters, locals of the window's log and initial state.
        gradient: Shape [S, W, m].
        cost: Cost of all residuals and priors, shape [S].
    """

    matrix: Tensor
    gradient: Tensor
    cost: Tensor


class Residuals:
    """Residuals of a hybrid model over windows of logs.

    Attributes:
        dynamics: The model; network weights are constant.
        tangent: The model with longer steps of the engine, from which derivatives are taken; None for `dynamics`.
        doubled: The model with steps twice as long, from which and `dynamics` roll-outs are extrapolated to vanishing
            steps (Richardson); None for those of `dynamics`.
        windows: The windows.
        noise: Noise of the joint sensors.
        measured: Readings of other sensors; None if none are compared.
        scale: Standard deviation of the residuals by channel (positions, velocities, sensors), shape [channels].
        options: Compared channels and free variables.
        space: The search coordinates.
        names: Names of the free quantities.
        prior: Prior on the quantities; None without one.
    """

    def __init__(
        self,
        dynamics: HybridDynamics,
        windows: Windows,
        noise: Noise,
        options: ResidualOptions | None = None,
        *,
        measured: ComparedReadings | None = None,
        scale: Tensor | None = None,
        environments: RecordedEnvironments | None = None,
        space: BoxedSpace | None = None,
        prior: Prior | UnitPrior | None = None,
        tangent: HybridDynamics | None = None,
        doubled: HybridDynamics | None = None,
    ) -> None:
        """Prepare the residuals.

        Arguments: see the attributes. A `scale` of None is the noise. `environments` are those of the windows; None for
        the model's own. A `space` of None has one coordinate for each quantity; others can couple quantities.

        Raises:
            InputError: A quantity that may vary between logs is not free.
        """
        self.dynamics, self.tangent, self.doubled = dynamics, tangent, doubled
        self.windows, self.noise = windows, noise
        self.options = options or ResidualOptions()
        self.measured = measured
        joined_noise = noise.joined if measured is None else torch.cat([noise.joined, measured.noise])
        self.scale = joined_noise if scale is None else scale
        specs = (*dynamics.physical.specs, *(() if measured is None else measured.free))
        self.space: BoxedSpace = SearchSpace(Parameters(specs)) if space is None else space
        self.prior = prior
        self._environments = environments
        self._spec, self._nv = dynamics.spec, dynamics.spec.nv
        self.sizes = torch.tensor([size_of(spec) for spec in specs], dtype=torch.float64)
        self.names = names = [spec.name for spec in specs]
        known = list(names if self.physical or not self.options.per_log else self.space.all_names)
        for name in self.options.per_log:
            if name not in known:
                raise InputError(f"per_log: {name!r} is not a free quantity; valid: {choices(known)}")
        self._local_columns = [known.index(name) for name in self.options.per_log]
        self._local_sizes = torch.tensor(list(self.options.per_log.values()), dtype=torch.float64)
        base = 0 if self.options.base else dynamics.spec.joints[0].nv
        kept = [k >= base and use for use in (self.options.positions, self.options.velocities) for k in range(self._nv)]
        kept += [True] * (len(self.scale) - 2 * self._nv)
        self._channels = torch.nonzero(torch.tensor(kept))[:, 0]
        self._latest: tuple[Point, bool, tuple[Normal, Callable[..., Tensor]]] | None = None

    @property
    def parameters(self) -> int:
        """Number n of search coordinates."""
        return len(self.space.nominal)

    @property
    def locals(self) -> int:
        """Number of free quantities per log."""
        return (self._spec.nu if self.options.torque_offset else 0) + len(self._local_columns)

    @property
    def initials(self) -> int:
        """Number of free initial-state coordinates per window."""
        if not self.options.base:
            assert self.windows.spread is not None
            return self.windows.spread.shape[-1]
        return 2 * self._nv if self.options.initial else 0

    @property
    def count(self) -> int:
        """Number of residuals, including the offsets of initial states."""
        joints = len(self._channels) - (len(self.scale) - 2 * self._nv)
        sensors = 0 if self.measured is None else self.measured.count
        return self.windows.count * (self.windows.frames * joints + self.initials) + sensors

    @property
    def coarser_dynamics(self) -> HybridDynamics:
        """The model with the longest steps, for what needs no exact derivatives."""
        return self.doubled or self.tangent or self.dynamics

    @property
    def channel_scale(self) -> Tensor:
        """Scale of each position and velocity, infinite for channels that are not compared, shape [2 nv]."""
        scale = torch.full_like(self.scale, torch.inf)
        scale[self._channels] = self.scale[self._channels]
        return scale[: 2 * self._nv]

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels: positions, velocities, sensor components."""
        joints = (*(f"q.{name}" for name in self._spec.tangent_names), *(f"qd.{name}" for name in self._spec.qd_names))
        return (*joints, *(() if self.measured is None else self.measured.channels))

    def robust(self, point: Point) -> Tensor:
        """Return a robust scale of each channel's errors at the first set of a point, shape [channels]."""
        errors = self.errors(point.pick(torch.tensor([0])))[0]
        joints = errors[..., : 2 * self._nv].abs().flatten(0, 1)
        scale = (joints.median(0).values / MEDIAN).clamp_min(LEAST)
        return scale if self.measured is None else torch.cat([scale, self.measured.robust(errors[..., 2 * self._nv :])])

    def excess(self, point: Point) -> Tensor:
        """Return the `robust` scale of compared channels in standard deviations of their noise, shape [channels]."""
        joined_noise = (
            self.noise.joined if self.measured is None else torch.cat([self.noise.joined, self.measured.noise])
        )
        return (self.robust(point) / joined_noise)[self._channels]

    def _with(self, **attributes: Any) -> "Residuals":
        copy = object.__new__(Residuals)
        copy.__dict__.update({**self.__dict__, "_latest": None, **attributes})
        return copy

    def with_scale(self, scale: Tensor, noise: Noise) -> "Residuals":
        """Return these residuals with another scale and noise."""
        return self._with(scale=scale, noise=noise)

    def with_dynamics(self, dynamics: HybridDynamics) -> "Residuals":
        """Return these residuals, and their derivatives, of another model with the same quantities."""
        measured = None if self.measured is None else self.measured.on(dynamics)
        return self._with(dynamics=dynamics, tangent=None, doubled=None, measured=measured)

    def with_free_starts(self) -> "Residuals":
        """Return these residuals with free initial states of windows."""
        return self._with(options=replace(self.options, initial=True))

    def past_jumps(self) -> "Residuals":
        """Return these residuals with derivatives that pass over jumps."""
        return self._with(options=replace(self.options, rough=True))

    def with_windows(self, windows: Windows, measured: ComparedReadings | None) -> "Residuals":
        """Return these residuals over other windows and their sensor readings."""
        return self._with(windows=windows, measured=measured)

    def with_space(self, space: BoxedSpace) -> "Residuals":
        """Return these residuals over other coordinates of the same quantities."""
        return self._with(space=space)

    def within(self, frames: int) -> "Residuals":
        """Return these residuals over the first frames of all windows."""
        measured = None if self.measured is None else self.measured.within(frames)
        return self._with(windows=self.windows.until(frames), measured=measured)

    def start(self, x: Tensor) -> Point:
        """Return the start of a search at x, shape [S, n], with zero offsets."""
        sets, w = x.shape[0], self.windows
        local = x.new_zeros(sets, len(w.logs), self.locals)
        return Point(x, local, x.new_zeros(sets, w.count, self.initials))

    @torch.no_grad()
    def errors(self, point: Point) -> Tensor:
        """Return predicted minus logged positions, velocities and readings, shape [S, W, T, channels]."""
        worlds = self._worlds(self.space.values(point.x), point)
        errors = self._errors(*worlds)
        return errors if self.doubled is None else 2.0 * errors - self.with_dynamics(self.doubled)._errors(*worlds)

    def weighted(self, errors: Tensor) -> Tensor:
        """Return the compared errors divided by their scales, shape [..., T, compared channels]."""
        if len(self._channels) == len(self.scale):
            return errors / self.scale
        return errors[..., self._channels] / self.scale[self._channels]

    def cost(self, point: Point) -> Tensor:
        """Return half the sum of squares (or Huber's loss) of each set, infinite where not finite, shape [S]."""
        return self._cost(self.weighted(self.errors(point)), point)

    def gradients(self, point: Point) -> tuple[Tensor, Point]:
        """Return the cost of each set and its gradient by the compiled adjoint."""
        with torch.enable_grad():
            leaves = Point(*(part.detach().clone().requires_grad_(True) for part in vars(point).values()))
            worlds = self._worlds(self.space.values(leaves.x), leaves)
            cost = self._cost(self.weighted(self._errors(*worlds)), leaves)
            by = torch.autograd.grad(cost.sum(), [leaves.x, leaves.local, leaves.initial], allow_unused=True)
        parts = zip(by, vars(point).values(), strict=True)
        return cost.detach(), Point(*(torch.zeros_like(part) if g is None else g for g, part in parts))

    @torch.no_grad()
    def normal(self, point: Point, *, physical: bool = False) -> Normal:
        """Linearise at a point; with `physical` the first columns are with respect to values instead of coordinates."""
        return self.chord(point, physical=physical)[0]

    @torch.no_grad()
    def chord(self, point: Point, *, physical: bool = False) -> tuple[Normal, Callable[..., Tensor]]:
        """Return `normal`, and a function that returns gradients by the same Jacobian.

        It takes another point, and errors there [S, W, T, channels] if they are those of another model; gradients have
        the shape of `Normal.gradient`. The latest result is kept: several analyses begin with that of a solution.
        """
        if self._latest is not None and self._latest[1] == physical and self._latest[0].equals(point):
            return self._latest[2]
        self._latest = None
        known = Point(*(part.clone() for part in vars(point).values()))
        self._latest = known, physical, self._chord(point, physical)
        return self._latest[2]

    def _chord(self, point: Point, physical: bool) -> tuple[Normal, Callable[..., Tensor]]:
        base, jacobian = self._linearised(point, physical)
        weights = self._weights(base)
        r, j = (base * weights).flatten(2), jacobian.mul_(weights[..., None]).flatten(2, 3)
        matrix = torch.stack([each.mT @ each for each in j])  # the bits of a set, whatever the sets beside it
        gradient = (j.mT @ r[..., None])[..., 0]
        if self.initials:
            first = matrix.shape[-1] - self.initials
            matrix[..., first:, first:] += torch.eye(self.initials, dtype=matrix.dtype)
            gradient[..., first:] += point.initial

        def gradient_at(other: Point, errors: Tensor | None = None) -> Tensor:
            weighted = self.weighted(self.errors(other) if errors is None else errors)
            weighted = torch.nan_to_num(weighted, nan=0.0, posinf=0.0, neginf=0.0)
            pull = (weighted * self._weights(weighted).square() / weights).flatten(2)
            gradient = (j.mT @ pull[..., None])[..., 0]
            if self.initials:
                gradient[..., -self.initials :] += other.initial
            return gradient

        return Normal(matrix, gradient, self._cost(base, point)), gradient_at

    def path(self, point: Point) -> Trajectory:
        """Return the roll-outs of the first set."""
        physical, shift, torque = self._worlds(self.space.values(point.x[:1]), point.pick(torch.tensor([0])))
        return self._rollout(physical[0], shift[0], torque[0], torch.arange(self.windows.count))[0]

    @property
    def physical(self) -> bool:
        """Whether each coordinate corresponds to one quantity, so that derivatives by values exist."""
        return isinstance(self.space, SearchSpace)

    def chain(self, x: Tensor) -> Tensor:
        """Return the derivative of the values with respect to the coordinates, shape [S, quantities, n]."""
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

    def values_by_log(self, point: Point) -> Tensor:
        """Return the physical values in each log, of coordinates that vary between logs, shape [S, logs, quantities].

        A coordinate stays within its bounds in no log in particular: the shifts have priors of their own.
        """
        shift = point.local[..., self.locals - len(self._local_columns) :] * self._local_sizes
        columns = torch.tensor(self._local_columns, dtype=torch.long)
        whole = self.space.whole(point.x)[:, None].expand(-1, shift.shape[1], -1)
        return self.space.values_of_whole(whole.index_add(-1, columns, shift))

    def off_prior(self, x: Tensor) -> Tensor:
        """Return the distance of coordinates from their priors, in standard deviations, shape [..., p]."""
        assert self.prior is not None
        return self.prior.distance(x if isinstance(self.prior, UnitPrior) else self.space.values(x))

    def prior_slope(self, x: Tensor, *, physical: bool = False) -> Tensor:
        """Return the derivative of `off_prior` by coordinates [S, n], or by values if `physical`, shape [S, p, n]."""
        assert self.prior is not None
        if isinstance(self.prior, UnitPrior):
            return self.prior.slope(x)
        slope = self.prior.slope(self.space.values(x))
        return slope if physical else slope @ self.chain(x)

    @torch.no_grad()
    def window_costs(self, point: Point, errors: Tensor | None = None) -> Tensor:
        """Return the cost of each window without per-log priors, shape [S, W]; of given `errors` if they are known."""
        errors = self.errors(point) if errors is None else errors
        rho = self._rho(self.weighted(errors)).sum((2, 3)) + 0.5 * point.initial.square().sum(2)
        return torch.where(torch.isfinite(rho), rho, torch.inf)

    def of_windows(self, rows: Tensor) -> "Residuals":
        """Return the residuals of some windows; their points keep the locals of all logs."""
        measured = None if self.measured is None else self.measured.rows(rows)
        return self._with(windows=self.windows.rows(rows), measured=measured)

    def _rho(self, weighted: Tensor) -> Tensor:
        size, k = weighted.abs(), self.options.huber
        square = 0.5 * size.square()
        return square if k is None else torch.where(size <= k, square, k * (size - 0.5 * k))

    @torch.no_grad()
    def by_starts(self, point: Point) -> tuple[Tensor, Tensor]:
        """Return J^T J and J^T r with respect to the initial states of windows, with their priors.

        Shapes [S, W, k, k] and [S, W, k].
        """
        errors = self.errors(point)
        base = self.weighted(errors).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        weights, tangent = self._weights(base), self.coarser_dynamics
        own = self if tangent is self.dynamics else self.with_dynamics(tangent)
        begun = errors if own is self and self.doubled is None else own.errors(point)
        columns = torch.stack(own._by_coordinates(begun, point, "initial", _SHIFT), -1)
        j = columns.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0).mul_(weights[..., None]).flatten(2, 3)
        matrix = j.mT @ j + torch.eye(self.initials, dtype=base.dtype)
        return matrix, (j.mT @ (base * weights).flatten(2)[..., None])[..., 0] + point.initial

    def prior_cost(self, point: Point) -> Tensor:
        """Return the cost of the priors of each set but those of initial states, shape [S]."""
        priors = point.local.square().sum((1, 2))
        if self.prior is not None:
            priors = priors + self.off_prior(point.x).square().sum(-1)
        return 0.5 * priors

    def _cost(self, weighted: Tensor, point: Point) -> Tensor:
        starts = 0.5 * point.initial.square().sum((1, 2))
        cost = self._rho(weighted).sum((1, 2, 3)) + starts + self.prior_cost(point)
        return torch.where(torch.isfinite(cost), cost, torch.inf)

    def _weights(self, weighted: Tensor) -> Tensor:
        """Return the square roots of the weights of iteratively reweighted least squares for Huber's loss."""
        if self.options.huber is None:
            return torch.ones_like(weighted)
        return (self.options.huber / weighted.abs().clamp_min(1e-12)).clamp_max(1.0).sqrt()

    def _linearised(self, point: Point, physical: bool) -> tuple[Tensor, Tensor]:
        """Return weighted residuals [S, W, T, c] and their Jacobian [S, W, T, c, m]."""
        errors = self.errors(point)
        base = self.weighted(errors)
        if not torch.isfinite(base).all():
            base = torch.nan_to_num(base, nan=1e9, posinf=1e9, neginf=-1e9)
        if self.tangent is None:
            return base, self._jacobian(errors, point, physical)
        tangent = self.with_dynamics(self.tangent)
        return base, tangent._jacobian(tangent.errors(point), point, physical)

    def _jacobian(self, errors: Tensor, point: Point, physical: bool) -> Tensor:
        """Return the Jacobian of weighted residuals [S, W, T, c, m]; `errors` are those at the point."""
        values, sets = self.space.values(point.x), point.x.shape[0]
        if self.parameters and not self.physical:
            rough = self.options.rough or not self.options.base
            found = self._by_coordinates(errors, point, "x", _BROAD, both_sides=rough)
            columns = [without_jumps(one, near=rough or self.options.near) for one in found]
        else:
            steps = _STEP * torch.maximum(values.abs(), self.sizes)
            searched = range(values.shape[-1] if self.parameters else 0)

            @torch.no_grad()  # no_grad holds for the calling thread only
            def column(k: int) -> Tensor:
                return self._difference(values, point, step=steps[:, k], column=k, sets=sets)

            columns = in_threads(column, len(searched), self._threads)
        blocks = [torch.stack(columns, -1) if columns else self.weighted(errors)[..., None][..., :0]]
        if columns and self.physical and not physical:
            blocks[0] = torch.einsum("swtcp,spn->swtcn", blocks[0], self.chain(point.x))
        shifted = _SHIFT if self.physical else _BROAD
        for name, count, step in (("local", self.locals, shifted), ("initial", self.initials, _SHIFT)):
            if count:
                both = name == "initial" and not self.options.base
                blocks.append(torch.stack(self._by_coordinates(errors, point, name, step, both_sides=both), -1))
        jacobian = torch.cat(blocks, -1) if len(blocks) > 1 else blocks[0]
        return jacobian.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)

    @property
    def _threads(self) -> int:
        """Number of threads that may simulate at once."""
        dynamics, ground = self.dynamics, self.windows.ground
        around = None if self._environments is None else self._environments.at(None if ground is None else ground[:1])
        return min(dynamics.threads, _COLUMNS) if dynamics.parallel(dynamics.resolve_environment(around)) else 1

    def _difference(self, values: Tensor, point: Point, *, step: Tensor, column: int, sets: int) -> Tensor:
        both = torch.cat([values, values])
        both[:sets, column] += step
        both[sets:, column] -= step
        errors = self._errors(*self._worlds(both, Point.concatenate([point, point])))
        return self._halve(errors, sets) / step[:, None, None, None]

    def _by_coordinates(
        self, errors: Tensor, point: Point, name: str, step: float, *, both_sides: bool = False
    ) -> list[Tensor]:
        """Return the derivatives of the weighted residuals by each coordinate of a part of the point.

        `errors` are those at the point. Coordinates are moved together while a launch has few worlds, as its overhead
        then exceeds their cost. With `both_sides` each derivative is the smaller of those to either side: one of
        them is free of a jump, such as the onset of a contact, which would outweigh all that is smooth.
        """
        sets, count = point.x.shape[0], getattr(point, name).shape[-1]
        group = max(1, _WORLDS // (sets * self.windows.count))
        behind_by, ahead_by = self._room(point, name, step)  # [count, S], less than a step at a bound

        @torch.no_grad()  # no_grad holds for the calling thread only
        def of_group(number: int) -> tuple[Tensor, ...]:
            columns = range(group * number, min(group * (number + 1), count))
            below, above = (by[columns.start : columns.stop, :, None, None, None] for by in (behind_by, ahead_by))

            def moved(steps: float | Tensor) -> Tensor:
                return self._move(point, name, columns, steps).view(len(columns), *errors.shape)

            if both_sides:
                behind, ahead = self._turned(errors - moved(-step)), self._turned(moved(step).sub_(errors))
                smaller = torch.where((ahead.abs() < behind.abs()) | behind.isnan() | (below < step), ahead, behind)
                found = torch.where((above < step) & (below >= step), behind, smaller).div_(step)
            elif self.options.one_sided:
                towards = torch.where((above < step) & (below >= step), -step, step)
                found = self._turned(moved(towards).sub_(errors)).div_(towards)
            else:
                found = self._turned(moved(step).sub_(moved(-step))).div_((below + above).clamp_min(1e-12))
            return found.flatten(0, 1).split(sets)

        found = in_threads(of_group, -(-count // group), self._threads)
        return [one for derivatives in found for one in derivatives]

    def _room(self, point: Point, name: str, step: float) -> tuple[Tensor, Tensor]:
        """Return how far each coordinate may move down and up, by a step at most, both [coordinates, S]."""
        count, sets = getattr(point, name).shape[-1], len(point.x)
        if name != "x":
            whole = torch.full((count, sets), step, dtype=point.x.dtype)
            return whole, whole
        below, above = point.x - self.space.lower, self.space.upper - point.x
        return below.clamp(0.0, step).mT, above.clamp(0.0, step).mT

    def _move(self, point: Point, name: str, columns: Sequence[int], step: float | Tensor) -> Tensor:
        """Return the errors with each of these columns moved, in all logs or windows, [columns * S, W, T, channels].

        A step is one for all, or [columns, S, 1, 1, 1].
        """
        moved, sets = Point.concatenate([point] * len(columns)), len(point.x)
        part = getattr(moved, name)
        for k, column in enumerate(columns):
            own = part[k * sets : (k + 1) * sets, ..., column]
            own += step[k].view(-1, *(1,) * (own.ndim - 1)) if isinstance(step, Tensor) else step
        if name == "x":
            part.copy_(self.space.clip(part))
        return self._errors(*self._worlds(self.space.values(moved.x), moved))

    def _halve(self, errors: Tensor, sets: int) -> Tensor:
        return 0.5 * self._turned(errors[:sets] - errors[sets:])

    def _turned(self, difference: Tensor) -> Tensor:
        """Return a weighted difference of errors, in which an angle that wraps in only one adds no jump of 2 pi."""
        angles = [joint.continuous for joint in self._spec.joints for _ in joint.tangent_names]
        if any(angles):
            turns = torch.tensor([*angles, *([False] * (len(self.scale) - self._nv))], dtype=torch.bool)
            difference = torch.where(turns, wrap_angle(difference), difference)
        return self.weighted(difference)

    def _worlds(self, values: Tensor, point: Point) -> tuple[Tensor, Tensor, Tensor]:
        """Return parameters [S, W, P], initial-state shifts [S, W, 2 nv] and additional torques [S, W, nu]."""
        w, sets = self.windows, values.shape[0]
        physical = values[:, None].expand(sets, w.count, values.shape[-1])
        torque = values.new_zeros(sets, w.count, self._spec.nu)
        if self.locals:
            local = point.local[:, w.log]
            split = self.locals - len(self._local_columns)
            if split:
                torque = self.options.torque_offset * local[..., :split]
            if self._local_columns and self.physical:
                physical = physical.clone()
                physical[..., self._local_columns] += self._local_sizes * local[..., split:]
            elif self._local_columns:
                physical = self.values_by_log(point)[:, w.log]
        return physical, self._shifts(point), torque

    def _shifts(self, point: Point) -> Tensor:
        """Return the offsets of initial states: of positions and velocities, shape [S, W, 2 nv]."""
        if not self.initials:
            return point.initial.new_zeros(*point.initial.shape[:2], 2 * self._nv)
        if self.options.base:
            return point.initial * self.noise.joined
        spread, n = self.windows.spread, self._spec.joints[0].nv
        assert spread is not None
        base = torch.einsum("wij,swj->swi", spread[:, 0], point.initial)
        place, rate = (torch.nn.functional.pad(part, (0, self._nv - n)) for part in base.split(n, -1))
        return torch.cat([place, rate], -1)

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
            path, memory, control = self._rollout(physical, shift, torque, picked)
            positions = position_difference(self._spec, path.q[:, 1:], w.q[picked, 1:])
            channels = [positions, path.qd[:, 1:] - w.qd[picked, 1:]]
            if self.measured is not None:
                channels.append(self._sensed(self.measured, path, memory, control, physical, picked))
            parts.append(torch.cat(channels, -1))
        return torch.cat(parts).view(sets, w.count, w.frames, len(self.scale))

    def _sensed(
        self, measured: ComparedReadings, path: Trajectory, memory: Tensor | None, control: Tensor, physical: Tensor,
        rows: Tensor,
    ) -> Tensor:  # fmt: skip
        """Return the errors of sensors along roll-outs, shape [N, T, channels]."""
        environment, ground = None, self.windows.ground
        if self._environments is not None:
            states = control.shape[1] + measured.more
            poses, own = (
                None if one is None else one[rows].repeat_interleave(states, 0)
                for one in (ground, self.windows.parameters)
            )
            environment = self._environments.at(poses, own)
        model = len(self.dynamics.physical.specs)
        return measured.errors(
            path, control, physical[:, :model], physical[:, model:], self.dynamics.weights.detach(), environment, rows,
            memory,
        )  # fmt: skip

    def _rollout(
        self, physical: Tensor, shift: Tensor, torque: Tensor, rows: Tensor
    ) -> tuple[Trajectory, Tensor | None, Tensor]:
        """Return roll-outs, the memory at their states, and the mean controls of their frames."""
        w = self.windows
        q = displace(self._spec, w.q[rows, 0], shift[:, : self._nv]) if self.initials else w.q[rows, 0]
        state = State(q, w.qd[rows, 0] + shift[:, self._nv :])
        environment = None
        if self._environments is not None:
            environment = self._environments.at(*(x if x is None else x[rows] for x in (w.ground, w.parameters)))
        control, quantities = w.control[rows], physical[:, : len(self.dynamics.physical.specs)]
        commands = None if w.parts is None else w.parts[rows]
        if self.options.torque_offset:
            control = control + torque[:, None]
            commands = None if commands is None else commands + torque[:, None, None]
        context = context_of(w, state=state, rows=rows)
        weights = self.dynamics.weights.detach()
        simulate = self.dynamics.simulate_remembering
        given = control if commands is None else commands
        path, memory = simulate(context, given, quantities, weights, environment, interpolated=True)
        return path, memory, control


def without_jumps(derivatives: Tensor, *, near: bool = False) -> Tensor:
    """Return derivatives [S, W, T, c], with outlying windows scaled down.

    A difference across a jump, such as the onset of a contact, is no derivative, and one such window would outweigh the
    rest: it is limited to `_JUMP` times the 95 % quantile over windows; if contacts are `near`, to `_NEAR` times the
    75 % quantile over windows in which the coordinate matters.
    """
    derivatives = derivatives.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    sizes = derivatives.square().sum((2, 3)).sqrt()
    limit = _JUMP * sizes.quantile(0.95, 1, keepdim=True)
    if near:
        limit = _NEAR * sizes.where(sizes > 0.0, torch.nan).nanquantile(0.75, 1, keepdim=True)
    share = torch.where(sizes > limit, limit / sizes.clamp_min(1e-300), 1.0)
    return derivatives * share[..., None, None]


def require_finite(residuals: Residuals, point: Point) -> None:
    """Raise an InputError with window, frame and quantity if a roll-out of the first set is not finite."""
    require_finite_path(residuals.path(point), residuals.dynamics.spec, residuals.windows)
