# SPDX-License-Identifier: Apache-2.0
"""Replays in plain MuJoCo: of an exported MJCF as it stands, of a URDF, and of a robot's own asset.

An MJCF that takes the log's commands is driven by its own actuators. A URDF has none: drives and armatures of the
declaration are added, in the exported file and in the original alike.
"""

import math
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import UNSET

from neurodyn.core.description.drive import DRIVE_KINDS, Drive
from neurodyn.dynamics.batch import Trajectory
from neurodyn.interop.replay_scene import NotReplayedError, ReplayScene, compile_library
from neurodyn.robots import Robot, asset_path
from neurodyn.sim.engine import collect_warnings, import_mujoco
from neurodyn.sim.mujoco.asset import read_spec
from neurodyn.sim.mujoco.build import fixed_floors, joint_name
from neurodyn.sim.mujoco.states import StateColumns

_TINY = 1e-9


@contextmanager
def _compiling(what: str) -> Iterator[None]:
    """Raise a `NotReplayedError` for what MuJoCo refuses."""
    try:
        yield
    except ValueError as error:
        raise NotReplayedError(f"MuJoCo refuses {what}: {str(error).splitlines()[0]}") from None


def play_mjcf(folder: Path, scene: ReplayScene) -> Trajectory:
    """Replay ROBOT.xml of an exported folder, read by `mujoco.MjModel.from_xml_path`, with its plugin if it has one."""
    mujoco, floor = import_mujoco(), needs_floor(scene)
    plugged = _load_plugin(folder, scene.robot.name)
    path = plugged or folder / f"{scene.robot.name}.xml"
    try:
        with _compiling("the file"):
            model = mujoco.MjModel.from_xml_path(str(path))
            if floor:
                spec = mujoco.MjSpec.from_file(str(path))
                add_floor(spec)
                model = spec.compile()
    finally:
        if plugged is not None:
            plugged.unlink()
    return LogPlayer(model, scene).play()


def play_asset(scene: ReplayScene) -> Trajectory:
    """Replay the robot's own asset, with its own actuators if these take the log's commands."""
    robot, mujoco = scene.robot, import_mujoco()
    path = asset_path(robot)
    if path.suffix.lower() == ".urdf":
        return _play_urdf(path, scene, robot.locked)
    if path.suffix.lower() != ".xml":
        raise NotReplayedError(f"MuJoCo does not read the original, {path.name}")
    with _compiling("the original"):
        spec = mujoco.MjSpec.from_file(str(path.resolve()))
        for joint in [joint for joint in spec.joints if joint.name in robot.locked]:
            spec.delete(joint)
        for key in list(spec.keys):
            spec.delete(key)
        if robot.command != "command":
            _drive(spec, robot)
        if needs_floor(scene):
            add_floor(spec)
        model = spec.compile()
    return LogPlayer(model, scene).play()


def play_urdf(folder: Path, scene: ReplayScene) -> Trajectory:
    """Replay ROBOT.urdf of an exported folder, with the declared drives."""
    return _play_urdf(folder / f"{scene.robot.name}.urdf", scene)


def _play_urdf(path: Path, scene: ReplayScene, locked: tuple[str, ...] = ()) -> Trajectory:
    robot = scene.robot
    spec = read_spec(path, locked=locked, floating=not robot.fixed_base)
    kinds, laws = import_mujoco().mjtIntegrator, [DRIVE_KINDS[one.kind] for one in robot.drives.values()]
    explicit = any(law.gains is not None and law.damping is None for law in laws)  # as the drives of the declaration
    spec.option.timestep = scene.step
    spec.option.integrator = kinds.mjINT_EULER if explicit else kinds.mjINT_IMPLICITFAST
    armatures = {joint.name: joint.armature for joint in robot.joints if joint.armature is not None}
    for joint in spec.joints:
        joint.armature = armatures.get(joint.name, joint.armature)
    _drive(spec, robot)
    if needs_floor(scene):
        add_floor(spec)
    with _compiling("the URDF"):
        model = spec.compile()
    return LogPlayer(model, scene).play()


