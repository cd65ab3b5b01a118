# SPDX-License-Identifier: Apache-2.0
"""Robots for trainers: an asset, and a Python file with its actuators.

For Isaac Lab 2.3 the file also has a function that sets the other quantities; for mjlab 1.6 the entity, with an MJCF
that has only the actuators of which mjlab has no class.
"""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from neurodyn.core.description.drive import DRIVE_KINDS, Drive
from neurodyn.core.description.mechanism import Link
from neurodyn.core.errors import InputError
from neurodyn.interop.identified import (
    BODY,
    IdentifiedRobot,
    RecurrentUnit,
    TrainedNetwork,
    drive_names,
    heading,
    perceptron,
    write_script,
)
from neurodyn.interop.mjcf import body_names, write_mjcf_asset
from neurodyn.interop.mjcf_drives import acts_after, write_drives
from neurodyn.interop.texts import (
    CONFIGURATION,
    NETWORK,
    STEP_NOTE,
    Element,
    Raw,
    call,
    code,
    constant,
    docstring,
    drive_fields,
    entry,
    network_call,
    variable,
)
from neurodyn.interop.urdf import link_names, write_urdf_asset
from neurodyn.robots.assets import asset_path, copy_asset

_IMPORTS = """import math
from pathlib import Path

import torch

import isaaclab.sim as sim_utils
from isaaclab.actuators import (
    ActuatorNetLSTMCfg,
    ActuatorNetMLPCfg,
    DCMotorCfg,
    DelayedPDActuatorCfg,
    IdealPDActuatorCfg,
    ImplicitActuatorCfg,
)
from isaaclab.assets import ArticulationCfg

FOLDER = Path(__file__).resolve().parent
"""

_FUNCTION = '''

def write_identified(robot):
    """Write limits, masses and inertias into an `isaaclab.assets.Articulation` of another asset, once it plays.

    The asset beside this file has them already. A mass is that of a body with all that is fixed to it: spawn with
    merge_fixed_joints.
    """
    for joint, limits in LIMITS.items():
        ids, _ = robot.find_joints(joint)
        both = torch.tensor(limits, device=robot.device).expand(robot.num_instances, len(ids), 2)
        robot.write_joint_position_limit_to_sim(both, ids)
    view, rows = robot.root_physx_view, torch.arange(robot.num_instances)
    masses, coms, inertias = view.get_masses(), view.get_coms(), view.get_inertias()
    for body, (mass, com, inertia) in BODIES.items():
        (index,), _ = robot.find_bodies(body)
        masses[:, index] = mass
        coms[:, index, :3], coms[:, index, 3:] = torch.tensor(com), torch.tensor((0.0, 0.0, 0.0, 1.0))
        xx, yy, zz, xy, xz, yz = inertia
        inertias[:, index] = torch.tensor((xx, xy, xz, xy, yy, yz, xz, yz, zz))
    view.set_masses(masses, rows)
    view.set_coms(coms, rows)
    view.set_inertias(inertias, rows)
'''


def write_isaaclab(identified: IdentifiedRobot, folder: Path) -> set[str]:
    """Write robot_cfg.py, the asset, and the network's file; see `interop.formats.SIMULATOR_FORMATS`."""
    actuators, placed = _actuators(identified, folder)
    lines = [*heading(identified, "Isaac Lab configuration"), "", STEP_NOTE]
    parts = [docstring(lines), _IMPORTS, f"PHYSICS_DT = {code(physics_step(identified))}  # [s]"]
    spawn = None
    if identified.robot is not None:
        spawn, names, held = _asset(identified, folder)
        placed |= {name for name in held if name.rsplit(".", 1)[0].endswith((".origin", ".axis"))}
        placed |= held & identified.bias_names
        limited = [link for link in identified.scalar_links if link.lower is not None]
        bodies = [(names[link.joint.name], link) for link in identified.mechanism.links if link.joint.name in names]
        parts += [
            f"GRAVITY = {code(identified.mechanism.gravity)}  # for `SimulationCfg(gravity=...)` [m/s^2]",
            constant("LIMITS", {re.escape(link.joint.name): (link.lower, link.upper) for link in limited}),
            constant("BODIES", {re.escape(body): (link.mass, link.com, link.inertia) for body, link in bodies}),
            _FUNCTION.strip("\n"),
        ]
        placed |= identified.free_names("gravity", *(f"{link}.{what}" for link in names for what in BODY))
        placed |= identified.free_names(
            *(f"{link.joint.name}.{what}" for link in limited for what in ("lower", "upper"))
        )
    entries = "\n".join(f"    {code(name)}: {text}," for name, text in actuators.items())
    parts.append(f"ACTUATORS = {{\n{entries}\n}}")
    if identified.robot is not None and spawn is not None:
        fields = {"prim_path": "/World/envs/env_.*/Robot", "spawn": Raw(spawn), "actuators": Raw("ACTUATORS")}
        parts.append(f"{variable(identified.robot.name)} = {call('ArticulationCfg', fields, 0)}")
    (folder / CONFIGURATION).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return placed | identified.rigid_frictions()


