# SPDX-License-Identifier: Apache-2.0
"""Coverage of the 95 % intervals of identified parameters, for the sandwich and the block bootstrap.

On synthetic logs the robot has unmodelled friction: a driven pendulum with Coulomb friction at its joint, and a block
in contact whose guides have friction. The "truth" is the fit of very many logs. On real logs (--real) two halves of the
training runs are identified, and the number of parameters with overlapping intervals is counted. Measured repeats are
kept (--keep FOLDER) and not measured again.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from _common import require, result_parser, single_thread, write_result
from _studies import STUDIES, Study
from neurodyn.data import Split, Store, Windows
from neurodyn.identify import (
    IdentificationSettings,
    ResidualOptions,
    Residuals,
    bootstrap,
    changed,
    curvature,
    estimate_noise,
    fitted,
    identifiability,
    identify,
    load_identification,
)
from neurodyn.robots import load as load_robot
from neurodyn.robots import open_robot_data

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
REAL = {
    "dfki-c1": SHARED / "dfki_double_pendulum" / "dfki_double_pendulum.npz",
    "ibm-pendulum": SHARED / "ibm_double_pendulum" / "ibm_double_pendulum.npz",
    "cube": SHARED / "cube_toss" / "cube_toss.npz",
}
FREE = {"cube": ("gravity.z", "points.size", "contact.friction", "contact.stiffness", "contact.damping")}
"""Free quantities of a robot whose settings list none."""
MANY = 1500
"""Number of logs for the fit that counts as truth."""


@dataclass(frozen=True)
class Fit:
    """A fit of one draw of logs.

    Attributes:
        residuals: Residuals in their final units.
        point: The solution.
        values: Physical values, shape [n].
    """

    residuals: Residuals
    point: Any
    values: Tensor


def main() -> None:
    """Measure the requested parts, and write the result."""
    parser = result_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(STUDIES), default=list(STUDIES))
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--logs", type=int, default=12, help="logs of a repeat")
    parser.add_argument("--resamples", type=int, default=60, help="resamples of the bootstrap; 0 with --real")
    parser.add_argument("--real", nargs="*", default=[], choices=tuple(REAL), help="robots with real logs")
    parser.add_argument("--picture", type=Path, help="picture of the bootstrap's intervals")
    parser.add_argument("--keep", type=Path, help="folder for repeats that were measured")
    options = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in [] if options.real else options.only:
            figures |= synthetic(name, options, folder)
        if options.picture is not None and not options.real:
            draw([file_of(name, options, folder) for name in options.only], options.only, folder, options.picture)
        for name in options.real:
            if REAL[name].exists():
                figures |= halves(name, options.resamples, folder)
            else:
                print(f"{name} skipped: there is no {REAL[name]}")
    write_result(options.json, "coverage", figures, {})


def fit(study: Study, windows: Windows) -> Fit:
    """Fit a study's model as `identify` does."""
    noise = estimate_noise(study.model.spec, windows)
    residuals = Residuals(study.model, windows, noise, ResidualOptions(huber=3.0))
    residuals, solution = fitted(residuals, residuals.start(residuals.space.nominal[None]), 60)
    return Fit(residuals, solution.point, residuals.values(solution.point.x)[0])


