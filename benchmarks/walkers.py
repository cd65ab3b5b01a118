# SPDX-License-Identifier: Apache-2.0
"""Policies of velocity@ROBOT in plain MuJoCo: the asset's own model, servos and time step, with pushes.

    python benchmarks/walkers.py POLICY ... --episodes 512 --seconds 20
    python benchmarks/walkers.py POLICY --push 0 --noise 0
    python benchmarks/walkers.py POLICY --stand-in examples/sensed_go1.py:SensedGo1     # the `model` of a stand-in
    python benchmarks/walkers.py POLICY --ground examples/steps_and_slopes.yaml
    python benchmarks/walkers.py POLICY --in-c      # `neurodyn export POLICY --to c`, compiled, in the loop

Nothing of the library's engine takes part: `mujoco.mj_step` moves the robot, and the policy's observations are computed
here from its state, with the errors of the task's sensors. Commands change every 5 s, a tenth of them to standing, and
the base's velocity jumps in a random horizontal direction 2.5 s after each. Velocities are means over 1 s in the axes
of the heading, in windows that begin 1 s after a change of the command or a push; those of all seconds are beside them.
"""

import ctypes
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch

from _common import result_parser, single_thread
from neurodyn.core.artifacts import write_json
from neurodyn.core.description.scene import Plane, Scene, Shape, Terrain
from neurodyn.core.registry import own_class, split_name
from neurodyn.evaluate.named_scenarios import scenario
from neurodyn.geometry.solids import terrain_heights
from neurodyn.interop import CODE
from neurodyn.interop.c_code.units import code_unit
from neurodyn.policy.artifact import acting, load_policy
from neurodyn.robots import load
from neurodyn.robots.assets import asset_path
from neurodyn.sim.mujoco.build import build_model
from neurodyn.tasks.velocity import Velocity

PERIOD, PUSHED, SETTLED = 5.0, 2.5, 1.0
"""Seconds for which a command holds, until the push in it, and until the robot is measured after either."""
STANDING, STILL = 0.1, 0.05
"""Share of commands to stand, and size below which a command is one."""
FALLEN = -0.5
"""The z component of gravity in base axes above which the robot has fallen."""
ITERATIONS = 100, 50
"""Least iterations of the solver and of its line search on a terrain."""
START, BESIDE = 8.0, 0.4
"""Largest distance of starts from the middle of a terrain along x and y, and from a robot to ground below it [m]."""
terrain_heights_of = lru_cache(terrain_heights)


@dataclass(frozen=True)
class Walk:
    """Figures of the episodes of a policy.

    Attributes:
        falls: Share of episodes that end in a fall.
        seconds: Mean length of an episode [s].
        speed: Root of the mean squared error of the horizontal velocity [m/s], means over 1 s.
        turning: The same of the yaw rate [rad/s].
        speed_always: The same over all whole seconds, also after pushes and changes of the command.
        turning_always: The same.
        commanded: Mean commanded speed where one is commanded [m/s].
        achieved: Mean velocity along it [m/s].
        transport: Mechanical work (its magnitude) over weight times way.
        cpu: CPU time of the judgement [s].
    """

    falls: float
    seconds: float
    speed: float
    turning: float
    speed_always: float
    turning_always: float
    commanded: float
    achieved: float
    transport: float
    cpu: float


def asset_model(task: Velocity, scene: Scene, *, own: bool = False) -> mujoco.MjModel:
    """Return the model of the robot's own asset.

    An MJCF keeps its actuators, options and floor, which takes the shape of the scene's ground; meshes that are only
    seen are left out. Its solver has at least MuJoCo's default iterations on a terrain, unless it keeps its `own`:
    playground's single one does not converge where a foot has several contacts. A URDF, which has none of them, gets
    those of the robot's declaration.
    """
    path = asset_path(load(task.robot)).resolve()
    if path.suffix != ".xml":
        return build_model(task.declaration(), scene).model
    spec = mujoco.MjSpec.from_file(str(path))
    for geom in list(spec.geoms):
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH and not geom.contype and not geom.conaffinity:
            spec.delete(geom)
    for mesh in list(spec.meshes):
        spec.delete(mesh)
    floors = [geom for geom in spec.worldbody.geoms if geom.type == mujoco.mjtGeom.mjGEOM_PLANE]
    if len(floors) != 1 or len(scene.shapes) != 1:
        raise SystemExit(f"{path.name}: {len(floors)} floors for {len(scene.shapes)} shapes; valid: one of each")
    _shape_floor(spec, floors[0], scene.shapes[0])
    if isinstance(scene.shapes[0], Terrain) and not own:
        spec.option.iterations = max(spec.option.iterations, ITERATIONS[0])
        spec.option.ls_iterations = max(spec.option.ls_iterations, ITERATIONS[1])
    return spec.compile()


