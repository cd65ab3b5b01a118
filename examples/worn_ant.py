# SPDX-License-Identifier: Apache-2.0
"""An ant in plain MuJoCo as a stand-in for a worn robot: a class for `--robot`, `--plant` and `--on`.

Its faults are undeclared: an off-centre payload, weak motors with lag (one very weak), joint friction, heavier rotors,
another floor. `ElasticAnt` is less worn, but its lower legs bend.

neurodyn policy log pretrained-policy:ant-run random --robot examples/worn_ant.py:WornAnt --noise .4 --out logs/worn.h5
neurodyn adapt ant --data logs/worn.h5 --out runs/worn
neurodyn policy play pretrained-policy:ant-run --on examples/worn_ant.py:WornAnt --out worn.html
neurodyn policy online ant-run --robot examples/worn_ant.py:WornAnt --policy pretrained-policy:ant-run --out loops/worn
"""

import mujoco
import numpy as np

JOINTS = [f"{part}_{leg}" for leg in (1, 2, 3, 4) for part in ("hip", "ankle")]
_LEGS = {1: (1, 1), 2: (-1, 1), 3: (-1, -1), 4: (1, -1)}
_STEPS = 4  # simulation steps per frame
_NOISE = {"position": 1e-3, "rotation": 3e-3, "joints": 2e-3, "velocity": 0.02, "rates": 0.05}
"""Standard deviations of motion capture and encoders, and of velocities estimated from them."""


class WornAnt:
    """The ant, 117 kg as declared, with faults.

    Attributes:
        wear: Extent of the faults.
        stiffness: Stiffness of the hidden joint in each lower leg [N m/rad]; None for a rigid leg.
    """

    rate = 60.0
    realtime = False  # runs as fast as it computes
    wear = 1.0
    stiffness: float | None = None

    def __init__(self):
        self.model = mujoco.MjModel.from_xml_string(model_text(self.wear, self.stiffness))
        self.data = mujoco.MjData(self.model)
        self.random = np.random.default_rng()
        self.q = [self.model.joint(name).qposadr[0] for name in JOINTS]
        self.v = [self.model.joint(name).dofadr[0] for name in JOINTS]

    def reset(self):
        """Drop the ant from slightly above the floor, tilted, in a pose near the nominal one."""
        mujoco.mj_resetData(self.model, self.data)
        axis = self.random.normal(size=3)
        self.data.qpos[2] = self.random.uniform(0.9, 1.1)
        angle = self.random.uniform(0.0, 0.52)
        mujoco.mju_axisAngle2Quat(self.data.qpos[3:7], axis / np.linalg.norm(axis), angle)
        nominal = np.array([[0.0, 1.0 if leg in (1, 4) else -1.0] for leg in _LEGS]).ravel()
        self.data.qpos[self.q] = nominal + self.random.uniform(-0.2, 0.2, 8)
        mujoco.mj_forward(self.model, self.data)

    def observe(self):
        """Return motion-capture and encoder measurements: quaternions x, y, z, w, velocities in world axes."""
        qpos, qvel = self.data.qpos, self.data.qvel
        turned, spin = np.zeros(4), np.zeros(3)
        off = self.random.normal(size=3) * _NOISE["rotation"]
        mujoco.mju_mulQuat(turned, np.array([1.0, *(0.5 * off)]), qpos[3:7])
        mujoco.mju_normalize4(turned)
        mujoco.mju_rotVecQuat(spin, qvel[3:6], qpos[3:7])  # MuJoCo's is in body axes
        q = [qpos[:3], turned[1:], turned[:1], qpos[self.q]]
        qd = [qvel[:3], spin, qvel[self.v]]
        noise = ("position", None, None, "joints"), ("velocity", "rates", "rates")
        return {"q": self._noisy(q, noise[0]), "qd": self._noisy(qd, noise[1])}

    def command(self, values):
        """Apply torques for one frame [N m]."""
        self.data.ctrl[:] = values
        mujoco.mj_step(self.model, self.data, _STEPS)

    def _noisy(self, parts, names):
        scales = [np.full(len(part), _NOISE.get(name, 0.0)) for part, name in zip(parts, names, strict=True)]
        values = np.concatenate(parts)
        return values + np.concatenate(scales) * self.random.normal(size=len(values))


