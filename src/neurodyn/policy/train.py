# SPDX-License-Identifier: Apache-2.0
"""Train a policy by PPO in any dynamics; a killed training goes on where it last saved.

rsl_rl's runner learns; everything around it is ours: no pickle is written, metrics are JSON lines, and while the
policy trains in one dynamics it is played, without noise, there and in a reference, so that a policy which only
exploits its model is seen to. The policy that is kept is the best one *in the dynamics that it is trained in*: the
reference is watched, never used.
"""

import contextlib
import io
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import torch
from rsl_rl.runners import OnPolicyRunner

from neurodyn.core import artifacts
from neurodyn.core.config import Config, read_config, to_yaml
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.data.store import package_versions
from neurodyn.learn.devices import threads
from neurodyn.learn.metrics import MetricsLog, Progress
from neurodyn.policy.artifact import policy_config, save_policy
from neurodyn.policy.cloning import Demonstrations, clone
from neurodyn.policy.environment import PolicyEnvironment
from neurodyn.policy.evaluate import Outcome, play
from neurodyn.policy.network import PolicyNetwork
from neurodyn.policy.resolve import ResolvedDynamics
from neurodyn.policy.settings import PolicySettings
from neurodyn.tasks import Task

SAVE_SECONDS = 30.0
_STATE = "training"
_EVALUATION = 900
"""Seed of the starts from which policies are compared while they train."""


class PolicyRecord(Config, frozen=True):
    """How a policy was made: POLICY/config.yaml.

    Attributes:
        task: Name of the task.
        dynamics: What it was trained in, as the user calls it.
        settings: Resolved settings.
        starts: Log that was given for starts; None where none was.
        versions: Versions of the packages that trained it.
    """

    task: str
    dynamics: str
    settings: PolicySettings
    starts: str | None
    versions: dict[str, str]


@dataclass
class PolicyPosition:
    """Where a training stands.

    Attributes:
        iteration: Updates so far.
        frames: Frames of all worlds so far.
        seconds: Wall time so far, resumed parts included [s].
        cpu_seconds: Processor time so far [s].
        best: Greatest penalised return so far, in the dynamics of the training; None before the first play.
        played: Plays so far.
    """

    iteration: int = 0
    frames: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    best: float | None = None
    played: int = 0


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


