# SPDX-License-Identifier: Apache-2.0
"""Worlds that differ in quantities of the robot, in compiled hybrid dynamics and in plain MuJoCo."""

import copy

import msgspec
import pytest
import torch

from neurodyn.core.description.drive import Drive
from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Control, Environment, State, Window, WorldParameters
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.geometry import Ground
from neurodyn.multibody import nominal
from neurodyn.robots import Joint
from neurodyn.robots.sections import ContactPointSelection
from neurodyn.sim.mujoco.build import build_model
from neurodyn.sim.mujoco.simulator import WorldModels
from neurodyn.sim.simulators import articulation
from tests.sim.mujoco.test_simulator import MACHINE, declared

WORLDS = 4
FLAT = Scene(shapes=(Plane(),))
GROUND = Ground(FLAT)
VALUES = {
    "base.mass": (3.0, 4.0, 5.0, 9.0),
    "base.com.x": (0.1, 0.2, 0.0, -0.1),
    "base.inertia.xx": (0.25, 0.27, 0.3, 0.35),
    "base.inertia.xy": (0.0, 0.02, -0.03, 0.04),
    "slide.mass": (1.0, 2.0, 2.5, 3.0),  # two bodies
    "slide.com.z": (0.0, 0.02, 0.04, 0.06),
    "swing.damping": (0.0, 0.3, 0.6, 2.0),
    "swing.armature": (0.01, 0.02, 0.1, 0.5),
    "swing.friction": (0.0, 0.1, 0.3, 0.6),
    "slide.stiffness": (0.0, 10.0, 20.0, 50.0),
    "slide.rest": (0.0, 0.05, 0.1, -0.1),
    "wrist.upper": (0.1, 0.2, 0.5, 0.6),
    "contact.friction": (0.2, 0.5, 0.9, 1.2),
    "contact.solref.timeconst": (0.02, 0.03, 0.04, 0.05),
    "contact.solimp.d0": (0.9, 0.8, 0.7, 0.5),
}


def values(dtype=torch.float64):
    return {name: torch.tensor(numbers, dtype=dtype) for name, numbers in VALUES.items()}


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    joints = (
        Joint("base", "free"), Joint("swing", "revolute"), Joint("slide", "prismatic"),
        Joint("wrist", "revolute", lower=-0.5, upper=0.5),
    )  # fmt: skip
    geom = '<geom type="sphere" size=".1" pos=".05 0 0" mass="0"/>'
    text = MACHINE.replace('<body name="arm"', f'{geom}<body name="arm"')
    return declared(
        tmp_path_factory.mktemp("robot"), text, joints, actuated={"swing": 3.0, "wrist": 1.0},
        contact_points=ContactPointSelection(), grounds={"flat": FLAT},
    )  # fmt: skip


@pytest.fixture(scope="module")
def free(robot):
    return declared_hybrid(robot, contact="soft").double().freeing(tuple(VALUES))


@pytest.fixture(scope="module")
def start(robot):
    generator = torch.Generator().manual_seed(3)
    q = 0.3 * torch.randn(WORLDS, robot.spec.nq, generator=generator)
    q[:, 2] = 0.3
    q[:, 3:7] = torch.nn.functional.normalize(q[:, 3:7], dim=1)
    qd = torch.randn(WORLDS, robot.spec.nv, generator=generator)
    return State(q.double(), qd.double()), torch.randn(WORLDS, 25, 2, generator=generator).double()


def test_worlds_of_the_hybrid_model_differ_as_those_of_plain_mujoco(robot, free, start):
    state, torque = start
    single = State(state.q.float(), state.qd.float())
    truth = AnalyticDynamics(robot).rollout(single, torque.float(), Environment(ground=GROUND, parameters=values()))
    found = free.rollout(state, torque, Environment(ground=GROUND, parameters=values()))
    same = free.rollout(state, torque, Environment(ground=GROUND))
    assert (found.q - same.q).abs().amax((1, 2)).min() > 0.02  # every world differs from the declared robot
    torch.testing.assert_close(found.q.float(), truth.q, rtol=0.0, atol=2e-6)


def test_gradients_with_respect_to_parameters_of_worlds(free, start):
    state, torque = start

    def loss(numbers):
        around = Environment(ground=GROUND, parameters=WorldParameters(tuple(VALUES), numbers))
        return free.rollout(state, torque[:, :6], around).q[:, -1].sum(1)

    numbers = torch.stack(list(values().values()), 1).requires_grad_()
    (found,) = torch.autograd.grad(loss(numbers).sum(), numbers)
    step = 1e-6
    for column in range(len(VALUES)):
        change = torch.zeros(WORLDS, len(VALUES), dtype=torch.float64)
        change[:, column] = step
        with torch.no_grad():
            slope = (loss(numbers + change) - loss(numbers - change)) / (2 * step)
        torch.testing.assert_close(found[:, column], slope, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["hybrid", "analytic"])
