# SPDX-License-Identifier: Apache-2.0
"""The page of a planner on a plant: returns, times, errors of the model along the way, and a film."""

from pathlib import Path as FilePath

from msgspec import UNSET

from neurodyn.control.planning.closed_loop import ControlResult, Path
from neurodyn.control.starts import home_ground
from neurodyn.core.artifacts import write_text
from neurodyn.core.config import to_yaml
from neurodyn.dynamics.batch import Trajectory
from neurodyn.report.numbers import MISSING
from neurodyn.report.page import Table, cards, code, folded, header, page, paragraph, section
from neurodyn.report.recording import Ended, Recording, film_of
from neurodyn.tasks import Task

LONGEST = 10.0
"""Length of the film on the page [s]."""


def write_control_report(path: FilePath, task: Task, result: ControlResult, found: Path) -> None:
    """Write the page, atomically.

    Raises:
        InputError: It cannot be written.
    """
    write_text(path, render_control_report(task, result, found))


def render_control_report(task: Task, result: ControlResult, found: Path) -> str:
    """Return the page as HTML."""
    lead = (
        f"{result.result.episodes} episodes of {result.task}; {result.planner} plans in {result.model} and acts in "
        f"{result.plant}. Verdict: {result.verdict}."
    )
    body = [
        header(f"{result.task}: planned by {result.planner}"),
        paragraph(lead),
        cards(_headline(result)),
        section("Figures", *(table.html() for table in control_tables(result) if table.rows)),
        section(
            "In motion",
            film_of(lambda: control_film(task, result, found)),
            lead="Two episodes; not chosen by how well they went.",
        ),
        section("Settings", folded("settings", code(to_yaml(result.settings)))),
    ]
    return page(f"{result.task}: {result.planner}", body)


def control_tables(result: ControlResult) -> list[Table]:
    """Return what the episodes earned, what planning cost, and how far the model is from the plant."""
    row = result.result
    returns = Table(
        f"{result.task}: {result.planner} in {result.model}, on {result.plant}",
        ["Return", "Standard deviation", "Length [frames]", "Failed", "Success"],
        [[f"{row.mean:.5g}", f"{row.std:.3g}", f"{row.length:.4g}", f"{row.failed:.0%}",
          MISSING if row.success is UNSET else f"{row.success:.0%}"]],
    )  # fmt: skip
    costs = Table(
        "A decision, for one world",
        ["CPU time [ms]", "95 % [ms]", "Frame [ms]", "Frames of the model", "differentiated"],
        [[f"{result.decision_ms:.3g}", f"{result.decision_ms_95:.3g}", f"{result.frame_ms:.3g}",
          f"{result.model_frames:,.0f}", f"{result.gradient_frames:,.0f}"]],
    )  # fmt: skip
    errors = Table(
        "The model beside the plant, along the way",
        ["Frames ahead", "Position [rad or m]", "Velocity [rad/s or m/s]"],
        [
            [str(error.frames), f"{error.position:.3g}", f"{error.velocity:.3g}"]
            for error in ([] if result.model_error is UNSET else result.model_error)
        ],
    )
    return [returns, costs, errors]


def control_film(task: Task, result: ControlResult, found: Path) -> Recording:
    """Return a film of the first two episodes, or of one twice; each rests where it ended."""
    other = min(1, len(found.trajectory.q) - 1)
    dt = task.declaration().dt
    frames = 1 + min(found.control.shape[1], round(LONGEST / dt))
    first, second = (
        Trajectory(found.trajectory.q[row : row + 1, :frames], found.trajectory.qd[row : row + 1, :frames])
        for row in (0, other)
    )
    return Recording(
        robot=task.declaration(),
        title=f"{result.task}: {result.planner} plans in {result.model}, acts in {result.plant}",
        predicted=first,
        truth=second,
        predicted_label="episode 1",
        truth_label=f"episode {other + 1}",
        worlds=(f"seed {result.seed}",),
        ground=home_ground(task).ground,
        ended=(Ended.when(found.running[0], dt, "fails"), Ended.when(found.running[other], dt, "fails")),
    )


def _headline(result: ControlResult) -> list[tuple[str, str, str]]:
    row = result.result
    return [
        (f"{row.mean:.5g}", f"return in {result.plant}", f"± {row.std:.3g}; {row.failed:.0%} failed"),
        (f"{result.decision_ms:.3g} ms", "a decision", f"a frame is {result.frame_ms:.3g} ms"),
        (f"{result.model_frames:,.0f}", "frames of the model for a decision", f"{result.gradient_frames:,.0f} of them "
         "differentiated"),
    ]  # fmt: skip
