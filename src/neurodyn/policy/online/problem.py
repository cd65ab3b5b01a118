# SPDX-License-Identifier: Apache-2.0
"""What the online loop is about, checked before any work is done."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from neurodyn.control.resolve import ResolvedDynamics, open_dynamics
from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.artifact import kind_of
from neurodyn.dynamics.kinds import KINDS
from neurodyn.policy.learner import begun_with
from neurodyn.policy.online.refit import Refit
from neurodyn.policy.online.settings import SHORT, OnlineSettings
from neurodyn.policy.settings import load_settings
from neurodyn.tasks import Task

NEW = "new"
"""What a user gives for a model that begins from random data, or from the declared robot."""


@dataclass(frozen=True)
class OnlineProblem:
    """What is to be learned, and from what.

    Attributes:
        task: The task.
        kind: Kind of the model.
        dynamics: "new", or the run of the first model.
        reference: What is logged.
        settings: Settings.
        refit: How models of the kind are fitted.
        data: Files that the model learns from in place of random data.
        policy: Folder of the first policy; None for a random one.
        device: Torch device.
    """

    task: Task
    kind: str
    dynamics: str
    reference: ResolvedDynamics
    settings: OnlineSettings
    refit: Refit
    data: tuple[str, ...] = ()
    policy: Path | None = None
    device: str = "cpu"

    @property
    def first_run(self) -> str | None:
        """Run of the first model; None for a new one."""
        return None if self.dynamics == NEW else self.dynamics


def default_settings(
    task: str, dynamics: str = NEW, kind: str | None = None, path: Path | None = None
) -> OnlineSettings:
    """Return the settings that suit a task and a kind of model.

    Args:
        task: Name of the task.
        dynamics: As of `pose`.
        kind: Likewise.
        path: File with settings of the policy's training; None for those of the task.

    Raises:
        InputError: The kind is unknown or not that of the run, or the file is missing or bad.
    """
    refit = KINDS[_kind(dynamics, kind)].refit.get()
    return OnlineSettings(
        frames=refit.frames if dynamics == NEW else 0,
        rollout=SHORT if refit.short else None,
        policy=load_settings(task, path, logs=refit.measured),
    )


def pose(
    task: Task,
    dynamics: str,
    kind: str | None,
    settings: OnlineSettings,
    *,
    data: Sequence[str] = (),
    policy: str | Path | None = None,
    device: str = "cpu",
) -> OnlineProblem:
    """Check what a user asks for, and open the reference.

    Args:
        task: The task.
        dynamics: "new", or a run directory, or "pretrained:NAME".
        kind: Kind of the model; None for that of the run, or neural.
        settings: Settings.
        data: Files that the model learns from in place of random data.
        policy: Folder of the first policy, or "pretrained-policy:NAME".
        device: Torch device.

    Raises:
        InputError: The simulator is not installed; the kind is unknown, not that of the run, or needs what is not
            given; run, data or policy are missing or of another robot or task.
    """
    kind = _kind(dynamics, kind)
    refit = KINDS[kind].refit.get()
    folder = None
    if policy is not None:
        folder, begun = begun_with(task, policy, settings.policy)
        settings = msgspec.structs.replace(settings, policy=begun)
    refit.require(task, settings, new=dynamics == NEW, data=bool(data))
    if dynamics != NEW:
        _require_run(task, dynamics, refit, settings)
    elif settings.policy.penalty and not refit.uncertain(task, settings):
        raise InputError(
            f"penalty is {settings.policy.penalty}, but a new model of kind {kind} does not know how uncertain it is; "
            "valid here: 0"
        )
    robot = task.declaration()
    for name in data:
        refit.require_store(robot, refit.open(robot, name), name)
    _require_simulator()
    try:
        reference = open_dynamics(task, settings.reference)
    except InputError as error:
        raise type(error)(str(error).replace("--dynamics", "--reference")) from None
    if reference.dynamics.measured:
        raise InputError(
            f"--reference {settings.reference}: predicts what a log measures; valid: dynamics with a whole state"
        )
    return OnlineProblem(task, kind, dynamics, reference, settings, refit, tuple(data), folder, device)


def _kind(dynamics: str, kind: str | None) -> str:
    able = [name for name, known in KINDS.items() if known.refit]
    if kind is not None and kind not in able:
        raise InputError(f"--kind is {kind!r}; valid: {choices(able)}")
    if dynamics == NEW:
        return kind or "neural"
    found = kind_of(dynamics)
    if kind not in (None, found):
        raise InputError(f"--kind is {kind!r}, but {dynamics} holds a model of kind {found!r}; leave out --kind")
    return found


def _require_run(task: Task, run: str, refit: Refit, settings: OnlineSettings) -> None:
    """Refuse a run of another robot, and a penalty that its model knows nothing of."""
    from neurodyn.control.task_frames import require_fit
    from neurodyn.dynamics.artifact import load

    model = load(run)
    require_fit(task, model, settings.policy.penalty)
    refit.require_model(model, run, settings)


def _require_simulator() -> None:
    """Refuse to begin where logs cannot be made."""
    from neurodyn.sim.engine import import_newton

    import_newton()
