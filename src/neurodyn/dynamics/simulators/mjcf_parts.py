# SPDX-License-Identifier: Apache-2.0
"""Parts of an MJCF that hold identified numbers: joints, geoms, options, actuators."""

import math

from neurodyn.core.description.mechanism import Link
from neurodyn.core.description.soft_constraints import SOLIMP, SOLREF, SoftConstraints
from neurodyn.dynamics.simulators.identified import ACTUATOR, Identified, drive_names, number
from neurodyn.dynamics.simulators.xml_files import Element, note, vector

PASSIVE = {"armature": "armature", "damping": "damping", "friction": "frictionloss", "stiffness": "stiffness"}
"""Attributes of a joint by quantity."""

_STEP, _GRAVITY = 0.002, (0.0, 0.0, -9.81)  # MuJoCo's defaults [s], [m/s^2]


def write_joint(joint: Element, identified: Identified, link: Link, degrees: float, *, every: bool = False) -> None:
    """Write the passive quantities of a joint: those that are free or declared, or all of them.

    Args:
        joint: The element.
        identified: The robot.
        link: The link of the joint.
        degrees: Factor from radians to the unit of the file's angles.
        every: Whether to write what is as the asset has it, too.
    """
    name, robot = link.joint.name, identified.require_robot("MJCF")
    declared = next(one for one in robot.joints if one.name == name)
    angle = degrees if link.joint.kind == "revolute" else 1.0
    values = {what: getattr(link, what) for what in PASSIVE}
    values |= {"damping": identified.damping(link), "friction": identified.friction(link)}
    for what, attribute in PASSIVE.items():
        given = getattr(declared, what, None) is not None or values[what] != getattr(link, what)
        if every or given or identified.is_free(f"{name}.{what}"):
            joint.set(attribute, number(values[what]))
    if identified.is_free(f"{name}.rest") or (every and link.stiffness):
        joint.set("springref", number(angle * link.rest))
    if link.lower is not None and link.upper is not None:
        joint.set("range", f"{number(angle * link.lower)} {number(angle * link.upper)}")
        joint.set("limited", "true")
    elif not every:
        joint.set("limited", "false")
    constraints = identified.mechanism.constraints
    for kind, attribute, known in (
        ("limit", "limit", constraints.limits),
        ("friction", "friction", constraints.joint_friction),
    ):
        if name in known or identified.is_free(f"{name}.{kind}_solref", f"{name}.{kind}_solimp"):
            for what, parts in (("solref", SOLREF), ("solimp", SOLIMP)):
                names = [f"{name}.{kind}_{what}.{part}" for part in parts]
                if all(one in identified.contact for one in names):
                    joint.set(f"{what}{attribute}", vector(identified.contact[one] for one in names))


def contact_attributes(identified: Identified, friction: str) -> dict[str, str]:
    """Return the attributes of a geom of the robot, of which "friction" may have more than one number."""
    values = identified.contact
    return {
        "friction": " ".join([number(values["contact.friction"]), *friction.split()[1:]]),
        "solref": vector(values[f"contact.solref.{part}"] for part in SOLREF),
        "solimp": vector(values[f"contact.solimp.{part}"] for part in SOLIMP),
        "priority": "1",
        "margin": "0",
        "gap": "0",
    }


def write_options(root: Element, identified: Identified) -> set[str]:
    """Write gravity, and the friction cone of soft contacts."""
    mechanism, constraints = identified.mechanism, identified.mechanism.constraints
    given = {}
    if math.dist(mechanism.gravity, _GRAVITY) > 1e-6:
        given["gravity"] = vector(mechanism.gravity)
    if identified.contact and (constraints.cone, constraints.impratio) != (SoftConstraints().cone, 1.0):
        given |= {"cone": constraints.cone, "impratio": number(constraints.impratio)}
    names = identified.names("gravity")
    if given:
        option = root.find("option")
        if option is None:
            option = Element("option")
            root.insert(0, option)
        option.attrib.update(given)
        note(root, option, identified.changes(sorted(names)))
    return names


def write_drives(root: Element, identified: Identified) -> set[str]:
    """Write the actuators of joints with a drive, in place of the asset's; motors where there is no actuator at all."""
    section = root.find("actuator")
    if section is None:
        if not identified.efforts:
            return set()
        section = Element("actuator")
        root.append(section)
        for joint, effort in identified.efforts.items():
            if joint not in identified.drives:
                limit = f"{number(-effort)} {number(effort)}"
                section.append(
                    Element("motor", {"name": joint, "joint": joint, "ctrllimited": "true", "ctrlrange": limit})
                )
    placed: set[str] = set()
    steps = [float(option.get("timestep", _STEP)) for option in root.iter("option")]
    step = steps[-1] if steps else _STEP
    for joint in identified.drives:
        for old in [old for old in section if old.get("joint") == joint]:
            section.remove(old)
        element, numbers = _actuator(identified, joint, step)
        section.append(element)
        placed |= drive_names(joint, numbers)
        note(
            section,
            element,
            identified.changes(sorted(name for name in placed if name.startswith(f"{ACTUATOR}{joint}."))),
        )
    return placed


def _actuator(identified: Identified, joint: str, step: float) -> tuple[Element, set[str]]:
    """Return the actuator of a drive, and the numbers of the drive that it has; `step` is the simulation's [s]."""
    drive, attributes = identified.drives[joint], {"name": joint, "joint": joint}
    placed = {"gain"}
    if drive.kind == "pd":
        kp, kd = drive.gain * (drive.kp or 0.0), drive.gain * (drive.kd or 0.0)
        attributes |= {"gainprm": number(kp), "biastype": "affine", "biasprm": vector((-kp * drive.bias, -kp, -kd))}
        placed |= {"kp", "kd", "bias"}
    else:
        attributes |= {"gainprm": number(drive.gain)}
    if drive.effort_limit is not None:
        limit = number(drive.effort_limit)
        attributes |= {"forcelimited": "true", "forcerange": f"-{limit} {limit}"}
        placed.add("effort_limit")
    if drive.lag and drive.kind == "torque":  # of a controller, MuJoCo would filter the target instead of the torque
        attributes |= {"dyntype": "filterexact", "dynprm": number(drive.lag)}
        placed.add("lag")
    if drive.delay:
        attributes |= {"delay": number(drive.delay), "nsample": str(math.ceil(2.0 * drive.delay / step) + 2)}
        placed.add("delay")
    return Element("general", attributes), placed
