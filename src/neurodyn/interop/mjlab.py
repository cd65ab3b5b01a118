# SPDX-License-Identifier: Apache-2.0
"""mjlab 1.6: an MJCF without actuators, and a Python file with the entity and its actuators."""

import re
from pathlib import Path
from typing import Any

from neurodyn.core.errors import InputError
from neurodyn.interop.identified import IdentifiedRobot, TrainedNetwork, drive_names, heading, perceptron, write_script
from neurodyn.interop.mjcf import write_mjcf_asset
from neurodyn.interop.texts import (
    CONFIGURATION,
    NETWORK,
    STEP_NOTE,
    Element,
    Raw,
    call,
    code,
    docstring,
    drive_fields,
    network_call,
    variable,
)

_IMPORTS = """import math
from pathlib import Path

import mujoco
from mjlab.actuator import BuiltinMotorActuatorCfg, DcMotorActuatorCfg, IdealPdActuatorCfg, LearnedMlpActuatorCfg
from mjlab.entity import EntityArticulationInfoCfg, EntityCfg

FOLDER = Path(__file__).resolve().parent
"""


def write_mjlab(identified: IdentifiedRobot, folder: Path) -> set[str]:
    """Write robot_cfg.py, ROBOT.xml with its files, and the network's file; see `interop.formats.SIMULATORS`."""
    actuators, placed = _actuators(identified, folder)
    lines = [*heading(identified, "mjlab configuration"), "", STEP_NOTE]
    entries = "\n".join(f"    {text}," for text in actuators)
    parts = [docstring(lines), _IMPORTS, f"PHYSICS_DT = {code(1 / 200)}  # [s]", f"ACTUATORS = (\n{entries}\n)"]
    if identified.robot is not None:
        name = identified.robot.name
        placed |= write_mjcf_asset(identified, folder, _without_actuators)
        fields = {
            "spec_fn": Raw(f"lambda: mujoco.MjSpec.from_file(str(FOLDER / {code(f'{name}.xml')}))"),
            "articulation": Raw("EntityArticulationInfoCfg(actuators=ACTUATORS)"),
        }
        parts.append(f"{variable(name)} = {call('EntityCfg', fields, 0)}")
    (folder / CONFIGURATION).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return placed


def _without_actuators(root: Element) -> set[str]:
    """Remove the actuators, which the configuration adds, and their states in keyframes."""
    for actuators in root.findall("actuator"):
        root.remove(actuators)
    for key in root.iter("key"):
        key.attrib.pop("ctrl", None)
        key.attrib.pop("act", None)
    return set()


def _actuators(identified: IdentifiedRobot, folder: Path) -> tuple[list[str], set[str]]:
    """Return the actuators' configurations, and names of the quantities that they hold."""
    entries, placed = [], set()
    network = identified.network
    if network is not None:
        entries.append(_network(identified, network, folder))
    for joint in {**identified.efforts, **identified.drives}:
        if network is None or joint not in network.joints:
            kind, fields, numbers = _drive(identified, joint)
            entries.append(call(kind, {"target_names_expr": (re.escape(joint),), **fields}, 4))
            placed |= drive_names(joint, numbers)
    return entries, placed


def _drive(identified: IdentifiedRobot, joint: str) -> tuple[str, dict[str, Any], set[str]]:
    """Return the class of a joint's actuator, its fields, and the drive's numbers that they hold."""
    drive = identified.drives.get(joint)
    if drive is None:
        return "BuiltinMotorActuatorCfg", {"effort_limit": identified.efforts.get(joint)}, set()
    kind, (fields, placed) = "IdealPdActuatorCfg", drive_fields(identified, joint)
    if drive.saturation_effort is not None:
        kind = "DcMotorActuatorCfg"
        fields |= {"saturation_effort": drive.saturation_effort, "velocity_limit": drive.velocity_limit}
        placed |= {"saturation_effort", "velocity_limit"}
    if drive.delay:
        steps = Raw(f"round({code(drive.delay)} / PHYSICS_DT)")
        fields |= {"delay_min_lag": steps, "delay_max_lag": steps}
        placed.add("delay")
    return kind, fields, placed


def _network(identified: IdentifiedRobot, network: TrainedNetwork, folder: Path) -> str:
    """Write the network as TorchScript, and return the configuration of its actuators."""
    config = network.config
    if config.network != "mlp":
        raise InputError(f"{network.run}: its actuator network is a {config.network}; valid for mjlab: an mlp")
    network.require_pair("mjlab")
    write_script(perceptron(network, consecutive=True), folder / NETWORK)
    efforts = [identified.efforts[joint] for joint in network.joints if joint in identified.efforts]
    fields: dict[str, Any] = {
        "target_names_expr": tuple(map(re.escape, network.joints)),
        "network_file": Raw(f"str(FOLDER / {code(NETWORK)})"),
        "input_order": network.input_order,
        "history_length": config.steps[-1] + 1,
        "pos_scale": network.scale("position_error"),
        "vel_scale": network.scale("velocity"),
        "torque_scale": config.effort_scale,
        "effort_limit": max(efforts) if efforts else Raw("1e9"),
        "saturation_effort": Raw("1e9"),
        "velocity_limit": Raw("1e9"),
    }
    return network_call("LearnedMlpActuatorCfg", fields, config.period)
