# SPDX-License-Identifier: Apache-2.0
"""Mechanisms from MuJoCo's compiler, and its steps in Newton's coordinates, for tests."""

import mujoco
import numpy as np
import torch

from neurodyn.core.description.contacts import ConstraintParameters, ContactPoint, SoftConstraints
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.errors import InputError
from neurodyn.geometry.rotation import rotate
from neurodyn.multibody.engine import Engine, EngineConfig
from neurodyn.sim.mujoco.actuators import read_drives
from neurodyn.sim.mujoco.articulation import BodyTree
from neurodyn.sim.mujoco.couplings import modelled_equalities, modelled_tendons, read_medium
from neurodyn.sim.mujoco.shape_contacts import has_several_contacts, read_contacts
from tests.multibody import machines

F64 = torch.float64
EXACT = 'tolerance="0" iterations="100" ls_iterations="100" ls_tolerance="1e-10" jacobian="dense"'
"""Options of MuJoCo with which its solver converges to rounding."""


def softness(solref, solimp):
    return ConstraintParameters(solref=tuple(map(float, solref)), solimp=tuple(map(float, solimp)))


def mechanism_of(model, ground=()):
    """The mechanism of a model; geoms of `ground` touch the ground where they lie lowest."""
    names = [model.joint(joint).name or f"joint{joint}" for joint in range(model.njnt)]
    tree, drives = BodyTree(model), read_drives(model, dict(enumerate(names)))
    assert not drives.unmodelled, drives.unmodelled
    where, dofs = tree.where(names), model.jnt_dofadr
    (tendons, no_tendons), (equalities, no_equalities) = (
        modelled_tendons(model, where),
        modelled_equalities(model, where),
    )
    if no_tendons or no_equalities:
        raise InputError("; ".join([*no_tendons, *no_equalities]))
    reference = []
    for joint in range(model.njnt):
        start, kind = model.jnt_qposadr[joint], model.jnt_type[joint]
        own = model.qpos0[start : start + (7, 4, 1, 1)[kind]].tolist()
        reference += [*own[:-4], *own[-3:], own[-4]] if kind < 2 else own
    labels = {geom: model.geom(geom).name for geom in ground}
    geoms = np.flatnonzero(model.geom_contype | model.geom_conaffinity).tolist()
    contacts = read_contacts(model, where, geoms, ground=labels)
    heads = {geom: tree.link_of(int(model.geom_bodyid[geom])) for geom in ground}
    points = tuple(ContactPoint(f"{labels[geom]}/0", heads[geom], (0.0, 0.0, 0.0), 0.0) for geom in ground)
    return Mechanism(
        surfaces=contacts.surfaces, shape_contacts=contacts.contacts, points=points, ground_shapes=contacts.ground,
        hulls=contacts.hulls, drives=drives.drives, links=tree.links(names),
        gravity=tuple(model.opt.gravity.tolist()), tendons=tendons,
        equalities=equalities, medium=read_medium(model, where), reference=tuple(reference),
        constraints=SoftConstraints(
            limits={name: softness(model.jnt_solref[i], model.jnt_solimp[i]) for i, name in enumerate(names)},
            joint_friction={
                name: softness(model.dof_solref[dofs[i]], model.dof_solimp[dofs[i]]) for i, name in enumerate(names)
            },
            limit_margins={name: float(model.jnt_margin[i]) for i, name in enumerate(names)},
            implicit=int(model.opt.integrator) == 3, free_point="origin", follows_capsules=True,
            flat_sides=has_several_contacts(model),
            impratio=float(model.opt.impratio), cone="elliptic" if int(model.opt.cone) else "pyramidal",
        ),
    )  # fmt: skip


def engine(mechanism, dt, **config):
    """The engine with the mechanism's drives as controls, or with every joint of one axis driven."""
    names = tuple(mechanism.drives) or tuple(link.joint.name for link in mechanism.links if link.joint.scalar)
    spec = machines.spec(mechanism, names, dt, "command" if mechanism.drives else "torque")
    return Engine(mechanism, spec, EngineConfig(**{"substeps": 1, "contact": "soft", **config}))