def _asset(identified: IdentifiedRobot, folder: Path) -> tuple[str, dict[str, str], set[str]]:
    """Write the asset; return its spawner, body names by link, and names of the quantities it represents."""
    robot = identified.require_robot("Isaac Lab")
    suffix = asset_path(robot).suffix.lower()
    common: dict[str, Any] = {"fix_base": robot.fixed_base}
    if suffix == ".urdf":
        held = write_urdf_asset(identified, folder)
        gains = "sim_utils.UrdfConverterCfg.JointDriveCfg.PDGainsCfg(stiffness=0.0, damping=0.0)"
        drive = Raw(f'sim_utils.UrdfConverterCfg.JointDriveCfg(target_type="none", gains={gains})')
        fields = {"asset_path": _path(f"{robot.name}.urdf"), **common, "joint_drive": drive}
        return call("sim_utils.UrdfFileCfg", fields, 4), link_names(identified), held
    if suffix == ".xml":
        held = write_mjcf_asset(identified.without_bias(), folder)  # the importer does not read `ref`
        held -= identified.bias_names
        fields = {"asset_path": _path(f"{robot.name}.xml"), **common}
        return call("sim_utils.MjcfFileCfg", fields, 4), body_names(identified), held
    return call("sim_utils.UsdFileCfg", {"usd_path": _path(copy_asset(robot, folder))}, 4), {}, set()


def _path(name: str) -> Raw:
    return Raw(f"str(FOLDER / {code(name)})")


def physics_step(identified: IdentifiedRobot) -> float:
    """Return the simulation's time step in the file [s]: the model's, by which its delays are meant."""
    return identified.step or 1 / 200


def remarks(identified: IdentifiedRobot) -> list[str]:
    """Return what the configuration holds only approximately, one line each."""
    step, lines = physics_step(identified), []
    delays = {acts_after(drive, step, identified.frame) for drive in identified.drives.values()} - {0.0}
    rounded = [f"{1e3 * step * round(delay / step):.3g} for {1e3 * delay:.3g} ms" for delay in sorted(delays)]
    if delays and rounded:
        lines.append(f"delays are whole time steps of PHYSICS_DT: {', '.join(rounded[:3])}")
    return lines


def _steps(identified: IdentifiedRobot, drive: Drive) -> Raw:
    return Raw(f"round({code(acts_after(drive, physics_step(identified), identified.frame))} / PHYSICS_DT)")


def _actuators(identified: IdentifiedRobot, folder: Path) -> tuple[dict[str, str], set[str]]:
    """Return the actuator configurations by name, and names of the quantities they represent."""
    groups: dict[str, str] = {}
    placed: set[str] = set()
    covered: tuple[str, ...] = ()
    if identified.network is not None:
        covered = identified.network.joints
        groups["network"] = _network(identified, identified.network, folder)
    for link in identified.scalar_links:
        name = link.joint.name
        placed |= identified.free_names(*(f"{name}.{what}" for what in ("armature", "friction", "damping")))
        if name in covered:
            continue
        kind, fields, numbers = _drive(identified, name)
        groups[name] = call(kind, {"joint_names_expr": [re.escape(name)], **fields, **_joint(identified, [link])}, 4)
        placed |= drive_names(name, numbers)
    return groups, placed


