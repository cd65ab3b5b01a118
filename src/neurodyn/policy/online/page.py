# SPDX-License-Identifier: Apache-2.0
"""OUT/report.html: returns in model and reference by round, the model's error, frames, and what ended episodes."""

from pathlib import Path

from neurodyn.core.artifacts import write_text
from neurodyn.policy.online.measure import SECONDS
from neurodyn.policy.online.record import OnlineResult, Round
from neurodyn.report.numbers import MISSING
from neurodyn.report.page import Table, cards, code, figure, folded, grid, header, page, paragraph, section
from neurodyn.report.plots import PREDICTED, THIRD, TRUTH, Curve, plot


def write_page(out: Path, result: OnlineResult) -> Path:
    """Write the page, atomically, and return its path.

    Raises:
        InputError: It cannot be written.
    """
    path = out / "report.html"
    write_text(path, render_page(out, result))
    return path


def render_page(out: Path, result: OnlineResult) -> str:
    """Return the page as HTML."""
    beginning = "a new model" if result.dynamics == "new" else result.dynamics
    body = [
        header(f"{result.task}: learned in turns with a {result.kind} model"),
        paragraph(f"From {beginning}; reference: {result.reference}. Verdict: {result.verdict}."),
        cards(_headline(result)),
        section("Rounds", grid(_plots(result)), rounds_table(result).html(), lead=_LEAD),
        section("Ends of episodes", ends_table(result).html()),
        section("Configuration", folded("config.yaml", code((out / "config.yaml").read_text("utf-8")))),
    ]
    return page(f"{result.task}: {out.name}", body)


_LEAD = (
    "Returns are without exploration noise, in whole episodes. The model's error is that on the log of the round's "
    f"policy, which it has not seen: velocities {SECONDS:g} s ahead, as a share of the persistence baseline's error."
)


def _headline(result: OnlineResult) -> list[tuple[str, str, str]]:
    best = result.rounds[result.best - 1]
    return [
        (
            f"{best.real.mean:.5g}",
            f"return in {result.reference}",
            f"{best.real.episodes} episodes, round {best.number}",
        ),
        (f"{best.imagined.mean:.5g}", "return in the model", f"{best.gap:.1%} apart"),
        (f"{result.frames:,}", "simulator frames", f"{result.first_frames:,} of them before the first policy"),
        (f"{result.cpu_seconds / 60:.1f}", "CPU-min", f"{len(result.rounds)} rounds"),
    ]


def _plots(result: OnlineResult) -> list[str]:
    rounds = result.rounds
    numbers = [float(one.number) for one in rounds]
    returns = [
        Curve("in the model", numbers, [one.imagined.mean for one in rounds], PREDICTED),
        Curve(f"in {result.reference}", numbers, [one.real.mean for one in rounds], TRUTH),
    ]
    errors = [(n, one.measured.model_error) for n, one in zip(numbers, rounds, strict=True) if one.measured]
    error = Curve(None, [n for n, e in errors if e is not None], [e for _, e in errors if e is not None], THIRD)
    shown = []
    for name, curves, caption in (
        ("returns", returns, "Return by round"),
        ("errors", [error], "Model error on the states of the round's policy"),
    ):
        svg = plot(name, curves, x_label="round", unit="", bars=True, description=caption)
        shown.append(figure(svg, caption))
    return shown


def rounds_table(result: OnlineResult) -> Table:
    """Return returns, errors and costs by round."""
    head = [
        "Round", "Return in the model", f"Return in {result.reference}", "Standard deviation", "Apart", "Model error",
        "Simulator frames", "Fit [CPU-s]", "Policy [CPU-s]", "Frames in the model",
    ]  # fmt: skip
    rows, frames = [], result.first_frames
    for one in result.rounds:
        frames += one.frames
        rows.append(_row(one, frames))
    return Table("Rounds", head, rows, strong=2)


def _row(one: Round, frames: int) -> list[str]:
    assert one.model is not None
    assert one.policy is not None
    assert one.measured is not None
    error = one.measured.model_error
    return [
        str(one.number), f"{one.imagined.mean:.5g}", f"{one.real.mean:.5g}", f"{one.real.std:.3g}", f"{one.gap:.1%}",
        MISSING if error is None else f"{error:.3g}", f"{frames:,}", f"{one.model.cpu_seconds:.0f}",
        f"{one.policy.cpu_seconds:.0f}", f"{one.policy.frames:,}",
    ]  # fmt: skip


def ends_table(result: OnlineResult) -> Table:
    """Return what ended episodes: implausible states, other failures, time."""
    rows = []
    for one in result.rounds:
        assert one.log is not None
        for where, found in (
            ("model", one.imagined),
            ("reference", one.real),
            ("reference, with noise", one.log.noisy),
        ):
            rows.append(
                [f"{one.number}, {where}", str(found.episodes), f"{found.length:.4g}", f"{found.implausible:.0%}",
                 f"{found.failed - found.implausible:.0%}", f"{1.0 - found.failed:.0%}"]
            )  # fmt: skip
    head = ["Round", "Episodes", "Length [frames]", "Implausible", "Other failures", "Time limit"]
    return Table("Ends of episodes", head, rows)
