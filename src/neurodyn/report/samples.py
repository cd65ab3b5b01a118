# SPDX-License-Identifier: Apache-2.0
"""Sample roll-outs: a moving picture, and coordinates over time, prediction over truth."""

from neurodyn.core.description.spec import StateSpec
from neurodyn.evaluate.records import Simulated
from neurodyn.report.film import film
from neurodyn.report.gather import Material
from neurodyn.report.page import figure, grid, heading, section
from neurodyn.report.plots import PREDICTED, TRUTH, Curve, Span, legend_list, plot
from neurodyn.report.recording import Recording
from neurodyn.report.words import capital

MOST_COORDINATES = 8


def moving(material: Material) -> str:
    """Return the moving picture."""
    if material.frames is None:
        return ""
    recording, frames = material.recordings[0], material.frames
    caption = (
        f"{material.result.about.robot}, {recording.title}: {recording.predicted_label} beside "
        f"{recording.truth_label}, {recording.worlds[0]}, in real time"
    )
    return section("In motion", film(frames, material.interval, caption))


def trajectories(material: Material) -> str:
    """Return plots of the sample roll-outs."""
    if not material.recordings:
        return ""
    first = material.recordings[0]
    legend = legend_list([(first.predicted_label, PREDICTED), (first.truth_label, TRUTH)])
    evaluated = material.result.about.horizon * material.result.about.dt
    parts = [part for k, r in enumerate(material.recordings) for part in trajectory_plots(r, f"sample-{k}", evaluated)]
    lead = (
        "The first roll-outs of the seed, not chosen by how well they went."
        if isinstance(material.result, Simulated)
        else "Windows drawn by seed from those in which the robot moves, not chosen by how well they went. The model "
        "sees the recorded torques and nothing of the recorded motion after time 0."
    )
    return section("Sample trajectories", legend, *parts, lead=lead)


def trajectory_plots(recording: Recording, name: str, evaluated: float | None = None) -> list[str]:
    """Return headings and plots of all roll-outs of a recording, position coordinates over time.

    Args:
        recording: The roll-outs.
        name: Beginning of the plots' names.
        evaluated: Horizon of the evaluation [s]; what lies beyond it is marked.
    """
    spec = recording.robot.spec
    seconds = [k * spec.dt for k in range(recording.frames + 1)]
    spans = []
    if evaluated is not None and evaluated < recording.seconds - spec.dt:
        spans = [Span(0.0, evaluated, "evaluated"), Span(evaluated, recording.seconds, "beyond the evaluation")]
    parts = []
    for world, where in enumerate(recording.worlds):
        plots = []
        for i, coordinate, unit in _shown(spec):
            truth, predicted = recording.truth.q[world, :, i], recording.predicted.q[world, :, i]
            curves = [
                Curve(recording.truth_label, seconds, truth.tolist(), TRUTH, "-", 4.0, 0.5),
                Curve(recording.predicted_label, seconds, predicted.tolist(), PREDICTED, "-", 1.2),
            ]
            caption = f"{coordinate} [{unit}]"
            svg = plot(
                f"{name}-{world}-{i}", curves, x_label="time [s]", unit="", legend=False, spans=spans,
                description=f"{coordinate} over time, {where}",
            )  # fmt: skip
            plots.append(figure(svg, caption))
        parts += [heading(f"{capital(recording.title)}: {where}"), grid(plots)]
    return parts


def _shown(spec: StateSpec) -> list[tuple[int, str, str]]:
    """Return the first coordinates that mean something to the eye: index, name, unit; no parts of quaternions."""
    named = [(i, *of) for i, of in enumerate(zip(spec.q_names, spec.q_units, strict=True)) if of[1] != "1"]
    return named[:MOST_COORDINATES]