def _shape_floor(spec: mujoco.MjSpec, floor: Any, shape: Shape) -> None:
    """Give a floor the shape of a plane or a terrain."""
    x, y, z, w = shape.rotation
    floor.quat = (w, x, y, z)
    if isinstance(shape, Terrain):
        heights = terrain_heights(shape)
        low, span = heights.min(), max(np.ptp(heights), 1e-6)
        half = [edge / 2 for edge in shape.size]
        spec.add_hfield(name="ground", nrow=heights.shape[0], ncol=heights.shape[1], size=[*half, span, 1.0],
                        userdata=((heights - low) / span).ravel())  # fmt: skip
        floor.type, floor.hfieldname, floor.pos = mujoco.mjtGeom.mjGEOM_HFIELD, "ground", (0.0, 0.0, low)
    elif not isinstance(shape, Plane):
        raise SystemExit(f"a ground of kind {shape.__struct_config__.tag}; valid: plane, terrain")


def level(ground: Shape) -> bool:
    """Return whether a ground is a level plane."""
    return isinstance(ground, Plane) and abs(ground.rotation[3]) > 1.0 - 1e-9


def height_of(ground: Shape, place: np.ndarray) -> np.ndarray:
    """Return the height of a ground [m] at horizontal positions, shape [n, 2]."""
    if isinstance(ground, Terrain):
        heights = terrain_heights_of(ground)
        middle = (np.array(heights.shape[::-1]) - 1) / 2
        column, row = np.rint(np.nan_to_num(place) / ground.cell + middle).astype(int).T
        return heights[row.clip(0, heights.shape[0] - 1), column.clip(0, heights.shape[1] - 1)]
    x, y, z, w = ground.rotation
    up = matrix_of(np.array([w, x, y, z]))[:, 2]
    return -(place @ up[:2]) / up[2]


