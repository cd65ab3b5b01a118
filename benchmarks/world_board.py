# SPDX-License-Identifier: Apache-2.0
"""World models of the board's real robots: errors beside its other models, coverage, and motions that they refuse.

Each is an ensemble of GRUs, trained on the runs of a row of benchmarks/board.py for --minutes of CPU time with the
settings `world-model-small`, whose memory is what the board lets a model read. Forecasts start at the board's starts.
Coverage is the share of measured joint positions, or velocities of a base, within the band of 90 %, whose width is
calibrated on validation runs. A base's pose is integrated from its forecast velocities.

A row is measured once and kept in --keep; docs/real-robots.md has the table, with the column `adapt` of its first one.

    python benchmarks/world_board.py --data LOGS --keep world-board --page docs/real-robots.md

With --hidden whole kinds of motion are hidden from the training (`HIDDEN`), to see whether they are refused; with
--untold the networks do not get the quantities of a run, such as the servo's gain, as inputs:

    python benchmarks/world_board.py --data LOGS --keep world-hidden --hidden --only xl330 so101
    python benchmarks/world_board.py --data LOGS --keep world-untold --hidden --untold --only xl330
"""

import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from _board_page import cell, read_table, what
from _common import board_parser, commit, kept_rows, require, single_thread, write_result
from board import ROBOTS, ROWS, SHARED, STARTS, Row, by_name, command, prepared
from neurodyn.data import Split, Store
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics import State, Trajectory, WorldModel
from neurodyn.dynamics.measures import BASELINES
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import recorded_environments, roll_along, truth_of
from neurodyn.dynamics.world_model.base_path import with_base_path
from neurodyn.dynamics.world_model.model import WORLD_MODEL
from neurodyn.evaluate.refusals import refused_starts
from neurodyn.learn.requests import TrainRequest
from neurodyn.learn.run_folder import TrainingJob
from neurodyn.learn.training import plan_world_model_training
from neurodyn.learn.world_model.settings import load_world_settings
from neurodyn.learn.world_model.train import train_world_model
from neurodyn.robots import load as load_robot
from neurodyn.robots.base_channels import open_measured_data

NAMES = ("go2", "aliengo", "z1", "so101", "xl330", "crazyflie", "ricmonk", "acromonk")
HIDDEN = {
    "xl330": by_name("*_kp800", "sin_time_square_kp200 up_and_down_kp100"),
    "so101": by_name(
        "actuator_bandwidth chirp_sweep fast_transitions multisine oscillation_med_freq prbs_excitation step_response",
        "coupled_joints custom_motion lissajous_pattern square_pattern"),
}  # fmt: skip
"""Runs that are hidden from the training, and validation runs: a servo's highest gain, and an arm's fast motions."""
LEAST = 5
"""Fewest refused starts, and others, whose errors are compared."""
BAND = 1.6449
"""Half width of a band of 90 % [standard deviations]."""
BEGIN, END = "<!-- world models: written by benchmarks/world_board.py -->", "<!-- end of world models -->"


def main() -> None:
    """Measure rows that are not kept, and write the table."""
    parser = board_parser(__doc__, NAMES, SHARED, Path("world-board"))
    parser.add_argument("--minutes", type=float, default=1.5, help="CPU time of a training")
    parser.add_argument("--hidden", action="store_true", help="hide kinds of motion from the training")
    parser.add_argument("--untold", action="store_true", help="networks get no quantities of a run")
    asked = parser.parse_args()
    single_thread()
    require(not asked.hidden or {*asked.only} <= {*HIDDEN}, f"hidden motions are of {', '.join(HIDDEN)}")
    require(asked.page is None or not (asked.hidden or asked.untold), "the page has no hidden motions and gains")
    known = {name: replace(ROWS[name], parts=HIDDEN[name]) if asked.hidden else ROWS[name] for name in asked.only}

    def measure(name: str) -> dict:
        return measured(name, known[name], asked.data, asked.keep / name, asked.minutes, told=not asked.untold)

    rows = kept_rows(asked, "world.json", measure)
    if asked.page is not None:
        write_page(asked.page, rows)
    figures = {
        f"{name}_{group}_{seconds:g}s": errors[k]
        for name, row in rows.items()
        for group, errors in row["at"]["world model"].items()
        for k, seconds in enumerate(row["seconds"])
    }
    for name, row in rows.items():
        for split, found in row["refusals"].items():
            print(f"{name:8} {split:10} " + ", ".join(f"{key} {value:.3g}" for key, value in found.items()))
            figures |= {f"{name} {split} {key}": value for key, value in found.items()}
    write_result(asked.json, "world-board", figures, {})


