# SPDX-License-Identifier: Apache-2.0
"""A servo arm with two fingers on a tendon: declaration, hybrid model, simulator, log and task, by its own commands."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
import yaml

from neurodyn.control.task_frames import TaskFrames
from neurodyn.core.config import from_dict
from neurodyn.core.description.actuation import DriveState
from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError
from neurodyn.data.readers.column_map import ColumnMap
from neurodyn.data.readers.logs import import_logs
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.behind_drives import DynamicsBehindDrives
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.evaluate.named_scenarios import drive_at_random, passive
from neurodyn.identify.motors import drive_parameters, with_lag
from neurodyn.identify.unknowns.quantities import _drive_coordinates
from neurodyn.multibody.engine import nominal
from neurodyn.robots import Robot, load
from neurodyn.sim.mujoco.actuators import read_drives
from neurodyn.sim.sampling import sample_torques
from neurodyn.sim.simulators import SimulatorBehindDrives, simulator
from neurodyn.tasks import Task

pytest.importorskip("newton")
mujoco = pytest.importorskip("mujoco")

DT, SUBSTEPS = 0.02, 4
MJCF = f"""<mujoco model="gripper"><compiler angle="radian" autolimits="true"/>
<option timestep="{DT / SUBSTEPS}" integrator="implicitfast"/>
<default><geom contype="0" conaffinity="0"/></default><worldbody>
<body name="arm" pos="0 0 .5"><joint name="shoulder" axis="0 1 0" armature=".1" damping=".5"
 actuatorfrcrange="-55 50"/>
