# SPDX-License-Identifier: Apache-2.0
"""What is asked of a simulator: the arguments of `sim.generate`, and the flags of its verb."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from neurodyn.core.config import Config
from neurodyn.core.requests import IN_PYTHON, Flag

if TYPE_CHECKING:
    from neurodyn.core.workers import Executor
    from neurodyn.data.header import StoreHeader
    from neurodyn.robots import Robot


class GenerationRequest(Config, frozen=True, kw_only=False):
    """A data set of a robot from its simulator.

    Attributes:
        robot: Name of a robot, or the path of a declaration; in Python also a `Robot`.
        transitions: Number of transitions; rounded up to whole trajectories.
        out: File to write (.h5).
        worlds: Worlds that are simulated at once; by default 64 to 512, by the number of trajectories.
        seed: Seed of states, grounds and torques.
        passive_fraction: Fraction of trajectories without torque, or held at the nominal pose where the robot has a
            controller; by default the robot's own.
        held_fraction: Fraction of the driven trajectories whose controls are held for 1 to 20 frames, each trajectory
            with a strength of its own of .1 to 1 of the range, as a policy's are; the others' are new in every frame.
        speed: Most that starting velocities are multiplied by, each trajectory's by a factor of its own; not those of
            trajectories that settle.
        reset_fraction: Fraction of trajectories that settle from the robot's resets; by default the robot's own.
        ground: One of the robot's grounds, at its declared place; by default the robot samples grounds.
        frames: Length of a trajectory; by default the robot's own.
        randomise: Quantity of the robot that each trajectory has a value of its own of, as root.mass=+0:10 (added),
            *.damping=x.5:2 (times), contact.friction=.3:.9 (set), each also with :log or :normal behind it; or a run of
            `neurodyn adapt` or `neurodyn identify`, whose posterior is drawn from. Give the flag once for each. Needs a
            robot with solver mujoco or mujoco-c.
        dynamics: analytic for the robot's simulator, or hybrid for the declared robot compiled, which computes the same
            where that is MuJoCo, tens of times faster.
        device: Where it computes: cpu, cuda, cuda:1 ...
        threads: Processes, one for each core; by default as many as there are cores. The data do not depend on it.
        resume: Go on from an interrupted run with the same settings.
        overwrite: Replace a finished file.
        begun: Called before the first batch, with the header of the data.
        executor: Makes the batches in place of processes of this machine, as `neurodyn.cluster.Cluster`; the data do
            not depend on it.
    """

    robot: Annotated["Robot | str | Path", Flag(str)]
    transitions: int
    out: Annotated[str | Path, Flag(Path)]
    worlds: int | None = None
    seed: int = 0
    passive_fraction: float | None = None
    held_fraction: float = 0.0
    speed: float = 1.0
    reset_fraction: float | None = None
    ground: str | None = None
    frames: int | None = None
    randomise: Annotated[Sequence[str], Flag("each")] = ()
    dynamics: Literal["analytic", "hybrid"] = "analytic"
    device: Annotated[str, Flag("device")] = "cpu"
    threads: Annotated[int | None, Flag("threads")] = None
    resume: bool = False
    overwrite: bool = False
    begun: Annotated["Callable[[StoreHeader], object] | None", IN_PYTHON] = None
    executor: Annotated["Executor | None", IN_PYTHON] = None
