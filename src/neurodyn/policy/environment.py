# SPDX-License-Identifier: Apache-2.0
"""Any dynamics as a vectorised environment of rsl_rl: one environment for simulators and for imagination.

A world starts anew where its task or its model says that it failed, where its state is implausible, or where its time
is up; the history of the others is left as it is. In imagination the reward is less by `penalty` times the epistemic
uncertainty of the prediction (MOPO, arXiv 2005.13239; RWM-U, arXiv 2504.16680), so that the policy stays where the
model knows.
"""

from dataclasses import dataclass, field
from typing import Any, cast

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.interface import (
    Control,
    Dynamics,
    Environment,
    MeasuredDynamics,
    State,
    Step,
    present_state,
)
from neurodyn.dynamics.pushes import pushed
from neurodyn.dynamics.quantities import Quantities
from neurodyn.geometry.ground import Ground
from neurodyn.policy.compatibility import require_fit
from neurodyn.policy.frame_end import FrameEnd, episode_bounds, judge
from neurodyn.policy.starts import Starts, widened
from neurodyn.policy.warm_start_pool import WarmStartPool
from neurodyn.tasks import Memory, Task


@dataclass
class Episodes:
    """What ended since it was last asked.

    Attributes:
        returns: Sum of the rewards of each episode that ended, without penalty and scale.
        penalised: The same less the penalty.
        lengths: Its frames.
        failed: Whether it ended in a failure.
        implausible: Whether it ended because its state was implausible (`policy.frame_end`), which is a failure.
    """

    returns: list[float] = field(default_factory=list)
    penalised: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    failed: list[bool] = field(default_factory=list)
    implausible: list[bool] = field(default_factory=list)


