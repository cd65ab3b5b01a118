# SPDX-License-Identifier: Apache-2.0
"""Equality constraints and tendons: MuJoCo's own steps to rounding, and derivatives of every input."""

import re

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.config import from_dict, to_dict
from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.contacts import ContactPoint
from neurodyn.core.description.couplings import Equality, Obstacle, Strand, Tendon, Waypoint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.scene import IDENTITY
from neurodyn.core.errors import InputError
from neurodyn.multibody.constraints.equalities import ConstraintRows
from neurodyn.multibody.constraints.layout import ConstraintStructure, RowGroup
from neurodyn.multibody.contacts.held_ground import GROUND_NUMBERS
from neurodyn.multibody.engine import nominal
from tests.multibody import machines
from tests.multibody.differences import require_gradient

mujoco = pytest.importorskip("mujoco")
models = pytest.importorskip("tests.multibody.mujoco_models")
EXACT, F64, Stepper = models.EXACT, models.F64, models.Stepper
compared, engine, mechanism_of = models.compared, models.engine, models.mechanism_of
random_states, stepped = models.random_states, models.stepped

FREE = """<body name="F" pos=".5 0 1"><freejoint name="f"/><inertial pos=".02 .01 0" mass=".7"
 diaginertia=".003 .004 .005"/><site name="sf" pos=".03 .02 -.1"/></body>"""


def xml(parts, integrator="Euler", free=FREE):
    """An arm that branches (a carries b and c, c carries d) and a body that flies, with equalities and tendons."""
    return f"""<mujoco><compiler angle="radian" autolimits="true"/>
<option timestep=".004" integrator="{integrator}" {EXACT}/><worldbody><site name="w" pos=".3 0 .2"/>
<body name="A" pos="0 0 1"><joint name="a" axis="0 .8 .6" damping=".1" armature=".01" ref=".2"/>
<inertial pos=".1 0 -.1" mass="1" diaginertia=".02 .03 .01"/><site name="sa" pos=".05 .02 -.2"/>
<body name="B" pos=".1 0 -.3"><joint name="b" axis="1 0 0" damping=".05" pos="0 .02 0"/>
<inertial pos="0 .05 -.1" mass=".6" diaginertia=".01 .012 .004"/><site name="sb" pos="0 .02 -.2" quat=".9 .1 .2 -.3"/>
<body name="fixed" pos="0 0 -.3"><inertial pos="0 0 .1" mass=".1" diaginertia=".001 .001 .001"/></body></body>
<body name="C" pos="-.1 0 -.3"><joint name="c" type="slide" axis="0 .6 .8" frictionloss=".2"/>
<inertial pos=".02 0 -.1" mass=".5" diaginertia=".006 .01 .004"/><site name="sc" pos="0 .02 -.2"/>
<body name="D" pos="0 .1 -.2"><joint name="d" axis="0 1 0" range="-.3 .4" margin=".1"/>
<inertial pos="0 0 -.1" mass=".3" diaginertia=".003 .004 .001"/><site name="sd" pos=".03 .02 -.2" quat="1 .3 .2 .1"/>
</body></body></body>{free}</worldbody>{parts}</mujoco>"""


