# SPDX-License-Identifier: Apache-2.0
"""Training of a policy, for any algorithm: start, worlds, evaluation, selection and metrics."""

import contextlib
import io
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import torch
from rsl_rl.models import MLPModel
from rsl_rl.modules import MLP
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict
from torch import Tensor, nn

from neurodyn.control.commands import STANDS_STILL, read_commands
from neurodyn.control.resolve import ResolvedDynamics, is_declared
from neurodyn.control.returns import EpisodeOutcomes, Episodes
from neurodyn.control.task_frames import require_fit
from neurodyn.core import artifacts
from neurodyn.core.config import read_record
from neurodyn.core.description.randomisation import is_run
from neurodyn.core.errors import InputError, notice
from neurodyn.core.seeds import derive_seed
from neurodyn.core.verdict import Finding, of_returns
from neurodyn.data.mixture import Mixture
from neurodyn.data.store import Store
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.input_samples import known_inputs_of
from neurodyn.dynamics.known_inputs import KnownInputs
from neurodyn.evaluate.run import training_logs
from neurodyn.learn.budget import TrainState
from neurodyn.learn.devices import current_ranks
from neurodyn.learn.learner import Learner, LoopView, OptimiserStep, Validation
from neurodyn.learn.loop import has_state
from neurodyn.learn.metrics import read_metrics
from neurodyn.policy.artifact import (
    PolicyNetwork,
    load_policy,
    policy_config,
    read_policy_config,
    read_weights,
    require_task,
    save_policy,
)
from neurodyn.policy.episodes.evaluation import play
from neurodyn.policy.learners.penalty import held_out_uncertainty
from neurodyn.policy.requests import PolicyTrainingJob
from neurodyn.policy.settings import AimSettings, TrainingSettings
from neurodyn.policy.trust.judges import PROMISE, Promise
from neurodyn.policy.trust.judging import (
    NO_LEARNING,
    PATIENT,
    Judging,
    call_standing,
    findings_of_training,
    shortcomings,
)
from neurodyn.policy.trust.support import (
    FrameSample,
    PolicySupport,
    return_loss_share,
    share_out_of_range,
    share_outside,
)
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.policy.worlds.randomisation import Randomisation, open_randomisation, seen_by_critic
from neurodyn.robots.data import open_robot_data
from neurodyn.sim.draws import QuantityDraws
from neurodyn.tasks import Task
from neurodyn.tasks.observations import CRITIC, POLICY
from neurodyn.tasks.velocity import VelocityTracking
from neurodyn.tasks.views import SENSORS

LEAST_UPDATES = 10
"""Least number of updates before a time budget may end a training without a warning."""

_EVALUATION = 900
"""Seed of the starts for comparing policies during training."""

_WORTH_COMPILING = 200_000
"""Frames of a training from which compiling its task pays: it takes as long as 100,000 of them save."""


