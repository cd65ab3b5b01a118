# SPDX-License-Identifier: Apache-2.0
"""What a blueprint does to named quantities, and what it must not ask for."""

import math

import pytest
import torch

from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.errors import InputError
from neurodyn.multibody.scope import Scope, StepMemory
from neurodyn.multibody.trace import Graph
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes

X, Y, MASS, UNUSED = 0.7, -1.3, 2.5, 4.0


def network(quantities, inputs, mode="add", **options):
    """Return a linear network; its weights are those of each output's inputs, row by row, then the biases."""
    return Augmentation(quantities=quantities, inputs=inputs, mode=mode, hidden=(), **options)


def step(inputs, blueprint):
    """A step with the quantities x, y, force = x + 2 y, torque = 3 force / mass, in that order."""
    scope = Scope(
        inputs.graph,
        {"mass": inputs.parameters[0], "radius": 0.5, "unused": UNUSED},
        blueprint,
        StepMemory(inputs.graph, 0),
        0.01,
    )
    x = scope.define("x", inputs.state[0])
    y = scope.define("y", inputs.state[1])
    force = scope.define("force", x + 2.0 * y)
    torque = scope.define("torque", 3.0 * force / scope("mass"))
    after = [force, torque, scope("mass"), scope("radius") * 1.0]
    scope.require_acted()
    return after


def trace(*networks):
    graph = Graph()
    inputs = ProgramInputs(graph, graph.inputs("x", 4), [], [], graph.inputs("p", 1))
    return step(inputs, Blueprint(augmentations=networks))


def values(weights, *networks):
    """Return force, torque, mass and radius."""
    blueprint = Blueprint(augmentations=networks)
    sizes = ProgramSizes(state=4, parameters=1, weights=blueprint.weights)
    program = TracedProgram(sizes, lambda inputs: step(inputs, blueprint))
    state = torch.tensor([[X, Y, 0.0, 0.0]], dtype=torch.float64)
    given = {
        "parameters": torch.tensor([MASS], dtype=torch.float64),
        "weights": torch.tensor(weights, dtype=torch.float64),
    }
    return program.rollout(state, frames=1, **given)[0, 1].tolist()


FORCE = X + 2 * Y


def test_networks_add_scale_and_replace():
    """All at once, with scales of inputs and outputs; each sees what the ones before it have done."""
    networks = (
        network(("force",), ("x", "mass"), "add", input_scale=(2.0, 5.0), output_scale=(10.0,)),
        network(("torque",), ("force",), "scale", output_scale=(0.5,)),
        network(("radius",), ("y",), "replace"),
    )
    a, b, c, d, e, f, g = weights = [0.3, -0.2, 0.1, 0.05, 0.4, 1.5, -0.7]
    force = FORCE + 10.0 * (a * X / 2.0 + b * MASS / 5.0 + c)
    torque = 3.0 * force / MASS * (1.0 + 0.5 * (d * force + e))
    assert values(weights, *networks) == pytest.approx([force, torque, MASS, f * Y + g], rel=1e-12)


def test_one_network_acts_on_two_quantities():
    net = network(("torque", "mass"), ("x", "y"), "add", output_scale=(1.0, 0.1))
    a, b, c, d, e, f = weights = [0.3, -0.2, 0.5, 0.6, 0.9, -0.4]
    mass = MASS + 0.1 * (c * X + d * Y + f)
    torque = 3.0 * FORCE / mass + a * X + b * Y + e
    assert values(weights, net) == pytest.approx([FORCE, torque, mass, 0.5], rel=1e-12)


def test_networks_that_share_weights_do_the_same_to_their_own_quantities():
    nets = (network(("force",), ("x",), shared="one"), network(("radius",), ("y",), shared="one"))
    found = values([0.3, -0.2], *nets)
    assert found[0] == pytest.approx(FORCE + 0.3 * X - 0.2, rel=1e-12)
    assert found[3] == pytest.approx(0.5 + 0.3 * Y - 0.2, rel=1e-12)


