# SPDX-License-Identifier: Apache-2.0
"""The page of the board of real robots: table and pictures between two marks of docs/real-robots.md."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from neurodyn.core import read_json

MODELS = {
    "declared": "declared", "hold_last": "persistence", "constant_velocity": "constant velocity", "gru": "GRU",
    "adapt": "`adapt`", "any": "`--kind any`",
}  # fmt: skip
TIE = 1.05
"""Ratio of errors within which two models tie."""
BEGIN, END = "<!-- board: written by benchmarks/board.py -->", "<!-- end of board -->"


def leads(row: dict, k: int, model: str = "adapt") -> bool:
    """Return whether an adaptation leads or ties at a horizon, in all groups of errors."""
    mine = row["models"].get(model)
    if mine is None:
        return False
    for group, errors in mine["at"].items():
        others = [one["at"][group][k] for name, one in row["models"].items() if name not in ("adapt", "any")]
        best = min((error for error in others if error is not None), default=None)
        if errors[k] is None or (best is not None and errors[k] > TIE * best):
            return False
    return True


def agrees(row: dict) -> bool | None:
    """Return whether what `evaluate` says is better than the adaptation is so in the table; None where it did not run.

    It warns of others if and only if the adaptation does not lead or tie at all horizons.
    """
    if "better" not in row:
        return None
    return bool(row["better"]) != all(leads(row, k) for k in range(len(row["seconds"])))


def worse_than_declared(row: dict) -> bool:
    """Return whether `adapt` is worse than the declaration anywhere."""
    mine, declared = row["models"].get("adapt"), row["models"]["declared"]
    return mine is not None and any(
        error is not None and other is not None and error > TIE * other
        for group, errors in mine["at"].items()
        for error, other in zip(errors, declared["at"][group], strict=True)
    )


def table(titles: Mapping[str, tuple[str, str]], rows: Mapping[str, dict]) -> str:
    """Return the table of all rows: errors at each row's horizons, the leading model in bold."""
    lines = [
        f"| robot | held out | at | {' | '.join(MODELS.values())} | CPU s | verdict | better, says `evaluate` |",
        f"|---|---|---|{'---|' * (len(MODELS) + 3)}",
    ]
    for name, (title, held_out) in titles.items():
        row, first = rows[name], True
        for k, seconds in enumerate(row["seconds"]):
            for group in row["models"]["declared"]["at"]:
                values = {model: row["models"][model]["at"][group][k] for model in MODELS if model in row["models"]}
                best = min((value for value in values.values() if value is not None), default=0.0)
                cells = [cell(values[model], best) if model in values else "" for model in MODELS]
                ends = [""] * 3
                if first:
                    better = ", ".join(row["better"]) or "none" if "better" in row else ""
                    ends = [f"{row['cpu_s']:.0f}", (row["verdict"] or "fails").partition(":")[0], better]
                where = f"{seconds:g} s, {what(group)}"
                begin = [title, held_out] if first else ["", ""]
                lines.append(f"| {' | '.join([*begin, where, *cells, *ends])} |")
                first = False
    last = sum(leads(row, -1) for row in rows.values())
    everywhere = sum(all(leads(row, k) for k in range(len(row["seconds"]))) for row in rows.values())
    worse = [titles[name][0] for name, row in rows.items() if worse_than_declared(row)]
    network = sum(leads(row, -1, "any") for row in rows.values())
    judged = [one for row in rows.values() if (one := agrees(row)) is not None]
    told = (
        f"`adapt` leads or ties (within 5 %) on {last} of {len(rows)} robots at the last horizon, on {everywhere} at "
        f"all of them; with `--kind any` it leads or ties on {network} at the last. Worse than the declaration "
        f"at any horizon: {', '.join(worse) or 'none'}. `neurodyn evaluate` beside the network warns of better models "
        f"where the table has one, and only there, on {sum(judged)} of {len(judged)} robots on which it ran."
    )
    return "\n".join([*lines, "", *textwrap.wrap(told, 120)])


def what(group: str) -> str:
    """Return a group of errors in words, with its unit in thousandths."""
    return {"base [m]": "base, mm", "base [rad]": "base, mrad"}.get(group, "joints, mrad")


def cell(value: float | None, best: float) -> str:
    """Return an error in thousandths, in bold if it is the best or ties with it."""
    if value is None:
        return "not finite"
    text = f"{1000.0 * value:.3g}" if value < 10 else "diverges"
    return f"**{text}**" if value <= TIE * best else text


