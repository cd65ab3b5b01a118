# SPDX-License-Identifier: Apache-2.0
"""Mechanisms from MuJoCo's compiler, and its steps in Newton's coordinates, for tests."""

import msgspec
import mujoco
import numpy as np
import torch
from msgspec import UNSET

from neurodyn.core.description.contacts import ChainJoint, ConstraintParameters, ContactPoint, SoftConstraints
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.scene import IDENTITY
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.geometry.rotation import rotate
from neurodyn.multibody.engine import Engine, EngineConfig
from neurodyn.sim.bodies import compose, rotation
from neurodyn.sim.mujoco.actuators import read_drives
from neurodyn.sim.mujoco.couplings import ModelLinks, read_equalities, read_tendons
from neurodyn.sim.mujoco.shape_contacts import read_contacts

F64 = torch.float64
KINDS = {0: "free", 1: "ball", 2: "prismatic", 3: "revolute"}
EXACT = 'tolerance="0" iterations="100" ls_iterations="100" ls_tolerance="1e-10" jacobian="dense"'
"""Options of MuJoCo with which its solver converges to rounding."""


def pose(place, quaternion=(1.0, 0.0, 0.0, 0.0)):
    w, x, y, z = quaternion
    return np.array([*place, x, y, z, w])


def carriers(model):
    """For each body the first body up to it with a joint (0: the world), and its pose there."""
    found = {0: (0, np.array(IDENTITY))}
    for body in range(1, model.nbody):
        own = pose(model.body_pos[body], model.body_quat[body])
        if model.body_jntnum[body]:
            assert model.body_jntnum[body] == 1
            found[body] = (body, np.array(IDENTITY))
        else:
            head, above = found[int(model.body_parentid[body])]
            found[body] = (head, compose(above, own))
    return found


def merged(model, carried, head):
    """Mass, centre and inertia of a body with what is fixed to it, in its frame."""
    members = [(body, compose(at, pose(model.body_ipos[body], model.body_iquat[body]))) for body, (own, at) in
               carried.items() if own == head]  # fmt: skip
    mass = sum(model.body_mass[body] for body, _ in members)
    centre = sum(model.body_mass[body] * at[:3] for body, at in members) / mass
    inertia = np.zeros((3, 3))
    for body, at in members:
        turn, d = rotation(at), at[:3] - centre
        inertia += turn @ np.diag(model.body_inertia[body]) @ turn.T
        inertia += model.body_mass[body] * (d @ d * np.eye(3) - np.outer(d, d))
    return mass, centre, inertia


def softness(solref, solimp):
    return ConstraintParameters(solref=tuple(map(float, solref)), solimp=tuple(map(float, solimp)))


