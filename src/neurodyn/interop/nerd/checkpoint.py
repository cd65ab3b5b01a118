# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of NeRD (MODEL/nn/model.pt): pickled modules, from which tensors, sizes and statistics are read.

A file holds a pair (model, name of the robot). The model has the modules `encoders.low_dim` (without layers in the
published files), `transformer_model` and `model`, the statistics `input_rms` (by input) and `output_rms`, and the order
of inputs, `low_dim_input_names`. cfg.yaml, two folders up, holds the number of frames that the network reads. Source:
models/ and solvers/ of https://github.com/NVlabs/neural-robot-dynamics.
"""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.config import from_dict, read_plain
from neurodyn.core.errors import InputError, choices
from neurodyn.dynamics.same_robot import built_articulation
from neurodyn.interop.checkpoints import InertObject, read_inert, take, tensor_of
from neurodyn.interop.nerd.model import NerdDynamics, NerdNetConfig, Part
from neurodyn.robots import Robot

_OF = "NeRD"
_FRAMES = 10
_PARTS: dict[str, Part] = {
    "states_embedding": "states",
    "states": "states",
    "joint_f": "torques",
    "joint_acts": "torques",
}
"""Inputs by their names in a checkpoint."""
_SOLVER = {
    "prediction_type": ("relative",), "states_embedding_type": (None, "identical"),
    "name": ("TransformerNeuralSolver", "TransformerNeuralIntegrator"),
}  # fmt: skip
"""Supported values of the solver's settings."""
_BLOCKS = {
    "ln_1": "norm1", "attn.c_attn": "qkv", "attn.c_proj": "out", "ln_2": "norm2", "mlp.c_fc": "widen",
    "mlp.c_proj": "narrow",
}  # fmt: skip


def read_nerd(path: Path, robot: Robot, statistics: Path | None) -> NerdDynamics:
    """Return the network of a checkpoint as dynamics of a robot with the same order of joints.

    See `formats.MODEL_LAYOUTS`; `statistics` must be None, because the checkpoint holds them.
    """
    if statistics is not None:
        raise InputError("--statistics is for --model rwm; a checkpoint of NeRD holds its own")
    where, pair = str(path), read_inert(path, _OF)
    model = pair[0] if isinstance(pair, tuple | list) and pair else pair
    if not isinstance(model, InertObject) or not model.kind.endswith("ModelMixedInput"):
        raise InputError(f"{where}: holds no ModelMixedInput; expected a checkpoint of {_OF}")
    names, parts = _parts(model, where)
    try:
        arrays = model.tensors()
        net = _config(model, arrays, where)
    except (LookupError, TypeError, RecursionError):
        raise InputError(f"{where}: its modules are not laid out as a transformer of {_OF}") from None
    known = None if find_spec("newton") is None else built_articulation(robot)
    dynamics = NerdDynamics(robot.spec, net, _frames(path), parts, known, robot.name)
    _fill(dynamics, model, names, arrays, where)
    return dynamics.requires_grad_(False).eval()


def _parts(model: InertObject, where: str) -> tuple[list[str], tuple[Part, ...]]:
    """Return the inputs of a frame: their names in the file, and in `NerdDynamics`."""
    names = model.get("low_dim_input_names")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{where}: does not say what its inputs are; expected a checkpoint of {_OF}")
    other = [name for name in names if name not in _PARTS]
    if other:
        raise InputError(
            f"{where}: sees {choices(other)}, contact points and base of the authors' simulator; valid: networks of "
            f"{choices(_PARTS)} alone, as the cartpole's"
        )
    return names, tuple(_PARTS[name] for name in names)


def _config(model: InertObject, arrays: Mapping[str, Tensor], where: str) -> NerdNetConfig:
    modules = model.modules()
    gpt = modules.get("transformer_model")
    if gpt is None or "rnn" in modules:
        raise InputError(f"{where}: its network is no transformer; valid: a transformer")
    if any(name.startswith("encoders.") for name in arrays):
        raise InputError(f"{where}: its inputs pass through layers of an encoder; valid: none")
    weight = take(arrays, "transformer_model.transformer.wte.weight", where, _OF)
    positions = take(arrays, "transformer_model.transformer.wpe.weight", where, _OF)
    block = re.compile(r"transformer_model\.transformer\.h\.(\d+)\.")
    depth = len({found[1] for name in arrays if (found := block.match(name))})
    head = [take(arrays, name, where, _OF) for name in _head(arrays, "weight")]
    attention = gpt.modules()["transformer"].modules()["h"].modules()["0"].modules()["attn"]
    plain = {
        "inputs": weight.shape[1], "outputs": head[-1].shape[0], "width": weight.shape[0], "depth": depth,
        "heads": attention.get("n_head"), "positions": positions.shape[0],
        "head": [len(layer) for layer in head[:-1]], "activation": _activation(modules["model"], where),
        "bias": "transformer_model.transformer.h.0.attn.c_attn.bias" in arrays,
    }  # fmt: skip
    return from_dict(plain, NerdNetConfig, where)