def _drive(spec: Any, robot: Robot) -> None:
    """Replace the actuators of a `mujoco.MjSpec` by the declared drives of the joints."""
    mujoco = import_mujoco()
    for element in [*spec.sensors, *spec.actuators, *spec.keys]:
        spec.delete(element)
    for name in robot.actuated:
        drive = robot.drives.get(name, Drive())
        if drive.acts_elsewhere or drive.prescribes_motion:
            raise NotReplayedError(f"the drive {name!r} does not act on one joint")
        actuator = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        gains = drive.pd_gains()
        actuator.gainprm[0] = drive.gain if gains is None else gains[0]
        if gains is not None:
            actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            actuator.biasprm[:3] = [-gains[0] * drive.bias, -gains[0], -gains[1]]
        limit = drive.effort_limit
        ends = (-limit, limit) if limit is not None else None if drive.force_range is UNSET else drive.force_range
        if ends is not None:
            actuator.forcelimited, actuator.forcerange = True, ends


def needs_floor(scene: ReplayScene) -> bool:
    """Return whether a floating robot moved on flat ground, which its file may lack."""
    if scene.robot.fixed_base:
        return False
    ground = scene.robot.named_ground()
    if ground is None or not ground.shapes:
        return False
    pose = scene.windows.ground
    flat = len(ground.shapes) == 1 and type(ground.shapes[0]).__name__ == "Plane"
    if not flat or (pose is not None and bool((pose[:, :6].abs() > _TINY).any())):
        raise NotReplayedError("the ground of the log is not a level plane")
    return True


def add_floor(spec: Any) -> None:
    """Give a spec a level floor, unless it has one; others than level ones are removed, as in the model."""
    mujoco, model = import_mujoco(), spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    level = False
    for floor in fixed_floors(spec):
        up, height = float(data.geom_xmat[floor.id][8]), float(data.geom_xpos[floor.id][2])
        if floor.type == mujoco.mjtGeom.mjGEOM_PLANE and up > 1.0 - _TINY and abs(height) < _TINY:
            level = True
        else:
            spec.delete(floor)
    if not level:
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.0, 0.0, 1.0], margin=0.0, gap=0.0)


