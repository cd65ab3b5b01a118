# SPDX-License-Identifier: Apache-2.0
"""Requests to simulators: arguments of `sim.generate`, and flags of `neurodyn generate`."""

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
    """A data set of a robot from its simulator."""

    robot: Annotated["Robot | str | Path", Flag(str)]
    """Name of a robot, or the path of a declaration."""
    transitions: int
    """Number of transitions; rounded up to whole trajectories."""
    out: Annotated[str | Path, Flag(Path)]
    """File to write (.h5)."""
    worlds: int | None = None
    """Worlds simulated at once; by default 64 to 512, depending on the number of trajectories."""
    seed: int = 0
    """Seed of states, grounds and torques."""
    passive_fraction: float | None = None
    """Fraction of trajectories without torque, or held at the nominal pose if the robot has a controller; by default
    the robot's own."""
    held_fraction: float = 0.0
    """Fraction of the driven trajectories whose controls are held for 1 to 20 frames, as a policy's are, at a random
    strength per trajectory of .1 to 1 of the range; the others draw new controls in every frame."""
    speed: float = 1.0
    """Maximum factor on initial velocities, drawn per trajectory; trajectories that settle are unaffected."""
    reset_fraction: float | None = None
    """Fraction of trajectories that start from the robot's reset ranges and settle; by default the robot's own."""
    ground: str | None = None
    """One of the robot's grounds, at its declared pose; by default grounds are sampled as the robot declares."""
    frames: int | None = None
    """Length of a trajectory; by default the robot's own."""
    randomise: Annotated[Sequence[str], Flag("each")] = ()
    """Quantity of the robot to draw per trajectory, as root.mass=+0:10 (added), *.damping=x.5:2 (multiplied),
    contact.friction=.3:.9 (set), each optionally followed by :log or :normal; or a run of `neurodyn adapt` or `neurodyn
    identify`, whose posterior is sampled. Repeat the flag for several. Needs a robot with solver mujoco or mujoco-c."""
    dynamics: Literal["analytic", "hybrid"] = "analytic"
    """analytic for the robot's simulator, or hybrid for the declared robot compiled, which matches MuJoCo's numbers
    tens of times faster if that is the simulator."""
    device: Annotated[str, Flag("device")] = "cpu"
    """Device: cpu, cuda, cuda:1 ..."""
    threads: Annotated[int | None, Flag("threads")] = None
    """Number of processes; by default one per core. The data do not depend on it."""
    resume: bool = False
    """Continue an interrupted run with the same settings."""
    overwrite: bool = False
    """Replace a finished file."""
    begun: Annotated["Callable[[StoreHeader], object] | None", IN_PYTHON] = None
    """Called before the first batch, with the header of the data."""
    executor: Annotated["Executor | None", IN_PYTHON] = None
    """Makes the batches instead of processes on this machine, e.g. `neurodyn.cluster.Cluster`; the data do not depend
    on it."""
