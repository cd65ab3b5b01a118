# SPDX-License-Identifier: Apache-2.0
"""Checks of whether a model can be learned from a robot's reference simulator."""

from collections.abc import Callable

from neurodyn.core.config import to_dict
from neurodyn.core.description.drive import require_simulated
from neurodyn.core.errors import InputError
from neurodyn.core.progress import stage
from neurodyn.core.registry import Registry
from neurodyn.core.requests import accepts_request
from neurodyn.evaluate.checks import declaration, motion
from neurodyn.evaluate.checks.findings import CheckFinding, CheckResult, RobotCheck
from neurodyn.evaluate.checks.joint_limits import check_joint_limits
from neurodyn.evaluate.checks.subject import Subject
from neurodyn.evaluate.requests import CheckRequest
from neurodyn.evaluate.run import open_robot_log
from neurodyn.learn.devices import threads as torch_threads
from neurodyn.robots import Robot, load

_WORLDS, _FRAMES = 16, 60


Check = Callable[[Subject], CheckResult]

CHECKS: Registry[Check] = Registry(
    "check",
    asset=declaration.check_asset,
    size=declaration.check_size,
    convergence=motion.check_convergence,
    joint_limits=check_joint_limits,
    random_control=motion.check_random_control,
    rest=motion.check_rest,
    passive_energy=motion.check_passive_energy,
    engine_agreement=motion.check_engine_agreement,
    speed=declaration.check_speed,
    log=declaration.check_log,
)
"""Checks by name, in the order of display."""


@accepts_request(CheckRequest)
def check(request: CheckRequest) -> RobotCheck:
    """Check whether a model can be learned from a robot's reference simulator.

    Raises:
        InputError: There is no such robot, ground or log, the robot cannot be built or sampled, or a number is below 1.
    """
    return _run_checks(request, tuple(CHECKS))


def _run_checks(request: CheckRequest, names: tuple[str, ...], *, until_failure: bool = False) -> RobotCheck:
    for name in ("worlds", "frames", "threads"):
        if (value := getattr(request, name)) < 1:
            raise InputError(f"{name} is {value}; valid: at least 1")
    robot = request.robot if isinstance(request.robot, Robot) else load(request.robot)
    require_simulated(robot.drives, robot.name)
    subject = Subject(
        robot, request.ground, request.worlds, request.frames, request.seed, request.device, request.data, until_failure
    )
    if request.data is not None:
        open_robot_log(robot, request.data)  # refused before any check
    _ = subject.scenario, subject.built  # refuse a robot that cannot be built before any check
    subject.draw("states", 1)
    results = {}
    with torch_threads(request.threads):
        for number, name in enumerate(names):
            with stage(number / len(names), (number + 1) / len(names), name.replace("_", " ")):
                results[name] = _run_one(CHECKS[name], subject)
            if until_failure and results[name].fails:
                break
    return RobotCheck(
        robot=robot.name, ground=subject.scenario.name, worlds=request.worlds, frames=request.frames,
        seed=request.seed, dt=robot.dt, simulator=to_dict(robot.simulator), checks=results,
    )  # fmt: skip


def _run_one(check: Check, subject: Subject) -> CheckResult:
    """Run one check; an InputError, as for states that the robot cannot reach, becomes a row that fails."""
    try:
        return check(subject)
    except InputError as error:
        return CheckResult(findings=[CheckFinding(what="cannot be measured", verdict="fails", advice=str(error))])


_SLOW = ("engine_agreement", "speed")
"""Checks that do not test the simulator's own settings, and are slow or compile the robot."""
_LONG = "rest"
"""The check that takes as long as all others: seconds on every ground."""


class Acceptance:
    """Judges variants of one robot's simulator in few worlds.

    Its agreement with the hybrid engine and its speed are left to `check`. Of further variants, the checks that the
    first one failed come first, the long one last, and the first failure decides.
    """

    def __init__(self) -> None:
        """Judge the first variant by all checks."""
        self._failed: list[str] | None = None

    def __call__(self, robot: Robot) -> str | None:
        """Return a line on the checks that a robot's simulator fails; None if it passes."""
        names = [name for name in CHECKS if name not in _SLOW]
        request = CheckRequest(robot, worlds=_WORLDS, frames=_FRAMES)
        failed = self._failed
        if failed is not None:
            names.sort(key=lambda name: (name not in failed, name == _LONG))
        result = _run_checks(request, tuple(names), until_failure=failed is not None)
        if failed is None:
            self._failed = result.failed
        return _refusal(result)


def _refusal(result: RobotCheck) -> str | None:
    """Return a line on the checks that failed, with each advice once; None if none did."""
    if not result.failed:
        return None
    advice = [
        finding.advice
        for name in result.failed
        for finding in result.checks[name].findings
        if finding.verdict == "fails" and finding.advice
    ]
    names = ", ".join(name.replace("_", " ") for name in result.failed)
    return f"check fails ({names}): {'; '.join(dict.fromkeys(advice))}"
