# SPDX-License-Identifier: Apache-2.0
"""Tasks by name, and tasks of your own by file and class."""

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from neurodyn.core.errors import InputError, choices, unknown
from neurodyn.core.registry import Registry
from neurodyn.tasks.task import Memory, Task

__all__ = ["TASKS", "Memory", "Task", "is_file", "load", "names"]

TASKS: Registry[Callable[[], Task]] = Registry(
    "task",
    **{
        "acrobot-swingup": "neurodyn.tasks.double_pendulum:AcrobotSwingUp",
        "ant-run": "neurodyn.tasks.ant:AntRun",
        "ant-spin": "neurodyn.tasks.ant:AntSpin",
        "ant-spin-track": "neurodyn.tasks.ant:AntSpinTrack",
        "anymal-d-flat": "neurodyn.tasks.anymal:AnymalDFlat",
        "anymal-forward": "neurodyn.tasks.anymal:AnymalForward",
        "anymal-side": "neurodyn.tasks.anymal:AnymalSide",
        "anymal-velocity": "neurodyn.tasks.anymal:AnymalVelocity",
        "cartpole-swingup": "neurodyn.tasks.cartpole:CartpoleSwingUp",
        "franka-position": "neurodyn.tasks.franka:FrankaPosition",
        "franka-torque": "neurodyn.tasks.franka:FrankaTorque",
        "pendubot-swingup": "neurodyn.tasks.double_pendulum:PendubotSwingUp",
        "planar-run": "neurodyn.tasks.planar_runner:PlanarRun",
        "ant-run@nerd": "neurodyn.interop.nerd.tasks:NerdAntRun",
        "ant-spin@nerd": "neurodyn.interop.nerd.tasks:NerdAntSpin",
        "ant-spin-track@nerd": "neurodyn.interop.nerd.tasks:NerdAntSpinTrack",
        "anymal-forward@nerd": "neurodyn.interop.nerd.tasks:NerdAnymalForward",
        "anymal-side@nerd": "neurodyn.interop.nerd.tasks:NerdAnymalSide",
    },
)
"""Classes of tasks by name; TASK@nerd is TASK with the observations and actions of published policies."""


def names() -> list[str]:
    """Return the names of all tasks."""
    return sorted(TASKS)


def is_file(name: str) -> bool:
    """Return whether a name is FILE.py:CLASS, whose code `load` runs: only for names that a user gives."""
    return ".py:" in name


def load(name: str) -> Task:
    """Return a task. The code of a file runs here, so that a name in an artifact must not come here unasked.

    Args:
        name: Name of a task, or "FILE.py:CLASS" for a subclass of `Task` in a file of yours.

    Raises:
        InputError: There is no such task.
    """
    if is_file(name):
        return _own(name)
    if name not in TASKS:
        raise unknown("task", name, TASKS, "FILE.py:CLASS for a task of your own")
    return TASKS[name]()


def _own(name: str) -> Task:
    """Return a task from a file; it is called by the file's full path, so that a policy for it finds it again."""
    file, _, kind = name.rpartition(":")
    path = Path(file).resolve()
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"{path}: no such file; expected Python with a subclass of neurodyn.tasks.Task")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises is about that file
        raise InputError(f"{path}: cannot be imported ({type(error).__name__}: {error})") from error
    own = getattr(module, kind, None)
    if not (isinstance(own, type) and issubclass(own, Task)):
        valid = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Task)]
        raise InputError(f"{path}: has no task {kind!r}; valid: {choices(key for key in valid if key != 'Task')}")
    try:
        task = own()
    except TypeError as error:  # an abstract method is missing, or the constructor asks for arguments
        raise InputError(f"{path}: task {kind!r} cannot be made ({error})") from None
    task.name = f"{path}:{kind}"
    return task
