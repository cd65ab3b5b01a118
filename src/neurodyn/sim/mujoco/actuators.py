# SPDX-License-Identifier: Apache-2.0
r"""MuJoCo's actuators as drives: gain and bias, ranges, state and transmission.

$$f = g\,u + b_0 + b_1 l + b_2 \dot l$$

with the length l of the transmission times the gear; $b_1 = -k_p$ and $b_2 = -k_d$, and $g = k_p$, $b_0 = 0$ for a
position servo. Names, ranges and order are the model's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from neurodyn.core.config import to_dict
from neurodyn.core.description.actuation import (
    PLACES,
    BodyWrench,
    DriveState,
    FrameOffset,
    Muscle,
    SliderCrank,
    TurningJoint,
)
from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.robots import Robot
from neurodyn.sim.engine import import_mujoco
from neurodyn.sim.mujoco.asset import plain_default
from neurodyn.sim.mujoco.couplings import ADDED, JOINT_WRAP, model_links, quantity_name, read_site, read_tendon

_GROUPS = 31  # of actuators that a model can disable


@dataclass(frozen=True)
class ParsedDrives:
    """Actuators of a model.

    Attributes:
        drives: Drives by actuator, in the order of the control vector.
        efforts: Maximum force of each drive [N m or N]; None where the model sets no bound.
        joint_ranges: Range of the total torque of a joint's actuators by joint [N m or N] (`Link.effort_range`).
        unmodelled: Reason why an actuator has no equivalent drive, by name.
    """

    drives: dict[str, Drive] = field(default_factory=dict)
    efforts: dict[str, float | None] = field(default_factory=dict)
    joint_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    unmodelled: dict[str, str] = field(default_factory=dict)

    @property
    def motors(self) -> bool:
        """Whether all are torques at joints, at most one each and alike both ways: joint torques are equivalent."""
        joints = [joint for name, drive in self.drives.items() for joint in drive.joints or (name,)]
        plain = all(
            drive.kind == "affine" and not drive.kp and not drive.kd and drive.offset in (UNSET, 0.0)
            and not drive.per_position and not drive.per_velocity and drive.state is UNSET
            and len(drive.joints) == bool(drive.acts_elsewhere)
            and _symmetric(drive.command_range) and _symmetric(drive.force_range)
            for drive in self.drives.values()
        ) and all(_symmetric(self.joint_ranges.get(joint)) for joint in joints)  # fmt: skip
        return plain and not self.unmodelled and len(set(joints)) == len(joints)

    def plain(self) -> dict[str, Any]:
        """Return the `drives` of a declaration as plain data, without defaults."""
        usual = to_dict(Drive())
        return {
            name: {key: value for key, value in to_dict(drive).items() if key == "kind" or value != usual.get(key)}
            for name, drive in self.drives.items()
        }


def _symmetric(interval: tuple[float, float] | UnsetType | None) -> bool:
    return interval is None or interval is UNSET or interval[0] == -interval[1]


class _UnmodelledError(Exception):
    """An actuator has no equivalent drive; the message says why."""


def read_drives(model: Any, joints: Mapping[int, str] | None = None) -> ParsedDrives:
    """Return the actuators of a compiled `mujoco.MjModel`.

    Args:
        model: The model; positions of its joints are the robot's.
        joints: Names of the joints by their number in the model; None for those of the model.
    """
    mujoco = import_mujoco()
    names = joints or {number: model.joint(number).name for number in range(model.njnt)}
    parsed = ParsedDrives()
    if model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_ACTUATION):
        return parsed
    for joint, name in names.items():
        if model.jnt_actfrclimited[joint]:
            parsed.joint_ranges[name] = _pair(model.jnt_actfrcrange[joint])
    reader = _DriveReader(mujoco, model, names)
    for number in range(model.nactuator):
        name = model.actuator(number).name or f"actuator{number}"
        try:
            drive = reader.drive(number)
        except _UnmodelledError as reason:
            parsed.unmodelled[name] = str(reason)
            continue
        if drive.transmission == {name: 1.0}:
            drive = msgspec.structs.replace(drive, transmission=UNSET)
        parsed.drives[name] = drive
        parsed.efforts[name] = _effort(drive, name, parsed.joint_ranges)
    return parsed


class _DriveReader:
    """Reads single actuators."""

    def __init__(self, mujoco: Any, model: Any, joints: Mapping[int, str]) -> None:
        self._mujoco, self._model, self._joints = mujoco, model, joints
        self._links = model_links(model, joints)
        self._readers = {
            "mjTRN_JOINT": self._joint, "mjTRN_JOINTINPARENT": self._joint, "mjTRN_TENDON": self._tendon,
            "mjTRN_SITE": self._site, "mjTRN_SLIDERCRANK": self._crank, "mjTRN_BODY": self._body,
        }  # fmt: skip

    def drive(self, number: int) -> Drive:
        """Return one actuator as a drive, or raise `_UnmodelledError`."""
        mujoco, model = self._mujoco, self._model
        group = int(model.actuator_group[number])
        if 0 <= group < _GROUPS and model.opt.disableactuator & 1 << group:
            raise _UnmodelledError(f"its group {group} is disabled in the file")
        if model.actuator_ctrlnum[number] != 1 or model.actuator_outnum[number] != 1:
            raise _UnmodelledError("several controls; modelled: one")
        for what in ("delay", "damping", "armature"):
            if np.any(getattr(model, f"actuator_{what}")[number]):
                raise _UnmodelledError(f"its own {what}; modelled: none")
        kind = mujoco.mjtTrn(model.actuator_trntype[number]).name
        if kind not in self._readers:
            raise _UnmodelledError(f"transmission {_word(mujoco.mjtTrn(model.actuator_trntype[number]))}")
        attachment = self._readers[kind](number)
        law = self._law(number)
        if not {"wrench", "adhesion"}.isdisjoint(attachment):  # their length is 0
            law = _without_length(law, "kd" if "wrench" in attachment else "nothing")
        return Drive(**law, **attachment, **self._ranges(number))

    def _law(self, number: int) -> dict[str, Any]:
        mujoco, model = self._mujoco, self._model
        gain, bias = mujoco.mjtGain(model.actuator_gaintype[number]), mujoco.mjtBias(model.actuator_biastype[number])
        gains, biases = (getattr(model, f"actuator_{what}prm")[number].tolist() for what in ("gain", "bias"))
        if gain == mujoco.mjtGain.mjGAIN_MUSCLE:
            return {"kind": "muscle", "muscle": self._muscle(number, gains, bias, biases)}
        if gain not in (mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtGain.mjGAIN_AFFINE):
            raise _UnmodelledError(f"gain {_word(gain)}; modelled: fixed, affine and muscle")
        if bias not in (mujoco.mjtBias.mjBIAS_NONE, mujoco.mjtBias.mjBIAS_AFFINE):
            raise _UnmodelledError(f"gain {_word(gain)} with bias {_word(bias)}; modelled: none and affine")
        slopes = gains[1:3] if gain == mujoco.mjtGain.mjGAIN_AFFINE else [0.0, 0.0]
        law = biases[:3] if bias == mujoco.mjtBias.mjBIAS_AFFINE else [0.0, 0.0, 0.0]
        if gains[0] > 0 and law[:2] == [0.0, -gains[0]] and law[2] <= 0 and not any(slopes):
            return {"kind": "servo", "kp": gains[0], **({"kd": -law[2]} if law[2] else {})}
        numbers = {"offset": law[0], "kp": -law[1], "kd": -law[2], "per_position": slopes[0], "per_velocity": slopes[1]}
        return {"kind": "affine", "per_command": gains[0], **{name: x for name, x in numbers.items() if x}}

    def _muscle(self, number: int, gains: list[float], bias: Any, biases: list[float]) -> Muscle:
        mujoco, model = self._mujoco, self._model
        passive = 0.0
        if bias == mujoco.mjtBias.mjBIAS_MUSCLE:
            passive = biases[7]
            if any(gains[index] != biases[index] for index in (0, 1, 2, 3, 5)):
                raise _UnmodelledError("gain and bias of two different muscles; modelled: one")
        elif bias != mujoco.mjtBias.mjBIAS_NONE:
            raise _UnmodelledError(f"gain muscle with bias {_word(bias)}; modelled: none and muscle")
        force = gains[2] if gains[2] >= 0 else gains[3] / max(float(model.actuator_acc0[number]), 1e-15)
        try:
            return Muscle(
                force=force, lengths=_pair(model.actuator_lengthrange[number]), spans=_pair(gains),
                shortest=gains[4], longest=gains[5], speed=gains[6], passive=passive, eccentric=gains[8],
            )  # fmt: skip
        except ValueError as error:
            raise _UnmodelledError(str(error)) from None

    def _ranges(self, number: int) -> dict[str, Any]:
        model, given = self._model, {}
        clamped = not model.opt.disableflags & int(self._mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL)
        if model.actuator_ctrllimited[number] and clamped:
            given["command_range"] = _pair(model.actuator_ctrlrange[model.actuator_ctrladr[number]])
        if model.actuator_forcelimited[number]:
            given["force_range"] = _pair(model.actuator_forcerange[number])
        if (state := self._state(number)) is not None:
            given["state"] = state
        return given

    def _state(self, number: int) -> DriveState | None:
        model, kinds = self._model, self._mujoco.mjtDyn
        kind = kinds(model.actuator_dyntype[number])
        if kind == kinds.mjDYN_NONE:
            return None
        if kind not in (kinds.mjDYN_INTEGRATOR, kinds.mjDYN_FILTER, kinds.mjDYN_FILTEREXACT, kinds.mjDYN_MUSCLE):
            raise _UnmodelledError(f"dynamics {_word(kind)}; modelled: integrator, filter, filterexact and muscle")
        numbers = model.actuator_dynprm[number].tolist()
        given: dict[str, Any] = {}
        if kind != kinds.mjDYN_INTEGRATOR:
            given["time_constant"] = max(numbers[0], 1e-15)
        if kind == kinds.mjDYN_MUSCLE:
            given |= {"release": max(numbers[1], 1e-15), "smoothing": numbers[2]}
        return DriveState(
            kind=_word(kind),
            range=_pair(model.actuator_actrange[number]) if model.actuator_actlimited[number] else None,
            early=bool(model.actuator_actearly[number]),
            **given,
        )

    def _joint(self, number: int) -> dict[str, Any]:
        model, kinds = self._model, self._mujoco.mjtJoint
        joint, gear = int(model.actuator_trnid[number][0]), model.actuator_gear[number]
        kind, name = kinds(model.jnt_type[joint]), self._joints[joint]
        if kind in (kinds.mjJNT_HINGE, kinds.mjJNT_SLIDE):
            return {"transmission": self._factors({name: float(gear[0])})}
        in_parent = int(model.actuator_trntype[number]) == int(self._mujoco.mjtTrn.mjTRN_JOINTINPARENT)
        force, moment = _three(gear[:3]), _three(gear[3:])
        if kind == kinds.mjJNT_BALL:
            force, moment = (0.0, 0.0, 0.0), force
        return {"turning": TurningJoint(joint=name, force=force, moment=moment, in_parent=in_parent)}

    def _factors(self, row: dict[str, float]) -> dict[str, float]:
        factors = {name: factor for name, factor in row.items() if factor}
        if not factors:
            raise _UnmodelledError("its gear is zero")
        return factors

    def _tendon(self, number: int) -> dict[str, Any]:
        """Return the joints of a fixed tendon that has no other effect, or else the tendon."""
        model, tendon = self._model, int(self._model.actuator_trnid[number][0])
        gear, first = float(model.actuator_gear[number][0]), int(model.tendon_adr[tendon])
        wraps = range(first, first + int(model.tendon_num[tendon]))
        if model.tendon_actfrclimited[tendon] or any(model.wrap_type[x] != JOINT_WRAP for x in wraps):
            try:
                one = read_tendon(model, tendon, self._links)
            except (InputError, ValueError, KeyError) as error:
                raise _UnmodelledError(str(error)) from None
            return {"tendons": self._factors({one.name: gear})}
        row: dict[str, float] = {}
        for wrap in wraps:
            joint = self._joints[int(model.wrap_objid[wrap])]
            row[joint] = row.get(joint, 0.0) + gear * float(model.wrap_prm[wrap])
        return {"transmission": self._factors(row)}

    def _site(self, number: int) -> dict[str, Any]:
        model = self._model
        (site, other), gear = map(int, model.actuator_trnid[number]), model.actuator_gear[number]
        link, frame = read_site(model, site, self._links)
        if other >= 0:
            reference, reference_frame = read_site(model, other, self._links)
            return {
                "between": FrameOffset(
                    link=link, frame=frame, reference=reference, reference_frame=reference_frame,
                    along=_three(gear[:3]), about=_three(gear[3:]),
                )
            }  # fmt: skip
        if not link:
            raise _UnmodelledError("its site does not move")
        rotation = np.array(quaternion_matrix(frame[3:]), dtype=float)
        force, moment = (_three(rotation @ part) for part in (gear[:3], gear[3:]))
        return {"wrench": BodyWrench(link=link, point=frame[:3], force=force, moment=moment)}

    def _crank(self, number: int) -> dict[str, Any]:
        model = self._model
        pin, slider = map(int, model.actuator_trnid[number])
        (link, at), (guide, frame) = (read_site(model, site, self._links) for site in (pin, slider))
        axis = np.array(quaternion_matrix(frame[3:]), dtype=float)[:, 2]
        (factor,) = self._factors({"": float(model.actuator_gear[number][0])}).values()
        crank = SliderCrank(
            link=link, point=at[:3], slider=guide, origin=frame[:3], axis=_three(axis),
            rod=float(model.actuator_cranklength[number]), factor=factor,
        )  # fmt: skip
        return {"crank": crank}

    def _body(self, number: int) -> dict[str, Any]:
        model, body = self._model, int(self._model.actuator_trnid[number][0])
        link = self._links.bodies[body][0]
        touching = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
        carriers = {int(x) for x in model.geom_bodyid[touching] if self._links.bodies[int(x)][0] == link}
        if not link or carriers - {body}:
            raise _UnmodelledError("its body is the world's, or a part of one whose other parts can touch")
        return {"adhesion": link}


def _without_length(law: dict[str, Any], beside: str) -> dict[str, Any]:
    """Adapt a law to a transmission without a length; it has a rate only if `beside` is "kd"."""
    if law["kind"] == "muscle" or (beside != "kd" and (law.get("kd") or law.get("per_velocity"))):
        raise _UnmodelledError("a force that depends on motion where nothing moves")
    changed = {name: x for name, x in law.items() if name not in ("kp", "per_position")}
    if law["kind"] == "servo":
        changed |= {"kind": "affine", "per_command": law["kp"]}
    return changed


def takes_commands(robot: Robot) -> bool:
    """Return whether a robot takes commands for its drives, all of which MuJoCo's actuators can represent."""
    return robot.command == "command" and all(map(_is_actuator, robot.drives.values()))


