# SPDX-License-Identifier: Apache-2.0
"""Newton scenes with robots and shapes, as users build them, and the same shapes as plain data."""

import newton
import numpy as np
import torch
import warp as wp

from neurodyn import robots
from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.dynamics.batch import Environment
from neurodyn.geometry.ground import Ground
from neurodyn.sim.newton.build import build_world
from tests.solvers.loop import coordinates, table

ANT = robots.load("ant")
GROUND = Scene(shapes=(Plane(), Box(position=(0.6, 0.0, 0.1), half=(0.4, 0.5, 0.15))))


def place(x, y, z, yaw=0.0):
    return wp.transform((x, y, z), wp.quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), yaw))


def add_box(builder, box):
    builder.add_shape_box(-1, xform=place(*box.position), hx=box.half[0], hy=box.half[1], hz=box.half[2])


def scene_of(robot=ANT, worlds=3, *, boxes=GROUND.shapes[1:], world=None, spacing=(0.0, 0.0, 0.0), gravity=None):
    """Build robots on a plane with boxes that all worlds share."""
    builder = newton.ModelBuilder()
    builder.replicate(world or build_world(robot), copy_count=worlds, spacing=spacing)
    builder.add_ground_plane()
    for box in boxes:
        add_box(builder, box)
    model = builder.finalize(device="cpu")
    if gravity is not None:
        model.set_gravity(np.asarray(gravity, dtype=np.float32))
    return model


def stand(model, robot=ANT, seed=0, height=0.6):
    """Return floating robots near the ground, each at a place, heading and speed of its own."""
    generator = torch.Generator().manual_seed(seed)
    state, worlds = model.state(), max(model.world_count, 1)
    q, qd = table(state.joint_q, model), table(state.joint_qd, model)
    q.copy_(0.3 * torch.randn(q.shape, generator=generator))
    q[:, 2] = height + 0.2 * torch.rand(worlds, generator=generator)
    q[:, 3:7] = torch.nn.functional.normalize(torch.randn(worlds, 4, generator=generator), dim=-1)
    qd.copy_(torch.randn(qd.shape, generator=generator))
    newton.eval_fk(model, state.joint_q, state.joint_qd, state)
    return state


def torques_of(model, robot=ANT, frames=6, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(max(model.world_count, 1), frames, len(robot.actuated), generator=generator)


def drive(solver, model, state, torques, robot=ANT):
    """Step floating robots through all frames; return coordinates, shape [worlds, frames + 1, nq + nv]."""
    spare, control = model.state(), model.control()
    seen = [coordinates(model, state)]
    for torque in torques.unbind(1):
        table(control.joint_f, model)[:, list(robot.spec.control_dofs)] = torque
        solver.step(state, spare, control, None, robot.dt)
        state, spare = spare, state
        seen.append(coordinates(model, state))
    return torch.stack(seen, 1), state


def on(scene, pose=None, gravity=None):
    """Return the environment of a scene."""
    return Environment(gravity=gravity, ground=Ground(scene, pose))
