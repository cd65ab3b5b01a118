# SPDX-License-Identifier: Apache-2.0
"""Fifteen sabotaged logs of stand-in arms: is each called not ok, and is its cause named? And is a healthy log left be?

    python benchmarks/sabotage.py --folder runs/sabotage --json sabotage.json
    python benchmarks/sabotage.py --folder runs/sabotage --healthy --robots runs/stand_ins

Each log (30 s of an arm, with the map that suits the unharmed log) goes through `import` and `adapt --mechanism`; it
counts as noticed if either refuses, warns or doubts, and as named if a finding says the cause. With `--healthy`, the
verdicts on thirty stand-ins without a fault that the library's models lack (`stand_ins.py`) are listed instead, or on
fewer: `--count 9` for six arms and three quadrupeds in the air, from seed `--seed`.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from _stand_in_robots import ARM, Plant
from stand_ins import adapted, arm, read_or_make

Columns = dict[str, np.ndarray]
_SECONDS = 30.0
_RUNS = 4
_A, _B = "lift", "elbow"
"""Joints that are harmed."""


@dataclass(frozen=True)
class Sabotage:
    """A way to spoil a log.

    Attributes:
        harm: Changes the columns of a log in place.
        named: Pattern of the findings' names that name the cause.
        words: Pattern of words that name it, where a command prints a finding without its name.
        change: Changes the robot before it is logged; None for the one that is declared.
        other: Whether the log is of another robot.
    """

    harm: Callable[[Columns], None]
    named: str
    words: str
    change: Callable[[Plant], None] | None = None
    other: bool = False


def _nothing(columns: Columns) -> None:
    pass


def _swap(columns: Columns, *what: str) -> None:
    for one in what:
        a, b = f"{_A}_{one}", f"{_B}_{one}"
        if a in columns:
            columns[a], columns[b] = columns[b], columns[a]


def _scale(columns: Columns, factor: float, joints: tuple[str, ...]) -> None:
    for joint in joints:
        for one in ("pos", "vel"):
            if f"{joint}_{one}" in columns:
                columns[f"{joint}_{one}"] = factor * columns[f"{joint}_{one}"]


def _shift(columns: Columns, seconds: float) -> None:
    """Log commands later by some seconds, run by run."""
    for rows in _runs(columns):
        frames = round(seconds / np.median(np.diff(columns["time"][rows])))
        for joint in ARM:
            part = columns[f"{joint}_cmd"][rows]
            index = np.clip(np.arange(len(part)) - frames, 0, len(part) - 1)
            columns[f"{joint}_cmd"][rows] = part[index]


def _runs(columns: Columns) -> list[np.ndarray]:
    time = columns["time"]
    cuts = np.flatnonzero(np.diff(time) > 0.5) + 1
    return np.split(np.arange(len(time)), cuts)


def _slow_clock(columns: Columns) -> None:
    begins = [columns["time"][rows[0]] for rows in _runs(columns)]
    for rows, begin in zip(_runs(columns), begins, strict=True):
        columns["time"][rows] = begin + 0.75 * (columns["time"][rows] - begin)


def _freeze(columns: Columns) -> None:
    rows = _runs(columns)[1]
    part = rows[len(rows) // 4 :]
    columns[f"{_B}_pos"][part] = columns[f"{_B}_pos"][part[0]]
    if f"{_B}_vel" in columns:
        columns[f"{_B}_vel"][part] = 0.0


def _noise(columns: Columns) -> None:
    rng = np.random.default_rng(0)
    for joint in ARM:
        columns[f"{joint}_pos"] = columns[f"{joint}_pos"] + rng.normal(0.0, 0.05, len(columns["time"]))


def _shuffle(columns: Columns) -> None:
    """Give each run the commands of another one."""
    runs = _runs(columns)
    least = min(map(len, runs))
    for joint in ARM:
        parts = [columns[f"{joint}_cmd"][rows[:least]].copy() for rows in runs]
        for rows, part in zip(runs, (*parts[1:], parts[0]), strict=True):
            columns[f"{joint}_cmd"][rows[:least]] = part
            columns[f"{joint}_cmd"][rows[least:]] = part[-1]


def _torques(columns: Columns) -> None:
    """Log what the servos' torques may have been where the map expects targets."""
    for joint in ARM:
        columns[f"{joint}_cmd"] = 20.0 * (columns[f"{joint}_cmd"] - columns[f"{joint}_pos"])


