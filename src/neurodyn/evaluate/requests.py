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
    """An evaluation of a run's model."""

    run: Annotated[str | Path, Flag(str)]
    """Run directory, or pretrained:NAME."""
    horizon: int | None = None
    """Frames of a roll-out; by default the robot's own (usually 1000) against the simulator, and half a second on logs
    (a second for world models)."""
    rollouts: int | None = None
    """Number of roll-outs; by default 2048 against the simulator (512 for floating robots, whose simulator is slow) and
    20000 on logs."""
    seed: int = SEED
    """Seed of initial states and torques."""
    data: str | None = None
    """HDF5 store, npz log in the robot's declared layout, or "simulator" for the declared one; by default the held-out
    part of the model's logs, if it was made from logs, else the simulator."""
    split: Literal["train", "validation", "test", "all"] | None = None
    """Episodes of the data to use; by default the test episodes, or the validation episodes if there are none."""
    ground: str | None = None
    """One of the robot's grounds by name, a YAML file with a scene, or "all" for a table of all its grounds; by default
    the declared one."""
    stability: bool = False
    """Also roll out 64 worlds for 10,000 frames, and count those that stay finite and above ground."""
    states: bool = False
    """Instead, estimate the states of a floating base from encoders and IMU, and compare them with the motion capture
    of the log."""
    device: Annotated[str, Flag("device")] = "cpu"
    """Device: cpu, cuda, cuda:1 ..."""
    beside: Annotated[Sequence[str], Flag(tuple[str, ...])] = ()
    """Other models evaluated along the log from the same starts: runs, `gru` (a network trained for two CPU minutes on
    the training episodes), or `mujoco.sysid`; of a world model, runs of others."""
    threads: Annotated[int | None, Flag("threads")] = None
    """Cores to use; by default all. Results do not depend on it."""


class CheckRequest(Config, frozen=True, kw_only=False):
    """A check of a robot's reference simulator."""

    robot: Annotated["Robot | str | Path", Flag(str)]
    """Name of a robot, or the path of a declaration."""
    data: str | None = None
    """Log of the robot (HDF5 store or npz log), to also measure the simulator on its held-out episodes."""
    ground: str | None = None
    """One of the robot's grounds by name, or a YAML file with a scene; by default all declared ones."""
    worlds: int = 128
    """Worlds under random control."""
    frames: int = 250
    """Frames under random control, and the longest horizon at which steps are compared."""
    seed: int = SEED
    """Seed of states and torques."""
    device: Annotated[str, Flag("device")] = "cpu"
    """Device of the simulator: cpu, cuda:0 ..."""
    threads: Annotated[int, Flag("threads")] = 1
    """Threads of tensor operations."""


class RecordingRequest(Config, frozen=True, kw_only=False):
    """A recording of a run's model."""

    run: Annotated[str | Path, Flag(str)]
    """Run directory, or pretrained:NAME."""
    seed: int = SEED
    """Seed of the start and of the torques."""
    seconds: float | None = None
    """Length [s]; by default 6 s against the simulator and 2 s along a log."""
    driven: bool = False
    """Drive the robot with random torques instead of leaving it passive."""
    data: str | None = None
    """HDF5 store, or npz log in the robot's declared layout; by default the log that the model was trained on, if any.
    """
    ground: str | None = None
    """One of the robot's grounds by name, or a YAML file with a scene; by default the declared one."""
    device: Annotated[str, Flag("device")] = "cpu"
    """Device of the model: cpu, cuda, cuda:1 ..."""