def synthetic(name: str, options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Repeat a study, and return the coverage of intervals."""
    study = STUDIES[name]()
    truth = _truth(study, name, folder)
    file = file_of(name, options, folder)
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for repeat in range(len(lines), options.repeats):
        lines.append(_repeat(study, options, repeat, truth))
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(lines[-1]) + "\n")
    lines = lines[: options.repeats]
    values = np.array([line["values"] for line in lines])
    found: dict[str, float] = {f"{name}_repeats": len(lines), f"{name}_logs": options.logs}
    for way in ("sandwich", "bootstrap"):
        held = np.array([[low <= t <= high for (low, high), t in zip(line[way], truth, strict=True)] for line in lines])
        width = np.array([[0.5 * (high - low) for low, high in line[way]] for line in lines]).mean(0) / values.std(0)
        found[f"{name}_{way}_coverage"] = float(held.mean())
        for k, quantity in enumerate(study.model.physical.specs):
            found[f"{name}_{way}_coverage_{quantity.name}"] = float(held[:, k].mean())
            found[f"{name}_{way}_half_width_{quantity.name}_deviations"] = float(width[k])
    found[f"{name}_steepest_curvature"] = max(line["curvature"] for line in lines)
    found[f"{name}_longest_step_deviations"] = max(line["step"] for line in lines)
    found[f"{name}_cpu_s"] = sum(line["cpu_s"] for line in lines)
    return found


def _truth(study: Study, name: str, folder: Path) -> list[float]:
    """Return the best fit of very many logs; check that the model is wrong, and the fit at a minimum."""
    file = folder / f"{name}-truth.json"
    if file.exists():
        return json.loads(file.read_text())
    best = fit(study, study.draw(MANY, seed=1_000_000))
    analysis = identifiability(best.residuals, best.point)
    require(bool((analysis.newton < 0.1).all()), f"{name}: the fit of {MANY} logs is not at a minimum")
    worse = float((best.residuals.scale / study.robot_noise).max())
    require(worse > 1.1, f"{name}: the model is right: residuals are as large as the noise")
    file.write_text(json.dumps(best.values.tolist()))
    return best.values.tolist()


def _repeat(study: Study, options: argparse.Namespace, repeat: int, truth: list[float]) -> dict[str, Any]:
    begin = time.process_time()
    found = fit(study, study.draw(options.logs, seed=repeat))
    analysis = identifiability(found.residuals, found.point)
    free = torch.full((len(truth),), torch.inf, dtype=torch.float64)
    resamples = bootstrap(found.residuals, found.point, options.resamples, seed=repeat)
    require(resamples.enough, f"{len(resamples.values)} of {options.resamples} resamples converged")
    curved = curvature(found.residuals, found.point, analysis)
    return {
        "values": found.values.tolist(),
        "sandwich": analysis.intervals(found.values, -free, free),
        "bootstrap": resamples.intervals(found.values, -free, free),
        "curvature": float(curved.nan_to_num(1.0).max()),
        "step": float(analysis.newton.max()),
        "cpu_s": time.process_time() - begin,
    }


def file_of(name: str, options: argparse.Namespace, folder: Path) -> Path:
    """Return the file with a study's repeats."""
    return folder / f"{name}-{options.logs}-{options.resamples}.jsonl"


def draw(files: list[Path], names: list[str], folder: Path, path: Path) -> None:
    """Plot the bootstrap intervals of all repeats around the truth, for each study's last free quantity."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 1.6 + 1.2 * len(files)), layout="constrained")
    for axes, file, name in zip(np.ravel(figure.subplots(len(files), 1)), files, names, strict=True):
        truth = json.loads((folder / f"{name}-truth.json").read_text())[-1]
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for repeat, line in enumerate(lines):
            low, high = line["bootstrap"][-1]
            axes.plot([repeat, repeat], [low, high], color="#4dabf7" if low <= truth <= high else "#f76707")
        axes.axhline(truth, color="0.4", linewidth=0.8)
        axes.set_ylabel(STUDIES[name]().model.physical.specs[-1].name, fontsize=8)
        axes.tick_params(labelsize=7)
    figure.axes[-1].set_xlabel("repeat")
    figure.savefig(path, dpi=110)


def halves(name: str, resamples: int, folder: Path) -> dict[str, float]:
    """Identify two halves of a robot's training runs, and return for how many parameters the intervals overlap."""
    robot = load_robot(name)
    store = open_robot_data(robot, REAL[name])
    settings = changed(load_identification(robot), bootstrap=resamples, rollouts=200)
    found = [_half(name, store, settings, half, folder / f"{name}-half-{half}") for half in (0, 1)]
    both = overlap = pairs = 0
    figures: dict[str, float] = {}
    for one, other in zip(found[0]["parameters"], found[1]["parameters"], strict=True):
        both += 1
        for key, part in (("value", "value"), ("low", 0), ("high", 1)):
            for half, entry in enumerate((one, other)):
                number = entry["value"] if part == "value" else (entry["interval"] or [np.nan, np.nan])[part]
                figures[f"{name}_half{half}_{one['name']}_{key}"] = float(number)
        if one["interval"] and other["interval"]:
            pairs += 1
            overlap += one["interval"][0] <= other["interval"][1] and other["interval"][0] <= one["interval"][1]
    figures |= {f"{name}_parameters": both, f"{name}_with_intervals": pairs, f"{name}_overlapping": overlap}
    figures |= {f"{name}_converged_half{half}": float(run["converged"]) for half, run in enumerate(found)}
    for half, run in enumerate(found):
        print(f"{name}, half {half}: {run['blocks']}; {run['reason']}")
    return figures


def _half(name: str, store: Store, settings: IdentificationSettings, half: int, out: Path) -> dict[str, Any]:
    file = out / "identification.json"
    if not file.exists():
        robot = load_robot(name)
        table = store.table
        train = np.nonzero(table["split"] == int(Split.TRAIN))[0]
        runs = table["run"][train] if len(set(table["run"][train].tolist())) > 1 else np.arange(len(train))
        order = {run: k for k, run in enumerate(dict.fromkeys(runs.tolist()))}
        other = train[[order[run] % 2 != half for run in runs.tolist()]]
        kept = np.setdiff1d(np.arange(len(table)), other)
        identify(robot, store.select(kept), out, parameters=FREE.get(name, ()), settings=settings)
    return json.loads(file.read_text())


if __name__ == "__main__":
    main()
