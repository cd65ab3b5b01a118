# SPDX-License-Identifier: Apache-2.0
"""Train a policy in any dynamics.

During training in one model of the dynamics, the policy is evaluated without noise there and in a reference, to show if
it only exploits its model. The best policy *in its training dynamics* is kept; the reference is only monitored. No
pickle is written.
"""

from pathlib import Path

import torch
from msgspec import UNSET

from neurodyn.control.resolve import open_dynamics
from neurodyn.core.config import read_record, with_changes
from neurodyn.core.provenance import package_versions
from neurodyn.core.requests import accepts_request
from neurodyn.dynamics.interface import Dynamics
from neurodyn.learn.budget import TrainState
from neurodyn.learn.devices import current_ranks
from neurodyn.learn.loop import TrainingLoop
from neurodyn.learn.manifest import DEFAULT_ALGORITHM, RunRecord
from neurodyn.learn.run_folder import check_run
from neurodyn.learn.tracking import tracking
from neurodyn.policy.artifact import load_policy
from neurodyn.policy.learners.algorithms import ALGORITHMS, chosen_algorithm
from neurodyn.policy.learners.learner import initial_policy
from neurodyn.policy.requests import PolicyTrainingJob, TrainPolicyRequest
from neurodyn.policy.settings import FLAGS, ShacSettings, for_view, load_settings, with_flags
from neurodyn.policy.worlds.identified_sensors import with_sensor_errors
from neurodyn.policy.worlds.randomisation import over_posterior
from neurodyn.tasks import Task, load
from neurodyn.tasks.views import STATE


def open_training(request: TrainPolicyRequest) -> PolicyTrainingJob:
    """Return the requested training, without its reference, with task, dynamics and settings loaded and checked.

    Raises:
        InputError: Something is unknown, missing or incompatible.
    """
    task = load(request.task)
    dynamics = open_dynamics(task, request.dynamics, device=request.device, starts=request.starts)
    algorithm = ALGORITHMS[_algorithm_of(request, task, dynamics.dynamics)]
    algorithm.require(dynamics.dynamics)
    file = None if request.settings is None else Path(request.settings)
    presets = (*task.presets, request.task)
    settings = load_settings(presets, file, logs=dynamics.dynamics.measured, kind=algorithm.settings)
    flags = {name: getattr(request, name) for name in FLAGS}
    if not (request.one_robot or settings.one_robot):
        flags["randomise"] = over_posterior(request.randomise or settings.randomise, request.dynamics)
    settings, initial = with_flags(settings, **flags), None
    if request.resume and _saw_state(request.out):
        task = task.observing(STATE)
    else:
        given = None if request.policy is None else load_policy(request.policy)[0].observe
        task, settings = for_view(settings, task, given, request.history)
    errors = with_sensor_errors(settings.randomise, request.dynamics, task)
    settings = with_changes(settings, randomise=errors)
    if request.policy is not None:
        initial, settings = initial_policy(task, request.policy, settings)
    judge = None
    if request.judge is not None:
        judge = open_dynamics(task, request.judge, device=request.device, starts=request.starts, flag="--judge")
    return PolicyTrainingJob(
        task, dynamics, Path(request.out), settings, judge=judge, starts=request.starts, initial=initial,
        resume=request.resume, logger=request.logger,
    )  # fmt: skip


_OF_PPO = ("privileged", "recurrent", "latent")
"""Requests that leave a task to PPO: features that SHAC lacks."""


def _algorithm_of(request: TrainPolicyRequest, task: Task, dynamics: Dynamics) -> str:
    """Return the name of the requested algorithm.

    By default it is that of `chosen_algorithm`, or the task's.
    """
    record = request.out / "config.yaml" if request.resume else None
    chosen = chosen_algorithm(request.algorithm, record, request.settings)
    if chosen is not None:
        return chosen
    plain = request.device == "cpu" and request.penalty is None and not any(getattr(request, one) for one in _OF_PPO)
    along = task.along_gradients and plain and dynamics.differentiable and not dynamics.measured
    return ShacSettings.algorithm if along else DEFAULT_ALGORITHM


def _saw_state(out: Path) -> bool:
    """Return whether a training began before policies could see sensors."""
    record = out / "config.yaml"
    return record.is_file() and "observe" not in read_record(record).get("settings", {})


@accepts_request(PolicyTrainingJob)
def train(job: PolicyTrainingJob) -> TrainState:
    """Train a policy and write it to a folder.

    Returns:
        The final state of the training; its steps are updates.

    Raises:
        InputError: Task and dynamics are incompatible, the algorithm needs gradients that they do not have, the folder
            holds a policy (and `resume` is false), or it cannot be resumed.
    """
    job = with_changes(job, task=job.task.observing(job.settings.observe))
    settings, training_dynamics = job.settings, job.training_dynamics
    algorithm = ALGORITHMS[settings.algorithm]
    algorithm.require(training_dynamics.dynamics)
    record = RunRecord[type(settings)](
        task=job.task.name, dynamics=training_dynamics.name, settings=settings, starts=job.starts,
        versions=package_versions("torch", "rsl-rl-lib", "newton"),
        algorithm="" if settings.algorithm == DEFAULT_ALGORITHM else settings.algorithm,
        base=UNSET if job.initial is None else str(job.initial),
    )  # fmt: skip
    with current_ranks().exclusive(job.out), tracking(job.logger, job.out):
        going_on = check_run(job.out, record, job.resume)
        budget = settings.budget()
        loop = TrainingLoop(
            algorithm.learner()(job), budget, job.out, record=record,
            validations=round(settings.evaluations * sum(budget.shares) / budget.shares[0]), validate_first=False,
            thread_count=settings.threads or torch.get_num_threads(), callbacks=job.callbacks, progress=job.progress,
        )  # fmt: skip
        if going_on:
            loop.resume()
        return loop.run()
