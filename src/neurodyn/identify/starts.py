# SPDX-License-Identifier: Apache-2.0
"""Initial states of held-out forecasts: as logged, or estimated from past positions.

Many logs hold velocities that were smoothed with a look-ahead window. A forecast from such a velocity has seen part of
the future that it predicts. The initial state is then estimated from a few past frames: the roll-out of the model over
these frames that best fits their positions, weighted by the sensor noise, with a weak prior on the first velocity.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from neurodyn.core.artifacts import read_json, resolve_run
from neurodyn.core.config import read_config
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import Environment, RecordedEnvironments, State, Trajectory, Window
from neurodyn.dynamics.conditions import Condition
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.kinds import KindOperation
from neurodyn.dynamics.rollouts import context_of
from neurodyn.identify.least_squares import levenberg_marquardt
from neurodyn.identify.readings import Noise
from neurodyn.identify.residuals import ResidualOptions, Residuals
from neurodyn.identify.search_space import FixedSpace
from neurodyn.identify.settings import IdentificationRecord

_ITERATIONS = 8

Start = Literal["logged", "past"]


def start_of(store: Store, asked: Literal["auto", "logged", "past"]) -> Start:
    """Return how forecasts of a log start; "auto" is "past" if velocities were differentiated from positions."""
    if asked != "auto":
        return asked
    columns = store.header.notes.get("column_map") or {}
    how = columns.get("velocity")
    ahead = (columns.get("qd") == "differentiate" and how != "past") or how == "averaged"
    return "past" if ahead else "logged"


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
        start: "logged" keeps the logged states; "past" estimates them.
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
    velocity = position_difference(dynamics.spec, past.q[:, 1], past.q[:, 0]) / dynamics.spec.dt
    qd = past.qd.clone()
    qd[:, 0] = velocity
    # Standard deviation of the prior on the first velocity: typical speeds, and the noise of two positions.
    std = velocity.square().mean(0).sqrt().clamp_min(1e-3) + 2.0 * noise.q / dynamics.spec.dt
    residuals = Residuals(
        dynamics,
        replace(past, qd=qd),
        Noise(noise.q, std),
        ResidualOptions(velocities=False, huber=5.0),
        environments=environments,
        space=FixedSpace(dynamics.physical().detach()),
    )
    solution = levenberg_marquardt(residuals, residuals.start(residuals.space.nominal[None]), _ITERATIONS)
    path = residuals.path(solution.point)
    q, qd = future.q.clone(), future.qd.clone()
    q[:, 0], qd[:, 0] = path.q[:, -1], path.qd[:, -1]
    return replace(future, q=q, qd=qd)


class FromPast(nn.Module):
    """A hybrid model whose roll-outs start from states that are estimated from past positions.

    Attributes:
        spec: State of the model, with the number of past frames as context.
    """

    measured = False

    def __init__(self, dynamics: HybridDynamics, context: int, noise: Noise) -> None:
        """Wrap a model; initial states are fitted to `context` past frames, weighted by the sensor noise."""
        super().__init__()
        self.dynamics, self.noise = dynamics, noise
        self.context = context
        self.spec = dynamics.spec.with_context(frames_before(context, dynamics.spec.context))
        self.kind, self.network, self.fingerprint = dynamics.kind, dynamics.network, dynamics.fingerprint

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Quantities that are inputs of networks: none."""
        return self.dynamics.conditions

    @property
    def caveat(self) -> str:
        """Caveat of the model; see `Dynamics.caveat`."""
        return self.dynamics.caveat

    @property
    def device(self) -> str:
        """Torch device of inputs and outputs."""
        return self.dynamics.device

    @torch.no_grad()
    def rollout(self, context: State | Window, controls: Tensor, environment: Environment | None = None) -> Trajectory:
        """Roll out under controls from a window of `spec.context` past frames; a single state is used unchanged."""
        if isinstance(context, Window) and context.torque.shape[1]:
            frames = context.torque.shape[1]
            q, qd, control = (x.double() for x in (context.q, context.qd, context.torque))
            ground = None if environment is None or environment.ground is None else environment.ground.pose
            past = Windows(q, qd, control, ground=None if ground is None else ground.double()).after(frames)
            where = None if environment is None else RecordedEnvironments.like(environment)
            begin = estimate_starts(
                self.dynamics, past, min(self.context, frames), "past", self.noise, where, history=frames
            )
            context = context_of(begin)
        return self.dynamics.rollout(context, controls, environment)


def as_identified(run: str | Path, device: str = "cpu") -> FromPast | None:
    """Load an identified hybrid model with the initial-state estimation that its identification used.

    None if the run was not identified, or if its forecasts started from logged states.
    """
    path = resolve_run(run) / "identification.json"
    figures = read_json(path) if path.is_file() else None
    if figures is None or figures["held_out"]["start"] == "logged":
        return None
    context = read_config(resolve_run(run) / "config.yaml", IdentificationRecord).settings.context
    sizes = torch.tensor(list(figures["noise"].values()), dtype=torch.float64)
    model = HYBRID.load(run)
    model.compute_device = device
    return FromPast(model, context, Noise(*sizes.chunk(2)))


ALONG_LOG: KindOperation[Callable[[str | Path, str], FromPast | None]] = KindOperation(
    "model along a log", hybrid=as_identified
)
"""From a run and a device to its model for roll-outs along a log that start from estimated states, by kind.

None if they start from logged ones.
"""
