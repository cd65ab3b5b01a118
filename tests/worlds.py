# SPDX-License-Identifier: Apache-2.0
"""A known linear system with channels, contacts and failures, for tests of world models."""

import numpy as np
import torch

from neurodyn.core.description.spec import Channel, JointSpec, StateSpec
from neurodyn.data.header import Split, Status, StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.nets.ensemble import EnsembleConfig

SPEC = StateSpec(
    robot="spring",
    joints=(JointSpec(name="slide", kind="prismatic"), JointSpec(name="wheel", kind="revolute", continuous=True)),
    controls=("slide", "wheel"),
    dt=0.02,
    channels=(Channel(name="force", unit="N"),),
    contacts=("pad",),
)
SMALL = EnsembleConfig(members=3, width=12, depth=1, head=8)


def step(x: np.ndarray, u: np.ndarray, drag: float = 0.0) -> np.ndarray:
    """Advance [slide, wheel, their velocities, force] by one frame; linear where there is no drag."""
    q, v = x[..., :2], x[..., 2:4]
    pull = np.array([4.0, 0.0])
    v = v + SPEC.dt * (u - pull * q - 0.3 * v - drag * v * np.abs(v))
    q = q + SPEC.dt * v
    return np.concatenate([q, v, 0.9 * x[..., 4:] + 0.2 * q[..., :1] + 0.1 * u[..., :1]], -1)


def make_store(
    episodes: int = 40, frames: int = 60, *, seed: int = 0, noise: float = 0.0, failures: bool = True, drag: float = 0.0
) -> Store:
    """Episodes from random states under random controls; "pad" touches where the slide is below zero."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (episodes, 5)) * [1, 3, 1, 2, 0.5]
    u = rng.uniform(-2, 2, (episodes, frames + 1, 2))
    states = [x]
    for t in range(frames):
        x = step(x, u[:, t], drag) + noise * rng.normal(size=x.shape)
        states.append(x)
    path = np.stack(states, 1)
    rows = np.concatenate([path[..., :4], u, path[..., 4:], path[..., :1] < 0], -1).reshape(-1, 8)
    table = episode_table([frames] * episodes)
    table["split"][-8:-4], table["split"][-4:] = Split.VALIDATION, Split.TEST
    table["status"] = np.where((np.arange(episodes) % 3 == 0) & failures, Status.TERMINATED, Status.COMPLETE)
    return Store(StoreHeader(spec=SPEC, source="log"), np.ascontiguousarray(rows, np.float32), table)


def make_model(seed: int = 0, context: int = 6, **changes) -> WorldModel:
    """A model with random weights everywhere."""
    import msgspec

    torch.manual_seed(seed)
    model = WorldModel(SPEC.with_context(context), msgspec.structs.replace(SMALL, **changes), terminates=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
        model.scale.fill_(0.05)
    return model


def exact_model(context: int = 0) -> WorldModel:
    """A model whose linear short cut is the system itself (of angles that do not wrap in its inputs)."""
    model = make_model(context=context)
    net = model.net
    with torch.no_grad():
        net.mean.zero()
        net.skip.zero()  # type: ignore[union-attr]
        model.scale.fill_(1.0)
        model.shift.zero_()
        # Inputs: slide, velocities, force, sine and cosine of the wheel, controls; the wheel's angle has no say.
        order, size = [0, 2, 3, 4], model.observation.size
        for column in range(size):
            x = np.zeros((1, 5))
            x[0, column] = 1.0
            if column in order:
                change = step(x, np.zeros((1, 2))) - x
                net.skip.weight[:, order.index(column)] = torch.tensor(change[0], dtype=torch.float32)  # type: ignore[union-attr]
        for k in range(2):
            u = np.eye(2)[k : k + 1]
            change = step(np.zeros((1, 5)), u)
            net.skip.weight[:, 6 + k] = torch.tensor(change[0], dtype=torch.float32)  # type: ignore[union-attr]
    return model