def _is_actuator(drive: Drive) -> bool:
    stages = (drive.longest_held_delay, drive.coulomb, drive.viscous, drive.stribeck, drive.bias)
    others = (drive.lag, drive.stiffness, drive.effort_limit, drive.saturation_effort)
    plain = others == (None,) * len(others) and not drive.loaded and drive.dead_band is drive.supply is UNSET
    return drive.kind in ("servo", "affine", "torque", "muscle") and not any(stages) and plain


def add_actuators(spec: Any, robot: Robot) -> None:
    """Add the drives of a robot that `takes_commands` to a `mujoco.MjSpec`, in the order of its control vector."""
    writer = _DriveWriter(spec, robot)
    for name in robot.actuated:
        drive = robot.drives.get(name, Drive())
        actuator = spec.add_actuator(plain_default(), name=f"{ADDED}{name}", **_law(drive))
        given = next((field for field in PLACES if getattr(drive, field) is not UNSET), None)
        if given is None:
            writer.transmission(actuator, {name: 1.0})
        else:
            getattr(writer, given)(actuator, getattr(drive, given))


class _DriveWriter:
    """Attaches actuators of a `mujoco.MjSpec` at the places of drives, one method for each of `PLACES`."""

    def __init__(self, spec: Any, robot: Robot) -> None:
        self._spec, self._kinds = spec, import_mujoco().mjtTrn
        self._joints = {joint.name: joint for joint in spec.joints}
        free = import_mujoco().mjtJoint.mjJNT_FREE
        if robot.joints[0].kind == "free" and robot.joints[0].name not in self._joints:  # any name matches
            self._joints[robot.joints[0].name] = next(joint for joint in spec.joints if joint.type == free)

    def transmission(self, actuator: Any, factors: Mapping[str, float]) -> None:
        if len(factors) == 1:
            ((joint, factor),) = factors.items()
            actuator.trntype, actuator.target, actuator.gear[0] = self._kinds.mjTRN_JOINT, joint, factor
            return
        tendon = self._spec.add_tendon(plain_default(), name=actuator.name)
        for joint, factor in factors.items():
            tendon.wrap_joint(joint, factor)
        actuator.trntype, actuator.target, actuator.gear[0] = self._kinds.mjTRN_TENDON, tendon.name, 1.0

    def tendons(self, actuator: Any, factors: Mapping[str, float]) -> None:
        ((name, factor),) = factors.items()
        own = {quantity_name(one.name, f"tendon{index}"): one for index, one in enumerate(self._spec.tendons)}
        own[name].name = own[name].name or name
        actuator.trntype, actuator.target, actuator.gear[0] = self._kinds.mjTRN_TENDON, own[name].name, factor

    def wrench(self, actuator: Any, thruster: BodyWrench) -> None:
        actuator.trntype, actuator.gear = self._kinds.mjTRN_SITE, [*thruster.force, *thruster.moment]
        actuator.target = self._site(actuator.name, thruster.link, thruster.point)

    def turning(self, actuator: Any, driven: TurningJoint) -> None:
        kinds, joint = self._kinds, self._joints[driven.joint]
        actuator.trntype = kinds.mjTRN_JOINTINPARENT if driven.in_parent else kinds.mjTRN_JOINT
        ball = joint.type == import_mujoco().mjtJoint.mjJNT_BALL
        joint.name = joint.name or driven.joint
        actuator.target = joint.name
        actuator.gear = [*driven.moment, 0.0, 0.0, 0.0] if ball else [*driven.force, *driven.moment]

    def between(self, actuator: Any, frames: FrameOffset) -> None:
        actuator.trntype, actuator.gear = self._kinds.mjTRN_SITE, [*frames.along, *frames.about]
        actuator.target = self._site(actuator.name, frames.link, frames.frame[:3], frames.frame[3:])
        actuator.refsite = self._site(
            f"{actuator.name} reference", frames.reference, frames.reference_frame[:3], frames.reference_frame[3:]
        )

    def crank(self, actuator: Any, crank: SliderCrank) -> None:
        actuator.trntype, actuator.gear[0] = self._kinds.mjTRN_SLIDERCRANK, crank.factor
        actuator.cranklength = crank.rod
        actuator.target = self._site(actuator.name, crank.link, crank.point)
        rotation = np.zeros(4)
        import_mujoco().mju_quatZ2Vec(rotation, np.array(crank.axis))
        actuator.slidersite = self._site(
            f"{actuator.name} slider", crank.slider, crank.origin, (*rotation[1:], rotation[0])
        )

    def adhesion(self, actuator: Any, link: str) -> None:
        """Attach an actuator to the body of a link that can touch something."""
        actuator.trntype, body = self._kinds.mjTRN_BODY, self._joints[link].parent
        bodies = [body]
        while bodies:
            one = bodies.pop()
            if any(geom.contype or geom.conaffinity for geom in one.geoms):
                body = one
                break
            bodies += [child for child in one.bodies if not child.joints]
        body.name = body.name or actuator.name
        actuator.target = body.name

    def _site(
        self, name: str, link: str, position: Sequence[float], rotation: Sequence[float] = (0.0, 0.0, 0.0, 1.0)
    ) -> str:
        """Add a site to the body of a link, or to the world, and return its name."""
        body = self._joints[link].parent if link else self._spec.worldbody
        body.add_site(plain_default(), name=name, pos=position, quat=[rotation[3], *rotation[:3]])
        return name


