# SPDX-License-Identifier: Apache-2.0
"""The columns of a log by joint, and what they show without a model: rates, noise, accelerations by command."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.data.commands import DeclaredCommands
from neurodyn.data.header import Delay
from neurodyn.data.smoothing import smooth, smoothing_window
from neurodyn.data.store import Store

_MOST_ROWS = 100_000
_LEAST_SIGNAL = 3.0
"""Size of smoothed rates, in units of what the noise of positions makes of them, from which on they are motion."""
_THIRD = 20.0**0.5
"""Deviation of third differences of white noise, relative to the noise's."""
_WHITE, _WHITENESS, _MOST_COLOURED = (-0.75, 0.3, -0.05), 0.2, 0.01
"""Correlations of third differences of white noise at 1, 2, 3 rows, how far these may be from them, and the most noise
[rad or m] that is told otherwise."""
_NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
_RIDGE = 1e-3
_LEAST_ROWS, _FEWEST = 200, 50
"""Least numbers of rows for a regression, and for a correlation."""


@dataclass(frozen=True)
class LogColumns:
    """Columns of a log, and what is known of its robot.

    Attributes:
        spec: Names of the columns.
        rows: Positions, velocities and commands of all frames, shape [rows, nq + nv + nu].
        offsets: First row of each episode, and the number of rows, shape [episodes + 1].
        declared: What the robot's declaration says about commands.
        delays: Measured delays by stream.
        doubt: Why the delay of commands is not to be used (`readers.alignment.Doubt`); empty if it is.
        reason: What was measured of it, in words.
        logged_rates: Whether velocities were logged, not computed from positions.
    """

    spec: StateSpec
    rows: np.ndarray
    offsets: np.ndarray
    declared: DeclaredCommands = field(default_factory=DeclaredCommands)
    delays: Mapping[str, Delay] = field(default_factory=dict)
    doubt: str = ""
    reason: str = ""
    logged_rates: bool = True

    @classmethod
    def of(cls, store: Store, declared: DeclaredCommands) -> Self:
        """Return the columns of a store, of a long one those of its first episodes."""
        header, offsets = store.header, np.asarray(store.offsets)
        count = max(1, int(np.searchsorted(offsets, _MOST_ROWS)))
        offsets = offsets[: count + 1]
        alignment = header.notes.get("alignment") or {}
        return cls(
            header.spec, np.asarray(store.frames[0 : int(offsets[-1])], np.float64), offsets, declared, header.delays,
            alignment.get("doubt", ""), alignment.get("reason", ""), not header.differentiated,
        )  # fmt: skip

    @cached_property
    def joints(self) -> tuple[JointSpec, ...]:
        """The joints with one degree of freedom."""
        return tuple(joint for joint in self.spec.joints if joint.scalar)

    @cached_property
    def driven(self) -> tuple[JointSpec, ...]:
        """Those of them that have a command."""
        return tuple(joint for joint in self.joints if joint.name in self.spec.controls)

    def position(self, joint: str) -> np.ndarray:
        """Return the positions of a joint [rad or m], shape [rows]."""
        return self.rows[:, self.spec.q_names.index(joint)]

    def velocity(self, joint: str) -> np.ndarray:
        """Return the velocities of a joint [rad/s or m/s], shape [rows]."""
        return self.rows[:, self.spec.nq + self.spec.qd_names.index(joint)]

    def command(self, joint: str) -> np.ndarray:
        """Return the commands of a joint, held before the end of an episode, shape [rows]."""
        column = self.rows[:, self.spec.nq + self.spec.nv + self.spec.controls.index(joint)].copy()
        last = self.offsets[1:] - 1
        column[last] = column[np.maximum(last - 1, 0)]  # the last row of an episode has none
        return column

    @cached_property
    def inside(self) -> np.ndarray:
        """Rows whose smoothing window lies within their episode, shape [n]."""
        half = len(self._window) // 2 + 1
        parts = [np.arange(a + half, b - half) for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]
        return np.concatenate(parts) if parts else np.zeros(0, int)

    @cached_property
    def _window(self) -> np.ndarray:
        return smoothing_window(self.spec.dt, 3)

    def smooth(self, columns: np.ndarray) -> np.ndarray:
        """Return smoothed columns at the rows `inside`, shape [n, columns]."""
        return smooth(columns, self._window)[self.inside]

    @cached_property
    def steps(self) -> np.ndarray:
        """Changes of positions from row to row within episodes, shape [steps, joints]."""
        if not self.joints:
            return np.zeros((0, 0))
        q = np.stack([self.position(joint.name) for joint in self.joints], axis=1)
        change = np.diff(q, axis=0)
        turning = np.array([joint.continuous for joint in self.joints])
        change = np.where(turning, np.remainder(change + np.pi, 2 * np.pi) - np.pi, change)
        return np.delete(change, self.offsets[1:-1] - 1, axis=0)

    @cached_property
    def surprises(self) -> np.ndarray:
        """Changes of positions that logged velocities do not explain [rad or m], shape [steps, joints]."""
        if not self.logged_rates:
            return self.steps
        qd = np.stack([self.velocity(joint.name) for joint in self.joints], axis=1)
        mean = np.delete(0.5 * (qd[1:] + qd[:-1]), self.offsets[1:-1] - 1, axis=0)
        left = self.steps - self.spec.dt * mean
        odd = left.std(axis=0) > self.steps.std(axis=0)  # these velocities are none
        return np.where(odd, self.steps, left)

    @cached_property
    def noise(self) -> np.ndarray:
        """Noise of positions [rad or m], shape [joints]: of their third differences, or beside logged velocities."""
        third = np.diff(self.steps, n=2, axis=0)
        if not len(third):
            return np.zeros(len(self.joints))
        pairs = np.median(np.abs(self.surprises), axis=0) / 2.0**0.5
        size = _NORMAL * np.minimum(np.median(np.abs(third), axis=0) / _THIRD, pairs)
        power = (third**2).mean(axis=0) + 1e-30
        alike = [(third[k:] * third[:-k]).mean(axis=0) / power for k in range(1, len(_WHITE) + 1)]
        white = np.abs(np.array(alike) - np.array(_WHITE)[:, None]).max(axis=0) < _WHITENESS
        return np.where(white, size, np.minimum(size, _MOST_COLOURED))  # fast oscillations are motion

    @cached_property
    def rates(self) -> np.ndarray:
        """Smoothed rates of positions at the rows `inside` [rad/s or m/s], shape [n, joints]."""
        q = np.stack([np.unwrap(self.position(j.name)) if j.continuous else self.position(j.name) for j in self.joints])
        return self.smooth(np.gradient(q.T, self.spec.dt, axis=0))

    @cached_property
    def speeds(self) -> np.ndarray:
        """Smoothed velocities at the rows `inside` [rad/s or m/s], shape [n, joints]."""
        return self.smooth(np.stack([self.velocity(joint.name) for joint in self.joints], axis=1))

    @cached_property
    def moving(self) -> np.ndarray:
        """Which joints move by more than the noise of their positions lets them seem to, bool, shape [joints]."""
        if len(self.inside) < _FEWEST:
            return np.zeros(len(self.joints), bool)
        kernel = np.convolve(self._window, [0.5, 0.0, -0.5]) / self.spec.dt
        floor = np.maximum(self.noise, 1e-9) * np.sqrt((kernel**2).sum())
        return self.rates.std(axis=0) > _LEAST_SIGNAL * floor

    @cached_property
    def pushes(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Change of each driven joint's acceleration by each command, and in standard errors, shape [driven, driven].

        From a regression of smoothed accelerations on commands and the state, in units of their deviations; None if the
        log is too short for it.
        """
        names = [joint.name for joint in self.driven]
        if not names or len(self.inside) < max(_LEAST_ROWS, 20 * len(names)):
            return None
        command = np.stack([self.command(name) for name in names], axis=1)
        speed = np.stack([self.velocity(name) for name in names], axis=1)
        place = np.stack([self.position(name) for name in names], axis=1)
        features = np.concatenate((command, place, np.sin(place), np.cos(place), speed, np.sign(speed)), axis=1)
        x, y = self.smooth(features), self.smooth(np.gradient(speed, self.spec.dt, axis=0))
        x, y = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-12), (y - y.mean(axis=0)) / (y.std(axis=0) + 1e-12)
        inverse = np.linalg.inv(x.T @ x + _RIDGE * len(x) * np.eye(x.shape[1]))
        weights = inverse @ (x.T @ y)
        # Neighbours within the smoothing window tell the same.
        degrees = max(1.0, len(x) / len(self._window) - x.shape[1])
        variance = ((y - x @ weights) ** 2).sum(axis=0) / degrees
        error = np.sqrt(np.outer(inverse.diagonal(), variance)) * np.sqrt(len(self._window))
        n = len(names)
        return weights[:n].T, (weights[:n] / (error[:n] + 1e-12)).T

    def correlation(self, first: np.ndarray, second: np.ndarray) -> float:
        """Return the correlation of two columns; 0 if one is constant."""
        sizes = float(first.std() * second.std())
        return float(((first - first.mean()) * (second - second.mean())).mean()) / sizes if sizes > 1e-12 else 0.0
