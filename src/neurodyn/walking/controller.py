# SPDX-License-Identifier: Apache-2.0
"""The controller of a quadruped.

Forces of the feet that stand, PD control of those that swing, torques of both; `walker` makes one.
"""

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
from neurodyn.walking.state import ForceInputs, LegKinematics, QuadrupedState, footholds, force_inputs, heading_turn

CLEARANCE, FREQUENCY = 0.3, 40.0
"""Height of a swing in heights of the centre of mass, and natural frequency of its control [rad/s], at most."""
OVERLOAD = 1.5
"""Torques of a swing, in greatest torques of the drives, up to which commands are followed.

In walks of ANYmal C feet as fast as .60 m/s, a load of 1.58, made 2 of 24 episodes end in a fall, .55 m/s, 1.47, none.
"""
_SAMPLES = 101


@dataclass(frozen=True)
class Swing:
    """How feet swing.

    Attributes:
        clearance: Height to which they are lifted [m].
        frequency: Natural frequency of their control [rad/s].
        speed: Greatest speed over the ground at which they are carried along [m/s].
    """

    clearance: float
    frequency: float
    speed: float = np.inf

    def limited(self, command: np.ndarray, stance: np.ndarray) -> np.ndarray:
        """Return commands scaled down to those under which no foot has to be faster than `speed`.

        Args:
            command: Velocities forward and to the left [m/s] and yaw rate [rad/s], shape [worlds, 3].
            stance: Where feet stand, from the centre of mass [m], shape [4, 3].
        """
        vx, vy, rate = command.T[..., None]
        fastest = np.hypot(vx - rate * stance[:, 1], vy + rate * stance[:, 0]).max(1)
        return command * np.minimum(1.0, self.speed / np.maximum(fastest, 1e-9))[:, None]


def affordable_swing(quadruped: Quadruped, gait: Gait, settings: MpcSettings) -> Swing:
    """Return the swing of settings; where they leave it open, that which the drives afford at commands of `SPEED`."""
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
    """Return the greatest torque of a swing in the nominal pose, in greatest torques of the drives.

    Args:
        quadruped: The robot.
        gait: Its gait, one that swings feet.
        clearance: Height of the swing [m].
        speed: Speed of the robot, whichever way [m/s].
    """
    lifting, carrying = _torques(quadruped, gait, clearance)
    return float(((lifting + speed * carrying) / quadruped.effort).max())


