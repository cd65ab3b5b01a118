# SPDX-License-Identifier: Apache-2.0
r"""Drives as MJCF actuators.

MuJoCo's actuators have delays and filters of their commands, and forces that are affine in command, position and
velocity. A torque that trails the state by a time T, because of a lag behind a controller or because it is held between
updates, is written to first order in T:

$$k_p (c - q) - k_d \dot q \;\text{at}\; t - T \;\approx\; k_p c(t - T) - k_p q - (k_d - k_p T) \dot q + k_d T \ddot q$$

so that damping and armature become smaller, and the lag filters the command.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from msgspec import UNSET

from neurodyn.core.description.drive import DRIVE_KINDS, Drive
from neurodyn.core.errors import InputError
from neurodyn.interop.identified import ACTUATOR, IdentifiedRobot, drive_names, number
from neurodyn.interop.texts import Element, note, vector

DELAYS_SINCE = "3.5"
"""First version of MuJoCo whose actuators have delays."""
_STEP = 0.002  # MuJoCo's default time step [s]
_KEPT = ("name", "class", "group", "user")
"""Attributes of an asset's actuator that stay."""
_TRANSMISSION = (
    "joint", "jointinparent", "tendon", "site", "refsite", "body", "cranksite", "slidersite", "cranklength", "gear",
)  # fmt: skip
"""Attributes that stay if the drive acts elsewhere than at the joint of its own name."""


@dataclass(frozen=True)
class Affine:
    """Force g0 u + g1 q u + g2 qd u + b0 + b1 q + b2 qd, and the parameters that it represents."""

    gain: tuple[float, float, float]
    bias: tuple[float, float, float]
    placed: frozenset[str]


def affine_of(drive: Drive, late: float = 0.0) -> Affine | None:
    """Return the affine law of a drive whose torque trails its state by `late` [s]; None if it is not affine."""
    if drive.kind in _LAWS:
        return _LAWS[drive.kind](drive, late)
    gains = drive.pd_gains() if drive.kind in DRIVE_KINDS else None
    return None if gains is None else _servo(*gains, late)


def _servo(kp: float, kd: float, held: set[str], late: float) -> Affine:
    return Affine((kp, 0.0, 0.0), (0.0, -kp, kp * late - kd), frozenset(held))


def _general(drive: Drive, _: float) -> Affine:
    def x(name: str) -> float:
        value = getattr(drive, name)
        return 0.0 if value in (None, UNSET) else drive.gain * value

    names = ("gain", "per_command", "per_position", "per_velocity", "offset", "kp", "kd")
    return Affine(
        (x("per_command"), x("per_position"), x("per_velocity")), (x("offset"), -x("kp"), -x("kd")), frozenset(names)
    )


def _velocity(drive: Drive, _: float) -> Affine:
    kd = drive.gain * (drive.kd or 0.0)
    return Affine((kd, 0.0, 0.0), (0.0, 0.0, -kd), frozenset({"gain", "kd"}))


def _torque(drive: Drive, _: float) -> Affine:
    return Affine((drive.gain, 0.0, 0.0), (0.0, 0.0, 0.0), frozenset({"gain"}))


_LAWS: dict[str, Callable[[Drive, float], Affine]] = {
    "torque": _torque, "velocity_servo": _velocity, "affine": _general,
}  # fmt: skip
"""Laws that are not a controller's, by kind of drive."""


def torque_trails(identified: IdentifiedRobot, joint: str) -> float:
    """Return by how much the torque of a joint's controller trails its state on average [s].

    This is the mean of its lag, and half the time that it is held for beyond a time step.
    """
    drive, step, frame = identified.drives.get(joint), identified.step, identified.frame
    if drive is None or drive.kind == "torque" or drive.pd_gains() is None:
        return 0.0
    held = 0.0
    if drive.updates is not UNSET and step and frame:
        held = max(0.0, 0.5 * (frame / drive.updates - step))
    return held + (0.0 if drive.lags_command or not drive.lag else mean_lag(drive.lag, step or _STEP))


def mean_lag(lag: float, step: float) -> float:
    r"""Return the mean age of what a first-order lag in time steps passes on [s]; both above 0.

    The weight of the value k steps ago is $(1 - a) a^k$ with $a = e^{-h / \tau}$, so that the mean is $h a / (1 - a)$.
    """
    decay = math.exp(-step / lag)
    return step * decay / (1.0 - decay)


