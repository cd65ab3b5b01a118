# SPDX-License-Identifier: Apache-2.0
"""Fitting of each kind of model to all data so far: `REFITS`."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec
import torch

from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.robot.in_loop import RobotDynamics
from neurodyn.control.task_frames import TaskFrames, WorldsState
from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError
from neurodyn.core.progress import Progress, showing
from neurodyn.data.mixture import join_stores
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import State, device_generator
from neurodyn.dynamics.capture import detach
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KindOperation
from neurodyn.dynamics.rollouts import context_of
from neurodyn.identify.run import adapt, identify
from neurodyn.identify.settings import AdaptationSettings, IdentificationSettings, changed, load_identification
from neurodyn.learn.neural.policy_rollouts import LoggedActor
from neurodyn.learn.neural.settings import Settings, load_finetuning, load_settings
from neurodyn.learn.neural.train import require_data
from neurodyn.learn.plan import with_budget
from neurodyn.learn.training import finetune, train
from neurodyn.learn.world_model.settings import load_world_finetuning, load_world_settings
from neurodyn.learn.world_model.train import require_log
from neurodyn.policy.artifact import ActingPolicy, Behaviour, PolicyNetwork, acting, behaviour, load_policy
from neurodyn.policy.episodes.logs import record_log
from neurodyn.policy.online_learning.settings import OnlineSettings
from neurodyn.policy.settings import RANDOM, STILL
from neurodyn.report.identification import write_identification
from neurodyn.robots import Robot
from neurodyn.robots.base_channels import open_measured_data
from neurodyn.robots.data import open_robot_data
from neurodyn.tasks import Task

_SIZE, _FINETUNE = "small", "finetune"
_WORLDS = 64
_UNTRAINED = 0.4
"""Greatest standard deviation of the first data's noise, as a share of the action limit.

With it, an ANYmal C that would stand under zero actions falls in three of ten episodes.
"""
_HORIZON, _WINDOWS, _ITERATIONS, _HELD_OUT = 0.1, 256, 30, 500
_EDGE = 1e-6
"""Margin to a parameter's bounds, as a share of its range; at the bounds its start would have no gradient."""


@dataclass(frozen=True)
class Fit:
    """One fit of a model.

    Attributes:
        settings: Settings of the loop.
        out: Run directory to write.
        data: Files, random data first.
        shares: Share of each file in training; None to weight by transitions.
        previous: Run of the previous model; None for a new one.
        policies: Folder of the acting policy by path of its log.
        tasks: Task of the acting policy by path of its log, where it is another one.
    """

    task: Task
    settings: OnlineSettings
    out: Path
    data: Sequence[str]
    shares: Sequence[float] | None
    previous: str | None
    resume: bool = False
    device: str = "cpu"
    progress: Progress | None = field(default=None, compare=False)
    policies: Mapping[str, Path] = field(default_factory=dict)
    tasks: Mapping[str, Task] = field(default_factory=dict)

    @property
    def robot(self) -> Robot:
        """The robot as the task drives it."""
        return self.task.declaration()