class ElasticAnt(WornAnt):
    """Less worn, with an undeclared spring in each lower leg."""

    wear = 0.3
    stiffness = 500.0


class DeclaredAnt(WornAnt):
    """As declared, to measure the cost of the faults."""

    wear = 0.0


def model_text(wear, stiffness):
    """Return the MJCF of the ant; `wear` 0 is as declared."""
    friction, softness = 0.625 - 0.175 * wear, 0.02 + 0.03 * wear
    surface = f'friction="{friction} .005 .0001" solref="{softness} 1" margin="0" condim="3"'
    payload = f'<body pos=".08 .05 .1"><inertial pos="0 0 0" mass="{25 * wear}" diaginertia=".05 .05 .05"/></body>'
    return f"""
<mujoco>
  <compiler angle="radian"/>
  <option timestep="{1 / 60 / _STEPS}" iterations="50" cone="{"elliptic" if wear else "pyramidal"}"/>
  <default>
    <geom type="capsule" size=".08" density="1000" {surface}/>
    <joint type="hinge" armature="{0.01 + 0.05 * wear}" frictionloss="{6 * wear}"/>
  </default>
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body name="torso" pos="0 0 .75">
      <freejoint name="root"/>
      <geom type="sphere" size=".25" density="5"/>
      {payload if wear else ""}
      {"".join(_leg_text(leg, wear, stiffness) for leg in _LEGS)}
    </body>
  </worldbody>
  <actuator>{"".join(_motor_text(name, wear) for name in JOINTS)}</actuator>
</mujoco>"""


def _leg_text(leg, wear, stiffness):
    """Return a leg: the upper part fixed to the torso, the part that the hip moves, and the lower leg."""
    x, y = (0.2 * side for side in _LEGS[leg])
    axis = "-1 1 0" if leg in (1, 3) else "1 1 0"
    ankle = (0.5236, 1.7453) if leg in (1, 4) else (-1.7453, -0.5236)
    damping = [0.1 + wear * (worn - 0.1) for worn in (2.6, 5.1)]
    lower = f'<geom fromto="0 0 0 {2 * x} {2 * y} 0"/>'
    if stiffness is not None:  # the half towards the foot hangs on a spring; lighter, because the halves overlap
        lower = f"""<geom fromto="0 0 0 {x} {y} 0" density="863"/>
          <body name="foot_{leg}" pos="{x} {y} 0">
            <joint name="spring_{leg}" axis="{axis}" stiffness="{stiffness}" damping="6" armature=".01"
              frictionloss="0"/>
            <geom fromto="0 0 0 {x} {y} 0" density="863"/>
          </body>"""
    return f"""
      <geom fromto="0 0 0 {x} {y} 0"/>
      <body name="upper_{leg}" pos="{x} {y} 0">
        <joint name="hip_{leg}" axis="0 0 1" range="-.6981 .6981" damping="{damping[0]}"/>
        <geom fromto="0 0 0 {x} {y} 0"/>
        <body name="lower_{leg}" pos="{x} {y} 0">
          <joint name="ankle_{leg}" axis="{axis}" range="{ankle[0]} {ankle[1]}" damping="{damping[1]}"/>
          {lower}
        </body>
      </body>"""


def _motor_text(name, wear):
    """Return a motor: weak, and lagging with a time constant of 20 ms."""
    gain = 1 - wear * (0.3 if name == "ankle_3" else 0.08)
    lag = f'dyntype="filterexact" dynprm="{0.02 * wear}"' if wear else ""
    return f'<general joint="{name}" gainprm="{gain}" {lag}/>'
