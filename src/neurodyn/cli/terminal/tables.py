# SPDX-License-Identifier: Apache-2.0
"""Tables that fit the terminal.

Numbers are never cut, words wrap, and columns that do not fit continue below.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from neurodyn.cli.terminal.console import terminal
from neurodyn.core.verdict import Finding

if TYPE_CHECKING:
    from neurodyn.data.store import Store
    from neurodyn.sim.declaration.declare import Decision


_GAP = 3
_WORDS = 16
"""Width up to which a cell stays on one line."""
_FIRST = 0.45
"""Maximum share of the width for the first column, which names the rows."""

Cell = str | Text


def print_table(console: Console, head: Sequence[str], rows: Sequence[Sequence[Cell]], title: str = "") -> None:
    """Print a table, split into blocks if its columns do not fit side by side.

    The first column names the rows, and every block starts with it.
    """
    for number, columns in enumerate(_blocks(head, rows, console.width)):
        table = Table(
            title=title if not number else None, title_justify="left", title_style="bold", box=SIMPLE_HEAD,
            pad_edge=False, show_edge=False,
        )  # fmt: skip
        for column, width in zip(columns, _widths(columns, head, rows, console.width), strict=True):
            table.add_column(head[column], width=width, overflow="fold")
        for row in rows:
            table.add_row(*(row[column] for column in columns))
        console.print(table, soft_wrap=False)
        console.print()


def _blocks(head: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[list[int]]:
    least = [_least(column, head, rows, width) for column in range(len(head))]
    blocks, used = [[0]], least[0]
    for column in range(1, len(head)):
        if used + _GAP + least[column] > width and len(blocks[-1]) > 1:
            blocks.append([0])
            used = least[0]
        blocks[-1].append(column)
        used += _GAP + least[column]
    return blocks


def _widths(columns: list[int], head: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[int]:
    """Return the column widths of a block: their preferred widths as far as there is room."""
    widths = [_least(column, head, rows, width) for column in columns]
    wanted = [max(cell_len(str(cell)) for cell in (head[c], *(row[c] for row in rows))) for c in columns]
    room = width - sum(widths) - _GAP * (len(columns) - 1)
    while room > 0 and (narrow := [i for i in range(len(columns)) if widths[i] < wanted[i]]):
        widths[min(narrow, key=lambda i: wanted[i] - widths[i])] += 1  # columns that lack least come first
        room -= 1
    return widths


def _least(column: int, head: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> int:
    """Return the width below which a column would cut a word or a number."""
    cells = [str(row[column]) for row in rows]
    whole = max(map(cell_len, cells), default=0)
    longest_word = max((cell_len(word) for cell in [head[column], *cells] for word in cell.split()), default=0)
    if column == 0:
        return min(max(whole, longest_word), int(_FIRST * width))
    return min(max(longest_word, min(whole, _WORDS)), int(_FIRST * width))


_MOST_DELAYS = 24
"""Most rows of the table of delays."""


def print_import(store: "Store", out: Path) -> None:
    """Print the result of `neurodyn import`."""
    from neurodyn.data.inspection import counts

    console = terminal(soft_wrap=True)
    data = counts(store)
    if "rates_hz" in data["log"]:  # row layouts come at the robot's frames, already aligned
        _print_log(console, data)
    splits = ", ".join(f"{c['episodes']} {name}" for name, c in data["splits"].items() if c["episodes"])
    console.print(
        f"{data['transitions']:,} frames of {data['dt_s']:g} s in {data['episodes']} episodes ({splits}), "
        f"{out.stat().st_size / 1e6:.1f} MB: {out}"
    )
    _print_sensors(console, data)
    for one in store.header.findings:
        console.print(f"{one.name}: {one}", markup=False)


def _print_sensors(console: Console, data: dict[str, Any]) -> None:
    if data["sensors"]:
        shares = ", ".join(f"{name} in {share:.0%} of frames" for name, share in data["sensors"].items())
        console.print(f"readings: {shares}")


def print_inspection(data: dict[str, Any]) -> None:
    """Print a `data.inspection.inspect_store` result."""
    console = terminal(soft_wrap=True)
    length = data["length"]
    console.print(
        f"{data['robot']} ({data['source']}, seed {data['seed']}): {data['transitions']:,} transitions of "
        f"{data['dt_s']:.4g} s ({data['duration_s'] / 60:.1f} minutes) in {data['episodes']:,} episodes of "
        f"{length['min']} to {length['max']} (median {length['median']:g})"
    )
    for what in ("splits", "ends"):
        parts = [f"{name} {c['episodes']:,} ({c['transitions']:,})" for name, c in data[what].items() if c["episodes"]]
        console.print(f"{what}, episodes (transitions): {', '.join(parts)}")
    _print_sensors(console, data)
    for one in (data["log"] or {}).get("findings", []):
        console.print(f"{one['name']}: {Finding(**one)}", markup=False)
    rows = []
    for c in data["coordinates"]:
        if "min" in c:
            numbers = [f"{c[key]:.3g}" for key in ("min", "mean", "max", "std")]
            interval = "-" if c["range"] is None else f"{c['range'][0]:.3g}..{c['range'][1]:.3g}"
            covered, outside = f"{c['coverage']:.0%}", f"{c['outside']:.1%}"
            rows.append((f"{c['what']} {c['name']}", c["unit"], *numbers, interval, covered, outside))
    print_table(console, ("", "unit", "min", "mean", "max", "std", "range", "covered", "outside"), rows)
    planes = ", ".join(f"{name} {fraction:.0%}" for name, fraction in data["planes"].items())
    if planes:
        console.print(f"covered part of the plane of position and velocity: {planes}")
    if data["ground"]:
        ground = data["ground"]
        height, tilt = ([f"{x:.3g}" for x in ground[key]] for key in ("height", "tilt"))
        console.print(
            f"ground: {', '.join(ground['shapes']) or 'nothing'} at {ground['poses']:,} poses, "
            f"height {'..'.join(height)} m, tilt {'..'.join(tilt)} rad; contact points: {ground['probes'] or 'none'}"
        )
    if data["rewards"]:
        frame, whole = ({key: f"{x:.4g}" for key, x in data["rewards"][name].items()} for name in ("frame", "return"))
        console.print(
            f"reward of a frame {frame['min']}..{frame['max']} (mean {frame['mean']}), return of an episode "
            f"{whole['min']}..{whole['max']} (mean {whole['mean']})"
        )
        for name, value in data["rewards"]["groups"].items():
            console.print(f"mean return of {name}: {value:.4g}")
    if "rates_hz" in (data["log"] or {}):  # row layouts, and data written by scripts, have no rates
        _print_log(console, data)


def print_log(data: dict[str, Any]) -> None:
    """Print a `data.inspection.inspect_log` result."""
    console = terminal(soft_wrap=True)
    say = partial(console.print, highlight=False)
    runs = f"{data['runs']} run" + "s" * (data["runs"] != 1)
    say(f"{data['log']}: {data['what']}, {runs}")
    for topic in data["topics"]:
        title = " ".join(part for part in (topic["name"], topic["type"]) if part)
        if topic["trouble"]:
            say(f"{title}: {topic['trouble']}")
            continue
        rate = f"{topic['rate_hz']:.4g} Hz" if topic.get("rate_hz") else "no rate"
        slowest = f", slowest step {topic['slowest_hz']:.3g} Hz" if topic.get("slowest_hz") else ""
        pauses = f", {topic['gaps']} gaps" if topic.get("gaps") else ""
        back = f", clock runs backwards {topic['backwards']} times" if topic.get("backwards") else ""
        rows = "" if topic["rows"] is None else f"{topic['rows']:,} rows, "
        say(f"{title}: {rows}clock: {topic['clock']}, {rate}{slowest}{pauses}{back}")
        rows = []
        for column in topic["columns"]:
            if column.get("min") is not None:
                numbers = [f"{column[key]:.3g}" for key in ("min", "mean", "max")]
                unit = f"{column['unit']}?" if column["unit"] else ""
                rows.append((column["name"], *numbers, unit, str(column["missing"] or "")))
        if rows:
            print_table(console, ("column", "min", "mean", "max", "unit", "missing"), rows)
    for line in data["doubts"]:
        say(f"note: {line}")
    for what in data["absent"]:
        say(f"no column was found for {what}")


def _print_log(console: Console, data: dict[str, Any]) -> None:
    notes = data["log"]
    rows = []
    for name, rates in notes["rates_hz"].items():
        frames = data["groups"].get(name, data)["transitions"]
        remark = "interpolated" if name in notes["interpolated_groups"] else ""
        numbers = (f"{rates['median']:.4g}", f"{rates['slowest']:.4g}", f"{frames:,}")
        rows.append((name, str(rates["runs"]), *numbers, remark))
    print_table(console, ("group", "runs", "rate [Hz]", "slowest", "frames", ""), rows)
    alignment = notes["alignment"]
    if alignment["delays"] and max(alignment["r2"]) > 0.0:  # else the commands explain nothing at any delay
        columns = zip(alignment["delays"], alignment["error"], alignment["r2"], strict=True)
        rows = [(f"{1e3 * delay:.3g}", f"{error:.3f}", f"{r2:.3f}") for delay, error, r2 in columns]
        what = "time to follow" if alignment.get("followed") is not None else "delay of control"
        print_table(console, (f"{what} [ms]", "error beside none", "R^2"), rows[:: -(-len(rows) // _MOST_DELAYS)])
    console.print(f"alignment: {1e3 * alignment['chosen']:.4g} ms applied ({alignment['reason']})")
    if alignment.get("doubt") == "" and not alignment["chosen"]:
        console.print("the delay stays in the data: it belongs to the robot, and neurodyn adapt identifies it")
    late = notes.get("velocity_delay_s")
    moved = "" if late is None else f"; their stream is {1e3 * late:.3g} ms late, which is taken out"
    console.print(f"velocities: {notes['velocity']}{moved}")
    for name, times in notes.get("held_s", {}).items():
        usual = f", {median(times):.2g} s by median" if times else ""
        console.print(f"{name}: found from the motion of its point: held {len(times)} times{usual}")
    gaps, longest = notes["gaps"], ""
    if gaps["count"]:
        longest = f", longest {gaps['longest'][0]['length_s']:.3g} s in {gaps['longest'][0]['run']}"
    short = notes["pieces_shorter_than_a_frame"]
    console.print(f"gaps: {gaps['count']}{longest}; {short} pieces too short for a frame")


def print_decisions(decisions: "Iterable[Decision]") -> None:
    """Print each decision and its reason."""
    rows = [(decision.what, decision.value, decision.why) for decision in decisions]
    print_table(terminal(), ("", "decided", "why"), rows)
