# SPDX-License-Identifier: Apache-2.0
"""Checks of whether a model can be learned from a robot's reference simulator."""

import math
from collections.abc import Callable
from typing import Any

import msgspec

from neurodyn.core.config import to_dict
from neurodyn.core.description.drive import require_simulated
from neurodyn.core.errors import InputError
from neurodyn.core.progress import stage
from neurodyn.core.registry import Registry
from neurodyn.core.requests import accepts_request
from neurodyn.core.verdict import Grade, worst_grade
from neurodyn.evaluate.checks.subject import Subject
from neurodyn.evaluate.records import Result
from neurodyn.evaluate.requests import CheckRequest
from neurodyn.evaluate.run import open_robot_log
from neurodyn.learn.devices import threads as torch_threads
from neurodyn.robots import Robot, load

_ROOM = "neurodyn.evaluate.checks"
_WORLDS, _FRAMES = 16, 60


class Finding(Result, frozen=True):
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

    findings: list[Finding]
    figures: Figures | None = None


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
    def findings(self) -> list[Finding]:
        """The rows of all checks."""
        return [finding for check in self.checks.values() for finding in check.findings]

    @property
    def failed(self) -> list[str]:
        """Names of the checks with a row that fails."""
        return [
            name for name, check in self.checks.items() if any(finding.verdict == "fails" for finding in check.findings)
        ]

    def plain(self) -> dict[str, Any]:
        """Return plain data, including the verdict."""
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
    """Return the row for a value that should be small; None or a non-finite value fails.

    `bounds` are the values above which the verdict is "warning" and "fails"; `scale` converts the value to `unit`, for
    example 100 for percent. Advice is dropped if the verdict is "ok".
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
    """Return a value for comparison: infinity for None."""
    return math.inf if value is None else value


def finite(value: float) -> float | None:
    """Return a number for JSON; None if it is not finite."""
    return value if math.isfinite(value) else None


Check = Callable[[Subject], CheckResult]

CHECKS: Registry[Check] = Registry(
    "check",
    asset=f"{_ROOM}.declaration:check_asset",
    size=f"{_ROOM}.declaration:check_size",
    convergence=f"{_ROOM}.motion:check_convergence",
    joint_limits=f"{_ROOM}.joint_limits:check_joint_limits",
    random_control=f"{_ROOM}.motion:check_random_control",
    rest=f"{_ROOM}.motion:check_rest",
    passive_energy=f"{_ROOM}.motion:check_passive_energy",
    engine_agreement=f"{_ROOM}.motion:check_engine_agreement",
    speed=f"{_ROOM}.declaration:check_speed",
    log=f"{_ROOM}.declaration:check_log",
)
"""Checks by name, in the order of display."""


@accepts_request(CheckRequest)
def check(request: CheckRequest) -> RobotCheck:
    """Check whether a model can be learned from a robot's reference simulator.

    Raises:
        InputError: There is no such robot, ground or log, the robot cannot be built or sampled, or a number is below 1.
    """
    return _checked(request, tuple(CHECKS))


def _checked(request: CheckRequest, names: tuple[str, ...]) -> RobotCheck:
    """Run some of the checks; errors: see `check`."""
    for name in ("worlds", "frames", "threads"):
        if (value := getattr(request, name)) < 1:
            raise InputError(f"{name} is {value}; valid: at least 1")
    robot = request.robot if isinstance(request.robot, Robot) else load(request.robot)
    require_simulated(robot.drives, robot.name)
    subject = Subject(robot, request.ground, request.worlds, request.frames, request.seed, request.device, request.data)
    if request.data is not None:
        open_robot_log(robot, request.data)  # refused before any check
    _ = subject.scenario, subject.built  # refuse a robot that cannot be built before any check
    subject.draw("states", 1)
    results = {}
    with torch_threads(request.threads):
        for number, name in enumerate(names):
            with stage(number / len(names), (number + 1) / len(names), name.replace("_", " ")):
                results[name] = _run(CHECKS[name], subject)
    return RobotCheck(
        robot=robot.name, ground=subject.scenario.name, worlds=request.worlds, frames=request.frames,
        seed=request.seed, dt=robot.dt, simulator=to_dict(robot.simulator), checks=results,
    )  # fmt: skip


def _run(check: Check, subject: Subject) -> CheckResult:
    """Run one check; an InputError, as for states that the robot cannot reach, becomes a row that fails."""
    try:
        return check(subject)
    except InputError as error:
        return CheckResult(findings=[Finding(what="cannot be measured", verdict="fails", advice=str(error))])


_SLOW = ("engine_agreement", "speed")
"""Checks that do not test the simulator's own settings, and are slow or compile the robot."""


def why_refused(robot: Robot) -> str | None:
    """Return a line on the checks that a robot's simulator fails, run in few worlds; None if it passes.

    Its agreement with the hybrid engine and its speed are left to `check`.
    """
    request = CheckRequest(robot, worlds=_WORLDS, frames=_FRAMES)
    result = _checked(request, tuple(name for name in CHECKS if name not in _SLOW))
    if not result.failed:
        return None
    advice = [
        finding.advice
        for name in result.failed
        for finding in result.checks[name].findings
        if finding.verdict == "fails" and finding.advice
    ]
    return f"check fails ({', '.join(name.replace('_', ' ') for name in result.failed)}): {'; '.join(advice)}"