def measured(name: str, row: Row, data: Path, keep: Path, minutes: float, *, told: bool = True) -> dict:
    """Train a world model on a row's log if none is kept, and measure it on the test runs."""
    folder, run = ROBOTS / name, keep / "world-model"
    keep.mkdir(parents=True, exist_ok=True)
    log, file = prepared(row, data, keep / f"{name}.npz"), keep / f"{name}.h5"
    if not file.is_file():
        said = command("import", str(log), "--reader", str(folder / "map.yaml"), "--out", str(file), fresh=file)
        require(file.is_file(), said)
    robot, whole = load_robot(folder), Store.open(file)
    frames = [max(1, round(s / robot.dt)) for s in row.seconds]
    longest = int(whole.lengths[whole.episodes(Split.TEST)].max())
    past = min(row.past, longest - frames[-1])
    if not (run / "model").is_dir():
        train(name, file, run, past, frames[-1], minutes, told=told)
    model, store = WORLD_MODEL.load(run), open_measured_data(robot, file)
    windows = select_windows(whole, Split.TEST, past + frames[-1], most=STARTS, moving=row.moving).after(past)
    seen = windows_of(store, windows, past, frames[-1])
    path, truth = forecast(model, store, seen), truth_of(seen)
    own = path
    if whole.header.spec.floating:
        own = with_base_path(model.spec, State(windows.q[:, 0], windows.qd[:, 0]), path, whole.header.base_com)
    errors = {"world model": RolloutErrors(whole.header.spec, own, truth_of(windows))}
    errors |= {one: errors["world model"].baseline(one) for one in BASELINES}
    return {
        "commit": commit(), "seconds": list(row.seconds), "starts": windows.count,
        "at": {one: errors_.by_group(frames) for one, errors_ in errors.items()},
        "finite": errors["world model"].finite_fraction,
        "coverage": [coverage(model, path, truth, frame) for frame in frames],
        "refusals": {split.name.lower(): refused(model, store, split, past, frames[-1]) for split in Split},
    }  # fmt: skip


def train(name: str, file: Path, run: Path, past: int, horizon: int, minutes: float, *, told: bool = True) -> None:
    """Train a world model with a memory of `past` frames; if `told`, quantities that differ by run are inputs."""
    shutil.rmtree(run, ignore_errors=True)
    robot = load_robot(ROBOTS / name)
    small = load_world_settings(robot, "small")
    phases = tuple(msgspec.structs.replace(phase, context=past) for phase in small.phases)
    settings = msgspec.structs.replace(
        small, phases=phases, context=past, validation_frames=horizon, clock="cpu", minutes=minutes, constant="hold"
    )
    differing = differing_in_training(Store.open(file)) if told else ()
    request = TrainRequest(robot, str(file), run, kind="world-model", size=settings, conditions=differing)
    settings, mixture = plan_world_model_training(robot, request)
    train_world_model(TrainingJob(robot, str(ROBOTS / name), str(file), mixture, run, settings))


def differing_in_training(store: Store) -> tuple[str, ...]:
    """Return the quantities of a log that differ between its training runs."""
    if store.parameters is None:
        return ()
    known = store.parameters[store.episodes(Split.TRAIN)]
    return tuple(name for name, column in zip(store.header.parameters, known.T, strict=True) if len({*column}) > 1)


def windows_of(store: Store, windows: Windows, past: int, frames: int) -> Windows:
    """Return the same windows in a store of what is measured."""
    every = select_windows(store, Split.TEST, past + frames, most=STARTS).after(past)
    require(bool((every.source.places == windows.source.places).all()), "other windows of what is measured")
    return every


