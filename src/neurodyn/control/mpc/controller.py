# SPDX-License-Identifier: Apache-2.0
"""The controller of a quadruped: forces of the feet that stand, PD control of those that swing, torques of both."""

import time

import numpy as np
import torch
from torch import Tensor

from neurodyn.control.mpc.forces import ForceLaw
from neurodyn.control.mpc.gait import Gait
from neurodyn.control.mpc.kinematics import LegKinematics, Reading, heading_turn
from neurodyn.control.mpc.quadruped import LEGS, Quadruped
from neurodyn.control.mpc.settings import MpcSettings
from neurodyn.control.mpc.situation import Situation, footholds, situation
from neurodyn.control.mpc.swing import affordable_swing, swing_motion
from neurodyn.dynamics.interface import Control, State

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
        self.decided: tuple[Situation, np.ndarray] | None = None
        self.reading: Reading | None = None
        self._kinematics = LegKinematics(quadruped)
        self._every = max(1, round(self.settings.interval / dt))
        self._count = 0
        self._frame: np.ndarray | None = None
        self._fresh = np.zeros(0, bool)

    def reset(self, mask: np.ndarray | None = None) -> None:
        """Begin anew: in all worlds, or where `mask` is true, shape [worlds]."""
        if mask is None or self._frame is None:
            self._frame = None
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
            self._decide(situation(
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

    def _begin(self, reading: Reading) -> None:
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

    def _look_down(self, reading: Reading, phase: np.ndarray, stands: np.ndarray) -> None:
        """Take the height of the ground from feet that stand, and where they may lift."""
        settled = stands & (phase > _SETTLED * self.gait.duty)
        self._ground = np.where(settled, reading.feet[..., 2] - self.quadruped.radii, self._ground)
        self._lifted = np.where(stands[..., None], reading.feet, self._lifted)

    def _late(self, reading: Reading, phase: np.ndarray, stands: np.ndarray) -> np.ndarray:
        """Return which feet should stand but have yet to land, shape [worlds, 4]."""
        above = reading.feet[..., 2] - self.quadruped.radii - self._ground
        landing = stands & (phase <= _SETTLED * self.gait.duty) & (self.gait.duty < 1.0)
        return landing & (above > _LATE * self.quadruped.height)

    def _turn_on(self, reading: Reading, command: np.ndarray) -> None:
        """Turn the wanted heading on, no further ahead of the base than can be corrected."""
        yaw = reading.rpy[:, 2]
        off = (self._heading + command[:, 2] * self.dt - yaw + np.pi) % (2 * np.pi) - np.pi
        reach = self.settings.yaw_reach
        self._heading = yaw + np.clip(off, -reach, reach)

    def _decide(self, at: Situation) -> None:
        began = time.process_time()
        forces = self.law(at)
        self.seconds += time.process_time() - began
        found = np.asarray(np.isfinite(forces).all((1, 2)))
        self.decisions += at.worlds
        self.fallbacks += int((~found).sum())
        self._forces = np.where(found[:, None, None], forces, self._forces)
        self.decided = at, self._forces

    def _swing(
        self, reading: Reading, command: np.ndarray, phase: np.ndarray, late: np.ndarray, turn: np.ndarray
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
