# SPDX-License-Identifier: Apache-2.0
"""Train a policy by PPO in any dynamics.

rsl_rl's runner learns, in the training loop of the library: no pickle is written, and while the policy trains in one
dynamics it is played, without noise, there and in a reference, so that a policy which only exploits its model is seen
to. The best policy *in the dynamics that it is trained in* is kept: the reference is watched, never used.
"""

import contextlib
import io
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from msgspec import UNSET
from rsl_rl.runners import OnPolicyRunner

from neurodyn.control.compatibility import require_fit
from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.returns import Outcome
from neurodyn.control.starts import Starts
from neurodyn.core.locks import exclusive
from neurodyn.core.seeds import derive_seed
from neurodyn.core.verdict import Verdict, of_returns
from neurodyn.core.versions import package_versions
from neurodyn.learn.learner import Learner, Step, Validation
from neurodyn.learn.loop import Callback, TrainingLoop, TrainState
from neurodyn.learn.metrics import Progress
from neurodyn.learn.plan import Budget
from neurodyn.learn.run_folder import RunRecord, check_run
from neurodyn.policy.artifact import policy_config, read_weights, save_policy
from neurodyn.policy.cloning import Demonstrations, clone
from neurodyn.policy.environment import PolicyEnvironment
from neurodyn.policy.evaluate import play
from neurodyn.policy.network import PolicyNetwork
from neurodyn.policy.penalty import AUTO, certainty_rule
from neurodyn.policy.ppo import LEAST_RATE
from neurodyn.policy.settings import PolicySettings
from neurodyn.policy.warm_start import critic_updates, warm_start
from neurodyn.tasks import Task

LEAST_UPDATES = 10
"""Updates below which a training that a time budget ends has hardly begun."""

_EVALUATION = 900
"""Seed of the starts from which policies are compared while they train."""


PolicyRecord = RunRecord[PolicySettings]
"""How a policy was made: POLICY/config.yaml."""


class _Losses:
    """Stands where rsl_rl's logger does, and keeps the losses of the last update; nothing is written."""

    writer = None
    log_dir = None

    def __init__(self) -> None:
        self.losses: dict[str, float] = {}

    def init_logging_writer(self) -> None:
        """Open nothing."""

    def process_env_step(self, *_: Any) -> None:
        """Leave episodes to the environment, which counts them."""

    def log(self, *, loss_dict: dict[str, float], **_: Any) -> None:
        """Keep the losses."""
        self.losses = dict(loss_dict)


