# SPDX-License-Identifier: Apache-2.0
"""A policy in C acts on a robot in Python over a local socket: `python examples/c_loop/run.py --seconds 60`.

The policy pretrained-policy:ant-run is exported and compiled into `controller.c`, which runs at 500 Hz. The robot here,
the hybrid ant in steps of 2 ms, takes a step for each packet of torques and sends its measurements. At the end the
controller prints the times from tick to torques, and how many were late; `--bare 60` measures the latency of the idle
machine.
"""

import argparse
import gc
import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import torch

from neurodyn import Control, robots
from neurodyn.dynamics import declared_hybrid
from neurodyn.interop import export_code
from neurodyn.tasks import load

MEASURED = (
    "base_height", "base_orientation", "base_linear_velocity", "base_angular_velocity", "joint_position",
    "joint_velocity",
)  # fmt: skip
"""Measurements that the controller reads, in order."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--spin", type=float, default=0.0, help="wait awake before each tick [us]")
    parser.add_argument("--bare", type=float, default=0.0, help="time for which it only waits for ticks before [s]")
    parser.add_argument("--realtime", action="store_true", help="run before everything else, on one core (Linux, root)")
    arguments = parser.parse_args()
    if shutil.which("gcc") is None:
        print("needs gcc, which is not there")
        return
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.bind(("127.0.0.1", 0))
            line.settimeout(2.0)
            plant = Plant(1.0 / arguments.rate)
            if arguments.realtime:  # inherited by the controller
                os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
            gc.collect()
            gc.disable()  # pauses of milliseconds
            asked = arguments.rate, arguments.seconds, arguments.spin, arguments.bare
            controller = subprocess.Popen([program, *map(str, (line.getsockname()[1], *asked))])
            while controller.poll() is None:
                with suppress(TimeoutError):
                    packet, sender = line.recvfrom(4096)
                    line.sendto(plant.step(np.frombuffer(packet, np.float32)), sender)
            gc.enable()
    if controller.returncode:
        raise SystemExit("the controller failed: no state for a second, or no socket")
    print(f"{plant.run:.1f} m run in {plant.time:.1f} s, {plant.falls} falls")


def compiled(folder):
    """Export the policy; return the path of the compiled loop."""
    code = export_code("pretrained-policy:ant-run", "c", folder / "policy")
    flags = ["-std=c99", "-Wall", "-Wextra", "-O2", f"-I{code}", Path(__file__).with_name("controller.c")]
    subprocess.run(["gcc", *flags, code / "ant_run.c", "-o", folder / "controller", "-lm"], check=True)
    return folder / "controller"


class Plant:
    """The robot: an ant stepped at the controller's period [s], which restarts after a fall."""

    def __init__(self, period):
        robot = msgspec.structs.replace(robots.load("ant"), dt=period)
        self.model = declared_hybrid(robot, substeps=max(1, round(period / 0.004)))
        self.task, self.random = load("ant-run"), torch.Generator().manual_seed(0)
        self.time = self.run = self.falls = 0
        self.begin()
        self.step(np.zeros(self.model.spec.nu, np.float32))  # triggers compilation
        self.time = self.run = 0
        self.begin()

    def begin(self):
        """Stand at the start."""
        self.state = self.task.start(1, self.random)
        self.carry = self.model.begin(self.state)

    @torch.no_grad()
    def step(self, torque):
        """Take a step under torques and return the measurements as bytes."""
        before = float(self.state.q[0, 0])
        control = Control(torque=torch.tensor(torque)[None])
        self.carry, step = self.model.step(self.carry, self.state, control)
        self.state = step.state
        self.run += float(self.state.q[0, 0]) - before
        self.time += self.model.spec.dt
        return self.measured()

    def measured(self):
        """Return the measurements as bytes; restart after a fall."""
        measured = self.model.quantities(self.state)
        if float(measured["base_height"][0, 0]) < 0.3:
            self.falls += 1
            self.begin()
            measured = self.model.quantities(self.state)
        return np.concatenate([measured[name][0].numpy() for name in MEASURED]).tobytes()


if __name__ == "__main__":
    main()
