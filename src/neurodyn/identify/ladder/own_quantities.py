# SPDX-License-Identifier: Apache-2.0
r"""Quantities with an own value in each run of a log: of each group of its runs, and of runs of no known group.

A robot may differ between runs: it stands on its other leg, or carries another load. A fit then has values $v_g$ of
each of the G groups that the log names, and a store with these values in its parameters rolls out with them. A run of
another group gets

$$v = \bar v + \sum_k z_k d_k, \qquad z_k \sim N(0, 1)$$

where $d_k$ are the principal deviations of the groups' values from their mean. The z are fitted to the first second of
the run, which no forecast may start in.
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.artifacts import resolve_run
from neurodyn.core.errors import choices, notice
from neurodyn.data.store import Store
from neurodyn.data.windows import select_windows
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.identify.fit.least_squares import levenberg_marquardt
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.fit.residuals import Point, ResidualOptions, Residuals
from neurodyn.identify.ladder.initial_states import of_positions
from neurodyn.identify.ladder.rungs import environments_of
from neurodyn.identify.result import MECHANISM, OwnQuantities, read_adaptation
from neurodyn.identify.unknowns.priors import UnitPrior
from neurodyn.identify.unknowns.search_space import BoxedSpace

_FIRST, _WINDOW = 1.0, 0.1
"""First part of a run to which its own values are fitted, and the roll-outs in it [s]."""
_DIRECTIONS, _REACH = 3, 2.0
"""Most principal deviations, and the bound of the search in them."""
_ITERATIONS = 10


def own_quantities(residuals: Residuals, point: Point, by: Literal["group", "run"]) -> OwnQuantities | None:
    """Return the values by log of a fit's windows, whose logs are groups or runs; None where nothing varies."""
    if not residuals.options.per_log or len(residuals.windows.logs) < 2:
        return None
    values = residuals.values_by_log(point)[0].detach()
    names = residuals.dynamics.own_quantities
    differ = torch.nonzero((values - values[:1]).abs().amax(0) > 0.0)[:, 0]
    rows = zip(residuals.windows.logs, values[:, differ].tolist(), strict=True)
    return OwnQuantities(
        by=by, names=[names[k] for k in differ.tolist()], groups=dict(rows),
        scale=residuals.scale[: 2 * residuals.dynamics.spec.nv].tolist(), noise=residuals.noise.joined.tolist(),
    )  # fmt: skip


def with_groups(store: Store, own: OwnQuantities, named: str = "") -> Store:
    """Return a log with the values of its groups in its parameters, in runs of other groups the usual ones.

    `named` is the group or run that the fit took the whole log for; empty for those of its header.
    """
    rows = np.array([own.groups.get(label, own.usual) for label in _labels(store, own, named)], np.float32)
    before = store.differing_in([name for name in store.header.parameters if name not in own.names])
    rows = rows if before.parameters is None else np.concatenate([before.parameters, rows], 1)
    parameters = before.header.parameters | dict(zip(own.names, own.usual, strict=True))
    return replace(before, header=msgspec.structs.replace(before.header, parameters=parameters), parameters=rows)


def _labels(store: Store, own: OwnQuantities, named: str) -> list[str]:
    """Return the group, or the run, of each episode; empty for none."""
    if named:
        return [named] * len(store.table)
    if own.by == "run":
        return [store.run_name(episode) for episode in range(len(store.table))]
    return [store.header.groups[group] if group >= 0 else "" for group in store.group.tolist()]


def with_own(
    store: Store, own: OwnQuantities, dynamics: HybridDynamics, named: str = ""
) -> tuple[Store, dict[str, dict[str, float]]]:  # fmt: skip
    """Return a log as `with_groups`, but runs of other groups with values that their first second tells.

    These runs begin after it; those shorter than two seconds stay whole, with the usual values.

    Returns:
        The log, and the values of these runs by name.
    """
    known = with_groups(store, own, named)
    rows, table = np.array(known.parameters), known.table.copy()
    fitted: dict[str, dict[str, float]] = {}
    frames = max(2, round(_WINDOW / dynamics.spec.dt))
    first = max(frames, round(_FIRST / dynamics.spec.dt))
    for episode, label in enumerate(_labels(store, own, named)):
        if label in own.groups or known.lengths[episode] < 2 * first:
            continue
        values = _fitted_values(own, known, episode, dynamics, frames, first)
        rows[episode, -len(own.names) :] = values
        table["start"][episode] += first
        table["length"][episode] -= first
        fitted[known.run_name(episode)] = dict(zip(own.names, values.tolist(), strict=True))
    return replace(known, parameters=rows, table=table) if fitted else known, fitted


