# SPDX-License-Identifier: Apache-2.0
"""Whether 90 % intervals of `adapt` hold for another half of a robot's log, or for another way to declare its motors.

Training runs of the board of real robots (`board.py`) are dealt in turn to two halves, or few of them each cut in two,
and `adapt --mechanism` identifies each half.
Counted are the quantities that both tell, and of these the ones whose intervals overlap. With --drives the whole log is
identified twice instead: with the controller of its column map, and with the same gains in drives.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from _common import board_parser, commit, kept_rows, require, single_thread, write_result
from board import ROBOTS, ROWS, SHARED, Parts, Row, command, prepared
from neurodyn.core import read_json

_MANY = 4
"""Training runs from which on whole ones are dealt."""


def main() -> None:
    """Compare two adaptations of each robot, and write how many quantities agree."""
    parser = board_parser(__doc__, list(ROWS), SHARED, Path("halves"))
    parser.add_argument("--drives", action="store_true", help="compare a controller with the same gains in drives")
    asked = parser.parse_args()
    single_thread()
    rows = kept_rows(asked, "drives.json" if asked.drives else "halves.json", lambda name: compared(name, asked), told)
    figures = {f"{name}_{what}": float(row[what]) for name, row in rows.items() for what in ("told", "overlapping")}
    both = [sum(row[what] for row in rows.values()) for what in ("told", "overlapping")]
    write_result(asked.json, "half_logs", figures | {"told": both[0], "overlapping": both[1]}, {})


def compared(name: str, asked: argparse.Namespace) -> dict | None:
    """Return how many quantities two adaptations of a robot tell, and which of them contradict each other."""
    if not (asked.data / ROWS[name].file).is_file():
        print(f"{name}: skipped, {asked.data / ROWS[name].file} is absent", flush=True)
        return None
    folder = asked.keep / name
    folder.mkdir(parents=True, exist_ok=True)
    log_map = ROBOTS / name / "map.yaml"
    if asked.drives:
        maps, rows = [log_map, in_drives(log_map, folder / "drives.yaml")], [ROWS[name]] * 2
    else:
        maps, rows = [log_map] * 2, [replace(ROWS[name], parts=half(ROWS[name], number)) for number in (0, 1)]
    found = [
        identified(name, row, asked.data, one, folder / f"{'drives' if asked.drives else 'half'}_{number}")
        for number, (row, one) in enumerate(zip(rows, maps, strict=True))
    ]
    first, second = ({one["name"]: one["interval"] for one in each if one.get("said")} for each in found)
    told_by_both = [one for one in first if one in second and first[one] and second[one]]
    apart = [one for one in told_by_both if first[one][0] > second[one][1] or second[one][0] > first[one][1]]
    intervals = {one: [first[one], second[one]] for one in told_by_both}
    return {
        "commit": commit(), "told": len(told_by_both), "overlapping": len(told_by_both) - len(apart), "apart": apart,
        "in": intervals, "refused": sum(not each for each in found),
    }  # fmt: skip


def half(row: Row, number: int) -> Parts:
    """Return the runs of a row with one half of its training runs for training, and the other one test."""

    def parts(log: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        offsets, split = row.parts(log)
        training = np.nonzero(split == 0)[0]
        if len(training) >= _MANY:
            dealt = split.copy()
            dealt[training[1 - number :: 2]] = 2
            return offsets, dealt
        ends, kept = [0], list[int]()
        for first, last, of in zip(offsets[:-1].tolist(), offsets[1:].tolist(), split.tolist(), strict=True):
            if of == 0:
                ends.append((first + last) // 2)
            ends.append(last)
            kept += [of] if of else [(0, 2), (2, 0)][number]
        return np.array(ends), np.array(kept)

    return parts


def in_drives(column_map: Path, path: Path) -> Path:
    """Write a column map whose controller is a drive of each of its joints instead."""
    read = yaml.safe_load(column_map.read_text())
    law = read.pop("controller")
    joints = list(read["control"])

    def of(joint: str, value: object) -> object:
        return value.get(joint, value.get("*")) if isinstance(value, dict) else value

    read["drives"] = {joint: {key: of(joint, value) for key, value in law.items()} for joint in joints}
    read["robot"] = str((column_map.parent / read["robot"]).resolve())
    path.write_text(yaml.safe_dump(read, sort_keys=False))
    return path


def identified(name: str, row: Row, data: Path, column_map: Path, out: Path) -> Sequence[dict]:
    """Return the quantities that `adapt` identifies in a log; none where it keeps the declaration."""
    out.mkdir(parents=True, exist_ok=True)
    log, store, run = prepared(row, data, out / f"{name}.npz"), out / f"{name}.h5", out / "run"
    words = command("import", str(log), "--reader", str(column_map), "--out", str(store), fresh=store)
    require(store.is_file(), words[-500:])
    asked = ("--data", str(store), "--out", str(run), "--mechanism", "--threads", "1")
    words = command("adapt", str(ROBOTS / name), *asked, fresh=run)
    require((run / "adaptation.json").is_file(), words[-500:])
    found = read_json(run / "adaptation.json")
    return [] if found["chosen"] == "declared" else found["parameters"]


def told(row: dict) -> str:
    """Return a row in a line."""
    refused = f"; nothing is told by {row['refused']} of 2, which keep the declaration" if row["refused"] else ""
    return (
        f"{row['overlapping']} of {row['told']} intervals overlap; apart: {', '.join(row['apart']) or 'none'}{refused}"
    )


if __name__ == "__main__":
    main()
