# SPDX-License-Identifier: Apache-2.0
"""Networks of a hybrid model as generalised forces beside a simulator's own, traced, and as a callback of MuJoCo.

`network_forces` returns the graph; a writer turns it into the language of a target. `write_callback` is the one for
Python, whose file has a copy of `sim.mujoco.network_callback`.
"""

import base64
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET

from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.interop.identified import ACTUATOR, IdentifiedRobot, TrainedNetwork, heading, replaced_drives
from neurodyn.interop.texts import docstring
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.drives.drive import passive_torque
from neurodyn.multibody.mass_matrix import TreeColumns
from neurodyn.multibody.points import link_poses
from neurodyn.multibody.sensors import Instant
from neurodyn.multibody.trace import Graph, Scalar, maximum, minimum
from neurodyn.multibody.trace.recurrence import ProgramInputs
from neurodyn.multibody.trace.text import live_nodes
from neurodyn.sim.mujoco import network_callback

_FORCES = ("torque", "passive", "wrench", "actuator", "command", "error")
_PASSIVE = ("damping", "friction", "stiffness", "rest")


@dataclass(frozen=True)
class NetworkForces:
    """Generalised forces of networks, and of the drives that networks change, as a traced function.

    Attributes:
        graph: The graph; its inputs are "x" (positions, velocities, memory of the model's step) and "u" (commands).
        forces: Nodes of the forces, one for each velocity coordinate [N m or N].
        slots: Elements of "x" that are memory, in order.
        after: Nodes of the memory after the step.
        positions: Number of positions.
        velocities: Number of velocities.
        drives: Joints whose whole drive is among the forces.
    """

    graph: Graph
    forces: list[int]
    slots: list[int]
    after: list[int]
    positions: int
    velocities: int
    drives: tuple[str, ...]


def network_forces(model: HybridDynamics, values: Mapping[str, float]) -> NetworkForces:
    """Trace the networks of a model with these values of its free quantities.

    Raises:
        InputError: A network acts on something that is no force, or sees something that only the model's contact solver
            knows.
    """
    _require_forces(model)
    engine, blueprint = model.plane_engine, model.config.blueprint
    constants: dict[str, Scalar] = {**engine.constants, **values}
    graph, mechanism = Graph(), model.mechanism
    moving = mechanism.nq + mechanism.nv
    inputs = ProgramInputs(
        graph, graph.inputs("x", moving), graph.inputs("u", model.spec.nu), graph.inputs("h", engine.held), []
    )
    q, qd, instant = engine.instant(inputs, constants, blueprint)
    instant.scope.require_acted()
    drives = replaced_drives(model)
    forces = _forces(model, instant, (q, qd), constants, drives)
    roots = [graph.lift(value).index for value in forces]
    after = [graph.lift(value).index for value in instant.memory.after()] if instant.memory.size else []
    slots = _needed(graph, roots, after, moving)
    return NetworkForces(graph, roots, slots, [after[i - moving] for i in slots], mechanism.nq, mechanism.nv, drives)


def _require_forces(model: HybridDynamics) -> None:
    """Raise an InputError for networks without a place among forces."""
    kept = () if model.contacts_of_simulator else tuple(f"{n}.{x}" for n in model.mechanism.names for x in _PASSIVE)
    where = f"model of {model.spec.robot!r}"
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
        if one.activation not in network_callback.NETWORK_ACTIVATIONS:
            valid = ", ".join(network_callback.NETWORK_ACTIVATIONS)
            raise InputError(f"{where}: a network's activation {one.activation!r} has no form in numpy; valid: {valid}")


def _forces(
    model: HybridDynamics, instant: Instant, state: tuple[list[Any], list[Any]], constants: Mapping[str, Scalar],
    drives: Sequence[str],
) -> list[Any]:  # fmt: skip
    """Return the generalised forces that a simulator of the mechanism without the networks lacks."""
    scope, tree, names, (q, qd) = instant.scope, instant.tree, model.spec.qd_names, state
    forces: list[Any] = [0.0] * len(qd)
    acted = {name for one in model.config.blueprint.augmentations for name in one.quantities}
    for dof, name in enumerate(names):
        if f"torque.{name}" in scope.unaided:
            forces[dof] = scope(f"torque.{name}") - scope.unaided[f"torque.{name}"]
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
    """Add the generalised forces of the wrenches on links."""
    poses = link_poses(tree, instant.motions)
    columns = TreeColumns(tree, poses)
    for index, link in enumerate(tree.links):
        vectors = [
            poses[index].turn @ np.array([instant.scope(f"wrench.{link.joint.name}.{what}.{x}") for x in "xyz"])
            for what in ("moment", "force")
        ]
        rows = columns.turning(index, vectors[0]), columns.row(index, np.zeros(3, dtype=object), vectors[1])
        for dof, (turning, pushing) in enumerate(zip(*rows, strict=True)):
            forces[dof] = forces[dof] + turning + pushing


