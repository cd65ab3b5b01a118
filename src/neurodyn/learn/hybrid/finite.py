# SPDX-License-Identifier: Apache-2.0
"""Refusal of roll-outs that are not finite: which world, which step, which quantity."""

import torch

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.interface import Trajectory
from neurodyn.learn.hybrid.windows import FitWindows


def require_finite_path(path: Trajectory, spec: StateSpec, windows: FitWindows) -> None:
    """Refuse roll-outs that are not finite.

    Raises:
        InputError: One is not; the message names the window, the frame and the quantity.
    """
    joined = torch.cat([path.q, path.qd], -1)
    bad = torch.nonzero(~torch.isfinite(joined))
    if not len(bad):
        return
    first = bad[bad[:, 1].argmin()]
    world, frame, column = (int(x) for x in first)
    names = [f"q.{name}" for name in spec.q_names] + [f"qd.{name}" for name in spec.qd_names]
    episode, start = (int(x) for x in windows.places[world])
    raise InputError(
        f"roll-out of world {world} (episode {episode}, from state {start} on) is not finite: {names[column]} at step "
        f"{frame}; valid: parameters, bounds or substeps with which the dynamics stay finite"
    )
