# SPDX-License-Identifier: Apache-2.0
"""Results of the online loop, round by round.

Returns, the model's error on the policy's log, and the verdict from both.
"""

from pathlib import Path
from typing import Any, get_args

import msgspec
import torch
from msgspec import UNSET, UnsetType

from neurodyn.control.returns import Returns
from neurodyn.core import artifacts
from neurodyn.core.config import Record
from neurodyn.core.errors import InputError
from neurodyn.core.verdict import EXPLOITED, Grade, Verdict, as_verdict
from neurodyn.data.readers.floating import UNMEASURED
from neurodyn.data.store import Store
from neurodyn.data.windows import all_windows
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.measures import PERSISTENCE
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import recorded_environments, roll_along, truth_of
from neurodyn.policy.trust.support import PolicySupport


class FittedModel(Record, frozen=True):
    """The model of a round: its run directory, CPU time of its fit since the last resume [s], and caveat.

    `calibrated` is the run of the copy that judges policies; UNSET without one.
    """

    run: str
    cpu_seconds: float
    calibrated: str | UnsetType = UNSET
    caveat: str | UnsetType = UNSET


class TrainedPolicy(Record, frozen=True):
    """The policy of a round: its folder, frames in the model and CPU time of its training [s].

    `updates` of `of_updates` were done, all or until the imagined return was no longer supported; `support` is the
    evidence for the last evaluated policy (`policy.trust.support`), UNSET if there is none.
    """

    folder: str
    frames: int
    cpu_seconds: float
    updates: int | UnsetType = UNSET
    of_updates: int | UnsetType | None = UNSET
    support: PolicySupport | UnsetType = UNSET

    @property
    def stopped(self) -> bool:
        """Whether training ended early, because the policy exploited its model."""
        return bool(self.support) and self.support is not UNSET and self.support.exploits


class LoggedPolicy(Record, frozen=True):
    """The log of a policy in the reference: simulated frames, returns without and with action noise, CPU time [s]."""

    path: str
    frames: int
    returns: Returns
    noisy: Returns
    cpu_seconds: float


class PolicyComparison(Record, frozen=True):
    """Returns of the policy in its model, without noise, and `model_error` on the policy's log, unseen in training.

    `finite_fraction` is the share of the model's forecasts along the log that are finite; UNSET if all are.

    If a calibrated copy judges, `returns` are those in the copy, and `uncalibrated` those in the model itself.
    """

    returns: Returns
    model_error: float | None
    uncalibrated: Returns | UnsetType = UNSET
    finite_fraction: float | UnsetType = UNSET


class Round(Record, frozen=True):
    """One round, numbered from 1; steps that are not done are None."""

    number: int
    model: FittedModel | None = None
    policy: TrainedPolicy | None = None
    log: LoggedPolicy | None = None
    measured: PolicyComparison | None = None

    @property
    def imagined(self) -> Returns:
        """Returns in the model."""
        assert self.measured is not None
        return self.measured.returns

    @property
    def uncalibrated(self) -> Returns | None:
        """Returns in the policy's training model, if a calibrated copy judges."""
        assert self.measured is not None
        return self.measured.uncalibrated or None

    @property
    def model_error(self) -> float | None:
        """Error of the model's forecasts, relative to persistence."""
        assert self.measured is not None
        return self.measured.model_error

    @property
    def real(self) -> Returns:
        """Returns in the reference, without noise."""
        assert self.log is not None
        return self.log.returns

    @property
    def gap(self) -> float:
        """Difference of the mean returns in model and reference, as a share of the larger of the two."""
        a, b = self.imagined.mean, self.real.mean
        return abs(a - b) / max(abs(a), abs(b), 1e-12)

    @property
    def frames(self) -> int:
        """Frames of the reference in this round."""
        return 0 if self.log is None else self.log.frames


class OnlineResult(Record, frozen=True):
    """Result of the loop.

    Attributes:
        dynamics: First model: "new", or a run.
        reference: Dynamics that were logged.
        first_frames: Frames of random and given data.
        frames: Total frames of the reference.
        best: Number of the round whose policy has the highest return in the reference; that policy is kept.
        settled: Whether the loop ended because model and reference agree and progress stopped.
        verdict: Conclusion, see `core.verdict`.
        cpu_seconds: CPU time of all steps [s].
    """

    task: str
    kind: str
    dynamics: str
    reference: str
    first_frames: int
    frames: int
    rounds: list[Round]
    best: int
    settled: bool
    verdict: str
    cpu_seconds: float


