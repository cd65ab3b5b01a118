# SPDX-License-Identifier: Apache-2.0
"""Discovery of a robot's augmentations, from its log to a run directory."""

from pathlib import Path
from typing import Any

from neurodyn.core import artifacts
from neurodyn.core.config import read_config, to_dict, to_yaml, with_changes
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.errors import InputError
from neurodyn.core.locks import exclusive
from neurodyn.core.provenance import package_versions
from neurodyn.core.requests import accepts_request
from neurodyn.core.workers import resolve_threads
from neurodyn.data.header import Split
from neurodyn.data.store import Store
from neurodyn.data.training_range import training_range
from neurodyn.data.windows import select_windows
from neurodyn.dynamics.artifact import robot_of
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.discovery.sparse_groups import DiscoverySettings, discover
from neurodyn.identify.requests import DiscoverRequest
from neurodyn.learn.devices import threads as torch_threads
from neurodyn.learn.manifest import RunRecord
from neurodyn.learn.metrics import show_results
from neurodyn.learn.neural.train import require_data
from neurodyn.learn.run_folder import check_run
from neurodyn.learn.tracking import Logger, chosen_tracker, require_tracker, tracking
from neurodyn.robots import Robot, load, locate
from neurodyn.robots.data import open_robot_data


def discover_run(
    robot: Robot,
    robot_name: str,
    store: Store,
    out: Path,
    settings: DiscoverySettings,
    *,
    base: str | None = None,
    candidates: Blueprint | None = None,
    data: str = "",
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    logger: Logger | None = None,
) -> dict[str, Any]:
    """Discover augmentations and write a run directory: model, blueprint.yaml and discovery.json.

    Args:
        robot: The robot.
        robot_name: Name or path from which the robot is loaded again.
        store: The log.
        out: Run directory.
        settings: Settings.
        base: Run of an identification that provides the parameters; None for nominal parameters.
        candidates: Candidate networks; None for one on the torque of each joint.
        data: Origin of the log, for the record.
        device: Torch device of the roll-outs; the search itself runs on the CPU.
        threads: CPU threads; None for one per available core. Results do not depend on it.
        resume: Whether to continue a stopped discovery of the same run.
        logger: Experiment tracker; see `learn.train`.

    Returns:
        The content of discovery.json.

    Raises:
        InputError: The data or the base belong to another robot, the run exists, or a candidate names an unknown
            quantity.
    """
    require_data(robot, store)
    record = RunRecord(
        kind="hybrid", robot=robot_name, data=data, blueprint=candidates, settings=settings,
        versions=package_versions("torch", "newton"), base=base,
    )  # fmt: skip
    with exclusive(out), tracking(logger, out):
        going_on = check_run(out, record, resume)
        dynamics = declared_hybrid(robot) if base is None else read_base(base, robot)
        dynamics.declaration, dynamics.threads = robot_name, resolve_threads(threads)
        dynamics.compute_device = device
        known, seen = dynamics.training_range, training_range(store)
        dynamics.training_range = seen if known is None else known.union(seen)
        frames = settings.horizon
        train = select_windows(store, Split.TRAIN, frames, stride=frames, most=settings.windows)
        held_out = select_windows(store, Split.VALIDATION, frames, stride=frames, most=settings.held_out)
        with torch_threads(1):  # keeps the order of sums; roll-outs use separate threads
            discovery = discover(
                dynamics, train, held_out, settings, candidates, run=out, record=record, resume=going_on
            )
        result = {"robot": robot.name, "base": base, "settings": to_dict(settings), **discovery.summary()}
        HYBRID.save(out, discovery.dynamics)
        artifacts.write_text(out / "blueprint.yaml", to_yaml(discovery.chosen.blueprint))
        artifacts.write_json(out / "discovery.json", result)
        _show(out, result)
        return result


def _show(out: Path, result: dict[str, Any]) -> None:
    """Show the discovered networks and the model in the tracker."""
    pairs = [[pair["quantity"], pair["input"]] for pair in result["pairs"]]
    summary = {name: result[name] for name in ("held_out_error", "bare_error")}
    show_results(
        out, chosen_tracker(), tables=[("discovered", ("acts on", "input"), pairs)], summary=summary, model=True
    )


@accepts_request(DiscoverRequest)
def discover_robot(request: DiscoverRequest) -> dict[str, Any]:
    """Discover the augmentations of a robot that is given by name, from a file; see `discover_run`."""
    require_tracker(request.logger, request.out)
    robot, store, settings, candidates = plan_discovery(request)
    return discover_run(
        robot, locate(request.robot), store, request.out, settings, base=request.base, candidates=candidates,
        data=request.data, device=request.device, threads=request.threads, resume=request.resume, logger=request.logger,
    )  # fmt: skip


def plan_discovery(request: DiscoverRequest) -> tuple[Robot, Store, DiscoverySettings, Blueprint | None]:
    """Return robot, log, settings and candidate networks of a discovery.

    Raises:
        InputError: One of them is missing or malformed.
    """
    robot, given, candidates = load(request.robot), request.settings, request.candidates
    settings = DiscoverySettings() if given is None else given
    if not isinstance(settings, DiscoverySettings):
        settings = read_config(Path(settings), DiscoverySettings)
    if request.seed is not None:
        settings = with_changes(settings, seed=request.seed)
    if isinstance(candidates, str | Path):
        candidates = read_config(Path(candidates), Blueprint)
    return robot, open_robot_data(robot, request.data), settings, candidates


def read_base(base: str, robot: Robot) -> HybridDynamics:
    """Load the model that provides the parameters.

    Raises:
        InputError: It is of another robot, or has networks already.
    """
    model = HYBRID.load(base)
    if model.spec.robot != robot.name:
        raise InputError(f"--base {base}: is a model of {robot_of(base)!r}; valid: one of {robot.name!r}")
    if model.config.blueprint.augmentations:
        raise InputError(
            f"--base {base}: has networks already; valid: a run of `neurodyn identify` without --blueprint"
        )
    return model