SITES = '<site site="w"/><site site="sa"/><site site="sb"/><pulley divisor="2"/><site site="sd"/><site site="sc"/>'
BRANCHES = '<joint joint="b" coef=".5"/><joint joint="d" coef="-.3"/>'
SOFT = 'solimp=".5 .9 .3 .4 3"'
EQUALITIES = {
    "joints": f"""<joint joint1="a" joint2="c" polycoef=".1 .5 -.3 .2 .1"/>
<joint joint1="b" polycoef=".2 0 0 0 0" solref=".05 .7" {SOFT}/>""",
    "connect two bodies": '<connect body1="B" body2="D" anchor="0 .1 -.1"/>',
    "connect a fixed body to the world": '<connect body1="fixed" anchor="0 .1 -.1"/>',
    "connect sites": '<connect site1="sb" site2="sf"/>',
    "weld two bodies": '<weld body1="B" body2="D" torquescale=".7" anchor="0 .1 0"/>',
    "weld with a pose": f'<weld body1="F" body2="D" relpose=".1 .2 .1 .9 .2 .1 .3" anchor="0 .1 0" {SOFT}/>',
    "weld to the world": '<weld body1="F"/>',
    "weld sites": '<weld site1="sb" site2="sf" solref="-500 -20"/>',
}
TENDONS = {
    "fixed": f"""<fixed name="t" stiffness="30" damping="2" springlength="-.1 .2" frictionloss=".3" range="-.3 .4"
 margin=".05">{BRANCHES}</fixed>""",
    "inert": f'<fixed name="t" armature=".3">{BRANCHES}</fixed>',
    "spatial": f"""<spatial name="t" stiffness="30" damping="2" springlength=".1 .2" frictionloss=".3" range=".3 .4"
 margin=".05" solreflimit="-900 -30">{SITES}</spatial>""",
    "inert spatial": f'<spatial name="t" armature=".3">{SITES}<site site="sf"/></spatial>',
}
TWO = """<tendon><fixed name="t"><joint joint="a" coef=".5"/><joint joint="d" coef="-.3"/></fixed>
<fixed name="u" damping="1"><joint joint="c" coef=".5"/><joint joint="b" coef="-.3"/></fixed></tendon>
<equality><tendon tendon1="t" tendon2="u" polycoef="0 2 .1 0 0"/><tendon tendon1="u" polycoef=".1 0 0 0 0"/></equality>
"""
PARTS = {name: f"<equality>{one}</equality>" for name, one in EQUALITIES.items()}
PARTS |= {name: f"<tendon>{one}</tendon>" for name, one in TENDONS.items()} | {"equal tendons": TWO}


@pytest.mark.parametrize("name", PARTS)
def test_a_step_is_mujocos(name):
    velocity, position = compared(xml(PARTS[name]))
    assert velocity < 1e-12
    assert position < 1e-13


@pytest.mark.parametrize("name", ["fixed", "spatial", "equal tendons"])
def test_damping_of_tendons_is_implicit_with_implicitfast(name):
    velocity, position = compared(xml(PARTS[name], "implicitfast", free=""))
    assert velocity < 1e-12
    assert position < 1e-13


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast"])
def test_a_free_body_moves_as_mujocos(integrator):
    """Its origin moves, not its centre of mass; with implicitfast its gyroscopic moment is implicit."""
    velocity, position = compared(xml("", integrator), speed=3.0)
    assert velocity < 1e-12
    assert position < 1e-13


def test_without_equalities_and_tendons_steps_differ():
    model = mujoco.MjModel.from_xml_string(xml(PARTS["connect two bodies"]))
    mechanism = mechanism_of(model)
    states = random_states(mechanism, 4, 0)
    bare = msgspec.structs.replace(mechanism, equalities=())
    difference = stepped(engine(bare, 0.004), states) - stepped(engine(mechanism, 0.004), states)
    assert difference.abs().max() > 0.1


# --- around obstacles -----------------------------------------------------------------------------------------------
GEOMS = {"sphere": 'type="sphere" size=".08"', "cylinder": 'type="cylinder" size=".08 .1" euler=".3 1.4 .2"'}


def wrapped(kind, side):
    """Two links and a tendon that passes around a geom of the first."""
    return f"""<mujoco><compiler angle="radian" autolimits="true"/><option timestep=".004" {EXACT}/><worldbody>
<site name="w" pos=".02 .01 .25"/><body name="A"><joint name="a" axis="0 1 0" damping=".1"/>
<inertial pos="0 0 -.1" mass="1" diaginertia=".02 .03 .01"/><geom name="g" {GEOMS[kind]} pos="0 .02 0"/>
<site name="beside" pos=".2 0 0"/><site name="sa" pos=".02 0 -.2"/>
<body name="B" pos="0 0 -.3"><joint name="b" axis="0 .8 .6" damping=".05"/>
<inertial pos="0 .02 -.1" mass=".6" diaginertia=".01 .012 .004"/><site name="sb" pos="0 .02 -.2"/></body></body>
</worldbody><tendon><spatial name="t" stiffness="50" springlength="0 .1" damping="1" frictionloss=".4" range="0 .6">
<site site="w"/><geom geom="g" {side}/><site site="sb"/><site site="sa"/></spatial></tendon></mujoco>"""


