# SPDX-License-Identifier: Apache-2.0
"""Vectorised rsl_rl environment over any dynamics, simulated or learned.

A world is reset when the task or the model reports a failure, its state is implausible, or its time is up; with
`within_known` also when it leaves what the networks have seen (MOReL, arXiv 2005.05951). In a learned model, `penalty`
times the epistemic uncertainty is subtracted from the reward (MOPO, arXiv 2005.13239; RWM-U, arXiv 2504.16680), which
keeps policies where the model has data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from neurodyn.control.returns import Episodes, EpisodeSums
from neurodyn.control.starts import Starts
from neurodyn.control.task_frames import (
    Ending,
    FaultWatch,
    FrameEnd,
    TaskFrames,
    WorldsState,
    ending,
    judge,
    judge_later,
    judge_view,
    require_fit,
    settle_later,
)
from neurodyn.control.task_program import TaskProgram, TaskView
from neurodyn.core.description.randomisation import RandomisedQuantity
from neurodyn.core.errors import InputError, notice
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.batch import Environment, State, Step, device_generator, present_state
from neurodyn.dynamics.capture import (
    CapturedStep,
    CaptureError,
    Recorder,
    cuda_graph,
    detach,
    restore_tree,
    save_tree,
)
from neurodyn.dynamics.interface import Carry, Dynamics
from neurodyn.dynamics.quantities import Quantities
from neurodyn.policy.worlds.disturbances import Disturbances, DisturbedState
from neurodyn.policy.worlds.ground_levels import GroundLevels
from neurodyn.policy.worlds.randomisation import DrawnRobots
from neurodyn.policy.worlds.world_reset import world_reset_in
from neurodyn.sim.draws import QuantityDraws
from neurodyn.tasks import Memory, Task
from neurodyn.tasks.observations import CRITIC, POLICY
from neurodyn.tasks.views import SENSORS

_IMPLAUSIBLE = "implausible"  # reward term of the cost of implausible states
_MOST_UNREAD = 256  # frames after which ended episodes are read from the device even if no caller collects them


@dataclass(frozen=True)
class _Ended:
    """Episodes that ended in a frame, still on the device; shapes [worlds], and [3, worlds] for `returns`."""

    done: Tensor
    returns: Tensor
    failed: Tensor
    implausible: Tensor


@dataclass(frozen=True)
class EnvironmentFrame:
    """Outputs of one frame.

    Observations are those after resets, shape [worlds, observations]. Rewards (less the penalty, scaled) and `done`
    have shape [worlds]. `extras` holds the entries that rsl_rl reads, and values for logs.
    """

    observation: Tensor
    reward: Tensor
    done: Tensor
    extras: dict[str, Any]
    ended: _Ended | None


@dataclass(frozen=True)
class TrackedFrame:
    """A frame with gradients, before its reward is computed (`PolicyEnvironment.settle`).

    Attributes:
        observation: Observations after resets, shape [worlds, observations].
        last: Observations at the end of the frame, before resets, shape [worlds, observations].
        end: Failures of the frame.
        done: Whether episodes ended, shape [worlds].
        over: Whether any episode ended.
        now: Quantities before resets.
        memory: Task memory at the start of the frame.
        action: Actions, shape [worlds, actions].
        uncertain: Epistemic uncertainty, shape [worlds]; None without a penalty.
        judged: What a critic sees of the end of the frame, before resets, shape [worlds, columns].
        judged_next: What it sees after resets.
        parts: Reward terms of a compiled task, shape [terms, worlds].
    """

    observation: Tensor
    last: Tensor
    end: Ending
    done: Tensor
    over: bool
    now: Quantities
    memory: Memory
    action: Tensor
    uncertain: Tensor | None
    judged: Tensor
    judged_next: Tensor
    parts: Tensor | None


def _with_contacts(now: Quantities, worlds: int) -> Quantities:
    """Set contacts to open where the dynamics report contacts only from the second frame on."""
    if "contact" in now or not now.contact_names:
        return now
    return now.replacing({"contact": lambda of: of["joint_velocity"].new_zeros(worlds, len(of.contact_names))})


class PolicyEnvironment(VecEnv):
    """A batch of worlds in which a policy acts.

    Attributes:
        task: The task.
        dynamics: The dynamics that advance the worlds.
        environment: Ground and obstacles; None for dynamics limited to the surroundings of their logs.
        episodes: Ended episodes already read from the device but not yet collected.
        robots: Randomised robots of the current episodes.
        push_share: Factor on pushes; learners lower it while robots fall.
        ground_levels: Terrain that grows as worlds master it; None for a ground that stays.
    """

    def __init__(
        self,
        task: Task,
        dynamics: Dynamics,
        starts: Starts,
        worlds: int,
        *,
        seed: int = 0,
        penalty: float = 0.0,
        penalty_offset: float = 0.0,
        failure: float = 0.0,
        within_known: bool = False,
        reward_scale: float = 1.0,
        environment: Environment | None = None,
        ground_levels: GroundLevels | None = None,
        draws: QuantityDraws | None = None,
        disturbed: Sequence[RandomisedQuantity] = (),
        history: int = 1,
        with_actions: bool = False,
        noisy: bool | None = None,
        frames: int | None = None,
        shows_last: bool = False,
        logged: bool = True,
        compiled: bool = False,
        capture: Recorder | None = None,
    ) -> None:
        """Start all worlds.

        Args:
            task: The task.
            dynamics: The dynamics that advance the worlds.
            starts: Distribution of start states.
            worlds: Number of worlds.
            seed: Seed of commands, pushes and observation noise.
            penalty: Weight of the epistemic standard deviation, summed over the state in units of the data's standard
                deviation.
            penalty_offset: Uncertainty without penalty; lower uncertainty earns reward. If every frame cost something,
                failing early would pay.
            failure: Added to the learner's reward when an episode fails, except by `step_tracked`.
            within_known: Whether episodes fail that leave what the networks have seen (`Dynamics.outside`).
            reward_scale: Factor on the reward that the learner receives.
            environment: Ground and obstacles, above which heights are measured; None for the robot's default ground.
            ground_levels: Terrain that grows as worlds master it, in place of `environment`.
            draws: Randomised quantities (`policy.worlds.randomisation`) that `dynamics` supports; None for one robot.
            disturbed: Disturbances in addition to the task's own (`policy.worlds.disturbances`).
            history: Number of frames in an observation, newest first.
            with_actions: Whether each frame is followed by its last action.
            noisy: Whether to add the task's errors to observations; None if policies see sensors.
            frames: Length of an episode; None for the task's.
            shows_last: Whether `step` returns the observations before resets as `extras["last"]` when episodes end.
            logged: Whether frames report reward terms in `extras` and ended episodes are kept for `collect`.
            compiled: Whether to compile what the task computes (`control.task_program`), which takes seconds, on a CPU.
            capture: Recorder of a frame, whose states are overwritten in place; None for CUDA graphs of learned
                dynamics.

        Raises:
            InputError: Task and dynamics are incompatible, the penalty is negative or not applicable, or nobody knows
                what the networks have seen.
        """
        require_fit(task, dynamics, penalty)
        self._within_known = within_known
        if within_known and (dynamics.known_inputs is None or not dynamics.known_inputs.fitted):
            raise InputError(
                f"within_known is set, but these {dynamics.kind} dynamics of {dynamics.spec.robot!r} do not know what "
                "they have seen; valid here: false; world models and neural models trained by this version do"
            )
        if worlds < 1:
            raise InputError(f"worlds is {worlds}; valid: at least 1")
        self.task, self.dynamics = task, dynamics
        self.num_envs, self.num_actions, self.cfg = worlds, len(task.actions), {"task": task.name}
        self.max_episode_length = task.frames if frames is None else frames
        self._starts, self._shows_last, self._logged = starts, shows_last, logged
        self._scale, self._penalty_offset, self._failure = reward_scale, penalty_offset, failure
        self.disturbances = Disturbances(
            disturbed, task, dynamics, noisy=task.observes == SENSORS if noisy is None else noisy, history=history,
            with_actions=with_actions,
        )  # fmt: skip
        self.robots = DrawnRobots(draws, self.disturbances, worlds, torch.device(dynamics.device), seed)
        self.ground_levels = ground_levels
        environment = environment if ground_levels is None else ground_levels.environment
        self._frames = TaskFrames(task, dynamics, environment, self.robots.parameters)
        self.environment, self._penalised = self._frames.environment, penalty > 0
        self._program, self._view = None, None
        self._watch = FaultWatch(self._frames, f"task {task.name!r} in {dynamics.kind} dynamics")
        context = starts.draw(worlds)
        self.device = present_state(context).q.device
        self._share = torch.tensor(penalty * task.penalty_scale, device=self.device)  # recorded frames see it change
        if capture is None and self.device.type == "cuda" and isinstance(dynamics, LearnedDynamics):
            capture = cuda_graph
        self._record, self._captured, self.push_share = capture, None, 1.0
        # Checking whether any episode ended would stall a GPU: there, every frame includes the resets.
        self._always_resets = self.device.type != "cpu" or capture is not None
        self._world_reset = world_reset_in(dynamics, starts, worlds, ahead=self._always_resets)
        self._generator = device_generator(self.device, derive_seed(seed, "environment"))
        self._ones = torch.ones(worlds, device=self.device)
        self._worlds_state = self._frames.begin(context, self._generator, uncertainty=penalty > 0)
        now, memory = self._worlds_state.now, self._worlds_state.memory
        self._disturbed: DisturbedState | None = None
        if self.disturbances:
            self._disturbed = self.disturbances.begin(
                task.observe(now, memory), memory.action, self.robots.disturbed, self._generator
            )
        still = torch.zeros(worlds, self.num_actions, device=self.device)
        first = task.reward(_with_contacts(now, worlds), memory, still)
        if compiled and not self._always_resets:
            example = replace(self._worlds_state, now=_with_contacts(now, worlds))
            self._program = self._frames.compiled(example, memory, still)
        self._terms = (*first, *((_IMPLAUSIBLE,) if task.implausible_reward else ()))
        self._sums = EpisodeSums(
            length=torch.zeros(worlds, dtype=torch.long, device=self.device),
            returns=torch.zeros(3, worlds, device=self.device),
            uncertain=torch.zeros((), device=self.device, dtype=torch.float64),
            terms=torch.zeros(len(self._terms), worlds, device=self.device),
            earned=torch.zeros(len(self._terms), device=self.device, dtype=torch.float64),
        )
        self._counted = [0.0] * len(self._terms)  # `earned` at the last `collect`
        self._ended: list[_Ended] = []
        self.episodes = Episodes()

    @property
    def state(self) -> State:
        """Current states."""
        return self._worlds_state.state

    @property
    def carry(self) -> Carry:
        """State history of the dynamics, such as hidden states of a network."""
        return self._worlds_state.carry

    @property
    def uncertainty(self) -> float:
        """Epistemic uncertainty, averaged over worlds and summed over all frames so far; 0 without a penalty."""
        return float(self._sums.uncertain)

    def set_penalty(self, penalty: float) -> None:
        """Change the weight of the uncertainty; requires an environment built with a penalty above 0."""
        self._share.fill_(penalty * self.task.penalty_scale)

    def checkpoint(self) -> dict[str, Any] | None:
        """Return the full state of the environment (`dynamics.capture`); None if frames are recorded."""
        if self._always_resets:
            return None
        now = self._worlds_state.now
        return {
            "worlds": save_tree(self._worlds | vars(self._sums)),
            "contact": now["contact"] if "contact" in now else None,  # noqa: SIM401 - get would raise
            "commands": self._generator.get_state(),
            "renewal": self._world_reset.state(),
            "starts": self._starts.state(),
            **({} if self.ground_levels is None else {"ground": self.ground_levels.state()}),
            **self.robots.checkpoint(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Restore the state that `checkpoint` returned.

        Raises:
            InputError: The state belongs to other dynamics.
        """
        self._world_reset.load(saved["renewal"])
        self._starts.load(saved["starts"])
        self._generator.set_state(saved["commands"])
        self.robots.load(saved)
        if self.ground_levels is not None:
            self.ground_levels.load(saved["ground"])
        expected = self._worlds | vars(self._sums)
        # Missing in older files.
        newer = {name: save_tree(expected[name]) for name in ("terms", "earned", "disturbed")}
        given = {**newer, **saved["worlds"]}
        if isinstance(given["disturbed"], dict):
            given["disturbed"] = {"clock": newer["disturbed"]["clock"], **given["disturbed"]}
        worlds = restore_tree(expected, given)
        self._sums = EpisodeSums(**{name: worlds.pop(name) for name in vars(self._sums)})
        self._counted = self._sums.earned.tolist()
        contacts = saved["contact"]
        step = None if contacts is None else Step(worlds["state"], contacts=contacts.to(self.device))
        self._adopt(worlds, self._frames.quantities(worlds["state"], step, worlds["torque"]))

    def _adopt(self, worlds: dict[str, Any], now: Quantities) -> None:
        self._disturbed = worlds.pop("disturbed")
        self._worlds_state, self._view = WorldsState(**worlds, now=now), None

    @property
    def _worlds(self) -> dict[str, Any]:
        """State of the worlds that a frame advances, without the sums; quantities are derived from it."""
        current = self._worlds_state
        known = {"carry": current.carry, "state": current.state, "torque": current.torque, "memory": current.memory}
        return {**known, "disturbed": self._disturbed}

    @property
    def memory(self) -> Memory:
        """Task memory of the worlds, such as commands and last actions."""
        return self._worlds_state.memory

    @property
    def now(self) -> Quantities:
        """Quantities of the current states."""
        return self._worlds_state.now

    @property
    def episode_length_buf(self) -> Tensor:
        """Lengths of the current episodes so far [frames], shape [worlds]; rsl_rl reads and sets them."""
        return self._sums.length

    @episode_length_buf.setter
    def episode_length_buf(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, frames: Tensor
    ) -> None:
        if self._captured is None:
            self._sums = replace(self._sums, length=frames.to(self._sums.length))
        else:
            self._sums.length.copy_(frames)

    def get_observations(self) -> TensorDict:
        """Return the policy's observations under the key "policy", and further groups for critics (`beside`)."""
        return TensorDict({POLICY: self.seen, **self.beside}, batch_size=[self.num_envs])

    @property
    def beside(self) -> dict[str, Tensor]:
        """Groups of observations beside the policy's, shape [worlds, columns] each.

        The randomised quantities of the episodes are under the key "robot", the task's own terms under "critic".
        """
        return {**self.robots.seen, CRITIC: self._criticised()} if CRITIC in self.task.groups else self.robots.seen

    @property
    def seen(self) -> Tensor:
        """Current observations of the policy, shape [worlds, columns]."""
        return self._disturbed.seen if self._disturbed is not None else self._read()

    @property
    def judged(self) -> Tensor:
        """What a critic that sees one group sees: the state if policies see sensors, else what they see."""
        return self._judged(self.seen)

    def _judged(self, seen: Tensor) -> Tensor:
        return seen if self.task.observes != SENSORS else self._criticised()

    def _read(self) -> Tensor:
        """Return the policy's observations of the current states without errors, shape [worlds, observations]."""
        if self._program is not None:
            return self._compiled_view(self._program).reading
        return self.task.observe(self._worlds_state.now, self._worlds_state.memory)

    def _criticised(self) -> Tensor:
        """Return the task's terms for critics of the current states, shape [worlds, columns]."""
        if self._program is not None:
            return self._compiled_view(self._program).judged
        return self.task.groups[CRITIC](self._worlds_state.now, self._worlds_state.memory)

    def _compiled_view(self, program: TaskProgram) -> TaskView:
        """Return what the compiled task says of the current states; its rewards are those of the last frame alone."""
        if self._view is None:
            current = self._worlds_state
            now = _with_contacts(current.now, self.num_envs)
            self._view = program(now, current.memory, current.memory, current.memory.action)
        return self._view

    def _see(self, restarted: Tensor | None) -> Tensor:
        """Observe the states, with a new history for worlds in `restarted`; return the policy's observations."""
        current = self._worlds_state
        reading = self.task.observe(current.now, current.memory) if self._program is None else self._read()
        if self._disturbed is None:
            return reading
        action = current.memory.action
        self._disturbed = self.disturbances.see(
            self._disturbed, reading, action, self.robots.disturbed, self._generator, restarted
        )
        return self._disturbed.seen

    def _last(self) -> Tensor:
        """Return the policy's observations at the end of a frame, before resets."""
        earlier = self._disturbed
        last = self._see(None)
        self._disturbed = earlier
        return last

    @torch.no_grad()
    def restart(self, which: Tensor | None = None) -> Tensor:
        """Start new episodes without counting the current ones; return the policy's observations.

        Args:
            which: Worlds that start, shape [worlds], bool; None for all.
        """
        which = torch.ones(self.num_envs, dtype=torch.bool, device=self.device) if which is None else which
        self._world_reset.prepare()
        self._reset_worlds(which)
        self._sums = self._sums.restart(which)
        if (others := self._disturbed) is not None:
            self._see(which)
            self._disturbed = self._disturbed.where(which, others)
        if self._captured is not None:
            self._captured.restart((self._worlds, self._sums, self._world_reset.last_row))
        return self.seen

    def _disturb(self, actions: Tensor) -> Tensor:
        """Return the actions that reach the robot under disturbances."""
        assert self._disturbed is not None
        self._disturbed, sent = self.disturbances.act(self._disturbed, actions, self.robots.disturbed, self._generator)
        return sent.clamp(-self.task.limit, self.task.limit)

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Advance one frame as `step_frame`; return observations, rewards, ends and extras in rsl_rl's format."""
        frame = self.step_frame(actions)
        seen = TensorDict({POLICY: frame.observation, **self.beside}, batch_size=[self.num_envs])
        return seen, frame.reward, frame.done, frame.extras

    @torch.no_grad()
    def step_frame(self, actions: Tensor) -> EnvironmentFrame:
        """Advance one frame and reset the worlds whose episode ends.

        Args:
            actions: Actions, clipped to the task's limit, shape [worlds, actions].
        """
        if self._always_resets:
            self._world_reset.prepare()
        frame = self._frame(actions) if self._record is None else self._replay(actions, self._record)
        if frame.ended is not None:
            self._queue(frame.ended)
        return frame

    def step_tracked(self, actions: Tensor) -> TrackedFrame:
        """Advance one frame with gradients, which do not cross the end of an episode.

        Args:
            actions: Actions within the task's limit, shape [worlds, actions].
        """
        self._world_reset.prepare()
        before = self._pushed() if self.disturbances.pushes else self._worlds_state
        sent = None if self._disturbed is None else self._disturb(actions)
        applied = actions if sent is None else sent
        outside = self._frames.outside(before, applied) if self._within_known else None
        then, step = self._frames.advance(before, actions, self._generator, tracked=True, sent=sent)
        program = self._program
        view = None if program is None else program(then.now, before.memory, then.memory, actions)
        fallen, parts = (None, None) if view is None else (view.failed, view.parts)
        end = ending(self.task, self._frames.bounds, step, then.now, before.memory, fallen=fallen)
        end = end if outside is None else replace(end, failed=end.failed | outside)
        _, done, over = self._adopt_end(then, step, end, view)
        due = then.now, before.memory, actions, self._uncertain(step, end) if self._penalised else None
        if not over:
            last = self._see(None)
            judged = self._judged(last)
            return TrackedFrame(last, last, end, done, over, *due, judged, judged, parts)
        last = self._last()
        judged = self._judged(last)
        self._reset_worlds(done, end.failed)
        seen = self._see(done)
        return TrackedFrame(seen, last, end, done, over, *due, judged, self._judged(seen), parts)

    def settle(self, frames: Sequence[TrackedFrame]) -> Tensor:
        """Return the rewards of frames less the penalty, scaled, shape [frames, worlds], with gradients.

        The rewards of a whole window are computed in one batch, which takes about as long as one frame. Call it once
        for every frame, in order.
        """
        ends, known = [frame.end for frame in frames], [frame.parts for frame in frames if frame.parts is not None]
        failures = Ending(torch.cat([end.failed for end in ends]), torch.cat([end.implausible for end in ends]))
        if self._program is not None and len(known) == len(frames):
            end = settle_later(self.task, failures, self._program.names, torch.cat(known, 1))
        else:
            end = judge_later(
                self.task, failures, Quantities.concatenate([frame.now for frame in frames]),
                Memory.concatenate([frame.memory for frame in frames]), torch.cat([frame.action for frame in frames]),
            )  # fmt: skip
        uncertain = [frame.uncertain for frame in frames if frame.uncertain is not None]
        penalised = self._less_penalty(end.reward, torch.cat(uncertain)) if uncertain else end.reward
        shape = (len(frames), -1)
        rows = torch.stack([end.reward, penalised, torch.ones_like(penalised)])
        sums = [part.detach().unflatten(1, shape) for part in (rows, self._terms_of(end))]
        begin = 0
        for frame, at in enumerate(frames, 1):
            if self._logged and (at.over or frame == len(frames)):
                returns, terms = (part[:, begin:frame].sum(1) for part in sums)
                if (ended := self._count(returns, terms, at.end, at.done, over=at.over)) is not None:
                    self._queue(ended)
                begin = frame
        return (penalised if self._scale == 1.0 else self._scale * penalised).unflatten(0, shape)

    def cut(self) -> None:
        """Detach the current states and sums from the gradients of all frames so far."""
        self._begin_frame(detach(self._worlds), detach(self._sums), self._world_reset.last_row)

    def _replay(self, actions: Tensor, record: Recorder) -> EnvironmentFrame:
        """Advance one frame by replaying the recorded one; the first call records it."""
        if self._captured is None:
            before = self._worlds, self._sums, self._world_reset.last_row
            try:
                self._captured = CapturedStep(
                    self._captured_step, before, (actions,), device=self.state.q.device,
                    generators=(self._generator, *self.robots.generators), record=record,
                )  # fmt: skip
            except CaptureError as error:
                notice(f"{self.dynamics.kind} dynamics of {self.dynamics.spec.robot!r} run kernel by kernel: {error}")
                self._record = None
                self._begin_frame(*before)
                return self._frame(actions)
        frame = self._captured(actions)
        self._begin_frame(*self._captured.state)
        return frame

    def _captured_step(
        self, before: tuple[dict[str, Any], EpisodeSums, Tensor], actions: Tensor
    ) -> tuple[Any, "EnvironmentFrame"]:
        self._begin_frame(*before)
        frame = self._frame(actions)
        return (self._worlds, self._sums, self._world_reset.last_row), frame

    def _begin_frame(self, worlds: dict[str, Any], sums: EpisodeSums, last_row: Tensor) -> None:
        self._adopt(dict(worlds), self._frames.quantities(worlds["state"], None, worlds["torque"]))
        self._sums, self._world_reset.last_row = sums, last_row

    def _frame(self, actions: Tensor) -> EnvironmentFrame:
        """Advance one frame, compute rewards, update the sums and reset the worlds that ended."""
        task, frames = self.task, self._frames
        before = self._pushed() if self.disturbances.pushes else self._worlds_state
        actions = actions.clamp(-task.limit, task.limit)
        sent = None if self._disturbed is None else self._disturb(actions)
        applied = actions if sent is None else sent
        outside = self._frames.outside(before, applied) if self._within_known else None
        after, step = frames.advance(before, actions, self._generator, sent=sent)
        program = self._program
        view = None if program is None else program(after.now, before.memory, after.memory, actions)
        if view is None or program is None:
            end = judge(task, frames.bounds, step, after.now, before.memory, actions)
        else:
            end = judge_view(task, frames.bounds, step, after.now, before.memory, program.names, view)
        end = end if outside is None else replace(end, failed=end.failed | outside)
        timed_out, done, over = self._adopt_end(after, step, end, view)
        penalised = self._less_penalty(end.reward, self._uncertain(step, end)) if self._penalised else end.reward
        # the state before resets
        seen = {"time_outs": timed_out, "reward": end.reward, "implausible": end.implausible, "state": step.state}
        extras, ended = dict[str, Any](seen), None
        if self._logged:
            means = zip(end.names, end.parts.mean(1).unbind(), strict=True)
            extras["terms"] = dict(zip(end.names, end.parts.unbind(), strict=True))
            extras["log"] = {f"/reward/{name}": mean for name, mean in means}
            returns = torch.stack([end.reward, penalised, self._ones])
            ended = self._count(returns, self._terms_of(end), end, done, over=over)
        if over:
            extras["succeeded"] = task.succeeded(after.now, after.memory)
            if self._shows_last:
                extras["last"] = self._last()
            self._reset_worlds(done, end.failed)
        reward = torch.add(penalised, end.failed, alpha=self._failure) if self._failure else penalised
        reward = reward if self._scale == 1.0 else self._scale * reward
        return EnvironmentFrame(self._see(done if over else None), reward, done, extras, ended)

    def _adopt_end(
        self, after: WorldsState, step: Step, end: Ending, view: TaskView | None
    ) -> tuple[Tensor, Tensor, bool]:
        """Adopt the end of a frame; return which episodes timed out, which ended, and whether any may have ended."""
        length = self._sums.length + 1
        if not self._always_resets:  # reading would stall a GPU
            self._watch.see(self._worlds_state, after, step, end, length)
        timed_out = (length >= self.max_episode_length) > end.failed
        done = end.failed | timed_out
        self._worlds_state, self._view, self._sums = after, view, replace(self._sums, length=length)
        return timed_out, done, self._always_resets or bool(done.any())

    def _pushed(self) -> WorldsState:
        """Return the worlds at the start of a frame, with pushes that the policy has not seen yet."""
        current = self._worlds_state
        assert self._disturbed is not None
        self._disturbed, change = self.disturbances.push(self._disturbed, self.robots.disturbed, self._generator)
        if not self._always_resets and not change.any():
            return current
        return self._frames.push(current, self.push_share * change)

    def _terms_of(self, end: FrameEnd) -> Tensor:
        """Return the reward terms and, if there is one, the cost of implausible states, shape [terms, n]."""
        if not self.task.implausible_reward:
            return end.parts
        return torch.cat([end.parts, (end.reward - end.parts.sum(0))[None]])

    def _count(self, returns: Tensor, terms: Tensor, end: Ending, done: Tensor, *, over: bool) -> _Ended | None:
        """Add to the sums of the current episodes, and close the episodes that are done.

        `returns` holds the rewards, penalised rewards and frames to add, shape [3, worlds]; `terms` the reward terms to
        add, shape [terms, worlds]. `over` says whether any episode may have ended.
        """
        sums = self._sums
        returns, terms, earned, ended = sums.returns + returns, sums.terms + terms, sums.earned, None
        if over:
            earned = earned + terms.masked_fill(~done, 0.0).sum(1)
            ended = _Ended(done, returns, end.failed, end.implausible)
            returns, terms = returns.masked_fill(done, 0.0), terms.masked_fill(done, 0.0)
        self._sums = replace(sums, returns=returns, terms=terms, earned=earned)
        return ended

    def collect(self) -> Episodes:
        """Return the episodes that ended since the last call."""
        self._read_ends()
        episodes, self.episodes = self.episodes, Episodes()
        before, self._counted = self._counted, self._sums.earned.tolist()
        new = [now - then for now, then in zip(self._counted, before, strict=True)]
        episodes.terms = dict(zip(self._terms, new, strict=True))
        return episodes

    def _uncertain(self, step: Step, end: Ending) -> Tensor | None:
        """Return the epistemic uncertainty of a frame, shape [worlds]; implausible states get the usual one."""
        uncertain = self._frames.disagreement(step)
        return None if uncertain is None else uncertain.masked_fill(end.implausible, self._penalty_offset)

    def _less_penalty(self, reward: Tensor, uncertain: Tensor | None) -> Tensor:
        """Subtract the penalty from rewards of one or more frames, shape [n], and accumulate the uncertainty."""
        if uncertain is None:
            return reward
        mean, frames = uncertain.detach().mean(), len(uncertain) // self.num_envs
        self._sums = replace(self._sums, uncertain=self._sums.uncertain + (mean if frames == 1 else frames * mean))
        return reward - self._share * (uncertain - self._penalty_offset if self._penalty_offset else uncertain)

    def _queue(self, ended: _Ended) -> None:
        self._ended.append(ended)
        if len(self._ended) >= _MOST_UNREAD:
            self._read_ends()

    def _read_ends(self) -> None:
        """Read ended episodes from the device, many frames at once because each read stalls a GPU."""
        for ended in self._ended:
            rows = ended.done.nonzero()[:, 0]
            returns, penalised, lengths = ended.returns[:, rows].tolist()
            self.episodes.returns += returns
            self.episodes.penalised += penalised
            self.episodes.lengths += lengths
            self.episodes.failed += ended.failed[rows].tolist()
            self.episodes.implausible += ended.implausible[rows].tolist()
        self._ended.clear()

    def _reset_worlds(self, done: Tensor, failed: Tensor | None = None) -> None:
        """Reset worlds, of which some failed; the others keep their state, history, memory and robot."""
        before = self._worlds_state
        if self.ground_levels is not None and failed is not None:
            self.ground_levels.renew(done, failed)
        self.robots.renew(done)
        if self._disturbed is not None:
            self._disturbed = self.disturbances.restart(self._disturbed, done, self.robots.disturbed, self._generator)
        carry, state = self._world_reset.renew(before.carry, before.state, done)
        torque = None if before.torque is None else before.torque.masked_fill(done[:, None], 0.0)
        now = self._frames.quantities(state, None, torque)
        memory = before.memory.renew(done, self.task.begin(now, self._generator))
        self._worlds_state, self._view = WorldsState(carry, state, torque, memory, now), None
        self._sums = replace(self._sums, length=self._sums.length.masked_fill(done, 0))
