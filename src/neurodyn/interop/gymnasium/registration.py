# SPDX-License-Identifier: Apache-2.0
"""Ids of tasks in Gymnasium's registry."""

from neurodyn.core.extras import import_extra
from neurodyn.tasks import TASKS, TASKS_OF_ROBOTS


def ids() -> dict[str, str | None]:
    """Return the task of each id; None for "neurodyn/task-v0", which takes the task as an argument.

    TASK@nerd becomes TASK.nerd, because ids cannot contain "@".
    """
    names = [*TASKS.names_so_far(), *TASKS_OF_ROBOTS.names_so_far()]
    return {"neurodyn/task-v0": None, **{f"neurodyn/{name.replace('@', '.')}-v0": name for name in names}}


def register() -> None:
    """Register all ids not registered yet; heavy imports wait until an environment is made.

    Raises:
        InputError: Gymnasium is not installed.
    """
    gymnasium = import_extra("gymnasium", "an environment of Gymnasium", "gymnasium")
    for name, task in ids().items():
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point="neurodyn.interop.gymnasium:TaskEnv",
                vector_entry_point="neurodyn.interop.gymnasium:VectorTaskEnv",
                kwargs={} if task is None else {"task": task},
            )
