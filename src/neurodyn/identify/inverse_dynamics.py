# SPDX-License-Identifier: Apache-2.0
r"""Identification from logged torques by inverse dynamics, for robot arms with torque or current sensors.

Joint torques are linear in the inertial parameters $\pi$ of the links (`multibody.inverse_dynamics`), and in rotor
inertia a, viscous friction d, Coulomb friction f and spring stiffness k of each joint. All samples of a log
therefore reduce to one triangular matrix by a QR decomposition:

$$\tau = Y \pi + a\,\ddot q + d\,\dot q + f \tanh(\dot q/v_0) + k\,(q - q_{rest}), \qquad
\min_x \; |R\,\phi(x) - z|^2 + |(x - x_0)/s|^2, \qquad Q R = W [Y, \ldots]$$

W weights each joint by the inverse size of its residuals, and single samples by Huber's weights. The search runs over
the coordinates x of `search_space`, where every point is physically consistent: masses and frictions are not negative,
and a full inertia is that of a density (Wensing, Kim and Slotine 2018; Rucker and Wensing 2022, "Smooth
parameterization of rigid-body inertia"). Torques determine only combinations of these parameters. The second term, a
prior around the nominal values, determines the rest; its standard deviations s are the nominal sizes (for the centre of
mass, the radius of gyration).

Positions are smoothed by polynomials over a window centred on the middle of each frame, where the frame's mean torque
applies. Samples beyond the limits of a joint are left out, because stops are not part of the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.mechanism import INERTIA_ENTRIES, Mechanism
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError, choices
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.dynamics.hybrid.parameters import Parameters, size_of
from neurodyn.identify.confidence.certainty import Certainty
from neurodyn.identify.confidence.parameter_search import Convergence, Searched, SearchEnd
from neurodyn.identify.fit.intervals import Identifiability, correlations, pseudo_inverse
from neurodyn.identify.fit.least_squares import Solution, rescale
from neurodyn.identify.fit.readings import MEDIAN
from neurodyn.identify.fit.residuals import Residuals, require_finite
from neurodyn.identify.result import TorqueErrors
from neurodyn.identify.unknowns.search_space import SearchSpace
from neurodyn.multibody.drives.friction import FRICTION_SPEED
from neurodyn.multibody.inverse_dynamics import LINK_PARAMETERS, link_parameters, regressor

_PASSIVE = ("armature", "damping", "friction", "stiffness", "preload")
"""Coefficients of a single joint, in the order of its columns; the preload is -stiffness times rest."""
_FREE = ("mass", "com", "inertia", "armature", "damping", "friction", "stiffness")
_DEGREE = 5
_REWEIGHED = 6
_HUBER = 3.0
"""Errors beyond this many standard deviations count linearly: no parameter explains stops or contacts."""
_ITERATIONS = 60
_GAIN = 1e-7
_CORRELATION = 0.1
"""Correlation time of model errors [s]; samples closer than this add no evidence."""


@dataclass(frozen=True)
class TorqueSamples:
    """Motion and torque at the middle of N frames.

    Attributes:
        q: Positions [rad or m], float64, shape [N, nv].
        qd: Velocities [rad/s or m/s], float64, shape [N, nv].
        qdd: Accelerations [rad/s^2 or m/s^2], float64, shape [N, nv].
        torque: Mean torques of the frames, zero at joints without a drive [N m or N], float64, shape [N, nv].
        dt: Time between samples [s].
    """

    q: np.ndarray
    qd: np.ndarray
    qdd: np.ndarray
    torque: np.ndarray
    dt: float


def torque_samples(store: Store, split: int | None, smoothing: float) -> TorqueSamples:
    """Return motion and torque from the episodes of a split (None: all), with positions smoothed over `smoothing` [s].

    Raises:
        InputError: A joint is neither revolute nor prismatic, or no episode is long enough.
    """
    spec = store.header.spec
    other = next((joint for joint in spec.joints if joint.kind not in ("revolute", "prismatic")), None)
    if other is not None:
        raise InputError(
            f"inverse dynamics: joint {other.name!r} is {other.kind}; valid: a bolted robot of revolute and prismatic "
            "joints"
        )
    if spec.control_kind == "command":
        raise InputError("inverse dynamics: the controls are commands of actuators; valid: logs of torques")
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
    """Return the filters for value, slope and curvature at the middle of 2 half states, shape [3, 2 half]."""
    time = (np.arange(2 * half) - half + 0.5) * dt
    fit = np.linalg.pinv(np.vander(time / time[-1], _DEGREE + 1, increasing=True))
    return np.stack([fit[0], fit[1] / time[-1], 2.0 * fit[2] / time[-1] ** 2])


class TorqueModel:
    """Joint torques of a mechanism, linear in coefficients that are functions of the quantities.

    Attributes:
        mechanism: Mechanism with revolute and prismatic joints.
        size: Number of coefficients, 15 for each link.
    """

    def __init__(self, mechanism: Mechanism) -> None:
        """Prepare the torques.

        Raises:
            InputError: The mechanism has force elements, tendons or equality constraints.
        """
        for what, given in (
            ("force elements", mechanism.elements), ("tendons", mechanism.tendons), ("equalities", mechanism.equalities)
        ):  # fmt: skip
            if given:
                names = ", ".join(one.name for one in given)
                raise InputError(f"inverse dynamics: the {what} {names} are unknown to it; valid: method: roll-outs")
        self.mechanism = mechanism
        self.size = (LINK_PARAMETERS + len(_PASSIVE)) * len(mechanism.links)

    def columns(self, samples: TorqueSamples) -> np.ndarray:
        """Return the regressor of the samples, by which `coefficients` are multiplied, shape [N, nv, 15 links]."""
        q, qd, qdd = samples.q, samples.qd, samples.qdd
        by_joint = np.stack([qdd, qd, np.tanh(qd / FRICTION_SPEED), q, np.ones_like(q)], -1)
        nv = q.shape[1]
        diagonal = np.zeros((len(q), nv, nv, len(_PASSIVE)))
        diagonal[:, range(nv), range(nv)] = by_joint
        return np.concatenate([regressor(self.mechanism, q, qd, qdd), diagonal.reshape(len(q), nv, -1)], -1)

    def coefficients(self, values: Tensor, specs: Sequence[Parameter]) -> Tensor:
        """Return the coefficients [..., 15 links] for `values` [..., n] of `specs`, with all others nominal."""
        shape = values.shape[:-1]
        quantities = {name: values.new_full(shape, value) for name, value in self.mechanism.quantities().items()}
        quantities |= {spec.name: value for spec, value in zip(specs, values.unbind(-1), strict=True)}
        inertial, passive = [], []
        for name in self.mechanism.names:
            com = torch.stack([quantities[f"{name}.com.{axis}"] for axis in "xyz"], -1)
            inertia = torch.stack([quantities[f"{name}.inertia.{entry}"] for entry in INERTIA_ENTRIES], -1)
            inertial.append(link_parameters(quantities[f"{name}.mass"], com, inertia))
            preload = -quantities[f"{name}.stiffness"] * quantities[f"{name}.rest"]
            passive.append(torch.stack([*(quantities[f"{name}.{what}"] for what in _PASSIVE[:-1]), preload], -1))
        return torch.cat([*inertial, *passive], -1)

    def torque(self, samples: TorqueSamples, values: Tensor, specs: Sequence[Parameter]) -> np.ndarray:
        """Return the torques predicted for given values of some quantities [N m or N], shape [N, nv]."""
        return self.columns(samples) @ self.coefficients(values, specs).detach().numpy()


@dataclass(frozen=True)
class TorqueFit:
    """Quantities fitted to torques.

    Attributes:
        values: Values in the order of the free quantities, float64, shape [n].
        deviation: Standard deviation of the torque residuals by joint [N m or N].
        analysis: Identifiability; its standard deviations include the prior.
        converged: Whether no further step reduced the cost.
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
        mechanism: Mechanism with revolute and prismatic joints.
        quantities: The free quantities: masses, centres of mass, inertias, rotor inertias, friction, springs.
        samples: Motion and torques.
        prior: Weight of the prior. With 1 the standard deviation of a nominal value is its size, with 10 a third of it.

    Raises:
        InputError: A quantity does not enter the torques linearly.
    """
    specs, space = quantities.specs, SearchSpace(quantities)
    _require_linear([spec.name for spec in specs])
    problem = _TorqueProblem(TorqueModel(mechanism), specs, space, prior**0.5 / _spread(mechanism, quantities, space))
    columns = problem.model.columns(samples)
    torque = samples.torque
    counts = torque.any(0) & _between_stops(mechanism, samples.q)[:, None]
    scale = torque.std(0)
    share = min(1.0, samples.dt / _CORRELATION)
    x, converged = space.nominal.clone(), False
    upper = target = torch.empty(0)
    error = torque
    for _ in range(_REWEIGHED):
        size = np.abs(error) / np.maximum(scale, 1e-9)
        robust = np.sqrt(np.minimum(1.0, _HUBER / np.maximum(size, 1e-9)))
        weight = np.where(counts, share**0.5 / np.maximum(scale, 1e-9), 0.0) * robust
        upper, target = _triangle(columns * weight[..., None], torque * weight)
        x, converged = problem.minimise(upper, target, x)
        error = torque - columns @ problem.coefficients(x).numpy()
        scale = np.median(np.abs(error), 0) / MEDIAN
    analysis = problem.analysis(upper, target, x, round(len(torque) * share))
    return TorqueFit(space.values(x), scale, analysis, converged)


def search_torques(
    residuals: Residuals, mechanism: Mechanism, samples: TorqueSamples, prior: float
) -> tuple[Searched, Certainty]:
    """Fit quantities to torques (see `fit_torques`); return the fit in the form of a search by roll-outs.

    The channels of the roll-outs' `residuals` are weighted by their errors at the solution.

    Raises:
        InputError: A roll-out with the fitted quantities is not finite.
    """
    fit = fit_torques(mechanism, residuals.dynamics.physical, samples, prior=prior)
    start = residuals.start(SearchSpace(residuals.dynamics.physical).of(fit.values)[None])
    require_finite(residuals, start)
    solution = Solution(start, residuals.cost(start), torch.ones(1), 0, torch.ones(1, dtype=torch.bool))
    residuals, solution = rescale(residuals, solution)
    end = SearchEnd(settled=fit.converged, moved=True, iterations=0)
    nothing = fit.values.new_zeros(0, len(fit.values))
    why = "torques and prior agree best here" if fit.converged else "iterations were used up"
    certainty = Certainty(
        fit.analysis, Convergence(fit.converged, f"inverse dynamics: {why}"), None, None,
        f"samples {_CORRELATION:g} s apart",
    )  # fmt: skip
    return Searched(residuals, solution.point, end, nothing, nothing[:, 0]), certainty


def torque_errors(
    mechanism: Mechanism, store: Store, split: int, smoothing: float, specs: Sequence[Parameter], values: Tensor
) -> TorqueErrors:
    """Return the torque errors of inverse dynamics on a split, for nominal and for given `values` of quantities [n]."""
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
    """Return which samples have all joints within their limits, bool, shape [N]."""
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
    """Return the prior's standard deviation of each coordinate; infinite for friction, rotor inertia and springs."""
    gyration = {link.joint.name: (0.5 * sum(link.inertia[:3]) / link.mass) ** 0.5 for link in mechanism.links}
    spread = torch.full_like(space.nominal, torch.inf)
    for k, spec in enumerate(quantities.specs):
        link, _, what = spec.name.partition(".")
        if what.startswith("com"):
            spread[k] = max(gyration[link], 0.01) / size_of(spec)
        elif what == "mass" or what.startswith("inertia"):
            spread[k] = 1.0
    return spread


