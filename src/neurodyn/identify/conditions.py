# SPDX-License-Identifier: Apache-2.0
"""Identification of a network's conditions from a robot's log, by gradients through its roll-outs."""

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import Config, Record, require_numbers
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError
from neurodyn.core.locks import exclusive
from neurodyn.core.progress import tell
from neurodyn.core.provenance import package_versions
from neurodyn.core.requests import accepts_request, names_of
from neurodyn.core.seeds import derive_seed
from neurodyn.core.verdict import Verdict
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_in, held_out_split
from neurodyn.data.store import Store
from neurodyn.data.training_range import training_range
from neurodyn.data.windows import WindowIndex, select_windows
from neurodyn.dynamics.artifact import require_match
from neurodyn.dynamics.batch import Environment, RecordedEnvironments, State, Window, WorldParameters
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.neural.model import NEURAL, NeuralDynamics
from neurodyn.identify.requests import AdaptRequest
from neurodyn.identify.result import IdentifiedParameter
from neurodyn.identify.run import open_logs
from neurodyn.learn.devices import threads as torch_threads
from neurodyn.learn.manifest import RunRecord
from neurodyn.learn.metrics import MetricsLog
from neurodyn.learn.run_folder import check_run
from neurodyn.learn.tracking import require_tracker, tracking
from neurodyn.robots import load
from neurodyn.robots.data import as_logged, on_declared_ground

CONFIDENCE = 0.90
"""Confidence level of the intervals, for a network without errors of its own."""

_BEYOND = 1.5
"""Largest distance of values from the middle of the trained range, in halves of that range."""

_UNDETERMINED = 0.6
"""Posterior standard deviation, in halves of the range (prior: 1), from which on the log counts as uninformative."""

_FLOOR = 1e-3
"""Least scale of errors, as a share of the motion in a window."""

_STEP = 1e-3
"""Step of the finite differences of the gradient, in halves of the range."""


class ConditionSettings(Config, frozen=True):
    """Settings of fitting conditions to a log.

    Attributes:
        seconds: Length of the roll-outs [s].
        windows: Most windows.
        candidates: Draws from the trained range, the best of which starts the search.
        iterations: Most iterations of each of two searches; errors are reweighted between them.
        seed: Seed of the candidates.
    """

    seconds: float = 0.5
    windows: int = 192
    candidates: int = 64
    iterations: int = 40
    seed: int = 0

    def __post_init__(self) -> None:
        require_numbers(self, above=("seconds", "windows", "candidates", "iterations"))


@dataclass(frozen=True)
class IdentifiedConditions:
    """Conditions identified from a log.

    Attributes:
        values: Values by name.
        intervals: 90 % intervals by name. They cover the log's uncertainty, not the network's errors.
        figures: All results, with errors.
        dynamics: The model with these values as defaults.
    """

    values: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    figures: "ConditionFigures"
    dynamics: NeuralDynamics


class ConditionFigures(Record, frozen=True):
    """Content of adaptation.json for a network with conditions.

    Attributes:
        robot: Name of the robot.
        quantities: The conditions.
        seconds: Length of the compared roll-outs [s].
        windows: Windows of the fit.
        held_out: Held-out windows of the errors.
        names: Degrees of freedom.
        before: Mean absolute errors of their positions at the end of held-out windows with the model's own values [rad
            or m].
        after: The same with the identified values.
        share: Error of positions and velocities, each in units of its motion, relative to that before.
        cpu_seconds: CPU time.
        verdict: "ok", or why the result is unreliable.
    """

    robot: str
    quantities: list[IdentifiedParameter]
    seconds: float
    windows: int
    held_out: int
    names: list[str]
    before: list[float]
    after: list[float]
    share: float
    cpu_seconds: float
    verdict: str


