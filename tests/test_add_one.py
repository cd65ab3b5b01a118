# SPDX-License-Identifier: Apache-2.0
"""An activation, a drive law, a contact property, a sensor, prior and force element, a baseline, each added.

Each comes from this file alone, and works from its declaration through the compiled step and its gradient to the files.
"""

import math

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.activations import ACTIVATIONS, Activation
from neurodyn.core.config import from_dict, to_dict
from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.contacts import SHAPE_PROPERTIES, ShapeProperty, SoftConstraints
from neurodyn.core.description.drive import DRIVE_KINDS, Drive, DriveLaw
from neurodyn.core.description.drive_network import DriveNetwork
from neurodyn.core.description.elements import FORCE_ELEMENTS, Attachment, ForceElement, ForceElementKind, read_elements
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.sensors import SENSOR_KINDS, Part, Sensor, SensorKind, Stream
from neurodyn.core.errors import InputError
from neurodyn.data.readers.logs import import_logs
from neurodyn.data.store import Store
from neurodyn.dynamics import AnalyticDynamics, Environment
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import Control, State, Trajectory
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.declared import declared_hybrid, declared_mechanism
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.hybrid.readings import MountedSensor, SensorModel
from neurodyn.dynamics.measures import BASELINES, Baseline
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.evaluate import evaluate
from neurodyn.evaluate.metrics import compare
from neurodyn.evaluate.run_figures import figures_of
from neurodyn.geometry.ground import Ground
from neurodyn.identify.fit.intervals import identifiability
from neurodyn.identify.fit.least_squares import fitted
from neurodyn.identify.fit.residuals import ResidualOptions, Residuals
from neurodyn.identify.inverse_dynamics import TorqueModel
from neurodyn.identify.motors import drive_parameters
from neurodyn.identify.unknowns.priors import PRIORS, PriorKind, parse_priors, prior_of
from neurodyn.interop import SIMULATOR_FORMATS
from neurodyn.interop.identified import IdentifiedRobot
from neurodyn.interop.mjcf import mechanism_tree
from neurodyn.interop.newton import _activation
from neurodyn.multibody.elements import ElementForces
from neurodyn.multibody.engine import EngineConfig, nominal
from neurodyn.multibody.trace import safe_sqrt
from neurodyn.multibody.vectors import dot
from neurodyn.nets.networks import NetConfig
from neurodyn.policy.settings import NetworkSettings
from neurodyn.report.accuracy import by_horizon
from neurodyn.report.log import at_horizons
from neurodyn.robots import load as load_robot
from tests import plant
from tests.data.readers.conftest import SPEC, npz_arrays, npz_map
from tests.dynamics.hybrid.sled import write_sled
from tests.identify import pendulum
from tests.identify.test_coordinates import cartpole_space
from tests.identify.test_least_squares import of_point_masses
from tests.interop.runs import write_arm
from tests.multibody import machines

F64 = torch.float64


@pytest.fixture
def added():
    """Add things to registries until the test is over."""
    mine = []

    def add(registry, name, entry):
        registry.add(name, entry)
        mine.append((registry, name))

    yield add
    for registry, name in mine:
        registry.remove(name)


def agrees(function, x: torch.Tensor, step: float = 1e-6, rel: float = 1e-6) -> None:
    """Compare the gradient of a weighted sum with central differences, in every entry."""
    x = x.detach().clone().requires_grad_()
    y = function(x)
    weight = torch.randn(y.shape, dtype=F64, generator=torch.Generator().manual_seed(7))
    (gradient,) = torch.autograd.grad((y * weight).sum(), x)
    with torch.no_grad():
        for index in np.ndindex(*x.shape):
            move = torch.zeros_like(x)
            move[index] = step
            slope = float(((function(x + move) - function(x - move)) * weight).sum()) / (2 * step)
            assert float(gradient[index]) == pytest.approx(slope, rel=rel, abs=1e-7)
    assert float(gradient.abs().max()) > 1e-3


# An activation ------------------------------------------------------------------------------------------------------


