# SPDX-License-Identifier: Apache-2.0
"""Verdicts on checks, trainings and policies: whether a result is usable, why not, and what to do.

A check yields a finding: a grade with the measured reason and a next step. Findings combine to a verdict, written as
"ok" or "GRADE: WHAT; ADVICE" in the report, in JSON under `verdict`, with the findings that are not ok beside it under
`findings`, and at the end of a command's output, where each finding begins a line. A training whose verdict fails exits
with code 2.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from neurodyn.core.config import Record
from neurodyn.core.errors import InputError

Grade = Literal["ok", "warning", "fails"]
"""ok; warning: usable with care; fails: do not use."""

_ORDER: tuple[Grade, ...] = ("ok", "warning", "fails")

LEAST_STEPS = 100
"""Fewest steps of a useful training; fewer within a time budget give a warning."""

LEAST_EPISODES = 5
"""Training episodes below which results on held-out episodes do not generalise."""

LEAST_TRANSITIONS = 1000
"""Training transitions below which training a network is not worthwhile."""

EXPLOITED = 0.5
"""Relative difference of returns in model and reference above which a policy exploits its model."""

MOST_FAILED = 0.5
"""Fraction of failed episodes above which a policy or a planner cannot be used."""


_SHOWN = 3
"""Most findings that a written verdict names; the others are counted."""


class Finding(Record, frozen=True, kw_only=False):
    """Result of one check.

    Attributes:
        name: Name of the check, such as "bound" or "persistence".
        grade: The grade.
        what: The measured reason; empty for none.
        advice: Next step; empty for none.
    """

    name: str
    grade: Grade = "ok"
    what: str = ""
    advice: str = ""

    def __str__(self) -> str:
        return _sentence(self.grade, self.what, self.advice)


@dataclass(frozen=True)
class Verdict:
    """A grade with its reason and advice, of one check or combined of several."""

    grade: Grade = "ok"
    """The grade."""
    what: str = ""
    """Finding; empty for none."""
    advice: str = ""
    """What to do; empty for none."""

    def __str__(self) -> str:
        return _sentence(self.grade, self.what, self.advice)


def _sentence(grade: Grade, what: str, advice: str) -> str:
    told = "; ".join(part for part in (what, advice) if part)
    return f"{grade}: {told}" if told else grade


def grade_of(verdict: str) -> str:
    """Return the grade of a written verdict."""
    return verdict.partition(":")[0]


def require_usable(verdict: str, result: Path | None = None) -> None:
    """Raise an InputError if a written verdict fails; `result` is the path that the message names."""
    if grade_of(verdict) == "fails":
        raise InputError(f"{'' if result is None else f'{result}: '}verdict: {verdict}")


_NEXT = re.compile(r"; (?=(?:warning|fails): |and \d+ more$)")
"""Between two findings of a written verdict."""


def parts_of(verdict: str) -> list[str]:
    """Return the findings of a written verdict, in words, and last how many more there are."""
    return _NEXT.split(verdict)


def as_verdict(text: str) -> Verdict:
    """Parse a written verdict; its advice stays part of `what`."""
    grade, _, told = text.partition(":")
    grades: dict[str, Grade] = {one: one for one in _ORDER}
    return Verdict(grades.get(grade, "ok"), told.strip())


def percent(share: float) -> str:
    """Return a share in percent, a small one not rounded to nothing: "25%", "0.39%"."""
    return f"{100.0 * share:.{2 if share < 0.1 else 3}g}%"


def worst_grade(grades: Iterable[Grade]) -> Grade:
    """Return the worst grade; "ok" for none."""
    return _ORDER[max(map(_ORDER.index, grades), default=0)]


_Judged = TypeVar("_Judged", Verdict, Finding, "Verdict | Finding")


def doubts(findings: Iterable[_Judged]) -> list[_Judged]:
    """Return the findings that are not ok, worst first and otherwise in their order."""
    return sorted((one for one in findings if one.grade != "ok"), key=lambda one: -_ORDER.index(one.grade))


def combine_verdicts(verdicts: Iterable[Verdict | Finding]) -> Verdict:
    """Combine verdicts or findings: the worst grade, the worst ones that are not ok, and how many more there are."""
    known = doubts(verdicts)
    if not known:
        return Verdict()
    first, *others = known
    told = [first.advice, *map(str, others[: _SHOWN - 1])]
    if len(known) > _SHOWN:
        told.append(f"and {len(known) - _SHOWN} more")
    return Verdict(first.grade, first.what, "; ".join(part for part in told if part))


def of_steps(steps: int, least: int = LEAST_STEPS) -> Finding:
    """Judge the number of steps completed within a time budget."""
    if steps >= least:
        return Finding("steps")
    return Finding(
        "steps", "warning", f"only {steps} steps fitted into the budget, fewer than {least}",
        "give more --minutes, or smaller settings",
    )  # fmt: skip


def of_best_step(best: int, steps: int, *, adapted: bool) -> Finding:
    """Judge a training by the step of its best model; `adapted` if it started from a trained one."""
    if best or not steps:
        return Finding("best-step")
    if adapted:
        return Finding(
            "best-step", "warning", f"step 0 was best: none of {steps} steps improved on the model that it began from",
            "use that model, or give other data, a lower rate or a larger budget",
        )  # fmt: skip
    return Finding(
        "best-step", "warning",
        f"step 0 was best: none of {steps} steps improved on the first weights on held-out episodes",
        "give a larger budget or more data; neurodyn inspect shows what the data hold",
    )  # fmt: skip


def of_divergence(first: float, last: float, step: int, *, best: bool = True) -> Finding:
    """Judge a diverged training by the scores of its first and last validation; the kept model is from `step`.

    The kept model is usable if it is the best, and better than the start of the training.
    """
    usable = best and step > 0 and math.isfinite(last)
    return Finding(
        "divergence",
        "warning" if usable else "fails",
        f"the training diverged: its held-out score went from {first:.3g} to {last:.3g}",
        f"the model of step {step} is kept; give a lower rate, or look at the data (neurodyn inspect)",
    )


def of_rollouts(broken: float) -> Finding:
    """Judge the share of the kept model's held-out roll-outs that are not finite."""
    if not broken:
        return Finding("rollouts")
    if broken == 1.0:
        return Finding(
            "rollouts", "fails", "no held-out roll-out stays finite: the model is not trained far enough",
            "give more data or a larger budget",
        )  # fmt: skip
    return Finding(
        "rollouts",
        "warning",
        f"{percent(broken)} of the held-out roll-outs are not finite",
        "give more data or a larger budget",
    )


