# SPDX-License-Identifier: Apache-2.0
"""Stand-in robots in plain MuJoCo, and what `adapt` says about them: does it hold?

`arm(seed)` is a six-axis arm with servos, `air(seed)` a quadruped held in the air, `ground(seed)` one on the floor.
Each writes a declaration (robot.xml), a log (log.npz), a log of other motions that no fit sees (kept.npz), and what is
true (truth.json); every other seed has a fault that the models of the library lack.

    python benchmarks/stand_ins.py --kind arm air ground --seeds 0-19 --folder runs/stand_ins --json stand_ins.json

makes them, runs `init`, `inspect`, `import` and `adapt --mechanism` (each robot once: results are kept in the folder),
and tells how many of the 90 % intervals hold, with and without such a fault.
"""

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from _stand_in_logs import Motion, reaches, run, steps, swings
from _stand_in_robots import (
    ARM,
    ARM_FAULTS,
    LEG_FAULTS,
    Plant,
    acting_delay,
    arm_xml,
    leg_joints,
    plant_of,
    quadruped_xml,
)

_PAUSE = 1.0
"""Between the stamps of two episodes [s]: longer than the gap at which an import begins a new one."""


@dataclass(frozen=True)
class StandIn:
    """Files of a stand-in, and what is true of it.

    Attributes:
        kind: "arm", "air" or "ground".
        seed: Its seed.
        folder: Holds robot.xml, log.npz, kept.npz and truth.json.
        truth: Values of quantities by the library's names.
        fault: What no model of the library has; None for nothing.
        payload: Joint of the link that carries it, mass [kg] and position [m]; None if none is possible.
        delay: Of the commands [s].
        rate: Of the log [Hz].
    """

    kind: str
    seed: int
    folder: Path
    truth: dict[str, float]
    fault: str | None
    payload: tuple[str, float, tuple[float, float, float]] | None
    delay: float
    rate: float


def arm(
    seed: int, folder: Path, seconds: float = 60.0, change: Callable[[Plant], None] | None = None,
    *, runs: int | None = None, speeds: bool | None = None,
) -> StandIn:  # fmt: skip
    """Return a six-axis arm with position servos; see `StandIn`.

    `change` acts on the robot before it is logged; number of runs and logged velocities are drawn unless given.
    """
    rng = np.random.default_rng([1, seed])
    xml = arm_xml(rng)
    plant = plant_of(xml, ARM, rng, faults=ARM_FAULTS, faulty=seed % 2 == 1, targets=True)
    if change is not None:
        change(plant)
    return _write("arm", seed, folder, xml, plant, rng, seconds, lambda other: reaches(plant, rng, other), runs, speeds)


def air(seed: int, folder: Path, seconds: float = 60.0) -> StandIn:
    """Return a quadruped held in the air, with torques or position targets; see `StandIn`."""
    rng = np.random.default_rng([2, seed])
    targets = seed % 4 < 2
    xml = quadruped_xml(rng, hung=True, targets=targets)
    plant = plant_of(xml, leg_joints(), rng, faults=LEG_FAULTS, faulty=seed % 2 == 1, targets=targets)
    return _write("air", seed, folder, xml, plant, rng, seconds, lambda other: swings(rng, other))


def ground(seed: int, folder: Path, seconds: float = 60.0) -> StandIn:
    """Return a quadruped on the floor that follows position targets; see `StandIn`."""
    rng = np.random.default_rng([3, seed])
    xml = quadruped_xml(rng, hung=False, targets=True)
    plant = plant_of(xml, leg_joints(), rng, faults=LEG_FAULTS, faulty=seed % 2 == 1, targets=True)
    return _write("ground", seed, folder, xml, plant, rng, seconds, lambda other: steps(rng, other))


KINDS = {"arm": arm, "air": air, "ground": ground}


