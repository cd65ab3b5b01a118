# SPDX-License-Identifier: Apache-2.0
"""What is asked of an evaluation, a check, and a recording: arguments of functions, and flags of verbs."""

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
    """A measurement of the model of a run.

    Attributes:
        run: Run directory, or pretrained:NAME.
        horizon: Frames of a roll-out; by default what the robot declares (usually 1000) beside the simulator, and
            half a second on logs (of world models, a second).
        rollouts: Number of roll-outs; by default 2048 beside the simulator (512 for floating robots, whose simulator is
            slow) and 20000 on logs.
        seed: Seed of initial states and torques.
        data: HDF5 store, or an npz log in the layout that the robot declares, or "simulator" for the declared one; by
            default the held-out part of the logs that the model was made from, else the simulator.
        split: Which episodes of the data; by default the test episodes, or the validation episodes where there are
            none.
        ground: One of the robot's grounds by name, a YAML file with a scene, or "all" for a table of all of the robot's
            grounds; by default the one that the robot declares.
        stability: Also roll out 64 worlds for 10,000 frames, and count what stays finite and above ground.
        device: Where it computes: cpu, cuda, cuda:1 ...
        beside: Runs of other world models (one trained on single frames, say), measured from the same starts.
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
        data: Log of the robot, on whose held-out episodes the simulator is measured, too: HDF5 store, or an npz log.
        ground: One of the robot's grounds by name, or a YAML file with a scene; by default those that it declares.
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
    """A recording of the model of a run.

    Attributes:
        run: Run directory, or pretrained:NAME.
        seed: Seed of the start and of the torques.
        seconds: Length; by default 6 s beside the simulator and 2 s along a log.
        driven: Drive the robot with random torques instead of leaving it passive.
        data: HDF5 store, or an npz log in the layout that the robot declares; by default the log that the model
            was trained on, where it was trained on one.
        ground: One of the robot's grounds by name, or a YAML file with a scene; by default the one that it declares.
        device: Where the model computes: cpu, cuda, cuda:1 ...
    """

    run: Annotated[str | Path, Flag(str)]
    seed: int = SEED
    seconds: float | None = None
    driven: bool = False
    data: str | None = None
    ground: str | None = None
    device: Annotated[str, Flag("device")] = "cpu"
