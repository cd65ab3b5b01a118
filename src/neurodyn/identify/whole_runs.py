# SPDX-License-Identifier: Apache-2.0
"""Fits and residuals of whole held-out runs, by consecutive roll-outs, beside what the sensors' noise alone leaves."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.closed_loop import DrivenModel
from neurodyn.dynamics.measures import displace, finite_worlds
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.identify.held_out import Forecast
from neurodyn.identify.readings import Noise
from neurodyn.identify.result import RunErrors, RunFit
from neurodyn.learn.fit_windows import FitWindows, fit_windows

_RUNS = 3
_SECONDS = 20.0
"""Longest part of a run that is shown."""
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
    """Roll models out over up to three runs that are long enough, `frames` at a time.

    Args:
        models: Forecasts by name.
        perfect: The model whose own motion, measured with noise, says what the noise alone leaves.
        store: The trajectories.
        split: Which of them are held out.
        frames: Frames of a roll-out.
        past: Frames that are known before each.
        noise: Noise of the sensors.
        environments: Where the runs took place.
        seed: Seed of the noise.
    """
    dt = store.header.spec.dt
    most = max(1, round(_SECONDS / (frames * dt)))
    found = []
    for episode in _longest(store, episodes_of(store, split), past + frames):
        run = fit_windows(store.select([episode]), None, past + frames, stride=frames, most=_ALL)
        run = run.rows(torch.arange(min(run.count, most)))
        forecast = models["hybrid" if "hybrid" in models else "identified"]
        own = _own_motion(perfect, forecast, run, past, noise, environments, seed)
        logged, spec = run.cut(past), store.header.spec
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
                tangent_names=list(spec.tangent_names), floor=own,
            )
        )  # fmt: skip
    return found


def run_errors(fits: list[RunFit]) -> list[RunErrors]:
    """Return the root mean squares of the residuals of runs."""
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
    """Return up to three of the longest episodes that have as many frames as asked, in their order."""
    episodes = episodes[store.lengths[episodes] >= least]
    order = np.argsort(-store.lengths[episodes], kind="stable")[:_RUNS]
    return sorted(episodes[order].tolist())


def _own_motion(
    model: DrivenModel, forecast: Forecast, run: FitWindows, past: int, noise: Noise,
    environments: RecordedEnvironments, seed: int,
) -> list[float]:  # fmt: skip
    """Return the size of a model's residuals about its own motion, measured with noise, by degree of freedom."""
    spec = model.spec
    generator = torch.Generator().manual_seed(derive_seed(seed, "noise floor"))
    path = model.rollout(State(run.q[:, 0], run.qd[:, 0]), run.control, environments.at(run.ground))
    kept = finite_worlds(path).nonzero()[:, 0]
    q, qd, run = path.q[kept], path.qd[kept], run.rows(kept)
    drawn = torch.randn((*qd.shape[:2], 2 * spec.nv), generator=generator, dtype=torch.float64) * noise.joined
    moved, faster = drawn.chunk(2, -1)
    measured = replace(run, q=displace(spec, q, moved), qd=qd + faster)
    errors = position_difference(spec, forecast(measured, past).q[:, 1:], measured.cut(past).q[:, 1:])
    return errors.square().mean((0, 1)).sqrt().tolist()


def _joined(parts: Tensor) -> list[list[float]]:
    """Return windows [W, T, n] one after another, as n rows."""
    return parts.flatten(0, 1).T.tolist()


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