@pytest.mark.parametrize("side", ["", 'sidesite="beside"'])
@pytest.mark.parametrize("kind", GEOMS)
def test_around_an_obstacle_a_step_is_mujocos_and_gradients_are_those_of_central_differences(kind, side):
    model = mujoco.MjModel.from_xml_string(wrapped(kind, side))
    mechanism = mechanism_of(model)
    states, stepper, wraps = random_states(mechanism, 40, 3, spread=1.0), Stepper(model), []
    theirs = []
    for state in states:
        theirs.append(stepper.step(state))
        wraps.append(stepper.data.ten_wrapnum[0] > 3)
    theirs = torch.stack(theirs)
    of = engine(mechanism, 0.004)
    assert 10 < sum(wraps) < 35  # the others go straight
    change = (theirs - states)[:, 2:].norm(dim=1, keepdim=True)
    assert ((stepped(of, states) - theirs)[:, 2:] / change).abs().max() < 1e-11
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(0), dtype=F64)
    require_gradient(lambda x: (stepped(of, x) * weights).sum(1), states, accuracy=1e-4)


def test_a_tendon_inside_of_a_geom_is_refused():
    text = wrapped("sphere", 'sidesite="beside"').replace('pos=".2 0 0"', 'pos=".02 0 0"')
    with pytest.raises(InputError, match="tendon 't': wraps inside of a geom; valid: side sites outside of it"):
        mechanism_of(mujoco.MjModel.from_xml_string(text))


# --- with contacts --------------------------------------------------------------------------------------------------
WALKER = f"""<mujoco><compiler angle="radian"/><option timestep=".004" cone="elliptic" {EXACT}/>
<default><geom friction=".7 0 0" contype="0" conaffinity="1"/></default>
<worldbody><geom type="plane" size="9 9 1" contype="1" conaffinity="0"/>
<body name="base"><freejoint name="base"/><inertial pos=".03 .01 -.02" mass="2" diaginertia=".02 .03 .025"/>
<geom type="sphere" size=".08"/>
<body name="L" pos="0 .1 0"><joint name="l" axis="0 1 0"/><inertial pos="0 0 -.1" mass=".4"
 diaginertia=".002 .002 .001"/><geom type="sphere" size=".04" pos="0 0 -.2"/></body>
<body name="R" pos="0 -.1 0"><joint name="r" axis="0 1 0"/><inertial pos="0 0 -.1" mass=".4"
 diaginertia=".002 .002 .001"/><geom type="sphere" size=".04" pos="0 0 -.2"/></body></body></worldbody>
<equality><joint joint1="l" joint2="r"/></equality></mujoco>"""


def walker():
    """A floating base with two feet that move together; contacts fill H where the equality does."""
    model = mujoco.MjModel.from_xml_string(WALKER)
    mechanism = mechanism_of(model)
    points = [ContactPoint(name="base", joint=0, point=(0.0, 0.0, 0.0), radius=0.08)]
    points += [ContactPoint(name=name, joint=1 + i, point=(0, 0, -0.2), radius=0.04) for i, name in enumerate("lr")]
    constraints = msgspec.structs.replace(mechanism.constraints, friction=0.7, cone="elliptic")
    return model, msgspec.structs.replace(mechanism, points=tuple(points), constraints=constraints)


def walked(of, states):
    plane = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 1.0], dtype=F64)
    worlds = len(states)
    return of.program.rollout(
        states, frames=1, control=torch.zeros(worlds, 1, 2, dtype=F64), held=plane.expand(worlds, 1, GROUND_NUMBERS)
    )[:, 1]


