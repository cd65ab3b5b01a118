# SPDX-License-Identifier: Apache-2.0
"""Networks of a hybrid model as generalised forces beside a simulator's own, traced, and in MuJoCo.

`network_forces` returns the graph; a writer translates it into a target's language. `write_callback` writes Python, a
file with a copy of `sim.mujoco.network_callback`; `write_plugin` writes a plugin in C.
"""

import base64
import inspect
import json
import re
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
from neurodyn.interop.c_code.source import PRELUDE, assigned, math_calls
from neurodyn.interop.identified import ACTUATOR, IdentifiedRobot, TrainedNetwork, heading, recurrent, replaced_drives
from neurodyn.interop.texts import docstring
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.drives.drive import passive_torque
from neurodyn.multibody.mass_matrix import TreeColumns
from neurodyn.multibody.points import link_poses
from neurodyn.multibody.sensors import Instant
from neurodyn.multibody.trace import Graph, Scalar, maximum, minimum
from neurodyn.multibody.trace.expression import Expression
from neurodyn.multibody.trace.recurrence import ProgramInputs
from neurodyn.multibody.trace.source import live_nodes
from neurodyn.sim.mujoco import network_callback

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
    _require_forces(model)
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
    slots = _needed(graph, roots, after, moving)
    return NetworkForces(graph, roots, slots, [after[i - moving] for i in slots], mechanism.nq, mechanism.nv, drives)


def _require_forces(model: HybridDynamics) -> None:
    """Raise an InputError for networks that cannot be expressed as forces."""
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
    """Add the generalised forces of the wrenches on links."""
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


def _needed(graph: Graph, roots: Sequence[int], after: Sequence[int], moving: int) -> list[int]:
    """Return the memory that the forces depend on, directly or through later steps."""
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
    """Return the code of a callback's `step` function; see `sim.mujoco.network_callback.Step`.

    Raises:
        InputError: The forces depend on values that only the model's contact solver provides.
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
    return _PYTHON_STEP.format(body)


_PYTHON_STEP = 'def step(q, qd, u, m, w):\n    """Return forces, and the memory after a step."""\n    {}\n'


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


def write_networks(identified: IdentifiedRobot, folder: Path, userdata: int) -> tuple[int, tuple[str, ...]]:
    """Write ROBOT_networks.py for the networks of a robot, and the plugin: ROBOT_networks.c and ROBOT_plugin.xml.

    Args:
        identified: The robot, with networks.
        folder: Folder of the MJCF.
        userdata: Number of `userdata` entries that the MJCF already uses.

    Returns:
        Total number of `userdata` entries needed, and the joints whose drive is in the file.
    """
    robot = identified.require_robot("MJCF")
    if identified.model is None:
        assert identified.network is not None
        step = _recurrent_step(identified, identified.network)
    else:
        traced = network_forces(identified.model, identified.free)
        weights = identified.model.weights.detach().cpu().numpy()
        c = _c_step(traced, weights)
        step = _Step(python_step(traced, identified.run), c, weights, len(traced.slots), tuple(traced.drives))
    controls = robot.spec.controls if identified.model is None else identified.model.spec.controls
    settings: dict[str, Any] = {
        "joints": [_joint(identified, index) for index in range(len(identified.mechanism.links))],
        "commands": [(name, name in step.drives or name in identified.drives) for name in controls],
        "step": identified.step,
        "memory": step.memory,
        "userdata": userdata,
    }
    _write_callback(identified, folder, step, settings)
    _write_plugin(identified, folder, step, settings)
    return (userdata + 2 + 2 * step.memory if step.memory else 0), step.drives


@dataclass(frozen=True)
class _Step:
    """The networks' step in each language.

    Attributes:
        python: Python function `step`.
        c: C functions and their weights, `step` last.
        weights: Weights that Python reads.
        memory: Number of memory entries.
        drives: Joints whose complete drive is part of the forces.
    """

    python: str
    c: str
    weights: np.ndarray
    memory: int
    drives: tuple[str, ...]


def _write_callback(identified: IdentifiedRobot, folder: Path, step: _Step, settings: dict[str, Any]) -> None:
    robot = identified.require_robot("MJCF")
    module = inspect.getsource(network_callback).partition('"""\n')[2]
    title = heading(identified, f"Networks of robot {robot.name} for plain MuJoCo")
    lines = inspect.getdoc(network_callback)
    assert lines is not None
    name = f"{variable_name(robot.name)}_networks"
    used = lines.replace("arm_networks", name).replace("arm.xml", f"{robot.name}.xml")
    constants = [
        f"SETTINGS = {settings!r}",
        f"WEIGHTS = np.frombuffer(base64.b64decode({_encoded(step.weights)}), '<f8')",
    ]
    head = ["# ruff: noqa", docstring([*title, "", *used.splitlines()]), module.rstrip(), "", ""]
    file = "\n".join([*head, *constants, "", "", step.python, "", _INSTALL])
    file = file.replace("import math\n", "import base64\nimport math\n", 1)
    (folder / f"{name}.py").write_text(file, encoding="utf-8")


