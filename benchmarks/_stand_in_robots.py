# SPDX-License-Identifier: Apache-2.0
"""Declarations of stand-in robots as MJCF, as a manufacturer would give them, and robots that differ from them.

A stand-in is a plain MuJoCo model with faults that its declaration does not have: other frictions, dampings, rotor
inertias and servo gains, a payload, a delay of its commands, offsets of its encoders, and in half of them one `FAULTS`
that the library's models do not have.
"""

from dataclasses import dataclass, field

import mujoco
import numpy as np
from numpy.random import Generator

LEGS = ("FL", "FR", "RL", "RR")
ARM = ("pan", "lift", "elbow", "roll", "bend", "flange")
ARM_FAULTS = ("backlash", "load friction", "elastic", "gain per run", "sensor lag", "cogging")
LEG_FAULTS = ("load friction", "gain per run", "sensor lag", "cogging")
STEP = 0.0005
"""Simulation step [s]; delays are multiples of it."""
GROUND_STEP = 0.001


@dataclass
class Plant:
    """A robot that differs from its declaration.

    Attributes:
        model: Its simulation.
        joints: Names of the driven joints, in the order of commands.
        targets: Whether commands are position targets; else torques.
        delay: Of commands [s].
        bias: Encoder readings minus joint positions [rad], shape [joints].
        noise: Of encoders [rad].
        step: Of encoders [rad].
        fault: What no model of the library has; None for nothing.
        faulty: Index of the joint that has it.
        size: Of the fault, in its own unit.
        truth: Values of quantities that the library names.
        payload: Joint of the link that carries it, mass [kg] and position in the link's frame [m]; None for none.
    """

    model: mujoco.MjModel
    joints: tuple[str, ...]
    targets: bool
    delay: float
    bias: np.ndarray
    noise: float
    step: float
    fault: str | None = None
    faulty: int = 0
    size: float = 0.0
    truth: dict[str, float] = field(default_factory=dict)
    payload: tuple[str, float, tuple[float, float, float]] | None = None

    @property
    def limits(self) -> np.ndarray:
        """Torque limits of the motors [N m], shape [joints]."""
        return np.array([self.model.actuator(name).forcerange[1] for name in self.joints])


def _three(value: float) -> float:
    """Round as a data sheet does, to three digits."""
    return float(f"{value:.3g}")


def arm_xml(rng: Generator) -> str:
    """Return the declaration of a six-axis arm with position servos, industrial or for hobbyists."""
    industrial = rng.random() < 0.5
    reach = rng.uniform(0.7, 1.3) if industrial else rng.uniform(0.25, 0.5)
    mass = rng.uniform(12.0, 35.0) if industrial else rng.uniform(0.6, 2.0)
    lengths = reach * np.array([0.18, 0.42, 0.38, 0.1, 0.1, 0.06]) * rng.uniform(0.85, 1.15, 6)
    masses = mass * np.array([0.25, 0.32, 0.2, 0.1, 0.08, 0.05]) * rng.uniform(0.8, 1.2, 6)
    axes = ("0 0 1", "0 1 0", "0 1 0", "0 0 1" if rng.random() < 0.5 else "0 1 0", "1 0 0", "0 0 1")
    body, end = "", ""
    for k, name in enumerate(ARM):
        place = "0 0 .1" if k == 0 else f"0 0 {lengths[k - 1]:.4g}"
        radius = max(0.12 * lengths[k], 0.25 * lengths[1] * (0.5 if k > 2 else 0.3))
        body += f"""
      <body name="{name}_link" pos="{place}">
        <joint name="{name}" axis="{axes[k]}" range="{"-3 3" if k in (0, 3, 5) else "-2.4 2.4"}"/>
        <geom type="capsule" fromto="0 0 0 {0.2 * lengths[k]:.3g} 0 {lengths[k]:.4g}" size="{radius:.3g}"
              mass="{_three(masses[k])}"/>"""
        end += "</body>"
    plain = _compiled(f"<worldbody>{body}{end}</worldbody>", ARM, "")
    return _compiled_text(plain, f"<worldbody>{body}{end}</worldbody>", ARM, rng, targets=True)


