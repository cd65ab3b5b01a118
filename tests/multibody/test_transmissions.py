# SPDX-License-Identifier: Apache-2.0
"""Actuators of every transmission, gain and dynamics: MuJoCo's own steps to rounding, and derivatives."""

import numpy as np
import pytest
import torch

from tests.multibody.differences import require_along

mujoco = pytest.importorskip("mujoco")
models = pytest.importorskip("tests.multibody.mujoco_models")
EXACT, F64, Stepper = models.EXACT, models.F64, models.Stepper

MACHINE = """<mujoco><compiler angle="radian" autolimits="true"/>
<option timestep=".004" integrator="{integrator}" {exact}/><worldbody><site name="w" pos=".3 0 .2" quat=".9 .1 .3 .2"/>
<body name="A" pos="0 0 1"><joint name="a" axis="0 .8 .6" damping=".1" armature=".01" actuatorfrcrange="-9 8"/>
<inertial pos=".1 0 -.1" mass="1" diaginertia=".02 .03 .01"/><site name="sa" pos=".05 .02 -.2" quat="1 .2 0 .1"/>
<geom name="ball" type="sphere" size=".05" contype="0" conaffinity="0" pos="0 .04 -.25"/>
<body name="B" pos=".1 0 -.3"><joint name="b" type="ball"/>
<inertial pos="0 .05 -.1" mass=".6" diaginertia=".01 .012 .004"/>
<body pos="0 .02 -.1" quat=".9 .1 .2 -.3"><inertial pos="0 0 0" mass=".1" diaginertia=".001 .001 .001"/>
<site name="sb" pos="0 .02 -.2" quat=".9 .1 .2 -.3"/></body></body>
<body name="C" pos="-.1 0 -.3"><joint name="c" type="slide" axis="0 .6 .8"/>
<inertial pos=".02 0 -.1" mass=".5" diaginertia=".006 .01 .004"/><site name="sc" pos="0 .02 -.2"/></body></body>
<body name="F" pos=".5 0 1"><freejoint name="f"/><inertial pos=".02 .01 0" mass=".7" diaginertia=".003 .004 .005"/>
<site name="sf" pos=".03 .02 -.1" quat=".7 .1 .6 .3"/></body></worldbody>
<tendon><spatial name="rope"><site site="w"/><geom geom="ball"/><site site="sa"/><site site="sc"/></spatial>
<spatial name="cord"><site site="sa"/><site site="sf"/></spatial>
<fixed name="pair" actuatorfrcrange="-3 2"><joint joint="a" coef=".5"/><joint joint="c" coef=".7"/></fixed></tendon>
<actuator>{actuators}</actuator></mujoco>"""

SERVO = 'gainprm="20" biastype="affine" biasprm="0 -20 -1"'
BIAS = 'gainprm="3" biastype="affine" biasprm=".3 -8 -.4"'
MUSCLE = 'lengthrange=".2 .5" range=".7 1.1" force="40" lmin=".4" lmax="1.5" vmax="2" fpmax="1.2" fvmax="1.3"'
PLACES = {
    "ball": f'<general joint="b" gear=".5 1 -.7" {SERVO}/>',
    "ball in parent": f'<general jointinparent="b" gear=".5 1 -.7" {BIAS}/>',
    "free": f'<general joint="f" gear=".5 1 -.7 .1 .2 -.3" {BIAS}/>',
    "free in parent": '<motor jointinparent="f" gear=".5 1 -.7 .1 .2 -.3"/>',
    "spatial tendon": f'<general tendon="rope" gear="2" {SERVO}/>',
    "two at a bounded tendon": '<motor tendon="pair" gear="9"/><position tendon="pair" kp="30" kv="2"/>',
    "site": f'<general site="sb" gear=".2 -.4 1 .05 .02 -.1" {BIAS}/>',
    "site of a bounded joint": '<motor site="sb" gear="9 -20 1 .5 2 -.1"/>',
    "position between sites": f'<general site="sb" refsite="sc" gear=".2 -.4 1 0 0 0" {SERVO}/>',
    "rotation between sites": f'<general site="sb" refsite="w" gear="0 0 0 .6 .2 -1" {SERVO}/>',
    "pose between sites": f'<general site="sf" refsite="sb" gear=".2 -.4 1 .6 .2 -1" {BIAS}/>',
    "crank": f'<general cranksite="sa" slidersite="w" cranklength=".9" gear="2" {BIAS}/>',
    "crank between links": f'<general cranksite="sb" slidersite="sc" cranklength=".4" gear="-1" {SERVO}/>',
    "short crank": f'<general cranksite="sf" slidersite="sc" cranklength=".05" {SERVO}/>',
}
LAWS = {
    "damper": '<damper joint="a" kv="3" ctrlrange="0 1"/>',
    "affine gain": '<general joint="c" gaintype="affine" gainprm="2 3 -1.5" biastype="affine" biasprm=".3 -8 .4" '
    'ctrlrange="-.2 .3"/>',
    "bounded": '<general joint="a" gaintype="affine" gainprm="2 3 -1.5" forcerange="-.3 .2"/>',
    "muscle": f'<muscle joint="a" gear=".3" {MUSCLE}/>',
    "early muscle": f'<muscle tendon="cord" timeconst=".03 .05" tausmooth=".4" {MUSCLE}/>',
    "muscle without memory": '<general tendon="rope" gaintype="muscle" lengthrange=".3 .9" '
    'gainprm=".75 1.05 -1 200 .5 1.6 1.5 1.3 1.2"/>',
    "turning integrator": '<intvelocity joint="b" gear="2 1 -2" kp="6" actrange="-9 9"/>',
    "state with affine gain": '<general joint="a" dyntype="filter" dynprm=".05" gaintype="affine" '
    'gainprm="2 3 -1.5" ctrlrange="-.3 .3" actearly="true"/>',
}
PALM = """<mujoco><option timestep=".002" cone="{cone}" {exact}/><worldbody>
<body name="palm" pos="0 0 .5"><joint name="tilt" axis="0 1 0" pos=".2 0 0"/>
<geom name="palm" type="box" size=".1 .1 .02" mass="1"/></body>
<body name="one" pos="0 0 .4"><freejoint name="one"/><geom name="one" size=".04" mass=".3" condim="{dim}"/></body>
<body name="two" pos="0 0 .4"><freejoint name="two"/><geom name="two" size=".03" mass=".2"/></body>
</worldbody><actuator><adhesion body="palm" ctrlrange="0 9" gain="3"/></actuator></mujoco>"""


