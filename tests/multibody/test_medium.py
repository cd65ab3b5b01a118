# SPDX-License-Identifier: Apache-2.0
"""Forces of a medium on boxes and ellipsoids: MuJoCo's own steps, and derivatives."""

import numpy as np
import pytest
import torch

mujoco = pytest.importorskip("mujoco")
models = pytest.importorskip("tests.multibody.mujoco_models")

XML = """<mujoco><option timestep=".004" density="{density}" viscosity="{viscosity}" wind="{wind}"
 integrator="{integrator}" {exact}/><worldbody>
<body name="a" pos="0 0 1"><joint name="a" axis="0 .8 .6"/><geom type="box" size=".1 .05 .02" pos=".1 0 -.1" {round}/>
<body pos=".1 .02 0" quat=".9 .1 .2 0"><geom type="capsule" size=".03 .1" {round}/></body>
<body name="b" pos="0 0 -.3"><joint name="b" type="ball"/><geom type="cylinder" size=".05 .08" pos="0 .03 -.1" {round}/>
</body></body><body name="f" pos="1 0 1"><freejoint name="f"/><geom type="ellipsoid" size=".1 .06 .03" {round}/>
<geom type="sphere" size=".03" pos=".05 .02 0"/></body></worldbody></mujoco>"""
ROUND = 'fluidshape="ellipsoid" fluidcoef=".6 .2 1.4 .9 1.1"'
CASES = {
    "boxes in water": ("1000", "1e-3", "0 0 0", "Euler", ""),
    "boxes in wind": ("1.2", ".1", "2 -3 1", "implicitfast", ""),
    "ellipsoids": ("600", ".02", ".2 .1 -.3", "Euler", ROUND),
    "ellipsoids that hardly resist turning": ("600", "0", "0 0 0", "Euler", ROUND.replace("1.4", "1e-4")),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_steps_and_derivatives_are_mujocos_and_those_of_differences(case):
    density, viscosity, wind, integrator, shape = CASES[case]
    model = mujoco.MjModel.from_xml_string(
        XML.format(density=density, viscosity=viscosity, wind=wind, integrator=integrator, round=shape,
                   exact=models.EXACT))  # fmt: skip
    mechanism = models.mechanism_of(model)
    states = models.random_states(mechanism, 8, 0, speed=2.0)
    theirs = torch.stack([models.Stepper(model).step(state) for state in states])
    made = models.engine(mechanism, model.opt.timestep, free=("medium.density", "medium.viscosity", "medium.wind.x"))
    nominal = torch.tensor(made.nominal, dtype=models.F64).expand(8, -1)
    ours = models.stepped(made, states, parameters=nominal)
    assert (ours - theirs).abs().max() < 1e-12
    without = models.stepped(made, states, parameters=0.0 * nominal)
    assert (without - theirs).abs().max() > 1e-4
    weights = torch.from_numpy(np.random.default_rng(5).normal(size=states.shape))
    leaves = [x.clone().requires_grad_() for x in (states, nominal)]
    gradients = torch.autograd.grad((models.stepped(made, leaves[0], parameters=leaves[1]) * weights).sum(), leaves)
    for index, gradient in enumerate(gradients):
        way = torch.from_numpy(np.random.default_rng(index).normal(size=gradient.shape))
        h = 1e-6
        moved = [[x + s * h * way if k == index else x for k, x in enumerate((states, nominal))] for s in (1, -1)]
        up, down = ((models.stepped(made, x, parameters=p) * weights).sum(1) for x, p in moved)
        torch.testing.assert_close((gradient * way).sum(1), (up - down) / (2 * h), rtol=1e-5, atol=1e-6)