def quadruped_xml(rng: Generator, *, hung: bool, targets: bool) -> str:
    """Return the declaration of a quadruped with twelve motors, held in the air or on the floor."""
    length, width = rng.uniform(0.16, 0.24), rng.uniform(0.05, 0.09)
    thigh = rng.uniform(0.18, 0.25)
    trunk, hip, upper, lower = rng.uniform(5, 9), rng.uniform(0.5, 0.8), rng.uniform(0.8, 1.2), rng.uniform(0.15, 0.25)
    contact = 'contype="0" conaffinity="0"'
    legs = ""
    for leg in LEGS:
        x, y = (length if leg[0] == "F" else -length), (width if leg[1] == "L" else -width)
        side = 0.08 if leg[1] == "L" else -0.08
        legs += f"""
      <body name="{leg}_hip_link" pos="{x:.3g} {y:.3g} 0">
        <joint name="{leg}_hip" axis="1 0 0" range="-.9 .9"/>
        <geom type="sphere" size=".045" mass="{hip:.3g}" {contact}/>
        <body name="{leg}_thigh_link" pos="0 {side} 0">
          <joint name="{leg}_thigh" axis="0 1 0" range="-1.5 3"/>
          <geom type="capsule" fromto="0 0 0 0 0 {-thigh:.3g}" size=".022" mass="{upper:.3g}" {contact}/>
          <body name="{leg}_calf_link" pos="0 0 {-thigh:.3g}">
            <joint name="{leg}_calf" axis="0 1 0" range="-2.7 -.6"/>
            <geom type="capsule" fromto="0 0 0 0 0 {-thigh:.3g}" size=".012" mass="{lower:.3g}" {contact}/>
            <geom name="{leg}_foot" type="sphere" pos="0 0 {-thigh:.3g}" size=".022" mass=".06"
                  {contact if hung else 'friction=".8 .005 .0001"'}/>
          </body>
        </body>
      </body>"""
    height = thigh * (np.cos(0.8) + np.cos(0.8)) + 0.022
    floor = "" if hung else '<geom name="floor" type="plane" size="20 20 .1" friction=".8 .005 .0001"/>'
    world = f"""<worldbody>{floor}
    <body name="trunk" pos="0 0 {1.0 if hung else height:.4g}">{"" if hung else '<freejoint name="base"/>'}
      <geom type="box" size="{length:.3g} {width + 0.03:.3g} .05" mass="{trunk:.3g}" {contact}/>{legs}
    </body></worldbody>"""
    joints = leg_joints()
    pose = " ".join(["0 .8 -1.6"] * 4)
    key = f'<keyframe><key name="home" qpos="{"" if hung else f"0 0 {height:.4g} 1 0 0 0 "}{pose}"'
    plain = _compiled(world, joints, "")
    return _compiled_text(plain, world, joints, rng, targets=targets, key=key, pose=(0.0, 0.8, -1.6) * 4)


def leg_joints() -> tuple[str, ...]:
    """Return the joints of a quadruped."""
    return tuple(f"{leg}_{joint}" for leg in LEGS for joint in ("hip", "thigh", "calf"))


