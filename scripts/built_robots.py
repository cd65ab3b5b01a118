# SPDX-License-Identifier: Apache-2.0
"""Write the package's robots as built by Newton, so that users need not compile its kernels for that.

    python scripts/built_robots.py

Run it after a change of a shipped declaration or asset, of the code that builds robots, or of Newton's or MuJoCo's
version; tests/sim/test_articulation.py compares the files.
"""

from neurodyn.robots import Robot, is_installed, load, names, ships
from neurodyn.sim.articulations import SHIPPED, built_name, encoded_robot
from neurodyn.sim.newton.articulation import newton_articulation


def shipped_robots() -> list[Robot]:
    """Return the robots that Newton builds and whose assets are available."""
    found = [robot for name in names() if ships(robot := load(name))]  # without those of plug-ins
    return [robot for robot in found if robot.asset and is_installed(robot) and robot.simulator.solver != "mujoco-c"]


def main() -> None:
    """Write one file per robot, and remove old ones."""
    written = {built_name(robot): robot for robot in shipped_robots()}
    SHIPPED.mkdir(exist_ok=True)
    for old in SHIPPED.glob("*.json"):
        if old.name not in written:
            old.unlink()
    for name, robot in written.items():
        content = encoded_robot(newton_articulation(None, robot))
        (SHIPPED / name).write_bytes(content + b"\n")
        print(f"{robot.name}: {len(content):,} bytes, {name}")


if __name__ == "__main__":
    main()
