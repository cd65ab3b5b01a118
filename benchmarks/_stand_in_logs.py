# SPDX-License-Identifier: Apache-2.0
"""Motions of stand-in robots, and their logs: what encoders, a motion capture and the controller say."""

from collections.abc import Callable

import mujoco
import numpy as np
from numpy.random import Generator

from _stand_in_robots import Plant

Motion = Callable[[float], np.ndarray]
"""Commanded positions [joints] at a time [s]."""
_SETTLE = 1.0
_FALL = 0.4
"""Cut from a run that ends in a fall [s]."""


def reaches(plant: Plant, rng: Generator, other: bool) -> Motion:
    """Return smooth moves between poses with rests, or (of `other` kind) sums of sines."""
    low, high = (np.array([plant.model.joint(name).range[k] for name in plant.joints]) for k in (0, 1))
    middle, reach = 0.5 * (low + high), np.minimum(0.35 * (high - low), 1.1)
    if other:
        rates, phases = rng.uniform(0.1, 0.6, (3, 6)), rng.uniform(0, 2 * np.pi, (3, 6))
        return lambda t: middle + reach * 0.33 * np.sin(2 * np.pi * rates * t + phases).sum(0)
    poses = middle + reach * rng.uniform(-1, 1, (80, 6))
    spans = rng.uniform(0.5, 1.2, 80) * (0.3 + np.abs(np.diff(poses, axis=0, append=poses[:1])).max(1))
    rests = rng.choice((0.0, 0.3, 0.8), 80)
    begins = np.cumsum(np.concatenate([[0.5], (spans + rests)[:-1]]))

    def motion(t: float) -> np.ndarray:
        k = int(np.searchsorted(begins, t)) - 1
        if k < 0:
            return poses[0]
        s = min((t - begins[k]) / spans[k], 1.0)
        return poses[k] + (poses[(k + 1) % 80] - poses[k]) * s**3 * (10 - 15 * s + 6 * s * s)

    return motion


STAND = np.array([0.0, 0.8, -1.6] * 4)


def swings(rng: Generator, other: bool) -> Motion:
    """Return sums of sines about the nominal pose, other rates for `other`, with a second of rest."""
    rates = rng.uniform(*((0.3, 1.2) if other else (0.1, 2.0)), (3, 12))
    phases, sizes = rng.uniform(0, 2 * np.pi, (3, 12)), rng.uniform(0.05, 0.2, (3, 12))
    sizes *= np.minimum(1.0, 0.8 / rates)
    return lambda t: STAND + min(max(t - 0.5, 0.0), 1.0) * (sizes * np.sin(2 * np.pi * rates * t + phases)).sum(0)


def steps(rng: Generator, other: bool) -> Motion:
    """Return squats, sways and trotting on the spot, in other proportions for `other`."""
    squat, sway, lean = rng.uniform(0.05, 0.18), rng.uniform(0.02, 0.08), rng.uniform(0.02, 0.1)
    lift, pace = rng.choice((0.0, 0.06, 0.12)), rng.uniform(1.8, 3.0)
    rates, phases = rng.uniform(*((0.5, 0.8) if other else (0.2, 1.2)), 3), rng.uniform(0, 2 * np.pi, 3)
    diagonal = np.array([0.0, np.pi, np.pi, 0.0])

    def motion(t: float) -> np.ndarray:
        ramp = min(max(t - 0.5, 0.0), 1.0)
        a, b, c = np.sin(2 * np.pi * rates * t + phases) * ramp
        up = np.clip(np.sin(2 * np.pi * pace * t + diagonal), 0.0, 1.0) * lift * ramp
        legs = STAND.reshape(4, 3).copy()
        legs[:, 0] += sway * b
        legs[:, 1] += squat * a + lean * c + up
        legs[:, 2] += -2.0 * squat * a - 2.0 * up
        return legs.ravel()

    return motion


