# SPDX-License-Identifier: Apache-2.0
"""`neurodyn identify`: parameters and networks of a hybrid model, from logs."""

from pathlib import Path
from typing import Literal

from neurodyn.cli.terminal.flags import Device, LoggerFlag, Threads, cluster_of


def identify(
    robot: str,
    /,
    *,
    data: tuple[str, ...],
    parameters: tuple[str, ...] = (),
    drive: str | None = None,
    out: Path,
    blueprint: str | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    method: Literal["roll-outs", "inverse-dynamics"] | None = None,
    starts: int | None = None,
    search: str | None = None,
    optimiser: Literal["levenberg-marquardt", "l-bfgs", "cma-es"] | None = None,
    horizon: float | None = None,
    horizons: tuple[float, ...] | None = None,
    prior: tuple[str, ...] = (),
    bootstrap: int | None = None,
    profile: int | None = None,
    start: Literal["auto", "logged", "past"] | None = None,
    device: Device = "cpu",
    settings: str | None = None,
    beside: tuple[str, ...] = (),
    json: Path | None = None,
    threads: Threads = None,
    cluster: str | None = None,
    workers: int | None = None,
    worker_memory: float | None = None,
    resume: bool = False,
    logger: LoggerFlag = None,
) -> None:
    """Identify quantities of a robot's dynamics, and train the networks of a blueprint, from a dataset.

    Args:
        robot: Name of a robot, or the path of your own declaration.
        data: HDF5 store of `neurodyn generate` or `neurodyn import`, or an npz log that the robot declares. Of several
            files each is one log, with values of its own of the quantities that `per_log` of the settings names.
        parameters: Quantities that are free: NAME, NAME=LOWER:UPPER or NAME=START:LOWER:UPPER; names may be patterns
            ("*.damping") or links ("elbow"); by default those that the settings name.
        drive: "torque" or "pd": identify the drives of driven joints, which such a drive stands for where none is
            declared. "network" or "gru": train an actuator network from measured torques.
        out: Run directory to write.
        blueprint: YAML file that says which quantities networks act on, and what they see; "robot" for the one that
            comes with the robot's declaration.
        minutes: Time budget; by default iterations and steps of the settings, so that results depend on the seed alone.
        seed: Seed of everything random: which windows of the logs are compared, starts of the search, resamples.
        method: What is compared with the data: roll-outs with logged motion, or for bolted robots with torque sensors
            what inverse-dynamics says of the logged motion with logged torques; networks are trained on roll-outs.
        starts: Starting points; by default 8 where quantities of contacts are free, else 1.
        search: What begins from several starts: basin-hopping.
        optimiser: What ends the search.
        horizon: Length of the roll-outs that are compared with the data [s].
        horizons: Shorter horizons that are fitted before [s], where the search from the nominal values goes astray.
        prior: What is known of a quantity beforehand, for combinations that the data do not see: NAME=DEVIATION or
            NAME=20%, a standard deviation about the nominal value; names may be patterns.
        bootstrap: Resamples of the logs (200, say) that intervals come from; by default the sandwich covariance.
        profile: Points (9, say) of the profile likelihood of each quantity, for the page.
        start: Starting states of held-out windows: as logged, or estimated from past positions; by default from the
            past where the log's velocities are differences of positions, which look ahead.
        device: Where it computes: cpu, cuda, cuda:1 ...
        settings: Settings file; by default identify.yaml beside the robot's declaration, or the general settings.
        beside: Runs of other models that are measured on the same held-out windows.
        json: File for the result as JSON.
        threads: Cores to use; by default those of the settings, which are all. Results do not depend on it.
        cluster: Share the search from several starts, or the population of cma-es, over a Ray cluster (needs the extra
            `cluster`): "auto" for the one that this machine belongs to, HOST:PORT of its head, or "local". Results are
            those of one machine.
        workers: Workers of the cluster, each on one core; by default as many as it has cores.
        worker_memory: Most memory of a worker [GB]; by default no limit but the machine's.
        resume: Go on with a run that was killed.
        logger: What follows the training beside metrics.jsonl: tensorboard (default), wandb, none, or a LogWriter of
            rsl_rl as MODULE:CLASS. A resumed run keeps its own.

    Example:
        neurodyn identify dfki-c1 --data log.npz --out runs/c1
        neurodyn identify my-arm --data log.h5 --parameters '*.damping' --out runs/arm
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.results import print_identification
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.core.errors import InputError
    from neurodyn.identify.priors import parse_priors
    from neurodyn.identify.run import identify as identify_robot
    from neurodyn.report.identification import write_identification

    require_writable(json, text=True)
    if drive in ("network", "gru"):
        if logger is not None:
            raise InputError(f"--drive {drive} has no metrics that a logger could follow; leave out --logger")
        if cluster is not None:
            raise InputError(f"--drive {drive} trains one network; valid with --cluster: --drive torque or pd, or none")
        _drive_network(robot, data, drive, out, seed, json)
        return
    with cluster_of(cluster, workers, worker_memory) as executor, ProgressBar(f"identifying {robot}") as bar:
        found = identify_robot(
            robot, data, out, parameters=parameters, blueprint=blueprint, settings=settings, minutes=minutes, seed=seed,
            method=method, starts=starts, search=search, optimiser=optimiser, horizon=horizon, horizons=horizons,
            prior=parse_priors(prior) or None, bootstrap=bootstrap, profile=profile, start=start,
            beside=beside, device=device, threads=threads,
            resume=resume, progress=bar, drive=drive, executor=executor, logger=logger,
        )  # fmt: skip
    result = found.figures
    write_identification(out, result, found.sample, found.runs)
    print_identification(result)
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    print(f"model: {out / 'model'}; report: {out / 'report.html'}")


def _drive_network(
    robot: str, data: str | tuple[str, ...], drive: str, out: Path, seed: int | None, json: Path | None
) -> None:
    """Train an actuator network and print its errors beside those of the best parametric drive."""
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.results import print_drive_network
    from neurodyn.core.artifacts import write_json
    from neurodyn.identify.drives import DriveNetworkSettings, identify_drive_network
    from neurodyn.identify.run import open_logs
    from neurodyn.robots import load

    declared = load(robot)
    settings = DriveNetworkSettings(network="gru" if drive == "gru" else "mlp", seed=seed or 0)
    with ProgressBar(f"identifying the drives of {declared.name}"):
        result = identify_drive_network(declared, open_logs(declared, data), out, settings)
    print_drive_network(result)
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    print(f"network: {out / 'actuator_network.json'}" + ("" if drive == "gru" else f"; model: {out / 'model'}"))
