# SPDX-License-Identifier: Apache-2.0
"""How the networks of a blueprint are trained."""

import math
from typing import ClassVar, Literal

from neurodyn.core.config import Config, require_numbers
from neurodyn.learn.optimiser import OPTIMISERS


class NetworkSettings(Config, frozen=True):
    """How the networks of a blueprint are trained, together with the parameters.

    Attributes:
        optimiser: "adam", "soap", "lbfgs" (on the same batch throughout), or another one of
            `learn.optimiser.OPTIMISERS`.
        rate: Highest learning rate of the weights; it falls to zero along half a cosine.
        parameter_rate: Highest learning rate of the free quantities, in their unbounded coordinates; 0 keeps them as
            they were identified.
        batch: Windows in a batch.
        windows: Most windows of which batches are drawn, spread evenly over all possible ones.
        loss: "absolute" or "squared" error of a roll-out, by channel over its scale.
        regularisation: R in the penalty R |weights|^2.
        clip: Greatest norm of a gradient.
        validations: How often the roll-out error is measured on the validation split.
        patience: Validations without a better one after which the training ends; the best model is kept.
        steps: Optimiser steps where no time budget is given.
        moving: Whether only windows that move are trained on, where the parameters' are: what networks have not seen
            they may make worse.
    """

    optimiser: str = "adam"
    rate: float = 3e-3
    parameter_rate: float = 1e-3
    batch: int = 128
    windows: int = 20_000
    loss: Literal["absolute", "squared"] = "absolute"
    regularisation: float = 1e-5
    clip: float = 1.0
    validations: int = 40
    patience: int = 12
    steps: int = 2000
    moving: bool = False

    budget_fields: ClassVar[tuple[str, ...]] = ("steps", "validations")

    def __post_init__(self) -> None:
        _ = OPTIMISERS[self.optimiser]  # refuses what there is none of
        for name in ("rate", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; valid: a finite number above 0")
        for name in ("parameter_rate", "regularisation"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; valid: a finite number of at least 0")
        require_numbers(self, above=("batch", "windows", "validations", "patience", "steps"))
