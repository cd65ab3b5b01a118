# SPDX-License-Identifier: Apache-2.0
"""What the sensors' noise alone lets a model err by: the model's forecasts of its own motion, measured with that noise.

The motion is that of the model from the log's states under the log's torques. White noise of the log's size is added,
the starting state is estimated from it as from the log, and the forecast is compared with the noisy measurement. Larger
errors on the log come from the model, from torques that are not those logged, or from noise that is not white.
"""

from dataclasses import replace
from typing import Any

import torch

from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import State
from neurodyn.dynamics.measures import displace, finite_worlds
from neurodyn.dynamics.recorded_environment import RecordedEnvironments
from neurodyn.identify.forecast_errors import forecast_errors, hybrid_forecast
from neurodyn.identify.noise import Noise
from neurodyn.identify.starts import Start
from neurodyn.learn.hybrid.windows import FitWindows


@torch.no_grad()
def noise_floor(
    dynamics: HybridDynamics,
    windows: FitWindows,
    past: int,
    noise: Noise,
    environments: RecordedEnvironments,
    *,
    start: Start,
    context: int,
    seconds: tuple[float, ...],
    seed: int,
) -> dict[str, Any]:
    """Return the errors of a model on its own motion, by horizon; see `forecast_errors`.

    Args:
        dynamics: The model.
        windows: Windows of `past` frames and those to forecast.
        past: Frames that are not forecast.
        noise: Noise of the sensors.
        environments: Where the windows took place.
        start: How forecasts start.
        context: Frames of the past that a starting state is estimated from.
        seconds: Horizons.
        seed: Seed of the noise.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "noise floor"))
    where = environments.at(windows.ground)
    path = dynamics.rollout(State(windows.q[:, 0], windows.qd[:, 0]), windows.control, where)
    kept = finite_worlds(path).nonzero()[:, 0]
    q, qd, windows = path.q[kept], path.qd[kept], windows.rows(kept)
    drawn = noise.joined * torch.randn((*qd.shape[:2], 2 * dynamics.spec.nv), generator=generator, dtype=torch.float64)
    moved, faster = drawn.chunk(2, -1)
    measured = displace(dynamics.spec, q, moved)
    forecast = hybrid_forecast(dynamics, start, context, noise, environments)
    found = forecast_errors(
        {"floor": forecast}, dynamics.spec, replace(windows, q=measured, qd=qd + faster), past, seconds
    )
    return found["by_model"]["floor"]
