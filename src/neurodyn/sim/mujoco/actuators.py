# SPDX-License-Identifier: Apache-2.0
r"""MuJoCo's actuators as drives: gain and bias, ranges, state, and where they act.

$$f = g\,u + b_0 + b_1 l + b_2 \dot l$$

with the length l of the transmission times the gear; $b_1 = -k_p$ and $b_2 = -k_d$, and $g = k_p$, $b_0 = 0$ for a
position servo. Names, ranges and order are the model's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import UNSET

from neurodyn.core.config import to_dict
from neurodyn.core.description.drive import BodyWrench, Drive, DriveState
from neurodyn.robots import Robot
from neurodyn.sim.mujoco.couplings import ADDED
from neurodyn.sim.mujoco.engine import import_mujoco


@dataclass(frozen=True)
class ReadDrives:
    """Actuators of a model.

    Attributes:
        drives: Drives by actuator, in the order of the control vector.
        efforts: Greatest force of each drive [N m or N]; None where the model sets no bound.
        joint_ranges: Range of the total torque of a joint's actuators by joint [N m or N] (`Link.effort_range`).
        unmodelled: Reason why an actuator is no drive, by name.
    """

    drives: dict[str, Drive] = field(default_factory=dict)
    efforts: dict[str, float | None] = field(default_factory=dict)
    joint_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    unmodelled: dict[str, str] = field(default_factory=dict)

    @property
    def motors(self) -> bool:
        """Whether all are torques at joints, at most one at each, so that joint torques say the same."""
        joints = [joint for name, drive in self.drives.items() for joint in drive.joints or (name,)]
        plain = all(
            drive.kind == "affine" and not drive.kp and not drive.kd and drive.offset in (UNSET, 0.0)
            and drive.state is UNSET and drive.wrench is UNSET and len(drive.joints) <= 1
            for drive in self.drives.values()
        )  # fmt: skip
        return plain and not self.unmodelled and len(set(joints)) == len(joints)

    def declared(self) -> dict[str, Any]:
        """Return `drives` of a declaration as plain data, without defaults."""
        usual = to_dict(Drive())
        return {
            name: {key: value for key, value in to_dict(drive).items() if key == "kind" or value != usual.get(key)}
            for name, drive in self.drives.items()
        }


class _UnmodelledError(Exception):
    """An actuator that is no drive; the message says why."""


def read_drives(model: Any, joints: Mapping[int, str] | None = None) -> ReadDrives:
    """Return the actuators of a compiled `mujoco.MjModel`.

    Args:
        model: The model; positions of its joints are the robot's.
        joints: Names of the joints by their number in the model; None for those of the model.
    """
    mujoco = import_mujoco()
    names = joints or {number: model.joint(number).name for number in range(model.njnt)}
    found = ReadDrives()
    if model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_ACTUATION):
        return found
    for joint, name in names.items():
        if model.jnt_actfrclimited[joint]:
            found.joint_ranges[name] = _pair(model.jnt_actfrcrange[joint])
    reader = _DriveReader(mujoco, model, names)
    for number in range(model.nactuator):
        name = model.actuator(number).name or f"actuator{number}"
        try:
            drive = reader.drive(number, name)
        except _UnmodelledError as reason:
            found.unmodelled[name] = str(reason)
            continue
        found.drives[name] = drive
        found.efforts[name] = _effort(drive, name, found.joint_ranges)
    return found


class _DriveReader:
    """Reads single actuators."""

    def __init__(self, mujoco: Any, model: Any, joints: Mapping[int, str]) -> None:
        self._mujoco, self._model, self._joints = mujoco, model, joints

    def drive(self, number: int, name: str) -> Drive:
        """Return one actuator as a drive, or raise `_UnmodelledError`."""
        mujoco, model = self._mujoco, self._model
        gain, bias = mujoco.mjtGain(model.actuator_gaintype[number]), mujoco.mjtBias(model.actuator_biastype[number])
        if gain != mujoco.mjtGain.mjGAIN_FIXED:
            raise _UnmodelledError(f"gain {_word(gain)}; modelled: fixed")
        if bias not in (mujoco.mjtBias.mjBIAS_NONE, mujoco.mjtBias.mjBIAS_AFFINE):
            raise _UnmodelledError(f"bias {_word(bias)}; modelled: none and affine")
        if model.actuator_ctrlnum[number] != 1 or model.actuator_outnum[number] != 1:
            raise _UnmodelledError("several controls; modelled: one")
        for what in ("delay", "damping", "armature"):
            if np.any(getattr(model, f"actuator_{what}")[number]):
                raise _UnmodelledError(f"its own {what}; modelled: none")
        slope = float(model.actuator_gainprm[number][0])
        law: list[float] = [0.0, 0.0, 0.0]
        if bias == mujoco.mjtBias.mjBIAS_AFFINE:
            law = [float(x) for x in model.actuator_biasprm[number][:3]]
        if law[1] > 0 or law[2] > 0:
            raise _UnmodelledError(f"bias {law} grows with position or velocity; modelled: stiffness and damping")
        numbers: dict[str, Any] = {"kind": "affine", "per_command": slope}
        if slope > 0 and law[0] == 0 and law[1] == -slope:
            numbers = {"kind": "servo", "kp": slope}
        elif law[0]:
            numbers["offset"] = law[0]
        if law[1] and numbers["kind"] == "affine":
            numbers["kp"] = -law[1]
        if law[2]:
            numbers["kd"] = -law[2]
        return Drive(**numbers, **self._place(number, name, moving=any(law[1:])), **self._ranges(number))

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
        if kind not in (kinds.mjDYN_INTEGRATOR, kinds.mjDYN_FILTER, kinds.mjDYN_FILTEREXACT):
            raise _UnmodelledError(f"dynamics {_word(kind)}; modelled: integrator, filter and filterexact")
        lags = kind != kinds.mjDYN_INTEGRATOR
        return DriveState(
            kind=_word(kind),
            time_constant=max(float(model.actuator_dynprm[number][0]), 1e-15) if lags else None,
            range=_pair(model.actuator_actrange[number]) if model.actuator_actlimited[number] else None,
            early=bool(model.actuator_actearly[number]),
        )  # fmt: skip

    def _place(self, number: int, name: str, *, moving: bool) -> dict[str, Any]:
        """Return the transmission or the wrench of an actuator, whose force may depend on motion."""
        model, kinds = self._model, self._mujoco.mjtTrn
        kind, gear = kinds(model.actuator_trntype[number]), model.actuator_gear[number]
        target = int(model.actuator_trnid[number][0])
        if kind == kinds.mjTRN_SITE:
            return {"wrench": self._wrench(number, moving=moving)}
        if kind in (kinds.mjTRN_JOINT, kinds.mjTRN_JOINTINPARENT):
            row = {target: float(gear[0])}
        elif kind == kinds.mjTRN_TENDON:
            if model.tendon_actfrclimited[target]:
                raise _UnmodelledError("its tendon's own actuatorfrcrange; modelled: forcerange of the actuator")
            row = {joint: float(gear[0]) * x for joint, x in self._fixed_tendon(target).items()}
        else:
            raise _UnmodelledError(f"transmission {_word(kind)}; modelled: joint, tendon and site")
        for joint in row:
            self._require_scalar(joint)
        factors = {self._joints[joint]: factor for joint, factor in row.items() if factor}
        if not factors:
            raise _UnmodelledError("its gear is zero")
        return {} if factors == {name: 1.0} else {"transmission": factors}

    def _fixed_tendon(self, tendon: int) -> dict[int, float]:
        model, row = self._model, {}
        begin = int(model.tendon_adr[tendon])
        for wrap in range(begin, begin + int(model.tendon_num[tendon])):
            if model.wrap_type[wrap] != int(self._mujoco.mjtWrap.mjWRAP_JOINT):
                raise _UnmodelledError("a spatial tendon; modelled: fixed tendons")
            joint = int(model.wrap_objid[wrap])
            row[joint] = row.get(joint, 0.0) + float(model.wrap_prm[wrap])
        return row

    def _require_scalar(self, joint: int) -> None:
        model, kinds = self._model, self._mujoco.mjtJoint
        if kinds(model.jnt_type[joint]) not in (kinds.mjJNT_HINGE, kinds.mjJNT_SLIDE):
            raise _UnmodelledError(f"acts on {_word(kinds(model.jnt_type[joint]))} joint {self._joints[joint]!r}")

    def _wrench(self, number: int, *, moving: bool) -> BodyWrench:
        """Return the force and moment of an actuator at a site, in the frame of the body that a joint moves."""
        model, site = self._model, int(self._model.actuator_trnid[number][0])
        if int(model.actuator_trnid[number][1]) >= 0:
            raise _UnmodelledError("a site with a refsite; modelled: a site alone")
        if moving:
            raise _UnmodelledError("a servo at a site; modelled: forces at sites")
        body, place = int(model.site_bodyid[site]), np.array(model.site_pos[site])
        turn = self._turn(model.site_quat[site])
        while not model.body_jntnum[body]:
            if not body:
                raise _UnmodelledError("its site does not move")
            own = self._turn(model.body_quat[body])
            place, turn, body = model.body_pos[body] + own @ place, own @ turn, int(model.body_parentid[body])
        joint = int(model.body_jntadr[body] + model.body_jntnum[body]) - 1
        gear = model.actuator_gear[number]
        force, moment = (tuple(float(x) for x in turn @ part) for part in (gear[:3], gear[3:]))
        return BodyWrench(link=self._joints[joint], point=_three(place), force=_three(force), moment=_three(moment))

    def _turn(self, quaternion: Any) -> np.ndarray:
        """Return the rotation matrix of a quaternion (scalar first)."""
        turn = np.zeros(9)
        self._mujoco.mju_quat2Mat(turn, np.asarray(quaternion, dtype=float))
        return turn.reshape(3, 3)


def takes_commands(robot: Robot) -> bool:
    """Return whether MuJoCo's actuators can do all that the drives of a robot do, whose commands are theirs."""
    return robot.command == "command" and all(map(_is_actuator, robot.drives.values()))


