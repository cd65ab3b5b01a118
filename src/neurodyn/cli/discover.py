# SPDX-License-Identifier: Apache-2.0
"""`neurodyn discover`: which augmentations the data ask for."""

from pathlib import Path

from neurodyn.cli.terminal.flags import Device, LoggerFlag, Threads


def discover(
    robot: str,
    /,
    *,
    data: str,
    out: Path,
    base: str | None = None,
    candidates: Path | None = None,
    settings: Path | None = None,
    seed: int | None = None,
    device: Device = "cpu",
    json: Path | None = None,
    threads: Threads = None,
    resume: bool = False,
    logger: LoggerFlag = None,
) -> None:
    """Find which quantities of a robot's dynamics need a network, and which inputs each needs.

    Writes a hybrid model with the networks that were found, blueprint.yaml and discovery.json to the run directory.

    Args:
        robot: Name of a robot, or the path of your own declaration.
        data: HDF5 store, or an npz log that the robot declares.
        out: Run directory to write.
        base: Run of `neurodyn identify` whose parameters are taken; by default the declared ones.
        candidates: Blueprint (YAML) of networks to choose among; by default one on the torque of each joint, with all
            positions, velocities and controls as inputs.
        settings: File with settings of the search.
        seed: Seed of the networks' weights.
        device: Where it computes: cpu, cuda, cuda:1 ...
        json: File for the result as JSON.
        threads: Cores to use; by default all. Results do not depend on it.
        resume: Go on with a discovery that was stopped.
        logger: What follows the training beside metrics.jsonl: tensorboard (default), wandb, none, or a LogWriter of
            rsl_rl as MODULE:CLASS. A resumed run keeps its own.

    Example:
        neurodyn discover dfki-c1 --data log.npz --base runs/c1 --out runs/networks
    """
    import msgspec

    from neurodyn.cli.terminal.console import ProgressBar, terminal
    from neurodyn.cli.terminal.tables import print_table
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.core.config import read_config
    from neurodyn.core.description.blueprint import Blueprint
    from neurodyn.identify.discovery import DiscoverySettings
    from neurodyn.identify.discovery_run import discover_run
    from neurodyn.learn.tracking.session import require_tracker
    from neurodyn.robots import load, locate
    from neurodyn.robots.data import open_robot_data

    require_writable(json, text=True)
    require_tracker(logger, out)
    declared = load(robot)
    chosen = DiscoverySettings() if settings is None else read_config(settings, DiscoverySettings)
    if seed is not None:
        chosen = msgspec.structs.replace(chosen, seed=seed)
    networks = None if candidates is None else read_config(candidates, Blueprint)
    store = open_robot_data(declared, data)
    with ProgressBar(f"discovering {declared.name}"):
        result = discover_run(
            declared, locate(robot), store, out, chosen,
            base=base, candidates=networks, data=data, device=device, threads=threads, resume=resume,
            logger=logger,
        )  # fmt: skip
    pairs = [(pair["quantity"], pair["input"]) for pair in result["pairs"]]
    print_table(terminal(), ("acts on", "input"), pairs, f"{declared.name}: what the data ask for")
    print(f"held-out error {result['held_out_error']:.4g} (without networks {result['bare_error']:.4g})")
    print(f"model: {out}")
    if json is not None:
        write_json(json, result)
        print(f"figures: {json}")
