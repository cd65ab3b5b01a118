# SPDX-License-Identifier: Apache-2.0
"""Hybrid dynamics behind the common interface: on planes, on other grounds, in free space, and beside Newton."""

import math

import pytest
import torch

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.scene import Box, Plane, Scene
from neurodyn.core.errors import InputError
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.batch import Control, Environment, State, Window
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.hybrid.parameters import first_weights
from neurodyn.dynamics.interface import Dynamics
from neurodyn.geometry import rotation
from neurodyn.geometry.ground import Ground
from neurodyn.multibody.engine import EngineConfig, nominal
from neurodyn.sim.simulators import articulation
from tests.multibody import machines

F64 = torch.float64
JOINTS = Blueprint(
    augmentations=(
        Augmentation(quantities=("passive.shoulder", "passive.elbow"), inputs=("qd.shoulder", "qd.elbow"), hidden=(4,)),
        Augmentation(quantities=("elbow.mass",), inputs=("cos(q.elbow)",), mode="scale", hidden=()),
    )
)
FOOT = Blueprint(
    augmentations=(
        Augmentation(quantities=("contact.foot.normal",), inputs=("contact.foot.depth", "qd.knee"), mode="scale",
                     hidden=(3,), input_scale=(1e-2, 1.0)),
    )
)  # fmt: skip
FRAMES = 12


def make(mechanism, asked=(), controls=(), **options):
    config = EngineConfig(
        substeps=options.pop("substeps", 4),
        contact=options.pop("contact", None),
        blueprint=options.pop("blueprint", Blueprint()),
    )
    parameters = select_parameters(nominal(mechanism, config.contact), asked)
    return HybridDynamics(machines.spec(mechanism, controls), mechanism, config, parameters, **options)


@pytest.fixture(scope="module")
def swing():
    """A double pendulum with free quantities and networks that do something."""
    asked = ("*.damping", "elbow.mass", "shoulder.friction")
    model = make(machines.pendulum(), asked, ("shoulder", "elbow"), blueprint=JOINTS)
    with torch.no_grad():
        model.weights.copy_(0.3 * torch.randn(len(model.weights), generator=torch.Generator().manual_seed(0)))
        model.physical.raw.copy_(0.3 * torch.randn(4, generator=torch.Generator().manual_seed(1)))
    return model


@pytest.fixture(scope="module")
def hopper():
    """A floating body that touches with four points, on a plane that it assumes by itself."""
    asked = ("contact.stiffness=2e3:10:1e6", "contact.friction", "knee.mass")
    model = make(machines.hopper(), asked, ("knee",), contact="force", blueprint=FOOT, scene=Scene(shapes=(Plane(),)))
    with torch.no_grad():
        model.weights.copy_(0.3 * torch.randn(len(model.weights), generator=torch.Generator().manual_seed(2)))
    return model


def swinging(worlds=3, dtype=F64, seed=3):
    generator = torch.Generator().manual_seed(seed)
    q, qd = (torch.randn(worlds, 2, generator=generator, dtype=F64).to(dtype) for _ in range(2))
    return State(0.5 * q, qd), torch.randn(worlds, FRAMES, 2, generator=generator, dtype=F64).to(dtype)


