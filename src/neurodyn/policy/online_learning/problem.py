# SPDX-License-Identifier: Apache-2.0
"""Inputs of the online loop, checked before any work is done."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from neurodyn.control.resolve import ANALYTIC, ResolvedDynamics, open_dynamics
from neurodyn.control.robot.in_loop import robot_file, robot_in_loop
from neurodyn.control.task_frames import require_fit
from neurodyn.core.errors import InputError, choices
from neurodyn.core.registry import split_name
from neurodyn.dynamics.artifact import kind_of
from neurodyn.dynamics.artifact import load as load_model
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.learn.manifest import DEFAULT_ALGORITHM
from neurodyn.policy.artifact import load_policy
from neurodyn.policy.learners.algorithms import ALGORITHMS, chosen_algorithm
from neurodyn.policy.learners.learner import initial_policy
from neurodyn.policy.online_learning.refit import ADAPT_REFIT, REFITS, Refit
from neurodyn.policy.online_learning.settings import SHORT, OnlineSettings
from neurodyn.policy.requests import OnlineRequest
from neurodyn.policy.settings import for_view, load_settings
from neurodyn.sim.simulators import require_simulator
from neurodyn.tasks import Task, load

_FIRST_MINUTES, _MINUTES = 6.0, 2.0
"""Default lengths of logs on a robot: for a new model, and per round [min]."""
NEW = "new"
"""Setting for a model that starts from random data, or from the declared robot."""


@dataclass(frozen=True)
class OnlineProblem:
    """Checked inputs of the online loop.

    Attributes:
        kind: Kind of the model.
        dynamics: "new", or the run of the first model.
        reference: Dynamics to log; None for a robot.
        refit: Fitting of models of this kind.
        data: Training files of the model in place of random data.
        policy: Folder of the first policy; None for a random one.
        robot: FILE.py:CLASS of the robot to log; None for `reference`.
    """

    task: Task
    kind: str
    dynamics: str
    reference: ResolvedDynamics | None
    settings: OnlineSettings
    refit: Refit
    data: tuple[str, ...] = ()
    policy: Path | None = None
    device: str = "cpu"
    robot: str | None = None

    @contextmanager
    def acting(self, log: Path, states: HybridDynamics | None = None) -> Iterator[ResolvedDynamics]:
        """Open the reference or the robot for recording `log` (.h5); a robot's frames go to a CSV beside it.

        `states` is the model that estimates a base without motion capture; None for the declared one.
        """
        if self.reference is not None:
            yield self.reference
            return
        assert self.robot is not None
        with robot_in_loop(self.task, self.robot, robot_file(log), states) as robot:
            yield robot

    @property
    def first_run(self) -> str | None:
        """Run of the first model; None for a new one."""
        return None if self.dynamics == NEW else self.dynamics


def settings_of(request: OnlineRequest) -> OnlineSettings:
    """Return the given settings, or the defaults for task and kind of model.

    Raises:
        InputError: The kind is unknown or not that of the run, or the file is missing or bad.
    """
    if isinstance(request.settings, OnlineSettings):
        return request.settings
    refit = _refit(request)
    task = request.task if isinstance(request.task, str) else request.task.name
    frames, log_frames = refit.frames if request.dynamics == NEW else 0, OnlineSettings().log_frames
    if request.robot is not None:
        dt = (load(task) if isinstance(request.task, str) else request.task).declaration().dt
        frames = round(_FIRST_MINUTES * 60.0 / dt) if request.dynamics == NEW and not request.data else 0
        log_frames = round(_MINUTES * 60.0 / dt)
    nothing = request.dynamics == NEW and not request.data and request.policy is None
    kind = ALGORITHMS[_algorithm(request)].settings
    return OnlineSettings(
        frames=frames,
        log_frames=log_frames,
        rollout=SHORT if refit.short else None,
        policy=load_settings(task, request.settings, logs=refit.measured, nothing=nothing, kind=kind),
    )


def _algorithm(request: OnlineRequest) -> str:
    """Return the name of the algorithm that trains policies; that of the first task's loop where it continues."""
    out = Path(request.out)
    records = (out / "config.yaml", *sorted(out.glob("*/config.yaml"))) if request.resume else ()
    recorded = next((path for path in records if path.is_file()), None)
    assert not isinstance(request.settings, OnlineSettings)
    return chosen_algorithm(request.algorithm, recorded, request.settings) or DEFAULT_ALGORITHM