def mechanism_of(model, ground=()):
    """The mechanism of a model with one joint a body; geoms of `ground` touch the ground where they lie lowest."""
    carried, links, number, limits, frictions, margins = carriers(model), [], {}, {}, {}, {}
    for body in range(1, model.nbody):
        if not model.body_jntnum[body]:
            continue
        joint, kind = model.body_jntadr[body], KINDS[int(model.jnt_type[model.body_jntadr[body]])]
        name = model.joint(joint).name or f"joint{joint}"
        dof, single = model.jnt_dofadr[joint], kind in ("revolute", "prismatic")
        above, at = carried[int(model.body_parentid[body])]
        anchor = pose(model.jnt_pos[joint]) if single or kind == "ball" else np.array(IDENTITY)
        frame = np.array(IDENTITY)
        if kind != "free":
            frame = compose(compose(at, pose(model.body_pos[body], model.body_quat[body])), anchor)
        if single:  # the joint's zero is not that of the body's frame
            value, axis = -model.qpos0[model.jnt_qposadr[joint]], model.jnt_axis[joint]
            half = np.array([*(np.sin(value / 2) * axis), np.cos(value / 2)])
            frame = compose(frame, np.array([0, 0, 0, *half] if kind == "revolute" else [*(value * axis), 0, 0, 0, 1]))
        mass, centre, inertia = merged(model, carried, body)
        own = {} if single else {"damping": model.dof_damping[dof], "friction": model.dof_frictionloss[dof]}
        if not single:
            own["armature"] = model.dof_armature[dof]
            frictions[name] = softness(model.dof_solref[dof], model.dof_solimp[dof])
        if single:
            limited = bool(model.jnt_limited[joint])
            own = {
                "armature": model.dof_armature[dof], "damping": model.dof_damping[dof],
                "friction": model.dof_frictionloss[dof], "stiffness": model.jnt_stiffness[joint],
                "rest": model.qpos_spring[model.jnt_qposadr[joint]],
                "lower": model.jnt_range[joint][0] if limited else None,
                "upper": model.jnt_range[joint][1] if limited else None,
            }  # fmt: skip
            margins[name] = float(model.jnt_margin[joint])
            limits[name] = softness(model.jnt_solref[joint], model.jnt_solimp[joint])
            frictions[name] = softness(model.dof_solref[dof], model.dof_solimp[dof])
        links.append(
            Link(
                joint=ChainJoint(
                    name=name, kind=kind, parent=number.get(above, -1), parent_frame=tuple(frame.tolist()),
                    child_frame=tuple(anchor.tolist()),
                    axis=tuple(model.jnt_axis[joint].tolist()) if single else (0.0, 0.0, 0.0),
                ),
                mass=float(mass), com=tuple(centre.tolist()),
                inertia=tuple(float(inertia[i, j]) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))),
                **{what: None if x is None else float(x) for what, x in own.items()},
            )
        )  # fmt: skip
        number[body] = len(links) - 1
    names = {head: links[index].joint.name for head, index in number.items()}
    bodies = {body: (names.get(head, ""), tuple(map(float, at))) for body, (head, at) in carried.items()}
    joints = {
        joint: model.joint(joint).name or f"joint{joint}" for joint in range(model.njnt) if model.jnt_type[joint] > 1
    }
    where = ModelLinks(joints, bodies)
    drives = read_drives(model)
    assert not drives.unmodelled, drives.unmodelled
    if drives.joint_ranges:
        links = [
            msgspec.structs.replace(link, effort_range=drives.joint_ranges.get(link.joint.name, UNSET))
            for link in links
        ]
    reference = []
    for joint in range(model.njnt):
        start, kind = model.jnt_qposadr[joint], model.jnt_type[joint]
        own = model.qpos0[start : start + (7, 4, 1, 1)[kind]].tolist()
        reference += [*own[:-4], *own[-3:], own[-4]] if kind < 2 else own
    labels = {geom: model.geom(geom).name for geom in ground}
    geoms = np.flatnonzero(model.geom_contype | model.geom_conaffinity).tolist()
    contacts = read_contacts(model, where, geoms, ground=labels)
    heads = {geom: number[carried[int(model.geom_bodyid[geom])][0]] for geom in ground}
    points = tuple(ContactPoint(f"{labels[geom]}/0", heads[geom], (0.0, 0.0, 0.0), 0.0) for geom in ground)
    return Mechanism(
        surfaces=contacts.surfaces, shape_contacts=contacts.contacts, points=points, ground_shapes=contacts.ground,
        hulls=contacts.hulls,
        drives=drives.drives,
        links=tuple(links), gravity=tuple(model.opt.gravity.tolist()), tendons=read_tendons(model, where),
        equalities=read_equalities(model, where), reference=tuple(reference),
        constraints=SoftConstraints(
            limits=limits, joint_friction=frictions, limit_margins=margins, implicit=int(model.opt.integrator) == 3,
            free_point="origin", follows_capsules=True, impratio=float(model.opt.impratio),
            cone="elliptic" if int(model.opt.cone) else "pyramidal",
        ),
    )  # fmt: skip


def engine(mechanism, dt, **config):
    """The engine with the mechanism's drives as controls, or with every joint of one axis driven."""
    names = tuple(mechanism.drives) or tuple(link.joint.name for link in mechanism.links if link.joint.scalar)
    joints = tuple(JointSpec(name=link.joint.name, kind=link.joint.kind) for link in mechanism.links)
    kind = "command" if mechanism.drives else "torque"
    spec = StateSpec(robot="machine", joints=joints, controls=names, dt=dt, control_kind=kind)
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