def hopping(worlds=3, dtype=F64, seed=4, height=0.2):
    """Robots that fall on a plane within the roll-out, tilted and moving, each in its own way."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=F64)

    q = torch.cat([0.1 * random(worlds, 2), torch.full((worlds, 1), height, dtype=F64),
                   rotation.exponential(0.2 * random(worlds, 3)), -1.2 + 0.1 * random(worlds, 1)], 1)  # fmt: skip
    qd = torch.cat([0.5 * random(worlds, 2), -1.0 - random(worlds, 1).abs(), random(worlds, 4)], 1)
    return State(q.to(dtype), qd.to(dtype)), 0.2 * random(worlds, FRAMES, 1).to(dtype)


def flat(trajectory):
    return torch.cat([trajectory.q, trajectory.qd], -1)


def on(*shapes, pose=None, gravity=None):
    return Environment(gravity=gravity, ground=Ground(Scene(shapes=shapes), pose))


FAR_BOX = Box(position=(50.0, 0.0, 0.5), half=(1.0, 1.0, 1.0))


# --- the interface -------------------------------------------------------------------------------------------------
def test_it_is_dynamics(swing):
    assert isinstance(swing, Dynamics)
    assert swing.differentiable
    assert swing.spec.context == 0
    assert (swing.network, make(machines.pendulum()).network) == ("hybrid", "identified")


@pytest.mark.parametrize("which", ["swing", "plane", "box"])
def test_a_rollout_is_repeated_steps(which, swing, hopper):
    model = swing if which == "swing" else hopper
    state, controls = swinging() if which == "swing" else hopping()
    environment = on(Plane(), FAR_BOX) if which == "box" else None
    path = model.rollout(state, controls, environment)
    assert path.q.shape == (3, FRAMES + 1, model.spec.nq)
    carry = model.begin(state, environment)
    assert torch.equal(path.q[:, 0], state.q)
    for frame in range(FRAMES):
        carry, step = model.step(carry, state, Control(torque=controls[:, frame]))
        state = step.state
        torch.testing.assert_close(state.q, path.q[:, frame + 1], rtol=0, atol=0)
        torch.testing.assert_close(state.qd, path.qd[:, frame + 1], rtol=0, atol=0)


def test_controllers_act_with_the_torque_of_the_frames_start(swing):
    state, _ = swinging()
    target = torch.tensor([[0.1, -0.2]], dtype=F64).expand(3, 2)
    control = Control(
        torque=torch.ones(3, 2, dtype=F64),
        target=target,
        kp=2.0 * torch.ones(2, dtype=F64),
        kd=0.1 * torch.ones(2, dtype=F64),
    )
    torque = 1.0 + 2.0 * (target - state.q) - 0.1 * state.qd
    found = swing.step(swing.begin(state), state, control)[1].state
    expected = swing.step(swing.begin(state), state, Control(torque=torque))[1].state
    torch.testing.assert_close(found.q, expected.q, rtol=1e-13, atol=1e-13)


def test_there_is_no_history(swing):
    state, controls = swinging()
    window = Window(torch.stack([state.qd, state.q], 1), torch.stack([state.q, state.qd], 1), controls[:, :1])
    assert torch.equal(swing.rollout(window, controls).q, swing.rollout(state, controls).q)
    carry = swing.begin(state)
    assert swing.reset(carry, state, torch.tensor([True, False, False])) is carry
    with torch.no_grad():
        found = swing.step_(carry, state, Control(torque=controls[:, 0]))[1].state.q
    assert torch.equal(found, swing.rollout(state, controls).q[:, 1])


def test_other_parameters_than_its_own(swing, hopper):
    """`simulate` with the module's numbers is `rollout`, and with a row for each world that of each world."""
    state, controls = swinging()
    own = swing.rollout(state, controls)
    assert torch.equal(swing.simulate(state, controls, swing.physical(), swing.weights).q, own.q)
    rows = swing.physical() * torch.tensor([[0.5], [1.0], [2.0]])
    found = swing.simulate(state, controls, rows, swing.weights)
    assert torch.equal(found.q[1], own.q[1])
    for world in range(3):
        one = State(state.q[world : world + 1], state.qd[world : world + 1])
        alone = swing.simulate(one, controls[world : world + 1], rows[world], swing.weights)
        assert torch.equal(alone.q[0], found.q[world])
    state, controls = hopping()
    ground = on(Plane(), FAR_BOX)
    found = hopper.simulate(state, controls, hopper.physical().expand(3, -1), hopper.weights, ground)
    assert torch.equal(found.q, hopper.rollout(state, controls, ground).q)


# --- environment --------------------------------------------------------------------------------------------------
def test_each_world_has_its_gravity(swing):
    state, controls = swinging()
    gravity = torch.tensor([[0.0, 0.0, -9.81], [0.0, 0.0, 0.0], [3.0, 0.0, 9.0]], dtype=F64)
    found = swing.rollout(state, controls, Environment(gravity=gravity))
    assert torch.equal(found.q[0], swing.rollout(state, controls).q[0])
    for world in range(3):
        one = State(state.q[world : world + 1], state.qd[world : world + 1])
        alone = swing.rollout(one, controls[world : world + 1], Environment(gravity=gravity[world]))
        assert torch.equal(alone.q[0], found.q[world])
    assert not torch.allclose(found.q[1:], swing.rollout(state, controls).q[1:], atol=1e-3)