def _joint(identified: IdentifiedRobot, links: list[Link]) -> dict[str, Any]:
    """Return the configuration fields shared by every actuator for some joints."""
    values = {
        "armature": [link.armature for link in links],
        "friction": [identified.friction(link) for link in links],
        "dynamic_friction": [identified.friction(link) for link in links],
        "viscous_friction": [identified.damping(link) for link in links],
    }
    if len(links) == 1:
        return {what: one for what, (one,) in values.items()}
    names = [re.escape(link.joint.name) for link in links]
    return {what: dict(zip(names, each, strict=True)) for what, each in values.items()}


def _drive(identified: IdentifiedRobot, joint: str) -> tuple[str, dict[str, Any], set[str]]:
    """Return the class of a joint's actuator, its fields, and the drive parameters they represent."""
    drive = identified.drives.get(joint)
    if drive is None:
        effort = identified.effort_limits.get(joint)
        if effort is None:
            return "ImplicitActuatorCfg", {"stiffness": 0.0, "damping": 0.0}, set()
        return "IdealPDActuatorCfg", {"stiffness": 0.0, "damping": 0.0, "effort_limit": effort}, set()
    fields, placed = drive_fields(identified, joint)
    if drive.delay:  # the class with a torque-speed line has no delay
        steps = _steps(identified, drive)
        return "DelayedPDActuatorCfg", {**fields, "min_delay": steps, "max_delay": steps}, placed | {"delay"}
    if drive.saturation_effort is None:
        return "IdealPDActuatorCfg", fields, placed
    line = {"saturation_effort": drive.saturation_effort, "velocity_limit": drive.velocity_limit}
    return "DCMotorCfg", fields | line, placed | line.keys()


def _network(identified: IdentifiedRobot, network: TrainedNetwork, folder: Path) -> str:
    """Write the network as TorchScript; return the configuration of its actuators."""
    network.require_pair("Isaac Lab")
    config = network.config
    links = [link for link in identified.scalar_links if link.joint.name in network.joints]
    unlimited = Raw("1e9")
    fields: dict[str, Any] = {
        "joint_names_expr": [re.escape(joint) for joint in network.joints],
        "network_file": _path(NETWORK),
        "saturation_effort": unlimited,
        "velocity_limit": unlimited,
        "effort_limit": {re.escape(j): identified.effort_limits.get(j, unlimited) for j in network.joints},
        **(_joint(identified, links) if links else {}),
    }
    if config.network == "gru":
        write_script(RecurrentUnit(network), folder / NETWORK)
        return network_call("ActuatorNetLSTMCfg", fields, config.period)
    write_script(perceptron(network), folder / NETWORK)
    fields |= {
        "input_order": network.input_order,
        "input_idx": list(config.steps),
        "pos_scale": network.scale("position_error"),
        "vel_scale": network.scale("velocity"),
        "torque_scale": config.effort_scale,
    }
    return network_call("ActuatorNetMLPCfg", fields, config.period)


MJLAB_IMPORTS = """import math
from pathlib import Path

import mujoco
from mjlab.actuator import (
    BuiltinMotorActuatorCfg,
    BuiltinPositionActuatorCfg,
    DcMotorActuatorCfg,
    IdealPdActuatorCfg,
    LearnedMlpActuatorCfg,
    XmlActuatorCfg,
)
from mjlab.entity import EntityArticulationInfoCfg, EntityCfg

FOLDER = Path(__file__).resolve().parent
"""


def write_mjlab(identified: IdentifiedRobot, folder: Path) -> set[str]:
    """Write robot_cfg.py, ROBOT.xml with its files, and the network's file; see `interop.formats.SIMULATOR_FORMATS`."""
    actuators, placed = _mjlab_actuators(identified, folder)
    lines = [*heading(identified, "mjlab configuration"), "", STEP_NOTE]
    entries = "\n".join(f"    {text}," for text in actuators)
    step = f"PHYSICS_DT = {code(physics_step(identified))}  # [s]"
    parts = [docstring(lines), MJLAB_IMPORTS, step, f"ACTUATORS = (\n{entries}\n)"]
    if identified.robot is not None:
        name = identified.robot.name
        placed |= write_mjcf_asset(identified, folder, partial(_with_own_actuators, identified))
        fields = {
            "spec_fn": Raw(f"lambda: mujoco.MjSpec.from_file(str(FOLDER / {code(f'{name}.xml')}))"),
            "articulation": Raw("EntityArticulationInfoCfg(actuators=ACTUATORS)"),
        }
        parts.append(f"{variable(name)} = {call('EntityCfg', fields, 0)}")
    (folder / CONFIGURATION).write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return placed


