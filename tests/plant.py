# SPDX-License-Identifier: Apache-2.0
"""A small known system for tests: a cart with friction that a pendulum hangs from, without any simulator.

It has the names, order and frame of the declared cartpole, so that everything that takes a robot takes it:

    x''     = (u - c x') / 50,                        c = 20 N s/m
    theta'' = -(g sin(theta) + x'' cos(theta)) / l,   l = 1 m

integrated by semi-implicit Euler in float64, five substeps a frame.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.data.header import StoreHeader, episode_table
from neurodyn.data.split import assign_splits
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import Control, State, Step, Trajectory, present_state
from neurodyn.dynamics.conditions import Condition
from neurodyn.dynamics.neural.encoding import Encoding, EncodingConfig, Limit
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.nets.networks import NetConfig
from neurodyn.nets.predictor import build_predictor
from neurodyn.robots import Robot, load

SUBSTEPS = 5
NETS = {
    "mlp": NetConfig(kind="mlp", width=12, depth=2),
    "gru": NetConfig(kind="gru", width=8, depth=2, head=6, warmup=4),
    "transformer": NetConfig(kind="transformer", width=8, depth=2, heads=2, window=3, head=6),
}


def robot() -> Robot:
    """The declared cartpole, whose names the plant has."""
    return load("cartpole")


DECLARED = {"slider.damping": 20.0, "hinge.length": 1.0}
"""Quantities in which worlds may differ: c and l."""
LEAST, MOST = (10.0, 0.7), (40.0, 1.6)
"""Their ranges."""


def step(
    q: Tensor, qd: Tensor, torque: Tensor, gravity: float = 9.81, numbers: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Advance by one frame; shapes [..., 2], [..., 2], [..., 1]; `numbers` of the worlds, shape [..., 2]."""
    h = robot_dt() / SUBSTEPS
    x, angle = q.double().unbind(-1)
    v, w = qd.double().unbind(-1)
    u = torque.double()[..., 0]
    c, length = (20.0, 1.0) if numbers is None else numbers.double().unbind(-1)
    for _ in range(SUBSTEPS):
        a = (u - c * v) / 50.0
        v, w = v + h * a, w - h * (gravity * torch.sin(angle) + a * torch.cos(angle)) / length
        x, angle = x + h * v, angle + h * w
    return torch.stack([x, angle], -1).to(q.dtype), torch.stack([v, w], -1).to(q.dtype)


def robot_dt() -> float:
    """Length of a frame [s]."""
    return 1.0 / 60.0


