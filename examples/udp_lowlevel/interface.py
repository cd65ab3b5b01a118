# SPDX-License-Identifier: Apache-2.0
"""neurodyn's end of low-level messages: a class for `--on`, `--plant` and `--robot`.

Run the robot in one terminal, and its controller in another:

python examples/udp_lowlevel/robot.py
neurodyn policy play pretrained-policy:ant-run --on examples/udp_lowlevel/interface.py:LowLevelAnt --out udp.html

Run as a script, this file starts a robot, keeps it standing for a while, and prints packet statistics. The environment
variable LOW_LEVEL sets another address, such as 192.168.123.10:8007.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from messages import SERVO, LowCommand, LowState

JOINTS = 8
NOMINAL = np.array([0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0])


class LowLevelAnt:
    """The ant over UDP: torques at 60 Hz, of which the robot repeats the last."""

    rate = 60.0
    patience = 0.3
    stale = 0.1  # age at which a state is too old to act on [s]

    def __init__(self):
        host, _, port = os.environ.get("LOW_LEVEL", "127.0.0.1:8007").rpartition(":")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((host, int(port)))
        self.number, self.state, self.at = 0, None, 0.0
        self.received = self.refused = 0

    def reset(self):
        """Have the robot reset to standing, and wait until it is."""
        for _ in range(20):
            with suppress(ConnectionError):
                self.socket.send(b"RESET")
            if self._newest(0.1) and self.state.tick < 200:
                return
        raise ConnectionError("the robot does not answer")

    def observe(self):
        """Return the newest state: quaternion x, y, z, w, velocities in world axes."""
        self._newest(0.25 / self.rate)
        if self.state is None or (age := time.monotonic() - self.at) > self.stale:
            raise ConnectionError(f"no valid state of the robot for {'ever' if self.state is None else f'{age:.2f} s'}")
        state, (w, *xyz) = self.state, self.state.quaternion
        axis = np.array(xyz)
        spin = state.gyroscope + 2.0 * np.cross(axis, np.cross(axis, state.gyroscope) + w * state.gyroscope)
        q = [*state.position, *xyz, w, *state.q[:JOINTS]]
        qd = [*state.velocity, *spin, *state.dq[:JOINTS]]
        return {"q": q, "qd": qd, "time": 1e-3 * state.tick, "refused": self.refused}

    def command(self, values):
        """Send torques [N m]."""
        self.send(tau=values)

    def stop(self):
        """Damp the joints. Several packets, because one may be lost; if all are, the robot's watchdog acts."""
        for _ in range(3):
            self.send(kd=20.0)

    def send(self, **motors):
        """Send a motor command; omitted fields of `LowCommand` are zero."""
        self.number += 1
        command = LowCommand(self.number)
        command.mode[:JOINTS] = SERVO
        for name, values in motors.items():
            getattr(command, name)[:JOINTS] = values
        with suppress(ConnectionError):  # no robot yet, or no longer; `observe` reports it
            self.socket.send(command.pack())

    def _newest(self, wait):
        """Receive the newest valid state that arrives within a time; return whether there was one."""
        until, found = time.monotonic() + wait, None
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(2048)
            except (TimeoutError, ConnectionError):
                continue
            state = LowState.unpack(data)
            self.received, self.refused = self.received + 1, self.refused + (state is None)
            if state is not None and (found is None or state.number > found.number):
                found = state
        if found is not None:
            self.state, self.at = found, time.monotonic()
        return found is not None


def main():
    """Start a robot, keep it standing, and print packet statistics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--lost", type=float, default=0.02)
    args = parser.parse_args()
    words = [sys.executable, str(Path(__file__).with_name("robot.py")), "--port", "0", "--lost", str(args.lost)]
    robot = subprocess.Popen([*words, "--seconds", str(args.seconds + 20)], stdout=subprocess.PIPE, text=True)
    try:
        os.environ["LOW_LEVEL"] = robot.stdout.readline().split()[-1]
        ant = LowLevelAnt()
        ant.stale = 5.0  # robot and controller may share one core here
        ant.reset()
        begun, gaps = time.monotonic(), []
        for frame in range(round(args.seconds * ant.rate)):
            ant.observe()
            gaps.append(time.monotonic() - ant.at)
            ant.send(q=NOMINAL, kp=400.0, kd=20.0)
            time.sleep(max(0.0, begun + (frame + 1) / ant.rate - time.monotonic()))
        height = ant.observe()["q"][2]
        ant.stop()
    finally:
        robot.kill()
        robot.communicate()
    rate = ant.received / (time.monotonic() - begun)
    print(f"height {height:.2f} m; {rate:.0f} states a second, {ant.refused} refused, oldest {1e3 * max(gaps):.1f} ms")


if __name__ == "__main__":
    main()
