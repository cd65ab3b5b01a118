# SPDX-License-Identifier: Apache-2.0
"""A network as the model of an adaptation that accepts any kind, where it predicts held-out motion better."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from neurodyn.data.windows import blocks_of
from neurodyn.dynamics.rollout_errors import judge
from neurodyn.identify.ladder.references import TrainedReference
from neurodyn.identify.ladder.rungs import Climb
from neurodyn.identify.result import MECHANISM, IdentificationFigures

NETWORK = "network"
"""Folder in the run of the training of a network."""


def keep_better_network(
    out: Path, figures: IdentificationFigures, trained: Sequence[TrainedReference], climb: Climb
) -> IdentificationFigures:
    """Make a network the run's model if it beats the chosen one on held-out windows by more than chance.

    The mechanism stays beside it.
    """
    chosen, blocks = climb.errors[str(figures.chosen)], blocks_of(climb.windows)
    for one in trained:
        if judge(chosen, climb.errors[one.name], climb.frames, blocks).kept:
            (out / MECHANISM).mkdir(exist_ok=True)
            shutil.move(out / "model", out / MECHANISM / "model")
            shutil.copytree(out / NETWORK / "model", out / "model")
            if (out / "robot").is_dir():
                shutil.copytree(out / "robot", out / MECHANISM / "robot", dirs_exist_ok=True)
            return msgspec.structs.replace(figures, network=one.name)
    return figures