def test_with_contacts_a_step_is_mujocos_and_gradients_are_those_of_central_differences():
    model, mechanism = walker()
    states = random_states(mechanism, 20, 1, spread=0.2)
    states[:, 2] = torch.linspace(0.05, 0.3, 20, dtype=F64)
    stepper, touching, theirs = Stepper(model), 0, []
    for state in states:
        theirs.append(stepper.step(state))
        touching += stepper.data.ncon > 1
    of = engine(mechanism, 0.004)
    ours, theirs = walked(of, states), torch.stack(theirs)
    assert touching > 8
    change = (theirs - states)[:, 9:].norm(dim=1, keepdim=True)
    assert ((ours - theirs)[:, 9:] / change).abs().max() < 1e-9
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(0), dtype=F64)
    require_gradient(lambda x: (walked(of, x) * weights).sum(1), states)


# --- derivatives ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["joints", "weld with a pose", "connect sites", "fixed", "spatial", "equal tendons"])
def test_gradients_are_those_of_central_differences(name):
    mechanism = mechanism_of(mujoco.MjModel.from_xml_string(xml(PARTS[name], "implicitfast")))
    names = [one for one in nominal(mechanism, "soft") if one.startswith(("tendon.", "equality."))]
    if "fixed" not in name and name != "spatial":  # which have friction
        names = [one for one in names if ".friction" not in one]
    of = engine(mechanism, 0.004, free=(*names, "b.mass"))
    states = random_states(mechanism, 3, 0)
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(0), dtype=F64)
    parameters = torch.tensor(of.nominal, dtype=F64).expand(len(states), -1)
    require_gradient(lambda x: (stepped(of, x, parameters=parameters) * weights).sum(1), states)
    require_gradient(lambda x: (stepped(of, states, parameters=x) * weights).sum(1), parameters, least=1e-3)


# --- structure ------------------------------------------------------------------------------------------------------
def test_filled_entries_are_those_of_an_elimination():
    rng = np.random.default_rng(0)
    for _ in range(30):
        n = int(rng.integers(3, 12))
        parents = [int(rng.integers(-1, i)) if i else -1 for i in range(n)]
        chains = []
        for i in range(n):
            chains.append((*(chains[parents[i]] if parents[i] >= 0 else ()), i))
        dofs = tuple(sorted(rng.choice(n, 2, replace=False).tolist()))
        structure = ConstraintStructure(tuple(chains), (), rows=(RowGroup("equality", dofs),))
        full = np.zeros((n, n), dtype=bool)
        for i, chain in enumerate(chains):
            full[i, list(chain)] = True
        full[dofs[1], dofs[0]] = True
        for k in range(n - 1, -1, -1):
            for i in range(k):
                if full[k, i]:
                    full[i, : i + 1] |= full[k, : i + 1]
        assert structure.filled == tuple(tuple(np.flatnonzero(row).tolist()) for row in full)
        assert ConstraintStructure(tuple(chains), (), (), ()).filled == tuple(chains)


# --- names, networks and refusals -----------------------------------------------------------------------------------
def test_numbers_are_quantities():
    mechanism = mechanism_of(mujoco.MjModel.from_xml_string(xml(PARTS["spatial"] + PARTS["weld sites"])))
    values = mechanism.quantities()
    assert values["tendon.t.stiffness"] == 30.0
    assert values["equality.equality0.solref.timeconst"] == -500.0
    changed = {"tendon.t.upper": 0.5, "tendon.t.slack.upper": 0.3, "equality.equality0.second.y": 0.2}
    other = mechanism.with_quantities(changed)
    assert {**values, **changed} == other.quantities()
    assert from_dict(to_dict(other), Mechanism) == other
    assert mechanism.bounds()["tendon.t.margin"] == (0.0, None)