def run(
    plant: Plant, motion: Motion, seconds: float, rate: float, rng: Generator, *, speeds: bool,
    start: np.ndarray | None = None, watch: Callable[[mujoco.MjData], None] | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the columns of one run: it begins at rest in the motion's first pose.

    With a `start`, readings at which the robot begins, the motion is one of commands: also of torques, without a
    controller. `watch` sees each step.
    """
    model = plant.model
    data = mujoco.MjData(model)
    at, rows = ([getattr(model.joint(name), which)[0] for name in plant.joints] for which in ("qposadr", "dofadr"))
    motors = [model.actuator(name).id for name in plant.joints]
    floating = model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
    step, every = model.opt.timestep, round(1.0 / (rate * model.opt.timestep))
    late, n = round(plant.delay / step), len(plant.joints)
    frames, before = round(seconds * rate), round(_SETTLE / step)
    model.opt.disableflags = 0 if floating else int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    gains = _gains(plant, rng)
    data.qpos[at] = (motion(0.0) if start is None else start) - plant.bias
    if floating:
        data.qpos[:7] = (0, 0, model.body("trunk").pos[2] + 0.005, 1, 0, 0, 0)
    commands, logged = [], {"q": [], "qd": [], "u": [], "base": []}
    reading = data.qpos[at] + plant.bias
    seen, speed = reading.copy(), data.qvel[rows].copy()
    for tick in range(-before, frames * every + 1):
        if tick % every == 0:
            t = max(tick, 0) * step
            noisy = seen + rng.normal(0.0, plant.noise, n)
            noisy = plant.step * np.round(noisy / plant.step)
            noisy_speed = speed + rng.normal(0.0, 20.0 * plant.noise, n)
            direct = plant.targets or start is not None
            command = motion(t) if direct else _torques(plant, motion, t, noisy, noisy_speed)
            commands.append(command)
            if tick >= 0:
                logged["q"].append(noisy), logged["qd"].append(noisy_speed), logged["u"].append(command)
                logged["base"].append(data.qpos[:7].copy())
        acting = commands[max((tick + before - late) // every, 0)]
        if floating and tick > 0 and data.xmat[1, 8] < 0.8:  # falls
            logged = {name: one[: max(1, len(one) - round(_FALL * rate))] for name, one in logged.items()}
            break
        data.ctrl[motors] = acting - plant.bias if plant.targets else acting
        _act(plant, data, rows[plant.faulty], at[plant.faulty], motors[plant.faulty])
        mujoco.mj_step(model, data)
        if watch is not None and tick >= 0:
            watch(data)
        reading, speed = data.qpos[at] + plant.bias, data.qvel[rows].copy()
        seen = seen + (reading - seen) * (step / plant.size if plant.fault == "sensor lag" else 1.0)
    model.actuator_gainprm[:], model.actuator_biasprm[:] = gains
    return _columns(plant, {name: np.array(one) for name, one in logged.items()}, rate, rng, floating, speeds)


def _columns(
    plant: Plant, logged: dict[str, np.ndarray], rate: float, rng: Generator, floating: bool, speeds: bool
) -> dict[str, np.ndarray]:
    columns = {"time": np.arange(len(logged["q"])) / rate}
    for k, name in enumerate(plant.joints):
        columns[f"{name}_pos"] = logged["q"][:, k]
        if speeds:
            columns[f"{name}_vel"] = logged["qd"][:, k]
        columns[f"{name}_cmd"] = logged["u"][:, k]
    if floating:
        place = logged["base"][:, :3] + rng.normal(0.0, 1e-3, (len(logged["base"]), 3))
        columns |= {f"mocap.pose.position.{axis}": place[:, k] for k, axis in enumerate("xyz")}
        turned = np.empty((len(place), 4))
        for row, (pose, noise) in enumerate(
            zip(logged["base"][:, 3:], rng.normal(0.0, 1.5e-3, place.shape), strict=True)
        ):
            mujoco.mju_mulQuat(turned[row], pose, np.array([1.0, *noise]))
        turned /= np.linalg.norm(turned, axis=1, keepdims=True)
        columns |= {f"mocap.pose.orientation.{axis}": turned[:, k] for k, axis in enumerate("wxyz")}
    return columns


def _gains(plant: Plant, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the gain of a run if it varies; return the robot's own gains."""
    model = plant.model
    own = model.actuator_gainprm.copy(), model.actuator_biasprm.copy()
    if plant.fault == "gain per run":
        factor = np.exp(rng.normal(0.0, plant.size))
        model.actuator_gainprm[:] *= factor
        model.actuator_biasprm[:] *= factor
    return own


def _torques(plant: Plant, motion: Motion, t: float, q: np.ndarray, qd: np.ndarray) -> np.ndarray:
    """Return the torques of a controller beside the robot, within limits."""
    most = plant.limits
    return np.clip(20.0 * (motion(t) - q) - 0.4 * qd, -most, most)


def _act(plant: Plant, data: mujoco.MjData, row: int, at: int, motor: int) -> None:
    """Let the fault act on its joint in one simulation step."""
    if plant.fault == "load friction":
        base = 0.01 * plant.limits[plant.faulty]
        plant.model.dof_frictionloss[row] = base + plant.size * abs(float(data.actuator_force[motor]))
    elif plant.fault == "cogging":
        data.qfrc_applied[row] = plant.size * np.sin(14.0 * data.qpos[at])
