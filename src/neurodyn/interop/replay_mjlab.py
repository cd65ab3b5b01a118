# SPDX-License-Identifier: Apache-2.0
"""Replays of mjlab's configurations in plain MuJoCo, with actuators as mjlab 1.6 computes them.

mjlab's own physics is MuJoCo Warp, which is compiled for a GPU. What a configuration says is read by running
robot_cfg.py with classes that keep their fields.
"""

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from neurodyn.dynamics.batch import Trajectory
from neurodyn.interop.replay_mujoco import LogPlayer, add_floor, needs_floor, version
from neurodyn.interop.replay_scene import NotReplayedError, ReplayScene
from neurodyn.interop.texts import CONFIGURATION
from neurodyn.interop.trainers import MJLAB_IMPORTS
from neurodyn.sim.engine import import_mujoco

NATIVE = ("BuiltinMotorActuatorCfg", "BuiltinPositionActuatorCfg")
OF_FILE = "XmlActuatorCfg"
EXPLICIT = ("IdealPdActuatorCfg", "DcMotorActuatorCfg")
"""Classes whose forces MuJoCo computes: added to the MJCF, and there already; and classes that compute torques."""


class _Fields:
    """A class of mjlab that keeps what it is given."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields


def read_configuration(folder: Path) -> dict[str, Any]:
    """Return the names that an exported robot_cfg.py defines, with classes of mjlab as `_Fields`."""
    import math

    text = (folder / CONFIGURATION).read_text(encoding="utf-8")
    kinds = {
        name: type(name, (_Fields,), {}) for name in (*NATIVE, OF_FILE, *EXPLICIT, "LearnedMlpActuatorCfg", *_ENTITY)
    }
    names: dict[str, Any] = {**kinds, "math": math, "mujoco": import_mujoco(), "FOLDER": folder}
    exec(compile(text.replace(MJLAB_IMPORTS, ""), CONFIGURATION, "exec"), names)
    return names


_ENTITY = ("EntityCfg", "EntityArticulationInfoCfg")


def simulator() -> str:
    """Return what replays: MuJoCo, with mjlab's actuators."""
    return f"{version()}, actuators as in mjlab"


def play_mjlab(folder: Path, scene: ReplayScene) -> Trajectory:
    """Replay the configuration of an exported folder, at its PHYSICS_DT."""
    mujoco, names = import_mujoco(), read_configuration(folder)
    entity = next(one for one in names.values() if type(one).__name__ == "EntityCfg")
    spec = entity.fields["spec_fn"]()
    spec.option.timestep, spec.option.integrator = names["PHYSICS_DT"], mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    actuators = {}
    for one in names["ACTUATORS"]:
        kind = type(one).__name__
        if kind not in (*NATIVE, OF_FILE, *EXPLICIT):
            raise NotReplayedError("networks of actuators are not replayed")
        (joint,) = one.fields["target_names_expr"]
        actuators[joint.replace("\\", "")] = _MjlabDrive(kind, one.fields)
        if kind in NATIVE:
            _add(spec, joint.replace("\\", ""), one.fields, position="Position" in kind)
    if needs_floor(scene):
        add_floor(spec)
    return _MjlabPlayer(spec.compile(), scene, actuators).play()


@dataclass(frozen=True)
class _MjlabDrive:
    kind: str
    fields: dict[str, Any]

    @property
    def lag(self) -> int:
        """Delay of its commands in time steps."""
        return int(self.fields.get("delay_min_lag", 0))

    def torque(self, command: float, q: float, qd: float) -> float:
        """Return the torque of a class that computes it."""
        fields = self.fields
        kp, kd = fields["stiffness"], fields["damping"]
        effort = kp * (command - q) - kd * qd if kp or kd else command  # one of the three targets of a class
        limit = least = fields["effort_limit"]
        if self.kind == "DcMotorActuatorCfg":
            stall, speed = fields["saturation_effort"], fields["velocity_limit"]
            limit = min(limit, max(stall * (1.0 - qd / speed), 0.0))
            least = min(least, max(stall * (1.0 + qd / speed), 0.0))
        return min(max(effort, -least), limit)


def _add(spec: Any, joint: str, fields: dict[str, Any], *, position: bool) -> None:
    mujoco = import_mujoco()
    actuator = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    actuator.gainprm[0] = fields["stiffness"] if position else 1.0
    if position:
        actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        actuator.biasprm[:3] = [0.0, -fields["stiffness"], -fields["damping"]]
    limit = fields.get("effort_limit")
    if limit is not None:
        actuator.forcelimited, actuator.forcerange = True, (-limit, limit)


class _MjlabPlayer(LogPlayer):
    """A player whose actuators act as mjlab's: after whole time steps, and some by torques that are computed."""

    def __init__(self, model: Any, scene: ReplayScene, actuators: dict[str, _MjlabDrive]) -> None:
        lacking = [name for name in scene.robot.spec.controls if name not in actuators]
        if lacking:
            raise NotReplayedError(f"the configuration has no actuator at {lacking[0]}")
        self._each = [actuators[name] for name in scene.robot.spec.controls]
        self._past: deque[np.ndarray] = deque(maxlen=1 + max((one.lag for one in self._each), default=0))
        super().__init__(model, scene)

    def actuators(self) -> tuple[list[int], np.ndarray]:
        """Return nothing: `hold` writes the commands."""
        return [], np.ones(0)

    def forget(self) -> None:
        """Begin with no commands in the past."""
        self._past.clear()

    def hold(self, data: Any, control: np.ndarray, steps: int) -> None:
        """Take some steps under a control, shape [nu]."""
        model, names = self.model, self.scene.robot.spec.controls
        for _ in range(steps):
            self._past.appendleft(control)
            for k, (name, one) in enumerate(zip(names, self._each, strict=True)):
                command = float(self._past[min(one.lag, len(self._past) - 1)][k])
                if one.kind not in EXPLICIT:
                    data.ctrl[model.actuator(name).id] = command
                    continue
                joint = model.joint(name)
                q, qd = float(data.qpos[joint.qposadr[0]]), float(data.qvel[joint.dofadr[0]])
                data.qfrc_applied[joint.dofadr[0]] = one.torque(command, q, qd)
            import_mujoco().mj_step(model, data)
