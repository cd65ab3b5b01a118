# SPDX-License-Identifier: Apache-2.0
r"""Agreement of several logs of one robot: which quantities differ between them, and by how many standard errors.

Around the pooled optimum, the cost of log L is quadratic in the coordinates x + u_L of that log, with its own
information $H_L$ and gradient $g_L$. Quantities are released one after another, the one that lowers the cost most
first, as a difference in one quantity otherwise shows up in those that are correlated with it:

$$\min_{x, u} \sum_L \tfrac12 (x + u_L)^T H_L (x + u_L) + g_L^T (x + u_L) + \tfrac12 |x - x_0|^2$$

where $u_L$ is zero but for the released ones. A release is kept if a Wald test, with a covariance that is robust to
residuals correlated within stretches of a log, rejects that all logs have one value, at a level shared by all
quantities and pairs of logs.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.parameter import student_t
from neurodyn.core.verdict import Finding
from neurodyn.data.header import Split, of_one_log
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.identify.confidence.certainty import value_of, varying
from neurodyn.identify.confidence.parameter_search import Searched
from neurodyn.identify.fit.intervals import Identifiability, identifiability
from neurodyn.identify.fit.least_squares import reduce
from neurodyn.identify.fit.residuals import Point, Residuals
from neurodyn.identify.result import LogDifference, LogValue
from neurodyn.identify.stages.fit_judge import held_out_of
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.identify.stages.structure_kinds import OTHER_BODIES, StructureCandidate
from neurodyn.identify.stages.structure_screening import STRUCTURES, candidates_for
from neurodyn.identify.stages.structure_search import with_structure
from neurodyn.identify.unknowns.search_space import CoordinateSpace

MOST_LOGS = 20
"""Logs beyond which nothing is compared between them: they are episodes of one log rather than days of a robot."""
_LEAST_WINDOWS = 6
"""Fewest windows of a log that is compared, on average."""
LEVEL = 0.01
"""Probability that any quantity of logs that agree is said to differ."""
_LEAST_ERRORS = 4.0
"""Standard errors of a difference below which it is not reported: residuals are not as normal as a table of t says."""
_LEAST = 0.15
"""Difference, in standard deviations of the prior, below which it matters to nobody."""
_MOST = 6
"""Most quantities that are released."""
_LOOSE = 0.25
"""Precision of the prior of a released coordinate in each log, in standard deviations of the coordinate's prior."""
_ALIKE = 0.2
"""Standard deviation between groups of all quantities at once, in those of the prior: they are one robot."""
_TOLD = 3
"""Most differences that a verdict names."""
_STRETCHES = 6
"""Fewest stretches of a log."""


