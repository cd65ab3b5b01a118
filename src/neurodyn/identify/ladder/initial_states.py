# SPDX-License-Identifier: Apache-2.0
"""Initial states of forecasts along a log: as logged, or estimated from past positions.

Many logs hold velocities that were smoothed with a look-ahead window. A forecast from such a velocity has seen part of
the future that it predicts. The initial state is then estimated from a few past frames: the roll-out of the model over
these frames that best fits their positions, weighted by the sensor noise, with a weak prior on the first velocity.
Velocities that were measured are fitted, too ("filtered"): one alone is as noisy as its sensor.
"""

from dataclasses import replace
from typing import Literal

import torch

from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import RecordedEnvironments
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.fit.least_squares import levenberg_marquardt
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.fit.residuals import ResidualOptions, Residuals
from neurodyn.identify.unknowns.search_space import FixedSpace

_ITERATIONS, _NEAR = 8, 3
"""Iterations of a fit of initial states, and of one from measured velocities, which begin near its end."""
_SETTLED = 1e-4
"""Relative decrease of the cost below which such a fit, which is nearly linear, has ended."""
_DENSE, _OFF = 5.0, 0.02
"""Rows of a log in a frame from which on interpolation errs little, and the relative distance from a whole number of
rows up to which frames count as on them."""

Start = Literal["logged", "past", "filtered"]
"""Initial states: as logged, or estimated from past positions, or from past positions and velocities."""


def start_of(store: Store, asked: Literal["auto", "logged", "past"]) -> Start:
    """Return how forecasts of a log start; "auto" is "past" if velocities were differentiated from positions.

    Not where the base is unmeasured: its states are estimated by other means, and not known well enough to fit more.
    """
    if asked != "auto":
        return asked
    return "past" if look_ahead(store) and store.header.base == "measured" else "logged"


def look_ahead(store: Store) -> bool:
    """Return whether a log's velocities are those of positions after them, too."""
    how = (store.header.notes.get("column_map") or {}).get("velocity")
    return (store.header.differentiated and how != "past") or how == "averaged"


def of_positions(store: Store) -> bool:
    """Return whether a log's velocities tell no more than its positions.

    They are differences of these, late or smoothed, or lie between the rows of the log, where linear interpolation cuts
    the corners of a stiff servo's: rotors then look heavier, and delays shorter.
    """
    notes, dt = store.header.notes, store.header.spec.dt
    if store.header.differentiated:
        return True
    rates = notes.get("rates_hz") or {}
    rows = dt * float((rates.get("qd") or rates.get("all") or {}).get("median", 0.0))
    return 0.0 < rows < _DENSE and abs(rows - round(rows)) > _OFF * rows


def frames_before(context: int, history: int) -> int:
    """Return the number of frames before a forecast: enough for state estimation and for memories."""
    return max(context, history)


@torch.no_grad()
def estimate_starts(
    dynamics: HybridDynamics, windows: Windows, context: int, start: Start, noise: Noise,
    environments: RecordedEnvironments | None = None, *, history: int = 0,
) -> Windows:  # fmt: skip
    """Return windows with the initial states from which forecasts start, and with the past that memories need.

    Args:
        dynamics: Model whose roll-outs are fitted to the past.
        windows: Windows with at least `frames_before(context, history)` past frames.
        context: Past frames to which an initial state is fitted.
        start: "logged" keeps the logged states; the others estimate them.
        noise: Sensor noise.
        environments: Environments of the windows; None for the model's own.
        history: Past frames that initialise memories of drives and networks.
    """
    before = frames_before(context, history)
    past = windows.past
    if past is not None:
        past = past.cut(past.frames - before) if before else None
    future = replace(windows, past=past if dynamics.memory else None)
    if start == "logged" or context == 0 or past is None:
        return future
    past = past.after(before - context)
    if not dynamics.memory:
        past = replace(past, past=None)
    filtered = start == "filtered"
    if not filtered:
        velocity = position_difference(dynamics.spec, past.q[:, 1], past.q[:, 0]) / dynamics.spec.dt
        qd = past.qd.clone()
        qd[:, 0] = velocity
        # Standard deviation of the prior on the first velocity: typical speeds, and the noise of two positions.
        std = velocity.square().mean(0).sqrt().clamp_min(1e-3) + 2.0 * noise.q / dynamics.spec.dt
        past, noise = replace(past, qd=qd), Noise(noise.q, std)
    residuals = Residuals(
        dynamics,
        past,
        noise,
        ResidualOptions(velocities=filtered, huber=5.0, one_sided=True),
        environments=environments,
        space=FixedSpace(dynamics.physical().detach()),
    )
    first = residuals.start(residuals.space.nominal[None])
    solution = levenberg_marquardt(residuals, first, _NEAR if filtered else _ITERATIONS, tolerance=_SETTLED)
    path = residuals.path(solution.point)
    q, qd = future.q.clone(), future.qd.clone()
    q[:, 0], qd[:, 0] = path.q[:, -1], path.qd[:, -1]
    return replace(future, q=q, qd=qd)