class PolicyTrainer:
    """Trains one policy and writes it."""

    def __init__(
        self,
        out: Path,
        task: Task,
        where: ResolvedDynamics,
        settings: PolicySettings,
        reference: ResolvedDynamics | None = None,
    ) -> None:
        """Build worlds, network and learner.

        Args:
            out: Folder of the policy.
            task: What is to be learnt.
            where: Dynamics that it is trained in.
            settings: How to train.
            reference: Dynamics in which the policy is played beside them while it trains; None for none.

        Raises:
            InputError: Task and dynamics do not fit together.
        """
        self._out, self._task, self._where, self._settings = out, task, where, settings
        self._reference = reference
        seed = settings.seed
        self._world = PolicyEnvironment(
            task, where.dynamics, where.starts(task, seed), settings.worlds,
            seed=seed, penalty=settings.penalty, reward_scale=settings.reward_scale, noisy=True,
            frames=settings.frames,
        )  # fmt: skip
        torch.manual_seed(derive_seed(seed, "policy"))
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its networks
            self._runner = OnPolicyRunner(self._world, settings.runner(), None, str(self._world.device))
        self._losses = _Losses()
        self._runner.logger = cast(Any, self._losses)
        self._config = policy_config(task, settings.network)
        self.at = PolicyPosition()

    @property
    def network(self) -> PolicyNetwork:
        """The present policy."""
        config, actor = self._config, self._runner.alg.get_policy()
        network = PolicyNetwork(len(config.observations), len(config.actions), config.network, config.limit)
        network.take(actor.state_dict(), float(getattr(actor.obs_normalizer, "eps", 0.0)))
        return network.to(self._world.device).requires_grad_(False)

    def resume(self) -> None:
        """Go on from POLICY/state; episodes begin anew.

        Raises:
            InputError: The state is missing or damaged.
        """
        saved = artifacts.read_tree(self._out / "state", _STATE)
        try:
            self.at = PolicyPosition(**saved["position"])
            self._runner.alg.load(saved["learner"], None, True)
            torch.set_rng_state(saved["random"].cpu())
            self.at.played = int(self._done() * self._settings.evaluations)
        except (KeyError, RuntimeError, TypeError) as error:
            raise InputError(f"{self._out}: state does not fit its configuration ({error})") from None

    def run(self, progress: Progress | None = None) -> PolicyPosition:
        """Train to the end of the budget and return where the training ended."""
        with (
            threads(self._settings.threads or torch.get_num_threads()),
            MetricsLog(self._out, self.at.iteration) as log,
        ):
            wall, cpu, saved = time.perf_counter(), time.process_time(), time.perf_counter()
            self._imitate()
            try:
                while self._done() < 1.0:
                    self._hold_actor()
                    self._runner.learn(1, init_at_random_ep_len=self.at.iteration == 0)
                    self.at.iteration += 1
                    self.at.frames += self._settings.worlds * self._settings.horizon
                    self._measure(log, progress)
                    now, used = time.perf_counter(), time.process_time()
                    self.at.seconds, self.at.cpu_seconds = (
                        self.at.seconds + now - wall,
                        self.at.cpu_seconds + used - cpu,
                    )
                    wall, cpu = now, used
                    if now - saved > SAVE_SECONDS:
                        self._save()
                        saved = now
            except KeyboardInterrupt:
                self._save()
                raise
            if self.at.best is None:
                save_policy(self._out, self._config, self.network)
            self._save()
            end = {"seconds": self.at.seconds, "cpu_seconds": self.at.cpu_seconds}
            log.write(self.at.iteration, finished=True, frames=self.at.frames, **end)
        return self.at

    def _imitate(self) -> None:
        """Begin with what the log shows, where that is asked for and there is one."""
        settings, where = self._settings, self._where
        if settings.clone is None or where.log is None or self.at.iteration:
            return
        shown = Demonstrations(self._task, where.dynamics, where.log, settings.clone.batch, settings.seed)
        clone(self._runner.alg.actor, self._runner.alg.critic, shown, settings.clone)

    def _hold_actor(self) -> None:
        """Keep what was imitated until the critic knows what it is worth."""
        settings = self._settings
        held = settings.clone is not None and self._where.log is not None and self.at.iteration < settings.clone.critic
        self._runner.alg.actor.requires_grad_(not held)

    def _done(self) -> float:
        settings, at = self._settings, self.at
        shares = []
        if settings.iterations is not None:
            shares.append(at.iteration / settings.iterations)
        if settings.minutes is not None:
            shares.append(at.seconds / (60.0 * settings.minutes))
        return max(shares)

    def _measure(self, log: MetricsLog, progress: Progress | None) -> None:
        at, alg = self.at, self._runner.alg
        ended = self._world.collect()
        done = self._done()
        kept = self._settings.keep_every
        if kept is not None and at.iteration % kept == 0:
            save_policy(self._out / "kept" / f"{at.iteration:05d}", self._config, self.network)
        values: dict[str, Any] = {
            "frames": at.frames,
            "seconds": round(at.seconds, 3),
            "cpu_seconds": round(at.cpu_seconds, 3),
            "episodes": len(ended.returns),
            "rate": alg.learning_rate,
            "noise": float(alg.get_policy().output_std.detach().mean()),
            "loss": self._losses.losses,
        }
        if ended.returns:
            count = len(ended.returns)
            values |= {
                "return": sum(ended.returns) / count,
                "penalised": sum(ended.penalised) / count,
                "length": sum(ended.lengths) / count,
                "failed": sum(ended.failed) / count,
            }
        if done * self._settings.evaluations >= at.played + 1 or (done >= 1.0 and self._settings.evaluations):
            at.played += 1
            values |= self._play()
        log.write(at.iteration, **values)
        if progress is not None:
            shown = values.get("return_training", values.get("return"))
            text = "" if shown is None else f"return {shown:.4g}"
            real = values.get("return_reference")
            progress.update(min(done, 1.0), text if real is None else f"{text}, in {self._beside()} {real:.4g}")

    def _play(self) -> dict[str, float]:
        """Play the present policy without noise, and keep it if it is the best where it is trained."""
        network = self.network
        found = self._outcome(network, self._where, self._settings.penalty)
        score = float(found.penalised.mean())
        if self.at.best is None or score > self.at.best:
            self.at.best = score
            save_policy(self._out, self._config, network)
        values = {"return_training": float(found.returns.mean()), "penalised_training": score}
        if self._reference is not None:
            values["return_reference"] = float(self._outcome(network, self._reference, 0.0).returns.mean())
        return values

    def _outcome(self, network: PolicyNetwork, where: ResolvedDynamics, penalty: float) -> Outcome:
        starts = where.starts(self._task, _EVALUATION)
        count = self._settings.evaluation_worlds
        return play(network, self._task, where.dynamics, starts, count, seed=_EVALUATION, penalty=penalty)

    def _beside(self) -> str:
        return "" if self._reference is None else self._reference.name

    def _save(self) -> None:
        tree = {
            "position": asdict(self.at),
            "learner": self._runner.alg.save(),
            "random": torch.get_rng_state(),
        }
        artifacts.write_tree(self._out / "state", _STATE, tree)


