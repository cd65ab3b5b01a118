# SPDX-License-Identifier: Apache-2.0
"""What is asked of policies: the arguments of `neurodyn.policy`'s functions, and the flags of `neurodyn policy`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from neurodyn.core.config import Config
from neurodyn.core.requests import IN_PYTHON, Flag

if TYPE_CHECKING:
    from neurodyn.control.resolve import ResolvedDynamics
    from neurodyn.control.starts import Starts
    from neurodyn.core.progress import Progress
    from neurodyn.learn.loop import Callback
    from neurodyn.learn.tracking.tracker import Logger
    from neurodyn.policy.online.settings import OnlineSettings
    from neurodyn.policy.settings import TrainingSettings
    from neurodyn.tasks import Task

SEED, EPISODES = 500, 256
"""Default seed and number of episodes in which policies are compared."""


class TrainPolicyRequest(Config, frozen=True, kw_only=False):
    """A training of a policy, by names.

    Attributes:
        task: Name of a task, as cartpole-swingup; NAME@ROBOT for one of any robot, as velocity@./go1; or FILE.py:CLASS
            for one of your own.
        dynamics: Where it is trained: analytic, hybrid (the declared robot with its simulator's contacts, compiled), a
            run directory, or pretrained:NAME.
        out: Folder to write.
        algorithm: ppo, or shac (gradients through the dynamics).
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
        randomise: Quantity in which the robot differs between worlds and episodes, as root.mass=+0:10 (added),
            *.damping=x.5:2 (times), contact.friction=.3:.9 (set), each also with :log or :normal behind it; or a run of
            `neurodyn adapt` or `neurodyn identify`, whose posterior is drawn from; or what disturbs it, as
            push.velocity=0:1, delay.action=0:.04, observation.*=+-.1:.1:step; or ground=NAME, of which each world has a
            piece. Give the flag once for each.
        privileged: The policy sees what is drawn for the robot, as its critic does: a teacher for `neurodyn policy
            distill`.
        history: Frames of observations that the policy sees at once.
        recurrent: Memory of the policy: gru or lstm.
        latent: Numbers into which an encoder turns what a privileged policy sees.
        symmetry: Learn from mirror images, too, of robots whose left side is the image of their right.
        judge: Another model of the robot (RUN), of other data or another seed, in which the policy is played while it
            trains, to tell whether its return is supported; by default a member held out, or the base alone.
        stop_when_exploiting: End with the last policy whose imagined return members held out and held-out logs support.
            A return that they do not is named in any case.
        seed: Seed of weights, actions, commands and starts.
        device: Where it computes: cpu, cuda, cuda:1 ...
        resume: Go on with a training that was killed.
        logger: What follows the training beside metrics.jsonl: tensorboard (default), wandb, none, or a LogWriter of
            rsl_rl as MODULE:CLASS. A resumed run keeps its own.
    """

    task: str
    dynamics: str
    out: Path
    algorithm: str = "ppo"
    settings: Annotated[str | Path | None, Flag(Path | None)] = None
    policy: str | None = None
    starts: str | None = None
    minutes: float | None = None
    iterations: int | None = None
    worlds: int | None = None
    penalty: float | Literal["auto"] | None = None
    reference: str | None = None
    keep_every: int | None = None
    randomise: Annotated[tuple[str, ...], Flag("each")] = ()
    privileged: bool = False
    history: int | None = None
    recurrent: Literal["gru", "lstm"] | None = None
    latent: int | None = None
    symmetry: bool = False
    judge: str | None = None
    stop_when_exploiting: bool = False
    seed: int | None = None
    device: Annotated[str, Flag("device")] = "cpu"
    resume: bool = False
    logger: Annotated["Logger | None", Flag("logger")] = None


class DistillPolicyRequest(Config, frozen=True, kw_only=False):
    """A training of a student, which sees what the robot sees, by a teacher that also sees what is drawn for it.

    Attributes:
        teacher: Folder of a policy of `neurodyn policy train --privileged`.
        out: Folder to write.
        dynamics: Where the student acts; by default where the teacher was trained.
        adapt: Keep the teacher's layers and learn the latent of its encoder from the history (RMA); the teacher is one
            of `--latent`.
        history: Frames of observations and actions that the student sees at once; 16 without --recurrent.
        recurrent: Memory of the student: gru or lstm.
        randomise: What is drawn for robots, as in `neurodyn policy train`; by default that of the teacher.
        settings: File with settings (YAML, TOML or JSON).
        minutes: Time budget.
        iterations: Number of updates.
        worlds: Worlds that run at once.
        seed: Seed of weights, actions, commands and starts.
        device: Where it computes: cpu, cuda, cuda:1 ...
        task: FILE.py:CLASS, for a teacher of a task of your own, whose code runs only if you name it; or NAME@ROBOT.
        resume: Go on with a training that was killed.
        logger: What follows the training beside metrics.jsonl, as in `neurodyn policy train`.
    """

    teacher: Annotated[str | Path, Flag(str, "policy")]
    out: Annotated[str | Path, Flag(Path)]
    dynamics: str | None = None
    adapt: bool = False
    history: int | None = None
    recurrent: Literal["gru", "lstm"] | None = None
    randomise: Annotated[tuple[str, ...], Flag("each")] = ()
    settings: Annotated[str | Path | None, Flag(Path | None)] = None
    minutes: float | None = None
    iterations: int | None = None
    worlds: int | None = None
    seed: int | None = None
    device: Annotated[str, Flag("device")] = "cpu"
    task: str | None = None
    resume: bool = False
    logger: Annotated["Logger | None", Flag("logger")] = None


class PolicyTrainingJob(Config, frozen=True, kw_only=False):
    """A training of a policy with everything opened.

    Attributes:
        task: What is to be learned.
        where: Dynamics that it is trained in.
        out: Folder of the policy.
        settings: How to train, and by which algorithm.
        reference: Dynamics in which the policy is played beside those of the training; None for none.
        judge: Dynamics in which its return is judged; None for what is held out of those of the training.
        starts: Log that was given for starts, for the record.
        initial: Folder of a policy that it starts from, with its critic where that was kept; None for a random one.
        training_starts: Where episodes of the training start; None for where those start in which it is played.
        resume: Go on where a stopped training of the same policy was saved.
        progress: Shown how far the training is.
        callbacks: Called as the training goes.
        logger: What follows the training, see `learn.train`.
    """

    task: "Task"
    where: "ResolvedDynamics"
    out: Path
    settings: "TrainingSettings"
    reference: "ResolvedDynamics | None" = None
    judge: "ResolvedDynamics | None" = None
    starts: str | None = None
    initial: Path | None = None
    training_starts: "Starts | None" = None
    resume: bool = False
    progress: "Progress | None" = None
    callbacks: "Sequence[Callback]" = ()
    logger: "Logger | None" = None


class PlayOptions(Config, frozen=True, kw_only=True):
    """How policies are played.

    Attributes:
        seed: Seed of starts and commands; the same starts in all dynamics that start where the task says.
        starts: HDF5 store after whose windows episodes start, for models of logs, or "task" for starts that the task
            draws, in models without a memory; by default the model's own log.
        ground: Ground of the robot, or a file with a scene; by default the robot's own.
        device: Where it computes: cpu, cuda, cuda:1 ...
        task: FILE.py:CLASS, for policies of a task of your own, whose code runs only if you name it; or NAME@ROBOT, if
            the robot has moved.
    """

    seed: int = SEED
    starts: str | None = None
    ground: str | None = None
    device: Annotated[str, Flag("device")] = "cpu"
    task: str | None = None


class EvaluatePolicyRequest(PlayOptions, frozen=True, kw_only=False):
    """An evaluation of policies.

    Attributes:
        folder: Folders of policies of one task, as those of several seeds, or pretrained-policy:NAME.
        dynamics: Where they act: analytic, hybrid, a run directory, or pretrained:NAME; give the flag once for each. By
            default the simulator, and what they were trained in.
        episodes: Number of episodes of each policy in each.
        starts: HDF5 store after whose windows episodes start in models of logs; by default they start where the task
            says, and in the model's own log where it reads a history.
        randomise: Quantity in which the robot differs between episodes, as in `neurodyn policy train`, or a run whose
            posterior is drawn from; give the flag once for each. In the simulator this needs a robot with solver:
            mujoco-c.
    """

    folder: Annotated[str | Path | Sequence[str | Path], Flag(tuple[str, ...], "policies")]
    dynamics: Annotated[tuple[str, ...], Flag("each")] = ()
    episodes: int = EPISODES
    randomise: Annotated[tuple[str, ...], Flag("each")] = ()


class PlayPolicyRequest(PlayOptions, frozen=True, kw_only=False):
    """A recording of a policy.

    Attributes:
        folder: Folder of a policy, or pretrained-policy:NAME.
        dynamics: Where it acts: analytic, hybrid, a run directory, or pretrained:NAME.
        on: Your robot in place of --dynamics, as FILE.py:CLASS (`neurodyn.control.RobotInterface`); the others start
            where it does, and what it measures is logged in robot-DATE-TIME.csv.
        beside: Where it also acts; by default the simulator, or in the simulator a second start.
        seconds: Length; by default that of an episode, at most 10 s.
    """

    folder: Annotated[str | Path, Flag(str, "policy")]
    dynamics: str = "analytic"
    on: str | None = None
    beside: str | None = None
    seconds: float | None = None


class LogPolicyRequest(Config, frozen=True, kw_only=False):
    """A log of policies at work.

    Attributes:
        folder: Folders of policies of one task, pretrained-policy:NAME, "random" for uniformly random actions,
            "still" for actions of zero, or "swing" for sines, each episode at a frequency of its own; each makes as
            many episodes as the others.
        out: File to write (.h5).
        transitions: Least number of transitions; by default 200,000, of your robot 20,000.
        worlds: Episodes that are made at once; by default 256, or fewer where their frames would be more than twice as
            many as are asked for.
        noise: Greatest standard deviation of the noise on actions, or amplitude of sines; each episode has its own.
        correlation: Correlation of that noise from one frame to the next: 0 for white noise, .9 for smooth commands.
        seed: Seed of starts, commands, pushes and noise.
        position_noise: Standard deviation of measured positions, which the policies see and the log holds [rad or m].
        velocity_noise: Standard deviation of measured velocities in the same way [rad/s or m/s].
        dynamics: What stands for the robot: analytic (its simulator), hybrid (the declared robot with its contacts,
            compiled, ten times faster), or a run directory, such as `neurodyn hybrid --parameters` writes.
        robot: Your robot in place of --dynamics, as FILE.py:CLASS (`neurodyn.control.RobotInterface`): one episode
            after the other, each frame of which is also in OUT-robot.csv as soon as it is over. If it stops, the
            same command goes on.
        csv: File for the same as headerless rows, in the layout that the robot declares.
        coordinates: Whether a robot that declares rows logs generalised coordinates and torques all the same.
        measured: Whether a robot without rows logs what it would measure, for a world model, instead of coordinates:
            joints, and of a floating base height, orientation and velocities.
        task: Name of the task, where no policy says it (behaviours without one do not); FILE.py:CLASS for policies of
            a task of your own, whose code runs only if you name it.
        overwrite: Replace a finished file.
    """

    folder: Annotated[str | Path | Sequence[str | Path], Flag(tuple[str, ...], "policies")]
    out: Annotated[str | Path, Flag(Path)]
    transitions: int | None = None
    worlds: int | None = None
    noise: float = 0.5
    correlation: float = 0.0
    seed: int = 0
    position_noise: float = 0.0
    velocity_noise: float = 0.0
    dynamics: str = "analytic"
    robot: str | None = None
    csv: Path | None = None
    coordinates: bool = False
    measured: bool = False
    task: str | None = None
    overwrite: bool = False


class OnlineRequest(Config, frozen=True, kw_only=False):
    """A policy and a model that learn in turns.

    Attributes:
        task: Name of a task, as cartpole-swingup, or FILE.py:CLASS for one of your own; in Python also a `Task`.
        out: Folder to write: policy/ (the best in the reference), report.html, online.json, rounds/.
        dynamics: The first model: new, a run directory, or pretrained:NAME.
        robot: Your robot in place of --reference, as FILE.py:CLASS (`neurodyn.control.RobotInterface`). Each frame is
            also in OUT/*robot.csv as soon as it is over; models of kind hybrid are made from all logs so far as by
            `neurodyn adapt`.
        kind: Kind of a new model: neural (default), hybrid (default with --robot, else the declared robot with
            --parameters to identify), or world-model.
        data: Files that a new model learns from in place of random data.
        policy: Policy to begin with: a folder, or pretrained-policy:NAME.
        settings: File with settings of the policy's training; by default those of the task; in Python also
            `OnlineSettings`.
        device: Where models and policies are trained: cpu, cuda, cuda:1 ...
        resume: Go on with a loop that was stopped; more --rounds or --patience may be given.
        logger: What follows the training beside metrics.jsonl: tensorboard (default), wandb, none, or a LogWriter of
            rsl_rl as MODULE:CLASS. A resumed run keeps its own.
        stages: From the name of a step ("round 1, model") to what shows how far it is.
        report: Takes a line after each round.
    """

    task: Annotated["Task | str", Flag(str)]
    out: Annotated[str | Path, Flag(Path)]
    dynamics: str = "new"
    robot: str | None = None
    kind: str | None = None
    data: Annotated[Sequence[str], Flag(tuple[str, ...])] = ()
    policy: Annotated[str | Path | None, Flag(str | None)] = None
    settings: Annotated["OnlineSettings | Path | None", Flag(Path | None)] = None
    device: Annotated[str, Flag("device")] = "cpu"
    resume: bool = False
    logger: Annotated["Logger | None", Flag("logger")] = None
    stages: Annotated["Callable[[str], Progress] | None", IN_PYTHON] = None
    report: Annotated[Callable[[str], None] | None, IN_PYTHON] = None
