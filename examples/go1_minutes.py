# SPDX-License-Identifier: Apache-2.0
"""A Go1 that walks after a minute or two of one core: declared from its MJCF, trained along gradients, exported to C.

    python examples/go1_minutes.py scene_mjx_feetonly_flat_terrain.xml --folder runs/go1

The scene is that of mujoco_playground, or any other with a robot on legs that has servos and stands in a keyframe. It
runs the commands that it prints. docs/walking-robot.md says what to change for your own robot.
"""

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

SCENE = "_src/locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml"


def installed_scene() -> Path | None:
    """Return the scene of an installed mujoco_playground."""
    spec = find_spec("mujoco_playground")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / SCENE


def main() -> None:
    """Declare, train, evaluate, film and export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", nargs="?", type=Path, default=installed_scene(), help="MJCF of a robot on its floor")
    parser.add_argument("--folder", type=Path, default=Path("runs/go1"))
    parser.add_argument("--updates", type=int, help="by default those of the task")
    args = parser.parse_args()
    if args.scene is None:
        parser.error("mujoco_playground is not installed; give the MJCF of a robot on its floor")
    robot, policy = args.folder / "robot", args.folder / "policy"
    budget = [] if args.updates is None else ["--iterations", str(args.updates)]
    for command in (
        ["init", args.scene, "--out", robot],
        ["policy", "train", f"velocity@{robot}", "--dynamics", "hybrid", "--out", policy, *budget],
        ["policy", "evaluate", policy, "--dynamics", "analytic", "--dynamics", "hybrid", "--episodes", "64"],
        ["policy", "play", policy, "--dynamics", "analytic", "--out", args.folder / "walk.html"],
        ["export", policy, "--to", "c", "--out", args.folder / "c"],
    ):
        words = [str(word) for word in command]
        print("$ neurodyn", *words)
        if code := subprocess.run([sys.executable, "-m", "neurodyn", *words], check=False).returncode:
            raise SystemExit(code)


if __name__ == "__main__":
    main()
