# SPDX-License-Identifier: Apache-2.0
"""The kind of model of an adaptation that accepts any: a network where it predicts held-out motion better."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from neurodyn.data.windows import blocks_of
from neurodyn.dynamics.rollout_errors import judge
from neurodyn.identify.ladder.references import TrainedReference
from neurodyn.identify.ladder.rungs import Climb
from neurodyn.identify.result import MECHANISM, IdentificationFigures


def keep_better_network(
    out: Path, figures: IdentificationFigures, trained: Sequence[TrainedReference], climb: Climb
) -> IdentificationFigures:
    """Make a network the run's model if it beats the chosen one on held-out windows by more than chance.

    Each is compared with the best so far; `figures.kinds` says how. The mechanism stays beside the network.
    """
    best, blocks, kept, kinds = str(figures.chosen), blocks_of(climb.windows), None, dict[str, str]()
    for one in trained:
        judgement = judge(climb.errors[best], climb.errors[one.name], climb.frames, blocks)
        kinds[one.name] = f"beside {best}, {judgement.reason}"
        if judgement.kept:
            best, kept = one.name, one
    figures = msgspec.structs.replace(figures, kinds=kinds)
    if kept is None or kept.run is None:
        return figures
    (out / MECHANISM).mkdir(exist_ok=True)
    shutil.move(out / "model", out / MECHANISM / "model")
    shutil.copytree(kept.run / "model", out / "model")
    if (out / "robot").is_dir():
        shutil.copytree(out / "robot", out / MECHANISM / "robot", dirs_exist_ok=True)
    return msgspec.structs.replace(figures, network=kept.name)