class Bodies:
    """Worlds of plain MuJoCo that stand in the nominal pose, with what a policy sees of them.

    Attributes:
        pose: Nominal positions of the joints [rad or m], shape [nj].
    """

    def __init__(
        self, model: mujoco.MjModel, task: Velocity, worlds: int, noise: float, rng: np.random.Generator, scene: Scene
    ) -> None:
        self.model, self.task, self.rng, self._ground = model, task, rng, scene.shapes[0]
        self.dt = task.declaration().dt
        self.steps = round(self.dt / model.opt.timestep)
        if abs(self.steps * model.opt.timestep - self.dt) > 1e-9:
            raise SystemExit(f"{task.name}: a frame of {self.dt} s is no whole number of steps of {model.opt.timestep}")
        self.datas = [mujoco.MjData(model) for _ in range(worlds)]
        names = [name.partition(".")[2] for name in task.observations if name.startswith("joint_position.")]
        joints = [model.joint(name) for name in names]
        self._q, self._qd = (
            [int(one[0]) for one in part] for part in ([j.qposadr for j in joints], [j.dofadr for j in joints])
        )
        named = {model.actuator(drive).name.rpartition(" ")[2]: drive for drive in range(model.nu)}
        self._drives = [named[name] for name in task.actions]
        self.pose, self._home = (
            part.numpy() for part in (task.joint_nominal(torch.zeros(1)), task.nominal(torch.zeros(1)))
        )
        self._scale = np.array(task.action_scale)
        self._noise = noise * np.concatenate([[term.noise] * len(term.names) for term in task.readings])
        bias = noise * np.concatenate([[term.bias] * len(term.names) for term in task.readings])
        self._bias = bias * rng.uniform(-1, 1, (worlds, len(bias)))
        places = rng.spawn(1)[0]
        for data in self.datas:
            if not level(self._ground):
                angle, data.qpos[:2] = places.uniform(-np.pi, np.pi), places.uniform(-START, START, 2)
                data.qpos[3:7] = [np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)]
            around = data.qpos[:2] + BESIDE * places.uniform(-1.0, 1.0, (64, 2))
            data.qpos[2] = task.legs.height + 0.02 + height_of(self._ground, around).max()
            data.qpos[self._q] = self.pose + rng.uniform(-0.05, 0.05, len(joints))
            data.ctrl[self._drives] = self._home
            if model.na:  # servos that follow their commands late
                data.act[:] = data.ctrl
            mujoco.mj_forward(model, data)

    def read(self, frame: int, commands: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Return observations, shape [worlds, observations]."""
        phase = self.task.stride * frame
        clock = np.array([np.sin(phase), np.cos(phase)])
        rows = []
        for data, command, action in zip(self.datas, commands, actions, strict=True):
            seen = {
                "gyroscope": data.qvel[3:6], "gravity": -matrix_of(data.qpos[3:7])[2], "command": command,
                "joint_position": data.qpos[self._q] - self.pose, "joint_velocity": data.qvel[self._qd],
                "last_action": action, "clock": clock * (np.linalg.norm(command) > STILL),
            }  # fmt: skip
            rows.append(np.concatenate([seen[term.name] for term in self.task.readings]))
        seen = np.array(rows)
        return seen + self._bias + self._noise * self.rng.uniform(-1, 1, seen.shape)

    def move(self, actions: np.ndarray, alive: np.ndarray) -> np.ndarray:
        """Advance a frame; return vx, vy and yaw rate in axes of the heading, and the work done, shape [worlds, 4]."""
        moved = np.zeros((len(self.datas), 4))
        for world in np.flatnonzero(alive):
            data = self.datas[world]
            data.ctrl[self._drives] = self._home + self._scale * actions[world]
            before, yaw = data.qpos[:2].copy(), heading_of(data.qpos[3:7])
            for _ in range(self.steps):
                mujoco.mj_step(self.model, data)
                moved[world, 3] += np.abs(data.actuator_force * data.actuator_velocity).sum() * self.model.opt.timestep
            after = heading_of(data.qpos[3:7])
            turned = (after - yaw + np.pi) % (2 * np.pi) - np.pi
            x, y = (data.qpos[:2] - before) / self.dt
            mean = yaw + 0.5 * turned
            moved[world, :2] = np.cos(mean) * x + np.sin(mean) * y, np.cos(mean) * y - np.sin(mean) * x
            moved[world, 2] = turned / self.dt
        return moved

    def fallen(self) -> np.ndarray:
        """Return which robots have fallen, shape [worlds]."""
        above = np.array([data.qpos[:3] for data in self.datas])
        above = above[:, 2] - height_of(self._ground, above[:, :2])
        return np.array([
            -matrix_of(data.qpos[3:7])[2, 2] > FALLEN or not height > 0.6 * self.task.legs.height
            for data, height in zip(self.datas, above, strict=True)
        ])  # fmt: skip

    def push(self, size: float) -> None:
        """Change the velocity of each base by `size` in a random horizontal direction [m/s]."""
        for data, angle in zip(self.datas, self.rng.uniform(-np.pi, np.pi, len(self.datas)), strict=True):
            data.qvel[:2] += size * np.array([np.cos(angle), np.sin(angle)])


class InC:
    """A policy as exported to C: it assembles the observations, and remembers, for each of some worlds."""

    def __init__(self, policy: str, task: Velocity, worlds: int) -> None:
        """Export and compile the policy."""
        self._task = task
        with tempfile.TemporaryDirectory() as folder:
            for name, text in CODE["c"](code_unit(policy), "unit").items():
                (Path(folder) / name).write_text(text)
            (Path(folder) / "size.c").write_text('#include "unit.h"\nint size(void) { return sizeof(unit_state); }\n')
            flags = ["-std=c99", "-O2", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-DUNIT_DOUBLE=1"]
            sources = ["-shared", "-fPIC", "unit.c", "size.c", "-o", "unit.so", "-lm"]
            subprocess.run(["gcc", *flags, *sources], cwd=folder, check=True)
            self._unit = ctypes.CDLL(str(Path(folder) / "unit.so"))
        self._states = [(ctypes.c_byte * self._unit.size())() for _ in range(worlds)]
        for state in self._states:
            self._unit.unit_reset(state)

    def act(self, readings: np.ndarray, commands: np.ndarray, frame: int, pose: np.ndarray) -> np.ndarray:
        """Return actions, shape [worlds, actions]. C has last actions and the clock of its own.

        Args:
            readings: What `Bodies.read` returns.
            commands: The commands, shape [worlds, 3].
            frame: Frames since the start.
            pose: Nominal positions of the joints, from which those of the readings are measured.
        """
        terms = self._task.readings
        parts = np.split(readings, np.cumsum([len(term.names) for term in terms])[:-1], axis=1)
        seen = dict(zip((term.name for term in terms), parts, strict=True))
        phase = np.full((len(commands), 2), (0.0, self._task.stride * frame % (2 * np.pi)))
        given = [seen["gyroscope"], seen["gravity"], seen["joint_position"] + pose, seen["joint_velocity"],
                 np.hstack([commands, phase])]  # fmt: skip
        given = [np.ascontiguousarray(part) for part in given]
        actions, scaled = (np.zeros((len(commands), len(self._task.actions))) for _ in range(2))
        row = np.zeros(readings.shape[1])
        for world, state in enumerate(self._states):
            self._unit.unit_observe(state, *(_pointer(part[world]) for part in given), _pointer(row))
            self._unit.unit_act(state, _pointer(row), _pointer(actions[world]), _pointer(scaled[world]))
        return actions


def _pointer(values: np.ndarray) -> Any:
    return values.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def matrix_of(quaternion: np.ndarray) -> np.ndarray:
    """Return the rotation matrix of a quaternion (w, x, y, z)."""
    flat = np.zeros(9)
    mujoco.mju_quat2Mat(flat, quaternion)
    return flat.reshape(3, 3)


def heading_of(quaternion: np.ndarray) -> float:
    """Return the direction of the base's x axis about the vertical [rad]."""
    w, x, y, z = quaternion
    return float(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))