def test_parameters_edited_in_place_hold_from_the_next_frame(kind, robot, free, start):
    dynamics = free if kind == "hybrid" else AnalyticDynamics(robot)
    state, control = start[0], Control(torque=start[1][:, 0])
    around = Environment(ground=GROUND, parameters=values())
    carry = dynamics.begin(state, around)
    _, before = dynamics.step_(carry, state, control)
    around.parameters.numbers[2, 0] = 20.0
    _, after = dynamics.step_(carry, state, control)
    changed = (after.state.qd - before.state.qd).abs().amax(1) > 1e-4
    assert changed.tolist() == [False, False, True, False]
    whole = {**values(), "base.mass": torch.tensor([3.0, 4.0, 20.0, 9.0]).double()}
    _, fresh = dynamics.step_(dynamics.begin(state, Environment(ground=GROUND, parameters=whole)), state, control)
    assert torch.equal(fresh.state.qd, after.state.qd)


def test_a_scalar_holds_for_all_worlds_and_rows_choose_worlds():
    around = Environment(parameters={"base.mass": 3.0, "swing.damping": torch.tensor([0.1, 0.2])})
    assert around.parameters["base.mass"].tolist() == [3.0, 3.0]
    assert around.rows(torch.tensor([1])).parameters["swing.damping"].tolist() == pytest.approx([0.2])
    assert Environment.concatenate([around, around]).parameters.worlds == 4


def test_freeing_keeps_values(robot, free):
    known = declared_hybrid(robot, contact="soft", parameters=["swing.damping=.7"])
    more = known.freeing(["base.mass", "swing.damping"])
    assert more.physical().tolist() == pytest.approx([0.7, 4.0])
    assert free.freeing(["base.mass"]) is free


def test_quantities_in_which_worlds_cannot_differ_are_refused(robot, free, start):
    state = start[0]
    with pytest.raises(InputError, match=r"wrist\.mass cannot differ between worlds.*freeing"):
        free.begin(state, Environment(parameters={"wrist.mass": 1.0}))
    with pytest.raises(InputError, match=r"'wrist\.mas' is no quantity.*wrist\.mass"):
        free.freeing(["wrist.mas"])
    with pytest.raises(InputError, match=r"Environment\(gravity"):
        free.freeing(["gravity.z"])
    analytic = AnalyticDynamics(robot)
    with pytest.raises(InputError, match=r"'wrist\.origin\.x': plain MuJoCo's worlds cannot differ in it"):
        analytic.begin(state, Environment(parameters={"wrist.origin.x": 1.0}))
    with pytest.raises(InputError, match=r"shapes.*\[2\].*\[3\]"):
        Environment(parameters={"a": torch.ones(2), "b": torch.ones(3)})


PENDULUM = """<mujoco><worldbody><body name="arm"><joint name="swing" axis="0 1 0"/>
<geom type="capsule" size=".03 .2" pos=".1 0 -.2" mass="1"/></body></worldbody></mujoco>"""


def test_drives_of_worlds_differ(tmp_path):
    robot = declared(tmp_path, PENDULUM, (Joint("swing", "revolute"),), actuated={"swing": 3.0})
    drives = {"swing": Drive(lag=0.02)}
    hybrid, analytic = (one.with_drives(drives) for one in (declared_hybrid(robot), AnalyticDynamics(robot)))
    names = ("actuator.swing.gain", "actuator.swing.lag", "actuator.swing.bias", "swing.mass")
    numbers = torch.tensor(
        [[0.5, 0.01, 0.1, 4.0], [1.0, 0.03, 0.0, 5.0], [2.0, 0.02, -0.1, 6.0], [1.5, 0.05, 0.2, 3.0]]
    )
    around = Environment(parameters=WorldParameters(names, numbers))
    state, torque = State(torch.zeros(WORLDS, 1), torch.ones(WORLDS, 1)), 3 * torch.ones(WORLDS, 25, 1)
    truth, found = (one.rollout(state, torque, around).q for one in (analytic, hybrid.freeing(names)))
    assert (truth - truth[:1]).abs().amax((1, 2))[1:].min() > 0.01
    torch.testing.assert_close(found, truth, rtol=0.0, atol=3e-6)
    past = torch.ones(WORLDS, 3, 1)  # commands whose effect is still to come, by each world's lag
    window = Window(state.q[:, None].expand(-1, 4, -1), state.qd[:, None].expand(-1, 4, -1), 9 * past)
    truth, found = (one.rollout(window, torque, around).q for one in (analytic, hybrid.freeing(names)))
    torch.testing.assert_close(found, truth, rtol=0.0, atol=3e-6)


