# SPDX-License-Identifier: Apache-2.0
"""Sweeps of `neurodyn identify` and `neurodyn discover`."""

from pathlib import Path
from typing import Any

import msgspec

from neurodyn.cluster.sweep.trainings.training import Paths, Training, paths_of
from neurodyn.core.artifacts import read_json
from neurodyn.core.config import Config, read_config
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.evaluate.runs.comparison import Figure


class IdentifyArguments(Config, frozen=True):
    """Arguments of `neurodyn identify` that a sweep takes; the others are settings."""

    robot: str
    data: Paths
    parameters: tuple[str, ...] = ()
    drive: str | None = None
    blueprint: str | None = None
    settings: str | None = None
    minutes: float | None = None


class Identify(Training):
    """`neurodyn identify`."""

    arguments = IdentifyArguments
    what = "error on validation episodes"

    def settings(self, given: IdentifyArguments) -> Config:
        """See `Training`."""
        from neurodyn.identify.identify import require_problem
        from neurodyn.identify.run import plan_identification
        from neurodyn.identify.settings import changed

        problem, found = plan_identification(
            given.robot, paths_of(given.data), parameters=given.parameters, blueprint=given.blueprint,
            settings=given.settings, drive=given.drive,
        )  # fmt: skip
        require_problem(problem, found)
        return changed(found, minutes=given.minutes)

    def settings_type(self, given: IdentifyArguments) -> type[Config]:
        """See `Training`."""
        from neurodyn.identify.settings import IdentificationSettings

        return IdentificationSettings

    def run(self, given: IdentifyArguments, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.identify.run import identify
        from neurodyn.report.identification import write_identification

        found = identify(
            given.robot, paths_of(given.data), out, parameters=given.parameters, drive=given.drive,
            blueprint=given.blueprint, settings=settings, resume=resume,
        )  # fmt: skip
        write_identification(out, found.figures, found.sample, found.runs)

    def figure(self, given: IdentifyArguments, out: Path) -> Figure:
        """See `Training`."""
        from neurodyn.evaluate.run import evaluate
        from neurodyn.evaluate.runs.figures import figures_of

        found = []
        for path in paths_of(given.data):
            measured = figures_of(str(out), evaluate(out, data=path, split="validation", threads=1))
            found.append(next(iter(measured.figures.values())))
        values = [figure.value for figure in found if figure.value is not None]
        whole = sum(values) / len(values) if len(values) == len(found) else None
        return msgspec.structs.replace(found[0], value=whole)


class DiscoverArguments(Config, frozen=True):
    """Arguments of `neurodyn discover` that a sweep takes."""

    robot: str
    data: str
    base: str | None = None
    candidates: str | None = None
    settings: str | None = None
    device: str = "cpu"


class Discover(Training):
    """`neurodyn discover`."""

    arguments = DiscoverArguments
    what = "held-out error of what was found, in standard deviations"

    def settings(self, given: DiscoverArguments) -> Config:
        """See `Training`."""
        from neurodyn.identify.discovery.discover import DiscoverySettings
        from neurodyn.identify.discovery.discovery_run import read_base
        from neurodyn.learn.devices import require_device
        from neurodyn.learn.neural.train import require_data
        from neurodyn.robots import load
        from neurodyn.robots.data import open_robot_data

        require_device(given.device)
        robot = load(given.robot)
        require_data(robot, open_robot_data(robot, given.data))
        if given.base is not None:
            read_base(given.base, robot)
        _candidates(given)
        return DiscoverySettings() if given.settings is None else read_config(Path(given.settings), DiscoverySettings)

    def settings_type(self, given: DiscoverArguments) -> type[Config]:
        """See `Training`."""
        from neurodyn.identify.discovery.discover import DiscoverySettings

        return DiscoverySettings

    def run(self, given: DiscoverArguments, settings: Any, out: Path, *, resume: bool) -> None:
        """See `Training`."""
        from neurodyn.identify.discovery.discovery_run import discover_run
        from neurodyn.robots import load, locate
        from neurodyn.robots.data import open_robot_data

        robot = load(given.robot)
        discover_run(
            robot, locate(given.robot), open_robot_data(robot, given.data), out, settings, base=given.base,
            candidates=_candidates(given), data=given.data, device=given.device, threads=1, resume=resume,
        )  # fmt: skip

    def figure(self, given: DiscoverArguments, out: Path) -> Figure:
        """See `Training`."""
        return Figure(value=read_json(out / "discovery.json")["held_out_error"])


def _candidates(given: DiscoverArguments) -> Blueprint | None:
    """Return the networks that a discovery is to choose among; None for the usual ones."""
    return None if given.candidates is None else read_config(Path(given.candidates), Blueprint)
