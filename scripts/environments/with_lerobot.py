# SPDX-License-Identifier: Apache-2.0
"""The walks from LeRobot, with pyarrow alone (LeRobot 0.4.4 asks for torch < 2.11), and from Isaac Lab without it."""

import os
import shutil
from pathlib import Path

import mujoco
import numpy as np
from walks import walk

from neurodyn.cli.main import run
from neurodyn.core.artifacts import read_json

ARM = """<mujoco model="arm"><compiler angle="radian"/><option timestep=".01"/><worldbody>
  <body name="upper" pos="0 0 1"><joint name="shoulder" axis="0 1 0" damping=".1" armature=".02" range="-2 2"/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" mass=".8"/>
    <body name="fore" pos=".3 0 0"><joint name="elbow" axis="0 1 0" damping=".05" armature=".02" range="-2 2"/>
      <geom type="capsule" fromto="0 0 0 .25 0 0" size=".025" mass=".5"/></body></body>
</worldbody><actuator>
  <position name="shoulder" joint="shoulder" kp="30" kv="2" forcerange="-20 20" ctrlrange="-2 2"/>
  <position name="elbow" joint="elbow" kp="20" kv="1" forcerange="-10 10" ctrlrange="-2 2"/>
</actuator></mujoco>
"""
URDF = """<robot name="arm"><link name="world"/>
  <joint name="mount" type="fixed"><parent link="world"/><child link="base"/><origin xyz="0 0 1"/></joint>
  <link name="base"/>
  <link name="upper"><inertial><origin xyz=".15 0 0"/><mass value=".8"/>
    <inertia ixx=".0004" iyy=".008" izz=".008" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="fore"><inertial><origin xyz=".125 0 0"/><mass value=".5"/>
    <inertia ixx=".0002" iyy=".004" izz=".004" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
    <limit lower="-2" upper="2" effort="20" velocity="10"/><dynamics damping=".1"/></joint>
  <joint name="elbow" type="revolute"><parent link="upper"/><child link="fore"/><origin xyz=".3 0 0"/>
    <axis xyz="0 1 0"/><limit lower="-2" upper="2" effort="10" velocity="10"/><dynamics damping=".05"/></joint>
</robot>"""
MAP = """
format: csv
time: time
episodes: episode
q: {shoulder: {column: q0}, elbow: {column: q1}}
qd: {shoulder: {column: v0}, elbow: {column: v1}}
control: {shoulder: {column: c0}, elbow: {column: c1}}
control_kind: target
drives: {shoulder: {kind: pd, kp: 30, kd: 2}, elbow: {kind: pd, kp: 20, kd: 1}}
"""
PAYLOAD = 0.4


def write_log() -> None:
    """Write the states of an arm with a payload at its tip, which no file mentions."""
    payload = f'<geom type="sphere" size=".03" pos=".25 0 0" mass="{PAYLOAD}"/></body></body>'
    loaded = ARM.replace("</body></body>", payload)
    model = mujoco.MjModel.from_xml_string(loaded)
    random, episodes = np.random.default_rng(0), []
    for _ in range(8):
        data, rows = mujoco.MjData(model), []
        phase, rate, size = (random.uniform(*ends, 2) for ends in ((0, 6), (1, 6), (0.2, 0.8)))
        for step in range(300):
            data.ctrl[:] = size * np.sin(phase + rate * step * 0.01)
            rows.append([data.qpos.copy(), data.qvel.copy(), data.ctrl.copy()])
            mujoco.mj_step(model, data)
        episodes.append([np.array(column) for column in zip(*rows, strict=True)])
    qpos, qvel, ctrl = (np.array(column) for column in zip(*episodes, strict=True))
    np.savez("log.npz", qpos=qpos, qvel=qvel, ctrl=ctrl, timestep=0.01)


def write_table() -> None:
    """Write the log as a table, as a task of Isaac Lab may log its joints."""
    log = np.load("log.npz")
    columns = [log[name].reshape(-1, 2) for name in ("qpos", "qvel", "ctrl")]
    episodes, rows = log["qpos"].shape[:2]
    episode, step = np.divmod(np.arange(episodes * rows), rows)
    table = np.column_stack([episode, step * 0.01, *columns])
    head = "episode,time,q0,q1,v0,v1,c0,c1"
    np.savetxt("log.csv", table, delimiter=",", header=head, comments="", fmt="%.9g")


def call(line: str) -> None:
    assert run(line.split()) == 0, line


def follow(heading: str) -> None:
    """Follow a walk in a folder of its own."""
    for _ in walk(heading):
        pass
    assert read_json(Path("result.json"))["chosen"] == "identified"


if __name__ == "__main__":
    Path("arm.xml").write_text(ARM, encoding="utf-8")
    write_log()
    call("init arm.xml --out first")
    call("import log.npz --robot ./first --out first.h5")
    call("export first.h5 --to lerobot --out set")  # the data set, as LeRobot lays it out
    follow("LeRobot")
    mujoco.MjModel.from_xml_path(str(next(Path("adapted").glob("*.xml"))))
    Path("isaaclab").mkdir()
    Path("isaaclab/arm.urdf").write_text(URDF, encoding="utf-8")
    Path("isaaclab/map.yaml").write_text(MAP, encoding="utf-8")
    os.chdir("isaaclab")
    shutil.copy("../log.npz", "log.npz")
    write_table()
    follow("Isaac Lab")
    assert list(Path("for-isaaclab").glob("*.py"))
