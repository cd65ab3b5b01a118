# SPDX-License-Identifier: Apache-2.0
"""A robot whose shapes have different frictions."""

from pathlib import Path

import yaml

from neurodyn import robots
from neurodyn.robots import Robot

SLED = """<mujoco><compiler angle="radian" autolimits="true"/><default><geom {every}/></default>
<worldbody><body name="sled"><freejoint name="root"/>
<inertial pos="0 0 .02" mass="2" diaginertia=".01 .012 .015"/>
<geom name="left" type="sphere" size=".05" pos="0 .15 0" friction=".05"/>
<geom name="right" type="sphere" size=".05" pos="0 -.15 0" friction=".9"/>
<geom name="front" type="sphere" size=".05" pos=".2 0 0" friction=".4" {front}/>
<geom name="back" type="sphere" size=".05" pos="-.2 0 0" friction=".4"/>
</body></worldbody></mujoco>"""


def write_sled(folder: Path, front: str = "", every: str = "") -> Robot:
    """Write a robot that slides on four balls of three frictions, and return its declaration."""
    (folder / "sled.xml").write_text(SLED.format(front=front, every=every))
    declared = {
        "name": "sled", "asset": "sled.xml", "dt": 0.02, "joints": [{"name": "root", "kind": "free"}],
        "actuated": {}, "fixed_base": False, "contact_points": {}, "ground": "floor",
        "grounds": {"floor": {"shapes": [{"kind": "plane"}]}},
        "simulator": {"solver": "mujoco", "substeps": 5},
    }  # fmt: skip
    (folder / "robot.yaml").write_text(yaml.safe_dump(declared))
    return robots.load(folder)
