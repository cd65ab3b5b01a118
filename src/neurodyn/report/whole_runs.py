# SPDX-License-Identifier: Apache-2.0
"""Residuals of a model over whole recorded runs, rolled out one horizon after another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.data.split import episodes_in
from neurodyn.data.store import Store
from neurodyn.dynamics.interface import Dynamics, Window
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.dynamics.tangent import position_difference
from neurodyn.evaluate.engine import Batch, Drive, follow
from neurodyn.report.numbers import digits, span
from neurodyn.report.page import figure, grid, heading, section
from neurodyn.report.plots import PREDICTED, Curve, plot

_RUNS = 3
_SECONDS = 20.0
"""Longest part of a run that is shown."""
_POINTS = 2400  # of a curve, into which one zooms
_MOST_COORDINATES = 8


@dataclass(frozen=True)
class WholeRun:
    """Residuals along a run.

    Attributes:
        name: The run.
        begin: Time of the first start in it [s].
        residuals: Predicted less recorded positions [rad or m], shape [T, nv].
    """

    name: str
    begin: float
    residuals: Tensor


@torch.no_grad()
def record_whole_runs(model: Dynamics, store: Store, *, frames: int, split: int | None) -> list[WholeRun]:
    """Roll a model out over up to three of the longest runs, each roll-out from a recorded state.

    Args:
        model: The model.
        store: The recorded trajectories of a bolted robot.
        frames: Frames of a roll-out.
        split: Which episodes; None for all of them.

    Returns:
        Residuals of up to 20 s of each run; none where no episode holds a roll-out.
    """
    context, dt = model.spec.context, model.spec.dt
    episodes = episodes_in(store, split)
    episodes = episodes[store.lengths[episodes] >= context + frames]
    longest = episodes[np.argsort(-store.lengths[episodes], kind="stable")[:_RUNS]]
    found = []
    for episode in sorted(longest.tolist()):
        q, qd, control = (torch.as_tensor(values) for values in store.episode(episode))
        count = min((int(store.lengths[episode]) - context) // frames, max(1, round(_SECONDS / (frames * dt))))
        starts = [context + k * frames for k in range(count)]

        def cut(rows: Tensor, before: int, after: int, starts: Sequence[int] = starts) -> Tensor:
            return torch.stack([rows[start - before : start + after] for start in starts])

        past = Window(cut(q, context, 1), cut(qd, context, 1), cut(control, context, 0))
        pose = None if store.ground is None else torch.as_tensor(store.ground[[episode] * count])
        drive = Drive(cut(control, 0, frames))
        batch = Batch(past if context else past.present, drive, RecordedEnvironments(store).at(pose))
        predicted = follow(model, batch)
        residuals = position_difference(model.spec, predicted.q[:, 1:], cut(q, 0, frames + 1)[:, 1:])
        run = int(store.run[episode])
        name = store.header.runs[run] if run >= 0 else f"episode {episode}"
        found.append(WholeRun(name, context * dt, residuals.flatten(0, 1)))
    return found


def whole_runs(runs: Sequence[WholeRun], spec: StateSpec, horizon: int) -> str:
    """Return residuals over time, by run and coordinate."""
    parts = []
    for number, run in enumerate(runs):
        seconds = [run.begin + spec.dt * (k + 1) for k in range(len(run.residuals))]
        plots = []
        for i, name in enumerate(spec.tangent_names[:_MOST_COORDINATES]):
            rows = run.residuals[:, i]
            caption = f"{name}: root mean square {digits(float(rows.square().mean().sqrt()))}"
            svg = plot(
                f"whole-{number}-{i}", [Curve("predicted less recorded", seconds, rows.tolist(), PREDICTED, "-", 1.0)],
                x_label="time [s]", unit="", legend=False, description=f"Residual of {name} in {run.name}",
                points=_POINTS,
            )  # fmt: skip
            plots.append(figure(svg, caption))
        parts += [heading(run.name), grid(plots)]
    lead = (
        f"Predicted less recorded positions (rad or m) of the longest runs, rolled out {span(horizon * spec.dt)} at a "
        "time, each time from the recorded state. What repeats with the motion is the model's error; what does not is "
        "noise."
    )
    return section("Whole runs", *parts, lead=lead)