def bump(z: torch.Tensor) -> torch.Tensor:
    """z exp(-z^2)."""
    return z * torch.exp(-z * z)


class Bump(torch.nn.Module):
    def forward(self, z):
        return bump(z)


BUMP = Activation(
    function=bump,
    module=Bump,
    value="z * ::wp::exp(-z * z)",
    slope="((real)1 - (real)2 * z * z) * ::wp::exp(-z * z)",
    curvature="((real)4 * z * z - (real)6) * y",
    kernel="v[i] * ::wp::exp(-v[i] * v[i])",
    onnx=lambda add, z: add("Mul", z, add("Exp", add("Neg", add("Mul", z, z)))),
)


def test_an_activation_in_neural_dynamics(added, monkeypatch, tmp_path):
    added(ACTIVATIONS, "bump", BUMP)
    net = from_dict({"kind": "mlp", "width": 9, "depth": 2, "activation": "bump"}, NetConfig)
    monkeypatch.setitem(plant.NETS, "bump", net)
    model = plant.make_model("bump", F64)
    state = State(
        torch.tensor([[0.1, 0.4], [-0.2, 1.0]], dtype=F64), torch.tensor([[0.3, -0.5], [0.1, 2.0]], dtype=F64)
    )
    control = Control(torque=torch.tensor([[3.0], [-8.0]], dtype=F64))

    def stepped(torque):
        after = model.step(model.begin(state), state, Control(torque=torque))[1].state
        return torch.cat([after.q, after.qd], -1)

    with torch.no_grad():
        compiled = stepped(control.torque)
    by_torch = stepped(control.torque.clone().requires_grad_())
    torch.testing.assert_close(compiled, by_torch.detach(), rtol=1e-12, atol=1e-12)
    agrees(stepped, control.torque, step=1e-4)
    NEURAL.save(tmp_path / "run", model)
    again = load(tmp_path / "run")
    with torch.no_grad():
        found = again.double().step(again.begin(state), state, control)[1].state
    torch.testing.assert_close(torch.cat([found.q, found.qd], -1), compiled, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("structure", ["free", "conservative"])
def test_an_activation_in_a_compiled_step(added, tmp_path, structure):
    added(ACTIVATIONS, "bump", BUMP)
    names = {"quantities": ["torque.shoulder", "torque.elbow"], "inputs": ["q.shoulder", "q.elbow"], "hidden": [4, 3]}
    blueprint = from_dict({"augmentations": [{**names, "activation": "bump", "structure": structure}]}, Blueprint)
    mechanism = machines.pendulum()
    config = EngineConfig(substeps=2, blueprint=blueprint)
    model = HybridDynamics(machines.spec(mechanism, ("elbow",)), mechanism, config, declaration="pendulum.yaml")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        model.weights.normal_(generator=generator)
    q, qd = (0.5 * torch.randn(2, 2, generator=generator, dtype=F64) for _ in range(2))
    control = torch.randn(2, 4, 1, generator=generator, dtype=F64)
    none = torch.zeros(0, dtype=F64)

    def ended(weights):
        path = model.simulate(State(q, qd), control, none, weights)
        return torch.cat([path.q[:, -1], path.qd[:, -1]], -1)

    agrees(ended, model.weights)
    HYBRID.save(tmp_path / "run", model)
    with torch.no_grad():
        assert torch.equal(
            load(tmp_path / "run").rollout(State(q, qd), control).q, model.rollout(State(q, qd), control).q
        )


def test_an_activation_in_files_of_others_and_where_it_is_not_known(added):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    added(ACTIVATIONS, "bump", BUMP)
    nodes = []
    last = _activation(onnx.helper, "bump", "z", "y", nodes)
    real = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "net", [real("z", 1, [3])], [real(last, 1, [3])])
    z = np.array([-1.0, 0.2, 3.0], np.float32)
    (found,) = ReferenceEvaluator(onnx.helper.make_model(graph)).run(None, {"z": z})
    np.testing.assert_allclose(found, z * np.exp(-z * z), rtol=1e-6)
    shared = {"joints": ("knee",), "signals": ("velocity",), "scales": (1.0,), "effort_scale": 1.0, "history": (0.0,)}
    assert DriveNetwork(network="mlp", period=0.01, activation="bump", **shared).activation == "bump"
    with pytest.raises(InputError, match="unknown activation 'bump'; valid: elu, relu, selu, silu, tanh"):
        NetworkSettings(activation="bump")
    with pytest.raises(InputError, match=r"unknown activation 'gelu' .*; valid: bump, elu, relu, silu, softplus"):
        Augmentation(quantities=("a",), inputs=("b",), activation="gelu")


