# SPDX-License-Identifier: Apache-2.0
"""Reference models beside the ladder: trivial baselines, and recurrent networks trained on the same episodes.

A network knows nothing of mechanisms. Where it predicts held-out episodes better than a fitted mechanism does, the
mechanism lacks something that the log holds. It is trained for seconds, and becomes the run's model only if the user
takes any kind of model (`--kind any`): then a world model is trained, too.
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from neurodyn.core.config import with_changes
from neurodyn.core.errors import InputError
from neurodyn.core.progress import present_work
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.measures import BASELINES
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import recorded_environments, roll_along, truth_of
from neurodyn.dynamics.world_model.model import WORLD_MODEL
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.learn.budget import Clock
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.train import train
from neurodyn.learn.run_folder import TrainingJob
from neurodyn.learn.world_model.settings import load_world_settings
from neurodyn.learn.world_model.train import train_world_model
from neurodyn.nets.networks import NetConfig
from neurodyn.robots import Robot

GRU, WORLD = "gru", "world-model"
WARMUP = 16
"""Frames that the network reads before a forecast."""
_FORECAST, _WIDTH = 16, 32
_WIDER, _LONGER = 64, 8
"""Width and factor on the steps of a network that may become the run's model."""
NETWORK, WORLD_RUN = "network", "world-model"
"""Folders in a run of the models beside the ladder that may be its model."""
_PARTS = (0.15, 0.25)
"""Parts of a budget of minutes for the recurrent network, and for the world model."""
_LEAST = 4
"""Fewest frames of a forecast worth training on."""
_MEMBERS, _WORLD_STEPS = 3, 4
"""Members of a world model, and factor on its steps."""


@dataclass(frozen=True)
class TrainedReference:
    """A trained model beside the ladder.

    Attributes:
        name: Its name.
        dynamics: The model.
        context: Past frames that it reads.
        cpu_seconds: CPU time of its training [s].
        run: Folder of its training; None if it is gone.
    """

    name: str
    dynamics: Dynamics
    context: int
    cpu_seconds: float
    run: Path | None = None

    @torch.no_grad()
    def errors(self, store: Store, windows: Windows) -> RolloutErrors:
        """Return the errors of its roll-outs along windows of a log."""
        where = recorded_environments(store, self.dynamics)
        path = roll_along(self.dynamics, windows.to(torch.float32), where)
        return RolloutErrors(store.header.spec, Trajectory(path.q.double(), path.qd.double()), truth_of(windows))


def train_gru(
    robot: Robot, name: str, store: Store, steps: int, seed: int, *, keep: Path | None = None,
    minutes: float | None = None, clock: Clock = "own",
) -> TrainedReference | None:  # fmt: skip
    """Train a small recurrent network on a log's training episodes; the best by its validation episodes is kept.

    Args:
        robot: The robot.
        name: Name or path of its declaration.
        store: The log.
        steps: Optimiser steps.
        seed: Seed of weights and batches.
        keep: Folder of a network that may become the run's model: it is wider then, and trained for longer. None for
            one that is gone afterwards.
        minutes: Time budget in place of the steps [min].
        clock: Clock of the minutes.

    Returns:
        The network; None if the episodes are too short for it, or it cannot learn them.
    """
    began = time.process_time()
    context, forecast = _lengths(store, _FORECAST)
    if forecast < _LEAST:
        return None
    width = _WIDTH if keep is None else _WIDER
    settings = Settings(
        net=NetConfig(kind="gru", width=width, depth=1, head=width, warmup=context),
        phases=(
            Phase(share=0.3, rate=5e-3, batch=64, frames=context + forecast),
            Phase(share=0.7, rate=3e-3, batch=64, context=context, forecast=forecast),
        ),
        steps=None if minutes is not None else steps if keep is None else _LONGER * steps, minutes=minutes,
        clock=clock, validations=5, validation_rollouts=64, velocity_products=False, seed=seed,
    )  # fmt: skip
    with TemporaryDirectory() as folder:
        out = Path(folder) / GRU if keep is None else keep
        if keep is not None and keep.is_dir():
            shutil.rmtree(keep)
        try:
            train(TrainingJob(robot, name, name, store, out, settings, progress=present_work()))
        except InputError:  # of a log that such a network cannot learn; a reference is no reason to fail
            return None
        return TrainedReference(GRU, NEURAL.load(out), context, time.process_time() - began, keep)


def train_world(
    robot: Robot, name: str, store: Store, steps: int, seed: int, keep: Path, *, minutes: float | None = None,
    clock: Clock = "own",
) -> TrainedReference | None:  # fmt: skip
    """Train an ensemble with the memory of the recurrent network on a log, in the folder `keep`; see `train_gru`.

    Quantities that differ between runs are among its inputs. A robot with a floating base gets none: a world model
    forecasts no pose.
    """
    began = time.process_time()
    context, forecast = _lengths(store, 2 * _FORECAST)
    if forecast < _LEAST or not all(joint.scalar for joint in store.header.spec.joints):
        return None
    small = load_world_settings(robot, "small")
    phases = tuple(
        with_changes(phase, context=context, forecast=min(phase.forecast, forecast)) for phase in small.phases
    )
    settings = with_changes(
        small, net=with_changes(small.net, members=_MEMBERS), phases=phases, context=context, constant="hold",
        steps=_WORLD_STEPS * steps if minutes is None else None, minutes=minutes, clock=clock, validations=5,
        validation_rollouts=64, conditions=("*",) if store.header.parameters else (), seed=seed,
    )  # fmt: skip
    if keep.is_dir():
        shutil.rmtree(keep)
    try:
        train_world_model(TrainingJob(robot, name, name, store, keep, settings, progress=present_work()))
    except InputError:
        return None
    return TrainedReference(WORLD, WORLD_MODEL.load(keep), context, time.process_time() - began, keep)


def _lengths(store: Store, most: int) -> tuple[int, int]:
    """Return frames of warm-up and of a forecast, at most `most`, that fit into a log's episodes."""
    longest = min(int(store.lengths[episodes_of(store, split)].max()) for split in (Split.TRAIN, Split.VALIDATION))
    context = min(WARMUP, longest // 2)
    return context, min(most, longest - context - 1)


def train_references(
    robot: Robot, name: str, store: Store, settings: IdentificationSettings, out: Path
) -> list[TrainedReference]:  # fmt: skip
    """Train the models beside the ladder of a run in `out`: those that may be its model in folders there."""
    minutes = [None if settings.minutes is None else part * settings.minutes for part in _PARTS]
    any_kind, given = settings.kind == "any", (robot, name, store, settings.reference_steps, settings.seed)
    gru = train_gru(*given, keep=out / NETWORK if any_kind else None, minutes=minutes[0], clock=settings.clock)
    world = None
    if any_kind:
        world = train_world(*given, out / WORLD_RUN, minutes=minutes[1], clock=settings.clock)
    return [one for one in (gru, world) if one is not None]


def baseline_errors(errors: RolloutErrors) -> dict[str, RolloutErrors]:
    """Return the errors of the trivial baselines from the same starts, by title."""
    return {one.title: errors.baseline(name) for name, one in BASELINES.items()}
