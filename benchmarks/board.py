# SPDX-License-Identifier: Apache-2.0
"""The board of real robots: `adapt` with its defaults on public logs, beside the declaration, baselines and a GRU.

A row is a robot of examples/real_robots with its log. Runs are split into fit, validation and test: other motions,
payloads, controllers or days, or the end of a single recording. Every model starts at the same times of test runs;
errors are *at* each horizon (and *up to* it in the JSON file), metres apart from radians. A row is measured once and
kept in --keep; a run that fails is a row with its error. Rows whose log is absent are skipped.

docs/real-robots.md has the table that this script writes with --page; rows that it does not measure stay there.
"""

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import numpy as np
import torch

from _board_page import write_page
from _common import board_parser, commit, kept_rows, require, single_thread, write_result
from _whole_walks import whole_walks
from neurodyn.core import InputError, read_json
from neurodyn.data import Split, Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.measures import BASELINES
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import recorded_environments, roll_along, truth_of
from neurodyn.evaluate.run import open_along_log
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.motors import with_motors
from neurodyn.identify.settings import AdaptationSettings
from neurodyn.learn.neural.settings import load_settings
from neurodyn.learn.neural.train import train
from neurodyn.learn.run_folder import TrainingJob
from neurodyn.robots import load as load_robot

ROOT = Path(__file__).resolve().parents[1]
ROBOTS = ROOT / "examples" / "real_robots"
SHARED = ROOT.parent / "shared" / "data"
PAST = 20
"""Most frames before a start that a model may read, where a row says nothing else."""
STARTS = 300
"""Most starts of a row."""
GRU_MINUTES = 2.0

Parts = Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, np.ndarray]]
"""From a log's arrays to the first rows of its runs and the split of each."""