def _write(
    kind: str, seed: int, folder: Path, xml: str, plant: Plant, rng: Generator, seconds: float,
    motion: Callable[[bool], Motion], runs: int | None = None, speeds: bool | None = None,
) -> StandIn:  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    rate = float(rng.choice((100, 125, 200, 250, 500) if kind != "ground" else (100, 200)))
    drawn = bool(kind != "ground" and rng.random() < 0.6), int(rng.choice((1, 4, 6, 10)))
    rate = rate if plant.targets else max(rate, 250.0)
    speeds = drawn[0] if speeds is None else speeds
    runs = runs or (8 if kind == "ground" else 6 if plant.fault == "gain per run" else drawn[1])
    made = StandIn(kind, seed, folder, plant.truth, plant.fault, plant.payload, plant.delay, rate)
    for name, other, whole, length in (("log", False, seconds, seconds / runs), ("kept", True, 20.0, 10.0)):
        columns: dict[str, list[np.ndarray]] = {}
        now = 0.0
        while now < whole + 0.01 - length * 0.5:
            part = run(plant, motion(other), length, rate, rng, speeds=speeds)
            if len(part["time"]) < rate:  # fell at once
                continue
            part["time"] = part["time"] + now + _PAUSE * len(columns.get("time", ()))
            now += len(part["time"]) / rate
            for column, values in part.items():
                columns.setdefault(column, []).append(values)
        np.savez(folder / f"{name}.npz", allow_pickle=False, **{c: np.concatenate(v) for c, v in columns.items()})
    (folder / "robot.xml").write_text(xml, encoding="utf-8")
    facts = {
        "kind": kind, "seed": seed, "truth": plant.truth, "fault": plant.fault, "fault_size": plant.size,
        "fault_joint": plant.joints[plant.faulty] if plant.fault else None, "payload": plant.payload,
        "delay": plant.delay, "rate": rate, "noise": plant.noise, "encoder_step": plant.step, "runs": runs,
        "speeds": speeds,
    }  # fmt: skip
    (folder / "truth.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return made


def read_or_make(kind: str, seed: int, folder: Path) -> StandIn:
    """Return a stand-in from a folder, in which it is made unless it is there."""
    return read(folder) if (folder / "truth.json").exists() else KINDS[kind](seed, folder)


def read(folder: Path) -> StandIn:
    """Return a stand-in that was written to a folder."""
    facts = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    payload = facts["payload"] and (facts["payload"][0], facts["payload"][1], tuple(facts["payload"][2]))
    return StandIn(
        facts["kind"], facts["seed"], folder, facts["truth"], facts["fault"], payload, facts["delay"], facts["rate"]
    )


def adapted(one: StandIn, name: str, flags: str = "", alignment: float | None = None) -> dict[str, Any]:
    """Return the figures of `adapt` for a stand-in, made by the commands that a user would give.

    `flags` are those of `adapt`, `alignment` [s] is that of `import` (None: as its column map says).
    """
    folder, out = one.folder, one.folder / name
    if not (folder / "declared" / "robot.yaml").exists():
        command(folder, f"init robot.xml --dt 0.01 --out declared --name {one.kind}_{one.seed}")
    if not (folder / "log.npz.map.yaml").exists():
        command(folder, "inspect log.npz --robot declared")
    out.mkdir(exist_ok=True)
    aligned = "" if alignment is None else f"--alignment {alignment}"
    for log in ("log", "kept"):
        if not (out / f"{log}.h5").exists():
            command(folder, f"import {log}.npz --reader log.npz.map.yaml {aligned} --out {name}/{log}.h5")
    file = out / "figures.json"
    if not file.exists():
        shutil.rmtree(out / "run", ignore_errors=True)
        begun = _children()
        (out / "told.json").unlink(missing_ok=True)
        try:
            command(
                folder,
                f"adapt declared --data {name}/log.h5 --threads 1 {flags} --out {name}/run --json {name}/told.json",
            )
        except RuntimeError:  # a verdict that fails ends with an error, too
            if not (out / "told.json").exists():
                raise
        figures = json.loads((out / "told.json").read_text(encoding="utf-8")) | {"cpu_of_command": _children() - begun}
        file.write_text(json.dumps(figures), encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command(folder: Path, words: str) -> None:
    """Run a command of the library on one core; stop with its output if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "neurodyn", *words.split()], cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{folder}: neurodyn {words}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")


def told(figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the quantities that the logs determine, with a two-sided interval, by name."""
    return {
        entry["name"]: entry
        for entry in figures["parameters"]
        if entry.get("said", True) and not entry.get("bound") and entry["interval"] is not None
    }


def row(one: StandIn, figures: dict[str, Any]) -> dict[str, Any]:
    """Return what the table says about one robot."""
    known = told(figures)
    held = {
        name: known[name]["interval"][0] <= true <= known[name]["interval"][1]
        for name, true in one.truth.items()
        if name in known
    }
    values = {entry["name"]: entry for entry in figures["parameters"]}
    payload, delay = values.get("payload.mass"), values.get("motors.delay")
    last = {rung["name"]: _joints(rung["test"] or rung["errors"]) for rung in figures["rungs"]}
    return {
        "robot": f"{one.kind}-{one.seed}", "fault": one.fault, "told": len(held), "hold": sum(held.values()),
        "missed": [name for name, holds in held.items() if not holds],
        "kinds": {kind: _count(held, kind) for kind in sorted({name.rpartition(".")[2] for name in held})},
        "payload": one.payload and one.payload[1], "payload_found": payload and payload["value"],
        "payload_holds": held.get("payload.mass"),
        "delay_error_ms": delay and 1e3 * (delay["value"] - acting_delay(one.delay, floating=one.kind == "ground")),
        "verdict": figures["verdict"],
        "bounds": sum(bool(entry.get("bound")) for entry in figures["parameters"]),
        "declared": last.get("declared"), "adapted": last[figures["chosen"]],
        "cpu_s": figures["cpu_of_command"],
    }  # fmt: skip


def _joints(errors: dict[str, list[float | None]]) -> float | None:
    return next((found[-1] for group, found in errors.items() if "joints" in group), None)


def _count(held: dict[str, bool], kind: str) -> list[int]:
    chosen = [holds for name, holds in held.items() if name.rpartition(".")[2] == kind]
    return [sum(chosen), len(chosen)]


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return coverage and errors, by kind of robot, with and without a fault that no model has."""
    figures: dict[str, float] = {}
    groups = {row["robot"].split("-")[0] for row in rows}
    for kind in sorted(groups):
        for label, faulty in (("sound", False), ("faulty", True)):
            chosen = [r for r in rows if r["robot"].startswith(kind) and bool(r["fault"]) == faulty]
            if not chosen:
                continue
            name, ends = f"{kind}_{label}", [r for r in chosen if r["fault"] != "sensor lag"]
            figures[f"{name}_robots"] = len(chosen)
            figures[f"{name}_told"] = sum(r["told"] for r in chosen)
            figures[f"{name}_coverage"] = sum(r["hold"] for r in chosen) / max(1, figures[f"{name}_told"])
            for what in sorted({what for r in chosen for what in r["kinds"]}):
                found = np.sum([r["kinds"].get(what, [0, 0]) for r in chosen], 0)
                figures[f"{name}_coverage_{what}"] = float(found[0] / found[1])
            late = [abs(r["delay_error_ms"]) for r in ends if r["delay_error_ms"] is not None]
            figures[f"{name}_delay_error_ms"] = float(np.mean(late)) if late else math.nan
            figures[f"{name}_ok"] = sum(r["verdict"] == "ok" for r in chosen)
            figures[f"{name}_error_share"] = float(np.median([r["adapted"] / r["declared"] for r in chosen]))
            loads = [r for r in chosen if r["payload"] and r["payload_found"] is not None]
            if loads:
                off = [abs(r["payload_found"] / r["payload"] - 1.0) for r in loads]
                figures[f"{name}_payload_error"] = float(np.median(off))
                figures[f"{name}_payloads_within_10_percent"] = float(np.mean(np.array(off) < 0.1))
            figures[f"{name}_cpu_s"] = float(np.mean([r["cpu_s"] for r in chosen]))
    return figures


def main() -> None:
    """Make the robots, adapt to their logs, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kind", nargs="+", choices=tuple(KINDS), default=["arm"])
    parser.add_argument("--seeds", default="0-19", help="first-last, or a list with commas")
    parser.add_argument("--folder", type=Path, required=True, help="folder of robots, logs and runs")
    parser.add_argument("--run", default="adapted", help="folder of the runs in each robot's folder")
    parser.add_argument("--flags", default="--mechanism", help="flags of `adapt`")
    parser.add_argument("--alignment", type=float, help="delay that `import` removes [s]; by default as drafted")
    parser.add_argument("--only-make", action="store_true", help="write robots and logs alone")
    parser.add_argument("--json", type=Path, help="file for the result")
    options = parser.parse_args()
    rows = []
    for one in stand_ins(options.kind, options.seeds, options.folder):
        if options.only_make:
            continue
        try:
            rows.append(row(one, adapted(one, options.run, options.flags, options.alignment)))
        except RuntimeError as error:
            print(error, flush=True)
            continue
        print(line(rows[-1]), flush=True)
    figures = summary(rows)
    for name, value in figures.items():
        print(f"{name:44s} {value:10.4g}")
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "robots": rows}, indent=2) + "\n", encoding="utf-8")


def line(found: dict[str, Any]) -> str:
    """Return a row of the table as text."""
    late, load = found["delay_error_ms"], found["payload"]
    parts = [f"{found['robot']:10s} {found['fault'] or '-':14s} {found['hold']:3d} of {found['told']:3d} hold"]
    parts.append("" if late is None else f"delay {late:+.2f} ms")
    if load is not None:
        said = found["payload_found"]
        parts.append(f"payload {load:.3g} kg: {'not told' if said is None else f'{said:.3g}'}")
    parts.append(f"error {1e3 * (found['declared'] or math.nan):.3g} -> {1e3 * found['adapted']:.3g} mrad")
    return ", ".join(part for part in parts if part) + f", {found['verdict'][:60]}, {found['cpu_s']:.0f} CPU-s"


def stand_ins(kinds: Sequence[str], seeds: str, folder: Path) -> Iterator[StandIn]:
    """Return the stand-ins of kinds and seeds ("0-9", "1,4") in their folders, made where they are not there."""
    for kind in kinds:
        for seed in _seeds(seeds):
            yield read_or_make(kind, seed, folder / f"{kind}-{seed:03d}")


def _seeds(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    main()
