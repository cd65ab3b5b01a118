# SPDX-License-Identifier: Apache-2.0
"""Newton: settings.json, the function that applies it, and actuator networks as neural drives."""

import json
from pathlib import Path
from typing import Any

import torch

from neurodyn.core.activations import ACTIVATIONS, require_activation
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.mechanism import Link
from neurodyn.core.errors import InputError
from neurodyn.interop.identified import BODY, IdentifiedRobot, TrainedNetwork, drive_names, perceptron
from neurodyn.interop.texts import template_file
from neurodyn.nets.onnx_file import require_onnx

SETTINGS, FUNCTION = "settings.json", "apply.py"
"""File of settings, and the script that applies them."""

_PASSIVE = ("armature", "damping", "friction", "stiffness", "rest", "lower", "upper")
_SPRINGS = ("limit_stiffness", "limit_damping")
_COLUMNS = {"position_error", "velocity", "position", "target_position"}


def write_newton(identified: IdentifiedRobot, folder: Path) -> set[str]:
    """Write settings.json, apply.py and the network's file; see `interop.formats.SIMULATOR_FORMATS`."""
    placed: set[str] = set()
    joints, links, drives = {}, {}, {}
    for link in identified.mechanism.links:
        name = link.joint.name
        links[name] = {"mass": link.mass, "com": list(link.com), "inertia": list(link.inertia)}
        placed |= identified.free_names(*(f"{name}.{what}" for what in BODY))
        joints[name], own = _joint(identified, link)
        placed |= own
    for name, drive in identified.drives.items():
        drives[name], numbers = _drive(drive)
        placed |= drive_names(name, numbers)
    settings: dict[str, Any] = {
        "format": 1,
        "robot": None if identified.robot is None else identified.robot.name,
        "run": identified.run,
        "identified": {n: {"value": x, "declared": identified.nominal[n]} for n, x in identified.free.items()},
        "joints": joints,
        "links": links,
        "drives": drives,
        "networks": [] if identified.network is None else [_network(identified.network, folder)],
    }
    if identified.robot is not None:
        settings["gravity"] = list(identified.mechanism.gravity)
    if identified.uniform_friction:
        settings["friction"] = identified.contact["contact.friction"]
        placed |= identified.free_names("contact.friction")
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    (folder / FUNCTION).write_text(template_file("newton_apply.py"), encoding="utf-8")
    return placed | identified.free_names("gravity") | identified.rigid_frictions()


def _joint(identified: IdentifiedRobot, link: Link) -> tuple[dict[str, Any], set[str]]:
    """Return the settings of a joint, and names of the quantities they represent."""
    name, joint = link.joint.name, link.joint
    values: dict[str, Any] = {}
    kept: list[str] = []
    if joint.scalar:
        soft = bool(identified.contact)  # limits are soft constraints, which Newton parameterises differently
        kept = [*_PASSIVE, *(() if soft or link.lower is None else _SPRINGS)]
        values = {what: getattr(link, what) for what in kept if getattr(link, what) is not None}
        values |= {"damping": identified.damping(link), "friction": identified.friction(link)}
        if name in identified.effort_limits:
            values["effort_limit"] = identified.effort_limits[name]
        if identified.is_free(f"{name}.axis"):
            values["axis"] = list(joint.axis)
    if identified.is_free(f"{name}.origin"):
        values["origin"] = list(joint.parent_frame[:3])
    return values, identified.free_names(*(f"{name}.{what}" for what in (*kept, "origin", "axis")))


def _drive(drive: Drive) -> tuple[dict[str, Any], set[str]]:
    """Return the settings of a drive, and the drive parameters they represent."""
    placed, clamping = {"delay"}, {}
    pd = {"kp": 0.0, "kd": 0.0}
    if (gains := drive.pd_gains()) is not None:
        kp, kd, held = gains
        pd = {"kp": kp, "kd": kd, "const_effort": -kp * drive.bias}
        placed |= {*held, "bias"}
    limit = {} if drive.effort_limit is None else {"max_effort": drive.effort_limit}
    if drive.saturation_effort is not None:
        line = {"saturation_effort": drive.saturation_effort, "velocity_limit": drive.velocity_limit}
        most = {} if drive.effort_limit is None else {"max_motor_effort": drive.effort_limit}
        clamping["ClampingDCMotor"] = line | most
        placed |= {"saturation_effort", "velocity_limit", "effort_limit"}
    elif limit:
        clamping["ClampingMaxEffort"] = limit
        placed.add("effort_limit")
    return {"pd": pd, "delay": drive.delay, "clamping": clamping}, placed


def _network(network: TrainedNetwork, folder: Path) -> dict[str, Any]:
    """Write an actuator network as ONNX, and return its entry in the settings."""
    known = {"mlp": ("DriveNeuralMLP", _write_perceptron), "gru": ("DriveNeuralGRU", _write_recurrent)}
    drive, write = known[network.config.network]
    file = "actuator_network.onnx"
    write(network, folder / file)
    return {"drive": drive, "file": file, "joints": list(network.joints), "period": network.config.period}


