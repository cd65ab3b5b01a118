# SPDX-License-Identifier: Apache-2.0
"""Soft constraints: MuJoCo's own steps to rounding, and derivatives of every input."""

import msgspec
import numpy as np
import pytest
import torch
import warp as wp

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.contacts import ConstraintParameters, ContactPoint, SoftConstraints
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.errors import InputError
from neurodyn.geometry.rotation import rotate
from neurodyn.multibody.contacts.held_ground import GROUND_NUMBERS
from neurodyn.multibody.engine import Engine, EngineConfig, nominal
from neurodyn.multibody.trace.target import Target
from tests.multibody import machines
from tests.multibody.differences import require_gradient

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

    def own_friction(shape):
        own = constraints.frictions.get(shape)
        return "" if own is None else f' friction="{own} 0 0" priority="1"'

    lossy = constraints.joint_friction["knee"]
    loss = f'solreffriction="{lossy.solref[0]} {lossy.solref[1]}" solimpfriction="{" ".join(map(str, lossy.solimp))}"'
    return f"""<mujoco><compiler angle="radian" autolimits="true"/>
<option timestep="{DT}" cone="{constraints.cone}" impratio="{constraints.impratio}" tolerance="0" iterations="100"
 ls_iterations="100" ls_tolerance="1e-10" jacobian="dense"/>
<default><geom friction="{constraints.friction} 0 0" solref="{solref}" solimp="{solimp}" contype="0" conaffinity="1"/>
</default><worldbody><geom type="plane" size="9 9 1" contype="1" conaffinity="0"/>
<body name="base"><freejoint/><inertial pos="0 0 0" mass="2" diaginertia=".02 .03 .025"/>
<geom type="sphere" size=".08" pos=".1 0 -.05"{own_friction("ball")}/>
<geom type="capsule" size=".05" fromto="-.1 -.15 -.1 -.15 .1 -.05"{own_friction("capsule")}/>
<body name="leg" pos=".1 0 -.1"><joint name="knee" axis="0 .8 .6" range="-.5 .6" damping=".3" armature=".01"
 frictionloss=".4" stiffness="2" springref=".1" {limit} {loss}/>
<inertial pos="0 .02 -.1" mass=".5" diaginertia=".002 .0025 .0006"/>
<geom type="sphere" size=".03" pos=".05 0 -.25"{own_friction("foot")}/></body></body></worldbody></mujoco>"""


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
        held=PLANE.expand(worlds, 1, GROUND_NUMBERS), parameters=parameters,
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


@pytest.mark.parametrize(("cone", "impratio"), [("pyramidal", 1.0), ("elliptic", 4.0)])
def test_shapes_have_frictions_of_their_own(cone, impratio):
    """Two of a link, of which one has the common friction, and one alone on its link."""
    own = SoftConstraints(
        cone=cone, impratio=impratio, friction=0.7, frictions={"capsule": 0.2, "foot": 1.3},
        limits={"knee": YIELDS["default"]}, joint_friction={"knee": YIELDS["default"]},
    )  # fmt: skip
    states = random_states(60, seed=9)
    theirs, ours = stepped_by_mujoco(own, states), step(engine(mechanism(own)), states)
    change = (theirs - states)[:, 8:].norm(dim=1, keepdim=True)
    assert ((ours - theirs)[:, 8:] / change).abs().max() < 1e-8
    same = msgspec.structs.replace(own, frictions={})
    assert ((step(engine(mechanism(same)), states) - theirs)[:, 8:] / change).abs().max() > 1e-2


def test_frictions_of_shapes_are_quantities_and_have_derivatives():
    tree = mechanism(SoftConstraints(friction=0.3, frictions={"capsule": 0.1}))
    assert {n: x for n, x in nominal(tree, "soft").items() if n.endswith(".friction") and n.startswith("contact")} == {
        "contact.friction": 0.3, "contact.capsule.friction": 0.1,
    }  # fmt: skip
    of, states = engine(tree, free=("contact.friction", "contact.capsule.friction")), random_states(30, 3)
    values = torch.tensor([0.3, 0.1], dtype=F64).expand(len(states), 2).clone().requires_grad_(True)
    end = step(of, states, parameters=values)[:, 8:]
    weights = torch.randn(end.shape, generator=torch.Generator().manual_seed(0), dtype=F64)
    (gradient,) = torch.autograd.grad((end * weights).sum(), values)
    for k in range(2):
        ahead, behind = (
            (step(of, states, parameters=values.detach() + sign * 1e-6 * torch.eye(2, dtype=F64)[k])[:, 8:] * weights)
            for sign in (1, -1)
        )
        wanted = (ahead - behind).sum(1) / 2e-6
        assert wanted.abs().max() > 1e-2
        torch.testing.assert_close(gradient[:, k], wanted, rtol=1e-4, atol=1e-5)