def of_skipped(skipped: int, steps: int, cause: str) -> Finding:
    """Judge steps skipped because their gradient was not finite."""
    if not skipped:
        return Finding("skipped")
    return Finding(
        "skipped", "fails", f"{skipped} of {steps} steps were left out because their gradient was not finite{cause}",
        "look for implausible values in the data (neurodyn inspect), or give a lower rate",
    )  # fmt: skip


def of_left_out(windows: int, fault: str) -> Finding:
    """Judge windows left out of batches because the model failed on them."""
    if not windows:
        return Finding("left-out")
    return Finding(
        "left-out",
        "warning",
        f"{windows} windows were left out of their batches ({fault})",
        "look at the data (neurodyn inspect)",
    )


def of_data(episodes: int, transitions: int) -> Finding:
    """Judge the amount of training data."""
    if episodes >= LEAST_EPISODES and transitions >= LEAST_TRANSITIONS:
        return Finding("data")
    return Finding(
        "data", "warning", f"the data hold little: {transitions:,} transitions in {episodes} training episodes",
        f"record more, at least {LEAST_TRANSITIONS:,} transitions in {LEAST_EPISODES} episodes",
    )  # fmt: skip


def of_persistence(mine: float | None, persistence: float | None, what: str) -> Finding:
    """Judge a mean error relative to that of the persistence baseline."""
    if mine is None:
        return Finding(
            "persistence", "fails", "no roll-out is finite", "train longer, or look at the data (neurodyn inspect)"
        )
    if persistence is None or mine < persistence:
        return Finding("persistence")
    return Finding(
        "persistence", "fails",
        f"the model is worse than persistence: {what} {mine:.3g}, persistence {persistence:.3g}",
        "train longer, give more data, or ask for shorter horizons",
    )  # fmt: skip


