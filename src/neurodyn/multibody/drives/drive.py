# SPDX-License-Identifier: Apache-2.0
"""Joint torques: drives, muscles and passive torques in a traced step; a PD law on tensors."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.description.actuation import DriveState
from neurodyn.core.description.drive import ACTUATOR, DRIVE_KINDS, Drive, DriveLaw, Number, pd_law
from neurodyn.core.description.mechanism import Link
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.geometry.tensors import Positions, Torques, Velocities
from neurodyn.multibody.articulated import Quantity
from neurodyn.multibody.drives.friction import dry_friction, smooth_friction
from neurodyn.multibody.passive import is_curved, polynomial
from neurodyn.multibody.scope import StepMemory, delay
from neurodyn.multibody.trace import absolute, arctan2, cos, exp, maximum, minimum, select_less, sin


def passive_torque(link: Link, quantity: Quantity, q: Any, qd: Any, *, constrained: bool = False) -> Any:
    r"""Return the torque of a joint's damping, spring, friction and limits.

    $$\tau = -d\,\dot q - k\,(q - q_{rest}) - f \tanh(\dot q/v_0) \mp \max(k_e s \pm k_d \dot q,\ 0)$$

    The last term acts beyond a limit by s > 0; it pushes and never pulls. Friction and limits are left out if the
    contact model constrains them (`constrained`).
    """
    name = link.joint.name
    torque = -(polynomial(link, quantity, name, "damping", absolute(qd) if is_curved(link) else qd) * qd)
    if not constrained:
        torque = torque - smooth_friction(quantity(f"{name}.friction"), qd)
    if link.stiffness_square or link.stiffness_cube:
        apart = q - quantity(f"{name}.rest")
        torque = torque - polynomial(link, quantity, name, "stiffness", apart) * apart
    else:
        torque = torque - quantity(f"{name}.stiffness") * (q - quantity(f"{name}.rest"))
    if constrained:
        return torque
    ke, kd = quantity(f"{name}.limit_stiffness"), quantity(f"{name}.limit_damping")
    if link.upper is not None:
        torque = torque - _stop(q - quantity(f"{name}.upper"), qd, ke, kd)
    if link.lower is not None:
        torque = torque + _stop(quantity(f"{name}.lower") - q, -qd, ke, kd)
    return torque


def _stop(passed: Any, speed: Any, stiffness: Any, damping: Any) -> Any:
    """Return the force of a stop at this penetration; the damper engages over the first 1e-2."""
    depth = maximum(passed, 0.0)
    engaged = depth * 100.0
    share = engaged / (1.0 + engaged)
    return maximum(stiffness * depth + damping * share * speed, 0.0)


@dataclass(frozen=True)
class DrivenJoint:
    """A driven joint, or the transmission of an actuator, in a step."""

    name: str
    q: Any  # encoder reading
    qd: Any
    continuous: bool  # whether it turns without limits
    period: Any = None  # length of a full turn if a servo takes the shorter way around; None otherwise
    load: Any = None  # torque of gravity and motion on it; None if unknown
    sticks: bool = False  # whether dry friction is a constraint of the joint
    motor: tuple[Any, Any] | None = None  # reading and velocity of the motor, if these are the state


class DriveForce(NamedTuple):
    """Torque of a drive, and what a step treats otherwise.

    Attributes:
        torque: The torque, with friction as far as it is smooth.
        damping: Minus its derivative with respect to velocity if that is implicit in the step.
        dry: The largest dry friction, if that is a constraint of the joint.
    """

    torque: Any
    damping: Any = 0.0
    dry: Any = 0.0


def drive_torque(
    drive: Drive, joint: DrivenJoint, command: Any, quantity: Number, define: Callable[[str, Any], Any],
    memory: StepMemory, step: float, substeps: int,
) -> DriveForce:  # fmt: skip
    """Return the torque on a joint in a step of length `step` [s], and keep the drive's memory for the next step.

    A frame has `substeps` steps, and a memory starts with a frame. `define` names a quantity and returns the value to
    continue with: "command.JOINT" is the delayed command, "error.JOINT" the error of a target.
    """
    name = f"{ACTUATOR}{joint.name}"

    def number(what: str) -> Any:
        return quantity(f"{name}.{what}")

    motor = _Motor(drive, joint, name, number, memory)
    q, qd = (motor.q, motor.qd) if drive.feedback == "motor" else (joint.q, joint.qd)
    if drive.longest_held_delay:
        # Forces are evaluated at the start of a step, the midpoint between velocities (leapfrog), so the command is
        # averaged over half a step to either side.
        line = memory.delay_line(f"{name} command", command, int(drive.longest_held_delay / step + 0.5 - 1e-9) + 2)
        command = delay(line, number("delay") * (1.0 / step) + 0.5)
    command = define(f"command.{joint.name}", command)
    law = DRIVE_KINDS[drive.kind]
    assert law.torque is not None
    if law.command == "target":
        error, wraps = (command - q, joint.continuous) if law.target == "position" else (command - qd, False)
        command = define(f"error.{joint.name}", arctan2(sin(error), cos(error)) if wraps else error)
    if drive.command_range is not UNSET:
        command = _within(command, drive.command_range)
    if drive.lags_command:
        command = _lagged(command, f"{name} lag", number, memory, step)
    if drive.state is not UNSET:
        command = _activation(drive.state, number, name, memory, joint, command, step)
    if joint.period is not None:
        command = q + _within_turn(command - q, joint.period)
    if drive.dead_band is not UNSET:
        command = _beyond_band(law, command, q, number("dead_band"))
    torque = law.torque(number, command, q, qd)
    torque = torque if law.back_emf is not None else number("gain") * torque
    torque = _supply(drive, law, number, torque, lambda: (command, q, qd))
    if drive.updates is not UNSET:
        torque = _hold(name, torque, memory, substeps, drive.updates)
    free, torque = torque, _saturate(drive, number, torque, qd)
    if drive.force_range is not UNSET:
        torque = _within(torque, drive.force_range)
    damping: Any = 0.0
    if law.damping is not None and not drive.elastic and drive.updates is UNSET:
        damping = number("gain") * law.damping(number, command, q, qd)
        damping = damping if drive.supply is UNSET else _switch(number("supply"), damping)
        if torque is not free:  # no damping at a limit, as in MuJoCo
            damping = select_less(absolute(torque - free), 1e-12, damping, 0.0)
    if drive.lag is not None and not drive.lags_command:
        torque = _lagged(torque, f"{name} lag", number, memory, step)
    dry = dry_friction(drive, number, motor.qd, torque, joint.load)
    torque = torque - number("viscous") * motor.qd
    if joint.sticks and not drive.elastic:
        return DriveForce(torque, damping, dry)
    torque = torque - smooth_friction(dry, motor.qd)
    if not drive.elastic:
        return DriveForce(torque, damping)
    implicit = drive.encoder == "motor" and law.damping is not None and drive.updates is UNSET
    resisting = number("gain") * law.damping(number, command, q, qd) if implicit and law.damping is not None else 0.0
    return DriveForce(motor.move(torque, step, resisting))


def _lagged(value: Any, name: str, number: Number, memory: StepMemory, step: float) -> Any:
    """Return a value behind a drive's first-order lag at the end of a step."""
    before = memory.recall(name, value)
    value = before + (1.0 - exp(-step / (number("lag") + 1e-9))) * (value - before)
    memory.keep(name, value)
    return value


