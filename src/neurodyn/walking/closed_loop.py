# SPDX-License-Identifier: Apache-2.0
"""Episodes of a quadruped walking at commanded velocities: tracking errors, falls, and the cost of decisions.

Their page has errors, falls, times, and an animation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import UNSET, UnsetType

from neurodyn.core.artifacts import write_text
from neurodyn.core.config import Record
from neurodyn.core.progress import tracked
from neurodyn.core.verdict import MOST_FAILED, Finding, Verdict, combine_verdicts, of_failed, of_fallbacks
from neurodyn.dynamics.batch import Environment, State, Trajectory
from neurodyn.report.numbers import MISSING
from neurodyn.report.page import Table, cards, header, page, paragraph, section
from neurodyn.report.recording import Recording, film_of, two_episodes
from neurodyn.walking.controller import QuadrupedController
from neurodyn.walking.gait import Commands
from neurodyn.walking.plant import WalkingPlant, has_fallen

SETTLING = 1.0
"""Time at the start of an episode excluded from tracking errors [s]; at most half of it."""


class WalkResult(Record, frozen=True):
    """Episodes of a controller on a plant.

    Attributes:
        robot: Name of the robot.
        law: Name of the force law.
        gait: Name of the gait.
        plant: Name of the plant given by the user.
        ground: Name of the ground.
        seed: Seed of starts and commands.
        episodes: Number of episodes.
        seconds: Length of an episode [s].
        falls: Episodes that ended in a fall.
        decision_ms: Mean CPU time of a decision on forces for one world [ms].
        decisions: Decisions, over all worlds.
        fallbacks: Decisions without a solution, which kept the last forces.
        velocity_error: Norm of the difference between the centre-of-mass velocity, averaged over a gait cycle, and the
            command over that time, heading frame; mean over time and episodes, up to any fall [m/s]. UNSET, as all
            errors, if every episode falls at once.
        momentary_error: The same without averaging over a cycle [m/s].
        yaw_rate_error: Mean difference of yaw rates over a gait cycle [rad/s].
        worst_velocity_error: Largest `velocity_error` of an episode [m/s].
        foot_speed: Foot speed over the ground to which the controller scales commands down, as the drives' limit [m/s];
            errors are against the original commands. UNSET without scaling.
    """

    robot: str
    law: str
    gait: str
    plant: str
    ground: str
    seed: int
    episodes: int
    seconds: float
    falls: int
    decision_ms: float
    decisions: int
    fallbacks: int
    velocity_error: float | UnsetType = UNSET
    momentary_error: float | UnsetType = UNSET
    yaw_rate_error: float | UnsetType = UNSET
    worst_velocity_error: float | UnsetType = UNSET
    foot_speed: float | UnsetType = UNSET

    @property
    def verdict(self) -> Verdict:
        """Whether the controller is usable."""
        share = self.falls / self.episodes
        problems = [
            of_failed(share, "end in a fall", "give a lower --command, another --gait, or even --ground"),
            of_fallbacks(
                self.fallbacks, max(1, self.decisions), "forces", "give a lower --command, or another `solver`"
            ),
        ]
        if 0 < share <= MOST_FAILED:
            fell = f"falls in {self.falls} of {self.episodes} episodes"
            problems.append(
                Finding("falls", "warning", fell, "give a lower --command, or more --seconds to see how often")
            )
        judged = combine_verdicts(problems)
        return judged if judged.grade != "ok" else Verdict("ok", f"no falls in {self.episodes} episodes")

    def plain(self) -> dict[str, Any]:
        """Return the result as plain data for JSON, including the verdict."""
        return {**super().plain(), "verdict": str(self.verdict)}


@dataclass(frozen=True)
class WalkPath:
    """Executed motion of all worlds; a world stands still after a fall.

    Attributes:
        trajectory: The states.
        velocity: Velocity of the centre of mass, heading frame [m/s], shape [worlds, frames, 3].
        yaw_rate: Yaw rate [rad/s], shape [worlds, frames].
        command: Commanded velocities and yaw rate, shape [worlds, frames, 3].
        standing: Whether it had not fallen, shape [worlds, frames].
        environment: The ground.
    """

    trajectory: Trajectory
    velocity: np.ndarray
    yaw_rate: np.ndarray
    command: np.ndarray
    standing: np.ndarray
    environment: Environment


@torch.no_grad()
def walk(
    plant: WalkingPlant,
    controller: QuadrupedController,
    commands: Commands,
    *,
    seconds: float,
    seed: int,
    names: tuple[str, str] = ("mpc", "trot"),
    disturb: Callable[[State, int], State] | None = None,
    watch: Callable[[np.ndarray, int], None] | None = None,
) -> tuple[WalkResult, WalkPath]:
    """Walk for one episode in each of a number of worlds in parallel.

    Args:
        plant: The plant to walk in.
        controller: The controller, which is reset.
        commands: Commands by world.
        seconds: Length of an episode [s].
        seed: Seed of the starts.
        names: Names of the force law and the gait.
        disturb: Changes states by frame before they are measured, for example by pushes.
        watch: Called after each decision on forces with the standing worlds and the frame number.
    """
    worlds, frames = len(commands.targets), max(1, round(seconds / plant.dt))
    state, environment = plant.starts(worlds, seed)
    start = state
    carry = plant.dynamics.begin(state, environment)
    controller.reset()
    decisions, fallbacks, spent = controller.decisions, controller.fallbacks, controller.seconds
    command, standing = np.zeros((worlds, 3)), np.ones(worlds, bool)
    states, velocities, rates, asked, upright = [state], [], [], [], []
    for frame in tracked(range(frames)):
        time = frame * plant.dt
        command = commands.follow(command, time, plant.dt)
        if disturb is not None:
            state = disturb(state, frame)
        control = controller.act(state, command)
        reading = controller.reading
        assert reading is not None
        down = has_fallen(plant.quadruped, reading.com, reading.rpy[:, :2], reading.feet)
        standing = standing & ~down
        if watch is not None and controller.just_decided:
            watch(standing, frame)
        velocities.append(reading.heading_velocity)
        rates.append(reading.spin[:, 2])
        asked.append(command)
        upright.append(standing)
        carry, step = plant.dynamics.step(carry, state, control)
        state = step.state
        up = torch.as_tensor(standing)
        states.append(state.where(up, states[-1]))
        if down.any():  # the worlds no longer count, but must stay valid
            state = start.where(torch.as_tensor(down), state)
            carry = plant.dynamics.reset(carry, start, torch.as_tensor(down))
            command = np.where(down[:, None], 0.0, command)
            controller.reset(down)
        if not standing.any():
            break
    path = WalkPath(
        Trajectory.of_states(states), np.stack(velocities, 1), np.stack(rates, 1), np.stack(asked, 1),
        np.stack(upright, 1), environment,
    )  # fmt: skip
    cycle = max(1, round(controller.gait.period / plant.dt))
    errors = tracking_errors(path, round(min(SETTLING, 0.5 * seconds) / plant.dt), cycle)
    decided = controller.decisions - decisions
    result = WalkResult(
        robot=plant.robot.name, law=names[0], gait=names[1], plant=plant.name, ground=plant.ground, seed=seed,
        episodes=worlds, seconds=seconds, falls=int((~standing).sum()), **errors,
        decision_ms=1e3 * (controller.seconds - spent) / max(1, decided), decisions=decided,
        fallbacks=controller.fallbacks - fallbacks,
        foot_speed=controller.swing.speed if np.isfinite(controller.swing.speed) else UNSET,
    )  # fmt: skip
    return result, path


def tracking_errors(path: WalkPath, settling: int, cycle: int) -> dict[str, float | UnsetType]:
    """Return velocity errors against the commands, by name as in `WalkResult`; UNSET if nothing counts.

    Args:
        path: Executed motion.
        settling: Frames excluded at the start.
        cycle: Frames of a gait cycle.
    """
    off = np.concatenate([path.velocity[..., :2] - path.command[..., :2],
                          (path.yaw_rate - path.command[..., 2])[..., None]], -1)  # fmt: skip
    off, counts = off[:, settling:], path.standing[:, settling:]
    cycle = min(cycle, max(1, off.shape[1]))
    sums = np.concatenate([np.zeros_like(off[:, :1]), np.cumsum(np.where(counts[..., None], off, 0.0), 1)], 1)
    over_cycle = (sums[:, cycle:] - sums[:, :-cycle]) / cycle
    whole = counts[:, cycle - 1 :]
    size = np.linalg.norm(over_cycle[..., :2], axis=-1)

    def mean(values: np.ndarray, mask: np.ndarray) -> float | UnsetType:
        return float(values[mask].mean()) if mask.any() else UNSET

    by_world = [float(one[there].mean()) for one, there in zip(size, whole, strict=True) if there.any()]
    return {
        "velocity_error": mean(size, whole),
        "momentary_error": mean(np.linalg.norm(off[..., :2], axis=-1), counts),
        "yaw_rate_error": mean(np.abs(over_cycle[..., 2]), whole),
        "worst_velocity_error": max(by_world, default=UNSET),
    }


LONGEST = 8.0
"""Length of the animation on the page [s]."""


def walk_headline(result: WalkResult) -> str:
    """Return the tracking error and the falls, in a sentence."""
    fell = "no falls" if not result.falls else f"falls in {result.falls} of {result.episodes} episodes"
    limited = "" if result.foot_speed is UNSET else f"; commands scaled down to feet of {result.foot_speed:.2g} m/s"
    return f"follows velocities to {_error_text(result.velocity_error)} m/s; {fell}{limited}"


def walk_tables(result: WalkResult) -> list[Table]:
    """Return tables of errors and costs."""
    return [
        Table(
            f"{result.robot}: {result.gait} by {result.law} in {result.plant}, ground {result.ground}",
            ["Velocity error [m/s]", "momentary", "worst episode", "Yaw rate error [rad/s]", "Falls", "Episodes"],
            [[*map(_error_text, (result.velocity_error, result.momentary_error, result.worst_velocity_error,
                            result.yaw_rate_error)), str(result.falls), f"{result.episodes} of {result.seconds:g} s"]],
        ),
        Table(
            "A decision on forces, for one world",
            ["CPU time [ms]", "Decisions", "without forces"],
            [[f"{result.decision_ms:.3g}", f"{result.decisions:,}", f"{result.fallbacks:,}"]],
        ),
    ]  # fmt: skip


def walk_film(plant: WalkingPlant, result: WalkResult, path: WalkPath) -> Recording:
    """Return an animation of the first two episodes, or of one twice; each stands still after a fall."""
    return two_episodes(
        plant.robot, path.trajectory, path.standing, seed=result.seed, seconds=LONGEST, why="falls",
        title=f"{result.gait} by {result.law} in {result.plant}, ground {result.ground}",
        ground=path.environment.ground,
    )  # fmt: skip


def write_walk_report(path: Path, plant: WalkingPlant, result: WalkResult, walked: WalkPath) -> None:
    """Write the page, atomically.

    Raises:
        InputError: It cannot be written.
    """
    asked = np.linalg.norm(walked.command[..., :2], axis=-1).max()
    lead = (
        f"{result.episodes} episodes of {result.seconds:g} s; commands up to {asked:.2g} m/s and "
        f"{np.abs(walked.command[..., 2]).max():.2g} rad/s. Verdict: {result.verdict}."
    )
    body = [
        header(f"{result.robot}: {result.gait} by {result.law}"),
        paragraph(lead),
        cards([
            (f"{_error_text(result.velocity_error)} m/s", "velocity error", f"of commands up to {asked:.2g} m/s"),
            (f"{result.falls}", "falls", f"in {result.episodes} episodes of {result.seconds:g} s"),
            (f"{result.decision_ms:.2g} ms", "a decision on forces", f"{result.fallbacks:,} without forces"),
        ]),
        section("Figures", *(table.html() for table in walk_tables(result))),
        section(
            "In motion", film_of(lambda: walk_film(plant, result, walked)),
            lead="Two episodes; not chosen by how well they went.",
        ),
    ]  # fmt: skip
    write_text(path, page(f"{result.robot}: {result.gait}", body))


def _error_text(error: float | UnsetType) -> str:
    return MISSING if error is UNSET else f"{error:.2g}"
