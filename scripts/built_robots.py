# SPDX-License-Identifier: Apache-2.0
"""Write the robots of the package as Newton builds them, so that nobody else has to compile its kernels for that.

    python scripts/built_robots.py

To be run after a change of a shipped declaration or asset, of what builds robots, or of Newton's or MuJoCo's version;
tests/sim/test_articulation.py compares what was written.
"""

from neurodyn.robots import Robot, is_installed, load, names, ships
from neurodyn.sim.articulation import SHIPPED, built_name, encoded_robot
from neurodyn.sim.newton_articulation import newton_articulation


def shipped_robots() -> list[Robot]:
    """Return the robots that Newton builds and whose assets are here."""
    found = [robot for name in names() if ships(robot := load(name))]  # not those of plug-ins
    return [robot for robot in found if robot.asset and is_installed(robot) and robot.simulator.solver != "mujoco-c"]


def main() -> None:
    """Write one file for each robot, and remove those of before."""
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