def _weak(plant: Plant) -> None:
    plant.model.actuator_gainprm[:] *= 0.1
    plant.model.actuator_biasprm[:] *= 0.1


def _loaded(plant: Plant) -> None:
    """Put a fifth of the arm's mass on its last link."""
    body, total = plant.model.body("flange_link").id, float(plant.model.body_mass.sum())
    plant.model.body_mass[body] += 0.2 * total


SABOTAGES: dict[str, Sabotage] = {
    "readings of two joints swapped": Sabotage(lambda c: _swap(c, "pos", "vel"), "swapped|crossed", "swapped"),
    "commands of two joints crossed": Sabotage(lambda c: _swap(c, "cmd"), "swapped|crossed", "swapped"),
    "sign of a reading": Sabotage(lambda c: _scale(c, -1.0, (_B,)), "sign", "a sign"),
    "degrees": Sabotage(lambda c: _scale(c, 180.0 / np.pi, ARM), "degrees", "degrees"),
    "another robot": Sabotage(_nothing, "wrong-robot", "of this robot", other=True),
    "clock 25 % slow": Sabotage(_slow_clock, "clock", "clock"),
    "commands logged .1 s late": Sabotage(lambda c: _shift(c, 0.1), "clock|shifted", "clock|before its commands"),
    "commands logged .1 s early": Sabotage(lambda c: _shift(c, -0.1), "clock|shifted|late", "clock|late"),
    "another controller": Sabotage(_nothing, "controller", "controller", change=_weak),
    "frozen encoder": Sabotage(_freeze, "frozen", "froze|does not change"),
    "noise of .05 rad": Sabotage(_noise, "noise", "noisy|more than its noise"),
    "commands of another run": Sabotage(_shuffle, "commands", "not follow the logged targets"),
    "velocities of the wrong joint": Sabotage(
        lambda c: _swap(c, "vel"), "velocity(-sign)?|swapped(-velocities)?", "velocit"
    ),
    "torques logged as targets": Sabotage(_torques, "commands|command-limits", "not follow the logged targets"),
    "one run with another payload": Sabotage(
        _nothing, "run|logs-disagree", "different in it|differ in", change=_loaded
    ),
}
_ONE_RUN = "one run with another payload"
_WARNED = re.compile(r"^(warning|fails|finding)\b.*", re.MULTILINE)


def spoilt(name: str, folder: Path, seed: int) -> Path:
    """Write the declaration of an arm and its log with a sabotage to a folder."""
    one, place = SABOTAGES[name], folder / re.sub(r"\W+", "_", name)
    if (place / "log.npz").exists():
        return place
    declared = arm(seed, place, _SECONDS, runs=_RUNS, speeds=True)
    shutil.copy(place / "log.npz", place / "sound.npz")
    if one.other or one.change is not None:
        changed = arm(seed + 100 * one.other, place / "other", _SECONDS, one.change, runs=_RUNS, speeds=True)
        columns = dict(np.load(changed.folder / "log.npz"))
    else:
        columns = dict(np.load(declared.folder / "log.npz"))
    if name == _ONE_RUN:
        own = dict(np.load(place / "sound.npz"))
        rows = _runs(columns)[2]
        columns = {key: np.where(np.isin(np.arange(len(own["time"])), rows), columns[key], own[key]) for key in own}
    one.harm(columns)
    np.savez(place / "log.npz", allow_pickle=False, **columns)
    return place


