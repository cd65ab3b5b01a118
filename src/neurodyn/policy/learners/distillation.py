# SPDX-License-Identifier: Apache-2.0
"""Teacher and student: a policy with realistic observations learns from one that also saw the randomised quantities.

The student acts, and the teacher labels each state with its own action (DAgger, Ross et al. 2011), by rsl_rl's
distillation. With an encoder in the teacher, the student may instead learn the latent from its history and keep the
teacher's other layers: rapid motor adaptation (RMA, Kumar et al., arXiv 2107.04034).
"""

from pathlib import Path
from typing import Any, cast

import msgspec
import torch
from rsl_rl.algorithms import Distillation
from rsl_rl.models import MLPModel
from rsl_rl.runners import DistillationRunner
from tensordict import TensorDict
from torch import Tensor

from neurodyn.control.resolve import open_dynamics
from neurodyn.core import artifacts
from neurodyn.core.config import read_record
from neurodyn.core.errors import InputError
from neurodyn.core.requests import accepts_request
from neurodyn.learn.budget import TrainState
from neurodyn.learn.learner import OptimiserStep
from neurodyn.policy.artifact import KNOWN, load_policy, task_of
from neurodyn.policy.learners.learner import EncodedModel, OurRanks, RunnerLearner
from neurodyn.policy.learners.normalisation import UpdateNormalisation
from neurodyn.policy.requests import DistillPolicyRequest, PolicyTrainingJob
from neurodyn.policy.settings import DistillationSettings, NetworkSettings, load_settings, with_flags
from neurodyn.policy.worlds.environment import PolicyEnvironment

_HISTORY = 16
"""Default number of frames in a student's observation."""
_FRAME = "frame"
"""Observation group of a teacher: the newest observation of the student's history."""


class ActionDistillation(UpdateNormalisation, Distillation):
    """rsl_rl's distillation of the teacher's actions."""

    learning = ("student",)


class LatentDistillation(ActionDistillation):
    """rsl_rl's distillation of the teacher's latent instead of its actions."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Set up rsl_rl's algorithm with the same arguments."""
        super().__init__(*arguments, **options)
        self.loss_fn = self._between_latents

    def _between_latents(self, *_: Tensor) -> Tensor:
        student, teacher = cast(EncodedModel, self.student), cast(EncodedModel, self.teacher)
        with torch.no_grad():
            wanted = teacher.encode(student.given)
        return (student.encode(student.given) - wanted).square().mean()


class _TaughtWorlds(PolicyEnvironment):
    """Worlds with the newest observation as a group of its own."""

    def _with_frame(self, seen: TensorDict) -> TensorDict:
        seen[_FRAME] = seen["policy"][:, : len(self.task.observations)]
        return seen

    def get_observations(self) -> TensorDict:
        """Return observations, including the teacher's."""
        return self._with_frame(super().get_observations())

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Advance one frame; see `PolicyEnvironment.step`."""
        seen, reward, done, extras = super().step(actions)
        return self._with_frame(seen), reward, done, extras


class _TeachingRunner(OurRanks, DistillationRunner):
    """rsl_rl's runner with our ranks."""


