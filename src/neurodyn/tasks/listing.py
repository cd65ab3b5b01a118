# SPDX-License-Identifier: Apache-2.0
"""Tasks by name, tasks of any robot by NAME@ROBOT, and user tasks by file and class."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from neurodyn.core.errors import InputError, unknown
from neurodyn.core.registry import Registry, is_file, own_class, split_name

if TYPE_CHECKING:
    from neurodyn.tasks.task import Task

TASKS: "Registry[Callable[[], Task]]" = Registry(
    "task",
    **{
        "acrobot-swingup": "neurodyn.tasks.swing_up:AcrobotSwingUp",
        "ant-run": "neurodyn.tasks.running:AntRun",
        "ant-spin": "neurodyn.tasks.running:AntSpin",
        "ant-spin-track": "neurodyn.tasks.running:AntSpinTrack",
        "anymal-d-flat": "neurodyn.tasks.anymal:AnymalDFlat",
        "anymal-forward": "neurodyn.tasks.anymal:AnymalForward",
        "anymal-side": "neurodyn.tasks.anymal:AnymalSide",
        "anymal-velocity": "neurodyn.tasks.anymal:AnymalVelocity",
        "cartpole-swingup": "neurodyn.tasks.swing_up:CartpoleSwingUp",
        "franka-position": "neurodyn.tasks.franka:FrankaPosition",
        "franka-torque": "neurodyn.tasks.franka:FrankaTorque",
        "pendubot-swingup": "neurodyn.tasks.swing_up:PendubotSwingUp",
        "planar-run": "neurodyn.tasks.running:PlanarRun",
        "ant-run@nerd": "neurodyn.tasks.nerd:NerdAntRun",
        "ant-spin@nerd": "neurodyn.tasks.nerd:NerdAntSpin",
        "ant-spin-track@nerd": "neurodyn.tasks.nerd:NerdAntSpinTrack",
        "anymal-forward@nerd": "neurodyn.tasks.nerd:NerdAnymalForward",
        "anymal-side@nerd": "neurodyn.tasks.nerd:NerdAnymalSide",
    },
)
"""Classes of tasks by name; TASK@nerd is TASK with the observations and actions of published policies."""

TASKS_OF_ROBOTS: "Registry[Callable[[str], Task]]" = Registry(
    "task",
    lift="neurodyn.tasks.objects:Lift",
    push="neurodyn.tasks.objects:Push",
    velocity="neurodyn.tasks.velocity:Velocity",
)
"""Classes of tasks for any robot that declares their needs, by name; with a robot the name is NAME@ROBOT."""


def of_robot(name: str) -> bool:
    """Return whether a name is NAME@ROBOT, with which the robot may be a user's folder."""
    return name not in TASKS and "@" in name and name.partition("@")[0] in TASKS_OF_ROBOTS


def names() -> list[str]:
    """Return the names of all tasks."""
    return sorted(TASKS)


def load(name: str) -> "Task":
    """Return a task. Runs the code of a file, so names from artifacts must not get here without the user's consent.

    Args:
        name: Name of a task, "NAME@ROBOT" for one of any robot, by its name or path, or "FILE.py:CLASS" for a subclass
            of `Task` in your file.

    Raises:
        InputError: There is no such task, or its robot lacks a requirement.
    """
    if is_file(name):
        return _own(name)
    kind, _, robot = name.partition("@")
    if of_robot(name) and robot:
        return TASKS_OF_ROBOTS[kind](robot)
    if kind in TASKS_OF_ROBOTS and name not in TASKS:
        raise InputError(f"task {name!r}: is one of any robot; valid: {kind}@ROBOT, as {kind}@go2 or {kind}@./mine")
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