def _torques(quadruped: Quadruped, gait: Gait, clearance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes of torques for lifting [N m], and of those for carrying along per speed [N m s/m], [..., 4, 3]."""
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
    """Return places [m], velocities [m/s] and accelerations [m/s^2] of feet, shape [..., 3] each.

    They move over the ground with least jerk, up to `clearance` above the higher end, and down again.

    Args:
        lifted: Where they lifted [m], shape [..., 3].
        landing: Where they are to land [m], likewise.
        progress: How much of the swing is done, 0 to 1, shape [...].
        duration: Length of a swing [s].
        clearance: Height [m].
    """
    share, rate, curve = _least_jerk(progress)
    way = landing - lifted
    place = lifted + share[..., None] * way
    velocity, acceleration = rate[..., None] * way / duration, curve[..., None] * way / duration**2
    rising = progress < 0.5
    apex = np.maximum(lifted[..., 2], landing[..., 2]) + clearance
    begin = np.where(rising, lifted[..., 2], apex)
    end = np.where(rising, apex, landing[..., 2])
    share, rate, curve = _least_jerk(np.where(rising, 2.0 * progress, 2.0 * progress - 1.0))
    place[..., 2] = begin + share * (end - begin)
    velocity[..., 2] = rate * (end - begin) / (0.5 * duration)
    acceleration[..., 2] = curve * (end - begin) / (0.5 * duration) ** 2
    return place, velocity, acceleration


def _least_jerk(s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the polynomial from 0 to 1 that begins and ends at rest without acceleration, and its derivatives."""
    return s**3 * (10 - 15 * s + 6 * s * s), 30 * s * s * (1 - s) ** 2, 60 * s * (1 - s) * (1 - 2 * s)


_SETTLED = 0.3
"""Share of its stance after which a foot is taken to stand on the ground."""
_LATE = 0.25
"""Height above the ground at which a foot that should stand has yet to land, in heights of the centre of mass."""


class QuadrupedController:
    """Walks at commanded velocities; a batch of worlds side by side, each with a gait clock of its own.

    Attributes:
        quadruped: The robot.
        law: What decides on forces.
        gait: The gait.
        settings: Its settings.
        swing: How feet swing.
        decisions: Decisions so far, over all worlds.
        fallbacks: Those of them in which no forces were found, and the last ones went on.
        seconds: CPU time that the decisions took [s].
        just_decided: Whether the last call of `act` made one.
        decided: What the last decision was made from, and the forces; None before the first.
        reading: What was read of the last states; None before.
    """

    def __init__(
        self, quadruped: Quadruped, law: ForceLaw, gait: Gait, dt: float, settings: MpcSettings | None = None
    ) -> None:
        """Take a robot and a law.

        Args:
            quadruped: The robot.
            law: What decides on forces.
            gait: The gait.
            dt: Time between two calls of `act` [s].
            settings: Settings.
        """
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
        """Begin anew: in all worlds, or where `mask` is true, shape [worlds]."""
        if mask is None or self._frame is None:
            self._frame = self.decided = self.reading = None
            self.just_decided = False
            return
        self._fresh = self._fresh | mask

    def act(self, state: State, command: np.ndarray) -> Control:
        """Return the torques of a frame; zero in worlds whose state is not finite.

        Args:
            state: Measured states of all worlds.
            command: Velocities forward and to the left [m/s] and yaw rate [rad/s], shape [worlds, 3]; scaled down
                where feet would have to be faster than the drives afford (`swing.speed`).
        """
        command = self.swing.limited(command, self.quadruped.stance)
        reading = self.reading = self._kinematics(state.q, state.qd)
        self._begin(reading)
        assert self._frame is not None
        clock = self._frame * self.dt
        phase = self.gait.phase(clock)
        stands = self.gait.stands(phase)
        self._look_down(reading, phase, stands)
        self._turn_on(reading, command)
        self.just_decided = self._count % self._every == 0 or bool(self._fresh.any())
        if self.just_decided:
            self._decide(force_inputs(
                self.quadruped, reading, self.gait, clock, command, self._heading, self._ground.mean(1)
            ))  # fmt: skip
        self._fresh[:] = False
        turn = heading_turn(reading.rpy[:, 2])
        pushes = -np.einsum("wij,wlj->wli", turn, self._forces)
        late = self._late(reading, phase, stands)
        pulls = self._swing(reading, command, phase, late, turn)
        foot = np.where((stands & ~late)[..., None], pushes, pulls)
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
        """Take worlds that begin anew as they are."""
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

    def _look_down(self, reading: QuadrupedState, phase: np.ndarray, stands: np.ndarray) -> None:
        """Take the height of the ground from feet that stand, and where they may lift."""
        settled = stands & (phase > _SETTLED * self.gait.duty)
        self._ground = np.where(settled, reading.feet[..., 2] - self.quadruped.radii, self._ground)
        self._lifted = np.where(stands[..., None], reading.feet, self._lifted)

    def _late(self, reading: QuadrupedState, phase: np.ndarray, stands: np.ndarray) -> np.ndarray:
        """Return which feet should stand but have yet to land, shape [worlds, 4]."""
        above = reading.feet[..., 2] - self.quadruped.radii - self._ground
        landing = stands & (phase <= _SETTLED * self.gait.duty) & (self.gait.duty < 1.0)
        return landing & (above > _LATE * self.quadruped.height)

    def _turn_on(self, reading: QuadrupedState, command: np.ndarray) -> None:
        """Turn the wanted heading on, no further ahead of the base than can be corrected."""
        yaw = reading.rpy[:, 2]
        off = (self._heading + command[:, 2] * self.dt - yaw + np.pi) % (2 * np.pi) - np.pi
        reach = self.settings.yaw_reach
        self._heading = yaw + np.clip(off, -reach, reach)

    def _decide(self, at: ForceInputs) -> None:
        began = time.process_time()
        forces = self.law(at)
        self.seconds += time.process_time() - began
        found = np.asarray(np.isfinite(forces).all((1, 2)))
        self.decisions += at.worlds
        self.fallbacks += int((~found).sum())
        self._forces = np.where(found[:, None, None], forces, self._forces)
        self.decided = at, self._forces

    def _swing(
        self, reading: QuadrupedState, command: np.ndarray, phase: np.ndarray, late: np.ndarray, turn: np.ndarray
    ) -> np.ndarray:
        """Return the forces that feet are to exert on the way to where they land, world axes [N], [worlds, 4, 3].

        Feet that are late are to be there now: forces of standing feet would fling them away.
        """
        gait, settings, quadruped = self.gait, self.settings, self.quadruped
        if gait.duty == 1.0:
            return np.zeros_like(reading.feet)
        left = np.where(late, 0.0, gait.left(phase))
        places = footholds(quadruped, gait, settings.foot_gain, reading.heading_velocity, command, left)
        landing = reading.com[:, None] + reading.velocity[:, None] * left[..., None]
        landing = landing + np.einsum("wij,wlj->wli", turn, places)
        landing[..., 2] = self._ground + quadruped.radii
        place, rate, acceleration = swing_motion(
            self._lifted,
            landing,
            np.where(late, 1.0, gait.progress(phase)),
            gait.swing,
            self.swing.clearance,
        )
        stiffness = self.swing.frequency**2
        damping = 2.0 * settings.swing_damping * self.swing.frequency
        wanted = acceleration + stiffness * (place - reading.feet) + damping * (rate - reading.foot_velocity)
        own = np.einsum("wji,wlj->wli", turn, wanted)  # the inertia of feet is known in the heading frame
        return np.einsum("wij,wlj->wli", turn, np.einsum("lij,wlj->wli", quadruped.foot_inertia, own))


MPC, IMITATION = "mpc", "imitation"


def walker(
    plant: WalkingPlant,
    *,
    gait: str | None = None,
    settings: MpcSettings | str | Path | None = None,
    imitation: str | Path | None = None,
    onnx: bool = False,
) -> tuple[QuadrupedController, str, str]:
    """Return a controller for a plant, the name of what decides on its forces, and that of its gait.

    Args:
        plant: Where it walks.
        gait: Name of a gait; None for trot, or for that which was imitated.
        settings: Settings, or a file with them (YAML, TOML or JSON); None for the defaults, or for those imitated.
        imitation: Folder of a network that decides on forces (`imitate`); None for the quadratic program.
        onnx: Whether that network is run by ONNX Runtime.

    Raises:
        InputError: There is no such gait or network, the settings are wrong, or the network was made for another gait.
    """
    chosen = read_config(Path(settings), MpcSettings) if isinstance(settings, str | Path) else settings
    if imitation is None:
        gait, chosen = gait or "trot", chosen or MpcSettings()
        GAITS.require(gait)
        law: ForceLaw = ConvexMpc(plant.quadruped, chosen)
        return QuadrupedController(plant.quadruped, law, GAITS[gait], plant.dt, chosen), MPC, gait
    if settings is not None:
        raise InputError("settings of the controller are those that the network imitates; valid: none")
    imitated = load_imitation(imitation, plant.quadruped, plant.robot.name, onnx=onnx)
    own = imitated.config
    if gait not in (None, own.gait):
        raise InputError(f"{imitation}: imitates forces of the gait {own.gait!r}, not {gait!r}; valid: {own.gait}")
    controller = QuadrupedController(plant.quadruped, imitated, GAITS[own.gait], plant.dt, own.settings)
    return controller, IMITATION, own.gait
