# SPDX-License-Identifier: Apache-2.0
"""Arguments of `neurodyn.policy`'s functions, and flags of `neurodyn policy`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from neurodyn.core.config import Config
from neurodyn.core.requests import IN_PYTHON, Flag
from neurodyn.learn.requests import RunOptions

if TYPE_CHECKING:
    from neurodyn.control.resolve import ResolvedDynamics
    from neurodyn.control.starts import Starts
    from neurodyn.core.progress import Progress
    from neurodyn.learn.loop import Callback
    from neurodyn.learn.tracking.tracker import Logger
    from neurodyn.policy.online_learning.settings import OnlineSettings
    from neurodyn.policy.settings import TrainingSettings
    from neurodyn.tasks import Task

SEED, EPISODES = 500, 256
"""Default seed and number of episodes for comparing policies."""


class TrainPolicyRequest(RunOptions, frozen=True, kw_only=False):
    """Training of a policy, by names.

    Attributes:
        task: Name of a task, such as cartpole-swingup; NAME@ROBOT for one of any robot, such as velocity@./go1; or
            FILE.py:CLASS for your own.
        dynamics: Training dynamics: analytic, hybrid (the declared robot with its simulator's contacts, compiled), a
            run directory, or pretrained:NAME.
        out: Folder to write.
        algorithm: ppo, or shac (gradients through the dynamics).
        settings: File with settings (YAML, TOML or JSON); by default those of the task and the algorithm.
        policy: Initial policy, trained by any algorithm: a folder, or pretrained-policy:NAME.
        starts: HDF5 store whose windows precede the episodes, for models of logs, or "task" for starts drawn by the
            task, in models without a memory; by default the model's own log.
        minutes: Time budget; by default the task's number of updates.
        iterations: Number of updates.
        worlds: Parallel worlds.
        penalty: Weight (lambda) of a model's uncertainty subtracted from the reward; for world models, and models of
            `neurodyn train --members 5`. auto, in models of logs: keep the policy as certain as held-out episodes of
            the log.
        reference: Dynamics for evaluations during training, only for monitoring; by default the simulator, if it is
            installed and not used for training; "none" for none.
        keep_every: Updates between policies saved in OUT/kept, for logs of different quality.
        randomise: Randomised quantity of the robot, drawn per world and episode, such as root.mass=+0:10 (added),
            *.damping=x.5:2 (times), contact.friction=.3:.9 (set), optionally followed by :log or :normal; or a run of
            `neurodyn adapt` or `neurodyn identify`, whose posterior is sampled; or a disturbance, such as
            push.velocity=0:1, delay.action=0:.04, observation.*=+-.1:.1:step; or ground=NAME, of which each world gets
            a piece. Repeat the flag for several.
        privileged: Show the policy the randomised quantities, as its critic sees them: a teacher for `neurodyn policy
            distill`.
        history: Frames in the policy's observation.
        recurrent: Memory of the policy: gru or lstm.
        latent: Size of the encoder's latent of a privileged policy's extra observations.
        symmetry: Also learn from mirror images, for robots whose left side mirrors their right.
        judge: Another model of the robot (RUN), of other data or another seed, in which the policy is evaluated during
            training to test whether its return is supported; by default a member held out, or the base alone.
        stop_when_exploiting: End with the last policy whose imagined return members held out and held-out logs support.
            An unsupported return is reported in any case.
        seed: Seed of weights, actions, commands and starts.
        device: Compute device: cpu, cuda, cuda:1 ...
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


class DistillPolicyRequest(RunOptions, frozen=True, kw_only=False):
    """Training of a student, with the robot's observations, by a teacher that also sees the randomised quantities.

    Attributes:
        teacher: Folder of a policy of `neurodyn policy train --privileged`.
        out: Folder to write.
        dynamics: Dynamics in which the student acts; by default the teacher's.
        adapt: Keep the teacher's layers and learn the latent of its encoder from the history (RMA); needs a teacher
            trained with `--latent`.
        history: Frames of observations and actions in the student's input; 16 without --recurrent.
        recurrent: Memory of the student: gru or lstm.
        randomise: Randomised quantities, as in `neurodyn policy train`; by default those of the teacher.
        settings: File with settings (YAML, TOML or JSON).
        minutes: Time budget.
        iterations: Number of updates.
        worlds: Parallel worlds.
        seed: Seed of weights, actions, commands and starts.
        device: Compute device: cpu, cuda, cuda:1 ...
        task: FILE.py:CLASS, for a teacher of your own task, whose code runs only if you name it; or NAME@ROBOT.
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


class PolicyTrainingJob(Config, frozen=True, kw_only=False):
    """Training of a policy with task, dynamics and settings loaded.

    Attributes:
        task: The task.
        training_dynamics: Training dynamics.
        out: Folder of the policy.
        settings: Settings of the training and its algorithm.
        reference: Dynamics of the evaluations beside the training's; None for none.
        judge: Dynamics in which the return is judged; None for a held-out part of the training dynamics.
        starts: Given log of starts, for the record.
        initial: Folder of the initial policy, with its critic if that was kept; None for a random one.
        training_starts: Starts of training episodes; None for those of evaluations.
        resume: Whether to continue an interrupted training of the same policy.
        progress: Progress display.
        callbacks: Called during the training.
        logger: Tracker, see `learn.train`.
    """

    task: "Task"
    training_dynamics: "ResolvedDynamics"
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
    """Options for running policies.

    Attributes:
        seed: Seed of starts and commands; the same starts in all dynamics that start from the task's states.
        starts: HDF5 store whose windows precede the episodes, for models of logs, or "task" for starts drawn by the
            task, in models without a memory; by default the model's own log.
        ground: Ground of the robot, or a file with a scene; by default the robot's own.
        device: Compute device: cpu, cuda, cuda:1 ...
        task: FILE.py:CLASS, for policies of your own task, whose code runs only if you name it; or NAME@ROBOT, if the
            robot has moved.
    """

    seed: int = SEED
    starts: str | None = None
    ground: str | None = None
    device: Annotated[str, Flag("device")] = "cpu"
    task: str | None = None


class EvaluatePolicyRequest(PlayOptions, frozen=True, kw_only=False):
    """Evaluation of policies.

    Attributes:
        folder: Folders of policies of one task, such as several seeds, or pretrained-policy:NAME.
        dynamics: Dynamics to evaluate in: analytic, hybrid, a run directory, or pretrained:NAME; repeat the flag for
            more. By default the simulator and the training dynamics.
        episodes: Number of episodes of each policy in each.
        starts: HDF5 store whose windows precede the episodes, in models of logs; by default the task's starts, or the
            model's own log if it reads a history.
        randomise: Randomised quantity of the robot, as in `neurodyn policy train`, or a run whose posterior is sampled;
            repeat the flag for more. In the simulator this needs a robot with solver: mujoco-c.
    """

    folder: Annotated[str | Path | Sequence[str | Path], Flag(tuple[str, ...], "policies")]
    dynamics: Annotated[tuple[str, ...], Flag("each")] = ()
    episodes: int = EPISODES
    randomise: Annotated[tuple[str, ...], Flag("each")] = ()


class PlayPolicyRequest(PlayOptions, frozen=True, kw_only=False):
    """Recording of a policy.

    Attributes:
        folder: Folder of a policy, or pretrained-policy:NAME.
        dynamics: Dynamics in which it acts: analytic, hybrid, a run directory, or pretrained:NAME.
        on: Your robot in place of --dynamics, as FILE.py:CLASS (`neurodyn.control.RobotInterface`); the others start in
            its state, and its measurements are logged in robot-DATE-TIME.csv.
        beside: Dynamics to compare with; by default the simulator, or in the simulator a second start.
        seconds: Length [s]; by default that of an episode, at most 10 s.
    """

    folder: Annotated[str | Path, Flag(str, "policy")]
    dynamics: str = "analytic"
    on: str | None = None
    beside: str | None = None
    seconds: float | None = None


class LogPolicyRequest(Config, frozen=True, kw_only=False):
    """Log of acting policies.

    Attributes:
        folder: Folders of policies of one task, pretrained-policy:NAME, "random" for uniformly random actions, "still"
            for zero actions, or "swing" for sines, with one frequency per episode; each gets equally many episodes.
        out: File to write (.h5).
        transitions: Minimum number of transitions; by default 200,000, on your robot 20,000.
        worlds: Parallel episodes; by default 256, or fewer if that would record more than twice the transitions.
        noise: Maximum standard deviation of the action noise, or amplitude of sines; each episode draws its own.
        correlation: Correlation of that noise from one frame to the next: 0 for white noise, .9 for smooth commands.
        seed: Seed of starts, commands, pushes and noise.
        position_noise: Standard deviation of position noise, in observations and in the log [rad or m].
        velocity_noise: The same for velocities [rad/s or m/s].
        dynamics: Dynamics of the robot: analytic (its simulator), hybrid (the declared robot with its contacts,
            compiled, ten times faster), or a run directory, such as `neurodyn hybrid --parameters` writes.
        robot: Your robot in place of --dynamics, as FILE.py:CLASS (`neurodyn.control.RobotInterface`): episodes run one
            by one, and each frame is written to OUT-robot.csv as soon as it is over. If it stops, repeat the command to
            continue.
        csv: File for the same data as headerless rows, in the layout that the robot declares.
        coordinates: Log generalised coordinates and torques even if the robot declares rows.
        measured: Log measurements of a robot without rows instead of coordinates, for a world model: joints, and a
            floating base's height, orientation and velocities.
        task: Name of the task, needed for behaviours without a policy; FILE.py:CLASS for policies of your own task,
            whose code runs only if you name it.
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


class OnlineRequest(RunOptions, frozen=True, kw_only=False):
    """Policy and model that learn in alternation.

    Attributes:
        task: Name of a task, such as cartpole-swingup, or FILE.py:CLASS for your own; in Python also a `Task`.
        out: Folder to write: policy/ (the best in the reference), report.html, online.json, rounds/.
        dynamics: The first model: new, a run directory, or pretrained:NAME.
        robot: Your robot in place of --reference, as FILE.py:CLASS (`neurodyn.control.RobotInterface`). Each frame is
            also written to OUT/*robot.csv as soon as it is over; models of kind hybrid are fitted to all logs so far as
            by `neurodyn adapt`.
        kind: Kind of a new model: neural (default), hybrid (default with --robot, else the declared robot with
            --parameters to identify), or world-model.
        data: Training files of a new model in place of random data.
        policy: Initial policy: a folder, or pretrained-policy:NAME.
        settings: File with settings of the policy's training; by default those of the task; in Python also
            `OnlineSettings`.
        device: Compute device of models and policies: cpu, cuda, cuda:1 ...
        resume: Continue an interrupted loop, optionally with more --rounds or --patience.
        stages: From the name of a step ("round 1, model") to its progress display.
        report: Called with a line after each round.
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
    stages: Annotated["Callable[[str], Progress] | None", IN_PYTHON] = None
    report: Annotated[Callable[[str], None] | None, IN_PYTHON] = None