def simulate(
    q: Tensor, qd: Tensor, torque: Tensor, gravity: float = 9.81, numbers: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Advance by T frames; q, qd of shape [worlds, T + 1, 2] from torque [worlds, T, 1]."""
    states = [(q, qd)]
    for u in torque.unbind(1):
        states.append(step(*states[-1], u, gravity, numbers))
    return torch.stack([s[0] for s in states], 1), torch.stack([s[1] for s in states], 1)


def draw_numbers(worlds: int, seed: int = 3) -> Tensor:
    """Return values of the quantities in which worlds differ, shape [worlds, 2]."""
    least, most = torch.tensor(LEAST), torch.tensor(MOST)
    return least + (most - least) * torch.rand(worlds, 2, generator=torch.Generator().manual_seed(seed))


def make_store(
    episodes: int = 60, frames: int = 50, seed: int = 0, gravity: float = 9.81, numbers: Tensor | None = None
) -> Store:
    """Trajectories from random states under random torques, as from a log (no fingerprint).

    `numbers` are values of the quantities in which episodes differ, shape [episodes, 2], which the store then holds.
    """
    generator = torch.Generator().manual_seed(seed)
    q = (torch.rand(episodes, 2, generator=generator) * 2 - 1) * torch.tensor([1.0, torch.pi])
    qd = (torch.rand(episodes, 2, generator=generator) * 2 - 1) * torch.tensor([1.0, 4.0])
    torque = (torch.rand(episodes, frames, 1, generator=generator) * 2 - 1) * 200.0
    qs, qds = simulate(q, qd, torque, gravity, numbers)
    control = torch.cat([torque, torch.zeros(episodes, 1, 1)], 1)
    rows = torch.cat([qs, qds, control], -1).reshape(-1, 5).numpy()
    split = assign_splits(episodes, seed, validation=0.1, test=0.1)
    table = episode_table([frames] * episodes, group=np.arange(episodes) % 2, split=split)
    declared = {} if numbers is None else DECLARED
    header = StoreHeader(spec=robot().spec, source="log", seed=seed, groups=("even", "odd"), parameters=declared)
    own = None if numbers is None else numbers.numpy()
    return Store(header, np.ascontiguousarray(rows, np.float32), table, parameters=own)


class PlantDynamics:
    """The plant behind the interface of dynamics: a model without error, or with one that is asked for."""

    differentiable = measured = takes_parts = False
    kind, network, caveat, device = "neural", "plant", "", "cpu"
    conditions = own_quantities = ()

    def __init__(self, distort: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None) -> None:
        self.spec: StateSpec = robot().spec
        self.fingerprint = None
        self._distort = distort

    def parameters(self):
        return iter(())

    def begin(self, context, environment=None):
        return None

    def step(self, carry, state: State, control: Control):
        assert control.torque is not None
        return carry, Step(State(*step(state.q, state.qd, control.torque)))

    def reset(self, carry, context, mask):
        return carry

    def rollout(self, context, controls, environment=None):
        state = present_state(context)
        q, qd = simulate(state.q, state.qd, controls)
        if self._distort is not None:
            q, qd = self._distort(q, qd)
        return Trajectory(q, qd)


CONDITIONS = tuple(
    Condition(name=name, value=value, lower=lower, upper=upper)
    for (name, value), lower, upper in zip(DECLARED.items(), LEAST, MOST, strict=True)
)


def make_encoding(*, products: bool = True, conditions: tuple[Condition, ...] = ()) -> Encoding:
    """An encoding of the cartpole: the cart's place stays out, the rail's ends come in."""
    config = EncodingConfig(
        invariant=(0,),
        limits=(
            Limit(coordinate=0, bound=4.0, side=1, margin=0.5),
            Limit(coordinate=0, bound=-4.0, side=-1, margin=0.5),
        ),
        kappa=(0.6, 0.6),
        velocity_products=products,
        conditions=conditions,
    )
    return Encoding(robot().spec, config)


def make_model(
    kind: str, dtype: torch.dtype = torch.float64, seed: int = 0, members: int = 1,
    conditions: tuple[Condition, ...] = (),
) -> NeuralDynamics:  # fmt: skip
    """A model with random weights everywhere, so that every path through it carries a gradient."""
    torch.manual_seed(seed)
    encoding = make_encoding(conditions=conditions)
    predictor = build_predictor(NETS[kind], encoding.inputs, encoding.outputs, members)
    model = NeuralDynamics(encoding, predictor).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
        # Changes of a frame are small beside the state, so that roll-outs stay bounded.
        model.predictor.denormaliser.std.fill_(0.02)
        model.predictor.denormaliser.gain.fill_(50.0)
    return model


def make_states(worlds: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> State:
    """States away from the kinks of the limits' features."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda: torch.randn(worlds, 2, generator=generator, dtype=torch.float64).to(dtype)  # noqa: E731
    return State(draw(), draw())


def make_torques(worlds: int, frames: int, dtype: torch.dtype = torch.float64, seed: int = 2) -> Tensor:
    """Random torques, shape [worlds, frames, 1]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(worlds, frames, 1, generator=generator, dtype=torch.float64).to(dtype)


def repository() -> Path:
    """The root of the repository."""
    return Path(__file__).resolve().parents[1]
