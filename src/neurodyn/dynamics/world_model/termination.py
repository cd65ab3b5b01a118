# SPDX-License-Identifier: Apache-2.0
"""Failures predicted by a world model, and how often it predicts them along a log.

A network trained on rare failures estimates by how much one is likelier than usual, and the frame of a fall is
uncertain even if the fall is not: the probability would hardly ever exceed one half. Its logit is therefore shifted
until forecasts of held-out episodes fail as often as the episodes did.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.data.split import episodes_in
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, windows_along
from neurodyn.dynamics.batch import Control, State, Window
from neurodyn.dynamics.conditions import world_parameters
from neurodyn.dynamics.world_model.model import WorldModel

LIKELY = 0.5
"""Probability of a failure above which a forecast counts as failed."""
FRAMES = 100
"""Frames of a forecast in which failures are counted."""
_WINDOWS = 2048


@dataclass(frozen=True)
class Alarms:
    """Forecasts along windows of a log, up to the end of its episodes.

    Attributes:
        chance: Probability of a failure in each frame, zero beyond the end of the episode, shape [B, T].
        failed: Whether the episode failed in that frame, shape [B, T], bool.
        not_finite: Number of further forecasts, which are left out because they are not finite.
    """

    chance: Tensor
    failed: Tensor
    not_finite: int = 0

    @property
    def raised(self) -> Tensor:
        """Whether each forecast fails, shape [B], bool."""
        return (self.chance > LIKELY).any(1)

    @property
    def right(self) -> Tensor:
        """Whether each window ends in a failure, shape [B], bool."""
        return self.failed.any(1)


@torch.no_grad()
def alarms_along(model: WorldModel, stores: Iterable[Store], split: int | None, context: int) -> Alarms:
    """Forecast from starts spread over episodes, each by one member from its own states, as an environment does.

    Args:
        model: A model that terminates.
        stores: Logs.
        split: Split of the episodes; None for all.
        context: Frames of history.
    """
    parts = [
        _alarms(model, windows.to(model.device), context)
        for store in stores
        for windows in windows_along(store, episodes_in(store, split), context, FRAMES, _WINDOWS)
    ]
    chance, failed = (torch.cat([getattr(part, name) for part in parts]) for name in ("chance", "failed"))
    return Alarms(chance, failed, sum(part.not_finite for part in parts))


def fitted_shift(alarms: Alarms) -> float:
    """Return the shift for which as many held-out forecasts fail as windows did; 0 without failures."""
    failures = int(alarms.right.sum())
    if not failures:
        return 0.0
    peaks = alarms.chance.amax(1).double().logit(1e-6).sort(descending=True).values
    last = min(failures, len(peaks) - 1)
    return -float(peaks[last - 1] + peaks[last]) / 2.0


def _alarms(model: WorldModel, windows: Windows, context: int) -> Alarms:
    first, channels, control = context, windows.channels, windows.control
    past = Window(
        windows.q[:, : first + 1], windows.qd[:, : first + 1], control[:, :first],
        None if channels is None else channels[:, : first + 1],
    )  # fmt: skip
    targets = model.spec.control_kind != "torque"
    around = world_parameters(model.conditions, windows.parameters)
    assert windows.valid is not None  # of windows that may extend past an episode
    counted = windows.valid[:, first + 1 :].bool()
    failed = torch.zeros_like(counted) if windows.failed is None else windows.failed[:, first + 1 :]
    carry, state, chances, finite = model.begin(past, around), past.present, [], torch.ones_like(counted[:, 0])
    for frame, applied in enumerate(control[:, first:].unbind(1)):
        carry, step = model.step(carry, state, Control(target=applied) if targets else Control(torque=applied))
        state = step.state
        assert step.termination is not None  # of a model that terminates
        chances.append(step.termination)
        finite &= _is_finite(state, step.termination) | ~counted[:, frame]
    chance = torch.where(counted, torch.stack(chances, 1), 0.0)
    return Alarms(chance[finite], failed[finite], int((~finite).sum()))


def _is_finite(state: State, chance: Tensor) -> Tensor:
    """Return whether state and chance of each world are finite, shape [worlds]."""
    parts = (state.q, state.qd, state.channels, chance[:, None])
    return torch.cat([part for part in parts if part is not None], -1).isfinite().all(-1)