def _beyond_band(law: DriveLaw, command: Any, q: Any, band: Any) -> Any:
    """Return a target, or its error, with the error less by the width of a dead band, and 0 within it."""
    error = command if law.command == "target" else command - q
    error = error - maximum(minimum(error, band), -band)
    return error if law.command == "target" else q + error


def _supply(drive: Drive, law: DriveLaw, number: Number, torque: Any, at: Callable[[], tuple[Any, Any, Any]]) -> Any:
    """Return a law's torque with the back-EMF at a command, position and velocity, and at the supply of the drive."""
    if law.back_emf is None:
        return torque if drive.supply is UNSET else _switch(number("supply"), torque)
    back_emf = law.back_emf(number, *at())
    if drive.supply is UNSET:
        return torque - back_emf
    return number("supply") * torque - _switch(number("supply"), back_emf)


def _switch(supply: Any, value: Any) -> Any:
    return select_less(_OFF, supply, value, 0.0)


_OFF = 1e-3
"""Supply below which a motor is off."""


def duty_torque(number: Number, error: Any, q: Any, qd: Any) -> Any:
    """Return the torque at stall of a servo's duty, which is proportional to the error up to the full one [N m]."""
    most = number("saturation_effort")
    return maximum(minimum(number("gain") * number("kp") * error, most), -most)


DRIVE_KINDS.add("dc_servo", replace(DRIVE_KINDS["dc_servo"], torque=duty_torque), replace=True)


