# SPDX-License-Identifier: Apache-2.0
"""Tasks by name."""

from importlib import import_module

from neurodyn.core.errors import InputError, choices
from neurodyn.tasks.task import Memory, Task

__all__ = ["Memory", "Task", "load", "names"]

_TASKS = {
    "ant-run": "ant:AntRun",
    "ant-spin": "ant:AntSpin",
    "ant-spin-track": "ant:AntSpinTrack",
    "anymal-forward": "anymal:AnymalForward",
    "anymal-side": "anymal:AnymalSide",
    "anymal-velocity": "anymal_velocity:AnymalVelocity",
    "cartpole-swingup": "cartpole:CartpoleSwingUp",
    "franka-position": "franka:FrankaPosition",
    "franka-torque": "franka:FrankaTorque",
}
"""Module of this room and class of each task."""


def names() -> list[str]:
    """Return the names of all tasks."""
    return sorted(_TASKS)


def load(name: str) -> Task:
    """Return a task by name.

    Raises:
        InputError: There is no such task.
    """
    if name not in _TASKS:
        raise InputError(f"unknown task {name!r}; valid: {choices(_TASKS)}")
    module, kind = _TASKS[name].split(":")
    return getattr(import_module(f"neurodyn.tasks.{module}"), kind)()
