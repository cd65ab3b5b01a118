# SPDX-License-Identifier: Apache-2.0
"""A mass on a line, pushed by a force: a task, dynamics, starts, a log and settings small enough to check by hand."""

from dataclasses import dataclass, replace

import numpy as np
import torch
import yaml
from torch import Tensor

from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.starts import SampledStarts, Starts
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.data.header import Split, StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Control, State, Step, Window, present_state
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.known_inputs import KnownInputs
from neurodyn.dynamics.quantities import Quantities
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.policy.learners.training import open_training
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.requests import TrainPolicyRequest
from neurodyn.policy.settings import NetworkSettings, PolicySettings
from neurodyn.robots.declaration import Joint, Robot
from neurodyn.tasks import Memory, ObservationTerm, Task

SPEC = StateSpec(robot="mass", joints=(JointSpec(name="line", kind="prismatic"),), controls=("line",), dt=0.1)


@dataclass(frozen=True)
class Carry:
    """How many frames each world's history holds."""

    frames: Tensor


class Mass(Dynamics):
    """qd' = qd + dt u, q' = q + dt qd'; remembers its resets."""

    kind = "fake"

    def __init__(self, spec: StateSpec = SPEC) -> None:
        self.spec = spec
        self.resets: list[list[bool]] = []
        self.begun = 0
        self.termination: Tensor | None = None
        self.spoil: Tensor | None = None

    def begin(self, context, environment=None):
        self.begun += 1
        frames = context.torque.shape[1] if isinstance(context, Window) else 0
        return Carry(torch.full((present_state(context).worlds,), frames))

    def step(self, carry, state, control):
        qd = state.qd + self.spec.dt * control.torque
        q = state.q + self.spec.dt * qd
        if self.spoil is not None:
            q = torch.where(self.spoil[:, None], torch.nan, q)
        return replace(carry, frames=carry.frames + 1), Step(State(q, qd), termination=self.termination)

    def reset(self, carry, context, mask):
        self.resets.append(mask.tolist())
        fresh = context.torque.shape[1] if isinstance(context, Window) else 0
        return Carry(torch.where(mask, fresh, carry.frames))

    def rollout(self, context, controls, environment=None):
        raise NotImplementedError


class Known(Mass):
    """The mass as a network that has seen places within .3 alone."""

    @property
    def known_inputs(self) -> KnownInputs:
        places = torch.linspace(-0.3, 0.3, 301)[:, None]
        known = KnownInputs()
        known.fit(places[::2], places[1::2])
        return known

    def network_inputs(self, state, control, environment=None):
        return state.q


class Hold(Task):
    """r = 1 - |x| - |u| / 10; fails beyond 2."""

    name = "hold"
    robot = "mass"
    needs = ("joint_position", "joint_velocity")
    actions = ("force",)
    action_scale = (3.0,)
    action_meaning = "force [N]"
    frames = 5

    def declaration(self) -> Robot:
        return Robot(name="mass", asset="mass.urdf", joints=(Joint(name="line", kind="prismatic", lower=-9, upper=9),),
                     actuated={"line": 3.0}, dt=0.1)  # fmt: skip

    def start(self, worlds: int, generator: torch.Generator) -> State:
        q = torch.rand(worlds, 1, generator=generator) - 0.5
        return State(q, torch.zeros(worlds, 1))

    def control(self, action: Tensor, quantities: Quantities, memory: Memory) -> Control:
        return Control(torque=3.0 * action)

    def observation_terms(self):
        terms = (
            ObservationTerm("joint_position", columns=("x",)),
            ObservationTerm("joint_velocity", columns=("v",)),
            ObservationTerm("last", lambda now, memory: memory.action),
        )
        return {"policy": terms}

    def reward(self, quantities: Quantities, memory: Memory, action: Tensor) -> dict[str, Tensor]:
        place = 1.0 - quantities["joint_position"][:, 0].abs()
        return {"place": place, "effort": -0.1 * (action - memory.action)[:, 0].abs()}

    def terminated(self, quantities: Quantities, memory: Memory) -> Tensor:
        return quantities["joint_position"][:, 0].abs() > 2.0


class Fixed(Starts):
    """Starts at given places, one after the other."""

    def __init__(self, places: list[float]) -> None:
        self.places, self.at = places, 0

    def draw(self, count: int) -> State:
        rows = [self.places[(self.at + i) % len(self.places)] for i in range(count)]
        self.at += count
        return State(torch.tensor(rows)[:, None], torch.zeros(count, 1))


class Here(ResolvedDynamics):
    """Dynamics in which episodes start where the task says."""

    def starts(self, task, seed):
        return SampledStarts(task, seed)


def here(dynamics=Mass):
    return Here("mass", dynamics())


def log(episodes: int, held_out: slice, spread: float = 0.1) -> Store:
    """Return a log of the mass with episodes of ten frames of random numbers, some of them held out."""
    rows = spread * np.random.default_rng(0).normal(size=(episodes * 11, 3))
    table = episode_table([10] * episodes)
    table["split"][held_out] = Split.VALIDATION
    return Store(StoreHeader(spec=SPEC, source="log"), rows.astype(np.float32), table)


TINY = PolicySettings(
    worlds=16, horizon=8, iterations=4, evaluations=2, evaluation_worlds=8, minibatches=2, epochs=2,
    network=NetworkSettings(hidden=(8,)), rate=5e-3,
)  # fmt: skip
"""Settings of a training of a second."""


def world_model(spec: StateSpec = SPEC, context: int = 0, *, fitted: bool = True, **config) -> WorldModel:
    """Return a world model of the mass whose members disagree, unlike fresh ones."""
    torch.manual_seed(0)
    model = WorldModel(spec.with_context(context), EnsembleConfig(kind="mlp", members=3, **config))
    for weights in model.requires_grad_(False).parameters():
        weights.normal_(0.0, 0.3)
    model.fitted.fill_(fitted)
    return model


def seldom_judged(out, evaluations=1, **settings):
    """Write settings of a training that seldom plays, and few episodes, which take most of the time of a short one."""
    path = out.with_suffix(".yaml")
    path.write_text(yaml.safe_dump({**settings, "evaluations": evaluations, "evaluation_worlds": 4}))
    return path


def train_briefly(out, task="cartpole-swingup", evaluations=1, **more):
    """Train a policy in the hybrid model for some updates, as the command line does, and return its folder."""
    settings = seldom_judged(out, evaluations, extends=task)
    asked = {"iterations": 2, "worlds": 32, "reference": "none", "settings": settings, **more}
    train_policy(open_training(TrainPolicyRequest(task, "hybrid", out, **asked)))
    return out
