# SPDX-License-Identifier: Apache-2.0
"""Identification from logs, side by side: `neurodyn adapt`, `mujoco.sysid` and PACE's set of quantities.

Two robots without contacts, one log each:

- go2: 14 s of a real Unitree Go2 in the air, position targets at 200 Hz (--go2 FILE, --urdf FILE). Models are fitted to
  the first 60 % and tested on the last 40 %.
- hung: an ant-like quadruped in plain MuJoCo, suspended by its torso, with worn joints and lagging motors, one of them
  weak. Its log has 20 episodes of 4 s; models are fitted to the first 16 and tested on the others.

Errors are means over joints after 0.1, 0.5 and 1 s open loop, from the same states, with motor states from the
preceding commands. `mujoco.sysid` fits those of `adapt`'s quantities that a MuJoCo model has: not the torque lag behind
a controller. PACE (arXiv:2509.06342) fits armature, damping, friction and bias of each joint, and one delay; here by
the fit of `adapt`. CPU seconds are those of the process, kernels compiled before.
"""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import mujoco
import numpy as np
import torch

from _common import require, result_parser, single_thread, write_result
from neurodyn.core import Drive, InputError
from neurodyn.data import Split, Store, StoreHeader, StoreWriter, import_logs, read_column_map
from neurodyn.dynamics import Dynamics, Window, declared_hybrid, load
from neurodyn.identify import AdaptationSettings, adapt
from neurodyn.robots import Robot, asset_path, is_installed
from neurodyn.robots import load as load_robot
from neurodyn.sim import declare
from neurodyn.sim.mujoco.sysid import LogSegments, MujocoPeer, import_sysid, with_inertias

ROOT = Path(__file__).resolve().parents[1]
GO2 = ROOT.parent / "shared" / "data" / "go2_air" / "go2_air.npz"
KP, KD, LIMITS = 20.0, 1.5, {"hip": 23.7, "thigh": 23.7, "calf": 45.43}
SECONDS = (0.1, 0.5, 1.0)
PIECE, PIECES = 0.5, 40
"""Length [s] and number of the segments that `mujoco.sysid` compares if commands are torques."""
PAST = 0.08
"""Time before a start for initialising motor states [s]."""
HUNG = tuple(f"{leg}_{joint}" for leg in ("front_left", "front_right", "rear_left", "rear_right")
             for joint in ("hip", "ankle"))  # fmt: skip
PACE_OF_TORQUES = ("*.armature", "*.damping", "*.friction", "motors.delay")
PACE = ("*.armature", "*.damping", "*.friction", "*.bias", "motors.delay")
LOGGED = ("time", "joint_position", "joint_command")
SHARE = 0.6


@dataclass(frozen=True)
class Case:
    """A robot, its log, and its peers.

    Attributes:
        robot: The declaration, with its commanded drives.
        declaration: Path of its folder.
        train: Log for fitting models.
        held: Log for testing them.
        targets: Whether commands are targets of controllers.
        mujoco: The declaration in MuJoCo.
        pace: PACE's quantities, as far as the robot has them.
    """

    name: str
    robot: Robot
    declaration: str
    train: Path
    held: Store
    targets: bool
    mujoco: MujocoPeer
    pace: tuple[str, ...]


def main() -> None:
    """Identify the requested cases, and write the figures."""
    parser = result_parser(__doc__)
    parser.add_argument("--go2", type=Path, default=GO2, help="npz file of the Go2's log")
    parser.add_argument("--urdf", type=Path, help="URDF of a Go2; by default that of example-robot-data")
    parser.add_argument("--only", nargs="+", choices=("go2", "hung"), default=("go2", "hung"))
    options = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.only:
            folder = Path(scratch) / name
            case = hung_case(folder) if name == "hung" else go2_case(options.go2, options.urdf, folder)
            if isinstance(case, str):
                print(f"{name}: skipped, {case}")
                continue
            own, beside = measure(case, folder)
            figures |= own
            ratios |= beside
    write_result(options.json, "identification", figures, ratios)


