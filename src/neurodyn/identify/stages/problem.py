# SPDX-License-Identifier: Apache-2.0
"""What an identification is given, and what it returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from neurodyn.core.artifacts import read_tree
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.workers import Executor
from neurodyn.data.store import Store
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.confidence.certainty import Certainty
from neurodyn.identify.confidence.parameter_search import Searched
from neurodyn.identify.fit.population_search import rounds_done
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.ladder.rungs import NETWORKS_FROM
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.result import IdentificationFigures, RunFit
from neurodyn.identify.stages.agreement import LogComparison
from neurodyn.learn.budget import TrainState
from neurodyn.learn.hybrid import NETWORK_STATE
from neurodyn.learn.loop import has_state
from neurodyn.robots import Robot


@dataclass(frozen=True)
class Identification:
    """Result of an identification.

    Attributes:
        figures: All results; `plain()` gives identification.json or adaptation.json.
        dynamics: The model: of the highest rung that was kept, if there is a ladder.
        runs: Fits of whole held-out runs.
    """

    figures: IdentificationFigures
    dynamics: HybridDynamics
    runs: list[RunFit]


@dataclass(frozen=True)
class IdentificationProblem:
    """Robot, logs and free quantities of an identification.

    Attributes:
        robot: The robot.
        name: Name or path from which the robot is loaded again.
        data: Origin of the trajectories.
        store: The trajectories.
        parameters: Free quantities in the user's notation (`core.description.parameter.select_parameters`), in addition
            to those of the settings' `quantities`.
        blueprint: Networks of the second stage; None for parameters alone.
        beside: Other runs, evaluated on the same held-out windows.
        device: Torch device of the roll-outs.
        executor: Distributes the search from many starts over workers; None for this process alone.
        tracked: Trajectories with motion capture that judge a fit to a `store` without; None for none.
    """

    robot: Robot
    name: str
    data: str | tuple[str, ...]
    store: Store
    parameters: Sequence[str]
    blueprint: Blueprint | None = None
    beside: Sequence[str] = ()
    device: str = "cpu"
    executor: Executor | None = None
    tracked: Store | None = None


@dataclass(frozen=True)
class SettledFit:
    """Solution of a search, with undetermined coordinates declared.

    `determined` has shape [n] (coordinates), `values` [quantities]; `noise` is that of the log's states; `logs`
    compares several logs.
    """

    model: FitModel
    dynamics: HybridDynamics
    searched: Searched
    known: Certainty
    determined: Tensor
    values: Tensor
    noise: Noise
    logs: LogComparison | None


STATE = "parameters"
"""Name of the state of a finished search in a run."""


def last_step(run: Path) -> int:
    """Return the last step in the metrics of a killed run."""
    if has_state(run, NETWORK_STATE):
        saved = read_tree(run / "state", NETWORK_STATE)
        return NETWORKS_FROM + TrainState.read(saved["position"]).step
    return NETWORKS_FROM - 1 if has_state(run, STATE) else rounds_done(run)
