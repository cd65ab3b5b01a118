# SPDX-License-Identifier: Apache-2.0
"""Policies as C: the network with its memory, and the task's observation and action mappings."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.dynamics.quantities import Quantities
from neurodyn.interop.c_code.networks import NetworkWriter, columns, modules_of
from neurodyn.interop.c_code.source import CArray, CFunction, CUnit, assignments
from neurodyn.multibody.trace import Graph, maximum, minimum
from neurodyn.multibody.trace.expression import Expression, apply_loop
from neurodyn.multibody.trace.tensors import trace
from neurodyn.policy.artifact import PolicyConfig, PolicyNetwork, load_policy, require_unprivileged, task_of
from neurodyn.tasks import Memory, Task
from neurodyn.tasks.sensing import GRAVITY, GYROSCOPE, Reading

_LAST, _COMMAND = "last_action", "command"


def policy_unit(policy: str) -> CUnit:
    """Return a policy as C.

    `act` maps an observation to an action, raw and in the task's units. `observe` and `control` are included for tasks
    whose observation and control depend only on measured quantities, the command and the last action.

    Raises:
        InputError: There is no such policy, it observes randomised quantities, or part of it has no C form.
    """
    config, network = load_policy(policy)
    require_unprivileged(config, policy)
    functions, memory, helpers = _act(config, network, policy)
    about = [
        f"Trained for {config.dt:g} s between two actions; actions are cut off at {config.limit:g}. A scaled action "
        f"is: {config.action_meaning}."
    ]
    task, left_out = _task(config, policy)
    made: tuple[CFunction, ...] = ()
    if task is not None:
        try:
            made = _around(task)
        except (InputError, RuntimeError, KeyError, NotImplementedError) as error:
            left_out = str(error).splitlines()[0]
    if left_out:
        about.append(f"Without functions of measured quantities: {left_out}.")
    return CUnit(
        title=f"Policy of task {config.task}, robot {config.robot}", about=tuple(about), functions=(functions, *made),
        memory=memory, numbers={"dt": config.dt}, helpers=helpers,
    )  # fmt: skip


def _act(config: PolicyConfig, network: PolicyNetwork, policy: str) -> tuple[CFunction, tuple[CArray, ...], str]:
    settings, actions = config.network, len(config.actions)
    observation = CArray("observation", len(config.observations), ", ".join(config.observations))
    inputs, memory = observation.width, [CArray(_LAST, actions, ", ".join(config.actions))]
    frame = inputs + (actions if settings.with_actions else 0)
    writer = NetworkWriter(settings.seen_from(inputs, actions), f"policy {policy}")
    body = ["const real *frames = observation;"]
    if settings.with_actions or settings.history > 1:
        memory += [
            CArray("frames", frame * settings.history, "observations, newest first"),
            CArray("begun", 1, "", "int"),
        ]
        body = [_HISTORY.format(frame=frame, inputs=inputs, actions=actions if settings.with_actions else 0,
                                older=frame * (settings.history - 1))]  # fmt: skip
    graph = Graph()
    seen = [
        (x - mean) / deviation
        for x, mean, deviation in zip(
            graph.inputs("frames", settings.seen_from(inputs, actions)), columns(network.mean),
            columns(network.deviation), strict=True,
        )
    ]  # fmt: skip
    if config.clip is not None:
        seen = [maximum(minimum(x, config.clip), -config.clip) for x in seen]
    _write(writer, network, inputs)
    outputs = apply_loop(graph, writer.loop("last", actions), seen)
    action = [maximum(minimum(x, config.limit), -config.limit) for x in outputs]
    scaled = [x * scale for x, scale in zip(action, config.action_scale, strict=True)]
    results = (
        CArray("action", actions, ", ".join(config.actions)),
        CArray("scaled_action", actions, config.action_meaning),
    )
    body += [assignments(graph, [("action", action), ("scaled_action", scaled)], ("frames",))]
    body += [f"for (int i = 0; i < {actions}; ++i) state->{_LAST}[i] = action[i];"]
    act = CFunction(
        "act", "Returns the action for an observation.", (observation,), results, "\n".join(body), "changes"
    )
    return act, (*memory, *writer.memory), writer.text()


_HISTORY = """real *frames = state->frames;
for (int i = {older} - 1; i >= 0; --i) frames[{frame} + i] = frames[i];
for (int i = 0; i < {inputs}; ++i) frames[i] = observation[i];
for (int i = 0; i < {actions}; ++i) frames[{inputs} + i] = state->last_action[i];
if (!state->begun[0]) for (int i = 0; i < {older}; ++i) frames[{frame} + i] = frames[i % {frame}];
state->begun[0] = 1;"""


def _write(writer: NetworkWriter, network: PolicyNetwork, observations: int) -> None:
    """Write memory, encoder and layers; the outputs are the array `last`."""
    activation, x = network.settings.activation, "in"
    if network.memory is not None:
        x = writer.recurrent(x, network.memory)
    elif network.encoder is not None:
        layers = modules_of(network.encoder)
        latent, width = writer.perceptron(x, layers, activation), layers[-1].out_features
        x = writer.array(observations + width)
        writer.line(f"for (int i = 0; i < {observations}; ++i) {x}[i] = in[i];")
        writer.line(f"for (int i = 0; i < {width}; ++i) {x}[{observations} + i] = {latent}[i];")
    writer.line(f"const real *last = {writer.perceptron(x, modules_of(network.layers), activation)};")


def _task(config: PolicyConfig, policy: str) -> tuple[Task | None, str]:
    """Return the task of a policy, or the reason why there is none."""
    try:
        return task_of(config, None, policy), ""
    except InputError as error:
        return None, str(error)


@dataclass(frozen=True)
class _Measured:
    """Quantities that a task reads, as vectors of one world."""

    names: tuple[str, ...]
    arrays: tuple[CArray, ...]
    shapes: tuple[tuple[int, ...], ...]

    def quantities(self, task: Task, tensors: tuple[Tensor, ...]) -> Quantities:
        values = {
            name: tensor.reshape(1, *shape)
            for name, shape, tensor in zip(self.names, self.shapes, tensors, strict=True)
        }
        return Quantities(f"measurements of {task.name!r}", {}, task.contacts, known=values)


def _around(task: Task) -> tuple[CFunction, ...]:
    measured = _measurements(task)
    commands = task.commands(1, torch.Generator()).shape[1]
    asked = (name for name in task.observations if name.startswith("command."))
    command = CArray(_COMMAND, commands, ", ".join([*asked, *task.unseen_command]))
    action = CArray("action", len(task.actions), ", ".join(task.actions))
    given = (*measured.arrays, command)

    def memory(last: Tensor, command: Tensor, quantities: Quantities) -> Memory:
        velocity = quantities.get("joint_velocity", last)
        return Memory(last, command, velocity, velocity[:, :0], torch.zeros(1, dtype=torch.long))

    def observe(*tensors: Tensor) -> Tensor:
        *seen, command, last = tensors
        quantities = measured.quantities(task, tuple(seen))
        return task.observe(quantities, memory(last, command, quantities))

    def control(*tensors: Tensor) -> Tensor:
        *seen, command, action = tensors
        quantities = measured.quantities(task, tuple(seen))
        applied = task.control(action, quantities, memory(torch.zeros_like(action), command, quantities))
        value = applied.torque if applied.target is None else applied.target
        assert value is not None
        return value

    spec = task.declaration().spec
    observation = CArray("observation", len(task.observations), ", ".join(task.observations))
    controls = CArray("control", spec.nu, ", ".join(spec.controls))
    wanted = "torques or forces" if _gives_torque(task) else "targets"
    return (
        _function("observe", "Assembles the observation from measured quantities, the command and the last action.",
                  given, observation, observe, task, CArray("state->last_action", len(task.actions))),
        _function("control", f"Returns the robot's control, {wanted}, under an action.",
                  (*given, action), controls, control, task),
    )  # fmt: skip


def _gives_torque(task: Task) -> bool:
    return task.declaration().command == "torque" and "torque" in task.action_meaning


def _function(
    name: str, about: str, given: tuple[CArray, ...], result: CArray, function: Callable[..., Tensor], task: Task,
    kept: CArray | None = None,
) -> CFunction:  # fmt: skip
    graph = Graph()
    arrays = [*given, *([kept] if kept else [])]
    inputs: list[list[Expression]] = [graph.inputs(array.name, array.width) for array in arrays]
    values = trace(graph, function, inputs, f"task {task.name!r}")[0]
    read = [array.name for array in arrays]
    body = assignments(graph, [(result.name, values)], read)
    used = tuple(array for array in given if f"{array.name}[" in body)
    return CFunction(name, about, used, (result,), body, "reads" if "state->" in body else "")


def _measurements(task: Task) -> _Measured:
    from neurodyn.dynamics.quantities import StateReader, gravity_direction

    robot = task.declaration()
    reader = StateReader(
        robot.spec,
        owner=task.name,
        down=gravity_direction(torch.tensor([0.0, 0.0, -9.81])),
        contact_names=task.contacts,
    )
    seen = reader.read(task.start(1, torch.Generator().manual_seed(0)), torque=torch.zeros(1, robot.spec.nu))
    readings = [term.source for term in task.readings if isinstance(term.source, Reading)]
    memory = task.begin(seen, torch.Generator())
    seen = seen.replacing({one.name: partial(_read, one, seen, memory) for one in readings})
    wanted = (*(one.name for one in readings), *task.quantities)
    names = tuple(name for name in wanted if name in seen)  # the others may be for rewards only
    shapes = tuple(tuple(seen[name].shape[1:]) for name in names)
    joints = ", ".join(joint.name for joint in robot.spec.joints if joint.kind != "free")
    arrays = [
        CArray(
            re.sub(r"\W", "_", name), math.prod(shape), joints if name.startswith("joint_") else _UNITS.get(name, "")
        )
        for name, shape in zip(names, shapes, strict=True)
    ]
    return _Measured(names, tuple(arrays), shapes)


def _read(reading: Reading, state: Quantities, memory: Memory, _: Quantities) -> Tensor:
    return reading(state, memory)


_UNITS = {
    GYROSCOPE: "angular velocity [rad/s], axes of the IMU",
    GRAVITY: "direction of gravity (unit, downwards), axes of the IMU",
    "base_position": "origin of the base link [m], world axes",
    "base_height": "of the origin of the base link [m]",
    "base_orientation": "quaternion from base to world, scalar last",
    "base_rotation": "matrix from base to world, row by row",
    "base_linear_velocity": "of the origin of the base link [m/s], base axes",
    "base_angular_velocity": "[rad/s], base axes",
    "projected_gravity": "direction of gravity, base axes",
}
"""Meaning of the elements of each quantity (`dynamics.quantities`)."""
