# SPDX-License-Identifier: Apache-2.0
"""Normalisation of observations, the same with any rsl_rl (5.4 and later)."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from rsl_rl.models import MLPModel

from neurodyn.core.errors import InputError
from neurodyn.learn.devices import current_ranks

if TYPE_CHECKING:
    from rsl_rl.algorithms import PPO

    _Base: Any = PPO
else:
    _Base = object

BY_FRAME = tuple(map(int, version("rsl-rl-lib").split(".")[:2])) < (5, 5)
"""Whether rsl_rl's algorithms update normalisers by each frame, instead of by all frames at the end of an update."""


class UpdateNormalisation(_Base):
    """Mixin of rsl_rl's algorithms: normalisers learn from all frames at the end of an update, as in rsl_rl 5.5."""

    learning: tuple[str, ...] = ("actor", "critic")
    """Names of the models whose normalisers learn."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Set up rsl_rl's algorithm with the same arguments.

        Raises:
            InputError: There are several ranks, but each rank would have normalisers of its own.
        """
        if BY_FRAME and current_ranks().count > 1:
            raise InputError(
                f"rsl-rl-lib {version('rsl-rl-lib')} normalises observations in each rank by itself; valid: one rank, "
                "or rsl-rl-lib 5.5 or later"
            )
        super().__init__(*arguments, **options)

    def process_env_step(self, *arguments: Any, **options: Any) -> None:
        """Record a frame, of which normalisers learn nothing."""
        if not BY_FRAME:
            super().process_env_step(*arguments, **options)
            return
        normalisers = [model.obs_normalizer for model in self._learning()]
        training = [one.training for one in normalisers]
        for one in normalisers:
            one.eval()  # its own switch against learning
        super().process_env_step(*arguments, **options)
        for one, before in zip(normalisers, training, strict=True):
            one.train(before)

    def update(self) -> dict[str, float]:
        """Run an update of rsl_rl's algorithm, then that of the normalisers; return mean losses by name."""
        losses = super().update()
        if BY_FRAME:
            self.update_normalisers()
        return losses

    def update_normalisers(self) -> None:
        """Let normalisers learn from all stored frames, which rsl_rl keeps until the next ones come."""
        observations = self.storage.observations.flatten(0, 1)
        for model in self._learning():
            model.update_normalization(observations)

    def _learning(self) -> list[MLPModel]:
        return [getattr(self, name) for name in self.learning]