# A kind of sensor ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("simulator", ["newton", "mjcf", "isaaclab", "mjlab"])
def test_a_drive_law_is_identified_and_exported(added, tmp_path, simulator):
    law = DriveLaw(
        "target", lambda number, error, q, qd: number("kp") * (error - 0.1 * qd),
        needs=("kp",), free=("kp",), gains=lambda number: (number("kp"), 0.1 * number("kp")),
    )  # fmt: skip
    added(DRIVE_KINDS, "tenth", law)
    robot = load_robot(write_arm(tmp_path / "arm"))

    def driven(kp: float) -> dict[str, Drive]:
        return dict.fromkeys(robot.actuated, Drive(kind="tenth", kp=kp, gain=0.75))

    robot = msgspec.structs.replace(robot, drives=driven(20.0))
    assert "actuator.lift.kp" in drive_parameters(robot)
    found = msgspec.structs.replace(declared_mechanism(robot, None)[0], drives=driven(31.6))
    (out := tmp_path / "out").mkdir()
    placed = SIMULATOR_FORMATS[simulator](IdentifiedRobot("a run", robot, found, drives=found.drives), out)
    assert {"actuator.lift.kp", "actuator.lift.gain"} <= placed
    text = "".join(path.read_text() for path in out.rglob("*") if path.suffix in {".json", ".py", ".xml"})
    assert "23.7" in text  # the gain times kp
    assert "2.37" in text  # and a tenth of it


def read_distance(instant, at):
    """Distance of the sensor from the world's origin [m]."""
    pose = instant.poses[at.link]
    position = pose.origin + pose.turn @ at.arm
    return [safe_sqrt(dot(position, position))]


DISTANCE = SensorKind((Part(name="distance", components=("d",), unit="m"),), read_distance)


def test_a_kind_of_sensor(added, tmp_path):
    added(SENSOR_KINDS, "distance", DISTANCE)
    arrays = npz_arrays()
    np.savez(tmp_path / "log.npz", **arrays, far=1000.0 + arrays["time"])
    measured = {"far": {"kind": "distance", "columns": {"distance": "far"}, "units": {"distance": "mm"}}}
    import_logs([tmp_path / "log.npz"], npz_map(measured=measured), SPEC, tmp_path / "log.h5")
    store = Store.open(tmp_path / "log.h5")
    assert store.header.streams == (Stream(name="far", kind="distance"),)
    assert store.header.streams[0].columns == ("far.distance.d",)
    np.testing.assert_allclose(store.measured[:5, 0], 1.0 + 2e-5 * np.arange(5), rtol=1e-6)
    sensor = from_dict(to_dict(Sensor(kind="distance", link="elbow", position=(0.1, 0.2, -0.3))), Sensor)
    mechanism = machines.pendulum()
    model = HybridDynamics(machines.spec(mechanism, ("elbow",)), mechanism, EngineConfig(substeps=1))
    free = ("far.position.x", "far.position.z")
    observation = SensorModel(model, [MountedSensor("far", sensor, store.header.streams[0])], free)
    given = torch.tensor([[0.3, -0.8, 0.1, -0.3]], dtype=F64)
    none = torch.zeros(1, 0, dtype=F64)

    def seen(x):
        state = State(x[:, :2], torch.zeros_like(x[:, :2]))
        return observation(state, torch.zeros(1, 1, dtype=F64), none, x[:, 2:], model.weights.detach())

    agrees(seen, given)
    straight = torch.tensor([[0.0, 0.0, 0.1, -0.3]], dtype=F64)
    assert float(seen(straight)) == pytest.approx(math.hypot(0.1, 0.2 + 0.05, -0.3 - 0.3))
    with pytest.raises(InputError, match="columns has no 'distance'; quantities of a distance: distance"):
        npz_map(measured={"far": {"kind": "distance", "columns": {}}})