@pytest.mark.parametrize("posed", [False, True])
def test_a_plane_in_the_loop_is_the_plane_that_contact_points_find(hopper, posed):
    state, controls = hopping()
    pose = None
    if posed:  # a slope, and a height of its own for each world
        tilt = rotation.exponential(torch.tensor([[0.2, 0.0, 0.5], [0.0, -0.1, 0.0], [0.1, 0.2, -1.0]], dtype=F64))
        pose = torch.cat([torch.tensor([[0.3, 0.1, -0.05], [0.0, 0.0, 0.02], [5.0, 1.0, 0.0]], dtype=F64), tilt], 1)
    shape = Plane(position=(0.1, 0.2, 0.01), rotation=(0.0, 0.0, math.sin(0.2), math.cos(0.2)))
    # A plane has no end, so what lies behind a box that is far away is all the same.
    inside, probed = (
        hopper.rollout(state, controls, on(*shapes, pose=pose)) for shapes in ((shape,), (shape, FAR_BOX))
    )
    falling = hopper.rollout(state, controls, Environment())
    assert (flat(inside) - flat(falling))[:, -1].abs().amax(1).min() > 1e-2
    torch.testing.assert_close(flat(inside), flat(probed), rtol=1e-8, atol=1e-8)


def test_the_ground_that_is_assumed_is_the_scene(hopper):
    state, controls = hopping()
    assert torch.equal(hopper.rollout(state, controls).q, hopper.rollout(state, controls, on(Plane())).q)


@pytest.mark.parametrize("environment", [Environment(), Environment(ground=Ground())])
def test_in_free_space_a_contact_model_does_nothing(hopper, environment):
    state, controls = hopping()
    path = hopper.rollout(state, controls, environment)
    gone = on(Plane(position=(0.0, 0.0, -500.0)))
    torch.testing.assert_close(flat(path), flat(hopper.rollout(state, controls, gone)), rtol=0, atol=1e-12)
    assert path.q[:, -1, 2].max() < 0.15


def test_a_box_holds_a_robot_and_its_edge_lets_it_fall(hopper):
    """One stands on the box, the other beside it; both sag by millimetres in a ground this soft."""
    box = Box(position=(0.0, 0.0, 0.5), half=(0.5, 0.5, 0.5))
    state, _ = hopping(2)
    q = state.q.clone()
    q[:] = torch.tensor([0.0, 0.0, 1.12, 0.0, 0.0, 0.0, 1.0, -1.0])
    q[1, 0] = 3.0
    still = State(q, torch.zeros(2, 7, dtype=F64))
    with torch.no_grad():
        path = hopper.rollout(still, torch.zeros(2, 60, 1, dtype=F64), on(box))
    assert path.q[0, :, 2].min() > 1.05
    assert path.qd[0, -1, 2].abs() < 0.1
    assert path.q[1, -1, 2] == pytest.approx(1.12 - 0.5 * 9.81 * 0.6**2, abs=0.02)


# --- derivatives ---------------------------------------------------------------------------------------------------
def test_gradients_reach_start_controls_quantities_and_weights(swing):
    state, controls = swinging(2)
    leaves = [state.q, state.qd, controls[:, :3].contiguous(), swing.physical.raw.detach().clone(),
              swing.weights.detach().clone()]  # fmt: skip

    def rollout(q, qd, controls, raw, weights):
        return flat(swing.simulate(State(q, qd), controls, swing.physical(raw), weights))

    assert torch.autograd.gradcheck(rollout, [x.clone().requires_grad_() for x in leaves], atol=1e-7, rtol=1e-5)
    swing.zero_grad()
    flat(swing.rollout(state, controls)).square().sum().backward()
    assert swing.physical.raw.grad is not None
    assert (swing.physical.raw.grad != 0).all()
    assert (swing.weights.grad != 0).all()


@pytest.mark.parametrize("probed", [False, True])
def test_gradients_to_quantities_and_weights_through_contact(hopper, probed):
    """Central differences of two frames in which four points slide in the ground, on both kinds of it."""
    q = torch.tensor([[0.05, -0.1, 0.115, 0.0, 0.0, 0.0, 1.0, -1.02]], dtype=F64)
    state = State(q, torch.tensor([[0.4, 0.3, -0.1, 0.2, -0.1, 0.3, 0.5]], dtype=F64))
    ground = on(Plane(), FAR_BOX) if probed else on(Plane())
    controls = torch.zeros(1, 2, 1, dtype=F64)
    leaves = [hopper.physical().detach(), hopper.weights.detach().clone(), controls]

    def rollout(values, weights, controls):
        return flat(hopper.simulate(state, controls, values, weights, ground))[:, -1]

    assert torch.autograd.gradcheck(rollout, [x.requires_grad_() for x in leaves], eps=1e-6, atol=1e-5, rtol=1e-4)
    hopper.zero_grad()
    flat(hopper.rollout(state, controls.detach(), ground)).sum().backward()
    assert (hopper.physical.raw.grad != 0).all()
    assert (hopper.weights.grad != 0).all()