_PLUGIN = """/* @TITLE
 *
 * A passive plugin of MuJoCo, for ROBOT_plugin.xml, which includes ROBOT.xml; it has the forces of NAME.py. Compile and
 * load it before the model, with the folder that `python -c "import mujoco; print(mujoco.__path__[0])"` prints:
 *
 *   gcc -O2 -shared -fPIC -I$FOLDER/include NAME.c -o libNAME.so -L$FOLDER -l:libmujoco.so.VERSION -lm
 *   mujoco.mj_loadPluginLibrary("./libNAME.so"); model = mujoco.MjModel.from_xml_path("ROBOT_plugin.xml")
 *
 * What networks remember is state of the plugin: copies of mjData go on by themselves, and resets begin anew. */
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <mujoco/mujoco.h>

@PRELUDE
enum { JOINTS = @JOINTS, COMMANDS = @COMMANDS, POSITIONS = @NQ, VELOCITIES = @NV, MEMORY = @MEMORY };
enum { SCALAR, BALL, FREE };

/* Joints, with the offset of an encoder, and for a free joint the reference point of its velocity. */
static const struct { const char *name; int kind; double bias; double reference[3]; } joints[] = {
@JOINT_TABLE
};

/* Joints with a command, and whether it is `ctrl` itself or the force of the joint's actuators. */
static const struct { const char *name; int direct; } commands[COMMANDS + 1] = {
@COMMAND_TABLE
  {NULL, 0}
};

@STEP

static double clipped(double value, const mjtNum *range) {
  return value < range[0] ? range[0] : value > range[1] ? range[1] : value;
}

static double command(const mjModel *m, const mjData *d, int joint, int direct) {
  double sum = 0;
  for (int i = 0; i < m->nu; ++i) {
    if (m->actuator_trntype[i] != mjTRN_JOINT || m->actuator_trnid[2 * i] != joint) continue;
    double value = d->ctrl[i];
    if (!direct) {
      if (m->actuator_ctrllimited[i]) value = clipped(value, m->actuator_ctrlrange + 2 * i);
      const mjtNum *bias = m->actuator_biasprm + mjNBIAS * i;
      const double gear = m->actuator_gear[6 * i];
      value = m->actuator_gainprm[mjNGAIN * i] * value + bias[0] +
              gear * (bias[1] * d->qpos[m->jnt_qposadr[joint]] + bias[2] * d->qvel[m->jnt_dofadr[joint]]);
      if (m->actuator_forcelimited[i]) value = clipped(value, m->actuator_forcerange + 2 * i);
      value *= gear;
    }
    sum += value;
  }
  return sum;
}

static int found(const mjModel *m, const char *name) { return mj_name2id(m, mjOBJ_JOINT, name); }

static int nstate(const mjModel *m, int instance) {
  (void)m, (void)instance;
  return 2 * MEMORY;
}

static int init(const mjModel *m, mjData *d, int instance) {
  (void)d, (void)instance;
  for (int i = 0; i < JOINTS; ++i) {
    if (found(m, joints[i].name) >= 0) continue;
    mju_warning("NAME: the model has no joint of the networks; valid: ROBOT_plugin.xml");
    return -1;
  }
  if (MEMORY && fabs(m->opt.timestep - @DT) > 1e-9 * @DT) {
    mju_warning("NAME: the time step is not that of the networks");
    return -1;
  }
  return 0;
}

static void reset(const mjModel *m, mjtNum *state, void *data, int instance) {
  (void)m, (void)data, (void)instance;
  if (MEMORY) memset(state, 0, 2 * MEMORY * sizeof *state);
}

static void compute(const mjModel *m, mjData *d, int instance, int capability) {
  double q[POSITIONS + 1], qd[VELOCITIES + 1], u[COMMANDS + 1], forces[VELOCITIES + 1], own[3];
  mjtNum *memory = d->plugin_state + m->plugin_stateadr[instance];
  (void)capability;
  int row = 0, dof = 0;
  for (int i = 0; i < JOINTS; ++i) {
    const int joint = found(m, joints[i].name), kind = joints[i].kind;
    const mjtNum *position = d->qpos + m->jnt_qposadr[joint], *rate = d->qvel + m->jnt_dofadr[joint];
    if (kind == SCALAR) {
      q[row++] = position[0] + joints[i].bias;
      qd[dof++] = rate[0];
      continue;
    }
    const mjtNum *turn = kind == FREE ? position + 3 : position;
    mjtNum unit[4] = {turn[0], turn[1], turn[2], turn[3]}, spin[3], arm[3];
    mju_normalize4(unit);
    mju_rotVecQuat(spin, kind == FREE ? rate + 3 : rate, unit);
    if (kind == FREE) {
      mju_rotVecQuat(arm, joints[i].reference, unit);
      mju_cross(own, spin, arm);
      for (int k = 0; k < 3; ++k) q[row++] = position[k];
      for (int k = 0; k < 3; ++k) qd[dof++] = rate[k] + own[k];
    }
    for (int k = 1; k < 5; ++k) q[row++] = turn[k % 4];
    for (int k = 0; k < 3; ++k) qd[dof++] = spin[k];
  }
  for (int i = 0; i < COMMANDS; ++i) u[i] = command(m, d, found(m, commands[i].name), commands[i].direct);
  step(q, qd, u, memory, forces, memory + MEMORY);
  dof = 0;
  for (int i = 0; i < JOINTS; ++i) {
    const int joint = found(m, joints[i].name), kind = joints[i].kind;
    mjtNum *force = d->qfrc_passive + m->jnt_dofadr[joint];
    if (kind == SCALAR) {
      force[0] += forces[dof++];
      continue;
    }
    const mjtNum *turn = d->qpos + m->jnt_qposadr[joint] + (kind == FREE ? 3 : 0);
    mjtNum unit[4] = {turn[0], turn[1], turn[2], turn[3]}, back[4], arm[3], moment[3] = {0, 0, 0};
    mju_normalize4(unit);
    mju_negQuat(back, unit);
    if (kind == FREE) {
      mju_rotVecQuat(arm, joints[i].reference, unit);
      mju_cross(moment, arm, forces + dof);
      for (int k = 0; k < 3; ++k) *force++ += forces[dof++];
    }
    for (int k = 0; k < 3; ++k) moment[k] += forces[dof++];
    mju_rotVecQuat(own, moment, back);
    for (int k = 0; k < 3; ++k) force[k] += own[k];
  }
}

static void advance(const mjModel *m, mjData *d, int instance) {
  mjtNum *memory = d->plugin_state + m->plugin_stateadr[instance];
  if (MEMORY) memcpy(memory, memory + MEMORY, MEMORY * sizeof *memory);
}

mjPLUGIN_LIB_INIT(NAME) {
  mjpPlugin plugin;
  mjp_defaultPlugin(&plugin);
  plugin.name = "neurodyn.NAME";
  plugin.capabilityflags = mjPLUGIN_PASSIVE;
  plugin.nstate = nstate;
  plugin.init = init;
  plugin.reset = reset;
  plugin.compute = compute;
  plugin.advance = advance;
  mjp_registerPlugin(&plugin);
}
"""

