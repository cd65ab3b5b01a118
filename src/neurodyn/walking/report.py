# SPDX-License-Identifier: Apache-2.0
"""The page of a quadruped that walks as commanded: errors, falls, times, and a film."""

from pathlib import Path

import numpy as np
from msgspec import UNSET, UnsetType

from neurodyn.core.artifacts import write_text
from neurodyn.dynamics.batch import Trajectory
from neurodyn.report.numbers import MISSING
from neurodyn.report.page import Table, cards, header, page, paragraph, section
from neurodyn.report.recording import Ended, Recording, film_of
from neurodyn.walking.plant import WalkingPlant
from neurodyn.walking.walk import WalkPath, WalkResult

LONGEST = 8.0
"""Length of the film on the page [s]."""


def walk_headline(result: WalkResult) -> str:
    """Return how well it walks, in a sentence."""
    fell = "no falls" if not result.falls else f"falls in {result.falls} of {result.episodes} episodes"
    limited = "" if result.foot_speed is UNSET else f"; commands scaled down to feet of {result.foot_speed:.2g} m/s"
    return f"follows velocities to {_shown(result.velocity_error)} m/s; {fell}{limited}"


def walk_tables(result: WalkResult) -> list[Table]:
    """Return errors and costs."""
    return [
        Table(
            f"{result.robot}: {result.gait} by {result.law} in {result.plant}, ground {result.ground}",
            ["Velocity error [m/s]", "momentary", "worst episode", "Yaw rate error [rad/s]", "Falls", "Episodes"],
            [[*map(_shown, (result.velocity_error, result.momentary_error, result.worst_velocity_error,
                            result.yaw_rate_error)), str(result.falls), f"{result.episodes} of {result.seconds:g} s"]],
        ),
        Table(
            "A decision on forces, for one world",
            ["CPU time [ms]", "Decisions", "without forces"],
            [[f"{result.decision_ms:.3g}", f"{result.decisions:,}", f"{result.fallbacks:,}"]],
        ),
    ]  # fmt: skip


def walk_film(plant: WalkingPlant, result: WalkResult, path: WalkPath) -> Recording:
    """Return a film of the first two episodes, or of one twice; each rests where it fell."""
    frames = 1 + min(path.command.shape[1], round(LONGEST / plant.dt))
    other = min(1, result.episodes - 1)
    first, second = (
        Trajectory(path.trajectory.q[row : row + 1, :frames], path.trajectory.qd[row : row + 1, :frames])
        for row in (0, other)
    )
    return Recording(
        robot=plant.robot,
        title=f"{result.gait} by {result.law} in {result.plant}, ground {result.ground}",
        predicted=first,
        truth=second,
        predicted_label="episode 1",
        truth_label=f"episode {other + 1}",
        worlds=(f"seed {result.seed}",),
        ground=path.environment.ground,
        ended=(Ended.when(path.standing[0], plant.dt, "falls"), Ended.when(path.standing[other], plant.dt, "falls")),
    )


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
            (f"{_shown(result.velocity_error)} m/s", "velocity error", f"of commands up to {asked:.2g} m/s"),
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


def _shown(error: float | UnsetType) -> str:
    return MISSING if error is UNSET else f"{error:.2g}"