class DistillationLearner(RunnerLearner):
    """Training of a student; a step is one update."""

    environment = _TaughtWorlds
    _settings: DistillationSettings

    def __init__(self, job: PolicyTrainingJob) -> None:
        """Build worlds, networks and rsl_rl's distillation.

        Raises:
            InputError: There is no teacher, or it is incompatible.
        """
        settings = cast(DistillationSettings, job.settings)
        if job.initial is None:
            raise InputError("distillation needs a teacher; valid: `neurodyn policy distill TEACHER --out DIR`")
        config, teacher = load_policy(job.initial)
        _require_teacher(config.network, str(job.initial), adapt=settings.adapt)
        super().__init__(job)
        if config.privileged and config.privileged != self._world.robots.names:
            raise InputError(
                f"{job.initial}: sees {', '.join(config.privileged)}; valid: the --randomise of its training"
            )
        self._config = msgspec.structs.replace(self._config, adapts=settings.adapt)
        self.start_runner(_TeachingRunner, self._configuration(config.network, drawn=bool(config.privileged)))
        alg = self.runner.alg
        teacher.store_rsl_rl(alg.teacher.state_dict(), float(getattr(alg.teacher.obs_normalizer, "eps", 0.0)))
        alg.teacher.requires_grad_(False).eval()
        alg.teacher_loaded = True
        if settings.adapt:
            self._take_over(teacher.layers.state_dict(), alg.teacher, alg.student)

    def _configuration(self, teacher: NetworkSettings, *, drawn: bool) -> dict[str, Any]:
        settings = self._settings
        student = settings.models()["actor"]
        student["distribution_cfg"]["init_std"] = settings.noise
        if settings.adapt:
            student |= {"class_name": EncodedModel, "latent": settings.network.latent,
                        "encoder": list(settings.network.encoder), "frame": len(self._task.observations)}  # fmt: skip
        theirs = msgspec.structs.replace(settings, network=teacher, privileged=drawn, adapt=False).models()["actor"]
        del theirs["distribution_cfg"]
        if teacher.latent:
            theirs["class_name"] = EncodedModel
        return {
            "num_steps_per_env": settings.horizon,
            "save_interval": 10**9,
            "obs_groups": {"student": ["policy"], "teacher": [_FRAME, *(["robot"] if drawn else [])]},
            "check_for_nan": True,
            "student": student,
            "teacher": theirs,
            "algorithm": {
                "class_name": LatentDistillation if settings.adapt else ActionDistillation,
                "num_learning_epochs": settings.epochs,
                "gradient_length": settings.frames_a_step,
                "learning_rate": settings.rate,
                "max_grad_norm": settings.gradient,
                "loss_type": settings.loss,
            },
        }  # fmt: skip

    def _take_over(self, layers: dict[str, Tensor], teacher: MLPModel, student: MLPModel) -> None:
        """Copy the teacher's layers and normalisation into a student, frozen."""
        student.mlp.load_state_dict(layers)
        student.mlp.requires_grad_(False)
        if not student.obs_normalization:
            return
        frame, network = len(self._task.observations), self._settings.network
        for name, neutral in (("_mean", 0.0), ("_var", 1.0), ("_std", 1.0)):
            statistics = getattr(teacher.obs_normalizer, name)[:, :frame]
            acted = statistics.new_full((1, len(self._task.actions) if network.with_actions else 0), neutral)
            getattr(student.obs_normalizer, name).copy_(torch.cat([statistics, acted], 1).repeat(1, network.history))
        cast(Tensor, student.obs_normalizer.count).fill_(KNOWN)
        cast(Any, student.obs_normalizer).until = 1

    def step(self, done: float, train_state: TrainState) -> OptimiserStep:
        """Roll out the student, and fit it to the teacher's labels."""
        self.runner.learn(1, init_at_random_ep_len=train_state.step == 0)
        self.losses = self._losses.losses
        self.end_update(train_state)
        return self.outcome()

    def state(self) -> dict[str, Any]:
        """Return the state of student, optimiser, worlds (on a CPU) and torch's random generator."""
        learner = {**self.runner.alg.save(), "actor_state_dict": self.actor.state_dict()}
        return {"learner": learner, **self.worlds_and_memory()}

    def load(self, saved: dict[str, Any]) -> None:
        """Resume from `state`; on a GPU, episodes start anew."""
        self.runner.alg.load(saved["learner"], {"student": True, "optimizer": True}, True)
        self.restore_worlds(saved)
        self.runner.alg.last_hidden_states = (self.actor.get_hidden_state(), None)


def _require_teacher(network: NetworkSettings, source: str, *, adapt: bool) -> None:
    """Raise an InputError for a teacher with a memory or, for a student that learns its latent, without an encoder."""
    if network.remembers:
        raise InputError(f"{source}: has a memory; valid: a teacher that sees single observations")
    if adapt and not network.latent:
        raise InputError(
            f"{source}: has no encoder; valid with --adapt: a teacher of `policy train --privileged --latent 8`"
        )


@accepts_request(DistillPolicyRequest)
def open_distillation(request: DistillPolicyRequest) -> PolicyTrainingJob:
    """Return the requested training, with teacher, dynamics and settings loaded and checked.

    Raises:
        InputError: Something is unknown, missing or incompatible.
    """
    teacher = artifacts.resolve_policy(request.teacher)
    config, _ = load_policy(teacher)
    _require_teacher(config.network, str(request.teacher), adapt=request.adapt)
    if request.adapt and request.recurrent:
        raise InputError("--adapt learns from a history; valid: without --recurrent")
    record = read_record(teacher / "config.yaml") if (teacher / "config.yaml").is_file() else {}
    task = task_of(config, request.task, str(request.teacher), drawn=True)
    dynamics, known = request.dynamics or record.get("dynamics"), record.get("settings", {})
    if dynamics is None:
        raise InputError(f"{request.teacher}: does not say where it was trained; give --dynamics")
    resolved = open_dynamics(task, dynamics, device=request.device)
    file = None if request.settings is None else Path(request.settings)
    settings = load_settings(task.name, file, kind=DistillationSettings)
    history = request.history
    if history is None:
        history = 1 if request.recurrent else _HISTORY
    network = msgspec.structs.replace(
        config.network, with_actions=history > 1, latent=config.network.latent if request.adapt else 0
    )
    flags = {name: getattr(request, name) for name in ("minutes", "iterations", "worlds", "seed", "recurrent")}
    settings = with_flags(
        msgspec.structs.replace(settings, network=network, adapt=request.adapt), history=history,
        randomise=request.randomise or tuple(known.get("randomise", ())), **flags,
    )  # fmt: skip
    return PolicyTrainingJob(
        task, resolved, Path(request.out), settings, initial=teacher, resume=request.resume, logger=request.logger
    )