TWO_FEET = """<mujoco><worldbody><body name="plate" pos="0 0 1"><freejoint name="base"/>
<geom name="left" size=".1" pos="-.3 0 0" friction=".5"/><geom name="right" size=".1" pos=".3 0 0" friction=".9"/>
</body></worldbody></mujoco>"""


def test_a_quantity_of_all_contacts_leaves_shapes_with_one_of_their_own(tmp_path):
    robot = declared(
        tmp_path, TWO_FEET, (Joint("base", "free"),), contact_points=ContactPointSelection(), grounds={"flat": FLAT}
    )
    known = nominal(declared_hybrid(robot).mechanism, "soft")
    assert {"contact.friction", "contact.right.friction"} <= known.keys()
    built = build_model(robot)
    models, model = WorldModels(built, articulation(robot)), copy.copy(built.model)
    models.write(model, {"contact.friction": 0.2})
    assert model.geom_friction[:, 0].tolist() == [0.2, known["contact.right.friction"]]
    models.write(model, {"contact.right.friction": 0.3})
    assert model.geom_friction[:, 0].tolist() == [0.2, 0.3]
    with pytest.raises(InputError, match=r"contact\.left\.friction"):
        models.require(["contact.left.friction"])


FLOATER = """<mujoco><compiler angle="radian" autolimits="true"/><option integrator="implicitfast"/><worldbody>
<body name="base" pos="0 0 1"><freejoint name="base"/>
<inertial pos=".1 -.05 .2" quat=".9 .1 -.3 .3" mass="4" diaginertia=".2 .3 .4"/>
<geom name="ball" type="sphere" size=".1" pos=".05 0 0" mass="0"/>
  <body name="arm" pos=".3 .1 0" quat=".7 .1 .7 0">
    <joint name="swing" axis="0 .6 .8" pos=".05 0 .1" damping=".3" armature=".02" stiffness="5" frictionloss=".01"/>
    <inertial pos=".2 .03 0" mass="1.5" diaginertia=".02 .03 .04"/>
    <body name="hand" pos=".2 0 0"><joint name="wrist" axis="1 0 0" range="-.5 .5" damping=".1"/>
      <inertial pos="0 .1 0" mass=".4" diaginertia=".01 .01 .01"/></body></body></body>
</worldbody></mujoco>"""


def test_worlds_of_newton_differ_as_those_of_plain_mujoco(tmp_path):
    joints = (Joint("base", "free"), Joint("swing", "revolute"), Joint("wrist", "revolute", lower=-0.5, upper=0.5))
    plain = declared(
        tmp_path, FLOATER, joints, actuated={"swing": 3.0, "wrist": 1.0}, contact_points=ContactPointSelection(),
        grounds={"flat": FLAT},
    )  # fmt: skip
    simulator = msgspec.structs.replace(plain.simulator, solver="mujoco", integrator="implicitfast")
    newton = AnalyticDynamics(msgspec.structs.replace(plain, simulator=simulator))
    numbers = {
        name.replace("slide", "swing"): column
        for name, column in values(torch.float32).items()
        if name != "slide.com.z"
    }
    generator = torch.Generator().manual_seed(3)
    q = 0.3 * torch.randn(WORLDS, plain.spec.nq, generator=generator)
    q[:, 2], q[:, 3:7] = 0.3, torch.nn.functional.normalize(q[:, 3:7], dim=1)
    state = State(q, torch.randn(WORLDS, plain.spec.nv, generator=generator))
    torque = torch.randn(WORLDS, 25, 2, generator=generator)
    around = Environment(ground=GROUND, parameters=numbers)
    truth, found = (one.rollout(state, torque, around) for one in (AnalyticDynamics(plain), newton))
    same = newton.rollout(state, torque, Environment(ground=GROUND))
    assert (found.q - same.q).abs().amax((1, 2)).min() > 0.02
    torch.testing.assert_close(found.q, truth.q, rtol=0.0, atol=2e-5)
    torch.testing.assert_close(found.qd, truth.qd, rtol=0.0, atol=2e-3)
    again = AnalyticDynamics(plain).rollout(state, torque, Environment(ground=GROUND))
    torch.testing.assert_close(same.q, again.q, rtol=0.0, atol=2e-5)  # the declared robot is back
    with pytest.raises(InputError, match=r"'swing\.origin\.x': Newton's worlds cannot differ in it"):
        newton.begin(state, Environment(parameters={"swing.origin.x": 1.0}))