class PolicyLearner(Learner):
    """Training of one policy: a step is an update of an algorithm, a validation an evaluation without noise.

    A subclass needs `actor`, `step`, `state` and `load`.

    Attributes:
        losses: Losses of the last update by name.
    """

    losses: dict[str, float]
    least_steps = LEAST_UPDATES
    environment = PolicyEnvironment

    def __init__(self, job: PolicyTrainingJob) -> None:
        """Build the worlds; errors: see `policy.learners.training.train`."""
        task, training_dynamics, settings, starts = job.task, job.training_dynamics, job.settings, job.training_starts
        self._out, self._task, self._training_dynamics, self._settings = job.out, task, training_dynamics, settings
        self._reference, self._initial = job.reference, job.initial
        seed = current_ranks().seed(settings.seed)
        require_fit(task, training_dynamics.dynamics, settings.penalty)
        self._judge = None if job.judge is None else (job.judge, job.judge.name)
        held_out = training_dynamics.dynamics.hold_out() if settings.hold_out and not settings.randomise else None
        if held_out is not None and self._judge is None:
            training_dynamics, judge, name = (
                replace(training_dynamics, dynamics=held_out[0]),
                replace(training_dynamics, dynamics=held_out[1]),
                held_out[2],
            )
            self._judge = judge, name
        self._support: PolicySupport | None = None
        self._judging: Judging | None = None
        self._promise: Promise | None = None
        if settings.hold_out and self._judge is None and not settings.privileged and not settings.penalty:
            self._judging = Judging.of(training_dynamics, settings.patience)
        if self._judging is not None:
            self._judge = self._judging.choosing.resolved, self._judging.choosing.text
        self._robots = open_randomisation(settings.randomise, training_dynamics.dynamics, task)
        training_dynamics = self._training_dynamics = replace(training_dynamics, dynamics=self._robots.dynamics)
        # Dynamics of evaluations: from the task's starts if some of the training episodes use them.
        self._evaluation_dynamics = training_dynamics
        if (
            settings.task_share is not None
            and training_dynamics.log is not None
            and training_dynamics.is_drawn_by(task)
        ):
            self._evaluation_dynamics = replace(training_dynamics, log=None)
            if self._judge is not None and (held_out is not None or self._judging is not None):
                self._judge = replace(self._judge[0], log=None), self._judge[1]
            starts = training_dynamics.mixed_starts(task, seed, settings.task_share) if starts is None else starts
        self._starts = training_dynamics.starts(task, seed) if starts is None else starts
        self._penalty_offset = self._uncertainty_without_penalty()
        levels = self._robots.ground_levels(task, settings.worlds, seed)
        if levels is not None and isinstance(task, VelocityTracking):
            task = self._task = task.on_terrain()
        self._world = self.environment(
            task, training_dynamics.dynamics, self._starts, settings.worlds, seed=seed, penalty=self._penalty,
            penalty_offset=self._penalty_offset, failure=settings.failure, reward_scale=settings.reward_scale,
            within_known=settings.within_known,
            draws=self._robots.draws, disturbed=self._robots.disturbed, noisy=True,
            history=settings.network.history, with_actions=settings.network.with_actions, frames=settings.frames,
            environment=None if levels is not None else self._robots.surroundings(task, settings.worlds, seed),
            ground_levels=levels,
            compiled=settings.iterations is None or settings.frames_of(settings.iterations) >= _WORTH_COMPILING,
        )  # fmt: skip
        self.device = torch.device(self._world.device)
        torch.manual_seed(derive_seed(seed, "policy"))
        self._config = policy_config(task, settings.network, self._world.robots.names if settings.privileged else ())
        self.losses, self._real = {}, None
        self._looked = False  # whether the policy was looked at before its first evaluation
        self._shown: Mapping[str, Any] = {}  # values of the last validation
        # Few episodes end in one update, and short ones first: as many episodes as worlds give a fair mean.
        self._recent: deque[tuple[float, bool]] = deque(maxlen=settings.worlds * current_ranks().count)

    @property
    def actor(self) -> MLPModel:
        """The acting network, as an rsl_rl model."""
        raise NotImplementedError

    @property
    def network(self) -> PolicyNetwork:
        """The current policy."""
        actor = self.actor
        network = self._config.build()
        network.load_rsl_rl(actor.state_dict(), float(getattr(actor.obs_normalizer, "eps", 0.0)))
        return network.to(self._world.device).requires_grad_(False)

    def shared_tensors(self) -> list[Tensor]:
        """Return weights and statistics of the policy and its critic."""
        return [tensor for network in self.networks() for tensor in network.state_dict().values()]

    def networks(self) -> list[nn.Module]:
        """Return the trained networks."""
        return [self.actor]

    def of_ranks(self, rank_state: dict[str, Any]) -> dict[str, Any]:
        """Return per-rank state (worlds, random states) for a checkpoint; `rank_state` is that of rank 0."""
        others = current_ranks().gather(rank_state)[1:]
        return {**rank_state, "others": others} if others else rank_state

    def of_this_rank(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Return this rank's state from a checkpoint."""
        return saved if current_ranks().leads else saved["others"][current_ranks().rank - 1]

    def verdicts(self, train_state: TrainState) -> list[Finding]:
        """Compare the last return in the training dynamics with that in the judges and in the reference.

        If logs of the robot made the dynamics, the declared simulator is no truth about it. Also judge whether the kept
        policy follows its commands, and whether anything was learned.
        """
        findings = [] if self._support is None else [self._support.verdict()]
        if self._promise is not None:
            findings = [self._promise.finding()]
        lines, kept = read_metrics(self._out), train_state.best_step
        run = next((text for text in self._settings.randomise if is_run(text)), None)
        findings += findings_of_training(lines, kept, train_state.step, self._settings.aim, run, self._initial)
        if self._reference is None or self._real is None or train_state.last is None:
            return findings
        if self._training_dynamics.dynamics.from_logs and is_declared(self._reference.name):
            return findings
        imagined = train_state.last if self._support is None else self._support.imagined
        return [*findings, of_returns(imagined, self._real, self._reference.name)]

    def end_update(self, train_state: TrainState) -> None:
        """Save the current policy in POLICY/kept if one is due, and say if it stands; called after an update."""
        if current_ranks().leads and not self._looked and train_state.cpu_seconds > PATIENT:
            self._looked = True
            if not train_state.measured and self._task.commanded(self._world.now.of_rewards, self._world.memory):
                with torch.random.fork_rng(devices=[]):  # results depend on no clock
                    played = self._play(self.network, self._evaluation_dynamics, self._penalty)
                call_standing(self._out, played.commands, train_state.cpu_seconds, self._settings)
        every = self._settings.keep_every
        if every is not None and (train_state.step + 1) % every == 0 and current_ranks().leads:
            save_policy(self._out / "kept" / f"{train_state.step + 1:05d}", self._config, self.network)

    def validate(self, train_state: TrainState) -> Validation:
        """Evaluate the current policy in its training dynamics, the judge and the reference."""
        network = self._played = self.network  # built once: its initial weights come from torch's generator
        sample = None
        if self._log is not None or self._training_dynamics.dynamics.training_range is not None:
            sample = FrameSample(self._task.frames, self._settings.evaluation_worlds)
        played = self._play(network, self._evaluation_dynamics, self._penalty, sample)
        score = float(played.penalised.mean())
        values: dict[str, Any] = {"return_training": float(played.returns.mean()), "penalised_training": score}
        values |= self.evaluation_metrics(played)
        values["failed_training"] = float(played.failed.double().mean())
        if played.commands:
            values["commands"] = {name: one.plain() for name, one in played.commands.items()}
            call_standing(self._out, played.commands, train_state.cpu_seconds, self._settings)
        if self._judge is not None or (sample is not None and sample.inputs is not None):
            support = self._support_of(network, played, sample, train_state)
            if support.exploits and not (self._support is not None and self._support.exploits):
                notice(f"{self._out}: {support.verdict().what}")
            self._support = support
            values |= support.figures()
            if self._judging is not None and support.judge is not None:
                score = support.judge
                values["falls"] = self._judging.falls
        if self._reference is not None:
            self._real = values["return_reference"] = float(self._play(network, self._reference, 0.0).returns.mean())
        return Validation(score, values, over=self._stops or (self._judging is not None and self._judging.over))

    @property
    def _stops(self) -> bool:
        return self._settings.stop_when_exploiting and self._support is not None and self._support.exploits

    def end_phase(self, loop: LoopView) -> bool:
        """Return whether the training ends: its policy does what is asked of it, or further updates would not help.

        The last supported policy is restored if training ends because of an unsupported one.
        """
        if self._stops and current_ranks().leads:
            network = self._config.build()
            network.load_state_dict(read_weights(self._out))
            network.store_rsl_rl(self.actor.state_dict(), float(getattr(self.actor.obs_normalizer, "eps", 0.0)))
        aim, state = self._settings.aim, loop.state
        if aim is None or state.phase:
            return False
        return self._stops or current_ranks().agree(lambda: self._suffices(aim, state))

    def _suffices(self, aim: AimSettings, train_state: TrainState) -> bool:
        """Return whether a phase was the last one, and say why not."""
        kept, updates, lines = train_state.best_step, train_state.step, read_metrics(self._out)
        hopeless = {one.name for one in findings_of_training(lines, kept, updates)} & {STANDS_STILL, NO_LEARNING}
        if hopeless:
            return True
        if words := shortcomings(lines, kept, aim):
            notice(f"{self._out}: after {updates} updates {words}; {aim.updates} more updates")
        return not words

    @cached_property
    def _log(self) -> Store | Mixture | None:
        """Log that the model was fitted to; None if there is no network or the log is unknown."""
        if self._training_dynamics.log is not None or not isinstance(self._training_dynamics.dynamics, LearnedDynamics):
            return self._training_dynamics.log
        with contextlib.suppress(InputError):
            robot = self._task.declaration()
            names = training_logs(self._training_dynamics.name)
            return Mixture.of([open_robot_data(robot, name) for name in names])
        return None

    @cached_property
    def _known_inputs(self) -> KnownInputs | None:
        """What the model has seen, as it says or, in older files, as its log says."""
        dynamics = self._training_dynamics.dynamics
        if dynamics.known_inputs is not None and dynamics.known_inputs.fitted:
            return dynamics.known_inputs
        return None if self._log is None else known_inputs_of(dynamics, Mixture.of(self._log))

    @cached_property
    def _usual_uncertainty(self) -> float | None:
        """The model's mean uncertainty on held-out frames of its log."""
        with contextlib.suppress(InputError):
            return None if self._log is None else held_out_uncertainty(self._training_dynamics.dynamics, self._log)
        return None

    def _support_of(
        self, network: PolicyNetwork, played: EpisodeOutcomes, sample: FrameSample | None, train_state: TrainState
    ) -> PolicySupport:
        imagined, judge, lost, outside, disagreement = float(played.returns.mean()), None, None, None, None
        if self._judge is not None:
            draws = None if self._judging is None else self._judging.choosing.draws
            judged = self._play(network, self._judge[0], 0.0, draws=draws).returns
            judge = float(judged.mean())
            if self._judging is not None:
                self._judging.watch(played.returns, judged)
            lost = return_loss_share(
                played.returns, judged, imagined if train_state.first is None else train_state.first
            )
        if sample is not None and sample.inputs is not None:
            known = self._training_dynamics.dynamics.training_range
            if self._known_inputs is not None:
                outside = share_outside(sample.inputs, self._known_inputs)
            elif known is not None:
                outside = share_out_of_range(sample.state, known)
        if self._penalty and self._training_dynamics.dynamics.measured and self._usual_uncertainty:
            disagreement = self._uncertainty(played) / self._usual_uncertainty
        return PolicySupport(
            imagined, judge, "" if self._judge is None else self._judge[1], lost, outside, disagreement
        )

    def _uncertainty(self, played: EpisodeOutcomes) -> float:
        """Return the mean uncertainty per frame of evaluation episodes, recovered from their penalised returns."""
        lost = float((played.returns - played.penalised).sum() / played.lengths.sum())
        return self._penalty_offset + lost / (self._penalty * self._task.penalty_scale)

    def evaluation_metrics(self, played: EpisodeOutcomes) -> dict[str, float]:
        """Return further figures of an evaluation in the training dynamics."""
        return {}

    def better(self, score: float, best: float) -> bool:
        """Return whether a return is better and, if unsupported returns end the training, supported."""
        return score > best and not self._stops

    def keep(self, train_state: TrainState) -> None:
        """Save the evaluated policy."""
        save_policy(self._out, self._config, self._played)
        if self._judging is not None:
            self._judging.keep()

    def finish(self, train_state: TrainState) -> None:
        """Save the last policy if none was evaluated, and what the kept one promises, if there are judges."""
        if train_state.best is None:
            save_policy(self._out, self._config, self.network)
        if self._judging is None:
            return
        network = self._config.build()
        network.load_state_dict(read_weights(self._out))
        network = network.to(self._world.device).requires_grad_(False)

        def play_in(resolved: ResolvedDynamics, draws: QuantityDraws | None, count: int) -> EpisodeOutcomes:
            own = derive_seed(self._settings.seed, "promise")
            return self._play(network, resolved, 0.0, draws=draws, count=count, seed=own)

        updates = (train_state.best_step or train_state.step), train_state.step
        self._promise = self._judging.promise(
            play_in, self._evaluation_dynamics, self._robots.draws, self._task, updates
        )
        artifacts.write_json(self._out / PROMISE, self._promise.plain())

    def metrics(self, loop: LoopView, validation: Validation | None) -> dict[str, Any]:
        """Return the metrics of an update."""
        train_state, ended = loop.state, Episodes.concatenate(current_ranks().gather(self._world.collect()))
        count = len(ended.returns)
        parts = {
            "return": ended.returns, "penalised": ended.penalised, "length": ended.lengths, "failed": ended.failed,
            "implausible": ended.implausible,
        }  # fmt: skip
        means: dict[str, Any] = {name: sum(part) / count for name, part in parts.items()} if count else {}
        if count:
            means["reward"] = {name: total / count for name, total in ended.terms.items()}
        self._recent.extend(zip(ended.returns, ended.implausible, strict=True))
        return {
            **self.closing_metrics(train_state),
            "seconds": round(train_state.seconds, 3),
            "cpu_seconds": round(train_state.cpu_seconds, 3),
            "episodes": count,
            "rate": loop.last.rate,
            "noise": self.noise(),
            **({} if self._world.ground_levels is None else {"ground": self._world.ground_levels.share}),
            **self.extra_metrics(),
            "loss": self.losses,
            **means,
            **(validation.values if validation else {}),
        }

    def noise(self) -> float:
        """Return the mean standard deviation of actions."""
        return float(self.actor.output_std.detach().mean())

    def extra_metrics(self) -> dict[str, Any]:
        """Return further metrics of an algorithm, beside its losses."""
        return {}

    def text(self, loop: LoopView, validation: Validation | None) -> str:
        """Return the returns of the last episodes, with exploration noise, and of the last evaluation, without."""
        self._shown = self._shown if validation is None else validation.values
        recent = [sum(part) / len(self._recent) for part in zip(*self._recent, strict=True)]
        parts = [f"noisy return {recent[0]:.4g}"] if recent else []
        if (played := self._shown.get("return_training")) is not None:
            parts.append(f"without noise {played:.4g}")
        if (real := self._shown.get("return_reference")) is not None and self._reference is not None:
            parts.append(f"in {self._reference.name} {real:.4g}")
        parts += [one.in_short(name) for name, one in read_commands(self._shown.get("commands", {})).items()]
        if failed := self._shown.get("failed_training"):
            parts.append(f"{failed:.0%} fail")
        if (levels := self._world.ground_levels) is not None:
            parts.append(f"ground at {levels.share:.0%}")
        if loop.state.stale:
            parts.append(f"no better for {loop.state.step - loop.state.best_step} updates")
        if recent and recent[1]:
            parts.append(f"{recent[1]:.1%} of episodes implausible")
        return ", ".join(parts)

    def closing_metrics(self, train_state: TrainState) -> dict[str, Any]:
        """Return the frames of all worlds so far."""
        return {"frames": self._settings.frames_of(train_state.step) * current_ranks().count}

    def _uncertainty_without_penalty(self) -> float:
        training_dynamics = self._training_dynamics
        if not (self._settings.centre_penalty and self._penalty):
            return 0.0
        if training_dynamics.log is None:
            raise InputError("centre_penalty: asks for the uncertainty on a log; valid: a model with one, or --starts")
        return held_out_uncertainty(training_dynamics.dynamics, training_dynamics.log)

    @property
    def _penalty(self) -> float:
        return self._settings.fixed_penalty

    def _play(
        self, network: PolicyNetwork, resolved: ResolvedDynamics, penalty: float, watcher: FrameSample | None = None,
        *, draws: QuantityDraws | None = None, count: int | None = None, seed: int = _EVALUATION,
    ) -> EpisodeOutcomes:  # fmt: skip
        """Play a policy in training dynamics, a judge with the `draws` of its models, or the reference."""
        starts = resolved.starts(self._task, seed)
        count = self._settings.evaluation_worlds if count is None else count
        # The reference is one robot, undisturbed.
        drawn = self._robots if resolved is self._evaluation_dynamics else Randomisation(resolved.dynamics, draws)
        if draws is not None:
            drawn = replace(drawn, disturbed=self._robots.disturbed)
        return play(
            network, self._task, resolved.dynamics, starts, count, seed=seed, penalty=penalty,
            penalty_offset=self._penalty_offset, draws=drawn.draws, disturbed=drawn.disturbed, watcher=watcher,
            environment=drawn.surroundings(self._task, count, seed),
        )  # fmt: skip


def critic_groups(groups: Sequence[str], task: Task) -> list[str]:
    """Return the groups of observations that a critic sees: what the policy sees and more, or the state instead."""
    return [CRITIC, *(name for name in groups if name != POLICY)] if task.observes == SENSORS else [*groups, CRITIC]


S = TypeVar("S", bound=TrainingSettings)

CRITIC_UPDATES = 10
"""Updates that train only the new critic of a policy that came without one."""


def initial_policy(task: Task, policy: str | Path, settings: S) -> tuple[Path, S]:
    """Return the folder of an initial policy, and settings with its network and without imitation.

    Raises:
        InputError: There is no such policy, it is of another task, or it clips its observations.
    """
    config, _ = load_policy(policy)
    require_task(config, task, str(policy))
    if config.adapts or bool(config.privileged) != settings.privileged:
        sees = "infers what is drawn" if config.adapts else "sees what is drawn" if config.privileged else "sees less"
        raise InputError(f"{policy}: {sees} for the robot; valid: a policy that sees what the new one is to see")
    if config.clip is not None:
        raise InputError(f"{policy}: cuts off its observations, which training does not; valid: one trained here")
    network = msgspec.structs.replace(config.network, initial_std=settings.network.initial_std)
    return artifacts.resolve_policy(policy), msgspec.structs.replace(settings, network=network, clone=None)


def brings_critic(folder: Path, settings: TrainingSettings) -> bool:
    """Return whether a policy's training left a critic with the same discount, reward scale and quantities seen."""
    if not has_state(folder):
        return False
    record = read_record(folder / "config.yaml")
    if record.get("algorithm") == "distillation":
        return False
    theirs = record["settings"]
    same = all(theirs[name] == getattr(settings, name) for name in ("gamma", "reward_scale"))
    seen = seen_by_critic(tuple(theirs.get("randomise", ())), privileged=bool(theirs.get("privileged")))
    return same and seen == seen_by_critic(settings.randomise, privileged=settings.privileged)


def critic_updates(folder: Path | None, settings: TrainingSettings) -> int:
    """Return for how many updates only the critic trains if the policy starts from `folder` (None: random)."""
    return 0 if folder is None or brings_critic(folder, settings) else CRITIC_UPDATES


def warm_start(
    actor: MLPModel, critic: MLPModel, folder: Path, settings: TrainingSettings, terms: Sequence[str] = ()
) -> dict[str, Any]:
    """Load a policy into an algorithm's actor and critic; return the rest of its state, such as the optimiser's.

    If its training left a checkpoint, exploration noise is loaded, and the critic if it is compatible
    (`brings_critic`), for any algorithm; otherwise only the actor, and the critic starts anew. `terms` are the columns
    that the critic sees beside the observations.

    Raises:
        InputError: The policy brings a critic that saw other columns.
    """
    if brings_critic(folder, settings):
        _require_critic(folder, terms)
        saved = artifacts.read_tree(folder / "state", "training")["learner"]
        actor.load_state_dict(saved.pop("actor_state_dict"))
        critic.load_state_dict(saved.pop("critic_state_dict"))
        return saved
    if has_state(folder):
        actor.load_state_dict(artifacts.read_tree(folder / "state", "training")["learner"]["actor_state_dict"])
    else:
        _, network = load_policy(folder)
        network.store_rsl_rl(actor.state_dict(), float(getattr(actor.obs_normalizer, "eps", 0.0)))
    if POLICY not in critic.obs_groups:  # it sees the state, whose statistics nothing holds
        return {}
    for name, value in actor.state_dict().items():
        if name.startswith("obs_normalizer."):  # a critic may have further inputs after the policy's
            statistic = critic.state_dict()[name]
            (statistic[..., : value.shape[-1]] if value.ndim else statistic).copy_(value)
    return {}


def _require_critic(folder: Path, terms: Sequence[str]) -> None:
    """Raise an InputError naming the columns by which a policy's critic and one that sees `terms` differ."""
    theirs, ours = read_policy_config(folder).critic, tuple(terms)
    if theirs == ours:
        return
    only = [
        f"{what} {', '.join(names)}"
        for what, names in (
            ("saw", [name for name in theirs if name not in ours]),
            ("did not see", [name for name in ours if name not in theirs]),
        )
        if names
    ]
    raise InputError(
        f"{folder}: its critic {' and '.join(only) or f'saw {list(theirs)} in this order'}; valid: a policy whose "
        f"critic saw {', '.join(ours) or 'the observations alone'}, or one without state/, whose critic starts anew"
    )


class LossKeeper:
    """Replaces rsl_rl's logger; keeps the losses of the last update and writes nothing."""

    writer = None
    log_dir = None

    def __init__(self) -> None:
        self.losses: dict[str, float] = {}

    def init_logging_writer(self) -> None:
        """Do nothing."""

    def process_env_step(self, *_: Any) -> None:
        """Do nothing; the environment counts episodes."""

    def log(self, *, loss_dict: dict[str, float], **_: Any) -> None:
        """Keep the losses."""
        self.losses = dict(loss_dict)


class OurRanks:
    """Mixin of rsl_rl's runners: the ranks of `learn.devices` in place of its own multi-GPU setup."""

    def _configure_multi_gpu(self: Any) -> None:
        ranks = current_ranks()
        self.is_distributed, self.gpu_world_size = False, ranks.count  # weights are equal already
        self.gpu_local_rank = self.gpu_global_rank = ranks.rank
        several = {"global_rank": ranks.rank, "local_rank": ranks.rank, "world_size": ranks.count}
        self.cfg["multi_gpu"] = several if ranks.count > 1 else None


class RunnerLearner(PolicyLearner):
    """Training of one policy by a runner of rsl_rl; a step is one update.

    Attributes:
        runner: The runner, of the class given to `start_runner`.
    """

    runner: Any

    def start_runner(self, runner: type[OnPolicyRunner], configuration: dict[str, Any]) -> None:
        """Build the runner with networks and algorithm."""
        with contextlib.redirect_stdout(io.StringIO()):  # rsl_rl prints its networks
            self.runner = runner(self._world, configuration, None, str(self._world.device))
        self._losses = LossKeeper()
        self.runner.logger = cast(Any, self._losses)

    @property
    def actor(self) -> MLPModel:
        """Network of the policy."""
        return self.runner.alg.get_policy()

    def worlds_and_memory(self) -> dict[str, Any]:
        """Return the state of the worlds (on a CPU), the policy's memory in them, and torch's random generator."""
        memory = self.actor.get_hidden_state()
        hidden = [] if memory is None else list(memory) if isinstance(memory, tuple) else [memory]
        return self.of_ranks({"random": torch.get_rng_state(), "worlds": self._world.checkpoint(), "hidden": hidden})

    def restore_worlds(self, saved: dict[str, Any]) -> None:
        """Restore `worlds_and_memory`; on a GPU, episodes start anew."""
        rank_state = self.of_this_rank(saved)
        if rank_state["worlds"] is not None:
            self._world.load(rank_state["worlds"])
        if hidden := rank_state.get("hidden"):
            first, *second = [h.to(self._world.device) for h in hidden]
            self.actor.reset(hidden_state=(first, second[0]) if second else first)
        torch.set_rng_state(rank_state["random"].cpu())

    def outcome(self) -> OptimiserStep:
        """Return the outcome of an update."""
        finite = all(math.isfinite(value) for value in self.losses.values())
        return OptimiserStep(rate=self.runner.alg.learning_rate, taken=finite)


class EncodedModel(MLPModel):
    """rsl_rl's MLP behind an encoder of the randomised quantities or, in a student (`frame` > 0), of its history."""

    def __init__(
        self, obs: TensorDict, obs_groups: dict[str, list[str]], obs_set: str, *arguments: Any, latent: int,
        encoder: list[int], activation: str = "elu", frame: int = 0, **options: Any,
    ) -> None:  # fmt: skip
        """Set up rsl_rl's model with the same arguments; `frame` is the size of one observation in a history."""
        first, *drawn = (obs[group].shape[-1] for group in obs_groups[obs_set])
        self._read = slice(0, None) if frame else slice(first, None)
        self._kept = frame or first
        self._latent = latent
        super().__init__(obs, obs_groups, obs_set, *arguments, activation=activation, **options)
        self.encoder = MLP(first if frame else sum(drawn), latent, encoder, activation)
        self.given = obs

    def _get_latent_dim(self) -> int:
        return self._kept + self._latent

    def encode(self, obs: TensorDict) -> Tensor:
        """Return the latent, shape [worlds, latent]."""
        return self.encoder(super().get_latent(obs)[..., self._read])

    def get_latent(self, obs: TensorDict, masks: Tensor | None = None, hidden_state: Any = None) -> Tensor:
        """Return the MLP's inputs: observation and latent."""
        self.given = obs
        seen = super().get_latent(obs)
        return torch.cat([seen[..., : self._kept], self.encoder(seen[..., self._read])], -1)