def _is_actuator(drive: Drive) -> bool:
    stages = (drive.reach, drive.coulomb, drive.viscous, drive.stribeck, drive.bias)
    others = (drive.lag, drive.stiffness, drive.effort_limit, drive.saturation_effort)
    return drive.kind in ("servo", "affine", "torque") and not any(stages) and others == (None,) * len(others)


def add_actuators(spec: Any, robot: Robot) -> None:
    """Add the drives of a robot that `takes_commands` to a `mujoco.MjSpec`, in the order of its control vector."""
    kinds = import_mujoco().mjtTrn
    bodies = {joint.name: joint.parent for joint in spec.joints}
    for name in robot.actuated:
        drive, own = robot.drives.get(name, Drive()), f"{ADDED}{name}"
        actuator = spec.add_actuator(name=own, **_law(drive))
        if drive.wrench is not UNSET:
            bodies[drive.wrench.link].add_site(name=own, pos=drive.wrench.point)
            actuator.trntype, actuator.target = kinds.mjTRN_SITE, own
            actuator.gear = [*drive.wrench.force, *drive.wrench.moment]
            continue
        row = {name: 1.0} if drive.transmission is UNSET else drive.transmission
        if len(row) == 1:
            ((joint, factor),) = row.items()
            actuator.trntype, actuator.target, actuator.gear[0] = kinds.mjTRN_JOINT, joint, factor
            continue
        tendon = spec.add_tendon(name=own)
        for joint, factor in row.items():
            tendon.wrap_joint(joint, factor)
        actuator.trntype, actuator.target, actuator.gear[0] = kinds.mjTRN_TENDON, own, 1.0