FREE = {
    "places": ("a0.kp", "a1.offset", "a4.kp", "a5.per_command", "a9.kp", "a12.kd"),
    "laws": ("a0.per_velocity", "a1.per_position", "a1.kd", "a3.muscle.force", "a4.muscle.spans.lower",
             "a4.muscle.longest", "a4.time_constant", "a4.release", "a7.time_constant"),
}  # fmt: skip


class Machine:
    """The machine with some actuators, in MuJoCo and compiled."""

    def __init__(self, actuators, free, integrator):
        named = "".join(one.replace(" ", f' name="a{number}" ', 1) for number, one in enumerate(actuators.values()))
        text = MACHINE.format(integrator=integrator, exact=EXACT, actuators=named)
        self.model = mujoco.MjModel.from_xml_string(text)
        self.mechanism = models.mechanism_of(self.model)
        free = tuple(f"actuator.{one}" for one in free)
        self.engine = models.engine(self.mechanism, self.model.opt.timestep, free=free)

    def states(self, count, seed):
        return models.random_states(self.mechanism, count, seed, speed=1.0)

    def ends(self, states, commands, parameters=None):
        """States after a step for each command."""
        parameters = torch.tensor(self.engine.nominal, dtype=F64) if parameters is None else parameters
        start = torch.cat([states, states.new_zeros(len(states), self.engine.memory)], 1)
        path = self.engine.program.rollout(start, frames=commands.shape[1], control=commands, parameters=parameters)
        return path[:, -1, : states.shape[1]]

    def difference(self, states, commands):
        """Greatest error of velocities, over their greatest change if that is above 1."""
        stepper = Stepper(self.model)
        theirs = torch.stack([stepper.step(x, commands=u.numpy()) for x, u in zip(states, commands, strict=True)])
        error, change = self.ends(states, commands) - theirs, theirs - states
        return error[:, self.mechanism.nq :].abs().max() / change[:, self.mechanism.nq :].abs().max().clamp(min=1.0)


@pytest.fixture(scope="module", params=["places", "laws"])
def machine(request):
    kind = request.param
    made = Machine({"places": PLACES, "laws": LAWS}[kind], FREE[kind], "implicitfast")
    commands = np.random.default_rng(1).normal(size=(8, 3, made.model.nu))
    return made, torch.from_numpy(commands)


def test_steps_are_mujocos(machine):
    made, commands = machine
    assert made.difference(made.states(8, 0), commands[:, :1]) < 1e-12
    assert made.difference(made.states(8, 2), commands) < 1e-10


def test_derivatives_are_those_of_differences(machine):
    made, commands = machine
    states = made.states(8, 3)
    given = [states, 0.2 * commands, torch.tensor(made.engine.nominal, dtype=F64).expand(8, -1).clone()]
    weights = torch.from_numpy(np.random.default_rng(5).normal(size=states.shape))
    for index, x in enumerate(given):
        way = torch.from_numpy(np.random.default_rng(index).normal(size=x.shape)) * (x.abs() + 0.1)

        def value(x, index=index):
            return (made.ends(*given[:index], x, *given[index + 1 :]) * weights).sum(1)

        require_along(value, x, way, least=6, rtol=1e-5)


