# SPDX-License-Identifier: Apache-2.0
"""Tasks by name, tasks of any robot by NAME@ROBOT, and user tasks by file and class."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from neurodyn.core.errors import InputError, unknown
from neurodyn.core.registry import Later, Registry, is_file, own_class, split_name

if TYPE_CHECKING:
    from neurodyn.tasks.task import Task
    from neurodyn.tasks.views import View


def _anymal() -> Any:
    from neurodyn.tasks import anymal

    return anymal


def _franka() -> Any:
    from neurodyn.tasks import franka

    return franka


def _hover() -> Any:
    from neurodyn.tasks import hover

    return hover


def _nerd() -> Any:
    from neurodyn.tasks import nerd

    return nerd


def _objects() -> Any:
    from neurodyn.tasks import objects

    return objects


def _reach() -> Any:
    from neurodyn.tasks import reach

    return reach


def _running() -> Any:
    from neurodyn.tasks import running

    return running


def _swing_up() -> Any:
    from neurodyn.tasks import swing_up

    return swing_up


def _velocity() -> Any:
    from neurodyn.tasks import velocity

    return velocity


TASKS: "Registry[Callable[[], Task]]" = Registry(
    "task",
    **{
        "acrobot-swingup": Later(lambda: _swing_up().AcrobotSwingUp),
        "ant-run": Later(lambda: _running().AntRun),
        "ant-spin": Later(lambda: _running().AntSpin),
        "ant-spin-track": Later(lambda: _running().AntSpinTrack),
        "anymal-d-flat": Later(lambda: _anymal().AnymalDFlat),
        "anymal-forward": Later(lambda: _anymal().AnymalForward),
        "anymal-side": Later(lambda: _anymal().AnymalSide),
        "anymal-velocity": Later(lambda: _anymal().AnymalVelocity),
        "cartpole-swingup": Later(lambda: _swing_up().CartpoleSwingUp),
        "franka-position": Later(lambda: _franka().FrankaPosition),
        "franka-torque": Later(lambda: _franka().FrankaTorque),
        "pendubot-swingup": Later(lambda: _swing_up().PendubotSwingUp),
        "planar-run": Later(lambda: _running().PlanarRun),
        "ant-run@nerd": Later(lambda: _nerd().NerdAntRun),
        "ant-spin@nerd": Later(lambda: _nerd().NerdAntSpin),
        "ant-spin-track@nerd": Later(lambda: _nerd().NerdAntSpinTrack),
        "anymal-forward@nerd": Later(lambda: _nerd().NerdAnymalForward),
        "anymal-side@nerd": Later(lambda: _nerd().NerdAnymalSide),
    },
)
"""Classes of tasks by name; TASK@nerd is TASK with the observations and actions of published policies."""

TASKS_OF_ROBOTS: "Registry[Callable[[str], Task]]" = Registry(
    "task",
    hover=Later(lambda: _hover().Hover),
    lift=Later(lambda: _objects().Lift),
    push=Later(lambda: _objects().Push),
    reach=Later(lambda: _reach().Reach),
    velocity=Later(lambda: _velocity().Velocity),
)
"""Classes of tasks for any robot that declares their needs, by name; with a robot the name is NAME@ROBOT."""


def of_robot(name: str) -> bool:
    """Return whether a name is NAME@ROBOT, with which the robot may be a user's folder."""
    return name not in TASKS and "@" in name and name.partition("@")[0] in TASKS_OF_ROBOTS


def names() -> list[str]:
    """Return the names of all tasks."""
    return sorted(TASKS)


def load(name: str, observe: "View | None" = None) -> "Task":
    """Return a task. Runs the code of a file, so names from artifacts must not get here without the user's consent.

    Args:
        name: Name of a task, "NAME@ROBOT" for one of any robot, by its name or path, or "FILE.py:CLASS" for a subclass
            of `Task` in your file.
        observe: Whether its policies see the "state" or "sensors"; None for the task's own way.

    Raises:
        InputError: There is no such task, or its robot lacks a requirement.
    """
    return _open(name).observing(observe)


def _open(name: str) -> "Task":
    if is_file(name):
        return _own(name)
    kind, _, robot = name.partition("@")
    if of_robot(name) and robot:
        return TASKS_OF_ROBOTS[kind](robot)
    if kind in TASKS_OF_ROBOTS and name not in TASKS:
        raise InputError(f"task {name!r}: is for any robot; valid: {kind}@ROBOT, such as {kind}@go2 or {kind}@./mine")
    if name not in TASKS:
        own = "FILE.py:CLASS for a task of your own"
        raise unknown("task", name, [*TASKS, *(f"{one}@ROBOT" for one in TASKS_OF_ROBOTS)], own)
    return TASKS[name]()


def _own(name: str) -> "Task":
    """Return a task from a file, named by the file's full path, so that a policy for it finds it again."""
    from neurodyn.tasks.task import Task

    path, kind = split_name(name)
    own = own_class(path, kind, "task", Task)
    try:
        task = own()
    except TypeError as error:  # an abstract method is missing, or the constructor has arguments
        raise InputError(f"{path}: task {kind!r} cannot be made ({error})") from None
    task.name = f"{path}:{kind}"
    task.observations  # noqa: B018 - raises if there are none
    return task
