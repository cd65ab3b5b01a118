# SPDX-License-Identifier: Apache-2.0
"""How far a model errs on what a policy did."""

import torch

from neurodyn.data.store import Store
from neurodyn.data.windows import all_windows
from neurodyn.dynamics.interface import Dynamics, State, Window
from neurodyn.dynamics.recorded_environment import RecordedEnvironments

SECONDS = 0.25
"""Length of a forecast [s]."""

_MOST = 1024


@torch.no_grad()
def model_error(model: Dynamics, log: Store) -> float | None:
    """Return the error of a model's forecasts of `SECONDS` along a log, beside persistence.

    Mean over velocities of the mean absolute error at the end of a forecast, each divided by that of the persistence
    baseline: 0 of a perfect model, 1 of one that is no better than velocities that stay as they are.

    Args:
        model: The model.
        log: What it has not seen.

    Returns:
        The error; None where no episode is long enough or a forecast is not finite.
    """
    frames, context = max(1, round(SECONDS / model.spec.dt)), model.spec.context
    if int(log.lengths.max()) < context + frames:
        return None
    environments = None if model.measured else RecordedEnvironments(log, model.device)
    errors, still = [], []
    for batch in all_windows(log, context + frames, stride=max(1, log.transitions // _MOST)):
        known = slice(0, context + 1)
        channels = None if batch.channels is None else batch.channels[:, known]
        past = Window(batch.q[:, known], batch.qd[:, known], batch.control[:, :context], channels)
        start: State | Window = past if context or model.measured else past.present
        place = None if environments is None else environments.at(batch.ground)
        found = model.rollout(_on(start, model.device), batch.control[:, context:].to(model.device), place)
        truth = batch.qd[:, -1]
        errors.append((found.qd[:, -1].to(truth) - truth).abs())
        still.append((batch.qd[:, context] - truth).abs())
    error, baseline = torch.cat(errors).double().mean(0), torch.cat(still).double().mean(0)
    moves = baseline > 0
    relative = float((error[moves] / baseline[moves]).mean()) if bool(moves.any()) else float("nan")
    return relative if torch.tensor(relative).isfinite() else None


def _on(start: State | Window, device: str) -> State | Window:
    return start if device == "cpu" else start.to(device)
