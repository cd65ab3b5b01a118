# SPDX-License-Identifier: Apache-2.0
"""Results of checks: rows and measurements."""

import math
from typing import Any

import msgspec

from neurodyn.core.verdict import Grade, worst_grade
from neurodyn.evaluate.records import Result


class CheckFinding(Result, frozen=True):
    """One row of a check.

    Attributes:
        what: The measured quantity.
        verdict: "ok"; "warning" if a model can be learned, but not the best possible; "fails" if the simulator is
            wrong.
        value: Measured value; None if not finite.
        unit: Unit of value and bound.
        bound: Value above which the verdict is not "ok"; None without one.
        note: Details in a few words.
        advice: What to change in the declaration; empty if nothing is wrong.
    """

    what: str
    verdict: Grade
    value: float | None = None
    unit: str = ""
    bound: float | None = None
    note: str = ""
    advice: str = ""


class Figures(Result, frozen=True):
    """Measurements of one check; base class of a record for each check."""


class CheckResult(Result, frozen=True):
    """Rows and measurements of one check."""

    findings: list[CheckFinding]
    figures: Figures | None = None

    @property
    def fails(self) -> bool:
        """Whether a row fails."""
        return any(finding.verdict == "fails" for finding in self.findings)


class RobotCheck(Result, frozen=True):
    """Results of all checks of a robot's reference simulator.

    Attributes:
        robot: Name of the robot.
        ground: Name of the ground; None in free space.
        worlds: Worlds under random control.
        frames: Frames under random control.
        seed: Seed of states and torques.
        dt: Frame time [s].
        simulator: Options of the declared simulator.
        checks: Results by name.
    """

    robot: str
    ground: str | None
    worlds: int
    frames: int
    seed: int
    dt: float
    simulator: dict[str, str | int | dict[str, float] | None]
    checks: dict[str, CheckResult] = msgspec.field(default_factory=dict)

    @property
    def verdict(self) -> Grade:
        """The worst verdict."""
        return worst_grade(finding.verdict for finding in self.findings)

    @property
    def findings(self) -> list[CheckFinding]:
        """The rows of all checks."""
        return [finding for check in self.checks.values() for finding in check.findings]

    @property
    def failed(self) -> list[str]:
        """Names of the checks with a row that fails."""
        return [name for name, check in self.checks.items() if check.fails]

    def plain(self) -> dict[str, Any]:
        """Return plain data, including the verdict."""
        return {"verdict": self.verdict} | super().plain()


def no_fault(what: str) -> CheckResult:
    """Return a result of one row with nothing to complain about."""
    return CheckResult(findings=[CheckFinding(what=what, verdict="ok")])


def rate(
    what: str,
    value: float | None,
    bounds: tuple[float, float],
    *,
    unit: str = "",
    scale: float = 1.0,
    note: str = "",
    advice: str = "",
) -> CheckFinding:
    """Return the row for a value that should be small; None or a non-finite value fails.

    `bounds` are the values above which the verdict is "warning" and "fails"; `scale` converts the value to `unit`, for
    example 100 for percent. Advice is dropped if the verdict is "ok".
    """
    warns, fails = bounds
    known = None if value is None else finite(value)
    verdict: Grade = "fails" if known is None or known > fails else "warning" if known > warns else "ok"
    return CheckFinding(
        what=what,
        verdict=verdict,
        value=None if known is None else scale * known,
        unit=unit,
        bound=finite(scale * warns),
        note=note,
        advice="" if verdict == "ok" else advice,
    )


def or_infinite(value: float | None) -> float:
    """Return a value for comparison: infinity for None."""
    return math.inf if value is None else value


def finite(value: float) -> float | None:
    """Return a number for JSON; None if it is not finite."""
    return value if math.isfinite(value) else None
