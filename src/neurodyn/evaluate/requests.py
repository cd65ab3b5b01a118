# SPDX-License-Identifier: Apache-2.0
"""Requests of an evaluation, a check and a recording: function arguments, and flags of verbs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from neurodyn.core.config import Config
from neurodyn.core.requests import Flag

if TYPE_CHECKING:
    from neurodyn.robots import Robot


SEED = 500
"""Seed of initial states and controls; that of training data differs."""


class EvaluationRequest(Config, frozen=True, kw_only=False):
    """An evaluation of a run's model.

    Attributes:
        run: Run directory, or pretrained:NAME.
        horizon: Frames of a roll-out; by default the robot's own (usually 1000) against the simulator, and half a
            second on logs (a second for world models).
        rollouts: Number of roll-outs; by default 2048 against the simulator (512 for floating robots, whose simulator
            is slow) and 20000 on logs.
        seed: Seed of initial states and torques.
        data: HDF5 store, npz log in the robot's declared layout, or "simulator" for the declared one; by default the
            held-out part of the model's logs, if it was made from logs, else the simulator.
        split: Episodes of the data to use; by default the test episodes, or the validation episodes if there are none.
        ground: One of the robot's grounds by name, a YAML file with a scene, or "all" for a table of all its grounds;
            by default the declared one.
        stability: Also roll out 64 worlds for 10,000 frames, and count those that stay finite and above ground.
        device: Device: cpu, cuda, cuda:1 ...
        beside: Runs of other world models (one trained on single frames, say), evaluated from the same starts.
        threads: Cores to use; by default all. Results do not depend on it.
    """

    run: Annotated[str | Path, Flag(str)]
    horizon: int | None = None
    rollouts: int | None = None
    seed: int = SEED
    data: str | None = None
    split: Literal["train", "validation", "test", "all"] | None = None
    ground: str | None = None
    stability: bool = False
    device: Annotated[str, Flag("device")] = "cpu"
    beside: Annotated[Sequence[str], Flag(tuple[str, ...])] = ()
    threads: Annotated[int | None, Flag("threads")] = None


class CheckRequest(Config, frozen=True, kw_only=False):
    """A check of a robot's reference simulator.

    Attributes:
        robot: Name of a robot, or the path of a declaration; in Python also a `Robot`.
        data: Log of the robot (HDF5 store or npz log), to also measure the simulator on its held-out episodes.
        ground: One of the robot's grounds by name, or a YAML file with a scene; by default all declared ones.
        worlds: Worlds under random control.
        frames: Frames under random control, and the longest horizon at which steps are compared.
        seed: Seed of states and torques.
        device: Device of the simulator: cpu, cuda:0 ...
        threads: Threads of tensor operations.
    """

    robot: Annotated["Robot | str | Path", Flag(str)]
    data: str | None = None
    ground: str | None = None
    worlds: int = 128
    frames: int = 250
    seed: int = SEED
    device: Annotated[str, Flag("device")] = "cpu"
    threads: Annotated[int, Flag("threads")] = 1


class RecordingRequest(Config, frozen=True, kw_only=False):
    """A recording of a run's model.

    Attributes:
        run: Run directory, or pretrained:NAME.
        seed: Seed of the start and of the torques.
        seconds: Length [s]; by default 6 s against the simulator and 2 s along a log.
        driven: Drive the robot with random torques instead of leaving it passive.
        data: HDF5 store, or npz log in the robot's declared layout; by default the log that the model was trained on,
            if any.
        ground: One of the robot's grounds by name, or a YAML file with a scene; by default the declared one.
        device: Device of the model: cpu, cuda, cuda:1 ...
    """

    run: Annotated[str | Path, Flag(str)]
    seed: int = SEED
    seconds: float | None = None
    driven: bool = False
    data: str | None = None
    ground: str | None = None
    device: Annotated[str, Flag("device")] = "cpu"