<inertial pos="0 0 -.2" mass="2" diaginertia=".02 .02 .004"/>
<geom type="box" size=".02 .02 .2" pos="0 0 -.2"/>
<body name="left" pos="0 0 -.4"><joint name="finger_left" type="slide" axis="0 1 0" range="0 .04" damping="5"/>
<inertial pos="0 0 -.03" mass=".1" diaginertia="1e-4 1e-4 1e-5"/><geom type="box" size=".01 .005 .03" pos="0 0 -.03"/>
</body>
<body name="right" pos="0 0 -.4"><joint name="finger_right" type="slide" axis="0 -1 0" range="0 .04" damping="5"/>
<inertial pos="0 0 -.03" mass=".1" diaginertia="1e-4 1e-4 1e-5"/><geom type="box" size=".01 .005 .03" pos="0 0 -.03"/>
</body></body></worldbody>
<tendon><fixed name="split"><joint joint="finger_left" coef=".5"/><joint joint="finger_right" coef=".5"/></fixed>
</tendon><actuator>
<position name="lift" joint="shoulder" kp="300" kv="20" ctrlrange="-1 1" forcerange="-60 60"/>
<general name="grip" tendon="split" ctrlrange="0 255" gainprm=".6274" biastype="affine" biasprm="0 -4000 -60"/>
</actuator></mujoco>"""


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_string(MJCF)


@pytest.fixture(scope="module")
def robot(model, tmp_path_factory: pytest.TempPathFactory) -> Robot:
    """The declaration, with the actuators as they are read."""
    folder: Path = tmp_path_factory.mktemp("gripper")
    (folder / "gripper.xml").write_text(MJCF)
    read = read_drives(model)
    assert not read.unmodelled
    fingers = [
        {"name": f"finger_{side}", "kind": "prismatic", "lower": 0.0, "upper": 0.04} for side in ("left", "right")
    ]
    tree = {
        "name": "gripper", "asset": "gripper.xml", "dt": DT,
        "joints": [{"name": "shoulder", "kind": "revolute"}, *fingers],
        "actuated": dict(read.efforts), "drives": read.plain(),
        "simulator": {"solver": "mujoco", "substeps": SUBSTEPS, "integrator": "implicitfast"},
        "sampling": {"q": {"shoulder": [-0.5, 0.5]}, "qd": {"*": [0, 0]}},
        "nominal": {"shoulder": 0.3, "finger_left": 0.02, "finger_right": 0.02},
    }  # fmt: skip
    (folder / "gripper.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
    return load(folder / "gripper.yaml")


@pytest.fixture(scope="module")
def plain(robot: Robot) -> Robot:
    """The robot in plain MuJoCo."""
    return msgspec.structs.replace(robot, simulator=msgspec.structs.replace(robot.simulator, solver="mujoco-c"))


@pytest.fixture(scope="module")
def hybrid(plain: Robot) -> HybridDynamics:
    return declared_hybrid(plain)


def commands(robot: Robot, worlds: int, frames: int) -> torch.Tensor:
    return sample_torques(robot, worlds, frames, np.random.default_rng(0)).double()


def by_mujoco(model, q, controls):
    data, paths = mujoco.MjData(model), []
    for start, run in zip(q.numpy(), controls.numpy(), strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:] = start
        path = [start]
        for command in run:
            data.ctrl[:] = command
            for _ in range(SUBSTEPS):
                mujoco.mj_step(model, data)
            path.append(data.qpos.copy())
        paths.append(path)
    return torch.tensor(np.array(paths))


def test_the_control_vector_is_that_of_the_actuators(robot: Robot):
    assert robot.spec.control_kind == "command"
    assert robot.spec.controls == ("lift", "grip")
    assert robot.control_intervals() == ((-1.0, 1.0), (0.0, 255.0))
    assert robot.joint_efforts()["shoulder"] == 60.0
    assert robot.nominal_q() == pytest.approx((0.3, 4000 * 0.02 / 0.6274))
    drawn = commands(robot, 50, 4)
    assert drawn.shape == (50, 4, 2)
    assert drawn[..., 0].abs().max() <= 1.0
    assert 200.0 < drawn[..., 1].max() <= 255.0


def test_commands_without_a_range_follow_from_efforts_and_limits(robot: Robot):
    def interval(**drive):
        drives = robot.drives | {"grip": Drive(transmission={"finger_left": 2.0, "finger_right": -1.0}, **drive)}
        return msgspec.structs.replace(robot, drives=drives).sampling_interval("control", "grip")

    assert interval(kind="servo", kp=1.0) == pytest.approx((-0.04, 0.08))
    most = robot.actuated["grip"] / 4
    assert interval(kind="affine", per_command=4.0) == pytest.approx((-most, most))
    lift = Drive(kind="servo", kp=1.0, transmission={"shoulder": 1.0})
    free = msgspec.structs.replace(robot, drives=robot.drives | {"lift": lift})
    assert free.sampling_interval("control", "lift") == pytest.approx((-np.pi, np.pi))  # its joint has no limits
    assert interval(kind="affine", kd=1.0, per_command=0.0) == (-1.0, 1.0)  # which no command moves


def test_the_hybrid_model_moves_as_mujoco_does(robot: Robot, hybrid: HybridDynamics, model):
    controls = commands(robot, 4, 25)
    start = torch.tensor(
        [[0.2, 0.01, 0.03], [0.0, 0.0, 0.0], [-0.4, 0.035, 0.02], [0.1, 0.02, 0.02]], dtype=torch.float64
    )
    ours = hybrid.rollout(State(start, torch.zeros_like(start)), controls)
    theirs = by_mujoco(model, start, controls)
    assert float((theirs[:, 1:] - theirs[:, :1])[..., 1:].abs().max()) > 0.01
    assert float((ours.q - theirs).abs().max()) < 1e-8
    assert hybrid.mechanism.links[0].effort_range == (-55.0, 50.0)


def test_the_simulator_in_newton_takes_the_same_commands(robot: Robot, hybrid: HybridDynamics):
    """Its servos are explicit, so that the motions agree where they are slow."""
    start = State(torch.tensor([[0.2, 0.01, 0.01]]), torch.zeros(1, 3))
    held = torch.tensor([[[0.4, 128.0]]]).expand(1, 60, 2)
    theirs = AnalyticDynamics(robot).rollout(start, held)
    ours = hybrid.rollout(State(start.q.double(), start.qd.double()), held.double())
    assert float((theirs.q - ours.q)[:, -1].abs().max()) < 1e-3
    assert float(ours.q[0, -1, 1:].sum()) == pytest.approx(2 * 0.6274 * 128 / 4000, abs=2e-3)


@pytest.mark.parametrize("change", [{}, {"state": DriveState(kind="filter", time_constant=0.03)}])
def test_plain_mujoco_acts_by_the_same_actuators(plain: Robot, model, change):
    drives = plain.drives | {"grip": msgspec.structs.replace(plain.drives["grip"], **change)}
    plain = msgspec.structs.replace(plain, drives=drives)
    controls = commands(plain, 3, 20)
    start = torch.tensor([[0.2, 0.01, 0.03], [0.0, 0.0, 0.0], [-0.4, 0.035, 0.02]], dtype=torch.float64)
    dynamics, begin = AnalyticDynamics(plain), State(start.float(), torch.zeros(3, 3))
    path = dynamics.rollout(begin, controls.float())
    if not change:
        assert float((path.q - by_mujoco(model, start, controls)).abs().max()) < 1e-6
    ours = declared_hybrid(plain).rollout(State(start, torch.zeros_like(start)), controls)
    assert float((path.q - ours.q).abs().max()) < 2e-5
    carry, state = dynamics.begin(begin), begin
    for frame in range(20):
        carry, step = dynamics.step(carry, state, Control(target=controls[:, frame].float()))
        state = step.state
    assert float((state.q - path.q[:, -1]).abs().max()) < 2e-5, "the state of an actuator is kept between frames"


def test_drives_beyond_actuators_act_before_plain_mujoco(plain: Robot):
    """A delay, which MuJoCo's actuators do not have."""
    late = plain.drives | {"lift": msgspec.structs.replace(plain.drives["lift"], delay=0.005)}
    found = simulator(msgspec.structs.replace(plain, drives=late), 2)
    assert isinstance(found, SimulatorBehindDrives)
    assert not isinstance(simulator(plain, 2), SimulatorBehindDrives)
    q, qd = found.step(torch.zeros(2, 3), torch.zeros(2, 3), torch.tensor([[0.3, 100.0], [-0.3, 0.0]]))
    assert q[0, 0] > 0.01 > -0.01 > q[1, 0]
    assert bool(qd.isfinite().all())