class PolicyEnvironment(VecEnv):
    """A batch of worlds in which a policy acts.

    Attributes:
        task: What is to be done.
        dynamics: What happens.
        now: Quantities of the present states.
        state: The present states.
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
        reward_scale: float = 1.0,
        environment: Environment | None = None,
        noisy: bool = False,
        frames: int | None = None,
    ) -> None:
        """Start all worlds.

        Args:
            task: What is to be done.
            dynamics: What happens.
            starts: Where episodes start.
            worlds: Number of worlds.
            seed: Seed of commands.
            penalty: Weight of the epistemic uncertainty, summed over the state in units of its spread in the data.
            reward_scale: Factor on the reward that the learner sees.
            environment: What the worlds are in; None for the robot's default ground.
            noisy: Whether observations have the task's noise.
            frames: Length of an episode; None for the task's.

        Raises:
            InputError: Task and dynamics do not fit together, or the penalty is below 0 or has no meaning.
        """
        require_fit(task, dynamics, penalty)
        if worlds < 1:
            raise InputError(f"worlds is {worlds}; valid: at least 1")
        self.task, self.dynamics = task, dynamics
        self.num_envs, self.num_actions = worlds, len(task.actions)
        self.max_episode_length = task.frames if frames is None else frames
        self.cfg = {"task": task.name}
        self._starts, self._penalty, self._scale = starts, penalty, reward_scale
        self._bounds = episode_bounds(task, dynamics)
        if environment is None and not dynamics.measured:  # which know that of their logs alone
            environment = home_ground(task)
        self._environment = environment
        self._spread = dynamics.epistemic_scale
        self._pool = WarmStartPool(cast(MeasuredDynamics, dynamics), starts) if dynamics.measured else None
        context = starts.draw(worlds)
        self._carry = dynamics.begin(context, self._environment)
        self.state = present_state(context)
        self.device = self.state.q.device
        self._generator = torch.Generator(self.device).manual_seed(derive_seed(seed, "environment"))
        noise = task.noise if noisy else ()
        self._noise = torch.tensor(noise, device=self.device) if noise else None
        self._torques = dynamics.spec.control_kind == "torque"
        self._torque = self.state.q.new_zeros(worlds, dynamics.spec.nu) if self._torques else None
        self._advance = dynamics.step_
        self.now = self._quantities(None)
        task.require(self.now)
        self.memory: Memory = task.begin(self.now, self._generator)
        self.episode_length_buf = torch.zeros(worlds, dtype=torch.long, device=self.device)
        self.episodes = Episodes()
        self._returns = torch.zeros(3, worlds, device=self.device)

    def get_observations(self) -> TensorDict:
        """Return what the policy sees of the present states."""
        seen = self.task.observe(self.now, self.memory)
        if self._noise is not None:
            seen = seen + self._noise * (2.0 * torch.rand(seen.shape, generator=self._generator).to(seen) - 1.0)
        return TensorDict({"policy": seen}, batch_size=[self.num_envs])

    @torch.no_grad()
    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Act for one frame; worlds whose episode ends start anew.

        Args:
            actions: Actions, of which what is beyond the task's limit is cut off, shape [worlds, actions].

        Returns:
            Observations, rewards of shape [worlds], whether episodes ended, shape [worlds], and what rsl_rl asks for.
        """
        action = actions.clamp(-self.task.limit, self.task.limit)
        step = self._predict(action)
        end = judge(self.task, self._bounds, step, self.now, self.memory, action)
        reward, failed = end.reward, end.failed
        self.memory = self.task.advance(self.memory, self.now, action, self._generator)
        self.episode_length_buf = self.episode_length_buf + 1
        late = (self.episode_length_buf >= self.max_episode_length) & ~failed
        done = failed | late
        penalised = self._penalised(reward, step, end.implausible)
        extras: dict[str, Any] = {
            "time_outs": late,
            "reward": reward,
            "implausible": end.implausible,
            "state": self.state,  # as the frame left it, before anything starts anew
            "log": {f"/reward/{name}": term.mean() for name, term in end.terms.items()},
        }
        self._returns = self._returns + torch.stack([reward, penalised, torch.ones_like(reward)])
        rows = done.nonzero()[:, 0]
        if len(rows):
            self._count(rows, end)
            extras["succeeded"] = self.task.succeeded(self.now, self.memory)
            self._renew(done, rows)
        change = self.task.push(self.memory, self._generator)
        if change is not None:
            self.state = pushed(self.dynamics.spec, self.state, change)
            self.now = self._quantities(None)
        return self.get_observations(), self._scale * penalised, done, extras

    def collect(self) -> Episodes:
        """Return the episodes that ended since the last call."""
        found, self.episodes = self.episodes, Episodes()
        return found

    def _predict(self, action: Tensor) -> Step:
        control = self.task.control(action, self.now, self.memory)
        if self._torques:
            self._torque = frame_torque(self.dynamics.spec, self.state, control)
            control = Control(torque=self._torque)
        self._carry, step = self._advance(self._carry, self.state, control)
        self.state = step.state
        self.now = self._quantities(step)
        return step

    def _quantities(self, step: Step | None) -> Quantities:
        return self.dynamics.quantities(self.state, step, torque=self._torque, environment=self._environment)

    def _penalised(self, reward: Tensor, step: Step, implausible: Tensor) -> Tensor:
        if not self._penalty or step.epistemic is None or self._spread is None:
            return reward
        uncertain = (step.epistemic / self._spread).sum(-1)
        return torch.where(implausible, reward, reward - self._penalty * self.task.penalty_scale * uncertain)

    def _count(self, rows: Tensor, end: FrameEnd) -> None:
        returns, penalised, lengths = self._returns[:, rows].tolist()
        self.episodes.returns += returns
        self.episodes.penalised += penalised
        self.episodes.lengths += lengths
        self.episodes.failed += end.failed[rows].tolist()
        self.episodes.implausible += end.implausible[rows].tolist()
        self._returns = self._returns.index_fill(1, rows, 0.0)

    def _renew(self, done: Tensor, rows: Tensor) -> None:
        """Start anew in some worlds; the others keep their state, history and memory."""
        if self._pool is not None:
            self._carry, self.state = self._pool.take(self._carry, self.state, rows)
        else:
            context = widened(self._starts.draw(len(rows)), rows, self.num_envs)
            self._carry = self.dynamics.reset(self._carry, context, done)
            fresh, old, chosen = present_state(context), self.state, done[:, None]
            self.state = State(torch.where(chosen, fresh.q, old.q), torch.where(chosen, fresh.qd, old.qd))
        if self._torque is not None:
            self._torque = torch.where(done[:, None], 0.0, self._torque)
        self.episode_length_buf = torch.where(done, 0, self.episode_length_buf)
        self.now = self._quantities(None)
        self.memory = self.memory.renewed(done, self.task.begin(self.now, self._generator))


def home_ground(task: Task) -> Environment:
    """Return the default ground of a task's robot."""
    scene = task.declaration().named_ground()
    return Environment() if scene is None else Environment(ground=Ground(scene))