def _activation(head: InertObject, where: str) -> str:
    """Return the activation of the head."""
    body = head.modules()["feature_net"].modules()["body"].modules().values()
    found = {one.kind.rpartition(".")[2].lower() for one in body} - {"linear"}
    if len(found) != 1:
        raise InputError(f"{where}: its head has {choices(sorted(found)) or 'no activation'}; valid: one activation")
    return found.pop()


def _head(arrays: Mapping[str, Tensor], what: str) -> list[str]:
    """Return the names of the head's layers, in order."""
    pattern = re.compile(rf"model\.feature_net\.body\.(\d+)\.{what}")
    hidden = sorted((int(found[1]), name) for name in arrays if (found := pattern.fullmatch(name)))
    return [*(name for _, name in hidden), f"model.output_net.{what}"]


def _frames(path: Path) -> int:
    """Return the number of frames that the network reads by its cfg.yaml (10 without one)."""
    beside = path.resolve().parent.parent / "cfg.yaml"
    plain = read_plain(beside) if beside.is_file() else {}
    environment = plain.get("env", {}) if isinstance(plain, dict) else {}
    solver = environment.get("neural_solver_cfg") or environment.get("neural_integrator_cfg") or {}
    for name, valid in _SOLVER.items():
        if name in solver and solver[name] not in valid:
            raise InputError(f"{beside}: {name} is {solver[name]!r}; valid: {choices(str(one) for one in valid)}")
    frames = solver.get("num_states_history", _FRAMES)
    if not isinstance(frames, int) or frames < 1:
        raise InputError(f"{beside}: num_states_history is {frames!r}; valid: at least 1")
    return frames


def _fill(
    dynamics: NerdDynamics, model: InertObject, names: list[str], arrays: Mapping[str, Tensor], where: str
) -> None:
    """Copy weights and statistics to a network."""
    net = dynamics.net
    if dynamics.window > net.config.positions:
        raise InputError(f"{where}: has {net.config.positions} positions, and sees {dynamics.window} frames")
    inputs = model.get("input_rms") if model.get("normalize_input") else None
    outputs = model.get("output_rms") if model.get("normalize_output") else None
    if not isinstance(inputs, Mapping) or not isinstance(outputs, InertObject):
        raise InputError(f"{where}: holds no statistics of inputs and outputs; expected a checkpoint of {_OF}")
    gpt = "transformer_model.transformer."
    theirs = {
        "embed.weight": f"{gpt}wte.weight", "embed.bias": f"{gpt}wte.bias", "positions": f"{gpt}wpe.weight",
        "norm.weight": f"{gpt}ln_f.weight", "norm.bias": f"{gpt}ln_f.bias",
        "project.weight": "transformer_model.lm_head.weight",
    }  # fmt: skip
    for depth in range(net.config.depth):
        for name, ours in _BLOCKS.items():
            for what in ("weight", "bias"):
                theirs[f"blocks.{depth}.{ours}.{what}"] = f"{gpt}h.{depth}.{name}.{what}"
    head = [name.removesuffix(".weight") for name in net.head.state_dict() if name.endswith(".weight")]
    for what in ("weight", "bias"):
        theirs |= {f"head.{ours}.{what}": name for ours, name in zip(head, _head(arrays, what), strict=True)}
    found = {
        **{ours: take(arrays, theirs[ours], where, _OF) for ours in dict(net.named_parameters())},
        **{f"input_{ours}": torch.cat([_statistic(inputs.get(name), part, where) for name in names])
           for ours, part in (("mean", "mean"), ("variance", "var"))},
        "output_mean": _statistic(outputs, "mean", where), "output_variance": _statistic(outputs, "var", where),
    }  # fmt: skip
    if any(bool((found[name] < 0).any()) for name in ("input_variance", "output_variance")):
        raise InputError(f"{where}: has negative variances")
    try:
        net.load_state_dict(found)
    except RuntimeError as error:
        raise InputError(f"{where}: {str(error).splitlines()[-1].strip()}") from None


def _statistic(rms: Any, name: str, where: str) -> Tensor:
    value = tensor_of(rms.get(name)) if isinstance(rms, InertObject) else None
    if value is None or value.ndim != 1 or not bool(value.isfinite().all()):
        raise InputError(f"{where}: holds no {name} of its inputs or outputs; expected a checkpoint of {_OF}")
    return value.float()
