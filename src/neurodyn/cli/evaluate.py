# SPDX-License-Identifier: Apache-2.0
"""`neurodyn evaluate`: errors by horizon, beside the simulator or beside a log."""

from pathlib import Path
from typing import Annotated, Literal

import tyro


def evaluate(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    /,
    *,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = 500,
    data: str | None = None,
    split: Literal["train", "validation", "test", "all"] | None = None,
    ground: str | None = None,
    stability: bool = False,
    beside: tuple[str, ...] = (),
    json: Path | None = None,
    report: Path | None = None,
) -> None:
    """Measure a model beside its simulator, or with --data beside recorded trajectories.

    Args:
        run: Run directory, or pretrained:NAME.
        horizon: Frames of a roll-out; by default what the robot declares (usually 1000) beside the simulator, and
            half a second on logs.
        rollouts: Number of roll-outs; by default 2048 beside the simulator (512 for floating robots, whose simulator is
            slow) and 20000 on logs.
        seed: Seed of initial states and torques.
        data: HDF5 store, or an npz log in the layout that the robot declares; by default the log that the
            model was trained on, where it was trained on one.
        split: Which episodes of the data; by default the test episodes where there are any.
        ground: One of the robot's grounds by name, a YAML file with a scene, or "all" for a table of all of the robot's
            grounds; by default the one that the robot declares.
        stability: Also roll out 64 worlds for 10,000 frames, and count what stays finite and above ground.
        beside: Runs of other world models (one trained on single frames, say), measured from the same starts.
        json: File for the result as JSON.
        report: Write a report page to this file as well as to the run directory.
    """
    from neurodyn.cli.tables import print_evaluation
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.core.errors import InputError
    from neurodyn.dynamics.artifact import kind_of
    from neurodyn.evaluate.run import evaluate_run

    require_writable(json, report)
    if kind_of(run) == "world-model":
        if ground is not None or stability:
            raise InputError("--ground and --stability are for roll-outs beside a simulator, not for world models")
        _evaluate_world_model(run, horizon, rollouts, seed, data, split, beside, json, report)
        return
    if beside:
        raise InputError("--beside compares world models; valid: RUN of a world model")
    result = evaluate_run(
        run, horizon=horizon, rollouts=rollouts, seed=seed, data=data, split=split, ground=ground, stable=stability
    )
    print_evaluation(result)
    if json is not None:
        write_json(json, result)
        print(f"figures: {json}")
    page = _report(run, result, report)
    if page is not None:
        print(f"report: {page}")


def _report(run: str, result: dict, path: Path | None) -> Path | None:
    from neurodyn.core.artifacts import PRETRAINED, resolve_run
    from neurodyn.report import write_report

    if path is None and run.startswith(PRETRAINED):
        return None  # what ships with the package is not written to
    return write_report(resolve_run(run), result, path=path)


def _evaluate_world_model(
    run: str,
    horizon: int | None,
    rollouts: int | None,
    seed: int,
    data: str | None,
    split: str | None,
    beside: tuple[str, ...],
    json: Path | None,
    report: Path | None,
) -> None:
    from neurodyn.cli.world_model_tables import print_world_model
    from neurodyn.core.artifacts import PRETRAINED, write_json
    from neurodyn.evaluate.world_model_run import evaluate_world_run
    from neurodyn.report.world_model import write_world_report

    result = evaluate_world_run(
        run, horizon=horizon, rollouts=rollouts, seed=seed, data=data, split=split, beside=beside
    )
    print_world_model(result)
    if json is not None:
        write_json(json, result)
        print(f"figures: {json}")
    if report is not None or not run.startswith(PRETRAINED):
        print(f"report: {write_world_report(run, result, data=data, split=split, path=report)}")