def identify_conditions(
    model: NeuralDynamics, store: Store, settings: ConditionSettings | None = None
) -> IdentifiedConditions:
    """Find the conditions with which a network's roll-outs follow a log; its weights stay constant.

    The best of a number of draws from the trained range starts a search (L-BFGS) on the mean pseudo-Huber error of
    positions and velocities over windows, each scaled by its median. The prior is normal around the model's own values,
    with half the trained range as standard deviation. Intervals come from the sandwich covariance, with the curvature
    from differences of the gradient and the gradients of windows.

    Args:
        model: A network with conditions.
        store: The log, of one robot; its own parameters are ignored. Training episodes are fitted, errors are of test
            or validation episodes.
        settings: Settings; None for the defaults.

    Raises:
        InputError: The model has no conditions, or no episode is long enough.
    """
    settings, cpu_start = settings or ConditionSettings(), time.process_time()
    if not model.conditions:
        raise InputError(
            f"model of {model.spec.robot!r}: has no conditions to find; valid: a model that was trained with "
            "--conditions, or the name of a robot, whose mechanism is then identified"
        )
    fit = _ConditionFit(model, store, Split.TRAIN, settings)
    with torch_threads(1):
        x = fit.first_guess()
        for number in range(2):
            tell(0.3 + 0.3 * number, "fitting conditions")
            fit.rescale(x)
            x = fit.search(x)
        deviations = fit.deviations(x)
        determined = deviations < _UNDETERMINED
        if not determined.all():  # the others keep the model's own values
            x = fit.search(torch.where(determined, x, fit.nominal), determined)
        deviations = deviations.clamp(max=1.0).where(determined, 1.0)
        values = {
            one.name: value if known else one.value
            for one, value, known in zip(model.conditions, fit.values(x).tolist(), determined, strict=True)
        }
        adapted = model.with_conditions(values)
        held_out = _ConditionFit(model, store, held_out_split(store), settings)
        before, after = (held_out.errors(start) for start in (held_out.nominal, x))
    reach = 1.6448536269514722  # quantile of a normal distribution
    low, high = (fit.values(x + sign * reach * deviations).tolist() for sign in (-1.0, 1.0))
    intervals = {name: (a, b) for name, a, b in zip(fit.names, low, high, strict=True)}
    quantities = [
        IdentifiedParameter(
            name=one.name, nominal=one.value, value=values[one.name], interval=list(intervals[one.name]),
            determined=bool(known), bound=bool(place.abs() > 0.99 * _BEYOND), unit="",
        )
        for one, known, place in zip(model.conditions, determined, x, strict=True)
    ]  # fmt: skip
    figures = ConditionFigures(
        robot=model.spec.robot, quantities=quantities, seconds=fit.frames * model.spec.dt, windows=fit.count,
        held_out=held_out.count, names=list(model.spec.tangent_names), before=before[0], after=after[0],
        share=after[1] / max(before[1], 1e-12), cpu_seconds=time.process_time() - cpu_start,
        verdict=str(_verdict(quantities, model, x, after[1] / max(before[1], 1e-12))),
    )  # fmt: skip
    return IdentifiedConditions(values, intervals, figures, adapted)


def _verdict(quantities: Sequence[IdentifiedParameter], model: NeuralDynamics, x: Tensor, share: float) -> Verdict:
    beyond = [one.name for one, place in zip(model.conditions, x.tolist(), strict=True) if abs(place) > 1.0]
    if share >= 1.0:
        return Verdict(
            "warning", "the fitted values are no better than the model's own on held-out episodes",
            "log more motion, or fine-tune the weights",
        )  # fmt: skip
    if beyond:
        return Verdict(
            "warning", f"{', '.join(beyond)} lies beyond the training data, where the network extrapolates",
            "train on data with a wider range",
        )  # fmt: skip
    undetermined = [one.name for one in quantities if not one.determined]
    if undetermined:
        return Verdict(
            "warning", f"the log does not determine {', '.join(undetermined)}", "log motion that depends on it"
        )
    return Verdict("ok", "", "")


