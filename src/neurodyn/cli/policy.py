# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy train`, `play` and `evaluate`: policies in any dynamics."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from neurodyn.cli.choice import Logger
from neurodyn.cli.machine import Device, GpuIds, own_device
from neurodyn.cli.main import Verb
from neurodyn.core.registry import Registry

_Task = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
_Policies = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
_Policy = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]


def train(
    task: _Task,
    /,
    *,
    dynamics: str,
    out: Path,
    algorithm: str = "ppo",
    settings: Path | None = None,
    policy: str | None = None,
    starts: str | None = None,
    minutes: float | None = None,
    iterations: int | None = None,
    worlds: int | None = None,
    penalty: float | Literal["auto"] | None = None,
    reference: str | None = None,
    keep_every: int | None = None,
    seed: int | None = None,
    device: Device = "cpu",
    gpu_ids: GpuIds = (),
    resume: bool = False,
    logger: Logger = None,
) -> None:
    """Train a policy in a simulator or in a model, and write it to a folder.

    Args:
        task: Name of a task, as cartpole-swingup, or FILE.py:CLASS for one of your own.
        dynamics: Where it is trained: analytic, hybrid (the declared robot with its simulator's contacts, compiled), a
            run directory, or pretrained:NAME.
        out: Folder to write.
        algorithm: ppo; shac (gradients through the dynamics); or ahac (shac with a horizon that adapts).
        settings: File with settings (YAML, TOML or JSON); by default those of the task and the algorithm.
        policy: Policy to begin with, by whatever algorithm: a folder, or pretrained-policy:NAME.
        starts: HDF5 store after whose windows episodes start, for models of logs, or "task" for starts that the task
            draws, in models without a memory; by default the model's own log.
        minutes: Time budget; by default the task's number of updates.
        iterations: Number of updates.
        worlds: Worlds that run at once.
        penalty: Weight (lambda) of a model's uncertainty that is subtracted from the reward; for world models, and
            models of `neurodyn train --members 5`. auto, in models of logs: what keeps the policy as certain as
            held-out episodes of the log.
        reference: Where the policy is played beside its own dynamics while it trains, only to be watched; by default
            the simulator, where it is installed and the policy trains elsewhere; "none" for nowhere.
        keep_every: Updates between two policies that are kept in OUT/kept, to make logs of different quality with.
        seed: Seed of weights, actions, commands and starts.
        device: Where it computes: cpu, cuda, cuda:1 ...
        gpu_ids: GPUs to train on, one process on each with worlds of its own: 0 1, or all.
        resume: Go on with a training that was killed.
        logger: What follows the training beside metrics.jsonl: tensorboard (default), wandb, none, or a LogWriter of
            rsl_rl as MODULE:CLASS. A resumed run keeps its own.

    Example:
        neurodyn policy train cartpole-swingup --dynamics runs/cartpole --out policies/swingup
    """
    from neurodyn.cli.progress import ProgressBar
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.errors import InputError
    from neurodyn.core.verdict import grade_of
    from neurodyn.policy.optional_dependencies import require_learner

    require_learner()
    from neurodyn.control.compatibility import require_fit
    from neurodyn.control.resolve import open_dynamics, open_reference
    from neurodyn.learn.metrics import read_metrics
    from neurodyn.learn.ranks import here
    from neurodyn.learn.tracking.session import require_tracker
    from neurodyn.policy.algorithms import ALGORITHMS
    from neurodyn.policy.settings import load_settings, with_flags
    from neurodyn.policy.train import train_policy
    from neurodyn.policy.warm_start import begun_with
    from neurodyn.tasks import load

    require_tracker(logger, out)
    chosen, wanted = ALGORITHMS[algorithm], load(task)
    with ProgressBar(f"opening {dynamics}"):
        where = open_dynamics(wanted, dynamics, device=own_device(device, gpu_ids), starts=starts)
    chosen.require(where.dynamics)
    resolved = with_flags(
        load_settings(task, settings, logs=where.dynamics.measured, kind=chosen.settings),
        minutes=minutes, iterations=iterations, worlds=worlds, penalty=penalty, seed=seed,
        keep_every=keep_every,
    )  # fmt: skip
    begun = None
    if policy is not None:
        begun, resolved = begun_with(wanted, policy, resolved)
    require_writable(here().writes(out / "config.yaml"))
    require_fit(wanted, where.dynamics, resolved.penalty)
    with ProgressBar("opening the reference"):
        beside = open_reference(wanted, where, reference)
    with ProgressBar(f"training {task} in {dynamics}") as bar:
        end = train_policy(
            wanted, where, out, resolved, reference=beside, starts=starts, initial=begun, resume=resume, progress=bar,
            logger=logger,
        )  # fmt: skip
    print(
        f"trained {end.step} updates on {read_metrics(out)[-1]['frames']:,} frames in {end.seconds:.0f} s "
        f"({end.cpu_seconds:.0f} CPU-s); policy in {out}"
    )
    beside_it = "" if dynamics == "analytic" else f" --dynamics {dynamics}"
    if grade_of(end.verdict) == "fails":
        raise InputError(f"{out}: verdict: {end.verdict}")
    print(f"next: neurodyn policy evaluate {out} --dynamics analytic{beside_it}")
    print(f"verdict: {end.verdict}")