def train_policy(
    task: Task,
    where: ResolvedDynamics,
    out: Path,
    settings: PolicySettings,
    *,
    reference: ResolvedDynamics | None = None,
    starts: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> PolicyPosition:
    """Train a policy and write it to a folder.

    Args:
        task: What is to be learnt.
        where: Dynamics that it is trained in.
        out: Folder of the policy.
        settings: How to train.
        reference: Dynamics in which the policy is played beside them while it trains; None for none.
        starts: Log that was given for starts, for the record.
        resume: Go on where a killed training of the same policy stopped.
        progress: Shown how far the training is.

    Returns:
        Where the training ended.

    Raises:
        InputError: Task and dynamics do not fit together, the folder holds a policy (and `resume` is not asked for), or
            it cannot be resumed.
    """
    versions = package_versions("torch", "rsl-rl-lib", "newton")
    record = PolicyRecord(task=task.name, dynamics=where.name, settings=settings, starts=starts, versions=versions)
    going_on = _check_folder(out, record, resume)
    trainer = PolicyTrainer(out, task, where, settings, reference)
    if going_on:
        trainer.resume()
    artifacts.write_text(out / "config.yaml", to_yaml(record))
    return trainer.run(progress)


def _check_folder(out: Path, record: PolicyRecord, resume: bool) -> bool:
    """Compare what a policy is to be with what is there; return whether there is a state to go on from."""
    path = out / "config.yaml"
    if not resume:
        if path.exists():
            raise InputError(f"{out}: already holds a policy; add --resume to go on with it, or give another --out")
        if out.exists() and not out.is_dir():
            raise InputError(f"{out}: is a file; give a folder for the policy")
        return False
    if not path.exists():
        raise InputError(f"{out}: holds no training to resume (no config.yaml); leave out --resume to start one")
    before = read_config(path, PolicyRecord)
    for name in ("task", "dynamics", "settings", "starts"):
        if _without_budget(getattr(before, name)) != _without_budget(getattr(record, name)):
            raise InputError(
                f"{path}: --resume needs the {name} that the policy was started with; leave out the flags that differ, "
                "or give another --out"
            )
    return (out / "state" / f"{_STATE}.json").is_file()


def _without_budget(value: Any) -> Any:
    """Return settings as they are compared: a training may go on for longer than was planned."""
    if not isinstance(value, PolicySettings):
        return value
    return msgspec.structs.replace(value, iterations=1, minutes=None, evaluations=0)