def by_name(test: str, validation: str) -> Parts:
    """Split runs by patterns of their names, separated by spaces."""

    def parts(log: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        def held(name: str, patterns: str) -> bool:
            return any(fnmatchcase(name, pattern) for pattern in patterns.split())

        names = [str(name) for name in log["run_names"]]
        return log["offsets"], np.array([2 if held(n, test) else 1 if held(n, validation) else 0 for n in names])

    return parts


def by_number(test: set[int], validation: set[int], runs: str = "") -> Parts:
    """Split runs by their number, or by that of an array with a value per run."""

    def parts(log: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        numbers = log[runs] if runs else np.arange(len(log["offsets"]) - 1)
        return log["offsets"], np.array([2 if k in test else 1 if k in validation else 0 for k in numbers.tolist()])

    return parts


def in_time(shares: tuple[float, ...], test: set[int], validation: set[int]) -> Parts:
    """Cut a recording without runs at shares of its length."""

    def parts(log: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        rows = len(log["time"])
        offsets = np.array([round(share * rows) for share in (0.0, *shares, 1.0)])
        return offsets, np.array([2 if k in test else 1 if k in validation else 0 for k in range(len(offsets) - 1)])

    return parts


@dataclass(frozen=True)
class Row:
    """A robot with its log.

    Attributes:
        title: Its name in the table.
        file: The log in the folder of data.
        parts: Its runs and their split.
        seconds: Horizons [s].
        run: Only this run of the file; None for all.
        moving: Least mean speed of the joints in the windows that count; None for all.
        held_out: What differs in the test runs, in words.
        past: Most frames before a start that a model may read.
        made: Makes the arrays of the row of those of the file; None for these.
    """

    title: str
    file: str
    parts: Parts
    seconds: tuple[float, ...] = (0.1, 0.5, 1.0)
    run: str | None = None
    moving: float | None = None
    held_out: str = "other motions"
    past: int = PAST
    made: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]] | None = None


_TRIANGLES = by_number({2, 6}, {4})
ROWS = {
    "go2": Row("Go2 in the air", "iit_air/go2.npz", _TRIANGLES),
    "aliengo": Row("Aliengo in the air", "iit_air/aliengo.npz", _TRIANGLES),
    "z1": Row("Z1 arm", "iit_air/z1.npz", _TRIANGLES),
    "so101": Row("SO-101 arm", "sage_so101/sage_so101.npz", by_name(
        "chirp_sweep figure_eight gripper_cycles prbs_excitation reaching_points spiral_motion workspace_sweep",
        "backlash_detection coupled_joints multisine step_response triangle_wave")),
    "xl330": Row("XL330 servo", "bam_xl330/bam_xl330.npz", by_name(
        "sin_time_square_* up_and_down_kp200", "up_and_down_kp100 sin_sin_kp800"), held_out="other motions and gains"),
    "robstride": Row("Robstride 44", "ktune_rs/ktune_rs.npz", in_time((0.6, 0.75), {2}, {1}), run="44",
                     held_out="higher frequencies"),
    "crazyflie": Row("Crazyflie 2.1", "nanobench/nanobench.npz", by_name("*trefoil* *helix_fast", "*star_fast"),
                     held_out="other figures", past=50),
    "ricmonk": Row("ricmonk", "ricmonk/ricmonk.npz", by_name(
        "6xForward/swing[456] ZF/* 3xForward_170g*/swing3 3xForward_200g*/swing3",
        "6xForward/swing3 3xForward_170g*/swing2 3xForward_200g*/swing2"), held_out="other swings and payloads"),
    "acromonk": Row("acromonk", "acromonk/acromonk.npz", by_name("ZF_* BF_tvlqr_5x/swing[45]", "ZB_tvlqr* BF_*/swing3"),
                    held_out="other swings and controllers"),
    "single": Row("single pendulum", "multiarm/single.npz", by_number({3}, {2}), held_out="later stretches"),
    "double": Row("double pendulum", "multiarm/double.npz", by_number({3}, {2}), held_out="later stretches"),
    "triple": Row("triple pendulum", "multiarm/triple.npz", by_number({3}, {2}), held_out="later stretches"),
    "compass": Row("compass gait", "compass_gait/compass_gait.npz", by_number({7, 9}, {6}, "walk"), (0.1, 0.25),
                   held_out="other walks"),
    "compass_walk": Row("compass gait, whole walks", "compass_gait/compass_gait.npz", by_number({7, 9}, {6}, "walk"),
                        held_out="other walks", made=whole_walks),
    "hopper": Row("leg on a stand", "hopper/hop_start.npz", in_time((0.5, 0.7), {2}, {1}), (0.05, 0.1), moving=0.5,
                  held_out="the landing"),
    "cassie": Row("Cassie's landings", "cassie/cassie.npz", by_number({16, 17, 18, 19}, {13, 14, 15}), (0.02, 0.045),
                  held_out="other landings"),
}  # fmt: skip


def main() -> None:
    """Measure rows that are not kept, and write the table."""
    parser = board_parser(__doc__, list(ROWS), SHARED, Path("board"))
    parser.add_argument("--gru", action="store_true", help=f"train a GRU of {GRU_MINUTES:g} CPU min where none is kept")
    parser.add_argument("--collect", action="store_true", help="read the rows that are kept, measure none")
    asked = parser.parse_args()
    single_thread()

    def measure(name: str) -> dict | None:
        if asked.collect:
            return None
        if not (asked.data / ROWS[name].file).is_file():
            print(f"{name}: skipped, {asked.data / ROWS[name].file} is absent", flush=True)
            return None
        return measured(name, asked.data, asked.keep / name, asked.gru)

    rows = kept_rows(asked, "row.json", measure, summary)
    if asked.page is not None:
        write_page(asked.page, {name: (row.title, row.held_out) for name, row in ROWS.items()}, rows, asked.keep)
    figures = {
        f"{name}_{model}_{group}_{seconds:g}s": errors["at"][group][k]
        for name, row in rows.items()
        for model, errors in row["models"].items()
        for group in errors["at"]
        for k, seconds in enumerate(row["seconds"])
        if errors["at"][group][k] is not None
    } | {f"{name}_adapt_cpu_s": row["cpu_s"] for name, row in rows.items()}
    write_result(asked.json, "board", figures, {})


def measured(name: str, data: Path, keep: Path, gru: bool) -> dict:
    """Adapt a robot, and measure all models of its row."""
    row, folder = ROWS[name], ROBOTS / name
    keep.mkdir(parents=True, exist_ok=True)
    log = prepared(row, data, keep / f"{name}.npz")
    store_file = keep / f"{name}.h5"
    told = command("import", str(log), "--reader", str(folder / "map.yaml"), "--out", str(store_file), fresh=store_file)
    result = {"commit": commit(), "import": told[-1000:], "models": {}, "cpu_s": 0.0, "verdict": "", "told": ""}
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = keep / "run"
    asked = ("--kind", "any", "--threads", "1")
    told = command("adapt", str(folder), "--data", str(store_file), "--out", str(run), *asked, fresh=run)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    result |= {"cpu_s": ended.ru_utime - began.ru_utime + ended.ru_stime - began.ru_stime, "told": told[-3000:]}
    adapted = (run / "adaptation.json").is_file()
    trained = keep / "gru"
    if gru and not (trained / "done").is_file():
        train_gru(folder, store_file, trained)
    if adapted:
        figures = read_json(run / "adaptation.json")
        result |= {"verdict": figures["verdict"], "chosen": figures["network"] or figures["chosen"]}
        result["cpu_s_network"] = sum(one["cpu_seconds"] for one in figures["references"])
        result["better"] = better_by_evaluate(row, run, store_file)
    return result | errors_of(row, folder, store_file, run if adapted else None, trained)


def better_by_evaluate(row: Row, run: Path, log: Path) -> list[str]:
    """Return the models that `neurodyn evaluate` finds better than an adaptation at some horizon on the test runs."""
    mechanism, out = run / "mechanism", run.parent / "evaluated.json"
    horizon = max(1, round(row.seconds[-1] / Store.open(log).header.spec.dt))
    asked = ["--data", str(log), "--split", "test", "--horizon", str(horizon), "--rollouts", str(STARTS)]
    told = command(
        "evaluate", str(mechanism if mechanism.is_dir() else run), *asked, "--threads", "1", "--json", str(out),
        "--report", str(out.with_suffix(".html")), fresh=out,
    )  # fmt: skip
    require(out.is_file(), told[-500:])
    titles = {
        "persistence": "persistence", "constant-velocity": "constant velocity", "declared-simulator": "declared",
        "network-trained-beside-it": "GRU",
    }  # fmt: skip
    return [titles[one["name"]] for one in read_json(out).get("findings", ()) if one["name"] in titles]


def train_gru(folder: Path, log: Path, out: Path) -> None:
    """Train the default network of logs for the budget of the board."""
    shutil.rmtree(out, ignore_errors=True)
    robot, store = load_robot(folder), Store.open(log)
    settings = load_settings(robot, "small", log=True)
    settings = msgspec.structs.replace(settings, minutes=GRU_MINUTES, steps=None, clock="cpu", threads=1)
    try:
        train(TrainingJob(robot, str(folder), str(log), store, out, settings))
    except InputError as error:
        print(f"{folder.name}: no GRU: {error}", flush=True)
        out.mkdir(parents=True, exist_ok=True)
    (out / "done").touch()


def prepared(row: Row, data: Path, path: Path) -> Path:
    """Write a row's log with its runs and their split."""
    with np.load(data / row.file) as file:
        log = {key: file[key] for key in file.files}
    log = log if row.made is None else row.made(log)
    if row.run is not None:
        k = [str(one) for one in log["run_names"]].index(row.run)
        first, last = log["offsets"][k : k + 2].tolist()
        rows = len(log["time"])
        log = {key: value[first:last] for key, value in log.items() if len(value) == rows}
    offsets, split = row.parts(log)
    if len(offsets) != len(log.get("offsets", ())):
        log["run_names"] = np.array([f"part{k}" for k in range(len(split))])
    np.savez(path, **{**log, "offsets": offsets, "split": split.astype(np.int8)})
    return path


def command(*words: str, fresh: Path) -> str:
    """Run the command line, and return what it prints; its output must not exist."""
    if fresh.is_dir():
        shutil.rmtree(fresh)
    fresh.unlink(missing_ok=True)
    called = [sys.executable, "-m", "neurodyn", *words]
    done = subprocess.run(called, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr


def errors_of(row: Row, folder: Path, log: Path, run: Path | None, gru: Path) -> dict:
    """Return the errors of all models from the same starts of the test runs."""
    store, robot = Store.open(log), load_robot(folder)
    dt = robot.spec.dt
    frames = [max(1, round(s / dt)) for s in row.seconds]
    longest = int(store.lengths[store.episodes(Split.TEST)].max())
    past = min(row.past, longest - frames[-1])
    require(past >= 0, f"{log}: its test runs are shorter than {row.seconds[-1]:g} s")
    windows = select_windows(store, Split.TEST, past + frames[-1], most=STARTS, moving=row.moving).after(past)
    declared = FitModel.declared(with_motors(robot, store), str(folder), AdaptationSettings())
    models: dict[str, tuple[Dynamics, Store]] = {"declared": (declared.dynamics(store, 1), store)}
    if run is not None:
        models["any"] = opened(run, log)
        mechanism, network = run / "mechanism", run / "network"
        models["adapt"] = opened(mechanism, log) if mechanism.is_dir() else models["any"]
        if network.is_dir():
            models["gru"] = opened(network, log)
    if (gru / "model").is_dir():
        models["gru"] = opened(gru, log)
    errors = {name: compared(*one, windows) for name, one in models.items()}
    errors |= {name: errors["declared"].baseline(name) for name in BASELINES}
    return {
        "seconds": list(row.seconds), "starts": windows.count,
        "models": {
            name: {"at": one.by_group(frames), "up_to": up_to(one, frames), "finite": one.finite_fraction}
            for name, one in errors.items()
        },
    }  # fmt: skip


def opened(run: Path, log: Path) -> tuple[Dynamics, Store]:
    """Return a run's model, and the log with the values that it gives to quantities of runs."""
    model, _, _, store = open_along_log(run, str(log))
    return model, store


@torch.no_grad()
def compared(model: Dynamics, store: Store, windows: Windows) -> RolloutErrors:
    """Roll a model out along windows of a log, with the quantities of its runs in a store."""
    if store.parameters is not None:
        windows = replace(windows, parameters=torch.from_numpy(store.parameters)[windows.episode].double())
    path = roll_along(model, windows.to(torch.float32), recorded_environments(store, model))
    return RolloutErrors(store.header.spec, Trajectory(path.q.double(), path.qd.double()), truth_of(windows))


def up_to(errors: RolloutErrors, frames: list[int]) -> dict[str, list[float | None]]:
    """Return mean errors up to horizons by group."""
    every = errors.by_group(range(1, frames[-1] + 1))
    return {
        group: [None if one[0] is None else float(np.mean(one[:frame])) for frame in frames]
        for group, one in every.items()
    }


def summary(row: dict) -> str:
    """Return a row in a line: errors at the last horizon, CPU time and verdict."""
    errors = "; ".join(
        f"{name} " + " ".join("-" if one[-1] is None else f"{one[-1]:.4g}" for one in entry["at"].values())
        for name, entry in row["models"].items()
    )
    last = "" if "adapt" in row["models"] else " | " + (row["told"].strip().splitlines() or ["?"])[-1][:200]
    return f"({row['cpu_s']:.0f} CPU-s, {row['verdict'] or 'no model'}) {errors}{last}"


if __name__ == "__main__":
    main()
