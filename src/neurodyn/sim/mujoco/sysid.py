# SPDX-License-Identifier: Apache-2.0
"""A fixed-base robot as a plain MuJoCo model: roll-outs along a log, and the result of `mujoco.sysid`.

It fits mass, armature, damping and friction of each joint, gain or stiffness, damping and bias of each motor, and a
delay of all commands, by finite differences. It has no contacts here.
"""

import fnmatch
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neurodyn.core.description.drive import Drive
from neurodyn.core.errors import InputError
from neurodyn.robots import Robot
from neurodyn.robots.assets import asset_path
from neurodyn.sim.engine import import_mujoco
from neurodyn.sim.mujoco.asset import read_spec
from neurodyn.sim.mujoco.build import build_model

LONGEST_DELAY = 0.04  # s
ITERATIONS = 15
PASSIVE = ("mass_scale", "armature", "damping", "friction")

# Bounds: for positive quantities as fractions of the declared value, or, if that may be 0, the largest value.
_SHARES = {"kp": (0.3, 3.0), "kd": (0.1, 4.0), "gain": (0.3, 3.0), "mass_scale": (0.5, 1.5)}
_MOST = {"armature": 0.3, "damping": 6.0, "friction": 8.0, "lag": 0.06, "delay": LONGEST_DELAY}
_BIAS = 0.2


@dataclass(frozen=True)
class LogSegments:
    """Segments of a log: some frames before a start, and the frames after it.

    Attributes:
        q: Positions, shape [W, past + frames + 1, n].
        qd: Velocities, shape [W, past + frames + 1, n].
        control: Commands, shape [W, past + frames, n].
        past: Frames before the start.
    """

    q: np.ndarray
    qd: np.ndarray
    control: np.ndarray
    past: int


@dataclass(frozen=True)
class MujocoPeer:
    """A robot in MuJoCo.

    Attributes:
        spec: The model (`mujoco.MjSpec`); motors have the names of their joints.
        joints: The joints, in the order of positions.
        motors: The joints with a motor, in the order of commands.
        dt: Length of a frame [s]: commands are constant over it.
        delay: Time from a command to its effect [s].
    """

    spec: Any
    joints: tuple[str, ...]
    motors: tuple[str, ...]
    dt: float
    delay: float = 0.0

    def rollout(self, starts: LogSegments) -> tuple[np.ndarray, np.ndarray]:
        """Return positions and velocities from the starts on, shape [W, frames + 1, n] each."""
        from mujoco.rollout import rollout

        model = self.spec.compile()
        parts, worlds = round(self.dt / model.opt.timestep), len(starts.q)
        commands = late(np.repeat(starts.control, parts, axis=1), self.delay / model.opt.timestep)
        before, after = np.split(commands, [starts.past * parts], axis=1)
        size = import_mujoco().mj_stateSize(model, import_mujoco().mjtState.mjSTATE_FULLPHYSICS.value)
        state = np.zeros((worlds, size))
        first = (starts.q[:, starts.past], starts.qd[:, starts.past], filtered(model, before))
        for world in range(worlds):
            state[world] = initial_state(model, *(part[world] for part in first))
        path: Any
        path, _ = rollout(model, import_mujoco().MjData(model), state, after)
        ends = path[:, parts - 1 :: parts, 1 : 1 + model.nq + model.nv]
        whole = np.concatenate([state[:, None, 1 : 1 + model.nq + model.nv], ends], axis=1)
        return whole[..., : model.nq], whole[..., model.nq :]

    def parameters(self, patterns: Sequence[str]) -> list[str]:
        """Return the quantities of this model that match the patterns."""
        model, mujoco = self.spec.compile(), import_mujoco()
        names = [f"{joint}.{what}" for joint in self.joints for what in PASSIVE]
        for joint in self.motors:
            k = model.actuator(joint).id
            controlled = model.actuator_biastype[k] != mujoco.mjtBias.mjBIAS_NONE
            own = ("kp", "kd", "bias") if controlled else ("gain",)
            lags = model.actuator_dyntype[k] == mujoco.mjtDyn.mjDYN_FILTEREXACT
            names += [f"actuator.{joint}.{what}" for what in (*own, *(("lag",) if lags else ()))]
        names.append("motors.delay")
        return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]

    def identified(self, log: LogSegments, patterns: Sequence[str]) -> tuple["MujocoPeer", dict[str, float]]:
        """Return the model that `mujoco.sysid` fits to segments of a log, its values, and the CPU seconds (cpu_s)."""
        sysid = import_sysid()
        spec = self.spec.copy()
        model = spec.compile()
        names, parts = self.parameters(patterns), round(self.dt / model.opt.timestep)
        given = sysid.ParameterDict({name: _parameter(model, self, name) for name in names})
        given.move_off_bounds()
        states, controls, readings = [], [], []
        before, after = np.split(np.repeat(log.control, parts, axis=1), [log.past * parts], axis=1)
        acts = filtered(model, before if log.past else after[:, :1])
        observed = [(joint, sysid.SignalType.MjStateQPos) for joint in self.joints]
        for commands, q, qd, act in zip(after, log.q[:, log.past :], log.qd[:, log.past :], acts, strict=True):
            times = np.arange(len(commands) + 1) * model.opt.timestep
            states.append(initial_state(model, q[0], qd[0], act))
            held = np.concatenate([commands, commands[-1:]])
            controls.append(sysid.TimeSeries.from_control_names(times, held, model))
            readings.append(sysid.TimeSeries.from_names(np.arange(len(q)) * self.dt, q, model, observed))
        sequences = sysid.ModelSequences(
            "robot", spec, [f"stretch {k}" for k in range(len(states))], states, controls, readings,
            allow_missing_sensors=True,
        )  # fmt: skip
        residual = sysid.build_residual_fn(
            models_sequences=[sequences], n_threads=1, custom_rollout=_delayed_rollout(model.opt.timestep)
        )
        start = time.process_time()
        found, _ = sysid.optimize(given, residual, verbose=False, max_iters=ITERATIONS)
        seconds = time.process_time() - start
        values = {name: float(found[name].value[0]) for name in names}
        fitted = sysid.apply_param_modifiers_spec(found, self.spec.copy())
        return replace(self, spec=fitted, delay=values.get("motors.delay", 0.0)), {**values, "cpu_s": seconds}


