# SPDX-License-Identifier: Apache-2.0
"""Fits and residuals of whole held-out runs by consecutive roll-outs, with the residuals from sensor noise alone."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import RecordedEnvironments
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.closed_loop import DrivenModel
from neurodyn.identify.held_out import Forecast, own_motion
from neurodyn.identify.readings import Noise
from neurodyn.identify.result import RunErrors, RunFit
from neurodyn.learn.fit_windows import fit_windows

_RUNS = 3
_SECONDS = 20.0
"""Longest part of a run that is evaluated."""
_ALL = 1 << 40


@torch.no_grad()
def whole_runs(
    models: Mapping[str, Forecast],
    perfect: DrivenModel,
    store: Store,
    split: Split,
    *,
    frames: int,
    past: int,
    noise: Noise,
    environments: RecordedEnvironments,
    seed: int = 0,
) -> list[RunFit]:
    """Roll models out over up to three of the longest held-out runs, `frames` at a time, each after `past` frames.

    The motion of `perfect`, measured with noise of `seed`, gives the residuals that sensor noise alone causes.
    """
    dt = store.header.spec.dt
    most = max(1, round(_SECONDS / (frames * dt)))
    found = []
    for episode in _longest(store, episodes_of(store, split), past + frames):
        run = fit_windows(store.select([episode]), None, past + frames, stride=frames, most=_ALL)
        run = run.rows(torch.arange(min(run.count, most)))
        forecast = models["hybrid" if "hybrid" in models else "identified"]
        logged, spec = run.cut(past), store.header.spec
        measured = own_motion(perfect, run, noise, environments, seed)
        errors = position_difference(spec, forecast(measured, past).q[:, 1:], measured.cut(past).q[:, 1:])
        fits = {name: forecast(run, past) for name, forecast in models.items()}
        found.append(
            RunFit(
                run=_name(store, episode), dt=dt, horizon=frames, names=list(spec.q_names),
                logged=_joined(logged.q[:, 1:]),
                paths={name: _joined(path.q[:, 1:]) for name, path in fits.items()},
                residuals={
                    name: _joined(position_difference(spec, path.q[:, 1:], logged.q[:, 1:]))
                    for name, path in fits.items()
                },
                tangent_names=list(spec.tangent_names), floor=errors.square().mean((0, 1)).sqrt().tolist(),
            )
        )  # fmt: skip
    return found


def run_errors(fits: list[RunFit]) -> list[RunErrors]:
    """Return the root mean square residuals of runs."""
    return [
        RunErrors(
            run=fit.run,
            seconds=len(fit.logged[0]) * fit.dt,
            q={name: _rms(torch.tensor(rows, dtype=torch.float64)) for name, rows in fit.residuals.items()},
            floor=_rms(torch.tensor(fit.floor, dtype=torch.float64)),
        )
        for fit in fits
    ]


def _name(store: Store, episode: int) -> str:
    run = int(store.run[episode])
    return store.header.runs[run] if run >= 0 else f"episode {episode}"


def _longest(store: Store, episodes: np.ndarray, least: int) -> list[int]:
    """Return up to three of the longest episodes with at least `least` frames, in ascending order of index."""
    episodes = episodes[store.lengths[episodes] >= least]
    order = np.argsort(-store.lengths[episodes], kind="stable")[:_RUNS]
    return sorted(episodes[order].tolist())


def _joined(parts: Tensor) -> list[list[float]]:
    """Concatenate windows [W, T, n] in time; return n rows."""
    return parts.flatten(0, 1).T.tolist()


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
