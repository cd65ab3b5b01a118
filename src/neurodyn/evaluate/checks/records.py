# SPDX-License-Identifier: Apache-2.0
"""What checks of a robot return."""

import math
from typing import Any

import msgspec

from neurodyn.core.verdict import Grade, worst_grade
from neurodyn.evaluate.records import Result


class Finding(Result, frozen=True):
    """One row of a check.

    Attributes:
        what: What was measured, of what.
        verdict: "ok"; "warning", where a model can be learned but not the best one; "fails", where the simulator cannot
            be trusted.
        value: What was measured; None where it is not a number.
        unit: Unit of value and bound.
        bound: Value beyond which the verdict is not "ok"; None where there is none.
        note: What else there is to say, in a few words.
        advice: What to change in the declaration; empty where nothing is wrong.
    """

    what: str
    verdict: Grade
    value: float | None = None
    unit: str = ""
    bound: float | None = None
    note: str = ""
    advice: str = ""


class Figures(Result, frozen=True):
    """Numbers behind the rows of one check, a record for each check that has any."""


class CheckResult(Result, frozen=True):
    """One check: its rows, and the numbers behind them."""

    findings: list[Finding]
    figures: Figures | None = None


class RobotCheck(Result, frozen=True):
    """All checks of a robot's reference simulator.

    Attributes:
        robot: Name of the robot.
        ground: Name of the ground; None in free space.
        worlds: Worlds under random control.
        frames: Frames under random control.
        seed: Seed of states and torques.
        dt: Length of a frame [s].
        simulator: The declared simulator, by option.
        checks: The checks by name.
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
        """The worst verdict of all."""
        return worst_grade(finding.verdict for finding in self.findings)

    @property
    def findings(self) -> list[Finding]:
        """The rows of all checks."""
        return [finding for check in self.checks.values() for finding in check.findings]

    @property
    def failed(self) -> list[str]:
        """Names of the checks of which a row fails."""
        return [
            name for name, check in self.checks.items() if any(finding.verdict == "fails" for finding in check.findings)
        ]

    def plain(self) -> dict[str, Any]:
        """Return plain data, the verdict among them."""
        return {"verdict": self.verdict} | super().plain()


def judged(
    what: str,
    value: float | None,
    bounds: tuple[float, float],
    *,
    unit: str = "",
    scale: float = 1.0,
    note: str = "",
    advice: str = "",
) -> Finding:
    """Return the row of a value of which less is better.

    Args:
        what: What was measured.
        value: The value; None, or what is not finite, fails.
        bounds: Values above which there is a warning, and above which the check fails.
        unit: Unit in which value and bound are shown.
        scale: Factor from the value to that unit, as 100 for percent.
        note: What else there is to say.
        advice: What to change if it is not ok.
    """
    warns, fails = bounds
    known = None if value is None else finite(value)
    verdict: Grade = "fails" if known is None or known > fails else "warning" if known > warns else "ok"
    return Finding(
        what=what,
        verdict=verdict,
        value=None if known is None else scale * known,
        unit=unit,
        bound=finite(scale * warns),
        note=note,
        advice="" if verdict == "ok" else advice,
    )


def or_infinite(value: float | None) -> float:
    """Return a value to find the worst by: infinite where it is None."""
    return math.inf if value is None else value


def finite(value: float) -> float | None:
    """Return a number as JSON can hold it: None for what is not finite."""
    return value if math.isfinite(value) else None
