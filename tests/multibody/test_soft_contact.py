# SPDX-License-Identifier: Apache-2.0
"""Soft constraints: MuJoCo's own steps to rounding, and derivatives of every input."""

import numpy as np
import pytest
import torch

from neurodyn.core.contact_points import ContactPoint
from neurodyn.core.mechanism import Link, Mechanism
from neurodyn.core.soft_constraints import ConstraintParameters, SoftConstraints
from neurodyn.geometry.rotation import rotate
from neurodyn.multibody.engine import Engine, EngineConfig
from neurodyn.multibody.held_ground import NUMBERS
from tests.multibody import machines

mujoco = pytest.importorskip("mujoco")

F64 = torch.float64
DT = 0.004
PLANE = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0], dtype=F64)
YIELDS = {
    "default": ConstraintParameters(),
    "curved": ConstraintParameters(solref=(0.03, 0.6), solimp=(0.5, 0.9, 0.02, 0.3, 3.0)),
    "direct": ConstraintParameters(solref=(-2000.0, -60.0), solimp=(0.8, 0.95, 0.01, 0.6, 1.0)),
    "too quick": ConstraintParameters(solref=(0.002, 1.0)),  # for the step, so that it is slowed down
}


def xml(constraints):
    """A floating body with a ball and a capsule, and a leg with a round foot that a limited joint turns."""
    solref, solimp = (" ".join(map(str, x)) for x in (constraints.contact.solref, constraints.contact.solimp))
    own = constraints.limits["knee"]
    limit = f'solreflimit="{own.solref[0]} {own.solref[1]}" solimplimit="{" ".join(map(str, own.solimp))}"'
    lossy = constraints.joint_friction["knee"]
    loss = f'solreffriction="{lossy.solref[0]} {lossy.solref[1]}" solimpfriction="{" ".join(map(str, lossy.solimp))}"'
    return f"""<mujoco><compiler angle="radian" autolimits="true"/>
<option timestep="{DT}" cone="{constraints.cone}" impratio="{constraints.impratio}" tolerance="0" iterations="100"
 ls_iterations="100" ls_tolerance="1e-10" jacobian="dense"/>
<default><geom friction="{constraints.friction} 0 0" solref="{solref}" solimp="{solimp}" contype="0" conaffinity="1"/>
</default><worldbody><geom type="plane" size="9 9 1" contype="1" conaffinity="0"/>
<body name="base"><freejoint/><inertial pos="0 0 0" mass="2" diaginertia=".02 .03 .025"/>
<geom type="sphere" size=".08" pos=".1 0 -.05"/><geom type="capsule" size=".05" fromto="-.1 -.15 -.1 -.15 .1 -.05"/>
<body name="leg" pos=".1 0 -.1"><joint name="knee" axis="0 .8 .6" range="-.5 .6" damping=".3" armature=".01"
 frictionloss=".4" stiffness="2" springref=".1" {limit} {loss}/>
<inertial pos="0 .02 -.1" mass=".5" diaginertia=".002 .0025 .0006"/>
<geom type="sphere" size=".03" pos=".05 0 -.25"/></body></body></worldbody></mujoco>"""


def mechanism(constraints=None):
    """The same."""
    parameters = YIELDS["default"]
    start, end = np.array([-0.1, -0.15, -0.1]), np.array([-0.15, 0.1, -0.05])
    axis = tuple(((end - start) / np.linalg.norm(end - start)).tolist())
    points = (
        ContactPoint(name="ball", joint=0, point=(0.1, 0.0, -0.05), radius=0.08),
        ContactPoint(name="foot", joint=1, point=(0.05, 0.0, -0.25), radius=0.03),
        ContactPoint(name="capsule/0", joint=0, point=tuple(start.tolist()), radius=0.05, axis=axis),
        ContactPoint(name="capsule/1", joint=0, point=tuple(end.tolist()), radius=0.05, axis=axis),
    )
    base = Link(
        joint=machines.joint("base", "free"), mass=2.0, com=(0.0, 0.0, 0.0), inertia=(0.02, 0.03, 0.025, 0, 0, 0)
    )
    leg = Link(
        joint=machines.joint("knee", "revolute", 0, (0.1, 0.0, -0.1), (0.0, 0.8, 0.6)), mass=0.5, com=(0, 0.02, -0.1),
        inertia=(0.002, 0.0025, 0.0006, 0, 0, 0), damping=0.3, armature=0.01, friction=0.4, lower=-0.5, upper=0.6,
        stiffness=2.0, rest=0.1,
    )  # fmt: skip
    default = SoftConstraints(friction=0.7, limits={"knee": parameters}, joint_friction={"knee": parameters})
    return Mechanism(links=(base, leg), points=points, constraints=constraints or default)