# A kind of prior ----------------------------------------------------------------------------------------------------


def read_factor(pattern, text, spec):
    if not (spec.nominal > 0.0 and float(text) > 1.0):
        raise InputError(f"prior {pattern}: {text!r} is no factor above 1 on a nominal value above 0")
    return float(text)


FACTOR = PriorKind(
    distance=lambda values, mean, factor: torch.log(values / mean) / torch.log(factor),
    read=read_factor,
    words=lambda factor: f"within a factor of {factor:.3g}",
)


@pytest.mark.parametrize("mixed", [False, True])
def test_a_kind_of_prior(added, mixed):
    added(PRIORS, "factor", FACTOR)
    model = of_point_masses(pendulum.dynamics("*.mass", gravity=0.0))
    windows = pendulum.windows(model, {"elbow.mass": 1.5}, torque=0.0)
    texts = ["shoulder.mass=factor 1.05", *(["elbow.mass=10"] if mixed else [])]
    prior = prior_of(model.physical.specs, parse_priors(texts))
    assert prior is not None
    assert prior.by_name(model.physical.specs)["shoulder.mass"] == ("factor", 1.05)
    shoulder = [spec.name for spec in model.physical.specs].index("shoulder.mass")
    column = prior.columns.tolist().index(shoulder)
    values = torch.tensor([[1.3, 1.3]], dtype=F64)
    assert float(prior.distance(values)[0, column]) == pytest.approx(math.log(1.3) / math.log(1.05))
    agrees(prior.distance, values)
    expected = torch.autograd.functional.jacobian(prior.distance, values)[0, :, 0]
    torch.testing.assert_close(prior.slope(values)[0], expected)
    residuals = Residuals(model, windows, pendulum.true_noise(), ResidualOptions(huber=None), prior=prior)
    residuals, solution = fitted(residuals, residuals.start(residuals.space.nominal[None]), 40, rescalings=0)
    found = residuals.values(solution.point.x)[0]
    assert float(found[shoulder]) == pytest.approx(1.0, abs=3e-3)
    assert float(found[1 - shoulder]) == pytest.approx(1.5, rel=0.02)
    analysis = identifiability(residuals, solution.point)
    assert float(analysis.deviations[shoulder]) == pytest.approx(math.log(1.05), rel=0.05)


def test_a_kind_of_prior_is_named_in_files_and_reports(added):
    from neurodyn.identify.result import IdentifiedParameter
    from neurodyn.report.identification import _prior

    added(PRIORS, "factor", FACTOR)
    entry = IdentifiedParameter(name="m", value=1.0, interval=None, nominal=1.0, prior=1.2, prior_kind="factor")
    again = msgspec.json.decode(msgspec.json.encode(entry), type=IdentifiedParameter)
    assert again == entry
    assert _prior(1.2, again.prior_kind) == "within a factor of 1.2"
    normal = msgspec.structs.replace(entry, prior_kind=msgspec.UNSET)
    assert "prior_kind" not in to_dict(normal)
    assert _prior(0.16, normal.prior_kind) == "± 0.16"
    with pytest.raises(InputError, match=r"'0\.5' is no factor above 1"):
        prior_of(select_parameters({"a.mass": 1.0}, ("*",)), {"a.mass": "factor 0.5"})


def test_a_kind_of_prior_on_a_coordinate(added):
    added(PRIORS, "factor", FACTOR)
    added(PRIORS, "flat", PriorKind(lambda values, mean, width: 0.0 * values, read_factor, str))

    def width(prior):
        return cartpole_space(("actuator.slider.gain",), actuator_slider_gain=prior).coordinates[0].width

    assert width("1.2") == 1.2
    assert width("factor 1.2") == pytest.approx(math.log(1.2))
    with pytest.raises(InputError, match=r"actuator\.slider\.gain: kind 'flat' is not like a normal one"):
        width("flat 1.2")