def _law(drive: Drive) -> dict[str, Any]:
    """Return gain, bias, ranges and state of an actuator with the law of a drive."""
    law = _muscle_law(drive.muscle, drive.gain) if drive.muscle is not UNSET else _affine_law(drive)
    law |= {"ctrllimited": drive.command_range is not UNSET, "forcelimited": drive.force_range is not UNSET}
    if drive.command_range is not UNSET:
        law["ctrlrange"] = drive.command_range
    if drive.force_range is not UNSET:
        law["forcerange"] = drive.force_range
    if drive.state is not UNSET:
        state = drive.state
        law["dyntype"] = getattr(import_mujoco().mjtDyn, f"mjDYN_{state.kind.upper()}")
        law["dynprm"] = _pad([state.time_constant or 1.0, state.release or 0.0, state.smoothing])
        law["actearly"], law["actlimited"] = state.early, state.range is not None
        if state.range is not None:
            law["actrange"] = state.range
    return law


def _affine_law(drive: Drive) -> dict[str, Any]:
    mujoco, gain = import_mujoco(), drive.gain
    slope = 1.0 if drive.kind == "torque" else drive.kp if drive.per_command is UNSET else drive.per_command
    gains = [slope or 0.0, drive.per_position or 0.0, drive.per_velocity or 0.0]
    bias = [drive.offset or 0.0, -(drive.kp or 0.0), -(drive.kd or 0.0)]
    return {
        "gainprm": _pad([gain * x for x in gains]), "biasprm": _pad([gain * x for x in bias]),
        "gaintype": mujoco.mjtGain.mjGAIN_AFFINE if any(gains[1:]) else mujoco.mjtGain.mjGAIN_FIXED,
        "biastype": mujoco.mjtBias.mjBIAS_AFFINE if any(bias) else mujoco.mjtBias.mjBIAS_NONE,
    }  # fmt: skip


