# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for Isaac Lab and mjlab, which are not installed: configurations with the documented fields, and actuators.

Field names are those of Isaac Lab 2.3.2 (docs, isaaclab.actuators, isaaclab.assets, isaaclab.sim) and mjlab 1.6.
"""

import sys
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

_ACTUATOR = {
    "joint_names_expr", "effort_limit", "velocity_limit", "effort_limit_sim", "velocity_limit_sim", "stiffness",
    "damping", "armature", "friction", "dynamic_friction", "viscous_friction",
}  # fmt: skip
_MOTOR = _ACTUATOR | {"saturation_effort"}
ISAACLAB = {
    "isaaclab.actuators": {
        "ImplicitActuatorCfg": _ACTUATOR, "IdealPDActuatorCfg": _ACTUATOR, "DCMotorCfg": _MOTOR,
        "DelayedPDActuatorCfg": _ACTUATOR | {"min_delay", "max_delay"},
        "ActuatorNetLSTMCfg": _MOTOR | {"network_file"},
        "ActuatorNetMLPCfg": _MOTOR | {
            "network_file", "pos_scale", "vel_scale", "torque_scale", "input_order", "input_idx",
        },
    },
    "isaaclab.assets": {"ArticulationCfg": {"prim_path", "spawn", "init_state", "actuators"}},
    "isaaclab.sim": {
        "UrdfFileCfg": {"asset_path", "fix_base", "joint_drive", "merge_fixed_joints"},
        "MjcfFileCfg": {"asset_path", "fix_base"}, "UsdFileCfg": {"usd_path"},
        "UrdfConverterCfg": set(), "JointDriveCfg": {"target_type", "gains"}, "PDGainsCfg": {"stiffness", "damping"},
    },
}  # fmt: skip
_MJLAB = {
    "target_names_expr", "armature", "frictionloss", "viscous_damping", "delay_min_lag", "delay_max_lag",
    "effort_limit",
}  # fmt: skip
_PD = _MJLAB | {"stiffness", "damping"}
_DC = _PD | {"saturation_effort", "velocity_limit"}
MJLAB = {
    "mjlab.actuator": {
        "BuiltinMotorActuatorCfg": _MJLAB | {"gear"}, "IdealPdActuatorCfg": _PD, "DcMotorActuatorCfg": _DC,
        "BuiltinPositionActuatorCfg": _PD, "XmlActuatorCfg": _MJLAB - {"effort_limit"} | {"command_field"},
        "LearnedMlpActuatorCfg": _DC | {
            "network_file", "pos_scale", "vel_scale", "torque_scale", "input_order", "history_length"
        },
    },
    "mjlab.entity": {
        "EntityCfg": {"spec_fn", "articulation", "init_state", "collisions"},
        "EntityArticulationInfoCfg": {"actuators"},
    },
}  # fmt: skip


@dataclass
class Made:
    """A configuration that was made."""

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)


def install(monkeypatch, packages: dict[str, dict[str, set[str]]]) -> None:
    """Make packages that hold nothing but configurations, which refuse fields that are not documented."""
    top = next(iter(packages)).split(".")[0]
    monkeypatch.setitem(sys.modules, top, types.ModuleType(top))
    for name, kinds in packages.items():
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(sys.modules[top], name.split(".")[1], module, raising=False)
        for kind, fields in kinds.items():
            setattr(module, kind, _maker(kind, fields))
    if top == "isaaclab":
        sim = sys.modules["isaaclab.sim"]
        sim.UrdfConverterCfg.JointDriveCfg = sim.JointDriveCfg
        sim.JointDriveCfg.PDGainsCfg = sim.PDGainsCfg


def _maker(kind: str, fields: set[str]) -> Any:
    def make(**given: Any) -> Made:
        assert set(given) <= fields, f"{kind} has no {set(given) - fields}"
        return Made(kind, given)

    return make


def isaaclab_mlp(cfg: Made, errors: np.ndarray, velocities: np.ndarray) -> np.ndarray:
    """Return the torques [frames, joints] of `ActuatorNetMLP` as documented: histories, newest first, then blocks."""
    network, fields = torch.jit.load(cfg.fields["network_file"]), cfg.fields
    pos, vel = (torch.zeros(errors.shape[1], max(fields["input_idx"]) + 1) for _ in range(2))
    found = []
    for error, velocity in zip(errors, velocities, strict=True):
        pos, vel = pos.roll(1, 1), vel.roll(1, 1)
        pos[:, 0], vel[:, 0] = torch.tensor(error), torch.tensor(velocity)
        blocks = [pos[:, fields["input_idx"]] * fields["pos_scale"], vel[:, fields["input_idx"]] * fields["vel_scale"]]
        order = blocks if fields["input_order"] == "pos_vel" else blocks[::-1]
        found.append(network(torch.cat(order, 1).float())[:, 0] * fields["torque_scale"])
    return torch.stack(found).numpy()


def isaaclab_lstm(cfg: Made, errors: np.ndarray, velocities: np.ndarray) -> np.ndarray:
    """Return the torques [frames, joints] of `ActuatorNetLSTM` as documented: raw inputs, hidden and cell state."""
    network = torch.jit.load(cfg.fields["network_file"])
    weights = network.lstm.state_dict()
    layers, width = len(weights) // 4, weights["weight_hh_l0"].shape[1]
    hidden = cell = torch.zeros(layers, errors.shape[1], width)
    found = []
    for error, velocity in zip(errors, velocities, strict=True):
        x = torch.tensor(np.stack([error, velocity], 1), dtype=torch.float32)[:, None]
        torque, (hidden, cell) = network(x, (hidden, cell))
        found.append(torque.reshape(-1))
    return torch.stack(found).numpy()


def mjlab_mlp(cfg: Made, errors: np.ndarray, velocities: np.ndarray) -> np.ndarray:
    """Return the torques [frames, joints] of `LearnedMlpActuator` as documented: each of the last steps."""
    steps = {**cfg.fields, "input_idx": list(range(cfg.fields["history_length"]))}
    return isaaclab_mlp(Made(cfg.kind, steps), errors, velocities)
