# SPDX-License-Identifier: Apache-2.0
"""A plain Newton loop for tests."""

import newton
import numpy as np
import torch
import warp as wp

from neurodyn import robots
from neurodyn.sim import build
from neurodyn.sim.newton.build import build_world

CARTPOLE = robots.load("cartpole")
DT = CARTPOLE.dt


def cartpoles(worlds=4, *, edit=None, gravity=None):
    """Build cartpoles; `edit` changes the builder of one world."""
    if edit is None:
        return build(CARTPOLE, worlds, gravity=gravity)
    world = build_world(CARTPOLE)
    edit(world)
    scene = newton.ModelBuilder()
    scene.replicate(world, copy_count=worlds)
    return scene.finalize(device="cpu")


def start(model, seed=0):
    """Return a state with random coordinates."""
    state = model.state()
    rng = np.random.default_rng(seed)
    state.joint_q.assign(rng.uniform(-1, 1, model.joint_coord_count).astype(np.float32))
    state.joint_qd.assign(rng.uniform(-1, 1, model.joint_dof_count).astype(np.float32))
    newton.eval_fk(model, state.joint_q, state.joint_qd, state)
    return state


def table(array, model):
    return wp.to_torch(array).view(max(model.world_count, 1), -1)


def forces(model, frames, seed=1):
    """Return torques, shape [worlds, frames, 1]."""
    generator = torch.Generator().manual_seed(seed)
    return 600 * (2 * torch.rand(max(model.world_count, 1), frames, 1, generator=generator) - 1)


def simulate(solver, model, state, torques):
    """Step through all frames with two states and return coordinates, shape [worlds, frames + 1, 4]."""
    spare, control = model.state(), model.control()
    seen = [coordinates(model, state)]
    for torque in torques.unbind(1):
        table(control.joint_f, model)[:, :1] = torque
        solver.step(state, spare, control, None, DT)
        state, spare = spare, state
        seen.append(coordinates(model, state))
    return torch.stack(seen, 1), state


def coordinates(model, state):
    return torch.cat([table(state.joint_q, model), table(state.joint_qd, model)], 1)


def copy_of(model, state):
    copied = model.state()
    copied.assign(state)
    return copied


def mask(model, *worlds):
    values = np.zeros(model.world_count + 1, dtype=bool)
    values[list(worlds)] = True
    return wp.array(values, dtype=wp.bool)