def random_states(count, seed):
    """States low enough that most touch, some with the knee beyond its limits."""
    rng = np.random.default_rng(seed)
    turn = rng.normal(size=(count, 4)) * [0.3, 0.3, 0.3, 0.3] + [0, 0, 0, 1.0]
    turn /= np.linalg.norm(turn, axis=1, keepdims=True)
    place = np.stack([*rng.normal(size=(2, count)), rng.uniform(0.05, 0.4, count)], 1)
    q = np.concatenate([place, turn, rng.uniform(-0.6, 0.7, (count, 1))], 1)
    qd = rng.normal(size=(count, 7)) * [1, 1, 1, 3, 3, 3, 4]
    states = torch.from_numpy(np.concatenate([q, qd], 1))
    # Of a capsule that stands, MuJoCo and MuJoCo Warp have different tangents.
    axis = torch.tensor(mechanism().points[2].axis, dtype=F64)
    return states[rotate(states[:, 3:7], axis.expand(count, 3))[:, 2].abs() < 0.8]


def stepped_by_mujoco(constraints, states):
    model = mujoco.MjModel.from_xml_string(xml(constraints))
    data, after, touching = mujoco.MjData(model), [], 0
    for state in states:
        mujoco.mj_resetData(model, data)
        x = state.numpy()
        data.qpos[:] = [*x[:3], x[6], *x[3:6], x[7]]
        body = rotate(state[3:7] * torch.tensor([-1.0, -1, -1, 1]), state[11:14])
        data.qvel[:] = [*x[8:11], *body.numpy(), x[14]]
        mujoco.mj_step(model, data)
        touching += data.ncon > 0
        turn = torch.tensor([*data.qpos[4:7], data.qpos[3]], dtype=F64)
        spin = rotate(turn, torch.tensor(data.qvel[3:6], dtype=F64)).numpy()
        after.append([*data.qpos[:3], *turn, data.qpos[7], *data.qvel[:3], *spin, data.qvel[6]])
    assert touching > len(states) / 2
    return torch.tensor(after, dtype=F64)


def engine(tree, **config):
    config = EngineConfig(substeps=1, contact="soft", **config)
    return Engine(tree, machines.spec(tree, ("knee",), DT), config)


def step(of, states, *, control=0.0, parameters=None):
    """One step on a plane."""
    worlds = len(states)
    return of.program.rollout(
        states, frames=1, control=torch.full((worlds, 1, 1), control, dtype=F64),
        held=PLANE.expand(worlds, 1, NUMBERS), parameters=parameters,
    )[:, 1]  # fmt: skip


@pytest.mark.parametrize(
    ("cone", "impratio", "friction", "yields"),
    [
        ("pyramidal", 1.0, 0.7, "default"),
        ("pyramidal", 3.0, 0.4, "curved"),
        ("elliptic", 1.0, 0.7, "too quick"),
        ("elliptic", 4.0, 0.5, "curved"),
        ("elliptic", 1.0, 1.2, "direct"),
    ],
)
def test_a_step_is_mujocos(cone, impratio, friction, yields):
    parameters = YIELDS[yields]
    constraints = SoftConstraints(
        cone=cone, impratio=impratio, friction=friction, contact=parameters, limits={"knee": parameters},
        joint_friction={"knee": parameters},
    )  # fmt: skip
    states = random_states(60, seed=len(yields))
    theirs, ours = stepped_by_mujoco(constraints, states), step(engine(mechanism(constraints)), states)
    change = (theirs - states)[:, 8:].norm(dim=1, keepdim=True)
    assert ((ours - theirs)[:, 8:] / change).abs().max() < 1e-8
    torch.testing.assert_close(ours[:, :8], theirs[:, :8], rtol=0, atol=1e-9)
