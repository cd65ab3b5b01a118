# SPDX-License-Identifier: Apache-2.0
"""A quadruped walks with convex MPC, and with a network that imitates it, from the same starts under equal commands.

python examples/walking.py
python examples/walking.py --robot anymal-c --plant analytic --seconds 10 --network anymal-forces
"""

import argparse
import sys
import tempfile
from pathlib import Path

from neurodyn import robots
from neurodyn.walking import Commands, ImitationSettings, imitate, save_imitation, walk, walker, walking_plant


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="a1")
    parser.add_argument("--plant", default="hybrid", help="hybrid, analytic (Newton), or a run directory")
    parser.add_argument("--ground", help="one of the robot's grounds")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--network", type=Path, help="folder of `neurodyn imitate`; without it a small one is trained")
    parser.add_argument("--decisions", type=int, default=4000, help="decisions that the small one learns from")
    args = parser.parse_args()

    plant = walking_plant(robots.load(args.robot), args.plant, args.ground)
    commands = Commands.drawn(args.episodes, args.seconds, seed=1)
    with tempfile.TemporaryDirectory() as room:
        network = args.network or learned(plant, Path(room) / "network", args.decisions)
        for imitation in (None, network):
            controller, law, gait = walker(plant, imitation=imitation)
            result, _ = walk(plant, controller, commands, seconds=args.seconds, seed=1, names=(law, gait))
            print(
                f"{result.law:9s} {result.gait}: velocity error {result.velocity_error:.3f} m/s, yaw rate error "
                f"{result.yaw_rate_error:.3f} rad/s, {result.falls} falls, {result.decision_ms:.3f} ms a decision"
            )
            if result.falls:
                sys.exit(f"{law} falls in {result.falls} of {result.episodes} episodes")


def learned(plant, folder, decisions):
    """Train a small network and return its folder."""
    settings = ImitationSettings(transitions=decisions, rounds=1, round_transitions=decisions // 2, epochs=40)
    network, law = imitate(plant, settings=settings)
    save_imitation(folder, network, law.config, onnx=False)
    return folder


if __name__ == "__main__":
    main()