# A baseline ---------------------------------------------------------------------------------------------------------


def at_origin(truth, dt, spec):
    return Trajectory(torch.zeros_like(truth.q), torch.zeros_like(truth.qd))


def test_a_baseline(added, trained_run):
    added(BASELINES, "at_origin", Baseline(at_origin, "at the origin"))
    result = evaluate(trained_run, horizon=30)
    found, mark = figures_of(str(trained_run), result), result.plain()["at_horizon"]["all"]["30"]
    assert list(mark) == ["seconds", "model", "hold_last", "constant_velocity", "at_origin", "better_than_baselines"]
    assert found.baselines["at the origin"][next(iter(found.figures))].value == mark["at_origin"]["q"][0] > 0.0
    assert "At the origin" in at_horizons(result)[0].head
    path = Trajectory(torch.ones(4, 3, 2), torch.ones(4, 3, 2))
    errors = RolloutErrors(plant.robot().spec, path, path)
    assert errors.baseline("at_origin").errors.min() == 1.0
    assert "at the origin" in errors._repr_html_()
    table = compare(errors, simulated=False)
    assert table.plain()["baselines"]["at_origin"]["2"]["joint_m"] == 1.0
    assert len(by_horizon({"": (4, table)}, 0.1)[0].rows[0]) == len(by_horizon({"": (4, table)}, 0.1)[0].head)


# A kind of force element --------------------------------------------------------------------------------------------


def rope(step):
    """A spring and a damper between two points."""
    first, second = step.element.attachments
    across = step.place(second) - step.place(first)
    length = safe_sqrt(dot(across, across))
    along = across * (1.0 / length)
    rate = dot(along, step.point_velocity(second) - step.point_velocity(first))
    tension = step("stiffness") * (length - step("rest")) + step("damping") * rate
    return ElementForces(pulls=[(first, tension * along), (second, -1.0 * tension * along)])


def coupling(step):
    """A spring on the weighted sum of joint positions: what a fixed tendon is."""
    length, rate = 0.0, 0.0
    for at in step.element.attachments:
        length, rate = length + at.factor * step.position(at), rate + at.factor * step.velocity(at)
    tension = step("stiffness") * (length - step("rest")) + step("damping") * rate
    return ElementForces(torques={at.joint: -1.0 * at.factor * tension for at in step.element.attachments})


NUMBERS = {"stiffness": 10.0, "damping": 0.1, "rest": 0.1}
ARMS = (Attachment(joint="shoulder", factor=0.5), Attachment(joint="elbow", factor=-0.8))


def read_coupling(model, robot):
    return (ForceElement(name="belt", kind="coupling", attachments=ARMS),)


ROPE = ForceElementKind(NUMBERS, rope, bounds={"rest": (0.0, 1.0)}, least=2)
COUPLING = ForceElementKind(NUMBERS, coupling, bounds={"rest": (None, None)}, read=read_coupling)


@pytest.fixture
def elements(added):
    added(FORCE_ELEMENTS, "rope", ROPE)
    added(FORCE_ELEMENTS, "coupling", COUPLING)
    ends = (Attachment(point=(0.3, 0.1, 0.2)), Attachment(joint="elbow", point=(0.02, 0.0, -0.2)))
    return (
        *read_elements(None, None),
        ForceElement(name="cord", kind="rope", attachments=ends, values={"stiffness": 25.0}),
    )


