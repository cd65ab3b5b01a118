# SPDX-License-Identifier: Apache-2.0
"""Train a policy in any dynamics.

While the policy trains in one dynamics it is played, without noise, there and in a reference, so that a policy which
only exploits its model is seen to. The best policy *in the dynamics that it is trained in* is kept: the reference is
watched, never used. No pickle is written.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from msgspec import UNSET

from neurodyn.control.resolve import ResolvedDynamics, open_dynamics, open_reference
from neurodyn.control.starts import Starts
from neurodyn.core.errors import InputError
from neurodyn.core.progress import Progress
from neurodyn.core.provenance import package_versions
from neurodyn.learn.devices import current_ranks
from neurodyn.learn.learner import TrainState
from neurodyn.learn.loop import Callback, TrainingLoop
from neurodyn.learn.plan import TrainingBudget
from neurodyn.learn.reproduction import TrainingAgain
from neurodyn.learn.run_folder import check_run
from neurodyn.learn.settings import DEFAULT_ALGORITHM, RunRecord
from neurodyn.learn.tracking.session import tracking
from neurodyn.learn.tracking.tracker import Logger
from neurodyn.policy.algorithms import ALGORITHMS
from neurodyn.policy.settings import TrainingSettings
from neurodyn.tasks import Task, is_file, load


def train_policy(
    task: Task,
    where: ResolvedDynamics,
    out: Path,
    settings: TrainingSettings,
    *,
    reference: ResolvedDynamics | None = None,
    starts: str | None = None,
    initial: Path | None = None,
    training_starts: Starts | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
    logger: Logger | None = None,
) -> TrainState:
    """Train a policy and write it to a folder.

    Args:
        task: What is to be learnt.
        where: Dynamics that it is trained in.
        out: Folder of the policy.
        settings: How to train, and by which algorithm.
        reference: Dynamics in which the policy is played beside them while it trains; None for none.
        starts: Log that was given for starts, for the record.
        initial: Folder of a policy that it starts from, with its critic where that was kept; None for a random one.
        training_starts: Where episodes of the training start; None for where those start in which it is played.
        resume: Go on where a stopped training of the same policy was saved.
        progress: Shown how far the training is.
        callbacks: Called as the training goes.
        logger: What follows the training, as of `learn.train`.

    Returns:
        Where the training ended; its steps are updates.

    Raises:
        InputError: Task and dynamics do not fit together, the algorithm needs gradients that they do not have, the
            folder holds a policy (and `resume` is not asked for), or it cannot be resumed.
    """
    versions = package_versions("torch", "rsl-rl-lib", "newton")
    algorithm = ALGORITHMS[settings.algorithm]
    algorithm.require(where.dynamics)
    record = RunRecord[type(settings)](
        task=task.name, dynamics=where.name, settings=settings, starts=starts, versions=versions,
        algorithm="" if settings.algorithm == DEFAULT_ALGORITHM else settings.algorithm,
        base=UNSET if initial is None else str(initial),
    )  # fmt: skip
    with current_ranks().exclusive(out), tracking(logger, out):
        going_on = check_run(out, record, resume)
        loop = TrainingLoop(
            algorithm.build()(out, task, where, settings, reference, initial=initial, starts=training_starts),
            TrainingBudget(settings.iterations, settings.minutes), out,
            record=record, validations=settings.evaluations, validate_first=False,
            thread_count=settings.threads or torch.get_num_threads(), callbacks=callbacks, progress=progress,
        )  # fmt: skip
        if going_on:
            loop.resume()
        return loop.run()


def train_again(again: TrainingAgain) -> None:
    """Train a policy once more, beside the default reference.

    Raises:
        InputError: The task is one of the user's own, and `again` does not name its file.
    """
    record = again.read(RunRecord[ALGORITHMS[again.record.algorithm or DEFAULT_ALGORITHM].settings])
    task = task_of(again)
    starts = record.starts if isinstance(record.starts, str) else None
    where = open_dynamics(task, record.dynamics, device=again.device, starts=starts)
    train_policy(
        task, where, again.out, record.settings, reference=open_reference(task, where, None), starts=starts,
        initial=Path(record.base) if isinstance(record.base, str) else None, progress=again.progress,
    )  # fmt: skip


def task_of(again: TrainingAgain) -> Task:
    """Return the task of a run; the code of a file runs only where the user names it.

    Raises:
        InputError: It is in a file, which is not named; or the named task is another one.
    """
    name = again.record.task
    if again.task is None and is_file(name):
        raise InputError(f"{again.run}: is of the task {name!r}; give it by --task FILE.py:CLASS, which runs that file")
    return load(again.task or name)
