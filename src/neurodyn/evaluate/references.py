# SPDX-License-Identifier: Apache-2.0
"""Models beside an evaluated one: runs, and references that are fitted to the training episodes of its logs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from neurodyn.core.config import with_changes
from neurodyn.core.errors import InputError, choices
from neurodyn.core.progress import tracked
from neurodyn.data.header import Split
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import truth_of
from neurodyn.evaluate.rivals import Rival, RivalModel
from neurodyn.evaluate.rollouts import log_starts
from neurodyn.learn.neural.settings import load_settings
from neurodyn.learn.neural.train import train
from neurodyn.learn.run_folder import TrainingJob
from neurodyn.robots import Robot
from neurodyn.sim.mujoco.sysid import LONGEST_DELAY, LogSegments, MujocoPeer, import_sysid, mujoco_peer

GRU_MINUTES = 2.0
"""CPU time of the recurrent reference [min]."""
_SECONDS, _SEGMENTS = 0.5, 60
"""Length [s] and largest number of the segments of a log that `mujoco.sysid` fits."""


def fit_gru(robot: Robot, store: Store, training: Store) -> Rival:
    """Train the default network of logs for `GRU_MINUTES` of CPU time."""
    settings = with_changes(
        load_settings(robot, "small", log=True), minutes=GRU_MINUTES, steps=None, clock="cpu", threads=1
    )
    with TemporaryDirectory() as folder:
        train(TrainingJob(robot, robot.name, "the log", training, out := Path(folder) / "gru", settings))
        return RivalModel(NEURAL.load(out), robot, store)


@dataclass(frozen=True)
class SysidModel:
    """What `mujoco.sysid` made of a robot.

    Attributes:
        peer: The fitted model.
        robot: The robot.
        context: Frames before a start that it reads, for delayed commands.
        values: Its quantities, and `cpu_s`.
    """

    peer: MujocoPeer
    robot: Robot
    context: int
    values: dict[str, float]

    def errors(self, starts: Windows) -> RolloutErrors:
        """Return its errors along windows."""
        q, qd = (torch.from_numpy(part) for part in self.peer.rollout(_segments(starts)))
        return RolloutErrors.of(self.robot, Trajectory(q.to(starts.q), qd.to(starts.qd)), truth_of(starts))


def fit_mujoco(robot: Robot, store: Store, training: Store) -> SysidModel:
    """Fit a robot's quantities to training episodes with `mujoco.sysid`; the evaluated log is not read."""
    del store
    import_sysid()
    peer = mujoco_peer(robot, targets=training.header.spec.control_kind == "target")
    past = math.ceil(LONGEST_DELAY / robot.dt)
    longest = int(training.lengths[episodes_of(training, Split.TRAIN)].max())
    frames = max(1, min(round(_SECONDS / robot.dt), longest - past))
    starts, _ = log_starts(training, Split.TRAIN, past, frames, _SEGMENTS)
    fitted, values = peer.identified(_segments(starts), ("*",))
    return SysidModel(fitted, robot, past, values)


def _segments(windows: Windows) -> LogSegments:
    """Return windows with their past as segments."""
    past = windows.past
    frames = 0 if past is None else past.frames

    def whole(name: str) -> np.ndarray:
        own = getattr(windows, name)
        return (own if past is None else torch.cat([getattr(past, name)[:, :frames], own], 1)).double().numpy()

    return LogSegments(whole("q"), whole("qd"), whole("control"), frames)


REFERENCES: dict[str, Callable[[Robot, Store, Store], Rival]] = {"gru": fit_gru, "mujoco.sysid": fit_mujoco}
"""Models by name that are fitted for a comparison, from the robot, the evaluated log and that of the training."""


def open_rivals(
    names: Sequence[str],
    robot: Robot,
    store: Store,
    training: Callable[[], Store],
    load: Callable[[str], tuple[Dynamics, Store]],
) -> Mapping[str, Rival]:
    """Fit the references and load the runs among `names`; `load` returns a run's model and the log as it knows it.

    Raises:
        InputError: A name is neither, or the training episodes of the run are not there for a reference.
    """
    rivals: dict[str, Rival] = {}
    references = [name for name in names if name in REFERENCES]
    fitted_to = _with_training(training(), references[0]) if references else store
    for name in tracked(names, "models beside it"):
        if name in REFERENCES:
            rivals[name] = REFERENCES[name](robot, store, fitted_to)
            continue
        try:
            rivals[name] = RivalModel((loaded := load(name))[0], robot, loaded[1])
        except InputError as error:
            valid = choices([f"a run of {robot.name}", *REFERENCES])
            raise InputError(f"--beside {name}: {error}; also valid: {valid}") from None
    return rivals


def _with_training(store: Store, name: str) -> Store:
    try:
        episodes_of(store, Split.TRAIN)
    except InputError as error:
        raise InputError(f"--beside {name}: is fitted to the training episodes of the run's logs: {error}") from None
    return store