def smaller_armature(identified: IdentifiedRobot, joint: str) -> float:
    """Return by how much the armature of a joint is smaller in the file because its torque trails [kg m^2 or kg]."""
    gains = identified.drives[joint].pd_gains() if joint in identified.drives else None
    return 0.0 if gains is None else gains[1] * torque_trails(identified, joint)


def write_drives(root: Element, identified: IdentifiedRobot) -> set[str]:
    """Write the drives in place of the actuators of their joints; an asset without actuators also gets motors."""
    section = root.find("actuator")
    if section is None:
        if not identified.effort_limits:
            return set()
        section = Element("actuator")
        root.append(section)
        for joint, effort in identified.effort_limits.items():
            if joint not in identified.drives:
                limit = f"{number(-effort)} {number(effort)}"
                section.append(
                    Element("motor", {"name": joint, "joint": joint, "ctrllimited": "true", "ctrlrange": limit})
                )
    placed: set[str] = set()
    steps = [float(option.get("timestep", _STEP)) for option in root.iter("option")]
    step = identified.step or (steps[-1] if steps else _STEP)
    for joint in identified.drives:
        old = _own_actuators(section, identified, joint)
        written = _actuator(identified, joint, step, old[0] if old else None)
        if written is None:
            continue
        element, numbers = written
        section.insert(list(section).index(old[0]) if old else len(section), element)
        for one in old:
            section.remove(one)
        placed |= drive_names(joint, numbers)
        own = sorted(name for name in placed if name.startswith(f"{ACTUATOR}{joint}."))
        note(section, element, identified.changes(own))
    return placed


def _own_actuators(section: Element, identified: IdentifiedRobot, name: str) -> list[Element]:
    """Return the asset's actuators that a drive takes the place of."""
    if not identified.drives[name].acts_elsewhere:
        return [one for one in section if one.get("joint") == name]
    actuators = [one for one in section if isinstance(one.tag, str)]
    known = {one.get("name", f"actuator{index}"): one for index, one in enumerate(actuators)}
    if name not in known:
        raise InputError(
            f"{identified.run}: drive {name!r} has a transmission of its own, and the asset has no actuator of that "
            "name; valid: a robot whose drives are those of joints, or the asset's actuators"
        )
    return [known[name]]


def _actuator(
    identified: IdentifiedRobot, joint: str, step: float, old: Element | None
) -> tuple[Element, set[str]] | None:
    """Return the actuator of a drive, and the parameters it represents; None if the asset's own has to stay.

    Everything is written, because a class of the asset may have other values.
    """
    drive, late = identified.drives[joint], torque_trails(identified, joint)
    law = affine_of(drive, late)
    if law is None:
        return None
    given = {} if old is None else {key: old.attrib[key] for key in _KEPT if key in old.attrib}
    if identified.require_robot("MJCF").command != "command":  # the asset's actuator takes something else
        given.pop("name", None)
    if drive.acts_elsewhere and old is not None:
        attributes = {**given, **{key: old.attrib[key] for key in _TRANSMISSION if key in old.attrib}}
    else:
        attributes = {"name": joint, **given, "joint": joint, "gear": "1"}
    placed = set(law.placed) | {"bias"}  # of the joint's zero
    attributes["gaintype"] = "affine" if any(law.gain[1:]) else "fixed"
    attributes["gainprm"] = vector(law.gain if any(law.gain[1:]) else law.gain[:1])
    attributes["biastype"] = "affine" if any(law.bias) else "none"
    attributes["biasprm"] = vector(law.bias)
    attributes |= _range("ctrl", _command_range(identified, joint))
    force = None if drive.force_range is UNSET else drive.force_range
    if drive.effort_limit is not None:
        limit = drive.effort_limit
        force = (-limit, limit) if force is None else (max(force[0], -limit), min(force[1], limit))
        placed.add("effort_limit")
    attributes |= _range("force", force)
    seconds = acts_after(drive, step, identified.frame)
    delay, constant = split_delay(seconds, drive.lag or 0.0, step, identified.delays)
    dynamics, held = _dynamics(drive, constant)
    attributes |= dynamics
    placed |= held
    if delay:
        attributes |= {"delay": number(delay), "nsample": str(math.ceil(delay / step) + 2), "interp": "linear"}
    if seconds:
        placed.add("delay")
    return Element("general", attributes), placed


