# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy`: train, play, evaluate, import and log policies; train policy and model in turns."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from tyro.conf import arg

from neurodyn.cli.terminal.console import ProgressBar, print_verdict, shell_word, time_of, write_figures
from neurodyn.cli.terminal.flags import (
    FormatFlag,
    GpuIds,
    JsonFile,
    ResultLogger,
    command,
    keep_recording,
    own_device,
    recording_file,
)
from neurodyn.core.artifacts import PRETRAINED_POLICY, require_writable, resolve_policy
from neurodyn.core.config import with_changes
from neurodyn.core.errors import InputError
from neurodyn.core.glossary import explain
from neurodyn.core.verdict import require_usable
from neurodyn.policy.online_learning.settings import OnlineSettings
from neurodyn.policy.requests import (
    DistillPolicyRequest,
    EvaluatePolicyRequest,
    LogPolicyRequest,
    OnlineRequest,
    PlayPolicyRequest,
    TrainPolicyRequest,
)

if TYPE_CHECKING:
    from neurodyn.cli.terminal.console import ProgressBar


@command(TrainPolicyRequest)
def train(request: TrainPolicyRequest, *, gpu_ids: GpuIds = ()) -> None:
    """Train a policy in a simulator or in a model, and write it to a folder.

    Example:
        neurodyn policy train cartpole-swingup --dynamics runs/c --out policies/c
    """
    from neurodyn.policy.learners.algorithms import require_learner

    require_learner()
    from neurodyn.cli.terminal.results import print_promise
    from neurodyn.control.resolve import open_reference
    from neurodyn.control.task_frames import require_fit
    from neurodyn.learn.devices import current_ranks
    from neurodyn.learn.metrics import read_metrics
    from neurodyn.learn.tracking import require_tracker
    from neurodyn.policy.learners.training import open_training
    from neurodyn.policy.learners.training import train as train_policy

    out, dynamics = request.out, request.dynamics
    require_tracker(request.logger, out)
    with ProgressBar(f"opening {dynamics}"):
        job = open_training(with_changes(request, device=own_device(request.device, gpu_ids)))
    require_writable(current_ranks().writes(out / "config.yaml"))
    require_fit(job.task, job.training_dynamics.dynamics, job.settings.penalty)
    with ProgressBar("opening the reference"):
        reference = open_reference(job.task, job.training_dynamics, request.reference)
    if job.task.observes == "sensors":
        print(job.task.said_of_sensors())
    with ProgressBar(f"training {request.task} in {dynamics}") as bar:
        end = train_policy(with_changes(job, reference=reference, progress=bar))
    if job.training_dynamics.dynamics.caveat:
        print(f"{dynamics}: {explain(job.training_dynamics.dynamics.caveat)}")
    print(
        f"trained {end.step} updates on {read_metrics(out)[-1]['frames']:,} frames in {time_of(end)}; policy in {out}"
    )
    print_promise(out, end.best_step, end.step)
    beside_it = "" if dynamics == "analytic" else f" --dynamics {shell_word(dynamics)}"
    require_usable(end.verdict, out)
    if job.settings.privileged:
        print(f"next: neurodyn policy distill {shell_word(out)} --out {shell_word(out)}-student")
    else:
        print(f"next: neurodyn policy evaluate {shell_word(out)} --dynamics analytic{beside_it}")
    print_verdict(end.verdict)


@command(DistillPolicyRequest)
def distill(request: DistillPolicyRequest) -> None:
    """Train a student with the robot's observations from a teacher that also observes randomised quantities.

    Example:
        neurodyn policy distill policies/teacher --out policies/student --history 16
    """
    from neurodyn.policy.learners.algorithms import require_learner

    require_learner()
    from neurodyn.learn.metrics import read_metrics
    from neurodyn.learn.tracking import require_tracker
    from neurodyn.policy.learners.distillation import open_distillation
    from neurodyn.policy.learners.training import train as train_policy

    out = Path(request.out)
    require_tracker(request.logger, out)
    with ProgressBar(f"opening {request.teacher}"):
        job = open_distillation(request)
    require_writable(out / "config.yaml")
    with ProgressBar(f"learning from {request.teacher}") as bar:
        end = train_policy(with_changes(job, progress=bar))
    frames = read_metrics(out)[-1]["frames"]
    print(f"{end.step} updates on {frames:,} frames in {time_of(end)}; policy in {out}")
    require_usable(end.verdict, out)
    drawn = " ".join(f"--randomise '{text}'" for text in job.settings.randomise)
    trained = f"{shell_word(out)} --dynamics {shell_word(job.training_dynamics.name)}"
    print(f"next: neurodyn policy evaluate {trained} {drawn}".rstrip())
    print_verdict(end.verdict)


