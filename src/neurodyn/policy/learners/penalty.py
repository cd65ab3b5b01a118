# SPDX-License-Identifier: Apache-2.0
"""Automatic choice of lambda: the model must be as certain of a policy as of the log's best episodes.

The reference is the smaller of two uncertainties of the model: one frame ahead on held-out episodes of its log, taken
from those that the policy imitates (`cloning.best_episodes`), and along the first policy in imagination. Lambda rises
while the policy's imagined frames are more uncertain than the reference, and falls while they are less. This is dual
ascent on the constraint

    mean of u along the policy <= min(mean of u along these episodes, mean of u along the first policy),

u = sum of epistemic / epistemic_scale, with lambda as its multiplier. Exploration noise is part of both sides and falls
as a policy learns. So policies are also evaluated without it, and one is kept only if the model is nearly as certain of
it as of the first. The mean of the weights of all kept policies is saved: it fails less often than the last of them.
Only model and log are used, no simulator and no second training.
"""

import math
from typing import Any

import torch

from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.data.windows import windows_along
from neurodyn.dynamics.batch import Control, Window
from neurodyn.dynamics.interface import Dynamics
from neurodyn.policy.learners.cloning import best_episodes

AUTO = "auto"
"""Setting that lets the model choose lambda."""

FIRST = 1.0
"""Initial lambda: weights of 1 were best where simulators could judge (arXiv 2504.16680)."""

TOLERANCE = 0.08
"""Tolerated excess uncertainty of a kept policy over the first, as a share; both evaluated without noise.

Of eleven policies from imagination in a model of ANYmal C, those within it fell as often as the first in a simulator (4
to 6 % of episodes), those beyond it two to five times as often (docs/benchmarks.md).
"""

_RATE = 1.0
"""Change of log(lambda) per update, for frames with twice the reference uncertainty."""
_LEAST, _MOST = 1e-2, 1e2
_WINDOWS = 2048


class CertaintyRule:
    """Rule that keeps a policy as certain as a log and as the first policy.

    Attributes:
        reference: Mean uncertainty of the log's held-out frames or of the first policy's, whichever is smaller.
        value: Lambda.
        kept: Number of kept policies after the first, whose weights were averaged.
    """

    def __init__(self, reference: float) -> None:
        self.reference, self.value, self.kept = reference, FIRST, 0
        self._first: list[float] = []
        self._most: float | None = None

    def watch(self, uncertainty: float) -> None:
        """Record the mean uncertainty of an update's frames while the first policy is frozen."""
        self._first.append(uncertainty)

    def release(self, played: float) -> None:
        """Limit later policies to the uncertainty of the first one, whose mean without noise is `played`.

        Its uncertainty in training is the mean over the later half of the recorded updates: worlds start in the log,
        with its noise.
        """
        later = self._first[len(self._first) // 2 :]
        self._first, self._most = [], (1.0 + TOLERANCE) * played
        if later:
            self.reference = min(self.reference, sum(later) / len(later))

    def certain(self, played: float) -> bool:
        """Return whether a policy's mean uncertainty without noise is near the first's; true before there is one."""
        return self._most is None or played <= self._most

    def state(self) -> dict[str, Any]:
        """Return the state of the rule."""
        return {
            "reference": self.reference, "value": self.value, "kept": self.kept, "first": list(self._first),
            "most": self._most,
        }  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        """Restore `state`."""
        self.reference, self.value, self.kept = state["reference"], state["value"], state["kept"]
        self._first, self._most = list(state["first"]), state["most"]

    def update(self, uncertainty: float) -> float:
        """Return the next lambda, from the mean uncertainty of the frames of an update."""
        excess = min(max(uncertainty / self.reference - 1.0, -1.0), 1.0)
        self.value = min(max(self.value * math.exp(_RATE * excess), _LEAST), _MOST)
        return self.value


def certainty_rule(dynamics: Dynamics, log: Store | Mixture | None, best: float = 1.0) -> CertaintyRule:
    """Return the penalty rule for a model and the imitated share `best` of its log; an InputError without a log."""
    if log is None:
        raise InputError("penalty is auto, which asks for the uncertainty on a log; valid here: a number, or --starts")
    return CertaintyRule(held_out_uncertainty(dynamics, log, best))


@torch.no_grad()
def held_out_uncertainty(dynamics: Dynamics, log: Store | Mixture, best: float = 1.0) -> float:
    """Return the mean one-frame uncertainty on validation episodes of a log, or of several weighted by their shares.

    Only the episodes with the highest mean reward that hold the share `best` of the frames count.

    Raises:
        InputError: No episode is as long as the model's warm-up.
    """
    mixture = Mixture.of(log)
    means = [_mean_uncertainty(dynamics, store, best) for store in mixture.stores]
    return sum(share * mean for share, mean in zip(mixture.shares, means, strict=True))


def _mean_uncertainty(dynamics: Dynamics, log: Store, best: float) -> float:
    context, scale = dynamics.spec.context, dynamics.epistemic_scale
    targets, means = dynamics.spec.control_kind != "torque", []
    for windows in windows_along(log, best_episodes(log, best, Split.VALIDATION), context, 1, _WINDOWS):
        batch = windows.to(dynamics.device)
        channels = None if batch.channels is None else batch.channels[:, : context + 1]
        past = Window(batch.q[:, : context + 1], batch.qd[:, : context + 1], batch.control[:, :context], channels)
        applied = batch.control[:, context]
        step = dynamics.step(
            dynamics.begin(past), past.present, Control(target=applied) if targets else Control(torque=applied)
        )[1]
        assert step.epistemic is not None  # of dynamics with uncertainty
        assert scale is not None
        means.append((step.epistemic / scale).sum(-1))
    if not means:
        raise InputError(
            f"no held-out episode of the log holds the {context} frames of the model's warm-up and one more"
        )
    return float(torch.cat(means).mean())