class PolicyLearner(Learner):
    """One policy in training: a step is an update of PPO, a validation a play without noise."""

    def __init__(
        self,
        out: Path,
        task: Task,
        where: ResolvedDynamics,
        settings: PolicySettings,
        reference: ResolvedDynamics | None = None,
        *,
        initial: Path | None = None,
        starts: Starts | None = None,
    ) -> None:
        """Build worlds, network and learner; arguments and errors are those of `train_policy`."""
        self._out, self._task, self._where, self._settings = out, task, where, settings
        self._reference, self._initial = reference, initial
        seed = settings.seed
        require_fit(task, where.dynamics, settings.penalty)
        best = 1.0 if settings.clone is None else settings.clone.best
        self._rule = certainty_rule(where.dynamics, where.log, best) if settings.penalty == AUTO else None
        self._uncertain, self._certain = 0.0, True
        # Where it is played: from starts of the task where some of the training's episodes have such.
        self._plays = where
        if settings.task_share is not None and where.log is not None and where.drawn_by(task):
            self._plays = replace(where, log=None)
            starts = where.mixed_starts(task, seed, settings.task_share) if starts is None else starts
        self._world = PolicyEnvironment(
            task, where.dynamics, where.starts(task, seed) if starts is None else starts, settings.worlds,
            seed=seed, penalty=self._penalty, reward_scale=settings.reward_scale, noisy=True, frames=settings.frames,
        )  # fmt: skip
        torch.manual_seed(derive_seed(seed, "policy"))
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
            self.runner = OnPolicyRunner(self._world, settings.runner(), None, str(self._world.device))
        self._losses, self._real = _Losses(), None
        self.runner.logger = cast(Any, self._losses)
        self._config = policy_config(task, settings.network)
        # In one update few episodes end, and short ones among them first: as many as there are worlds say how it goes.
        self._recent: deque[tuple[float, bool]] = deque(maxlen=settings.worlds)

    @property
    def network(self) -> PolicyNetwork:
        """The present policy."""
        config, actor = self._config, self.runner.alg.get_policy()
        network = config.build()
        network.take(actor.state_dict(), float(getattr(actor.obs_normalizer, "eps", 0.0)))
        return network.to(self._world.device).requires_grad_(False)

    least_steps = LEAST_UPDATES

    def verdicts(self, at: TrainState) -> list[Verdict]:
        """Judge the last return in the dynamics that it was trained in beside that in the reference."""
        if self._reference is None or self._real is None or at.last is None:
            return []
        return [of_returns(at.last, self._real, self._reference.name)]

    def begin(self, at: TrainState) -> None:
        """Start from an earlier policy or from what the log shows, where that is asked for and there is one."""
        settings, where = self._settings, self._where
        if self._initial is not None and not at.step:
            warm_start(self.runner.alg, self._initial)
        if settings.clone is None or where.log is None or at.step:
            return
        shown = Demonstrations(
            self._task, where.dynamics, where.log, settings.clone.batch, settings.seed, best=settings.clone.best
        )
        clone(self.runner.alg.actor, self.runner.alg.critic, shown, settings.clone)

    def step(self, done: float, at: TrainState) -> Step:
        """Roll out and update; what was imitated or given stays until the critic knows what it is worth."""
        settings = self._settings
        updates = critic_updates(self._initial)
        if settings.clone is not None and self._where.log is not None:
            updates = settings.clone.critic
        held = at.step < updates
        if updates and at.step == updates:
            self._release(at)
        self.runner.alg.actor.requires_grad_(not held)
        before = self._world.uncertainty
        self.runner.learn(1, init_at_random_ep_len=at.step == 0)
        self._uncertain = (self._world.uncertainty - before) / settings.horizon
        if self._rule is not None and held:
            self._rule.watch(self._uncertain)
        elif self._rule is not None:
            self._world.set_penalty(self._rule.update(self._uncertain))
        if settings.keep_every is not None and (at.step + 1) % settings.keep_every == 0:
            save_policy(self._out / "kept" / f"{at.step + 1:05d}", self._config, self.network)
        finite = all(math.isfinite(value) for value in self._losses.losses.values())
        return Step(rate=self.runner.alg.learning_rate, taken=finite)

    def _release(self, at: TrainState) -> None:
        """Let the policy learn, too; under a rule for lambda the first is kept until another is as certain."""
        if self._settings.schedule == "adaptive":
            # At the rate at which the critic learned, the first steps would undo what was imitated or given.
            self.runner.alg.learning_rate = LEAST_RATE
        if self._rule is not None:
            network = self.network
            played = self._play(network, self._plays, self._penalty)
            self._rule.release(self._uncertainty(played))
            save_policy(self._out, self._config, network)
            at.best, self._rule.kept = float(played.penalised.mean()), 0

    def validate(self, at: TrainState) -> Validation:
        """Play the present policy where it is trained, and in the reference."""
        network = self._played = self.network  # made once: its first weights are drawn from torch's generator
        played = self._play(network, self._plays, self._penalty)
        score = float(played.penalised.mean())
        values = {"return_training": float(played.returns.mean()), "penalised_training": score}
        if self._rule is not None:
            values["uncertainty_training"] = self._uncertainty(played)
            self._certain = self._rule.certain(values["uncertainty_training"])
        if self._reference is not None:
            self._real = values["return_reference"] = float(self._play(network, self._reference, 0.0).returns.mean())
        return Validation(score, values)

    def better(self, score: float, best: float) -> bool:
        """Return whether a return is greater; under a penalty that changes, the later one is, if it is certain."""
        return score > best if self._rule is None else self._certain

    def keep(self, at: TrainState) -> None:
        """Write the policy that was played; under a rule for lambda, the mean of all that were kept."""
        network = self._played
        if self._rule is not None:
            if self._rule.kept:
                network = self._config.build()
                network.take_mean(read_weights(self._out), self._played.state_dict(), 1.0 / (1 + self._rule.kept))
            self._rule.kept += 1
        save_policy(self._out, self._config, network)

    def finish(self, at: TrainState) -> None:
        """Write the last policy where none was ever compared."""
        if at.best is None:
            save_policy(self._out, self._config, self.network)

    def state(self) -> dict[str, Any]:
        """Return the learner, the worlds it learns in (on a CPU), and torch's random state."""
        saved = {
            "learner": self.runner.alg.save(), "random": torch.get_rng_state(), "penalty": self._penalty,
            "rate": self.runner.alg.learning_rate, "worlds": self._world.saved(), "uncertain": self._uncertain,
        }  # fmt: skip
        return saved if self._rule is None else saved | {"rule": self._rule.state()}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from `state`; on a GPU, and from checkpoints of older versions, episodes begin anew."""
        self.runner.alg.load(saved["learner"], None, True)
        self.runner.alg.learning_rate = saved.get("rate", self.runner.alg.learning_rate)
        self._uncertain = saved.get("uncertain", 0.0)
        if saved.get("worlds") is not None:
            self._world.load(saved["worlds"])
        torch.set_rng_state(saved["random"].cpu())
        if self._rule is not None:
            self._rule.load(saved["rule"])
            self._world.set_penalty(self._rule.value)

    def metrics(self, loop: TrainingLoop, found: Validation | None) -> dict[str, Any]:
        """Return the line of an update."""
        at, alg, ended = loop.state, self.runner.alg, self._world.collect()
        count = len(ended.returns)
        parts = {
            "return": ended.returns, "penalised": ended.penalised, "length": ended.lengths, "failed": ended.failed,
            "implausible": ended.implausible,
        }  # fmt: skip
        means = {name: sum(part) / count for name, part in parts.items()} if count else {}
        self._recent.extend(zip(ended.returns, ended.implausible, strict=True))
        return {
            **self.closing(at),
            "seconds": round(at.seconds, 3),
            "cpu_seconds": round(at.cpu_seconds, 3),
            "episodes": count,
            "rate": loop.last.rate,
            "noise": float(alg.get_policy().output_std.detach().mean()),
            **self._certainty(),
            "loss": self._losses.losses,
            **means,
            **(found.values if found else {}),
        }

    def text(self, loop: TrainingLoop, found: Validation | None) -> str:
        """Return the return of the last episodes, or of the play."""
        values = {} if found is None else found.values
        recent = [sum(part) / len(self._recent) for part in zip(*self._recent, strict=True)]
        shown, real = values.get("return_training", recent[0] if recent else None), values.get("return_reference")
        text = "" if shown is None else f"return {shown:.4g}"
        if real is not None and self._reference is not None:
            text = f"{text}, in {self._reference.name} {real:.4g}"
        broken = recent[1] if recent else 0.0
        return f"{text}, {broken:.1%} of episodes implausible" if broken else text

    def closing(self, at: TrainState) -> dict[str, Any]:
        """Return the frames of all worlds so far."""
        return {"frames": self._settings.frames_of(at.step)}

    @property
    def _penalty(self) -> float:
        return self._rule.value if self._rule is not None else self._settings.fixed_penalty

    def _certainty(self) -> dict[str, float]:
        """Return lambda, and how uncertain the policy and held-out episodes of the log are, where that is watched."""
        if not self._penalty:
            return {}
        found = {"penalty": self._penalty, "uncertainty": self._uncertain}
        return found if self._rule is None else found | {"uncertainty_log": self._rule.reference}

    def _uncertainty(self, played: Outcome) -> float:
        """Return the mean uncertainty of the frames of a play, which its penalty tells."""
        lost = float((played.returns - played.penalised).sum() / played.lengths.sum())
        return lost / (self._penalty * self._task.penalty_scale)

    def _play(self, network: PolicyNetwork, where: ResolvedDynamics, penalty: float) -> Outcome:
        starts = where.starts(self._task, _EVALUATION)
        count = self._settings.evaluation_worlds
        return play(network, self._task, where.dynamics, starts, count, seed=_EVALUATION, penalty=penalty)


def train_policy(
    task: Task,
    where: ResolvedDynamics,
    out: Path,
    settings: PolicySettings,
    *,
    reference: ResolvedDynamics | None = None,
    starts: str | None = None,
    initial: Path | None = None,
    training_starts: Starts | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    callbacks: Sequence[Callback] = (),
) -> TrainState:
    """Train a policy and write it to a folder.

    Args:
        task: What is to be learnt.
        where: Dynamics that it is trained in.
        out: Folder of the policy.
        settings: How to train.
        reference: Dynamics in which the policy is played beside them while it trains; None for none.
        starts: Log that was given for starts, for the record.
        initial: Folder of a policy that it starts from, with its critic where that was kept; None for a random one.
        training_starts: Where episodes of the training start; None for where those start in which it is played.
        resume: Go on where a stopped training of the same policy was saved.
        progress: Shown how far the training is.
        callbacks: Called as the training goes.

    Returns:
        Where the training ended; its steps are updates.

    Raises:
        InputError: Task and dynamics do not fit together, the folder holds a policy (and `resume` is not asked for), or
            it cannot be resumed.
    """
    versions = package_versions("torch", "rsl-rl-lib", "newton")
    record = PolicyRecord(
        task=task.name, dynamics=where.name, settings=settings, starts=starts, versions=versions,
        base=UNSET if initial is None else str(initial),
    )  # fmt: skip
    with exclusive(out):
        going_on = check_run(out, record, resume)
        loop = TrainingLoop(
            PolicyLearner(out, task, where, settings, reference, initial=initial, starts=training_starts),
            Budget(settings.iterations, settings.minutes), out,
            record=record, validations=settings.evaluations, validate_first=False,
            thread_count=settings.threads or torch.get_num_threads(), callbacks=callbacks, progress=progress,
        )  # fmt: skip
        if going_on:
            loop.resume()
        return loop.run()
