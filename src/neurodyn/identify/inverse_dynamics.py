# SPDX-License-Identifier: Apache-2.0
r"""Parameters from the torques of a log: inverse dynamics, the usual way for arms with torque (or current) sensors.

Torques are linear in the inertial parameters $\pi$ of the links and in rotor inertia a, viscous friction d, Coulomb
friction f and springs (`multibody.inverse_dynamics`, `multibody.passive`), so that all samples of a log shrink to one
triangular matrix,

$$\tau = Y \pi + a\,\ddot q + d\,\dot q + f \tanh(\dot q/v_0) + k\,(q - q_{rest}), \qquad
\min_x \; |R\,\phi(x) - z|^2 + |(x - x_0)/s|^2, \qquad Q R = W [Y, \ldots]$$

with weights W by joint, one over the size of its residuals, and Huber's for single samples. The search is in the
coordinates x of `search_space`, whose every point is a body that can exist: masses and frictions at least zero, and
where a whole inertia is free one of a density (Wensing, Kim and Slotine 2018; Rucker and Wensing 2022, "Smooth
parameterization of rigid-body inertia"). The torques of an arm tell combinations of these numbers only. The second
term, a prior about the nominal values with standard deviations s of their own size (of the centre of mass: the radius
of gyration), decides the others. Samples beyond the limits of a joint are left out.

Motion is smoothed by polynomials over a window around the middle of each frame, where the frame's mean torque acts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError, choices
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.dynamics.hybrid.parameters import Parameters, size_of
from neurodyn.identify.certainty import Certainty
from neurodyn.identify.convergence import Convergence, SearchEnd
from neurodyn.identify.identifiability import Identifiability, pseudo_inverse
from neurodyn.identify.least_squares import Solution, refined
from neurodyn.identify.parameter_search import Searched
from neurodyn.identify.residuals import Residuals, require_finite
from neurodyn.identify.result import TorqueErrors
from neurodyn.identify.search_space import SearchSpace
from neurodyn.multibody.drive import FRICTION_SPEED
from neurodyn.multibody.inverse_dynamics import LINK_PARAMETERS, link_parameters, regressor

_OWN = ("armature", "damping", "friction", "stiffness", "preload")
"""What acts on a joint alone, in the order of its columns; the preload is -stiffness times rest."""
_INERTIA = ("xx", "yy", "zz", "xy", "xz", "yz")
_FREE = ("mass", "com", "inertia", "armature", "damping", "friction", "stiffness")
_DEGREE = 5
_REWEIGHED = 6
_HUBER = 3.0
"""Errors beyond so many standard deviations count linearly: stops, contacts and sudden torques are in no parameter."""
_MEDIAN = 0.6745
"""Median of |x| of a standard normal x."""
_ITERATIONS = 60
_GAIN = 1e-7
_CORRELATION = 0.1
"""Time over which errors of a model are alike [s]: samples closer than that are no further evidence."""


@dataclass(frozen=True)
class TorqueSamples:
    """Motion and torque in the middle of frames, N samples.

    Attributes:
        q: Positions [rad or m], float64, shape [N, nv].
        qd: Velocities, likewise.
        qdd: Accelerations, likewise.
        torque: Mean torques of the frames [N m or N], zero where no drive is, likewise.
        dt: Time between samples [s].
    """

    q: np.ndarray
    qd: np.ndarray
    qdd: np.ndarray
    torque: np.ndarray
    dt: float


def torque_samples(store: Store, split: int | None, smoothing: float) -> TorqueSamples:
    """Return the samples of a split's episodes, positions smoothed over `smoothing` [s].

    Raises:
        InputError: A joint is not revolute or prismatic, or no episode is long enough.
    """
    spec = store.header.spec
    other = next((joint for joint in spec.joints if joint.kind not in ("revolute", "prismatic")), None)
    if other is not None:
        raise InputError(
            f"inverse dynamics: joint {other.name!r} is {other.kind}; valid: a bolted robot of revolute and prismatic "
            "joints"
        )
    half = max((_DEGREE + 1) // 2, round(0.5 * smoothing / spec.dt))
    filters = _polynomial(half, spec.dt)
    columns = [spec.q_names.index(name) for name in spec.controls]
    episodes = store.episodes() if split is None else episodes_of(store, split)
    parts: list[tuple[np.ndarray, ...]] = []
    for episode in episodes:
        q, _, control = (x.astype(np.float64) for x in store.episode(int(episode)))
        if len(q) < 2 * half:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(q, 2 * half, axis=0)
        torque = np.zeros((len(windows), spec.nv))
        torque[:, columns] = control[half - 1 : half - 1 + len(windows)]
        parts.append((*(windows @ row for row in filters), torque))
    if not parts:
        raise InputError(f"data of {store.header.robot!r}: no episode has {2 * half} states; valid: less smoothing")
    return TorqueSamples(*(np.concatenate(column) for column in zip(*parts, strict=True)), dt=spec.dt)


def _polynomial(half: int, dt: float) -> np.ndarray:
    """Return what 2 half states are weighted with for value, slope and curvature in their middle, shape [3, 2 half]."""
    time = (np.arange(2 * half) - half + 0.5) * dt
    fit = np.linalg.pinv(np.vander(time / time[-1], _DEGREE + 1, increasing=True))
    return np.stack([fit[0], fit[1] / time[-1], 2.0 * fit[2] / time[-1] ** 2])


class TorqueModel:
    """The torques of a mechanism as a function of quantities.

    Attributes:
        mechanism: Revolute and prismatic joints.
        size: Number of coefficients, 15 for each link.
    """

    def __init__(self, mechanism: Mechanism) -> None:
        """Prepare the torques.

        Raises:
            InputError: The mechanism has force elements.
        """
        if mechanism.elements:
            names = ", ".join(element.name for element in mechanism.elements)
            raise InputError(
                f"inverse dynamics: the force elements {names} are unknown to it; valid: method: roll-outs"
            )
        self.mechanism = mechanism
        self.size = (LINK_PARAMETERS + len(_OWN)) * len(mechanism.links)

    def columns(self, samples: TorqueSamples) -> np.ndarray:
        """Return what `coefficients` multiply, shape [N, nv, 15 links]."""
        q, qd, qdd = samples.q, samples.qd, samples.qdd
        own = np.stack([qdd, qd, np.tanh(qd / FRICTION_SPEED), q, np.ones_like(q)], -1)
        nv = q.shape[1]
        alone = np.zeros((len(q), nv, nv, len(_OWN)))
        alone[:, range(nv), range(nv)] = own
        return np.concatenate([regressor(self.mechanism, q, qd, qdd), alone.reshape(len(q), nv, -1)], -1)

    def coefficients(self, values: Tensor, specs: Sequence[Parameter]) -> Tensor:
        """Return the coefficients for values of some quantities, the others nominal; differentiable.

        Args:
            values: Shape [..., n].
            specs: Which quantities these are.

        Returns:
            Shape [..., 15 links].
        """
        shape = values.shape[:-1]
        quantities = {name: values.new_full(shape, value) for name, value in self.mechanism.quantities().items()}
        quantities |= {spec.name: value for spec, value in zip(specs, values.unbind(-1), strict=True)}
        inertial, own = [], []
        for name in self.mechanism.names:
            com = torch.stack([quantities[f"{name}.com.{axis}"] for axis in "xyz"], -1)
            inertia = torch.stack([quantities[f"{name}.inertia.{entry}"] for entry in _INERTIA], -1)
            inertial.append(link_parameters(quantities[f"{name}.mass"], com, inertia))
            preload = -quantities[f"{name}.stiffness"] * quantities[f"{name}.rest"]
            own.append(torch.stack([*(quantities[f"{name}.{what}"] for what in _OWN[:-1]), preload], -1))
        return torch.cat([*inertial, *own], -1)

    def torque(self, samples: TorqueSamples, values: Tensor, specs: Sequence[Parameter]) -> np.ndarray:
        """Return the torques that values of some quantities predict [N m or N], shape [N, nv]."""
        return self.columns(samples) @ self.coefficients(values, specs).detach().numpy()


@dataclass(frozen=True)
class TorqueFit:
    """Quantities found from torques.

    Attributes:
        values: Their values, in the order in which they were asked for, float64, shape [n].
        deviation: Standard deviation of the torques about the model, by joint [N m or N].
        analysis: What the torques tell of each; deviations have the prior in them.
        converged: Whether the search ended because no step gained anything more.
    """

    values: Tensor
    deviation: np.ndarray
    analysis: Identifiability
    converged: bool


def fit_torques(
    mechanism: Mechanism, quantities: Parameters, samples: TorqueSamples, *, prior: float = 10.0
) -> TorqueFit:
    """Fit quantities to torques.

    Args:
        mechanism: Revolute and prismatic joints.
        quantities: The free quantities: masses, centres of mass, inertias, rotor inertias, friction, springs.
        samples: Motion and torques.
        prior: Weight of the prior; 1 takes nominal values to be right to within their size, 10 to a third of it.

    Raises:
        InputError: A quantity does not enter torques linearly.
    """
    specs, space = quantities.specs, SearchSpace(quantities)
    _require_linear([spec.name for spec in specs])
    model = TorqueModel(mechanism)
    columns = model.columns(samples)
    torque = samples.torque
    counts = torque.any(0) & _between_stops(mechanism, samples.q)[:, None]
    scale = torque.std(0)
    share = min(1.0, samples.dt / _CORRELATION)
    weigh = prior**0.5 / _spread(mechanism, quantities, space)
    x, converged = space.nominal.clone(), False
    upper = target = np.empty(0)
    error = torque
    for _ in range(_REWEIGHED):
        size = np.abs(error) / np.maximum(scale, 1e-9)
        robust = np.sqrt(np.minimum(1.0, _HUBER / np.maximum(size, 1e-9)))
        weight = np.where(counts, share**0.5 / np.maximum(scale, 1e-9), 0.0) * robust
        upper, target = _triangle(columns * weight[..., None], torque * weight)
        x, converged = _minimised(model, specs, space, upper, target, x, weigh)
        error = torque - columns @ model.coefficients(space.values(x), specs).numpy()
        scale = np.median(np.abs(error), 0) / _MEDIAN
    analysis = _analysis(model, specs, space, upper, target, x, weigh, round(len(torque) * share))
    return TorqueFit(space.values(x), scale, analysis, converged)


def searched_torques(
    residuals: Residuals, mechanism: Mechanism, samples: TorqueSamples, prior: float
) -> tuple[Searched, Certainty]:
    """Return the end of a search by torques in the form of one by roll-outs.

    Args:
        residuals: Of roll-outs, whose channels are weighed by their errors at the solution.
        mechanism: Revolute and prismatic joints.
        samples: Motion and torques.
        prior: See `fit_torques`.

    Raises:
        InputError: A roll-out with the quantities that were found is not finite.
    """
    fit = fit_torques(mechanism, residuals.dynamics.physical, samples, prior=prior)
    start = residuals.start(SearchSpace(residuals.dynamics.physical).of(fit.values)[None])
    require_finite(residuals, start)
    solution = Solution(start, residuals.cost(start), torch.ones(1), 0, torch.ones(1, dtype=torch.bool))
    residuals, solution = refined(residuals, solution)
    end = SearchEnd(settled=fit.converged, moved=True, iterations=0)
    nothing = fit.values.new_zeros(0, len(fit.values))
    why = "torques and prior agree best here" if fit.converged else "iterations were used up"
    known = Certainty(
        fit.analysis, Convergence(fit.converged, f"inverse dynamics: {why}"), None, None,
        f"samples {_CORRELATION:g} s apart",
    )  # fmt: skip
    return Searched(residuals, solution.point, end, nothing, nothing[:, 0]), known


def torque_errors(
    mechanism: Mechanism, store: Store, split: int, smoothing: float, specs: Sequence[Parameter], values: Tensor
) -> TorqueErrors:
    """Return by how much predicted torques miss those of a split, with nominal and other values of quantities.

    Args:
        mechanism: Revolute and prismatic joints.
        store: The log.
        split: Which episodes.
        smoothing: Window over which positions are smoothed [s].
        specs: The quantities.
        values: Their values, shape [n].
    """
    samples, model = torque_samples(store, split, smoothing), TorqueModel(mechanism)
    columns = model.columns(samples)
    driven = [k for k, joint in enumerate(store.header.spec.joints) if joint.name in store.header.spec.controls]

    def sizes(errors: np.ndarray) -> dict[str, float]:
        root = np.sqrt(np.square(errors).mean(0))
        return {store.header.spec.joints[k].name: float(root[k]) for k in driven}

    nominal = values.new_tensor([spec.nominal for spec in specs])
    missed = [samples.torque - columns @ model.coefficients(x, specs).detach().numpy() for x in (nominal, values)]
    return TorqueErrors(
        split=Split(split).name.lower(), logged=sizes(samples.torque), nominal=sizes(missed[0]),
        identified=sizes(missed[1]),
    )  # fmt: skip


def _between_stops(mechanism: Mechanism, q: np.ndarray) -> np.ndarray:
    """Return the samples in which no joint is beyond its limits, whose stops are not in the model, shape [N]."""
    lower, upper = (
        np.array([default if getattr(link, name) is None else getattr(link, name) for link in mechanism.links])
        for name, default in (("lower", -np.inf), ("upper", np.inf))
    )
    return np.asarray(((q >= lower) & (q <= upper)).all(1))


def _require_linear(names: Sequence[str]) -> None:
    for name in names:
        link, what = name.split(".")[:2]
        if link == "contact" or what not in _FREE:
            raise InputError(
                f"parameter {name!r} cannot be found by inverse dynamics; valid: {choices(_FREE)} of links"
            )


def _spread(mechanism: Mechanism, quantities: Parameters, space: SearchSpace) -> Tensor:
    """Return the prior's standard deviation of each coordinate; infinite for what nominal values hardly tell."""
    gyration = {link.joint.name: (0.5 * sum(link.inertia[:3]) / link.mass) ** 0.5 for link in mechanism.links}
    spread = torch.full_like(space.nominal, torch.inf)
    for k, spec in enumerate(quantities.specs):
        link, _, what = spec.name.partition(".")
        if what.startswith("com"):
            spread[k] = max(gyration[link], 0.01) / size_of(spec)
        elif what == "mass" or what.startswith("inertia"):
            spread[k] = 1.0
    return spread