@command(PlayPolicyRequest)
def play(
    request: PlayPolicyRequest,
    *,
    out: Annotated[
        Path | None,
        arg(help="File to write; by default POLICY/play.html, or play-NAME.html here for a pretrained policy."),
    ] = None,
    format: FormatFlag = None,  # noqa: A002
    logger: ResultLogger = None,
) -> None:
    """Record a policy in some dynamics, side by side with others from the same start.

    Example:
        neurodyn policy play policies/swingup --dynamics runs/cartpole
    """
    from neurodyn.policy.learners.algorithms import require_learner

    require_learner()
    from neurodyn.policy.episodes.play import record_policy

    policy = str(request.folder)
    file = recording_file(policy, "play", out, format, resolve_policy)
    recording = keep_recording(policy, logger, file, lambda: record_policy(request))
    for remark in recording.remarks:
        print(remark)
    print(f"{recording.seconds:.3g} s of {recording.robot.name}, {recording.title}: {file.path}")


@command(EvaluatePolicyRequest)
def evaluate(request: EvaluatePolicyRequest, *, json: JsonFile = None, logger: ResultLogger = None) -> None:
    """Measure the return of policies in several dynamics, and how much these differ.

    Example:
        neurodyn policy evaluate policies/c --dynamics analytic --dynamics runs/c
    """
    from neurodyn.cli.terminal.results import print_policy
    from neurodyn.policy.learners.algorithms import require_learner

    require_learner()
    from neurodyn.learn.metrics import require_followed, show_results
    from neurodyn.policy.episodes.evaluation import evaluate as evaluate_policy
    from neurodyn.policy.episodes.report import returns, write_policy_report

    require_writable(json, text=True)
    (policy, *more) = cast(tuple[str, ...], request.folder)
    if logger is not None and more:
        raise InputError("--logger: shows the result of one policy, and several are given")
    require_followed(logger, policy)
    with ProgressBar("playing episodes"):
        result = evaluate_policy(request)
    print_policy(result)
    write_figures(json, result.plain())
    tables = [table.cells for table in returns(result)]
    show_results(policy, logger, tables=tables, summary={"verdict of policy evaluate": result.verdict})
    if not more and not policy.startswith(PRETRAINED_POLICY):  # the package's own files are not written to
        with ProgressBar("report"):
            written = write_policy_report(Path(policy), result, starts=request.starts, task=request.task)
        print(f"report: {written}")
    print_verdict(result.verdict)


def import_(file: Path, /, *, task: str, out: Path, layout: str = "rsl-rl", activation: str = "elu") -> None:
    """Import a policy from another library for use with `policy play`, `evaluate`, `log` and `export`.

    Args:
        file: Checkpoint of rsl_rl (.pt), or its named arrays (.npz, .safetensors).
        task: Task with the observations and actions of the policy.
        out: Folder to write.
        layout: Layout of the file: rsl-rl (4 or later, as in Isaac Lab and mjlab).
        activation: Activation of its hidden layers, which the file does not record, such as elu, relu or tanh.

    Example:
        neurodyn policy import model.pt --task anymal-velocity --out policies/theirs
    """
    from neurodyn.interop.policies import import_policy

    with ProgressBar(f"reading {file.name}"):
        config = import_policy(file, task, out, layout=layout, activation=activation)
    widths, memory = "-".join(str(width) for width in config.network.hidden), config.network.recurrent
    remembering = f"a {memory} of {config.network.memory}, " if memory else ""
    print(
        f"policy for {config.task} with {len(config.observations)} observations, {remembering}{widths} {activation}, "
        f"and {len(config.actions)} actions: {out}"
    )
    print(f"next: neurodyn policy evaluate {shell_word(out)} --dynamics analytic")


