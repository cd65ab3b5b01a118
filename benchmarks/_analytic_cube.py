# SPDX-License-Identifier: Apache-2.0
"""The cube in Newton fitted to tosses: friction, stiffness and damping of contacts, and the length scale.

A small search on training tosses: random candidates first, then ever smaller steps from the best one.
"""

import math
import time
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from torch import Tensor

from neurodyn.core import generator
from neurodyn.data import Split, Store
from neurodyn.dynamics import AnalyticDynamics, Environment, State, Trajectory, Window
from neurodyn.dynamics.batch import present_state
from neurodyn.evaluate import beside_log
from neurodyn.geometry.tensors import Controls
from neurodyn.robots import Robot
from neurodyn.robots.sections import ContactMaterial

POSITION, ORIENTATION = 0.03, 0.3
"""Errors of equal weight in the search [m, rad]."""


@dataclass(frozen=True)
class Candidate:
    """Parameters of the analytic cube.

    The defaults are nominal: the friction given by the recording's authors, and MuJoCo's contact, which is critically
    damped.

    Attributes:
        friction: Coefficient of friction.
        stiffness: Stiffness of contacts per effective mass [1/s^2].
        ratio: Damping of contacts relative to critical damping; below 1 the cube bounces.
        scale: Recorded length over true length.
    """

    friction: float = 0.18
    stiffness: float = 2500.0
    ratio: float = 1.0
    scale: float = 1.0

    def material(self) -> ContactMaterial:
        """Return the contact as a robot declaration's material."""
        damping = 2.0 * self.ratio * math.sqrt(self.stiffness)
        return ContactMaterial(friction=self.friction, stiffness=self.stiffness, damping=damping)


BOUNDS = {"friction": (0.06, 0.4), "stiffness": (1e3, 1e5), "ratio": (0.15, 1.5), "scale": (0.92, 1.02)}


class ScaledDynamics(AnalyticDynamics):
    """Dynamics in true lengths that predict in recorded lengths; for scale-invariant grounds."""

    def __init__(self, robot: Robot, scale: float) -> None:
        super().__init__(robot)
        self.scale = scale

    def _rollout(self, context: State | Window, controls: Controls, environment: Environment | None) -> Trajectory:
        """Predict T frames; see `dynamics.interface.Dynamics`."""
        state = present_state(context)
        true = State(self._resized(state.q, 1 / self.scale), self._resized(state.qd, 1 / self.scale))
        found = super()._rollout(true, controls, environment)
        return Trajectory(self._resized(found.q, self.scale), self._resized(found.qd, self.scale))

    def _resized(self, values: Tensor, factor: float) -> Tensor:
        values = values.clone()
        values[..., :3] *= factor  # position, or velocity of the centre of mass
        return values


def dynamics(robot: Robot, candidate: Candidate) -> ScaledDynamics:
    """Return the analytic dynamics of a candidate."""
    fitted = msgspec.structs.replace(robot, material=candidate.material())
    return ScaledDynamics(fitted, candidate.scale)


def search(
    robot: Robot, store: Store, start: Candidate, *, first: int = 20, then: int = 30, seed: int = 0
) -> tuple[Candidate, dict[str, float]]:
    """Fit the analytic cube to the training tosses, each from its release.

    Args:
        robot: The declared cube.
        store: The tosses.
        start: Where the search starts.
        first: Random candidates.
        then: Candidates near the best one.
        seed: Seed of the candidates.

    Returns:
        The best candidate, and figures of the search.
    """
    rng = generator(seed, "contact search")
    begin = time.process_time()
    best, least = start, _cost(robot, store, start)
    nominal = least
    for index in range(first + then):
        reach = 0.5 ** (4.0 * max(0, index - first) / max(1, then))
        candidate = _random(rng) if index < first else _near(rng, best, 0.15 * reach)
        cost = _cost(robot, store, candidate)
        if cost < least:
            best, least = candidate, cost
            print(f"  {index + 1:3d}: cost {cost:.4f} (nominal {nominal:.4f}) {candidate}", flush=True)
    return best, {"cost_nominal": nominal, "cost_fitted": least, "search_cpu_s": time.process_time() - begin}


def _cost(robot: Robot, store: Store, candidate: Candidate) -> float:
    # One window per toss, from its release.
    model = dynamics(robot, candidate)
    found = beside_log(model, robot, store, split=Split.TRAIN, rollouts=1).plain()["releases"]
    if found["finite_fraction"] < 1.0:
        return math.inf
    return found["base_position_m"] / POSITION + found["base_orientation_rad"] / ORIENTATION


def _random(rng: np.random.Generator) -> Candidate:
    return _candidate({name: rng.uniform(*_logs(name)) for name in BOUNDS})


def _near(rng: np.random.Generator, center: Candidate, spread: float) -> Candidate:
    logs = {}
    for name in BOUNDS:
        low, high = _logs(name)
        logs[name] = float(np.clip(math.log(getattr(center, name)) + spread * (high - low) * rng.normal(), low, high))
    return _candidate(logs)


def _candidate(logs: dict[str, float]) -> Candidate:
    return replace(Candidate(), **{name: math.exp(value) for name, value in logs.items()})


def _logs(name: str) -> tuple[float, float]:
    low, high = BOUNDS[name]
    return math.log(low), math.log(high)
