# SPDX-License-Identifier: Apache-2.0
"""Neural and hybrid dynamics as C: one frame, and the mechanism terms that feedback laws need."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.contacts import ContactPoint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.interop.c_code.networks import NetworkWriter, columns, write_network
from neurodyn.interop.c_code.source import CArray, CFunction, CUnit, assignments
from neurodyn.interop.onnx import PlainFrame
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.contacts.held_ground import plane_numbers
from neurodyn.multibody.drives.drive import passive_torque
from neurodyn.multibody.drives.friction import dry_friction, smooth_friction
from neurodyn.multibody.mass_matrix import TreeInertia
from neurodyn.multibody.points import link_poses
from neurodyn.multibody.trace import Graph, Scalar, maximum, minimum
from neurodyn.multibody.trace.expression import Expression, apply_loop
from neurodyn.multibody.trace.recurrence import ConstantFrame
from neurodyn.multibody.trace.tensors import trace
from neurodyn.multibody.vectors import array
from neurodyn.nets.mlp import MLP
from neurodyn.nets.predictor import Predictor
from neurodyn.robots.sections import EndEffector
from neurodyn.tasks.task import reset_states


def neural_unit(model: NeuralDynamics) -> CUnit:
    """Return one frame of neural dynamics as C, with its own gravity and ground plane.

    Raises:
        InputError: Network, base or ground has no C form.
    """
    spec, what = model.spec, f"model of {model.spec.robot!r}"
    frame, graph = PlainFrame(model), Graph()
    given, results = _frame_arrays(model)
    q, qd, control = (graph.inputs(one.name, one.width) for one in given)
    motion, helpers, before = model.encoding.motion, "", ""
    ahead: list[list[Expression]] = []
    if motion is not None:
        helpers = _static_frame(motion.constant(model.home), spec.nq, spec.nv, spec.nu)
        before = f"real ahead_q[{spec.nq}]; real ahead_qd[{spec.nv}];\nahead(q, qd, control, ahead_q, ahead_qd);\n"
        ahead = [graph.inputs("ahead_q", spec.nq), graph.inputs("ahead_qd", spec.nv)]

    def encode(q: Tensor, qd: Tensor, control: Tensor, *ahead: Tensor) -> Tensor:
        return frame.encode(frame.base_prediction(q, qd, *ahead), control)

    def decode(q: Tensor, qd: Tensor, output: Tensor, *ahead: Tensor) -> tuple[Tensor, Tensor]:
        after = frame.decode(frame.base_prediction(q, qd, *ahead), output)
        return after.q, after.qd

    writer = NetworkWriter(model.encoding.inputs, what)
    if _is_constant(model.predictor):
        output: Sequence[Scalar] = columns(model.predictor.step(torch.zeros(1, model.encoding.inputs), None)[0])
        network = ""
    else:
        seen = trace(graph, encode, [q, qd, control, *ahead], what)[0]
        output, network = _predict(writer, graph, model.predictor, seen), writer.text()
    after = trace(graph, decode, [q, qd, output, *ahead], what)
    arrays = [*(one.name for one in given), "ahead_q", "ahead_qd"]
    body = before + assignments(graph, list(zip(("q_next", "qd_next"), after, strict=True)), arrays)
    step = CFunction(
        "step", f"Predicts the state after one frame of {spec.dt:g} s.", given, results, _all_used(given, body),
        "changes" if writer.memory else "",
    )  # fmt: skip
    return CUnit(
        title=f"Neural dynamics of robot {spec.robot}", about=_about(model), functions=(step,),
        memory=tuple(writer.memory), numbers={"dt": spec.dt}, helpers=helpers + network, begins=_begins(model),
    )  # fmt: skip


def _is_constant(predictor: Predictor) -> bool:
    last = [predictor.net.output_layer, *([] if predictor.skip is None else [predictor.skip])]
    return isinstance(predictor.net, MLP) and not any(bool(layer.weight.any()) for layer in last)


def _predict(writer: NetworkWriter, graph: Graph, predictor: Predictor, inputs: Sequence[Scalar]) -> list[Expression]:
    """Add a network with its input and output normalisation; return outputs in physical units."""
    before, after, width = predictor.normaliser, predictor.denormaliser, predictor.net.outputs
    seen = [(x - mean) * gain for x, mean, gain in zip(inputs, columns(before.mean), columns(before.gain), strict=True)]
    if predictor.clip is not None:
        seen = [maximum(minimum(x, predictor.clip), -predictor.clip) for x in seen]
    y = write_network(writer, "in", predictor.net)
    if predictor.skip is not None:
        assert isinstance(predictor.skip, torch.nn.Linear)
        skip = writer.linear("in", predictor.skip.weight, predictor.skip.bias)
        writer.line(f"for (int i = 0; i < {width}; ++i) {skip}[i] += {y}[i];")
        y = skip
    outputs = apply_loop(graph, writer.loop(y, width), [graph.lift(x) for x in seen])
    scales = columns(after.std * (after.gain != 0))
    return [graph.lift(mean + x * scale) for x, mean, scale in zip(outputs, columns(after.mean), scales, strict=True)]


def hybrid_unit(model: HybridDynamics) -> CUnit:
    """Return one frame of hybrid dynamics as C, and gravity, inverse dynamics, passive torques and Jacobians.

    Raises:
        InputError: The ground is not a plane.
    """
    spec, mechanism = model.spec, model.mechanism
    frame, helpers = _constant_frame(model)
    given, results = _frame_arrays(model)
    body = _frame_text(frame, spec.nq, spec.nv, model.memory, mechanism.hidden or 0)
    about = f"Predicts the state after one frame of {spec.dt:g} s, in {frame.substeps} steps."
    if model.memory:
        about += " The memory follows from what is given, frame by frame, measured states as well."
    memory = (CArray("memory", model.memory, "hidden joints, delay lines, motors, networks"),) if model.memory else ()
    step = CFunction("step", about, given, results, _all_used(given, body), "changes" if memory else "")
    values: dict[str, Scalar] = {**mechanism.quantities(), **model.plane_engine.constants}
    values |= dict(zip(model.config.free, frame.parameters, strict=True))
    return CUnit(
        title=f"Hybrid dynamics of robot {spec.robot}", about=_about(model),
        functions=(step, *(() if mechanism.hidden else _laws(model, values))), memory=memory,
        numbers={"dt": spec.dt, "substeps": frame.substeps}, helpers=helpers, double=True, begins=_begins(model),
    )  # fmt: skip


def _constant_frame(model: HybridDynamics) -> tuple[ConstantFrame, str]:
    """Return the frame of a model with its own numbers, and the table of its weights; errors: see `hybrid_unit`."""
    spec = model.spec
    if plane_numbers(model.home.ground) is None:
        raise InputError(
            f"model of {spec.robot!r}: its ground is no plane, and has no form in C; valid: models whose own ground is "
            "one plane, or none"
        )
    held, parameters, weights = model.values(model.home, *(torch.zeros(1, n).double() for n in (spec.nq, spec.nv)))
    program, fixed = model.plane_engine.program, [] if held is None else columns(held)
    numbers = ", ".join(f"{x!r}" for x in columns(weights))
    table = f"static const real weights[] = {{{numbers}}};\n" if program.sizes.weights else ""
    return ConstantFrame(
        program.sizes, program.step, model.config.substeps, tuple(fixed), tuple(columns(parameters))
    ), table


def model_frame(model: HybridDynamics) -> str:
    """Return a static function `model_frame` for one frame, from a memory to the memory after it; see `hybrid_unit`."""
    spec = model.spec
    frame, table = _constant_frame(model)
    body = _frame_text(frame, spec.nq, spec.nv, model.memory, 0, ("memory", "memory_later"))
    arrays = "const real *q, const real *qd, const real *control, real *q_next, real *qd_next"
    given = _all_used([CArray("control", spec.nu), CArray("memory", 1), CArray("memory_later", 1)], body)
    return f"{table}static void model_frame(const real *memory, real *memory_later, {arrays}) {{\n{given}\n}}\n"


def contact_places(model: HybridDynamics, points: Sequence[ContactPoint], q: Sequence[Scalar]) -> list[Scalar]:
    """Return contact points in the frame of a floating base, for positions of the joints after it."""
    mechanism = model.mechanism
    values: dict[str, Scalar] = {**mechanism.quantities(), **model.plane_engine.constants}
    named = [(one.name, one.joint, one.point) for one in points]
    return _places(mechanism, values, named, [0.0] * 6 + [1.0, *q], jacobian=False)


def _frame_arrays(model: Dynamics) -> tuple[tuple[CArray, ...], tuple[CArray, ...]]:
    spec = model.spec
    positions, velocities = (
        ", ".join(f"{name} [{unit}]" for name, unit in zip(names, units, strict=True))
        for names, units in ((spec.q_names, spec.q_units), (spec.qd_names, spec.qd_units))
    )
    controls = ", ".join(spec.controls)
    control = CArray("control", spec.nu, f"{spec.control_kind} of {controls}" if controls else "")
    given = (CArray("q", spec.nq, positions), CArray("qd", spec.nv, velocities), control)
    return given, (CArray("q_next", spec.nq), CArray("qd_next", spec.nv))


def _about(model: NeuralDynamics | HybridDynamics) -> tuple[str, ...]:
    """Return comment lines on a model's conventions, gravity, ground and caveat."""
    home = model.home
    assert home.gravity is not None
    gravity = ", ".join(f"{x:.6g}" for x in home.gravity.tolist())
    plane = plane_numbers(home.ground)
    ground = "no ground" if home.ground is None or plane is None else (
        f"a plane through ({plane[0]:g}, {plane[1]:g}, {plane[2]:g}) with normal "
        f"({plane[3]:g}, {plane[4]:g}, {plane[5]:g})"
    )  # fmt: skip
    lines = [f"Gravity ({gravity}) m/s^2, {ground}."]
    if model.spec.floating:
        lines.append(
            "The pose of a free joint is that of its body's origin, with the quaternion's scalar last; its velocity is "
            "that of the centre of mass, in world axes."
        )
    return (*lines, *([model.caveat] if model.caveat else []))