def of_faults(fault: str, worlds: int, of: int) -> Finding:
    """Judge roll-outs, some of which became implausible."""
    if not worlds:
        return Finding("faults")
    grade: Grade = "fails" if worlds > 0.05 * of else "warning"
    return Finding("faults", grade, fault, "give training data of such motion, or ask for shorter horizons")


def of_bounds(mode: str, share: float, frames: int, first: str) -> Finding:
    """Judge the fraction of long roll-outs that stay within plausible bounds."""
    if share >= 1.0:
        return Finding("bounds")
    what = f"{1 - share:.2%} of {mode} roll-outs leave bounds in {frames:,} frames"
    return Finding(
        "bounds", "warning" if share > 0.95 else "fails", what,
        f"first: {first}; train with longer forecasts, or on data of such motion",
    )  # fmt: skip


def of_returns(imagined: float, real: float, reference: str) -> Finding:
    """Judge a return in a model relative to that in a reference."""
    gap = abs(imagined - real) / max(abs(imagined), abs(real), 1e-12)
    if gap <= EXPLOITED or real > imagined:
        return Finding("returns")
    return Finding(
        "returns", "fails",
        f"{reference} contradicts the imagined return: {real:.4g} instead of {imagined:.4g}, {gap:.0%} apart",
        "the policy exploits its model; give a penalty (--penalty), a better model, or neurodyn policy online",
    )  # fmt: skip


MOST_REFUSED = 0.1
"""Share of refused starts or decisions above which a model is not for this motion; on known runs 1 to 2 % are."""


def of_refused(share: float, what: str) -> Finding:
    """Judge the share of starts or decisions that a model refuses; `what` names them."""
    if share <= MOST_REFUSED:
        return Finding("refused")
    return Finding(
        "refused", "warning",
        f"the model refuses {share:.0%} of the {what}: they lie outside of its training data",
        "log such motion and go on training (neurodyn finetune); errors and bands are those of other motion",
    )  # fmt: skip


def of_failed(share: float, what: str, advice: str, *, grade: Grade = "fails") -> Finding:
    """Judge the fraction of failed episodes; `what` completes "60% of episodes ..."."""
    if share <= MOST_FAILED:
        return Finding("failed")
    return Finding("failed", grade, f"{share:.0%} of episodes {what}", advice)


def of_fallbacks(times: int, of: int, what: str, advice: str) -> Finding:
    """Judge decisions without a solution, where the previous one was kept: any is a warning, more than 5 % fail."""
    if not times:
        return Finding("fallbacks")
    grade: Grade = "fails" if times > 0.05 * of else "warning"
    return Finding(
        "fallbacks",
        grade,
        f"{times:,} of {of:,} decisions ({times / of:.1%}) found no {what}, and kept the last one",
        advice,
    )


_LOSES = 1.05
"""Ratio of errors above which a model loses to a rival at a horizon."""


def of_horizons(
    mine: Sequence[float | None], theirs: Sequence[float | None], seconds: Sequence[float], *, rival: str,
    what: str | Sequence[str], grade: Grade = "fails",
    advice: str = "trust the horizons at which it is not, and see what is unexplained there",
) -> Finding:  # fmt: skip
    """Judge mean errors at some horizons [s] beside those of a rival; one of no finite roll-out loses.

    `what` names the errors, or those of each horizon. `grade` is that of losing at all horizons; losing at some of them
    is a warning.
    """
    name = rival.removeprefix("the ").replace(" ", "-")
    whats = [what] * len(seconds) if isinstance(what, str) else what
    lost = [
        (s, told, a, b)
        for s, told, a, b in zip(seconds, whats, mine, theirs, strict=True)
        if b is not None and (a is None or a > _LOSES * b)
    ]
    if not lost:
        return Finding(name)
    everywhere = len(lost) == len(seconds)
    (s, told, a, b), when = (
        lost[-1],
        "at all horizons" if everywhere else f"{', '.join(f'{s:.2g}' for s, *_ in lost)} s ahead",
    )
    return Finding(
        name, grade if everywhere else "warning",
        f"{rival} is better {when}: {told} {b:.3g} instead of {'none finite' if a is None else f'{a:.3g}'} at "
        f"{s:.2g} s",
        advice,
    )  # fmt: skip
