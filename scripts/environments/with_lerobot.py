# SPDX-License-Identifier: Apache-2.0
"""A LeRobot data set in, an adapted model out, with pyarrow alone: LeRobot 0.4.4 asks for torch < 2.11."""

from pathlib import Path

import mujoco
import numpy as np

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
SETTINGS = """
structures: false
networks: false
refits: 2
reference_steps: 5
proposals: 0
stages: [{seconds: 0.2, windows: 24, iterations: 4}]
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


def call(line: str) -> None:
    assert run(line.split()) == 0, line


if __name__ == "__main__":
    Path("arm.xml").write_text(ARM, encoding="utf-8")
    Path("settings.yaml").write_text(SETTINGS, encoding="utf-8")
    write_log()
    call("init arm.xml --out arm")
    call("import log.npz --robot ./arm --out first.h5")
    call("export first.h5 --to lerobot --out set")  # the data set, as LeRobot lays it out
    call("import set --robot ./arm --out log.h5")
    call("adapt ./arm --data log.h5 --settings settings.yaml --out run --json result.json")
    assert read_json(Path("result.json"))["chosen"] == "identified"
    call("export run --to mjcf --out adapted")
    mujoco.MjModel.from_xml_path(str(next(Path("adapted").glob("*.xml"))))
