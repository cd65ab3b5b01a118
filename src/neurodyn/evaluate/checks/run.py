# SPDX-License-Identifier: Apache-2.0
"""All checks of a robot: can its reference simulator be learned from?"""

from collections.abc import Callable
from pathlib import Path

from neurodyn.core.config import to_dict
from neurodyn.core.description.drive import require_simulated
from neurodyn.core.errors import InputError
from neurodyn.core.progress import stage
from neurodyn.core.registry import Registry
from neurodyn.evaluate.checks.records import CheckResult, Finding, RobotCheck
from neurodyn.evaluate.checks.subject import Subject
from neurodyn.evaluate.engine import SEED
from neurodyn.learn.devices import threads as torch_threads
from neurodyn.robots import Robot, load

WORLDS, FRAMES = 128, 250

Check = Callable[[Subject], CheckResult]

_ROOM = "neurodyn.evaluate.checks"
CHECKS: Registry[Check] = Registry(
    "check",
    asset=f"{_ROOM}.asset:check_asset",
    size=f"{_ROOM}.size:check_size",
    convergence=f"{_ROOM}.convergence:check_convergence",
    joint_limits=f"{_ROOM}.joint_limits:check_joint_limits",
    random_control=f"{_ROOM}.random_control:check_random_control",
    rest=f"{_ROOM}.rest:check_rest",
    passive_energy=f"{_ROOM}.passive_energy:check_passive_energy",
    engine_agreement=f"{_ROOM}.engine_agreement:check_engine_agreement",
    speed=f"{_ROOM}.speed:check_speed",
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