def test_a_network_acts_on_the_force_of_a_tendon():
    mechanism = mechanism_of(mujoco.MjModel.from_xml_string(xml(PARTS["fixed"])))
    network = Augmentation(quantities=("tendon.t.force",), inputs=("tendon.t.length",), mode="replace", hidden=())
    of = engine(mechanism, 0.004, blueprint=Blueprint(augmentations=(network,)))
    states = random_states(mechanism, 3, 0)
    control = torch.zeros(3, 1, of.program.sizes.control, dtype=F64)
    weights = [torch.tensor(x, dtype=F64) for x in ([0.0, 0.0], [0.0, 1.0], [0.0, -1.0])]
    none, more, less = (of.program.rollout(states, frames=1, control=control, weights=w)[:, 1] for w in weights)
    assert (more - none).abs().max() > 1e-3
    free = msgspec.structs.replace(
        mechanism, tendons=tuple(msgspec.structs.replace(x, stiffness=0.0, damping=0.0) for x in mechanism.tendons)
    )
    torch.testing.assert_close(none, stepped(engine(free, 0.004), states), rtol=0, atol=1e-12)
    assert (less - none).abs().max() > 1e-3


def test_other_contact_models_refuse_what_they_do_not_constrain():
    mechanism = mechanism_of(mujoco.MjModel.from_xml_string(xml(PARTS["joints"] + PARTS["spatial"])))
    valid = re.escape("does not solve; valid: contact: soft")
    with pytest.raises(InputError, match=rf"equality 'equality0'.*limits of tendon 't', friction of.*{valid}"):
        engine(mechanism, 0.004, contact=None)
    spring = Tendon(name="t", joints={"b": 0.5}, stiffness=3.0)
    bare = msgspec.structs.replace(mechanism, tendons=(spring,), equalities=())
    soft = engine(bare, 0.004, contact=None)
    states = random_states(bare, 3, 0, spread=0.05)
    assert not torch.equal(stepped(soft, states), states)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tendons": (Tendon(name="t", joints={"x": 1.0}),)}, r"tendon 't': .*'x'; valid: one of shoulder, elbow"),
        ({"tendons": (Tendon(name="t", joints={"elbow": 1.0}),) * 2}, r"tendon 't' is there twice"),
        ({"equalities": (Equality(name="e", kind="tendon", first="t"),)}, r"equality 'e': .*'t'; valid: .*\(none\)"),
        ({"equalities": (Equality(name="e", kind="weld", first="elbow", second="x"),)}, r"nothing for the world"),
        ({"reference": (0.0,)}, r"reference is \[0.0\]; valid: 2 finite numbers"),
    ],
)
def test_couplings_of_what_does_not_exist_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        msgspec.structs.replace(machines.pendulum(), **changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tendon(name="t"), "joints or strands is 0; valid: one of them"),
        (lambda: Tendon(name="t", joints={"a": 1.0}, damping=-1.0), "damping is -1.0; valid: a finite number of at"),
        (lambda: Tendon(name="t", joints={"a": 1.0}, lower=1.0, upper=0.0), "limits is .*; valid: the lower one first"),
        (
            lambda: Obstacle(kind="sphere", link="", pose=IDENTITY, radius=0.0),
            "radius is 0.0; valid: a finite number above 0",
        ),
        (lambda: Strand(points=(Waypoint(link="", point=(0, 0, 0)),)), "points is 1; valid: at least 2"),
        (lambda: Equality(name="e", kind="joint", first="a", second="a"), "'a'; valid: another one than the first"),
        (
            lambda: Equality(name="e", kind="weld", first="a", first_frame=(0, 0, 0, 0, 0, 0, 2.0)),
            "valid: a unit quaternion",
        ),
    ],
)
def test_bad_numbers_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_rows_of_a_constraint_share_the_joints_that_any_of_them_moves():
    rows = ConstraintRows("limit", [{4: 0.5}, {1: -1.0, 4: 2.0}], weights=[10.0, 20.0], rests=[0.1, 0.2], extra=[0.3])
    assert rows.group == RowGroup("limit", (1, 4), 2)
    assert rows.inputs == [0.0, 0.5, 10.0, 0.1, 0.3, -1.0, 2.0, 20.0, 0.2, 0.3]
    assert len(rows.inputs) == rows.group.rows * rows.group.width