def _begins(model: Dynamics) -> dict[str, tuple[float, ...]]:
    """Return a reset state of the robot, for the program that times a step."""
    robot, spec = model.robot, model.spec
    if robot is not None:
        state = reset_states(robot, 1, torch.Generator().manual_seed(0))
        return {"q": tuple(columns(state.q)), "qd": tuple(columns(state.qd))}
    q = [0.0] * spec.nq
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if not joint.scalar:
            q[place.quaternion.stop - 1] = 1.0
    return {"q": tuple(q), "qd": (0.0,) * spec.nv}


def _all_used(given: Sequence[CArray], body: str) -> str:
    """Return statements that use every array, since all frames have the same signature."""
    unused = [f"(void){one.name};" for one in given if one.width and not re.search(rf"\b{one.name}\b", body)]
    return "\n".join([*unused, body])


def _frame_text(
    frame: ConstantFrame, nq: int, nv: int, memory: int = 0, hidden: int = 0,
    kept_in: tuple[str, str] = ("state->memory", "state->memory"),
) -> str:  # fmt: skip
    """Return statements from q, qd, control (and a memory, which starts with hidden joints) to q_next and qd_next.

    The memory is read from the first array of `kept_in` and written to the second.
    """
    graph, size = Graph(), frame.sizes.state
    values = [Expression(graph, index) for index in frame.trace(graph)]
    before: list[str] = []
    body = assignments(graph, [("after", values)], {"x": "s", "u": "control"}, before)
    first = nq + hidden
    parts = [("q", 0, nq, 0), ("qd", first, nv, 0)]
    kept = [("", nq, hidden, 0), ("", first + nv, size - first - nv, hidden)]
    kept = [part for part in kept if part[2]] if memory else []

    def copy_code(into: bool) -> str:
        lines = []
        for name, start, count, offset in (*parts, *kept):
            other = (name if into else f"{name}_next") if name else kept_in[not into]
            one, two = f"s[{start} + i]", f"{other}[{offset} + i]"
            lines.append(f"for (int i = 0; i < {count}; ++i) {one if into else two} = {two if into else one};")
        return "\n".join(lines)

    return "\n".join(
        [
            f"real s[{size}]; real after[{size}];",
            f"real last[{nv}]; real change[{nv}]; bool warm = false;" if re.search(r"\bwarm\b", body) else "",
            copy_code(True),
            *before,
            f"for (int substep = 0; substep < {frame.substeps}; ++substep) {{",
            body,
            f"for (int i = 0; i < {size}; ++i) s[i] = after[i];",
            "}",
            copy_code(False),
        ]
    )


