# SPDX-License-Identifier: Apache-2.0
"""Export of a run as code: a policy, a model, an actuator network, or the imitation of an MPC."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from neurodyn.core.artifacts import is_policy, read_json, read_weights
from neurodyn.core.config import from_dict
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.kinds import KindOperation
from neurodyn.interop.c_code.models import hybrid_unit, neural_unit
from neurodyn.interop.c_code.networks import NetworkWriter, columns, modules_of
from neurodyn.interop.c_code.policies import policy_unit
from neurodyn.interop.c_code.source import CArray, CFunction, CUnit, assignments
from neurodyn.interop.identified import TrainedNetwork, perceptron, read_network, recurrent
from neurodyn.multibody.trace import Graph, Scalar, maximum, minimum
from neurodyn.multibody.trace.expression import apply_loop
from neurodyn.walking.force_network import CONFIG, WEIGHTS, ForceNetwork, ImitationConfig
from neurodyn.walking.quadruped import LEGS
from neurodyn.walking.state import CONTACT, FORCE_INPUTS

C_UNITS: KindOperation[Callable[[Any], CUnit]] = KindOperation("model in C", neural=neural_unit, hybrid=hybrid_unit)
"""From a model to functions in C, by kind."""


def code_unit(run: str) -> CUnit:
    """Return the C unit of a run or a policy, or raise an InputError if part of it has no C form."""
    if is_policy(run):
        return policy_unit(run)
    if (Path(run) / CONFIG).is_file():
        return forces_unit(Path(run))
    network = read_network(run)
    if network is not None and not (Path(run) / "model").is_dir():
        return drive_unit(network)
    model = load(run)
    return C_UNITS.of(model.kind, run)(model)


def drive_unit(network: TrainedNetwork) -> CUnit:
    """Return the C unit for one drive's torque; each joint has its own state."""
    config, what = network.config, f"{network.run}: its actuator network"
    signals, writer, graph = len(config.signals), NetworkWriter(config.inputs, what), Graph()
    given = CArray("signals", signals, ", ".join(config.signals))
    result = CArray("effort", 1, "[N m or N]")
    memory: list[CArray] = []
    if config.network == "gru":
        cells, head = recurrent(network)
        last = writer.perceptron(writer.recurrent("in", cells), [head], config.activation)
        seen: list[Scalar] = [*graph.inputs("signals", signals)]
        body = ""
    else:
        last = writer.perceptron("in", modules_of(perceptron(network)), config.activation)
        frames = config.steps[-1] + 1
        memory += [CArray("past", frames * signals, "signals, newest first"), CArray("begun", 1, "or not", "int")]
        body = _PAST.format(signals=signals, older=(frames - 1) * signals)
        past = graph.inputs("past", frames * signals)
        seen = [past[signals * step + number] for number in range(signals) for step in config.steps]
    scales = [scale for scale in config.scales for _ in config.steps]
    inputs = [graph.lift(x * scale) for x, scale in zip(seen, scales, strict=True)]
    [output] = apply_loop(graph, writer.loop(last, 1), inputs)
    effort = [output * config.effort_scale]
    body += assignments(graph, [("effort", effort)], {"signals": "signals", "past": "state->past"})
    about = f"Returns the torque of one joint at a sample; samples are {config.period:g} s apart."
    step = CFunction("step", about, (given,), (result,), body, "changes")
    return CUnit(
        title=f"Drives of {', '.join(config.joints)}, {config.network}", functions=(step,),
        about=(f"Commands are {config.command}s. Every joint has a state of its own.",),
        memory=(*memory, *writer.memory), numbers={"period": config.period}, helpers=writer.text(),
    )  # fmt: skip


_PAST = """for (int i = {older} - 1; i >= 0; --i) state->past[{signals} + i] = state->past[i];
for (int i = 0; i < {signals}; ++i) state->past[i] = signals[i];
if (!state->begun[0]) for (int i = 0; i < {older}; ++i) state->past[{signals} + i] = signals[i % {signals}];
state->begun[0] = 1;
"""


def forces_unit(folder: Path) -> CUnit:
    """Return the C unit of a force law written by `neurodyn imitate`."""
    config = from_dict(read_json(folder / CONFIG), ImitationConfig, str(folder / CONFIG))
    network = ForceNetwork(1.0, config.widths)
    network.load_state_dict(read_weights(folder / WEIGHTS))
    weight, friction = float(network.weight), config.settings.friction
    writer, graph = NetworkWriter(FORCE_INPUTS, str(folder)), Graph()
    features = graph.inputs("features", FORCE_INPUTS)
    normaliser = network.normaliser
    seen = [
        (x - mean) * gain
        for x, mean, gain in zip(features, columns(normaliser.mean), columns(normaliser.gain), strict=True)
    ]
    last = writer.perceptron("in", modules_of(network.layers), "elu")
    raw = [x * weight for x in apply_loop(graph, writer.loop(last, 3 * LEGS), [graph.lift(x) for x in seen])]
    forces: list[Scalar] = []
    for leg, contact in enumerate(features[CONTACT]):
        x, y, z = raw[3 * leg : 3 * leg + 3]
        most = minimum(maximum(z, 0.0), contact * (config.settings.greatest_force * weight))
        side = most * friction
        forces += [*(maximum(minimum(one, side), -side) for one in (x, y)), most]
    arrays = (CArray("features", FORCE_INPUTS, "neurodyn.walking.state.ForceInputs.features"),)
    result = CArray("forces", 3 * LEGS, "[N], heading frame: front left, front right, hind left, hind right")
    step = CFunction(
        "forces", "Returns the forces of the feet on the robot, inside the friction pyramids.", arrays, (result,),
        assignments(graph, [("forces", forces)], ("features",)),
    )  # fmt: skip
    title = f"Contact forces of {config.robot}, {config.gait}, imitated from convex MPC"
    about = "Gait, swings and torques are the robot's own: see neurodyn.walking.QuadrupedController."
    return CUnit(title=title, about=(about,), functions=(step,), helpers=writer.text())