def play(
    policy: _Policy,
    /,
    *,
    dynamics: str = "analytic",
    beside: str | None = None,
    out: Path | None = None,
    format: Literal["html", "mp4", "gif", "rrd"] | None = None,  # noqa: A002
    seconds: float | None = None,
    seed: int = 500,
    starts: str | None = None,
    ground: str | None = None,
    device: Device = "cpu",
    task: str | None = None,
    logger: Logger = None,
) -> None:
    """Record what a policy does in some dynamics, beside others from the same start.

    Args:
        policy: Folder of a policy, or pretrained-policy:NAME.
        dynamics: Where it acts: analytic, hybrid, a run directory, or pretrained:NAME.
        beside: Where it also acts; by default the simulator, or in the simulator a second start.
        out: File to write; by default POLICY/play.html, or play-NAME.html here for a pretrained policy.
        format: html, mp4 (needs the extra `view`), gif or rrd (needs the extra `rerun`); by default as the file's name
            ends, else html.
        seconds: Length; by default that of an episode, at most 10 s.
        seed: Seed of starts and commands.
        starts: HDF5 store after whose windows episodes start, for models of logs, or "task" for starts that the task
            draws, in models without a memory; by default the model's own log.
        ground: Ground of the robot, or a file with a scene; by default the robot's own.
        device: Where it computes: cpu, cuda, cuda:1 ...
        task: FILE.py:CLASS, for a policy of a task of your own; its code runs only if you name it.
        logger: Show the result in the run's tracker, too: wandb (the run of its training goes on) or tensorboard.

    Example:
        neurodyn policy play policies/swingup --dynamics runs/cartpole
    """
    from neurodyn.cli.progress import ProgressBar
    from neurodyn.core.artifacts import require_writable
    from neurodyn.core.progress import stage
    from neurodyn.policy.optional_dependencies import require_learner
    from neurodyn.report.recording_files import format_of, write_recording

    require_learner()
    from neurodyn.learn.tracker_results import require_followed, show_results
    from neurodyn.policy.play import record_policy

    path = _default_output(policy, format or "html") if out is None else out
    kind = format_of(path, format)
    require_writable(path)
    require_followed(logger, policy)
    with ProgressBar(f"recording {policy}"):
        with stage(0.0, 0.4):
            recording = record_policy(
                policy, dynamics, beside=beside, seconds=seconds, seed=seed, starts=starts, ground=ground,
                device=device, task=task,
            )  # fmt: skip
        with stage(0.4, 1.0):
            write_recording(recording, path, kind)
    show_results(policy, logger, films=[path])
    print(f"{recording.seconds:.3g} s of {recording.robot.name}, {recording.title}: {path}")