def _needed(graph: Graph, roots: Sequence[int], after: Sequence[int], moving: int) -> list[int]:
    """Return the memory that the forces depend on, by way of later steps too."""
    found: list[int] = []
    while True:
        live = live_nodes(graph, [*roots, *(after[i - moving] for i in found)])
        nodes = [graph.nodes[i] for i in live]
        more = sorted(node[2] for node in nodes if node[0] == "input" and node[1] == "x" and node[2] >= moving)
        if more == found:
            return found
        found = more


_FORMS = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "neg": "-{}",
    "min": "{1} if {1} < {0} else {0}", "max": "{1} if {0} < {1} else {0}", "less": "{2} if {0} < {1} else {3}",
}  # fmt: skip


def python_step(traced: NetworkForces, where: str) -> str:
    """Return the function `step` of a callback as text; see `sim.mujoco.network_callback.Step`.

    Raises:
        InputError: The forces depend on what only the model's contact solver knows.
    """
    graph, roots = traced.graph, [*traced.forces, *traced.after]
    lines: list[str] = []
    places = {slot: k for k, slot in enumerate(traced.slots)}
    for index in live_nodes(graph, roots):
        kind, *rest = graph.nodes[index]
        names = [_name(graph, i) for i in graph.arguments(index)]
        if kind == "input":
            lines.append(f"v{index} = {_element(traced, places, rest[0], rest[1], where)}")
        elif kind == "loop":
            if not rest[0].python:
                raise InputError(f"{where}: a network sees {rest[0].name}, which MuJoCo has no place for")
            lines += [f"x = ({', '.join(names)},)", f"o{index} = {rest[0].python}"]
        elif kind == "result":
            lines.append(f"v{index} = o{rest[0]}[{rest[1]}]")
        elif kind in _FORMS:
            lines.append(f"v{index} = {_FORMS[kind].format(*names)}")
        elif kind != "constant":
            lines.append(f"v{index} = math.{kind}({', '.join(names)})")
    forces, after = (", ".join(_name(graph, i) for i in part) for part in (traced.forces, traced.after))
    body = "\n    ".join([*lines, f"return [{forces}], [{after}]"])
    return _step_text(body)


def _step_text(body: str) -> str:
    return f'def step(q, qd, u, m, w):\n    """Return forces, and the memory after a step."""\n    {body}\n'


def _element(traced: NetworkForces, places: Mapping[int, int], array: str, index: int, where: str) -> str:
    if array == "u":
        return f"u[{index}]"
    if array != "x":
        raise InputError(f"{where}: a network sees contacts, which MuJoCo finds only after it; valid: other inputs")
    if index < traced.positions:
        return f"q[{index}]"
    moving = traced.positions + traced.velocities
    return f"qd[{index - traced.positions}]" if index < moving else f"m[{places[index]}]"


def _name(graph: Graph, index: int) -> str:
    node = graph.nodes[index]
    return f"v{index}" if node[0] != "constant" else f"({node[1]!r})"


def write_callback(identified: IdentifiedRobot, folder: Path, userdata: int) -> tuple[int, tuple[str, ...]]:
    """Write ROBOT_networks.py for the networks of a robot.

    Args:
        identified: The robot, with networks.
        folder: Folder of the MJCF.
        userdata: Numbers of `userdata` that the MJCF uses already.

    Returns:
        Numbers of `userdata` that it needs in all, and the joints whose drive is in the file.
    """
    robot = identified.require_robot("MJCF")
    if identified.model is None:
        assert identified.network is not None
        text, weights, memory, drives = _recurrent_step(identified, identified.network)
    else:
        traced = network_forces(identified.model, identified.free)
        text, memory, drives = python_step(traced, identified.run), len(traced.slots), traced.drives
        weights = identified.model.weights.detach().cpu().numpy()
    controls = robot.spec.controls if identified.model is None else identified.model.spec.controls
    settings: dict[str, Any] = {
        "joints": [_joint(identified, index) for index in range(len(identified.mechanism.links))],
        "commands": [(name, name in drives or name in identified.drives) for name in controls],
        "step": identified.step,
        "memory": memory,
        "userdata": userdata,
    }
    module = inspect.getsource(network_callback).partition('"""\n')[2]
    title = heading(identified, f"Networks of robot {robot.name} for plain MuJoCo")
    lines = inspect.getdoc(network_callback)
    assert lines is not None
    name = f"{variable_name(robot.name)}_networks"
    used = lines.replace("arm_networks", name).replace("arm.xml", f"{robot.name}.xml")
    constants = [
        f"SETTINGS = {settings!r}",
        f"WEIGHTS = np.frombuffer(base64.b64decode({_encoded(weights)}), '<f8')",
    ]
    head = ["# ruff: noqa", docstring([*title, "", *used.splitlines()]), module.rstrip(), "", ""]
    file = "\n".join([*head, *constants, "", "", text, "", _INSTALL])
    file = file.replace("import math\n", "import base64\nimport math\n", 1)
    (folder / f"{name}.py").write_text(file, encoding="utf-8")
    return (userdata + 2 + 2 * memory if memory else 0), tuple(drives)


