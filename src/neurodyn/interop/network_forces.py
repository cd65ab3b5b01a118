# SPDX-License-Identifier: Apache-2.0
"""Networks of a hybrid model as generalised forces beside a simulator's own, traced, and in MuJoCo.

`network_forces` returns the graph, `write_plugin` a plugin of MuJoCo in C (`templates/mujoco_plugin.c`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from msgspec import UNSET

from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.interop.c_code.networks import NetworkWriter
from neurodyn.interop.c_code.source import assignments, math_calls, prelude
from neurodyn.interop.identified import IdentifiedRobot, TrainedNetwork, heading, recurrent, replaced_drives
from neurodyn.interop.texts import template
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.drives.drive import passive_torque
from neurodyn.multibody.mass_matrix import TreeColumns
from neurodyn.multibody.points import link_poses
from neurodyn.multibody.sensors import Instant
from neurodyn.multibody.trace import Graph, Scalar, maximum, minimum
from neurodyn.multibody.trace.expression import Expression
from neurodyn.multibody.trace.recurrence import ProgramInputs
from neurodyn.multibody.trace.source import live_nodes

_FORCES = ("torque", "passive", "wrench", "actuator", "command", "error")
_PASSIVE = ("damping", "friction", "stiffness", "rest")


@dataclass(frozen=True)
class NetworkForces:
    """Generalised forces of networks, and of the drives they modify, as a traced function.

    Attributes:
        graph: The graph; its inputs are "x" (positions, velocities, memory of the model's step) and "u" (commands).
        forces: Force nodes, one per velocity coordinate [N m or N].
        slots: Memory elements of "x", in order.
        after: Memory nodes after the step.
        positions: Number of positions.
        velocities: Number of velocities.
        drives: Joints whose complete drive is part of the forces.
    """

    graph: Graph
    forces: list[int]
    slots: list[int]
    after: list[int]
    positions: int
    velocities: int
    drives: tuple[str, ...]


def network_forces(model: HybridDynamics, values: Mapping[str, float]) -> NetworkForces:
    """Trace a model's networks at given values of its free quantities.

    Raises:
        InputError: A network acts on something other than a force, or has an input that only the model's contact solver
            provides.
    """
    where = f"model of {model.spec.robot!r}"
    _require_forces(model, where)
    engine, blueprint = model.plane_engine, model.config.blueprint
    constants: dict[str, Scalar] = {**engine.constants, **values}
    graph, mechanism = Graph(), model.mechanism
    moving = mechanism.nq + mechanism.nv
    inputs = ProgramInputs(
        graph, graph.inputs("x", moving), graph.inputs("u", model.spec.nu), graph.inputs("h", engine.ground_size), []
    )
    q, qd, instant = engine.instant(inputs, constants, blueprint)
    instant.scope.require_acted()
    drives = replaced_drives(model)
    forces = _forces(model, instant, (q, qd), constants, drives)
    roots = [graph.lift(value).index for value in forces]
    after = [graph.lift(value).index for value in instant.memory.after()] if instant.memory.size else []
    slots = _memory_slots(graph, roots, after, moving)
    _require_known(graph, [*roots, *(after[i - moving] for i in slots)], where)
    return NetworkForces(graph, roots, slots, [after[i - moving] for i in slots], mechanism.nq, mechanism.nv, drives)


def _require_forces(model: HybridDynamics, where: str) -> None:
    """Raise an InputError for networks that cannot be expressed as forces."""
    kept = () if model.contacts_of_simulator else tuple(f"{n}.{x}" for n in model.mechanism.names for x in _PASSIVE)
    for one in model.config.blueprint.augmentations:
        others = [n for n in one.quantities if n.partition(".")[0] not in _FORCES and n not in kept]
        if others:
            raise InputError(
                f"{where}: has a network that acts on {', '.join(others)}, for which MuJoCo has no place; valid: "
                "networks on torque.JOINT, passive.JOINT, actuator.JOINT, command.JOINT or wrench.LINK"
            )
        unseen = [n for n in one.inputs if n.startswith(("innovation.", "acceleration."))]
        if unseen:
            raise InputError(
                f"{where}: a network sees {', '.join(unseen)}, which a step of MuJoCo does not know before"
            )


def _forces(
    model: HybridDynamics, instant: Instant, state: tuple[list[Any], list[Any]], constants: Mapping[str, Scalar],
    drives: Sequence[str],
) -> list[Any]:  # fmt: skip
    """Return the generalised forces missing from a simulator of the mechanism without the networks."""
    scope, tree, names, (q, qd) = instant.scope, instant.tree, model.spec.qd_names, state
    forces: list[Any] = [0.0] * len(qd)
    acted = {name for one in model.config.blueprint.augmentations for name in one.quantities}
    for dof, name in enumerate(names):
        if f"torque.{name}" in scope.without_networks:
            forces[dof] = scope(f"torque.{name}") - scope.without_networks[f"torque.{name}"]
    for joint, dof in tree.dofs.items():
        index = tree.index_of[joint]
        link = tree.links[index]
        if joint in drives:
            value: Any = scope(f"actuator.{joint}")
            if link.effort_range is not UNSET:
                value = maximum(minimum(value, link.effort_range[1]), link.effort_range[0])
            forces[dof] = forces[dof] + value
        if acted & {f"passive.{joint}", *(f"{joint}.{what}" for what in _PASSIVE)}:
            constrained = model.contacts_of_simulator
            own = passive_torque(link, constants.__getitem__, tree.q_of(index, q)[0], qd[dof], constrained=constrained)
            forces[dof] = forces[dof] + scope(f"passive.{joint}") - own
    if any(name.startswith("wrench.") for name in acted):
        _add_wrenches(forces, instant, tree)
    return forces


def _add_wrenches(forces: list[Any], instant: Instant, tree: Tree) -> None:
    poses = link_poses(tree, instant.motions)
    columns = TreeColumns(tree, poses)
    for index, link in enumerate(tree.links):
        vectors = [
            poses[index].rotation @ np.array([instant.scope(f"wrench.{link.joint.name}.{what}.{x}") for x in "xyz"])
            for what in ("moment", "force")
        ]
        rows = columns.angular_row(index, vectors[0]), columns.row(index, np.zeros(3, dtype=object), vectors[1])
        for dof, (turning, pushing) in enumerate(zip(*rows, strict=True)):
            forces[dof] = forces[dof] + turning + pushing


def _memory_slots(graph: Graph, roots: Sequence[int], after: Sequence[int], moving: int) -> list[int]:
    """Return the memory that the forces depend on, directly or through later steps."""
    slots: list[int] = []
    while True:
        nodes = [graph.nodes[i] for i in live_nodes(graph, [*roots, *(after[i - moving] for i in slots)])]
        read = sorted(node[2] for node in nodes if node[0] == "input" and node[1] == "x" and node[2] >= moving)
        if read == slots:
            return slots
        slots = read


def _require_known(graph: Graph, roots: Sequence[int], where: str) -> None:
    """Raise an InputError for values that only the model's contact solver provides."""
    for node in (graph.nodes[index] for index in live_nodes(graph, roots)):
        if node[0] == "loop" and not node[1].weights:  # not a network
            raise InputError(f"{where}: a network sees {node[1].name}, which MuJoCo has no place for")
        if node[0] == "input" and node[1] not in ("x", "u"):
            raise InputError(f"{where}: a network sees contacts, which MuJoCo finds only after it; valid: other inputs")


@dataclass(frozen=True)
class _Step:
    """The networks' step.

    Attributes:
        code: C functions and their weights, `step` last.
        memory: Number of memory entries.
        drives: Joints whose complete drive is part of the forces.
    """

    code: str
    memory: int
    drives: tuple[str, ...]


_KINDS = {"free": "FREE", "ball": "BALL"}


def write_plugin(identified: IdentifiedRobot, folder: Path) -> tuple[str, ...]:
    """Write a robot's networks as a plugin of MuJoCo: ROBOT_networks.c, and ROBOT_plugin.xml, which includes ROBOT.xml.

    Args:
        identified: The robot, with networks.
        folder: Folder of the MJCF.

    Returns:
        The joints whose drive is in the plugin.
    """
    robot, model = identified.require_robot("MJCF"), identified.model
    if model is None:
        assert identified.network is not None
        step = _recurrent_step(identified, identified.network)
    else:
        step = _traced_step(network_forces(model, identified.free), model.weights.detach().cpu().numpy())
    commands = (robot if model is None else model).spec.controls
    direct = [int(name in step.drives or name in identified.drives) for name in commands]
    joints = [_joint_row(identified, index) for index in range(len(identified.mechanism.links))]
    name = f"{''.join(x if x.isalnum() else '_' for x in robot.name)}_networks"
    title = " ".join(heading(identified, f"Networks of robot {robot.name} for plain MuJoCo")).replace("*/", "")
    text = template(
        "mujoco_plugin.c", TITLE=title, NAME=name, ROBOT=robot.name, JOINTS=len(joints), COMMANDS=len(commands),
        PRELUDE=f"typedef double networks_real;\n#define NETWORKS_DOUBLE 1\n{prelude('networks')}", NQ=robot.spec.nq,
        NV=robot.spec.nv, MEMORY=step.memory, DT=repr(float(identified.step or 0.0)), JOINT_TABLE="\n".join(joints),
        COMMAND_TABLE="\n".join(f"  {{{json.dumps(x)}, {own}}}," for x, own in zip(commands, direct, strict=True)),
        STEP=step.code,
    )  # fmt: skip
    (folder / f"{name}.c").write_text(text, encoding="utf-8")
    root = ElementTree.Element("mujoco", {"model": robot.name})
    plugin = ElementTree.SubElement(ElementTree.SubElement(root, "extension"), "plugin", {"plugin": f"neurodyn.{name}"})
    ElementTree.SubElement(plugin, "instance", {"name": "networks"})
    ElementTree.SubElement(root, "include", {"file": f"{robot.name}.xml"})
    ElementTree.indent(root)
    (folder / f"{robot.name}_plugin.xml").write_text(ElementTree.tostring(root, "unicode") + "\n", encoding="utf-8")
    return step.drives


def _joint_row(identified: IdentifiedRobot, index: int) -> str:
    """Return name, kind and reference point of a joint."""
    joint, model = identified.mechanism.links[index].joint, identified.model
    nominal = (identified if model is None else model).mechanism
    reference = ", ".join(repr(float(x)) for x in nominal.links[index].com)
    return f"  {{{json.dumps(joint.name)}, {_KINDS.get(joint.kind, 'SCALAR')}, {{{reference}}}}},"


_STEP = (
    "static void step(const double *q, const double *qd, const double *u, const double *m, double *forces, "
    "double *after) {\n"
)


def _traced_step(traced: NetworkForces, weights: np.ndarray) -> _Step:
    table = f"static const double weights[] = {{{', '.join(map(repr, weights.astype(float).tolist())) or '0'}}};\n\n"
    moving = traced.positions + traced.velocities
    values = [
        (name, [Expression(traced.graph, index) for index in nodes])
        for name, nodes in (("forces", traced.forces), ("after", traced.after))
    ]
    size = max((moving, *(slot + 1 for slot in traced.slots)))
    lines = [f"real x[{size}];", f"for (int i = 0; i < {traced.positions}; ++i) x[i] = q[i];"]
    lines.append(f"for (int i = 0; i < {traced.velocities}; ++i) x[{traced.positions} + i] = qd[i];")
    lines += [f"x[{slot}] = m[{place}];" for place, slot in enumerate(traced.slots)]
    body = assignments(traced.graph, values, {"x": "x", "u": "u"})
    unused = "(void)x, (void)u, (void)m, (void)after;"
    return _Step(table + _STEP + "\n".join([*lines, unused, body]) + "\n}", len(traced.slots), traced.drives)


def _recurrent_step(identified: IdentifiedRobot, network: TrainedNetwork) -> _Step:
    """Return the step of a GRU, which holds its torques for a period."""
    config, spec = network.config, identified.require_robot("MJCF").spec
    held, width = round(config.period / (identified.step or config.period)), config.hidden[0]
    size = width + 1
    clock = size * len(config.joints)
    lines = [f"const bool again = m[{clock}] < 0.5;", f"for (int i = 0; i < {spec.nv}; ++i) forces[i] = 0;"]
    lines.append(f"for (int i = 0; i < {clock}; ++i) after[i] = m[i];")
    for k, joint in enumerate(config.joints):
        row, dof, control = spec.q_names.index(joint), spec.qd_names.index(joint), spec.controls.index(joint)
        error = f"u[{control}] - q[{row}]"
        if spec.continuous[row]:
            error = f"remainder({error}, 2 * mjPI)"
        texts = {
            "position_error": error, "velocity": f"qd[{dof}]", "position": f"q[{row}]",
            "effort_command": f"u[{control}]", "target_position": f"u[{control}]",
        }  # fmt: skip
        scaled = [f"{s!r} * ({texts[name]})" for name, s in zip(config.signals, config.scales, strict=True)]
        first = size * k
        lines += [
            "if (again) {",
            f"const double x[] = {{{', '.join(scaled)}}};",
            f"network((networks_state *)(after + {first}), x, after + {first + width});",
            f"after[{first + width}] *= {config.effort_scale!r};",
            "}",
            f"forces[{dof}] += after[{first + width}];",
        ]
    lines.append(f"after[{clock}] = fmod(m[{clock}] + 1, {float(held)!r});")
    writer = NetworkWriter(config.inputs, identified.run)
    cells, last = recurrent(network)
    writer.loop(writer.perceptron(writer.recurrent("in", cells), [last], config.activation), 1)
    state = f"typedef struct {{ real hidden_0[{width}]; }} networks_state;\n"
    network_code = math_calls(writer.text()).replace("@", "networks")
    code = "\n".join([state, network_code, _STEP, "(void)q, (void)qd, (void)u;", *lines, "}"])
    return _Step(code, clock + 1, config.joints)