def _command_range(identified: IdentifiedRobot, joint: str) -> tuple[float, float] | None:
    """Return the range of commands of a drive; of torques the joint's effort limit, None for none."""
    drive, limit = identified.drives[joint], identified.effort_limits.get(joint)
    if drive.command_range is not UNSET:
        return drive.command_range
    return (-limit, limit) if drive.kind == "torque" and limit is not None else None


def _range(what: str, ends: tuple[float, float] | None) -> dict[str, str]:
    if ends is None or not all(map(math.isfinite, ends)):
        return {f"{what}limited": "false"}
    return {f"{what}limited": "true", f"{what}range": vector(ends)}


def acts_after(drive: Drive, step: float, frame: float | None) -> float:
    """Return the mean delay between a command and the step of length `step` [s] that it acts in; 0 for none.

    The engine evaluates forces at the start of a step and averages the command over half a step to either side. A law
    with `updates` sees it at the start of each of its periods alone, in which a command of an earlier period may act.
    """
    if not drive.longest_held_delay:
        return 0.0
    seconds = drive.delay + 0.5 * step
    if drive.updates is UNSET or frame is None or frame / drive.updates <= step:
        return seconds
    period = frame / drive.updates
    whole = math.floor(seconds / period + 1e-9)
    return period * (whole + min((seconds - whole * period) / step, 1.0))


def split_delay(delay: float, lag: float, step: float, delays: bool = True) -> tuple[float, float]:
    r"""Return delay and time constant of a filter that together act as a delay and a lag [s], 0 for none.

    MuJoCo's delays are at least a step. A shorter one is moved to or from the lag, so that the mean stays
    (`mean_lag`). Without `delays`, a filter has to do for any delay.
    """
    if not delay or (delays and delay >= step):
        return delay, lag
    mean, delayed = delay + (mean_lag(lag, step) if lag else 0.0), 0.0
    if delays and mean >= step:
        mean, delayed = mean - step, step
    return delayed, step / math.log1p(step / mean) if mean > 1e-9 else 0.0


def _dynamics(drive: Drive, constant: float) -> tuple[dict[str, str], set[str]]:
    """Return the filter of the command: the drive's state, or one with a time constant [s]."""
    state = drive.state
    if state is not UNSET and state.kind != "muscle":
        given = {"dyntype": state.kind, "actearly": "true" if state.early else "false", **_range("act", state.range)}
        if state.time_constant is not None:
            given["dynprm"] = number(state.time_constant)
        return given, {"time_constant"}
    if not constant:
        return {"dyntype": "none"}, {"lag"}
    return {"dyntype": "filterexact", "dynprm": number(constant), "actearly": "true"}, {"lag"}


def integrator(identified: IdentifiedRobot) -> str | None:
    """Return the integrator with which MuJoCo steps as the model does; None for the asset's."""
    laws = [DRIVE_KINDS[drive.kind] for drive in identified.drives.values() if drive.kind in DRIVE_KINDS]
    implicit = identified.mechanism.constraints.implicit
    if any(law.damping is not None for law in laws) and implicit is not False:
        return "implicitfast"
    if identified.explicit or implicit is False or any(law.gains is not None for law in laws):
        return "Euler"
    return "implicitfast" if implicit is True else None


def remarks(identified: IdentifiedRobot) -> list[str]:
    """Return what the file needs and what it holds only approximately, one line each."""
    lines = []
    step = identified.step or _STEP
    drives = identified.drives.values()
    delays = [acts_after(one, step, identified.frame) for one in drives]
    if any(delays) and not identified.delays:
        lines.append("delays are filters of the commands with the same mean")
    elif any(split_delay(one, drive.lag or 0.0, step)[0] for one, drive in zip(delays, drives, strict=True)):
        lines.append(f"needs MuJoCo {DELAYS_SINCE} or later, for the delays of its actuators")
    if any(torque_trails(identified, joint) for joint in identified.drives):
        lines.append("to first order: lag and hold of controllers (filter of the command, kd and armature are smaller)")
    if identified.biased:
        lines.append("qpos is the encoder's reading (`ref` of joints)")
    if any(one.past for one in identified.mechanism.elements or ()):
        lines.append("without the disturbance that the model estimates from measured frames")
    if identified.robot is not None and not identified.robot.self_contacts:
        lines.append("links do not touch each other, as in the model")
    return lines
