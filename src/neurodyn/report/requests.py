# SPDX-License-Identifier: Apache-2.0
"""What is asked of a recording: the arguments of `report.record_run`, and the flags of `neurodyn view`."""

from pathlib import Path
from typing import Annotated

from neurodyn.core.config import Config
from neurodyn.core.requests import Flag
from neurodyn.evaluate.requests import SEED


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