def read_table(text: str, titles: Mapping[str, tuple[str, str]]) -> dict[str, dict]:
    """Return the rows of a page's table, as far as it tells them, by name."""
    names = {title: name for name, (title, _) in titles.items()}
    rows: dict[str, dict] = {}
    for line in text.splitlines():
        cells = [cell.strip().replace("*", "") for cell in line.strip("|").split("|")]
        if len(cells) != len(MODELS) + 6 or " s, " not in cells[2]:
            continue
        if cells[0]:
            row = rows[names[cells[0]]] = {
                "seconds": [], "models": {}, "cpu_s": float(cells[-3]), "verdict": cells[-2].replace("fails", ""),
            }  # fmt: skip
            if cells[-1]:
                row["better"] = [] if cells[-1] == "none" else cells[-1].split(", ")
        seconds, unit = cells[2].split(" s, ")
        if float(seconds) not in row["seconds"]:
            row["seconds"].append(float(seconds))
        group = {"base, mm": "base [m]", "base, mrad": "base [rad]"}.get(unit, "joints [rad or m]")
        for model, value in zip(MODELS, cells[3:-3], strict=True):
            if value:
                known = {"not finite": None, "diverges": 10.0}
                errors = row["models"].setdefault(model, {"at": {}})["at"].setdefault(group, [])
                errors.append(known[value] if value in known else 1e-3 * float(value))
    return rows


def write_page(page: Path, titles: Mapping[str, tuple[str, str]], measured: Mapping[str, dict], keep: Path) -> None:
    """Write table and pictures between the page's marks; pictures of runs in `keep` go into images/ beside the page.

    Rows that were not measured stay as they are.
    """
    text = page.read_text()
    begin, rest = text.split(BEGIN)
    before, end = rest.split(END)
    every = read_table(before, titles) | dict(measured)
    rows = {name: every[name] for name in titles if name in every}
    titles = {name: titles[name] for name in rows}
    pictures = []
    for name in rows:
        file = page.parent / "images" / f"board-{name}.svg"
        if name in measured and (keep / name / "run" / "forecasts.json").is_file():
            draw(read_json(keep / name / "run" / "forecasts.json"), titles[name][0], file)
        if file.is_file():
            pictures.append(f"![{titles[name][0]}: log and models](images/{file.name})")
    words = "\n".join([*PICTURES, "", *pictures])
    page.write_text(f"{begin}{BEGIN}\n{table(titles, rows)}\n\n{words}\n{END}{end}")


PICTURES = (
    "The held-out window with the median error of each adaptation, and in it the coordinate that the declaration",
    "predicts worst: the log, and what declaration, adapted model and GRU predict of it from its first state on.",
)


def draw(found: Mapping[str, Any], title: str, path: Path) -> None:
    """Draw the curves of an adaptation's page (forecasts.json): log, declared, adapted, GRU."""
    window = next(one for one in found["windows"] if one["which"] == "typical")
    paths, log, seconds = window["paths"], window["logged"], found["seconds"]
    gaps = [
        max(abs(a - b) for a, b in zip(path, truth, strict=True) if a is not None)
        for path, truth in zip(paths["declared"], log, strict=True)
    ]
    k = gaps.index(max(gaps))
    low, high = min(log[k]), max(log[k])
    best = found["chosen"] if found["chosen"] in paths and found["chosen"] != "declared" else "identified"
    lines = (("declared", "declared", "#f76707"), ("gru", "GRU", "#adb5bd"), (best, "adapted", "#1c7ed6"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 8.0}):
        figure = Figure(figsize=(3.6, 2.0), layout="constrained")
        axes = figure.subplots()
        axes.plot(seconds, log[k], color="black", linewidth=2.5, label="log")
        for name, label, colour in lines:
            if name in paths:
                axes.plot(seconds, paths[name][k], color=colour, label=label)
        room = 0.6 * max(high - low, 1e-6)
        axes.set_ylim(low - room, high + room)
        axes.set_title(title, fontsize=9.0)
        axes.set_xlabel("s")
        axes.set_ylabel(f"{found['names'][k]} [{found['units'][k]}]")
        axes.legend(fontsize=6.0, ncols=2)
        figure.savefig(path, metadata={"Date": None})
