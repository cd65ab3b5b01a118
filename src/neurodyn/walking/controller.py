# SPDX-License-Identifier: Apache-2.0
"""Walking controller of a quadruped: contact forces of stance legs, PD control of swing legs, leg Jacobians."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, State
from neurodyn.walking.convex_mpc import ConvexMpc, ForceLaw, MpcSettings
from neurodyn.walking.force_network import load_imitation
from neurodyn.walking.gait import GAITS, SPEED, Gait
from neurodyn.walking.plant import WalkingPlant
from neurodyn.walking.quadruped import LEGS, Quadruped
from neurodyn.walking.state import ForceInputs, LegKinematics, QuadrupedState, footholds, force_inputs, heading_rotation

CLEARANCE, FREQUENCY = 0.3, 40.0
"""Upper limits of the defaults: swing height relative to the height of the centre of mass, natural swing frequency
[rad/s]."""
OVERLOAD = 1.5
"""Largest swing torque relative to the drives' limits; commands that need more are scaled down.

ANYmal C fell in 2 of 24 episodes at a foot speed of 0.60 m/s (torque ratio 1.58), and in none at 0.55 m/s (1.47).
"""
_SAMPLES = 101


@dataclass(frozen=True)
class Swing:
    """Parameters of the swing.

    Attributes:
        clearance: Lift height of the foot [m].
        frequency: Natural frequency of the tracking control [rad/s].
        speed: Largest horizontal speed of the foot's stance point [m/s].
    """

    clearance: float
    frequency: float
    speed: float = np.inf

    def limit(self, command: np.ndarray, stance: np.ndarray) -> np.ndarray:
        """Scale commands down so that no foot exceeds `speed`.

        Args:
            command: Velocities forward and to the left [m/s] and yaw rate [rad/s], shape [worlds, 3].
            stance: Nominal foot positions relative to the centre of mass [m], shape [4, 3].
        """
        vx, vy, rate = command.T[..., None]
        fastest = np.hypot(vx - rate * stance[:, 1], vy + rate * stance[:, 0]).max(1)
        return command * np.minimum(1.0, self.speed / np.maximum(fastest, 1e-9))[:, None]


def affordable_swing(quadruped: Quadruped, gait: Gait, settings: MpcSettings) -> Swing:
    """Return the swing of the settings; values that are not set are reduced to the drives' limits at `SPEED`."""
    height, given = quadruped.height, (settings.clearance, settings.swing_frequency)
    share = 1.0
    if gait.duty < 1.0 and None in given:
        share = 1.0 / max(1.0, swing_load(quadruped, gait, CLEARANCE * height, SPEED))  # drives without limits: load 0
    clearance = height * (CLEARANCE * share if given[0] is None else given[0])
    frequency = FREQUENCY * share**0.5 if given[1] is None else given[1]
    if share == 1.0:
        return Swing(clearance, frequency)
    lifting, carrying = _torques(quadruped, gait, clearance)
    spare = OVERLOAD * quadruped.effort - lifting
    return Swing(clearance, frequency, max(0.0, float((spare / np.maximum(carrying, 1e-9)).min())))


def swing_load(quadruped: Quadruped, gait: Gait, clearance: float, speed: float) -> float:
    """Return the largest swing torque in the nominal pose, relative to the drives' limits.

    The foot is lifted by `clearance` [m], while the robot moves at `speed` [m/s] in any direction.
    """
    lifting, carrying = _torques(quadruped, gait, clearance)
    return float(((lifting + speed * carrying) / quadruped.effort).max())


