# SPDX-License-Identifier: Apache-2.0
"""`neurodyn generate`: a dataset from a simulator."""

from pathlib import Path
from typing import TYPE_CHECKING

from neurodyn.cli.terminal.flags import Device, Threads, cluster_of

if TYPE_CHECKING:
    from neurodyn.data.header import StoreHeader
    from neurodyn.robots import Robot

_SHOWN = 3


def generate(
    robot: str,
    /,
    transitions: int,
    out: Path,
    worlds: int | None = None,
    seed: int = 0,
    passive_fraction: float | None = None,
    reset_fraction: float | None = None,
    ground: str | None = None,
    frames: int | None = None,
    device: Device = "cpu",
    threads: Threads = None,
    cluster: str | None = None,
    workers: int | None = None,
    worker_memory: float | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> None:
    """Write a dataset from a robot's analytic solver: random states, random grounds, random torques or controllers.

    Trajectories end where they leave plausible bounds; where too many do, nothing is written.

    Args:
        robot: Name of a robot, or the path of a declaration.
        transitions: Number of transitions.
        out: File to write (.h5).
        worlds: Worlds that are simulated at once; by default 64 to 512, by the number of trajectories.
        seed: Seed of states, grounds and torques.
        passive_fraction: Fraction of trajectories without torque, or held at the nominal pose where the robot has a
            controller; by default the robot's own.
        reset_fraction: Fraction of trajectories that settle from the robot's resets; by default the robot's own.
        ground: One of the robot's grounds, at its declared place; by default the robot samples grounds.
        frames: Length of a trajectory; by default the robot's own.
        device: Where it computes: cpu, cuda, cuda:1 ...
        threads: Processes, one for each core; by default as many as there are cores. The data do not depend on it.
        cluster: Simulate on a Ray cluster (needs the extra `cluster`): "auto" for the one that this machine belongs to,
            HOST:PORT of its head, or "local" to start one here. The data are those of one machine.
        workers: Workers of the cluster, each on one core; by default as many as it has cores.
        worker_memory: Most memory of a worker [GB]; by default no limit but the machine's.
        resume: Go on from an interrupted run with the same settings.
        overwrite: Replace a finished file.

    Example:
        neurodyn generate cartpole --transitions 1000000 --out cartpole.h5
    """
    from neurodyn import robots
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.sim.generate import generate as run

    declared = robots.load(robot)
    with cluster_of(cluster, workers, worker_memory) as executor, ProgressBar(f"simulating {declared.name}"):
        summary = run(
            declared,
            transitions=transitions,
            out=out,
            worlds=worlds,
            seed=seed,
            passive_fraction=passive_fraction,
            reset_fraction=reset_fraction,
            ground=ground,
            frames=frames,
            device=device,
            threads=threads,
            resume=resume,
            overwrite=overwrite,
            executor=executor,
            begun=lambda header: _announce(declared, header),
        )
    left = sum(departure.trajectories for departure in summary.departures)
    if left:
        worst = "; ".join(departure.words for departure in summary.departures[:_SHOWN])
        more = "" if len(summary.departures) <= _SHOWN else f"; and {len(summary.departures) - _SHOWN} more coordinates"
        print(f"{left:,} trajectories end where they leave plausible bounds: {worst}{more}")
    ends = ", ".join(f"{count} {reason}" for reason, count in summary.early_ends.items())
    print(
        f"{summary.transitions:,} transitions in {summary.episodes:,} trajectories (ended early: {ends}; empty: "
        f"{summary.empty}), {summary.seconds:.1f} s, {summary.rate:,.0f} transitions per CPU-second, "
        f"{summary.bytes / 1e6:.1f} MB: {summary.path}"
    )


def _announce(robot: "Robot", header: "StoreHeader") -> None:
    """Say how wide the input of a network for these data is, and warn where that makes training slow."""
    from neurodyn.learn.neural.settings import contact_point_advice, network_inputs

    points = 0 if header.contact_points is None else len(header.contact_points.contact_points)
    print(f"{points} contact points, {network_inputs(robot, header.contact_points)} network inputs")
    if advice := contact_point_advice(header.contact_points):
        print(f"warning: {advice}")
