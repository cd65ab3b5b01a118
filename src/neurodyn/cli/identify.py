# SPDX-License-Identifier: Apache-2.0
"""`neurodyn identify`, `discover`, `adapt`: what logs say of a robot."""

from pathlib import Path

from neurodyn.cli.terminal.flags import cluster_of, command
from neurodyn.core.config import replaced
from neurodyn.identify.requests import AdaptRequest, DiscoverRequest, IdentifyRequest

_AFTER = {"out": "drive", "json": "beside", "cluster": "threads", "workers": "cluster", "worker_memory": "workers"}


@command(IdentifyRequest, after=_AFTER)
def identify(
    request: IdentifyRequest,
    *,
    json: Path | None = None,
    cluster: str | None = None,
    workers: int | None = None,
    worker_memory: float | None = None,
) -> None:
    """Identify quantities of a robot's dynamics, and train the networks of a blueprint, from a dataset.

    Flags:
        drive: "torque" or "pd": identify the drives of driven joints, which such a drive stands for where none is
            declared. "network" or "gru": train an actuator network from measured torques.
        json: File for the result as JSON.
        cluster: Share the search from several starts, or the population of cma-es, over a Ray cluster (needs the extra
            `cluster`): "auto" for the one that this machine belongs to, HOST:PORT of its head, or "local". Results are
            those of one machine.
        workers: Workers of the cluster, each on one core; by default as many as it has cores.
        worker_memory: Most memory of a worker [GB]; by default no limit but the machine's.

    Example:
        neurodyn identify dfki-c1 --data log.npz --out runs/c1
        neurodyn identify my-arm --data log.h5 --parameters '*.damping' --out runs/arm
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.results import print_identification
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.core.errors import InputError
    from neurodyn.identify.run import identify as identify_robot
    from neurodyn.report.identification import write_identification

    out, drive = Path(request.out), request.drive
    require_writable(json, text=True)
    if drive in ("network", "gru"):
        if request.logger is not None:
            raise InputError(f"--drive {drive} has no metrics that a logger could follow; leave out --logger")
        if cluster is not None:
            raise InputError(f"--drive {drive} trains one network; valid with --cluster: --drive torque or pd, or none")
        _drive_network(request, out, json)
        return
    title = f"identifying {request.robot}"
    with cluster_of(cluster, workers, worker_memory) as executor, ProgressBar(title) as bar:
        found = identify_robot(replaced(request, progress=bar, executor=executor))
    result = found.figures
    write_identification(out, result, found.sample, found.runs)
    print_identification(result)
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    print(f"model: {out / 'model'}; report: {out / 'report.html'}")


def _drive_network(request: IdentifyRequest, out: Path, json: Path | None) -> None:
    """Train an actuator network and print its errors beside the best parametric drive's."""
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.results import print_drive_network
    from neurodyn.core.artifacts import write_json
    from neurodyn.identify.drives import DriveNetworkSettings, identify_drive_network
    from neurodyn.identify.run import open_logs
    from neurodyn.robots import load

    declared, recurrent = load(str(request.robot)), request.drive == "gru"
    settings = DriveNetworkSettings(network="gru" if recurrent else "mlp", seed=request.seed or 0)
    with ProgressBar(f"identifying the drives of {declared.name}"):
        result = identify_drive_network(declared, open_logs(declared, request.data), out, settings)
    print_drive_network(result)
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    print(f"network: {out / 'actuator_network.json'}" + ("" if recurrent else f"; model: {out / 'model'}"))


@command(DiscoverRequest, after={"json": "device"})
def discover(request: DiscoverRequest, *, json: Path | None = None) -> None:
    """Find which quantities of a robot's dynamics need a network, and which inputs each needs.

    Writes a hybrid model with the networks that were found, blueprint.yaml and discovery.json to the run directory.

    Flags:
        json: File for the result as JSON.

    Example:
        neurodyn discover dfki-c1 --data log.npz --base runs/c1 --out runs/networks
    """
    from neurodyn.cli.terminal.console import ProgressBar, terminal
    from neurodyn.cli.terminal.tables import print_table
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.identify.discovery_run import discover_robot

    require_writable(json, text=True)
    with ProgressBar(f"discovering {request.robot}"):
        result = discover_robot(request)
    pairs = [(pair["quantity"], pair["input"]) for pair in result["pairs"]]
    print_table(terminal(), ("acts on", "input"), pairs, f"{result['robot']}: what the data ask for")
    print(f"held-out error {result['held_out_error']:.4g} (without networks {result['bare_error']:.4g})")
    print(f"model: {request.out}")
    if json is not None:
        write_json(json, result)
        print(f"figures: {json}")


@command(AdaptRequest, after={"out": "data", "json": "threads"})
def adapt(request: AdaptRequest, *, json: Path | None = None) -> None:
    """Adapt the model of a robot to its logs: identify motors, mechanism and floor, then networks for the rest.

    Of a run of `neurodyn train --conditions`, a network for a family of robots, it finds which robot the logs are of;
    the weights stay, and `neurodyn finetune` goes on with them.

    Each step is kept only where it is better on whole held-out episodes. The page in the run directory says what
    differs from the declaration, what the logs do not say, what remains unexplained, and which motion to log next.

    Flags:
        json: File for the result as JSON.

    Example:
        neurodyn adapt ant --data logs/*.h5 --out runs/my-ant
        neurodyn adapt examples/own_logs --data pendulum.h5 --mechanism --out runs/pendulum
        neurodyn adapt runs/family --data logs/mine.h5 --out runs/mine
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.results import print_adaptation, print_conditions
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.identify.adaptation.run import adapt as adapt_robot
    from neurodyn.identify.conditions import IdentifiedConditions, adapt_conditions, is_run
    from neurodyn.report.adaptation import write_adaptation, write_conditions

    require_writable(json, text=True)
    out = Path(request.out)
    with ProgressBar(f"adapting {request.robot}"):
        found = adapt_conditions(request) if is_run(request.robot) else adapt_robot(request)
    if isinstance(found, IdentifiedConditions):
        write_conditions(out, found.figures)
        print_conditions(found.figures)
    else:
        write_adaptation(out, found.figures)
        print_adaptation(found.figures)
    if json is not None:
        write_json(json, found.figures.plain())
        print(f"figures: {json}")
    print(f"model: {out / 'model'}; report: {out / 'report.html'}")
    print(f"verdict: {found.figures.verdict}")