_TAKES = {"torque": "effort", "velocity_servo": "velocity", "affine": "position"}
"""What mjlab hands to actuators of an MJCF, by the kind of their drive."""


def _stays_in_mjcf(drive: Drive) -> bool:
    """Return whether an actuator of the MJCF has the law of a drive, for which mjlab has no class."""
    return drive.kind in _TAKES and drive.saturation_effort is None


def _with_own_actuators(identified: IdentifiedRobot, root: Element) -> set[str]:
    """Leave the actuators that mjlab has no class for; the configuration adds the others, and all delays."""
    for actuators in root.findall("actuator"):
        root.remove(actuators)
    for key in root.iter("key"):  # states of actuators
        key.attrib.pop("ctrl", None)
        key.attrib.pop("act", None)
    own = {
        joint: msgspec.structs.replace(drive, delay=0.0, longest_delay=0.0)
        for joint, drive in identified.drives.items()
        if _stays_in_mjcf(drive)
    }
    if not own:
        return set()
    entry(root, "actuator")
    return write_drives(root, replace(identified, drives=own))


def _mjlab_actuators(identified: IdentifiedRobot, folder: Path) -> tuple[list[str], set[str]]:
    """Return the actuator configurations, and names of the quantities they represent."""
    entries, placed = [], set()
    network = identified.network
    if network is not None:
        entries.append(_mjlab_network(identified, network, folder))
    for joint in {**identified.effort_limits, **identified.drives}:
        if network is None or joint not in network.joints:
            kind, fields, numbers = _mjlab_drive(identified, joint)
            entries.append(call(kind, {"target_names_expr": (re.escape(joint),), **fields}, 4))
            placed |= drive_names(joint, numbers)
    return entries, placed


def _mjlab_drive(identified: IdentifiedRobot, joint: str) -> tuple[str, dict[str, Any], set[str]]:
    """Return the class of a joint's actuator, its fields, and the drive parameters they represent."""
    drive = identified.drives.get(joint)
    if drive is None:
        return "BuiltinMotorActuatorCfg", {"effort_limit": identified.effort_limits.get(joint)}, set()
    if _stays_in_mjcf(drive):
        kind, fields, placed = "XmlActuatorCfg", {"command_field": _TAKES[drive.kind]}, set()
    else:
        kind, fields, placed = _mjlab_class(identified, joint, drive)
    if drive.delay:
        steps = _steps(identified, drive)
        fields |= {"delay_min_lag": steps, "delay_max_lag": steps}
        placed.add("delay")
    return kind, fields, placed


def _mjlab_class(identified: IdentifiedRobot, joint: str, drive: Drive) -> tuple[str, dict[str, Any], set[str]]:
    """Return the class that computes a drive's law, its fields, and the parameters they represent."""
    kind, (fields, placed) = "IdealPdActuatorCfg", drive_fields(identified, joint)
    if DRIVE_KINDS[drive.kind].damping is not None:  # implicit, as MuJoCo's own
        kind = "BuiltinPositionActuatorCfg"
        fields = {name: value for name, value in fields.items() if not isinstance(value, Raw)}  # no limit
    if drive.saturation_effort is not None:
        kind = "DcMotorActuatorCfg"
        fields |= {"saturation_effort": drive.saturation_effort, "velocity_limit": drive.velocity_limit}
        placed |= {"saturation_effort", "velocity_limit"}
    return kind, fields, placed


def _mjlab_network(identified: IdentifiedRobot, network: TrainedNetwork, folder: Path) -> str:
    """Write the network as TorchScript; return the configuration of its actuators."""
    config = network.config
    if config.network != "mlp":
        raise InputError(f"{network.run}: its actuator network is a {config.network}; valid for mjlab: an mlp")
    network.require_pair("mjlab")
    write_script(perceptron(network, consecutive=True), folder / NETWORK)
    efforts = [identified.effort_limits[joint] for joint in network.joints if joint in identified.effort_limits]
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
