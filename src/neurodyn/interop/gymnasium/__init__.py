# SPDX-License-Identifier: Apache-2.0
"""Tasks as Gymnasium environments, by id.

Since version 1, Gymnasium reads no entry points. Ids are registered as soon as both packages are imported, in either
order; `gymnasium.make("neurodyn:neurodyn/ant-run-v0")` imports the package itself.
"""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.interop.gymnasium.environments import TaskEnv, VectorTaskEnv

__all__ = ["TaskEnv", "VectorTaskEnv", "ids", "register"]


def ids() -> dict[str, str | None]:
    """Return the task of each id; None for "neurodyn/task-v0", which takes the task as an argument.

    TASK@nerd becomes TASK.nerd, because ids cannot contain "@".
    """
    from neurodyn.tasks import TASKS, TASKS_OF_ROBOTS

    names = [*TASKS.known(), *TASKS_OF_ROBOTS.known()]
    return {"neurodyn/task-v0": None, **{f"neurodyn/{name.replace('@', '.')}-v0": name for name in names}}


def register() -> None:
    """Register all ids not registered yet; heavy imports wait until an environment is made."""
    import gymnasium

    for name, task in ids().items():
        if name not in gymnasium.registry:
            gymnasium.register(
                id=name,
                entry_point="neurodyn.interop.gymnasium:TaskEnv",
                vector_entry_point="neurodyn.interop.gymnasium:VectorTaskEnv",
                kwargs={} if task is None else {"task": task},
            )