@command(LogPolicyRequest)
def log(request: LogPolicyRequest) -> None:
    """Record policies of one task in the simulator or in a model, with rewards and terminations.

    A robot that declares a row layout logs such rows, as the real robot would; others log generalised coordinates and
    torques, like `generate`.

    Example:
        neurodyn policy log policies/walk random --out walks.h5 --transitions 100000
    """
    from neurodyn.policy.learners.algorithms import require_learner

    require_learner()
    from neurodyn.policy.episodes.logs import log_policies

    with ProgressBar("recording"):
        summary = log_policies(request)
    print(
        f"{summary.transitions:,} transitions in {summary.episodes} episodes, {summary.failed:.1%} of which ended in a "
        f"failure ({summary.implausible:.1%} in an implausible state; {summary.cpu_seconds:.0f} CPU-s): {summary.path}"
    )
    if summary.why_not_scored:
        print(summary.why_not_scored)
    for name, value in () if summary.why_not_scored else summary.returns.items():
        print(f"return of {name}, noise included: {value:.4g}")
    if summary.true_states:
        print(f"true states of its base, for `neurodyn evaluate RUN --states --data`: {summary.true_states}")
    if request.csv is not None:
        print(f"rows: {request.csv}")


@command(OnlineRequest, settings=OnlineSettings, names=[
    "reference", "rounds", "frames", "first", "log_frames", "noise", "correlation", "rollout", "random_share",
    "last_share", "parameters", "size", "finetune", "members", "model_minutes", "closed_loop", "further",
    "stop_when_exploiting", "tolerance", "patience", "seed",
])  # fmt: skip
def online(
    request: OnlineRequest,
    *,
    iterations: Annotated[int | None, arg(help="Policy updates in the first round; by default the task's.")] = None,
    worlds: Annotated[int | None, arg(help="Number of parallel worlds in the model.")] = None,
    observe: Annotated[
        Literal["state", "sensors"] | None,
        arg(
            help="What the policy sees: the state, or readings of the robot's sensors; by default as the task declares."
        ),
    ] = None,
    penalty: Annotated[
        float | Literal["auto"] | None,
        arg(
            help="Weight (lambda) of the model uncertainty subtracted from the reward; auto to choose it from the "
            "model. By default the task's."
        ),
    ] = None,
    json: Annotated[Path | None, arg(help="File for the result as JSON, in addition to OUT/online.json.")] = None,
    **flags: Any,
) -> None:
    """Train a policy in a model, log it in the simulator or on your robot, refit the model, and repeat.

    Stops when the returns in model and simulator agree and the last rounds brought no improvement.

    Example:
        neurodyn policy online cartpole-swingup --out runs/online --rounds 3
        neurodyn policy online ant-run --tasks ant-spin --out runs/ant
    """
    from neurodyn.policy.learners.algorithms import require_learner

    require_learner()
    from neurodyn.policy.online_learning.loop import frames_of
    from neurodyn.policy.online_learning.loop import online as learn_online
    from neurodyn.policy.online_learning.problem import settings_of
    from neurodyn.policy.online_learning.record import SharedResult
    from neurodyn.policy.online_learning.settings import with_flags

    require_writable(json, text=True)
    policy = {"iterations": iterations, "worlds": worlds, "penalty": penalty, "observe": observe}
    settings = with_flags(settings_of(request), policy=policy, **flags)
    own = {}
    for name in request.tasks:
        further = with_changes(request, task=name, tasks=())
        own[str(name)] = with_flags(settings_of(further), policy=policy, **flags).policy
    settings = with_changes(settings, tasks=own)
    with _Stages() as stages:
        result = learn_online(
            with_changes(request, settings=settings, stages=stages, report=lambda text: print(text, flush=True))
        )
    write_figures(json, result.plain())
    out = Path(request.out)
    if isinstance(result, SharedResult):
        frames = f"{result.frames:,} {frames_of(settings.reference)}"
        print(f"{frames} of all tasks, {result.cpu_seconds:.0f} CPU-s; reports: {out / '*' / 'report.html'}")
        print_verdict(result.verdict)
        return
    frames = f"{result.frames:,} {frames_of(result.reference)}"
    print(f"{frames}, {result.cpu_seconds:.0f} CPU-s; report: {out / 'report.html'}")
    verb = f"evaluate {out / 'policy'} --dynamics" if request.robot is None else f"play {out / 'policy'} --on"
    print(f"next: neurodyn policy {verb} {shell_word(result.reference)}")
    print_verdict(result.verdict)


class _Stages:
    """One progress bar per step, one after the other."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def __call__(self, title: str) -> "ProgressBar":

        self._open.close()
        return self._open.enter_context(ProgressBar(title))

    def __enter__(self) -> "_Stages":
        return self

    def __exit__(self, *_: Any) -> None:
        self._open.close()
