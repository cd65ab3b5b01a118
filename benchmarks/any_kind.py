# SPDX-License-Identifier: Apache-2.0
"""`train --kind any` on the board's real logs: the kind that it picks in a budget, beside the best kind on test runs.

Each run trains all kinds in --minutes: the mechanism (identified, with networks on top where they help), a GRU, and a
world model of robots without a floating base. Which it keeps is decided on validation runs; here every one of them is
measured on the test runs, from the board's starts. The error of a kind is the geometric mean over the horizons of its
row and over groups (metres, radians); `beside the best` is that of the kept model over the least.

    python benchmarks/any_kind.py --data LOGS --keep any-kind --minutes .3
"""

import math
import resource
from pathlib import Path

from _common import board_parser, commit, kept_rows, require, single_thread, write_result
from board import ROBOTS, ROWS, SHARED, STARTS, Row, command, compared, opened, prepared
from neurodyn.core import read_json
from neurodyn.data import Split, Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.robots import load as load_robot

NAMES = (
    "go2", "aliengo", "z1", "so101", "xl330", "robstride", "crazyflie", "ricmonk", "acromonk", "single", "double",
    "triple",
)  # fmt: skip
FOLDERS = {"mechanism": "mechanism", "network": "gru", "world-model": "world model"}
NEAR = 1.05
"""Ratio of errors up to which the kept model counts as good as the best kind."""


def main() -> None:
    """Measure rows that are not kept, and print which kinds are kept."""
    parser = board_parser(__doc__, NAMES, SHARED, Path("any-kind"))
    parser.add_argument("--minutes", type=float, default=0.3, help="time budget of a run")
    asked = parser.parse_args()
    single_thread()
    rows = kept_rows(asked, "any.json", lambda name: measured(name, asked.data, asked.keep / name, asked.minutes))
    figures = {}
    for name, row in rows.items():
        print(
            f"| {ROWS[name].title} | {row['kept']} | "
            + " | ".join(f"{row['errors'][kind]:.3g}" if kind in row["errors"] else "" for kind in KINDS)
            + f" | {row['beside']:.2f} | {row['cpu_s']:.0f} |"
        )
        figures |= {f"{name} {kind}": error for kind, error in row["errors"].items()}
        figures |= {f"{name} beside the best": row["beside"], f"{name} CPU-s": row["cpu_s"]}
    near = sum(row["beside"] <= NEAR for row in rows.values())
    print(f"within {NEAR - 1:.0%} of the best kind: {near} of {len(rows)}")
    write_result(asked.json, "any_kind", figures, {})


KINDS = ("mechanism", *list(FOLDERS.values())[1:])


def measured(name: str, data: Path, keep: Path, minutes: float) -> dict:
    """Train all kinds on a row's log, and measure them on its test runs."""
    row, folder, run, file = ROWS[name], ROBOTS / name, keep / "run", keep / f"{name}.h5"
    keep.mkdir(parents=True, exist_ok=True)
    log = prepared(row, data, keep / f"{name}.npz")
    if not file.is_file():
        told = command("import", str(log), "--reader", str(folder / "map.yaml"), "--out", str(file), fresh=file)
        require(file.is_file(), told)
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ("--kind", "any", "--data", str(file), "--minutes", str(minutes), "--threads", "1", "--out", str(run))
    told = command("train", str(folder), *words, fresh=run)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    require((run / "adaptation.json").is_file(), told)
    figures = read_json(run / "adaptation.json")
    errors = errors_of(row, folder, file, run)
    kept = {"gru": "gru", "world-model": "world model"}.get(figures["network"], "mechanism")
    return {
        "commit": commit(), "kept": kept, "told": told, "errors": errors,
        "beside": errors[kept] / min(errors.values()),
        "cpu_s": ended.ru_utime - began.ru_utime + ended.ru_stime - began.ru_stime,
    }  # fmt: skip


def errors_of(row: Row, folder: Path, log: Path, run: Path) -> dict[str, float]:
    """Return the error of each kind in a run on the test runs of its log."""
    store, dt = Store.open(log), load_robot(folder).spec.dt
    frames = [max(1, round(s / dt)) for s in row.seconds]
    longest = int(store.lengths[store.episodes(Split.TEST)].max())
    past = min(row.past, longest - frames[-1])
    windows = select_windows(store, Split.TEST, past + frames[-1], most=STARTS, moving=row.moving).after(past)
    places = {title: run / name for name, title in FOLDERS.items() if (run / name).is_dir()}
    places.setdefault("mechanism", run)
    return {title: error(place, log, windows, frames) for title, place in places.items()}


def error(run: Path, log: Path, windows: Windows, frames: list[int]) -> float:
    """Return the geometric mean of a model's errors at some frames, in rad and m; infinite if one is not finite."""
    at = compared(*opened(run, log), windows).by_group(frames)
    values = [value for group in at.values() for value in group]
    if any(value is None or not math.isfinite(value) for value in values):
        return math.inf
    return math.exp(sum(math.log(value) for value in values) / len(values))


if __name__ == "__main__":
    main()
