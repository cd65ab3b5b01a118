# SPDX-License-Identifier: Apache-2.0
"""Robots of one's own, written into a folder with all that they name."""

from pathlib import Path

import yaml

CUBE = """mtllib missing.mtl
v -1 -1 -1
v 1 -1 -1
v 1 1 -1
v -1 1 -1
v -1 -1 1
v 1 -1 1
v 1 1 1
v -1 1 1
f 1 3 2
f 1 4 3
f 5 6 7
f 5 7 8
f 1 2 6
f 1 6 5
f 2 3 7
f 2 7 6
f 3 4 8
f 3 8 7
f 4 1 5
f 4 5 8
"""
URDF = """<robot name="arm">
  <link name="base"/>
  <link name="fore">
    <inertial><origin xyz="0 0 -.4"/><mass value="1"/>
      <inertia ixx=".02" iyy=".02" izz=".01" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><origin xyz="0 0 -.4"/><geometry><mesh filename="package://arm/meshes/fore.obj" scale=".05 .05 .05"/>
    </geometry></visual>
    <collision><origin xyz="0 0 -.4"/><geometry><mesh filename="../shapes/fore.obj" scale=".05 .05 .05"/></geometry>
    </collision>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="fore"/><origin xyz="0 0 1"/><axis xyz="0 1 0"/>
    <limit lower="-2" upper="2" effort="2" velocity="5"/>
  </joint>
</robot>
"""
MJCF = """<mujoco model="arm">
  <compiler meshdir="meshes" angle="radian"/>
  <include file="parts/assets.xml"/>
  <worldbody>
    <body name="fore" pos="0 0 1">
      <joint name="shoulder" type="hinge" axis="0 1 0" range="-2 2"/>
      <geom name="rod" type="capsule" fromto="0 0 0 0 0 -.3" size=".02" mass=".5"/>
      <geom name="tip" type="mesh" mesh="fore" pos="0 0 -.4" mass=".5"/>
    </body>
  </worldbody>
</mujoco>
"""
INCLUDED = """<mujocoinclude>
  <compiler assetdir="../shapes"/>
  <asset><mesh name="fore" file="fore.obj" scale=".05 .05 .05"/></asset>
</mujocoinclude>
"""
DECLARATION = {
    "name": "my-arm", "dt": 0.02, "actuated": {"shoulder": 2.0}, "frames": 20, "evaluation_horizon": 10,
    "joints": [{"name": "shoulder", "kind": "revolute", "lower": -2.0, "upper": 2.0}],
    "simulator": {"solver": "mujoco"}, "sampling": {"qd": {"shoulder": [-1.0, 1.0]}},
    "contact_points": {"vertices": 4}, "ground": "block",
    "grounds": {"block": {"shapes": [{"kind": "mesh", "file": "grounds/block.obj", "scale": 0.1}]}},
}  # fmt: skip


def write_arm(folder: Path, form: str) -> Path:
    """Write an arm as URDF or MJCF into a folder, and return that of its declaration.

    The URDF lies beside the declaration's folder and names a mesh by package and one by path; the MJCF includes a file
    with an asset directory of its own. Both stand on a mesh.
    """
    own = folder / "arm" / "own"
    texts = {
        own / "grounds" / "block.obj": CUBE,
        own / "train-small.yaml": "net: {kind: mlp, width: 16, depth: 1}\nminutes: null\nsteps: 5\nvalidations: 1\n"
        "validation_rollouts: 4\nvalidation_frames: 5\nphases: [{share: 1.0, rate: 1.0e-3, batch: 16}]\n",
        own / "world-model-small.yaml": "net: {kind: gru, members: 2, trunk: own, width: 8, depth: 1, head: 8}\n"
        "minutes: null\nsteps: 2\ncontext: 4\n"
        "phases: [{share: 1.0, rate: 1.0e-3, batch: 16, context: 4, forecast: 2, loss: absolute}]\n",
    }
    if form == "urdf":
        asset, meshes = "../urdf/arm.urdf", ("meshes", "shapes")
        texts |= {folder / "arm" / "urdf" / "arm.urdf": URDF}
        texts |= {folder / "arm" / mesh / "fore.obj": CUBE for mesh in meshes}
    else:
        asset = "arm.xml"
        texts |= {
            own / "arm.xml": MJCF, own / "parts" / "assets.xml": INCLUDED, own / "shapes" / "fore.obj": CUBE,
            own / "shapes" / "unused.obj": CUBE,
        }  # fmt: skip
    texts[own / "robot.yaml"] = yaml.safe_dump({**DECLARATION, "asset": asset})
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return own
