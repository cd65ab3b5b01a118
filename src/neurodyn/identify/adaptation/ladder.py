# SPDX-License-Identifier: Apache-2.0
"""The ladder from a declaration to a model of the robot: each rung is kept only where it beats the one below.

The truth is the log: rungs are compared by open-loop roll-outs on whole held-out episodes, and a rung is kept if it is
better by more than the spread over episodes allows to be chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Trajectory, present_state
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.adaptation.fit import environments_of
from neurodyn.identify.identifiability import blocks_of, student_t
from neurodyn.learn.fit_windows import FitWindows, fit_windows

_FEW = 3
"""Blocks below which a spread means nothing, and a rung has to be better by `_CLEARLY` instead."""
_CLEARLY = 0.05


@dataclass(frozen=True)
class HeldOutErrors:
    """Errors of one model on held-out windows.

    Attributes:
        positions: Errors of positions at each horizon, shape [W, horizons, nv]; infinite where not finite.
        seconds: The horizons [s].
        windows: The windows.
    """

    positions: Tensor
    seconds: tuple[float, ...]
    windows: FitWindows

    def groups(self, spec: StateSpec) -> dict[str, list[float]]:
        """Return the mean error at each horizon: of the base's position and orientation, and of the joints.

        Base errors are lengths of vectors [m, rad]; joint errors are means over joints [rad or m].
        """
        found: dict[str, list[float]] = {}
        first = 0
        if spec.floating:
            found["base [m]"] = self.positions[..., :3].norm(dim=-1).mean(0).tolist()
            found["base [rad]"] = self.positions[..., 3:6].norm(dim=-1).mean(0).tolist()
            first = 6
        if self.positions.shape[-1] > first:
            found["joints [rad or m]"] = self.positions[..., first:].abs().mean((0, 2)).tolist()
        return found


@dataclass(frozen=True)
class Judgement:
    """Whether a rung is kept.

    Attributes:
        kept: Whether.
        share: Its mean error as a share of that of the rung below.
        words: Why, in one line.
    """

    kept: bool
    share: float
    words: str


def held_out_windows(
    store: Store, split: int, past: int, seconds: Sequence[float], each: int
) -> tuple[FitWindows, tuple[float, ...]]:
    """Return windows of a split with `past` frames before them, and the horizons [s] that its episodes reach.

    `each` is the most windows of an episode.
    """
    episodes, dt = episodes_of(store, split), store.header.spec.dt
    longest = int(store.lengths[episodes].max()) - past
    frames = [max(1, round(s / dt)) for s in seconds]
    fitting = [frame for frame in frames if frame <= longest]
    if not fitting:
        raise InputError(
            f"log of {store.header.robot!r}: its held-out episodes are shorter than {min(frames) + past} frames; "
            "valid: longer ones, or shorter horizons in the settings"
        )
    windows = fit_windows(store, split, past + max(fitting), most=each * len(episodes))
    return windows.after(past), tuple(dict.fromkeys(frame * dt for frame in fitting))


@torch.no_grad()
def held_out_errors(
    dynamics: HybridDynamics, store: Store, windows: FitWindows, seconds: tuple[float, ...]
) -> HeldOutErrors:
    """Roll a model out along held-out windows from their states, its motors in the state of the commands before."""
    path = rolled(dynamics, store, windows)
    rows = [round(s / dynamics.spec.dt) for s in seconds]
    errors = position_difference(dynamics.spec, path.q[:, rows], windows.q[:, rows])
    return HeldOutErrors(torch.nan_to_num(errors, nan=1e3, posinf=1e3, neginf=-1e3), seconds, windows)


@torch.no_grad()
def rolled(dynamics: HybridDynamics, store: Store, windows: FitWindows) -> Trajectory:
    """Return roll-outs along windows."""
    where = environments_of(store, dynamics).at(windows.ground)
    context = windows.context()
    if not dynamics.memory:
        context = present_state(context)
    return dynamics.simulate(context, windows.control, dynamics.physical().detach(), dynamics.weights.detach(), where)


def judged(below: HeldOutErrors, above: HeldOutErrors) -> Judgement:
    """Return whether a rung is better than the one below beyond the spread over independent stretches of the log."""
    scale = below.positions.abs().mean(0).clamp_min(1e-9)
    blocks = blocks_of(below.windows)
    counts = torch.bincount(blocks.of_window, minlength=blocks.count).clamp_min(1)

    def score(errors: HeldOutErrors) -> Tensor:
        each = (errors.positions.abs() / scale).mean((1, 2))[:, None]
        return blocks.sums(each)[:, 0] / counts

    before, after = score(below), score(above)
    gain, share = before - after, float(after.mean() / before.mean())
    if blocks.count < _FEW:
        kept = share < 1.0 - _CLEARLY
        return Judgement(kept, share, f"{share:.2f} of the error, in {blocks.text}: too few to tell a spread")
    needed = student_t(blocks.count - 1) * float(gain.std() / blocks.count**0.5)
    kept = float(gain.mean()) > needed
    verb = "better" if kept else "not better"
    return Judgement(
        kept, share, f"{share:.2f} of the error, {verb} beyond the spread over {blocks.text} (± {needed:.2f})"
    )