class Refit(ABC):
    """Fits models of one kind.

    Attributes:
        measured: Whether the models predict what the robot measures.
        short: Whether roll-outs are short by default.
        frames: Default frames of random data for a new model.
    """

    measured = False
    short = True
    frames = 50_000

    @abstractmethod
    def require(self, task: Task, settings: OnlineSettings, *, new: bool, data: bool) -> None:
        """Raise an InputError for bad settings or a new model without data; `data` says whether data are given."""

    def uncertain(self, task: Task, settings: OnlineSettings) -> bool:
        """Return whether a new model estimates its uncertainty."""
        return False

    def require_model(self, model: Dynamics, run: str, settings: OnlineSettings) -> None:
        """Raise an InputError for a model of this kind that cannot be fitted further."""
        return

    def require_store(self, robot: Robot, store: Store) -> None:
        """Raise a MismatchError for data of another robot."""
        require_data(robot, store)

    def open(self, robot: Robot, data: str) -> Store:
        """Open data of the robot, with its declared ground for logs that name none."""
        return open_robot_data(robot, data)

    def random(
        self, task: Task, reference: ResolvedDynamics, settings: OnlineSettings, out: Path, seed: int,
        policy: Path | None = None,
    ) -> int:  # fmt: skip
        """Write data without a policy, half with random actions and half with noise about zero; return its frames.

        With smooth noise, all episodes have noise about zero: uniformly random actions only topple a simulated robot.
        On a robot the noise is added to the actions of the first `policy`, if there is one.
        """
        alive, frames = isinstance(reference.dynamics, RobotDynamics), settings.frames
        without_policy = (STILL,) if settings.correlation and not alive else (RANDOM, STILL)
        behaviours = [behaviour(name, task) for name in settings.first or without_policy]
        if alive and policy is not None and not settings.first:
            behaviours[-1] = Behaviour("policy", load_policy(policy)[1])
        summary = record_log(
            task, reference.dynamics, behaviours, out, transitions=frames,
            worlds=max(4, min(_WORLDS, frames // task.frames)), noise=_UNTRAINED * task.limit,
            correlation=settings.correlation, seed=seed,
            coordinates=not self.measured, test=0.0, declared=not alive, resume=alive,
        )  # fmt: skip
        return summary.transitions + summary.episodes

    @abstractmethod
    def fit(self, fit: Fit) -> None:
        """Fit a model and write its run directory."""

    def calibrate(self, fit: Fit) -> bool:
        """Write a copy of the model `fit.previous` in which logged policies achieve their logged returns, if possible.

        It judges policies and never trains them: a policy trained in it would find other errors than the corrected
        ones.
        """
        return False


def _require_judge(settings: OnlineSettings, kind: str) -> None:
    """Raise an InputError for roll-outs of policies in the training of a model that has none."""
    if settings.closed_loop != "judge":
        raise InputError(f"--closed-loop {settings.closed_loop} is for --kind neural; leave it out for --kind {kind}")


class LearnedRefit(Refit):
    """Networks of a `kind`: trained on the first data, then fine-tuned on all data."""

    kind: str

    def require(self, task: Task, settings: OnlineSettings, *, new: bool, data: bool) -> None:
        """Raise an InputError for a new model without data, and for parameters."""
        if settings.parameters:
            raise InputError(f"--parameters is for --kind hybrid; leave it out for --kind {self.kind}")
        _require_some_data(settings, self.kind, new=new, data=data)

    def fit(self, fit: Fit) -> None:
        """Train a new model, or fine-tune the previous one."""
        settings = fit.settings
        if fit.previous is None:
            train(
                fit.robot, fit.data, fit.out, kind=self.kind, size=settings.size or _SIZE, members=settings.members,
                minutes=settings.model_minutes, seed=settings.seed, shares=fit.shares, device=fit.device,
                resume=fit.resume, progress=fit.progress,
            )  # fmt: skip
        else:  # even a model that validation finds no better has data where the policy was
            size, actors = self.refinement(fit)
            finetune(
                fit.previous, fit.data, fit.out, size=size, minutes=settings.model_minutes, seed=settings.seed,
                shares=fit.shares, device=fit.device, keep="last", resume=fit.resume, progress=fit.progress,
                actors=actors,
            )  # fmt: skip

    def refinement(self, fit: Fit) -> tuple[str | Settings, tuple[LoggedActor, ...]]:
        """Return the settings of a fine-tuning, and the logged policies that take part in it."""
        return fit.settings.finetune or _FINETUNE, ()


class NeuralRefit(LearnedRefit):
    """Neural dynamics, calibrated by roll-outs of the logged policies."""

    kind = "neural"

    def require(self, task: Task, settings: OnlineSettings, *, new: bool, data: bool) -> None:
        """Raise an InputError for a new model without data, for parameters, and for missing settings."""
        super().require(task, settings, new=new, data=data)
        self._later(task, settings).with_windows_alone()

    def uncertain(self, task: Task, settings: OnlineSettings) -> bool:
        """Return whether there are several members."""
        return self._first(task, settings).members > 1

    def _later(self, task: Task, settings: OnlineSettings) -> Settings:
        return load_finetuning(settings.finetune or _FINETUNE, self._first(task, settings).net, task.declaration())

    def _first(self, task: Task, settings: OnlineSettings) -> Settings:
        preset = load_settings(task.declaration(), settings.size or _SIZE)
        return preset if settings.members is None else msgspec.structs.replace(preset, members=settings.members)

    def random(
        self, task: Task, reference: ResolvedDynamics, settings: OnlineSettings, out: Path, seed: int,
        policy: Path | None = None,
    ) -> int:  # fmt: skip
        """Write data from random states, as the network must learn the motion everywhere; robots cannot do this."""
        if isinstance(reference.dynamics, RobotDynamics):
            return super().random(task, reference, settings, out, seed, policy)
        from neurodyn.sim.generation import generate

        robot, frames = task.declaration(), settings.frames
        worlds = max(8, min(512, frames // robot.frames))
        generated = generate(
            robot, transitions=frames, out=out, worlds=worlds, seed=seed, ground=robot.ground, threads=1,
            overwrite=True,
        )  # fmt: skip
        return generated.simulated

    def refinement(self, fit: Fit) -> tuple[str | Settings, tuple[LoggedActor, ...]]:
        """Return the settings of a fine-tuning; with the logged policies, if the model learns from their roll-outs."""
        if fit.settings.closed_loop != "train" or not fit.policies:
            return super().refinement(fit)
        return self._later(fit.task, fit.settings).with_rollouts_in_training(), _actors(fit)

    def calibrate(self, fit: Fit) -> bool:
        """Calibrate by roll-outs of the logged policies, if there are any and the settings ask for it."""
        if fit.settings.closed_loop == "train":
            return False
        settings = self._later(fit.task, fit.settings)
        settings = with_budget(settings, fit.settings.model_minutes, None, fit.settings.seed).with_rollouts_alone()
        if settings is None or not fit.policies or fit.previous is None:
            return False
        finetune(
            fit.previous, fit.data, fit.out, size=settings, shares=fit.shares, device=fit.device, keep="last",
            resume=fit.resume, progress=fit.progress, actors=_actors(fit),
        )  # fmt: skip
        return True


def _actors(fit: Fit) -> tuple[LoggedActor, ...]:
    """Return the policies of all logs, each in its own task."""
    return tuple(logged_actor(fit.tasks.get(log, fit.task), log, one) for log, one in fit.policies.items())


class WorldModelRefit(LearnedRefit):
    """World models, of what the robot measures."""

    kind = "world-model"
    measured = True

    def require(self, task: Task, settings: OnlineSettings, *, new: bool, data: bool) -> None:
        """Raise an InputError for a new model without data, and for parameters."""
        _require_judge(settings, self.kind)
        super().require(task, settings, new=new, data=data)
        robot = task.declaration()
        first = load_world_settings(robot, settings.size or _SIZE)
        load_world_finetuning(settings.finetune or _FINETUNE, first.net, first.context, robot.dt)

    def uncertain(self, task: Task, settings: OnlineSettings) -> bool:
        """Return true: a world model is an ensemble."""
        return True

    def require_store(self, robot: Robot, store: Store) -> None:
        """Raise a MismatchError for data of another robot."""
        require_log(robot, store)

    def open(self, robot: Robot, data: str) -> Store:
        """Open measured data of the robot."""
        return open_measured_data(robot, data)


class HybridRefit(Refit):
    """Hybrid dynamics: the declared robot at first, then with its free quantities identified from all data."""

    short = False
    frames = 0

    def require(self, task: Task, settings: OnlineSettings, *, new: bool, data: bool) -> None:
        """Raise an InputError for a new model without free quantities, for unknown quantities, and for members."""
        _require_judge(settings, "hybrid")
        if settings.members is not None:
            raise InputError("--members is for --kind neural and world-model; leave it out for --kind hybrid")
        if new and not settings.parameters:
            raise InputError(
                "--parameters is missing: name the quantities of the hybrid model that are identified, as "
                "'root.mass' or 'contact.friction=0.5:0.1:2' (neurodyn robots ROBOT lists them)"
            )
        if settings.parameters:
            self._declared_model(task.declaration(), settings)

    def require_model(self, model: Dynamics, run: str, settings: OnlineSettings) -> None:
        """Raise an InputError for a model with networks, or without free quantities if none are named."""
        assert isinstance(model, HybridDynamics)
        if model.config.blueprint.augmentations:
            raise InputError(f"{run}: holds networks, which this loop does not train; valid: a hybrid model without")
        if not model.physical.specs and not settings.parameters:
            raise InputError(f"{run}: has no free quantities; name some with --parameters")

    def fit(self, fit: Fit) -> None:
        """Write the declared robot if there are no data yet, else identify, starting from the previous model."""
        if not fit.data:
            HYBRID.save(fit.out, self._declared_model(fit.robot, fit.settings))
            return
        settings, store = fit.settings, join_stores([self.open(fit.robot, name) for name in fit.data])
        asked = settings.parameters if fit.previous is None else self._parameters(fit.previous, settings)
        identify(
            fit.robot, store, fit.out, parameters=asked, settings=_identification(fit.robot, settings),
            minutes=settings.model_minutes, seed=settings.seed, device=fit.device, resume=fit.resume,
            progress=fit.progress,
        )  # fmt: skip

    def _declared_model(self, robot: Robot, settings: OnlineSettings) -> HybridDynamics:
        engine = _identification(robot, settings).engine(robot)
        return declared_hybrid(robot, contact=engine.contact, substeps=engine.substeps, parameters=settings.parameters)

    def _parameters(self, run: str, settings: OnlineSettings) -> tuple[str, ...]:
        model = HYBRID.load(run)
        parameters = []
        for spec, value in zip(model.physical.specs, model.physical().tolist(), strict=True):
            lower, upper = ("" if bound is None else repr(bound) for bound in (spec.lower, spec.upper))
            parameters.append(f"{spec.name}={_inside(value, spec.lower, spec.upper)!r}:{lower}:{upper}")
        return tuple(parameters) or settings.parameters


class AdaptRefit(Refit):
    """Hybrid dynamics of a robot: adapted to all of its logs, as by `neurodyn adapt`."""

    short = False

    def require(self, task: Task, settings: OnlineSettings, *, new: bool, data: bool) -> None:
        """Raise an InputError for a new model without data, and for settings that an adaptation chooses itself."""
        _require_judge(settings, "hybrid")
        for name in ("parameters", "members", "model_minutes", "finetune"):
            if getattr(settings, name):
                raise InputError(
                    f"--{name.replace('_', '-')} is not for models that are adapted to a robot's logs; leave it out, "
                    "or give --kind neural"
                )
        _require_some_data(settings, "hybrid", new=new, data=data)
        self._settings(settings)

    def open(self, robot: Robot, data: str) -> Store:
        """Open data of the robot, whose base may be unmeasured."""
        return open_robot_data(robot, data, base=False)

    def fit(self, fit: Fit) -> None:
        """Adapt the declared robot to all logs."""
        with showing(fit.progress):
            adapted = adapt(
                fit.robot, fit.data, fit.out, settings=self._settings(fit.settings), seed=fit.settings.seed,
                resume=fit.resume, logger="none",
            )  # fmt: skip
        write_identification(fit.out, adapted.figures)

    def _settings(self, settings: OnlineSettings) -> AdaptationSettings | None:
        return None if settings.size is None else read_config(Path(settings.size), AdaptationSettings)


def _identification(robot: Robot, settings: OnlineSettings) -> IdentificationSettings:
    """Return the identification settings of a file, or defaults for exact logs of a simulator.

    Roll-outs last a tenth of a second: over half a second of contacts the error of a wrong model saturates.
    """
    loaded = load_identification(robot, settings.size)
    if settings.size is not None:
        return loaded
    return changed(
        loaded, horizon=_HORIZON, windows=_WINDOWS, initial="logged", start="logged", iterations=_ITERATIONS,
        rollouts=_HELD_OUT, seconds=(_HORIZON, 0.25), starts=1,
    )  # fmt: skip


def _inside(value: float, lower: float | None, upper: float | None) -> float:
    """Return a value moved inside of its bounds by a margin."""
    room = _EDGE * (upper - lower if lower is not None and upper is not None else max(1.0, abs(value)))
    if lower is not None:
        value = max(value, lower + room)
    return value if upper is None else min(value, upper - room)


@dataclass(frozen=True)
class PolicyInModel:
    """Roll-outs of a policy in a model without noise, for `learn.neural.policy_rollouts.Follow`."""

    task: Task
    policy: PolicyNetwork

    def __call__(self, dynamics: Dynamics, windows: Windows, lead: int, cut: int, seed: int) -> Iterator[State]:
        """Yield the state after each frame beyond the first `lead`."""
        task, frames = self.task, TaskFrames(self.task, dynamics)
        act, drawing = acting(self.policy.to(dynamics.device)), device_generator(windows.q.device, seed)
        logged = [
            State.make_unchecked(q=q, qd=qd) for q, qd in zip(windows.q.unbind(1), windows.qd.unbind(1), strict=True)
        ]
        memory = None
        with torch.no_grad():
            for state, after in pairwise(logged[: lead + 1]):
                now = frames.quantities(state, None, frames.no_torque(state))
                memory = task.begin(now, drawing) if memory is None else memory
                action = act(task.observe(now, memory))
                now = frames.quantities(after, None, frames.no_torque(after))
                memory = task.advance(memory, now, action, drawing)
        past = context_of(windows.after(lead)) if dynamics.spec.context else logged[lead]
        current = frames.begin(past, drawing, memory=memory)
        for number, truth in enumerate(logged[lead + 1 :], 1):
            action = act(task.observe(current.now, current.memory)).clamp(-task.limit, task.limit)
            current, _ = frames.advance(current, action, drawing, tracked=True)
            yield current.state
            if number % cut == 0:
                current = _cut(frames, current, truth)
                if isinstance(act, ActingPolicy):
                    act.cut()


def logged_actor(task: Task, log: str, policy: str | Path) -> LoggedActor:
    """Return the policy of a log of `policy online`, which acts without noise in the log's first group.

    If a task draws commands, which logs do not hold, roll-outs start at the start of episodes.
    """
    commanded = task.commands(1, torch.Generator()).shape[1] > 0
    return LoggedActor(log, 0, PolicyInModel(task, load_policy(policy)[1]), beginnings=commanded)


def _cut(frames: TaskFrames, current: WorldsState, truth: State) -> WorldsState:
    """Detach gradients, and restart from the logged state in worlds with an implausible one."""
    carry, state, torque, memory = detach((current.carry, current.state, current.torque, current.memory))
    implausible = frames.bounds.outside(state.q, state.qd)
    if bool(implausible.any()):
        state, carry = truth.where(implausible, state), frames.dynamics.reset(carry, truth, implausible)
    return WorldsState(carry, state, torque, memory, frames.quantities(state, None, torque))


def _require_some_data(settings: OnlineSettings, kind: str, *, new: bool, data: bool) -> None:
    if new and not settings.frames and not data:
        raise InputError(f"frames is 0, and a new model of kind {kind} learns from data; valid: at least 1, or --data")


REFITS: KindOperation[Refit] = KindOperation(
    "refit", **{"neural": NeuralRefit(), "hybrid": HybridRefit(), "world-model": WorldModelRefit()}
)
"""How `neurodyn policy online` fits models, by kind."""

ADAPT_REFIT = AdaptRefit()
