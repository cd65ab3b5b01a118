# SPDX-License-Identifier: Apache-2.0
"""A three-legged robot in plain MuJoCo that hops and slips, with an off-centre, turned IMU, and what it logs."""

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import mujoco
import numpy as np
import torch
from torch import Tensor

from neurodyn.core.description.sensors import Sensor, Stream
from neurodyn.data.header import Split, StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.estimate import EstimationSettings, SensedRun
from neurodyn.geometry import rotation
from neurodyn.sim.declaration.declare import declare

DT, STEPS = 0.02, 4
IMU = Sensor(kind="imu", position=(0.06, -0.04, 0.05), quaternion=(0.0, 0.6, 0.0, 0.8))
SETTINGS = EstimationSettings(imu=IMU, specific_force="before")


def text() -> str:
    """Return the MJCF."""
    legs = ""
    for k, angle in enumerate((0.3, 2.4, 4.5)):
        x, y = 0.15 * np.cos(angle), 0.15 * np.sin(angle)
        legs += f"""
      <body pos="{x:.3f} {y:.3f} 0">
        <joint name="leg{k}" axis="{-y / 0.15:.3f} {x / 0.15:.3f} 0" range="-.9 .9" armature=".01" damping=".2"/>
        <geom type="capsule" fromto="0 0 0 {0.6 * x:.3f} {0.6 * y:.3f} -.2" size=".02" mass=".2"/>
      </body>"""
    motors = "".join(f'<position joint="leg{k}" kp="30" kv="1" forcerange="-12 12"/>' for k in range(3))
    return f"""<mujoco model="tripod">
  <compiler angle="radian"/>
  <option timestep="{DT / STEPS}" cone="elliptic"/>
  <worldbody>
    <geom type="plane" size="9 9 .1" friction=".5" solref=".03 1"/>
    <body name="trunk" pos="0 0 .24">
      <freejoint name="root"/>
      <geom type="box" size=".14 .1 .03" pos=".02 .01 .02" mass="2.5"/>{legs}
    </body>
  </worldbody>
  <actuator>{motors}</actuator>
</mujoco>"""


@cache
def declaration() -> Path:
    """Return the folder of the right declaration."""
    folder = Path(mkdtemp())
    (folder / "tripod.xml").write_text(text(), encoding="utf-8")
    declare(folder / "tripod.xml", folder / "robot", dt=DT)
    path = folder / "robot" / "robot.yaml"
    lines = [
        f"simulator: {{solver: mujoco-c, substeps: {STEPS}}}" if line.startswith("simulator:") else line
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return folder / "robot"


@cache
def model() -> HybridDynamics:
    """Return the right model."""
    return declared_hybrid(declaration())


def tracked_log(runs: int = 2) -> Store:
    """Return a log with motion capture and an IMU, one run an episode."""
    streams = (
        Stream(name="imu", kind="imu", averaged=("specific_force",)),
        Stream(name="attitude", kind="orientation"),
    )
    frames, measured = [], []
    for seed in range(runs):
        run, truth = hop(2.0, seed)
        assert run.attitude is not None
        force = torch.cat([run.specific_force[1:], run.specific_force[-1:]])  # of the frame that begins at a row
        state = [truth["position"], truth["quaternion"], run.q, truth["linear"], truth["angular"], run.qd]
        frames.append(torch.cat([*state, run.control], 1))
        measured.append(torch.cat([run.angular_velocity, force, run.attitude], 1))
    sensors = {"imu": IMU, "attitude": Sensor(kind="orientation", quaternion=IMU.quaternion)}
    header = StoreHeader(spec=model().spec, source="log", streams=streams, sensors=sensors)
    table = episode_table(np.full(runs, len(frames[0]) - 1), split=Split.TEST)
    rows, read = (torch.cat(parts).numpy().astype(np.float32) for parts in (frames, measured))
    return Store(header, rows, table, measured=read)


def hop(seconds: float = 4.0, seed: int = 0) -> tuple[SensedRun, dict[str, Tensor]]:
    """Return what the robot senses while it hops, and the truth: q, qd in the library's convention."""
    plant, rng = mujoco.MjModel.from_xml_string(text()), np.random.default_rng(seed)
    data, frames = mujoco.MjData(plant), round(seconds / DT)
    rates, phases = rng.uniform(1.0, 2.5, 3), rng.uniform(0, 2 * np.pi, 3)
    turn = rotation.matrix(torch.tensor(IMU.quaternion, dtype=torch.float64)).numpy()
    arm = np.array(IMU.position)

    def at_imu() -> tuple[np.ndarray, np.ndarray]:
        matrix = data.xmat[1].reshape(3, 3)
        return matrix, data.qvel[:3] + matrix @ np.cross(data.qvel[3:6], arm)

    data.qpos[2] += 0.03
    mujoco.mj_forward(plant, data)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("qpos", "qvel", "u", "force")}
    force = np.array([0.0, 0.0, 9.81]) @ turn
    for t in range(frames + 1):
        command = 0.5 * np.sin(2 * np.pi * rates * t * DT + phases)
        rows["qpos"].append(data.qpos.copy()), rows["qvel"].append(data.qvel.copy())
        rows["u"].append(command), rows["force"].append(force)
        data.ctrl[:] = command
        force = np.zeros(3)
        for _ in range(STEPS):
            before, speed = at_imu()
            mujoco.mj_step(plant, data)
            mujoco.mj_kinematics(plant, data)
            after, faster = at_imu()
            felt = (faster - speed) / (DT / STEPS) + (0.0, 0.0, 9.81)
            force += (0.5 * (before + after) @ turn).T @ felt / STEPS
    qpos, qvel, u, force = (np.array(rows[name]) for name in ("qpos", "qvel", "u", "force"))

    def noisy(values: np.ndarray, noise: float) -> np.ndarray:
        return values + rng.normal(0.0, noise, values.shape)

    quaternion = torch.from_numpy(qpos[:, [4, 5, 6, 3]])
    attitude = rotation.multiply(quaternion, torch.tensor(IMU.quaternion, dtype=torch.float64).expand(len(qpos), 4))
    tilted = rotation.multiply(rotation.exponential(torch.from_numpy(rng.normal(0, 5e-3, (len(qpos), 3)))), attitude)
    run = SensedRun(
        torch.from_numpy(noisy(qpos[:, 7:], 1e-3)), torch.from_numpy(noisy(qvel[:, 6:], 0.02)), torch.from_numpy(u),
        torch.from_numpy(noisy(qvel[:, 3:6] @ turn, 0.01) + 0.01), torch.from_numpy(noisy(force, 0.1) + 0.05), tilted,
    )  # fmt: skip
    spin = rotation.rotate(quaternion, torch.from_numpy(qvel[:, 3:6]))
    centre = rotation.rotate(quaternion, model().base_com.double().expand(len(qpos), 3))
    truth = {
        "position": torch.from_numpy(qpos[:, :3]), "quaternion": quaternion, "angular": spin,
        "linear": torch.from_numpy(qvel[:, :3]) + torch.linalg.cross(spin, centre),
    }  # fmt: skip
    return run, truth
