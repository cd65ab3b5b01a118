# SPDX-License-Identifier: Apache-2.0
"""Starting states of held-out windows: as logged, or from past positions alone.

Velocities of many logs are smoothed positions, whose window looks ahead: a forecast that starts from them has seen some
of its future. Then the state at the end of a few past frames is estimated instead: the roll-out of the model over these
frames that fits their positions best, within the sensors' noise, and with a weak prior on the velocity.
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from neurodyn.core.artifacts import read_json, resolve_run
from neurodyn.core.config import read_config
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Environment, State, Trajectory, Window
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.closed_loop import DrivenModel
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.identify.least_squares import levenberg_marquardt
from neurodyn.identify.readings import Noise
from neurodyn.identify.residuals import ResidualOptions, Residuals
from neurodyn.identify.search_space import FixedSpace
from neurodyn.identify.settings import IdentificationRecord
from neurodyn.learn.fit_windows import FitWindows

_ITERATIONS = 8

Start = Literal["logged", "past"]


def start_of(store: Store, asked: Literal["auto", "logged", "past"]) -> Start:
    """Return how windows of a log start; "auto" takes the past where velocities are differences of positions."""
    if asked != "auto":
        return asked
    columns = store.header.notes.get("column_map") or {}
    how = columns.get("velocity")
    ahead = (columns.get("qd") == "differentiate" and how != "past") or how == "averaged"
    return "past" if ahead else "logged"


def lead(context: int, history: int) -> int:
    """Return the frames before a forecast, as many as its first state or memories begin from."""
    return max(context, history)


@torch.no_grad()
def started(
    dynamics: DrivenModel,
    windows: FitWindows,
    context: int,
    start: Start,
    noise: Noise,
    environments: RecordedEnvironments | None = None,
    *,
    history: int = 0,
) -> FitWindows:
    """Return windows without their past, whose first states are what a forecast may start from.

    Args:
        dynamics: The model that explains the past.
        windows: Windows of `lead(context, history)` frames and those to forecast.
        context: Frames of the past that explain a first state.
        start: "logged" leaves states as they are.
        noise: Noise of the sensors.
        environments: Environments of the windows; None for the model's own.
        history: Frames of the past from which memories begin, where the model has any; what it returns has them.
    """
    before = lead(context, history)
    future = windows.after(before) if dynamics.memory else windows.cut(before)
    if start == "logged" or context == 0:
        return future
    past = windows.after(before - context).until(context) if dynamics.memory else windows.cut(before - context, before)
    velocity = position_difference(dynamics.spec, past.q[:, 1], past.q[:, 0]) / dynamics.spec.dt
    qd = past.qd.clone()
    qd[:, 0] = velocity
    # The prior on the first velocity: accelerations within a frame, and the noise of two positions.
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
    """A hybrid model whose roll-outs start from states estimated from past positions, given as a window of history.

    Attributes:
        spec: That of the model, with the frames of history that are used.
    """

    def __init__(self, dynamics: HybridDynamics, context: int, noise: Noise) -> None:
        """Wrap a model, whose starting states are estimated from `context` frames with the sensors' noise."""
        super().__init__()
        self.dynamics, self.noise = dynamics, noise
        self.context = context
        self.spec = dynamics.spec.with_context(lead(context, dynamics.spec.context))
        self.kind, self.network, self.fingerprint = dynamics.kind, dynamics.network, dynamics.fingerprint

    @property
    def device(self) -> str:
        """Device of the tensors that it takes."""
        return self.dynamics.device

    @torch.no_grad()
    def rollout(self, context: State | Window, controls: Tensor, environment: Environment | None = None) -> Trajectory:
        """Roll out as the model does, from a window of `spec.context` frames."""
        if isinstance(context, Window) and context.torque.shape[1]:
            frames = context.torque.shape[1]
            q, qd, control = (x.double() for x in (context.q, context.qd, context.torque))
            nobody = torch.zeros(len(q), dtype=torch.long)
            ground = None if environment is None or environment.ground is None else environment.ground.pose
            pose = None if ground is None else ground.double()
            past = FitWindows(q, qd, control, pose, nobody, ("",), np.zeros((len(q), 2), np.int64))
            where = None if environment is None else RecordedEnvironments.like(environment)
            begin = started(self.dynamics, past, min(self.context, frames), "past", self.noise, where, history=frames)
            context = begin.context()
        return self.dynamics.rollout(context, controls, environment)


def as_identified(run: str | Path, device: str = "cpu") -> FromPast | None:
    """Load a hybrid model that was identified with starts from the past, so that it takes them from there again.

    Args:
        run: Run directory.
        device: Torch device on which its equations are computed.

    Returns:
        The model; None where its identification started in logged states, or there was none.
    """
    path = resolve_run(run) / "identification.json"
    found = read_json(path) if path.is_file() else None
    if found is None or found["held_out"]["start"] == "logged":
        return None
    context = read_config(resolve_run(run) / "config.yaml", IdentificationRecord).settings.context
    sizes = torch.tensor(list(found["noise"].values()), dtype=torch.float64)
    model = HYBRID.load(run)
    model.compute_device = device
    return FromPast(model, context, Noise(*sizes.chunk(2)))