def test_what_touches_nothing_and_is_within_its_limits_moves_freely():
    tree = mechanism()
    leg = msgspec.structs.replace(tree.links[1], friction=0.0, damping=0.0)
    tree = msgspec.structs.replace(tree, links=(tree.links[0], leg))
    states = random_states(20, 3)
    states[:, 2] += 5.0
    states[:, 7] *= 0.5
    free = Engine(tree, machines.spec(tree, ("knee",), DT), EngineConfig(substeps=1))
    theirs = free.program.rollout(states, frames=1, control=torch.zeros(len(states), 1, 1, dtype=F64))[:, 1]
    torch.testing.assert_close(step(engine(tree), states), theirs, rtol=1e-12, atol=1e-12)


# --- derivatives ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_gradients_are_those_of_central_differences(cone):
    """By state, torque and every parameter of the constraints, in single steps from states of every kind."""
    curved = YIELDS["curved"]
    constraints = SoftConstraints(
        cone=cone, impratio=2.0, friction=0.6, contact=curved, limits={"knee": curved}, joint_friction={"knee": curved}
    )
    tree = mechanism(constraints)
    names = [name for name in nominal(tree, "soft") if "sol" in name or "friction" in name or name.endswith("mass")]
    of = engine(tree, free=tuple(names))
    states = random_states(30, 5)[:20]
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(0), dtype=F64)
    point = [states, torch.full((1,), 0.3, dtype=F64), torch.tensor(of.nominal, dtype=F64)]

    def value(states, control, parameters):
        return (step(of, states, control=control.item(), parameters=parameters) * weights).sum(1)

    nominal_values = point[2].expand(len(states), -1)
    require_gradient(lambda x: value(x, *point[1:]), states, steepness=0.0)
    require_gradient(lambda x: value(*point[:2], x), nominal_values, least=1e-3, steepness=0.0)


def test_a_switch_has_one_sided_derivatives():
    """A ball at rest in the plane: pressed in it pushes, lifted it does not, and the gradient is that of one side."""
    tree = msgspec.structs.replace(machines.sphere(), constraints=SoftConstraints())
    of = Engine(tree, machines.spec(tree, (), DT), EngineConfig(substeps=1, contact="soft"))

    def slope(height):
        state = torch.tensor([[0, 0, height, 0, 0, 0, 1.0] + 6 * [0.0]], dtype=F64, requires_grad=True)
        held = PLANE.expand(1, 1, GROUND_NUMBERS)
        return torch.autograd.grad(of.program.rollout(state, frames=1, held=held)[0, 1, 9], state)[0][0, 2]

    assert slope(0.1) == slope(0.1 + 1e-9) == 0.0
    assert slope(0.1 - 1e-9) < 0.0


# --- networks and names ---------------------------------------------------------------------------------------------
def test_a_network_on_a_contact_force_moves_what_the_force_moves():
    tree, states = mechanism(), random_states(60, 9)
    names = engine(tree).names
    assert {"contact.foot.depth", "contact.foot.normal", "contact.foot.friction.x", "contact.solref.timeconst"} <= {
        *names
    }
    assert "knee.limit_solimp.width" in names
    twice = Augmentation(quantities=("contact.ball.normal",), inputs=("contact.ball.depth",), mode="scale", hidden=())
    changed = engine(tree, blueprint=Blueprint(augmentations=(twice,)))
    bias = torch.tensor([0.0, 1.0], dtype=F64)  # the force once more
    after = changed.program.rollout(
        states, frames=1, control=torch.zeros(len(states), 1, 1, dtype=F64),
        held=PLANE.expand(len(states), 1, GROUND_NUMBERS), weights=bias,
    )[:, 1]  # fmt: skip
    usual = step(engine(tree), states)
    low = states[:, :3] + rotate(states[:, 3:7], torch.tensor([[0.1, 0.0, -0.05]], dtype=F64))
    touches = low[:, 2] < 0.08
    pushed = after[:, 10] - usual[:, 10]
    assert (pushed[touches] >= 0).all()
    assert (pushed[touches] > 1e-3).any()
    assert pushed[~touches].abs().max() < 1e-12


def test_parameters_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"solref is \(0.02, -1.0\); valid: a time constant \[s\] and a damping ratio"):
        ConstraintParameters(solref=(0.02, -1.0))
    with pytest.raises(ValueError, match=r"solimp is .*; valid: d0, dwidth and midpoint between 0 and 1"):
        ConstraintParameters(solimp=(0.9, 1.5, 0.001, 0.5, 2.0))
    with pytest.raises(ValueError, match=r"friction is -1; valid"):
        SoftConstraints(friction=-1)
    bare = msgspec.structs.replace(machines.bare_pendulum(), points=())
    with pytest.raises(InputError, match=r"there is no parameter 'contact.friction'"):
        Engine(bare, machines.spec(bare), EngineConfig(contact="soft", free=("contact.friction",)))


def test_the_same_text_compiles_for_a_gpu(tmp_path):
    if not any(wp.get_cuda_toolkit_version()):
        pytest.skip("Warp was built without CUDA")
    program = engine(mechanism(SoftConstraints(cone="elliptic"))).program
    for which in (0, 1):
        kernel = program.kernel(which, Target("cuda", True))
        wp.compile_aot_module(kernel.module, arch=90, module_dir=str(tmp_path), use_ptx=True)
