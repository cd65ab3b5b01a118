# SPDX-License-Identifier: Apache-2.0
"""What the online loop found, round by round, and what follows from it."""

from pathlib import Path
from typing import Any

import msgspec

from neurodyn.control.returns import Returns
from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.core.records import Record
from neurodyn.core.verdict import EXPLOITED, Verdict


class FittedModel(Record, frozen=True):
    """The model of a round: its run directory, and the processor time of its fit since it last went on [s]."""

    run: str
    cpu_seconds: float


class TrainedPolicy(Record, frozen=True):
    """The policy of a round: its folder, frames in the model and processor time of its training [s]."""

    folder: str
    frames: int
    cpu_seconds: float


class LoggedPolicy(Record, frozen=True):
    """What the policy did in the reference.

    Attributes:
        path: The log.
        frames: Frames that were simulated for it.
        returns: Without noise on its actions.
        noisy: With it.
        cpu_seconds: Processor time [s].
    """

    path: str
    frames: int
    returns: Returns
    noisy: Returns
    cpu_seconds: float


class Comparison(Record, frozen=True):
    """The policy in its model, and the model on the policy's log, which it has not seen.

    Attributes:
        returns: Without noise on its actions.
        model_error: Error of its forecasts beside persistence (`measure.model_error`).
    """

    returns: Returns
    model_error: float | None


class Round(Record, frozen=True):
    """One round; steps that are not done are None.

    Attributes:
        number: The round, from 1.
        model: The model that the policy was trained in.
        policy: The policy.
        log: What it did in the reference.
        measured: The same in the model.
    """

    number: int
    model: FittedModel | None = None
    policy: TrainedPolicy | None = None
    log: LoggedPolicy | None = None
    measured: Comparison | None = None

    @property
    def imagined(self) -> Returns:
        """Returns in the model."""
        assert self.measured is not None
        return self.measured.returns

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
    """What the loop came to.

    Attributes:
        task: Name of the task.
        kind: Kind of the model.
        dynamics: What it began from: "new", or a run.
        reference: What was logged.
        first_frames: Frames of random data, and of data that were given.
        frames: Frames of the reference in all.
        rounds: The rounds.
        best: Number of the round whose policy returns most in the reference, which is the one that is kept.
        settled: Whether the loop ended because model and reference agree and no more is gained.
        verdict: Conclusion, as of `core.verdict`.
        cpu_seconds: Processor time of all steps [s].
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


def best_of(rounds: list[Round]) -> Round:
    """Return the round whose policy returns most in the reference."""
    return max(rounds, key=lambda one: one.real.mean)


def settled(rounds: list[Round], tolerance: float, patience: int = 1) -> bool:
    """Return whether to stop: the last returns agree, and no more is gained.

    Args:
        rounds: The rounds so far.
        tolerance: Relative difference up to which returns agree, and gain up to which a round brought no progress.
        patience: Rounds that have to go by without progress; what came before them is what they are compared with.
    """
    if len(rounds) <= patience or rounds[-1].gap > tolerance:
        return False
    before, since = best_of(rounds[:-patience]).real.mean, best_of(rounds[-patience:]).real.mean
    return since <= before + tolerance * abs(before)


def verdict(rounds: list[Round], tolerance: float, reference: str) -> str:
    """Return what there is to say of the best policy, in a sentence."""
    best = best_of(rounds)
    found = (
        f"the policy of round {best.number} returns {best.real.mean:.4g} in {reference} and "
        f"{best.imagined.mean:.4g} in its model, {best.gap:.1%} apart"
    )
    more = "give more rounds or frames, or a better model"
    if best.real.failed == 1.0 and best.imagined.failed < 1.0:
        return str(Verdict("fails", f"{found}, and every episode in {reference} fails", more))
    if best.gap > EXPLOITED:
        return str(Verdict("fails", f"{found}: it exploits its model", more))
    if best.gap > tolerance:
        return str(Verdict("warning", f"{found}, more than {tolerance:.0%}", more))
    return str(Verdict("ok", f"{found}, within {tolerance:.0%}"))


def read_round(path: Path, number: int) -> Round:
    """Return what is recorded of a round; nothing yet where there is no file.

    Raises:
        InputError: The file is malformed.
    """
    if not path.is_file():
        return Round(number=number)
    data: Any = artifacts.read_json(path)
    try:
        return msgspec.convert(data, Round)
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path}: not the record of a round ({error}); remove its folder to make the round anew"
        ) from None
