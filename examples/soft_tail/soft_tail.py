# SPDX-License-Identifier: Apache-2.0
"""An undeclared mechanism: a driven rod with a soft tail, where only the joint is measured.

Logs it in plain MuJoCo under random torques, and fits the declared rod ("identified": all parameters of a rigid rod), a
network with memory on the rod ("hybrid"), and networks alone: "mlp", with the current state as input, and "gru", with
the last frames. Prints the errors of forecasts on unseen runs, and the CPU time.

    python examples/soft_tail/soft_tail.py --seeds 0 1 2
"""

import argparse
import csv
import json
import tempfile
import time
from pathlib import Path

import msgspec
import mujoco
import numpy as np
import torch

import neurodyn
from neurodyn.core import Blueprint, read_config
from neurodyn.data import Split, import_logs, read_column_map
from neurodyn.evaluate import beside_log
from neurodyn.identify import changed, identify, load_identification
from neurodyn.learn import load_settings, train
from neurodyn.robots import load

HERE = Path(__file__).resolve().parent
SEGMENTS, LENGTH = 10, 0.5
NOISE = np.array([1e-3, 0.02])
"""Standard deviations of the measured angle [rad] and speed [rad/s]."""


def model_text():
    """Return the MJCF of the rod and its tail, a chain of stiff elements."""
    piece = LENGTH / SEGMENTS
    tail = ""
    for number in range(SEGMENTS):
        tail += f"""<body pos="0 0 {-0.3 if number == 0 else -piece}">
          <joint axis="0 1 0" stiffness="1" damping=".01"/>
          <geom type="capsule" fromto="0 0 0 0 0 {-piece}" size=".008" mass="{0.2 / SEGMENTS}"/>"""
    return f"""
<mujoco>
  <option timestep=".001" integrator="implicitfast"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <body>
      <joint name="joint" axis="0 1 0" damping=".02" frictionloss=".01"/>
      <geom type="box" pos="0 0 -.15" size=".01 .01 .15" mass=".3"/>
      {tail}{"</body>" * SEGMENTS}
    </body>
  </worldbody>
  <actuator><motor joint="joint"/></actuator>
</mujoco>"""


def log(folder, runs, seconds, seed):
    """Write runs under random torques, each held for up to 0.4 s, as CSV files; return their paths."""
    model, random = mujoco.MjModel.from_xml_string(model_text()), np.random.default_rng(seed)
    paths = []
    for run in range(runs):
        data, hold, torque = mujoco.MjData(model), 0, 0.0
        paths.append(folder / f"run{run:02}.csv")
        with paths[-1].open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["time", "angle", "speed", "torque"])
            for frame in range(round(100 * seconds)):
                if hold == 0:
                    hold, torque = random.integers(5, 40), random.uniform(-0.5, 0.5) * random.integers(0, 2)
                angle, speed = np.array([data.qpos[0], data.qvel[0]]) + NOISE * random.normal(size=2)
                rows.writerow([f"{x:.6f}" for x in (frame / 100, angle, speed, torque)])
                data.ctrl[0], hold = torque, hold - 1
                mujoco.mj_step(model, data, 10)
    return paths


def fitted(kind, robot, data, out, seed, minutes):
    """Return a model of a kind."""
    if kind in ("mlp", "gru"):
        settings = load_settings(robot, "small", log=True)
        net = msgspec.structs.replace(settings.net, kind=kind)
        train(HERE, data, out, size=msgspec.structs.replace(settings, net=net, clock="cpu"), minutes=minutes, seed=seed)
    else:
        blueprint = read_config(HERE / "blueprint.yaml", Blueprint) if kind == "hybrid" else None
        settings = changed(load_identification(robot), seed=seed, minutes=minutes, clock="cpu", threads=1)
        identify(robot, data, out, blueprint=blueprint, settings=settings)
    return neurodyn.load(out)


def main():
    """Log, fit and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=["identified", "hybrid", "mlp", "gru"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--runs", type=int, default=14)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a run")
    parser.add_argument("--minutes", type=float, default=0.3, help="CPU time of a model")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    robot, figures = load(HERE), {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        store = import_logs(
            log(folder, asked.runs, asked.seconds, 0), read_column_map(HERE / "log.yaml"), robot.spec, folder / "log.h5"
        )
        for kind in asked.kinds:
            for seed in asked.seeds if kind != "identified" else [0]:
                begin = time.process_time()
                model = fitted(kind, robot, folder / "log.h5", folder / f"{kind}-{seed}", seed, asked.minutes)
                spent = time.process_time() - begin
                marks = beside_log(model, robot, store, split=Split.TEST, horizon=100).at_horizon["all"].marks
                found = {"cpu_s": spent, **{f"rad_{mark.seconds:g}s": mark.model.q_mean for mark in marks.values()}}
                print(f"{kind:11s} seed {seed}", {key: round(value, 4) for key, value in found.items()}, flush=True)
                figures[f"{kind}_{seed}"] = found
        still = {f"rad_{m.seconds:g}s": m.baselines["hold_last"].q_mean for m in marks.values()}
        print(f"{'persistence':18s}", {key: round(value, 4) for key, value in still.items()})
    if asked.json:
        asked.json.write_text(json.dumps({**figures, "persistence": still}, indent=2))


if __name__ == "__main__":
    main()
