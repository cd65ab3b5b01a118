# SPDX-License-Identifier: Apache-2.0
"""Evaluate a run with the defaults that suit it: beside its simulator, or beside the log it learned from."""

from pathlib import Path
from typing import Any

from neurodyn.core.artifacts import resolve_run
from neurodyn.core.errors import InputError
from neurodyn.data.store import Split
from neurodyn.dynamics.artifact import load_simulator, robot_of
from neurodyn.dynamics.measures import summary_keys
from neurodyn.dynamics.same_robot import require_robot
from neurodyn.evaluate.as_evaluated import as_evaluated
from neurodyn.evaluate.log import evaluate_log
from neurodyn.evaluate.scenario import ALL, scenario, scenarios
from neurodyn.evaluate.simulator import SEED, default_rollouts, evaluate
from neurodyn.evaluate.stability import stability
from neurodyn.identify.starts import FromPast
from neurodyn.learn.neural.train import read_run_config, require_data
from neurodyn.robots import Robot
from neurodyn.robots import load as load_robot
from neurodyn.robots.data import open_robot_data

_MOST_BYTES = 8_000_000_000
_SPLITS = {"train": Split.TRAIN, "validation": Split.VALIDATION, "test": Split.TEST}


def evaluate_run(
    run: str,
    *,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = SEED,
    data: str | None = None,
    split: str | None = None,
    ground: str | None = None,
    stable: bool = False,
) -> dict[str, Any]:
    """Measure the model of a run.

    Args:
        run: Run directory, or "pretrained:NAME".
        horizon: Frames of a roll-out; None for the robot's own beside the simulator and half a second on logs.
        rollouts: Number of roll-outs; None for 2048 (of a floating robot 512) beside the simulator and 20000 starts
            on logs.
        seed: Seed of initial states and torques.
        data: Recorded trajectories; None for the log that the model was trained on, if it was.
        split: "train", "validation", "test" or "all"; None for the test episodes where there are any.
        ground: Name of a ground of the robot, a file with a scene, or "all" for all of the robot's grounds; None for
            its default ground.
        stable: Whether roll-outs of 10,000 frames are made to see what becomes of them.

    Returns:
        The report of `fit.evaluate.evaluate` or `fit.evaluate_log.evaluate_log`, the latter with its "data" and how
        roll-outs "start": as "logged", or where "past" positions make likely. With all grounds, the report on the
        default ground (or the first), reports on each under "grounds", and means over them under "grounds_mean".

    Raises:
        InputError: The run or the data are missing or damaged, or of another robot.
    """
    for name, value in (("horizon", horizon), ("rollouts", rollouts)):
        if value is not None and value < 1:
            raise InputError(f"--{name} is {value}; valid: at least 1")
    model, robot = load_simulator(run), load_robot(robot_of(run))
    if data is None and model.fingerprint is None:
        data = training_log(run)
    if data is not None:
        if ground is not None or stable:
            raise InputError("--ground and --stability are for roll-outs beside the simulator; leave out --data")
        store = open_robot_data(robot, data)
        require_data(robot, store)
        chosen = _split(split, len(store.episodes(Split.TEST)))
        model = as_evaluated(run)
        found = evaluate_log(model, robot, store, split=chosen, horizon=horizon, rollouts=rollouts, seed=seed)
        return {**found, "data": data, "start": "past" if isinstance(model, FromPast) else "logged"}
    if split is not None:
        raise InputError("--split picks episodes of recorded data; give --data too")
    require_robot(model, robot)
    horizon, rollouts = horizon or robot.evaluation_horizon, rollouts or default_rollouts(robot)
    _require_memory(robot, horizon, rollouts)
    where = list(scenarios(robot).values()) if ground == ALL else [scenario(robot, ground)]
    result = evaluate(model, robot, horizon=horizon, rollouts=rollouts, seed=seed, where=where[0])
    if ground == ALL:
        others = [
            evaluate(model, robot, horizon=horizon, rollouts=rollouts, seed=seed, where=other, driven=False)
            for other in where[1:]
        ]
        result |= _by_ground([result, *others])
    if stable:
        result["stability"] = stability(model, robot, where=where[0], seed=seed)
    return result


def _by_ground(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what differs between grounds, and means over them."""
    columns = list(summary_keys(reports[0]))
    kept = [*columns, "joints", "by_horizon", "finite_fraction", "teacher_finite_fraction", "baselines", "floors"]
    means: dict[str, Any] = {}
    for key in columns:
        values = [report[key] for report in reports]
        means[key] = None if None in values else sum(values) / len(values)
    return {"grounds": {r["ground"]: {key: r[key] for key in kept} for r in reports}, "grounds_mean": means}


def training_log(run: str) -> str:
    """Return the path of the log that a run was trained on.

    Raises:
        InputError: It is gone.
    """
    path = Path(read_run_config(run).data)
    if not path.exists():
        raise InputError(f"{resolve_run(run)}: was trained on the log {path}, which is gone; name one with --data")
    return str(path)


def _require_memory(robot: Robot, horizon: int, rollouts: int) -> None:
    # Model, simulator, two baselines and the simulator again, each with errors beside it, all in memory at once.
    needed = 10 * 4 * (robot.spec.nq + robot.spec.nv + robot.spec.nu) * horizon * rollouts
    if needed > _MOST_BYTES:
        raise InputError(
            f"--rollouts {rollouts} of --horizon {horizon} need about {needed / 1e9:,.0f} GB of memory; valid: at most "
            f"{_MOST_BYTES // (needed // (horizon * rollouts)):,} frames in all"
        )


def _split(name: str | None, tests: int) -> int | None:
    if name is None:
        return Split.TEST if tests else None
    return None if name == "all" else _SPLITS[name]