def test_sines_and_cosines_of_quantities_are_inputs():
    a, b, c, d = weights = [0.3, -0.2, 0.5, 0.1]
    found = values(weights, network(("force",), ("sin(x)", "cos(y)", "cos(mass)"), "replace"))
    assert found[0] == pytest.approx(a * math.sin(X) + b * math.cos(Y) + c * math.cos(MASS) + d, rel=1e-12)


def test_constants_are_inputs_also_where_the_step_does_not_use_them():
    found = values([0.3, 0.2, 0.1], network(("force",), ("unused", "radius"), "replace"))
    assert found[0] == pytest.approx(0.3 * UNUSED + 0.2 * 0.5 + 0.1, rel=1e-12)


def test_a_constant_that_a_network_sees_is_what_another_one_made_of_it():
    networks = (network(("force",), ("mass",), "replace"), network(("mass",), ("radius",), "replace"))
    assert values([2.0, 0.0, 3.0, 0.5], *networks)[:3] == pytest.approx([4.0, 6.0, 2.0], rel=1e-12)


@pytest.mark.parametrize(
    ("networks", "message"),
    [
        (
            [network(("speed",), ("x",))],
            "there is no quantity 'speed' to act on; valid: force, mass, radius, torque, x",
        ),
        ([network(("unused",), ("x",))], "there is no quantity 'unused' to act on; valid: force"),
        ([network(("force",), ("speed",))], "input 'speed' of 'force' is not known when 'force' is computed; valid:"),
        ([network(("force",), ("torque",))], "input 'torque' of 'force' is not known when 'force' is computed"),
        ([network(("force",), ("tan(x)",))], r"input 'tan\(x\)' of 'force' is not known"),
        ([network(("force",), ("sin(torque)",))], r"input 'sin\(torque\)' of 'force' is not known"),
        # Acted on, but known too late all the same.
        ([network(("force",), ("torque",)), network(("torque",), ("x",))], "input 'torque' of 'force' is not known"),
        ([network(("force",), ("force",))], "'force' is an input of the network that acts on it; name other inputs"),
        ([network(("force",), ("cos(force)",))], "'force' is an input of the network that acts on it"),
        ([network(("mass",), ("mass",))], "'mass' is an input of the network that acts on it"),
        ([network(("force", "torque"), ("torque",))], "'torque' is an input of the network that acts on it"),
        ([network(("mass", "radius"), ("sin(radius)",))], "'radius' is an input of the network that acts on it"),
        (
            [network(("mass",), ("radius",)), network(("radius",), ("mass",))],
            "'mass' and 'radius' form a cycle: each would be computed from the other",
        ),
        (
            [network(("force",), ("torque",)), network(("torque",), ("sin(force)",))],
            "'force' and 'torque' form a cycle",
        ),
        (
            [network(("force",), ("mass",)), network(("mass",), ("radius",)), network(("radius",), ("force",))],
            "'force' and 'mass' form a cycle",
        ),
    ],
)
def test_what_cannot_be_computed_is_refused_in_one_line(networks, message):
    with pytest.raises(InputError, match=f"blueprint: .*{message}") as caught:
        trace(*networks)
    assert "\n" not in str(caught.value)


def test_names_are_those_that_are_computed_and_then_the_other_constants():
    graph = Graph()
    scope = Scope(graph, {"mass": 1.0, "radius": 2.0}, Blueprint(), StepMemory(graph, 0), 0.01)
    scope.define("x", graph.input("x", 0))
    assert scope("radius") == 2.0
    assert scope.computed == ("x", "radius")
    assert scope.names == ("x", "radius", "mass")


def test_without_networks_numbers_stay_numbers():
    graph = Graph()
    scope = Scope(graph, {"mass": 1.5}, Blueprint(), StepMemory(graph, 0), 0.01)
    assert scope.define("zero", 0.0) == 0.0
    assert scope("mass") == 1.5