def _hold(name: str, torque: Any, memory: StepMemory, substeps: int, updates: int) -> Any:
    """Return the torque of a law that is evaluated `updates` times per frame of `substeps` steps, and held."""
    if substeps % updates:
        raise InputError(
            f"{name}.updates is {updates}; valid: a divisor of the {substeps} substeps of a frame (`substeps` of the "
            "settings)"
        )
    if substeps == updates:
        return torque
    age = memory.recall(f"{name} age", 0.0)
    torque = select_less(age, 0.5, torque, memory.recall(f"{name} held", torque))
    memory.keep(f"{name} held", torque)
    memory.keep(f"{name} age", select_less(age, substeps // updates - 1.5, age + 1.0, 0.0))
    return torque


def _within(value: Any, bounds: tuple[float, float]) -> Any:
    return maximum(minimum(value, bounds[1]), bounds[0])


def _activation(
    state: DriveState, number: Number, name: str, memory: StepMemory, joint: DrivenJoint, command: Any, step: float
) -> Any:
    """Return an actuator's state in a step, and keep its next value."""
    now = memory.recall(f"{name} state", 0.0)
    if state.kind == "integrator":
        after = now + step * command
    elif state.kind == "muscle":
        constants = number("time_constant"), number("release")
        after = now + step * activation_rate(command, now, *constants, state.smoothing)
    else:
        share = step / number("time_constant")
        share = share if state.kind == "filter" else 1.0 - exp(-share)
        after = now + share * (command - now)
    if state.range is not None:
        after = _within(after, state.range)
    kept = after
    if state.kind == "integrator" and joint.period is not None:
        kept = joint.q + _within_turn(after - joint.q, joint.period)
    memory.keep(f"{name} state", kept)
    return after if state.early else now


def _within_turn(error: Any, period: Any) -> Any:
    """Wrap an error to half a turn of length `period` to either side."""
    angle = error * (2.0 * math.pi / period)
    return arctan2(sin(angle), cos(angle)) * (period / (2.0 * math.pi))


class _Motor:
    """The motor side of a drive: behind a spring, or the joint itself."""

    def __init__(self, drive: Drive, joint: DrivenJoint, name: str, number: Number, memory: StepMemory) -> None:
        self._joint, self._name, self._number, self._memory = joint, name, number, memory
        self.q, self.qd = joint.q, joint.qd
        if joint.motor is not None:
            self.q, self.qd = joint.motor
        elif drive.elastic:
            self.q = memory.recall(f"{name} motor position", joint.q)
            self.qd = memory.recall(f"{name} motor velocity", joint.qd)

    def move(self, torque: Any, step: float, resisting: Any = 0.0) -> Any:
        """Integrate the motor under a torque, with damping implicit in the step; return the spring's torque."""
        number, joint = self._number, self._joint
        inertia, stiffness, damping = number("rotor_inertia"), number("stiffness"), number("elastic_damping")
        inertia = inertia + step * resisting
        half = 0.5 * number("backlash")
        angle = self.q - joint.q
        twist = angle - maximum(minimum(angle, half), -half)
        engaged = select_less(absolute(angle), half, 0.0, 1.0)
        slope = engaged * (damping + step * stiffness)
        relative = self.qd - joint.qd
        # (I + h slope) (w' - qd) = I (w - qd) + h (torque - k twist), with the joint's velocity held.
        after = (inertia * relative + step * (torque - stiffness * twist)) / (inertia + step * slope)
        self._memory.keep(f"{self._name} motor velocity", joint.qd + after)
        self._memory.keep(f"{self._name} motor position", self.q + step * (joint.qd + after))
        return stiffness * twist + slope * after


def _saturate(drive: Drive, number: Number, torque: Any, qd: Any) -> Any:
    if drive.effort_limit is None and drive.velocity_limit is None:
        return torque
    most = None if drive.effort_limit is None else number("effort_limit")
    least = None if most is None else -most
    if drive.velocity_limit is not None:
        stall, speed = number("saturation_effort"), number("velocity_limit")
        share = qd / speed
        if most is not None:  # beyond the corner the line would ask for more braking than the limit
            corner = 1.0 + most / stall
            share = maximum(minimum(share, corner), -corner)
        falling, rising = stall * (1.0 - share), stall * (-1.0 - share)
        most = falling if most is None else minimum(falling, most)
        least = rising if least is None else maximum(rising, least)
    return maximum(minimum(torque, most), least)


_TINY = 1e-15  # MuJoCo's mjMINVAL


def muscle_force(number: Number, command: Any, q: Any, qd: Any) -> Any:
    """Return the force of a muscle of length `q`, rate `qd` and activation `command`, below 0 where it pulls [N]."""
    return _active(number, q, qd)[0] * command + _passive(number, q)


def muscle_damping(number: Number, command: Any, q: Any, qd: Any) -> Any:
    """Return minus the derivative of the force by the rate [N s/m]."""
    return -(_active(number, q, qd)[1] * command)


DRIVE_KINDS.add("muscle", replace(DRIVE_KINDS["muscle"], torque=muscle_force, damping=muscle_damping), replace=True)


def _normalised_length(number: Number, q: Any) -> tuple[Any, Any]:
    least, span = number("muscle.lengths.lower"), number("muscle.spans.lower")
    optimal = (number("muscle.lengths.upper") - least) / (number("muscle.spans.upper") - span)
    return span + (q - least) / optimal, optimal


def _active(number: Number, q: Any, qd: Any) -> tuple[Any, Any]:
    """Return the force per unit of activation, and its derivative by the rate."""
    length, optimal = _normalised_length(number, q)
    fastest = number("muscle.speed") * optimal
    rate = qd / fastest
    most = number("muscle.eccentric")
    knee = most - 1.0
    shortening = rate + 1.0
    drawn = knee - rate
    curve = select_less(knee, rate, most, most - drawn * drawn / knee)
    slope = select_less(knee, rate, 0.0, 2.0 * drawn / knee)
    curve = select_less(0.0, rate, curve, shortening * shortening)
    slope = select_less(0.0, rate, slope, 2.0 * shortening)
    curve, slope = (select_less(-1.0, rate, x, 0.0) for x in (curve, slope))
    force = -(number("muscle.force") * _by_length(number, length))
    return force * curve, force * slope / fastest


def _by_length(number: Number, length: Any) -> Any:
    """Return the active force by length: parabolas through 0, 1/2, 1, 1/2 and 0."""
    shortest, longest = number("muscle.shortest"), number("muscle.longest")
    rising, falling = 0.5 * (shortest + 1.0), 0.5 * (1.0 + longest)
    parts = [(length - shortest) / (rising - shortest), (1.0 - length) / (1.0 - rising),
             (length - 1.0) / (falling - 1.0), (longest - length) / (longest - falling)]  # fmt: skip
    first, second, third, fourth = (0.5 * x * x for x in parts)
    share = select_less(falling, length, fourth, 1.0 - third)
    share = select_less(1.0, length, share, 1.0 - second)
    share = select_less(rising, length, share, first)
    return select_less(length, shortest, 0.0, select_less(longest, length, 0.0, share))


def _passive(number: Number, q: Any) -> Any:
    """Return the force without activation: a parabola above the optimal length, then its tangent."""
    length = _normalised_length(number, q)[0]
    half = 0.5 * (1.0 + number("muscle.longest")) - 1.0
    x = maximum(length - 1.0, 0.0) / half
    share = select_less(1.0, x, x - 0.5, 0.5 * x * x)
    return -(number("muscle.force") * number("muscle.passive") * share)


def activation_rate(command: Any, state: Any, rising: Any, falling: Any, smoothing: float) -> Any:
    """Return the rate of a muscle's activation [1/s] from the time constants of its rise and fall [s]."""
    command, within = (minimum(maximum(x, 0.0), 1.0) for x in (command, state))
    factor = 0.5 + 1.5 * within
    rising, falling = rising * factor, falling / factor
    excess = command - state
    if smoothing < _TINY:
        constant = select_less(0.0, excess, rising, falling)
    else:
        x = minimum(maximum(excess / smoothing + 0.5, 0.0), 1.0)
        constant = falling + (rising - falling) * (x * x * x * (3.0 * x * (2.0 * x - 5.0) + 10.0))
    return excess / constant


def pd_torque(
    spec: StateSpec,
    q: Positions,
    qd: Velocities,
    target: Torques,
    kp: Float[Tensor, "..."] | float,
    kd: Float[Tensor, "..."] | float,
) -> Torques:
    """Return kp (target - q) - kd qd of the driven joints [N m or N], shape [worlds, nu].

    Args:
        spec: The robot's coordinates and controls.
        q: Positions [rad or m], shape [worlds, nq].
        qd: Velocities [rad/s or m/s], shape [worlds, nv].
        target: Target positions of the driven joints [rad or m], shape [worlds, nu]; a continuous joint takes the
            shorter way around.
        kp: Stiffness [N m/rad or N/m], broadcastable to [worlds, nu].
        kd: Damping [N m s/rad or N s/m], broadcastable to [worlds, nu].
    """
    rows, dofs, turns = _indices(spec, q.device)
    q, qd = q[..., rows], qd[..., dofs]
    error = target - q
    if turns is not None:
        wrapped = torch.remainder(error + math.pi, 2 * math.pi) - math.pi
        error = torch.where(turns, wrapped, error)
    return pd_law({"kp": kp, "kd": kd}.__getitem__, error, q, qd)


@lru_cache(maxsize=64)
def _indices(spec: StateSpec, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the driven joints' position and velocity coordinates, and which joints are continuous."""
    rows = [spec.q_names.index(name) for name in spec.controls]
    turns = [spec.continuous[row] for row in rows]
    return (
        torch.tensor(rows, dtype=torch.long, device=device),
        torch.tensor(spec.control_dofs, dtype=torch.long, device=device),
        torch.tensor(turns, device=device) if any(turns) else None,
    )