_KINDS = {"free": "FREE", "ball": "BALL"}


def _write_plugin(identified: IdentifiedRobot, folder: Path, step: _Step, settings: dict[str, Any]) -> None:
    robot = identified.require_robot("MJCF")
    name, spec = f"{variable_name(robot.name)}_networks", robot.spec
    prelude = PRELUDE.replace("@UPPER", "NETWORKS").replace("@", "networks")
    joints = [
        f"  {{{json.dumps(joint)}, {_KINDS.get(kind, 'SCALAR')}, {bias!r}, {{{', '.join(map(repr, reference))}}}}},"
        for joint, kind, bias, reference in settings["joints"]
    ]
    parts = {
        "TITLE": " ".join(heading(identified, f"Networks of robot {robot.name} for plain MuJoCo")).replace("*/", ""),
        "PRELUDE": f"typedef double networks_real;\n#define NETWORKS_DOUBLE 1\n{prelude}",
        "JOINTS": str(len(joints)), "COMMANDS": str(len(settings["commands"])), "NQ": str(spec.nq),
        "NV": str(spec.nv), "MEMORY": str(step.memory), "DT": repr(float(settings["step"] or 0.0)),
        "JOINT_TABLE": "\n".join(joints),
        "COMMAND_TABLE": "\n".join(f"  {{{json.dumps(one)}, {int(direct)}}}," for one, direct in settings["commands"]),
        "STEP": step.c,
    }  # fmt: skip
    text = re.sub(r"@([A-Z_]+)", lambda found: parts[found[1]], _PLUGIN.replace("NAME", name))
    (folder / f"{name}.c").write_text(text.replace("ROBOT", robot.name), encoding="utf-8")
    root = ElementTree.Element("mujoco", {"model": robot.name})
    plugin = ElementTree.SubElement(ElementTree.SubElement(root, "extension"), "plugin", {"plugin": f"neurodyn.{name}"})
    ElementTree.SubElement(plugin, "instance", {"name": "networks"})
    ElementTree.SubElement(root, "include", {"file": f"{robot.name}.xml"})
    ElementTree.indent(root)
    (folder / f"{robot.name}_plugin.xml").write_text(ElementTree.tostring(root, "unicode") + "\n", encoding="utf-8")