class Stepper:
    """MuJoCo's steps of states [q, qd] in Newton's coordinates."""

    def __init__(self, model):
        self.model, self.data = model, mujoco.MjData(model)
        self._mechanism = mechanism_of(model)

    def step(self, state, torque=None, commands=()):
        """One step, or one for each vector of commands."""
        model, data = self.model, self.data
        mujoco.mj_resetData(model, data)
        self._write(state.numpy())
        for command in commands:
            data.ctrl[:] = command
            mujoco.mj_step(model, data)
        if len(commands):
            return self._read()
        if torque is not None:
            data.qfrc_applied[[model.jnt_dofadr[j] for j in range(model.njnt) if model.jnt_type[j] > 1]] = torque
        mujoco.mj_step(model, data)
        return self._read()

    def _write(self, x):
        model, data, nq, q, v = self.model, self.data, self._mechanism.nq, 0, 0
        for joint, link in enumerate(self._mechanism.links):
            a, b, kind = model.jnt_qposadr[joint], model.jnt_dofadr[joint], model.jnt_type[joint]
            if kind == 0:
                turn = torch.tensor(x[q + 3 : q + 7])
                data.qpos[a : a + 7] = [*x[q : q + 3], x[q + 6], *x[q + 3 : q + 6]]
                velocity, spin = x[nq + v : nq + v + 3], x[nq + v + 3 : nq + v + 6]
                arm = rotate(turn, torch.tensor(link.com, dtype=F64)).numpy()
                data.qvel[b : b + 3] = velocity - np.cross(spin, arm)
                data.qvel[b + 3 : b + 6] = rotate(turn * torch.tensor([-1.0, -1, -1, 1]), torch.tensor(spin)).numpy()
                q, v = q + 7, v + 6
            elif kind == 1:
                turn = torch.tensor(x[q : q + 4])
                data.qpos[a : a + 4] = [x[q + 3], *x[q : q + 3]]
                spin = torch.tensor(x[nq + v : nq + v + 3])
                data.qvel[b : b + 3] = rotate(turn * torch.tensor([-1.0, -1, -1, 1]), spin).numpy()
                q, v = q + 4, v + 3
            else:
                data.qpos[a], data.qvel[b] = x[q], x[nq + v]
                q, v = q + 1, v + 1

    def _read(self):
        model, data, q, qd = self.model, self.data, [], []
        for joint, link in enumerate(self._mechanism.links):
            a, b, kind = model.jnt_qposadr[joint], model.jnt_dofadr[joint], model.jnt_type[joint]
            if kind == 0:
                turn = torch.tensor([*data.qpos[a + 4 : a + 7], data.qpos[a + 3]], dtype=F64)
                spin = rotate(turn, torch.tensor(data.qvel[b + 3 : b + 6], dtype=F64)).numpy()
                arm = rotate(turn, torch.tensor(link.com, dtype=F64)).numpy()
                q += [*data.qpos[a : a + 3], *turn.tolist()]
                qd += [*(data.qvel[b : b + 3] + np.cross(spin, arm)), *spin]
            elif kind == 1:
                turn = torch.tensor([*data.qpos[a + 1 : a + 4], data.qpos[a]], dtype=F64)
                q += turn.tolist()
                qd += rotate(turn, torch.tensor(data.qvel[b : b + 3], dtype=F64)).tolist()
            else:
                q.append(data.qpos[a])
                qd.append(data.qvel[b])
        return torch.tensor([*q, *qd], dtype=F64)


def random_states(mechanism, count, seed, spread=0.5, speed=1.0):
    """States around zero."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(count, mechanism.nq)) * spread
    column = 0
    for link in mechanism.links:
        if not link.joint.scalar:
            end = column + link.joint.nq
            q[:, end - 1] += 2.0
            q[:, end - 4 : end] /= np.linalg.norm(q[:, end - 4 : end], axis=1, keepdims=True)
        column += link.joint.nq
    return torch.from_numpy(np.concatenate([q, rng.normal(size=(count, mechanism.nv)) * speed], 1))


def stepped(of, states, torques=None, parameters=None):
    """One step of an engine, on a plane if it has a ground."""
    sizes = of.program.sizes
    control = torch.zeros(len(states), 1, sizes.control, dtype=F64) if torques is None else torques[:, None]
    held = torch.tensor([0.0, 0, 0, 0, 0, 1][: sizes.held], dtype=F64).expand(len(states), 1, -1)
    return of.program.rollout(states, frames=1, control=control, held=held, parameters=parameters)[:, 1]


def compared(xml, count=12, seed=0, spread=0.5, speed=1.0, **config):
    """The greatest error of a step beside MuJoCo's, of the velocities over their change, and of the positions."""
    model = mujoco.MjModel.from_xml_string(xml)
    mechanism = mechanism_of(model)
    states = random_states(mechanism, count, seed, spread, speed)
    theirs = torch.stack([Stepper(model).step(state) for state in states])
    ours = stepped(engine(mechanism, model.opt.timestep, **config), states)
    nq = mechanism.nq
    change = (theirs - states)[:, nq:].norm(dim=1, keepdim=True)
    return ((ours - theirs)[:, nq:].abs() / change).max().item(), (ours - theirs)[:, :nq].abs().max().item()