@dataclass(frozen=True)
class _TorqueProblem:
    """Least squares of torques over search coordinates x, with a prior.

    Attributes:
        model: Torque model.
        specs: The free quantities.
        space: Their search coordinates.
        prior: Inverse standard deviation of each coordinate's prior, shape [n].
    """

    model: TorqueModel
    specs: Sequence[Parameter]
    space: SearchSpace
    prior: Tensor

    def coefficients(self, x: Tensor) -> Tensor:
        """Return the coefficients of the torques at coordinates, shape [..., 15 links]."""
        return self.model.coefficients(self.space.values(x), self.specs)

    def minimise(self, upper: Tensor, target: Tensor, x: Tensor) -> tuple[Tensor, bool]:
        """Return the minimum within the bounds by Levenberg-Marquardt from x, and whether it converged.

        `upper` is R of the weighted regressor, shape [P, P], and `target` is Q^T y, shape [P].
        """
        space, prior = self.space, self.prior

        @torch.no_grad()
        def residual(at: Tensor) -> Tensor:
            return torch.cat([upper @ self.coefficients(at) - target, prior * (at - space.nominal)])

        damping, error = 1e-3, residual(x)
        for _ in range(_ITERATIONS):
            candidate, after = x, error
            jacobian = torch.cat([upper @ _rows(self.coefficients, x, self.model.size), torch.diag(prior)])
            gradient, normal = jacobian.mT @ error, jacobian.mT @ jacobian
            free = (~space.at_active_bound(x, gradient)).nonzero()[:, 0]
            gradient, normal = gradient[free], normal[free][:, free]
            size = normal.diagonal().clamp_min(1e-12)
            gain = 0.0
            while damping < 1e12:
                candidate = x.clone()
                candidate[free] -= torch.linalg.solve(normal + torch.diag(damping * size), gradient)
                candidate = space.clip(candidate)
                after = residual(candidate)
                gain = float(error.square().sum() - after.square().sum())
                if gain > 0:
                    break
                damping *= 10.0
            if gain <= 0:
                return x, True
            done = gain <= _GAIN * float(error.square().sum())
            x, error, damping = candidate, after, max(0.1 * damping, 1e-9)
            if done:
                return x, True
        return x, False

    def analysis(self, upper: Tensor, target: Tensor, x: Tensor, samples: int) -> Identifiability:
        """Return the identifiability at the minimum x from torques and prior, for a number of independent samples.

        The Jacobian is with respect to values; the prior's deviations are transformed from the coordinates.
        """
        model, specs, space, prior = self.model, self.specs, self.space, self.prior
        values = space.values(x)
        jacobian = upper @ _rows(lambda at: model.coefficients(at, specs), values, model.size)
        residual = upper @ model.coefficients(values, specs).detach() - target
        slopes = _rows(space.values, x, len(x))
        inverse = torch.linalg.pinv(slopes)
        gradient = slopes.mT @ (jacobian.mT @ residual) + prior.square() * (x - space.nominal)
        bound = space.at_active_bound(x, gradient)
        information = jacobian.mT @ jacobian + inverse.mT @ torch.diag(prior.square()) @ inverse
        sizes = torch.tensor([size_of(spec) for spec in specs], dtype=torch.float64).maximum(values.abs())
        covariance = pseudo_inverse(information, bound)
        deviations = covariance.diagonal().clamp_min(0.0).sqrt()
        before = (slopes.square() @ prior.clamp_min(1e-12).pow(-2)).sqrt()  # deviations of the prior alone
        combined = (deviations > torch.minimum(0.5 * before, sizes)) & ~bound
        singular = torch.linalg.svdvals(jacobian * sizes)
        return Identifiability(
            names=space.names,
            singular_values=tuple(singular.tolist()),
            condition=float(singular[0] / singular[-1].clamp_min(1e-16 * singular[0])),
            insensitive=(),
            without_effect=(),
            unseen=(),
            combined=tuple(name for name, only in zip(space.names, combined, strict=True) if only),
            bound=bound,
            deviations=deviations,
            white=deviations,
            correlation=correlations(covariance),
            newton=torch.zeros_like(deviations),
            degrees=max(1, samples - len(specs)),
            variance=1.0,
            information=jacobian.mT @ jacobian,
        )


def _triangle(columns: np.ndarray, target: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return R [P, P] and Q^T y [P] of the QR decomposition of weighted samples."""
    joined = np.concatenate([columns, target[..., None]], -1).reshape(-1, columns.shape[-1] + 1)
    upper = np.asarray(np.linalg.qr(joined, mode="r"))
    return torch.from_numpy(upper[:-1, :-1]), torch.from_numpy(upper[:-1, -1])


def _rows(function: Callable[[Tensor], Tensor], x: Tensor, count: int) -> Tensor:
    """Return the Jacobian [count, n] of a batched function with `count` outputs."""
    with torch.enable_grad():  # one copy of x per output: a single backward pass gives all gradients
        points = x.expand(count, -1).clone().requires_grad_(True)
        return torch.autograd.grad(function(points).diagonal().sum(), points)[0]