def _muscle_law(muscle: Muscle, gain: float) -> dict[str, Any]:
    mujoco = import_mujoco()
    numbers = [
        *muscle.spans, gain * muscle.force, 1.0, muscle.shortest, muscle.longest, muscle.speed, muscle.passive,
        muscle.eccentric,
    ]  # fmt: skip
    return {
        "gainprm": _pad(numbers), "biasprm": _pad(numbers), "lengthrange": muscle.lengths,
        "gaintype": mujoco.mjtGain.mjGAIN_MUSCLE, "biastype": mujoco.mjtBias.mjBIAS_MUSCLE,
    }  # fmt: skip


def _pad(numbers: list[float]) -> list[float]:
    return numbers + [0.0] * (10 - len(numbers))


def _effort(drive: Drive, name: str, joint_ranges: Mapping[str, tuple[float, float]]) -> float | None:
    """Return the maximum force that ranges allow: of the force, of its joint, or of the command at rest."""
    if drive.force_range is not UNSET:
        return max(map(abs, drive.force_range))
    if drive.muscle is not UNSET:
        return drive.muscle.force
    joints = (name,) if not drive.acts_elsewhere else drive.joints
    if len(joints) == 1 and joints[0] in joint_ranges:
        factor = 1.0 if drive.transmission is UNSET else drive.transmission[joints[0]]
        return max(map(abs, joint_ranges[joints[0]])) / abs(factor)
    within = drive.command_range
    if drive.state is not UNSET and drive.state.range is not None:
        within = drive.state.range
    if within is UNSET or drive.per_position or drive.per_velocity:
        return None
    slope = drive.kp or 0.0 if drive.per_command is UNSET else abs(drive.per_command)
    return slope * (within[1] - within[0] if drive.kp else max(map(abs, within)))


def _pair(given: Any) -> tuple[float, float]:
    return float(given[0]), float(given[1])


def _three(given: Any) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in given)
    return x, y, z


def _word(kind: Any) -> Any:
    """Return the XML name of a constant of MuJoCo: "muscle" for mjGAIN_MUSCLE."""
    return kind.name.rpartition("_")[2].lower()
