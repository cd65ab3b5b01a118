# SPDX-License-Identifier: Apache-2.0
"""Tasks by name, tasks of any robot by NAME@ROBOT, and user tasks by file and class."""

from collections.abc import Callable

from neurodyn.core.errors import InputError, unknown
from neurodyn.core.registry import Registry, is_file, own_class, split_name
from neurodyn.tasks.anymal import AnymalDFlat, AnymalForward, AnymalSide, AnymalVelocity
from neurodyn.tasks.franka import FrankaPosition, FrankaTorque
from neurodyn.tasks.nerd import NerdAntRun, NerdAntSpin, NerdAntSpinTrack, NerdAnymalForward, NerdAnymalSide
from neurodyn.tasks.objects import Lift, Push
from neurodyn.tasks.running import AntRun, AntSpin, AntSpinTrack, PlanarRun
from neurodyn.tasks.swing_up import AcrobotSwingUp, CartpoleSwingUp, PendubotSwingUp
from neurodyn.tasks.task import Task
from neurodyn.tasks.velocity import Velocity

TASKS: Registry[Callable[[], Task]] = Registry(
    "task",
    **{
        "acrobot-swingup": AcrobotSwingUp,
        "ant-run": AntRun,
        "ant-spin": AntSpin,
        "ant-spin-track": AntSpinTrack,
        "anymal-d-flat": AnymalDFlat,
        "anymal-forward": AnymalForward,
        "anymal-side": AnymalSide,
        "anymal-velocity": AnymalVelocity,
        "cartpole-swingup": CartpoleSwingUp,
        "franka-position": FrankaPosition,
        "franka-torque": FrankaTorque,
        "pendubot-swingup": PendubotSwingUp,
        "planar-run": PlanarRun,
        "ant-run@nerd": NerdAntRun,
        "ant-spin@nerd": NerdAntSpin,
        "ant-spin-track@nerd": NerdAntSpinTrack,
        "anymal-forward@nerd": NerdAnymalForward,
        "anymal-side@nerd": NerdAnymalSide,
    },
)
"""Classes of tasks by name; TASK@nerd is TASK with the observations and actions of published policies."""

TASKS_OF_ROBOTS: Registry[Callable[[str], Task]] = Registry("task", lift=Lift, push=Push, velocity=Velocity)
"""Classes of tasks for any robot that declares their needs, by name; with a robot the name is NAME@ROBOT."""


def of_robot(name: str) -> bool:
    """Return whether a name is NAME@ROBOT, with which the robot may be a user's folder."""
    return name not in TASKS and "@" in name and name.partition("@")[0] in TASKS_OF_ROBOTS


def names() -> list[str]:
    """Return the names of all tasks."""
    return sorted(TASKS)


def load(name: str) -> Task:
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


def _own(name: str) -> Task:
    """Return a task from a file, named by the file's full path, so that a policy for it finds it again."""
    path, kind = split_name(name)
    own = own_class(path, kind, "task", Task)
    try:
        task = own()
    except TypeError as error:  # an abstract method is missing, or the constructor has arguments
        raise InputError(f"{path}: task {kind!r} cannot be made ({error})") from None
    task.name = f"{path}:{kind}"
    task.observations  # noqa: B018 - raises if there are none
    return task
