# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy log`: logs of policies at work, to learn models from."""

from pathlib import Path


def log(
    policies: tuple[str, ...],
    /,
    *,
    out: Path,
    transitions: int = 200_000,
    worlds: int | None = None,
    noise: float = 0.5,
    seed: int = 0,
    position_noise: float = 0.0,
    velocity_noise: float = 0.0,
    dynamics: str = "analytic",
    csv: Path | None = None,
    coordinates: bool = False,
    measured: bool = False,
    task: str | None = None,
    overwrite: bool = False,
) -> None:
    """Record what several policies of one task do in the simulator or in a model, with rewards and ends.

    A robot that declares rows logs those, as the robot itself would; any other logs generalised coordinates and
    torques, as `generate` does.

    Args:
        policies: Folders of policies, pretrained-policy:NAME, "random" for uniformly random actions, or "still" for
            actions of zero; each makes as many episodes as the others.
        out: File to write (.h5).
        transitions: Least number of transitions.
        worlds: Episodes that are made at once; by default 256, or fewer where their frames would be more than twice as
            many as are asked for.
        noise: Greatest standard deviation of the noise on actions; each episode has its own.
        seed: Seed of starts, commands, pushes and noise.
        position_noise: Standard deviation of measured positions, which the policies see and the log holds [rad or m].
        velocity_noise: Standard deviation of measured velocities in the same way [rad/s or m/s].
        dynamics: What stands for the robot: analytic (its simulator), hybrid (the declared robot with its contacts,
            compiled, ten times faster), or a run directory, such as `neurodyn hybrid --parameters` writes.
        csv: File for the same as headerless rows, in the layout that the robot declares.
        coordinates: Whether a robot that declares rows logs generalised coordinates and torques all the same.
        measured: Whether a robot without rows logs what it would measure, for a world model, instead of coordinates:
            joints, and of a floating base height, orientation and velocities.
        task: Name of the task, where no policy says it ("random" and "still" do not); FILE.py:CLASS for policies of a
            task of your own, whose code runs only if you name it.
        overwrite: Replace a finished file.

    Example:
        neurodyn policy log policies/walk random --out walks.h5 --transitions 100000
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.config import from_dict
    from neurodyn.core.errors import InputError, choices
    from neurodyn.data.readers import write_rows
    from neurodyn.data.store import Store
    from neurodyn.policy.algorithms import require_learner

    require_learner()
    from neurodyn.control.measurement_noise import MeasurementNoise
    from neurodyn.control.resolve import TASK, is_declared, open_dynamics
    from neurodyn.policy.artifact import load_policy, task_of
    from neurodyn.policy.logs import BEHAVIOURS, Behaviour, behaviour, record_log, row_layout, usual_worlds
    from neurodyn.tasks import load

    if not policies:
        raise InputError("no policy given; expected at least one folder written by `neurodyn policy train`")
    if csv is not None and coordinates:
        raise InputError("--csv writes the rows that a robot declares; valid: --csv or --coordinates")
    if coordinates and measured:
        raise InputError("--coordinates and --measured exclude each other; valid: one of them, or neither")
    require_writable(out, csv)
    if out.exists() and not overwrite:
        raise InputError(f"{out}: is there already; valid: another --out, or --overwrite")
    sway = from_dict({"position": position_noise, "velocity": velocity_noise}, MeasurementNoise, "log")
    networks = {name: load_policy(name) for name in policies if name not in BEHAVIOURS}
    configs = {name: config for name, (config, _) in networks.items()}
    tasks = {config.task for config in configs.values()}
    if not tasks and task is None:
        raise InputError(
            f"--task is missing; {policies[0]!r} alone does not say which task it acts in; give --task TASK"
        )
    if len(tasks) > 1:
        raise InputError(f"policies are for the tasks {choices(tasks)}; valid: one or more policies for one task")
    named = [task_of(config, task, name) for name, config in configs.items()]
    wanted = named[0] if named else load(str(task))
    layout = None if csv is None else row_layout(wanted)
    behaviours = [
        Behaviour(name, networks[name][1]) if name in networks else behaviour(name, wanted) for name in policies
    ]
    written = coordinates if coordinates or measured else None
    declared = is_declared(dynamics)
    with ProgressBar(f"opening {dynamics}"):
        robot = open_dynamics(wanted, dynamics, starts=None if declared else TASK).dynamics
    with ProgressBar("recording"):
        found = record_log(
            wanted, robot, behaviours, out,
            transitions=transitions,
            worlds=usual_worlds(wanted, transitions, len(behaviours)) if worlds is None else worlds,
            noise=noise, seed=seed, coordinates=written, measurement=sway, declared=declared,
        )  # fmt: skip
    print(
        f"{found.transitions:,} transitions in {found.episodes} episodes, {found.failed:.1%} of which ended in a "
        f"failure ({found.implausible:.1%} in an implausible state; {found.cpu_seconds:.0f} CPU-s): {out}"
    )
    for name, value in found.returns.items():
        print(f"return of {name}, noise included: {value:.4g}")
    if csv is not None and layout is not None:
        write_rows(Store.open(out), csv, layout)
        print(f"rows: {csv}")
