# SPDX-License-Identifier: Apache-2.0
import mujoco
import numpy as np
import pytest
import torch

from neurodyn.core.description.shape_contacts import ContactSurface
from neurodyn.sim.mujoco.couplings import ModelLinks
from neurodyn.sim.mujoco.shape_contacts import read_contacts
from tests.multibody.differences import require_along
from tests.multibody.mujoco_models import EXACT, F64, Stepper, engine, mechanism_of, random_states, stepped

CROWD = """<mujoco><option timestep="0.002" cone="{cone}" impratio="{impratio}" {exact}/>
<worldbody>
  <body name="base"><joint name="shoulder" axis="0 1 0" damping=".1"/>
    <geom type="capsule" size=".05 .2" pos=".3 0 .1" contype="0" conaffinity="0"/>
    <body name="arm" pos=".2 0 .1"><joint name="elbow" axis="1 0 0"/>
      <geom name="palm" type="box" size=".08 .09 .05" condim="4" friction=".8 .02 .01" margin=".004"/>
      <body name="tip" pos="0 0 .1"><geom name="thumb" type="sphere" size=".06" condim="1" priority="1"
        solref="-3000 -40" solimp=".8 .9 .002 .4 3"/></body>
    </body>
  </body>
  <body name="rod" pos=".3 .05 .2"><freejoint/>
    <geom name="rod" type="capsule" size=".04 .13" condim="6" friction=".6 .01 .003" solmix="2"/></body>
  <body name="cube" pos=".3 .05 .4"><freejoint/>
    <geom name="cube" type="box" size=".1 .11 .09" friction=".7 .01 .003" solref=".03 .8"/>
    <geom name="knob" type="sphere" size=".05" pos="0 0 .12" mass=".2"/></body>
</worldbody>
<contact><pair geom1="knob" geom2="rod" condim="4" friction=".5 .9 .02 .01 .01"/></contact></mujoco>"""


def crowd(cone="pyramidal", impratio=1.0):
    return mujoco.MjModel.from_xml_string(CROWD.format(cone=cone, impratio=impratio, exact=EXACT))


def touching_states(model, count):
    """States in which something touches, and nothing is deep within something else."""
    states, stepper, found, kinds = random_states(mechanism_of(model), 4000, 1, 0.2), Stepper(model), [], set()
    rng = np.random.default_rng(0)
    for state in states:
        for start, reach in ((2, 0.22), (9, 0.25)):
            towards = rng.normal(size=3)
            state[start : start + 3] = torch.tensor([0.2, 0, 0.12] + reach * towards / np.linalg.norm(towards))
        stepper._write(state.numpy())
        mujoco.mj_forward(model, stepper.data)
        contacts = stepper.data.contact
        if len(contacts.dist) > 1 and contacts.dist.min() > -0.04:
            found.append(state)
            kinds |= {(model.geom(one.geom1).name, model.geom(one.geom2).name, one.dim) for one in contacts}
            if len(found) == count:
                return torch.stack(found), kinds
    raise AssertionError(f"only {len(found)} states touch")


@pytest.mark.parametrize(("cone", "impratio"), [("pyramidal", 1.0), ("elliptic", 3.0)])
def test_a_step_with_contacts_between_shapes_is_that_of_mujoco(cone, impratio):
    model = crowd(cone, impratio)
    states, kinds = touching_states(model, 60)
    assert {dimension for *_, dimension in kinds} == {1, 4, 6}
    assert ("palm", "cube", 4) in kinds
    mechanism, stepper = mechanism_of(model), Stepper(model)
    theirs = torch.stack([stepper.step(state) for state in states])
    ours = stepped(engine(mechanism, model.opt.timestep), states)
    change = (theirs - states)[:, mechanism.nq :].norm(dim=1, keepdim=True)
    exact = {"pyramidal": 1e-13, "elliptic": 1e-8}[cone]  # to which MuJoCo's solver converges
    assert ((ours - theirs)[:, mechanism.nq :].abs() / change).max() < exact
    assert (ours - theirs)[:, : mechanism.nq].abs().max() < 1e-11


def test_numbers_of_contacts_are_mixed_as_by_mujoco():
    model = crowd()
    states, _ = touching_states(model, 60)
    bodies = {body: (name, (0, 0, 0, 0, 0, 0, 1.0)) for body, name in enumerate(("", "a", "b", "b", "c", "d"))}
    read = read_contacts(model, ModelLinks({}, bodies), list(range(1, model.ngeom)))
    surfaces = {one.name: one for one in read.surfaces}
    named = {frozenset((one.first.name, one.second.name)): surfaces[one.surface] for one in read.contacts}
    stepper, seen = Stepper(model), set()
    for state in states:
        stepper._write(state.numpy())
        mujoco.mj_forward(model, stepper.data)
        for one in stepper.data.contact:
            pair = frozenset(model.geom(int(geom)).name for geom in one.geom)
            mine = named[pair]
            slide, torsion, roll = mine.friction
            ours = [slide, slide * mine.ratios[0], torsion, roll, roll * mine.ratios[1]]
            np.testing.assert_allclose(ours, one.friction, rtol=1e-6)
            np.testing.assert_allclose([*mine.softness.solref, *mine.softness.solimp], [*one.solref, *one.solimp])
            assert (mine.dimension, mine.margin) == (one.dim, pytest.approx(one.includemargin))
            seen.add(pair)
    assert len(seen) >= 4
    assert not read.left_out


@pytest.mark.slow
@pytest.mark.parametrize(("cone", "impratio"), [("pyramidal", 1.0), ("elliptic", 3.0)])
def test_derivatives_of_contacts_between_shapes_are_those_of_differences(cone, impratio):
    model = crowd(cone, impratio)
    states, _ = touching_states(model, 12)
    mechanism = mechanism_of(model)
    free = [name for name in mechanism.quantities() if name.startswith("surface.") and "solimp" not in name]
    of = engine(mechanism, model.opt.timestep, free=tuple(free))
    nominal = torch.tensor(of.nominal, dtype=F64).expand(len(states), -1).clone()
    seed = torch.from_numpy(np.random.default_rng(2).normal(size=(len(states), mechanism.nq + mechanism.nv)))

    def value(x, parameters):
        return (stepped(of, x, parameters=parameters) * seed).sum(1)

    for given, own in ((states, lambda x: value(x, nominal)), (nominal, lambda parameters: value(states, parameters))):
        way = torch.from_numpy(np.random.default_rng(3).normal(size=given.shape)) * (given.abs() + 0.1)
        require_along(own, given, way, least=10)


def test_wrong_contacts_are_refused():
    model = crowd()
    mechanism = mechanism_of(model)
    with pytest.raises(ValueError, match=r"friction is .*above 0"):
        ContactSurface(name="s", friction=(0.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="surface"):
        type(mechanism)(links=mechanism.links, shape_contacts=mechanism.shape_contacts)
