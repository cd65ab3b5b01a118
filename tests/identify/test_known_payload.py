# SPDX-License-Identifier: Apache-2.0
"""A weight whose mass the log gives by run, on a link: runs with all weights are runs of one robot."""

from pathlib import Path

import numpy as np
import pytest

from neurodyn.cli.main import run as command
from neurodyn.identify import identify

mujoco = pytest.importorskip("mujoco")
ARM = """<mujoco><compiler angle="radian"/><option timestep="0.0025" integrator="implicitfast"/><worldbody>
<body><joint name="turn" axis="0 1 0" damping="0.05"/><inertial pos="0 0 -0.2" mass="0.8" diaginertia="0.01 0.01 0.01"/>
{load}</body></worldbody><actuator><motor name="turn" joint="turn" ctrlrange="-3 3"/></actuator></mujoco>"""
LOAD = """<body pos="0.02 0 -0.3"><inertial pos="0 0 0" mass="{mass}" diaginertia="{each} {each} {each}"/></body>"""
DECLARATION = """
name: loaded-arm
asset: arm.xml
joints: [{name: turn, kind: revolute, continuous: true}]
actuated: {turn: 3.0}
dt: 0.01
simulator: {solver: mujoco-c, substeps: 4, integrator: implicitfast}
sampling: {qd: {'*': [-5, 5]}}
"""
MAP = """
robot: robot.yaml
format: npz
time: time
q: {turn: {column: angle}}
qd: {turn: {column: rate}}
control: {turn: {column: torque}}
alignment: 0
"""
WEIGHT = "parameters: {turn.payload: {column: load, place: [0.02, 0, -0.3], radius: 0.03}}"


def test_damping_is_that_of_an_arm_with_any_weight(tmp_path: Path):
    rng, files = np.random.default_rng(1), list[str]()
    for name, text in {"arm.xml": ARM.format(load=""), "robot.yaml": DECLARATION, "map.yaml": MAP}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "known.yaml").write_text(f"extends: map.yaml\n{WEIGHT}\n")
    for k, mass in enumerate((0.01, 0.3, 0.6, 0.9, 0.45)):
        text = ARM.format(load=LOAD.format(mass=mass, each=mass * 0.03**2)).replace("0.05", "0.11")
        model = mujoco.MjModel.from_xml_string(text)
        data, rows = mujoco.MjData(model), []
        for tau in np.repeat(rng.uniform(-1.5, 1.5, 20), 20):
            rows.append((data.time, data.qpos[0], data.qvel[0], tau, mass))
            data.ctrl[0] = tau
            mujoco.mj_step(model, data, 4)
        files.append(str(tmp_path / f"run{k}.npz"))
        np.savez(files[-1], **dict(zip(("time", "angle", "rate", "torque", "load"), np.array(rows).T, strict=True)))
    off = {}
    for name in ("map", "known"):
        store = str(tmp_path / f"{name}.h5")
        assert command(["import", *files, "--reader", str(tmp_path / f"{name}.yaml"), "--out", store]) == 0
        found = identify(str(tmp_path), data=store, out=tmp_path / name, parameters=["turn.damping"])
        off[name] = abs(found.figures.parameters[0].value / 0.11 - 1.0)
    assert off["known"] < 0.005
    assert off["map"] > 0.05
