# SPDX-License-Identifier: Apache-2.0
"""Stability of very long roll-outs: whether they stay finite, above the ground, and within plausible bounds.

Without comparison with the simulator, which no model can follow for that long. A world that becomes non-finite counts
as unstable from then on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core.progress import counted, tracked
from neurodyn.core.seeds import generator
from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.guard import Fault, state_fault
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.rollouts import ControlSequence
from neurodyn.evaluate.named_scenarios import Scenario, drive_at_random, passive, scenario
from neurodyn.evaluate.records import LongRun, Stability
from neurodyn.learn.devices import threads
from neurodyn.robots import Robot
from neurodyn.robots.plausible import PlausibleBounds

if TYPE_CHECKING:
    from neurodyn.geometry.proximity import ProximityQuery

FRAMES, WORLDS = 10_000, 64
DEEPEST = 0.25
"""Depth of a contact point in the ground at which the robot counts as fallen through [m]."""
_EVERY = 10
_CHUNK = 200


@dataclass
class _Watch:
    """Observations of each world so far, shape [worlds] each."""

    finite: Tensor  # whether all states were finite
    depth: Tensor  # of the deepest contact point [m]
    speed: Tensor  # largest of a joint or the base [rad/s, m/s]
    bounds: PlausibleBounds
    fault: Fault | None = None  # first departure from the bounds
    inside: Tensor | None = None  # whether all states were within the bounds; None: in all worlds
    frame: int = 0

    def bound(self, state: State) -> None:
        """Check a state against the bounds; called in every frame, because a state that blows up may return."""
        self.frame += 1
        outside = self.bounds.outside(state.q, state.qd)
        if not bool(outside.any()):
            return
        if self.fault is None:
            self.fault = state_fault(self.bounds, state, "", frame=self.frame)
        self.inside = ~outside if self.inside is None else self.inside & ~outside

    def look(self, state: State, proximity: "ProximityQuery | None", environment: Environment) -> None:
        """Update finiteness, speed and depth with a state."""
        fine = torch.isfinite(state.q).all(-1) & torch.isfinite(state.qd).all(-1)
        self.finite &= fine
        fastest = state.qd.abs().amax(-1)
        self.speed = torch.where(self.finite, torch.maximum(self.speed, fastest), self.speed)
        if proximity is None or environment.ground is None or not bool(fine.any()):
            return
        # Non-finite worlds are replaced by the first finite one, and their depths discarded.
        spare = int(fine.nonzero()[0])
        q = torch.where(self.finite[:, None] & fine[:, None], state.q, state.q[spare])
        readings = proximity(environment.ground, q, torch.zeros_like(state.qd), base_frame=False)
        deepest = torch.where(readings.valid, -readings.distance, -torch.inf).amax(-1)
        self.depth = torch.where(self.finite, torch.maximum(self.depth, deepest), self.depth)


def stability(
    model: Dynamics,
    robot: Robot,
    *,
    where: Scenario | None = None,
    worlds: int = WORLDS,
    frames: int = FRAMES,
    seed: int = 0,
) -> Stability:
    """Roll a model out for a long time, passively and under random control.

    A robot with gains is driven to random targets with its holding gains, other robots by random torques. `where` gives
    ground, initial states and controller; None for the robot's default ground.
    """
    where = scenario(robot) if where is None else where
    proximity, bounds = _proximity(robot, where), _bounds(model, robot)
    modes = ("passive", "driven") if robot.spec.nu else ("passive",)
    by_drive = {}
    for mode in tracked(modes):
        rng = generator(seed, "stability", mode)
        start, environment = where.begin(robot, worlds, rng)
        drives = _drives(robot, where, worlds, frames, rng if mode == "driven" else None)
        pieces = counted(drives, -(-frames // _CHUNK))
        with torch.no_grad(), threads(1):
            seen = _run(model, start, environment, pieces, proximity, bounds)
            by_drive[mode] = _shares(seen, proximity is not None)
    return Stability(
        frames=frames, worlds=worlds, deepest_allowed_m=DEEPEST, ground=where.name, passive=by_drive["passive"],
        driven=by_drive.get("driven", UNSET),
    )  # fmt: skip


def _drives(
    robot: Robot, where: Scenario, worlds: int, frames: int, rng: np.random.Generator | None
) -> Iterator[ControlSequence]:
    """Yield the controls in chunks of frames that fit into memory."""
    hold = where.hold if where.hold is not None or robot.gains is None else robot.hold_gains()
    for begin in range(0, frames, _CHUNK):
        length = min(_CHUNK, frames - begin)
        if rng is None:
            yield passive(robot, worlds, length, hold)
        else:
            yield drive_at_random(robot, worlds, length, rng, hold)


def _run(
    model: Dynamics,
    start: State,
    environment: Environment,
    pieces: Iterator[ControlSequence],
    proximity: "ProximityQuery | None",
    bounds: PlausibleBounds,
) -> _Watch:
    count = start.worlds
    watch = _Watch(torch.ones(count, dtype=torch.bool), torch.full((count,), -torch.inf), torch.zeros(count), bounds)
    here = start.to(model.device)
    carry, state, frame = model.begin(here, environment.to(model.device)), here, 0
    for piece in pieces:
        drive = piece.to(model.device)
        for k in range(drive.frames):
            carry, step = model.step_(carry, state, drive.at(k))
            state, frame = step.state, frame + 1
            watch.bound(state)
            if frame % _EVERY == 0:
                watch.look(state.to("cpu"), proximity, environment)
    watch.look(state.to("cpu"), proximity, environment)
    return watch


def _shares(watch: _Watch, grounded: bool) -> LongRun:
    stable = float((watch.finite & (watch.depth <= DEEPEST)).double().mean())
    return LongRun(
        finite_fraction=float(watch.finite.double().mean()),
        above_ground_fraction=stable if grounded else None,
        stable_fraction=stable,
        deepest_m=_greatest(watch.depth[watch.finite]) if grounded else None,
        greatest_speed=_greatest(watch.speed[watch.finite]),
        in_bounds_fraction=1.0 if watch.inside is None else float(watch.inside.double().mean()),
        first_out="" if watch.fault is None else watch.fault.words.removeprefix(": "),
    )


def _greatest(values: Tensor) -> float | None:
    return float(values.max()) if len(values) and bool(torch.isfinite(values.max())) else None


def _bounds(model: Dynamics, robot: Robot) -> PlausibleBounds:
    """Return the plausible bounds; velocities without a declared bound get one from the robot's energy."""
    from neurodyn.sim.energies import plausible_bounds
    from neurodyn.sim.simulators import articulation

    return plausible_bounds(robot, articulation(robot)).of_spec(model.spec)


def _proximity(robot: Robot, where: Scenario) -> "ProximityQuery | None":
    """Return a depth query for a robot with contact points on a ground; None otherwise."""
    if not where.grounded or robot.contact_points is None:
        return None
    from neurodyn.geometry.proximity import ProximityQuery
    from neurodyn.sim.contact_points import contact_point_layout
    from neurodyn.sim.simulators import articulation

    return ProximityQuery(contact_point_layout(articulation(robot), robot))
