# SPDX-License-Identifier: Apache-2.0
"""All checks of a robot (can its reference simulator be learned from?), and what they return."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from neurodyn.core.config import to_dict
from neurodyn.core.description.drive import require_simulated
from neurodyn.core.errors import InputError
from neurodyn.core.progress import stage
from neurodyn.core.registry import Registry
from neurodyn.core.verdict import Grade, worst_grade
from neurodyn.evaluate.checks.subject import Subject
from neurodyn.evaluate.records import Result
from neurodyn.evaluate.rollouts import SEED
from neurodyn.learn.devices import threads as torch_threads
from neurodyn.robots import Robot, load


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


WORLDS, FRAMES = 128, 250

Check = Callable[[Subject], CheckResult]

_ROOM = "neurodyn.evaluate.checks"
CHECKS: Registry[Check] = Registry(
    "check",
    asset=f"{_ROOM}.declaration:check_asset",
    size=f"{_ROOM}.declaration:check_size",
    convergence=f"{_ROOM}.convergence:check_convergence",
    joint_limits=f"{_ROOM}.joint_limits:check_joint_limits",
    random_control=f"{_ROOM}.random_control:check_random_control",
    rest=f"{_ROOM}.passive:check_rest",
    passive_energy=f"{_ROOM}.passive:check_passive_energy",
    engine_agreement=f"{_ROOM}.convergence:check_engine_agreement",
    speed=f"{_ROOM}.declaration:check_speed",
)
"""Checks by name, in the order in which they are shown."""


def check(
    robot: Robot | str | Path,
    *,
    ground: str | None = None,
    worlds: int = WORLDS,
    frames: int = FRAMES,
    seed: int = SEED,
    device: str = "cpu",
    threads: int = 1,
) -> RobotCheck:
    """Measure whether a robot's reference simulator can be learned from.

    Args:
        robot: A robot, its name, or the path of its declaration.
        ground: Name of one of its grounds, or a file with a scene; None for the grounds that it declares.
        worlds: Worlds under random control; other checks take up to `subject.FEW` of them.
        frames: Frames under random control, and the longest horizon of convergence.
        seed: Seed of states and torques.
        device: Device of the simulator: "cpu", "cuda:0" ...
        threads: Threads of tensor operations.

    Raises:
        InputError: There is no such robot or ground, the robot cannot be built or sampled, or a number is below 1.
    """
    for name, value in (("worlds", worlds), ("frames", frames), ("threads", threads)):
        if value < 1:
            raise InputError(f"{name} is {value}; valid: at least 1")
    declared = robot if isinstance(robot, Robot) else load(robot)
    require_simulated(declared.drives, declared.name)
    subject = Subject(declared, ground, worlds, frames, seed, device)
    _ = subject.scenario, subject.model  # what cannot be built at all is refused in one line
    subject.draw("states", 1)
    found = {}
    with torch_threads(threads):
        for number, name in enumerate(CHECKS):
            with stage(number / len(CHECKS), (number + 1) / len(CHECKS), name.replace("_", " ")):
                found[name] = _run(CHECKS[name], subject)
    return RobotCheck(
        robot=declared.name, ground=subject.scenario.name, worlds=worlds, frames=frames, seed=seed, dt=declared.dt,
        simulator=to_dict(declared.simulator), checks=found,
    )  # fmt: skip


def _run(check: Check, subject: Subject) -> CheckResult:
    """Run one check; what is refused on the way, as states in which a robot cannot be, is a row that fails."""
    try:
        return check(subject)
    except InputError as error:
        return CheckResult(findings=[Finding(what="cannot be measured", verdict="fails", advice=str(error))])


_WORLDS, _FRAMES = 16, 60


def why_refused(robot: Robot) -> str | None:
    """Return in a line which checks a robot's simulator fails in few worlds; None where it fails none."""
    result = check(robot, worlds=_WORLDS, frames=_FRAMES)
    if not result.failed:
        return None
    advice = [
        finding.advice
        for name in result.failed
        for finding in result.checks[name].findings
        if finding.verdict == "fails" and finding.advice
    ]
    return f"check fails ({', '.join(name.replace('_', ' ') for name in result.failed)}): {'; '.join(advice)}"