def _analysis(
    model: TorqueModel,
    specs: Sequence[Parameter],
    space: SearchSpace,
    upper: np.ndarray,
    target: np.ndarray,
    x: Tensor,
    prior: Tensor,
    samples: int,
) -> Identifiability:
    """Return what torques and prior tell of each quantity where they agree best.

    The Jacobian is by physical values, to which the prior's deviations are carried along the coordinates.
    """
    matrix, values = torch.from_numpy(upper), space.values(x)
    jacobian = matrix @ _rows(lambda at: model.coefficients(at, specs), values, model.size)
    residual = matrix @ model.coefficients(values, specs).detach() - torch.from_numpy(target)
    moves = _rows(space.values, x, len(x))
    known = torch.linalg.pinv(moves)
    gradient = moves.mT @ (jacobian.mT @ residual) + prior.square() * (x - space.nominal)
    bound = space.held(x, gradient)
    information = jacobian.mT @ jacobian + known.mT @ torch.diag(prior.square()) @ known
    sizes = torch.tensor([size_of(spec) for spec in specs], dtype=torch.float64).maximum(values.abs())
    deviations = pseudo_inverse(information, bound).diagonal().clamp_min(0.0).sqrt()
    before = (moves.square() @ prior.clamp_min(1e-12).pow(-2)).sqrt()  # what the prior alone knows
    combined = (deviations > torch.minimum(0.5 * before, sizes)) & ~bound
    singular = torch.linalg.svdvals(jacobian * sizes)
    names = tuple(spec.name for spec in specs)
    return Identifiability(
        names=names,
        singular_values=tuple(singular.tolist()),
        condition=float(singular[0] / singular[-1].clamp_min(1e-16 * singular[0])),
        insensitive=(),
        lost=(),
        unseen=(),
        combined=tuple(name for name, only in zip(names, combined, strict=True) if only),
        bound=bound,
        deviations=deviations,
        white=deviations,
        newton=torch.zeros_like(deviations),
        degrees=max(1, samples - len(specs)),
        variance=1.0,
    )