class LogPlayer:
    """A compiled model that replays windows by its own actuators."""

    def __init__(self, model: Any, scene: ReplayScene) -> None:
        self.model, self.scene, spec = model, scene, scene.robot.spec
        parts = 1 if scene.windows.parts is None else scene.windows.parts.shape[2]
        self.steps = parts * max(1, round(spec.dt / model.opt.timestep / parts))
        model.opt.timestep = spec.dt / self.steps
        known = {joint_name(model, number): number for number in range(model.njnt)}
        lacking = [joint.name for joint in spec.joints if joint.name not in known]
        more = [name for name in known if name not in {joint.name for joint in spec.joints}]
        if lacking or more:
            raise NotReplayedError(f"the file's joints are not the robot's ({', '.join((*lacking, *more)[:3])})")
        joints = [known[joint.name] for joint in spec.joints]
        self._columns = StateColumns(model, joints, spec, [scene.com] * len(joints))
        self._commands, self._gears = self.actuators()

    def actuators(self) -> tuple[list[int], np.ndarray]:
        """Return the actuator of each control, and the commands per unit of control."""
        mujoco, model, robot = import_mujoco(), self.model, self.scene.robot
        named = {model.actuator(number).name: number for number in range(model.nactuator)}
        acting = {
            model.joint(int(model.actuator_trnid[number, 0])).name: number
            for number in range(model.nactuator)
            if model.actuator_trntype[number] == mujoco.mjtTrn.mjTRN_JOINT
        }
        if robot.command == "command":  # of the asset's actuators
            acting = acting | named
        found = []
        for name in robot.spec.controls:
            number = acting.get(name, named.get(name))
            if number is None:
                raise NotReplayedError(f"the file has no actuator at {name}")
            found.append(number)
        gears = np.ones(len(found))
        if robot.spec.control_kind == "torque" and robot.command == "torque":
            gears = 1.0 / model.actuator_gear[found, 0]
        return found, gears

    def play(self) -> Trajectory:
        """Roll out from the start of every window, after the commands of its past."""
        with collect_warnings():
            return self._play()

    def _play(self) -> Trajectory:
        mujoco, model, windows = import_mujoco(), self.model, self.scene.windows
        spec, data = self.scene.robot.spec, import_mujoco().MjData(model)
        q, qd, control = (x.double().numpy() for x in (windows.q, windows.qd, windows.commands))
        past = windows.past
        before = None if past is None else tuple(x.double().numpy() for x in (past.q, past.qd, past.commands))
        paths = np.full((windows.count, windows.frames + 1, spec.nq), np.nan)
        rates = np.full((windows.count, windows.frames + 1, spec.nv), np.nan)
        for window in range(windows.count):
            mujoco.mj_resetData(model, data)
            self.forget()
            at = data.qpos[None], data.qvel[None]
            for frame in range(0 if before is None else before[2].shape[1]):
                assert before is not None
                self._columns.write(*at, before[0][window, frame][None], before[1][window, frame][None])
                self.step(data, before[2][window, frame])
            self._columns.write(*at, q[window, :1], qd[window, :1])
            paths[window, 0], rates[window, 0] = q[window, 0], qd[window, 0]
            for frame in range(windows.frames):
                self.step(data, control[window, frame])
                if data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number:  # MuJoCo has reset the state
                    break
                (paths[window, frame + 1],), (rates[window, frame + 1],) = self._columns.read(*at)
        return Trajectory(torch.from_numpy(paths), torch.from_numpy(rates))

    def forget(self) -> None:
        """Begin a window; actuators of MuJoCo forget with its state."""

    def step(self, data: Any, control: np.ndarray) -> None:
        """Move by a frame under a control of the log, shape [nu], or the controls of its parts, [parts, nu]."""
        parts = math.gcd(self.steps, len(control)) if control.ndim == 2 else 1
        for part in [control] if control.ndim == 1 else control.reshape(parts, -1, control.shape[-1]).mean(1):
            self.hold(data, part, self.steps // parts)

    def hold(self, data: Any, control: np.ndarray, steps: int) -> None:
        """Take some steps under a control, shape [nu]."""
        data.ctrl[self.model.actuator_ctrladr[self._commands]] = control * self._gears
        import_mujoco().mj_step(self.model, data, nstep=steps)


def version() -> str:
    """Return the name and version of the simulator."""
    return f"MuJoCo {import_mujoco().__version__}"


def _load_plugin(folder: Path, robot: str) -> Path | None:
    """Compile the plugin of an exported folder and load it; return a file that uses it, None without a plugin.

    MuJoCo forgets no plugin, so that each gets a name of its own.
    """
    mujoco, whole = import_mujoco(), folder / f"{robot}_plugin.xml"
    if not whole.is_file():
        return None
    (source,) = folder.glob("*_networks.c")
    name = f"neurodyn.{source.stem}"
    own = f"{name}_{secrets.token_hex(4)}"
    place = Path(mujoco.__path__[0])
    with tempfile.TemporaryDirectory() as build:
        code, version_file = Path(build) / source.name, next(place.glob("libmujoco.so.*"), None)
        code.write_text(source.read_text(encoding="utf-8").replace(name, own), encoding="utf-8")
        linked = [] if version_file is None else [f"-L{place}", f"-l:{version_file.name}"]
        try:
            library = compile_library(code, f"-I{place / 'include'}", *linked)
        except NotReplayedError as error:
            raise NotReplayedError(f"its networks are a plugin: {error}") from None
        mujoco.mj_loadPluginLibrary(str(library))
    path = whole.with_name(f"{own}.xml")
    path.write_text(whole.read_text(encoding="utf-8").replace(name, own), encoding="utf-8")
    return path