def judged(name: str, place: Path) -> dict[str, Any]:
    """Return whether a sabotage is noticed and its cause named by the commands that a user would give."""
    file = place / "result.json"
    if file.exists():
        return json.loads(file.read_text(encoding="utf-8"))
    _run(place, "init robot.xml --dt 0.01 --out declared --name spoilt")
    _run(place, "inspect sound.npz --robot declared")
    code, printed = _run(place, "import log.npz --reader sound.npz.map.yaml --out log.h5")
    told = [line.strip() for line in _WARNED.findall(printed)] if not code else [printed.strip().splitlines()[-1]]
    warned = [match.group(0) for match in _WARNED.finditer(printed)] or (told if code else [])
    row: dict[str, Any] = {"sabotage": name, "import": warned, "adapt": [], "verdict": ""}
    if not code:
        code, printed = _run(place, "adapt declared --data log.h5 --mechanism --threads 1 --out run --json told.json")
        if not (place / "told.json").exists():
            row["verdict"] = f"fails: {printed.strip().splitlines()[-1]}"
        else:
            figures = json.loads((place / "told.json").read_text(encoding="utf-8"))
            row |= {"verdict": figures["verdict"], "adapt": [f"{f['name']}: {f['what']}" for f in figures["findings"]]}
            row["cpu_s"] = figures["cpu_seconds"]
    names = [one.partition(":")[0] for one in row["adapt"]]
    one = SABOTAGES[name]
    row["noticed"] = bool(warned) or row["verdict"] != "ok"
    row["named"] = any(re.fullmatch(one.named, found) for found in names) or any(
        re.search(one.words, line) for line in (*warned, "" if row["adapt"] else row["verdict"])
    )
    file.write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")
    return row


def _run(place: Path, words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "neurodyn", *words.split()], cwd=place, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def healthy(robots: Path, run: str, count: int, first: int) -> list[dict[str, Any]]:
    """Return the verdicts on arms and half as many quadrupeds without a fault that no model has."""
    rows, airs = [], count // 3
    arms = [("arm", first + 2 * k) for k in range(count - airs)]
    for kind, seed in arms + [("air", first + 2 * k) for k in range(airs)]:
        folder = robots / f"{kind}-{seed:03d}"
        one = read_or_make(kind, seed, folder)
        figures = adapted(one, run, "--mechanism")
        found = [f"{f['name']}: {f['what']}" for f in figures["findings"]]
        rows.append({"robot": folder.name, "verdict": figures["verdict"], "adapt": found})
        print(f"{folder.name:10s} {figures['verdict'].partition(':')[0]:8s} {'; '.join(found)[:200]}", flush=True)
    return rows


def main() -> None:
    """Spoil the logs, run the commands, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the spoilt logs and their runs")
    parser.add_argument("--only", default="", help="pattern of the sabotages to run")
    parser.add_argument("--seed", type=int, default=0, help="even seed of the first; each has another one")
    parser.add_argument("--healthy", action="store_true", help="list verdicts on healthy stand-ins instead")
    parser.add_argument("--count", type=int, default=30, help="number of healthy stand-ins")
    parser.add_argument("--robots", type=Path, help="folder of the healthy stand-ins (see stand_ins.py)")
    parser.add_argument("--run", default="adapted", help="folder of the runs in each robot's folder")
    parser.add_argument("--json", type=Path, help="file for the result")
    options = parser.parse_args()
    if options.healthy:
        rows = healthy(options.robots or options.folder, options.run, options.count, options.seed)
        figures = {"healthy": len(rows), "warned_in_vain": sum(row["verdict"] != "ok" for row in rows)}
    else:
        rows = []
        for k, name in enumerate(SABOTAGES):
            if not re.search(options.only, name):
                continue
            rows.append(judged(name, spoilt(name, options.folder, options.seed + 2 * k)))
            row = rows[-1]
            said = "; ".join([*row["import"], *row["adapt"]])[:160] or row["verdict"][:160]
            noticed, named = ("yes" if row[key] else "NO" for key in ("noticed", "named"))
            print(f"{name:32s} not ok: {noticed:3s} named: {named:3s} {said}", flush=True)
        figures = {
            "sabotaged": len(rows), "not_ok": sum(r["noticed"] for r in rows), "named": sum(r["named"] for r in rows)
        }  # fmt: skip
    print(", ".join(f"{name} {value}" for name, value in figures.items()))
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "logs": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