def evaluate(
    policies: _Policies,
    /,
    *,
    dynamics: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    episodes: int = 256,
    seed: int = 500,
    starts: str | None = None,
    ground: str | None = None,
    device: Device = "cpu",
    json: Path | None = None,
    task: str | None = None,
    logger: Logger = None,
) -> None:
    """Measure the return of policies in dynamics, and how far these are apart.

    Args:
        policies: Folders of policies of one task, as those of several seeds, or pretrained-policy:NAME.
        dynamics: Where they act: analytic, hybrid, a run directory, or pretrained:NAME; give the flag once for each. By
            default the simulator, and what they were trained in.
        episodes: Number of episodes of each policy in each.
        seed: Seed of starts and commands; the same starts in all dynamics that start where the task says.
        starts: HDF5 store after whose windows episodes start in models of logs; by default the model's own log.
        ground: Ground of the robot, or a file with a scene; by default the robot's own.
        device: Where it computes: cpu, cuda, cuda:1 ...
        json: File for the result as JSON.
        task: FILE.py:CLASS, for policies of a task of your own; its code runs only if you name it.
        logger: Show the result in the run's tracker, too: wandb (the run of its training goes on) or tensorboard.

    Example:
        neurodyn policy evaluate policies/swingup --dynamics analytic --dynamics runs/cartpole
    """
    from neurodyn.cli.progress import ProgressBar
    from neurodyn.cli.tables.results import print_policy
    from neurodyn.core.artifacts import PRETRAINED_POLICY, require_writable, write_json
    from neurodyn.core.errors import InputError
    from neurodyn.policy.optional_dependencies import require_learner

    require_learner()
    from neurodyn.learn.tracker_results import require_followed, show_results
    from neurodyn.policy.evaluation import evaluate_policy
    from neurodyn.policy.report import returns, write_policy_report

    require_writable(json, text=True)
    (policy, *more) = policies
    if logger is not None and more:
        raise InputError("--logger: shows the result of one policy, and several are given")
    require_followed(logger, policy)
    with ProgressBar("playing episodes"):
        result = evaluate_policy(
            policies, dynamics, episodes=episodes, seed=seed, starts=starts, ground=ground, device=device, task=task
        )
    print_policy(result)
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    tables = [table.cells for table in returns(result)]
    show_results(policy, logger, tables=tables, summary={"verdict of policy evaluate": result.verdict})
    if not more and not policy.startswith(PRETRAINED_POLICY):  # what ships with the package is not written to
        with ProgressBar("report"):
            written = write_policy_report(Path(policy), result, starts=starts, task=task)
        print(f"report: {written}")
    print(f"verdict: {result.verdict}")


def _default_output(policy: str, suffix: str) -> Path:
    """Return where a recording of a policy goes: into its folder, or here for what ships with the package."""
    from neurodyn.core.artifacts import PRETRAINED_POLICY

    if policy.startswith(PRETRAINED_POLICY):
        return Path(f"play-{policy.removeprefix(PRETRAINED_POLICY)}.{suffix}")
    return Path(policy) / f"play.{suffix}"


ACTIONS: Registry[Verb] = Registry(
    "policy action",
    train=Verb("train a policy in a simulator or in a model", f"{__name__}:train", parallel=True),
    play=Verb("record what a policy does, beside other dynamics", f"{__name__}:play"),
    evaluate=Verb("measure returns in dynamics, and how far these are apart", f"{__name__}:evaluate"),
    **{
        "import": Verb("take over a policy that somebody else trained (rl_games)", "neurodyn.cli.policy_import:import_")
    },
    log=Verb(
        "record what policies do in the simulator, as a dataset",
        "neurodyn.cli.policy_log:log",
    ),
    online=Verb(
        "train policy and model in turns",
        "neurodyn.cli.policy_online:online",
    ),
)
"""What can be done with policies, by the word behind `neurodyn policy`."""
