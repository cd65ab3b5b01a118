# SPDX-License-Identifier: Apache-2.0
"""mjlab: an MJCF without actuators, and a Python file with an entity and its actuators; fields are those of 1.6."""

from pathlib import Path
from typing import Any

from neurodyn.core.errors import InputError
from neurodyn.interop.identified import IdentifiedRobot, TrainedNetwork, drive_names, heading, perceptron, write_script
from neurodyn.interop.mjcf import edited_mjcf
from neurodyn.interop.texts import Element, Raw, call, code, docstring, pattern, variable, write_xml

FILE, NETWORK = "robot_cfg.py", "actuator_network.pt"
"""Files that are written: the configuration, and the network as TorchScript."""

_STEP_NOTE = "PHYSICS_DT is the simulation's time step, of which delays are multiples: set it to yours."

_IMPORTS = """import math
from pathlib import Path

import mujoco
from mjlab.actuator import BuiltinMotorActuatorCfg, DcMotorActuatorCfg, IdealPdActuatorCfg, LearnedMlpActuatorCfg
from mjlab.entity import EntityArticulationInfoCfg, EntityCfg

FOLDER = Path(__file__).resolve().parent
"""


def write_mjlab(identified: IdentifiedRobot, folder: Path) -> set[str]:
    """Write robot_cfg.py, ROBOT.xml with the files that it names, and the network's file.

    Args:
        identified: The robot.
        folder: An empty folder.

    Returns:
        Names of the quantities that found a place.

    Raises:
        InputError: mjlab cannot hold the actuator network.
    """
    actuators, placed = _actuators(identified, folder)
    lines = [*heading(identified, "mjlab configuration"), "", _STEP_NOTE]
    entries = "\n".join(f"    {text}," for text in actuators)
    parts = [docstring(lines), _IMPORTS, f"PHYSICS_DT = {code(1 / 200)}  # [s]", f"ACTUATORS = (\n{entries}\n)"]
    if identified.robot is not None:
        name = identified.robot.name
        root, own, before = edited_mjcf(identified, folder)
        _without_actuators(root)
        write_xml(folder / f"{name}.xml", root, heading(identified, f"MJCF of robot {name}"), before)
        fields = {
            "spec_fn": Raw(f"lambda: mujoco.MjSpec.from_file(str(FOLDER / {code(f'{name}.xml')}))"),
            "articulation": Raw("EntityArticulationInfoCfg(actuators=ACTUATORS)"),
        }
        parts.append(f"{variable(name)} = {call('EntityCfg', fields, 0)}")
        placed |= own
    (folder / FILE).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return placed


def _without_actuators(root: Element) -> None:
    """Remove the actuators, which the configuration adds, and what keyframes say of them."""
    for actuators in root.findall("actuator"):
        root.remove(actuators)
    for key in root.iter("key"):
        key.attrib.pop("ctrl", None)
        key.attrib.pop("act", None)


def _actuators(identified: IdentifiedRobot, folder: Path) -> tuple[list[str], set[str]]:
    """Return configurations of actuators, and names of the quantities that they hold."""
    entries, placed = [], set()
    network = identified.network
    if network is not None:
        entries.append(_network(identified, network, folder))
    for joint in {**identified.efforts, **identified.drives}:
        if network is None or joint not in network.joints:
            kind, fields, numbers = _drive(identified, joint)
            entries.append(call(kind, {"target_names_expr": (pattern(joint),), **fields}, 4))
            placed |= drive_names(joint, numbers)
    return entries, placed


def _drive(identified: IdentifiedRobot, joint: str) -> tuple[str, dict[str, Any], set[str]]:
    """Return the class of a joint's actuator, its fields, and the numbers of the drive that these hold."""
    drive, effort = identified.drives.get(joint), identified.efforts.get(joint)
    if drive is None:
        return "BuiltinMotorActuatorCfg", {"effort_limit": effort}, set()
    kind, placed = "IdealPdActuatorCfg", {"effort_limit"}
    fields: dict[str, Any] = {"stiffness": 0.0, "damping": 0.0}
    if drive.kind == "pd":
        fields = {"stiffness": drive.gain * (drive.kp or 0.0), "damping": drive.gain * (drive.kd or 0.0)}
        placed |= {"gain", "kp", "kd"}
    limit = drive.effort_limit if drive.effort_limit is not None else effort
    fields["effort_limit"] = Raw("math.inf") if limit is None else limit
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
        "target_names_expr": tuple(map(pattern, network.joints)),
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
    text = call("LearnedMlpActuatorCfg", fields, 4)
    return text.replace("(\n", f"(  # one sample every {code(config.period)} s: PHYSICS_DT must be that\n", 1)