def _torques(quadruped: Quadruped, gait: Gait, clearance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return absolute torques of lifting [N m], and of travel per robot speed [N m s/m], shape [..., 4, 3]."""
    progress, still = np.linspace(0.0, 1.0, _SAMPLES), np.zeros((_SAMPLES, 3))

    def torques(way: tuple[float, float, float], height: float) -> np.ndarray:
        _, _, acceleration = swing_motion(still, still + way, progress, gait.swing, height)
        forces = np.einsum("lij,sj->sli", quadruped.foot_inertia, acceleration)
        return np.abs(np.einsum("lij,sli->slj", quadruped.jacobian, forces))

    stride = gait.period  # at 1 m/s
    ways = torques((stride, 0.0, 0.0), 0.0), torques((0.0, stride, 0.0), 0.0)
    return torques((0.0, 0.0, 0.0), clearance), np.maximum(*ways)


def swing_motion(
    lifted: np.ndarray, landing: np.ndarray, progress: np.ndarray, duration: float, clearance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return positions [m], velocities [m/s] and accelerations [m/s^2] of swing feet, shape [..., 3] each.

    Horizontal motion has minimum jerk. Vertical motion rises to `clearance` above the higher end point and descends,
    each with minimum jerk.

    Args:
        lifted: Lift-off positions [m], shape [..., 3].
        landing: Landing positions [m], shape [..., 3].
        progress: Progress of the swing, 0 to 1, shape [...].
        duration: Duration of the swing [s].
        clearance: Lift height [m].
    """
    share, rate, curve = _least_jerk(progress)
    way = landing - lifted
    position = lifted + share[..., None] * way
    velocity, acceleration = rate[..., None] * way / duration, curve[..., None] * way / duration**2
    rising = progress < 0.5
    apex = np.maximum(lifted[..., 2], landing[..., 2]) + clearance
    begin = np.where(rising, lifted[..., 2], apex)
    end = np.where(rising, apex, landing[..., 2])
    share, rate, curve = _least_jerk(np.where(rising, 2.0 * progress, 2.0 * progress - 1.0))
    position[..., 2] = begin + share * (end - begin)
    velocity[..., 2] = rate * (end - begin) / (0.5 * duration)
    acceleration[..., 2] = curve * (end - begin) / (0.5 * duration) ** 2
    return position, velocity, acceleration


def _least_jerk(s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the minimum-jerk polynomial from 0 to 1 and its first and second derivative."""
    return s**3 * (10 - 15 * s + 6 * s * s), 30 * s * s * (1 - s) ** 2, 60 * s * (1 - s) * (1 - 2 * s)


SETTLED = 0.3
"""Share of the stance after which a foot is assumed to be on the ground."""
LATE = 0.25
"""Height of a stance foot above the ground from which it counts as late, relative to the centre of mass."""


class QuadrupedController:
    """Walks at commanded velocities, in a batch of worlds, each with its own gait clock.

    Attributes:
        quadruped: The robot.
        law: Force law of the stance feet.
        gait: The gait.
        settings: Settings.
        swing: Parameters of the swing.
        decisions: Number of decisions so far, over all worlds.
        fallbacks: Number of decisions without a solution, for which the last forces were kept.
        seconds: CPU time of the decisions [s].
        just_decided: Whether the last call of `act` included a decision.
        decided: Inputs and forces of the last decision; None before the first.
        reading: State of the robot at the last call; None before the first.
    """

    def __init__(
        self, quadruped: Quadruped, law: ForceLaw, gait: Gait, dt: float, settings: MpcSettings | None = None
    ) -> None:
        """Build the controller; `act` must be called every dt [s]."""
        self.quadruped, self.law, self.gait, self.dt = quadruped, law, gait, dt
        self.settings = settings or MpcSettings()
        self.swing = affordable_swing(quadruped, gait, self.settings)
        self.decisions = self.fallbacks = 0
        self.seconds, self.just_decided = 0.0, False
        self.decided: tuple[ForceInputs, np.ndarray] | None = None
        self.reading: QuadrupedState | None = None
        self._kinematics = LegKinematics(quadruped)
        self._every = max(1, round(self.settings.interval / dt))
        self._count = 0
        self._frame: np.ndarray | None = None
        self._fresh = np.zeros(0, bool)

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Restart the gait in all worlds, or where `mask` is true, shape [worlds]."""
        if mask is None or self._frame is None:
            self._frame = self.decided = self.reading = None
            self.just_decided = False
            return
        self._fresh = self._fresh | mask

    def act(self, state: State, command: np.ndarray) -> Control:
        """Return the torques of a frame, zero in worlds whose state is not finite.

        Args:
            state: Measured states of all worlds.
            command: Velocities forward and to the left [m/s] and yaw rate [rad/s], shape [worlds, 3]. Scaled down if
                the drives cannot swing the feet fast enough (`swing.speed`).
        """
        command = self.swing.limit(command, self.quadruped.stance)
        reading = self.reading = self._kinematics(state.q, state.qd)
        self._begin(reading)
        assert self._frame is not None
        clock = self._frame * self.dt
        phase = self.gait.phase(clock)
        stands = self.gait.stands(phase)
        self._update_ground(reading, phase, stands)
        self._advance_heading(reading, command)
        self.just_decided = self._count % self._every == 0 or bool(self._fresh.any())
        if self.just_decided:
            self._decide(
                force_inputs(self.quadruped, reading, self.gait, clock, command, self._heading, self._ground.mean(1))
            )
        self._fresh[:] = False
        to_world = heading_rotation(reading.rpy[:, 2])
        pushes = -np.einsum("wij,wlj->wli", to_world, self._forces)
        overdue = self._overdue(reading, phase, stands)
        pulls = self._swing(reading, command, phase, overdue, to_world)
        foot = np.where((stands & ~overdue)[..., None], pushes, pulls)
        torque = np.einsum("wlij,wli->wlj", reading.jacobian, foot) + reading.weight
        torque = np.clip(torque, -self.quadruped.effort, self.quadruped.effort)
        torque[~np.isfinite(torque).all((1, 2))] = 0.0
        self._frame = self._frame + 1
        self._count += 1
        return Control(torque=self._controls(torque, state.q))

    def _controls(self, torque: np.ndarray, like: Tensor) -> Tensor:
        ordered = np.zeros((len(torque), LEGS * 3))
        ordered[:, self.quadruped.controls.reshape(-1)] = torque.reshape(len(torque), -1)
        return torch.as_tensor(ordered).to(like)

    def _begin(self, reading: QuadrupedState) -> None:
        """Initialise worlds that were reset."""
        if self._frame is None or len(self._frame) != reading.worlds:
            worlds = reading.worlds
            self._count = 0
            self._frame = np.zeros(worlds, int)
            self._fresh = np.ones(worlds, bool)
            self._ground = np.zeros((worlds, LEGS))
            self._heading = np.zeros(worlds)
            self._lifted = np.zeros((worlds, LEGS, 3))
            self._forces = np.zeros((worlds, LEGS, 3))
        fresh = self._fresh
        if fresh.any():
            self._frame = np.where(fresh, 0, self._frame)
            self._ground[fresh] = (reading.feet[..., 2] - self.quadruped.radii)[fresh]
            self._heading[fresh] = reading.rpy[fresh, 2]
            self._lifted[fresh] = reading.feet[fresh]
            self._forces[fresh] = 0.0

    def _update_ground(self, reading: QuadrupedState, phase: np.ndarray, stands: np.ndarray) -> None:
        """Update the height of the ground and the lift-off positions from stance feet."""
        settled = stands & (phase > SETTLED * self.gait.duty)
        self._ground = np.where(settled, reading.feet[..., 2] - self.quadruped.radii, self._ground)
        self._lifted = np.where(stands[..., None], reading.feet, self._lifted)

    def _overdue(self, reading: QuadrupedState, phase: np.ndarray, stands: np.ndarray) -> np.ndarray:
        """Return which stance feet have not landed yet, shape [worlds, 4]."""
        above = reading.feet[..., 2] - self.quadruped.radii - self._ground
        landing = stands & (phase <= SETTLED * self.gait.duty) & (self.gait.duty < 1.0)
        return landing & (above > LATE * self.quadruped.height)

    def _advance_heading(self, reading: QuadrupedState, command: np.ndarray) -> None:
        """Advance the heading reference, which stays within `yaw_reach` of the base."""
        yaw = reading.rpy[:, 2]
        off = (self._heading + command[:, 2] * self.dt - yaw + np.pi) % (2 * np.pi) - np.pi
        reach = self.settings.yaw_reach
        self._heading = yaw + np.clip(off, -reach, reach)

    def _decide(self, inputs: ForceInputs) -> None:
        began = time.process_time()
        forces = self.law(inputs)
        self.seconds += time.process_time() - began
        solved = np.asarray(np.isfinite(forces).all((1, 2)))
        self.decisions += inputs.worlds
        self.fallbacks += int((~solved).sum())
        self._forces = np.where(solved[:, None, None], forces, self._forces)
        self.decided = inputs, self._forces

    def _swing(
        self, reading: QuadrupedState, command: np.ndarray, phase: np.ndarray, overdue: np.ndarray, to_world: np.ndarray
    ) -> np.ndarray:
        """Return the forces of swing feet, world frame [N], shape [worlds, 4, 3].

        A late foot is driven to its landing position, because a stance force would fling it away.
        """
        gait, settings, quadruped = self.gait, self.settings, self.quadruped
        if gait.duty == 1.0:
            return np.zeros_like(reading.feet)
        left = np.where(overdue, 0.0, gait.left(phase))
        places = footholds(quadruped, gait, settings.foot_gain, reading.heading_velocity, command, left)
        landing = reading.com[:, None] + reading.velocity[:, None] * left[..., None]
        landing = landing + np.einsum("wij,wlj->wli", to_world, places)
        landing[..., 2] = self._ground + quadruped.radii
        progress = np.where(overdue, 1.0, gait.progress(phase))
        position, rate, acceleration = swing_motion(self._lifted, landing, progress, gait.swing, self.swing.clearance)
        stiffness = self.swing.frequency**2
        damping = 2.0 * settings.swing_damping * self.swing.frequency
        wanted = acceleration + stiffness * (position - reading.feet) + damping * (rate - reading.foot_velocity)
        local = np.einsum("wji,wlj->wli", to_world, wanted)  # foot inertia is given in the heading frame
        return np.einsum("wij,wlj->wli", to_world, np.einsum("lij,wlj->wli", quadruped.foot_inertia, local))


MPC, IMITATION = "mpc", "imitation"


def walker(
    plant: WalkingPlant,
    *,
    gait: str | None = None,
    settings: MpcSettings | str | Path | None = None,
    imitation: str | Path | None = None,
) -> tuple[QuadrupedController, str, str]:
    """Build a controller for a plant; return it with the names of its force law and gait.

    Args:
        plant: The plant to walk in.
        gait: Name of a gait; None for trot, or for the imitated gait.
        settings: Settings, or a file with them (YAML, TOML or JSON); None for the defaults, or for the imitated ones.
        imitation: Folder of a network that computes the forces (`imitate`); None for the quadratic program.

    Raises:
        InputError: The gait or the network does not exist, the settings are invalid, or the network imitates another
            gait.
    """
    chosen = read_config(Path(settings), MpcSettings) if isinstance(settings, str | Path) else settings
    if imitation is None:
        gait, chosen = gait or "trot", chosen or MpcSettings()
        GAITS.require(gait)
        law: ForceLaw = ConvexMpc(plant.quadruped, chosen)
        return QuadrupedController(plant.quadruped, law, GAITS[gait], plant.dt, chosen), MPC, gait
    if settings is not None:
        raise InputError("settings of the controller are those that the network imitates; valid: none")
    imitated = load_imitation(imitation, plant.quadruped, plant.robot.name)
    own = imitated.config
    if gait not in (None, own.gait):
        raise InputError(f"{imitation}: imitates forces of the gait {own.gait!r}, not {gait!r}; valid: {own.gait}")
    controller = QuadrupedController(plant.quadruped, imitated, GAITS[own.gait], plant.dt, own.settings)
    return controller, IMITATION, own.gait