def measure(case: Case, folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return errors and CPU seconds of each method, and our CPU seconds relative to the peer's."""
    starts = starts_of(case.held, round(PAST / case.robot.dt), round(SECONDS[-1] / case.robot.dt))
    errors = {
        "declared": engine_errors(declared_hybrid(case.robot), starts),
        "declared_mujoco": errors_of(case.mujoco.rollout(starts)[0], starts, case.robot.dt),
    }
    seconds: dict[str, float] = {}
    alike = errors["declared"][0] / errors["declared_mujoco"][0]
    require(0.8 < alike < 1.25, f"{case.name}: the declaration errs {alike:.2f} times as much as in MuJoCo")
    ways = {"mechanism": None, "networks": None, "pace": AdaptationSettings(quantities=case.pace)}
    for way, settings in ways.items():
        mechanism = way != "networks"
        if way == "mechanism":  # compiles kernels; the next one is timed
            adapt(case.declaration, case.train, folder / "warm", threads=1)
        begin = time.process_time()
        adapt(case.declaration, case.train, folder / way, settings=settings, mechanism=mechanism, threads=1)
        seconds[way] = time.process_time() - begin
        errors[way] = engine_errors(load(folder / way), starts)
    try:
        import_sysid()
    except InputError as error:
        print(f"{case.name}: mujoco.sysid skipped, {error}")
    else:
        # Controller targets keep a long roll-out near the log; torques do not, and need short ones.
        train = Store.open(case.train)
        past, frames = (0, int(train.lengths.max())) if case.targets else (starts.past, round(PIECE / case.robot.dt))
        log = starts_of(train, past, min(frames, int(train.lengths.max()) - past), PIECES)
        for way, patterns in {"sysid": ("*",), "sysid_pace": case.pace}.items():
            found, how = case.mujoco.identified(log, patterns)
            errors[way], seconds[way] = errors_of(found.rollout(starts)[0], starts, case.robot.dt), how["cpu_s"]
    for way in ("mechanism", "networks"):
        require(errors[way][-1] < errors["declared"][-1], f"{case.name}: {way} is no better than the declaration")
    figures = {
        f"{case.name}_{way}_{horizon:g}s_rad": error
        for way, found in errors.items()
        for horizon, error in zip(SECONDS, found, strict=True)
    }
    figures |= {f"{case.name}_{way}_cpu_s": taken for way, taken in seconds.items()}
    for way in ("mechanism", "networks", "pace"):
        figures[f"{case.name}_{way}_share_of_declared_1s"] = errors[way][-1] / errors["declared"][-1]
    ratios = {}
    for mine, theirs in (("mechanism", "sysid"), ("pace", "sysid_pace")):
        if theirs in seconds:
            ratios[f"{case.name}_{mine}_vs_{theirs}_b1"] = seconds[mine] / seconds[theirs]
            figures[f"{case.name}_{mine}_error_over_{theirs}_1s"] = errors[mine][-1] / errors[theirs][-1]
    return figures, ratios


def starts_of(store: Store, past: int, frames: int, most: int = 200) -> LogSegments:
    """Return evenly spaced segments of all episodes of a log."""
    whole, found = past + frames, []
    for index in store.episodes():
        q, qd, control = store.episode(int(index))
        found += [(q[s : s + whole + 1], qd[s : s + whole + 1], control[s : s + whole]) for s in range(len(q) - whole)]
    kept = found[:: max(1, len(found) // most)]
    q, qd, control = (np.stack(part).astype(np.float64) for part in zip(*kept, strict=True))
    return LogSegments(q, qd, control, past)


def engine_errors(dynamics: Dynamics, starts: LogSegments) -> list[float]:
    """Return the errors of a model of the engine at each horizon."""
    q, qd, control = (torch.as_tensor(part) for part in (starts.q, starts.qd, starts.control))
    past = starts.past
    with torch.no_grad():
        path = dynamics.rollout(Window(q[:, : past + 1], qd[:, : past + 1], control[:, :past]), control[:, past:])
    return errors_of(path.q.numpy(), starts, dynamics.spec.dt)


def errors_of(path: np.ndarray, starts: LogSegments, dt: float) -> list[float]:
    """Return the mean error over joints and starts at each horizon [rad]."""
    truth = starts.q[:, starts.past :]
    return [float(np.abs(path[:, round(s / dt)] - truth[:, round(s / dt)]).mean()) for s in SECONDS]


def go2_case(log: Path, urdf: Path | None, folder: Path) -> Case | str:
    """Return the real Go2, or the reason for leaving it out."""
    if not log.is_file():
        return f"there is no {log.name}; give --go2 FILE"
    if urdf is None and not is_installed(load_robot("go2")):
        return "no package with the URDF of a Go2 is installed; give --urdf FILE"
    urdf = asset_path(load_robot("go2")) if urdf is None else urdf
    declare(urdf, folder / "go2", name="go2", floating=False)
    robot = load_robot(folder / "go2")
    joints = tuple(robot.actuated)
    limits = {name: LIMITS[name.split("_")[1]] for name in joints}
    drives = {name: Drive(kind="pd", kp=KP, kd=KD, effort_limit=limit) for name, limit in limits.items()}
    rows = np.load(log)
    cut = round(SHARE * len(rows["time"]))
    columns = folder / "map.yaml"
    columns.write_text(column_map(joints, [str(name) for name in rows["joint_names"]], limits))
    stores = {}
    for name, part, split in (("train", slice(cut), "declared"), ("held", slice(cut, None), "test")):
        np.savez(folder / f"{name}.npz", **{key: rows[key][part] for key in LOGGED})
        stores[name] = import_logs(
            [folder / f"{name}.npz"], read_column_map(columns), robot.spec, folder / f"{name}.h5", split=split
        )
    spec, armatures = mujoco.MjSpec.from_string(without_shapes(urdf)), {one.name: one.armature for one in robot.joints}
    for name in joints:
        spec.joint(name).armature = armatures[name]
        motor = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        motor.gainprm[0], motor.biasprm[:3] = KP, (0.0, -KP, -KD)
        motor.forcerange = -limits[name], limits[name]
    return Case(
        "go2", msgspec.structs.replace(robot, drives=drives), str(folder / "go2"), folder / "train.h5", stores["held"],
        True, peer_of(spec, joints, robot), PACE,
    )  # fmt: skip


def column_map(joints: Sequence[str], logged: Sequence[str], limits: Mapping[str, float]) -> str:
    """Return the column map of the Go2's log; `logged` are its column names, which include the joints'."""
    place = {name: next(k for k, own in enumerate(logged) if name.startswith(own)) for name in joints}
    columns = {
        array: {name: {"column": f"joint_{array}[{place[name]}]"} for name in joints}
        for array in ("position", "command")
    }
    return json.dumps({
        "format": "npz", "time": "time", "q": columns["position"], "qd": "differentiate", "velocity": "past",
        "control": columns["command"], "control_kind": "target", "alignment": 0.0,
        "drives": {name: {"kind": "pd", "kp": KP, "kd": KD, "effort_limit": most} for name, most in limits.items()},
    })  # fmt: skip


def without_shapes(urdf: Path) -> str:
    """Return a URDF without visuals and collision shapes, whose meshes may be missing."""
    tree = ElementTree.parse(urdf)
    for link in tree.iter("link"):
        for kind in ("visual", "collision"):
            for shape in link.findall(kind):
                link.remove(shape)
    return ElementTree.tostring(tree.getroot(), encoding="unicode")


def peer_of(spec: mujoco.MjSpec, joints: tuple[str, ...], robot: Robot) -> MujocoPeer:
    """Return a model with the robot's declared time step and integrator."""
    spec.option.timestep = robot.dt / robot.simulator.substeps
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    return MujocoPeer(with_inertias(spec), joints, joints, robot.dt)


def hung_xml() -> str:
    """Return an ant-like quadruped with a fixed torso, as MJCF."""
    legs = ""
    for name, x, y in (("front_left", 1, 1), ("front_right", 1, -1), ("rear_left", -1, 1), ("rear_right", -1, -1)):
        legs += f"""
      <body name="{name}" pos="{0.2 * x} {0.2 * y} 0">
        <joint name="{name}_hip" axis="{0.3 * y} {-0.3 * x} 1" range="-1.2 1.2"/>
        <geom type="capsule" fromto="0 0 0 {0.2 * x} {0.2 * y} 0" size=".08"/>
        <body name="{name}_foot" pos="{0.2 * x} {0.2 * y} 0">
          <joint name="{name}_ankle" axis="{-y} {x} 0" range="-1.6 1.6"/>
          <geom type="capsule" fromto="0 0 0 {0.3 * x} {0.3 * y} -.25" size=".08"/>
        </body>
      </body>"""
    motors = "".join(f'<motor joint="{joint}" name="{joint}" ctrlrange="-15 15"/>' for joint in HUNG)
    return f"""<mujoco model="hung">
  <compiler angle="radian"/>
  <default><joint armature=".01" damping=".1"/><geom density="300" contype="0" conaffinity="0"/></default>
  <worldbody>
    <body name="torso" pos="0 0 2"><geom type="sphere" size=".25"/>{legs}
    </body>
  </worldbody>
  <actuator>{motors}</actuator>
</mujoco>"""


def hung_case(folder: Path) -> Case:
    """Return the worn suspended quadruped, and its log."""
    folder.mkdir(parents=True)
    (folder / "hung.xml").write_text(hung_xml())
    declare(folder / "hung.xml", folder / "hung", name="hung", dt=0.02)
    robot = load_robot(folder / "hung")
    store = hung_log(worn(mujoco.MjSpec.from_string(hung_xml())), robot, folder / "log.h5")
    trained = np.flatnonzero(store.split != Split.TEST)
    store.select(trained).write(folder / "train.h5")
    spec = mujoco.MjSpec.from_string(hung_xml())
    for motor in spec.actuators:
        motor.ctrllimited = False
        motor.dyntype, motor.dynprm[0] = mujoco.mjtDyn.mjDYN_FILTEREXACT, 1e-4
    held = store.select(np.flatnonzero(store.split == Split.TEST))
    peer = peer_of(spec, tuple(robot.actuated), robot)
    return Case("hung", robot, str(folder / "hung"), folder / "train.h5", held, False, peer, PACE_OF_TORQUES)


def worn(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """Return the quadruped with undeclared faults: joint friction, lagging motors, one of them weak."""
    rng = np.random.default_rng(1)
    spec.option.timestep = 0.001
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for joint in spec.joints:
        joint.damping = [rng.uniform(0.3, 1.0), 0.0, 0.0]
        joint.frictionloss, joint.armature = rng.uniform(0.1, 0.5), rng.uniform(0.02, 0.05)
    for k, motor in enumerate(spec.actuators):
        motor.dyntype, motor.dynprm[0] = mujoco.mjtDyn.mjDYN_FILTEREXACT, 0.02
        motor.gainprm[0] = 0.7 if k == 3 else 0.92
    return spec.compile()


def hung_log(
    model: mujoco.MjModel, robot: Robot, path: Path, *, episodes: int = 20, frames: int = 200, seed: int = 0
) -> Store:
    """Write the log of a stiff controller tracking sines, with noise of encoders (1 mrad) and velocities."""
    rng, data = np.random.default_rng(seed), mujoco.MjData(model)
    joints, parts = tuple(robot.actuated), round(robot.dt / model.opt.timestep)
    at = [model.joint(name).qposadr[0] for name in robot.spec.q_names]
    motors = [model.actuator(name).id for name in joints]
    order = [robot.spec.q_names.index(name) for name in joints]
    n = len(joints)
    q, qd = np.zeros((2, episodes, frames + 1, n), np.float32)
    control = np.zeros((episodes, frames, n), np.float32)
    for episode in range(episodes):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = rng.uniform(-0.2, 0.2, n)
        rates, phases = np.exp(rng.uniform(np.log(0.3), np.log(3.0), (2, n))), rng.uniform(0, 2 * np.pi, (2, n))
        for frame in range(frames + 1):
            q[episode, frame], qd[episode, frame] = data.qpos[at], data.qvel[at]
            if frame == frames:
                break
            target = 0.25 * np.sin(2 * np.pi * rates * frame * robot.dt + phases).sum(0)
            torque = 12.0 * (target - q[episode, frame, order]) - 0.5 * qd[episode, frame, order]
            control[episode, frame] = np.clip(torque + rng.normal(0, 0.5, n), -15, 15)
            data.ctrl[motors] = control[episode, frame]
            mujoco.mj_step(model, data, parts)
    q += rng.normal(0, 1e-3, q.shape)
    qd += rng.normal(0, 0.02, qd.shape)
    split = np.full(episodes, Split.TRAIN, np.int8)
    split[-7:-4], split[-4:] = Split.VALIDATION, Split.TEST
    with StoreWriter(path, StoreHeader(spec=robot.spec, source="log")) as writer:
        writer.append(q, qd, control, lengths=np.full(episodes, frames), split=split)
    return Store.open(path)


if __name__ == "__main__":
    main()
