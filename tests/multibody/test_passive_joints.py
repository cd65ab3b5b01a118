# SPDX-License-Identifier: Apache-2.0
"""Springs, limits and curved damping of joints of all kinds, and gravity compensation: MuJoCo's own steps."""

import numpy as np
import pytest
import torch

from tests.multibody.differences import require_along

pytest.importorskip("mujoco")
models = pytest.importorskip("tests.multibody.mujoco_models")

XML = """<mujoco><compiler angle="radian" autolimits="true"/>
<option timestep=".002" gravity="1 2 -9" integrator="{integrator}" {exact}/><worldbody>
<body name="a" pos="0 0 1" gravcomp=".7"><joint name="ball" type="ball" pos=".02 0 .1" stiffness="3 2 .5" range="0 .6"
 margin=".1" damping=".2 .1 .05" solreflimit=".03 .8"/><inertial pos=".01 .02 0" mass="1" diaginertia=".02 .03 .01"/>
<body pos=".1 0 -.1" quat=".9 .1 .2 0" gravcomp="1.2">
<inertial pos="0 .03 0" mass=".4" diaginertia=".01 .02 .01"/></body>
<body name="b" pos="0 0 -.2" gravcomp="1"><joint name="hinge" axis="0 1 0" damping=".2 .3 .1" stiffness="4 -2 1"
 springref=".2" actuatorgravcomp="true" actuatorfrcrange="-.3 .2"/>
<inertial pos=".1 0 -.1" mass=".5" diaginertia=".01 .02 .01"/></body></body>
<body name="box" pos="1 0 1" gravcomp="-.5"><joint name="free" type="free" stiffness="2 1 .3" damping=".3 .2 .1"/>
<inertial pos=".05 .03 .02" mass=".8" diaginertia=".01 .02 .03"/></body></worldbody>
<tendon><spatial name="t" stiffness="5 2 1" damping=".3 .2 .1" springlength=".2">
<site site="w"/><site site="s"/></spatial></tendon>
<actuator><motor name="m" joint="hinge"/></actuator></mujoco>"""
XML = XML.replace("<worldbody>", '<worldbody><site name="w" pos=".2 0 1"/>').replace(
    '<inertial pos=".05', '<site name="s" pos="0 .1 0"/><inertial pos=".05'
)
FREE = ("ball.upper", "ball.stiffness_square", "ball.carried", "hinge.damping_cube", "free.stiffness",
        "free.damping_square", "hinge.carried")  # fmt: skip


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast"])
def test_steps_and_derivatives_are_mujocos_and_those_of_differences(integrator):
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string(XML.format(integrator=integrator, exact=models.EXACT))
    mechanism = models.mechanism_of(model)
    states = models.random_states(mechanism, 12, 0, speed=2.0)
    commands = torch.from_numpy(np.random.default_rng(1).normal(size=(12, 1)))
    stepper = models.Stepper(model)
    theirs = torch.stack([stepper.step(x, commands=[u.numpy()]) for x, u in zip(states, commands, strict=True)])
    made = models.engine(mechanism, model.opt.timestep, free=FREE)
    nominal = torch.tensor(made.nominal, dtype=models.F64).expand(12, -1)
    ours = models.stepped(made, states, commands, nominal)
    assert (ours - theirs).abs().max() < 1e-12
    assert (theirs - states).abs().max() > 0.01

    weights = torch.from_numpy(np.random.default_rng(5).normal(size=states.shape))
    ways = [torch.from_numpy(np.random.default_rng(i).normal(size=x.shape)) for i, x in enumerate((states, nominal))]
    require_along(
        lambda x: (models.stepped(made, x, commands, nominal) * weights).sum(1), states, ways[0], least=9, rtol=1e-5
    )
    require_along(
        lambda x: (models.stepped(made, states, commands, x) * weights).sum(1), nominal, ways[1], least=9, rtol=1e-5
    )