def test_gradients_of_both_ground_modes_are_the_same(hopper):
    state, controls = hopping()
    found = []
    for shapes in ((Plane(),), (Plane(), FAR_BOX)):
        start = State(state.q.clone().requires_grad_(), state.qd.clone().requires_grad_())
        hopper.zero_grad()
        flat(hopper.rollout(start, controls, on(*shapes)))[:, -1].sum().backward()
        found.append(torch.cat([start.q.grad.flatten(), start.qd.grad.flatten(), hopper.weights.grad]))
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-6 * found[0].abs().max().item())


# --- precision and threads -----------------------------------------------------------------------------------------
def test_single_precision_is_close(swing, hopper):
    for model, given in ((swing, swinging), (hopper, hopping)):
        double, single = (model.rollout(*given(dtype=dtype)) for dtype in (F64, torch.float32))
        assert single.q.dtype == single.qd.dtype == torch.float32
        torch.testing.assert_close(single.q.double(), double.q, rtol=1e-3, atol=1e-3)
    state, controls = swinging(dtype=torch.float32)
    swing.zero_grad()
    flat(swing.rollout(state, controls)).sum().backward()
    assert swing.weights.grad.dtype == F64
    assert swing.weights.grad.isfinite().all()


def test_threads_make_no_difference():
    one, two = (make(machines.pendulum(), ("*.damping",), ("shoulder", "elbow"), threads=n) for n in (1, 2))
    state, controls = swinging(5)
    results = []
    for model in (one, two):
        path = flat(model.rollout(state, controls))
        path.square().sum().backward()
        results.append((path.detach(), model.physical.raw.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


# --- where it begins -----------------------------------------------------------------------------------------------
def test_networks_begin_without_effect():
    plain = make(machines.pendulum(), (), ("shoulder", "elbow"))
    augmented = make(machines.pendulum(), (), ("shoulder", "elbow"), blueprint=JOINTS, seed=7)
    state, controls = swinging()
    assert augmented.weights.abs().sum() > 0
    torch.testing.assert_close(
        augmented.rollout(state, controls).q, plain.rollout(state, controls).q, rtol=0, atol=1e-12
    )
    # And can learn from there: last layers have gradients.
    flat(augmented.rollout(state, controls)).square().sum().backward()
    assert (augmented.weights.grad != 0).any()


def test_first_weights_depend_on_the_seed_alone_and_replace_by_little():
    net = Augmentation(quantities=("passive.elbow",), inputs=("qd.elbow",), mode="replace", hidden=(5,))
    config = EngineConfig(blueprint=Blueprint(augmentations=(net,)))
    found = first_weights(config, 3)
    assert torch.equal(found, first_weights(config, 3))
    assert not torch.equal(found, first_weights(config, 4))
    last = found[-6:]
    assert 0 < last.abs().max() <= 1e-2
    assert found[:10].abs().max() > 0.1


def test_gravity_can_be_free():
    model = make(machines.pendulum(), ("gravity.z=-9.81:-12:-8",), ("shoulder", "elbow"))
    state, controls = swinging()
    known = make(machines.pendulum(), (), ("shoulder", "elbow"))
    found = model.simulate(state, controls, torch.tensor([-8.5], dtype=F64), model.weights)
    weaker = Environment(gravity=torch.tensor([0.0, 0.0, -8.5], dtype=F64))
    torch.testing.assert_close(found.q, known.rollout(state, controls, weaker).q, rtol=1e-12, atol=1e-12)
    usual = Environment(gravity=torch.tensor([0.0, 0.0, -9.81]))
    torch.testing.assert_close(model.rollout(state, controls, usual).q, model.rollout(state, controls).q)
    with pytest.raises(InputError, match="'machine': its gravity is a free quantity and cannot be set"):
        model.rollout(state, controls, weaker)


# --- refusals ------------------------------------------------------------------------------------------------------
def test_a_ground_needs_a_contact_model(swing):
    with pytest.raises(InputError, match="hybrid model of 'machine': has no contact model and feels no ground; valid"):
        swing.rollout(*swinging(), on(Plane()))
    swing.rollout(*swinging(), Environment(ground=Ground()))


def test_torques_of_another_width_are_refused(swing):
    state, controls = swinging()
    for call in (swing.rollout, lambda s, c: swing.simulate(s, c, swing.physical(), swing.weights)):
        with pytest.raises(InputError, match=r"torques for 'machine' have shape \[3, 12, 1\]; valid: 2"):
            call(state, controls[..., :1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contact": "force"}, "robot 'machine': has no points that could touch a ground; declare `contact_points`"),
        (
            {"blueprint": Blueprint(augmentations=(Augmentation(quantities=("elbow.speed",), inputs=("q.elbow",)),))},
            "blueprint: there is no quantity 'elbow.speed'",
        ),
        ({"asked": ("elbow.weight",)}, "parameter 'elbow.weight' matches no quantity"),
        ({"asked": ("contact.friction",)}, "parameter 'contact.friction' matches no quantity"),
        ({"asked": ("actuator.*.delay",)}, r"as in drives: \{JOINT: \{longest_delay: 0.03\}\}"),
        ({"asked": ("elbow.lag",)}, r"quantities of drives are those .* drives: \{JOINT: \{lag: 0.01\}\}"),
    ],
)
def test_what_is_not_there_is_refused_when_it_is_built(options, message):
    with pytest.raises(InputError, match=message) as caught:
        make(machines.pendulum(), **options)
    assert "\n" not in str(caught.value)


def test_poses_for_another_number_of_worlds_are_refused(hopper):
    pose = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]).expand(2, 7)
    for shapes in ((Plane(),), (Plane(), FAR_BOX)):
        with pytest.raises(InputError, match=r"the ground has poses of shape \[2, 7\]; valid: \[3, 7\]"):
            hopper.rollout(*hopping(), on(*shapes, pose=pose))