def _triangle(columns: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return R [P, P] and Q^T y [P] of weighted samples."""
    joined = np.concatenate([columns, target[..., None]], -1).reshape(-1, columns.shape[-1] + 1)
    upper = np.asarray(np.linalg.qr(joined, mode="r"))
    return upper[:-1, :-1], upper[:-1, -1]


def _minimised(
    model: TorqueModel,
    specs: Sequence[Parameter],
    space: SearchSpace,
    upper: np.ndarray,
    target: np.ndarray,
    x: Tensor,
    prior: Tensor,
) -> tuple[Tensor, bool]:
    """Return where torques and prior agree best within the bounds, by Levenberg-Marquardt, and whether that is it."""
    matrix, right = torch.from_numpy(upper), torch.from_numpy(target)

    @torch.no_grad()
    def residual(at: Tensor) -> Tensor:
        fitted = matrix @ model.coefficients(space.values(at), specs) - right
        return torch.cat([fitted, prior * (at - space.nominal)])

    damping, now = 1e-3, residual(x)
    for _ in range(_ITERATIONS):
        moved, after = x, now
        jacobian = torch.cat([matrix @ _derivative(model, specs, space, x), torch.diag(prior)])
        gradient, normal = jacobian.mT @ now, jacobian.mT @ jacobian
        free = (~space.held(x, gradient)).nonzero()[:, 0]
        gradient, normal = gradient[free], normal[free][:, free]
        size = normal.diagonal().clamp_min(1e-12)
        gain = 0.0
        while damping < 1e12:
            moved = x.clone()
            moved[free] -= torch.linalg.solve(normal + torch.diag(damping * size), gradient)
            moved = space.clipped(moved)
            after = residual(moved)
            gain = float(now.square().sum() - after.square().sum())
            if gain > 0:
                break
            damping *= 10.0
        if gain <= 0:
            return x, True
        done = gain <= _GAIN * float(now.square().sum())
        x, now, damping = moved, after, max(0.1 * damping, 1e-9)
        if done:
            return x, True
    return x, False


def _derivative(model: TorqueModel, specs: Sequence[Parameter], space: SearchSpace, x: Tensor) -> Tensor:
    """Return the derivative of the coefficients by the coordinates, shape [15 links, n]."""
    return _rows(lambda at: model.coefficients(space.values(at), specs), x, model.size)


def _rows(function: Callable[[Tensor], Tensor], x: Tensor, count: int) -> Tensor:
    """Return the derivative of a function of `count` numbers that takes several points at once, shape [count, n]."""
    with torch.enable_grad():  # a copy of x for each number: one pass gives the gradients of all
        points = x.expand(count, -1).clone().requires_grad_(True)
        return torch.autograd.grad(function(points).diagonal().sum(), points)[0]