def _static_frame(frame: ConstantFrame, nq: int, nv: int, nu: int) -> str:
    """Return a static function `ahead` for the base motion."""
    body = _all_used([CArray("control", nu)], _frame_text(frame, nq, nv))
    arrays = "const real *q, const real *qd, const real *control, real *q_next, real *qd_next"
    return f"static void ahead({arrays}) {{\n{body}\n}}\n"


def _laws(model: HybridDynamics, values: dict[str, Scalar]) -> tuple[CFunction, ...]:
    """Return C functions for a mechanism's gravity, inverse dynamics, passive torques and Jacobians."""
    spec, mechanism = model.spec, model.mechanism
    (q, qd, _), _ = _frame_arrays(model)
    qdd = CArray("qdd", spec.nv, "accelerations of the coordinates of qd")
    tau = CArray("tau", spec.nv, "generalised forces along the coordinates of qd")
    without = "without contacts, friction, damping, springs and limits"
    functions = [
        _law("inverse_dynamics", f"Returns the forces that give accelerations, {without}.", (q, qd, qdd), tau,
             lambda q, qd, qdd: _inverse(mechanism, values, q, qd, qdd)),
        _law("gravity", "Returns the forces that hold the robot at rest in free space.", (q,), tau,
             lambda q: _inverse(mechanism, values, q, [0.0] * spec.nv, [0.0] * spec.nv)),
        _law("friction", "Returns the forces against friction, damping and springs of joints and drives.", (q, qd), tau,
             lambda q, qd: _against_friction(mechanism, values, q, qd)),
    ]  # fmt: skip
    points = [(one.name, one.joint, one.point) for one in mechanism.points]
    end: EndEffector | None = None if model.robot is None else model.robot.end_effector
    if end is not None:
        points.append(("end effector", mechanism.names.index(end.joint), end.point))
    if points:
        names = ", ".join(name for name, *_ in points)
        places = CArray("places", 3 * len(points), f"world axes [m], of {names}")
        rates = CArray("rates", 3 * len(points) * spec.nv, "by point, axis and coordinate of qd")
        functions += [
            _law("points", "Returns the places of points of the robot.", (q,), places,
                 lambda q: _places(mechanism, values, points, q, jacobian=False)),
            _law("jacobian", "Returns the velocities of these points per unit of each velocity.", (q,), rates,
                 lambda q: _places(mechanism, values, points, q, jacobian=True)),
        ]  # fmt: skip
    return tuple(one for one in functions if one.body)