def test_evaluations_hold_and_drive_by_commands(robot: Robot):
    held = passive(robot, 3, 5)
    assert held.torque is None
    assert held.target is not None
    assert held.target[0, 0].tolist() == pytest.approx([0.3, 4000 * 0.02 / 0.6274])
    drawn = drive_at_random(robot, 3, 5, np.random.default_rng(1))
    assert drawn.torque is None
    assert drawn.target is not None


class Grip(Task):
    """Open and close by the whole range of the commands."""

    name, robot = "grip", "gripper"
    needs = ("joint_position", "joint_velocity")
    observations = ("q",)
    actions = ("lift", "grip")
    action_scale = (1.0, 1.0)
    action_meaning = "share of the range"
    frames = 50

    def __init__(self, declared: Robot) -> None:
        self._robot = declared

    def declaration(self) -> Robot:
        return self._robot

    def start(self, worlds, generator):
        return State(torch.zeros(worlds, 3), torch.zeros(worlds, 3))

    def control(self, action, quantities, memory):
        return self.within_ranges(action)

    def observe(self, quantities, memory):
        return quantities["joint_position"]

    def reward(self, quantities, memory, action):
        return {"open": quantities["joint_position"][:, 1]}

    def terminated(self, quantities, memory):
        return quantities["joint_position"][:, 1] > 1.0


def test_actions_span_the_ranges_of_the_commands(robot: Robot, hybrid: HybridDynamics):
    task, generator = Grip(robot), torch.Generator().manual_seed(0)
    edges = task.within_ranges(torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.5]])).target
    assert edges is not None
    assert edges.tolist() == [[-1.0, 0.0], [1.0, 255.0], [0.0, 191.25]]
    frames = TaskFrames(task, hybrid)
    at = frames.begin(task.start(2, generator), generator)
    assert at.torque is None
    for _ in range(task.frames):
        at, _, end = frames.frame(at, torch.tensor([[0.5, 1.0], [-0.5, -1.0]]), generator)
    assert not bool(end.failed.any())
    assert at.state.q[0, 1:].tolist() == pytest.approx([0.04, 0.04], abs=2e-3)
    assert at.state.q[1, 1:].tolist() == pytest.approx([0.0, 0.0], abs=2e-3)
    assert at.state.q[:, 0].tolist() == pytest.approx([0.5, -0.5], abs=0.05)


def test_logs_hold_commands(robot: Robot, tmp_path: Path):
    time = 0.01 * np.arange(300)
    rows = np.stack([time, np.sin(time), 0.01 + 0 * time, 0.02 + 0 * time, np.cos(time), 100 + 50 * np.sin(time)], 1)
    log = tmp_path / "log.csv"
    log.write_text("t,q0,q1,q2,lift,grip\n" + "\n".join(",".join(map(str, row)) for row in rows) + "\n")
    columns = from_dict(
        {"format": "csv", "robot": "gripper", "time": "t", "alignment": 0.0, "qd": "differentiate",
         "q": {"shoulder": {"column": "q0"}, "finger_left": {"column": "q1"}, "finger_right": {"column": "q2"}},
         "control": {"lift": {"column": "lift"}, "grip": {"column": "grip"}}}, ColumnMap)  # fmt: skip
    store = import_logs([log], columns, robot.spec, tmp_path / "log.h5")
    assert store.header.spec.control_kind == "command"
    assert store.header.spec.controls == ("lift", "grip")
    assert 140.0 < float(store.control[:, 1].max()) < 151.0


def test_identification_and_adaptation_free_numbers_that_there_are(robot: Robot, hybrid: HybridDynamics):
    known = nominal(hybrid.mechanism, "soft")
    free = drive_parameters(robot)
    assert set(free) <= set(known)
    assert {"actuator.lift.kp", "actuator.grip.per_command", "finger_left.damping"} <= set(free)
    late = with_lag(robot)
    assert late.drives["lift"].lag is None, "a lag would make the damping explicit"
    assert late.drives["lift"].longest_held_delay > 0
    found = {
        coordinate.name for coordinate in _drive_coordinates(late, nominal(declared_hybrid(late).mechanism, "soft"))
    }
    assert {"actuator.lift.kp", "actuator.lift.kd", "actuator.grip.gain", "motors.delay"} <= found
    assert not {"actuator.lift.gain", "actuator.grip.kp", "actuator.grip.bias"} & found


def test_what_takes_torques_says_so(robot: Robot, hybrid: HybridDynamics):
    start = State(torch.zeros(1, 3, dtype=torch.float64), torch.zeros(1, 3, dtype=torch.float64))
    with pytest.raises(InputError, match=r"drives of 'gripper': take commands; valid: .*Control\(target=...\) alone"):
        hybrid.step(hybrid.begin(start), start, Control(torque=torch.zeros(1, 2)))
    with pytest.raises(InputError, match="take targets, so that their drives are in them"):
        DynamicsBehindDrives(hybrid, robot.drives)