def initial_state(model: Any, q: np.ndarray, qd: np.ndarray, act: np.ndarray) -> np.ndarray:
    """Return a state for `mujoco.rollout`."""
    mujoco = import_mujoco()
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = q, qd
    if model.na:
        data.act[:] = act
    state = np.empty(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS.value))
    mujoco.mj_getState(model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
    return state


def filtered(model: Any, commands: np.ndarray) -> np.ndarray:
    """Return the activations of lagging motors after commands, constant before the first, shape [W, na]."""
    if not model.na:
        return np.zeros((len(commands), 0))
    share = 1.0 - np.exp(-model.opt.timestep / np.maximum(model.actuator_dynprm[:, 0], 1e-9))
    act = commands[:, 0].copy()
    for command in commands.swapaxes(0, 1):
        act += share * (command - act)
    return act


def late(commands: np.ndarray, steps: float) -> np.ndarray:
    """Return commands delayed by some steps, linear between steps; time is the last axis but one."""
    count = commands.shape[-2]
    place = np.clip(np.arange(count) - steps, 0.0, None)
    first = np.minimum(place.astype(int), count - 1)
    share = (place - first)[:, None]
    return commands[..., first, :] * (1.0 - share) + commands[..., np.minimum(first + 1, count - 1), :] * share


def with_inertias(spec: Any, model: Any = None) -> Any:
    """Return a model whose bodies have the inertias of a compiled `model`, by default its own, so that they scale."""
    model = spec.compile() if model is None else model
    for body in spec.bodies[1:]:
        index = model.body(body.name).id
        body.explicitinertial = True
        body.mass, body.ipos = model.body_mass[index], model.body_ipos[index]
        body.fullinertia = np.full(6, np.nan)
        body.inertia, body.iquat = model.body_inertia[index], model.body_iquat[index]
    return spec


def _delayed_rollout(step: float) -> Callable[..., Any]:
    sysid = import_sysid()

    def roll_out(*, control_signal: Sequence[Any], param_dicts: Sequence[Any], **others: Any) -> Any:
        each, moved = len(control_signal) // len(param_dicts), []
        for k, signal in enumerate(control_signal):
            own = param_dicts[k // each]
            delay = float(own["motors.delay"].value[0]) / step if "motors.delay" in own else 0.0
            moved.append(sysid.TimeSeries(signal.times, late(signal.data, delay), signal.signal_mapping))
        return sysid.sysid_rollout(control_signal=moved, **others)

    return roll_out


def _parameter(model: Any, peer: MujocoPeer, name: str) -> Any:
    sysid = import_sysid()
    what, joint = name.rpartition(".")[2], name.removeprefix("actuator.").rpartition(".")[0]
    index = model.joint(joint).id if joint in peer.joints else 0
    motor = model.actuator(joint).id if joint in peer.motors else 0
    dof, body = model.jnt_dofadr[index], model.jnt_bodyid[index]
    nominal = {
        "mass_scale": 1.0, "armature": model.dof_armature[dof], "damping": model.dof_damping[dof],
        "friction": model.dof_frictionloss[dof], "kp": -model.actuator_biasprm[motor, 1],
        "kd": -model.actuator_biasprm[motor, 2], "gain": model.actuator_gainprm[motor, 0],
        "lag": model.actuator_dynprm[motor, 0], "bias": 0.0, "delay": 0.0,
    }[what]  # fmt: skip
    if what in _SHARES:
        low, high = (share * nominal for share in _SHARES[what])
    else:
        low, high = (-_BIAS, _BIAS) if what == "bias" else (0.0, _MOST[what])
    inertia = (float(model.body_mass[body]), model.body_inertia[body].copy(), model.body(body).name)
    return sysid.Parameter(name, nominal, low, high, modifier=modifier(what, joint, inertia))


def modifier(what: str, joint: str, inertia: tuple[float, np.ndarray, str]) -> Callable[[Any, Any], None]:
    """Return a function that sets a joint's quantity; `inertia` is mass, inertia and name of the joint's body."""
    mass, diagonal, body = inertia

    def apply(spec: Any, parameter: Any) -> None:
        value = float(parameter.value[0])
        if what == "mass_scale":
            spec.body(body).mass, spec.body(body).inertia = value * mass, value * diagonal
        elif what == "armature":
            spec.joint(joint).armature = value
        elif what == "damping":
            spec.joint(joint).damping = [value, 0.0, 0.0]
        elif what == "friction":
            spec.joint(joint).frictionloss = value
        elif what == "bias":
            spec.joint(joint).ref = value  # joint reading at the model's zero position
        elif what == "kp":
            spec.actuator(joint).gainprm[0], spec.actuator(joint).biasprm[1] = value, -value
        elif what == "kd":
            spec.actuator(joint).biasprm[2] = -value
        elif what == "gain":
            spec.actuator(joint).gainprm[0] = value
        elif what == "lag":
            spec.actuator(joint).dynprm[0] = max(value, 1e-6)

    return apply


def import_sysid() -> Any:
    """Import `mujoco.sysid`; refuse if MuJoCo lacks it, or what it needs.

    Raises:
        InputError: It is not installed.
    """
    try:
        from mujoco import sysid
    except ImportError:
        sysid = None
    if not hasattr(sysid, "optimize"):
        raise InputError("mujoco.sysid is not installed; valid: pip install 'mujoco[sysid]' (MuJoCo 3.4 or later)")
    return sysid


def mujoco_peer(robot: Robot, *, targets: bool) -> MujocoPeer:
    """Return a declared robot in MuJoCo without contacts, with a motor or a PD controller at each driven joint.

    Raises:
        InputError: The robot has no URDF or MJCF, a floating base, joints of several axes, or drives of other laws.
    """
    mujoco = import_mujoco()
    if robot.spec.floating or any(not joint.scalar for joint in robot.joints):
        raise InputError(f"mujoco.sysid is compared with robots on a fixed base, and {robot.name} has a free joint")
    built = build_model(robot).model
    spec = read_spec(asset_path(robot), locked=robot.locked, density=robot.density, densities=robot.densities)
    for actuator in list(spec.actuators):
        spec.delete(actuator)
    with_inertias(spec, built)
    for joint in spec.joints:
        dof = int(built.joint(joint.name).dofadr[0])
        joint.armature, joint.frictionloss = built.dof_armature[dof], built.dof_frictionloss[dof]
        joint.damping = [built.dof_damping[dof], 0.0, 0.0]
    for name, effort in robot.actuated.items():
        motor = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.gainprm[0] = 1.0
        if targets:
            if np.isfinite(effort) and effort > 0.0:
                motor.forcelimited, motor.forcerange = True, [-effort, effort]
            gains = robot.drives.get(name, Drive()).pd_gains()
            if gains is None:
                raise InputError(f"mujoco.sysid is compared with motors and PD controllers, and {name} is neither")
            motor.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            motor.gainprm[0], motor.biasprm[:3] = gains[0], (0.0, -gains[0], -gains[1])
    spec.option.timestep, spec.option.gravity = robot.dt / robot.simulator.substeps, built.opt.gravity
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    return MujocoPeer(spec, tuple(robot.spec.q_names), tuple(robot.actuated), robot.dt)