def _compiled(world: str, joints: tuple[str, ...], rest: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(f'<mujoco><compiler angle="radian"/>{world}{rest}</mujoco>')


def _compiled_text(
    plain: mujoco.MjModel, world: str, joints: tuple[str, ...], rng: Generator, *, targets: bool, key: str = "",
    pose: tuple[float, ...] = (),
) -> str:  # fmt: skip
    """Return the declaration: motors as strong as the links are heavy, and servos that are stiff enough for them."""
    data = mujoco.MjData(plain)
    rows = [plain.joint(name).dofadr[0] for name in joints]
    if pose:
        data.qpos[[plain.joint(name).qposadr[0] for name in joints]] = pose
    mujoco.mj_forward(plain, data)
    full, heavy, inertia = np.zeros((plain.nv, plain.nv)), np.zeros(len(joints)), np.zeros(len(joints))
    for _ in range(30):
        mujoco.mj_forward(plain, data)
        mujoco.mj_fullM(plain, data, full)
        heavy, inertia = np.maximum(heavy, np.abs(data.qfrc_bias[rows])), np.maximum(inertia, full.diagonal()[rows])
        data.qpos[[plain.joint(name).qposadr[0] for name in joints]] = rng.uniform(-1.2, 1.2, len(joints))
    rotor = 0.15 * np.maximum(inertia, (0.2 if len(joints) == 6 else 0.03) * inertia.max())
    if len(joints) == 12:  # motors that carry the robot
        strength = np.full(12, 0.25 * 9.81 * plain.body_mass.sum())
        stiff = strength / rng.uniform(0.12, 0.25)
        damped = 1.2 * np.sqrt(stiff * (inertia + rotor))
    else:
        strength = 3.0 * heavy + 12.0 * (inertia + rotor) + 0.1 * heavy.max()
        fast, ratio = rng.uniform(18.0, 40.0), rng.uniform(0.6, 2.0)
        stiff, damped = fast**2 * (inertia + rotor), 2.0 * ratio * fast * (inertia + rotor)
    motors = ""
    for name, most, kp, kd in zip(joints, strength, stiff, damped, strict=True):
        head = f'name="{name}" joint="{name}" forcerange="{-_three(most)} {_three(most)}"'
        low, high = plain.joint(name).range
        motors += (
            f'\n    <position {head} kp="{_three(kp)}" kv="{_three(kd)}" ctrlrange="{low:.3g} {high:.3g}"/>'
            if targets
            else f'\n    <motor {head} ctrlrange="{-_three(most)} {_three(most)}"/>'
        )
    for name, one, most in zip(joints, rotor, strength, strict=True):
        damping = f'damping="{_three(0.004 * most)}" armature="{_three(one)}"'
        world = world.replace(f'<joint name="{name}"', f'<joint name="{name}" {damping}')
    key = f"{key}/></keyframe>" if key else ""
    return (
        f'<mujoco model="robot">\n  <compiler angle="radian"/>\n  <option integrator="implicitfast"/>\n  {world}\n'
        f"  <actuator>{motors}\n  </actuator>\n  {key}\n</mujoco>\n"
    )


def plant_of(
    xml: str, joints: tuple[str, ...], rng: Generator, *, faults: tuple[str, ...], faulty: bool, targets: bool
) -> Plant:
    """Return a robot that differs from its declaration, with one of some `faults` if it is `faulty`."""
    spec = mujoco.MjSpec.from_string(xml)
    floating = any(joint.type == mujoco.mjtJoint.mjJNT_FREE for joint in spec.joints)
    spec.option.timestep = GROUND_STEP if floating else STEP
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    fault = str(rng.choice(faults)) if faulty else None
    plant = Plant(
        mujoco.MjModel.from_xml_string(xml), joints, targets, 0.0, rng.normal(0.0, 0.01, len(joints)),
        float(rng.choice((5e-5, 2e-4, 5e-4))), float(2 * np.pi / rng.choice((2**12, 2**14, 2**16))), fault,
        int(rng.integers(1, len(joints) - 1)),
    )  # fmt: skip
    if len(joints) == 12:
        plant.noise, plant.step = 2e-4, 2e-3
    plant.delay = spec.option.timestep * round(rng.uniform(0.0, 0.02 if targets else 0.004) / spec.option.timestep)
    truth = plant.truth
    truth["motors.delay"] = acting_delay(plant.delay, floating=floating)
    limits = dict(zip(joints, plant.limits, strict=True))
    for joint in spec.joints:
        if joint.name not in limits:
            continue
        most, name = limits[joint.name], joint.name
        joint.frictionloss = most * rng.uniform(0.005, 0.03)
        joint.damping = [most * 0.004 * np.exp(rng.normal(0.3, 0.6)), 0.0, 0.0]
        joint.armature *= float(np.exp(rng.normal(0.2, 0.4)))
        truth |= {f"{name}.friction": joint.frictionloss, f"{name}.damping": float(joint.damping[0])}
        truth[f"{name}.armature"] = float(joint.armature)
    for motor in spec.actuators:
        name = motor.name
        if targets:
            kp, kd = motor.gainprm[0] * np.exp(rng.normal(0, 0.15)), -motor.biasprm[2] * np.exp(rng.normal(0, 0.2))
            motor.gainprm[0], motor.biasprm[1], motor.biasprm[2] = kp, -kp, -kd
            truth |= {f"actuator.{name}.kp": float(kp), f"actuator.{name}.kd": float(kd)}
            continue
        motor.gainprm[0] = float(np.clip(rng.normal(0.95, 0.06), 0.75, 1.1))
        truth[f"actuator.{name}.gain"] = float(motor.gainprm[0])
    truth |= {f"actuator.{name}.bias": float(one) for name, one in zip(joints, plant.bias, strict=True)}
    truth |= {f"{name}.mass_scale": 1.0 for name in joints}
    _load(spec, plant, rng)
    if floating:
        grip = float(rng.uniform(0.45, 0.9))
        for geom in spec.geoms:
            if geom.name == "floor" or geom.name.endswith("_foot"):
                geom.friction[0] = grip
        truth["contact.friction"] = grip
    _break(spec, plant, rng)
    plant.model = spec.compile()
    return plant


def acting_delay(delay: float, *, floating: bool) -> float:
    """Return the delay [s] with which commands act that a simulation takes up after a `delay`.

    A force acts on the position at the end of its own simulation step: half a step earlier than one that is felt at
    once, as semi-implicit Euler moves by the new velocity.
    """
    return max(0.0, delay - 0.5 * (GROUND_STEP if floating else STEP))


def _load(spec: mujoco.MjSpec, plant: Plant, rng: Generator) -> None:
    """Put a payload on one of an arm's last three links, or on a trunk: up to 2 kg, or a tenth of a small arm."""
    declared = plant.model
    total = float(declared.body_mass.sum())
    if len(plant.joints) == 6:
        carrier = f"{plant.joints[int(rng.integers(3, 6))]}_link"
        mass = rng.uniform(0.0, 2.0) if total > 5.0 else rng.uniform(0.0, 0.1 * total)
        reach = 0.5 * float(declared.body("lift_link").pos[2] + declared.body("elbow_link").pos[2]) * 0.25
    elif declared.body("trunk").jntnum[0]:
        carrier, mass, reach = "trunk", rng.uniform(0.0, 0.25) * total, 0.12
    else:
        return
    if rng.random() < 0.2:
        mass = 0.0
    place = rng.uniform(-1, 1, 3) * reach + (0.0, 0.0, reach if len(plant.joints) == 6 else 0.05)
    if mass > 0.0:
        body = spec.body(carrier).add_body(name="payload", pos=place)
        body.add_geom(
            type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.04 if total > 5.0 else 0.015, 0, 0], mass=mass, contype=0,
            conaffinity=0,
        )  # fmt: skip
    joint = "base" if carrier == "trunk" else carrier.removesuffix("_link")
    if mass > 0.0:
        plant.truth.pop(f"{joint}.mass_scale", None)
    plant.payload = (joint, float(mass), tuple(float(one) for one in place))
    plant.truth["payload.mass"] = float(mass)
    if mass > 0.0:
        plant.truth |= {f"payload.{axis}": float(one) for axis, one in zip("xyz", place, strict=True)}