class LogComparison:
    """The logs of a fit, as quadratic costs around its solution.

    Attributes:
        logs: Their names.
        names: The coordinates.
    """

    def __init__(self, residuals: Residuals, point: Point, analysis: Identifiability) -> None:
        """Linearise residuals at a solution.

        Args:
            residuals: Residuals over coordinates in standard deviations of priors.
            point: The solution, of one set.
            analysis: Identifiability there.
        """
        space = residuals.space
        assert isinstance(space, CoordinateSpace)
        self.logs, self.names, self.space = residuals.windows.logs, space.names, space
        self._residuals, self._point = residuals, point
        matrix, gradient, _ = reduce(residuals, residuals.normal(point))
        n = len(self.names)
        self._by_window, self._scores = matrix[0, :, :n, :n], gradient[0, :, :n]
        self._block, self._log_of_block = _stretches(residuals.windows)
        self._log = residuals.windows.log
        rows = len(self.logs)
        self.information = torch.zeros(rows, n, n, dtype=matrix.dtype).index_add(0, self._log, self._by_window)
        self.gradient = torch.zeros(rows, n, dtype=matrix.dtype).index_add(0, self._log, self._scores)
        self._variance = max(analysis.variance, 1e-12)
        self._fixed = analysis.bound.clone()

    @property
    def varying(self) -> dict[str, float]:
        """Coordinates that the fit lets vary between logs, with their deviations."""
        return self._residuals.options.per_log

    @classmethod
    def of(
        cls, store: Store, residuals: Residuals, point: Point, analysis: Identifiability | None = None
    ) -> "LogComparison | None":
        """Return the comparison of the runs of a store; None for one run, very many, or other coordinates.

        An `analysis` of None is that of the point.
        """
        windows, runs = residuals.windows, len(residuals.windows.logs)
        recorded = bool(store.header.runs or store.header.groups)
        if not recorded or not 1 < runs <= MOST_LOGS or not isinstance(residuals.space, CoordinateSpace):
            return None
        if windows.count < _LEAST_WINDOWS * runs or int(torch.bincount(windows.log, minlength=runs).min()) < 2:
            return None
        return cls(residuals, point, analysis or identifiability(residuals, point))

    def differing(self, *, new: bool = False) -> list[LogDifference]:
        """Return the quantities that differ between logs: those that vary in the fit, and with `new` also others.

        Others follow in the order in which they lower the cost.
        """
        released = [self.names.index(name) for name in self.varying]
        told = [one for k in released if (one := self._difference(self._solve(released), k, len(released)))]
        tests = len(self.names)
        while new and len(released) < _MOST + len(self.varying):
            base = self._solve(released).cost
            left = [k for k in range(len(self.names)) if k not in released and not bool(self._fixed[k])]
            gains = {k: base - self._solve([*released, k]).cost for k in left}
            best = max(gains, key=gains.__getitem__, default=None)
            if best is None:
                break
            difference = self._difference(self._solve([*released, best]), best, tests)
            if difference is None:
                break
            released.append(best)
            told.append(difference)
        return told

    def separate(self) -> dict[str, dict[str, LogValue]]:
        """Return the value of each coordinate in each log, by name and log, had that been fitted alone.

        One Gauss-Newton step away from the solution, with the priors.
        """
        n = len(self.names)
        values: dict[str, dict[str, LogValue]] = {name: {} for name in self.names}
        start = self._local_coordinates()
        for number, log in enumerate(self.logs):
            precision = self.information[number] + torch.eye(n, dtype=self.information.dtype)
            inverse = torch.linalg.inv(precision)
            free = (~self._fixed).double()
            x = self.space.clip(start[number] - free * (inverse @ (self.gradient[number] + start[number])))
            scores = torch.stack([
                self._scores[self._block == block].sum(0)
                for block in torch.nonzero(self._log_of_block == number)[:, 0].tolist()
            ])  # fmt: skip
            robust = inverse @ (scores - scores.mean(0)).T @ (scores - scores.mean(0)) @ inverse
            plain = self._variance * inverse
            deviation = torch.maximum(robust.diagonal(), plain.diagonal()).clamp_min(0.0).sqrt()
            for k, name in enumerate(self.names):
                value, width = value_of(self.space.coordinates[k], x[k], deviation[k])
                values[name][log] = LogValue(value=float(value), deviation=float(width))
        return values

    def spread(self) -> Tensor:
        """Return the standard deviation between logs of the coordinates that vary, shape [n]; 0 for others."""
        spread, own = torch.zeros(len(self.names), dtype=torch.float64), self._local_coordinates()
        for name in self.varying:
            k = self.names.index(name)
            spread[k] = own[:, k].std()
        return spread

    def deviations(self, deviations: Tensor) -> Tensor:
        """Return standard deviations of coordinates, shape [n]: of those that vary, that of the mean over logs."""
        spread, result = self.spread(), deviations.clone()
        for name, _, own in varying(self._residuals, self._point, self._variance):
            k = self.names.index(name)
            result[k] = (spread[k].square() / len(self.logs) + own.min().square()).sqrt()
        return result

    def _local_coordinates(self) -> Tensor:
        """Return the coordinates of each log at the solution, shape [logs, n]."""
        x = self._point.x[0].expand(len(self.logs), -1).clone()
        local = self._point.local[0, :, self._point.local.shape[-1] - len(self.varying) :]
        for index, (name, size) in enumerate(self.varying.items()):
            x[:, self.names.index(name)] += size * local[:, index]
        return x

    def _solve(self, released: Sequence[int]) -> "_Solution":
        """Minimise the quadratic cost over shared coordinates and the released ones of each log."""
        n, logs, k = len(self.names), len(self.logs), len(released)
        size = n + logs * k
        full, right = torch.zeros(size, size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
        full[:n, :n] = self.information.sum(0) + torch.eye(n, dtype=torch.float64)
        right[:n] = self.gradient.sum(0) + self._point.x[0]
        own = self._local_coordinates()[:, list(released)] - self._point.x[0, list(released)]
        for log in range(logs if k else 0):
            block = slice(n + log * k, n + (log + 1) * k)
            columns = self.information[log][:, list(released)]
            full[:n, block], full[block, :n] = columns, columns.T
            full[block, block] = columns[list(released)] + _LOOSE * torch.eye(k, dtype=torch.float64)
            right[block] = self.gradient[log, list(released)] + _LOOSE * own[log]
        held = torch.cat([self._fixed, torch.zeros(logs * k, dtype=torch.bool)])
        full = torch.where(held[:, None] | held, torch.diag(held.double()), full)
        right = torch.where(held, 0.0, right)
        inverse = torch.linalg.inv(full)
        step = -inverse @ right
        return _Solution(tuple(released), inverse, step, float(0.5 * right @ step), own + step[n:].view(logs, k))

    def _covariance(self, solution: "_Solution") -> Tensor:
        """Return the covariance of the released coordinates of all logs, robust to correlation within stretches."""
        n, logs, k = len(self.names), len(self.logs), len(solution.released)
        released = list(solution.released)
        moved = solution.step[:n].expand(logs, -1).clone()
        moved[:, released] += solution.step[n:].view(logs, k)
        scores = self._scores + (self._by_window @ moved[self._log][..., None])[..., 0]
        wide = torch.zeros(len(scores), len(solution.inverse), dtype=scores.dtype)
        wide[:, :n] = scores
        for index in range(k):
            wide[torch.arange(len(scores)), n + self._log * k + index] = scores[:, released[index]]
        blocks = torch.zeros(len(self._log_of_block), wide.shape[1], dtype=wide.dtype).index_add(0, self._block, wide)
        count = len(blocks)
        meat = count / max(1, count - 1) * blocks.T @ blocks
        plain = self._variance * solution.inverse
        robust = solution.inverse @ meat @ solution.inverse
        return torch.stack([plain[n:, n:], robust[n:, n:]])

    def _difference(self, solution: "_Solution", column: int, tests: int) -> LogDifference | None:
        """Return the most certain difference of a released coordinate between two logs; None if there is none."""
        index, k = solution.released.index(column), len(solution.released)
        covariances, values = self._covariance(solution), solution.own[:, index]
        coordinate = self.space.coordinates[column]
        pairs = list(combinations(range(len(self.logs)), 2))
        best: tuple[float, int, int] | None = None
        for a, b in pairs:
            i, j = a * k + index, b * k + index
            deviation = max(math.sqrt(max(float(c[i, i] + c[j, j] - 2.0 * c[i, j]), 0.0)) for c in covariances)
            apart = abs(float(values[a] - values[b]))
            if apart >= _LEAST and (best is None or apart / max(deviation, 1e-300) > best[0]):
                best = apart / max(deviation, 1e-300), a, b
        if best is None:
            return None
        errors, a, b = best
        degrees = int((self._log_of_block == a).sum() + (self._log_of_block == b).sum()) - 2
        bar = student_t(max(1, degrees), 1.0 - LEVEL / (max(1, tests) * len(pairs)))
        if errors < max(bar, _LEAST_ERRORS):
            return None
        x = self._point.x[0, column] + solution.step[column] + values
        if coordinate.name in self.varying:  # as fitted
            x = self._local_coordinates()[:, column]
        logs = coordinate.value(x)
        return LogDifference(
            name=coordinate.name, logs=(self.logs[a], self.logs[b]), values=(float(logs[a]), float(logs[b])),
            errors=errors, deviation=float(logs.std()), unit=coordinate.unit,
        )  # fmt: skip


@dataclass(frozen=True)
class _Solution:
    """Minimum of the quadratic cost.

    Attributes:
        released: Released coordinates.
        inverse: Inverse of the matrix of the normal equations, shape [n + logs * released] squared.
        step: Its step from the point, shape [n + logs * released].
        cost: Change of the cost.
        own: Released coordinates of each log, relative to the shared ones, shape [logs, released].
    """

    released: tuple[int, ...]
    inverse: Tensor
    step: Tensor
    cost: float
    own: Tensor


def let_differ(
    fitting: Fitting, searched: Searched, late: Callable[[], bool] | None = None
) -> tuple[Fitting, Searched, tuple[StructureCandidate, ...]]:
    """Let quantities that differ between logs vary between them, if held-out windows clearly ask for it.

    A model that lacks a part differs between logs of different motions, too: only a cost of held-out windows that falls
    by the share `structure_gain` says that the robot does. Logs are runs, or else their groups: another stance leg,
    another load. Groups may also differ in all quantities (`_with_all_different`), unless they are parts of one log.

    Args:
        fitting: The fit by stages.
        searched: Its result.
        late: Says that the time for further whole fits is over; None for no limit.

    Returns:
        The fit that is kept, its result, and the structures that it has beside those of the fit before.
    """
    if (further := _with_differences(fitting, fitting, searched)) is not None:
        return *further, ()
    if not fitting.per_log and (groups := shared_groups(fitting.store)):
        grouped = copy.copy(fitting)
        grouped.groups = groups
        if (further := _with_differences(fitting, grouped, grouped.end(dict(searched.stages)))) is not None:
            return *further, ()
        if not of_one_log(groups) and not (late is not None and late()):
            return _with_all_different(fitting, searched, groups)
    return fitting, searched, ()


def shared_groups(store: Store) -> tuple[str, ...]:
    """Return the groups of a log's runs, if there are several and all episodes of each split belong to them.

    Policies that moved the robot are none: they change nothing of it.
    """
    if "policies" in store.header.notes:
        return ()
    names, parts = store.header.groups, [store.group[episodes_of(store, s)] for s in (Split.TRAIN, Split.VALIDATION)]
    whole = set(range(len(names)))
    return tuple(names) if 1 < len(names) <= MOST_LOGS and all(set(one.tolist()) == whole for one in parts) else ()


def _with_differences(before: Fitting, fitting: Fitting, searched: Searched) -> tuple[Fitting, Searched] | None:
    """Return the fit with what differs between its logs, and its result; None if it is no better than another fit."""
    comparison = LogComparison.of(fitting.store, searched.residuals, searched.point)
    found = [] if comparison is None else [one.name for one in comparison.differing(new=True)]
    if not (new := [name for name in found if name not in fitting.per_log]):
        return None
    trial, before = copy.copy(fitting), copy.copy(before)
    trial.vary(new)
    # One value for all groups may have kept long windows from fitting.
    further = trial.run() if trial.groups else trial.again(dict(searched.stages))
    unseen = set(trial.windows(Split.VALIDATION, trial.stages[-1]).logs) - set(trial.local)
    before.scale = trial.scale
    better = trial.held_out_cost() < (1.0 - trial.settings.structure_gain) * before.held_out_cost()
    return (trial, further) if better and not unseen else None


def _with_all_different(
    fitting: Fitting, searched: Searched, groups: tuple[str, ...]
) -> tuple[Fitting, Searched, tuple[StructureCandidate, ...]]:  # fmt: skip
    """Return the fit with all quantities of groups apart, a little, if it predicts held-out runs clearly better.

    Where one value for all groups fits none of them, its optimum is no place from which to test one quantity after
    another, and what differs may be the bodies of links, which the fit need not have free.
    """
    bodies = [one for one in candidates_for(fitting.model, fitting.settings) if STRUCTURES[one.kind] is OTHER_BODIES]
    before, context = held_out_of(fitting)
    best, least = (fitting, searched, ()), 1.0
    for more in ((), *((one,) for one in bodies if fitting.settings.structures)):
        model = fitting.model
        for one in more:
            model = with_structure(model, one, fitting.space, fitting.settings)
        trial = fitting.with_model(model)
        own = {name: k for k, name in enumerate(fitting.space.names)}
        names = enumerate(trial.space.names)
        trial.x = torch.stack([fitting.x[own[n]] if n in own else trial.space.declared[k] for k, n in names])
        trial.groups = groups
        trial.vary(trial.space.names, _ALIKE)
        further = trial.run()
        judgement = before.judge(held_out_of(trial, context=context)[0])
        if judgement.kept and judgement.share is not None and judgement.share < least:
            best, least = (trial, further, more), judgement.share
    return best


def of_differences(differences: Sequence[LogDifference]) -> list[Finding]:
    """Judge the differences between logs."""
    if not differences:
        return []
    return [
        Finding(
            "logs-disagree", "warning", "; ".join(one.text for one in differences[:_TOLD]),
            "see the values by log; ask what changed on the robot (payload, gains, battery, temperature), or adapt to "
            "each log by itself",
        )
    ]  # fmt: skip


def _stretches(windows: Windows) -> tuple[Tensor, Tensor]:
    """Return the stretch of each window, shape [W], and the log of each stretch, shape [stretches]."""
    origin = windows.source
    log, places = origin.log.numpy(), origin.places.numpy()
    order = np.lexsort((places[:, 1], places[:, 0], log))
    of_window, logs = torch.zeros(windows.count, dtype=torch.long), list[int]()
    for number in range(len(origin.logs)):
        rows = order[log[order] == number]
        count = min(len(rows), max(_STRETCHES, round(len(rows) ** (2.0 / 3.0))))
        for stretch in np.array_split(rows, max(1, count)):
            of_window[torch.from_numpy(stretch)] = len(logs)
            logs.append(number)
    return of_window, torch.tensor(logs)