class _ConditionFit:
    """Windows of a log, and errors of roll-outs along them as functions of conditions in halves of their ranges."""

    def __init__(self, model: NeuralDynamics, store: Store, split: int, settings: ConditionSettings) -> None:
        self.model = copy.deepcopy(model).double().cpu().requires_grad_(False)
        self.names = tuple(one.name for one in model.conditions)
        lower, upper, nominal = (
            torch.tensor([getattr(one, end) for one in model.conditions], dtype=torch.float64)
            for end in ("lower", "upper", "value")
        )
        self._middle, self._half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        self.nominal = ((nominal - self._middle) / self._half).clamp(-1.0, 1.0)
        context, spec = model.spec.context, model.spec
        longest = int(store.lengths[episodes_in(store, split)].max()) - context
        self.frames = max(1, min(round(settings.seconds / spec.dt), longest))
        total = WindowIndex(store, episodes_in(store, split), context + self.frames).count
        stride = max(self.frames, -(-total // settings.windows))
        windows = select_windows(store, split, context + self.frames, stride=stride, most=total)
        gravity_and_ground = RecordedEnvironments(store).at(windows.ground)
        known = store.header.fingerprint is not None or windows.ground is not None
        self._environment = gravity_and_ground if known else Environment()
        before, after = windows.cut(0, context), windows.cut(context)
        self._past = Window(before.q, before.qd, before.control)
        self._q, self._qd, self._control = after.q, after.qd, after.control
        self.count, self._settings = windows.count, settings
        moved = torch.cat([position_difference(spec, self._q, self._q[:, :1]), self._qd - self._qd[:, :1]], -1)
        self._motion = moved[:, 1:].square().mean((0, 1)).sqrt().clamp_min(1e-9)
        self._scale = self._motion.expand(self.frames, -1)

    def values(self, x: Tensor) -> Tensor:
        """Return values of the conditions, shape [..., conditions]."""
        return self._middle + self._half * x

    def residuals(self, x: Tensor, every: int = 1) -> Tensor:
        """Return errors along every `every`-th window, with conditions per window [windows, n] or shared [n].

        Shape [windows, frames, 2 nv].
        """
        part = slice(None, None, every)
        past = self._past.rows(part)
        numbers = self.values(x).expand(past.worlds, -1)
        environment = self._environment if self._environment.ground is None else self._environment.rows(part)
        environment = Environment(environment.gravity, environment.ground, WorldParameters(self.names, numbers))
        context = past if past.torque.shape[1] else State(past.q[:, 0], past.qd[:, 0])
        path = self.model._rollout(context, self._control[part], environment)
        position = position_difference(self.model.spec, path.q, self._q[part])
        return torch.cat([position, path.qd - self._qd[part]], -1)[:, 1:]

    def costs(self, x: Tensor, every: int = 1) -> Tensor:
        """Return the cost of windows, shape [windows]: mean pseudo-Huber errors times their number of coordinates."""
        share = (self.residuals(x, every) / self._scale / 2.0).nan_to_num(1e3, 1e3, -1e3).clamp(-1e3, 1e3)
        return 4.0 * ((1.0 + share.square()).sqrt() - 1.0).mean((1, 2)) * share.shape[-1]

    def total(self, x: Tensor) -> Tensor:
        """Return the cost of all windows plus the prior's."""
        return self.costs(x).sum() + 0.5 * (x - self.nominal).square().sum()

    @torch.no_grad()
    def first_guess(self) -> Tensor:
        """Return the best candidate among draws from the range and the model's own values."""
        generator = torch.Generator().manual_seed(derive_seed(self._settings.seed, "conditions"))
        drawn = torch.rand(self._settings.candidates - 1, len(self.names), generator=generator, dtype=torch.float64)
        candidates, every = torch.cat([self.nominal[None], 2.0 * drawn - 1.0]), max(1, self.count // 48)
        costs = []
        for number, x in enumerate(candidates):
            tell(0.3 * number / len(candidates), "comparing candidates")
            costs.append(self.costs(x, every).sum())
        return candidates[int(torch.stack(costs).argmin())]

    @torch.no_grad()
    def rescale(self, x: Tensor) -> None:
        """Scale errors by their medians at some conditions."""
        self._scale = 1.4826 * self.residuals(x).abs().median(0).values + _FLOOR * self._motion

    def search(self, x: Tensor, searched: Tensor | None = None) -> Tensor:
        """Return the optimum found by L-BFGS from some conditions, over those `searched`; None for all."""
        searched = torch.ones(len(x), dtype=torch.bool) if searched is None else searched
        free = (x[searched] / _BEYOND).clamp(-0.99, 0.99).atanh().requires_grad_()

        def whole() -> Tensor:
            return x.masked_scatter(searched, _BEYOND * free.tanh())

        if not len(free):
            return x
        optimiser = torch.optim.LBFGS([free], max_iter=self._settings.iterations, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimiser.zero_grad()
            cost = self.total(whole())
            cost.backward()
            return cost

        optimiser.step(closure)
        return whole().detach()

    def deviations(self, x: Tensor) -> Tensor:
        """Return standard deviations of conditions at the optimum, shape [conditions]."""
        curvature = torch.stack(
            [
                (self.gradient(x + step)[0] - self.gradient(x - step)[0]) / (2.0 * _STEP)
                for step in _STEP * torch.eye(len(x), dtype=x.dtype)
            ]
        )
        powers, axes = torch.linalg.eigh(0.5 * (curvature + curvature.mT))
        inverse = (axes / powers.clamp_min(1.0)) @ axes.mT  # at least the curvature of the prior
        by_window = self.gradient(x)[1]
        middle = by_window.mT @ by_window + torch.eye(len(x), dtype=x.dtype)
        return (inverse @ middle @ inverse).diagonal().sqrt()

    def gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of the total cost [conditions], and those of the windows [windows, conditions]."""
        by_condition = x.expand(self.count, -1).clone().requires_grad_()
        (by_window,) = torch.autograd.grad(self.costs(by_condition).sum(), by_condition)
        return by_window.sum(0) + (x - self.nominal), by_window

    @torch.no_grad()
    def errors(self, x: Tensor) -> tuple[list[float], float]:
        """Return mean absolute errors of positions at the end [nv], and over all in units of their motion."""
        errors = self.residuals(x).abs()
        nv = errors.shape[-1] // 2
        return errors[:, -1, :nv].mean(0).tolist(), float((errors / self._motion).mean())


ConditionRecord = RunRecord[ConditionSettings]
"""Record of an identification of conditions."""


def is_run(name: object) -> bool:
    """Return whether a name is that of a run, not of a robot."""
    return isinstance(name, str | Path) and (
        str(name).startswith(artifacts.PRETRAINED) or (Path(name) / "model" / "spec.json").is_file()
    )


@accepts_request(AdaptRequest)
def adapt_conditions(request: AdaptRequest) -> IdentifiedConditions:
    """Adapt a network with conditions to logs of a robot: find the conditions, and write a run with them as defaults.

    The weights stay those of the run; `learn.finetune` can continue from there. `robot` names the run.

    Raises:
        InputError: The run has no conditions, the logs are of another robot, or `out` holds a run.
    """
    require_tracker(request.logger, request.out)
    run, out = str(request.robot), Path(request.out)
    model = NEURAL.load(run)
    robot, settings = load(model.declaration), ConditionSettings()
    if request.seed is not None:
        settings = msgspec.structs.replace(settings, seed=request.seed)
    store = open_logs(robot, request.data)
    if model.contact_points is not None:
        store = on_declared_ground(as_logged(robot, store.header), store)
    require_match(model, store.header.spec, None, run)
    names = () if isinstance(request.data, Store) else names_of(request.data)
    free = tuple(Parameter(one.name, one.value) for one in model.conditions)
    record = ConditionRecord(
        kind="neural", robot=model.declaration, data=tuple(str(name) for name in names), parameters=free,
        settings=settings, versions=package_versions("torch"), base=run,
    )  # fmt: skip
    with exclusive(out), tracking(request.logger, out):
        check_run(out, record, request.resume, None)
        result = identify_conditions(model, store, settings)
        known = training_range(store)
        if result.dynamics.training_range is not None:
            result.dynamics.training_range = msgspec.structs.replace(
                result.dynamics.training_range, logged=known.logged or result.dynamics.training_range.logged
            )
        with MetricsLog(out) as metrics:
            metrics.start(record, "cpu")
            NEURAL.save(out, result.dynamics)
            artifacts.write_json(out / "adaptation.json", result.figures.plain())
            metrics.conclude(verdict=result.figures.verdict, cpu_seconds=result.figures.cpu_seconds)
    return result