# --- beside Newton -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "q_tolerance", "qd_tolerance"), [("cartpole", 1e-5, 1e-4), ("dfki-c1", 5e-2, 5e-1)])
@torch.no_grad()
def test_nominal_dynamics_are_those_of_the_simulator(name, q_tolerance, qd_tolerance):
    """Over 50 frames from 64 resets under random torques, beside Newton in single precision.

    Tolerances are for the mean absolute error at the last frame [m, rad; m/s, rad/s]. That of dfki-c1 is Coulomb
    friction, which is smooth here, and MuJoCo's implicit integration of damping.
    """
    pytest.importorskip("newton")
    import numpy as np

    from neurodyn import robots
    from neurodyn.dynamics.analytic import AnalyticDynamics
    from neurodyn.dynamics.coordinates import position_difference
    from neurodyn.sim.sampling import sample_states, sample_torques
    from neurodyn.sim.simulators import mechanism

    robot, substeps = robots.load(name), robots.load(name).simulator.substeps
    rng = np.random.default_rng(0)
    start = State(*sample_states(robot, 64, rng, reset=True))
    controls = 0.3 * sample_torques(robot, 64, 50, rng)
    model = HybridDynamics(robot.spec, mechanism(articulation(robot), robot), EngineConfig(substeps=substeps))
    # With a number of substeps of its own, Featherstone has the mass matrix of every substep.
    expected = AnalyticDynamics(robot, substeps=substeps).rollout(start, controls)
    found = model.rollout(start, controls)
    error = position_difference(robot.spec, found.q[:, -1], expected.q[:, -1]).abs().mean(0)
    moved = position_difference(robot.spec, expected.q[:, -1], expected.q[:, 0]).abs().mean(0)
    assert (error < q_tolerance).all()
    assert ((found.qd[:, -1] - expected.qd[:, -1]).abs().mean(0) < qd_tolerance).all()
    assert (moved > 10 * q_tolerance).all()


@pytest.mark.parametrize("blueprint", [Blueprint(), JOINTS], ids=["alone", "with networks"])
def test_a_gentle_log_bounds_networks_and_no_mechanism_alone(blueprint):
    model = make(machines.pendulum(), ("elbow.mass",), ("shoulder", "elbow"), blueprint=blueprint)
    model.training_range = TrainingRange(qd=((-0.1, 0.1), (-0.1, 0.1)), logged=True)
    limits = tuple(math.isfinite(low) for low, _ in model.guard_bounds().qd)
    assert limits == 2 * (bool(blueprint.augmentations),)
    assert model.from_logs