def variable_name(robot: str) -> str:
    """Return a robot's name as a name of Python."""
    return "".join(x if x.isalnum() else "_" for x in robot)


_INSTALL = '''def install(model):
    """Make MuJoCo call the networks in every step of this model, and return the callback."""
    import mujoco

    callback = MujocoNetworks(model, step, WEIGHTS, SETTINGS)
    mujoco.set_mjcb_control(callback)
    return callback
'''


def _encoded(weights: np.ndarray) -> str:
    text = base64.b64encode(np.ascontiguousarray(weights, "<f8").tobytes()).decode()
    lines = [f"    {text[i : i + 100]!r}" for i in range(0, len(text), 100)]
    return "\n".join(["(", *(lines or ["    ''"]), ")"])


def _joint(identified: IdentifiedRobot, index: int) -> tuple[str, str, float, tuple[float, ...]]:
    link = identified.mechanism.links[index]
    nominal = identified.mechanism.links if identified.model is None else identified.model.mechanism.links
    drive = None if identified.model is None else identified.model.mechanism.drives.get(link.joint.name)
    bias = identified.free.get(f"{ACTUATOR}{link.joint.name}.bias", 0.0 if drive is None else drive.bias)
    return link.joint.name, link.joint.kind, float(bias), tuple(map(float, nominal[index].com))


def _recurrent_step(
    identified: IdentifiedRobot, network: TrainedNetwork
) -> tuple[str, np.ndarray, int, tuple[str, ...]]:
    """Return the step of a GRU, its weights, the size of its memory, and its joints; it holds torques for a period."""
    config, spec = network.config, identified.require_robot("MJCF").spec
    held = round(config.period / (identified.step or config.period))
    width = config.hidden[0]
    order = ("gru.weight_ih_l0", "gru.weight_hh_l0", "gru.bias_ih_l0", "gru.bias_hh_l0", "head.weight", "head.bias")
    parts = [network.tensors[name].double().flatten().numpy() for name in order]
    head = sum(len(part) for part in parts[:4])
    size = width + 1
    lines = [f"again = m[{size * len(config.joints)}] < 0.5", "forces, after = [0.0] * len(qd), []"]
    for k, joint in enumerate(config.joints):
        row, dof, control = spec.q_names.index(joint), spec.qd_names.index(joint), spec.controls.index(joint)
        error = f"u[{control}] - q[{row}]"
        if spec.continuous[row]:
            error = f"math.remainder({error}, 2.0 * math.pi)"
        texts = {
            "position_error": error, "velocity": f"qd[{dof}]", "position": f"q[{row}]",
            "effort_command": f"u[{control}]", "target_position": f"u[{control}]",
        }  # fmt: skip
        scaled = [f"{s!r} * ({texts[name]})" for name, s in zip(config.signals, config.scales, strict=True)]
        first = size * k
        lines += [
            f"h, torque = m[{first} : {first + width}], m[{first + width}]",
            "if again:",
            f"    h = gated(({', '.join(scaled)},), h, w[:{head}])",
            f"    torque = float(w[{head}:{head + width}] @ np.array(h) + w[{head + width}]) * {config.effort_scale!r}",
            f"forces[{dof}] += torque",
            "after += [*h, torque]",
        ]
    lines.append(f"return forces, [*after, (m[{size * len(config.joints)}] + 1.0) % {float(held)!r}]")
    body = "\n    ".join(lines)
    text = (
        f'def step(q, qd, u, m, w):\n    """Return the network\'s torques and its memory after a step."""\n    {body}\n'
    )
    return text, np.concatenate(parts), size * len(config.joints) + 1, config.joints