def _law(name: str, about: str, given: tuple[CArray, ...], result: CArray, law: Any) -> CFunction:
    graph = Graph()
    values = law(*(graph.inputs(one.name, one.width) for one in given))
    body = assignments(graph, [(result.name, values)], [one.name for one in given])
    return CFunction(name, about, given, (result,), _all_used(given, body))


def _inverse(mechanism: Mechanism, values: dict[str, Scalar], q: list[Any], qd: list[Any], qdd: list[Any]) -> list[Any]:
    r"""Return $M(q) \ddot q + h(q, \dot q)$."""
    tree = Tree(mechanism, values.__getitem__)
    inertia = TreeInertia(tree, link_poses(tree, tree.motions(q, qd)))
    return [a + b for a, b in zip(inertia.times(qdd), inertia.bias(tree, qd), strict=True)]


def _against_friction(mechanism: Mechanism, values: dict[str, Scalar], q: list[Any], qd: list[Any]) -> list[Any]:
    """Return minus the passive joint torques, without limits, and the friction inside drives."""
    tree = Tree(mechanism, values.__getitem__)
    forces: list[Any] = [0.0] * mechanism.nv
    held: list[Any] = []
    if any(drive.loaded for drive in mechanism.drives.values()):
        held = TreeInertia(tree, link_poses(tree, tree.motions(q, qd))).bias(tree, qd)
    for name, dof in tree.dofs.items():
        index = tree.index_of[name]
        link = msgspec.structs.replace(tree.links[index], lower=None, upper=None)
        forces[dof] = -passive_torque(link, values.__getitem__, tree.q_of(index, q)[0], qd[dof])
        drive = mechanism.drives.get(name)
        if drive is not None and not drive.acts_elsewhere:
            number = {what: values[f"actuator.{name}.{what}"] for what in drive.quantities()}.__getitem__
            # The motor holds the robot up, which is what its gear is loaded with.
            dry = dry_friction(drive, number, qd[dof], held[dof] if drive.loaded else 0.0, None)
            forces[dof] = forces[dof] + smooth_friction(dry, qd[dof]) + number("viscous") * qd[dof]
    return forces


def _places(
    mechanism: Mechanism, values: dict[str, Scalar], points: Sequence[tuple[str, int, Sequence[float]]], q: list[Any],
    *, jacobian: bool,
) -> list[Any]:  # fmt: skip
    tree = Tree(mechanism, values.__getitem__)
    poses = link_poses(tree, tree.motions(q, [0.0] * mechanism.nv))
    columns = TreeInertia(tree, poses) if jacobian else None
    numbers: list[Any] = []
    for _, link, point in points:
        arm = poses[link].rotation @ tree.in_link_frame(link, array(point))
        if columns is None:
            numbers += list(poses[link].origin + arm)
            continue
        for axis in range(3):
            numbers += columns.row(link, arm, array([float(axis == k) for k in range(3)]))
    return numbers