def as_adapted(run: str | Path, store: Store, dynamics: Dynamics, named: str = "") -> Store:
    """Return a log with the quantities that an adaptation gives its groups, or its runs, values of their own.

    `named` is the run that the adaptation took the whole log for; empty for those of its header. Says which runs got
    theirs from their first second, and begin after it.
    """
    folder = resolve_run(run)
    figures = read_adaptation(folder.parent if folder.name == MECHANISM else folder)
    if figures is None or figures.own is UNSET or not isinstance(dynamics, HybridDynamics):
        return store
    if not set(figures.own.names) <= set(dynamics.own_quantities):  # the declaration, which has one value for all
        return store
    store, fitted = with_own(store, figures.own, dynamics, named)
    told = [
        f"{name} ({', '.join(f'{quantity} {value:.3g}' for quantity, value in values.items())})"
        for name, values in fitted.items()
    ]
    if told:
        notice(f"runs begin after their first second, which told their own values: {choices(told)}")
    return store


def _fitted_values(
    own: OwnQuantities, store: Store, episode: int, dynamics: HybridDynamics, frames: int, first: int
) -> np.ndarray:  # fmt: skip
    """Return the values of a run that its first frames tell, shape [quantities]."""
    past = min(dynamics.spec.context, frames) if dynamics.memory else 0
    stride = max(1, frames // 2)
    windows = select_windows(store.select([episode]), None, past + frames, stride=stride, most=1 << 20)
    windows = windows.rows(windows.start <= first - past - frames).after(past)
    space = _Deviations(own, dynamics)
    q, qd = torch.tensor(own.noise, dtype=torch.float64).chunk(2)
    residuals = Residuals(
        dynamics, replace(windows, parameters=None), Noise(q, qd),
        ResidualOptions(velocities=not of_positions(store), huber=3.0),
        scale=torch.tensor(own.scale, dtype=torch.float64), environments=environments_of(store, dynamics),
        space=space, prior=UnitPrior(),
    )  # fmt: skip
    point = levenberg_marquardt(residuals, residuals.start(space.nominal[None]), _ITERATIONS).point
    return space.values(point.x)[0, space.columns].numpy()


class _Deviations(BoxedSpace):
    """Deviations of a run from the usual values, in standard deviations of those of groups."""

    def __init__(self, own: OwnQuantities, dynamics: HybridDynamics) -> None:
        values = torch.tensor(list(own.groups.values()), dtype=torch.float64)
        self.columns = torch.tensor([dynamics.own_quantities.index(name) for name in own.names])
        self._usual = dynamics.physical().detach().double().clone()
        self._usual[self.columns] = values.mean(0)
        least = values.abs().amax(0).clamp_min(1e-12)
        _, sizes, axes = torch.linalg.svd((values - values.mean(0)) / least, full_matrices=False)
        count = min(_DIRECTIONS, len(values) - 1, len(sizes))
        self._directions = sizes[:count, None] * axes[:count] * least / max(1, len(values) - 1) ** 0.5
        self.names = tuple(f"deviation {k}" for k in range(count))
        self.nominal = torch.zeros(count, dtype=torch.float64)
        self.lower, self.upper = self.nominal - _REACH, self.nominal + _REACH

    def values(self, x: Tensor) -> Tensor:
        """Return the physical values of all free quantities, shape [..., quantities]."""
        whole = self._usual.expand(*x.shape[:-1], -1).clone()
        whole[..., self.columns] += x @ self._directions
        return whole
