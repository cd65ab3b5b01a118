# SPDX-License-Identifier: Apache-2.0
"""Settings of adapting a robot to its logs."""

from collections.abc import Mapping
from typing import ClassVar

from neurodyn.core.config import Config, require_numbers
from neurodyn.core.errors import require


class FitStage(Config, frozen=True):
    """Roll-outs compared with the log in one stage of a fit.

    Attributes:
        seconds: Length of a window [s]; at least three frames.
        windows: Most windows.
        iterations: Most iterations.
    """

    seconds: float
    windows: int
    iterations: int

    def __post_init__(self) -> None:
        require_numbers(self, above=("seconds", "windows", "iterations"))


class AdaptationSettings(Config, frozen=True):
    """Settings of adapting a robot to its logs.

    Attributes:
        quantities: Free quantities of the default set, by names or patterns ("*.damping").
        stages: Stages of the fit, with growing windows: a wrong model leaves the log within frames, and long windows
            then have no useful gradient.
        untouched: Last stage for a robot without contacts, in place of the last of `stages`.
        screen: Windows for comparing structures (friction cones) before the fit.
        screen_iterations: Iterations of that comparison.
        structure_gain: Share of the cost by which another structure must beat the declared one.
        past: Time before a window in which motors settle [s].
        past_of_springs: The same for a robot with springs, which swing for longer [s].
        huber: Number of scales beyond which residuals count linearly instead of squared.
        progress: Relative decrease of the cost below which a stage ends.
        undetermined_above: Posterior over prior standard deviation above which the logs do not determine a quantity; it
            keeps its declared value.
        networks: Whether networks are tried on top.
        networks_from: Ratio of an error after three frames to the noise's share from which on networks are tried.
        network_seconds: Length of the networks' training windows [s].
        network_steps: Optimiser steps of the networks.
        hidden: Widths of their hidden layers.
        memory: Size of their hidden state.
        horizons: Horizons at which errors are judged and reported [s].
        starts: Most held-out windows of each episode.
        proposals: Candidates for the next motion to log.
        proposal_seconds: Length of that motion [s].
        seed: Seed of windows, weights and proposals.
    """

    aliases: ClassVar[Mapping[str, str]] = {"unsaid": "undetermined_above"}

    quantities: tuple[str, ...] = ("*",)
    stages: tuple[FitStage, ...] = (FitStage(0.05, 600, 8), FitStage(0.13, 300, 4), FitStage(0.25, 150, 4))
    untouched: FitStage = FitStage(0.7, 60, 5)
    screen: int = 160
    screen_iterations: int = 7
    structure_gain: float = 0.05
    past: float = 0.065
    past_of_springs: float = 0.2
    huber: float = 3.0
    progress: float = 0.005
    undetermined_above: float = 0.7
    networks: bool = True
    networks_from: float = 1.5
    network_seconds: float = 0.15
    network_steps: int = 300
    hidden: tuple[int, ...] = (16, 16)
    memory: int = 2
    horizons: tuple[float, ...] = (0.05, 1 / 6, 0.5, 1.0)
    starts: int = 60
    proposals: int = 12
    proposal_seconds: float = 4.0
    seed: int = 0

    def __post_init__(self) -> None:
        require(len(self.quantities) > 0, "quantities", list(self.quantities), "at least one name or pattern")
        require(len(self.stages) > 0, "stages", list(self.stages), "at least one")
        require(len(self.horizons) > 0, "horizons", list(self.horizons), "at least one [s]")
        for name in ("structure_gain", "progress", "undetermined_above"):
            require(0 < getattr(self, name) < 1, name, getattr(self, name), "between 0 and 1")
        above = (
            "screen", "screen_iterations", "past", "past_of_springs", "networks_from", "huber", "starts",
            "network_seconds",
        )  # fmt: skip
        require_numbers(self, above=(*above, "network_steps", "hidden", "proposals", "proposal_seconds"))