def _break(spec: mujoco.MjSpec, plant: Plant, rng: Generator) -> None:
    """Add the fault; its joint's affected quantities have no true value."""
    name = plant.joints[plant.faulty]
    joint, most = spec.joint(name), float(plant.limits[plant.faulty])
    lost: tuple[str, ...] = ()
    if plant.fault in ("backlash", "elastic"):
        # The declared joint is the motor's side, with its encoder; another one behind it is loose or elastic.
        link = next(body for body in spec.bodies if name in [one.name for one in body.joints])
        second = link.add_joint(name=f"{name}_play", axis=joint.axis, armature=1e-3 * joint.armature)
        if plant.fault == "backlash":
            plant.size = float(rng.uniform(0.004, 0.01))
            second.range, second.limited = [-plant.size, plant.size], True
            second.damping = [0.1 * float(joint.damping[0]), 0.0, 0.0]
        else:
            plant.size = most / float(rng.uniform(0.01, 0.03))
            second.stiffness = [plant.size, 0.0, 0.0]
            second.damping = [0.01 * plant.size * 0.02, 0.0, 0.0]
        lost = (f"{name}.friction", f"{name}.damping", f"{name}.armature")
    elif plant.fault == "load friction":
        plant.size, lost = float(rng.uniform(0.08, 0.2)), (f"{name}.friction",)
    elif plant.fault == "gain per run":
        plant.size = float(rng.uniform(0.06, 0.15))
        lost = tuple(f"actuator.{one}.{what}" for one in plant.joints for what in ("kp", "kd", "gain"))
    elif plant.fault == "sensor lag":
        plant.size, lost = float(rng.uniform(0.004, 0.01)), ("motors.delay",)
    elif plant.fault == "cogging":
        plant.size = most * float(rng.uniform(0.02, 0.05))
    for quantity in lost:
        plant.truth.pop(quantity, None)
