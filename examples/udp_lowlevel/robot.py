# SPDX-License-Identifier: Apache-2.0
"""A robot with low-level messages over UDP: an ant in plain MuJoCo, simulated in real time.

python examples/udp_lowlevel/robot.py --port 8007 --lost .02

Invalid packets are ignored. Without a valid command for `SILENCE`, the motors only damp. A packet "RESET" sets it back
on its feet, like a gantry for a real one.
"""

import argparse
import random
import socket
import sys
import time
from pathlib import Path

import mujoco
import numpy as np
from messages import MOTORS, OFF, SERVO, LowCommand, LowState

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from worn_ant import JOINTS, model_text

PERIOD = 1.0 / 480.0
SILENCE = 0.1
"""Time without a command after which the robot damps its joints [s]."""
DAMPING, EFFORT = 20.0, 400.0  # [N m s/rad], [N m]
NOMINAL = np.array([0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0, 1.0])


class Robot:
    """The ant with a legged robot's motor controllers; its eight motors come first."""

    def __init__(self):
        self.model = mujoco.MjModel.from_xml_string(model_text(0.0, None))
        self.model.opt.timestep = PERIOD
        self.data = mujoco.MjData(self.model)
        self.q = [self.model.joint(name).qposadr[0] for name in JOINTS]
        self.v = [self.model.joint(name).dofadr[0] for name in JOINTS]
        self.number = 0
        self.reset()

    def reset(self):
        """Start slightly above the ground."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[2], self.data.qpos[self.q] = 0.9, NOMINAL
        mujoco.mj_forward(self.model, self.data)

    def advance(self, command):
        """Advance by one period under a command; None for damping only."""
        q, dq, n = self.data.qpos[self.q], self.data.qvel[self.v], len(JOINTS)
        if command is None:
            torque = -DAMPING * dq
        else:
            error, slip = command.q[:n] - q, command.dq[:n] - dq
            torque = command.tau[:n] + command.kp[:n] * error + command.kd[:n] * slip
            torque = np.where(command.mode[:n] == SERVO, torque, 0.0)
        self.data.ctrl[:] = np.clip(torque, -EFFORT, EFFORT)
        mujoco.mj_step(self.model, self.data)

    def state(self):
        """Return the measurements."""
        self.number += 1
        qpos, qvel = self.data.qpos, self.data.qvel
        turned = np.zeros(3)
        inverse = qpos[3:7] * np.array([1.0, -1.0, -1.0, -1.0])
        mujoco.mju_rotVecQuat(turned, self.data.qacc[:3] - self.model.opt.gravity, inverse)
        state = LowState(
            self.number, round(1e3 * self.data.time), qpos[3:7], qvel[3:6], turned, position=qpos[:3], velocity=qvel[:3]
        )
        n = len(JOINTS)
        state.mode = np.where(np.arange(MOTORS) < n, SERVO, OFF)
        state.q[:n], state.dq[:n], state.tau[:n] = qpos[self.q], qvel[self.v], self.data.actuator_force
        return state


def serve(port, lost, seconds):
    """Act as the robot: listen, advance, and answer the last sender."""
    robot, ready = Robot(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ready.bind(("127.0.0.1", port))
    ready.setblocking(False)
    print(f"listening at 127.0.0.1:{ready.getsockname()[1]}", flush=True)
    begun = now = heard = time.monotonic()
    command, client = None, None
    while seconds is None or now - begun < seconds:
        try:
            while True:
                data, client = ready.recvfrom(2048)
                if data == b"RESET":
                    robot.reset()
                    command = None
                elif random.random() >= lost and (found := LowCommand.unpack(data)) is not None:
                    command, heard = found, now
        except BlockingIOError:
            pass
        robot.advance(command if now - heard < SILENCE else None)
        if client is not None and random.random() >= lost:
            ready.sendto(robot.state().pack(), client)
        now += PERIOD
        time.sleep(max(0.0, now - time.monotonic()))


def main():
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8007, help="0 for a free one")
    parser.add_argument("--lost", type=float, default=0.0, help="share of packets that are lost, either way")
    parser.add_argument("--seconds", type=float, help="how long the robot is there; by default until Ctrl-C")
    args = parser.parse_args()
    serve(args.port, args.lost, args.seconds)


if __name__ == "__main__":
    main()