def by_task(request: OnlineRequest) -> list[OnlineRequest]:
    """Return the request of each task: the request itself for one, else one in the folder of each, OUT/TASK.

    Raises:
        InputError: There are several tasks, and an argument that is for one.
    """
    if not request.tasks:
        return [request]
    for name in ("policy", "robot"):
        if getattr(request, name) is not None:
            raise InputError(f"--tasks and --{name} exclude each other; valid: one of them")
    every = [load(one) if isinstance(one, str) else one for one in (request.task, *request.tasks)]
    names, settings = [one.name for one in every], settings_of(request)
    if len(set(names)) < len(names):
        raise InputError(f"tasks are {choices(names)}; valid: each of them once")
    policies = {
        one.name: settings.tasks.get(one.name) or settings_of(msgspec.structs.replace(request, task=one)).policy
        for one in every
    }
    return [
        msgspec.structs.replace(
            request, task=one, tasks=(), out=Path(request.out) / Path(one.name).name.replace(":", "-"),
            settings=msgspec.structs.replace(settings, policy=policies[one.name], tasks=policies),
        )
        for one in every
    ]  # fmt: skip


def require_one_robot(tasks: Sequence[Task]) -> None:
    """Raise an InputError if tasks are for different robots."""
    robots = {task.declaration().name: task.name for task in tasks}
    if len(robots) > 1:
        these = ", ".join(f"{task} of {robot}" for robot, task in robots.items())
        raise InputError(f"tasks are {these}; valid: tasks of one robot, which share its model")


def pose(request: OnlineRequest) -> OnlineProblem:
    """Check the request, and open the reference.

    Raises:
        InputError: The simulator is not installed; the kind is unknown, not that of the run, or needs something that is
            not given; run, data or policy are missing or of another robot or task.
    """
    task, dynamics, kind = request.task, request.dynamics, _kind(request)
    task = load(task) if isinstance(task, str) else task
    settings, refit, folder = settings_of(request), _refit(request), None
    given = None if request.policy is None else load_policy(request.policy)[0].observe
    task, policy_settings = for_view(settings.policy, task, given)
    settings = msgspec.structs.replace(settings, policy=policy_settings)
    if request.policy is not None:
        folder, policy_settings = initial_policy(task, request.policy, settings.policy)
        settings = msgspec.structs.replace(settings, policy=policy_settings)
    refit.require(task, settings, new=dynamics == NEW, data=bool(request.data))
    if dynamics != NEW:
        model = load_model(dynamics)
        ALGORITHMS[settings.policy.algorithm].require(model)
        require_fit(task, model, settings.policy.penalty)
        refit.require_model(model, dynamics, settings)
    elif settings.policy.penalty and not refit.uncertain(task, settings):
        raise InputError(
            f"penalty is {settings.policy.penalty}, but a new model of kind {kind} does not know how uncertain it is; "
            "valid here: 0"
        )
    if settings.first and request.robot is None and not refit.measured:
        raise InputError(f"--first is for world models; a new model of kind {kind} learns from states drawn at random")
    robot = task.declaration()
    for name in request.data:
        try:
            refit.require_store(robot, refit.open(robot, name))
        except InputError as error:
            raise type(error)(f"{name}: {error}") from None
    require_simulator(robot)
    if request.robot is None:
        reference = _reference(task, settings.reference)
    else:
        settings, reference = _with_robot(task, request.robot, settings, Path(request.out)), None
    return OnlineProblem(
        task, kind, dynamics, reference, settings, refit, tuple(request.data), folder, request.device, request.robot
    )


def _reference(task: Task, name: str) -> ResolvedDynamics:
    reference = open_dynamics(task, name, flag="--reference")
    if reference.dynamics.measured:
        raise InputError(f"--reference {name}: predicts what a log measures; valid: dynamics with a whole state")
    return reference


def _with_robot(task: Task, robot: str, settings: OnlineSettings, out: Path) -> OnlineSettings:
    """Return the settings with the robot as the reference, by its full path, after constructing its class once."""
    reference = ":".join(map(str, split_name(robot)))
    if settings.reference not in (ANALYTIC, robot, reference):
        raise InputError("--reference and --robot exclude each other; valid: one of them")
    with robot_in_loop(task, robot, robot_file(out / "log.h5")):
        pass
    return msgspec.structs.replace(settings, reference=reference)


def _refit(request: OnlineRequest) -> Refit:
    """Return the fitting of models of the kind: hybrid ones of a robot by `neurodyn adapt`."""
    kind = _kind(request)
    return ADAPT_REFIT if request.robot is not None and kind == "hybrid" else REFITS[kind]


def _kind(request: OnlineRequest) -> str:
    kind, dynamics = request.kind, request.dynamics
    if kind is not None and kind not in REFITS:
        raise InputError(f"--kind is {kind!r}; valid: {choices(REFITS)}")
    if dynamics == NEW:
        return kind or ("neural" if request.robot is None else "hybrid")
    run_kind = kind_of(dynamics)
    if kind not in (None, run_kind):
        raise InputError(f"--kind is {kind!r}, but {dynamics} holds a model of kind {run_kind!r}; leave out --kind")
    return run_kind
