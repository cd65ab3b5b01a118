# SPDX-License-Identifier: Apache-2.0
"""A robot behind a network: a cartpole that sends its state over UDP, with jitter and lost packets.

Run this file in one terminal: it is the robot, simulated in real time. `UdpCartpole` controls it from another:

python examples/udp_robot.py --lost .1 --jitter .003
neurodyn policy play pretrained-policy:cartpole --on examples/udp_robot.py:UdpCartpole --out udp.html

The environment variable UDP_ROBOT sets another address, such as 192.168.1.20:9123.
"""

import argparse
import json
import math
import os
import random
import socket
import time
from contextlib import suppress

ADDRESS = "127.0.0.1:9123"
RATE = 60.0
SILENCE = 0.15
"""Time without a command after which the robot switches its motor off [s]."""


def address():
    """Return host and port of the robot."""
    host, _, port = os.environ.get("UDP_ROBOT", ADDRESS).rpartition(":")
    return host, int(port)


class UdpCartpole:
    """The controlling end: four methods and a rate."""

    rate = RATE
    patience = 0.3
    deaf = 0.2  # time without a packet after which the robot counts as lost [s]

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(address())
        self.sent, self.heard, self.at = 0, None, 0.0
        self.lost = 0

    def reset(self):
        """Request a new start until the robot confirms it; any packet may be lost."""
        self.sent += 1
        for _ in range(20):
            self._send("reset")
            answer = self._newest(0.1)
            if answer is not None and answer["reset"] == self.sent:
                return
        raise ConnectionError("the robot does not answer")

    def observe(self):
        """Return the newest state. A lost packet is bridged at constant velocity, for at most `deaf` seconds."""
        self._newest(0.4 / RATE)
        age = time.monotonic() - self.at
        if self.heard is None or age > self.deaf:
            raise ConnectionError(f"nothing was heard of the robot for {age:.2f} s")
        missed = max(0, round(age * RATE - 0.5))
        self.lost += missed
        q = [q + qd * missed / RATE for q, qd in zip(self.heard["q"], self.heard["qd"], strict=True)]
        return {"q": q, "qd": self.heard["qd"], "bridged": missed}

    def command(self, values):
        """Send a force [N]."""
        self._send("force", float(values[0]))

    def stop(self):
        """Switch the motor off. Several packets, because one may be lost; if all are, the robot's watchdog acts."""
        for _ in range(3):
            self._send("force", 0.0)

    def _send(self, what, force=0.0):
        with suppress(ConnectionError):  # no robot yet, or no longer; `observe` reports it
            self.socket.send(json.dumps({"what": what, "force": force, "reset": self.sent}).encode())

    def _newest(self, wait):
        """Return and keep the newest packet that arrives within a time; packets may overtake each other."""
        until, found = time.monotonic() + wait, None
        while (left := until - time.monotonic()) > 0 or found is None:
            self.socket.settimeout(max(left, 1e-4))
            try:
                packet = json.loads(self.socket.recv(1024))
            except (TimeoutError, ConnectionError):
                if left <= 0:
                    break
                continue
            if found is None or packet["number"] > found["number"]:
                found = packet
                until = min(until, time.monotonic() + 1e-3)  # drain packets already received
        if found is not None:
            self.heard, self.at = found, time.monotonic()
        return found


class Cartpole:
    """The robot's end: a cart of 50 kg with a pole of 2.5 kg and 1 m, and a little friction."""

    def __init__(self):
        self.q, self.qd, self.force = [0.0, math.pi], [0.0, 0.0], 0.0

    def reset(self):
        """Hang at rest near the middle."""
        self.q, self.qd, self.force = [random.uniform(-0.5, 0.5), math.pi + random.uniform(-0.3, 0.3)], [0.0, 0.0], 0.0

    def advance(self, seconds):
        """Advance in steps of a millisecond."""
        for _ in range(round(seconds * 1e3)):
            x, angle = self.qd
            sine, cosine = math.sin(self.q[1]), math.cos(self.q[1])
            inertia, arm = 2.5 / 12 + 2.5 * 0.25 + 0.01, 2.5 * 0.5
            push = self.force - 5.0 * x + arm * angle**2 * sine
            turn = 9.81 * arm * sine - 0.02 * angle
            whole = 52.51 * inertia - (arm * cosine) ** 2
            self.qd = [
                x + 1e-3 * (inertia * push - arm * cosine * turn) / whole,
                angle + 1e-3 * (52.51 * turn - arm * cosine * push) / whole,
            ]
            self.q = [q + 1e-3 * qd for q, qd in zip(self.q, self.qd, strict=True)]


def serve(lost, jitter, seconds):
    """Act as the robot: listen, advance, and send the state at the rate."""
    robot, ready = Cartpole(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ready.bind(address())
    ready.setblocking(False)
    print(f"listening at {':'.join(map(str, address()))}", flush=True)
    begun = now = time.monotonic()
    heard, client, number, reset, waiting = now, None, 0, 0, []
    while seconds is None or now - begun < seconds:
        try:
            while True:
                data, client = ready.recvfrom(1024)
                if random.random() < lost:
                    continue
                order, heard = json.loads(data), time.monotonic()
                if order["what"] == "reset" and order["reset"] != reset:
                    robot.reset()
                    reset = order["reset"]
                robot.force = order["force"]
        except BlockingIOError:
            pass
        if now - heard > SILENCE:
            robot.force = 0.0
        robot.advance(0.002)
        if (now - begun) * RATE >= number:
            number += 1
            state = {"q": robot.q, "qd": robot.qd, "number": number, "reset": reset}
            if client is not None and random.random() >= lost:
                waiting.append((now + random.uniform(0.0, jitter), json.dumps(state).encode()))
        for due, packet in [one for one in waiting if one[0] <= now]:
            ready.sendto(packet, client)
            waiting.remove((due, packet))
        now += 0.002
        time.sleep(max(0.0, now - time.monotonic()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lost", type=float, default=0.05, help="share of packets that are lost, either way")
    parser.add_argument("--jitter", type=float, default=0.003, help="greatest delay of a packet [s]")
    parser.add_argument("--seconds", type=float, help="how long the robot is there; by default until Ctrl-C")
    args = parser.parse_args()
    serve(args.lost, args.jitter, args.seconds)


if __name__ == "__main__":
    main()