_C_STEP = (
    "static void step(const double *q, const double *qd, const double *u, const double *m, double *forces, "
    "double *after) {\n"
)


def _c_step(traced: NetworkForces, weights: np.ndarray) -> str:
    """Return the C function, and the table of its weights."""
    table = f"static const double weights[] = {{{', '.join(map(repr, weights.astype(float).tolist())) or '0'}}};\n\n"
    moving = traced.positions + traced.velocities
    values = [
        (name, [Expression(traced.graph, index) for index in found])
        for name, found in (("forces", traced.forces), ("after", traced.after))
    ]
    size = max((moving, *(slot + 1 for slot in traced.slots)))
    lines = [f"real x[{size}];", f"for (int i = 0; i < {traced.positions}; ++i) x[i] = q[i];"]
    lines.append(f"for (int i = 0; i < {traced.velocities}; ++i) x[{traced.positions} + i] = qd[i];")
    lines += [f"x[{slot}] = m[{place}];" for place, slot in enumerate(traced.slots)]
    body = assigned(traced.graph, values, {"x": "x", "u": "u"})
    unused = "(void)x, (void)u, (void)m, (void)after;"
    return table + _C_STEP + "\n".join([*lines, unused, body]) + "\n}"


def variable_name(robot: str) -> str:
    """Return a robot's name as a Python identifier."""
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


def _recurrent_step(identified: IdentifiedRobot, network: TrainedNetwork) -> _Step:
    """Return the step of a GRU, which holds its torques for a period."""
    config, spec = network.config, identified.require_robot("MJCF").spec
    held = round(config.period / (identified.step or config.period))
    width = config.hidden[0]
    order = ("gru.weight_ih_l0", "gru.weight_hh_l0", "gru.bias_ih_l0", "gru.bias_hh_l0", "head.weight", "head.bias")
    parts = [network.tensors[name].double().flatten().numpy() for name in order]
    head = sum(len(part) for part in parts[:4])
    size = width + 1
    clock = size * len(config.joints)
    lines = [f"again = m[{clock}] < 0.5", "forces, after = [0.0] * len(qd), []"]
    native = [f"const bool again = m[{clock}] < 0.5;", f"for (int i = 0; i < {spec.nv}; ++i) forces[i] = 0;"]
    native.append(f"for (int i = 0; i < {clock}; ++i) after[i] = m[i];")
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
        seen = ", ".join(scaled).replace("math.remainder", "remainder").replace("2.0 * math.pi", "2 * mjPI")
        native += [
            "if (again) {",
            f"const double x[] = {{{seen}}};",
            f"network((networks_state *)(after + {first}), x, after + {first + width});",
            f"after[{first + width}] *= {config.effort_scale!r};",
            "}",
            f"forces[{dof}] += after[{first + width}];",
        ]
    lines.append(f"return forces, [*after, (m[{clock}] + 1.0) % {float(held)!r}]")
    native.append(f"after[{clock}] = fmod(m[{clock}] + 1, {float(held)!r});")
    text = _PYTHON_STEP.format("\n    ".join(lines))
    unused = "(void)q, (void)qd, (void)u;"
    writer = NetworkWriter(config.inputs, identified.run)
    cells, last = recurrent(network)
    writer.loop(writer.perceptron(writer.recurrent("in", cells), [last], config.activation), 1)
    state = f"typedef struct {{ real hidden_0[{width}]; }} networks_state;\n"
    c = "\n".join([state, math_calls(writer.text()).replace("@", "networks"), _C_STEP, unused, *native, "}"])
    return _Step(text, c, np.concatenate(parts), clock + 1, config.joints)