@torch.no_grad()
def forecast(model: WorldModel, store: Store, windows: Windows) -> Trajectory:
    """Roll a world model out along windows of its log."""
    path = roll_along(model, windows.to(torch.float32), recorded_environments(store, model))
    parts = (path.q, path.qd, path.channels, path.aleatoric, path.epistemic)
    q, qd, channels, aleatoric, epistemic = (None if x is None else x.double() for x in parts)
    assert q is not None
    assert qd is not None
    return Trajectory(q, qd, channels, aleatoric=aleatoric, epistemic=epistemic)


def coverage(model: WorldModel, path: Trajectory, truth: Trajectory, frame: int) -> float:
    """Return the share of joint positions, or base velocities, within their bands of 90 % at a frame."""
    assert path.aleatoric is not None
    assert path.epistemic is not None
    error = RolloutErrors(model.spec, path, truth).columns[:, frame - 1]
    band = BAND * torch.hypot(path.aleatoric, path.epistemic)[:, frame - 1]
    counted = model.spec.nq or 6  # of a base alone: its linear and angular velocity
    return float((error.abs() <= band)[:, :counted].double().mean())


def refused(model: WorldModel, store: Store, split: Split, past: int, frames: int) -> dict[str, float]:
    """Return the shares of starts of a split that the model refuses, and the mean errors of these and the others.

    Errors are those of all columns after `frames` frames, in standard deviations of the training data. The members'
    disagreement alone would refuse what is above that on 98 % of the validation runs.
    """
    known = select_windows(store, Split.VALIDATION, past + 1, most=1000).after(past)
    usual = disagreement(model, store, known).quantile(0.98)
    windows = select_windows(store, split, past + frames, most=1000).after(past)
    who = refused_starts(model, store, windows)
    assert who is not None
    assert who.contradicted is not None
    error = RolloutErrors(model.spec, forecast(model, store, windows), truth_of(windows)).columns[:, -1]
    scaled = (error / model.state_scale)[:, model.varying].abs().mean(-1)
    found = {
        "refused": who.any, "outside": who.outside, "contradicted": who.contradicted,
        "by disagreement alone": disagreement(model, store, windows) > usual,
        "error where refused": scaled[who.any], "error elsewhere": scaled[~who.any],
    }  # fmt: skip
    return {key: float(values.double().mean()) for key, values in found.items() if len(values) >= LEAST}


@torch.no_grad()
def disagreement(model: WorldModel, store: Store, windows: Windows) -> Tensor:
    """Return the members' standard deviation over the next frame, in those of the training data, shape [starts]."""
    epistemic = forecast(model, store, windows.until(1)).epistemic
    assert epistemic is not None
    return (epistemic[:, 0] / model.state_scale)[:, model.varying].mean(-1)


def write_page(page: Path, rows: dict[str, dict]) -> None:
    """Write the table between the page's marks; `adapt` is that of the board's table."""
    text = page.read_text()
    begin, rest = text.split(BEGIN)
    board = read_table(text, {name: (row.title, row.held_out) for name, row in ROWS.items()})
    page.write_text(f"{begin}{BEGIN}\n{table(rows, board)}\n{END}{rest.split(END)[1]}")


def table(rows: dict[str, dict], board: dict[str, dict]) -> str:
    """Return the table of all rows: errors at each row's horizons, coverage, and the share of refused frames."""
    lines = [
        "| robot | at | persistence | constant velocity | `adapt` | world model | within 90 % band | refused: fit, "
        "validation, test | error there |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        first = True
        for k, seconds in enumerate(row["seconds"]):
            for group, mine in row["at"]["world model"].items():
                others = [row["at"][one][group][k] for one in BASELINES]
                adapt = board[name]["models"]["adapt"]["at"][group][k]
                values = [*others, adapt, mine[k]]
                best = min(value for value in values if value is not None)
                shares = ", ".join(f"{row['refusals'][s]['refused']:.0%}" for s in ("train", "validation", "test"))
                cells = [f"{ROWS[name].title}" if first else "", f"{seconds:g} s, {what(group)}"]
                cells += [cell(value, best) for value in values]
                test = row["refusals"]["test"]
                known = "error where refused" in test and "error elsewhere" in test
                worse = f"{test['error where refused'] / test['error elsewhere']:.2g} times" if known else ""
                cells += [f"{row['coverage'][k]:.0%}", *((shares, worse) if first else ("", ""))]
                lines.append(f"| {' | '.join(cells)} |")
                first = False
    return "\n".join(lines)


if __name__ == "__main__":
    main()
