# SPDX-License-Identifier: Apache-2.0
"""What is known after an identification or an adaptation, for the checks that doubt it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from neurodyn.data.store import Store
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.identify.doubts.run_influence import Influence
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.ladder.rungs import Climb, noise_errors
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.result import IdentificationFigures, IdentifiedParameter, Rung
from neurodyn.identify.stages.lasting_errors import LastingError


@dataclass(frozen=True)
class FitEvidence:
    """A fit and its log.

    Attributes:
        figures: Results so far.
        fitted: The structure that was fitted, with its declared mechanism.
        store: The log.
    """

    figures: IdentificationFigures
    fitted: FitModel
    store: Store

    @property
    def determined(self) -> list[IdentifiedParameter]:
        """The quantities that the logs determine, those at a bound among them."""
        return [one for one in self.figures.parameters if one.determined or one.bound]


@dataclass(frozen=True)
class Evidence(FitEvidence):
    """An adaptation and its log, with models judged on whole held-out episodes.

    Attributes:
        climb: Roll-outs along held-out windows.
        declared: The robot as declared.
        model: The chosen model.
        past: Frames before a window in which motors settle.
        noise: Noise of the log's states.
        influences: Quantities that one run decides alone.
        lasting: Errors of the identified model that last.
    """

    climb: Climb
    declared: HybridDynamics
    model: HybridDynamics
    past: int
    noise: Noise
    influences: Sequence[Influence] = ()
    lasting: Sequence[LastingError] = ()

    @property
    def chosen(self) -> Rung:
        """The rung of the chosen model."""
        return next(one for one in self.figures.rungs if one.name == self.figures.chosen)

    @property
    def errors(self) -> RolloutErrors:
        """Roll-outs of the chosen model along validation windows."""
        return self.climb.errors[self.chosen.name]

    @cached_property
    def noise_errors(self) -> RolloutErrors:
        """Errors of a perfect model along the same windows, under the noise of the sensors."""
        return noise_errors(self.model, self.store, self.climb.windows, self.past, self.noise)

    @property
    def determined(self) -> list[IdentifiedParameter]:
        """The quantities that the logs determine, if the chosen model has them."""
        return super().determined if self.chosen.name != self.figures.rungs[0].name else []