def judged(policy: str, *, episodes: int, seconds: float, push: float = 0.5, noise: float = 1.0, seed: int = 7,
           fastest: tuple[float, float, float] = (1.0, 0.5, 1.0), robot: str | None = None,
           model: mujoco.MjModel | None = None, ground: str | None = None,
           own_iterations: bool = False, in_c: bool = False) -> Walk:  # fmt: skip
    """Play a policy in plain MuJoCo and return its figures.

    `robot` and `ground` if not its own; `model` of a stand-in, which brings its ground; `own_iterations`: see `own` of
    `asset_model`; `in_c`: as exported to C.
    """
    begin = time.process_time()
    config, network = load_policy(policy)
    task = Velocity(robot or config.robot)
    scene = scenario(task.declaration(), ground, words=()).scene or Scene()
    model, rng = model or asset_model(task, scene, own=own_iterations), np.random.default_rng(seed)
    bodies, act = Bodies(model, task, episodes, noise, rng, scene), acting(network)
    exported = InC(policy, task, episodes) if in_c else None
    actions, alive = np.zeros((episodes, len(task.actions))), np.ones(episodes, bool)
    frames, period, pushed = (round(x / bodies.dt) for x in (seconds, PERIOD, PUSHED))
    command, record = np.zeros((episodes, 3)), []
    for frame in range(frames):
        if frame % period == 0:
            command = rng.uniform(-1, 1, (episodes, 3)) * fastest
            command[rng.random(episodes) < STANDING] = 0.0
        elif frame % period == pushed and push:
            bodies.push(push)
        seen = bodies.read(frame, command, actions)
        if exported is None:
            with torch.no_grad():
                actions = act(torch.tensor(seen, dtype=torch.float32)).double().numpy()
        else:
            actions = exported.act(seen, command, frame, bodies.pose)
        moved = bodies.move(actions, alive)
        alive = alive & ~bodies.fallen()
        record.append((moved, command, alive))
    moved, commands, going = (np.array(part) for part in zip(*record, strict=True))
    return figures(moved, commands, going, bodies.dt, push > 0, float(model.body_mass.sum()),
                   time.process_time() - begin)  # fmt: skip