def test_force_elements_in_a_compiled_step(elements, tmp_path):
    mechanism = msgspec.structs.replace(machines.pendulum(), elements=elements)
    assert from_dict(to_dict(mechanism), Mechanism) == mechanism
    known = nominal(mechanism, None)
    assert (known["element.belt.stiffness"], known["element.cord.stiffness"]) == (10.0, 25.0)
    specs = select_parameters(known, ("element.*",), mechanism.bounds())
    assert {spec.name: (spec.lower, spec.upper) for spec in specs}["element.cord.rest"] == (0.0, 1.0)
    model = HybridDynamics(
        machines.spec(mechanism, ("elbow",)), mechanism, EngineConfig(substeps=2), specs, declaration="pendulum.yaml"
    )
    generator = torch.Generator().manual_seed(0)
    state = 0.5 * torch.randn(2, 4, generator=generator, dtype=F64)
    control = torch.randn(2, 4, 1, generator=generator, dtype=F64)

    def ended(x, values):
        path = model.simulate(State(x[:, :2], x[:, 2:]), control, values, model.weights.detach())
        return torch.cat([path.q[:, -1], path.qd[:, -1]], -1)

    values = torch.tensor([spec.nominal for spec in specs], dtype=F64)
    agrees(lambda x: ended(x, values), state)
    agrees(lambda x: ended(state, x), values, rel=1e-5)
    HYBRID.save(tmp_path / "run", model)
    again = load(tmp_path / "run")
    start = State(state[:, :2], state[:, 2:])
    with torch.no_grad():
        assert torch.equal(again.rollout(start, control).q, model.rollout(start, control).q)
        stiff = mechanism.with_quantities({"element.belt.stiffness": 50.0})
        other = HybridDynamics(machines.spec(stiff, ("elbow",)), stiff, EngineConfig(substeps=2))
        assert not torch.allclose(other.rollout(start, control).q, model.rollout(start, control).q, atol=1e-4)


def test_forces_of_elements_are_those_of_paper(elements):
    """Two masses on slides: a rope between them, and a coupling of both; accelerations are forces over masses."""
    slides = tuple(
        Link(joint=machines.joint(name, "prismatic", axis=(1.0, 0.0, 0.0)), mass=mass, com=(0.0,) * 3,
             inertia=(0.01,) * 3 + (0.0,) * 3)
        for name, mass in (("left", 2.0), ("right", 0.5))
    )  # fmt: skip
    ends = tuple(Attachment(joint=name) for name in ("left", "right"))
    arms = (Attachment(joint="left", factor=0.5), Attachment(joint="right", factor=2.0))
    made = (
        ForceElement(name="cord", kind="rope", attachments=ends),
        ForceElement(name="belt", kind="coupling", attachments=arms, values={"damping": 0.0}),
    )
    mechanism = Mechanism(links=slides, elements=made)
    model = HybridDynamics(machines.spec(mechanism, dt=1e-3), mechanism, EngineConfig(substeps=1))
    q, qd = torch.tensor([[-0.2, 0.4]], dtype=F64), torch.tensor([[0.3, -0.1]], dtype=F64)
    with torch.no_grad():
        path = model.rollout(State(q, qd), torch.zeros(1, 1, 0, dtype=F64))
    found = ((path.qd[0, 1] - qd[0]) / 1e-3).tolist()
    pull = 10.0 * (0.6 - 0.1) + 0.1 * (-0.1 - 0.3)
    tension = 10.0 * (0.5 * -0.2 + 2.0 * 0.4 - 0.1)
    assert found == pytest.approx([(pull - 0.5 * tension) / 2.0, (-pull - 2.0 * tension) / 0.5], rel=1e-9)


def test_networks_act_on_forces_of_elements(elements):
    mechanism = msgspec.structs.replace(machines.pendulum(), elements=elements)
    acting = Augmentation(quantities=("element.belt.torque.elbow",), inputs=("q.elbow",), mode="scale")
    config = EngineConfig(substeps=1, blueprint=Blueprint(augmentations=(acting,)))
    model = HybridDynamics(machines.spec(mechanism), mechanism, config)
    state, none = State(*torch.full((2, 1, 2), 0.3, dtype=F64)), torch.zeros(1, 3, 0, dtype=F64)
    with torch.no_grad():
        plain = model.rollout(state, none).q
        model.weights.normal_(generator=torch.Generator().manual_seed(0))
        assert not torch.allclose(model.rollout(state, none).q, plain, atol=1e-6)


