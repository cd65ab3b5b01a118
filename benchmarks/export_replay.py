# SPDX-License-Identifier: Apache-2.0
"""Exports of adapted stand-in robots replay a log that no fit has seen: original, exported file, our model.

    python benchmarks/export_replay.py --kind arm --seeds 0-19 --folder runs/stand_ins --to mjcf --json replays.json

makes and adapts the robots of benchmarks/stand_ins.py (each once: runs are kept in the folder), exports each, replays
its held-out log in the target's own simulator, and counts the files within 1.2 times of the model's error.
"""

import argparse
import contextlib
import json
import math
import statistics
from pathlib import Path
from typing import Any

from neurodyn.core.errors import InputError
from neurodyn.interop import Replay, replay
from stand_ins import KINDS, adapted, command, stand_ins

_WITHIN = 1.2


def row(folder: Path, run: str, target: str) -> dict[str, Any]:
    """Return the errors of one robot, over all joints, at the horizon [rad]; `reason` if it is not replayed."""
    kept = folder / run / "kept_whole.h5"
    if not kept.exists():
        command(folder, f"import kept.npz --reader log.npz.map.yaml --split test --out {run}/kept_whole.h5")
    try:
        errors = replay(folder / run / "run", target, kept)
    except InputError as error:
        return {"robot": folder.name, "target": target, "reason": str(error)}
    one = {"robot": folder.name, "target": target, "reason": errors.reason, "errors": errors.plain()}
    if not errors.reason:
        one |= {which: _joints(errors, which) for which in ("original", "exported", "model")}
        one["ratio"] = one["exported"] / one["model"]
    return one


def _joints(errors: Replay, which: str) -> float:
    """Return the root mean square error over the coordinates that are angles."""
    named = getattr(errors, which)
    each = [named[name] for name, unit in errors.units.items() if unit == "rad"]
    return math.inf if None in each else math.sqrt(statistics.fmean(error * error for error in each))


def line(one: dict[str, Any]) -> str:
    """Return a row of the table as text, in mrad."""
    begin = f"{one['robot']:10s} {one['target']:8s}"
    if one["reason"]:
        return f"{begin} {one['reason']}"
    numbers = "".join(f"{1e3 * one[which]:10.3f}" for which in ("original", "exported", "model"))
    return f"{begin}{numbers}{one['ratio']:8.2f}"


def main() -> None:
    """Replay the exports, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kind", choices=tuple(KINDS), default="arm")
    parser.add_argument("--seeds", default="0-19", help="first-last, or a list with commas")
    parser.add_argument("--folder", type=Path, required=True, help="folder of robots, logs and runs")
    parser.add_argument("--run", default="adapted", help="folder of the runs in each robot's folder")
    parser.add_argument("--flags", default="--mechanism", help="flags of `adapt`")
    parser.add_argument("--to", nargs="+", default=["mjcf"], help="targets")
    parser.add_argument("--json", type=Path, help="file for the result")
    options = parser.parse_args()
    rows = []
    print(f"{'robot':10s} {'target':8s}  original  exported our model   ratio   (mrad at the horizon)")
    for one in stand_ins([options.kind], options.seeds, options.folder):
        folder = one.folder
        with contextlib.suppress(RuntimeError):
            adapted(one, options.run, options.flags)
        if not (folder / options.run / "run" / "model").is_dir():
            print(f"{folder.name:10s} is not adapted", flush=True)
            continue
        for target in options.to:
            rows.append(row(folder, options.run, target))
            print(line(rows[-1]), flush=True)
    for target in options.to:
        known = [one for one in rows if one["target"] == target and not one["reason"]]
        within = sum(one["ratio"] <= _WITHIN for one in known)
        better = sum(one["exported"] < one["original"] for one in known)
        print(f"{target}: {within} of {len(known)} within {_WITHIN} of the model, {better} better than the original")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
