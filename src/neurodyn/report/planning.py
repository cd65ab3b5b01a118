# SPDX-License-Identifier: Apache-2.0
"""Pages of planners in closed loop: returns, times, errors of the model along the way, and an animation."""

from pathlib import Path

from msgspec import UNSET

from neurodyn.control.planning.closed_loop import ControlResult, ExecutedPath
from neurodyn.control.starts import home_ground
from neurodyn.core.artifacts import write_text
from neurodyn.core.config import to_yaml
from neurodyn.report.commands import commands_table
from neurodyn.report.numbers import MISSING
from neurodyn.report.page import Table, cards, code, fold, header, page, paragraph, section
from neurodyn.report.recording import Recording, film_of, two_episodes
from neurodyn.tasks import Task

LONGEST = 10.0
"""Length of the animation on the page [s]."""


def write_control_report(path: Path, task: Task, result: ControlResult, executed: ExecutedPath) -> None:
    """Write the page, atomically; raise an InputError if it cannot be written."""
    row = result.result
    body = [
        header(f"{result.task}: planned by {result.planner}"),
        paragraph(
            f"{row.episodes} episodes of {result.task}; {result.planner} plans in {result.model} and acts in "
            f"{result.plant}. Verdict: {result.verdict}."
        ),
        cards([
            (f"{row.mean:.5g}", f"return in {result.plant}", f"± {row.std:.3g}; {row.failed:.0%} failed"),
            (f"{result.decision_ms:.3g} ms", "a decision", f"a frame is {result.frame_ms:.3g} ms"),
            (f"{result.model_frames:,.0f}", "frames of the model for a decision",
             f"{result.gradient_frames:,.0f} of them differentiated"),
        ]),
        section("Figures", *(table.html() for table in control_tables(result) if table.rows)),
        section(
            "In motion",
            film_of(lambda: control_film(task, result, executed)),
            lead="Two episodes; not chosen by how well they went.",
        ),
        section("Settings", fold("settings", code(to_yaml(result.settings)))),
    ]  # fmt: skip
    write_text(path, page(f"{result.task}: {result.planner}", body))


def control_tables(result: ControlResult) -> list[Table]:
    """Return tables of returns, commands, the cost of planning, and the distance of the model from the plant."""
    row = result.result
    returns = Table(
        f"{result.task}: {result.planner} in {result.model}, on {result.plant}",
        ["Return", "Standard deviation", "Length [frames]", "Failed", "Success"],
        [[f"{row.mean:.5g}", f"{row.std:.3g}", f"{row.length:.4g}", f"{row.failed:.0%}",
          MISSING if row.success is UNSET else f"{row.success:.0%}"]],
    )  # fmt: skip
    costs = Table(
        "A decision, for one world",
        ["CPU time [ms]", "95 % [ms]", "Frame [ms]", "Frames of the model", "differentiated", "Refused by the model"],
        [[f"{result.decision_ms:.3g}", f"{result.decision_ms_95:.3g}", f"{result.frame_ms:.3g}",
          f"{result.model_frames:,.0f}", f"{result.gradient_frames:,.0f}",
          MISSING if result.refused is UNSET else f"{result.refused:.1%}"]],
    )  # fmt: skip
    errors = Table(
        "The model beside the plant, along the way",
        ["Frames ahead", "Position [rad or m]", "Velocity [rad/s or m/s]"],
        [
            [str(error.frames), f"{error.position:.3g}", f"{error.velocity:.3g}"]
            for error in ([] if result.model_error is UNSET else result.model_error)
        ],
    )
    return [returns, commands_table([row]), costs, errors]


def control_film(task: Task, result: ControlResult, executed: ExecutedPath) -> Recording:
    """Return an animation of the first two episodes, or of one twice; each stands still at its end."""
    return two_episodes(
        task.declaration(), executed.trajectory, executed.running, seed=result.seed, seconds=LONGEST, why="fails",
        title=f"{result.task}: {result.planner} plans in {result.model}, acts in {result.plant}",
        ground=home_ground(task).ground,
    )  # fmt: skip