def _write_perceptron(network: TrainedNetwork, path: Path) -> None:
    network.require_pair("Newton's DriveNeuralMLP")
    onnx = require_onnx()
    config, helper = network.config, onnx.helper
    nodes, weights, last = [], [], "input"
    linears = [module for module in perceptron(network) if isinstance(module, torch.nn.Linear)]
    for index, linear in enumerate(linears):
        weights += [_initialiser(onnx, f"w{index}", linear.weight), _initialiser(onnx, f"b{index}", linear.bias)]
        out = "effort" if index == len(linears) - 1 else f"z{index}"
        nodes.append(helper.make_node("Gemm", [last, f"w{index}", f"b{index}"], [out], transB=1))
        last = out
        if index < len(linears) - 1:
            last = _activation(helper, config.activation, out, f"y{index}", nodes)
    metadata = {
        "input_order": network.input_order,
        "input_idx": list(config.steps),
        "pos_scale": network.scale("position_error"),
        "vel_scale": network.scale("velocity"),
        "effort_scale": config.effort_scale,
        "period": config.period,
        "joints": list(config.joints),
    }
    _save(onnx, path, nodes, weights, {"input": ["joints", config.inputs]}, {"effort": ["joints", 1]}, metadata)


def _activation(helper: Any, name: str, before: str, after: str, nodes: list[Any]) -> str:
    require_activation(name, "onnx")
    operators = ACTIVATIONS[name].onnx
    assert operators is not None
    added: list[tuple[str, list[str], str]] = []

    def add(operator: str, *inputs: str) -> str:
        name = f"{after}_{operator.lower()}"
        count = sum(kind == operator for kind, _, _ in added)
        added.append((operator, list(inputs), f"{name}_{count}" if count else name))
        return added[-1][2]

    last = operators(add, before)
    nodes += [helper.make_node(kind, inputs, [after if out == last else out]) for kind, inputs, out in added]
    return after


def _write_recurrent(network: TrainedNetwork, path: Path) -> None:
    """Write a GRU with the scales folded into its weights, because Newton's standard deviations must be positive."""
    config, tensors = network.config, network.tensors
    unknown = sorted(set(config.signals) - _COLUMNS)
    if unknown:
        raise InputError(
            f"{network.run}: its actuator network sees {', '.join(unknown)}, which Newton's DriveNeuralGRU does not; "
            f"valid: {', '.join(sorted(_COLUMNS))}"
        )
    onnx = require_onnx()
    width = config.hidden[0]
    scales = torch.tensor(config.scales, dtype=torch.float32)
    weights = [
        _initialiser(onnx, "W", _gates(tensors["gru.weight_ih_l0"] * scales, width)[None]),
        _initialiser(onnx, "R", _gates(tensors["gru.weight_hh_l0"], width)[None]),
        _initialiser(onnx, "B", torch.cat([_gates(tensors[f"gru.bias_{x}_l0"], width) for x in ("ih", "hh")])[None]),
        _initialiser(onnx, "head_weight", tensors["head.weight"] * config.effort_scale),
        _initialiser(onnx, "head_bias", tensors["head.bias"] * config.effort_scale),
        onnx.numpy_helper.from_array(torch.tensor([0, 1]).numpy(), "ones"),
    ]
    helper = onnx.helper
    gru = ["input", "W", "R", "B", "", "hidden"]
    nodes = [
        helper.make_node("GRU", gru, ["states", "hidden_next"], hidden_size=width, linear_before_reset=1),
        helper.make_node("Squeeze", ["states", "ones"], ["state"]),
        helper.make_node("Gemm", ["state", "head_weight", "head_bias"], ["effort"], transB=1),
    ]
    columns = list(config.signals)
    metadata = {
        "input_columns": columns,
        "normalization": {
            "inputs": {"mean": dict.fromkeys(columns, 0.0), "std": dict.fromkeys(columns, 1.0)},
            "targets": {"mean": {"torque": 0.0}, "std": {"torque": 1.0}},
        },
        "sample_dt_s": config.period,
        "joints": list(config.joints),
    }
    inputs = {"input": [1, "joints", config.inputs], "hidden": [1, "joints", width]}
    outputs = {"effort": ["joints", 1], "hidden_next": [1, "joints", width]}
    _save(onnx, path, nodes, weights, inputs, outputs, metadata)


def _gates(weight: torch.Tensor, width: int) -> torch.Tensor:
    """Reorder gates from torch's (r, z, n) to ONNX's (z, r, n)."""
    reset, update, new = weight.split(width)
    return torch.cat([update, reset, new])


def _initialiser(onnx: Any, name: str, tensor: torch.Tensor) -> Any:
    return onnx.numpy_helper.from_array(tensor.detach().float().contiguous().numpy(), name)


def _save(
    onnx: Any, path: Path, nodes: list[Any], weights: list[Any], inputs: dict[str, Any], outputs: dict[str, Any],
    metadata: dict[str, Any],
) -> None:  # fmt: skip
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    given = [helper.make_tensor_value_info(name, real, shape) for name, shape in inputs.items()]
    results = [helper.make_tensor_value_info(name, real, shape) for name, shape in outputs.items()]
    graph = helper.make_graph(nodes, "actuator_network", given, results, initializer=weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {"metadata": json.dumps(metadata)})
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