def figures(path: np.ndarray, commands: np.ndarray, alive: np.ndarray, dt: float, pushed: bool, mass: float,
            cpu: float) -> Walk:  # fmt: skip
    """Return the figures of motions and commands, shape [frames, episodes, ...], of episodes while they go on."""
    second, period = round(1.0 / dt), round(PERIOD / dt)
    begins = [SETTLED, PUSHED + SETTLED] if pushed else [SETTLED, SETTLED + 1.0, SETTLED + 2.0]
    errors: dict[bool, list[np.ndarray]] = {False: [], True: []}
    along: list[np.ndarray] = []
    for start in range(0, len(path) - second + 1, second):
        errors[False].append(_errors(path, commands, alive, start, second)[0])
    for base in range(0, len(path), period):
        for begin in begins:
            start = base + round(begin / dt)
            if start + second <= len(path):
                error, followed = _errors(path, commands, alive, start, second)
                errors[True].append(error)
                along.append(followed)
    settled, every = (np.concatenate(errors[kind]) for kind in (True, False))
    asked, did = np.concatenate(along).T if along else (np.zeros(0), np.zeros(0))
    walking = asked > STILL
    way = float((np.linalg.norm(path[..., :2], axis=-1) * alive).sum() * dt)
    work = float((path[..., 3] * alive).sum())

    def rms(values: np.ndarray) -> float:
        return float(np.sqrt(np.mean(values**2))) if len(values) else float("nan")

    return Walk(
        falls=float(1.0 - alive[-1].mean()), seconds=float(alive.sum(0).mean() * dt), speed=rms(settled[:, 0]),
        turning=rms(settled[:, 1]), speed_always=rms(every[:, 0]), turning_always=rms(every[:, 1]),
        commanded=float(asked[walking].mean()) if walking.any() else 0.0,
        achieved=float(did[walking].mean()) if walking.any() else 0.0,
        transport=work / (mass * 9.81 * max(way, 1e-9)), cpu=cpu,
    )  # fmt: skip


def _errors(path: np.ndarray, commands: np.ndarray, alive: np.ndarray, start: int, second: int) -> Any:
    """Return errors of speed and turning, and speed commanded and along the command, of a second of upright robots."""
    upright = alive[start + second - 1]
    mean = path[start : start + second, upright, :3].mean(0)
    asked = commands[start : start + second, upright].mean(0)
    size = np.linalg.norm(asked[:, :2], axis=-1)
    error = np.stack([np.linalg.norm(mean[:, :2] - asked[:, :2], axis=-1), np.abs(mean[:, 2] - asked[:, 2])], -1)
    return error, np.stack([size, (mean[:, :2] * asked[:, :2]).sum(-1) / np.maximum(size, 1e-9)], -1)


def row(name: str, walk: Walk) -> str:
    """Return a row of the table."""
    return (
        f"| {name} | {walk.falls:.1%} | {walk.seconds:.1f} | {walk.speed:.3f} | {walk.turning:.3f} | "
        f"{walk.speed_always:.3f}, {walk.turning_always:.3f} | {walk.achieved:.2f} of {walk.commanded:.2f} | "
        f"{walk.transport:.2f} | {walk.cpu:.0f} |"
    )


HEAD = """| policy | falls | episode [s] | error [m/s] | [rad/s] | always | speed | cost of transport | CPU-s |
|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Judge policies."""
    parser = result_parser(__doc__)
    parser.add_argument("policies", nargs="+")
    parser.add_argument("--episodes", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--push", type=float, default=0.5, help="change of the base's velocity [m/s]; 0 for none")
    parser.add_argument("--noise", type=float, default=1.0, help="factor on the errors of the sensors")
    parser.add_argument("--fastest", type=float, nargs=3, default=(1.0, 0.5, 1.0), help="commands [m/s, m/s, rad/s]")
    parser.add_argument("--robot", help="the policies' robot, if it has moved")
    parser.add_argument("--stand-in", help="FILE.py:CLASS of a robot in MuJoCo in place of the asset")
    parser.add_argument("--ground", help="one of the robot's grounds, or a file with one plane or terrain")
    parser.add_argument("--in-c", action="store_true", help="the policy as exported to C")
    parser.add_argument("--own-iterations", action="store_true", help="those of the asset's solver on a terrain, too")
    args = parser.parse_args()
    single_thread()
    print(HEAD)
    model = None
    if args.stand_in:
        path, kind = split_name(args.stand_in)
        sys.path.insert(0, str(path.parent))  # its imports from beside it
        model = own_class(path, kind, "robot", object)().model
    walks: dict[str, Mapping[str, float]] = {}
    for policy in args.policies:
        walk = judged(policy, episodes=args.episodes, seconds=args.seconds, push=args.push, noise=args.noise,
                      fastest=tuple(args.fastest), robot=args.robot, model=model, ground=args.ground,
                      own_iterations=args.own_iterations, in_c=args.in_c)  # fmt: skip
        print(row(policy, walk), flush=True)
        walks[policy] = asdict(walk)
    if args.json:
        write_json(args.json, walks)


if __name__ == "__main__":
    main()