def gripping(count):
    """Two balls at the underside of a palm, one of which touches it only sometimes."""
    rng = np.random.default_rng(0)
    states = []
    for _ in range(count):
        places = [[*rng.uniform(-0.05, 0.0, 2), 0.4405], [*rng.uniform(0.02, 0.06, 2), rng.uniform(0.446, 0.453)]]
        turns = [q / np.linalg.norm(q) for q in rng.normal(size=(2, 4))]
        balls = [x for place, turn in zip(places, turns, strict=True) for x in (*place, *turn)]
        states.append([0.0, *balls, *(0.1 * rng.normal(size=13))])
    return torch.tensor(np.array(states), dtype=F64)


@pytest.mark.parametrize(("cone", "dim", "exact"), [("pyramidal", 1, 1e-12), ("elliptic", 4, 1e-8)])
def test_adhesion_pulls_to_what_is_touched(cone, dim, exact):
    model = mujoco.MjModel.from_xml_string(PALM.format(cone=cone, dim=dim, exact=EXACT))
    mechanism, stepper, numbers = models.mechanism_of(model), Stepper(model), set()
    states, commands = gripping(12), torch.from_numpy(np.random.default_rng(1).uniform(0.0, 12.0, size=(12, 1, 1)))
    made = models.engine(mechanism, model.opt.timestep)
    for state, command in zip(states, commands, strict=True):
        theirs = stepper.step(state, commands=command.numpy())
        ours = made.program.rollout(state[None], frames=1, control=command[None])[0, 1]
        assert (ours - theirs)[mechanism.nq :].abs().max() < exact * (theirs - state)[mechanism.nq :].abs().max()
        numbers.add(stepper.data.ncon)
    assert {1, 2} <= numbers, "shares differ"


BELT = """<mujoco><option timestep=".004" {exact}/><worldbody><site name="wall" pos="-1 0 0"/>
<body name="belt"><joint name="belt" type="slide" axis="1 0 0"/><geom name="belt" type="box" size=".5 .2 .05" mass="1"/>
<site name="hook"/></body>
<body name="ball" pos="0 0 .1"><freejoint name="ball"/>
<geom name="ball" type="sphere" size=".05" mass=".3" priority="1" friction="{friction}"/></body></worldbody>
<tendon><spatial name="rope" stiffness="{stiffness}"><site site="wall"/><site site="hook"/></spatial></tendon>
<actuator><position name="pull" joint="belt" kp="{gain}" kv="2"/></actuator></mujoco>"""


def test_a_tendons_stiffness_a_shapes_friction_and_a_servos_gain_are_identified_from_a_log_of_mujoco():
    right = {"stiffness": 40.0, "friction": 0.15, "gain": 60.0}
    start = {"stiffness": 20.0, "friction": 0.3, "gain": 90.0}
    model = mujoco.MjModel.from_xml_string(BELT.format(exact=EXACT, **right))
    declared = models.mechanism_of(mujoco.MjModel.from_xml_string(BELT.format(exact=EXACT, **start)))
    (surface,) = declared.surfaces
    free = ("tendon.rope.stiffness", f"surface.{surface.name}.slide", "actuator.pull.kp")
    made, stepper = models.engine(declared, model.opt.timestep, free=free), Stepper(model)
    state, states, after = torch.tensor([0.0, 0, 0, 0.0995, 0, 0, 0, 1, *[0.0] * 7], dtype=F64), [], []
    commands = 0.4 * torch.sign(torch.sin(0.2 * torch.arange(80.0, dtype=F64)))[:, None]
    for command in commands:
        states.append(state)
        state = stepper.step(state, commands=[command.numpy()])
        after.append(state)
    log, wanted = torch.stack(states), torch.stack(after)
    found = torch.tensor(made.nominal, dtype=F64)

    def residuals(values):
        return (models.stepped(made, log, commands, values) - wanted).flatten()

    for _ in range(12):  # Gauss and Newton
        here, steps = residuals(found), 1e-6 * found
        slopes = [(residuals(found + way) - here) / way.sum() for way in torch.diag(steps)]
        change = torch.linalg.lstsq(torch.stack(slopes, 1), -here[:, None]).solution[:, 0]
        found = found + change.clamp(-0.5 * found, 0.5 * found)
    torch.testing.assert_close(found, torch.tensor([40.0, 0.15, 60.0], dtype=F64), rtol=1e-4, atol=0)