def test_what_elements_cannot_be_is_refused(elements):
    belt, cord = elements
    with pytest.raises(ValueError, match=r"element 'belt': joint is 'hip'; valid: one of shoulder, elbow"):
        msgspec.structs.replace(
            machines.pendulum(), elements=(msgspec.structs.replace(belt, attachments=(Attachment(joint="hip"),)),)
        )
    with pytest.raises(ValueError, match="is there twice"):
        msgspec.structs.replace(machines.pendulum(), elements=(belt, belt))
    with pytest.raises(ValueError, match="'cord' is 1; valid: 2 or more attachments"):
        msgspec.structs.replace(cord, attachments=cord.attachments[:1])
    with pytest.raises(ValueError, match=r"rest is 2\.0; valid: a finite number between 0 and 1"):
        msgspec.structs.replace(cord, values={"rest": 2.0})
    with pytest.raises(InputError, match="force element 'rubber'; valid: coupling, disturbance, drag, rope"):
        ForceElement(name="a", kind="rubber", attachments=())
    with pytest.raises(InputError, match="the force elements belt are unknown to it"):
        TorqueModel(msgspec.structs.replace(machines.pendulum(), elements=(belt,)))


def test_mechanisms_without_elements_are_written_as_before():
    assert "elements" not in to_dict(machines.pendulum())


# A contact property of shapes ---------------------------------------------------------------------------------------


def test_a_contact_property_of_shapes(added, tmp_path, recwarn):
    """Impedance at the surface: read from the asset, in steps and their gradients, in files of runs and of MuJoCo."""
    added(SHAPE_PROPERTIES, "solimp.d0", ShapeProperty(attribute="solimp"))
    robot = write_sled(tmp_path, every='solimp=".9 .95 .05"', front='solimp=".2 .95 .05"')
    soft = declared_hybrid(robot, parameters=["contact*.solimp.d0"])
    assert not [one for one in recwarn if "of their own" in str(one.message)]
    constraints = soft.mechanism.constraints
    assert constraints.numbers == {"contact.solimp.d0": 0.9, "contact.front.solimp.d0": 0.2}
    assert from_dict(to_dict(constraints), SoftConstraints) == constraints
    specs = {spec.name: (spec.nominal, spec.lower, spec.upper) for spec in soft.physical.specs}
    assert set(specs) == set(constraints.numbers)
    assert specs["contact.front.solimp.d0"] == (0.2, 0.0, 1.0)

    rng = torch.Generator().manual_seed(0)
    q = torch.cat([torch.zeros(16, 2), torch.full((16, 1), 0.045), torch.zeros(16, 3), torch.ones(16, 1)], 1)
    qd = torch.randn(16, 6, generator=rng) * torch.tensor([0.5, 0.5, 0.2, 0.5, 0.5, 0.5])
    environment, none = Environment(ground=Ground(robot.grounds["floor"])), torch.zeros(16, 1, 0)
    with torch.no_grad():
        wanted = AnalyticDynamics(robot).rollout(State(q, qd), none, environment).qd[:, 1].double()
    start, none = State(q.double(), qd.double()), none.double()

    def ended(values):
        path = soft.simulate(start, none, values, soft.weights.detach(), environment)
        return path.qd[:, 1]

    values = torch.tensor([spec.nominal for spec in soft.physical.specs], dtype=F64)
    change = (wanted - start.qd).norm(dim=1)
    own, one = ((ended(x) - wanted).norm(dim=1) / change for x in (values, torch.full_like(values, 0.9)))
    assert own.median() < 5e-3
    assert one.median() > 2e-2
    agrees(ended, values, rel=1e-4)

    identified = {**nominal(soft.mechanism, "soft"), "contact.front.solimp.d0": 0.3}
    root, _ = mechanism_tree(IdentifiedRobot("a run", robot, soft.mechanism, contact=identified))
    shares = [float(geom.get("solimp").split()[0]) for geom in root.iter("geom")]
    assert shares == [0.9, 0.9, 0.3, 0.9]


def test_a_contact_property_that_sets_the_damping_is_refused():
    with pytest.raises(ValueError, match=r"solref\[0\]; valid: another number, because the solver has one damping"):
        ShapeProperty(attribute="solref")