def _law(drive: Drive) -> dict[str, Any]:
    """Return gain, bias, ranges and state of an actuator with the law of a drive."""
    mujoco, gain = import_mujoco(), drive.gain
    slope = 1.0 if drive.kind == "torque" else drive.kp if drive.per_command is UNSET else drive.per_command
    bias = [drive.offset or 0.0, -(drive.kp or 0.0), -(drive.kd or 0.0)]
    law: dict[str, Any] = {
        "gainprm": _padded([gain * (slope or 0.0)]), "biasprm": _padded([gain * x for x in bias]),
        "gaintype": mujoco.mjtGain.mjGAIN_FIXED,
        "biastype": mujoco.mjtBias.mjBIAS_AFFINE if any(bias) else mujoco.mjtBias.mjBIAS_NONE,
        "ctrllimited": drive.command_range is not UNSET, "forcelimited": drive.force_range is not UNSET,
    }  # fmt: skip
    if drive.command_range is not UNSET:
        law["ctrlrange"] = drive.command_range
    if drive.force_range is not UNSET:
        law["forcerange"] = drive.force_range
    if drive.state is not UNSET:
        state = drive.state
        law["dyntype"] = getattr(mujoco.mjtDyn, f"mjDYN_{state.kind.upper()}")
        law["dynprm"] = _padded([state.time_constant or 1.0])
        law["actearly"], law["actlimited"] = state.early, state.range is not None
        if state.range is not None:
            law["actrange"] = state.range
    return law


def _padded(numbers: list[float]) -> list[float]:
    return numbers + [0.0] * (10 - len(numbers))


def _effort(drive: Drive, name: str, joint_ranges: Mapping[str, tuple[float, float]]) -> float | None:
    """Return the greatest force that ranges allow: of the force, of its joint, or of the command at rest."""
    if drive.force_range is not UNSET:
        return max(map(abs, drive.force_range))
    joints = drive.joints or (name,)
    if len(joints) == 1 and joints[0] in joint_ranges:
        factor = 1.0 if drive.transmission is UNSET else drive.transmission[joints[0]]
        return max(map(abs, joint_ranges[joints[0]])) / abs(factor)
    within = drive.command_range
    if drive.state is not UNSET and drive.state.range is not None:
        within = drive.state.range
    if within is UNSET:
        return None
    slope = drive.kp or 0.0 if drive.per_command is UNSET else abs(drive.per_command)
    return slope * (within[1] - within[0] if drive.kp else max(map(abs, within)))


def _pair(given: Any) -> tuple[float, float]:
    return float(given[0]), float(given[1])


def _three(given: Any) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in given)
    return x, y, z


def _word(kind: Any) -> Any:
    """Return a constant of MuJoCo as its XML has it: "muscle" of mjGAIN_MUSCLE."""
    return kind.name.rpartition("_")[2].lower()
