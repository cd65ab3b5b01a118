# SPDX-License-Identifier: Apache-2.0
"""`neurodyn generate`: a dataset from a simulator."""

from functools import partial
from typing import TYPE_CHECKING

from neurodyn.cli.terminal.command import command
from neurodyn.cli.terminal.flags import cluster_of
from neurodyn.core.config import replaced
from neurodyn.sim.requests import GenerationRequest

if TYPE_CHECKING:
    from neurodyn.data.header import StoreHeader
    from neurodyn.robots import Robot

_SHOWN = 3


@command(GenerationRequest, after=dict.fromkeys(("cluster", "workers", "worker_memory"), "threads"))
def generate(
    request: GenerationRequest,
    *,
    cluster: str | None = None,
    workers: int | None = None,
    worker_memory: float | None = None,
) -> None:
    """Write a dataset from a robot's analytic solver: random states, random grounds, random torques or controllers.

    Trajectories end where they leave plausible bounds; where too many do, nothing is written.

    Flags:
        cluster: Simulate on a Ray cluster (needs the extra `cluster`): "auto" for the one that this machine belongs to,
            HOST:PORT of its head, or "local" to start one here. The data are those of one machine.
        workers: Workers of the cluster, each on one core; by default as many as it has cores.
        worker_memory: Most memory of a worker [GB]; by default no limit but the machine's.

    Example:
        neurodyn generate cartpole --transitions 1000000 --out cartpole.h5
    """
    from neurodyn import robots
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.sim.generate import generate as run

    robot = robots.load(str(request.robot))
    with cluster_of(cluster, workers, worker_memory) as executor, ProgressBar(f"simulating {robot.name}"):
        begun = partial(_announce, robot)
        summary = run(replaced(request, robot=robot, executor=executor, begun=begun))
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