class SharedResult(Record, frozen=True):
    """Result of several loops that share a model.

    Attributes:
        tasks: Result of each loop by task.
        frames: Total frames of the reference, of all tasks.
        cpu_seconds: CPU time of all steps [s].
        verdict: The worst of the loops' verdicts, with its task.
    """

    tasks: dict[str, OnlineResult]
    frames: int
    cpu_seconds: float
    verdict: str

    @classmethod
    def of(cls, results: dict[str, OnlineResult]) -> "SharedResult":
        """Return the result of loops by task."""
        first = next(iter(results.values())).first_frames
        grades: tuple[str, ...] = get_args(Grade)  # from the best to the worst
        worst = max(results, key=lambda name: grades.index(as_verdict(results[name].verdict).grade))
        return cls(
            results, first + sum(one.frames - first for one in results.values()),
            sum(one.cpu_seconds for one in results.values()), f"{results[worst].verdict} ({worst})",
        )  # fmt: skip


def best_of(rounds: list[Round]) -> Round:
    """Return the round whose policy has the highest return in the reference."""
    return max(rounds, key=lambda one: one.real.mean)


def has_settled(rounds: list[Round], tolerance: float, patience: int = 1) -> bool:
    """Return whether to stop: the last returns agree, and the last `patience` rounds made no progress.

    `tolerance` is the relative difference up to which returns agree, and the relative gain up to which there is no
    progress.
    """
    if len(rounds) <= patience or rounds[-1].gap > tolerance:
        return False
    before, since = best_of(rounds[:-patience]).real.mean, best_of(rounds[-patience:]).real.mean
    return since <= before + tolerance * abs(before)


def verdict(rounds: list[Round], tolerance: float, reference: str, *, simulated: bool = False) -> str:
    """Return the verdict on the best policy, in a sentence.

    `simulated` says that the reference is the declared simulator while the model was made from logs of the robot: then
    a gap between the two is not the model's fault.
    """
    best = best_of(rounds)
    text = (
        f"the policy of round {best.number} returns {best.real.mean:.4g} in {reference} and "
        f"{best.imagined.mean:.4g} in its model, {best.gap:.1%} apart"
    )
    more = "give more rounds or frames, or a better model"
    if best.real.failed == 1.0 and best.imagined.failed < 1.0 and not simulated:
        return str(Verdict("fails", f"{text}, and every episode in {reference} fails", more))
    if best.gap > EXPLOITED and simulated:
        why = "the model knows logs of the robot, and the reference is its declared simulator"
        return str(Verdict("warning", f"{text}: {why}", "let the policy act on the robot"))
    if best.gap > EXPLOITED:
        return str(Verdict("fails", f"{text}: it exploits its model", more))
    if best.gap > tolerance:
        return str(Verdict("warning", f"{text}, more than {tolerance:.0%}", more))
    return str(Verdict("ok", f"{text}, within {tolerance:.0%}"))


def read_round(path: Path, number: int) -> Round:
    """Return the recorded steps of a round; none if there is no file. An InputError names a malformed file."""
    if not path.is_file():
        return Round(number=number)
    data: Any = artifacts.read_json(path)
    try:
        return msgspec.convert(data, Round)
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path}: not the record of a round ({error}); remove its folder to repeat the round"
        ) from None


SECONDS = 0.25
"""Length of a forecast [s]."""

_MOST = 1024


@torch.no_grad()
def model_error(model: Dynamics, log: Store) -> tuple[float | None, float]:
    """Return the error of a model's forecasts of `SECONDS` along a log, relative to persistence.

    Mean over velocities of the mean absolute error at the end of a forecast, each divided by that of the persistence
    baseline: 0 for a perfect model, 1 for one no better than constant velocities.

    Returns:
        The error of the finite forecasts, and their share; (None, 1.0) if no episode is long enough, nothing moves or
        the base is unmeasured, and (None, 0.0) if no forecast is finite.
    """
    if log.header.base == UNMEASURED:
        return None, 1.0
    frames, context = max(1, round(SECONDS / model.spec.dt)), model.spec.context
    if int(log.lengths.max()) < context + frames:
        return None, 1.0
    environments, errors, still, finite = recorded_environments(log, model), [], [], []
    for batch in all_windows(log, context + frames, stride=max(1, log.transitions // _MOST)):
        windows = batch.after(context)
        compared = RolloutErrors(model.spec, roll_along(model, windows, environments), truth_of(windows))
        finite.append(compared.finite)
        errors.append(compared.velocities[compared.finite, -1].abs())
        still.append(compared.baseline(PERSISTENCE).velocities[:, -1].abs())
    share, baseline = float(torch.cat(finite).double().mean()), torch.cat(still).double().mean(0)
    moves = baseline > 0
    if not share or not bool(moves.any()):
        return None, share
    return float((torch.cat(errors).double().mean(0)[moves] / baseline[moves]).mean()), share
