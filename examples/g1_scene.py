# SPDX-License-Identifier: Apache-2.0
"""Write mjlab's Unitree G1, with its servos and a floor, as one MJCF that `neurodyn init` declares.

    pip install mjlab==1.6.0
    python examples/g1_scene.py g1.xml && neurodyn init g1.xml --out g1

mjlab's own file has no actuators: its configuration adds them.
"""

import sys
from pathlib import Path

import mujoco
from mjlab.asset_zoo.robots.unitree_g1.g1_constants import get_g1_robot_cfg
from mjlab.entity import Entity


def main() -> None:
    """Write the file."""
    spec = Entity(get_g1_robot_cfg()).spec
    spec.option.timestep = 0.005  # of mjlab's velocity task
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for geom in list(spec.geoms):
        if geom.type == mujoco.mjtGeom.mjGEOM_MESH:  # seen only; the others collide
            spec.delete(geom)
    for mesh in list(spec.meshes):
        spec.delete(mesh)
    spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.05])
    spec.compile()
    Path(sys.argv[1]).write_text(spec.to_xml())


if __name__ == "__main__":
    main()
